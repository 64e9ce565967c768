//! Queues and topics by name.

use std::{borrow::Cow, fmt, hash::Hash};

use bytes::Bytes;

use super::identifier;
use crate::wire::{decode_text, encode_text, limits::VARIABLE_STRING_BYTES_MAX};

/// Whether each message goes to one consumer or to every subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "the wire has one bit for it")]
pub enum DestinationKind {
    /// Each message goes to one consumer.
    Queue,
    /// Each message goes to every subscription.
    Topic,
}

impl fmt::Display for DestinationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Topic => "topic",
        })
    }
}

/// Why a name cannot be a destination's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationError {
    /// A character that names do not have, or not in this place.
    #[error(
        "destination name {name:?} is invalid: letters, digits, '_', '$', '.', '*' and '>' may \
         stand in it, and no digit or '.' at its beginning"
    )]
    Invalid {
        /// The name, cut to its first characters.
        name: String,
    },
    /// The name is longer than the wire can say.
    #[error("destination name of {len} bytes; at most {VARIABLE_STRING_BYTES_MAX} fit")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
}

/// A named queue or topic.
///
/// Shape: name, kind and the Java class that travels with them; equal if name and kind are.
/// Cloning counts references and copies nothing.
#[derive(Clone)]
pub struct Destination {
    /// UTF-8; every constructor checked that.
    name: Bytes,
    kind: DestinationKind,
    temporary: bool,
    class: Bytes,
}

impl Destination {
    /// A queue.
    ///
    /// # Errors
    /// [`DestinationError`] if `name` is none.
    ///
    /// # Source
    /// The name check of the Message Queue client runtime: an identifier that may have dots and
    /// wildcards, or anything that begins with `mq.`.
    pub fn queue(name: impl Into<String>) -> Result<Self, DestinationError> {
        Self::named(DestinationKind::Queue, name.into())
    }

    /// A topic.
    ///
    /// # Errors
    /// As [`queue`](Self::queue).
    pub fn topic(name: impl Into<String>) -> Result<Self, DestinationError> {
        Self::named(DestinationKind::Topic, name.into())
    }

    /// The `number`-th temporary destination of the connection that is known as `owner`, its
    /// client id or its local address, and uses this local port.
    ///
    /// # Errors
    /// [`DestinationError::TooLong`].
    pub fn temporary(
        kind: DestinationKind,
        owner: &str,
        local_port: u16,
        number: u64,
    ) -> Result<Self, DestinationError> {
        let name = format!("{TEMPORARY_PREFIX}{kind}/{owner}/{local_port}/{number}");
        Ok(Self {
            name: checked_len(name)?,
            kind,
            temporary: true,
            class: Bytes::from_static(class_of(kind, true)),
        })
    }

    fn named(kind: DestinationKind, name: String) -> Result<Self, DestinationError> {
        if !is_name(&name) {
            let name = name.chars().take(64).collect();
            return Err(DestinationError::Invalid { name });
        }
        let class = Bytes::from_static(class_of(kind, false));
        Ok(Self { name: checked_len(name)?, kind, temporary: false, class })
    }

    /// Where a received packet went; `None` if the name is no text. Its flag is what the broker
    /// went by, so a class that says otherwise is replaced.
    pub(crate) fn from_wire(
        name: Bytes,
        class: Option<Bytes>,
        flagged: DestinationKind,
    ) -> Option<Self> {
        let name = plain_text(name)?;
        let known = class.as_deref().and_then(kind_and_temporary);
        let temporary = is_temporary(&name, known);
        let contradicts = known.is_some_and(|(kind, _)| kind != flagged);
        let class = class
            .filter(|_| !contradicts)
            .unwrap_or_else(|| Bytes::from_static(class_of(flagged, temporary)));
        Some(Self { name, kind: flagged, temporary, class })
    }

