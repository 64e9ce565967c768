//! The property table of a packet: protocol fields of requests and replies, an application's
//! properties on messages.
//!
//! | size | field |
//! | ---: | --- |
//! | 4 | version, 1 |
//! | 4 | count |
//! | … | count × (`u16` length and name, `i16` type, value) |
//!
//! All numbers are big-endian. Types matter: readers cast. Order means nothing.

use std::{borrow::Cow, fmt};

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    decode_text, encode_text,
    limits::{PROPERTIES_MAX, PROPERTY_STRING_BYTES_MAX},
    text::encoded_len,
};

/// What is wrong with a property table or a look-up in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PropertyError {
    /// The table's version is not 1.
    #[error("property table of version {found}, not 1")]
    Version {
        /// The version found.
        found: i32,
    },
    /// The table ends in the middle of an entry.
    #[error("property table cut off in entry {entry}")]
    Truncated {
        /// Number of the entry, from 0.
        entry: usize,
    },
    /// The table says it has an impossible number of entries.
    #[error("property table with {count} entries; at most {PROPERTIES_MAX} are read")]
    Count {
        /// The number found.
        count: i32,
    },
    /// A type that cannot be skipped, as its length is not known.
    #[error("property {name:?} has the unknown type {kind}")]
    Type {
        /// The property.
        name: String,
        /// The type found.
        kind: i16,
    },
    /// A required property is not there.
    #[error("property {name} is missing")]
    Missing {
        /// The property.
        name: &'static str,
    },
    /// A property has another type than the protocol says.
    #[error("property {name} is not {wanted}")]
    Mismatch {
        /// The property.
        name: &'static str,
        /// The type that was wanted.
        wanted: &'static str,
    },
    /// A name or string is longer than the wire can say.
    #[error(
        "{what} of property {name:?} takes {len} bytes; at most {PROPERTY_STRING_BYTES_MAX} fit"
    )]
    TooLong {
        /// "name" or "value".
        what: &'static str,
        /// The property, cut to its first characters.
        name: String,
        /// Its length in bytes.
        len: usize,
    },
}

/// A value of a property.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Type 1.
    Boolean(bool),
    /// Type 2.
    Byte(i8),
    /// Type 3.
    Short(i16),
    /// Type 4.
    Int(i32),
    /// Type 5.
    Long(i64),
    /// Type 6.
    Float(f32),
    /// Type 7.
    Double(f64),
    /// Type 8.
    String(String),
    /// Type 8, but the bytes are no text. Kept as they came.
    Malformed(Bytes),
    /// Type 9: Java serialization, opaque here.
    Object(Bytes),
}

impl Value {
    /// The type's number on the wire.
    #[must_use]
    pub const fn kind(&self) -> i16 {
        match self {
            Self::Boolean(_) => 1,
            Self::Byte(_) => 2,
            Self::Short(_) => 3,
            Self::Int(_) => 4,
            Self::Long(_) => 5,
            Self::Float(_) => 6,
            Self::Double(_) => 7,
            Self::String(_) | Self::Malformed(_) => 8,
            Self::Object(_) => 9,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Byte(value) => write!(f, "{value}"),
            Self::Short(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Long(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value}"),
            Self::String(value) => write!(f, "{value:?}"),
            Self::Malformed(bytes) => write!(f, "<{} bytes that are no text>", bytes.len()),
            Self::Object(bytes) => write!(f, "<object of {} bytes>", bytes.len()),
        }
    }
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),*) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self { Self::$variant(value) }
        }
    )*};
}
value_from!(bool => Boolean, i8 => Byte, i16 => Short, i32 => Int, i64 => Long, f32 => Float,
    f64 => Double, String => String);

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

/// Version and count, before the entries.
const HEAD_BYTES: usize = 8;

/// A checked table, borrowed from its packet. Looking something up allocates nothing.
#[derive(Debug, Clone, Copy)]
pub struct PropertyTable<'a> {
    entries: &'a [u8],
    count: usize,
}

impl<'a> PropertyTable<'a> {
    /// Checks a section. An empty section is a table without entries.
    ///
    /// # Errors
    /// Any [`PropertyError`] about version, count, types or truncation.
    pub fn new(section: &'a [u8]) -> Result<Self, PropertyError> {
        let count = Self::walk(section, |_| ())?;
        Ok(Self { entries: section.get(HEAD_BYTES..).unwrap_or_default(), count })
    }

