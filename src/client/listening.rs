//! Which sessions this thread runs a listener or completion of: what these may not do, and what
//! need not wait for them.

use std::cell::RefCell;

thread_local! {
    static RUNNING: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// A session and its connection, by the addresses of their shared parts, and what runs for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) connection: usize,
    pub(super) session: usize,
    pub(super) role: Role,
}

/// What an application's own code was called as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Listener,
    /// The completion of an asynchronous send.
    Completion,
}

/// Runs `call` as `place` says.
pub(super) fn run<R>(place: Place, call: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            RUNNING.with_borrow_mut(|running| running.pop());
        }
    }
    RUNNING.with_borrow_mut(|running| running.push(place));
    let _leave = Leave;
    call()
}

/// What runs on this thread.
pub(super) fn places() -> Vec<Place> {
    RUNNING.with_borrow(Clone::clone)
}

/// Runs `call` on this thread, which nothing runs on, as if it were inside all of these places.
pub(super) fn run_all<R>(places: Vec<Place>, call: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            RUNNING.with_borrow_mut(Vec::clear);
        }
    }
    RUNNING.set(places);
    let _leave = Leave;
    call()
}

/// Whether this thread is inside the completion of an asynchronous send of this session.
pub(super) fn in_completion(session: usize) -> bool {
    RUNNING.with_borrow(|running| {
        running.iter().any(|place| place.session == session && place.role == Role::Completion)
    })
}

/// Whether this thread is inside a listener or completion of this session.
pub(super) fn in_session(session: usize) -> bool {
    RUNNING.with_borrow(|running| running.iter().any(|place| place.session == session))
}

/// Whether this thread is inside a listener or completion of this connection.
pub(super) fn in_connection(connection: usize) -> bool {
    RUNNING.with_borrow(|running| running.iter().any(|place| place.connection == connection))
}
