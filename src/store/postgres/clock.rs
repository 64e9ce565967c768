//! The one place of the store that reads a clock: its own lease must be over here before it is
//! over in the database, whatever the time of day is on either machine.

use std::time::Instant;

/// A time that only goes on.
#[allow(clippy::disallowed_methods, reason = "how long a lease still counts is measured here")]
pub(super) fn now() -> Instant {
    Instant::now()
}
