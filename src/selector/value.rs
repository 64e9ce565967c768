//! Values, and what the operators make of them.

use std::fmt;

use super::{
    Dialect,
    limits::EFFORT_MAX,
    program::{Calculation, Comparison},
};
use crate::wire::{RawProperty, RawText, Value as WireValue};

/// A value on the machine's stack.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    /// A missing property, or a truth value that depends on one.
    Unknown,
    Boolean(bool),
    /// `byte` to `long`.
    Integer(i64),
    /// `float` and `double`.
    Double(f64),
    Text(RawText<'a>),
    /// A property that is a serialized object. It is there, and that is all.
    Object,
    /// Something that cannot be read. Using it is a fault.
    Unreadable,
}

/// Why an evaluation came to no result. The message does not match then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// An operand of the wrong kind.
    Kind {
        wanted: Wanted,
        found: Kind,
    },
    DivisionByZero,
    /// The property, or all of them, cannot be read.
    Unreadable,
    /// It would have taken too long.
    Effort,
}

/// What one evaluation may still spend on strings, in comparisons of characters.
#[derive(Debug)]
pub(super) struct Effort {
    left: usize,
}

impl Effort {
    pub(super) const fn new() -> Self {
        Self { left: EFFORT_MAX }
    }

    pub(super) fn spend(&mut self, comparisons: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(comparisons).ok_or(Fault::Effort)?;
        Ok(())
    }
}

/// What an operator is for. Small, as every step's result may hold one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Numbers,
    /// A number, as there is one on the other side.
    SecondNumber,
    Conditions,
    Strings,
    Values,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Numbers => "numbers",
            Self::SecondNumber => "a number on both sides",
            Self::Conditions => "conditions",
            Self::Strings => "strings",
            Self::Values => "values",
        })
    }
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nothing,
    Condition,
    Number,
    Text,
    Object,
    Unreadable,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Condition => "a condition",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::Object => "an object",
            Self::Unreadable => "something unreadable",
        })
    }
}

impl<'a> Value<'a> {
    pub(super) fn of_property(property: &RawProperty<'a>) -> Self {
        // The kinds that would have to be copied to be decoded.
        match property.kind {
            8 => return Self::of_text(property.bytes),
            9 => return Self::Object,
            _ => {}
        }
        match property.value() {
            WireValue::Boolean(value) => Self::Boolean(value),
            WireValue::Byte(value) => Self::Integer(value.into()),
            WireValue::Short(value) => Self::Integer(value.into()),
            WireValue::Int(value) => Self::Integer(value.into()),
            WireValue::Long(value) => Self::Integer(value),
            WireValue::Float(value) => Self::Double(value.into()),
            WireValue::Double(value) => Self::Double(value),
            WireValue::String(_) | WireValue::Malformed(_) | WireValue::Object(_) => {
                Self::Unreadable
            }
        }
    }

    pub(super) fn of_text(bytes: &'a [u8]) -> Self {
        RawText::new(bytes).map_or(Self::Unreadable, Self::Text)
    }

    fn of_truth(truth: Option<bool>) -> Self {
        truth.map_or(Self::Unknown, Self::Boolean)
    }

    pub(super) const fn kind(self) -> Kind {
        match self {
            Self::Unknown => Kind::Nothing,
            Self::Boolean(_) => Kind::Condition,
            Self::Integer(_) | Self::Double(_) => Kind::Number,
            Self::Text(_) => Kind::Text,
            Self::Object => Kind::Object,
            Self::Unreadable => Kind::Unreadable,
        }
    }

    /// As a truth value; `None` is UNKNOWN.
    pub(super) fn truth(self) -> Result<Option<bool>, Fault> {
        match self {
            Self::Unknown => Ok(None),
            Self::Boolean(value) => Ok(Some(value)),
            _ => Err(self.is_not(Wanted::Conditions)),
        }
    }

    /// As a number; `None` if it is missing.
    fn number(self) -> Result<Option<Number>, Fault> {
        match self {
            Self::Unknown => Ok(None),
            Self::Integer(value) => Ok(Some(Number::Integer(value))),
            Self::Double(value) => Ok(Some(Number::Double(value))),
            _ => Err(self.is_not(Wanted::Numbers)),
        }
    }

