//! The credit a receiver has left, on the side that sends.
//!
//! Every thread that dispatches takes from the same window, so all of it is one word and each
//! change one compare-exchange. Who takes the last credit marks that packet (flag C) and closes
//! the window; a resume replaces it. A credit whose packet was never sent can be given back.
//!
//! ```text
//!  bit 63      49   48   47            24 23             0
//!     | generation | shut | bytes left / 64 | messages left |
//!
//!        try_take: more left                  try_take: the last, marked
//!       .-------------------.                .--------------------------.
//!       v                   |                |                          v
//!     [open] ---------------'----------------'                       [shut]
//!       ^                                                               |
//!       '---- resume: replaced, generation + 1 -------------------------|
//!       '---- give_back of the last: its packet was never sent ---------'
//! ```
//!
//! # Invariants
//! - Granted = taken − given back + left, for messages and for bytes, in each generation.
//! - One packet at a time carries the mark; while it is out, nothing is taken.
//! - A field that is all ones is unlimited and stays so.
//! - The common steps, one credit off or back while neither side is near an end, are an addition to
//!   the packed word; whether that is all they are is one look at its fields.
//!
//! # Cost
//! One load and one compare-exchange for each step. A `fetch_sub` would save the load, and cannot
//! be had: a taker that finds the window shut, or a giver that finds it replaced, would already have
//! changed a word that is not its to change, and others could act on it before it is put right.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | W1 | `resume`, `give_back`, `lower` | look of `try_take` | what led to the new credit | `new_credit_brings_what_led_to_it` |
//! | W2 | `try_take`, `give_back` | `resume`, `give_back` | what the takers did before | `resumer_sees_the_takers_work` |
//!
//! # Source
//! The wire protocol, consumer credit: a RESUME replaces the window, it does not add to it.

use crate::flow::Credit;
use crate::sync::{AtomicU32, AtomicU64, CachePadded, Ordering, edge, sized, spin};

/// Credit of one consumer, shared by every thread that dispatches to it.
///
/// Shape: messages left (1 … 16 777 214, or unlimited), bytes left in steps of 64 (up to 1 GiB,
/// or unlimited), whether the last one is out, and a generation. Larger sizes are lowered to the
/// largest; the receiver then only asks for more a little earlier.
///
/// Also the credit of one producer, on the client's side, where a size of 0 makes a window that is
/// paused from the start.
#[derive(Debug)]
pub struct Window {
    /// Alone on its cache line: what lies beside the window is read while this is written.
    word: CachePadded<AtomicU64>,
    /// Byte budget of the next window, in units. A setting: it guards nothing.
    budget_units: AtomicU32,
}

/// One credit that was taken.
///
/// Plain data: dropping it does nothing, and the credit counts as used. If its packet is not sent
/// after all, hand it to [`Window::give_back`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    generation: u16,
    units: u32,
    last: bool,
}

impl Taken {
    /// Whether this was the last credit: its packet carries the mark.
    #[must_use]
    pub const fn last(&self) -> bool {
        self.last
    }

    /// Which window the credit came from; a number that changes with each resume.
    #[must_use]
    pub const fn generation(&self) -> u16 {
        self.generation
    }
}

/// What a change of the window did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "whoever opened a paused window must restart its dispatch, nobody else will"]
pub struct Resumed {
    /// The window was paused, this call opened it, and the caller restarts dispatch.
    pub was_paused: bool,
}

impl Window {
    /// A window of `size` messages without a byte budget.
    #[must_use]
    pub fn new(size: Credit) -> Self {
        Self::build(size, FIELD)
    }

    /// A window of `size` messages and, beside them, `bytes`; it is used up with either.
    ///
    /// A packet may start as long as anything of the budget is left, so that one larger than the
    /// whole budget still gets through, alone: at most `bytes` and one packet are ever out.
    #[must_use]
    pub fn with_bytes(size: Credit, bytes: u64) -> Self {
        Self::build(size, units(bytes).max(1))
    }

    fn build(size: Credit, budget: u32) -> Self {
        let word = Word::granted(size, budget, 0);
        let word = CachePadded::new(AtomicU64::new(word.pack()));
        Self { word, budget_units: AtomicU32::new(budget) }
    }

    /// Takes one message's credit, or `None` if the window is paused.
    #[inline]
    pub fn try_take(&self) -> Option<Taken> {
        self.try_take_sized(0)
    }