    /// Checks a section, shows each property on the way, and counts them: one pass where
    /// [`new`](Self::new) and [`iter`](Self::iter) take two.
    ///
    /// # Errors
    /// As of `new`. What was shown until then stands in a broken table.
    pub(crate) fn walk(
        section: &'a [u8],
        mut see: impl FnMut(RawProperty<'a>),
    ) -> Result<usize, PropertyError> {
        if section.is_empty() {
            return Ok(0);
        }
        let (version, rest) = int(section).ok_or(PropertyError::Truncated { entry: 0 })?;
        if version != 1 {
            return Err(PropertyError::Version { found: version });
        }
        let (count, mut rest) = int(rest).ok_or(PropertyError::Truncated { entry: 0 })?;
        let wanted = usize::try_from(count)
            .ok()
            .filter(|&count| count <= PROPERTIES_MAX)
            .ok_or(PropertyError::Count { count })?;
        let mut seen = 0;
        while seen < wanted {
            match entry(rest, seen)? {
                Some((property, tail)) => {
                    see(property);
                    rest = tail;
                }
                // An empty name ends the list early.
                None => break,
            }
            seen += 1;
        }
        Ok(seen)
    }

    /// How many properties there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each property's name and value, as they stand.
    pub fn iter(&self) -> impl Iterator<Item = RawProperty<'a>> + use<'a> {
        let mut rest = self.entries;
        (0..self.count).map_while(move |at| {
            let (property, tail) = entry(rest, at).ok().flatten()?;
            rest = tail;
            Some(property)
        })
    }

    fn find(&self, name: &str) -> Option<RawProperty<'a>> {
        self.iter().find(|property| property.name == name.as_bytes())
    }

    /// The value of any property.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<Value> {
        self.find(name).map(|property| property.value())
    }

    /// An optional `int`.
    ///
    /// # Errors
    /// [`PropertyError::Mismatch`] if it has another type.
    pub fn int(&self, name: &'static str) -> Result<Option<i32>, PropertyError> {
        let Some(found) = self.find(name) else { return Ok(None) };
        let bytes = found.of_kind(4, name, "an int")?;
        Ok(bytes.try_into().ok().map(i32::from_be_bytes))
    }

    /// An optional `long`.
    ///
    /// # Errors
    /// [`PropertyError::Mismatch`] if it has another type.
    pub fn long(&self, name: &'static str) -> Result<Option<i64>, PropertyError> {
        let Some(found) = self.find(name) else { return Ok(None) };
        let bytes = found.of_kind(5, name, "a long")?;
        Ok(bytes.try_into().ok().map(i64::from_be_bytes))
    }

    /// An optional `boolean`.
    ///
    /// # Errors
    /// [`PropertyError::Mismatch`] if it has another type.
    pub fn boolean(&self, name: &'static str) -> Result<Option<bool>, PropertyError> {
        let Some(found) = self.find(name) else { return Ok(None) };
        Ok(found.of_kind(1, name, "a boolean")?.first().map(|&byte| byte != 0))
    }

    /// An optional string.
    ///
    /// # Errors
    /// [`PropertyError::Mismatch`] if it has another type or is no text.
    pub fn string(&self, name: &'static str) -> Result<Option<Cow<'a, str>>, PropertyError> {
        let Some(found) = self.find(name) else { return Ok(None) };
        let bytes = found.of_kind(8, name, "a string")?;
        decode_text(bytes).map(Some).ok_or(PropertyError::Mismatch { name, wanted: "text" })
    }

    /// Everything, to keep.
    #[must_use]
    pub fn to_owned(&self) -> Properties {
        Properties {
            entries: self
                .iter()
                .map(|property| (property.name_text().into_owned(), property.value()))
                .collect(),
        }
    }
}

/// One property as it stands in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawProperty<'a> {
    /// The name's bytes.
    pub name: &'a [u8],
    /// The type's number, 1 to 9.
    pub kind: i16,
    /// The value's bytes, without a string's or object's length.
    pub bytes: &'a [u8],
}

