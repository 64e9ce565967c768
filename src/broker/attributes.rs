//! Attributes of a destination: its limits, and what happens at them.
//!
//! Each has one name, in the settings file and for administrators.
//!
//! # Source
//! The wire protocol: destinations, their attributes and defaults.

use std::fmt;

use crate::{flow::Credit, setting::nearest};

use super::{
    config::ConfigError,
    destination::Kind,
    value::{COUNT, SIZE, SWITCH, credit, heads, limit, plain, set, size, switch},
};

/// Most messages a producer is given at once, and what it gets where nothing limits it.
const PRODUCER_BATCH_MAX: u64 = 1000;

/// Producers that share a destination's room if their number has no limit.
const PRODUCERS_ASSUMED: u64 = 100;

/// What happens to a message for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the wire has these four")]
#[repr(i32)]
pub enum LimitBehavior {
    /// It is taken, and its producers are stopped until there is room.
    FlowControl = 0,
    /// The oldest messages go.
    RemoveOldest = 1,
    /// It is refused.
    RejectNewest = 2,
    /// The messages of the lowest priority go, the oldest of them first.
    RemoveLowPriority = 3,
}

impl LimitBehavior {
    const ALL: [Self; 4] =
        [Self::FlowControl, Self::RemoveOldest, Self::RejectNewest, Self::RemoveLowPriority];

    /// Its number on the wire.
    #[must_use]
    pub const fn to_wire(self) -> i32 {
        self as i32
    }

    /// Whether messages that are there give way.
    pub(super) const fn removes(self) -> bool {
        matches!(self, Self::RemoveOldest | Self::RemoveLowPriority)
    }

    /// The behaviour of this number.
    #[must_use]
    pub fn from_wire(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.to_wire() == number)
    }

    /// The behaviour of this name, in any case.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(name))
    }

    /// Its name, as administrators write it.
    const fn name(self) -> &'static str {
        match self {
            Self::FlowControl => "FLOW_CONTROL",
            Self::RemoveOldest => "REMOVE_OLDEST",
            Self::RejectNewest => "REJECT_NEWEST",
            Self::RemoveLowPriority => "REMOVE_LOW_PRIORITY",
        }
    }
}

impl fmt::Display for LimitBehavior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Attributes of a destination.
///
/// Shape: plain values. `u64::MAX` and `u32::MAX` are no limit; as text that is −1.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attributes {
    /// Most messages, waiting or in flight.
    pub messages_max: u64,
    /// Most bytes of all messages, each counted as its whole packet.
    pub total_bytes_max: u64,
    /// Largest message, the whole packet, in bytes.
    pub message_bytes_max: u64,
    /// What happens to a message for which there is no room.
    pub limit_behavior: LimitBehavior,
    /// Most producers.
    pub producers_max: u32,
    /// Messages a consumer may be sent ahead.
    pub consumer_flow_limit: Credit,
    /// The same for each consumer of a shared subscription to a topic.
    pub shared_consumer_flow_limit: Credit,
    /// Most consumers of one shared subscription to a topic.
    pub shared_consumers_max: u32,
    /// Most consumers of a queue that get messages at the same time.
    pub active_consumers_max: u32,
    /// Most consumers of a queue that wait for the place of an active one.
    pub backup_consumers_max: u32,
    /// Whether dead messages are kept in the dead message queue.
    pub use_dmq: bool,
    /// Whether the destination is for this broker of a cluster alone. Kept and told, and without
    /// effect here: there is one broker.
    pub local_only: bool,
    /// Whether consumers of this broker of a cluster come first. Kept and told, as above.
    pub local_delivery_preferred: bool,
    /// Whether clients check text messages against a schema.
    pub validate_xml_schema: bool,
    /// Where the schemas are, separated by blanks.
    pub xml_schema_uri_list: Option<String>,
    /// Whether clients read the schemas anew when a check fails.
    pub reload_xml_schema: bool,
}

impl Attributes {
    /// What a destination gets that is made on first use.
    #[must_use]
    pub fn auto_created() -> Self {
        Self {
            messages_max: 100_000,
            total_bytes_max: 10 << 30,
            message_bytes_max: 10 << 20,
            ..Self::administered()
        }
    }

