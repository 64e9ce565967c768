//! Values of maps and streams as the type an application asks for.

use bytes::Bytes;

use super::{MapBody, StreamItem, number};
use crate::wire::java::JavaValue;

/// A type that a value of a map or stream can be read as.
///
/// # Source
/// The conversion tables of the Java message service: whole numbers widen, `float` widens to
/// `double`; all but byte arrays become strings, and strings become what they spell, but no
/// characters. Null is `None` for every type.
pub trait FromItem: FromJava {}

mod sealed {
    use crate::wire::java::JavaValue;

    /// Read through [`FromItem`](super::FromItem), for these types only.
    #[allow(unnameable_types, reason = "seals the trait")]
    pub trait FromJava: Sized {
        /// The type's name in errors.
        const NAME: &'static str;
        fn from_java(value: &JavaValue) -> Option<Self>;
    }
}
use sealed::FromJava;

macro_rules! from_items {
    ($($to:ty, $name:literal, $spelt:expr, $($from:ident)*;)*) => {$(
        impl FromJava for $to {
            const NAME: &'static str = $name;

            fn from_java(value: &JavaValue) -> Option<Self> {
                match value {
                    $(JavaValue::$from(value) => Some(value.clone().into()),)*
                    JavaValue::String(text) => {
                        let spelt: fn(&str) -> Option<Self> = $spelt;
                        spelt(text)
                    }
                    _ => None,
                }
            }
        }
        impl FromItem for $to {}
    )*};
}
from_items! {
    // As Java reads it: anything but "true" is false.
    bool, "boolean", |text| Some(text.eq_ignore_ascii_case("true")), Boolean;
    i8, "byte", |text| text.parse().ok(), Byte;
    i16, "short", |text| text.parse().ok(), Byte Short;
    i32, "int", |text| text.parse().ok(), Byte Short Int;
    i64, "long", |text| text.parse().ok(), Byte Short Int Long;
    f32, "float", number::read, Float;
    f64, "double", number::read, Float Double;
    u16, "char", |_| None, Char;
    Bytes, "byte[]", |_| None, Bytes;
}

impl FromJava for String {
    const NAME: &'static str = "string";

    fn from_java(value: &JavaValue) -> Option<Self> {
        Some(match value {
            JavaValue::Boolean(value) => value.to_string(),
            JavaValue::Byte(value) => value.to_string(),
            JavaValue::Short(value) => value.to_string(),
            JavaValue::Int(value) => value.to_string(),
            JavaValue::Long(value) => value.to_string(),
            JavaValue::Float(value) => number::write(&format!("{value:e}"), (*value).into()),
            JavaValue::Double(value) => number::write(&format!("{value:e}"), *value),
            // Half of a pair is no character.
            JavaValue::Char(unit) => char::from_u32((*unit).into())?.to_string(),
            JavaValue::String(text) => text.clone(),
            JavaValue::Null | JavaValue::Bytes(_) => return None,
        })
    }
}
impl FromItem for String {}

/// Why a value of a map or stream cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadItemError {
    /// The value cannot become what was asked for. In a stream it is still the next one.
    #[error("the value {value} is no {wanted}")]
    Conversion {
        /// The value, shortened.
        value: String,
        /// What was asked for.
        wanted: &'static str,
    },
    /// The stream has no more values.
    #[error("the stream has no more values")]
    End,
    /// Bytes of this value were read in pieces, and not to their end.
    #[error(
        "a byte array is being read in pieces; go on until fewer bytes come than were asked for"
    )]
    Unfinished,
}

impl MapBody {
    /// A value as the type asked for: `map.value_as::<i32>("n")`. `None` if there is none of this
    /// name, or it is null.
    ///
    /// # Errors
    /// [`ReadItemError::Conversion`].
    pub fn value_as<T: FromItem>(&self, name: &str) -> Result<Option<T>, ReadItemError> {
        self.value(name).map_or(Ok(None), convert)
    }
}

