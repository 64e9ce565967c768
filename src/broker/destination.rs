//! A queue or topic: an inbox that everybody may push to, and a state behind a gate.
//!
//! Whoever pushes a burst of commands enters the gate; if nobody is inside, it carries out what
//! lies in the inbox and dispatches, on its own thread, straight into the outputs of the
//! consumers. Order is total per destination.
//!
//! # Invariants
//! - A message is in exactly one place: in a backlog, in flight to one consumer, or settled.
//! - A consumer is in its subscription's ready list exactly if it may have credit; whoever gives
//!   it credit again sends [`Command::Ready`].
//! - One run handles at most [`WORK_MAX`] commands and deliveries; the rest waits for the run list.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
};

use bytes::Bytes;

use crate::{
    flow::{Credit, Taken},
    proto::broker_in::{AckKind, BLOCK_LEN, ReplyTo},
    sync::{Arc, AtomicU64, Entered, Gate, Inbox, Ordering, Snapshot},
    wire::{Flags, MessageId, PacketBuilder, PacketType, Status},
};

use super::{
    backlog::{Backlog, Entry},
    config::DestinationLimits,
    consumer::Consumer,
    in_flight::InFlight,
    output::{Outgoing, Output},
    stored::Stored,
    turn::Turn,
};

/// Commands and deliveries of one run.
const WORK_MAX: usize = 2048;

/// Queue or topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Each message goes to one consumer.
    Queue,
    /// Each message goes to every subscription there is at that time.
    Topic,
}

/// Where a reply goes whose request a destination carries out.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    /// The connection's output.
    pub output: Arc<Output>,
    /// The request.
    pub to: ReplyTo,
}

impl Reply {
    fn send(&self, status: Status, turn: &mut Turn<'_>) {
        self.output.put_status(
            self.to.header.packet_type.reply(),
            self.to.header.consumer_id,
            status,
        );
        turn.touch_output(&self.output);
    }

    fn refuse(&self, status: Status, reason: &str, turn: &mut Turn<'_>) {
        let packet = self.to.refuse(status, reason);
        turn.send_packet(&self.output, packet);
    }
}

/// The reply to one acknowledgement whose blocks concern several destinations: sent by the last.
#[derive(Debug)]
pub(super) struct Joint {
    left: AtomicU64,
    worst: AtomicU64,
    reply: Reply,
}

impl Joint {
    /// For so many parts.
    pub(super) fn new(parts: usize, reply: Reply) -> Self {
        Self {
            left: AtomicU64::new(parts as u64),
            worst: AtomicU64::new(status_bits(Status::OK)),
            reply,
        }
    }

    /// One part is done.
    pub(super) fn done(&self, status: Status, turn: &mut Turn<'_>) {
        // Relaxed: carried by the count below.
        self.worst.fetch_max(status_bits(status), Ordering::Relaxed);
        // AcqRel: the last one sees the statuses of all others.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let worst = self.worst.load(Ordering::Relaxed);
            let status = i32::try_from(worst).map_or(Status::ERROR, Status);
            self.reply.send(status, turn);
        }
    }
}

fn status_bits(status: Status) -> u64 {
    u64::try_from(status.0).unwrap_or(0)
}

/// Who is told the outcome of an acknowledgement.
#[derive(Debug, Clone)]
pub(super) enum AckReply {
    /// Nobody asked.
    None,
    /// All blocks are here.
    Direct(Reply),
    /// Other destinations have blocks too.
    Joint(Arc<Joint>),
}

impl AckReply {
    fn done(&self, status: Status, turn: &mut Turn<'_>) {
        match self {
            Self::None => {}
            Self::Direct(reply) => reply.send(status, turn),
            Self::Joint(joint) => joint.done(status, turn),
        }
    }
}

/// How a consumer leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leave {
    /// Closed; up to this message the application has seen them, and may still settle them until
    /// its session ends. What came after goes back uncounted.
    After(Option<MessageId>),
    /// Closed; all deliveries count as seen and stay with the session.
    AllSeen,
    /// Its session or connection has ended: everything goes back, what was sent is counted.
    Ended,
}

