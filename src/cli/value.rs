//! Values of properties, maps and streams as JSON, without losing their type.
//!
//! JSON has fewer types than the wire. A plain JSON value stands for the type it suggests, and an
//! object with `type` and `value` for every other:
//!
//! | JSON | type |
//! | --- | --- |
//! | `true`, `"text"`, `null` | boolean, string, null |
//! | `1` | int if it fits, else long |
//! | `1.5` | double |
//! | `{"type": "long", "value": 1}` | byte, short, int, long, float, double |
//! | `{"type": "float", "value": "NaN"}` | what JSON has no number for |
//! | `{"type": "char", "value": "x"}` | one UTF-16 unit, as text or as its number |
//! | `{"type": "bytes", "value": "AAE="}` | base64; maps and streams only |
//! | `{"type": "object", "value": "rO0="}` | base64; properties only, and only received ones |

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value as Json, json};
use tidegate::wire::Value;
use tidegate::wire::java::JavaValue;

/// A value of a map or a stream as JSON.
pub(super) fn to_json(value: &JavaValue) -> Json {
    match value {
        JavaValue::Null => Json::Null,
        JavaValue::Boolean(value) => json!(value),
        JavaValue::Byte(value) => typed("byte", json!(value)),
        JavaValue::Short(value) => typed("short", json!(value)),
        JavaValue::Int(value) => json!(value),
        JavaValue::Long(value) if i32::try_from(*value).is_ok() => typed("long", json!(value)),
        JavaValue::Long(value) => json!(value),
        JavaValue::Float(value) => typed("float", fraction(f64::from(*value))),
        JavaValue::Double(value) => match fraction(*value) {
            number @ Json::Number(_) => number,
            name => typed("double", name),
        },
        JavaValue::String(value) => json!(value),
        JavaValue::Char(unit) => match char::from_u32(u32::from(*unit)) {
            Some(c) => typed("char", json!(c)),
            None => typed("char", json!(unit)),
        },
        JavaValue::Bytes(bytes) => typed("bytes", json!(STANDARD.encode(bytes))),
        other => json!(other.to_string()),
    }
}

/// A value of a map or a stream from JSON.
pub(super) fn from_json(json: &Json) -> Result<JavaValue, String> {
    Ok(match json {
        Json::Null => JavaValue::Null,
        Json::Bool(value) => JavaValue::Boolean(*value),
        Json::String(value) => JavaValue::String(value.clone()),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => i32::try_from(whole).map_or(JavaValue::Long(whole), JavaValue::Int),
            None => JavaValue::Double(number.as_f64().ok_or("a number is too large")?),
        },
        Json::Object(fields) => {
            let (Some(Json::String(name)), Some(value), 2) =
                (fields.get("type"), fields.get("value"), fields.len())
            else {
                return Err("a typed value is {\"type\": …, \"value\": …}".into());
            };
            of_type(name, value).ok_or_else(|| format!("{value} is not of type {name:?}"))?
        }
        Json::Array(_) => return Err("a value cannot be an array".into()),
    })
}

/// A property as JSON.
pub(super) fn property_to_json(value: &Value) -> Json {
    match value {
        Value::Boolean(value) => json!(value),
        Value::Byte(value) => to_json(&JavaValue::Byte(*value)),
        Value::Short(value) => to_json(&JavaValue::Short(*value)),
        Value::Int(value) => to_json(&JavaValue::Int(*value)),
        Value::Long(value) => to_json(&JavaValue::Long(*value)),
        Value::Float(value) => to_json(&JavaValue::Float(*value)),
        Value::Double(value) => to_json(&JavaValue::Double(*value)),
        Value::String(value) => json!(value),
        // These two cannot be sent again; still, nothing is hidden.
        Value::Object(bytes) => typed("object", json!(STANDARD.encode(bytes))),
        Value::Malformed(bytes) => typed("malformed", json!(STANDARD.encode(bytes))),
        other => json!(other.to_string()),
    }
}