    /// As a string; `None` if it is missing.
    pub(super) fn text(self) -> Result<Option<RawText<'a>>, Fault> {
        match self {
            Self::Unknown => Ok(None),
            Self::Text(text) => Ok(Some(text)),
            _ => Err(self.is_not(Wanted::Strings)),
        }
    }

    const fn is_not(self, wanted: Wanted) -> Fault {
        Fault::Kind { wanted, found: self.kind() }
    }

    pub(super) fn and(self, other: Self) -> Result<Self, Fault> {
        Ok(Self::of_truth(all(self.truth()?, other.truth()?)))
    }

    pub(super) fn or(self, other: Self) -> Result<Self, Fault> {
        let neither = all(self.truth()?.map(|a| !a), other.truth()?.map(|b| !b));
        Ok(Self::of_truth(neither.map(|neither| !neither)))
    }

    pub(super) fn not(self) -> Result<Self, Fault> {
        Ok(Self::of_truth(self.truth()?.map(|value| !value)))
    }

    pub(super) fn compare(
        self,
        comparison: Comparison,
        other: Self,
        dialect: Dialect,
        effort: &mut Effort,
    ) -> Result<Self, Fault> {
        let equal = match comparison {
            Comparison::Equal => self.equals(other, dialect, effort)?,
            Comparison::NotEqual => self.equals(other, dialect, effort)?.map(|equal| !equal),
            _ => compare(self.number()?, comparison, other.number()?),
        };
        Ok(Self::of_truth(equal))
    }

    fn equals(
        self,
        other: Self,
        dialect: Dialect,
        effort: &mut Effort,
    ) -> Result<Option<bool>, Fault> {
        let is_number = |value| matches!(value, Self::Integer(_) | Self::Double(_));
        if is_number(self) || is_number(other) {
            let number =
                |value: Self| value.number().map_err(|_| value.is_not(Wanted::SecondNumber));
            return Ok(compare(number(self)?, Comparison::Equal, number(other)?));
        }
        Ok(match (self, other) {
            (Self::Object, _) | (_, Self::Object) => {
                return Err(Self::Object.is_not(Wanted::Values));
            }
            (Self::Unknown, _) | (_, Self::Unknown) if dialect == Dialect::Jms => None,
            (Self::Unknown, Self::Unknown) => Some(true),
            (Self::Boolean(one), Self::Boolean(other)) => Some(one == other),
            (Self::Text(one), Self::Text(other)) => {
                effort.spend(cost(one, other))?;
                Some(one == other)
            }
            _ => Some(false),
        })
    }

    pub(super) fn calculate(self, calculation: Calculation, other: Self) -> Result<Self, Fault> {
        let (one, other) = (self.number()?, other.number()?);
        let (Some(one), Some(other)) = (one, other) else { return Ok(Self::Unknown) };
        if let (Number::Integer(one), Number::Integer(other)) = (one, other) {
            return Ok(Self::Integer(match calculation {
                Calculation::Add => one.wrapping_add(other),
                Calculation::Subtract => one.wrapping_sub(other),
                Calculation::Multiply => one.wrapping_mul(other),
                Calculation::Divide if other == 0 => return Err(Fault::DivisionByZero),
                Calculation::Divide => one.wrapping_div(other),
            }));
        }
        let (one, other) = (one.as_double(), other.as_double());
        Ok(Self::Double(match calculation {
            Calculation::Add => one + other,
            Calculation::Subtract => one - other,
            Calculation::Multiply => one * other,
            Calculation::Divide => one / other,
        }))
    }

    pub(super) fn minus(self) -> Result<Self, Fault> {
        Ok(match self.number()? {
            None => Self::Unknown,
            Some(Number::Integer(value)) => Self::Integer(value.wrapping_neg()),
            Some(Number::Double(value)) => Self::Double(-value),
        })
    }

    pub(super) fn plus(self) -> Result<Self, Fault> {
        self.number()?;
        Ok(self)
    }

    pub(super) fn between(self, low: Self, high: Self, dialect: Dialect) -> Result<Self, Fault> {
        let (value, low, high) = (self.number()?, low.number()?, high.number()?);
        let inside = all(
            compare(value, Comparison::GreaterEqual, low),
            compare(value, Comparison::LessEqual, high),
        );
        Ok(Self::of_truth(match dialect {
            Dialect::Jms => inside,
            Dialect::Reference => Some(inside == Some(true)),
        }))
    }
}

/// What comparing two strings takes: byte by byte many at a time, or character by character.
fn cost(one: RawText<'_>, other: RawText<'_>) -> usize {
    match (one, other) {
        (RawText::Plain(one), RawText::Plain(other)) => one.len().min(other.len()) / 64,
        (RawText::Plain(text), RawText::Modified(bytes))
        | (RawText::Modified(bytes), RawText::Plain(text)) => text.len().min(bytes.len()),
        (RawText::Modified(one), RawText::Modified(other)) => one.len().min(other.len()),
    }
}

/// A number of one of the two kinds.
#[derive(Debug, Clone, Copy)]
enum Number {
    Integer(i64),
    Double(f64),
}

impl Number {
    #[allow(clippy::cast_precision_loss, reason = "the promotion the language asks for")]
    const fn as_double(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Double(value) => value,
        }
    }
}

/// Kleene's AND.
const fn all(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn compare(one: Option<Number>, comparison: Comparison, other: Option<Number>) -> Option<bool> {
    // Two integers are compared exactly; a NaN is neither less than, nor equal to, nor above.
    let order = match (one?, other?) {
        (Number::Integer(one), Number::Integer(other)) => Some(one.cmp(&other)),
        (one, other) => one.as_double().partial_cmp(&other.as_double()),
    };
    Some(match comparison {
        Comparison::Equal => order.is_some_and(|order| order.is_eq()),
        Comparison::NotEqual => order.is_none_or(|order| order.is_ne()),
        Comparison::Less => order.is_some_and(|order| order.is_lt()),
        Comparison::LessEqual => order.is_some_and(|order| order.is_le()),
        Comparison::Greater => order.is_some_and(|order| order.is_gt()),
        Comparison::GreaterEqual => order.is_some_and(|order| order.is_ge()),
    })
}
