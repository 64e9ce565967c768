//! Room that is kept for what is on its way, by many threads, in a place that may close.
//!
//! Whoever needs room takes it first, then looks whether it fits beside what was there before, and
//! gives it back otherwise. So two that race for the last place do not both get it; at worst one
//! that gives back makes another believe for a moment that there is no room.
//!
//! The place closes for good, either at once or only while nothing is kept: whoever has been given
//! room can rely on the place until it gives the room back, unless it was closed at once.
//!
//! # Ordering
//! All is `Relaxed`: one word says how much is kept and whether the place is closed, so each step on
//! it comes before or after each other one. Nothing is published through it. The bytes are a sum of
//! their own.

use super::{AtomicU64, Ordering};

/// The bit that says that nothing more is kept.
const CLOSED: u64 = 1 << 63;

/// What room is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "two numbers that belong together")]
pub struct Kept {
    /// How many things.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Room kept in one place. See the module's text.
///
/// Shape: a count below 2^63 with a bit for closed, and a sum of bytes.
#[derive(Debug)]
pub struct Reserve {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Reserve {
    fn default() -> Self {
        Self::new()
    }
}

impl Reserve {
    /// Nothing is kept yet.
    #[must_use]
    pub fn new() -> Self {
        Self { count: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Keeps room for one thing of so many bytes, if the place is not closed and `fits` agrees: it
    /// is told what is kept already.
    ///
    /// # Errors
    /// `closed()`, or that of `fits`; nothing is kept then.
    pub fn keep<E>(
        &self,
        bytes: u64,
        closed: impl FnOnce() -> E,
        fits: impl FnOnce(Kept) -> Result<(), E>,
    ) -> Result<(), E> {
        // Relaxed: see the module's text. Taken before looking, so that no two see the same count.
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let kept = Kept { count, bytes: self.bytes.fetch_add(bytes, Ordering::Relaxed) };
        let fits = if count & CLOSED == 0 { fits(kept) } else { Err(closed()) };
        fits.inspect_err(|_| self.give_back(bytes))
    }

    /// The room of one thing of so many bytes is free again.
    pub fn give_back(&self, bytes: u64) {
        // Relaxed: see the module's text.
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// What is kept now.
    #[must_use]
    pub fn kept(&self) -> Kept {
        // Relaxed: a moment's view of two words.
        let count = self.count.load(Ordering::Relaxed) & !CLOSED;
        Kept { count, bytes: self.bytes.load(Ordering::Relaxed) }
    }

    /// Nothing more is kept here, whatever is.
    pub fn close(&self) {
        // Relaxed: see the module's text.
        self.count.fetch_or(CLOSED, Ordering::Relaxed);
    }

    /// Closes if nothing is kept, or it is closed already; `false` if something is kept.
    pub fn close_if_free(&self) -> bool {
        // Relaxed: see the module's text. From zero only: who takes room comes before, and is seen,
        // or after, and sees the bit.
        let closed = self.count.compare_exchange(0, CLOSED, Ordering::Relaxed, Ordering::Relaxed);
        closed.map_or_else(|now| now & CLOSED != 0, |_| true)
    }
}
