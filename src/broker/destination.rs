//! A queue or topic: an inbox that everybody may push to, and a state behind a gate.
//!
//! Whoever pushes a burst of commands enters the gate; if nobody is inside, it carries out what
//! lies in the inbox and dispatches, on its own thread, straight into the outputs of the
//! consumers. Order is total per destination.
//!
//! # Invariants
//! - One run handles at most [`WORK_MAX`] commands and deliveries; the rest waits for the run list.

use std::fmt;

pub(super) use crate::message::DestinationKind as Kind;
use crate::{
    flow::Credit,
    sync::{Arc, AtomicU64, Entered, Gate, Inbox, Ordering, Snapshot},
    wire::{Flags, PacketBuilder, PacketType, Status},
};

use super::{
    attributes::Attributes,
    backlog::Entry,
    command::{Command, Leave, Reply},
    consumer::Consumer,
    dispatch::{SHARED, State, Subscriber, Subscription, acknowledge, redeliver},
    in_flight::InFlight,
    stored::Stored,
    turn::Turn,
};

/// Commands and deliveries of one run.
const WORK_MAX: usize = 2048;

/// A destination of a broker.
pub(super) struct Destination {
    /// Its name.
    pub name: Box<str>,
    /// Queue or topic.
    pub kind: Kind,
    /// The connection a temporary one lives with.
    pub owner: Option<i64>,
    /// Its limits.
    pub limits: Attributes,
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
    pub(super) fn new(name: &str, kind: Kind, owner: Option<i64>, limits: Attributes) -> Self {
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
    fn run(self: &Arc<Self>, state: &mut State, turn: &mut Turn<'_>) -> bool {
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

    fn execute(self: &Arc<Self>, state: &mut State, command: Command, turn: &mut Turn<'_>) {
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
            Command::Rare(rare) => rare.run(self, state, turn),
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
        let batch = u64::from(self.limits.producer_credit().0.unsigned_abs());
        let roomy = self.limits.messages_max / 2 >= batch;
        while let Some((output, producer)) = state.waiting_producers.pop_front() {
            let free = self.limits.messages_max.saturating_sub(state.messages);
            if roomy && free <= batch {
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
            .int("JMQSize", self.limits.producer_credit().0)
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

/// Flags a broker clears before it stores a message: they were meant for itself.
pub(super) const STORED_CLEAR: Flags = Flags::from_bits(
    Flags::FLOW_PAUSED.bits() | Flags::CONSUMER_FLOW.bits() | Flags::REDELIVERED.bits(),
);
