//! A parsed selector: a flat list of steps for a machine with a stack of values.

use super::{pattern::Pattern, value::Value};
use crate::wire::RawText;

/// One step. Operands are taken off the stack, the result is put on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// A string literal, by its number in [`Program::texts`].
    Text(u32),
    Integer(i64),
    Double(f64),
    Boolean(bool),
    /// What the message has for a name, by its number in the table of inputs.
    Input(u16),
    /// If the top is this truth value it stays, and the machine goes on at step `to`: the left
    /// side of AND or OR has decided.
    Decide {
        when: bool,
        to: u32,
    },
    And,
    Or,
    Not,
    Compare(Comparison),
    Calculate(Calculation),
    Minus,
    Plus,
    Between {
        negated: bool,
    },
    /// The string literals `first` to `first + count` of [`Program::texts`].
    In {
        first: u32,
        count: u32,
        negated: bool,
    },
    /// A pattern, by its number in [`Program::patterns`].
    Like {
        pattern: u32,
        negated: bool,
    },
    IsNull {
        negated: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calculation {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Comparison {
    pub(super) const fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
        }
    }
}

impl Calculation {
    pub(super) const fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
        }
    }
}

impl Step {
    /// How many values it takes off the stack.
    pub(super) const fn operands(self) -> usize {
        match self {
            Self::Text(_)
            | Self::Integer(_)
            | Self::Double(_)
            | Self::Boolean(_)
            | Self::Input(_)
            | Self::Decide { .. } => 0,
            Self::Not
            | Self::Minus
            | Self::Plus
            | Self::In { .. }
            | Self::Like { .. }
            | Self::IsNull { .. } => 1,
            Self::And | Self::Or | Self::Compare(_) | Self::Calculate(_) => 2,
            Self::Between { .. } => 3,
        }
    }

    /// The operator as it is written, for errors.
    pub(super) const fn symbol(self) -> &'static str {
        match self {
            Self::Text(_)
            | Self::Integer(_)
            | Self::Double(_)
            | Self::Boolean(_)
            | Self::Input(_) => "value",
            Self::Decide { when: false, .. } | Self::And => "AND",
            Self::Decide { when: true, .. } | Self::Or => "OR",
            Self::Not => "NOT",
            Self::Compare(comparison) => comparison.symbol(),
            Self::Calculate(calculation) => calculation.symbol(),
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Between { .. } => "BETWEEN",
            Self::In { .. } => "IN",
            Self::Like { .. } => "LIKE",
            Self::IsNull { .. } => "IS NULL",
        }
    }
}

/// The header fields a selector can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Field {
    DeliveryMode,
    Priority,
    MessageId,
    Timestamp,
    CorrelationId,
    Type,
}

impl Field {
    /// The field of this name; any other name is a property's.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "JMSDeliveryMode" => Self::DeliveryMode,
            "JMSPriority" => Self::Priority,
            "JMSMessageID" => Self::MessageId,
            "JMSTimestamp" => Self::Timestamp,
            "JMSCorrelationID" => Self::CorrelationId,
            "JMSType" => Self::Type,
            _ => return None,
        })
    }
}

/// A whole selector.
///
/// Shape: running the steps in order leaves exactly one value, and never more than `height` on the
/// way. Nothing in it refers to another part but by number, so dropping it does not recurse.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) steps: Box<[Step]>,
    pub(super) texts: Box<[Box<str>]>,
    pub(super) patterns: Box<[Pattern]>,
    /// Names of properties as the wire may write them, each with its input.
    pub(super) properties: Box<[(Box<[u8]>, u16)]>,
    /// Header fields, each with its input.
    pub(super) fields: Box<[(Field, u16)]>,
    /// How many inputs there are.
    pub(super) inputs: usize,
    /// Most values on the stack at a time.
    pub(super) height: usize,
}

impl Program {
    /// The input a property is wanted for.
    pub(super) fn input_of(&self, name: &[u8]) -> Option<usize> {
        // They are few, and mostly of different lengths.
        let found = self.properties.iter().find(|(known, _)| known.as_ref() == name);
        found.map(|&(_, input)| usize::from(input))
    }

    pub(super) fn text(&self, number: u32) -> Value<'_> {
        let text = self.texts.get(number as usize).map_or("", AsRef::as_ref);
        Value::Text(RawText::Plain(text))
    }
}