/// Reads the values of a stream one after the other.
///
/// Shape: a place in a list of values. An error leaves it where it is.
///
/// ```
/// use tidegate::message::{ReadItemError, StreamReader};
///
/// let items = [7.into(), "eight".into(), vec![1, 2, 3].into()];
/// let mut stream = StreamReader::new(&items);
/// assert_eq!(stream.read::<i64>()?, Some(7));
/// assert!(stream.read::<i64>().is_err()); // Not a number, and still to be read.
/// assert_eq!(stream.read::<String>()?.as_deref(), Some("eight"));
/// let mut two = [0; 2];
/// assert_eq!(stream.read_bytes(&mut two)?, Some(2));
/// assert_eq!(stream.read_bytes(&mut two)?, Some(1));
/// assert_eq!(stream.read::<bool>(), Err(ReadItemError::End));
/// # Ok::<(), ReadItemError>(())
/// ```
///
/// # Source
/// Java's `StreamMessage`.
#[derive(Debug, Clone)]
pub struct StreamReader<'a> {
    items: &'a [StreamItem],
    /// Bytes of the next value that were read in pieces.
    begun: Option<usize>,
}

impl<'a> StreamReader<'a> {
    /// A reader at the first of these values.
    #[must_use]
    pub const fn new(items: &'a [StreamItem]) -> Self {
        Self { items, begun: None }
    }

    /// The next value as the type asked for; `None` for null.
    ///
    /// # Errors
    /// [`ReadItemError`]; the same value is next then.
    pub fn read<T: FromItem>(&mut self) -> Result<Option<T>, ReadItemError> {
        let value = convert(self.peek()?)?;
        self.advance();
        Ok(value)
    }

    /// The next value as it is.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for conversions.
    pub fn read_item(&mut self) -> Result<&'a StreamItem, ReadItemError> {
        let item = self.peek()?;
        self.advance();
        Ok(item)
    }

    /// The next bytes of a byte array, as many as `buffer` takes. The array is at its end when fewer
    /// come, or none (`None`), as they do from null.
    ///
    /// # Errors
    /// [`ReadItemError::Conversion`] if the next value is no byte array, [`ReadItemError::End`].
    pub fn read_bytes(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ReadItemError> {
        let item = self.items.first().ok_or(ReadItemError::End)?;
        let JavaValue::Bytes(bytes) = item else {
            // Null has none; anything else does not fit.
            let _null: Option<Bytes> = convert(item)?;
            self.advance();
            return Ok(None);
        };
        let rest = bytes.get(self.begun.unwrap_or(0)..).unwrap_or_default();
        if rest.is_empty() && self.begun.is_some_and(|begun| begun > 0) {
            self.advance();
            return Ok(None);
        }
        let count = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        if count < buffer.len() {
            self.advance();
        } else {
            self.begun = Some(self.begun.unwrap_or(0) + count);
        }
        Ok(Some(count))
    }

    /// Values that are still to be read.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.items.len()
    }

    fn peek(&self) -> Result<&'a StreamItem, ReadItemError> {
        let item = self.items.first().ok_or(ReadItemError::End)?;
        if self.begun.is_some() { Err(ReadItemError::Unfinished) } else { Ok(item) }
    }

    fn advance(&mut self) {
        self.items = self.items.get(1..).unwrap_or_default();
        self.begun = None;
    }
}

fn convert<T: FromItem>(value: &JavaValue) -> Result<Option<T>, ReadItemError> {
    match value {
        JavaValue::Null => Ok(None),
        value => T::from_java(value).map(Some).ok_or_else(|| mismatch::<T>(value)),
    }
}

