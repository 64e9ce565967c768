//! A session: the scope of order and acknowledgement, and of the thread that runs its listeners.

use std::thread::JoinHandle;

use super::{
    acks::{self, Answer, Block, Seen},
    connection::{Connection, ConnectionOwner, batch},
    consumer::{Consumer, ConsumerOptions, ConsumerShared},
    core::Core,
    error::{AcknowledgeError, ConnectionError, RequestError, SessionError},
    links::{Command, SessionLink},
    listener::{self, Listener},
    listening::{self, Place},
    output::Push,
    producer::{Producer, ProducerShared},
};
use crate::{
    message::{Destination, DestinationKind, Message},
    sync::{Arc, AtomicBool, AtomicU64, Inbox, Ordering, Queue, Signal, Snapshot, fence},
    wire::{Packet, PacketBuilder, PacketType, Status},
};

/// When received messages count as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcknowledgeMode {
    /// Each one before `receive` returns it, or after its listener has returned.
    Auto,
    /// When the application says so, for all messages of the session so far.
    Client,
    /// In batches, lazily: cheapest, and after a failure some may come twice.
    DupsOk,
}

impl AcknowledgeMode {
    pub(super) const fn to_wire(self) -> i32 {
        match self {
            Self::Auto => 1,
            Self::Client => 2,
            Self::DupsOk => 3,
        }
    }
}

/// A session of a connection.
///
/// Shape: a handle; clones are the same session. Order, acknowledgement and listeners are the
/// session's: its listeners run one at a time, on one thread. Several threads may use it, but what
/// one acknowledges or recovers, it does for all.
///
/// Dropping the last handle, of the session and of its consumers and producers, closes it without
/// waiting for the broker.
#[derive(Debug, Clone)]
pub struct Session {
    pub(super) owner: Arc<SessionOwner>,
}

/// What the handles of a session hold; its drop is the drop of the last one.
#[derive(Debug)]
pub(super) struct SessionOwner {
    pub(super) shared: Arc<SessionShared>,
    pub(super) connection: Arc<ConnectionOwner>,
}

/// What a session's handles, its thread and its connection share.
#[derive(Debug)]
pub(super) struct SessionShared {
    pub(super) core: Arc<Core>,
    pub(super) id: i64,
    pub(super) mode: AcknowledgeMode,
    pub(super) link: Arc<SessionLink>,
    /// Listeners on their way to the session's thread.
    pub(super) listeners: Inbox<Listener>,
    /// The consumer whose listener runs now; 0 for none.
    pub(super) running: AtomicU64,
    /// Woken when a listener has returned.
    pub(super) returned: Signal,
    consumers: Snapshot<Vec<Arc<ConsumerShared>>>,
    producers: Snapshot<Vec<Arc<ProducerShared>>>,
    /// Nothing is handed out: a recover is under way.
    recovering: AtomicBool,
    closing: AtomicBool,
    finished: AtomicBool,
    has_thread: AtomicBool,
    /// One place, until somebody joins it.
    thread: Queue<JoinHandle<()>>,
}

impl Session {
    pub(super) fn create(
        connection: &Connection,
        mode: AcknowledgeMode,
    ) -> Result<Self, SessionError> {
        if connection.owner.is_closing() {
            return Err(ConnectionError::Closed.into());
        }
        let core = Arc::clone(connection.core());
        let reply = core.request(PacketType::CREATE_SESSION, |packet| {
            packet.int("JMQAckMode", mode.to_wire())
        })?;
        let id = read_id(&reply, "JMQSessionID")?;
        let shared = Arc::new(SessionShared {
            core,
            id,
            mode,
            link: Arc::new(SessionLink::new(batch(mode))),
            listeners: Inbox::new(),
            running: AtomicU64::new(0),
            returned: Signal::new(),
            consumers: Snapshot::new(Vec::new()),
            producers: Snapshot::new(Vec::new()),
            recovering: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            has_thread: AtomicBool::new(false),
            thread: Queue::new(1),
        });
        connection.owner.add_session(&shared);
        let connection = Arc::clone(&connection.owner);
        Ok(Self { owner: Arc::new(SessionOwner { shared, connection }) })
    }

    /// Makes a producer that sends to `destination`, which is created if the broker allows that.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the broker refuses (404 no such destination, 403 forbidden,
    /// 405 too many producers) or the connection is lost.
    pub fn create_producer(&self, destination: &Destination) -> Result<Producer, SessionError> {
        Producer::create(self, Some(destination))
    }

