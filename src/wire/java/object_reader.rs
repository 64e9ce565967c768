//! Reads objects of any class.

use bytes::Bytes;

use super::{
    JavaError, JavaValue,
    class::{
        FIRST_HANDLE, TC_ARRAY, TC_BLOCKDATA, TC_BLOCKDATALONG, TC_CLASSDESC, TC_ENDBLOCKDATA,
        TC_ENUM, TC_LONGSTRING, TC_NULL, TC_OBJECT, TC_REFERENCE, TC_STRING,
    },
    object::{JavaClass, JavaDocument, JavaField, JavaObject, TableClass},
    reader::Input,
};
use crate::wire::limits::{JAVA_DEPTH_MAX, JAVA_FIELDS_MAX, JAVA_REPEATED_BYTES_MAX};

/// Reads one object and everything in it, `items_max` values at the most, fields counted.
///
/// Classes that write data of their own are read without it, unless they are maps or vectors.
///
/// # Errors
/// Any [`JavaError`]; also for objects that come twice, but strings and boxed primitives, and for
/// classes that write themselves entirely.
pub fn decode_object(body: &Bytes, items_max: usize) -> Result<JavaDocument, JavaError> {
    let mut reader = ObjectReader {
        input: Input::new(body)?,
        handles: Vec::new(),
        descriptions: Vec::new(),
        classes: Vec::new(),
        left: items_max,
        repeated: 0,
    };
    let root = reader.object(0)?;
    Ok(JavaDocument { classes: reader.classes, root })
}

/// What a handle stands for.
enum Handle {
    /// A place among the descriptions.
    Class(usize),
    Text {
        start: usize,
        len: usize,
    },
    Value(JavaValue),
    /// An object that is not read a second time.
    Other,
}

/// A class as its stream describes it.
struct Description {
    class: JavaClass,
    flags: u8,
    /// Its own fields begin here; those before are its parents'.
    own: usize,
    parent: Option<usize>,
    /// How many parents it has.
    height: usize,
    /// Its place in the document, once a record has it.
    place: Option<usize>,
}

/// The class writes data of its own behind its fields.
const WRITE_METHOD: u8 = 1;
/// The class writes itself entirely.
const EXTERNALIZABLE: u8 = 4;

struct ObjectReader<'a> {
    input: Input<'a>,
    handles: Vec<Handle>,
    descriptions: Vec<Description>,
    classes: Vec<JavaClass>,
    left: usize,
    /// Bytes of text that references have repeated.
    repeated: usize,
}

