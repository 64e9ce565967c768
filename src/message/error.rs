//! What can be wrong with a message, by operation.

use std::time::Duration;

use super::BodyKind;
use crate::wire::{
    DecodeError, PacketType, PropertyError, java::JavaError, limits::MESSAGE_BYTES_MAX,
};

/// Why a header or property cannot be set, a message cannot be sent, or a packet is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The packet is of another type.
    #[error("packet {found} is not a message")]
    NotAMessage {
        /// Its type.
        found: PacketType,
    },
    /// The variable header cannot be read.
    #[error("the message's variable header cannot be read")]
    Variable(#[source] DecodeError),
    /// The properties cannot be read or written.
    #[error("the message's properties cannot be used")]
    Properties(#[source] PropertyError),
    /// A property's name is no identifier, or a word of the selector language.
    #[error(
        "property name {name:?} is not allowed: it must be a java identifier and no word of the \
         selector language"
    )]
    PropertyName {
        /// The name, cut to its first characters.
        name: String,
    },
    /// An application's properties are booleans, numbers and strings.
    #[error("property {name} can be a boolean, a number or a string, not an object")]
    PropertyType {
        /// The property, cut to its first characters.
        name: String,
    },
    /// A header is longer than the wire can say.
    #[error("{header} of {len} bytes; at most {max} fit")]
    TooLong {
        /// The header.
        header: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The largest length.
        max: usize,
    },
    /// A priority above 9.
    #[error("priority {priority} is outside 0 to 9")]
    Priority {
        /// The priority that was to be set.
        priority: u8,
    },
    /// It would expire before it may be delivered.
    #[error(
        "the time to live of {time_to_live:?} is over before the delivery delay of {delay:?}; it must \
         be longer"
    )]
    ExpiresUndelivered {
        /// The time to live.
        time_to_live: Duration,
        /// The delivery delay.
        delay: Duration,
    },
    /// The message has no destination yet.
    #[error("the message has no destination")]
    NoDestination,
    /// Body and properties are too large for a packet.
    #[error("message of {len} bytes; at most {MESSAGE_BYTES_MAX} fit into a packet")]
    TooLarge {
        /// Length of body and properties in bytes.
        len: usize,
    },
}

/// Why a body cannot be read. Headers and properties still can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The message has a body of another kind.
    #[error("the message has a {found} body, not a {wanted} body")]
    Kind {
        /// The kind it has.
        found: BodyKind,
        /// The kind that was asked for.
        wanted: BodyKind,
    },
    /// A text body's bytes are no text.
    #[error("the text body is no text")]
    Text,
    /// A map or stream body is not one that is read here.
    #[error("the {kind} body cannot be read")]
    Java {
        /// Map or stream.
        kind: BodyKind,
        /// What is wrong with it.
        #[source]
        source: JavaError,
    },
    /// A compressed body is broken.
    #[error("the compressed body cannot be unpacked")]
    Compressed,
    /// A compressed body is larger than it says, or than is unpacked.
    #[error("the compressed body has over {limit} bytes")]
    CompressedSize {
        /// The most that is unpacked, in bytes.
        limit: usize,
    },
}

/// Why a property cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadPropertyError {
    /// The property table as a whole cannot be read.
    #[error("the message's properties cannot be read")]
    Table(#[from] PropertyError),
    /// The value cannot become what was asked for.
    #[error("property {name} with the value {value} is no {wanted}")]
    Conversion {
        /// The property.
        name: String,
        /// Its value, shortened.
        value: String,
        /// What was asked for.
        wanted: &'static str,
    },
}