fn mismatch<T: FromItem>(value: &JavaValue) -> ReadItemError {
    let value = value.to_string().chars().take(64).collect();
    ReadItemError::Conversion { value, wanted: T::NAME }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{FromItem, ReadItemError, StreamReader};
    use crate::{message::MapBody, wire::java::JavaValue};

    /// One value of each type, all of which spell a small number if they can.
    fn values() -> [JavaValue; 10] {
        [
            JavaValue::Boolean(true),
            JavaValue::Byte(1),
            JavaValue::Short(1),
            JavaValue::Char(0x31),
            JavaValue::Int(1),
            JavaValue::Long(1),
            JavaValue::Float(1.0),
            JavaValue::Double(1.0),
            JavaValue::String("1".to_owned()),
            JavaValue::Bytes(Bytes::from_static(b"1")),
        ]
    }

    /// Which of the values can be read as `T`, an `x` for each.
    fn readable<T: FromItem>() -> String {
        let can = |value: &JavaValue| if T::from_java(value).is_some() { 'x' } else { '-' };
        values().iter().map(can).collect()
    }

    #[test]
    fn values_convert_as_the_table_says() {
        // In the order of `values`: boolean byte short char int long float double String byte[].
        assert_eq!(readable::<bool>(), "x-------x-");
        assert_eq!(readable::<i8>(), "-x------x-");
        assert_eq!(readable::<i16>(), "-xx-----x-");
        assert_eq!(readable::<u16>(), "---x------");
        assert_eq!(readable::<i32>(), "-xx-x---x-");
        assert_eq!(readable::<i64>(), "-xx-xx--x-");
        assert_eq!(readable::<f32>(), "------x-x-");
        assert_eq!(readable::<f64>(), "------xxx-");
        assert_eq!(readable::<String>(), "xxxxxxxxx-");
        assert_eq!(readable::<Bytes>(), "---------x");
    }

    #[test]
    fn a_map_converts_knows_null_and_tells_what_does_not_fit() {
        let mut map = MapBody::new();
        map.set("n", 300).set("text", "1e2").set("none", JavaValue::Null).set("big", 1.5e10);
        assert_eq!(map.value_as::<i64>("n"), Ok(Some(300)));
        assert_eq!(map.value_as::<f64>("text"), Ok(Some(100.0)));
        assert_eq!(map.value_as::<i32>("none"), Ok(None));
        assert_eq!(map.value_as::<i32>("missing"), Ok(None));
        assert_eq!(map.value_as::<String>("big"), Ok(Some("1.5E10".to_owned())));
        let error = map.value_as::<i8>("n").unwrap_err();
        assert_eq!(error.to_string(), "the value 300 is no byte");
        assert!(map.value_as::<i32>("text").is_err());
    }

    #[test]
    fn a_stream_stays_where_it_is_when_a_value_does_not_fit() {
        let items = [JavaValue::String("x".to_owned()), JavaValue::Null, JavaValue::Short(2)];
        let mut stream = StreamReader::new(&items);
        assert!(matches!(stream.read::<i32>(), Err(ReadItemError::Conversion { .. })));
        assert!(matches!(stream.read_bytes(&mut [0]), Err(ReadItemError::Conversion { .. })));
        assert_eq!(stream.read::<String>(), Ok(Some("x".to_owned())));
        assert_eq!(stream.read::<i32>(), Ok(None));
        assert_eq!((stream.remaining(), stream.read_item()), (1, Ok(&JavaValue::Short(2))));
        assert_eq!(stream.read_item(), Err(ReadItemError::End));
        assert_eq!(stream.read_bytes(&mut [0]), Err(ReadItemError::End));
    }

    #[test]
    fn byte_arrays_are_read_in_pieces_to_their_end() {
        let bytes = |bytes: &'static [u8]| JavaValue::Bytes(Bytes::from_static(bytes));
        let items = [bytes(b"abcd"), bytes(b""), JavaValue::Null, bytes(b"xyz"), 1.into()];
        let mut stream = StreamReader::new(&items);
        let mut two = [0; 2];
        assert_eq!((stream.read_bytes(&mut two), &two), (Ok(Some(2)), b"ab"));
        assert_eq!(stream.read::<Bytes>(), Err(ReadItemError::Unfinished));
        assert_eq!((stream.read_bytes(&mut two), &two), (Ok(Some(2)), b"cd"));
        // The buffer was full each time, so the end shows only now.
        assert_eq!(stream.read_bytes(&mut two), Ok(None));
        assert_eq!(stream.read_bytes(&mut two), Ok(Some(0)));
        assert_eq!(stream.read_bytes(&mut two), Ok(None));
        assert_eq!((stream.read_bytes(&mut two), &two), (Ok(Some(2)), b"xy"));
        assert_eq!((stream.read_bytes(&mut two), two[0]), (Ok(Some(1)), b'z'));
        assert_eq!(stream.read::<i32>(), Ok(Some(1)));
    }
}
