//! Parts that come from several places, and what is done when all have come.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries |
//! | --- | --- | --- | --- |
//! | G1 | `fetch_sub` of each part | `fetch_sub` of the last part | every part that was left |

use crate::sync::{AtomicUsize, Inbox, Ordering, Plain};

use super::turn::Turn;

type Finish<T> = Box<dyn FnOnce(Vec<T>, &mut Turn<'_>) + Send + Sync>;

/// Waits for a number of parts.
pub(super) struct Gather<T> {
    parts: Inbox<Vec<T>>,
    left: AtomicUsize,
    /// Taken out by whoever brings the last part.
    finish: Inbox<Finish<T>>,
}

impl<T: Send + 'static> Gather<T> {
    /// Waits for so many parts, at least one, and then does this with what is in them, in no order.
    pub(super) fn new(
        parts: usize,
        finish: impl FnOnce(Vec<T>, &mut Turn<'_>) + Send + Sync + 'static,
    ) -> Plain<Self> {
        debug_assert!(parts > 0);
        let this =
            Self { parts: Inbox::new(), left: AtomicUsize::new(parts), finish: Inbox::new() };
        this.finish.push(Box::new(finish));
        Plain::new(this)
    }

    /// One part has come.
    pub(super) fn add(&self, part: Vec<T>, turn: &mut Turn<'_>) {
        self.parts.push(part);
        // AcqRel (G1): whoever brings the last part sees all others.
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let all = std::iter::from_fn(|| self.parts.pop()).flatten().collect();
        if let Some(finish) = self.finish.pop() {
            finish(all, turn);
        }
    }
}

impl<T> std::fmt::Debug for Gather<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gather")
    }
}