impl ObjectReader<'_> {
    fn object(&mut self, depth: usize) -> Result<JavaObject, JavaError> {
        if depth > JAVA_DEPTH_MAX {
            return Err(JavaError::Depth);
        }
        self.left = self.left.checked_sub(1).ok_or(JavaError::Items)?;
        let offset = self.input.at;
        match self.input.byte()? {
            TC_NULL => Ok(JavaObject::NULL),
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
            TC_ARRAY => self.array(depth),
            TC_ENUM => {
                self.description(depth)?;
                self.handles.push(Handle::Other);
                // Its constant's name.
                self.object(depth + 1)
            }
            TC_OBJECT => self.described(depth),
            code => Err(JavaError::Element { code, offset, wanted: "an object" }),
        }
    }

    fn text(&mut self, len: usize) -> Result<JavaObject, JavaError> {
        let start = self.input.at;
        self.input.take(len)?;
        self.handles.push(Handle::Text { start, len });
        self.input.text(start, len).map(JavaObject::from)
    }

    fn referenced(&mut self, offset: usize) -> Result<JavaObject, JavaError> {
        let handle = i32::from_be_bytes(self.input.array()?);
        match self.handle(handle) {
            Some(Handle::Value(value)) => Ok(JavaObject::Value(value.clone())),
            Some(&Handle::Text { start, len }) => {
                self.repeated += len;
                if self.repeated > JAVA_REPEATED_BYTES_MAX {
                    return Err(JavaError::Repeated);
                }
                self.input.text(start, len).map(JavaObject::from)
            }
            Some(Handle::Class(_) | Handle::Other) | None => {
                Err(JavaError::Reference { handle, offset })
            }
        }
    }

    fn handle(&self, handle: i32) -> Option<&Handle> {
        let at = usize::try_from(handle.checked_sub(FIRST_HANDLE)?).ok()?;
        self.handles.get(at)
    }

    fn array(&mut self, depth: usize) -> Result<JavaObject, JavaError> {
        let class = self.wanted_description(depth)?;
        let name = self.name_of(class);
        if name == "[B" {
            let at = self.handles.len();
            self.handles.push(Handle::Other);
            let len = self.input.length()?;
            let value = JavaValue::Bytes(self.input.shared(len)?);
            self.set_value(at, &value);
            return Ok(JavaObject::Value(value));
        }
        if !name.starts_with("[L") && !name.starts_with("[[") {
            return Err(JavaError::UnknownClass { name: name.chars().take(128).collect() });
        }
        self.handles.push(Handle::Other);
        let len = self.input.length()?;
        // The length is only a claim: an element takes a byte at the least.
        let mut elements = Vec::with_capacity(len.min(self.input.left()).min(self.left));
        for _ in 0..len {
            elements.push(self.object(depth + 1)?);
        }
        Ok(JavaObject::Array(elements))
    }

    /// An object: its class, then what each class of its line has written, the eldest first.
    fn described(&mut self, depth: usize) -> Result<JavaObject, JavaError> {
        let class = self.wanted_description(depth)?;
        let at = self.handles.len();
        self.handles.push(Handle::Other);
        let mut line = vec![class];
        while let Some(parent) = line.last().and_then(|&one| self.parent_of(one)) {
            line.push(parent);
        }
        let mut values = Vec::new();
        let mut table = None;
        for one in line.into_iter().rev() {
            let (flags, own) =
                self.descriptions.get(one).map_or((0, 0), |found| (found.flags, found.own));
            if flags & EXTERNALIZABLE != 0 {
                let name = self.name_of(one).chars().take(128).collect();
                return Err(JavaError::UnknownClass { name });
            }
            let kinds: Vec<u8> = self.own_kinds(one, own);
            for kind in kinds {
                values.push(self.field(kind, depth)?);
            }
            if flags & WRITE_METHOD != 0 {
                let is_table =
                    matches!(self.name_of(one), "java.util.HashMap" | "java.util.Hashtable");
                if is_table {
                    table = Some(self.entries(depth)?);
                }
                self.skip_own_data(depth)?;
            }
        }
        let object = self.interpret(class, values, table)?;
        if let JavaObject::Value(value) = &object {
            self.set_value(at, &value.clone());
        }
        Ok(object)
    }

    fn set_value(&mut self, at: usize, value: &JavaValue) {
        if let Some(handle) = self.handles.get_mut(at) {
            *handle = Handle::Value(value.clone());
        }
    }

    /// What an object of a known class is; a record of every other.
    fn interpret(
        &mut self,
        class: usize,
        mut values: Vec<JavaObject>,
        table: Option<Vec<(String, JavaObject)>>,
    ) -> Result<JavaObject, JavaError> {
        let name = self.name_of(class);
        let form = |name| Err(JavaError::ClassForm { name });
        let table_class = match name {
            "java.util.HashMap" => Some(TableClass::HashMap),
            "java.util.Hashtable" => Some(TableClass::Hashtable),
            "java.util.Properties" => Some(TableClass::Properties),
            _ => None,
        };
        if let Some(class) = table_class {
            return match table {
                Some(entries) => Ok(JavaObject::Table(class, entries)),
                None => form("java.util.Hashtable"),
            };
        }
        if name == "java.util.Vector" {
            let count =
                self.position(class, "elementCount").and_then(|at| values.get(at)?.number());
            let data = self
                .position(class, "elementData")
                .and_then(|at| (at < values.len()).then(|| values.swap_remove(at)));
            let (Some(count), Some(JavaObject::Array(mut elements))) = (count, data) else {
                return form("java.util.Vector");
            };
            // Behind the last element there is room for more.
            let Some(count) = usize::try_from(count).ok().filter(|&n| n <= elements.len()) else {
                return form("java.util.Vector");
            };
            elements.truncate(count);
            return Ok(JavaObject::Vector(elements));
        }
        const BOXED: [&str; 8] = [
            "java.lang.Boolean",
            "java.lang.Byte",
            "java.lang.Character",
            "java.lang.Double",
            "java.lang.Float",
            "java.lang.Integer",
            "java.lang.Long",
            "java.lang.Short",
        ];
        if let Some(&name) = BOXED.iter().find(|&&boxed| boxed == name) {
            return match (values.pop(), values.is_empty()) {
                (Some(JavaObject::Value(value)), true) => Ok(JavaObject::Value(value)),
                _ => form(name),
            };
        }
        Ok(JavaObject::Record(self.place_of(class), values))
    }

    fn field(&mut self, kind: u8, depth: usize) -> Result<JavaObject, JavaError> {
        if matches!(kind, b'L' | b'[') {
            return self.object(depth + 1);
        }
        self.left = self.left.checked_sub(1).ok_or(JavaError::Items)?;
        let input = &mut self.input;
        Ok(JavaObject::Value(match kind {
            b'Z' => JavaValue::Boolean(input.byte()? != 0),
            b'B' => JavaValue::Byte(i8::from_be_bytes(input.array()?)),
            b'S' => JavaValue::Short(i16::from_be_bytes(input.array()?)),
            b'C' => JavaValue::Char(u16::from_be_bytes(input.array()?)),
            b'I' => JavaValue::Int(i32::from_be_bytes(input.array()?)),
            b'F' => JavaValue::Float(f32::from_be_bytes(input.array()?)),
            b'D' => JavaValue::Double(f64::from_be_bytes(input.array()?)),
            // No other letter gets past the description.
            _ => JavaValue::Long(i64::from_be_bytes(input.array()?)),
        }))
    }

    /// What a map writes behind its fields, but for the end.
    fn entries(&mut self, depth: usize) -> Result<Vec<(String, JavaObject)>, JavaError> {
        self.input.expect(TC_BLOCKDATA, "the map's size")?;
        self.input.expect(8, "the map's size")?;
        self.input.array::<4>()?;
        let count = self.input.length()?;
        // The count is only a claim: an entry takes two bytes at the least.
        let mut entries = Vec::with_capacity(count.min(self.input.left() / 2).min(self.left));
        for _ in 0..count {
            let (offset, code) = (self.input.at, self.input.peek()?);
            let JavaObject::Value(JavaValue::String(key)) = self.object(depth + 1)? else {
                return Err(JavaError::Element { code, offset, wanted: "a string" });
            };
            entries.push((key, self.object(depth + 1)?));
        }
        Ok(entries)
    }

    /// Everything up to the end of what a class has written of its own.
    fn skip_own_data(&mut self, depth: usize) -> Result<(), JavaError> {
        loop {
            match self.input.peek()? {
                TC_ENDBLOCKDATA => return self.input.byte().map(drop),
                TC_BLOCKDATA => {
                    self.input.byte()?;
                    let len = usize::from(self.input.byte()?);
                    self.input.take(len)?;
                }
                TC_BLOCKDATALONG => {
                    self.input.byte()?;
                    let len = self.input.length()?;
                    self.input.take(len)?;
                }
                _ => drop(self.object(depth + 1)?),
            }
        }
    }

    /// A class description that is not null.
    fn wanted_description(&mut self, depth: usize) -> Result<usize, JavaError> {
        let offset = self.input.at;
        self.description(depth)?.ok_or(JavaError::Element {
            code: TC_NULL,
            offset,
            wanted: "a class",
        })
    }

    /// A class description, a reference to one, or null.
    fn description(&mut self, depth: usize) -> Result<Option<usize>, JavaError> {
        if depth > JAVA_DEPTH_MAX {
            return Err(JavaError::Depth);
        }
        let offset = self.input.at;
        match self.input.byte()? {
            TC_NULL => return Ok(None),
            TC_REFERENCE => {
                let handle = i32::from_be_bytes(self.input.array()?);
                return match self.handle(handle) {
                    Some(&Handle::Class(class)) => Ok(Some(class)),
                    _ => Err(JavaError::Reference { handle, offset }),
                };
            }
            TC_CLASSDESC => {}
            code => return Err(JavaError::Element { code, offset, wanted: "a class" }),
        }
        let name = self.input.name_text()?;
        let uid = u64::from_be_bytes(self.input.array()?);
        // It has its handle before its fields have theirs.
        let at = self.handles.len();
        self.handles.push(Handle::Other);
        let flags = self.input.byte()?;
        let count = usize::from(u16::from_be_bytes(self.input.array()?));
        let mut own = Vec::new();
        for _ in 0..count {
            own.push(self.field_description(depth)?);
        }
        self.input.expect(TC_ENDBLOCKDATA, "the end of a class")?;
        let parent = self.description(depth + 1)?;
        let mut fields = parent
            .and_then(|parent| self.descriptions.get(parent))
            .map(|parent| parent.class.fields.to_vec())
            .unwrap_or_default();
        let height = parent.and_then(|parent| self.descriptions.get(parent));
        let height = height.map_or(0, |parent| parent.height + 1);
        if height > JAVA_DEPTH_MAX {
            return Err(JavaError::Depth);
        }
        let begin = fields.len();
        fields.append(&mut own);
        // Every description costs as much as all its fields.
        if fields.len() > JAVA_FIELDS_MAX {
            return Err(JavaError::Items);
        }
        self.left = self.left.checked_sub(fields.len()).ok_or(JavaError::Items)?;
        let place = self.descriptions.len();
        self.descriptions.push(Description {
            class: JavaClass { name: name.into(), uid, fields: fields.into() },
            flags,
            own: begin,
            parent,
            height,
            place: None,
        });
        if let Some(handle) = self.handles.get_mut(at) {
            *handle = Handle::Class(place);
        }
        Ok(Some(place))
    }

    fn field_description(&mut self, depth: usize) -> Result<JavaField, JavaError> {
        self.left = self.left.checked_sub(1).ok_or(JavaError::Items)?;
        let offset = self.input.at;
        let kind = self.input.byte()?;
        if !b"BCDFIJSZL[".contains(&kind) {
            return Err(JavaError::Element { code: kind, offset, wanted: "the type of a field" });
        }
        let name = self.input.name_text()?.into();
        let signature = if matches!(kind, b'L' | b'[') {
            let (offset, code) = (self.input.at, self.input.peek()?);
            match self.object(depth + 1)? {
                JavaObject::Value(JavaValue::String(text)) => text.into(),
                _ => {
                    return Err(JavaError::Element { code, offset, wanted: "the type of a field" });
                }
            }
        } else {
            "".into()
        };
        Ok(JavaField { kind, name, signature })
    }

    fn name_of(&self, class: usize) -> &str {
        self.descriptions.get(class).map_or("", |found| &found.class.name)
    }

    fn parent_of(&self, class: usize) -> Option<usize> {
        self.descriptions.get(class)?.parent
    }

    fn own_kinds(&self, class: usize, own: usize) -> Vec<u8> {
        let fields = self.descriptions.get(class).and_then(|found| found.class.fields.get(own..));
        fields.unwrap_or_default().iter().map(|field| field.kind).collect()
    }

    fn position(&self, class: usize, field: &str) -> Option<usize> {
        self.descriptions.get(class)?.class.fields.iter().position(|one| one.name == field)
    }

    /// The class's place in the document.
    fn place_of(&mut self, class: usize) -> usize {
        let Some(found) = self.descriptions.get_mut(class) else { return 0 };
        *found.place.get_or_insert_with(|| {
            self.classes.push(found.class.clone());
            self.classes.len() - 1
        })
    }
}
