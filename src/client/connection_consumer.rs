//! A connection consumer: messages of one destination for many sessions.
//!
//! It receives in a session of its own. A thread waits for a server session that is free and then
//! for messages, and puts as many of them as there are into that session: a load. The server
//! session runs its handler on them wherever it likes and acknowledges them as its own.
//!
//! ```text
//!  broker --> consumer's inbox --> load --> server session --> handler
//!                    ^                 |        '--> acknowledge, commit
//!                    |                 | not handled: the session is rolled back, or closes
//!                    '---- broker <----'
//! ```
//!
//! # Invariants
//! - A message is in the inbox, in one load, or with its handler. What leaves a load without a
//!   handler goes back to the broker, uncounted.
//! - Within a load, and of what goes back, the order is that of arrival.
//! - The consumer ends after the last load has.
//!
//! # Source
//! The application server facilities of the Java message service.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread::{self, JoinHandle},
};

use super::{
    acks::{self, Block, Seen},
    connection::{Connection, ConnectionOwner},
    consumer::{Consumer, ConsumerShared},
    error::{ConnectionError, RequestError, SessionError},
    links::Arrived,
    listening,
    options::ConsumerOptions,
    output::Push,
    server_session::{Load, ServerSessionPool},
    session::{AcknowledgeMode, Session},
    session_state::SessionShared,
};
use crate::{
    message::Destination,
    sync::{Arc, AtomicBool, Inbox, Ordering, Queue},
    wire::{Packet, PacketBuilder, PacketType},
};

/// Hands the messages of one destination to the sessions of a pool.
///
/// Shape: a handle; clones are the same consumer. One thread of its own waits for messages and
/// gives them to server sessions; handlers run where these run them.
///
/// Dropping the last handle closes it without waiting.
///
/// ```
/// # use std::sync::mpsc::channel;
/// # use tidegate::client::{AcknowledgeMode, ConnectionFactory, ConsumerOptions, ServerSessions};
/// # use tidegate::message::{Destination, Message};
/// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
/// # let mut factory = ConnectionFactory::new();
/// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
/// # let connection = factory.create_connection()?;
/// # let (done, results) = channel();
/// let jobs = Destination::queue("jobs")?;
/// // Four sessions, each with a thread and a handler of its own.
/// let pool = ServerSessions::start(&connection, AcknowledgeMode::Auto, 4, |_session| {
///     let done = done.clone();
///     Ok(move |job: Message| done.send(job).expect("somebody waits for results"))
/// })?;
/// let options = ConsumerOptions::new();
/// let consumer = connection.create_connection_consumer(&jobs, &options, pool, 10)?;
/// connection.start()?;
/// # let session = connection.create_session(AcknowledgeMode::Auto)?;
/// # session.create_producer(&jobs)?.send(Message::text("sweep"))?;
/// let job = results.recv()?;
/// # assert_eq!(job.body_text()?.as_deref(), Some("sweep"));
/// consumer.close()?; // Waits for running handlers; what none of them got goes back.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ConnectionConsumer {
    owner: Arc<DispatchOwner>,
}

/// What the handles hold; its drop is the drop of the last one.
#[derive(Debug)]
struct DispatchOwner {
    dispatch: Arc<Dispatch>,
    connection: Arc<ConnectionOwner>,
}

/// The thread of a connection consumer, and how it ends.
pub(super) struct Dispatch {
    source: Arc<Source>,
    pool: Box<dyn ServerSessionPool>,
    /// Messages of one load at most.
    load_max: usize,
    closing: AtomicBool,
    /// One place, until somebody joins it.
    thread: Queue<JoinHandle<Result<(), RequestError>>>,
}

/// Where the messages of loads come from.
#[derive(Debug)]
pub(super) struct Source {
    /// The session that receives them; it does nothing else.
    pub(super) session: Arc<SessionShared>,
    pub(super) consumer: Arc<ConsumerShared>,
    /// What loads had left when the consumer ended, with its place in the order of arrival.
    leftovers: Inbox<(u64, Block)>,
}