/// Work for a destination.
#[derive(Debug)]
pub(super) enum Command {
    /// A message from a producer.
    Produce {
        /// The message.
        message: Arc<Stored>,
        /// Who wants a reply.
        reply: Option<Reply>,
        /// The producer that used up its credit and waits for more.
        credit: Option<(Arc<Output>, i64)>,
    },
    /// A consumer comes. The reply goes out before its first message.
    Subscribe(Arc<Consumer>),
    /// A consumer leaves.
    Leave {
        /// Which one.
        consumer: Arc<Consumer>,
        /// How.
        how: Leave,
    },
    /// A consumer may have credit again, or its session runs again.
    Ready(i64),
    /// Deliveries are settled.
    Acknowledge {
        /// Whole blocks, all of consumers of this destination.
        blocks: Bytes,
        /// What they say.
        kind: AckKind,
        /// Who is told.
        reply: AckReply,
    },
    /// Deliveries come back.
    Redeliver {
        /// Whole blocks.
        blocks: Bytes,
        /// The application has seen them.
        seen: bool,
    },
    /// A delivery that was not sent comes back with its credit.
    TakeBack {
        /// Whose it was.
        consumer: i64,
        /// Its number.
        number: u64,
        /// The credit it took.
        taken: Taken,
    },
    /// Deliveries up to this number were sent to a consumer that forgets, or cannot be sent at all.
    Forget {
        /// Whose they were.
        consumer: i64,
        /// The last number.
        through: u64,
    },
    /// The destination is no more.
    Destroy,
}

