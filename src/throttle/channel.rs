//! One channel's throttle: the newest state behind one pointer, and its digest in one word.
//!
//! Jobs ask the digest before every message; indications and ticks replace the state. Whatever
//! they do at the same time, the states form one line: each change is made from the state that was
//! current, and its digest is there when the call that made it returns.
//!
//! # Ordering
//! The state is a [`Snapshot`] and has its edge, S1; the digest has T1. The count of messages is
//! relaxed: it decides nothing but *when* the rule of the count fires, and a count seen late only
//! makes it fire later.

use std::time::Duration;

use crate::sync::{AtomicU64, CachePadded, Ordering, Snapshot};
use crate::throttle::digest::{Digest, NewestDigest};
use crate::throttle::state::Heard;
use crate::throttle::{ChannelSettings, StressPolicy, ThrottleState};

/// How hard one channel may press, for any number of threads.
///
/// Shape: an immutable [`ThrottleState`] that is replaced whole, a word with what jobs ask of it
/// (generation, depth, and a job limit up to 4094), and a count of messages.
#[derive(Debug)]
pub struct Throttle {
    policy: StressPolicy,
    state: Snapshot<ThrottleState>,
    digest: NewestDigest,
    /// On a cache line of its own: who counts must not slow down who asks.
    processed: CachePadded<AtomicU64>,
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
        let first = ThrottleState::new(channel);
        let digest = NewestDigest::new(&first);
        let processed = CachePadded::new(AtomicU64::new(0));
        Self { policy, state: Snapshot::new(first), digest, processed }
    }

    /// Runs `f` on the newest state. Costs a borrow of the pointer, about as much as a lock that
    /// nobody wants; [`admit`](Self::admit) and [`wanted`](Self::wanted) do without.
    #[inline]
    pub fn read<R>(&self, f: impl FnOnce(&ThrottleState) -> R) -> R {
        self.state.read(f)
    }

    /// A copy of the newest state.
    #[must_use]
    pub fn state(&self) -> ThrottleState {
        self.read(|state| *state)
    }

    /// Asked by a job of `generation` before each message. Costs one load of a word that is
    /// written only when the channel changes.
    ///
    /// A change counts from the return of the [`stress`](Self::stress) or [`tick`](Self::tick)
    /// that made it, at the latest. Who is told to leave finds the new state by
    /// [`state`](Self::state), and a job of that state's generation is never told to leave by an
    /// older one. A job that meets exactly a multiple of 2²⁵ changes during one message goes on.
    #[inline]
    pub fn admit(&self, generation: u64) -> Admission {
        if self.digest.look().is_of(generation) {
            Admission::GoOn
        } else {
            self.admit_by_state(generation)
        }
    }

    /// Jobs wanted for `backlog` waiting messages; see [`ThrottleState::wanted`]. Costs one load,
    /// or a [`read`](Self::read) if the job limit is over 4094.
    #[must_use]
    #[inline]
    pub fn wanted(&self, backlog: u64) -> u32 {
        let wanted = self.digest.look().wanted(backlog);
        wanted.unwrap_or_else(|| self.read(|state| state.wanted(backlog)))
    }

    /// Counts messages that jobs have processed.
    ///
    /// All jobs of the channel count in one place: one that counts several messages at a time, and
    /// the rest when it leaves, costs the others less. What a job has not counted yet delays the
    /// way back by the rule of the count, nothing else.
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
        self.follow(before.as_ref(), after.as_deref());
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
        self.follow(before.as_ref(), after.as_deref());
        after.map(|after| Change { before: *before, after: *after })
    }

    /// The digest and the job differ: the state decides. It may be newer than the digest, while
    /// another thread is about to write that, and the job may be one of the new.
    #[cold]
    #[inline(never)]
    fn admit_by_state(&self, generation: u64) -> Admission {
        self.read(
            |state| {
                if state.generation() == generation { Admission::GoOn } else { Admission::Leave }
            },
        )
    }

    fn follow(&self, before: &ThrottleState, after: Option<&ThrottleState>) {
        if after.is_some_and(|after| Digest::of(after) != Digest::of(before)) {
            self.digest.follow(&self.state);
        }
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
    fn jobs_wanted_and_admitted_are_those_of_the_state_after_every_change() {
        for limit in [7, 4094, 4095, 5000] {
            let channel = ChannelSettings::new(10, limit).unwrap();
            let throttle = Throttle::new(StressPolicy::default(), channel);
            for step in 0..100 {
                // Seven indications, then the way back.
                if step % 20 < 7 {
                    let _indication = throttle.stress(s(step * 60));
                } else {
                    throttle.tick(s(step * 60));
                }
                let state = throttle.state();
                for backlog in [0, 1, 99, 1 << 20, u64::MAX] {
                    assert_eq!(throttle.wanted(backlog), state.wanted(backlog), "{step}");
                }
                let generation = state.generation();
                assert_eq!(throttle.admit(generation), Admission::GoOn);
                for other in [generation.wrapping_sub(1), generation + 1] {
                    assert_eq!(throttle.admit(other), Admission::Leave);
                }
            }
            assert!(throttle.state().generation() > 20);
        }
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
