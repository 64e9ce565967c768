//! A connection: one socket, its sessions, and their common start, stop and end.

use std::thread::JoinHandle;

use super::{
    connection_consumer::Dispatch,
    core::Core,
    error::{ConnectError, RequestError, SessionError},
    keeper, listening,
    output::Push,
    session::{AcknowledgeMode, Session},
    session_state::SessionShared,
    settings::{Settings, TEXT_BYTES_MAX},
};
use crate::{
    client::connect,
    message::Destination,
    proto::client::ConnectionError,
    sync::{Arc, AtomicBool, AtomicU64, Ordering, Queue, Snapshot},
    wire::{PacketBuilder, PacketType},
};

/// A connection to a broker.
///
/// Shape: a handle; clones are the same connection, which any thread may use. A new connection
/// hands out no messages before [`start`](Self::start).
///
/// Dropping the last handle, of the connection and of everything made from it, closes it without
/// waiting for the broker; [`close`](Self::close) does so in order and waits.
#[derive(Debug, Clone)]
pub struct Connection {
    pub(super) owner: Arc<ConnectionOwner>,
}

/// What the handles of a connection hold; its drop is the drop of the last one.
#[derive(Debug)]
pub(super) struct ConnectionOwner {
    pub(super) core: Arc<Core>,
    /// One place, until somebody joins it.
    keeper: Queue<JoinHandle<()>>,
    sessions: Snapshot<Vec<Arc<SessionShared>>>,
    connection_consumers: Snapshot<Vec<Arc<Dispatch>>>,
    /// It was started, or has made a session.
    used: AtomicBool,
    temporaries: AtomicU64,
}

impl Connection {
    pub(super) fn open(settings: &Settings) -> Result<Self, ConnectError> {
        let login = connect::connect(settings)?;
        let core = Arc::new(Core::new(login, settings.clone()));
        core.take_leftovers();
        let keeper = Queue::new(1);
        match keeper::start(Arc::clone(&core)) {
            Ok(thread) => {
                let pushed = keeper.push(thread);
                debug_assert!(pushed.is_ok(), "the place is free");
            }
            Err(error) => {
                let cause = ConnectionError::Socket(error.kind());
                core.fail(cause.clone());
                return Err(ConnectError::Refused { address: "this program".to_owned(), cause });
            }
        }
        Ok(Self {
            owner: Arc::new(ConnectionOwner {
                core,
                keeper,
                sessions: Snapshot::new(Vec::new()),
                connection_consumers: Snapshot::new(Vec::new()),
                used: AtomicBool::new(false),
                temporaries: AtomicU64::new(0),
            }),
        })
    }

    /// Sets the client id, which durable subscriptions need; before anything else is done with the
    /// connection. One connection at a time has it, unless `imqEnableSharedClientID` is set. An id
    /// that begins with `${u}` is one of this user's.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] if the connection has an id, was started, or made a session,
    /// if `imqDisableSetClientID` is set, or the id is blank or longer than 1024 bytes;
    /// [`SessionError::Request`] if the broker refuses: 409 somebody has it, 400 it is malformed.
    pub fn set_client_id(&self, id: &str) -> Result<(), SessionError> {
        let core = self.core();
        let problem = if core.settings.disables_set_client_id {
            "the factory's settings do not allow it (imqDisableSetClientID)"
        } else if core.has_client_id() {
            "the connection has a client id"
        } else if self.owner.is_used() {
            "the client id is set before the connection is used"
        } else if id.trim().is_empty() || id.len() > TEXT_BYTES_MAX {
            "a client id is not blank and has at most 1024 bytes"
        } else {
            return Ok(core.set_client_id(id)?);
        };
        Err(SessionError::IllegalState(problem))
    }

    /// The client id, set or configured.
    #[must_use]
    pub fn client_id(&self) -> Option<String> {
        self.core().client_id()
    }

    /// Lets messages be handed out, at first or after [`stop`](Self::stop).
    ///
    /// # Errors
    /// [`SessionError::Request`] if the connection is lost.
    pub fn start(&self) -> Result<(), SessionError> {
        let core = self.core();
        core.check_alive()?;
        self.owner.note_use();
        // Release: nothing but the flag itself is handed over; the signals' fences order the rest.
        core.started.store(true, Ordering::Release);
        core.submit(PacketBuilder::new(PacketType::START), Push::Now);
        core.wake_sessions();
        // One who reads may have messages that came before the stop, and no new ones will wake it.
        core.nudge_reader();
        Ok(())
    }

    /// Stops handing out messages; receivers wait until [`start`](Self::start). Returns when the
    /// broker sends no more. Messages that are buffered stay so.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the request fails.
    pub fn stop(&self) -> Result<(), SessionError> {
        // Release: as in `start`.
        self.core().started.store(false, Ordering::Release);
        self.core().request(PacketType::STOP, |packet| packet)?;
        Ok(())
    }

    /// Makes a session.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the broker refuses or the connection is lost.
    pub fn create_session(&self, mode: AcknowledgeMode) -> Result<Session, SessionError> {
        self.owner.note_use();
        Session::create(self, mode)
    }

