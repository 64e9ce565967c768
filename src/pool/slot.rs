//! One connection's state word, and the steps it can take.
//!
//! ```text
//!  63    62..60  59..32       31..0
//! [shut][state] [usage count][generation]
//! ```
//!
//! ```text
//!            reserve                 opened                     release, last one, surplus
//!  [Empty] ----------> [Connecting] ---------> [Open, usage n] ------------------.
//!     ^                  |  ^  | failed          |  ^    | condemn                |
//!     |   the driver left|  |  v                 |  |    v                        v
//!     |             (usage 0) [Empty, gen+1]     |  '- [Retiring] <---------------'
//!     |                                 join, release  /   |  kept: no surplus after all
//!     '------------------------------------------------'   |
//!                 emptied: closed, generation + 1 <--------'
//! ```
//!
//! A session names its connection by slot and generation. So a connection that breaks takes all
//! its counts with it: its sessions find another generation (or no `Open`), and have nothing to
//! give back. In `Connecting` the usage count is 1 while somebody drives the attempt and 0 while
//! nobody does. `shut` is set once, by shutdown, and stays: nothing new happens to such a slot.
//!
//! `Open` is 0 and not shut, so among open words the higher half *is* the usage count, and any
//! other word is larger than every open one.
//!
//! # Invariants
//! - Only `Open` words that are not shut can be joined: a connection that is being closed is never
//!   handed out, because joining is an exchange of the whole word.
//! - Exactly one caller gets each of: the reserve of an empty slot, the condemnation of a
//!   generation, its retirement.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | P1 | `opened`, `kept` | `join` | the connection in its seat | `joined_connection_is_visible` |
//! | P2 | each `leave` | the `leave` that retires, `trim` | all use of the connection | `closed_once` |
//! | P3 | `emptied` | `reserve` | the seat is empty | `reopened_seat_is_empty` |
//! | P4 | `park` | `take_over` | the attempt in its seat | `attempt_is_handed_on` |
//!
//! Every change is a read-modify-write, so each edge holds through the release sequence of the
//! steps in between.

use crate::sync::{AtomicU64, Ordering, edge};

const GENERATION_BITS: u32 = 32;
const USAGE_BITS: u32 = 28;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;
const USAGE_ONE: u64 = 1 << GENERATION_BITS;
const USAGE_MASK: u64 = ((1 << USAGE_BITS) - 1) << GENERATION_BITS;
const STATE_SHIFT: u32 = GENERATION_BITS + USAGE_BITS;
const STATE_MASK: u64 = 0b111 << STATE_SHIFT;
const SHUT: u64 = 1 << 63;

/// Most sessions one connection can count.
const USAGE_MAX: u64 = (1 << USAGE_BITS) - 1;

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "inside the crate")]
pub enum State {
    /// A connection that sessions use, or none does.
    Open = 0,
    /// A connection in the making.
    Connecting = 1,
    /// Nothing.
    Empty = 2,
    /// A connection that is about to be closed.
    Retiring = 3,
}

/// A decoded view of a slot's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// The word of a slot that never held anything.
    pub const EMPTY: Self = Self::with(State::Empty, 0, 0);

    const fn with(state: State, usage: u64, rest: u64) -> Self {
        Self(((state as u64) << STATE_SHIFT) | (usage << GENERATION_BITS) | rest)
    }

    /// What the slot holds.
    #[must_use]
    pub const fn state(self) -> State {
        match (self.0 & STATE_MASK) >> STATE_SHIFT {
            0 => State::Open,
            1 => State::Connecting,
            2 => State::Empty,
            _ => State::Retiring,
        }
    }

    /// Sessions on the connection; in `Connecting`, 1 if somebody drives the attempt.
    #[must_use]
    pub const fn usage(self) -> u64 {
        (self.0 & USAGE_MASK) >> GENERATION_BITS
    }

    /// How often the slot has been emptied, modulo 2³².
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "masked to 32 bits")]
    pub const fn generation(self) -> u32 {
        (self.0 & GENERATION_MASK) as u32
    }

    /// Whether the pool was shut down.
    #[must_use]
    pub const fn is_shut(self) -> bool {
        self.0 & SHUT != 0
    }

    /// What orders words: the usage count of an open connection, more than any such for all others.
    #[inline]
    #[must_use]
    pub const fn rank(self) -> u64 {
        self.0 >> GENERATION_BITS
    }

    /// Whether the rank is that of an open connection which can take one more session.
    #[inline]
    #[must_use]
    pub const fn rank_is_joinable(rank: u64) -> bool {
        rank < USAGE_MAX
    }

    /// Whether an attempt lies here that nobody drives.
    #[must_use]
    pub const fn is_dormant(self) -> bool {
        self.rank() == Self::with(State::Connecting, 0, 0).rank()
    }

    /// Whether a new connection can be made here.
    #[must_use]
    pub const fn is_vacant(self) -> bool {
        self.rank() == Self::EMPTY.rank()
    }

    const fn to_state(self, state: State, usage: u64) -> Self {
        Self::with(state, usage, self.0 & (SHUT | GENERATION_MASK))
    }

    /// A word that ranks above every other.
    pub const WORST: Self = Self(u64::MAX);

    /// Empty, under the next generation.
    const fn emptied(self) -> Self {
        let next = (self.0 & GENERATION_MASK).wrapping_add(1) & GENERATION_MASK;
        Self::with(State::Empty, 0, (self.0 & SHUT) | next)
    }
}