/// A destination of a broker.
pub(super) struct Destination {
    /// Its name.
    pub name: Box<str>,
    /// Queue or topic.
    pub kind: Kind,
    /// The connection a temporary one lives with.
    pub owner: Option<i64>,
    /// Its limits.
    pub limits: DestinationLimits,
    inbox: Inbox<Vec<Command>>,
    gate: Gate<State>,
    /// For people.
    messages: AtomicU64,
    consumers: Snapshot<Vec<Arc<Consumer>>>,
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Destination {
    /// An empty one.
    pub(super) fn new(
        name: &str,
        kind: Kind,
        owner: Option<i64>,
        limits: DestinationLimits,
    ) -> Self {
        let mut state = State::default();
        if kind == Kind::Queue {
            state.subscriptions.insert(SHARED, Subscription::default());
        }
        Self {
            name: name.into(),
            kind,
            owner,
            limits,
            inbox: Inbox::new(),
            gate: Gate::new(state),
            messages: AtomicU64::new(0),
            consumers: Snapshot::new(Vec::new()),
        }
    }

    /// Leaves work. The caller enters afterwards.
    pub(super) fn push(&self, commands: Vec<Command>) {
        self.inbox.push(commands);
    }

    /// Carries out what lies in the inbox, or lets whoever is inside do so.
    pub(super) fn enter(self: &Arc<Self>, turn: &mut Turn<'_>) -> Entered {
        self.gate.enter(|state| self.run(state, turn))
    }

    /// Goes on with a run that stopped at its bound.
    pub(super) fn resume(self: &Arc<Self>, turn: &mut Turn<'_>) -> Entered {
        self.gate.resume(|state| self.run(state, turn))
    }

    /// Messages here, waiting or in flight.
    pub(super) fn messages(&self) -> u64 {
        // Relaxed: a statistic.
        self.messages.load(Ordering::Relaxed)
    }

    /// The consumers there are now.
    pub(super) fn consumers(&self) -> Arc<Vec<Arc<Consumer>>> {
        self.consumers.load_full()
    }

    /// One run: commands, then deliveries, up to the bound. `false` if some are left.
    fn run(&self, state: &mut State, turn: &mut Turn<'_>) -> bool {
        let mut work = WORK_MAX;
        let mut ran_out = false;
        while !ran_out {
            let Some(mut commands) = self.inbox.pop() else { break };
            work = work.saturating_sub(commands.len());
            ran_out = work == 0;
            for command in commands.drain(..) {
                self.execute(state, command, turn);
            }
            turn.recycle(commands);
        }
        // Deliver even after a full load of commands, or a stream of those would starve it.
        let all_sent = Self::dispatch(state, work.max(WORK_MAX / 4), turn);
        self.serve_producers(state, turn);
        // Relaxed: a statistic.
        self.messages.store(state.messages, Ordering::Relaxed);
        all_sent && !ran_out
    }

    fn execute(&self, state: &mut State, command: Command, turn: &mut Turn<'_>) {
        match command {
            Command::Produce { message, reply, credit } => {
                self.produce(state, message, reply.as_ref(), turn);
                state.waiting_producers.extend(credit);
            }
            Command::Subscribe(consumer) => self.subscribe(state, consumer),
            Command::Leave { consumer, how } => self.leave(state, &consumer, &how),
            Command::Ready(consumer) => state.make_ready(consumer),
            Command::Acknowledge { blocks, kind, reply } => {
                let status = acknowledge(state, &blocks, kind);
                reply.done(status, turn);
            }
            Command::Redeliver { blocks, seen } => redeliver(state, &blocks, seen),
            Command::TakeBack { consumer, number, taken } => {
                state.take_back(consumer, number, taken)
            }
            Command::Forget { consumer, through } => state.forget(consumer, through),
            Command::Destroy => {
                *state =
                    State { destroyed: true, next_order: state.next_order, ..State::default() };
                self.consumers.publish(Vec::new());
            }
        }
    }

    fn produce(
        &self,
        state: &mut State,
        mut message: Arc<Stored>,
        reply: Option<&Reply>,
        turn: &mut Turn<'_>,
    ) {
        let refusal = self.refusal(state, &message);
        if let Some((status, reason)) = refusal {
            // Without a reply the producer chose not to know.
            tracing::debug!(destination = %self.name, %status, reason, "message refused");
            if let Some(reply) = reply {
                reply.refuse(status, &reason, turn);
            }
            return;
        }
        if state.somebody_is_late()
            && let Some(message) = Arc::get_mut(&mut message)
        {
            // It will stay for a while, and must not keep a whole read buffer with it.
            message.packet.unshare();
        }
        state.add(&message, self.kind);
        if let Some(reply) = reply {
            reply.send(Status::OK, turn);
        }
    }

    fn refusal(&self, state: &State, message: &Stored) -> Option<(Status, String)> {
        let limits = &self.limits;
        let bytes = message.bytes();
        if state.destroyed {
            return Some((Status::ERROR, format!("Unknown Destination:{}", self.name)));
        }
        if bytes > limits.message_bytes_max {
            let reason =
                format!("{bytes} bytes are over the limit of {}", limits.message_bytes_max);
            return Some((Status::ENTITY_TOO_LARGE, reason));
        }
        if state.messages >= limits.messages_max {
            let reason = format!("{} is full with {} messages", self.name, state.messages);
            return Some((Status::RESOURCE_FULL, reason));
        }
        // The limit holds for what is stored with the new message counted in.
        if state.bytes + bytes > limits.total_bytes_max {
            let reason = format!("{} is full with {} bytes", self.name, state.bytes);
            return Some((Status::RESOURCE_FULL, reason));
        }
        None
    }

    fn subscribe(&self, state: &mut State, consumer: Arc<Consumer>) {
        let key = match self.kind {
            Kind::Queue => SHARED,
            Kind::Topic => {
                state.subscriptions.insert(consumer.id, Subscription::default());
                consumer.id
            }
        };
        let id = consumer.id;
        let new = Subscriber {
            consumer,
            subscription: key,
            in_flight: InFlight::default(),
            is_ready: false,
            has_left: false,
        };
        state.subscribers.insert(id, new);
        state.make_ready(id);
        self.publish_consumers(state);
    }

    fn leave(&self, state: &mut State, consumer: &Consumer, how: &Leave) {
        let Some(subscriber) = state.subscribers.get_mut(&consumer.id) else { return };
        let sent = consumer.sent_through();
        let back: Vec<Entry> = match how {
            Leave::After(last) => subscriber.in_flight.take_after(last.as_ref()),
            Leave::AllSeen => Vec::new(),
            Leave::Ended => subscriber
                .in_flight
                .take_all()
                .map(|(number, mut entry)| {
                    entry.deliveries += u32::from(number <= sent);
                    entry
                })
                .collect(),
        };
        subscriber.has_left = true;
        consumer.count_unsettled(subscriber.in_flight.len());
        let key = subscriber.subscription;
        match self.kind {
            Kind::Queue => state.restore_all(key, back),
            Kind::Topic => {
                // A plain subscription ends with its consumer, and what waits in it with both.
                let waiting = state.subscriptions.remove(&key).map(|gone| gone.backlog);
                let mut waiting = waiting.unwrap_or_default();
                back.iter().for_each(|entry| state.subtract(entry));
                while let Some(entry) = waiting.pop() {
                    state.subtract(&entry);
                }
            }
        }
        state.retire(consumer.id);
        self.publish_consumers(state);
    }

    fn publish_consumers(&self, state: &State) {
        let open = state.subscribers.values().filter(|one| !one.consumer.is_closed());
        self.consumers.publish(open.map(|one| Arc::clone(&one.consumer)).collect());
    }

    /// Delivers until nobody has credit or nothing waits; `false` if the bound came first.
    fn dispatch(state: &mut State, work: usize, turn: &mut Turn<'_>) -> bool {
        let mut left = work;
        // What is not finished, or not begun, is looked at again in the next run.
        while left > 0 {
            let Some(key) = state.fed.pop_front() else { return true };
            state.dispatch(key, &mut left, turn);
            if left == 0 {
                state.fed.push_front(key);
            } else if let Some(subscription) = state.subscriptions.get_mut(&key) {
                subscription.is_fed = false;
            }
        }
        false
    }

    /// Gives waiting producers their next batch, first come first served, while there is room for
    /// it. A destination too small for batches gives it at once, and refuses what does not fit.
    fn serve_producers(&self, state: &mut State, turn: &mut Turn<'_>) {
        let batch = self.limits.producer_batch;
        let roomy = self.limits.messages_max / 2 >= u64::from(batch);
        while let Some((output, producer)) = state.waiting_producers.pop_front() {
            let free = self.limits.messages_max.saturating_sub(state.messages);
            if roomy && free <= u64::from(batch) {
                state.waiting_producers.push_front((output, producer));
                return;
            }
            turn.send_packet(&output, self.producer_credit(producer));
        }
    }

    fn producer_credit(&self, producer: i64) -> PacketBuilder {
        let bytes = i64::try_from(self.limits.message_bytes_max).unwrap_or(-1);
        PacketBuilder::new(PacketType::RESUME_FLOW)
            .long("JMQProducerID", producer)
            .int("JMQSize", i32::try_from(self.limits.producer_batch).unwrap_or(i32::MAX))
            .long("JMQBytes", -1)
            .long("JMQMaxMsgBytes", bytes)
            .string("JMQDestinationID", &self.uid())
    }

    /// The name a producer is told, `Q:name` or `T:name`.
    pub(super) fn uid(&self) -> String {
        let letter = match self.kind {
            Kind::Queue => 'Q',
            Kind::Topic => 'T',
        };
        format!("{letter}:{}", self.name)
    }

    /// Prefetch of consumers this destination allows.
    pub(super) const fn consumer_limit(&self) -> Credit {
        self.limits.consumer_flow_limit
    }
}

/// The one subscription of a queue.
const SHARED: i64 = 0;

/// What is behind the gate.
#[derive(Debug, Default)]
struct State {
    /// A queue has one, a topic one for each consumer.
    subscriptions: HashMap<i64, Subscription>,
    /// By consumer. In order, so that a run is the same each time.
    subscribers: BTreeMap<i64, Subscriber>,
    /// Subscriptions that have something to deliver, or a consumer that may take it. Each stands
    /// here once.
    fed: VecDeque<i64>,
    waiting_producers: VecDeque<(Arc<Output>, i64)>,
    messages: u64,
    bytes: u64,
    next_order: u64,
    destroyed: bool,
}

/// One stream of messages that its consumers share.
#[derive(Debug, Default)]
struct Subscription {
    backlog: Backlog,
    /// Consumers that may have credit, in the order in which they get the next messages.
    ready: VecDeque<i64>,
    is_fed: bool,
}

impl Subscription {
    /// Has the next dispatch look at this one, whose key this is.
    fn feed(&mut self, key: i64, fed: &mut VecDeque<i64>) {
        if !self.is_fed {
            self.is_fed = true;
            fed.push_back(key);
        }
    }
}

#[derive(Debug)]
struct Subscriber {
    consumer: Arc<Consumer>,
    subscription: i64,
    in_flight: InFlight,
    is_ready: bool,
    /// The consumer has left; this stays while something of its may still be settled.
    has_left: bool,
}

impl State {
    fn add(&mut self, message: &Arc<Stored>, kind: Kind) {
        let order = self.next_order;
        self.next_order += 1;
        let entry = Entry { message: Arc::clone(message), order, deliveries: 0 };
        match kind {
            Kind::Queue => {
                if let Some(queue) = self.subscriptions.get_mut(&SHARED) {
                    queue.backlog.push(entry);
                    queue.feed(SHARED, &mut self.fed);
                    self.messages += 1;
                    self.bytes += message.bytes();
                }
            }
            Kind::Topic => {
                for subscriber in self.subscribers.values() {
                    let consumer = &subscriber.consumer;
                    let own = consumer.no_local && consumer.connection_id == message.connection_id;
                    if own || consumer.is_closed() {
                        continue;
                    }
                    if let Some(one) = self.subscriptions.get_mut(&subscriber.subscription) {
                        one.backlog.push(entry.clone());
                        one.feed(subscriber.subscription, &mut self.fed);
                        self.messages += 1;
                        self.bytes += message.bytes();
                    }
                }
            }
        }
    }

