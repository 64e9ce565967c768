//! What is known about one attribute, and how its text becomes a setting and back.

use std::{borrow::Cow, fmt, time::Duration};

use super::{Profile, Settings};
use crate::setting::{SettingError, number, switch};

/// One attribute of a connection factory: its name, what it takes, and what it is for.
///
/// Shape: a row of the table [`ConnectionFactory::attributes`](super::super::ConnectionFactory::attributes).
#[derive(Debug)]
pub struct Attribute {
    name: &'static str,
    group: &'static str,
    kind: AttributeKind,
    default: &'static str,
    /// Where later versions have another one.
    current: Option<&'static str>,
    needs: Option<&'static str>,
    meaning: &'static str,
    field: Field,
}

/// The type of an attribute in the administration of the Message Queue client runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttributeKind {
    /// `true` or `false`.
    Boolean,
    /// A whole number of 32 bits.
    Integer,
    /// A whole number of 64 bits.
    Long,
    /// Text.
    String,
}

impl fmt::Display for AttributeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boolean => "Boolean",
            Self::Integer => "Integer",
            Self::Long => "Long",
            Self::String => "String",
        })
    }
}

/// Where an attribute's value is, and which texts it takes.
pub(super) enum Field {
    Switch(fn(&mut Settings) -> &mut bool),
    /// A switch that may be left unset.
    Choice(fn(&mut Settings) -> &mut Option<bool>),
    /// From the first number to the second.
    Count(fn(&mut Settings) -> &mut u32, u32, u32),
    /// From the number on; what is less has no end. The other is the least that is taken.
    Endless(fn(&mut Settings) -> &mut Option<u32>, u32, i32),
    Port(fn(&mut Settings) -> &mut u16, u16),
    Millis(fn(&mut Settings) -> &mut Duration),
    /// Milliseconds; 0 is for ever.
    Timeout(fn(&mut Settings) -> &mut Option<Duration>),
    /// Seconds; 0 and −1 are never.
    Seconds(fn(&mut Settings) -> &mut Option<Duration>),
    Text(fn(&mut Settings) -> &mut String),
    /// Text that nobody is shown.
    Secret(fn(&mut Settings) -> &mut String),
    /// One of those in [`FlowSettings`](crate::flow::FlowSettings); the text is what it takes.
    Flow(&'static str),
    /// What takes a few words, or is checked as a whole.
    Special {
        allowed: &'static str,
        /// The error says why, where there is more to say than what is allowed.
        set: fn(&mut Settings, &str) -> Result<(), Option<String>>,
        show: fn(&Settings) -> String,
    },
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Field")
    }
}

/// Longest user name, password, client id or other text, in bytes.
pub(in crate::client) const TEXT_BYTES_MAX: usize = 1024;

/// Stands for a password wherever one could be shown.
const HIDDEN: &str = "***";

impl Attribute {
    pub(super) const fn new(
        name: &'static str,
        kind: AttributeKind,
        default: &'static str,
        field: Field,
        meaning: &'static str,
    ) -> Self {
        Self { name, group: "", kind, default, current: None, needs: None, meaning, field }
    }

    pub(super) const fn later(mut self, default: &'static str) -> Self {
        self.current = Some(default);
        self
    }

    pub(super) const fn of(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }

    /// Whether it is of version 3.0, and counts without a list of addresses only.
    pub(super) fn is_old(&self) -> bool {
        self.group == super::table::OLD
    }

    pub(super) const fn needs_tls(mut self) -> Self {
        self.needs = Some("TLS");
        self
    }

