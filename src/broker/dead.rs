//! Dead messages: whether one is kept, and the copy that is.
//!
//! The copy is the message as it was produced, with properties that tell what happened. It keeps
//! its id, destination, class names, body and expiration, which lies in the past and counts no more.
//!
//! # Source
//! The wire protocol: dead message queue.

use bytes::{BufMut, BytesMut};

use crate::wire::{
    Flags, HEADER_LEN, Packet, Properties, PropertyTable, Value,
    limits::{PROPERTIES_MAX, PROPERTY_STRING_BYTES_MAX},
};

/// How the names of the properties that are added begin.
const PREFIX: &[u8] = b"JMS_SUN_DMQ_";

/// Why a message died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeadReason {
    /// Its time was up.
    Expired,
    /// It was the oldest where one had to go.
    Oldest,
    /// It had the lowest priority where one had to go.
    LowPriority,
    /// A client gave it up.
    Undeliverable,
    /// The broker failed on it.
    Error,
}

impl DeadReason {
    /// Its name on the wire.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Expired => "EXPIRED",
            Self::Oldest => "OLDEST",
            Self::LowPriority => "LOW_PRIORITY",
            Self::Undeliverable => "UNDELIVERABLE",
            Self::Error => "ERROR",
        }
    }
}

/// What happened to a message.
#[derive(Debug, Clone)]
pub(super) struct Death<'a> {
    /// Why.
    pub reason: DeadReason,
    /// The same for people; cut to what a property holds.
    pub comment: Option<&'a str>,
    /// A serialized exception a client gave with it.
    pub exception: Option<&'a [u8]>,
    /// How often the client had seen it before, if it says so.
    pub client_deliveries: Option<i32>,
    /// How often it was delivered.
    pub deliveries: u32,
    /// Name of the broker.
    pub broker: &'a str,
    /// When, in milliseconds since 1970.
    pub wall_ms: i64,
    /// Whether the copy goes without body; the message itself may say otherwise.
    pub truncate: bool,
}

/// Whether a dead message is kept. `use_dmq` is what its destination says; the message may say
/// otherwise.
pub(super) fn is_wanted(packet: &Packet, use_dmq: bool) -> bool {
    said(packet, "JMS_SUN_PRESERVE_UNDELIVERED").unwrap_or(use_dmq)
}

/// Whether a dead message gets a line in the log. `log` is what the broker's settings say; the
/// message may say otherwise.
pub(super) fn is_logged(packet: &Packet, log: bool) -> bool {
    said(packet, "JMS_SUN_LOG_DEAD_MESSAGES").unwrap_or(log)
}

/// Whether a message may say something about its own death.
pub(super) fn may_have_will(packet: &Packet) -> bool {
    packet.property_bytes().windows(WILL.len()).any(|part| part == WILL)
}

/// How all names begin by which messages say something about their death.
const WILL: &[u8] = b"JMS_SUN_";

/// What a message says about a switch, as a boolean or as text.
fn said(packet: &Packet, name: &str) -> Option<bool> {
    match packet.properties().ok()?.value(name)? {
        Value::Boolean(value) => Some(value),
        Value::String(text) => text.trim().to_ascii_lowercase().parse().ok(),
        _ => None,
    }
}

/// The message as the dead message queue keeps it. A message whose properties cannot be read, or
/// are as many as a table holds, loses them; one too large for what is added loses its body.
pub(super) fn dead_copy(packet: &Packet, death: &Death<'_>) -> Packet {
    let mut truncate = said(packet, "JMS_SUN_TRUNCATE_MSG_BODY").unwrap_or(death.truncate);
    loop {
        let properties = properties(packet, death, truncate);
        let body = if truncate { &[] } else { packet.body_bytes() };
        let offset = HEADER_LEN + packet.variable_bytes().len();
        let size = offset + properties.len() + body.len();
        let sizes =
            (i32::try_from(size).ok(), u32::try_from(size), u32::try_from(properties.len()));
        let (Some(_), Ok(size), Ok(property_size)) = sizes else {
            if truncate {
                // Not even without body: then as it is.
                return packet.clone();
            }
            truncate = true;
            continue;
        };
        let mut header = *packet.header();
        (header.size, header.property_size) = (size, property_size);
        if truncate {
            header.flags = header.flags.without(Flags::COMPRESSED);
        }
        let mut bytes = BytesMut::with_capacity(offset + properties.len() + body.len());
        bytes.put_slice(&header.encode());
        bytes.put_slice(packet.variable_bytes());
        bytes.put_slice(&properties);
        bytes.put_slice(body);
        // The sizes are those of the sections, so it decodes.
        return Packet::decode(bytes.freeze()).unwrap_or_else(|_| packet.clone());
    }
}

