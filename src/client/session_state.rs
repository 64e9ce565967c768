//! What a session's handles, its threads and its connection share, and how it ends.

use std::thread::JoinHandle;

use super::{
    acks::{self, Answer, Batch, Block},
    completion::Completions,
    connection_consumer::Loaded,
    consumer::ConsumerShared,
    core::Core,
    epoch::{Epoch, RemoteId},
    error::{RequestError, SessionError},
    links::{Command, ConsumerLink, SessionLink},
    listener::{self, Listener},
    listening::{self, Place, Role},
    output::Push,
    producer::ProducerShared,
    session::AcknowledgeMode,
    xa::Branch,
};
use crate::{
    message::Destination,
    proto::client::ConnectionError,
    sync::{
        Arc, AtomicBool, AtomicU32, AtomicU64, Inbox, Ordering, Queue, Signal, Snapshot, fence,
    },
    wire::{MessageId, Packet, PacketBuilder, PacketType, Status},
};

/// Messages are handed out to whoever receives.
const RECEIVERS: u32 = 0;
/// The session's thread hands them to listeners.
const LISTENERS: u32 = 1;
/// A connection consumer has put messages here, which its server session hands to a handler.
const LOADED: u32 = 2;
/// It has done so before.
const UNLOADED: u32 = 3;

/// What a session's handles, its thread and its connection share.
#[derive(Debug)]
pub(super) struct SessionShared {
    pub(super) core: Arc<Core>,
    pub(super) remote: RemoteId,
    pub(super) mode: AcknowledgeMode,
    pub(super) link: Arc<SessionLink>,
    /// Listeners on their way to the session's thread.
    pub(super) listeners: Inbox<Listener>,
    /// Key of the consumer whose listener runs now; 0 for none. In the session of a connection
    /// consumer, the number of loads that are out.
    pub(super) running: AtomicU64,
    /// Woken when a listener has returned.
    pub(super) returned: Signal,
    pub(super) completions: Completions,
    consumers: Snapshot<Vec<Arc<ConsumerShared>>>,
    producers: Snapshot<Vec<Arc<ProducerShared>>>,
    /// The transaction that sends and acknowledgements belong to; 0 for none.
    pub(super) transaction: AtomicU64,
    /// Something was sent or acknowledged in the transaction.
    pub(super) touched: AtomicBool,
    /// Work of the application was lost with a link, and it has not been told.
    pub(super) lost_work: AtomicBool,
    /// Branches of distributed transactions that were begun here and are not settled.
    pub(super) branches: Snapshot<Vec<Branch>>,
    /// Lifetime of branches begun from now on, in milliseconds; 0 for none.
    pub(super) branch_lifetime: AtomicU64,
    /// What a connection consumer has put here and no handler has got.
    pub(super) loaded: Inbox<Loaded>,
    /// Nothing is handed out: messages are on their way back to the broker.
    pub(super) recovering: AtomicBool,
    closing: AtomicBool,
    finished: AtomicBool,
    /// Who hands its messages out, one of the constants below.
    handing_out: AtomicU32,
    /// One place, until somebody joins it.
    thread: Queue<JoinHandle<()>>,
}

impl SessionShared {
    /// A session with this number on the link of `epoch`.
    pub(super) fn new(core: Arc<Core>, id: i64, epoch: Epoch, mode: AcknowledgeMode) -> Self {
        Self {
            core,
            remote: RemoteId::new(id, epoch),
            mode,
            link: Arc::new(SessionLink::new(batch(mode))),
            listeners: Inbox::new(),
            running: AtomicU64::new(0),
            returned: Signal::new(),
            completions: Completions::new(),
            consumers: Snapshot::new(Vec::new()),
            producers: Snapshot::new(Vec::new()),
            transaction: AtomicU64::new(0),
            touched: AtomicBool::new(false),
            lost_work: AtomicBool::new(false),
            branches: Snapshot::new(Vec::new()),
            branch_lifetime: AtomicU64::new(0),
            loaded: Inbox::new(),
            recovering: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            handing_out: AtomicU32::new(RECEIVERS),
            thread: Queue::new(1),
        }
    }

    /// What tells this session from others in this program.
    pub(super) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(super) fn place(&self, role: Role) -> Place {
        Place { connection: self.core.key(), session: self.key(), role }
    }