    /// Takes the credit of one message of `bytes` bytes, or `None` if the window is paused.
    #[inline]
    pub fn try_take_sized(&self, bytes: u64) -> Option<Taken> {
        let wanted = units(bytes);
        // Acquire (W1): the credit seen here may be a new one.
        let look = edge("window.look", Ordering::Acquire, Ordering::Relaxed);
        let mut seen = self.word.load(look);
        let mut lost = 0;
        loop {
            let (next, taken) = match take_from_the_middle(seen, wanted) {
                Some(simple) => simple,
                None => take_by_the_rule(seen, wanted)?,
            };
            if next == seen {
                // Unlimited: nothing to count.
                return Some(taken);
            }
            // Forbids that two threads take the same credit, or that one takes from a window
            // that was replaced since the look: either would send more than was granted.
            // Success Release (W2); its own acquire half was done by the look, which read this
            // very value. Failure Relaxed: a new look follows.
            let take = edge("window.take", Ordering::Release, Ordering::Relaxed);
            match self.word.compare_exchange_weak(seen, next, take, Ordering::Relaxed) {
                Ok(_) => return Some(taken),
                Err(_) => {
                    let_the_winner_go_on(&mut lost);
                    seen = self.word.load(look);
                }
            }
        }
    }

    /// Gives back a credit whose packet was never sent.
    ///
    /// Ignored if the window was replaced since. If it was the last credit, the window is open
    /// again and the next last packet carries the mark.
    #[inline]
    pub fn give_back(&self, taken: Taken) -> Resumed {
        self.change(|seen| match give_to_the_middle(seen, taken) {
            Some(next) => Some(next),
            None => give_by_the_rule(seen, taken),
        })
    }

    /// Replaces the window by one of `size` messages and the full byte budget.
    pub fn resume(&self, size: Credit) -> Resumed {
        // Relaxed: a setting; whichever value this resume finds is a valid one.
        let budget = self.budget_units.load(Ordering::Relaxed);
        self.change(|seen| {
            let generation = Word::unpack(seen).generation.wrapping_add(1);
            Some(Word::granted(size, budget, generation).pack())
        })
    }

    /// Lowers an open window to at most `limit` messages, at once; for a limit that an
    /// administrator changed. At least one credit stays, to carry the mark.
    ///
    /// A limit that was raised needs nothing here: it counts from the next [`resume`](Self::resume)
    /// on, since the receiver has not asked for more. Credits taken before cannot be given back.
    pub fn lower(&self, limit: Credit) {
        let Credit::Limited(limit) = limit else { return };
        let _never_opens = self.change(|seen| Word::unpack(seen).lower(limit).map(Word::pack));
    }

    /// Changes the byte budget, from the next resume on. `None` lifts it.
    pub fn set_bytes(&self, bytes: Option<u64>) {
        let budget = bytes.map_or(FIELD, |bytes| units(bytes).max(1));
        // Relaxed: a setting, see `resume`.
        self.budget_units.store(budget, Ordering::Relaxed);
    }

    /// Whether nothing can be taken until the next resume.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.now().shut
    }

    /// Messages that may still be taken; `None` is unlimited. For metrics.
    #[must_use]
    pub fn left(&self) -> Option<u32> {
        let word = self.now();
        if word.shut { Some(0) } else { (word.messages != FIELD).then_some(word.messages) }
    }

    /// Bytes that may still be taken, rounded up to 64; `None` is unlimited. For metrics.
    #[must_use]
    pub fn left_bytes(&self) -> Option<u64> {
        let word = self.now();
        (word.units != FIELD).then_some(u64::from(word.units) * UNIT_BYTES)
    }

    fn now(&self) -> Word {
        // Relaxed: a statistic, or a guess that the caller follows up with `try_take`.
        Word::unpack(self.word.load(Ordering::Relaxed))
    }

    /// Applies `next` (`None` = leave it) and says whether that opened a paused window.
    #[inline]
    fn change(&self, next: impl Fn(u64) -> Option<u64>) -> Resumed {
        // Relaxed: a guess, checked by the exchange; nothing else is read before it.
        let mut seen = self.word.load(Ordering::Relaxed);
        let mut lost = 0;
        loop {
            let Some(next) = next(seen) else { return Resumed { was_paused: false } };
            // Forbids that two resumers both learn that the window was paused, and that a taker
            // or giver in between is overwritten: the exchange replaces exactly what was judged.
            // Success AcqRel: Release (W1) hands on what led to the new credit; Acquire (W2): a
            // caller that restarts dispatch sees what the takers did. Failure Relaxed: a guess.
            let success = edge("window.change", Ordering::AcqRel, Ordering::Relaxed);
            let failure = Ordering::Relaxed;
            match self.word.compare_exchange_weak(seen, next, success, failure) {
                Ok(_) => return Resumed { was_paused: seen & !next & SHUT != 0 },
                Err(_) => {
                    let_the_winner_go_on(&mut lost);
                    // Relaxed: a guess, as above.
                    seen = self.word.load(Ordering::Relaxed);
                }
            }
        }
    }
}