    /// Where a received packet wants its replies; `None` if the name is no text. Its class says
    /// what it is, else a temporary name does, else it is taken for the same kind as the packet's
    /// own destination, and its class says so from then on.
    pub(crate) fn reply_from_wire(
        name: Bytes,
        class: Option<Bytes>,
        fallback: DestinationKind,
    ) -> Option<Self> {
        let name = plain_text(name)?;
        let known = class.as_deref().and_then(kind_and_temporary);
        let temporary = is_temporary(&name, known);
        let told = known.map(|(kind, _)| kind).or_else(|| kind_in_name(&name));
        let kind = told.unwrap_or(fallback);
        let class = class
            .filter(|_| told.is_some())
            .unwrap_or_else(|| Bytes::from_static(class_of(kind, temporary)));
        Some(Self { name, kind, temporary, class })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.name).unwrap_or_default()
    }

    /// Queue or topic.
    #[must_use]
    pub const fn kind(&self) -> DestinationKind {
        self.kind
    }

    /// Whether it ends with the connection that made it.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        self.temporary
    }

    /// Whether its name has a wildcard, which only subscriptions and publishers of topics may use.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        !self.temporary && self.has_byte(|byte| (byte == b'*') | (byte == b'>'))
    }

    /// The Java class that receivers make of it.
    #[must_use]
    pub fn class_name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.class)
    }

    /// The bits of the protocol's `JMQDestType`: 1 queue, 2 topic, 0x10 temporary.
    #[must_use]
    pub const fn type_bits(&self) -> i32 {
        let kind = match self.kind {
            DestinationKind::Queue => 1,
            DestinationKind::Topic => 2,
        };
        if self.temporary { kind | 0x10 } else { kind }
    }

    /// Its name as the variable header has it.
    pub(crate) fn wire_name(&self) -> Cow<'_, [u8]> {
        // Only characters of four bytes have another form there.
        if self.has_byte(|byte| byte >= 0xF0) {
            let mut out = Vec::with_capacity(self.name.len() * 2);
            encode_text(self.name(), &mut out);
            return Cow::Owned(out);
        }
        Cow::Borrowed(&self.name)
    }

    /// Whether some byte of the name is `wanted`. Looks at all of them, many at a time, which is
    /// faster than to stop at the first: there is hardly ever one, and each send asks.
    fn has_byte(&self, wanted: impl Fn(u8) -> bool) -> bool {
        self.name.iter().fold(false, |found, &byte| found | wanted(byte))
    }

    /// Its class as the variable header has it.
    pub(crate) fn wire_class(&self) -> &[u8] {
        &self.class
    }
}

impl PartialEq for Destination {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.name == other.name
    }
}

impl Eq for Destination {}

impl Hash for Destination {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
        self.name.hash(state);
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name())
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({self})")
    }
}

/// What the names of temporary destinations begin with.
const TEMPORARY_PREFIX: &str = "temporary_destination://";

const BASIC_QUEUE: &[u8] = b"com.sun.messaging.BasicQueue";
const BASIC_TOPIC: &[u8] = b"com.sun.messaging.BasicTopic";
const ADMINISTERED_QUEUE: &[u8] = b"com.sun.messaging.Queue";
const ADMINISTERED_TOPIC: &[u8] = b"com.sun.messaging.Topic";
const TEMPORARY_QUEUE: &[u8] = b"com.sun.messaging.jmq.jmsclient.TemporaryQueueImpl";
const TEMPORARY_TOPIC: &[u8] = b"com.sun.messaging.jmq.jmsclient.TemporaryTopicImpl";

const fn class_of(kind: DestinationKind, temporary: bool) -> &'static [u8] {
    match (kind, temporary) {
        (DestinationKind::Queue, false) => BASIC_QUEUE,
        (DestinationKind::Topic, false) => BASIC_TOPIC,
        (DestinationKind::Queue, true) => TEMPORARY_QUEUE,
        (DestinationKind::Topic, true) => TEMPORARY_TOPIC,
    }
}

fn kind_and_temporary(class: &[u8]) -> Option<(DestinationKind, bool)> {
    Some(match class {
        BASIC_QUEUE | ADMINISTERED_QUEUE => (DestinationKind::Queue, false),
        BASIC_TOPIC | ADMINISTERED_TOPIC => (DestinationKind::Topic, false),
        TEMPORARY_QUEUE => (DestinationKind::Queue, true),
        TEMPORARY_TOPIC => (DestinationKind::Topic, true),
        _ => return None,
    })
}

/// A name from the wire as UTF-8; shared if it is that already.
fn plain_text(name: Bytes) -> Option<Bytes> {
    let owned = match decode_text(&name)? {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(Bytes::from(text)),
    };
    Some(owned.unwrap_or(name))
}

fn is_temporary(name: &[u8], class: Option<(DestinationKind, bool)>) -> bool {
    name.starts_with(TEMPORARY_PREFIX.as_bytes()) || class.is_some_and(|(_, temporary)| temporary)
}

/// The kind that a temporary destination's name tells.
fn kind_in_name(name: &[u8]) -> Option<DestinationKind> {
    match name.strip_prefix(TEMPORARY_PREFIX.as_bytes())? {
        [b'q', ..] => Some(DestinationKind::Queue),
        [b't', ..] => Some(DestinationKind::Topic),
        _ => None,
    }
}

