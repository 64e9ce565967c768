//! What the broker tells, as rows of named values, and the two ways to print them.

use serde_json::{Map, Value, json};
use tidegate::wire::java::{JavaObject, JavaValue};

use crate::cli::failure::Failure;
use crate::cli::output::{Align, Column, Output};

/// Named values in the order in which they are told.
pub(super) type Row = Vec<(String, Value)>;

/// A column of a table: its title, which value stands in it, and on which side.
pub(super) type Shown = (&'static str, &'static str, Align);

/// A row of what is in a map.
pub(super) fn row(object: &JavaObject) -> Row {
    let entries = object.entries().unwrap_or_default();
    entries.iter().map(|(name, value)| (name.clone(), value_of(value))).collect()
}

/// The rows of a vector of maps.
pub(super) fn rows(object: &JavaObject) -> Vec<Row> {
    object.elements().unwrap_or_default().iter().map(row).collect()
}

/// A value for programs.
pub(super) fn value_of(object: &JavaObject) -> Value {
    match object {
        JavaObject::Value(JavaValue::Boolean(value)) => json!(value),
        JavaObject::Value(JavaValue::String(text)) => json!(text),
        JavaObject::Value(JavaValue::Null) => Value::Null,
        JavaObject::Value(JavaValue::Float(number)) => json!(number),
        JavaObject::Value(JavaValue::Double(number)) => json!(number),
        JavaObject::Value(other) => match object.number() {
            Some(number) => json!(number),
            None => json!(other.to_string()),
        },
        JavaObject::Table(_, entries) => {
            let pairs = entries.iter().map(|(name, value)| (name.clone(), value_of(value)));
            Value::Object(pairs.collect())
        }
        _ => object.elements().map_or(Value::Null, |all| all.iter().map(value_of).collect()),
    }
}

/// A value of a row.
pub(super) fn get<'a>(row: &'a Row, name: &str) -> Option<&'a Value> {
    row.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// Gives a value another name.
pub(super) fn rename(row: &mut Row, from: &str, to: &str) {
    for (name, _) in row {
        if name == from {
            to.clone_into(name);
        }
    }
}

/// A value for people.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" "),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Prints rows: as a table, or as one JSON object a line.
pub(super) fn print_rows(
    rows: Vec<Row>,
    shown: &[Shown],
    json: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    if json {
        return rows.into_iter().try_for_each(|row| print_json(row, output));
    }
    let columns: Vec<Column<'_>> =
        shown.iter().map(|&(title, _, align)| Column { title, align }).collect();
    let cells = |row: Row| -> Vec<String> {
        let cell = |name: &str| get(&row, name).map_or_else(|| "-".to_owned(), text);
        let or_dash = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        shown.iter().map(|(_, name, _)| or_dash(cell(name))).collect()
    };
    output.table(&columns, &rows.into_iter().map(cells).collect::<Vec<_>>())
}

/// Prints one row: a line for each value, or one JSON object.
pub(super) fn print_row(row: Row, json: bool, output: &mut Output) -> Result<(), Failure> {
    if json {
        return print_json(row, output);
    }
    let width = row.iter().map(|(name, _)| name.len() + 1).max().unwrap_or(0);
    row.iter().try_for_each(|(name, value)| {
        let name = format!("{name}:");
        output.foreign_line(format!("{name:width$} {}", text(value)).trim_end())
    })
}

fn print_json(row: Row, output: &mut Output) -> Result<(), Failure> {
    let object: Map<String, Value> = row.into_iter().collect();
    output.line(&Value::Object(object).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate::wire::java::{JavaObject, TableClass};

    use super::{get, rename, row, text, value_of};

    #[test]
    fn objects_become_values_for_programs() {
        let nested = JavaObject::Table(
            TableClass::Hashtable,
            vec![
                ("id".into(), 5_i64.into()),
                ("port".into(), 7_i32.into()),
                ("durable".into(), true.into()),
                ("name".into(), "q".into()),
                ("ids".into(), JavaObject::Vector(vec![1_i64.into(), 2_i64.into()])),
                ("none".into(), JavaObject::NULL),
            ],
        );
        let wanted =
            json!({"id": 5, "port": 7, "durable": true, "name": "q", "ids": [1, 2], "none": null});
        assert_eq!(value_of(&nested), wanted);
        let mut row = row(&nested);
        rename(&mut row, "port", "number");
        assert_eq!((get(&row, "number"), get(&row, "port")), (Some(&json!(7)), None));
        assert_eq!(text(&json!([1, 2])), "1 2");
    }
}
