//! Bodies of messages and what they are made of.

use std::fmt;

use bytes::Bytes;

use super::BodyError;
use crate::wire::{
    PacketType, decode_text,
    java::{self, JavaValue},
};

/// One value of a stream body.
pub type StreamItem = JavaValue;

/// Which kind of body a message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyKind {
    /// Text.
    Text,
    /// Bytes without a meaning here.
    Bytes,
    /// Named values.
    Map,
    /// Values in order.
    Stream,
    /// A serialized Java object, not looked into.
    Object,
    /// No body.
    Plain,
}

impl BodyKind {
    pub(super) const fn of(packet_type: PacketType) -> Option<Self> {
        Some(match packet_type {
            PacketType::TEXT_MESSAGE => Self::Text,
            PacketType::BYTES_MESSAGE => Self::Bytes,
            PacketType::MAP_MESSAGE => Self::Map,
            PacketType::STREAM_MESSAGE => Self::Stream,
            PacketType::OBJECT_MESSAGE => Self::Object,
            PacketType::MESSAGE => Self::Plain,
            _ => return None,
        })
    }

    pub(crate) const fn packet_type(self) -> PacketType {
        match self {
            Self::Text => PacketType::TEXT_MESSAGE,
            Self::Bytes => PacketType::BYTES_MESSAGE,
            Self::Map => PacketType::MAP_MESSAGE,
            Self::Stream => PacketType::STREAM_MESSAGE,
            Self::Object => PacketType::OBJECT_MESSAGE,
            Self::Plain => PacketType::MESSAGE,
        }
    }
}

impl fmt::Display for BodyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Map => "map",
            Self::Stream => "stream",
            Self::Object => "object",
            Self::Plain => "plain",
        })
    }
}

/// A body, decoded.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Body {
    /// Text; `None` is Java's null. The wire has one form for null and for empty text, which reads
    /// as null.
    Text(Option<String>),
    /// Bytes, shared with the message.
    Bytes(Bytes),
    /// Named values.
    Map(MapBody),
    /// Values in order.
    Stream(Vec<StreamItem>),
    /// A serialized Java object, shared with the message; empty is Java's null.
    Object(Bytes),
    /// No body.
    Plain,
}

impl Body {
    /// Which kind it is.
    #[must_use]
    pub const fn kind(&self) -> BodyKind {
        match self {
            Self::Text(_) => BodyKind::Text,
            Self::Bytes(_) => BodyKind::Bytes,
            Self::Map(_) => BodyKind::Map,
            Self::Stream(_) => BodyKind::Stream,
            Self::Object(_) => BodyKind::Object,
            Self::Plain => BodyKind::Plain,
        }
    }

    /// Reads the wire form of a body of this kind.
    pub(crate) fn decode(kind: BodyKind, bytes: &Bytes) -> Result<Self, BodyError> {
        let unreadable = |source| BodyError::Java { kind, source };
        Ok(match kind {
            BodyKind::Text if bytes.is_empty() => Self::Text(None),
            BodyKind::Text => {
                let text = decode_text(bytes).ok_or(BodyError::Text)?;
                Self::Text(Some(text.into_owned()))
            }
            BodyKind::Bytes => Self::Bytes(bytes.clone()),
            // A dead message may have lost its body on the way.
            BodyKind::Map if bytes.is_empty() => Self::Map(MapBody::new()),
            BodyKind::Map => {
                Self::Map(MapBody { entries: java::decode_map(bytes).map_err(unreadable)? })
            }
            BodyKind::Stream => Self::Stream(java::decode_stream(bytes).map_err(unreadable)?),
            BodyKind::Object => Self::Object(bytes.clone()),
            BodyKind::Plain => Self::Plain,
        })
    }

    /// The wire form.
    pub(crate) fn encode(self) -> Bytes {
        match self {
            // Plain UTF-8, other than in headers and properties.
            Self::Text(text) => text.unwrap_or_default().into(),
            Self::Bytes(bytes) | Self::Object(bytes) => bytes,
            Self::Map(map) => java::encode_map(map.iter()),
            Self::Stream(items) => java::encode_stream(&items),
            Self::Plain => Bytes::new(),
        }
    }
}

/// Named values, in the order of their making.
///
/// Shape: names are unique when set here; setting one again replaces its value in place. Of a name
/// that came twice in a received map, the last one counts, as in Java.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MapBody {
    entries: Vec<(String, JavaValue)>,
}

impl MapBody {
    /// No values.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Sets a value.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<JavaValue>) -> &mut Self {
        let (name, value) = (name.into(), value.into());
        match self.entries.iter_mut().rfind(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((name, value)),
        }
        self
    }

    /// A value.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&JavaValue> {
        self.entries.iter().rfind(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Names and values, in order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &JavaValue)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<N: Into<String>, V: Into<JavaValue>> FromIterator<(N, V)> for MapBody {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        for (name, value) in entries {
            map.set(name, value);
        }
        map
    }
}
