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
    let (capacity, threshold) = map_sizes(entries.len());
    encode_table(Class::HashMap, capacity, threshold, entries)
}

/// Writes a `java.util.Hashtable` with these entries, in this order. Long lengths as in
/// [`encode_map`].
#[must_use]
pub fn encode_hashtable<'a>(
    entries: impl ExactSizeIterator<Item = (&'a str, &'a JavaValue)>,
) -> Bytes {
    let (capacity, threshold) = hashtable_sizes(entries.len());
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

/// Capacity and threshold of a map with so many entries.
pub(super) const fn map_sizes(entries: usize) -> (usize, usize) {
    let (mut capacity, mut threshold) = (16, 12);
    // Java's map doubles when it grows past its threshold.
    while entries > threshold {
        capacity *= 2;
        threshold *= 2;
    }
    // A map that never held anything has not made its table yet.
    (capacity, if entries == 0 { 0 } else { threshold })
}

/// Capacity and threshold of a table with so many entries.
pub(super) const fn hashtable_sizes(entries: usize) -> (usize, usize) {
    let (mut capacity, mut threshold) = (11, 8);
    while entries > threshold {
        capacity = capacity * 2 + 1;
        threshold = capacity / 4 * 3 + capacity % 4 * 3 / 4;
    }
    (capacity, threshold)
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

pub(super) struct Writer {
    pub(super) out: BytesMut,
    /// The next handle. Java's writer wraps around too, after two thousand million of them.
    next: i32,
    described: [Option<i32>; Class::COUNT],
    /// Types of fields that were written, with their handles.
    signatures: Vec<(String, i32)>,
}

impl Writer {
    pub(super) fn new() -> Self {
        let mut out = BytesMut::with_capacity(256);
        out.put_slice(&STREAM_HEADER);
        Self { out, next: FIRST_HANDLE, described: [None; Class::COUNT], signatures: Vec::new() }
    }

    pub(super) fn value(&mut self, value: &JavaValue) {
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

    pub(super) fn text(&mut self, text: &str) {
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
    pub(super) fn object(&mut self, class: Class) {
        self.out.put_u8(TC_OBJECT);
        self.describe(class);
        self.handle();
    }

    /// A class description, or a reference to the one written before.
    pub(super) fn describe(&mut self, class: Class) {
        if let Some(handle) = self.described.get(class as usize).copied().flatten() {
            return self.refer(handle);
        }
        let description = class.description();
        self.out.put_u8(TC_CLASSDESC);
        self.name(description.name);
        self.out.put_u64(description.uid);
        let handle = self.handle();
        if let Some(slot) = self.described.get_mut(class as usize) {
            *slot = Some(handle);
        }
        self.fields(description.flags, description.fields.iter().copied());
        match description.parent {
            Some(parent) => self.describe(parent),
            None => self.out.put_u8(TC_NULL),
        }
    }

    /// The flags and fields of a class; its parent follows.
    pub(super) fn fields<'a>(
        &mut self,
        flags: u8,
        fields: impl ExactSizeIterator<Item = (u8, &'a str, &'a str)>,
    ) {
        self.out.put_u8(flags);
        self.out.put_u16(u16::try_from(fields.len()).unwrap_or(0));
        for (kind, name, signature) in fields {
            self.out.put_u8(kind);
            self.name(name);
            if matches!(kind, b'L' | b'[') {
                self.signature(signature);
            }
        }
        self.out.put_u8(TC_ENDBLOCKDATA);
    }

    /// The type of a field: a string, which Java shares with others like it.
    fn signature(&mut self, signature: &str) {
        if let Some((_, handle)) = self.signatures.iter().find(|(known, _)| known == signature) {
            return self.refer(*handle);
        }
        self.signatures.push((signature.to_owned(), self.next));
        self.text(signature);
    }

    /// Refers to what was written before.
    pub(super) fn refer(&mut self, handle: i32) {
        self.out.put_u8(TC_REFERENCE);
        self.out.put_i32(handle);
    }

    /// A name of a class or field. Names that were read fit, and so do those of the table.
    pub(super) fn name(&mut self, name: &str) {
        self.out.put_u16(u16::try_from(encoded_len(name)).unwrap_or(0));
        encode_text(name, &mut self.out);
    }

    pub(super) fn handle(&mut self) -> i32 {
        let handle = self.next;
        self.next = handle.wrapping_add(1);
        handle
    }
}

pub(super) fn clamped(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}
