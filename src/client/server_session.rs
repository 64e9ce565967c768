//! Server sessions: where the messages of a connection consumer are handled.

use std::thread::{self, JoinHandle};

use super::{
    acks::{self, Answer},
    connection::Connection,
    connection_consumer::{Loaded, Source},
    error::{ConnectionError, SessionError},
    listener,
    listening::{self, Role},
    session::{AcknowledgeMode, Session},
    session_state::SessionShared,
};
use crate::{
    message::Message,
    sync::{Arc, AtomicBool, Ordering, Queue, Signal, fence},
};

/// Where a connection consumer gets sessions from. [`ServerSessions`] is one; a program with threads
/// or transactions of its own makes another. One pool serves one consumer.
pub trait ServerSessionPool: Send + Sync + 'static {
    /// Waits for a server session that is free. `None` when the pool is closed, or will have no
    /// more; the consumer closes then. Called by one thread only.
    fn acquire(&self) -> Option<Box<dyn ServerSession>>;

    /// Ends the waiting in [`acquire`](Self::acquire), now and later: the consumer is closing.
    /// Called once, while loads may still be running.
    fn close(&self);
}

/// A session, and something that will run its handler. Dropping it without starting it gives it
/// back to its pool.
pub trait ServerSession {
    /// The session that the messages are put into. It must be of the consumer's connection and
    /// have no listeners.
    fn session(&self) -> &Session;

    /// Has `load` run, on another thread; does not wait for it. When the load has run, the pool has
    /// this server session again.
    fn start(self: Box<Self>, load: Load);
}

/// Messages that were put into a session.
///
/// Dropping it gives back to the broker what no handler got.
#[derive(Debug)]
#[must_use = "messages of a load that is not run go back to the broker"]
pub struct Load {
    session: Session,
    source: Arc<Source>,
    count: usize,
}

