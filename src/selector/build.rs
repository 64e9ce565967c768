//! Puts a program together, and tries it.

use std::collections::HashMap;

use super::{
    Dialect, SelectorError,
    error::column,
    evaluate::{Failure, Run, evaluate},
    limits::{HEIGHT_MAX, NAMES_MAX},
    pattern::Pattern,
    program::{Field, Program, Step},
    token::unquoted,
    value::{Fault, Value},
};
use crate::wire::encode_text;

/// A program in the making.
pub(super) struct Builder<'t> {
    selector: &'t str,
    steps: Vec<Step>,
    /// The byte each step comes from.
    places: Vec<usize>,
    texts: Vec<Box<str>>,
    patterns: Vec<Pattern>,
    inputs: HashMap<&'t str, u16>,
    values: usize,
    height: usize,
}

impl<'t> Builder<'t> {
    pub(super) fn new(selector: &'t str) -> Self {
        Self {
            selector,
            steps: Vec::new(),
            places: Vec::new(),
            texts: Vec::new(),
            patterns: Vec::new(),
            inputs: HashMap::new(),
            values: 0,
            height: 0,
        }
    }

    /// Adds a step that comes from this byte.
    pub(super) fn step(&mut self, step: Step, at: usize) {
        self.values = self.values + 1 - step.operands();
        self.height = self.height.max(self.values);
        debug_assert!(self.height <= HEIGHT_MAX, "the depth limits the height");
        self.steps.push(step);
        self.places.push(at);
    }

    /// Adds the step that may leave out the right side of an AND or OR, and returns its number.
    pub(super) fn decide(&mut self, when: bool, at: usize) -> usize {
        self.steps.push(Step::Decide { when, to: 0 });
        self.places.push(at);
        self.steps.len() - 1
    }

    /// The right side ends here.
    pub(super) fn decided(&mut self, decide: usize) {
        let here = number(self.steps.len());
        if let Some(Step::Decide { to, .. }) = self.steps.get_mut(decide) {
            *to = here;
        }
    }

    /// The step that loads a property or header field.
    pub(super) fn input(&mut self, name: &'t str, at: usize) -> Result<Step, SelectorError> {
        if let Some(&input) = self.inputs.get(name) {
            return Ok(Step::Input(input));
        }
        let input = self.inputs.len();
        match u16::try_from(input) {
            Ok(next) if input < NAMES_MAX => {
                self.inputs.insert(name, next);
                Ok(Step::Input(next))
            }
            _ => Err(SelectorError::TooManyNames { column: column(self.selector, at) }),
        }
    }

    /// Adds a string literal, and returns the step that loads it.
    pub(super) fn text(&mut self, literal: &str) -> Step {
        let text = self.texts();
        self.texts.push(unquoted(literal).into());
        Step::Text(text)
    }

    /// How many string literals there are.
    pub(super) fn texts(&self) -> u32 {
        number(self.texts.len())
    }

    /// Adds a pattern, and returns its number.
    pub(super) fn pattern(&mut self, pattern: Pattern) -> u32 {
        self.patterns.push(pattern);
        number(self.patterns.len() - 1)
    }

    /// The program, after a trial without a message: what is wrong now is wrong for all of them.
    pub(super) fn finish(self, dialect: Dialect) -> Result<Program, SelectorError> {
        let mut fields = Vec::new();
        let mut properties = Vec::new();
        for (&name, &input) in &self.inputs {
            if let Some(field) = Field::named(name) {
                fields.push((field, input));
                continue;
            }
            properties.push((name.as_bytes().into(), input));
            let mut java = Vec::new();
            encode_text(name, &mut java);
            if java != name.as_bytes() {
                properties.push((java.into(), input));
            }
        }
        let program = Program {
            steps: self.steps.into(),
            texts: self.texts.into(),
            patterns: self.patterns.into(),
            properties: properties.into(),
            fields: fields.into(),
            inputs: self.inputs.len(),
            height: self.height,
        };
        try_out(&program, dialect, &self.places, self.selector)?;
        Ok(program)
    }
}

/// Positions fit: a text is no longer than a property, and nothing in a program is more numerous
/// than the bytes of its text.
fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn try_out(
    program: &Program,
    dialect: Dialect,
    places: &[usize],
    selector: &str,
) -> Result<(), SelectorError> {
    let inputs = [Value::Unknown; NAMES_MAX];
    match evaluate::<HEIGHT_MAX>(program, &inputs, dialect, Run::Trial) {
        Ok(Value::Boolean(_) | Value::Unknown) => Ok(()),
        Ok(value) => {
            let reason = format!("a selector is a condition, and this is {}", value.kind());
            Err(SelectorError::Mistyped { column: 1, reason })
        }
        Err(Failure { step, fault }) => {
            let at = places.get(step).copied().unwrap_or(0);
            let symbol = program.steps.get(step).map_or("value", |step| step.symbol());
            let is_word = symbol.starts_with(char::is_alphabetic);
            let symbol = if is_word { symbol.to_owned() } else { format!("`{symbol}`") };
            let reason = match fault {
                Fault::Kind { wanted, found } => {
                    format!("{symbol} needs {wanted}, not {found}")
                }
                Fault::DivisionByZero => "an integer is divided by zero".to_owned(),
                Fault::Unreadable | Fault::Effort => format!("{symbol} has no result"),
            };
            Err(SelectorError::Mistyped { column: column(selector, at), reason })
        }
    }
}