/// A message in a load.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) packet: Packet,
    pub(super) block: Block,
    /// Its place in the order of arrival.
    number: u64,
    source: Arc<Source>,
}

impl Connection {
    /// Makes a consumer that hands the messages of `destination` to the sessions of `pool`, at most
    /// `max_messages` to one session at a time. With `imqLoadMaxToServerSession` off it is one
    /// message at a time.
    ///
    /// `options` make it durable or shared, as for a consumer of a session. Each message is
    /// acknowledged by the session that got it: what it did not acknowledge or commit when this
    /// consumer ends comes again, to whoever consumes then. Prefetch is for all sessions together.
    ///
    /// The consumer closes by itself if the pool gives no session any more, or one that is not of
    /// this connection, has listeners or has a load already.
    ///
    /// # Errors
    /// As [`Session::create_consumer_with`]; [`SessionError::IllegalState`] if `max_messages` is 0.
    pub fn create_connection_consumer(
        &self,
        destination: &Destination,
        options: &ConsumerOptions,
        pool: impl ServerSessionPool,
        max_messages: usize,
    ) -> Result<ConnectionConsumer, SessionError> {
        let pool: Box<dyn ServerSessionPool> = Box::new(pool);
        if max_messages == 0 {
            return Err(SessionError::IllegalState("a load has one message at least"));
        }
        let session = self.create_session(AcknowledgeMode::Client)?;
        let consumer = Consumer::create(&session, destination, options)?;
        let (shared, received) = consumer.parts();
        let source = Arc::new(Source {
            session: Arc::clone(shared),
            consumer: Arc::clone(received),
            leftovers: Inbox::new(),
        });
        let loads_max = shared.core.settings.load_max_to_server_session;
        let load_max = if loads_max { max_messages } else { 1 };
        let dispatch = Arc::new(Dispatch {
            source,
            pool,
            load_max,
            closing: AtomicBool::new(false),
            thread: Queue::new(1),
        });
        let own = Arc::clone(&dispatch);
        let thread = thread::Builder::new()
            .name("tidegate-dispatch".to_owned())
            .spawn(move || own.run(&session, consumer))
            .map_err(|error| ConnectionError::Socket(error.kind()))?;
        let pushed = dispatch.thread.push(thread);
        debug_assert!(pushed.is_ok(), "the place is free");
        self.owner.add_connection_consumer(&dispatch);
        let connection = Arc::clone(&self.owner);
        Ok(ConnectionConsumer { owner: Arc::new(DispatchOwner { dispatch, connection }) })
    }
}

impl ConnectionConsumer {
    /// Messages that wait here for a server session, or in one for its handler.
    #[must_use]
    pub fn buffered(&self) -> usize {
        let link = &self.owner.dispatch.source.consumer.link;
        usize::try_from(link.buffer.buffered()).unwrap_or(usize::MAX)
    }