    /// Makes a producer that is told with each message where it goes.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the session is closed.
    pub fn create_anonymous_producer(&self) -> Result<Producer, SessionError> {
        Producer::create(self, None)
    }

    /// Makes a consumer of `destination`, which is created if the broker allows that.
    ///
    /// # Errors
    /// As [`create_consumer_with`](Self::create_consumer_with).
    pub fn create_consumer(&self, destination: &Destination) -> Result<Consumer, SessionError> {
        self.create_consumer_with(destination, &ConsumerOptions::new())
    }

    /// Makes a consumer with a selector, a durable subscription, or without local messages.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the broker refuses (400 bad selector, 404 no such destination,
    /// 409 too many consumers or the durable is in use, 412 a durable without client id) or the
    /// connection is lost.
    pub fn create_consumer_with(
        &self,
        destination: &Destination,
        options: &ConsumerOptions,
    ) -> Result<Consumer, SessionError> {
        Consumer::create(self, destination, options)
    }

    /// Makes a temporary queue or topic, which ends with the connection.
    ///
    /// # Errors
    /// [`SessionError::Request`].
    pub fn create_temporary(&self, kind: DestinationKind) -> Result<Destination, SessionError> {
        let core = &self.owner.shared.core;
        let number = self.owner.connection.next_temporary();
        let owner = core.settings.client_id.clone().unwrap_or_else(|| core.stamp.host());
        let made = Destination::temporary(kind, &owner, core.stamp.port(), number);
        let made = made.map_err(|_| {
            SessionError::IllegalState("the client id is too long for temporary destinations")
        })?;
        self.owner.shared.ensure_destination(&made)?;
        Ok(made)
    }

    /// Ends a temporary destination before its connection does.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] if it is none, [`SessionError::Request`].
    pub fn delete_temporary(&self, destination: &Destination) -> Result<(), SessionError> {
        if !destination.is_temporary() {
            return Err(SessionError::IllegalState("only temporary destinations are deleted here"));
        }
        self.owner.shared.core.request(PacketType::DESTROY_DESTINATION, |packet| {
            packet
                .string("JMQDestination", destination.name())
                .int("JMQDestType", destination.type_bits())
        })?;
        Ok(())
    }

    /// Ends a durable subscription that no consumer uses.
    ///
    /// # Errors
    /// [`SessionError::Request`]: 404 there is none, 409 it has a consumer.
    pub fn unsubscribe(&self, durable: &str) -> Result<(), SessionError> {
        self.owner.shared.core.request(PacketType::DELETE_CONSUMER, |packet| {
            packet.string("JMQDurableName", durable)
        })?;
        Ok(())
    }

    /// Acknowledges all messages that the session has handed out so far. Nothing to do in an
    /// automatic session; in a lazy one, an unfinished batch is sent.
    ///
    /// # Errors
    /// [`AcknowledgeError::Request`]; the messages come again.
    pub fn acknowledge(&self) -> Result<(), AcknowledgeError> {
        let shared = &self.owner.shared;
        match shared.mode {
            AcknowledgeMode::Auto => Ok(()),
            AcknowledgeMode::DupsOk => {
                shared.link.acks.flush(&shared.core);
                shared.core.flush();
                Ok(())
            }
            AcknowledgeMode::Client => {
                let blocks = shared.link.acks.take_all();
                Ok(acks::acknowledge(&shared.core, &blocks, shared.answer())?)
            }
        }
    }

    /// Acknowledges one message and no other, whatever was received before it.
    ///
    /// # Errors
    /// [`AcknowledgeError::UnknownMessage`] if this session has not handed it out, or it is
    /// acknowledged already; [`AcknowledgeError::IllegalState`] in another mode than
    /// [`AcknowledgeMode::Client`]; [`AcknowledgeError::Request`].
    pub fn acknowledge_message(&self, message: &Message) -> Result<(), AcknowledgeError> {
        let shared = &self.owner.shared;
        if shared.mode != AcknowledgeMode::Client {
            return Err(AcknowledgeError::IllegalState(
                "single messages are acknowledged in sessions of mode Client",
            ));
        }
        let id = message.id().ok_or(AcknowledgeError::UnknownMessage)?;
        let block = Block { consumer: message.consumer_id(), message: id };
        if !shared.link.acks.take_one(block) {
            return Err(AcknowledgeError::UnknownMessage);
        }
        Ok(acks::acknowledge(&shared.core, &[block], shared.answer())?)
    }

