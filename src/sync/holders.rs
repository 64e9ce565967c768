//! How many hold something that all of them share, so that the last one to let go knows.
//!
//! Unlike the count of a shared pointer, it is set once, to how many there are, before any of them is
//! told; and letting go is said, not implied.
//!
//! # Ordering
//! | Edge | What | Model |
//! | --- | --- | --- |
//! | H1 | `release` reads and writes in one step | `the_last_one_knows` |
//!
//! It guards no data: what the last one does goes through a queue, whose edges order it behind what
//! the others did before theirs. So all orderings are relaxed; H1 is that the step is one.

use super::{AtomicU32, Ordering, broken};

/// A count of holders. See the module's text.
///
/// Shape: one word; 0 before it is set and after the last release.
#[derive(Debug)]
pub struct Holders {
    count: AtomicU32,
}

impl Default for Holders {
    fn default() -> Self {
        Self { count: AtomicU32::new(0) }
    }
}

impl Holders {
    /// There are so many from now on. Called before any of them is told.
    pub fn set(&self, count: u32) {
        self.count.store(count, Ordering::Relaxed);
    }

    /// One lets go; `true` for the last one. As many calls as there are holders.
    pub fn release(&self) -> bool {
        if broken("holders.release") {
            let count = self.count.load(Ordering::Relaxed);
            self.count.store(count - 1, Ordering::Relaxed);
            return count == 1;
        }
        // Relaxed (H1).
        self.count.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// One more holds it, if anybody does; `false` if nobody does any more.
    pub fn retain(&self) -> bool {
        // Relaxed: the count alone decides, in one step as H1.
        let more = |count: u32| (count > 0).then(|| count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// One more holds it; `true` for the first one.
    pub fn add(&self) -> bool {
        // Relaxed (H1).
        self.count.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Whether any is left. One that is found may let go right after.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }
}