impl Load {
    /// Puts messages into a session; `None` if it can take none, and they go back.
    pub(super) fn put(
        source: &Arc<Source>,
        session: &Session,
        messages: Vec<Loaded>,
    ) -> Option<Self> {
        let shared = &session.owner.shared;
        if !Arc::ptr_eq(&shared.core, &source.session.core) || !shared.take_load() {
            source.take_back(messages);
            return None;
        }
        source.load_begins();
        let count = messages.len();
        messages.into_iter().for_each(|message| shared.loaded.push(message));
        Some(Self { session: session.clone(), source: Arc::clone(source), count })
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// Messages that were put into the session, at least one.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Never.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Runs `handler` on each message, in order. Messages count as done as they do for listeners of
    /// such a session, also if the handler panics; see [`set_listener`](super::Consumer::set_listener).
    /// In one that never acknowledges, they count as done before.
    /// While the connection is stopped, this waits.
    ///
    /// It ends early if the session is rolled back, recovered or closed, or the consumer is closed:
    /// what no handler got goes back to the broker.
    pub fn run(self, mut handler: impl FnMut(Message)) {
        let shared = &self.session.owner.shared;
        let (consumer, prefetches) =
            (&self.source.consumer, self.source.consumer.link.prefetches());
        while let Some(message) = self.next() {
            let mut call = |message| {
                if !prefetches {
                    // This one is taken, so the next one may come for another session.
                    self.source.session.ask_for_next(consumer);
                }
                handler(message);
            };
            if shared.mode == AcknowledgeMode::NoAcknowledge {
                // The broker keeps it, as it went to another session.
                acknowledge_blindly(shared, &message);
            }
            listening::run(self.source.session.place(Role::Listener), || {
                listener::hand_over(shared, consumer, &mut call, &message.packet, message.block);
            });
            self.source.session.ask_for_next(consumer);
            stop_running(shared);
        }
        // Nothing more comes for an unfinished lazy batch.
        shared.link.acks.flush(&shared.core);
    }

    /// The next message, which counts as running from here on; `None` if there are no more.
    fn next(&self) -> Option<Loaded> {
        let shared = &self.session.owner.shared;
        let ends = || self.source.is_ending() || shared.is_closing();
        let ready = || {
            if ends() || shared.loaded.is_empty() {
                return Some(None);
            }
            if !shared.may_deliver() {
                return None;
            }
            // Relaxed: the fence orders it.
            shared.running.store(self.source.consumer.link.key, Ordering::Relaxed);
            // SeqCst fence: who runs comes before the look at the closing flag; see
            // `await_listener`.
            fence(Ordering::SeqCst);
            let may_go_on = shared.may_deliver() && !ends();
            let message = may_go_on.then(|| shared.loaded.pop()).flatten();
            if message.is_none() {
                stop_running(shared);
            }
            message.map(Some)
        };
        shared.core.wait(&shared.link.signal, None, ready).ok().flatten().flatten()
    }
}

fn acknowledge_blindly(session: &SessionShared, message: &Loaded) {
    let block = message.block;
    let sent = acks::acknowledge(&session.core, block.epoch, &[block], None, Answer::None);
    debug_assert!(sent.is_ok(), "nobody waits for an answer");
}

/// A closer of the session may go on.
fn stop_running(session: &SessionShared) {
    // Release: what the handler did comes before what a closer does next.
    session.running.store(0, Ordering::Release);
    session.returned.wake_all();
}

impl Drop for Load {
    fn drop(&mut self) {
        let shared = &self.session.owner.shared;
        stop_running(shared);
        self.source.take_back(std::iter::from_fn(|| shared.loaded.pop()).collect());
        shared.leave_load();
        self.source.load_ends();
    }
}

/// A pool of sessions, each with a thread and a handler of its own.
///
/// Shape: given to [`create_connection_consumer`](Connection::create_connection_consumer), which
/// closes it with the consumer. Its sessions and threads end then, after the handlers that run.
#[derive(Debug)]
pub struct ServerSessions {
    crew: Arc<Crew>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Crew {
    workers: Vec<Worker>,
    /// Numbers of the workers that have nothing to do.
    free: Queue<usize>,
    /// Woken when somebody is free, or the pool is closed.
    freed: Signal,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Worker {
    session: Session,
    /// One place: what it is to do next.
    load: Queue<Load>,
    signal: Signal,
}

impl ServerSessions {
    /// Makes `count` sessions of this mode. `handler` is asked once for each of them for what its
    /// messages are handed to, which may use that session: send, acknowledge, commit, roll back.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] if `count` is 0; [`SessionError::Request`] if a session cannot
    /// be made; whatever `handler` says.
    pub fn start<H>(
        connection: &Connection,
        mode: AcknowledgeMode,
        count: usize,
        mut handler: impl FnMut(&Session) -> Result<H, SessionError>,
    ) -> Result<Self, SessionError>
    where
        H: FnMut(Message) + Send + 'static,
    {
        if count == 0 {
            return Err(SessionError::IllegalState("a pool has one session at least"));
        }
        let free = Queue::new(count);
        let (mut workers, mut handlers) = (Vec::new(), Vec::new());
        for number in 0..count {
            let session = connection.create_session(mode)?;
            handlers.push(handler(&session)?);
            workers.push(Worker { session, load: Queue::new(1), signal: Signal::new() });
            let pushed = free.push(number);
            debug_assert!(pushed.is_ok(), "there is a place for each");
        }
        let (freed, closed) = (Signal::new(), AtomicBool::new(false));
        let crew = Arc::new(Crew { workers, free, freed, closed });
        // Its drop ends the threads that were started, if one cannot be.
        let mut pool = Self { crew, threads: Vec::new() };
        for (number, handler) in handlers.into_iter().enumerate() {
            let crew = Arc::clone(&pool.crew);
            let thread = thread::Builder::new()
                .name("tidegate-server".to_owned())
                .spawn(move || crew.work(number, handler))
                .map_err(|error| ConnectionError::Socket(error.kind()))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }
}

impl ServerSessionPool for ServerSessions {
    fn acquire(&self) -> Option<Box<dyn ServerSession>> {
        let crew = &self.crew;
        loop {
            if crew.is_closed() {
                return None;
            }
            if let Some(number) = crew.free.pop() {
                return Some(Box::new(Lent { crew: Arc::clone(crew), number, is_free: true }));
            }
            crew.freed.sleep_unless(|| crew.is_closed() || !crew.free.is_empty(), None);
        }
    }

    fn close(&self) {
        // Release: nothing else is handed over; the signals' fences order the looks of sleepers.
        self.crew.closed.store(true, Ordering::Release);
        self.crew.freed.wake_all();
        self.crew.workers.iter().for_each(|worker| worker.signal.wake_all());
    }
}

impl Drop for ServerSessions {
    fn drop(&mut self) {
        self.close();
        let here = thread::current().id();
        for thread in self.threads.drain(..) {
            // A handler may hold the last handle of its own consumer.
            if thread.thread().id() != here {
                // Its panic would have been reported by the panic hook.
                let _ended = thread.join();
            }
        }
    }
}

impl Crew {
    fn is_closed(&self) -> bool {
        // Acquire: pairs with `close`.
        self.closed.load(Ordering::Acquire)
    }

    /// Runs loads until the pool is closed.
    fn work(&self, number: usize, mut handler: impl FnMut(Message)) {
        let worker = &self.workers[number];
        while let Some(load) = self.next_load(worker) {
            load.run(&mut handler);
            self.is_free(number);
        }
        drop(handler);
        if let Err(error) = worker.session.close() {
            tracing::warn!(%error, "a server session was not closed in order");
        }
    }

    fn next_load(&self, worker: &Worker) -> Option<Load> {
        loop {
            let closed = self.is_closed();
            // SeqCst fence: the look at the flag comes before the look for a load, as in `start` the
            // load comes before the look at the flag. A load that comes late is seen on one side.
            fence(Ordering::SeqCst);
            if let Some(load) = worker.load.pop() {
                return Some(load);
            }
            if closed {
                return None;
            }
            worker.signal.sleep_unless(|| self.is_closed() || !worker.load.is_empty(), None);
        }
    }

    fn is_free(&self, number: usize) {
        let pushed = self.free.push(number);
        debug_assert!(pushed.is_ok(), "there is a place for each");
        self.freed.wake_all();
    }
}

/// A worker on its way to a load.
#[derive(Debug)]
struct Lent {
    crew: Arc<Crew>,
    number: usize,
    is_free: bool,
}

impl ServerSession for Lent {
    fn session(&self) -> &Session {
        &self.crew.workers[self.number].session
    }

    fn start(mut self: Box<Self>, load: Load) {
        self.is_free = false;
        let worker = &self.crew.workers[self.number];
        let pushed = worker.load.push(load);
        debug_assert!(pushed.is_ok(), "a worker that is free has no load");
        // SeqCst fence: see `next_load`.
        fence(Ordering::SeqCst);
        if self.crew.is_closed() {
            // If the worker has gone meanwhile, the messages go back.
            drop(worker.load.pop());
        }
        worker.signal.wake_all();
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.is_free {
            self.crew.is_free(self.number);
        }
    }
}