impl<'a> RawProperty<'a> {
    /// The name; bytes that are no text are replaced.
    #[must_use]
    pub fn name_text(&self) -> Cow<'a, str> {
        decode_text(self.name).unwrap_or_else(|| String::from_utf8_lossy(self.name))
    }

    /// The value, decoded.
    #[must_use]
    pub fn value(&self) -> Value {
        fn number<const N: usize>(bytes: &[u8]) -> [u8; N] {
            // `entry` cut exactly as many bytes as the type has.
            bytes.try_into().unwrap_or([0; N])
        }
        let bytes = self.bytes;
        match self.kind {
            1 => Value::Boolean(bytes.first().is_some_and(|&byte| byte != 0)),
            2 => Value::Byte(i8::from_be_bytes(number(bytes))),
            3 => Value::Short(i16::from_be_bytes(number(bytes))),
            4 => Value::Int(i32::from_be_bytes(number(bytes))),
            5 => Value::Long(i64::from_be_bytes(number(bytes))),
            6 => Value::Float(f32::from_be_bytes(number(bytes))),
            7 => Value::Double(f64::from_be_bytes(number(bytes))),
            8 => decode_text(bytes).map_or_else(
                || Value::Malformed(Bytes::copy_from_slice(bytes)),
                |text| Value::String(text.into_owned()),
            ),
            _ => Value::Object(Bytes::copy_from_slice(bytes)),
        }
    }

    /// Writes the entry as it stood.
    pub fn encode(&self, out: &mut BytesMut) {
        // The lengths are those that were read, so they fit.
        let put_len = |len: usize, out: &mut BytesMut| {
            out.put_u16(u16::try_from(len).unwrap_or(u16::MAX));
        };
        put_len(self.name.len(), out);
        out.put_slice(self.name);
        out.put_i16(self.kind);
        match self.kind {
            8 => put_len(self.bytes.len(), out),
            9 => out.put_i32(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX)),
            _ => {}
        }
        out.put_slice(self.bytes);
    }

    fn of_kind(
        &self,
        kind: i16,
        name: &'static str,
        wanted: &'static str,
    ) -> Result<&'a [u8], PropertyError> {
        if self.kind == kind {
            Ok(self.bytes)
        } else {
            Err(PropertyError::Mismatch { name, wanted })
        }
    }
}

/// Cuts one entry off the front; `None` at an empty name, which ends a list.
fn entry(bytes: &[u8], at: usize) -> Result<Option<(RawProperty<'_>, &[u8])>, PropertyError> {
    let cut = PropertyError::Truncated { entry: at };
    let Some((name, rest)) = utf(bytes) else { return Err(cut) };
    if name.is_empty() {
        return Ok(None);
    }
    let Some((kind, rest)) = rest.split_first_chunk() else { return Err(cut) };
    let kind = i16::from_be_bytes(*kind);
    let split = match kind {
        1 | 2 => rest.split_at_checked(1),
        3 => rest.split_at_checked(2),
        4 | 6 => rest.split_at_checked(4),
        5 | 7 => rest.split_at_checked(8),
        8 => utf(rest),
        9 => int(rest).and_then(|(len, rest)| rest.split_at_checked(usize::try_from(len).ok()?)),
        _ => {
            let name = decode_text(name).unwrap_or_else(|| String::from_utf8_lossy(name));
            return Err(PropertyError::Type { name: shortened(&name), kind });
        }
    };
    let Some((value, rest)) = split else { return Err(cut) };
    Ok(Some((RawProperty { name, kind, bytes: value }, rest)))
}

fn int(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((i32::from_be_bytes(*number), rest))
}

fn utf(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

/// The lengths of a name and of a string, checked; of other values 0.
fn lengths(name: &str, value: &Value) -> Result<(u16, u16), PropertyError> {
    let too_long = |what, len| PropertyError::TooLong { what, name: shortened(name), len };
    let name_len = encoded_len(name);
    let name_len = u16::try_from(name_len).map_err(|_| too_long("name", name_len))?;
    let value_len = match value {
        Value::String(text) => encoded_len(text),
        Value::Malformed(bytes) => bytes.len(),
        Value::Object(bytes) if i32::try_from(bytes.len()).is_err() => {
            return Err(too_long("value", bytes.len()));
        }
        _ => 0,
    };
    let value_len = u16::try_from(value_len).map_err(|_| too_long("value", value_len))?;
    Ok((name_len, value_len))
}

/// The first characters of a name, for an error's text.
fn shortened(name: &str) -> String {
    name.chars().take(64).collect()
}

/// An owned table, in the order of its making.
///
/// Shape: names are unique; setting one again replaces its value in place.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Properties {
    entries: Vec<(String, Value)>,
}

