//! The part of Java's object serialization that message bodies and administrators use.
//!
//! A map message's body is one serialized `java.util.HashMap`, a stream message's body is one
//! serialized object after the other; broker information travels as a `java.util.Hashtable`. Their
//! values are boxed primitives, strings, byte arrays and null, so a dozen classes are enough, and
//! anything else is an error that names the class.
//!
//! What administrators and brokers send each other are [objects](JavaObject) of any class, in trees.
//!
//! # Invariants
//! - Written bytes are those of Java's own writer for values that are not shared: a class is
//!   described once and referred to afterwards, numbers share the description of their parent.
//! - Reading never panics. What it allocates is bounded by the input, by
//!   [`JAVA_ITEMS_MAX`] and by
//!   [`JAVA_REPEATED_BYTES_MAX`]; its recursion by two, in objects by
//!   [`JAVA_DEPTH_MAX`].
//! - Byte arrays are slices of the input.

mod class;
mod object;
mod object_reader;
mod object_writer;
mod reader;
mod writer;

use std::fmt;

use bytes::Bytes;

use super::limits::{JAVA_DEPTH_MAX, JAVA_ITEMS_MAX, JAVA_REPEATED_BYTES_MAX};

pub use object::{JavaClass, JavaDocument, JavaField, JavaObject, TableClass};
pub use object_reader::decode_object;
pub use object_writer::{encode_object, encode_vector};
pub use reader::{decode_hashtable, decode_map, decode_stream};
pub use writer::{encode_hashtable, encode_map, encode_stream};

/// A value inside a map or stream.
///
/// # Source
/// The value classes of map and stream messages: the eight boxed primitives, `String`, `byte[]`
/// and null.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum JavaValue {
    /// `null`.
    Null,
    /// `java.lang.Boolean`.
    Boolean(bool),
    /// `java.lang.Byte`.
    Byte(i8),
    /// `java.lang.Short`.
    Short(i16),
    /// `java.lang.Character`: one UTF-16 unit.
    Char(u16),
    /// `java.lang.Integer`.
    Int(i32),
    /// `java.lang.Long`.
    Long(i64),
    /// `java.lang.Float`.
    Float(f32),
    /// `java.lang.Double`.
    Double(f64),
    /// `java.lang.String`.
    String(String),
    /// `byte[]`.
    Bytes(Bytes),
}

impl fmt::Display for JavaValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Byte(value) => write!(f, "{value}"),
            Self::Short(value) => write!(f, "{value}"),
            Self::Char(unit) => match char::from_u32(u32::from(*unit)) {
                Some(c) => write!(f, "{c:?}"),
                None => write!(f, "'\\u{unit:04x}'"),
            },
            Self::Int(value) => write!(f, "{value}"),
            Self::Long(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::String(value) => write!(f, "{value:?}"),
            Self::Bytes(bytes) => write!(f, "<{} bytes>", bytes.len()),
        }
    }
}

macro_rules! java_from {
    ($($from:ty => $variant:ident),* $(,)?) => {$(
        impl From<$from> for JavaValue {
            fn from(value: $from) -> Self { Self::$variant(value) }
        }
    )*};
}
java_from!(bool => Boolean, i8 => Byte, i16 => Short, i32 => Int, i64 => Long, f32 => Float,
    f64 => Double, String => String, Bytes => Bytes);

impl From<&str> for JavaValue {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<Vec<u8>> for JavaValue {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value.into())
    }
}

/// Why bytes are not one of the serialized forms read here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JavaError {
    /// The first four bytes are not those of a serialized stream.
    #[error("not java serialization: the stream header is missing")]
    Header,
    /// The bytes end too early.
    #[error("java serialization cut off at byte {offset}")]
    Truncated {
        /// Where more was expected.
        offset: usize,
    },
    /// An element that cannot stand here, or is none of those read.
    #[error("java serialization has element {code:#04x} at byte {offset}, where {wanted} belongs")]
    Element {
        /// The element's code.
        code: u8,
        /// Where it stands.
        offset: usize,
        /// What was wanted.
        wanted: &'static str,
    },
    /// A class that is none of the value classes.
    #[error("java class {name:?} is not read here")]
    UnknownClass {
        /// The class, cut to its first characters.
        name: String,
    },
    /// A known class in an unknown form: another version, other fields, another parent.
    #[error("java class {name} has an unknown form")]
    ClassForm {
        /// The class.
        name: &'static str,
    },
    /// A reference to nothing, or to something that cannot stand here, or not twice.
    #[error("java reference {handle:#x} at byte {offset} leads to nothing that can stand there")]
    Reference {
        /// The handle.
        handle: i32,
        /// Where the reference stands.
        offset: usize,
    },
    /// A string whose bytes are no text.
    #[error("java string at byte {offset} is no text")]
    Text {
        /// Where the string's bytes begin.
        offset: usize,
    },
    /// A negative length or count, or a name that is too long.
    #[error("java serialization says a length of {length} at byte {offset}")]
    Length {
        /// The length found.
        length: i64,
        /// Where it stands.
        offset: usize,
    },
    /// More items than are read.
    #[error("java serialization with over {JAVA_ITEMS_MAX} items, or more than are expected here")]
    Items,
    /// Objects within objects, deeper than is read.
    #[error("java objects within objects, over {JAVA_DEPTH_MAX} deep")]
    Depth,
    /// References repeat strings for more memory than is given to them.
    #[error("java references repeat over {JAVA_REPEATED_BYTES_MAX} bytes of text")]
    Repeated,
}

#[cfg(test)]
mod object_tests;
#[cfg(test)]
mod tests;