    /// Whether it has ended: closed, or by itself because its pool or connection did.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.owner.dispatch.source.is_ending()
    }

    /// Closes the consumer and its pool. Waits for running handlers; messages that no handler got
    /// go back to the broker. Closing it again does nothing.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] from within one of its handlers, which would wait for itself;
    /// [`SessionError::Request`] if the broker does not answer in time.
    pub fn close(&self) -> Result<(), SessionError> {
        let dispatch = &self.owner.dispatch;
        if listening::in_session(dispatch.source.session.key()) {
            return Err(SessionError::IllegalState(
                "a handler cannot close its connection consumer, which waits for it",
            ));
        }
        dispatch.begin_close();
        let outcome = dispatch.join();
        self.owner.connection.forget_connection_consumer(dispatch);
        match outcome {
            // It is closed all the same.
            Err(RequestError::Connection(_)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}

impl Drop for DispatchOwner {
    fn drop(&mut self) {
        self.dispatch.begin_close();
        self.connection.forget_connection_consumer(&self.dispatch);
    }
}

impl Dispatch {
    /// Makes the thread end, and handlers after their message.
    pub(super) fn begin_close(&self) {
        // AcqRel: the pool is closed once.
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        let session = &self.source.session;
        session.begin_close();
        // Handlers may wait for the connection's start, in sessions of their own.
        session.core.wake_sessions();
        session.core.nudge_reader();
        if catch_unwind(AssertUnwindSafe(|| self.pool.close())).is_err() {
            tracing::warn!("a pool of server sessions panicked when it was closed");
        }
    }

    /// Waits until it has ended, if nobody else does.
    pub(super) fn join(&self) -> Result<(), RequestError> {
        let ended = self.thread.pop().map(JoinHandle::join);
        // A panic would have been reported by the panic hook.
        ended.and_then(Result::ok).unwrap_or(Ok(()))
    }

    fn run(&self, session: &Session, consumer: Consumer) -> Result<(), RequestError> {
        if catch_unwind(AssertUnwindSafe(|| self.hand_out())).is_err() {
            tracing::warn!("a pool of server sessions panicked; its consumer is closed");
        }
        self.begin_close();
        let outcome = self.source.wind_up();
        drop(consumer);
        match session.close() {
            Err(SessionError::Request(error)) => outcome.and(Err(error)),
            Err(SessionError::IllegalState(_)) | Ok(()) => outcome,
        }
    }

    /// Gives loads to server sessions until there are no more.
    fn hand_out(&self) {
        let source = &self.source;
        let mut number = 0;
        while let Some(server) = self.pool.acquire() {
            let Some(packets) = source.next(self.load_max) else { return };
            let messages = packets.into_iter().filter_map(|arrived| {
                // What came over a link that is gone comes again.
                let block = arrived.block(&source.session.core)?;
                number += 1;
                Some(Loaded { packet: arrived.packet, block, number, source: Arc::clone(source) })
            });
            let messages: Vec<_> = messages.collect();
            if messages.is_empty() {
                continue;
            }
            let Some(load) = Load::put(source, server.session(), messages) else {
                tracing::warn!(
                    "a pool gave a session that takes no messages; its consumer is closed"
                );
                return;
            };
            server.start(load);
        }
    }
}

impl Source {
    pub(super) fn is_ending(&self) -> bool {
        self.session.is_closing() || self.session.core.lost().is_some()
    }

    /// Waits for the next messages; `None` when there are no more.
    fn next(&self, most: usize) -> Option<Vec<Arrived>> {
        let (session, link) = (&self.session, &self.consumer.link);
        let ready = || {
            if self.is_ending() {
                return Some(None);
            }
            session.ask_for_next(&self.consumer);
            if !session.may_deliver() {
                return None;
            }
            let packets: Vec<_> = std::iter::from_fn(|| link.inbox.pop()).take(most).collect();
            (!packets.is_empty()).then_some(Some(packets))
        };
        session.core.wait(&session.link.signal, None, ready).ok().flatten().flatten()
    }

    /// One more load is out.
    pub(super) fn load_begins(&self) {
        // Relaxed: the thread that waits for the last one counts them itself.
        self.session.running.fetch_add(1, Ordering::Relaxed);
    }

    /// A load has ended.
    pub(super) fn load_ends(&self) {
        // Release: what it left comes before what follows the last one.
        self.session.running.fetch_sub(1, Ordering::Release);
        self.session.returned.wake_all();
    }

    /// Takes back what no handler got: to the broker, at once or when the consumer ends.
    pub(super) fn take_back(&self, mut rest: Vec<Loaded>) {
        let core = &self.session.core;
        let epoch = self.consumer.link.remote.epoch();
        // What came over a link that is gone comes again, and is not counted any more.
        rest.retain(|one| one.block.epoch == epoch);
        let count = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        if self.is_ending() {
            rest.into_iter().for_each(|one| self.leftovers.push((one.number, one.block)));
            core.discarded(count);
        } else if count > 0 {
            let blocks: Vec<_> = rest.iter().map(|one| one.block).collect();
            acks::redeliver(core, epoch, blocks, Seen::No, None);
            core.consumed(&self.consumer.link, count);
            core.flush();
        }
    }

    /// Ends the consumer at the broker, when all loads have ended.
    fn wind_up(&self) -> Result<(), RequestError> {
        let (session, consumer) = (&self.session, &self.consumer);
        session.await_listener(None);
        if !consumer.link.close() {
            return Ok(());
        }
        let core = &session.core;
        let (epoch, id) = session.remote.on();
        let stop = |packet: PacketBuilder| packet.long("JMQSessionID", id);
        match core.request_on(epoch, PacketType::STOP, stop) {
            // The broker redelivers all by itself; see below for the consumer.
            Err(RequestError::Interrupted { .. }) => {}
            stopped => drop(stopped?),
        }
        // After the reply nothing more comes: what waits now is all there is.
        let mut unseen: Vec<_> = std::iter::from_fn(|| self.leftovers.pop()).collect();
        unseen.sort_unstable_by_key(|(number, _)| *number);
        let mut unseen: Vec<_> = unseen.into_iter().map(|(_, block)| block).collect();
        let before = unseen.len();
        while let Some(arrived) = consumer.link.inbox.pop() {
            unseen.push(arrived.last_block());
        }
        core.discarded(u32::try_from(unseen.len() - before).unwrap_or(u32::MAX));
        acks::redeliver(core, epoch, unseen, Seen::No, None);
        // The rest has been seen: it stays with the session until that ends.
        let remote = &consumer.link.remote;
        let deleted = session.delete(remote, PacketType::DELETE_CONSUMER, |packet, id| {
            packet.long("JMQConsumerID", id).boolean("JMQBlock", true).int("JMQBodyType", 0)
        });
        session.forget_consumer(consumer);
        session.let_go(&consumer.link);
        deleted
    }
}

/// What a load still had when its session was rolled back or recovered.
#[derive(Debug)]
pub(super) struct Rest {
    messages: Vec<Loaded>,
}

impl Rest {
    /// Takes it out of the session. Its consumer is stopped, so that it gets nothing of what goes
    /// back before all has gone back.
    pub(super) fn take(session: &SessionShared) -> Result<Self, RequestError> {
        let messages: Vec<_> = std::iter::from_fn(|| session.loaded.pop()).collect();
        if let Some(first) = messages.first() {
            let (epoch, id) = first.source.session.remote.on();
            let stop = |packet: PacketBuilder| packet.long("JMQSessionID", id);
            let stopped = session.core.request_on(epoch, PacketType::STOP, stop);
            if let Err(error) = stopped {
                messages.into_iter().for_each(|one| session.loaded.push(one));
                return Err(error);
            }
        }
        Ok(Self { messages })
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.messages.iter().map(|one| one.block)
    }

    /// It is on its way back.
    pub(super) fn let_go(self) {
        let Some(first) = self.messages.first() else { return };
        let (session, consumer) = (&first.source.session, &first.source.consumer);
        let (epoch, id) = session.remote.on();
        let present = self.messages.iter().filter(|one| one.block.epoch == epoch).count();
        session.core.consumed(&consumer.link, u32::try_from(present).unwrap_or(u32::MAX));
        let start = PacketBuilder::new(PacketType::START).long("JMQSessionID", id);
        session.core.submit(epoch, start, Push::Later);
    }
}

impl std::fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatch")
            .field("consumer", &self.source.consumer.link.remote.get())
            .field("load_max", &self.load_max)
            .finish_non_exhaustive()
    }
}
