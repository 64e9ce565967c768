//! Writes objects of any class.

use bytes::{BufMut, Bytes};

use super::{
    JavaValue,
    class::{
        Class, LOAD_FACTOR, TC_ARRAY, TC_BLOCKDATA, TC_CLASSDESC, TC_ENDBLOCKDATA, TC_NULL,
        TC_OBJECT,
    },
    object::{JavaClass, JavaObject, TableClass},
    writer::{Writer, clamped, hashtable_sizes, map_sizes},
};

/// Writes an object. `classes` are those of the records in it; a record of none of them is written
/// as null.
#[must_use]
pub fn encode_object(classes: &[JavaClass], object: &JavaObject) -> Bytes {
    let mut writer = ObjectWriter::new(classes);
    writer.object(object);
    writer.plain.out.freeze()
}

/// Writes a `java.util.Vector` of objects that are made one at a time.
#[must_use]
pub fn encode_vector(
    classes: &[JavaClass],
    elements: impl ExactSizeIterator<Item = JavaObject>,
) -> Bytes {
    let mut writer = ObjectWriter::new(classes);
    writer.vector(elements);
    writer.plain.out.freeze()
}

struct ObjectWriter<'a> {
    plain: Writer,
    classes: &'a [JavaClass],
    /// The handle of each class that was described.
    described: Vec<Option<i32>>,
}

impl<'a> ObjectWriter<'a> {
    fn new(classes: &'a [JavaClass]) -> Self {
        Self { plain: Writer::new(), classes, described: vec![None; classes.len()] }
    }

    fn object(&mut self, object: &JavaObject) {
        match object {
            JavaObject::Value(value) => self.plain.value(value),
            JavaObject::Vector(elements) => self.vector(elements.iter()),
            JavaObject::Array(elements) => self.array(elements.iter()),
            JavaObject::Table(class, entries) => self.table(*class, entries),
            JavaObject::Record(class, values) => self.record(*class, values),
        }
    }

    fn vector(
        &mut self,
        elements: impl ExactSizeIterator<Item = impl std::borrow::Borrow<JavaObject>>,
    ) {
        self.plain.object(Class::Vector);
        // It grows by doubling.
        self.plain.out.put_i32(0);
        self.plain.out.put_i32(clamped(elements.len()));
        self.array(elements);
        self.plain.out.put_u8(TC_ENDBLOCKDATA);
    }

    fn array(
        &mut self,
        elements: impl ExactSizeIterator<Item = impl std::borrow::Borrow<JavaObject>>,
    ) {
        self.plain.out.put_u8(TC_ARRAY);
        self.plain.describe(Class::ObjectArray);
        self.plain.handle();
        self.plain.out.put_i32(clamped(elements.len()));
        for element in elements {
            self.object(element.borrow());
        }
    }

    fn table(&mut self, class: TableClass, entries: &[(String, JavaObject)]) {
        let (of, (capacity, threshold)) = match class {
            TableClass::HashMap => (Class::HashMap, map_sizes(entries.len())),
            TableClass::Hashtable => (Class::Hashtable, hashtable_sizes(entries.len())),
            TableClass::Properties => (Class::Properties, hashtable_sizes(entries.len())),
        };
        self.plain.object(of);
        self.plain.out.put_f32(LOAD_FACTOR);
        self.plain.out.put_i32(clamped(threshold));
        self.plain.out.put_slice(&[TC_BLOCKDATA, 8]);
        self.plain.out.put_i32(clamped(capacity));
        self.plain.out.put_i32(clamped(entries.len()));
        for (key, value) in entries {
            self.plain.text(key);
            self.object(value);
        }
        self.plain.out.put_u8(TC_ENDBLOCKDATA);
        if class == TableClass::Properties {
            // Its defaults: none.
            self.plain.out.put_u8(TC_NULL);
        }
    }

    fn record(&mut self, at: usize, values: &[JavaObject]) {
        let Some(class) = self.classes.get(at) else {
            return self.plain.out.put_u8(TC_NULL);
        };
        self.plain.out.put_u8(TC_OBJECT);
        self.describe(at, class);
        self.plain.handle();
        for (at, field) in class.fields.iter().enumerate() {
            let value = values.get(at).unwrap_or(&JavaObject::NULL);
            match field.kind {
                b'L' | b'[' => self.object(value),
                kind => self.primitive(kind, value),
            }
        }
    }

    /// A primitive field; 0 if the value is of another type.
    fn primitive(&mut self, kind: u8, value: &JavaObject) {
        let out = &mut self.plain.out;
        let number = value.number().unwrap_or(0);
        match (kind, value.value()) {
            (b'Z', value) => {
                out.put_u8(u8::from(matches!(value, Some(JavaValue::Boolean(true)))));
            }
            (b'B', _) => out.put_i8(i8::try_from(number).unwrap_or(0)),
            (b'S', _) => out.put_i16(i16::try_from(number).unwrap_or(0)),
            (b'I', _) => out.put_i32(i32::try_from(number).unwrap_or(0)),
            (b'C', Some(JavaValue::Char(unit))) => out.put_u16(*unit),
            (b'C', _) => out.put_u16(0),
            (b'F', Some(JavaValue::Float(value))) => out.put_f32(*value),
            (b'F', _) => out.put_f32(0.0),
            (b'D', Some(JavaValue::Double(value))) => out.put_f64(*value),
            (b'D', _) => out.put_f64(0.0),
            _ => out.put_i64(number),
        }
    }

    fn describe(&mut self, at: usize, class: &JavaClass) {
        if let Some(handle) = self.described.get(at).copied().flatten() {
            return self.plain.refer(handle);
        }
        self.plain.out.put_u8(TC_CLASSDESC);
        self.plain.name(&class.name);
        self.plain.out.put_u64(class.uid);
        let handle = self.plain.handle();
        if let Some(slot) = self.described.get_mut(at) {
            *slot = Some(handle);
        }
        let fields = class.fields.iter().map(|field| (field.kind, &*field.name, &*field.signature));
        self.plain.fields(super::class::SERIALIZABLE, fields);
        self.plain.out.put_u8(TC_NULL);
    }
}
