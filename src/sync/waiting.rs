//! Those that wait until a condition outside holds, and are looked after by whoever changes it.
//!
//! Who finds the condition false waits here, then looks once more; who may have made it true looks
//! here. Whichever of the two comes last sees the other: nobody waits for a condition that holds.
//!
//! # Ordering
//! | Edge | First | Then | Model |
//! | --- | --- | --- | --- |
//! | W1 | `wait` counts | the waiter's look at the condition in `take_if` | `who_waits_is_found` |
//! | W2 | the change of the condition | the changer's look at the count in `take_if` | `who_waits_is_found` |
//!
//! Each side writes one location and reads the other's, so both need a full fence between the two.
//!
//! # Source
//! The store-buffering pattern: with a fence on both sides at least one side sees the other's write.

use super::{AtomicUsize, Inbox, Ordering, fence_edge};

/// Who waits. See the module's text.
///
/// Shape: a queue, bounded by who may wait, and how many are in it.
#[derive(Debug)]
pub struct Waiting<T> {
    queue: Inbox<T>,
    count: AtomicUsize,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { queue: Inbox::new(), count: AtomicUsize::new(0) }
    }
}

impl<T> Waiting<T> {
    /// Waits. The caller has found the condition false, and calls [`take_if`](Self::take_if)
    /// afterwards.
    pub fn wait(&self, item: T) {
        self.queue.push(item);
        // Relaxed: W1 is the fence in `take_if`, which the caller passes next.
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes out all that wait, if the condition holds. Called by whoever has waited, and by
    /// whoever may have changed the condition, behind that.
    pub fn take_if(&self, holds: impl FnOnce() -> bool) -> Vec<T> {
        // W1 and W2: orders what the caller wrote before what is read here.
        fence_edge("waiting.fence", Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        if self.count.load(Ordering::Relaxed) == 0 || !holds() {
            return Vec::new();
        }
        let mut taken = Vec::new();
        while let Some(item) = self.queue.pop() {
            taken.push(item);
        }
        // Relaxed: one that is pushed and not counted yet is counted by its own `wait`. The count
        // may stand under what is in the queue for that moment only.
        self.count.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
    }
}
