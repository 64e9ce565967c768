//! `tidegate attributes`: what a client can be told, and what it is told.

use serde_json::{Value as Json, json};
use tidegate::client::{Attribute, ConnectionFactory, Profile};

use super::arguments::AttributesArguments;
use super::connect::{load, set, usage};
use super::failure::Failure;
use super::output::{Align, Column, Output};

/// An attribute and its value.
struct Row {
    attribute: &'static Attribute,
    value: String,
    is_changed: bool,
    /// Why the value has no effect, if it has none.
    note: Option<&'static str>,
}

/// Prints what is asked for.
pub(super) fn run(arguments: &AttributesArguments, output: &mut Output) -> Result<(), Failure> {
    let mut factory = ConnectionFactory::new();
    load(&mut factory, &arguments.attributes)?;
    set(&mut factory, &arguments.attributes)?;
    let rows = rows(&factory, &arguments.names)?;
    if arguments.json {
        rows.iter().try_for_each(|row| output.foreign_line(&row.json().to_string()))
    } else if output.is_terminal() {
        let width = output.width();
        blocks(&rows, width).iter().try_for_each(|line| output.foreign_line(line))
    } else {
        table(&rows, output)
    }
}

/// The attributes of these names, or all.
fn rows(factory: &ConnectionFactory, names: &[String]) -> Result<Vec<Row>, Failure> {
    let without_effect = factory.attributes_without_effect();
    let row = |attribute: &'static Attribute| Row {
        attribute,
        value: factory.attribute(attribute.name()).unwrap_or_default(),
        is_changed: factory.is_attribute_changed(attribute.name()),
        note: without_effect
            .iter()
            .find(|(other, _)| other.name() == attribute.name())
            .map(|(_, why)| *why),
    };
    for name in names {
        factory.attribute(name).map_err(usage)?;
    }
    let wanted = |attribute: &&Attribute| {
        names.is_empty() || names.iter().any(|name| name == attribute.name())
    };
    Ok(ConnectionFactory::attributes().iter().filter(wanted).map(row).collect())
}

impl Row {
    fn json(&self) -> Json {
        let attribute = self.attribute;
        json!({
            "name": attribute.name(),
            "group": attribute.group(),
            "type": attribute.kind().to_string(),
            "value": self.value,
            "changed": self.is_changed,
            "default": self.default(),
            "current_default": self.current_default(),
            "takes": attribute.allowed(),
            "meaning": attribute.meaning(),
            "without_effect": self.note,
        })
    }

    fn default(&self) -> &'static str {
        self.hidden(self.attribute.default_in(Profile::V35))
    }

    fn current_default(&self) -> &'static str {
        self.hidden(self.attribute.default_in(Profile::Current))
    }

    /// A default password is in every manual; still, none is printed.
    fn hidden(&self, value: &'static str) -> &'static str {
        if self.attribute.is_secret() && !value.is_empty() { "***" } else { value }
    }

    fn mark(&self) -> &'static str {
        if self.is_changed { "*" } else { "" }
    }

    fn meaning(&self) -> String {
        match self.note {
            Some(note) => format!("{} (no effect: {note})", self.attribute.meaning()),
            None => self.attribute.meaning().to_owned(),
        }
    }
}

fn table(rows: &[Row], output: &mut Output) -> Result<(), Failure> {
    let columns = ["NAME", "", "VALUE", "DEFAULT", "TAKES", "MEANING"]
        .map(|title| Column { title, align: Align::Left });
    let cells: Vec<_> = rows
        .iter()
        .map(|row| {
            vec![
                row.attribute.name().to_owned(),
                row.mark().to_owned(),
                row.value.clone(),
                row.default().to_owned(),
                row.attribute.allowed().into_owned(),
                row.meaning(),
            ]
        })
        .collect();
    output.table(&columns, &cells)
}

/// A few lines for each attribute, below the title of its group.
fn blocks(rows: &[Row], width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut group = "";
    for row in rows {
        if row.attribute.group() != group {
            group = row.attribute.group();
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.push(format!("{}:", group.to_uppercase()));
        }
        let mark = if row.is_changed { "*" } else { " " };
        let value = if row.value.is_empty() { "(not set)" } else { &row.value };
        lines.push(format!("{mark} {} = {value}", row.attribute.name()));
        let default = match row.default() {
            "" => "none",
            default => default,
        };
        let mut about =
            format!("{}. Takes {}. Default {default}", row.meaning(), row.attribute.allowed());
        if row.current_default() != row.default() {
            about += &format!(", in later versions {}", row.current_default());
        }
        lines.extend(wrapped(&about, width.saturating_sub(6)).map(|line| format!("      {line}")));
    }
    lines
}

/// Text in lines that are as wide as this, or one word.
fn wrapped(text: &str, width: usize) -> impl Iterator<Item = String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_wide_as_the_terminal_and_have_every_attribute() {
        let mut factory = ConnectionFactory::new();
        factory.set_attribute("imqAckTimeout", "5").unwrap();
        let rows = rows(&factory, &[]).unwrap();
        for width in [30, 80, 100] {
            let lines = blocks(&rows, width);
            for attribute in ConnectionFactory::attributes() {
                let mark = if attribute.name() == "imqAckTimeout" { "*" } else { " " };
                let beginning = format!("{mark} {} = ", attribute.name());
                assert!(lines.iter().any(|line| line.starts_with(&beginning)), "{beginning}");
            }
            // Only a word that is longer than a line, or a value, goes beyond it.
            let long = lines.iter().filter(|line| line.starts_with("      ") && line.len() > width);
            assert!(long.clone().all(|line| line.trim().split(' ').count() == 1), "{long:?}");
        }
        assert!(blocks(&rows, 80).contains(&"* imqAckTimeout = 5".to_owned()));
    }
}
