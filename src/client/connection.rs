//! A connection: one socket, its sessions, and their common start, stop and end.

use std::thread::JoinHandle;

use super::{
    connection_consumer::Dispatch,
    core::Core,
    driver,
    error::{ConnectError, RequestError, SessionError},
    event::{ConnectionEvent, Observer},
    keeper, listening,
    output::Push,
    session::{AcknowledgeMode, Session},
    settings::{Settings, TEXT_BYTES_MAX},
};
use crate::{
    client::connect,
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
    connection_consumers: Snapshot<Vec<Arc<Dispatch>>>,
    /// It was started, or has made a session.
    used: AtomicBool,
    temporaries: AtomicU64,
}

impl Connection {
    pub(super) fn open(settings: &Settings) -> Result<Self, ConnectError> {
        let (login, whereabouts) = connect::connect(settings)?;
        let core = Arc::new(Core::new(login, settings.clone()));
        core.take_leftovers();
        let keeper = Queue::new(1);
        match keeper::start(Arc::clone(&core), whereabouts) {
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
        // A link that comes later is started by whoever makes it.
        core.submit(core.epoch(), PacketBuilder::new(PacketType::START), Push::Now);
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

    /// Why the connection has ended, if it has. One that is being restored has not.
    #[must_use]
    pub fn lost(&self) -> Option<ConnectionError> {
        self.core().lost()
    }

    /// The version the broker names: that of the product whose protocol it speaks.
    #[must_use]
    pub fn broker_version(&self) -> String {
        self.core().welcome(|welcome| welcome.version.clone())
    }

    /// The connection's id, as the broker numbered it: another one after it was restored.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.core().welcome(|welcome| welcome.connection_id)
    }

    /// Tells `observer` when the connection is lost and being restored, and how that goes. Replaces
    /// an earlier observer.
    ///
    /// It is called on the connection's own thread, which does nothing else meanwhile: it must not
    /// wait for anything, nor use the connection.
    pub fn set_observer(&self, observer: impl Fn(&ConnectionEvent) + Send + Sync + 'static) {
        self.core().observer.publish(Some(Observer::new(observer)));
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
        self.join_threads();
        match outcome {
            // It is closed all the same.
            Err(RequestError::Connection(_) | RequestError::Interrupted { .. }) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    fn say_goodbye(&self, had_connection_consumer: bool) -> Result<(), RequestError> {
        let sessions = self.core.sessions.load_full();
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
            self.core.unregister(session);
        }
        let epoch = self.core.epoch();
        let goodbye = self.core.request_on(epoch, PacketType::GOODBYE, |packet| {
            self.fill_goodbye(packet, had_connection_consumer)
        });
        outcome.and(goodbye).map(|_reply| ())
    }

    fn fill_goodbye(&self, packet: PacketBuilder, had_connection_consumer: bool) -> PacketBuilder {
        let id = self.core.welcome(|welcome| welcome.connection_id);
        let block = had_connection_consumer || self.core.has_client_id();
        packet.boolean("JMQBlock", block).long("JMQConnectionID", id)
    }

    fn join_threads(&self) {
        self.core.driver.join();
        if !self.core.epoch().is_up() {
            // It may be inside an attempt to connect, which nobody can cut short. It ends behind
            // that by itself.
            return;
        }
        if let Some(thread) = self.keeper.pop() {
            driver::join(thread);
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
        if self.core.lost().is_none() && self.core.epoch().is_up() {
            let goodbye = PacketBuilder::new(PacketType::GOODBYE);
            self.core.part(self.fill_goodbye(goodbye, false));
        }
        self.core.fail(ConnectionError::Closed);
        self.join_threads();
    }
}
