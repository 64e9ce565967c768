//! Calls that run to their end even if nobody waits for that any more.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::listening;

/// A blocking call as a future.
///
/// The call begins when this is first polled, on a thread of a pool that all of the program shares,
/// so it needs no particular executor. From then on it runs to its end: a commit does not stop
/// half way because the future is dropped. A future that is dropped before it was polled does
/// nothing.
///
/// # Panics
/// Polling it panics if the call did, or after it was ready.
#[must_use = "nothing is done before it is polled"]
pub struct Operation<T>(Stage<T>);

enum Stage<T> {
    New(Box<dyn FnOnce() -> T + Send>),
    Running(blocking::Task<T>),
    Done,
}

impl<T: Send + 'static> Operation<T> {
    pub(super) fn new(call: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Stage::New(Box::new(call)))
    }
}

impl<T: Send + 'static> Future for Operation<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Stage::New(_) = self.0
            && let Stage::New(call) = std::mem::replace(&mut self.0, Stage::Done)
        {
            // What a listener or completion may not do, it may not do on another thread either.
            let places = listening::places();
            let run = move || listening::run_all(places, call);
            self.0 = Stage::Running(blocking::unblock(run));
        }
        match &mut self.0 {
            Stage::Running(task) => {
                let outcome = std::task::ready!(Pin::new(task).poll(context));
                self.0 = Stage::Done;
                Poll::Ready(outcome)
            }
            Stage::New(_) | Stage::Done => panic!("it was ready before"),
        }
    }
}

impl<T> Drop for Operation<T> {
    fn drop(&mut self) {
        if let Stage::Running(task) = std::mem::replace(&mut self.0, Stage::Done) {
            task.detach();
        }
    }
}

impl<T> std::fmt::Debug for Operation<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Stage::New(_) => "Operation(not begun)",
            Stage::Running(_) => "Operation(running)",
            Stage::Done => "Operation(done)",
        })
    }
}
