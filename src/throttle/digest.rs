//! What a job asks before every message, in one word beside the state.
//!
//! The state behind the [`Snapshot`] is the truth. The word is a digest of it, so that the hot path
//! is one plain load instead of a borrow of a counted pointer. Whoever changed the state brings the
//! word up to date before its call returns.
//!
//! ```text
//!  bit 63      39   38     27   26   0
//!     | generation | job limit | depth |
//! ```
//!
//! # Invariants
//! - The word is always the digest of a state that was current, and never goes back.
//! - When no change is under way it is the digest of the newest state.
//! - The generation is cut to its low 25 bits. Two generations look alike if they are a multiple
//!   of 33 554 432 changes apart: a job would have to spend all of them on one message.
//! - A job limit that does not fit is all ones: the snapshot has it. Every depth there is fits. The
//!   level is left out, no job asks for it.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | T1 | exchange of `follow` | `look` | the state in the snapshot, and what led to it | `who_reads_a_new_digest_finds_its_state` |
//!
//! The word does not go back although no generations are compared: `follow` looks at the word
//! *before* it reads the state. By T1 the state it reads is then no older than the one the word was
//! made from, and the exchange puts it in that word's place or fails. Comparing generations could
//! not tell old from new once they wrap; this can.

use crate::sync::{AtomicU64, CachePadded, Ordering, Snapshot, broken, edge};
use crate::throttle::state::{ThrottleState, wanted};

/// A state's generation, depth and job limit, packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn of(state: &ThrottleState) -> Self {
        let limit = u64::from(state.job_limit()).min(LIMIT_MASK);
        let generation = state.generation() << GENERATION_SHIFT;
        Self(generation | limit << LIMIT_SHIFT | u64::from(state.depth()))
    }

    /// Whether this is of `generation`, as far as 25 bits tell.
    pub(super) const fn is_of(self, generation: u64) -> bool {
        (self.0 ^ generation << GENERATION_SHIFT) >> GENERATION_SHIFT == 0
    }

    /// Jobs wanted for `backlog` messages; `None` if the job limit does not fit.
    pub(super) fn wanted(self, backlog: u64) -> Option<u32> {
        let limit = low_u32(self.0 >> LIMIT_SHIFT & LIMIT_MASK);
        let depth = low_u32(self.0 & DEPTH_MASK);
        (u64::from(limit) != LIMIT_MASK).then(|| wanted(backlog, depth, limit))
    }
}

/// The newest digest, for any number of threads.
#[derive(Debug)]
pub(super) struct NewestDigest {
    /// Alone on its cache line: it is read for every message, and written a few times an hour.
    word: CachePadded<AtomicU64>,
}

impl NewestDigest {
    pub(super) fn new(state: &ThrottleState) -> Self {
        Self { word: CachePadded::new(AtomicU64::new(Digest::of(state).0)) }
    }

    #[inline]
    pub(super) fn look(&self) -> Digest {
        // Acquire (T1): a state read after this is at least as new as the digest.
        let look = edge("digest.look", Ordering::Acquire, Ordering::Relaxed);
        Digest(self.word.load(look))
    }

    /// Brings the word up to date with `state`, where a change was just made.
    pub(super) fn follow(&self, state: &Snapshot<ThrottleState>) {
        let early = broken("digest.first").then(|| state.read(Digest::of));
        loop {
            // The word first, then the state, in every turn: see the file's text.
            let seen = self.look();
            let newest = early.unwrap_or_else(|| state.read(Digest::of));
            if newest == seen {
                return;
            }
            // Forbids that the digest of a newer state, put there since the look, is overwritten.
            // Success Release (T1): hands on the state that was just read. Failure Relaxed: the
            // next turn looks again. It looks after success too: should the word have come round
            // to the very value seen, by 2²⁵ changes, the state read was an old one after all.
            let success = edge("digest.exchange", Ordering::Release, Ordering::Relaxed);
            let failure = Ordering::Relaxed;
            let exchanged = self.word.compare_exchange(seen.0, newest.0, success, failure);
            if exchanged.is_err() && broken("digest.again") {
                return;
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "callers mask to fewer bits first")]
const fn low_u32(bits: u64) -> u32 {
    bits as u32
}

const DEPTH_MASK: u64 = (1 << LIMIT_SHIFT) - 1;
const LIMIT_SHIFT: u32 = 27;
/// Also the mark of a limit that does not fit: 4095 or more.
const LIMIT_MASK: u64 = (1 << (GENERATION_SHIFT - LIMIT_SHIFT)) - 1;
const GENERATION_SHIFT: u32 = 39;
const _: () = assert!(crate::throttle::policy::DEPTH_MOST as u64 <= DEPTH_MASK);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Digest, NewestDigest};
    use crate::sync::Snapshot;
    use crate::throttle::policy::DEPTH_MOST;
    use crate::throttle::state::ThrottleState;
    use crate::throttle::{ChannelSettings, StressPolicy};

    fn state(depth: u32, limit: u32) -> ThrottleState {
        ThrottleState::new(ChannelSettings::new(depth, limit).unwrap())
    }

    #[test]
    fn a_digest_wants_the_jobs_its_state_wants() {
        for depth in [1, 2, 10, DEPTH_MOST - 1, DEPTH_MOST] {
            for limit in [1, 7, 4093, 4094] {
                let state = state(depth, limit);
                for backlog in [0, 1, 10, 11, 40_930, 40_941, 1 << 40, u64::MAX] {
                    assert_eq!(Digest::of(&state).wanted(backlog), Some(state.wanted(backlog)));
                }
            }
        }
    }

    #[test]
    fn a_job_limit_that_does_not_fit_is_left_to_the_state() {
        for limit in [4095, 4096, 4097, u32::MAX] {
            let digest = Digest::of(&state(DEPTH_MOST, limit));
            assert_eq!(digest.wanted(1), None, "{limit}");
            assert!(digest.is_of(0), "{limit}");
        }
    }

    #[test]
    fn a_digest_tells_its_generation_from_all_but_every_33554432nd() {
        let policy = StressPolicy::default();
        let changed = state(10, 7).stress(&policy, Duration::ZERO, 0).0;
        let digest = Digest::of(&changed);
        assert!(digest.is_of(1));
        for bit in 0..25 {
            assert!(!digest.is_of(1 ^ 1 << bit), "{bit}");
        }
        assert!(digest.is_of(1 + (1 << 25)));
        assert!(!digest.is_of(1 << 25));
    }

    #[test]
    fn the_word_follows_the_state_also_over_the_wrap_of_the_generation() {
        let first = state(10, 7).with_generation((1 << 25) - 2);
        let newest = NewestDigest::new(&first);
        let states = Snapshot::new(first);
        for generation in (1 << 25) - 1..(1 << 25) + 2 {
            states.publish(first.with_generation(generation));
            assert!(newest.look().is_of(generation - 1));
            newest.follow(&states);
            assert!(newest.look().is_of(generation));
        }
    }
}
