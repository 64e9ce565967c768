//! The states of a transaction, and what may be asked of it in each.
//!
//! ```text
//!                    JOIN
//!                  .------.
//!            START v      | END                PREPARE             COMMIT
//! [Created] ---> [Started] ------> [Complete] ---------> [Prepared] -----> [Committed]
//!                  |  ^  |             |  | COMMIT one-phase  |                 ^
//!   END of failure |  |  | SUSPEND     |  '-------------------)-----------------'
//!   or a refused   |  |  v             |                      |
//!   acknowledge-   |  [Incomplete]     |                      |
//!   ment           |       |           |                      |
//!                  v       v           v                      v
//!              [Failed] ---------- ROLLBACK ----------> [RolledBack]
//! ```
//!
//! A local transaction is also committed and rolled back from `Started`, without an END. One whose
//! time is over goes to `TimedOut`, which nothing leads out of.
//!
//! # Source
//! The wire protocol: transactions, table of operations.

use std::fmt;

/// How far a transaction is. The numbers are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::broker) enum State {
    /// Nothing was done yet.
    Created = 0,
    /// Sends and acknowledgements belong to it.
    Started = 1,
    /// Something in it failed: it can only be rolled back.
    Failed = 2,
    /// Work is suspended.
    Incomplete = 3,
    /// Work has ended.
    Complete = 4,
    /// It is promised that it can be committed.
    Prepared = 5,
    /// Carried out.
    Committed = 6,
    /// Undone.
    RolledBack = 7,
    /// Undone, because it took too long.
    TimedOut = 8,
}

impl State {
    #[cfg(test)]
    pub(super) const ALL: [Self; 9] = [
        Self::Created,
        Self::Started,
        Self::Failed,
        Self::Incomplete,
        Self::Complete,
        Self::Prepared,
        Self::Committed,
        Self::RolledBack,
        Self::TimedOut,
    ];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Started => "started",
            Self::Failed => "failed",
            Self::Incomplete => "suspended",
            Self::Complete => "ended",
            Self::Prepared => "prepared",
            Self::Committed => "committed",
            Self::RolledBack => "rolled back",
            Self::TimedOut => "timed out",
        })
    }
}

/// What is asked of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Start,
    Join,
    Resume,
    Suspend,
    Fail,
    End,
    Prepare,
    CommitOnePhase,
    Commit,
    CommitLocal,
    Rollback,
    RollbackLocal,
}

impl Operation {
    #[cfg(test)]
    pub(super) const ALL: [Self; 12] = [
        Self::Start,
        Self::Join,
        Self::Resume,
        Self::Suspend,
        Self::Fail,
        Self::End,
        Self::Prepare,
        Self::CommitOnePhase,
        Self::Commit,
        Self::CommitLocal,
        Self::Rollback,
        Self::RollbackLocal,
    ];

    const fn participle(self) -> &'static str {
        match self {
            Self::Start => "started",
            Self::Join => "joined",
            Self::Resume => "resumed",
            Self::Suspend => "suspended",
            Self::Fail | Self::End => "ended",
            Self::Prepare => "prepared",
            Self::CommitOnePhase => "committed in one phase",
            Self::Commit | Self::CommitLocal => "committed",
            Self::Rollback | Self::RollbackLocal => "rolled back",
        }
    }
}

/// The transaction is in no state for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is {state} and cannot be {}", .operation.participle())]
pub(super) struct Refusal {
    state: State,
    operation: Operation,
}

/// The state an operation leads to.
///
/// # Errors
/// [`Refusal`]; the state stays.
pub(super) const fn next(state: State, operation: Operation) -> Result<State, Refusal> {
    use State as S;
    Ok(match (operation, state) {
        (Operation::Start, S::Created | S::Complete | S::Started)
        | (Operation::Join, S::Started | S::Complete)
        | (Operation::Resume, S::Incomplete | S::Started) => S::Started,
        (Operation::Suspend, S::Started | S::Incomplete) => S::Incomplete,
        (Operation::Fail, S::Started | S::Incomplete) => S::Failed,
        (Operation::End, S::Started | S::Incomplete) => S::Complete,
        (Operation::Prepare, S::Complete | S::Prepared) => S::Prepared,
        (Operation::CommitOnePhase, S::Complete | S::Committed)
        | (Operation::Commit, S::Prepared | S::Committed)
        | (Operation::CommitLocal, S::Started | S::Prepared | S::Committed) => S::Committed,
        (
            Operation::Rollback | Operation::RollbackLocal,
            S::Complete | S::Incomplete | S::Prepared | S::Failed | S::RolledBack,
        )
        | (Operation::RollbackLocal, S::Started) => S::RolledBack,
        _ => return Err(Refusal { state, operation }),
    })
}

#[cfg(test)]
mod tests {
    use super::{Operation, State, next};

    /// The table of the protocol, operation by operation: from which states, and to which.
    fn allowed(operation: Operation) -> (&'static [u8], u8) {
        match operation {
            Operation::Start => (&[0, 4, 1], 1),
            Operation::Join => (&[1, 4], 1),
            Operation::Resume => (&[3, 1], 1),
            Operation::Suspend => (&[1, 3], 3),
            Operation::Fail => (&[1, 3], 2),
            Operation::End => (&[1, 3], 4),
            Operation::Prepare => (&[4, 5], 5),
            Operation::CommitOnePhase => (&[4, 6], 6),
            Operation::Commit => (&[5, 6], 6),
            Operation::CommitLocal => (&[5, 6, 1], 6),
            Operation::Rollback => (&[4, 3, 5, 2, 7], 7),
            Operation::RollbackLocal => (&[4, 3, 5, 2, 7, 1], 7),
        }
    }

    #[test]
    fn every_operation_is_allowed_from_exactly_the_states_of_the_protocol() {
        for operation in Operation::ALL {
            let (from, to) = allowed(operation);
            for state in State::ALL {
                let reached = next(state, operation).map(|state| state as u8);
                if from.contains(&(state as u8)) {
                    assert_eq!(reached, Ok(to), "{operation:?} from {state:?}");
                } else {
                    let text = reached.expect_err("refused").to_string();
                    assert!(text.starts_with(&format!("it is {state} and cannot be")), "{text}");
                }
            }
        }
    }

    #[test]
    fn states_have_the_numbers_of_the_protocol() {
        let numbers = State::ALL.map(|state| state as u8);
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
