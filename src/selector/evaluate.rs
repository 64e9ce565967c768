//! Runs a program. Nothing here allocates or recurses.

use super::{
    Dialect,
    limits::LIKE_EFFORT_MAX,
    program::{Program, Step},
    value::{Fault, Value},
};
use crate::wire::RawText;

/// How a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// For a message: AND and OR leave out their right side if the left one has decided.
    Message,
    /// For no message: everything is looked at.
    Trial,
}

/// A fault, and the step that had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: usize,
    pub(super) fault: Fault,
}

/// The values of a computation, `HEIGHT` at most; a program says how many it needs.
struct Stack<'a, const HEIGHT: usize> {
    values: [Value<'a>; HEIGHT],
    len: usize,
}

impl<'a, const HEIGHT: usize> Stack<'a, HEIGHT> {
    const fn new() -> Self {
        Self { values: [Value::Unknown; HEIGHT], len: 0 }
    }

    fn push(&mut self, value: Value<'a>) {
        self.values[self.len] = value;
        self.len += 1;
    }

    fn pop(&mut self) -> Value<'a> {
        self.len -= 1;
        self.values[self.len]
    }

    fn top(&self) -> Value<'a> {
        self.values[self.len - 1]
    }
}

/// What the whole program comes to.
///
/// # Errors
/// A [`Failure`] if the message's values do not fit what is done with them.
///
/// # Panics
/// If the program needs more than `HEIGHT` values.
pub(super) fn evaluate<'a, const HEIGHT: usize>(
    program: &'a Program,
    inputs: &[Value<'a>],
    dialect: Dialect,
    run: Run,
) -> Result<Value<'a>, Failure> {
    let mut stack = Stack::<HEIGHT>::new();
    let mut effort = LIKE_EFFORT_MAX;
    let mut at = 0;
    while let Some(&step) = program.steps.get(at) {
        if let Step::Decide { when, to } = step {
            let decided = run == Run::Message && stack.top() == Value::Boolean(when);
            at = if decided { to as usize } else { at + 1 };
            continue;
        }
        take(step, program, inputs, dialect, &mut stack, &mut effort)
            .map_err(|fault| Failure { step: at, fault })?;
        at += 1;
    }
    Ok(stack.pop())
}

fn take<'a, const HEIGHT: usize>(
    step: Step,
    program: &'a Program,
    inputs: &[Value<'a>],
    dialect: Dialect,
    stack: &mut Stack<'a, HEIGHT>,
    effort: &mut u32,
) -> Result<(), Fault> {
    let result = match step {
        Step::Text(number) => program.text(number),
        Step::Integer(value) => Value::Integer(value),
        Step::Double(value) => Value::Double(value),
        Step::Boolean(value) => Value::Boolean(value),
        Step::Input(number) => match inputs.get(usize::from(number)) {
            Some(Value::Unreadable) => return Err(Fault::Unreadable),
            Some(&value) => value,
            None => Value::Unknown,
        },
        // The caller's.
        Step::Decide { .. } => return Ok(()),
        Step::And => {
            let right = stack.pop();
            stack.pop().and(right)?
        }
        Step::Or => {
            let right = stack.pop();
            stack.pop().or(right)?
        }
        Step::Not => stack.pop().not()?,
        Step::Compare(comparison) => {
            let right = stack.pop();
            stack.pop().compare(comparison, right, dialect)?
        }
        Step::Calculate(calculation) => {
            let right = stack.pop();
            stack.pop().calculate(calculation, right)?
        }
        Step::Minus => stack.pop().minus()?,
        Step::Plus => stack.pop().plus()?,
        Step::Between { negated } => {
            let (high, low) = (stack.pop(), stack.pop());
            negate_if(negated, stack.pop().between(low, high, dialect)?)?
        }
        Step::In { first, count, negated } => {
            let is_in =
                |text| (first..first + count).any(|at| program.text(at) == Value::Text(text));
            of_text(stack.pop(), negated, dialect, |text| Ok(is_in(text)))?
        }
        Step::Like { pattern, negated } => {
            let pattern = program.patterns.get(pattern as usize).ok_or(Fault::Unreadable)?;
            of_text(stack.pop(), negated, dialect, |text| {
                let is_empty = matches!(text, RawText::Plain(""));
                if dialect == Dialect::Reference && is_empty && !pattern.starts_with_many() {
                    return Err(Fault::Unreadable);
                }
                pattern.matches(text, effort)
            })?
        }
        Step::IsNull { negated } => Value::Boolean((stack.pop() == Value::Unknown) != negated),
    };
    stack.push(result);
    Ok(())
}

/// IN and LIKE: a question about a string, or about one that is missing.
fn of_text<'a>(
    value: Value<'a>,
    negated: bool,
    dialect: Dialect,
    question: impl FnOnce(RawText<'a>) -> Result<bool, Fault>,
) -> Result<Value<'a>, Fault> {
    match (value.text()?, dialect) {
        (Some(text), _) => Ok(Value::Boolean(question(text)? != negated)),
        (None, Dialect::Jms) => Ok(Value::Unknown),
        (None, Dialect::Reference) => Ok(Value::Boolean(false)),
    }
}

fn negate_if(negated: bool, value: Value<'_>) -> Result<Value<'_>, Fault> {
    if negated { value.not() } else { Ok(value) }
}
