//! What a loop does when there is nothing to do.

use std::time::Duration;

/// How a loop waits. Waking a sleeping core costs several times a whole turn of the loop, so a
/// short wait is better spun away. Every spin yields: with more threads than cores one that does
/// not would keep the awaited answer from being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// Sleep at once.
    Park,
    /// Spin for so long while a peer owes the answer to a packet that paused a lane, then sleep.
    SpinWhileAnswerDue(Duration),
    /// Spin for so long after every turn that did something, then sleep.
    SpinThenPark(Duration),
    /// Never sleep.
    Spin,
}

impl Default for Idle {
    /// Spins up to 50 µs while an answer is due.
    fn default() -> Self {
        Self::SpinWhileAnswerDue(Duration::from_micros(50))
    }
}

impl Idle {
    /// How long to spin after a turn that did something; `None` is for ever.
    pub(super) fn spin(self, answer_due: bool) -> Option<Duration> {
        match self {
            Self::Park => Some(Duration::ZERO),
            Self::SpinWhileAnswerDue(limit) => {
                Some(if answer_due { limit } else { Duration::ZERO })
            }
            Self::SpinThenPark(limit) => Some(limit),
            Self::Spin => None,
        }
    }
}
