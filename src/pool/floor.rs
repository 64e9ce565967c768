//! The lowest usage count that a connection can have now, so that a session whose last connection
//! has no more than that need not look at all the others.
//!
//! ```text
//!  63         32   31            30..0
//! [ version    ][provisional][ floor, 0 = unknown ]
//! ```
//!
//! A scan that saw no connection with fewer than *n* sessions (and no room for a new one)
//! proposes *n* as the floor, provisionally; looks over all slots again; and only then confirms
//! it. Whoever makes a connection available below the floor clears it. So the two either meet in
//! this word, or the second look sees what was made available.
//!
//! # Invariants
//! - A confirmed floor is no higher than any joinable connection's usage count, and there is no
//!   room for a new connection; except for what a session on its way out is just about to clear.
//! - Only the proposer of a version confirms it, and only if nobody cleared it since.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | F1 | `clear` | `propose` | the slot that became available | `floor_is_never_too_high` |
//! | F2 | exchange of the slot, look at the floor | `propose`, second look at the slots | one of the two sees the other | `floor_is_never_too_high` |
//!
//! F2 is about two locations, a slot and the floor: each side changes its own and looks at the
//! other's. All four accesses are `SeqCst`, and so is the order they need.

use crate::sync::{AtomicU64, Ordering, broken, order_edge};

const VERSION_ONE: u64 = 1 << 32;
const VERSION_MASK: u64 = !(VERSION_ONE - 1);
const PROVISIONAL: u64 = 1 << 31;
const FLOOR_MASK: u64 = PROVISIONAL - 1;

/// See the file's text.
#[derive(Debug)]
pub(crate) struct Floor {
    word: AtomicU64,
}

/// A floor that was proposed and can be confirmed.
#[derive(Debug)]
#[must_use = "a proposal does nothing until it is confirmed"]
pub(crate) struct Proposal {
    word: u64,
}

impl Floor {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// Whether a connection with `usage` sessions is among those with the fewest, for certain.
    #[inline]
    pub(crate) fn is_lowest(&self, usage: u64) -> bool {
        usage <= self.confirmed()
    }

    /// The confirmed floor; 0 if there is none.
    #[inline]
    pub(crate) fn confirmed(&self) -> u64 {
        // Relaxed: only the value counts. Whoever comes after a clear by any order of events sees
        // it, and a floor that was confirmed since.
        let word = self.word.load(Ordering::Relaxed);
        if word & PROVISIONAL == 0 { word & FLOOR_MASK } else { 0 }
    }

    /// The word to propose from, read before the first look at the slots.
    #[inline]
    pub(crate) fn before_scan(&self) -> u64 {
        // Relaxed: a guess, checked by the exchange of `propose`.
        self.word.load(Ordering::Relaxed)
    }

    /// Proposes `usage` after a first look that began at `before`. The caller looks again.
    pub(crate) fn propose(&self, before: u64, usage: u64) -> Option<Proposal> {
        if usage == 0 || usage > FLOOR_MASK || before & FLOOR_MASK == usage {
            return None;
        }
        let word = (before & VERSION_MASK).wrapping_add(VERSION_ONE) | PROVISIONAL | usage;
        // Forbids two proposals from one version, so that nobody confirms another's. SeqCst (F2),
        // its acquire half is F1: who cleared before this has its slot seen by the second look.
        // No canary breaks this one: in a model the fence below does the same.
        self.word.compare_exchange(before, word, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        order_edge("floor.second_look");
        Some(Proposal { word })
    }

    /// Confirms a proposal, after a second look that found nothing below it.
    pub(crate) fn confirm(&self, proposal: &Proposal) {
        let confirmed = proposal.word & !PROVISIONAL;
        // Forbids that a floor is confirmed which somebody cleared since it was proposed. Relaxed:
        // only the value counts. If it fails, it was cleared, which is what should be.
        let _cleared = self.word.compare_exchange(
            proposal.word,
            confirmed,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// A session left its connection, by a `SeqCst` exchange just before, and `usage` are left.
    #[inline]
    pub(crate) fn left(&self, usage: u64) {
        order_edge("floor.left");
        // SeqCst (F2): this look against the exchange of the slot before it. A provisional floor
        // counts as higher than any.
        let word = self.word.load(Ordering::SeqCst);
        if word & (PROVISIONAL | FLOOR_MASK) > usage {
            self.clear();
        }
    }

    /// A connection became available that nobody counted on: a new one, or room for one.
    pub(crate) fn clear(&self) {
        if broken("floor.clear") {
            return;
        }
        // Release (F1): the slot that became available. Acquire keeps clears in one order. The
        // version stays: a proposal from before can not be confirmed, nor made any more.
        self.word.fetch_and(VERSION_MASK, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::Floor;

    fn confirmed(usage: u64) -> Floor {
        let floor = Floor::new();
        let proposal = floor.propose(floor.before_scan(), usage).unwrap();
        assert_eq!(floor.confirmed(), 0, "not before the second look");
        floor.confirm(&proposal);
        assert_eq!(floor.confirmed(), usage);
        floor
    }

    #[test]
    fn a_confirmed_floor_lasts_until_something_lies_below_it() {
        let floor = confirmed(9);
        assert!(floor.is_lowest(9) && floor.is_lowest(3) && !floor.is_lowest(10));
        floor.left(10);
        floor.left(9);
        assert_eq!(floor.confirmed(), 9);
        floor.left(8);
        assert_eq!(floor.confirmed(), 0);
        assert!(!floor.is_lowest(1) && floor.is_lowest(0));
    }

    #[test]
    fn a_proposal_that_was_cleared_is_not_confirmed() {
        let floor = Floor::new();
        let before = floor.before_scan();
        let proposal = floor.propose(before, 5).unwrap();
        floor.left(7); // Any departure clears a provisional floor.
        floor.confirm(&proposal);
        assert_eq!(floor.confirmed(), 0);
        assert!(floor.propose(before, 5).is_none(), "its first look is too old");
        assert!(floor.propose(floor.before_scan(), 5).is_some());
    }

    #[test]
    fn what_is_no_news_or_does_not_fit_is_not_proposed() {
        let floor = confirmed(2);
        let before = floor.before_scan();
        for usage in [0, 2, 1 << 31] {
            assert!(floor.propose(before, usage).is_none());
        }
    }
}