    /// What a destination gets that an administrator makes and says no more about: no limits.
    #[must_use]
    pub fn administered() -> Self {
        Self {
            messages_max: u64::MAX,
            total_bytes_max: u64::MAX,
            message_bytes_max: u64::MAX,
            limit_behavior: LimitBehavior::RejectNewest,
            producers_max: 100,
            consumer_flow_limit: Credit::Limited(1000),
            shared_consumer_flow_limit: Credit::Limited(5),
            shared_consumers_max: u32::MAX,
            active_consumers_max: u32::MAX,
            backup_consumers_max: 0,
            use_dmq: true,
            local_only: false,
            local_delivery_preferred: false,
            validate_xml_schema: false,
            xml_schema_uri_list: None,
            reload_xml_schema: false,
        }
    }

    /// What the dead message queue has.
    #[must_use]
    pub fn dead_messages() -> Self {
        Self {
            messages_max: 1000,
            total_bytes_max: 10 << 20,
            limit_behavior: LimitBehavior::RemoveOldest,
            use_dmq: false,
            ..Self::administered()
        }
    }

    /// Messages and bytes a producer may send before it asks for more; −1 bytes are no limit.
    ///
    /// Under flow control a producer's part of the room, so that all of them together cannot send
    /// much more than fits.
    #[must_use]
    pub fn producer_credit(&self) -> (i32, i64) {
        if self.limit_behavior != LimitBehavior::FlowControl {
            return (1000, -1);
        }
        let producers = match self.producers_max {
            u32::MAX => PRODUCERS_ASSUMED,
            limit => u64::from(limit).max(1),
        };
        let messages = (self.messages_max / producers).clamp(1, PRODUCER_BATCH_MAX);
        let bytes = match self.total_bytes_max {
            u64::MAX => -1,
            limit => i64::try_from((limit / producers).max(1)).unwrap_or(-1),
        };
        (i32::try_from(messages).unwrap_or(1), bytes)
    }

    /// Changes one attribute by its name, such as `messages_max`. Values are those of the settings
    /// file: sizes may end in `k`, `m` or `g`, −1 is no limit, blanks and case do not matter.
    ///
    /// # Errors
    /// [`ConfigError::Name`] or [`ConfigError::Value`]; nothing is changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let place = "attribute";
        let Some(attribute) = Attribute::named(name) else {
            return Err(ConfigError::Name {
                place: place.into(),
                name: name.into(),
                nearest: nearest(name, ATTRIBUTES.iter().map(|one| one.name)).into(),
            });
        };
        attribute.apply(self, value).ok_or_else(|| ConfigError::Value {
            place: place.into(),
            name: attribute.name.into(),
            value: value.into(),
            allowed: attribute.allowed,
        })
    }

    /// Each attribute a destination of this kind has, with its value as text.
    pub fn texts(&self, kind: Kind) -> impl Iterator<Item = (&'static str, String)> {
        ATTRIBUTES
            .iter()
            .filter(move |one| one.is_for(kind))
            .map(|one| (one.name, (one.show)(self)))
    }
}

/// One attribute: its name, what it takes, how a value gets in and out.
pub(super) struct Attribute {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub allowed: &'static str,
    /// The only kind of destination that has it.
    kind: Option<Kind>,
    apply: fn(&mut Attributes, &str) -> Option<()>,
    show: fn(&Attributes) -> String,
}

impl Attribute {
    /// The attribute of this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        ATTRIBUTES.iter().find(|one| one.name == name.trim())
    }

    /// Whether a destination of this kind has it.
    pub(super) fn is_for(&self, kind: Kind) -> bool {
        self.kind.is_none_or(|only| only == kind)
    }

    /// Reads a value; `None` if it is not allowed.
    pub(super) fn apply(&self, attributes: &mut Attributes, value: &str) -> Option<()> {
        (self.apply)(attributes, value.trim())
    }
}

const HEADS: &str = "a number from 1 on, or -1 for no limit";
const CREDIT: &str = "a number from 1 to 1000000, or 0 or -1 for no limit";