impl Properties {
    /// No properties.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Sets a property.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        match self.entries.iter_mut().find(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((name, value)),
        }
    }

    /// Sets a property if the wire can say it.
    ///
    /// # Errors
    /// [`PropertyError::TooLong`], [`PropertyError::Count`]; nothing is set then.
    pub fn try_set(
        &mut self,
        name: impl Into<String>,
        value: impl Into<Value>,
    ) -> Result<(), PropertyError> {
        let (name, value) = (name.into(), value.into());
        lengths(&name, &value)?;
        if self.entries.len() >= PROPERTIES_MAX && self.value(&name).is_none() {
            let count = i32::try_from(self.entries.len() + 1).unwrap_or(i32::MAX);
            return Err(PropertyError::Count { count });
        }
        self.set(name, value);
        Ok(())
    }

    /// Takes a property out.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.entries.iter().position(|(known, _)| known == name)?;
        Some(self.entries.remove(at).1)
    }

    /// The value of a property.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
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

    /// Writes the table; nothing at all if it is empty.
    ///
    /// # Errors
    /// [`PropertyError::TooLong`], [`PropertyError::Count`] if a reader would refuse as many;
    /// nothing is written then.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), PropertyError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        out.reserve(self.encoded_len()?);
        out.put_i32(1);
        out.put_i32(self.count());
        for (name, value) in &self.entries {
            put_entry(name, value, out)?;
        }
        Ok(())
    }

    /// How many bytes [`encode`](Self::encode) writes.
    ///
    /// # Errors
    /// As of `encode`.
    pub(crate) fn encoded_len(&self) -> Result<usize, PropertyError> {
        if self.entries.is_empty() {
            return Ok(0);
        }
        if self.entries.len() > PROPERTIES_MAX {
            return Err(PropertyError::Count { count: self.count() });
        }
        let mut len = HEAD_BYTES;
        for (name, value) in &self.entries {
            let (name_len, _) = lengths(name, value)?;
            len += 4 + usize::from(name_len) + value_len(value);
        }
        Ok(len)
    }

    fn count(&self) -> i32 {
        i32::try_from(self.entries.len()).unwrap_or(i32::MAX)
    }
}

/// Writes a table entry by entry.
#[derive(Debug, Default)]
pub(super) struct TableWriter {
    bytes: BytesMut,
    count: i32,
}

impl TableWriter {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn put(&mut self, name: &str, value: &Value) -> Result<(), PropertyError> {
        if self.count == 0 {
            self.bytes.reserve(TABLE_BYTES);
            self.bytes.put_i32(1);
            self.bytes.put_i32(0);
        }
        put_entry(name, value, &mut self.bytes)?;
        self.count += 1;
        Ok(())
    }

    /// The table's bytes; none if nothing was put.
    pub(super) fn finish(mut self) -> BytesMut {
        if let Some(count) = self.bytes.get_mut(4..8) {
            count.copy_from_slice(&self.count.to_be_bytes());
        }
        self.bytes
    }
}

/// Room for the protocol properties of most requests and replies.
const TABLE_BYTES: usize = 128;

/// Writes one entry, or nothing if it does not fit.
fn put_entry(name: &str, value: &Value, out: &mut BytesMut) -> Result<(), PropertyError> {
    let (name_len, string_len) = lengths(name, value)?;
    out.put_u16(name_len);
    encode_text(name, out);
    out.put_i16(value.kind());
    match value {
        Value::Boolean(value) => out.put_u8(u8::from(*value)),
        Value::Byte(value) => out.put_i8(*value),
        Value::Short(value) => out.put_i16(*value),
        Value::Int(value) => out.put_i32(*value),
        Value::Long(value) => out.put_i64(*value),
        Value::Float(value) => out.put_f32(*value),
        Value::Double(value) => out.put_f64(*value),
        Value::String(text) => {
            out.put_u16(string_len);
            encode_text(text, out);
        }
        Value::Malformed(bytes) => {
            out.put_u16(string_len);
            out.put_slice(bytes);
        }
        Value::Object(bytes) => {
            // `lengths` made sure that it fits.
            out.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
            out.put_slice(bytes);
        }
    }
    Ok(())
}