/// Waits a moment after an exchange that another thread won; the caller then looks again.
///
/// The winner has the word in its cache, where a step costs a fraction of what it costs when the
/// word moves between two cores; the moment lets it go on for a few. It doubles up to [`PATIENCE`]
/// and has no part in being right: in a model, where nothing takes time, it is nothing.
#[cold]
fn let_the_winner_go_on(lost: &mut u32) {
    for _ in 0..sized(1 << *lost, 0) {
        spin();
    }
    *lost = PATIENCE.min(*lost + 1);
}

/// A take that is nothing but subtraction: open, not the last, and no field unlimited that would
/// have to stay as it is (but for the bytes of a message that has none).
///
/// `None` says only that [`take_by_the_rule`] must decide.
#[inline]
const fn take_from_the_middle(seen: u64, wanted: u32) -> Option<(u64, Taken)> {
    let word = Word::unpack(seen);
    let messages = word.messages > 1 && word.messages != FIELD;
    // Without a budget nothing is deducted.
    let units = if word.units == FIELD { 0 } else { wanted };
    if word.shut || !messages || units >= word.units {
        return None;
    }
    let next = seen - 1 - ((units as u64) << UNITS_SHIFT);
    Some((next, Taken { generation: word.generation, units, last: false }))
}

#[inline(never)]
fn take_by_the_rule(seen: u64, wanted: u32) -> Option<(u64, Taken)> {
    Word::unpack(seen).take(wanted).map(|(next, taken)| (next.pack(), taken))
}

/// A credit given back that is nothing but addition: of this window, not the one that shut it, and
/// no field at its largest or unlimited (but for bytes that were never deducted).
///
/// `None` says only that [`give_by_the_rule`] must decide.
#[inline]
const fn give_to_the_middle(seen: u64, taken: Taken) -> Option<u64> {
    let word = Word::unpack(seen);
    let messages = word.messages < LARGEST;
    let units = taken.units == 0 || word.units + taken.units <= LARGEST;
    if taken.last || taken.generation != word.generation || !messages || !units {
        return None;
    }
    Some(seen + 1 + ((taken.units as u64) << UNITS_SHIFT))
}

#[inline(never)]
fn give_by_the_rule(seen: u64, taken: Taken) -> Option<u64> {
    Word::unpack(seen).give_back(taken).map(Word::pack)
}

/// The word, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    messages: u32,
    units: u32,
    shut: bool,
    generation: u16,
}

impl Word {
    fn granted(size: Credit, units: u32, generation: u16) -> Self {
        let messages = match size {
            Credit::Limited(count) => count.min(LARGEST),
            Credit::Unlimited => FIELD,
        };
        Self { messages, units, shut: messages == 0, generation: generation & GENERATION_MASK }
    }

    /// The word after taking one message of `wanted` units, and what was taken.
    const fn take(self, wanted: u32) -> Option<(Self, Taken)> {
        if self.shut {
            return None;
        }
        let messages = if self.messages == FIELD { FIELD } else { self.messages - 1 };
        // The last packet may be larger than what is left; only what is there is deducted.
        let units = if self.units == FIELD || wanted > self.units { self.units } else { wanted };
        let (left, units) =
            if self.units == FIELD { (FIELD, 0) } else { (self.units - units, units) };
        let last = messages == 0 || left == 0;
        let next = Self { messages, units: left, shut: last, generation: self.generation };
        Some((next, Taken { generation: self.generation, units, last }))
    }

    fn give_back(self, taken: Taken) -> Option<Self> {
        if taken.generation != self.generation {
            return None;
        }
        let add = |left: u32, more: u32| {
            if left == FIELD { FIELD } else { (left + more).min(LARGEST) }
        };
        Some(Self {
            messages: add(self.messages, 1),
            units: add(self.units, taken.units),
            shut: self.shut && !taken.last,
            generation: self.generation,
        })
    }