/// All attributes.
pub(super) static ATTRIBUTES: [Attribute; 16] = [
    Attribute {
        name: "messages_max",
        allowed: COUNT,
        kind: None,
        apply: |one, value| set(&mut one.messages_max, limit(value, plain)),
        show: |one| show_limit(one.messages_max),
    },
    Attribute {
        name: "total_bytes_max",
        allowed: SIZE,
        kind: None,
        apply: |one, value| set(&mut one.total_bytes_max, limit(value, size)),
        show: |one| show_limit(one.total_bytes_max),
    },
    Attribute {
        name: "message_bytes_max",
        allowed: SIZE,
        kind: None,
        apply: |one, value| set(&mut one.message_bytes_max, limit(value, size)),
        show: |one| show_limit(one.message_bytes_max),
    },
    Attribute {
        name: "limit_behavior",
        allowed: "FLOW_CONTROL, REMOVE_OLDEST, REJECT_NEWEST or REMOVE_LOW_PRIORITY",
        kind: None,
        apply: |one, value| set(&mut one.limit_behavior, LimitBehavior::named(value)),
        show: |one| one.limit_behavior.to_string(),
    },
    Attribute {
        name: "producers_max",
        allowed: HEADS,
        kind: None,
        apply: |one, value| set(&mut one.producers_max, heads(value, 1)),
        show: |one| show_heads(one.producers_max),
    },
    Attribute {
        name: "consumer_flow_limit",
        allowed: CREDIT,
        kind: None,
        apply: |one, value| set(&mut one.consumer_flow_limit, credit(value)),
        show: |one| one.consumer_flow_limit.to_wire().to_string(),
    },
    Attribute {
        name: "shared_consumer_flow_limit",
        allowed: CREDIT,
        kind: Some(Kind::Topic),
        apply: |one, value| set(&mut one.shared_consumer_flow_limit, credit(value)),
        show: |one| one.shared_consumer_flow_limit.to_wire().to_string(),
    },
    Attribute {
        name: "shared_consumers_max",
        allowed: HEADS,
        kind: Some(Kind::Topic),
        apply: |one, value| set(&mut one.shared_consumers_max, heads(value, 1)),
        show: |one| show_heads(one.shared_consumers_max),
    },
    Attribute {
        name: "active_consumers_max",
        allowed: HEADS,
        kind: Some(Kind::Queue),
        apply: |one, value| set(&mut one.active_consumers_max, heads(value, 1)),
        show: |one| show_heads(one.active_consumers_max),
    },
    Attribute {
        name: "backup_consumers_max",
        allowed: "a number from 0 on, or -1 for no limit",
        kind: Some(Kind::Queue),
        apply: |one, value| set(&mut one.backup_consumers_max, heads(value, 0)),
        show: |one| show_heads(one.backup_consumers_max),
    },
    Attribute {
        name: "use_dmq",
        allowed: SWITCH,
        kind: None,
        apply: |one, value| set(&mut one.use_dmq, switch(value)),
        show: |one| one.use_dmq.to_string(),
    },
    Attribute {
        name: "local_only",
        allowed: SWITCH,
        kind: None,
        apply: |one, value| set(&mut one.local_only, switch(value)),
        show: |one| one.local_only.to_string(),
    },
    Attribute {
        name: "local_delivery_preferred",
        allowed: SWITCH,
        kind: Some(Kind::Queue),
        apply: |one, value| set(&mut one.local_delivery_preferred, switch(value)),
        show: |one| one.local_delivery_preferred.to_string(),
    },
    Attribute {
        name: "validate_xml_schema",
        allowed: SWITCH,
        kind: None,
        apply: |one, value| set(&mut one.validate_xml_schema, switch(value)),
        show: |one| one.validate_xml_schema.to_string(),
    },
    Attribute {
        name: "xml_schema_uri_list",
        allowed: "addresses separated by blanks, or nothing",
        kind: None,
        apply: |one, value| {
            one.xml_schema_uri_list = (!value.is_empty()).then(|| value.to_owned());
            Some(())
        },
        show: |one| one.xml_schema_uri_list.clone().unwrap_or_default(),
    },
    Attribute {
        name: "reload_xml_schema",
        allowed: SWITCH,
        kind: None,
        apply: |one, value| set(&mut one.reload_xml_schema, switch(value)),
        show: |one| one.reload_xml_schema.to_string(),
    },
];

/// A limit as text.
pub(super) fn show_limit(limit: u64) -> String {
    if limit == u64::MAX { "-1".into() } else { limit.to_string() }
}

fn show_heads(limit: u32) -> String {
    if limit == u32::MAX { "-1".into() } else { limit.to_string() }
}

#[cfg(test)]
mod tests {
    use super::{ATTRIBUTES, Attributes, LimitBehavior};
    use crate::{broker::destination::Kind, flow::Credit};