fn is_name(name: &str) -> bool {
    let wildcard = |c| matches!(c, '*' | '>');
    let mut chars = name.chars();
    name.starts_with("mq.")
        || chars.next().is_some_and(|c| identifier::is_start(c) || wildcard(c))
            && chars.all(|c| identifier::is_part(c) || c == '.' || wildcard(c))
}

fn checked_len(name: String) -> Result<Bytes, DestinationError> {
    let len = crate::wire::encoded_len(&name);
    if len > VARIABLE_STRING_BYTES_MAX {
        return Err(DestinationError::TooLong { len });
    }
    Ok(Bytes::from(name))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Destination, DestinationError, DestinationKind};

    #[test]
    fn names_are_checked_as_the_java_client_does() {
        for good in ["a", "cap.q.browse", "_x.$y", "*", "cap.w.*", "a.>", "größe", "mq.sys.dmq"] {
            assert!(Destination::topic(good).is_ok(), "{good}");
        }
        for bad in ["", ".a", "1a", "a b", "a/b", "temporary_destination://queue/x/1/1", "ma.q-"] {
            let refused = Destination::queue(bad).unwrap_err();
            assert!(matches!(refused, DestinationError::Invalid { .. }), "{bad}");
        }
        assert!(Destination::queue("x".repeat(32_767)).is_ok());
        assert_eq!(
            Destination::queue("x".repeat(32_768)),
            Err(DestinationError::TooLong { len: 32_768 })
        );
    }

    #[test]
    fn temporary_destinations_carry_their_owner_in_their_name() {
        let made = Destination::temporary(DestinationKind::Queue, "cidA", 37_078, 1).unwrap();
        assert_eq!(made.name(), "temporary_destination://queue/cidA/37078/1");
        assert_eq!(made.class_name(), "com.sun.messaging.jmq.jmsclient.TemporaryQueueImpl");
        assert_eq!(made.type_bits(), 0x11);
        assert!(made.is_temporary() && !made.is_wildcard());
    }

    #[test]
    fn the_flag_decides_what_a_message_went_to() {
        let read = |class: Option<&'static str>| {
            let class = class.map(Bytes::from);
            Destination::from_wire(Bytes::from("a"), class, DestinationKind::Topic).unwrap()
        };
        for (class, kept) in [
            (None, "com.sun.messaging.BasicTopic"),
            (Some("com.sun.messaging.Topic"), "com.sun.messaging.Topic"),
            (Some("com.sun.messaging.BasicQueue"), "com.sun.messaging.BasicTopic"),
            (Some("org.example.Strange"), "org.example.Strange"),
        ] {
            assert_eq!(read(class), Destination::topic("a").unwrap());
            assert_eq!(read(class).class_name(), kept);
        }
        let name = Bytes::from_static(&[0xC3, 0x28]);
        assert_eq!(Destination::from_wire(name, None, DestinationKind::Queue), None);
    }

    #[test]
    fn the_class_decides_where_replies_go_then_the_name_then_the_flag() {
        let read = |name: &'static str, class: Option<&'static str>| {
            let fallback = DestinationKind::Topic;
            Destination::reply_from_wire(Bytes::from(name), class.map(Bytes::from), fallback)
                .unwrap()
        };
        let basic = read("a", Some("com.sun.messaging.BasicQueue"));
        assert_eq!((basic.kind(), basic.type_bits()), (DestinationKind::Queue, 1));
        let foreign = read("temporary_destination://queue/x/1/1", Some("org.example.Strange"));
        assert_eq!((foreign.kind(), foreign.is_temporary()), (DestinationKind::Queue, true));
        assert_eq!(foreign.class_name(), "org.example.Strange");
        // Nothing tells: taken for a topic here, and sent on as one, wherever the message goes.
        let untold = read("a", Some("org.example.Strange"));
        assert_eq!(untold, Destination::topic("a").unwrap());
        assert_eq!(untold.class_name(), "com.sun.messaging.BasicTopic");
    }

    #[test]
    fn names_outside_the_basic_plane_travel_as_surrogates() {
        let made = Destination::queue("𝒳").unwrap();
        assert_eq!(made.wire_name()[..], [0xED, 0xA0, 0xB5, 0xED, 0xB2, 0xB3]);
        let name = Bytes::from(made.wire_name().into_owned());
        let read = Destination::from_wire(name, None, DestinationKind::Queue);
        assert_eq!(read, Some(made));
    }
}
