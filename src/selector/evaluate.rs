//! Runs a program. Nothing here allocates or recurses.

use super::{
    Dialect,
    program::{Program, Step},
    value::{Effort, Fault, Value},
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
    let (stack, effort) = (Stack::<HEIGHT>::new(), Effort::new());
    let mut machine = Machine { program, inputs, dialect, stack, effort };
    let mut at = 0;
    while let Some(&step) = program.steps.get(at) {
        if let Step::Decide { when, to } = step {
            let decided = run == Run::Message && machine.stack.top() == Value::Boolean(when);
            at = if decided { to as usize } else { at + 1 };
            continue;
        }
        let result = machine.take(step).map_err(|fault| Failure { step: at, fault })?;
        machine.stack.push(result);
        at += 1;
    }
    Ok(machine.stack.pop())
}

struct Machine<'p, 'a, const HEIGHT: usize> {
    program: &'a Program,
    inputs: &'p [Value<'a>],
    dialect: Dialect,
    stack: Stack<'a, HEIGHT>,
    effort: Effort,
}

impl<'a, const HEIGHT: usize> Machine<'_, 'a, HEIGHT> {
    /// Takes a step's operands off the stack and gives its result.
    fn take(&mut self, step: Step) -> Result<Value<'a>, Fault> {
        let dialect = self.dialect;
        match step {
            Step::Text(number) => Ok(self.program.text(number)),
            Step::Integer(value) => Ok(Value::Integer(value)),
            Step::Double(value) => Ok(Value::Double(value)),
            Step::Boolean(value) => Ok(Value::Boolean(value)),
            Step::Input(number) => match self.inputs.get(usize::from(number)) {
                None | Some(Value::Unreadable) => Err(Fault::Unreadable),
                Some(&value) => Ok(value),
            },
            // The caller's; it leaves the stack as it is.
            Step::Decide { .. } => Ok(self.stack.pop()),
            Step::And => {
                let (left, right) = self.stack.pop_two();
                left.and(right)
            }
            Step::Or => {
                let (left, right) = self.stack.pop_two();
                left.or(right)
            }
            Step::Not => self.stack.pop().not(),
            Step::Compare(comparison) => {
                let (left, right) = self.stack.pop_two();
                left.compare(comparison, right, dialect, &mut self.effort)
            }
            Step::Calculate(calculation) => {
                let (left, right) = self.stack.pop_two();
                left.calculate(calculation, right)
            }
            Step::Minus => self.stack.pop().minus(),
            Step::Plus => self.stack.pop().plus(),
            Step::Between { negated } => {
                let (low, high) = self.stack.pop_two();
                let inside = self.stack.pop().between(low, high, dialect)?;
                if negated { inside.not() } else { Ok(inside) }
            }
            Step::In { first, count, negated } => {
                let program = self.program;
                self.ask(negated, |text, _| {
                    let mut list = first..first + count;
                    Ok(list.any(|number| program.text(number) == Value::Text(text)))
                })
            }
            Step::Like { pattern, negated } => {
                let pattern = self.program.patterns.get(pattern as usize);
                let pattern = pattern.ok_or(Fault::Unreadable)?;
                self.ask(negated, |text, effort| {
                    let is_empty = matches!(text, RawText::Plain(""));
                    if dialect == Dialect::Reference && is_empty && !pattern.starts_with_many() {
                        return Err(Fault::Unreadable);
                    }
                    pattern.matches(text, effort)
                })
            }
            Step::IsNull { negated } => {
                let is_null = self.stack.pop() == Value::Unknown;
                Ok(Value::Boolean(is_null != negated))
            }
        }
    }

    /// IN and LIKE: a question about a string, or about one that is missing.
    fn ask(
        &mut self,
        negated: bool,
        question: impl FnOnce(RawText<'a>, &mut Effort) -> Result<bool, Fault>,
    ) -> Result<Value<'a>, Fault> {
        match (self.stack.pop().text()?, self.dialect) {
            (Some(text), _) => Ok(Value::Boolean(question(text, &mut self.effort)? != negated)),
            (None, Dialect::Jms) => Ok(Value::Unknown),
            (None, Dialect::Reference) => Ok(Value::Boolean(false)),
        }
    }
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

    /// The lower and the upper one of the two on top.
    fn pop_two(&mut self) -> (Value<'a>, Value<'a>) {
        let upper = self.pop();
        (self.pop(), upper)
    }

    fn top(&self) -> Value<'a> {
        self.values[self.len - 1]
    }
}
