//! Message selectors: conditions on the headers and properties of messages.
//!
//! A consumer or a browser with a selector sees the messages for which the selector is true. The
//! broker evaluates it, so what is not wanted is never sent.
//!
//! ```text
//! colour = 'red' AND weight BETWEEN 5 AND 10
//! JMSPriority >= 7 OR customer IN ('one', 'two')
//! name LIKE '50\\%%' ESCAPE '\\' AND NOT (price * amount > 1e6)
//! answered IS NULL
//! ```
//!
//! # The language
//!
//! Words of the language are written in any case, names of properties exactly as they are. What
//! binds more strongly stands further down; `(` and `)` decide otherwise.
//!
//! | form | meaning |
//! | --- | --- |
//! | `a OR b` | |
//! | `a AND b` | |
//! | `NOT a` | of the whole comparison: `NOT a = 1` is `NOT (a = 1)` |
//! | `a = b`, `a <> b` | two numbers, two strings, or two truth values |
//! | `a < b`, `<=`, `>`, `>=` | numbers only; strings have no order |
//! | `a [NOT] BETWEEN b AND c` | numbers only, both ends included |
//! | `a [NOT] IN ('x', 'y')` | strings only; commas may be left out |
//! | `a [NOT] LIKE 'x%_' [ESCAPE '!']` | strings only, as a whole: `%` stands for any characters or none, `_` for one; the first character of the escape string takes that meaning from the one after it |
//! | `a IS [NOT] NULL` | whether there is such a property |
//! | `a + b`, `a - b` | numbers: integers of 64 bits if both are, which wrap around, doubles otherwise |
//! | `a * b`, `a / b` | the same; of integers without a remainder |
//! | `-a`, `+a` | numbers |
//!
//! | literal | examples |
//! | --- | --- |
//! | string | `'it''s'`: a quote inside is written twice |
//! | integer | `42`, `0x2A`, `052` (octal), `42L`; from -9223372036854775808 |
//! | double | `4.2`, `.5`, `7.`, `1e10`, `4d`, `4.2F`; the letter at the end changes nothing |
//! | truth value | `TRUE`, `FALSE` |
//!
//! A name is a Java identifier: letters, digits, `_` and `$`, without full stops. Six names are
//! header fields; any other is a property, whatever it begins with.
//!
//! | name | value |
//! | --- | --- |
//! | `JMSDeliveryMode` | `'PERSISTENT'` or `'NON_PERSISTENT'` |
//! | `JMSPriority` | integer, 0 to 9 |
//! | `JMSTimestamp` | integer, milliseconds since 1970 |
//! | `JMSMessageID` | string that begins with `ID:` |
//! | `JMSCorrelationID`, `JMSType` | string, or missing |
//!
//! # What is missing
//!
//! A property that a message does not have is UNKNOWN, and so is what is computed from it. AND, OR
//! and NOT follow Kleene: `FALSE AND unknown` is FALSE, `TRUE OR unknown` is TRUE, everything else
//! with UNKNOWN in it is UNKNOWN. A message matches if the whole is TRUE.
//!
//! The reference broker makes exceptions to that, which can be had by a setting. The same selectors
//! in both dialects, for a message without the property `key`:
//!
//! | selector | [`Dialect::Jms`] | [`Dialect::Reference`] |
//! | --- | --- | --- |
//! | `key = 'x'`, `key > 1`, `key <> 1`, `key NOT IN ('x')`, `key NOT LIKE 'x'` | no | no |
//! | `key <> 'x'`, `NOT (key = 'x')` | no | **yes** |
//! | `key NOT BETWEEN 1 AND 2` | no | **yes** |
//! | `NOT (key LIKE 'x%')`, `NOT (key IN ('x'))` | no | **yes** |
//! | `key = other`, and `other` is missing too | no | **yes** |
//!
//! Three more things differ:
//!
//! | | [`Dialect::Jms`] | [`Dialect::Reference`] |
//! | --- | --- | --- |
//! | `price < 1e+5` | as `1e5` | refused |
//! | `name LIKE 'a!!b' ESCAPE '!'` | finds `a!b` | finds `a!!b` |
//! | `name LIKE 'a'` or `name NOT LIKE 'a'`, and `name` is an empty string | FALSE, TRUE | no match |
//!
//! ```
//! use tidegate::{
//!     selector::{Dialect, Selector},
//!     wire::{PacketBuilder, PacketType},
//! };
//!
//! let message = PacketBuilder::new(PacketType::TEXT_MESSAGE).int("n", 42).finish();
//! let matches = |text, dialect| Selector::parse(text, dialect).map(|it| it.matches(&message));
//!
//! assert_eq!(matches("n BETWEEN 40 AND 50", Dialect::Jms), Ok(true));
//! // There is no `key`.
//! assert_eq!(matches("key <> 'x'", Dialect::Jms), Ok(false));
//! assert_eq!(matches("key <> 'x'", Dialect::Reference), Ok(true));
//! // What one means by that in both.
//! assert_eq!(matches("key IS NULL OR key <> 'x'", Dialect::Jms), Ok(true));
//! assert_eq!(matches("key IS NULL OR key <> 'x'", Dialect::Reference), Ok(true));
//! ```
//!
//! # What is wrong
//!
//! A selector that is wrong for every message is refused, with the column and the reason: one that
//! does not parse, and one that has, wherever it stands, an operator that does not go with its
//! literals: `name < 'b'`, or `1 + 1` as a whole.
//!
//! One that is wrong for some messages is not refused, and does not match those: a number compared
//! with a string (`n = 1` where `n` is a string, but also `n <> 1`), a string with an order, an
//! integer divided by zero, a property that is no text, a property table that is cut off. AND and
//! OR leave out their right side if the left one decides, so `kind = 'a' AND n > 1` is safe if `n`
//! is a number in messages of that kind.
//!
//! # Limits
//!
//! [`limits`] has them all: of length, depth and names when a selector is parsed, and of the time
//! that comparing strings may take when it is evaluated.
//!
//! # Source
//! The language is that of JMS 2.0, section 3.8.1, as the reference broker reads it.
#![forbid(unsafe_code)]

