//! Demand: how many want something done, and a thread that does it only as long as somebody does.
//!
//! Those who want it come and go at any time and never wait here; the thread that serves them
//! sleeps while there is nobody.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | D1 | the signal's fence in `come`, between the count and the look at who sleeps | the signal's fence in `await_somebody`, between lying down and the look at the count | either the count or the sleeper is seen | `demand_is_served` |

use std::time::Instant;

use super::{Arc, AtomicUsize, Ordering, Signal, broken};

/// A count of those who want something, and where the one who serves them sleeps.
///
/// Shape: one serving thread, any number of others.
#[derive(Debug)]
pub struct Demand {
    count: AtomicUsize,
    signal: Arc<Signal>,
}

impl Default for Demand {
    fn default() -> Self {
        Self::new()
    }
}

impl Demand {
    /// Nobody wants anything.
    #[must_use]
    pub fn new() -> Self {
        Self { count: AtomicUsize::new(0), signal: Arc::new(Signal::new()) }
    }

    /// Somebody more wants it; the serving thread is woken if it sleeps.
    pub fn come(&self) {
        // Relaxed (D1): the signal's fence comes between this and the look at the sleeper. Whoever
        // comes second leaves the waking to the first, whose count was there before.
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 && !broken("demand.come") {
            self.signal.wake_all();
        }
    }

    /// One of those who came wants it no more. The serving thread sees that when it looks.
    pub fn leave(&self) {
        // Relaxed: nothing is handed over; one look too many does no harm.
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether somebody wants it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        // Relaxed (D1): see `come`.
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The serving thread's signal: where it sleeps here and elsewhere.
    #[must_use]
    pub const fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Sleeps until somebody comes, `stop` holds, or somebody wakes the signal.
    pub fn await_somebody(&self, stop: impl Fn() -> bool, deadline: Option<Instant>) {
        self.signal.sleep_unless(|| self.is_there() || stop(), deadline);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Demand;

    #[test]
    fn demand_lasts_until_the_last_one_has_left() {
        let demand = Demand::new();
        assert!(!demand.is_there());
        demand.come();
        demand.come();
        demand.leave();
        assert!(demand.is_there());
        // Does not sleep.
        demand.await_somebody(|| false, None);
        demand.leave();
        assert!(!demand.is_there());
        demand.await_somebody(|| true, None);
    }
}
