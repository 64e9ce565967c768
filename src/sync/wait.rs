//! Waiting threads, and the few facts about threads that the cores ask for.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Runs a future on this thread, which sleeps while it is pending, until `deadline` if there is
/// one. `None` if the deadline came first; the future is dropped then.
///
/// A model has no clock: it waits without a deadline.
pub fn block_on<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let parker = parking::Parker::new();
    let waker = Waker::from(parker.unparker());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut in_time = true;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        // The deadline ends the wait, not the look after it: what came just in time counts.
        if !in_time {
            return None;
        }
        in_time = park(&parker, deadline);
    }
}

/// Sleeps until woken (`true`) or until the deadline (`false`).
#[cfg(not(loom))]
fn park(parker: &parking::Parker, deadline: Option<Instant>) -> bool {
    match deadline {
        None => parker.park(),
        // A park may end early; only a deadline that has passed ends the wait.
        #[allow(clippy::disallowed_methods, reason = "a wait with a deadline reads the clock")]
        Some(deadline) => return parker.park_deadline(deadline) || Instant::now() < deadline,
    }
    true
}

#[cfg(loom)]
fn park(parker: &parking::Parker, _deadline: Option<Instant>) -> bool {
    parker.park();
    true
}

/// Whether this is a model: no clock, no deadlines.
#[must_use]
pub const fn modelled() -> bool {
    cfg!(loom)
}

#[cfg(not(loom))]
std::thread_local! {
    static HINT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(loom)]
loom::thread_local! {
    static HINT: std::cell::Cell<usize> = std::cell::Cell::new(0);
}

/// A number this thread left with [`set_hint`], 0 before the first: a guess where to look first.
#[inline]
#[must_use]
pub fn hint() -> usize {
    // A thread that is being torn down has no hint any more and may still release.
    HINT.try_with(std::cell::Cell::get).unwrap_or(0)
}

/// Leaves a number for [`hint`].
#[inline]
pub fn set_hint(value: usize) {
    // Without a place to leave it the next guess is 0, which is as good.
    let _ = HINT.try_with(|hint| hint.set(value));
}