    fn lower(self, limit: u32) -> Option<Self> {
        let limit = limit.clamp(1, LARGEST);
        if self.shut || self.messages <= limit {
            return None;
        }
        // A new generation, so that credits taken from the larger window cannot refill this one.
        let generation = self.generation.wrapping_add(1) & GENERATION_MASK;
        Some(Self { messages: limit, generation, ..self })
    }

    fn pack(self) -> u64 {
        u64::from(self.messages)
            | u64::from(self.units) << UNITS_SHIFT
            | u64::from(self.shut) << SHUT_SHIFT
            | u64::from(self.generation) << GENERATION_SHIFT
    }

    #[allow(clippy::cast_possible_truncation, reason = "each field is masked to its bits first")]
    const fn unpack(word: u64) -> Self {
        Self {
            messages: (word & FIELD as u64) as u32,
            units: (word >> UNITS_SHIFT & FIELD as u64) as u32,
            shut: word >> SHUT_SHIFT & 1 == 1,
            generation: (word >> GENERATION_SHIFT) as u16,
        }
    }
}

/// Bytes in units, rounded up, at most [`LARGEST`].
fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).map_or(LARGEST, |units| units.min(LARGEST))
}

/// Doublings of the moment after a lost exchange: 16 pauses, under a microsecond.
const PATIENCE: u32 = 4;
/// A field that is all ones: unlimited.
const FIELD: u32 = (1 << 24) - 1;
/// The largest limited value of a field.
const LARGEST: u32 = FIELD - 1;
const UNIT_BYTES: u64 = 64;
const UNITS_SHIFT: u32 = 24;
const SHUT_SHIFT: u32 = 48;
const SHUT: u64 = 1 << SHUT_SHIFT;
const GENERATION_SHIFT: u32 = 49;
const GENERATION_MASK: u16 = (1 << 15) - 1;

#[cfg(test)]
mod tests {
    use super::{
        FIELD, GENERATION_MASK, LARGEST, Resumed, Taken, Window, Word, give_by_the_rule,
        give_to_the_middle, take_by_the_rule, take_from_the_middle,
    };
    use crate::flow::Credit;

    const PAUSED: Resumed = Resumed { was_paused: true };
    const OPEN: Resumed = Resumed { was_paused: false };

