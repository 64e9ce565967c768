//! Two lanes into one state: a fast one that overtakes, and a slow one.
//!
//! Whoever has something leaves it in one of the two queues and enters. Who finds nobody inside
//! takes everything out, for everybody. What was left in the fast lane *before* something was left
//! in the slow one is seen before it, even if different threads left the two: a reply before the
//! first message it made possible.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | L1 | push to the slow lane | pop from the slow lane | that the fast lane was filled before | `fast_lane_overtakes` |
//!
//! L1 holds because the runner empties the slow lane *first* and hands it on last: whatever it
//! popped there, the fast lane's contents from before are visible to its pops that follow. The
//! other way round, the fast lane could look empty, and then both be filled.

use super::{Entered, Gate, Inbox, broken};

/// Two queues before a gate. See the module's text.
///
/// Shape: two unbounded queues, bounded by who pushes (requests in the fast lane, credit in the
/// slow one), and one `T`.
#[derive(Debug)]
pub struct Lanes<F, S, T> {
    fast: Inbox<F>,
    slow: Inbox<S>,
    gate: Gate<T>,
}

impl<F, S, T> Lanes<F, S, T> {
    /// Puts a state behind empty lanes.
    pub fn new(state: T) -> Self {
        Self { fast: Inbox::new(), slow: Inbox::new(), gate: Gate::new(state) }
    }

    /// Leaves something in the fast lane. The caller enters afterwards.
    pub fn push_fast(&self, item: F) {
        self.fast.push(item);
    }

    /// Leaves something in the slow lane. The caller enters afterwards.
    pub fn push_slow(&self, item: S) {
        self.slow.push(item);
    }

    /// Takes both lanes out, or lets whoever is inside do so: `hold` gets what is in the slow lane
    /// and keeps it, then `fast` gets what is in the fast one, then `work` does its work, in which
    /// what was held comes last. `with` is what the last two work with.
    pub fn enter<W>(
        &self,
        with: &mut W,
        mut hold: impl FnMut(&mut T, S),
        mut fast: impl FnMut(&mut T, F, &mut W),
        mut work: impl FnMut(&mut T, &mut W),
    ) {
        let entered = self.gate.enter(|state| {
            let early = broken("lanes.order");
            if early {
                drain(&self.fast, |item| fast(state, item, with));
            }
            // The slow one first (L1).
            drain(&self.slow, |item| hold(state, item));
            if !early {
                drain(&self.fast, |item| fast(state, item, with));
            }
            work(state, with);
            true
        });
        debug_assert_ne!(entered, Entered::More, "a run takes out all there is");
    }
}

fn drain<I>(lane: &Inbox<I>, mut each: impl FnMut(I)) {
    while let Some(item) = lane.pop() {
        each(item);
    }
}
