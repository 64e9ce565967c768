//! Writes maps, tables and successive objects.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    JavaValue,
    class::{
        Class, FIRST_HANDLE, LOAD_FACTOR, STREAM_HEADER, TC_ARRAY, TC_BLOCKDATA, TC_CLASSDESC,
        TC_ENDBLOCKDATA, TC_LONGSTRING, TC_NULL, TC_OBJECT, TC_REFERENCE, TC_STRING,
    },
};
use crate::wire::{encode_text, text::encoded_len};

/// Writes a `java.util.HashMap` with these entries, in this order.
///
/// Lengths of 2 GiB and more are written as the largest that can be said; such a body is refused
/// as too large for a packet.
#[must_use]
pub fn encode_map<'a>(entries: impl ExactSizeIterator<Item = (&'a str, &'a JavaValue)>) -> Bytes {
    let size = entries.len();
    let (mut capacity, mut threshold) = (16, 12);
    // Java's map doubles when it grows past its threshold.
    while size > threshold {
        capacity *= 2;
        threshold *= 2;
    }
    // A map that never held anything has not made its table yet.
    let threshold = if size == 0 { 0 } else { threshold };
    encode_table(Class::HashMap, capacity, threshold, entries)
}

/// Writes a `java.util.Hashtable` with these entries, in this order. Long lengths as in
/// [`encode_map`].
#[must_use]
pub fn encode_hashtable<'a>(
    entries: impl ExactSizeIterator<Item = (&'a str, &'a JavaValue)>,
) -> Bytes {
    let (mut capacity, mut threshold) = (11, 8);
    while entries.len() > threshold {
        capacity = capacity * 2 + 1;
        threshold = capacity / 4 * 3 + capacity % 4 * 3 / 4;
    }
    encode_table(Class::Hashtable, capacity, threshold, entries)
}

/// Writes these values one after the other, with one table of handles; nothing at all if there are
/// none. Long lengths as in [`encode_map`].
#[must_use]
pub fn encode_stream(items: &[JavaValue]) -> Bytes {
    if items.is_empty() {
        return Bytes::new();
    }
    let mut writer = Writer::new();
    for item in items {
        writer.value(item);
    }
    writer.out.freeze()
}

fn encode_table<'a>(
    class: Class,
    capacity: usize,
    threshold: usize,
    entries: impl ExactSizeIterator<Item = (&'a str, &'a JavaValue)>,
) -> Bytes {
    let mut writer = Writer::new();
    writer.object(class);
    writer.out.put_f32(LOAD_FACTOR);
    writer.out.put_i32(clamped(threshold));
    writer.out.put_slice(&[TC_BLOCKDATA, 8]);
    writer.out.put_i32(clamped(capacity));
    writer.out.put_i32(clamped(entries.len()));
    for (key, value) in entries {
        writer.text(key);
        writer.value(value);
    }
    writer.out.put_u8(TC_ENDBLOCKDATA);
    writer.out.freeze()
}

struct Writer {
    out: BytesMut,
    /// The next handle. Java's writer wraps around too, after two thousand million of them.
    next: i32,
    described: [Option<i32>; Class::COUNT],
}

impl Writer {
    fn new() -> Self {
        let mut out = BytesMut::with_capacity(256);
        out.put_slice(&STREAM_HEADER);
        Self { out, next: FIRST_HANDLE, described: [None; Class::COUNT] }
    }

    fn value(&mut self, value: &JavaValue) {
        match value {
            JavaValue::Null => self.out.put_u8(TC_NULL),
            JavaValue::Boolean(value) => {
                self.object(Class::Boolean);
                self.out.put_u8(u8::from(*value));
            }
            JavaValue::Byte(value) => {
                self.object(Class::Byte);
                self.out.put_i8(*value);
            }
            JavaValue::Short(value) => {
                self.object(Class::Short);
                self.out.put_i16(*value);
            }
            JavaValue::Char(unit) => {
                self.object(Class::Character);
                self.out.put_u16(*unit);
            }
            JavaValue::Int(value) => {
                self.object(Class::Integer);
                self.out.put_i32(*value);
            }
            JavaValue::Long(value) => {
                self.object(Class::Long);
                self.out.put_i64(*value);
            }
            JavaValue::Float(value) => {
                self.object(Class::Float);
                self.out.put_f32(*value);
            }
            JavaValue::Double(value) => {
                self.object(Class::Double);
                self.out.put_f64(*value);
            }
            JavaValue::String(text) => self.text(text),
            JavaValue::Bytes(bytes) => {
                self.out.put_u8(TC_ARRAY);
                self.describe(Class::ByteArray);
                self.handle();
                self.out.put_i32(clamped(bytes.len()));
                self.out.put_slice(bytes);
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.handle();
        let len = encoded_len(text);
        if let Ok(short) = u16::try_from(len) {
            self.out.put_u8(TC_STRING);
            self.out.put_u16(short);
        } else {
            self.out.put_u8(TC_LONGSTRING);
            self.out.put_u64(len as u64);
        }
        encode_text(text, &mut self.out);
    }

    /// Begins an object; its field data follows.
    fn object(&mut self, class: Class) {
        self.out.put_u8(TC_OBJECT);
        self.describe(class);
        self.handle();
    }

    /// A class description, or a reference to the one written before.
    fn describe(&mut self, class: Class) {
        if let Some(handle) = self.described.get(class as usize).copied().flatten() {
            self.out.put_u8(TC_REFERENCE);
            self.out.put_i32(handle);
            return;
        }
        let description = class.description();
        self.out.put_u8(TC_CLASSDESC);
        self.name(description.name);
        self.out.put_u64(description.uid);
        let handle = self.handle();
        if let Some(slot) = self.described.get_mut(class as usize) {
            *slot = Some(handle);
        }
        self.out.put_u8(description.flags);
        self.out.put_u16(u16::try_from(description.fields.len()).unwrap_or(0));
        for &(kind, name) in description.fields {
            self.out.put_u8(kind);
            self.name(name);
        }
        self.out.put_u8(TC_ENDBLOCKDATA);
        match description.parent {
            Some(parent) => self.describe(parent),
            None => self.out.put_u8(TC_NULL),
        }
    }

    /// A name of the class table: short ASCII.
    fn name(&mut self, name: &str) {
        self.out.put_u16(u16::try_from(name.len()).unwrap_or(0));
        self.out.put_slice(name.as_bytes());
    }

    fn handle(&mut self) -> i32 {
        let handle = self.next;
        self.next = handle.wrapping_add(1);
        handle
    }
}

fn clamped(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}
