//! A text becomes a program: operator precedence, without recursion.
//!
//! Values become steps as they are met. Operators wait in a list until everything that binds more
//! strongly has become steps; an opening parenthesis waits for its closing one. So the list is the
//! only thing that grows with the depth of a text, and it has a maximum.
//!
//! | strength | operators |
//! | ---: | --- |
//! | 10, 11, 12 | `OR`, `AND`, `NOT` |
//! | 20, 21 | `=` `<>`, `<` `<=` `>` `>=` |
//! | 30 | `BETWEEN`, `IN`, `LIKE`, `IS NULL`, with and without `NOT` |
//! | 40, 41, 43 | `+` `-`, `*` `/`, signs |

use super::{
    Dialect, SelectorError,
    build::Builder,
    error::column,
    limits::{DEPTH_MAX, TEXT_BYTES_MAX},
    pattern::Pattern,
    program::{Calculation, Comparison, Program, Step},
    token::{Placed, Token, Tokens, Word, unquoted},
};

/// An operator that waits for what stands to its right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Open,
    /// OR and AND: with the step that may leave out their right side.
    Or {
        decide: usize,
    },
    And {
        decide: usize,
    },
    Not,
    Compare(Comparison),
    /// BETWEEN, before its AND.
    Low {
        negated: bool,
    },
    /// BETWEEN, after its AND.
    High {
        negated: bool,
    },
    Calculate(Calculation),
    Plus,
    Minus,
}

const OR: u8 = 10;
const AND: u8 = 11;
const NOT: u8 = 12;
const ORDER: u8 = 21;
const QUESTION: u8 = 30;
const SUM: u8 = 40;

impl Operator {
    const fn strength(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Or { .. } => OR,
            Self::And { .. } => AND,
            Self::Not => NOT,
            Self::Compare(Comparison::Equal | Comparison::NotEqual) => 20,
            Self::Compare(_) => ORDER,
            Self::Low { .. } | Self::High { .. } => QUESTION,
            Self::Calculate(Calculation::Add | Calculation::Subtract) => SUM,
            Self::Calculate(Calculation::Multiply | Calculation::Divide) => 41,
            Self::Plus | Self::Minus => 43,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    operator: Operator,
    /// The byte it stands at.
    at: usize,
}

const CONDITION: &str = "a value (a name, a string, a number, TRUE, FALSE, NOT, a sign or `(`)";
const NUMBER: &str = "a number (a name, a literal, a sign or `(`)";
const STRING: &str = "a string in single quotes";

/// Parses a whole text.
///
/// # Errors
/// Any [`SelectorError`].
pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Program, SelectorError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(SelectorError::TooLong { bytes: text.len() });
    }
    let mut parser = Parser {
        tokens: Tokens::new(text, dialect),
        dialect,
        waiting: Vec::new(),
        builder: Builder::new(text),
    };
    loop {
        parser.operand()?;
        if !parser.operators()? {
            return parser.builder.finish(dialect);
        }
    }
}

struct Parser<'t> {
    tokens: Tokens<'t>,
    dialect: Dialect,
    waiting: Vec<Waiting>,
    builder: Builder<'t>,
}

impl<'t> Parser<'t> {
    /// Takes what leads up to a value, and the value.
    fn operand(&mut self) -> Result<(), SelectorError> {
        let mut before = None;
        loop {
            let strength = self.waiting.last().map_or(0, |waiting| waiting.operator.strength());
            let Placed { token, at } = self.tokens.next()?;
            let operator = match token {
                Token::Open => Operator::Open,
                Token::Word(Word::Not) if strength < ORDER => Operator::Not,
                Token::Calculate(Calculation::Add) => Operator::Plus,
                Token::Calculate(Calculation::Subtract) => {
                    if self.negative_literal(at)? {
                        return Ok(());
                    }
                    Operator::Minus
                }
                token => {
                    let allowed = if strength < ORDER { CONDITION } else { NUMBER };
                    return self.value(Placed { token, at }, allowed);
                }
            };
            if operator != Operator::Open && before == Some(operator) {
                let reason = format!("{token} twice in a row; put the second one in parentheses");
                return Err(self.malformed(at, reason));
            }
            before = Some(operator);
            self.wait(operator, at)?;
        }
    }

    /// Takes a number after its minus, as one literal: so the lowest integer can be written.
    fn negative_literal(&mut self, at: usize) -> Result<bool, SelectorError> {
        let step = match self.tokens.peek()?.token {
            Token::Integer(size) => match 0_i64.checked_sub_unsigned(size) {
                Some(value) => Step::Integer(value),
                None => return Err(self.malformed(at, TOO_LOW.to_owned())),
            },
            Token::Double(size) => Step::Double(-size),
            _ => return Ok(false),
        };
        self.tokens.next()?;
        self.builder.step(step, at);
        Ok(true)
    }