    #[test]
    fn defaults_are_those_of_the_reference() {
        let auto = Attributes::auto_created();
        assert_eq!((auto.messages_max, auto.total_bytes_max), (100_000, 10_737_418_240));
        assert_eq!((auto.message_bytes_max, auto.producers_max), (10_485_760, 100));
        assert_eq!(auto.consumer_flow_limit, Credit::Limited(1000));
        assert_eq!(auto.shared_consumer_flow_limit, Credit::Limited(5));
        assert_eq!((auto.active_consumers_max, auto.backup_consumers_max), (u32::MAX, 0));
        assert_eq!(auto.limit_behavior, LimitBehavior::RejectNewest);
        assert!(auto.use_dmq);
        let made = Attributes::administered();
        assert_eq!((made.messages_max, made.total_bytes_max), (u64::MAX, u64::MAX));
        assert_eq!(made.message_bytes_max, u64::MAX);
        let dead = Attributes::dead_messages();
        assert_eq!((dead.messages_max, dead.total_bytes_max), (1000, 10 << 20));
        assert_eq!(dead.limit_behavior, LimitBehavior::RemoveOldest);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut other = Attributes::administered();
        other.limit_behavior = LimitBehavior::FlowControl;
        other.xml_schema_uri_list = Some("file:a file:b".into());
        for from in [Attributes::auto_created(), Attributes::dead_messages(), other] {
            let mut to = Attributes::auto_created();
            for attribute in &ATTRIBUTES {
                to.set(attribute.name, &(attribute.show)(&from)).unwrap();
            }
            assert_eq!(to, from);
        }
    }

    #[test]
    fn values_are_read_whatever_their_case_and_blanks() {
        let mut one = Attributes::auto_created();
        one.set(" limit_behavior", " remove_Oldest ").unwrap();
        one.set("total_bytes_max", "10 M").unwrap();
        one.set("messages_max", "-1").unwrap();
        one.set("producers_max", "-1").unwrap();
        one.set("consumer_flow_limit", "0").unwrap();
        one.set("use_dmq", "FALSE\t").unwrap();
        assert_eq!(one.limit_behavior, LimitBehavior::RemoveOldest);
        assert_eq!((one.total_bytes_max, one.messages_max), (10 << 20, u64::MAX));
        assert_eq!((one.producers_max, one.consumer_flow_limit), (u32::MAX, Credit::Unlimited));
        assert!(!one.use_dmq);
    }

    #[test]
    fn bounds_are_allowed_and_what_lies_beyond_is_not() {
        let mut one = Attributes::auto_created();
        for (name, good, bad) in [
            ("messages_max", &["1", "-1"][..], &["0", "-2", "", "1e3", "99999999999999999999"][..]),
            ("message_bytes_max", &["1", "10MB"], &["0", "10x", "m"]),
            ("limit_behavior", &["FLOW_CONTROL"], &["", "3", "REJECT", "REJECT NEWEST"]),
            ("producers_max", &["1", "2147483647"], &["0", "2147483648", "-2"]),
            ("backup_consumers_max", &["0", "-1"], &["-2", "x"]),
            ("active_consumers_max", &["1"], &["0"]),
            ("consumer_flow_limit", &["1000000"], &["1000001", "-2"]),
            ("use_dmq", &["true"], &["1", "yes", ""]),
        ] {
            for value in good {
                one.set(name, value).unwrap();
            }
            let before = one.clone();
            for value in bad {
                let error = one.set(name, value).unwrap_err().to_string();
                assert!(error.contains(name) && error.contains("it takes"), "{error}");
                assert_eq!(one, before, "{name} = {value}");
            }
        }
        let error = one.set("mesages_max", "1").unwrap_err().to_string();
        assert!(error.contains("\"messages_max\""), "{error}");
    }

    #[test]
    fn a_producer_under_flow_control_gets_its_part_of_the_room() {
        let mut one = Attributes::administered();
        assert_eq!(one.producer_credit(), (1000, -1));
        one.limit_behavior = LimitBehavior::FlowControl;
        assert_eq!(one.producer_credit(), (1000, -1), "no limits to share");
        (one.messages_max, one.producers_max, one.total_bytes_max) = (10, 3, 10 << 30);
        assert_eq!(one.producer_credit(), (3, (10 << 30) / 3));
        (one.messages_max, one.producers_max) = (2, 3);
        assert_eq!(one.producer_credit().0, 1);
        (one.messages_max, one.producers_max) = (5_000, u32::MAX);
        assert_eq!(one.producer_credit().0, 50);
    }

    #[test]
    fn a_kind_is_told_its_own_attributes() {
        let names = |kind| -> Vec<_> {
            Attributes::administered().texts(kind).map(|(name, _)| name).collect()
        };
        assert!(names(Kind::Queue).contains(&"active_consumers_max"));
        assert!(!names(Kind::Topic).contains(&"active_consumers_max"));
        assert!(names(Kind::Topic).contains(&"shared_consumers_max"));
        assert!(!names(Kind::Queue).contains(&"shared_consumers_max"));
    }
}
