//! Reads maps, tables and successive objects.

use bytes::Bytes;

use super::{
    JavaError, JavaValue,
    class::{
        Class, FIRST_HANDLE, STREAM_HEADER, TC_ARRAY, TC_BLOCKDATA, TC_CLASSDESC, TC_ENDBLOCKDATA,
        TC_LONGSTRING, TC_NULL, TC_OBJECT, TC_REFERENCE, TC_STRING,
    },
};
use crate::wire::{
    decode_text,
    limits::{JAVA_ITEMS_MAX, JAVA_NAME_BYTES_MAX, JAVA_REPEATED_BYTES_MAX},
};

/// Reads a `java.util.HashMap` with string keys, in the order of the bytes.
///
/// # Errors
/// Any [`JavaError`].
pub fn decode_map(body: &Bytes) -> Result<Vec<(String, JavaValue)>, JavaError> {
    Reader::new(body)?.table(Class::HashMap)
}

/// Reads a `java.util.Hashtable` with string keys, in the order of the bytes.
///
/// # Errors
/// Any [`JavaError`].
pub fn decode_hashtable(body: &Bytes) -> Result<Vec<(String, JavaValue)>, JavaError> {
    Reader::new(body)?.table(Class::Hashtable)
}

/// Reads values one after the other until the bytes end; none from an empty body.
///
/// # Errors
/// Any [`JavaError`].
pub fn decode_stream(body: &Bytes) -> Result<Vec<JavaValue>, JavaError> {
    if body.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = Reader::new(body)?;
    let mut items = Vec::new();
    while reader.input.at < body.len() {
        if items.len() == JAVA_ITEMS_MAX {
            return Err(JavaError::Items);
        }
        items.push(reader.value()?);
    }
    Ok(items)
}

/// What a handle stands for.
enum Handle {
    Class(Class),
    /// Where a string's bytes are.
    Text {
        start: usize,
        len: usize,
    },
    Value(JavaValue),
    /// The map or table that is being read.
    Table,
}

struct Reader<'a> {
    input: Input<'a>,
    handles: Vec<Handle>,
    /// Bytes of text that references have repeated.
    repeated: usize,
}

impl<'a> Reader<'a> {
    fn new(input: &'a Bytes) -> Result<Self, JavaError> {
        Ok(Self { input: Input::new(input)?, handles: Vec::new(), repeated: 0 })
    }

    fn table(&mut self, class: Class) -> Result<Vec<(String, JavaValue)>, JavaError> {
        self.input.expect(TC_OBJECT, "a map")?;
        self.described(class)?;
        self.handles.push(Handle::Table);
        // Load factor and threshold mean nothing to a reader, nor does the capacity.
        self.input.array::<8>()?;
        self.input.expect(TC_BLOCKDATA, "the map's size")?;
        self.input.expect(8, "the map's size")?;
        self.input.array::<4>()?;
        let count = self.input.length()?;
        if count > JAVA_ITEMS_MAX {
            return Err(JavaError::Items);
        }
        // The count is only a claim: an entry takes two bytes at the least.
        let mut entries = Vec::with_capacity(count.min(self.input.left() / 2));
        for _ in 0..count {
            let (offset, code) = (self.input.at, self.input.peek()?);
            let JavaValue::String(key) = self.value()? else {
                return Err(JavaError::Element { code, offset, wanted: "a string" });
            };
            entries.push((key, self.value()?));
        }
        self.input.expect(TC_ENDBLOCKDATA, "the end of the map")?;
        Ok(entries)
    }

    fn value(&mut self) -> Result<JavaValue, JavaError> {
        let offset = self.input.at;
        match self.input.byte()? {
            TC_NULL => Ok(JavaValue::Null),
            TC_REFERENCE => self.referenced(offset),
            TC_STRING => {
                let len = usize::from(u16::from_be_bytes(self.input.array()?));
                self.text(len)
            }
            TC_LONGSTRING => {
                let length = i64::from_be_bytes(self.input.array()?);
                let len = usize::try_from(length)
                    .map_err(|_| JavaError::Length { length, offset: offset + 1 })?;
                self.text(len)
            }
            TC_ARRAY => {
                self.described(Class::ByteArray)?;
                let len = self.input.length()?;
                let value = JavaValue::Bytes(self.input.shared(len)?);
                self.handles.push(Handle::Value(value.clone()));
                Ok(value)
            }
            TC_OBJECT => {
                let value = self.boxed()?;
                self.handles.push(Handle::Value(value.clone()));
                Ok(value)
            }
            code => Err(JavaError::Element { code, offset, wanted: "a value" }),
        }
    }