/// The message's properties, and those that tell of its death.
fn properties(packet: &Packet, death: &Death<'_>, truncated: bool) -> BytesMut {
    let mut own = Properties::new();
    own.set("JMS_SUN_DMQ_UNDELIVERED_REASON", death.reason.name());
    own.set("JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP", death.wall_ms);
    if let Some(comment) = death.comment {
        own.set("JMS_SUN_DMQ_UNDELIVERED_COMMENT", cut(comment));
    }
    if let Some(exception) = death.exception {
        let object = Value::Object(exception.to_vec().into());
        own.set("JMS_SUN_DMQ_UNDELIVERED_EXCEPTION", object);
    }
    let deliveries = match death.client_deliveries {
        // The time it was given up counts as well.
        Some(before) => before.saturating_add(1),
        None => i32::try_from(death.deliveries).unwrap_or(i32::MAX),
    };
    own.set("JMS_SUN_DMQ_DELIVERY_COUNT", deliveries);
    own.set("JMS_SUN_DMQ_BODY_TRUNCATED", truncated);
    own.set("JMS_SUN_DMQ_PRODUCING_BROKER", cut(death.broker));
    own.set("JMS_SUN_DMQ_DEAD_BROKER", cut(death.broker));
    let mut added = BytesMut::new();
    if own.encode(&mut added).is_err() {
        // An exception larger than a property holds.
        own.remove("JMS_SUN_DMQ_UNDELIVERED_EXCEPTION");
        added.clear();
        let _fits = own.encode(&mut added);
    }
    let Ok(table) = packet.properties() else { return added };
    // One that has been dead before tells of its last death.
    let kept = |table: PropertyTable<'_>| {
        let mut bytes = BytesMut::new();
        let kept = table.iter().filter(|one| !one.name.starts_with(PREFIX));
        let count = kept.inspect(|one| one.encode(&mut bytes)).count();
        (count, bytes)
    };
    let (count, kept) = kept(table);
    let total = count + own.len();
    let Some(total) = i32::try_from(total).ok().filter(|_| total <= PROPERTIES_MAX) else {
        return added;
    };
    let mut bytes = BytesMut::with_capacity(kept.len() + added.len());
    bytes.put_i32(1);
    bytes.put_i32(total);
    bytes.put_slice(&kept);
    bytes.put_slice(added.get(8..).unwrap_or_default());
    bytes
}

