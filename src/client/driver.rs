//! Who reads the socket for futures.
//!
//! A thread that waits reads the socket itself. A future must not hold up who polls it, so it only
//! looks whether something is there, and then leaves reading to a thread of the connection's own,
//! which stands at the helm like any other that waits, as long as futures do. The thread is started
//! by the first future that must wait, and ends with the connection.

use std::thread::{self, JoinHandle};

use super::core::Core;
use crate::{
    proto::client::ConnectionError,
    sync::{Arc, AtomicBool, Demand, Ordering, Queue},
};

/// The thread that reads for futures, and how many wait.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) demand: Demand,
    has_thread: AtomicBool,
    /// One place, until somebody joins it.
    thread: Queue<JoinHandle<()>>,
}

/// A future that waits: while this lives, somebody reads the socket.
#[derive(Debug)]
pub(super) struct Driven(Arc<Core>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.driver.demand.leave();
        // It may have been called to the helm instead of somebody else.
        self.0.helm.hand_over();
    }
}

impl Driver {
    pub(super) fn new() -> Self {
        Self { demand: Demand::new(), has_thread: AtomicBool::new(false), thread: Queue::new(1) }
    }

    /// Waits until the thread has ended, if there is one: the connection has.
    pub(super) fn join(&self) {
        if let Some(thread) = self.thread.pop() {
            join(thread);
        }
    }
}

/// Waits for the end of a thread of a connection, unless this is it: the last handle may go with a
/// task that the thread wakes.
pub(super) fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != thread::current().id() {
        // Its panic would have been reported by the panic hook.
        let _ended = thread.join();
    }
}

impl Core {
    /// Sees to it that the socket is read for a future that is about to wait.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn read_for_future(self: &Arc<Self>) -> Result<Driven, ConnectionError> {
        let driver = &self.driver;
        driver.demand.come();
        let driven = Driven(Arc::clone(self));
        // Relaxed, the first look: it only spares the exchange. AcqRel: forbids two threads.
        if !driver.has_thread.load(Ordering::Relaxed)
            && !driver.has_thread.swap(true, Ordering::AcqRel)
        {
            let core = Arc::clone(self);
            let started = thread::Builder::new()
                .name("tidegate-futures".to_owned())
                .spawn(move || core.read_for_futures());
            match started {
                Ok(thread) => {
                    let pushed = driver.thread.push(thread);
                    debug_assert!(pushed.is_ok(), "one thread is started");
                }
                Err(error) => {
                    // Release: the next future tries again.
                    driver.has_thread.store(false, Ordering::Release);
                    return Err(ConnectionError::Socket(error.kind()));
                }
            }
        }
        Ok(driven)
    }

    fn read_for_futures(&self) {
        let demand = &self.driver.demand;
        while self.lost().is_none() {
            demand.await_somebody(|| self.lost().is_some(), None);
            // An end of the connection is seen above.
            let _over = self.wait(demand.signal(), None, || (!demand.is_there()).then_some(()));
        }
    }
}