    /// A boxed primitive: its class, then its one field.
    fn boxed(&mut self) -> Result<JavaValue, JavaError> {
        let offset = self.input.at;
        let class = self.class()?;
        Ok(match class {
            Class::Boolean => JavaValue::Boolean(self.input.byte()? != 0),
            Class::Byte => JavaValue::Byte(i8::from_be_bytes(self.input.array()?)),
            Class::Short => JavaValue::Short(i16::from_be_bytes(self.input.array()?)),
            Class::Character => JavaValue::Char(u16::from_be_bytes(self.input.array()?)),
            Class::Integer => JavaValue::Int(i32::from_be_bytes(self.input.array()?)),
            Class::Long => JavaValue::Long(i64::from_be_bytes(self.input.array()?)),
            Class::Float => JavaValue::Float(f32::from_be_bytes(self.input.array()?)),
            Class::Double => JavaValue::Double(f64::from_be_bytes(self.input.array()?)),
            Class::Number
            | Class::ByteArray
            | Class::HashMap
            | Class::Hashtable
            | Class::Properties
            | Class::Vector
            | Class::ObjectArray => {
                return Err(JavaError::Element { code: TC_OBJECT, offset, wanted: "a value" });
            }
        })
    }

    fn text(&mut self, len: usize) -> Result<JavaValue, JavaError> {
        let start = self.input.at;
        self.input.take(len)?;
        self.handles.push(Handle::Text { start, len });
        self.string(start, len)
    }

    fn string(&self, start: usize, len: usize) -> Result<JavaValue, JavaError> {
        self.input.text(start, len).map(JavaValue::String)
    }

    fn referenced(&mut self, offset: usize) -> Result<JavaValue, JavaError> {
        let handle = i32::from_be_bytes(self.input.array()?);
        match self.handle(handle) {
            Some(Handle::Value(value)) => Ok(value.clone()),
            Some(&Handle::Text { start, len }) => {
                // Five bytes could otherwise stand for megabytes, again and again.
                self.repeated += len;
                if self.repeated > JAVA_REPEATED_BYTES_MAX {
                    return Err(JavaError::Repeated);
                }
                self.string(start, len)
            }
            Some(Handle::Class(_) | Handle::Table) | None => {
                Err(JavaError::Reference { handle, offset })
            }
        }
    }

    fn handle(&self, handle: i32) -> Option<&Handle> {
        let at = usize::try_from(handle.checked_sub(FIRST_HANDLE)?).ok()?;
        self.handles.get(at)
    }

    /// A class description or a reference to one, which must be of this class.
    fn described(&mut self, wanted: Class) -> Result<(), JavaError> {
        let offset = self.input.at;
        let code = self.input.peek()?;
        if self.class()? == wanted {
            return Ok(());
        }
        Err(JavaError::Element { code, offset, wanted: wanted.description().name })
    }

    fn class(&mut self) -> Result<Class, JavaError> {
        let offset = self.input.at;
        match self.input.byte()? {
            TC_REFERENCE => {
                let handle = i32::from_be_bytes(self.input.array()?);
                match self.handle(handle) {
                    Some(&Handle::Class(class)) => Ok(class),
                    _ => Err(JavaError::Reference { handle, offset }),
                }
            }
            TC_CLASSDESC => {
                let name = self.input.name()?;
                let class = Class::named(name).ok_or_else(|| {
                    let name = String::from_utf8_lossy(name).chars().take(128).collect();
                    JavaError::UnknownClass { name }
                })?;
                self.class_rest(class)?;
                Ok(class)
            }
            code => Err(JavaError::Element { code, offset, wanted: "a class" }),
        }
    }