    /// Whether what arrives now must wait for somebody.
    fn somebody_is_late(&self) -> bool {
        self.subscriptions.values().any(|one| one.ready.is_empty())
    }

    fn subtract(&mut self, entry: &Entry) {
        self.messages -= 1;
        self.bytes -= entry.message.bytes();
    }

    fn make_ready(&mut self, id: i64) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let key = subscriber.subscription;
        if subscriber.is_ready || subscriber.consumer.is_closed() {
            return;
        }
        let Some(subscription) = self.subscriptions.get_mut(&key) else { return };
        subscriber.is_ready = true;
        subscription.ready.push_back(id);
        subscription.feed(key, &mut self.fed);
    }

    fn restore_all(&mut self, key: i64, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        match self.subscriptions.get_mut(&key) {
            Some(subscription) => {
                entries.into_iter().for_each(|entry| subscription.backlog.restore(entry));
                subscription.feed(key, &mut self.fed);
            }
            // A subscription that ended with its consumer.
            None => entries.iter().for_each(|entry| self.subtract(entry)),
        }
    }

    fn take_back(&mut self, id: i64, number: u64, taken: Taken) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let entry = subscriber.in_flight.take(number);
        let again = subscriber.consumer.give_back(taken);
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        let key = subscriber.subscription;
        self.restore_all(key, entry.into_iter().collect());
        if again {
            self.make_ready(id);
        }
        self.retire(id);
    }

    /// Forgets a consumer that has left, once nothing of its is unsettled.
    fn retire(&mut self, id: i64) {
        let is_over = |one: &Subscriber| one.has_left && one.in_flight.is_empty();
        if self.subscribers.get(&id).is_some_and(is_over) {
            self.subscribers.remove(&id);
        }
    }

    fn forget(&mut self, id: i64, through: u64) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let gone = subscriber.in_flight.take_through(through);
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        gone.iter().for_each(|entry| self.subtract(entry));
        self.retire(id);
    }

    /// Deals the backlog of one subscription out, one message to each ready consumer in turn.
    fn dispatch(&mut self, key: i64, left: &mut usize, turn: &mut Turn<'_>) {
        let Self { subscriptions, subscribers, messages, bytes, .. } = self;
        let Some(subscription) = subscriptions.get_mut(&key) else { return };
        while *left > 0 && !subscription.backlog.is_empty() {
            let Some(id) = subscription.ready.pop_front() else { return };
            let Some(subscriber) = subscribers.get_mut(&id) else { continue };
            let Some((taken, epoch, consumer_flow)) = take_turn(&subscriber.consumer) else {
                // Whoever gives it credit, or starts its session, makes it ready again.
                subscriber.is_ready = false;
                continue;
            };
            let entry = loop {
                let Some(entry) = subscription.backlog.pop() else { break None };
                if !entry.message.is_expired(turn.wall_ms) {
                    break Some(entry);
                }
                *messages -= 1;
                *bytes -= entry.message.bytes();
                turn.count_expired();
            };
            let Some(entry) = entry else {
                subscriber.consumer.give_back(taken);
                subscription.ready.push_front(id);
                return;
            };
            subscription.ready.push_back(id);
            *left -= 1;
            let count = i32::try_from(entry.deliveries).unwrap_or(i32::MAX - 1) + 1;
            let message = Arc::clone(&entry.message);
            let number = subscriber.in_flight.deliver(entry);
            let consumer = Arc::clone(&subscriber.consumer);
            consumer.count_dispatched(subscriber.in_flight.len());
            let output = Arc::clone(&consumer.output);
            output.push(Outgoing { message, consumer, number, count, taken, epoch, consumer_flow });
            turn.touch_output(&output);
        }
    }
}