    /// Its name, which begins with `imq`. Case matters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What it is about: "connection handling", "message header overrides", …
    #[must_use]
    pub const fn group(&self) -> &'static str {
        self.group
    }

    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> AttributeKind {
        self.kind
    }

    /// The value that it has unless it is set.
    #[must_use]
    pub const fn default_in(&self, profile: Profile) -> &'static str {
        match (profile, self.current) {
            (Profile::Current, Some(other)) => other,
            _ => self.default,
        }
    }

    /// What it is for, in a line.
    #[must_use]
    pub const fn meaning(&self) -> &'static str {
        self.meaning
    }

    /// What this build does not include and the attribute is for; `None` if it has its effect.
    #[must_use]
    pub const fn needs(&self) -> Option<&'static str> {
        self.needs
    }

    /// Whether its value is not shown to anybody.
    #[must_use]
    pub const fn is_secret(&self) -> bool {
        matches!(self.field, Field::Secret(_))
    }

    /// Which values it takes: "true or false", "0 to 2147483647", …
    #[must_use]
    pub fn allowed(&self) -> Cow<'static, str> {
        match &self.field {
            Field::Switch(_) => "true or false".into(),
            Field::Choice(_) => "true, false or nothing".into(),
            Field::Count(_, least, most) => format!("{least} to {most}").into(),
            Field::Endless(_, _, least) => format!("{least} to {}", i32::MAX).into(),
            Field::Port(_, least) => format!("{least} to {}", u16::MAX).into(),
            Field::Millis(_) | Field::Timeout(_) => format!("0 to {}", self.most()).into(),
            Field::Seconds(_) => format!("-1 to {}", i32::MAX).into(),
            Field::Text(_) | Field::Secret(_) => format!("up to {TEXT_BYTES_MAX} bytes").into(),
            Field::Flow(allowed) | Field::Special { allowed, .. } => (*allowed).into(),
        }
    }

    /// The largest number of its type.
    fn most(&self) -> u64 {
        match self.kind {
            AttributeKind::Long => i64::MAX.unsigned_abs(),
            _ => i32::MAX.unsigned_abs().into(),
        }
    }

    /// Sets the value from text; nothing is changed if it is refused. Blanks around it do not
    /// matter, except in a password.
    pub(super) fn set(&self, settings: &mut Settings, value: &str) -> Result<(), SettingError> {
        let name = self.name;
        match &self.field {
            Field::Switch(field) => *field(settings) = switch(name, value)?,
            Field::Choice(field) => {
                *field(settings) = match value.trim() {
                    "" => None,
                    word => Some(switch(name, word).map_err(|_| self.refuse(value))?),
                };
            }
            Field::Count(field, least, most) => {
                *field(settings) = number(name, value, *least, *most)?;
            }
            Field::Endless(field, first, least) => {
                let count = number(name, value, *least, i32::MAX)?;
                *field(settings) = u32::try_from(count).ok().filter(|count| count >= first);
            }
            Field::Port(field, least) => *field(settings) = number(name, value, *least, u16::MAX)?,
            Field::Millis(field) => *field(settings) = self.millis(value)?,
            Field::Timeout(field) => *field(settings) = positive(self.millis(value)?),
            Field::Seconds(field) => {
                let seconds = number(name, value, -1, i32::MAX)?;
                let seconds = u64::try_from(seconds).unwrap_or(0);
                *field(settings) = positive(Duration::from_secs(seconds));
            }
            Field::Text(field) => {
                let value = value.trim();
                self.check_len(value)?;
                value.clone_into(field(settings));
            }
            Field::Secret(field) => {
                self.check_len(value)?;
                value.clone_into(field(settings));
            }
            Field::Flow(_) => {
                let known = settings.flow.set(name, value)?;
                debug_assert!(known, "the table has what the flow settings have");
            }
            Field::Special { set, .. } => {
                self.check_len(value)?;
                set(settings, value.trim()).map_err(|reason| match reason {
                    Some(reason) => {
                        SettingError::new(name, value, format!("{}: {reason}", self.allowed()))
                    }
                    None => self.refuse(value),
                })?;
            }
        }
        Ok(())
    }

    /// The value as text that [`set`](Self::set) takes; stars for a password.
    pub(super) fn show(&self, settings: &Settings) -> String {
        // The accessors are for writing as well.
        let own = &mut settings.clone();
        let millis = |time: Duration| time.as_millis().to_string();
        match &self.field {
            Field::Switch(field) => field(own).to_string(),
            Field::Choice(field) => field(own).map_or_else(String::new, |on| on.to_string()),
            Field::Count(field, ..) => field(own).to_string(),
            Field::Endless(field, ..) => {
                field(own).map_or_else(|| "-1".to_owned(), |count| count.to_string())
            }
            Field::Port(field, _) => field(own).to_string(),
            Field::Millis(field) => millis(*field(own)),
            Field::Timeout(field) => millis(field(own).unwrap_or_default()),
            Field::Seconds(field) => field(own).unwrap_or_default().as_secs().to_string(),
            Field::Text(field) => field(own).clone(),
            Field::Secret(field) if field(own).is_empty() => String::new(),
            Field::Secret(_) => HIDDEN.to_owned(),
            Field::Flow(_) => settings.flow.get(self.name).unwrap_or_default(),
            Field::Special { show, .. } => show(settings),
        }
    }

    /// Whether the value is another than that of the profile.
    pub(super) fn is_changed(&self, settings: &Settings) -> bool {
        if let Field::Secret(field) = &self.field {
            return *field(&mut settings.clone()) != self.default_in(settings.profile);
        }
        self.show(settings) != self.default_in(settings.profile)
    }

    fn millis(&self, value: &str) -> Result<Duration, SettingError> {
        number::<u64>(self.name, value, 0, self.most()).map(Duration::from_millis)
    }

    fn check_len(&self, value: &str) -> Result<(), SettingError> {
        // A list of addresses has a limit of its own.
        if value.len() <= TEXT_BYTES_MAX || self.name == "imqAddressList" {
            return Ok(());
        }
        let shown: String = value.chars().take(32).collect();
        let shown = if self.is_secret() { HIDDEN } else { &shown };
        Err(SettingError::new(self.name, shown, format!("up to {TEXT_BYTES_MAX} bytes")))
    }

    fn refuse(&self, value: &str) -> SettingError {
        SettingError::new(self.name, value, self.allowed())
    }
}

/// 0 stands for none.
fn positive(time: Duration) -> Option<Duration> {
    (time > Duration::ZERO).then_some(time)
}
