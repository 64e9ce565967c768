//! The attributes of a destination object, as administrators keep them.

use crate::{
    client::error::ConfigError,
    message::{Destination, DestinationKind},
    setting::{SettingError, nearest},
};

use super::attribute::TEXT_BYTES_MAX;

/// A queue or topic by the two attributes that its administered object has.
///
/// Shape: kind, `imqDestinationName` (default `Untitled_Destination_Object`), checked when it is
/// set, and `imqDestinationDescription`, which nobody but people read.
///
/// ```
/// use tidegate::client::DestinationObject;
/// use tidegate::message::Destination;
///
/// let mut object = DestinationObject::queue();
/// object.set_attribute("imqDestinationName", "orders")?;
/// object.set_attribute("imqDestinationDescription", "what the shop has sold")?;
/// assert_eq!(object.destination(), &Destination::queue("orders")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
/// The destination attributes of the Message Queue client runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationObject {
    destination: Destination,
    description: String,
}

const NAME: &str = "imqDestinationName";
const DESCRIPTION: &str = "imqDestinationDescription";
const UNTITLED: &str = "Untitled_Destination_Object";

impl DestinationObject {
    /// A queue without a name of its own.
    #[must_use]
    pub fn queue() -> Self {
        Self::new(DestinationKind::Queue)
    }

    /// A topic without a name of its own.
    #[must_use]
    pub fn topic() -> Self {
        Self::new(DestinationKind::Topic)
    }

    fn new(kind: DestinationKind) -> Self {
        let destination = named(kind, UNTITLED).expect("an identifier");
        Self { destination, description: "A Description for the Destination Object".to_owned() }
    }

    /// Sets `imqDestinationName` or `imqDestinationDescription`.
    ///
    /// # Errors
    /// [`ConfigError::Unknown`] for another name, [`ConfigError::Value`] if the name is none that a
    /// destination can have, or the description has more than 1024 bytes. Nothing is changed then.
    pub fn set_attribute(&mut self, name: &str, value: &str) -> Result<&mut Self, ConfigError> {
        match name {
            NAME => {
                let destination = named(self.destination.kind(), value.trim());
                self.destination = destination.map_err(|error| {
                    let shown: String = value.chars().take(64).collect();
                    SettingError::new(NAME, shown, error)
                })?;
            }
            DESCRIPTION if value.len() > TEXT_BYTES_MAX => {
                let shown: String = value.chars().take(32).collect();
                let allowed = format!("up to {TEXT_BYTES_MAX} bytes");
                return Err(SettingError::new(DESCRIPTION, shown, allowed).into());
            }
            DESCRIPTION => value.clone_into(&mut self.description),
            other => {
                return Err(ConfigError::Unknown {
                    name: other.chars().take(64).collect(),
                    nearest: nearest(other, [NAME, DESCRIPTION]),
                });
            }
        }
        Ok(self)
    }

    /// The queue or topic, to send to and receive from.
    #[must_use]
    pub const fn destination(&self) -> &Destination {
        &self.destination
    }

    /// What people are told about it.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }
}

impl From<DestinationObject> for Destination {
    fn from(object: DestinationObject) -> Self {
        object.destination
    }
}

fn named(kind: DestinationKind, name: &str) -> Result<Destination, String> {
    let made = match kind {
        DestinationKind::Queue => Destination::queue(name),
        DestinationKind::Topic => Destination::topic(name),
    };
    made.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::DestinationObject;

    #[test]
    fn a_name_is_checked_when_it_is_set_and_a_refused_one_changes_nothing() {
        let mut object = DestinationObject::topic();
        assert_eq!(object.destination().to_string(), "topic Untitled_Destination_Object");
        for good in ["news.*.>", "mq.sys.dmq", " padded ", "*", ">x", "$1"] {
            object.set_attribute("imqDestinationName", good).unwrap();
            assert_eq!(object.destination().name(), good.trim());
        }
        object.set_attribute("imqDestinationName", "kept").unwrap();
        for bad in ["", "1st", "a b", ".a", "a/b", "a-b"] {
            let error = object.set_attribute("imqDestinationName", bad).unwrap_err().to_string();
            assert!(error.contains("imqDestinationName"), "{error}");
            assert_eq!(object.destination().name(), "kept");
        }
        let error = object.set_attribute("imqDestinationNames", "x").unwrap_err().to_string();
        assert!(error.contains("did you mean imqDestinationName?"), "{error}");
    }
}
