//! One channel's throttle: the newest state behind one pointer.
//!
//! Jobs read it before every message; indications and ticks replace it. Whatever they do at the
//! same time, the states form one line: each change is made from the state that was current.
//!
//! # Ordering
//! The state is a [`Snapshot`] and has its edge, S1. The count of messages is relaxed: it decides
//! nothing but *when* the rule of the count fires, and a count seen late only makes it fire later.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering, Snapshot};
use crate::throttle::state::Heard;
use crate::throttle::{ChannelSettings, StressPolicy, ThrottleState};

/// How hard one channel may press, for any number of threads.
///
/// Shape: an immutable [`ThrottleState`] that is replaced whole, and a count of messages.
#[derive(Debug)]
pub struct Throttle {
    policy: StressPolicy,
    state: Snapshot<ThrottleState>,
    processed: AtomicU64,
}

/// What a job does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a job that was told to leave takes no further message"]
#[allow(clippy::exhaustive_enums, reason = "a job must handle both")]
pub enum Admission {
    /// Take the next message.
    GoOn,
    /// The channel changed since this job started: leave. The controller starts as many as fit.
    Leave,
}

/// A change of depth or limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The state it was made from.
    pub before: ThrottleState,
    /// The state it made.
    pub after: ThrottleState,
}

/// What became of an indication of stress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Indication {
    /// It came within the blackout; remembered, because quiet means none at all.
    Ignored,
    /// It was heard, but depth and limit are already as far as they go.
    Held,
    /// The channel was throttled further.
    Raised(Change),
}

impl Throttle {
    /// A channel that was never stressed.
    #[must_use]
    pub fn new(policy: StressPolicy, channel: ChannelSettings) -> Self {
        let state = Snapshot::new(ThrottleState::new(channel));
        Self { policy, state, processed: AtomicU64::new(0) }
    }

    /// Runs `f` on the newest state. Costs one load.
    #[inline]
    pub fn read<R>(&self, f: impl FnOnce(&ThrottleState) -> R) -> R {
        self.state.read(f)
    }

    /// A copy of the newest state.
    #[must_use]
    pub fn state(&self) -> ThrottleState {
        self.read(|state| *state)
    }

    /// Asked by a job of `generation` before each message. Costs one load.
    #[inline]
    pub fn admit(&self, generation: u64) -> Admission {
        self.read(
            |state| {
                if state.generation() == generation { Admission::GoOn } else { Admission::Leave }
            },
        )
    }

    /// Jobs wanted for `backlog` waiting messages; see [`ThrottleState::wanted`].
    #[must_use]
    pub fn wanted(&self, backlog: u64) -> u32 {
        self.read(|state| state.wanted(backlog))
    }

    /// Counts messages that jobs have processed.
    pub fn processed(&self, messages: u64) {
        // Relaxed: see the file's text.
        self.processed.fetch_add(messages, Ordering::Relaxed);
    }

    /// The store is stressed, a job says at `now`.
    pub fn stress(&self, now: Duration) -> Indication {
        let processed = self.processed_now();
        let (before, after) = self.state.update(|state| {
            let (next, _) = state.stress(&self.policy, now, processed);
            (next != *state).then_some(next)
        });
        let (_, heard) = before.stress(&self.policy, now, processed);
        match (heard, after) {
            (Heard::Raised, Some(after)) => {
                Indication::Raised(Change { before: *before, after: *after })
            }
            (Heard::Ignored, _) => Indication::Ignored,
            (Heard::Held | Heard::Raised, _) => Indication::Held,
        }
    }

    /// Takes the steps back that are due at `now`. To be called now and then, about once a second.
    pub fn tick(&self, now: Duration) -> Option<Change> {
        let processed = self.processed_now();
        let (before, after) = self.state.update(|state| state.tick(&self.policy, now, processed));
        after.map(|after| Change { before: *before, after: *after })
    }

    fn processed_now(&self) -> u64 {
        // Relaxed: see the file's text.
        self.processed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Admission, Change, Indication, Throttle};
    use crate::throttle::{ChannelSettings, StressPolicy};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_job_leaves_when_the_channel_changed_either_way() {
        let throttle = Throttle::new(StressPolicy::default(), ChannelSettings::new(10, 7).unwrap());
        assert_eq!(throttle.admit(0), Admission::GoOn);
        assert!(matches!(throttle.stress(s(0)), Indication::Raised(Change { after, .. })
            if after.generation() == 1));
        assert_eq!(throttle.admit(0), Admission::Leave);
        assert_eq!(throttle.stress(s(1)), Indication::Ignored);
        assert_eq!(throttle.admit(1), Admission::GoOn);
        assert_eq!(throttle.tick(s(119)), None);
        let change = throttle.tick(s(120)).unwrap();
        assert_eq!((change.before.depth(), change.after.depth()), (50, 10));
        assert_eq!(throttle.admit(1), Admission::Leave);
    }

    #[test]
    fn processed_messages_bring_the_channel_back_after_quiet() {
        let throttle = Throttle::new(StressPolicy::default(), ChannelSettings::new(10, 7).unwrap());
        for now in [0, 60] {
            assert!(matches!(throttle.stress(s(now)), Indication::Raised(_)));
        }
        assert!(throttle.tick(s(180)).is_some());
        throttle.processed(9_999);
        assert_eq!(throttle.tick(s(181)), None);
        throttle.processed(1);
        assert!(throttle.tick(s(181)).is_some());
        assert_eq!(throttle.state().level(), 0);
    }
}
