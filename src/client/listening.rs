//! Which sessions this thread runs a listener of: what a listener may not do, and what need not
//! wait for it.

use std::cell::RefCell;

thread_local! {
    static RUNNING: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// A session and its connection, by the addresses of their shared parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) connection: usize,
    pub(super) session: usize,
}

/// Runs `listener` as one of `place`.
pub(super) fn run<R>(place: Place, listener: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            RUNNING.with_borrow_mut(|running| running.pop());
        }
    }
    RUNNING.with_borrow_mut(|running| running.push(place));
    let _leave = Leave;
    listener()
}

/// Whether this thread is inside a listener of this session.
pub(super) fn in_session(session: usize) -> bool {
    RUNNING.with_borrow(|running| running.iter().any(|place| place.session == session))
}

/// Whether this thread is inside a listener of this connection.
pub(super) fn in_connection(connection: usize) -> bool {
    RUNNING.with_borrow(|running| running.iter().any(|place| place.connection == connection))
}
