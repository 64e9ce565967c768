//! Makes connections, as its settings say.

mod typed;

use std::{env, fmt, path::Path};

use super::{
    connection::Connection,
    error::{ConfigError, ConnectError},
    settings::{self, Attribute, Profile, Settings},
};
use crate::in_process::InProcess;

/// Makes connections to a broker.
///
/// Shape: a set of settings, each under its `imq…` name ([`set_attribute`](Self::set_attribute),
/// [`load_properties`](Self::load_properties), [`from_environment`](Self::from_environment)) and as
/// a typed method. The defaults are those of version 3.5 of the Message Queue client runtime, or of
/// its current version ([`with_profile`](Self::with_profile)). Every setting is checked when it is
/// set; a refused one changes nothing.
///
/// ```
/// use tidegate::client::{AcknowledgeMode, ConnectionFactory};
/// use tidegate::message::{Destination, Message};
///
/// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
/// # let address = broker.port_mapper_address(); // As localhost:7676 is.
/// let mut factory = ConnectionFactory::new();
/// factory.set_attribute("imqAddressList", &format!("mq://{address}/jms"))?;
/// let connection = factory.create_connection()?;
/// let session = connection.create_session(AcknowledgeMode::Auto)?;
/// let queue = Destination::queue("greetings")?;
/// session.create_producer(&queue)?.send(Message::text("hello"))?;
/// let consumer = session.create_consumer(&queue)?;
/// connection.start()?;
/// let message = consumer.receive()?.expect("nobody closes the consumer");
/// assert_eq!(message.body_text()?.as_deref(), Some("hello"));
/// connection.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Attributes
#[doc = include_str!("settings/attributes.md")]
///
/// # Source
/// The connection factory attributes of the Message Queue client runtime.
#[derive(Clone, Default)]
pub struct ConnectionFactory {
    settings: Settings,
}

impl fmt::Debug for ConnectionFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl ConnectionFactory {
    /// A factory with the default settings: the broker on this machine, user `guest`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A factory with the defaults of a version of the Message Queue client runtime.
    #[must_use]
    pub fn with_profile(profile: Profile) -> Self {
        Self { settings: Settings::new(profile) }
    }

    /// A factory with the default settings, and over them what the environment says; see
    /// [`load_environment`](Self::load_environment).
    ///
    /// # Errors
    /// [`ConfigError::Environment`].
    pub fn from_environment() -> Result<Self, ConfigError> {
        let mut factory = Self::new();
        factory.load_environment()?;
        Ok(factory)
    }

    /// Every attribute there is, grouped by what it is about.
    #[must_use]
    pub fn attributes() -> &'static [Attribute] {
        Settings::attributes()
    }

    /// The value of an attribute, in the form that [`set_attribute`](Self::set_attribute) takes;
    /// `***` for a password.
    ///
    /// # Errors
    /// [`ConfigError::Unknown`] with the nearest name.
    pub fn attribute(&self, name: &str) -> Result<String, ConfigError> {
        self.settings.get(name)
    }

    /// Whether an attribute has another value than that of the factory's profile.
    #[must_use]
    pub fn is_attribute_changed(&self, name: &str) -> bool {
        self.settings.is_changed(name)
    }

    /// The addresses that are tried, in full and in the order of the list: those of
    /// `imqAddressList`, or the one that the attributes of version 3.0 make.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.settings.address_list().iter().map(ToString::to_string).collect()
    }

    /// Attributes that are set and have no effect, each with the reason: those of version 3.0 once
    /// there is a list of addresses, and those for TLS, which this build does not include.
    #[must_use]
    pub fn attributes_without_effect(&self) -> Vec<(&'static Attribute, &'static str)> {
        self.settings.without_effect()
    }

    /// Sets one attribute from text. Blanks around the value do not matter, except in a password.
    ///
    /// # Errors
    /// [`ConfigError::Unknown`] with the nearest name, [`ConfigError::Value`] with what is allowed.
    pub fn set_attribute(&mut self, name: &str, value: &str) -> Result<&mut Self, ConfigError> {
        self.settings.set(name, value)?;
        Ok(self)
    }

    /// Sets several attributes, as from a map.
    ///
    /// # Errors
    /// As [`set_attribute`](Self::set_attribute), for the first that is refused; nothing is
    /// changed then.
    pub fn set_attributes<N: AsRef<str>, V: AsRef<str>>(
        &mut self,
        attributes: impl IntoIterator<Item = (N, V)>,
    ) -> Result<&mut Self, ConfigError> {
        let mut settings = self.settings.clone();
        for (name, value) in attributes {
            settings.set(name.as_ref(), value.as_ref())?;
        }
        self.settings = settings;
        Ok(self)
    }

    /// Sets the attributes that stand in a file of Java properties, in its order.
    ///
    /// # Errors
    /// [`ConfigError::File`] if it cannot be read, [`ConfigError::Line`] for the first attribute
    /// that is refused; nothing is changed then.
    pub fn load_properties(&mut self, path: impl AsRef<Path>) -> Result<&mut Self, ConfigError> {
        self.settings = settings::from_properties(&self.settings, path.as_ref())?;
        Ok(self)
    }

    /// Sets the attributes for which there is a variable of exactly that name in the environment
    /// of this process.
    ///
    /// # Errors
    /// [`ConfigError::Environment`] for the first variable that is refused, also for one that
    /// begins with `imq` and a capital letter and is no attribute; nothing is changed then.
    pub fn load_environment(&mut self) -> Result<&mut Self, ConfigError> {
        self.settings = settings::from_environment(&self.settings, env::vars_os())?;
        Ok(self)
    }

    /// Connects and logs in, trying the addresses as the settings say. Blocks meanwhile.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`] if no address worked, [`ConnectError::Refused`] if a broker
    /// refuses this client for good.
    pub fn create_connection(&self) -> Result<Connection, ConnectError> {
        for (attribute, reason) in self.settings.without_effect() {
            tracing::warn!(attribute = attribute.name(), reason, "an attribute has no effect");
        }
        Connection::open(&self.settings)
    }

    /// Connects to a broker in this process, without sockets, and logs in. Blocks meanwhile. The
    /// connection is one like others; of the settings, what is about addresses, the port mapper and
    /// TCP does not matter to it.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`] if the broker has ended or takes no more connections,
    /// [`ConnectError::Refused`] if it refuses this client for good.
    pub fn create_connection_in_process(
        &self,
        broker: &InProcess,
    ) -> Result<Connection, ConnectError> {
        let mut settings = self.settings.clone();
        settings.in_process = Some(broker.clone());
        // A broker that has ended does not come back there.
        settings.reconnect_enabled = false;
        Connection::open(&settings)
    }
}