mod build;
mod error;
mod evaluate;
mod inputs;
pub mod limits;
mod parse;
mod pattern;
mod program;
mod token;
mod value;

use std::fmt;

pub use error::SelectorError;
use evaluate::{Run, evaluate};
use inputs::MessageIdText;
use limits::{HEIGHT_MAX, NAMES_MAX};
use program::Program;
use value::Value;

use crate::wire::Packet;

/// Which rules hold where JMS and the reference broker differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// What JMS says: a missing property is UNKNOWN everywhere.
    #[default]
    Jms,
    /// What the reference broker does, where the [module's documentation](self) says so.
    Reference,
}

/// A parsed selector.
///
/// Shape: the text and a flat program. Immutable; it can be shared by any number of threads.
pub struct Selector {
    text: Box<str>,
    dialect: Dialect,
    program: Program,
}

impl Selector {
    /// Parses a selector. A blank text is none: whoever asks has to know that before.
    ///
    /// # Errors
    /// [`SelectorError`], which says where the mistake is.
    pub fn parse(text: &str, dialect: Dialect) -> Result<Self, SelectorError> {
        let program = parse::parse(text, dialect)?;
        Ok(Self { text: text.into(), dialect, program })
    }

    /// Whether a message is wanted. Allocates nothing.
    ///
    /// What cannot be evaluated for this message does not match.
    #[must_use]
    pub fn matches(&self, message: &Packet) -> bool {
        if self.program.inputs <= FEW && self.program.height <= FEW {
            self.run::<FEW, FEW>(message)
        } else {
            self.run::<NAMES_MAX, HEIGHT_MAX>(message)
        }
    }

    /// The text it was parsed from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn run<const INPUTS: usize, const HEIGHT: usize>(&self, message: &Packet) -> bool {
        let mut id = MessageIdText::new();
        let mut values = [Value::Unknown; INPUTS];
        inputs::read(&self.program, message, &mut id, &mut values);
        let result = evaluate::<HEIGHT>(&self.program, &values, self.dialect, Run::Message);
        result == Ok(Value::Boolean(true))
    }
}

/// Names and height of nearly all selectors; the room for more is not cheap to clear.
const FEW: usize = 8;

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selector")
            .field("text", &self.text)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}