/// How many bytes a value takes, without its type.
fn value_len(value: &Value) -> usize {
    match value {
        Value::Boolean(_) | Value::Byte(_) => 1,
        Value::Short(_) => 2,
        Value::Int(_) | Value::Float(_) => 4,
        Value::Long(_) | Value::Double(_) => 8,
        Value::String(text) => 2 + encoded_len(text),
        Value::Malformed(bytes) => 2 + bytes.len(),
        Value::Object(bytes) => 4 + bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, Bytes, BytesMut};

    use super::{PROPERTIES_MAX, Properties, PropertyError, PropertyTable, Value};

    fn table(properties: &Properties) -> BytesMut {
        let mut out = BytesMut::new();
        properties.encode(&mut out).unwrap();
        out
    }

    #[test]
    fn every_type_survives_the_round_trip() {
        let mut properties = Properties::new();
        properties.set("z", true);
        properties.set("b", 7_i8);
        properties.set("s", -300_i16);
        properties.set("i", -42_i32);
        properties.set("l", 1_i64 << 40);
        properties.set("f", 1.5_f32);
        properties.set("d", -2.25_f64);
        properties.set("t", "välue\0😀");
        properties.set("o", Value::Object(Bytes::from_static(&[1, 2])));
        properties.set("m", Value::Malformed(Bytes::from_static(&[0xC3, 0x28])));
        let bytes = table(&properties);
        assert_eq!(bytes.capacity(), bytes.len(), "the room taken is what is needed");
        let read = PropertyTable::new(&bytes).unwrap();
        assert_eq!(read.len(), 10);
        assert_eq!(read.to_owned(), properties);
        assert_eq!(read.int("i"), Ok(Some(-42)));
        assert_eq!(read.long("l"), Ok(Some(1 << 40)));
        assert_eq!(read.int("none"), Ok(None));
        assert!(matches!(read.int("l"), Err(PropertyError::Mismatch { name: "l", .. })));
        assert!(matches!(read.string("m"), Err(PropertyError::Mismatch { .. })));
    }

    #[test]
    fn every_prefix_of_a_table_is_an_error_and_never_a_panic() {
        let mut properties = Properties::new();
        properties.set("name", "value");
        properties.set("number", 1_i64);
        let bytes = table(&properties);
        for len in 1..bytes.len() {
            assert!(PropertyTable::new(&bytes[..len]).is_err(), "{len}");
        }
        assert!(table(&Properties::new()).is_empty());
        assert!(PropertyTable::new(&[]).unwrap().is_empty());
    }

    #[test]
    fn impossible_tables_are_refused() {
        let mut huge = BytesMut::new();
        huge.put_i32(1);
        huge.put_i32(i32::MAX);
        assert!(matches!(PropertyTable::new(&huge), Err(PropertyError::Count { .. })));
        assert!(matches!(
            PropertyTable::new(&[0, 0, 0, 7, 0, 0, 0, 0]),
            Err(PropertyError::Version { found: 7 })
        ));
        // A table as a client that cannot say a length over 65,535 leaves it behind.
        let cut = [0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b'v', 0, 8];
        assert_eq!(PropertyTable::new(&cut).unwrap_err(), PropertyError::Truncated { entry: 0 });
    }

    #[test]
    fn more_properties_than_are_read_are_neither_set_nor_written() {
        let mut properties = Properties {
            entries: (0..PROPERTIES_MAX).map(|n| (format!("n{n}"), Value::Byte(1))).collect(),
        };
        assert_eq!(PropertyTable::new(&table(&properties)).unwrap().len(), PROPERTIES_MAX);
        assert_eq!(properties.try_set("n1", 2_i8), Ok(()));
        let wanted = Err(PropertyError::Count { count: 16_385 });
        assert_eq!(properties.try_set("more", 1_i8), wanted);
        properties.set("more", 1_i8);
        let mut out = BytesMut::new();
        assert_eq!(properties.encode(&mut out), wanted);
        assert!(out.is_empty());
    }

    #[test]
    fn strings_at_their_limit_fit_and_one_byte_more_is_an_error() {
        let mut properties = Properties::new();
        properties.set("v", "x".repeat(65_535));
        properties.set("n".repeat(60_000), 1_i32);
        assert_eq!(PropertyTable::new(&table(&properties)).unwrap().to_owned(), properties);
        properties.set("v", "x".repeat(65_536));
        let refused = properties.encode(&mut BytesMut::new()).unwrap_err();
        assert!(refused.to_string().contains("65536 bytes"), "{refused}");
    }
}