/// A credit, the session's number, and whether the packet carries C; `None` if the consumer is
/// closed or stopped, or has no credit.
fn take_turn(consumer: &Consumer) -> Option<(Taken, u32, bool)> {
    if consumer.is_closed() {
        return None;
    }
    let epoch = consumer.session.running_epoch()?;
    let (taken, consumer_flow) = consumer.take_credit()?;
    Some((taken, epoch, consumer_flow))
}

/// The consumer and message of each block.
fn each_block(blocks: &[u8]) -> impl Iterator<Item = (i64, MessageId)> {
    blocks.chunks_exact(BLOCK_LEN).filter_map(|block| {
        let (consumer, id) = block.split_first_chunk()?;
        Some((i64::from_be_bytes(*consumer), MessageId::decode(id.first_chunk()?)))
    })
}

/// Settles what is there; the worst outcome is the answer.
fn acknowledge(state: &mut State, blocks: &[u8], kind: AckKind) -> Status {
    let mut status = Status::OK;
    for (consumer, id) in each_block(blocks) {
        let Some(subscriber) = state.subscribers.get_mut(&consumer) else {
            // Everything of a consumer that has left is settled or went back.
            status = Status::CONFLICT;
            continue;
        };
        if kind == AckKind::CountOnly {
            continue;
        }
        let Some(mut entry) = subscriber.in_flight.settle(&id) else {
            status = Status::CONFLICT;
            continue;
        };
        let left = subscriber.in_flight.len();
        subscriber.consumer.count_unsettled(left);
        let key = subscriber.subscription;
        match kind {
            AckKind::Undeliverable => {
                entry.deliveries += 1;
                state.restore_all(key, vec![entry]);
            }
            AckKind::Dead => {
                tracing::warn!(message = %id, "a client gave a message up");
                state.subtract(&entry);
            }
            AckKind::Consumed | AckKind::CountOnly => state.subtract(&entry),
        }
        state.retire(consumer);
    }
    status
}

fn redeliver(state: &mut State, blocks: &[u8], seen: bool) {
    for (consumer, id) in each_block(blocks) {
        let Some(subscriber) = state.subscribers.get_mut(&consumer) else { continue };
        let Some(mut entry) = subscriber.in_flight.settle(&id) else { continue };
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        entry.deliveries += u32::from(seen);
        let key = subscriber.subscription;
        state.restore_all(key, vec![entry]);
        state.retire(consumer);
    }
}

/// Flags a broker clears before it stores a message: they were meant for itself.
pub(super) const STORED_CLEAR: Flags = Flags::from_bits(
    Flags::FLOW_PAUSED.bits() | Flags::CONSUMER_FLOW.bits() | Flags::REDELIVERED.bits(),
);
