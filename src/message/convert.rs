//! Property values as the type an application asks for.

use super::number;
use crate::wire::Value;

/// A type that a property can be read as.
///
/// # Source
/// The conversion table of JMS: whole numbers widen, `float` widens to `double`, everything
/// becomes a string, and a string becomes whatever it spells.
pub trait FromProperty: FromValue {}

mod sealed {
    use crate::wire::Value;

    /// Read through [`FromProperty`](super::FromProperty), for these types only.
    #[allow(unnameable_types, reason = "seals the trait")]
    pub trait FromValue: Sized {
        /// The type's name in errors.
        const NAME: &'static str;
        fn from_value(value: &Value) -> Option<Self>;
    }
}
use sealed::FromValue;

macro_rules! numbers {
    ($($to:ty, $name:literal, $spelt:expr, $($from:ident)*;)*) => {$(
        impl FromValue for $to {
            const NAME: &'static str = $name;

            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $(Value::$from(number) => Some((*number).into()),)*
                    Value::String(text) => {
                        let spelt: fn(&str) -> Option<Self> = $spelt;
                        spelt(text)
                    }
                    _ => None,
                }
            }
        }
        impl FromProperty for $to {}
    )*};
}
numbers! {
    i8, "byte", |text| text.parse().ok(), Byte;
    i16, "short", |text| text.parse().ok(), Byte Short;
    i32, "int", |text| text.parse().ok(), Byte Short Int;
    i64, "long", |text| text.parse().ok(), Byte Short Int Long;
    f32, "float", number::read, Float;
    f64, "double", number::read, Float Double;
}

impl FromValue for bool {
    const NAME: &'static str = "boolean";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Boolean(value) => Some(*value),
            // As Java reads it: anything but "true" is false.
            Value::String(text) => Some(text.eq_ignore_ascii_case("true")),
            _ => None,
        }
    }
}
impl FromProperty for bool {}

impl FromValue for String {
    const NAME: &'static str = "string";

    fn from_value(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Boolean(value) => value.to_string(),
            Value::Byte(value) => value.to_string(),
            Value::Short(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Long(value) => value.to_string(),
            Value::Float(value) => number::write(&format!("{value:e}"), (*value).into()),
            Value::Double(value) => number::write(&format!("{value:e}"), *value),
            Value::String(text) => text.clone(),
            Value::Malformed(_) | Value::Object(_) => return None,
        })
    }
}
impl FromProperty for String {}

#[cfg(test)]
mod tests {
    use super::FromValue;
    use crate::wire::Value;

    #[test]
    fn numbers_widen_and_never_narrow() {
        let byte = Value::Byte(-7);
        assert_eq!(i8::from_value(&byte), Some(-7));
        assert_eq!(i64::from_value(&byte), Some(-7));
        assert_eq!(f64::from_value(&byte), None);
        assert_eq!(i32::from_value(&Value::Long(1)), None);
        assert_eq!(f64::from_value(&Value::Float(1.5)), Some(1.5));
        assert_eq!(f32::from_value(&Value::Double(1.5)), None);
        assert_eq!(bool::from_value(&Value::Int(1)), None);
    }

    #[test]
    fn strings_become_what_they_spell_and_all_else_becomes_a_string() {
        let text = |text: &str| Value::from(text);
        assert_eq!(i16::from_value(&text("-300")), Some(-300));
        assert_eq!(i16::from_value(&text("300000")), None);
        assert_eq!(f64::from_value(&text("2.5")), Some(2.5));
        assert_eq!(bool::from_value(&text("TRUE")), Some(true));
        assert_eq!(bool::from_value(&text("yes")), Some(false));
        assert_eq!(String::from_value(&Value::Double(2.0)).as_deref(), Some("2.0"));
        assert_eq!(String::from_value(&Value::Float(1.5e9)).as_deref(), Some("1.5E9"));
        assert_eq!(f32::from_value(&text("inf")), None);
        assert_eq!(String::from_value(&Value::Boolean(false)).as_deref(), Some("false"));
    }
}