    fn value(
        &mut self,
        Placed { token, at }: Placed<'t>,
        allowed: &'static str,
    ) -> Result<(), SelectorError> {
        let step = match token {
            Token::Name(name) => self.builder.input(name, at)?,
            Token::Text(text) => self.builder.text(text),
            Token::Integer(size) => match i64::try_from(size) {
                Ok(value) => Step::Integer(value),
                Err(_) => return Err(self.malformed(at, TOO_HIGH.to_owned())),
            },
            Token::Double(value) => Step::Double(value),
            Token::Word(Word::True) => Step::Boolean(true),
            Token::Word(Word::False) => Step::Boolean(false),
            Token::Word(Word::Null) => {
                let reason = "NULL is no value; ask with IS NULL or IS NOT NULL".to_owned();
                return Err(self.malformed(at, reason));
            }
            token => return Err(self.unexpected(Placed { token, at }, allowed)),
        };
        self.builder.step(step, at);
        Ok(())
    }

    /// Takes what stands after a value up to the next one. `false` at the end of the text.
    fn operators(&mut self) -> Result<bool, SelectorError> {
        loop {
            let placed = self.tokens.next()?;
            let at = placed.at;
            match placed.token {
                Token::End => return self.end(placed).map(|()| false),
                Token::Close => self.close(placed)?,
                Token::Word(Word::Is) => self.is_null(placed)?,
                Token::Word(Word::In) => self.is_in(placed, false)?,
                Token::Word(Word::Like) => self.like(placed, false)?,
                Token::Word(Word::Between) => return self.between(placed, false).map(|()| true),
                Token::Word(Word::Not) => {
                    let next = self.tokens.next()?;
                    match next.token {
                        Token::Word(Word::In) => self.is_in(next, true)?,
                        Token::Word(Word::Like) => self.like(next, true)?,
                        Token::Word(Word::Between) => {
                            return self.between(next, true).map(|()| true);
                        }
                        _ => return Err(self.unexpected(next, "IN, LIKE or BETWEEN after NOT")),
                    }
                }
                Token::Word(Word::And) => return self.and(placed).map(|()| true),
                Token::Word(Word::Or) => {
                    self.settle(OR, placed)?;
                    let decide = self.builder.decide(true, at);
                    return self.wait(Operator::Or { decide }, at).map(|()| true);
                }
                Token::Compare(comparison) => {
                    let operator = Operator::Compare(comparison);
                    self.settle(operator.strength(), placed)?;
                    return self.wait(operator, at).map(|()| true);
                }
                Token::Calculate(calculation) => {
                    let operator = Operator::Calculate(calculation);
                    self.settle(operator.strength(), placed)?;
                    return self.wait(operator, at).map(|()| true);
                }
                _ => {
                    let is_open = self.waiting.iter().any(|one| one.operator == Operator::Open);
                    let allowed =
                        if is_open { "an operator or `)`" } else { "an operator or the end" };
                    return Err(self.unexpected(placed, allowed));
                }
            }
        }
    }

    /// An AND that belongs to a BETWEEN, or one of its own.
    fn and(&mut self, placed: Placed<'t>) -> Result<(), SelectorError> {
        self.settle(SUM, placed)?;
        if let Some(Waiting { operator, .. }) = self.waiting.last_mut()
            && let Operator::Low { negated } = *operator
        {
            *operator = Operator::High { negated };
            return Ok(());
        }
        self.settle(AND, placed)?;
        let decide = self.builder.decide(false, placed.at);
        self.wait(Operator::And { decide }, placed.at)
    }

    fn between(&mut self, placed: Placed<'t>, negated: bool) -> Result<(), SelectorError> {
        self.settle(QUESTION, placed)?;
        self.wait(Operator::Low { negated }, placed.at)
    }

    fn is_null(&mut self, placed: Placed<'t>) -> Result<(), SelectorError> {
        self.settle(QUESTION, placed)?;
        let mut next = self.tokens.next()?;
        let negated = next.token == Token::Word(Word::Not);
        if negated {
            next = self.tokens.next()?;
        }
        if next.token != Token::Word(Word::Null) {
            let allowed = if negated { "NULL" } else { "NULL or NOT NULL" };
            return Err(self.unexpected(next, allowed));
        }
        self.builder.step(Step::IsNull { negated }, placed.at);
        Ok(())
    }