    /// Closes the connection with everything made from it: running listeners and asynchronous sends
    /// are waited for,
    /// threads in `receive` get nothing, unacknowledged messages go back to the broker. Closing it
    /// again, or after its loss, does nothing.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] from within a listener or completion of this connection, which
    /// would wait for itself; [`SessionError::Request`] if the broker does not answer in time.
    pub fn close(&self) -> Result<(), SessionError> {
        if listening::in_connection(self.core().key()) {
            return Err(SessionError::IllegalState(
                "a listener or completion cannot close its connection, which waits for it",
            ));
        }
        self.owner.close()
    }

    /// Why the connection has ended, if it has.
    #[must_use]
    pub fn lost(&self) -> Option<ConnectionError> {
        self.core().lost()
    }

    /// The version the broker names: that of the product whose protocol it speaks.
    #[must_use]
    pub fn broker_version(&self) -> &str {
        &self.core().welcome.version
    }

    /// The connection's id, as the broker numbered it.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.core().welcome.connection_id
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.owner.core
    }
}

impl ConnectionOwner {
    fn note_use(&self) {
        // Relaxed: it guards a setting that one thread makes before others know the connection.
        self.used.store(true, Ordering::Relaxed);
    }

    fn is_used(&self) -> bool {
        // Relaxed: see `note_use`.
        self.used.load(Ordering::Relaxed)
    }

    /// Whether some consumer of the connection receives from `destination`.
    pub(super) fn consumes(&self, destination: &Destination) -> bool {
        self.sessions.load_full().iter().any(|session| session.consumes(destination))
    }

    pub(super) fn sessions(&self) -> Arc<Vec<Arc<SessionShared>>> {
        self.sessions.load_full()
    }

    pub(super) fn add_session(&self, session: &Arc<SessionShared>) {
        self.core.register(&session.link);
        self.sessions.update(|sessions| {
            let mut sessions = sessions.clone();
            sessions.push(Arc::clone(session));
            Some(sessions)
        });
    }

    pub(super) fn forget_session(&self, session: &Arc<SessionShared>) {
        self.core.unregister(&session.link);
        self.sessions.update(|sessions| {
            let others = sessions.iter().filter(|other| !Arc::ptr_eq(other, session));
            Some(others.map(Arc::clone).collect())
        });
    }

    pub(super) fn add_connection_consumer(&self, added: &Arc<Dispatch>) {
        self.connection_consumers.update(|all| {
            let mut all = all.clone();
            all.push(Arc::clone(added));
            Some(all)
        });
    }

    pub(super) fn forget_connection_consumer(&self, gone: &Arc<Dispatch>) {
        self.connection_consumers.update(|all| {
            Some(all.iter().filter(|other| !Arc::ptr_eq(other, gone)).map(Arc::clone).collect())
        });
    }

    /// Number of the next temporary destination.
    pub(super) fn next_temporary(&self) -> u64 {
        // Relaxed: only the number's uniqueness matters.
        self.temporaries.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn close(&self) -> Result<(), SessionError> {
        if !self.core.begin_close() {
            return Ok(());
        }
        let consumers = self.connection_consumers.load_full();
        consumers.iter().for_each(|consumer| consumer.begin_close());
        let ended = consumers.iter().map(|consumer| consumer.join());
        let ended = ended.fold(Ok(()), Result::and);
        let parted = self.say_goodbye(!consumers.is_empty());
        let outcome = ended.and(parted);
        self.core.fail(ConnectionError::Closed);
        self.join_keeper();
        match outcome {
            // It is closed all the same.
            Err(RequestError::Connection(_)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    fn say_goodbye(&self, had_connection_consumer: bool) -> Result<(), RequestError> {
        let sessions = self.sessions.load_full();
        for session in sessions.iter() {
            session.begin_close();
        }
        // Acquire: as everybody who looks whether messages flow.
        let started = self.core.started.load(Ordering::Acquire);
        let mut outcome = if started {
            self.core.request(PacketType::STOP, |packet| packet).map(drop)
        } else {
            Ok(())
        };
        // Listeners of one session may use another, so all have returned before any is ended.
        for session in sessions.iter() {
            session.join_threads();
        }
        for session in sessions.iter() {
            let closed = session.finish_close();
            outcome = outcome.and(closed);
            self.forget_session(session);
        }
        let id = self.core.welcome.connection_id;
        let goodbye = self.core.request(PacketType::GOODBYE, |packet| {
            let block = had_connection_consumer || self.core.has_client_id();
            packet.boolean("JMQBlock", block).long("JMQConnectionID", id)
        });
        outcome.and(goodbye).map(|_reply| ())
    }

    fn join_keeper(&self) {
        if let Some(thread) = self.keeper.pop() {
            // Its panic would have been reported by the panic hook.
            let _ended = thread.join();
        }
    }
}

impl Drop for ConnectionOwner {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl ConnectionOwner {
    /// Ends the connection without waiting for the broker.
    pub(super) fn abandon(&self) {
        if !self.core.begin_close() {
            return;
        }
        if self.core.lost().is_none() {
            let goodbye = PacketBuilder::new(PacketType::GOODBYE)
                .boolean("JMQBlock", self.core.has_client_id())
                .long("JMQConnectionID", self.core.welcome.connection_id);
            self.core.part(goodbye);
        }
        self.core.fail(ConnectionError::Closed);
        self.join_keeper();
    }
}