/// What a leaving session has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "`Retired` must be closed or kept"]
#[allow(clippy::exhaustive_enums, reason = "inside the crate")]
pub enum Left {
    /// Nothing: it stays open, with so many sessions.
    Stays(u64),
    /// The connection was condemned before; its counts went with it.
    Stale,
    /// The caller was the last one and now owns the connection.
    Retired,
}

/// What became of an attempt's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "`Shut` leaves what was made to the caller"]
#[allow(clippy::exhaustive_enums, reason = "inside the crate")]
pub enum Settled {
    /// As wished.
    Done,
    /// The pool was shut down meanwhile: the slot is `Retiring`, the caller owns what is in it.
    Shut,
}

/// Whether a last user's connection should leave the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "inside the crate")]
pub enum Surplus {
    /// More connections are open than the minimum.
    Yes,
    /// The minimum is not exceeded.
    No,
}

/// One connection's state word.
#[derive(Debug)]
pub struct Slot {
    word: AtomicU64,
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}

impl Slot {
    /// An empty slot.
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(Word::EMPTY.0) }
    }

    /// The word, as a guess: whoever acts on it makes sure by an exchange.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Word {
        // Relaxed: a guess or a statistic; every step below checks it by its exchange.
        Word(self.word.load(Ordering::Relaxed))
    }

    /// The word, for the second look of a scan that proposed a floor.
    #[inline]
    #[must_use]
    pub fn look_again(&self) -> Word {
        // SeqCst (F2 of `floor.rs`): this look against the proposal before it.
        Word(self.word.load(Ordering::SeqCst))
    }

    /// Whether the connection of `generation` can still be used by those who hold it.
    #[inline]
    #[must_use]
    pub fn is_current(&self, generation: u32) -> bool {
        // Relaxed: the caller holds a count, which gave it P1 already; that its generation went
        // is decided under the turn, whose edge (T1, T2) brings the newer word.
        let word = Word(self.word.load(Ordering::Relaxed));
        word.state() == State::Open && word.generation() == generation
    }

    /// Adds a session to the open connection seen as `seen`. `false` if the word changed.
    #[inline]
    #[must_use]
    pub fn join(&self, seen: Word) -> bool {
        debug_assert!(Word::rank_is_joinable(seen.rank()));
        // Forbids that a connection is retired, condemned or shut between choice and reservation:
        // any of these changes the word. Acquire (P1): the connection in its seat. Failure
        // Relaxed: the caller scans again.
        self.word
            .compare_exchange(
                seen.0,
                seen.0 + USAGE_ONE,
                edge("slot.join", Ordering::Acquire, Ordering::Relaxed),
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Claims the empty slot seen as `seen` for an attempt. `false` if the word changed.
    #[must_use]
    pub fn reserve(&self, seen: Word) -> bool {
        debug_assert!(seen.is_vacant());
        // Forbids two attempts in one slot. Acquire (P3): the seat's last owner is gone.
        self.exchange(
            seen,
            seen.to_state(State::Connecting, 1),
            edge("slot.reserve", Ordering::Acquire, Ordering::Relaxed),
        )
    }

    /// Goes on with the attempt nobody drives, seen as `seen`. `false` if the word changed.
    #[must_use]
    pub fn take_over(&self, seen: Word) -> bool {
        debug_assert!(seen.is_dormant());
        // Forbids two drivers. Acquire (P4): the attempt as its last driver left it.
        self.exchange(
            seen,
            seen.to_state(State::Connecting, 1),
            edge("slot.take_over", Ordering::Acquire, Ordering::Relaxed),
        )
    }

    /// Driver: the connection is in the seat; open it, with `usage` sessions from the start.
    pub fn opened(&self, usage: u64) -> Settled {
        // Release (P1): the connection is in its seat before anybody can join.
        self.settle(
            State::Connecting,
            |word| word.to_state(State::Open, usage),
            edge("slot.opened", Ordering::Release, Ordering::Relaxed),
        )
    }

    /// Driver: leave the attempt in the seat for somebody else.
    pub fn park(&self) -> Settled {
        // Release (P4): the attempt is as this driver left it.
        self.settle(
            State::Connecting,
            |word| word.to_state(State::Connecting, 0),
            edge("slot.park", Ordering::Release, Ordering::Relaxed),
        )
    }

    /// Owner of a retired connection: keep it open without a user after all.
    pub fn kept(&self) -> Settled {
        // Release (P1): as for `opened`; the use before it reaches the next joiner through P2.
        self.settle(State::Retiring, |word| word.to_state(State::Open, 0), Ordering::Release)
    }

    /// Takes a session off the connection of `generation`.
    #[inline]
    pub fn leave(&self, generation: u32, surplus: Surplus) -> Left {
        // Relaxed: a first guess, checked by the exchange.
        let mut seen = Word(self.word.load(Ordering::Relaxed));
        loop {
            if seen.state() != State::Open || seen.generation() != generation {
                return Left::Stale;
            }
            debug_assert!(seen.usage() > 0, "a session left that was not counted");
            let retires = seen.usage() == 1 && (surplus == Surplus::Yes || seen.is_shut());
            let next =
                if retires { seen.to_state(State::Retiring, 0).0 } else { seen.0 - USAGE_ONE };
            // Forbids that somebody joins between the last one's leaving and the retirement, and
            // that a count is taken off another generation. Release (P2): this session's use of
            // the connection. Acquire (P2), of use to the one who retires: everybody else's. SeqCst
            // for F2 of `floor.rs`: the leaving session looks at the floor next.
            let order = edge("slot.leave", Ordering::SeqCst, Ordering::Relaxed);
            match self.word.compare_exchange_weak(seen.0, next, order, Ordering::Relaxed) {
                Ok(_) if retires => return Left::Retired,
                Ok(_) => return Left::Stays(Word(next).usage()),
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Takes a broken connection away from all its sessions; the caller owns it if it gets their
    /// number. `None` if somebody did so before.
    #[must_use]
    pub fn condemn(&self, generation: u32) -> Option<u64> {
        // Relaxed: a first guess, checked by the exchange.
        let mut seen = Word(self.word.load(Ordering::Relaxed));
        loop {
            if seen.state() != State::Open || seen.generation() != generation {
                return None;
            }
            let next = seen.to_state(State::Retiring, 0);
            // Forbids that a session joins a condemned connection, and that two take it away.
            // AcqRel: the caller has the connection's turn, whose edges carry its use; this only
            // keeps the release sequence of P2 whole.
            match self.word.compare_exchange_weak(
                seen.0,
                next.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(seen.usage()),
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Owner of a retired connection, or driver of a failed attempt: the seat is empty.
    pub fn emptied(&self) {
        // Relaxed: a first guess; only shutdown can change this word besides the owner.
        let mut seen = Word(self.word.load(Ordering::Relaxed));
        loop {
            debug_assert!(matches!(seen.state(), State::Retiring | State::Connecting));
            // Release (P3): the seat is empty before somebody reserves it.
            match self.word.compare_exchange_weak(
                seen.0,
                seen.emptied().0,
                edge("slot.emptied", Ordering::Release, Ordering::Relaxed),
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = Word(now),
            }
        }
    }

    /// Shutdown: nothing new happens here from now on. `true` if what is in the seat (an open
    /// connection without a user, an attempt nobody drives) is the caller's to close.
    #[must_use]
    pub fn shut(&self) -> bool {
        // Relaxed: whoever changes the word next sees the bit, since all changes are exchanges.
        let mut seen = Word(self.word.fetch_or(SHUT, Ordering::Relaxed) | SHUT);
        loop {
            let unused =
                matches!(seen.state(), State::Open | State::Connecting) && seen.usage() == 0;
            if !unused {
                return false;
            }
            // Forbids that two shutdowns close it. Acquire (P2, P4): its use, or the attempt.
            match self.word.compare_exchange_weak(
                seen.0,
                seen.to_state(State::Retiring, 0).0,
                edge("slot.shut", Ordering::Acquire, Ordering::Relaxed),
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => seen = Word(now),
            }
        }
    }

    fn exchange(&self, seen: Word, next: Word, success: Ordering) -> bool {
        // The callers name the edge. Failure Relaxed: they look again.
        self.word.compare_exchange(seen.0, next.0, success, Ordering::Relaxed).is_ok()
    }

    /// A step of the one who owns the slot in `from`; only shutdown can come in between.
    fn settle(&self, from: State, step: impl Fn(Word) -> Word, success: Ordering) -> Settled {
        // Relaxed: a first guess, checked by the exchange.
        let mut seen = Word(self.word.load(Ordering::Relaxed));
        loop {
            debug_assert_eq!(seen.state(), from);
            let (next, settled) = if seen.is_shut() {
                (seen.to_state(State::Retiring, 0), Settled::Shut)
            } else {
                (step(seen), Settled::Done)
            };
            // Forbids that the owner opens a slot after shutdown looked at it: one of the two
            // sees the other's step. The callers name the edge.
            match self.word.compare_exchange_weak(seen.0, next.0, success, Ordering::Relaxed) {
                Ok(_) => return settled,
                Err(now) => seen = Word(now),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Left, Settled, Slot, State, Surplus, USAGE_MAX, Word};

    fn open(usage: u64) -> Slot {
        let slot = Slot::new();
        assert!(slot.reserve(slot.peek()));
        assert_eq!(slot.opened(usage), Settled::Done);
        slot
    }

    #[test]
    fn fields_do_not_overlap() {
        let word = Word::with(State::Retiring, USAGE_MAX, u64::from(u32::MAX));
        assert_eq!(word.state(), State::Retiring);
        assert_eq!(word.usage(), USAGE_MAX);
        assert_eq!(word.generation(), u32::MAX);
        assert!(!word.is_shut());
        assert_eq!(word.emptied().generation(), 0);
        assert_eq!(word.emptied().state(), State::Empty);
    }

    #[test]
    fn every_open_word_ranks_below_every_other() {
        let busiest = Word::with(State::Open, USAGE_MAX, 0);
        for state in [State::Connecting, State::Empty, State::Retiring] {
            assert!(busiest.rank() < Word::with(state, 0, 0).rank());
            assert!(!Word::rank_is_joinable(Word::with(state, 0, 0).rank()));
        }
        assert!(!Word::rank_is_joinable(busiest.rank()));
        assert!(!Word::rank_is_joinable(Word::with(State::Open, 0, super::SHUT).rank()));
        assert!(Word::rank_is_joinable(Word::with(State::Open, USAGE_MAX - 1, 7).rank()));
    }

    #[test]
    fn last_one_retires_only_with_a_surplus() {
        let slot = open(2);
        assert_eq!(slot.leave(0, Surplus::Yes), Left::Stays(1));
        assert_eq!(slot.leave(0, Surplus::No), Left::Stays(0));
        assert_eq!(slot.peek().rank(), 0);
        assert!(slot.join(slot.peek()));
        assert_eq!(slot.leave(0, Surplus::Yes), Left::Retired);
        assert!(!Word::rank_is_joinable(slot.peek().rank()));
        slot.emptied();
        assert_eq!(slot.peek().generation(), 1);
        assert!(slot.peek().is_vacant());
    }

    #[test]
    fn a_condemned_generation_has_no_counts_to_give_back() {
        let slot = open(3);
        assert_eq!(slot.condemn(0), Some(3));
        assert_eq!(slot.condemn(0), None);
        assert_eq!(slot.leave(0, Surplus::No), Left::Stale);
        slot.emptied();
        assert!(slot.reserve(slot.peek()));
        assert_eq!(slot.opened(1), Settled::Done);
        assert_eq!(slot.leave(0, Surplus::No), Left::Stale);
        assert_eq!(slot.peek().usage(), 1);
        assert!(slot.is_current(1) && !slot.is_current(0));
    }

    #[test]
    fn shutdown_leaves_used_slots_to_their_users() {
        let used = open(1);
        assert!(!used.shut());
        assert!(used.is_current(0));
        assert_eq!(used.leave(0, Surplus::No), Left::Retired);
        used.emptied();
        assert!(!used.peek().is_vacant() && !used.shut());

        let unused = open(0);
        assert!(unused.shut());
        assert!(!unused.shut());

        let driven = Slot::new();
        assert!(driven.reserve(driven.peek()));
        assert!(!driven.shut());
        assert_eq!(driven.opened(1), Settled::Shut);
        assert_eq!(driven.peek().state(), State::Retiring);
    }

    #[test]
    fn an_attempt_changes_drivers() {
        let slot = Slot::new();
        assert!(slot.reserve(slot.peek()));
        assert!(!slot.peek().is_dormant());
        assert_eq!(slot.park(), Settled::Done);
        let seen = slot.peek();
        assert!(seen.is_dormant());
        assert!(slot.take_over(seen) && !slot.take_over(seen));
        slot.emptied();
        assert_eq!(slot.peek().generation(), 1);
    }
}
