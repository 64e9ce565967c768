//! The one place of the pool that reads a clock.
//!
//! Everything else gets times as arguments. Under a model time stands still, since a model must
//! take the same path whenever it is run.

use std::time::{Duration, Instant};

use crate::sync::modelled;

/// A time of the monotonic clock, in nanoseconds since the first reading of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Time from `earlier` to this; zero if that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Reads the clock for a measurement.
#[inline]
pub(crate) fn stamp() -> Stamp {
    static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    if modelled() {
        return Stamp(0);
    }
    let now = now();
    let epoch = *EPOCH.get_or_init(|| now);
    // A process runs for less than the 584 years that fit.
    Stamp(u64::try_from(now.saturating_duration_since(epoch).as_nanos()).unwrap_or(u64::MAX))
}

/// Reads the clock for a deadline.
#[inline]
#[allow(clippy::disallowed_methods, reason = "the pool's one place that reads a clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The deadline `timeout` from now; `None` if it is too far away to be told.
pub(crate) fn deadline_after(timeout: Duration) -> Option<Instant> {
    if modelled() { None } else { now().checked_add(timeout) }
}
