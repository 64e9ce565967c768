//! Why the program ends early, and with which exit code.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::io;
use std::process::ExitCode;

use super::output::complain;

/// Exit codes, as `--help` documents them.
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const TIMED_OUT: u8 = 3;
const CORRUPT: u8 = 4;
const IN_USE: u8 = 5;

/// Why a subcommand ends before it is done.
#[derive(Debug)]
pub(super) enum Failure {
    /// The reader of the output has gone away. It has what it wanted: no message, code 0.
    Closed,
    /// An argument or a setting is not right; the message says which.
    Usage(String),
    /// The same, already explained.
    UsageShown,
    /// What was asked for could not be done.
    Failed(String),
    /// It took longer than `--timeout` allows.
    TimedOut(String),
    /// A store is not as it was written.
    Corrupt(String),
    /// A store is used by another process.
    InUse(String),
}

impl Failure {
    /// `what` could not be done, because of `error` and its causes.
    pub(super) fn new(what: &str, error: &dyn Error) -> Self {
        Self::Failed(format!("{what}: {}", with_causes(error)))
    }

    /// Output could not be written.
    pub(super) fn output(target: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::Closed
        } else {
            Self::Failed(format!("cannot write to {target}: {error}"))
        }
    }

    /// Tells the user, and the shell.
    pub(super) fn report(self) -> ExitCode {
        let code = match &self {
            Self::Closed => return ExitCode::SUCCESS,
            Self::UsageShown => return ExitCode::from(USAGE),
            Self::Usage(_) => USAGE,
            Self::Failed(_) => FAILED,
            Self::TimedOut(_) => TIMED_OUT,
            Self::Corrupt(_) => CORRUPT,
            Self::InUse(_) => IN_USE,
        };
        complain(&format!("tidegate: {self}"));
        ExitCode::from(code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the reader of the output has gone away"),
            Self::UsageShown => f.write_str("the arguments were not understood"),
            Self::Usage(text)
            | Self::Failed(text)
            | Self::TimedOut(text)
            | Self::Corrupt(text)
            | Self::InUse(text) => f.write_str(text),
        }
    }
}

/// An error and what caused it, in one line.
pub(super) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Some errors repeat their cause in their own text.
        if !text.contains(&said) {
            let _infallible = write!(text, ": {said}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn causes_are_told_once() {
        let inner = io::Error::other("inner");
        assert_eq!(with_causes(&Outer(inner)), "outer: inner");
        assert_eq!(with_causes(&io::Error::other("only")), "only");
    }

    #[test]
    fn reader_gone_is_no_error_and_full_disk_is_one() {
        let gone = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::output("x", &gone), Failure::Closed));
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(matches!(Failure::output("x", &full), Failure::Failed(_)));
    }
}