    /// What follows a class's name. The parent is known beforehand, and only numbers have one, so
    /// this calls itself once at most.
    fn class_rest(&mut self, class: Class) -> Result<(), JavaError> {
        let wanted = class.description();
        let form = JavaError::ClassForm { name: wanted.name };
        if u64::from_be_bytes(self.input.array()?) != wanted.uid {
            return Err(form);
        }
        self.handles.push(Handle::Class(class));
        let flags = self.input.byte()?;
        let fields = usize::from(u16::from_be_bytes(self.input.array()?));
        if flags != wanted.flags || fields != wanted.fields.len() {
            return Err(form);
        }
        for &(kind, name, _) in wanted.fields {
            if self.input.byte()? != kind || self.input.name()? != name.as_bytes() {
                return Err(form);
            }
        }
        self.input.expect(TC_ENDBLOCKDATA, "the end of a class")?;
        let Some(parent) = wanted.parent else {
            return self.input.expect(TC_NULL, "a class without parent");
        };
        if self.input.peek()? != TC_CLASSDESC {
            return self.described(parent);
        }
        self.input.byte()?;
        if self.input.name()? != parent.description().name.as_bytes() {
            return Err(form);
        }
        self.class_rest(parent)
    }
}

/// The bytes of a serialized stream, and how far they are read.
pub(super) struct Input<'a> {
    bytes: &'a Bytes,
    pub(super) at: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a Bytes) -> Result<Self, JavaError> {
        if !bytes.starts_with(&STREAM_HEADER) {
            return Err(JavaError::Header);
        }
        Ok(Self { bytes, at: STREAM_HEADER.len() })
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Bytes that were read before, as text.
    pub(super) fn text(&self, start: usize, len: usize) -> Result<String, JavaError> {
        self.bytes
            .get(start..start + len)
            .and_then(decode_text)
            .map(|text| text.into_owned())
            .ok_or(JavaError::Text { offset: start })
    }

    /// The next bytes, as the name of a class or field.
    pub(super) fn name_text(&mut self) -> Result<String, JavaError> {
        let offset = self.at;
        let len = u16::from_be_bytes(self.array()?);
        if len > JAVA_NAME_BYTES_MAX {
            return Err(JavaError::Length { length: i64::from(len), offset });
        }
        let (start, len) = (self.at, usize::from(len));
        self.take(len)?;
        self.text(start, len)
    }

    /// The next bytes, shared.
    pub(super) fn shared(&mut self, len: usize) -> Result<Bytes, JavaError> {
        let start = self.at;
        self.take(len)?;
        Ok(self.bytes.slice(start..start + len))
    }

    pub(super) fn expect(&mut self, wanted: u8, what: &'static str) -> Result<(), JavaError> {
        let offset = self.at;
        let code = self.byte()?;
        if code == wanted { Ok(()) } else { Err(JavaError::Element { code, offset, wanted: what }) }
    }

    /// A length of four bytes.
    pub(super) fn length(&mut self) -> Result<usize, JavaError> {
        let offset = self.at;
        let length = i32::from_be_bytes(self.array()?);
        usize::try_from(length).map_err(|_| JavaError::Length { length: i64::from(length), offset })
    }

    pub(super) fn name(&mut self) -> Result<&'a [u8], JavaError> {
        let len = usize::from(u16::from_be_bytes(self.array()?));
        self.take(len)
    }

    pub(super) fn peek(&self) -> Result<u8, JavaError> {
        self.bytes.get(self.at).copied().ok_or(JavaError::Truncated { offset: self.bytes.len() })
    }

    pub(super) fn byte(&mut self) -> Result<u8, JavaError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], JavaError> {
        let bytes = self.take(N)?;
        // `take` gave exactly as many.
        Ok(bytes.try_into().unwrap_or([0; N]))
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], JavaError> {
        let bytes = self
            .at
            .checked_add(len)
            .and_then(|end| self.bytes.get(self.at..end))
            .ok_or(JavaError::Truncated { offset: self.bytes.len() })?;
        self.at += len;
        Ok(bytes)
    }
}