    #[test]
    fn the_word_survives_packing_at_its_bounds() {
        for messages in [0, 1, LARGEST, FIELD] {
            for units in [0, 1, LARGEST, FIELD] {
                for shut in [false, true] {
                    for generation in [0, 1, GENERATION_MASK] {
                        let word = Word { messages, units, shut, generation };
                        assert_eq!(Word::unpack(word.pack()), word);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_simple_addition_comes_to_the_same_as_the_whole_rule() {
        let ends = [0, 1, 2, 3, 100, LARGEST - 2, LARGEST - 1, LARGEST, FIELD];
        let (mut takes, mut gives) = (0, 0);
        let words =
            ends.iter().flat_map(|messages| ends.iter().map(move |units| (messages, units)));
        for (&messages, &units) in words {
            for (shut, generation) in [(false, 0), (true, 0), (false, GENERATION_MASK), (true, 7)] {
                let seen = Word { messages, units, shut, generation }.pack();
                for wanted in [0, 1, 2, 3, 99, 100, 101, LARGEST - 1, LARGEST] {
                    if let Some(simple) = take_from_the_middle(seen, wanted) {
                        assert_eq!(Some(simple), take_by_the_rule(seen, wanted));
                        takes += 1;
                    }
                    for (last, generation) in [(false, generation), (true, 7), (false, 7)] {
                        let taken = Taken { generation, units: wanted, last };
                        if let Some(simple) = give_to_the_middle(seen, taken) {
                            assert_eq!(Some(simple), give_by_the_rule(seen, taken));
                            gives += 1;
                        }
                    }
                }
            }
        }
        assert!(takes > 100 && gives > 100, "{takes} {gives}");
    }

    #[test]
    fn the_last_of_a_window_is_marked_and_pauses_it() {
        let window = Window::new(Credit::Limited(2));
        assert!(!window.try_take().unwrap().last());
        assert!(window.try_take().unwrap().last());
        assert_eq!(window.try_take(), None);
        assert!(window.is_paused());
        assert_eq!(window.resume(Credit::Limited(1)), PAUSED);
        assert!(window.try_take().unwrap().last());
    }

    #[test]
    fn unlimited_never_pauses_and_never_marks() {
        let window = Window::new(Credit::Unlimited);
        for _ in 0..10_000 {
            assert!(!window.try_take_sized(1 << 40).unwrap().last());
        }
        assert_eq!((window.left(), window.left_bytes()), (None, None));
    }

    #[test]
    fn an_unasked_resume_replaces_what_was_left() {
        let window = Window::new(Credit::Limited(5));
        let _used = window.try_take();
        assert_eq!(window.resume(Credit::Limited(3)), OPEN);
        assert_eq!(window.left(), Some(3));
    }

    #[test]
    fn credit_of_an_older_window_is_not_given_back() {
        let window = Window::new(Credit::Limited(2));
        let old = window.try_take().unwrap();
        assert_eq!(window.resume(Credit::Limited(2)), OPEN);
        assert_eq!(window.give_back(old), OPEN);
        assert_eq!(window.left(), Some(2));
    }

    #[test]
    fn giving_back_the_last_credit_opens_the_window_with_all_that_was_returned() {
        let window = Window::new(Credit::Limited(3));
        let taken = [(); 3].map(|()| window.try_take().unwrap());
        // Not the marked one: the mark may be on its way, so the window stays shut.
        assert_eq!(window.give_back(taken[1]), OPEN);
        assert_eq!(window.try_take(), None);
        assert_eq!(window.give_back(taken[2]), PAUSED);
        assert_eq!(window.left(), Some(2));
        assert!(!window.try_take().unwrap().last());
        assert!(window.try_take().unwrap().last());
    }

    #[test]
    fn a_byte_budget_ends_the_window_before_its_messages_do() {
        let window = Window::with_bytes(Credit::Limited(100), 640);
        assert!(!window.try_take_sized(320).unwrap().last());
        let big = window.try_take_sized(1 << 20).unwrap();
        assert!(big.last());
        assert_eq!(window.try_take_sized(1), None);
        assert_eq!(window.give_back(big), PAUSED);
        assert_eq!(window.left_bytes(), Some(320));
        assert_eq!(window.left(), Some(99));
    }

    #[test]
    fn a_new_byte_budget_counts_from_the_next_resume_on() {
        let window = Window::with_bytes(Credit::Unlimited, 64);
        assert!(window.try_take_sized(1).unwrap().last());
        window.set_bytes(None);
        assert!(window.is_paused());
        assert_eq!(window.resume(Credit::Unlimited), PAUSED);
        assert_eq!(window.left_bytes(), None);
        // A budget of 0 would never let anything through: it counts as the smallest.
        window.set_bytes(Some(0));
        assert_eq!(window.resume(Credit::Unlimited), OPEN);
        assert!(window.try_take_sized(1).unwrap().last());
    }

    #[test]
    fn a_lowered_limit_leaves_one_credit_to_carry_the_mark() {
        let window = Window::new(Credit::Unlimited);
        let before = window.try_take().unwrap();
        window.lower(Credit::Limited(2));
        assert_eq!(window.left(), Some(2));
        assert_eq!(window.give_back(before), OPEN);
        assert_eq!(window.left(), Some(2));
        window.lower(Credit::Limited(0));
        assert!(window.try_take().unwrap().last());
        // Paused: the mark is out, nothing to lower.
        window.lower(Credit::Limited(1));
        assert_eq!(window.try_take(), None);
    }

    #[test]
    fn sizes_over_the_largest_are_lowered_to_it() {
        let window = Window::new(Credit::Limited(u32::MAX));
        assert_eq!(window.left(), Some(LARGEST));
        let window = Window::with_bytes(Credit::Unlimited, u64::MAX);
        assert_eq!(window.left_bytes(), Some(u64::from(LARGEST) * 64));
        assert_eq!(Window::with_bytes(Credit::Unlimited, 0).left_bytes(), Some(64));
    }

    #[test]
    fn no_credit_at_all_is_a_paused_window() {
        let window = Window::new(Credit::Limited(0));
        assert_eq!(window.try_take(), None);
        assert_eq!(window.resume(Credit::Limited(0)), OPEN);
        assert_eq!(window.resume(Credit::Limited(1)), PAUSED);
    }

    #[test]
    fn the_generation_wraps_without_losing_credit() {
        let window = Window::new(Credit::Limited(1));
        for _ in 0..=u32::from(GENERATION_MASK) {
            assert!(window.try_take().unwrap().last());
            assert_eq!(window.resume(Credit::Limited(1)), PAUSED);
        }
        assert_eq!(window.left(), Some(1));
    }
}