/// A property from JSON.
pub(super) fn property_from_json(json: &Json) -> Result<Value, String> {
    Ok(match from_json(json)? {
        JavaValue::Boolean(value) => Value::Boolean(value),
        JavaValue::Byte(value) => Value::Byte(value),
        JavaValue::Short(value) => Value::Short(value),
        JavaValue::Int(value) => Value::Int(value),
        JavaValue::Long(value) => Value::Long(value),
        JavaValue::Float(value) => Value::Float(value),
        JavaValue::Double(value) => Value::Double(value),
        JavaValue::String(value) => Value::String(value),
        _ => return Err(format!("a property cannot be {json}")),
    })
}

/// Bytes from base64.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("not base64: {error}"))
}

/// Bytes as base64.
pub(super) fn base64(bytes: &[u8]) -> Json {
    json!(STANDARD.encode(bytes))
}

fn typed(name: &str, value: Json) -> Json {
    json!({ "type": name, "value": value })
}

/// A number, or the name of one that JSON does not have.
fn fraction(value: f64) -> Json {
    Number::from_f64(value).map_or_else(|| json!(value.to_string()), Json::Number)
}

fn of_type(name: &str, value: &Json) -> Option<JavaValue> {
    let whole = value.as_i64();
    let number = || match value {
        Json::String(text) => text.parse().ok(),
        other => other.as_f64(),
    };
    Some(match name {
        "byte" => JavaValue::Byte(whole?.try_into().ok()?),
        "short" => JavaValue::Short(whole?.try_into().ok()?),
        "int" => JavaValue::Int(whole?.try_into().ok()?),
        "long" => JavaValue::Long(whole?),
        #[allow(clippy::cast_possible_truncation, reason = "a float is what was asked for")]
        "float" => JavaValue::Float(number()? as f32),
        "double" => JavaValue::Double(number()?),
        "boolean" => JavaValue::Boolean(value.as_bool()?),
        "string" => JavaValue::String(value.as_str()?.to_owned()),
        "char" => match value.as_str() {
            Some(text) => {
                let mut units = text.encode_utf16();
                let unit = units.next()?;
                units.next().is_none().then_some(JavaValue::Char(unit))?
            }
            None => JavaValue::Char(whole?.try_into().ok()?),
        },
        "bytes" => JavaValue::Bytes(bytes(value.as_str()?).ok()?.into()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_the_way_to_json_and_back() {
        let values = [
            JavaValue::Null,
            JavaValue::Boolean(true),
            JavaValue::Byte(-1),
            JavaValue::Short(7),
            JavaValue::Char(0x78),
            JavaValue::Char(0xd800),
            JavaValue::Int(i32::MIN),
            JavaValue::Long(1),
            JavaValue::Long(i64::MIN),
            JavaValue::Float(0.1),
            JavaValue::Float(f32::INFINITY),
            JavaValue::Double(42.0),
            JavaValue::Double(f64::NEG_INFINITY),
            JavaValue::String("ä\u{0}\n".into()),
            JavaValue::Bytes(vec![0, 255].into()),
        ];
        for value in values {
            let text = to_json(&value).to_string();
            let back = from_json(&serde_json::from_str(&text).unwrap()).unwrap();
            assert_eq!(back, value, "{text}");
        }
    }

    #[test]
    fn every_property_survives_the_way_to_json_and_back() {
        let values = [
            Value::Boolean(false),
            Value::Byte(1),
            Value::Short(2),
            Value::Int(3),
            Value::Long(4),
            Value::Float(5.5),
            Value::Double(6.0),
            Value::String("seven".into()),
        ];
        for value in values {
            let json = property_to_json(&value);
            assert_eq!(property_from_json(&json).unwrap(), value, "{json}");
        }
    }

    #[test]
    fn values_that_do_not_fit_their_type_are_refused() {
        for wrong in [
            r#"{"type": "byte", "value": 128}"#,
            r#"{"type": "short", "value": "x"}"#,
            r#"{"type": "char", "value": "xy"}"#,
            r#"{"type": "bytes", "value": "?"}"#,
            r#"{"type": "colour", "value": 1}"#,
            r#"{"value": 1}"#,
            "[1]",
        ] {
            assert!(from_json(&serde_json::from_str(wrong).unwrap()).is_err(), "{wrong}");
        }
        for wrong in ["null", r#"{"type": "object", "value": "rO0="}"#] {
            assert!(property_from_json(&serde_json::from_str(wrong).unwrap()).is_err(), "{wrong}");
        }
    }
}
