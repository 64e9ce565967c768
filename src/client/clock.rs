//! The client's clocks: its waits and the packets it stamps are all that read one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Now, for deadlines and idle times.
#[allow(clippy::disallowed_methods, reason = "the client's waits read the clock here")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970, for stamps and expirations. A clock before 1970 counts as 1970.
#[allow(clippy::disallowed_methods, reason = "packets are stamped with the wall clock here")]
pub(super) fn wall_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The deadline after `timeout`; `None` if there is none or it is too far to name.
pub(super) fn deadline_after(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| now().checked_add(timeout))
}

/// What is left until `deadline`; `None` without one.
pub(super) fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(now()))
}