    /// Sends every message that was handed out and not acknowledged, and every one that waits,
    /// back to the broker: they come again, the former marked as redelivered.
    ///
    /// # Errors
    /// [`SessionError::Request`].
    pub fn recover(&self) -> Result<(), SessionError> {
        Ok(self.owner.shared.recover()?)
    }

    /// Closes the session with its consumers and producers. Waits for a running listener; threads
    /// in `receive` get nothing; unacknowledged messages go back to the broker. Closing it again
    /// does nothing.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] from within a listener of this session, which would wait for
    /// itself; [`SessionError::Request`] if the broker does not answer in time.
    pub fn close(&self) -> Result<(), SessionError> {
        let shared = &self.owner.shared;
        if listening::in_session(shared.key()) {
            return Err(SessionError::IllegalState(
                "a listener cannot close its session, which waits for the listener",
            ));
        }
        shared.begin_close();
        let outcome = shared.finish_close();
        self.owner.connection.forget_session(shared);
        match outcome {
            // It is closed all the same.
            Err(RequestError::Connection(_)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// How this session acknowledges.
    #[must_use]
    pub fn mode(&self) -> AcknowledgeMode {
        self.owner.shared.mode
    }
}

impl SessionShared {
    /// What tells this session from others in this program.
    pub(super) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(super) fn place(&self) -> Place {
        Place { connection: self.core.key(), session: self.key() }
    }

    pub(super) fn is_closing(&self) -> bool {
        // Acquire: pairs with `begin_close`.
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn has_listeners(&self) -> bool {
        // Relaxed: a receiver that misses it competes with the listener, as if it came earlier.
        self.has_thread.load(Ordering::Relaxed)
    }

    /// Whether messages may be handed out now.
    pub(super) fn may_deliver(&self) -> bool {
        // Acquire, both: pair with the stores that open them again.
        self.core.started.load(Ordering::Acquire) && !self.recovering.load(Ordering::Acquire)
    }

    /// An error if the session cannot make anything any more.
    pub(super) fn check_open(&self) -> Result<(), RequestError> {
        self.core.check_alive()?;
        if self.is_closing() {
            return Err(RequestError::Closed { what: "session" });
        }
        Ok(())
    }

    pub(super) fn answer(&self) -> Answer {
        match (self.mode, self.core.settings.ack_on_acknowledge) {
            (AcknowledgeMode::DupsOk, _) | (_, Some(false)) => Answer::None,
            _ => Answer::Awaited,
        }
    }

    /// Makes sure that a destination exists.
    pub(super) fn ensure_destination(&self, destination: &Destination) -> Result<(), RequestError> {
        let made = self.core.request(PacketType::CREATE_DESTINATION, |packet| {
            packet
                .string("JMQDestination", destination.name())
                .int("JMQDestType", destination.type_bits())
        });
        match made {
            // It is there already.
            Err(error) if error.status() == Some(Status::CONFLICT) => Ok(()),
            made => made.map(|_reply| ()),
        }
    }

    pub(super) fn add_consumer(&self, consumer: &Arc<ConsumerShared>) {
        add(&self.consumers, consumer);
    }

    pub(super) fn forget_consumer(&self, consumer: &Arc<ConsumerShared>) {
        remove(&self.consumers, consumer);
    }

    pub(super) fn add_producer(&self, producer: &Arc<ProducerShared>) {
        add(&self.producers, producer);
    }

    pub(super) fn forget_producer(&self, producer: &Arc<ProducerShared>) {
        remove(&self.producers, producer);
    }

    /// Gives a listener to the session's thread, which is started if need be.
    pub(super) fn listen(self: &Arc<Self>, listener: Listener) -> Result<(), SessionError> {
        self.check_open()?;
        self.listeners.push(listener);
        // AcqRel: forbids that two callers both start the thread.
        if !self.has_thread.swap(true, Ordering::AcqRel) {
            let started = listener::start(Arc::clone(self));
            let thread = started.map_err(|error| ConnectionError::Socket(error.kind()))?;
            let pushed = self.thread.push(thread);
            debug_assert!(pushed.is_ok(), "one thread is started");
        }
        self.link.signal.wake_all();
        // The thread may be the reader, with messages that came before its listener.
        self.core.nudge_reader();
        Ok(())
    }

    fn recover(&self) -> Result<(), RequestError> {
        self.check_open()?;
        // Release: with the STOP_REPLY below, whoever hands out sees it.
        self.recovering.store(true, Ordering::Release);
        let outcome = self.send_back();
        // Release: everything that waited is gone before something is handed out again.
        self.recovering.store(false, Ordering::Release);
        self.link.signal.wake_all();
        self.core.flush();
        outcome
    }

    fn send_back(&self) -> Result<(), RequestError> {
        let session = self.id;
        self.link.acks.flush(&self.core);
        self.core.request(PacketType::STOP, |packet| packet.long("JMQSessionID", session))?;
        // After the reply nothing more comes: what waits now is all there is.
        let consumers = self.consumers.load_full();
        let mut unseen = Vec::new();
        let mut emptied = Vec::new();
        for consumer in consumers.iter() {
            let before = unseen.len();
            while let Some(packet) = consumer.link.inbox.pop() {
                unseen.push(Block::of(packet.header()));
            }
            emptied.push((consumer, u32::try_from(unseen.len() - before).unwrap_or(u32::MAX)));
        }
        acks::redeliver(&self.core, &unseen, Seen::No);
        acks::redeliver(&self.core, &self.link.acks.take_all(), Seen::Yes);
        for (consumer, count) in emptied {
            // The reset counts it, too.
            let _owed = consumer.link.settle();
            self.core.emptied(consumer.id, &consumer.link, count);
        }
        let start = PacketBuilder::new(PacketType::START).long("JMQSessionID", session);
        self.core.submit(start, Push::Now);
        Ok(())
    }

    /// Closes one consumer: waits for its running listener unless called from the session's
    /// thread, then tells the broker.
    pub(super) fn close_consumer(
        &self,
        consumer: &Arc<ConsumerShared>,
    ) -> Result<(), RequestError> {
        if !consumer.link.close() {
            return Ok(());
        }
        self.link.signal.wake_all();
        self.await_listener(Some(consumer.id));
        self.forget_consumer(consumer);
        let result = self.delete_consumer(consumer);
        self.link.signal.wake_all();
        result
    }

    fn delete_consumer(&self, consumer: &ConsumerShared) -> Result<(), RequestError> {
        self.link.acks.flush(&self.core);
        let last = self.last_unacknowledged(consumer.id);
        let deleted = self
            .core
            .request(PacketType::DELETE_CONSUMER, |packet| consumer.fill_delete(packet, last));
        self.discard(consumer);
        deleted.map(|_reply| ())
    }

    /// Closes a consumer whose last handle is gone, without waiting for anybody.
    pub(super) fn abandon_consumer(&self, consumer: &Arc<ConsumerShared>) {
        if !consumer.link.close() {
            return;
        }
        self.forget_consumer(consumer);
        if self.core.lost().is_some() {
            return;
        }
        self.link.acks.flush(&self.core);
        let last = self.last_unacknowledged(consumer.id);
        let packet = consumer.fill_delete(PacketBuilder::new(PacketType::DELETE_CONSUMER), last);
        self.core.submit(packet, Push::Now);
        self.discard(consumer);
    }

    /// Forgets what waits for a closed consumer; the broker takes it back by itself.
    fn discard(&self, consumer: &ConsumerShared) {
        self.core.command(Command::RemoveConsumer(consumer.id));
        let mut count = 0;
        while consumer.link.inbox.pop().is_some() {
            count += 1;
        }
        self.core.discarded(count);
    }

    /// The last message of a consumer that was handed out and is not acknowledged.
    fn last_unacknowledged(&self, consumer: i64) -> Option<Block> {
        let blocks = self.link.acks.take_all();
        let last = blocks.iter().rfind(|block| block.consumer == consumer).copied();
        self.link.acks.put_back(blocks);
        last
    }

    /// Waits until no listener runs, of this consumer or of any. Not from within one: it would
    /// wait for itself.
    fn await_listener(&self, consumer: Option<i64>) {
        if listening::in_session(self.key()) {
            return;
        }
        // SeqCst fence: the consumer's closed flag comes before the look at who runs, as on the
        // other side who runs comes before the look at the flag. One of them sees the other.
        fence(Ordering::SeqCst);
        let free = || {
            // Acquire: what the listener did comes before what follows here.
            let running = self.running.load(Ordering::Acquire);
            running == 0 || consumer.is_some_and(|id| running != id.unsigned_abs())
        };
        while !free() {
            self.returned.sleep_unless(free, None);
        }
    }

    /// Makes everybody stop: receivers get nothing, no further listener runs.
    pub(super) fn begin_close(&self) {
        // Release: pairs with `is_closing`.
        self.closing.store(true, Ordering::Release);
        for consumer in self.consumers.load_full().iter() {
            consumer.link.end();
        }
        for producer in self.producers.load_full().iter() {
            let _first = producer.link.close();
        }
        self.link.signal.wake_all();
    }

    /// Waits for the listeners, then tells the broker in the order of the Java client.
    pub(super) fn finish_close(&self) -> Result<(), RequestError> {
        // AcqRel: forbids that two callers both close.
        if self.finished.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if let Some(thread) = self.thread.pop() {
            self.core.nudge_reader();
            // Its panic would have been reported by the panic hook.
            let _ended = thread.join();
        }
        let mut outcome = Ok(());
        for consumer in self.consumers.load_full().iter() {
            if consumer.link.close() {
                let deleted = self.delete_consumer(consumer);
                outcome = outcome.and(deleted);
            }
        }
        for producer in self.producers.load_full().iter() {
            let deleted = self.delete_producer(producer);
            outcome = outcome.and(deleted);
        }
        let session = self.id;
        let destroyed = self
            .core
            .request(PacketType::DESTROY_SESSION, |packet| packet.long("JMQSessionID", session));
        outcome.and(destroyed).map(drop)
    }

    /// Tells the broker that a producer is gone.
    pub(super) fn delete_producer(
        &self,
        producer: &Arc<ProducerShared>,
    ) -> Result<(), RequestError> {
        let id = producer.id;
        self.forget_producer(producer);
        let deleted = self
            .core
            .request(PacketType::DELETE_PRODUCER, |packet| packet.long("JMQProducerID", id));
        self.core.command(Command::RemoveProducer(id));
        deleted.map(|_reply| ())
    }

    /// Closes a producer whose last handle is gone, without waiting for the broker.
    pub(super) fn abandon_producer(&self, producer: &Arc<ProducerShared>) {
        if !producer.link.close() {
            return;
        }
        self.forget_producer(producer);
        self.core.command(Command::RemoveProducer(producer.id));
        if self.core.lost().is_none() {
            let packet = PacketBuilder::new(PacketType::DELETE_PRODUCER);
            self.core.submit(packet.long("JMQProducerID", producer.id), Push::Now);
        }
    }
}

impl Drop for SessionOwner {
    fn drop(&mut self) {
        let shared = &self.shared;
        // AcqRel: as in `finish_close`.
        if shared.finished.swap(true, Ordering::AcqRel) {
            return;
        }
        shared.begin_close();
        self.connection.forget_session(shared);
        if shared.core.lost().is_none() {
            shared.link.acks.flush(&shared.core);
            let packet = PacketBuilder::new(PacketType::DESTROY_SESSION);
            shared.core.submit(packet.long("JMQSessionID", shared.id), Push::Now);
            // The session's thread may be the reader; it is not waited for.
            shared.core.nudge_reader();
        }
    }
}

/// An id that a reply must have.
pub(super) fn read_id(reply: &Packet, name: &'static str) -> Result<i64, RequestError> {
    let malformed =
        |cause| ConnectionError::Malformed { packet: reply.header().packet_type, cause };
    let table = reply.properties().map_err(malformed)?;
    let id = table.long(name).map_err(malformed)?;
    let missing = crate::wire::PropertyError::Missing { name };
    id.ok_or_else(|| malformed(missing).into())
}

fn add<T>(list: &Snapshot<Vec<Arc<T>>>, item: &Arc<T>) {
    list.update(|items| {
        let mut items = items.clone();
        items.push(Arc::clone(item));
        Some(items)
    });
}

fn remove<T>(list: &Snapshot<Vec<Arc<T>>>, item: &Arc<T>) {
    list.update(|items| {
        let others = items.iter().filter(|other| !Arc::ptr_eq(other, item));
        Some(others.map(Arc::clone).collect())
    });
}
