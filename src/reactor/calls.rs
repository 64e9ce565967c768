//! Counts the system calls of loops, for the test that bounds them.

#[cfg(feature = "unstable-internals")]
use crate::sync::{AtomicU64, Ordering};

/// Reads, writes, polls, wakes and yields of all loops of this process.
#[cfg(feature = "unstable-internals")]
static CALLS: AtomicU64 = AtomicU64::new(0);

/// A system call is about to be made.
#[inline]
pub(super) fn count() {
    // Relaxed: a statistic.
    #[cfg(feature = "unstable-internals")]
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// How many were made so far.
#[cfg(feature = "unstable-internals")]
#[must_use]
pub fn system_calls() -> u64 {
    // Relaxed: a statistic.
    CALLS.load(Ordering::Relaxed)
}