    pub(super) fn is_closing(&self) -> bool {
        // Acquire: pairs with `begin_close`.
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn has_listeners(&self) -> bool {
        // Relaxed: a receiver that misses it competes with the listener, as if it came earlier.
        self.handing_out.load(Ordering::Relaxed) != RECEIVERS
    }

    /// Whether a connection consumer may put a load here: it has neither another one nor listeners.
    pub(super) fn take_load(&self) -> bool {
        let take = |from| {
            // AcqRel: after whoever had the last load, and before whoever wants listeners.
            let taken = self.handing_out.compare_exchange(
                from,
                LOADED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            taken.is_ok()
        };
        take(RECEIVERS) || take(UNLOADED)
    }

    /// The load is done; there may be another one.
    pub(super) fn leave_load(&self) {
        // Release: see `take_load`.
        self.handing_out.store(UNLOADED, Ordering::Release);
    }

    /// Whether messages may be handed out now.
    pub(super) fn may_deliver(&self) -> bool {
        // Acquire, both: pair with the stores that open them again.
        self.core.started.load(Ordering::Acquire)
            && !self.recovering.load(Ordering::Acquire)
            && self.core.epoch().is_up()
    }

    /// An error if work of the application was lost with a link: it must hear of that, and end the
    /// transaction, or recover the session, before it goes on.
    pub(super) fn check_work(&self) -> Result<(), RequestError> {
        // Acquire: pairs with `lose_work`, which comes before the new link.
        match self.lost_work.load(Ordering::Acquire) {
            false => Ok(()),
            true if self.mode == AcknowledgeMode::Client => Err(RequestError::Unacknowledged),
            true => Err(RequestError::RolledBack),
        }
    }

    /// The application is told of lost work; whether there was any. It begins again.
    pub(super) fn admit_lost_work(&self) -> bool {
        // AcqRel: one caller is told.
        self.lost_work.swap(false, Ordering::AcqRel)
    }

    /// The link is lost, and with it what was not acknowledged or committed. Called while there is
    /// no link.
    pub(super) fn lose_work(&self) {
        let unacknowledged = !self.link.acks.take_all().is_empty();
        let in_branch = self.lose_branches();
        // Relaxed: set before the packet went to a link that is gone, see `Present`.
        let touched = self.touched.swap(false, Ordering::Relaxed);
        let lost = match self.mode {
            AcknowledgeMode::Client => unacknowledged,
            AcknowledgeMode::Transacted => touched,
            AcknowledgeMode::Auto => in_branch,
            // Some may come twice; nobody was promised anything else.
            AcknowledgeMode::DupsOk | AcknowledgeMode::NoAcknowledge => false,
        };
        if lost {
            // Release: see `check_work`. Before the transaction goes: who misses that sees this.
            self.lost_work.store(true, Ordering::Release);
        }
        if self.mode == AcknowledgeMode::Auto {
            self.set_transaction(None);
        }
    }

    /// Whether the session is closed, and the broker need not know it any more.
    pub(super) fn is_finished(&self) -> bool {
        // SeqCst: whoever finishes it looks at the epoch afterwards, see `Present`.
        self.finished.load(Ordering::SeqCst)
    }

    /// An error if the session cannot make anything any more. Whoever closes it waits for its
    /// listeners, and whoever closes the connection for those of all sessions, so for these it is
    /// open until they have returned.
    pub(super) fn check_open(&self) -> Result<(), RequestError> {
        match self.check_not_closing() {
            Err(RequestError::Closed { .. }) if self.is_waited_for() => Ok(()),
            checked => checked,
        }
    }

    /// Whether the one who closes waits for this thread's listener or completion.
    fn is_waited_for(&self) -> bool {
        listening::in_session(self.key())
            || (self.core.is_closing() && listening::in_connection(self.core.key()))
    }

    /// An error if the session closes, or the connection is lost.
    pub(super) fn check_not_closing(&self) -> Result<(), RequestError> {
        self.core.check_alive()?;
        if self.is_closing() {
            return Err(RequestError::Closed { what: "session" });
        }
        Ok(())
    }

    /// Whether acknowledgements wait for the broker's word.
    pub(super) fn answer(&self) -> Answer {
        match (self.mode, self.core.settings.ack_on_acknowledge) {
            (AcknowledgeMode::DupsOk, _) | (_, Some(false)) => Answer::None,
            _ => Answer::Awaited,
        }
    }

    /// Acknowledges one message by itself, as automatic and transacted sessions do: in the
    /// transaction that it was received in, if any. Without one, a link that is lost meanwhile is
    /// no error: the message may come again, and tells so.
    pub(super) fn acknowledge_one(
        &self,
        consumer: &ConsumerShared,
        packet: &Packet,
        block: Block,
        transaction: Option<i64>,
    ) -> Result<(), RequestError> {
        let answer = self.note_acknowledgement(consumer, packet, block, transaction);
        match acks::acknowledge(&self.core, block.epoch, &[block], transaction, answer) {
            Err(RequestError::Interrupted { .. }) if transaction.is_some() => {
                Err(RequestError::RolledBack)
            }
            Err(RequestError::Interrupted { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Notes that a message is about to be acknowledged; whether the broker's word is awaited.
    pub(super) fn note_acknowledgement(
        &self,
        consumer: &ConsumerShared,
        packet: &Packet,
        block: Block,
        transaction: Option<i64>,
    ) -> Answer {
        if transaction.is_some() {
            self.touch();
            // A rollback sends it back, even if the broker does not take the acknowledgement.
            self.link.acks.add(&self.core, block);
        }
        match self.answer() {
            Answer::Awaited
                if transaction.is_none()
                    && self.core.settings.ack_on_acknowledge.is_none()
                    && consumer.is_lossy(packet) =>
            {
                Answer::None
            }
            answer => answer,
        }
    }

    /// Notes that the transaction is not empty.
    pub(super) fn touch(&self) {
        // Relaxed: before the packet goes to the link; see `lose_work`.
        self.touched.store(true, Ordering::Relaxed);
    }

    /// Makes sure that a destination exists, unless it is another connection's temporary one.
    pub(super) fn ensure_destination(&self, destination: &Destination) -> Result<(), RequestError> {
        if destination.is_temporary() && !self.core.is_own_temporary(destination) {
            return Ok(());
        }
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

    /// Whether a consumer of this session receives from `destination`.
    pub(super) fn consumes(&self, destination: &Destination) -> bool {
        let consumers = self.consumers.load_full();
        consumers.iter().any(|consumer| consumer.destination == *destination)
    }

    /// The open producers.
    pub(super) fn producers(&self) -> Arc<Vec<Arc<ProducerShared>>> {
        self.producers.load_full()
    }

    /// The open consumers.
    pub(super) fn consumers(&self) -> Arc<Vec<Arc<ConsumerShared>>> {
        self.consumers.load_full()
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
        // AcqRel: forbids that two callers both start the thread.
        let before = self.handing_out.compare_exchange(
            RECEIVERS,
            LISTENERS,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if before.is_err_and(|now| now != LISTENERS) {
            return Err(SessionError::IllegalState(
                "the session handles messages of a connection consumer",
            ));
        }
        self.listeners.push(listener);
        if before.is_ok() {
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
        self.await_listener(Some(consumer.link.key));
        self.forget_consumer(consumer);
        let result = self.delete_consumer(consumer);
        self.link.signal.wake_all();
        result
    }

    fn delete_consumer(&self, consumer: &ConsumerShared) -> Result<(), RequestError> {
        self.link.acks.flush(&self.core);
        let remote = &consumer.link.remote;
        let last = self.last_seen(remote.get());
        let deleted = self.delete(remote, PacketType::DELETE_CONSUMER, |packet, id| {
            consumer.fill_delete(packet, id, last)
        });
        self.let_go(&consumer.link);
        deleted
    }

    /// Asks the broker to forget something that is marked as closed, unless it has gone with its
    /// link already.
    pub(super) fn delete(
        &self,
        remote: &RemoteId,
        kind: PacketType,
        fill: impl Fn(PacketBuilder, i64) -> PacketBuilder,
    ) -> Result<(), RequestError> {
        let (epoch, id) = remote.on();
        if self.core.epoch() != epoch {
            // Who restores the link sees that it is closed.
            return self.core.check_alive().map_err(Into::into);
        }
        if !remote.end_on(epoch) {
            // Who restored it a moment ago has seen that, and was faster.
            return Ok(());
        }
        match self.core.request_on(epoch, kind, |packet| fill(packet, id)) {
            Err(RequestError::Interrupted { .. }) => Ok(()),
            deleted => deleted.map(drop),
        }
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
        let (epoch, id) = consumer.link.remote.on();
        if consumer.link.remote.end_on(epoch) {
            let packet = PacketBuilder::new(PacketType::DELETE_CONSUMER);
            let packet = consumer.fill_delete(packet, id, self.last_seen(id));
            self.core.submit(epoch, packet, Push::Now);
        }
        self.let_go(&consumer.link);
    }

    /// Forgets what waits for a consumer or browser that nobody asks any more; the broker has it
    /// still, or takes it back by itself.
    pub(super) fn let_go(&self, link: &Arc<ConsumerLink>) {
        self.core.command(Command::RemoveConsumer(Arc::clone(link)));
        let mut count = 0;
        while link.inbox.pop().is_some() {
            count += 1;
        }
        self.core.discarded(count);
    }

    /// The last message of a consumer that was handed out and is not settled.
    fn last_seen(&self, consumer: i64) -> Option<LastSeen> {
        let of = |blocks: &[Block]| {
            blocks.iter().rfind(|block| block.consumer == consumer).map(|block| block.message)
        };
        let blocks = self.link.acks.take_all();
        let last = of(&blocks);
        self.link.acks.put_back(blocks);
        let in_branch =
            || self.branches.read(|all| all.iter().rev().find_map(|branch| of(&branch.seen)));
        // Automatic sessions note nothing outside of branches.
        let noted = matches!(self.mode, AcknowledgeMode::Transacted | AcknowledgeMode::Auto);
        match last {
            Some(message) => Some(LastSeen { message, in_transaction: noted }),
            None => in_branch().map(|message| LastSeen { message, in_transaction: true }),
        }
    }

    /// Waits until no listener runs, of this consumer or of any. Not from within one: it would
    /// wait for itself.
    pub(super) fn await_listener(&self, consumer: Option<u64>) {
        if listening::in_session(self.key()) {
            return;
        }
        // SeqCst fence: the consumer's closed flag comes before the look at who runs, as on the
        // other side who runs comes before the look at the flag. One of them sees the other.
        fence(Ordering::SeqCst);
        let free = || {
            // Acquire: what the listener did comes before what follows here.
            let running = self.running.load(Ordering::Acquire);
            running == 0 || consumer.is_some_and(|key| running != key)
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
            producer.link.end();
        }
        self.link.signal.wake_all();
        self.completions.wake();
    }

    /// Waits until the listeners, the handlers of a connection consumer and the completions of
    /// asynchronous sends have returned.
    pub(super) fn join_threads(&self) {
        if let Some(thread) = self.thread.pop() {
            self.core.nudge_reader();
            // Its panic would have been reported by the panic hook.
            let _ended = thread.join();
        }
        self.await_listener(None);
        self.completions.join(&self.core);
    }

    /// Waits for the session's threads, then tells the broker in the order of the Java client.
    pub(super) fn finish_close(&self) -> Result<(), RequestError> {
        // SeqCst: forbids that two callers both close; see also `is_finished`.
        if self.finished.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.join_threads();
        self.link.acks.flush(&self.core);
        self.roll_back_for_good();
        let mut outcome = Ok(());
        for consumer in self.consumers.load_full().iter() {
            if consumer.link.close() {
                let deleted = self.delete_consumer(consumer);
                outcome = outcome.and(deleted);
            }
        }
        for producer in self.producers.load_full().iter() {
            if producer.link.close() {
                let deleted = self.delete_producer(producer);
                outcome = outcome.and(deleted);
            }
        }
        let destroyed = self.delete(&self.remote, PacketType::DESTROY_SESSION, |packet, id| {
            packet.long("JMQSessionID", id)
        });
        outcome.and(destroyed)
    }

    /// Ends the session without waiting for anybody: its last handle is gone.
    pub(super) fn abandon(&self) {
        // SeqCst: as in `finish_close`.
        if self.finished.swap(true, Ordering::SeqCst) {
            return;
        }
        self.begin_close();
        if self.core.lost().is_none() {
            self.link.acks.flush(&self.core);
            self.roll_back_for_good();
            let (epoch, id) = self.remote.on();
            if self.remote.end_on(epoch) {
                let packet = PacketBuilder::new(PacketType::DESTROY_SESSION);
                self.core.submit(epoch, packet.long("JMQSessionID", id), Push::Now);
            }
            // The session's thread may be the reader; it is not waited for.
            self.core.nudge_reader();
        }
    }

    /// Tells the broker that a producer is gone.
    pub(super) fn delete_producer(
        &self,
        producer: &Arc<ProducerShared>,
    ) -> Result<(), RequestError> {
        self.forget_producer(producer);
        let remote = &producer.link.remote;
        let deleted = self.delete(remote, PacketType::DELETE_PRODUCER, |packet, id| {
            packet.long("JMQProducerID", id)
        });
        self.core.command(Command::RemoveProducer(Arc::clone(&producer.link)));
        deleted
    }

    /// Closes a producer whose last handle is gone, without waiting for the broker.
    pub(super) fn abandon_producer(&self, producer: &Arc<ProducerShared>) {
        if !producer.link.close() {
            return;
        }
        self.forget_producer(producer);
        self.core.command(Command::RemoveProducer(Arc::clone(&producer.link)));
        if self.core.lost().is_none() {
            let (epoch, id) = producer.link.remote.on();
            if producer.link.remote.end_on(epoch) {
                let packet = PacketBuilder::new(PacketType::DELETE_PRODUCER);
                self.core.submit(epoch, packet.long("JMQProducerID", id), Push::Now);
            }
        }
    }
}

/// The last message that a consumer handed out and that is not settled.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastSeen {
    pub(super) message: MessageId,
    /// It is acknowledged in a transaction.
    pub(super) in_transaction: bool,
}

/// Whether a session of this mode acknowledges by itself, and how.
const fn batch(mode: AcknowledgeMode) -> Batch {
    match mode {
        AcknowledgeMode::DupsOk => Batch::Lazy,
        AcknowledgeMode::Auto
        | AcknowledgeMode::Client
        | AcknowledgeMode::NoAcknowledge
        | AcknowledgeMode::Transacted => Batch::Asked,
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