/// As much of a text as a property holds, whatever its characters take.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(PROPERTY_STRING_BYTES_MAX / 2)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{DeadReason, Death, dead_copy, is_logged, is_wanted};
    use crate::wire::{
        Flags, MessageId, Packet, PacketBuilder, PacketType, Padding, Properties, Value,
        VariableHeader, limits::PROPERTIES_MAX,
    };

    fn death() -> Death<'static> {
        Death {
            reason: DeadReason::Expired,
            comment: Some("too late"),
            exception: None,
            client_deliveries: None,
            deliveries: 2,
            broker: "here",
            wall_ms: 77,
            truncate: false,
        }
    }

    fn message(properties: &Properties) -> Packet {
        let variable = VariableHeader {
            destination: Some(b"q"),
            destination_class: Some(b"com.sun.messaging.BasicQueue"),
            ..VariableHeader::default()
        };
        let id = MessageId { timestamp: 5, address: [1; 16], port: 6, sequence: 7 };
        PacketBuilder::new(PacketType::TEXT_MESSAGE)
            .flags(Flags::QUEUE.with(Flags::PERSISTENT).with(Flags::COMPRESSED))
            .id(id)
            .priority(8)
            .expiration(44)
            .variable(&variable, Padding::Java)
            .unwrap()
            .properties(properties)
            .unwrap()
            .body("body")
            .finish()
    }

    fn with(name: &str, value: impl Into<Value>) -> Packet {
        let mut properties = Properties::new();
        properties.set(name, value);
        message(&properties)
    }

    #[test]
    fn a_copy_is_the_message_and_tells_what_happened() {
        let packet = with("n", 7);
        let copy = dead_copy(&packet, &death());
        assert_eq!(copy.variable_bytes(), packet.variable_bytes());
        assert_eq!(copy.body_bytes(), b"body");
        let (old, new) = (packet.header(), copy.header());
        assert_eq!((new.id, new.expiration, new.priority), (old.id, old.expiration, old.priority));
        assert_eq!((new.flags, new.packet_type), (old.flags, old.packet_type));
        let table = copy.properties().unwrap();
        assert_eq!(table.len(), 8);
        for (name, value) in [
            ("n", Value::Int(7)),
            ("JMS_SUN_DMQ_UNDELIVERED_REASON", "EXPIRED".into()),
            ("JMS_SUN_DMQ_UNDELIVERED_TIMESTAMP", Value::Long(77)),
            ("JMS_SUN_DMQ_UNDELIVERED_COMMENT", "too late".into()),
            ("JMS_SUN_DMQ_DELIVERY_COUNT", Value::Int(2)),
            ("JMS_SUN_DMQ_BODY_TRUNCATED", Value::Boolean(false)),
            ("JMS_SUN_DMQ_PRODUCING_BROKER", "here".into()),
            ("JMS_SUN_DMQ_DEAD_BROKER", "here".into()),
        ] {
            assert_eq!(table.value(name), Some(value), "{name}");
        }
    }

    #[test]
    fn what_a_client_says_is_kept() {
        let said = Death {
            reason: DeadReason::Undeliverable,
            exception: Some(&[1, 2, 3]),
            client_deliveries: Some(7),
            ..death()
        };
        let copy = dead_copy(&message(&Properties::new()), &said);
        let table = copy.properties().unwrap();
        assert_eq!(table.value("JMS_SUN_DMQ_DELIVERY_COUNT"), Some(Value::Int(8)));
        let exception = table.value("JMS_SUN_DMQ_UNDELIVERED_EXCEPTION");
        assert_eq!(exception, Some(Value::Object(vec![1, 2, 3].into())));
    }

    #[test]
    fn one_that_died_before_tells_of_its_last_death() {
        let first = dead_copy(&with("n", 7), &death());
        let second = dead_copy(&first, &Death { reason: DeadReason::Oldest, ..death() });
        let table = second.properties().unwrap();
        assert_eq!(table.len(), 8);
        assert_eq!(table.value("JMS_SUN_DMQ_UNDELIVERED_REASON"), Some("OLDEST".into()));
        assert_eq!(table.value("n"), Some(Value::Int(7)));
    }

    #[test]
    fn a_body_goes_where_the_settings_or_the_message_say_so() {
        let without = Death { truncate: true, ..death() };
        for (packet, death, truncated) in [
            (with("n", 7), &without, true),
            (with("JMS_SUN_TRUNCATE_MSG_BODY", true), &death(), true),
            (with("JMS_SUN_TRUNCATE_MSG_BODY", " TRUE"), &death(), true),
            (with("JMS_SUN_TRUNCATE_MSG_BODY", "false"), &without, false),
            (with("JMS_SUN_TRUNCATE_MSG_BODY", 1), &without, true),
        ] {
            let copy = dead_copy(&packet, death);
            assert_eq!(copy.body_bytes().is_empty(), truncated);
            assert_eq!(copy.header().flags.contains(Flags::COMPRESSED), !truncated);
            let told = copy.properties().unwrap().value("JMS_SUN_DMQ_BODY_TRUNCATED");
            assert_eq!(told, Some(Value::Boolean(truncated)));
        }
    }

    #[test]
    fn properties_that_cannot_be_read_give_way() {
        let broken = PacketBuilder::new(PacketType::TEXT_MESSAGE)
            .property_section(vec![0, 0, 0, 7, 1])
            .body("body")
            .finish();
        let copy = dead_copy(&broken, &death());
        assert_eq!((copy.properties().unwrap().len(), copy.body_bytes()), (7, &b"body"[..]));
        assert!(is_wanted(&broken, true) && !is_wanted(&broken, false));

        let mut full = Properties::new();
        (0..PROPERTIES_MAX).for_each(|n| full.set(format!("p{n}"), 1_i8));
        assert_eq!(dead_copy(&message(&full), &death()).properties().unwrap().len(), 7);
    }

    #[test]
    fn a_property_that_is_no_text_is_kept_as_it_is() {
        let mut section = vec![0, 0, 0, 1, 0, 0, 0, 1, 0, 2, 0xC3, 0x28, 0, 8, 0, 2];
        section.extend_from_slice(&[0xFF, 0xFE]);
        let packet = PacketBuilder::new(PacketType::MESSAGE).property_section(section).finish();
        let copy = dead_copy(&packet, &death());
        let first = copy.properties().unwrap().iter().next().unwrap();
        assert_eq!((first.name, first.bytes), (&[0xC3, 0x28][..], &[0xFF, 0xFE][..]));
    }

    #[test]
    fn a_comment_of_any_length_fits() {
        let comment = "\u{0}".repeat(100_000);
        let long = Death { comment: Some(&comment), ..death() };
        let copy = dead_copy(&message(&Properties::new()), &long);
        let found = copy.properties().unwrap().value("JMS_SUN_DMQ_UNDELIVERED_COMMENT");
        let Some(Value::String(found)) = found else { panic!("{found:?}") };
        assert!(comment.starts_with(&found) && found.len() > 30_000);
    }

    #[test]
    fn a_message_may_say_whether_it_is_kept_and_logged() {
        for (value, wanted) in [
            (Value::Boolean(true), Some(true)),
            (Value::Boolean(false), Some(false)),
            ("True".into(), Some(true)),
            ("false ".into(), Some(false)),
            ("perhaps".into(), None),
            (Value::Int(1), None),
        ] {
            for default in [true, false] {
                let kept = with("JMS_SUN_PRESERVE_UNDELIVERED", value.clone());
                assert_eq!(is_wanted(&kept, default), wanted.unwrap_or(default));
                let logged = with("JMS_SUN_LOG_DEAD_MESSAGES", value.clone());
                assert_eq!(is_logged(&logged, default), wanted.unwrap_or(default));
            }
        }
    }
}
