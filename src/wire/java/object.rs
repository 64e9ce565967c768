//! Objects of any class as trees: what administrators' tools and brokers send each other.
//!
//! A [`JavaDocument`] has a root and the classes of the records in it. Records are objects that are
//! known by the names of their fields alone: whoever reads one asks for the fields it knows, so
//! fields may be missing and others may be there, as Java allows itself.

use std::borrow::Cow;

use super::JavaValue;

/// A class whose objects are read and written field by field.
///
/// Shape: fields in the order in which Java writes them: those of a parent before its own, primitive
/// ones before objects, and by name within each.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a class in a stream has nothing else that counts")]
pub struct JavaClass {
    /// Its full name.
    pub name: Cow<'static, str>,
    /// Its `serialVersionUID`.
    pub uid: u64,
    /// Its fields, its parents' among them.
    pub fields: Cow<'static, [JavaField]>,
}

/// A field of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a field in a stream has nothing else")]
pub struct JavaField {
    /// The letter of its type: one of `BCDFIJSZ` for primitives, `L` for objects, `[` for arrays.
    pub kind: u8,
    /// Its name.
    pub name: Cow<'static, str>,
    /// The type of an object or array, such as `Ljava/lang/String;`; empty for primitives.
    pub signature: Cow<'static, str>,
}

/// An object and everything in it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum JavaObject {
    /// Null, a boxed primitive, a string or a byte array; in a record also a primitive.
    Value(JavaValue),
    /// A `java.util.Vector`.
    Vector(Vec<Self>),
    /// An array of objects.
    Array(Vec<Self>),
    /// A map with strings as keys.
    Table(TableClass, Vec<(String, Self)>),
    /// An object of another class: the class's place in its document, and a value for each of its
    /// fields.
    Record(usize, Vec<Self>),
}

/// The classes of maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableClass {
    /// `java.util.HashMap`.
    HashMap,
    /// `java.util.Hashtable`.
    Hashtable,
    /// `java.util.Properties`.
    Properties,
}

impl JavaObject {
    /// `null`.
    pub const NULL: Self = Self::Value(JavaValue::Null);

    /// The value, if it is a plain one.
    #[must_use]
    pub const fn value(&self) -> Option<&JavaValue> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// The text, if it is a string.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Value(JavaValue::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is a boxed whole number of any size.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        match *self.value()? {
            JavaValue::Byte(number) => Some(i64::from(number)),
            JavaValue::Short(number) => Some(i64::from(number)),
            JavaValue::Int(number) => Some(i64::from(number)),
            JavaValue::Long(number) => Some(number),
            _ => None,
        }
    }

    /// The elements of a vector or array.
    #[must_use]
    pub fn elements(&self) -> Option<&[Self]> {
        match self {
            Self::Vector(all) | Self::Array(all) => Some(all),
            _ => None,
        }
    }

    /// The entries of a map.
    #[must_use]
    pub fn entries(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Table(_, entries) => Some(entries),
            _ => None,
        }
    }

    /// The value of an entry of a map.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Self> {
        self.entries()?.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

impl<T: Into<JavaValue>> From<T> for JavaObject {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

/// An object with the classes of the records in it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct JavaDocument {
    /// The classes.
    pub classes: Vec<JavaClass>,
    /// The object.
    pub root: JavaObject,
}

impl JavaDocument {
    /// The class of a record; `None` for what is none.
    #[must_use]
    pub fn class_of(&self, object: &JavaObject) -> Option<&JavaClass> {
        match object {
            JavaObject::Record(class, _) => self.classes.get(*class),
            _ => None,
        }
    }

    /// The value of a record's field.
    #[must_use]
    pub fn field<'a>(&'a self, object: &'a JavaObject, name: &str) -> Option<&'a JavaObject> {
        let JavaObject::Record(_, values) = object else { return None };
        let fields = &self.class_of(object)?.fields;
        values.get(fields.iter().position(|field| field.name == name)?)
    }
}