    fn is_in(&mut self, placed: Placed<'t>, negated: bool) -> Result<(), SelectorError> {
        self.settle(QUESTION, placed)?;
        let open = self.tokens.next()?;
        if open.token != Token::Open {
            return Err(self.unexpected(open, "`(` and a list of strings after IN"));
        }
        let first = self.builder.texts();
        let mut after_comma = false;
        loop {
            let next = self.tokens.next()?;
            match next.token {
                Token::Text(text) => {
                    self.builder.text(text);
                }
                Token::Close if !after_comma => break,
                _ if after_comma => return Err(self.unexpected(next, STRING)),
                _ => return Err(self.unexpected(next, "a string in single quotes or `)`")),
            }
            // Commas may be left out between two strings.
            after_comma = self.tokens.peek()?.token == Token::Comma;
            if after_comma {
                self.tokens.next()?;
            }
        }
        let count = self.builder.texts() - first;
        self.builder.step(Step::In { first, count, negated }, placed.at);
        Ok(())
    }

    fn like(&mut self, placed: Placed<'t>, negated: bool) -> Result<(), SelectorError> {
        self.settle(QUESTION, placed)?;
        let pattern = self.string()?;
        let mut escape = None;
        if self.tokens.peek()?.token == Token::Word(Word::Escape) {
            let at = self.tokens.next()?.at;
            escape = self.string()?.chars().next();
            if escape.is_none() {
                let reason = "ESCAPE needs a character, not an empty string".to_owned();
                return Err(self.malformed(at, reason));
            }
        }
        let pattern = self.builder.pattern(Pattern::new(&pattern, escape, self.dialect));
        self.builder.step(Step::Like { pattern, negated }, placed.at);
        Ok(())
    }

    fn string(&mut self) -> Result<String, SelectorError> {
        let next = self.tokens.next()?;
        match next.token {
            Token::Text(text) => Ok(unquoted(text)),
            _ => Err(self.unexpected(next, STRING)),
        }
    }

    fn close(&mut self, placed: Placed<'t>) -> Result<(), SelectorError> {
        self.settle(OR, placed)?;
        match self.waiting.pop() {
            Some(_) => Ok(()),
            None => {
                let reason = "`)` without a `(` before it".to_owned();
                Err(self.malformed(placed.at, reason))
            }
        }
    }

    fn end(&mut self, placed: Placed<'t>) -> Result<(), SelectorError> {
        self.settle(OR, placed)?;
        match self.waiting.last() {
            Some(open) => {
                let reason = "`(` is never closed; a `)` is missing".to_owned();
                Err(self.malformed(open.at, reason))
            }
            None => Ok(()),
        }
    }

    /// Puts an operator on the list of those that wait.
    fn wait(&mut self, operator: Operator, at: usize) -> Result<(), SelectorError> {
        if self.waiting.len() == DEPTH_MAX {
            return Err(SelectorError::TooDeep { column: column(self.tokens.text(), at) });
        }
        self.waiting.push(Waiting { operator, at });
        Ok(())
    }

    /// Turns the operators that bind at least this strongly into steps, as `next` comes after what
    /// they waited for.
    fn settle(&mut self, strength: u8, next: Placed<'t>) -> Result<(), SelectorError> {
        while let Some(&Waiting { operator, at }) = self.waiting.last() {
            if operator.strength() < strength {
                return Ok(());
            }
            let step = match operator {
                Operator::Open => return Ok(()),
                Operator::Low { .. } => {
                    return Err(self.unexpected(next, "the AND that belongs to BETWEEN"));
                }
                Operator::High { negated } => Step::Between { negated },
                Operator::Or { .. } => Step::Or,
                Operator::And { .. } => Step::And,
                Operator::Not => Step::Not,
                Operator::Compare(comparison) => Step::Compare(comparison),
                Operator::Calculate(calculation) => Step::Calculate(calculation),
                Operator::Plus => Step::Plus,
                Operator::Minus => Step::Minus,
            };
            self.waiting.pop();
            self.builder.step(step, at);
            if let Operator::Or { decide } | Operator::And { decide } = operator {
                self.builder.decided(decide);
            }
        }
        Ok(())
    }

    fn unexpected(&self, found: Placed<'t>, allowed: &'static str) -> SelectorError {
        SelectorError::Unexpected {
            column: column(self.tokens.text(), found.at),
            found: found.token.to_string(),
            allowed,
        }
    }

    fn malformed(&self, at: usize, reason: String) -> SelectorError {
        SelectorError::Malformed { column: column(self.tokens.text(), at), reason }
    }
}

const TOO_HIGH: &str = "this integer is above 9223372036854775807, the highest there is";
const TOO_LOW: &str = "this integer is below -9223372036854775808, the lowest there is";
