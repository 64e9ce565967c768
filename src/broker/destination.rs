//! A queue, a topic, or a subscription that stands for itself: an inbox that everybody may push to,
//! and a state behind a gate.
//!
//! Whoever pushes a burst of commands enters the gate; if nobody is inside, it carries out what
//! lies in the inbox and dispatches, on its own thread, straight into the outputs of the
//! consumers. Order is total per destination.
//!
//! # Invariants
//! - One run handles at most [`WORK_MAX`] commands and deliveries; the rest waits for the run list.
//! - What a topic forwards is left with its subscriptions before its gate is left, so that they see
//!   the topic's order.

use std::fmt;

pub(super) use crate::message::DestinationKind as Kind;
use crate::{
    proto::broker_in::ReplyTo,
    sync::{
        Arc, AtomicBool, AtomicU32, AtomicU64, Entered, Gate, Inbox, Kept, Ordering, Plain,
        Reserve, Snapshot,
    },
    wire::{Flags, Status},
};

use super::{
    ahead::{self, Purpose},
    attributes::Attributes,
    backlog::{Item, Stop},
    command::{Command, Sender},
    consumer::Consumer,
    dead::DeadReason,
    dispatch::{Part, State},
    memory::Memory,
    output::Output,
    persist::StoredKey,
    room::{self, Refused},
    stored::Stored,
    subscription::Route,
    turn::Turn,
};

/// Commands and deliveries of one run.
const WORK_MAX: usize = 2048;

/// Who made a destination, and how long it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// An administrator, or the settings: it stays.
    Administered,
    /// Its first user: it goes when nobody has used it for a while.
    AutoCreated,
    /// A connection, whose id this is: it goes with it.
    Temporary(i64),
    /// The queue of dead messages.
    Dead,
    /// A subscription.
    Subscription,
}

/// A destination of a broker.
pub(super) struct Destination {
    /// Its name; of a subscription, that of its topic.
    pub name: Box<str>,
    /// Queue or topic.
    pub kind: Kind,
    /// Who made it.
    pub origin: Origin,
    /// `Q:name` or `T:name`, as producers are told.
    pub uid: Box<str>,
    inbox: Inbox<Vec<Command>>,
    gate: Gate<State>,
    attributes: Snapshot<Attributes>,
    /// The connection a temporary one lives with; 0 once that is gone.
    owner: AtomicU64,
    destroyed: AtomicBool,
    /// Producers, counted before they come.
    producers: AtomicU32,
    /// Room kept for what open transactions have sent.
    reserve: Reserve,
    counts: Counts,
    pub(super) consumers: Snapshot<Vec<Arc<Consumer>>>,
    /// A topic's durable subscriptions, for whoever has a message stored.
    pub(super) durable_routes: Snapshot<Vec<Route>>,
    /// Its number in the store, given with its first record; 0: none.
    pub(super) place: Plain<AtomicU64>,
}

/// What is counted for people, written by whoever is behind the gate.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Messages here, waiting or in flight.
    pub messages: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Messages that are not due yet.
    pub delayed: AtomicU64,
    /// Messages that came, since the start.
    pub received: AtomicU64,
    /// Messages that expired, since the start.
    pub expired: AtomicU64,
    /// Waiting messages that selectors of consumers have looked at, since the start.
    pub searched: AtomicU64,
    /// Bit 1: consumption is paused; bit 2: production.
    pub paused: AtomicU32,
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl Destination {
    /// An empty one.
    pub(super) fn new(name: &str, kind: Kind, origin: Origin, attributes: Attributes) -> Self {
        let part = match (origin, kind) {
            (Origin::Subscription, _) => Part::Subscription,
            (_, Kind::Queue) => Part::Queue,
            (_, Kind::Topic) => Part::Topic,
        };
        let letter = if kind == Kind::Queue { 'Q' } else { 'T' };
        let place = Plain::new(AtomicU64::new(0));
        let owner = if let Origin::Temporary(owner) = origin { owner.unsigned_abs() } else { 0 };
        Self {
            name: name.into(),
            kind,
            origin,
            uid: format!("{letter}:{name}").into(),
            inbox: Inbox::new(),
            gate: Gate::new(State::new(part, attributes.clone(), Plain::clone(&place))),
            attributes: Snapshot::new(attributes),
            owner: AtomicU64::new(owner),
            destroyed: AtomicBool::new(false),
            producers: AtomicU32::new(0),
            reserve: Reserve::new(),
            counts: Counts::default(),
            consumers: Snapshot::new(Vec::new()),
            durable_routes: Snapshot::new(Vec::new()),
            place,
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

    /// What is counted of it.
    pub(super) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Messages here, waiting or in flight.
    pub(super) fn messages(&self) -> u64 {
        // Relaxed: a statistic.
        self.counts.messages.load(Ordering::Relaxed)
    }

    /// The consumers there are now.
    pub(super) fn consumers(&self) -> Arc<Vec<Arc<Consumer>>> {
        self.consumers.load_full()
    }

    /// Its attributes as they are now.
    pub(super) fn attributes(&self) -> Arc<Attributes> {
        self.attributes.load_full()
    }

    /// Whether it lives with a connection.
    pub(super) const fn is_temporary(&self) -> bool {
        matches!(self.origin, Origin::Temporary(_))
    }

    /// Whether it is no more. What still arrives is refused.
    pub(super) fn is_destroyed(&self) -> bool {
        // Relaxed: a hint; behind the gate it is certain.
        self.destroyed.load(Ordering::Relaxed)
    }

    /// A temporary one whose connection is gone gets this one; `false` if it has one.
    pub(super) fn adopt(&self, connection: i64) -> bool {
        // Relaxed: the exchange alone decides whose it is.
        let (none, new) = (0, connection.unsigned_abs());
        self.owner.compare_exchange(none, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The connection of a temporary one is gone.
    pub(super) fn orphan(&self) {
        // Relaxed: as above.
        self.owner.store(0, Ordering::Relaxed);
    }

    /// Whether its connection is gone; from then on nobody adopts it any more.
    fn is_left_to_die(&self) -> bool {
        // Relaxed: as above.
        let (none, nobody) = (0, u64::MAX);
        self.owner.compare_exchange(none, nobody, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Makes room for one more producer; `false` if there is none.
    pub(super) fn count_producer(&self) -> bool {
        let max = self.attributes.read(|attributes| attributes.producers_max);
        // Relaxed: the count alone decides.
        let count = |now: u32| (now < max).then(|| now + 1);
        self.producers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }

    /// How many producers there are.
    pub(super) fn producers(&self) -> u32 {
        // Relaxed: a statistic.
        self.producers.load(Ordering::Relaxed)
    }

    /// Keeps room for a message that a transaction takes, here and in the broker's memory, if there
    /// is any. What was let in once is taken, however full it is then.
    pub(super) fn reserve(&self, message: &Stored, memory: &Memory) -> Result<(), Refused> {
        let bytes = message.bytes();
        let fits = |kept: Kept| {
            // Relaxed: a statistic.
            let held = beside(kept, self.messages(), self.counts.bytes.load(Ordering::Relaxed));
            self.attributes.read(|attributes| room::check(attributes, &self.name, held, bytes))
        };
        self.reserve.keep(bytes, || room::unknown(&self.name), fits)?;
        memory.add(1, bytes.cast_signed());
        Ok(())
    }

    /// What is held, and what room is kept for beside it.
    pub(super) fn with_reserved(&self, messages: u64, bytes: u64) -> room::Held {
        beside(self.reserve.kept(), messages, bytes)
    }

    /// The room kept for a message is free again.
    pub(super) fn unreserve(&self, message: &Stored, memory: &Memory) {
        self.reserve.give_back(message.bytes());
        memory.add(-1, -message.bytes().cast_signed());
    }

    /// Room is kept for a message that a prepared transaction has sent, whatever there is.
    pub(super) fn promise(&self, message: &Stored, memory: &Memory) {
        let bytes = message.bytes();
        let _kept = self.reserve.keep(bytes, || (), |_| Ok(()));
        memory.add(1, bytes.cast_signed());
    }

    /// Changes its state before anybody is served.
    pub(super) fn restore(&self, change: impl FnOnce(&mut State)) {
        let mut change = Some(change);
        let _entered = self.gate.enter(|state| {
            if let Some(change) = change.take() {
                change(state);
            }
            true
        });
    }

    /// Shows what is paused.
    pub(super) fn set_paused_counts(&self, consumption: bool, production: bool) {
        // Relaxed: a statistic.
        let bits = u32::from(consumption) | u32::from(production) << 1;
        self.counts.paused.store(bits, Ordering::Relaxed);
    }

    /// Replaces the attributes. Called behind the gate.
    pub(super) fn set_attributes(&self, state: &mut State, attributes: Attributes) {
        self.attributes.publish(attributes.clone());
        state.attributes = attributes;
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
            turn.spare().keep_commands(commands);
        }
        // Deliver even after a full load of commands, or a stream of those would starve it.
        let mut left = work.max(WORK_MAX / 4);
        let all_sent = self.dispatch(state, &mut left, turn);
        let all_found = self.search(state, left.max(WORK_MAX / 4), turn);
        self.settle_up(state, turn);
        all_sent && all_found && !ran_out
    }

    fn execute(self: &Arc<Self>, state: &mut State, command: Command, turn: &mut Turn<'_>) {
        match command {
            Command::Produce { message, reply, used_up, reserved, instead_of } => {
                if let Some(producer) = used_up {
                    state.producers.used_up(producer);
                    // The room for the next batch is what there is without this message.
                    self.serve_producers(state, turn);
                }
                self.produce(state, message, reply, (reserved, instead_of), turn);
            }
            Command::Stored { message, reply, copies, marked, outcome } => {
                self.stored(state, message, (reply, marked), &copies, outcome, turn);
            }
            Command::Removed { ticket, reply, status, outcome } => {
                Self::removed(state, ticket, &reply, (status, outcome), turn);
            }
            Command::Committed { message, copies, marked } => {
                self.committed(state, message, (&copies, marked), turn);
            }
            Command::Forward { message, .. } if state.destroyed => {
                // It was on the way when the subscription ended.
                state.let_go(message.known(), turn);
            }
            Command::Forward { message, marked } => {
                state.note_mark(marked);
                state.add(&message, turn);
            }
            Command::Released { share, sequence, bytes } => {
                state.released(&share, sequence, bytes, turn);
                turn.spare().keep_share(share);
            }
            Command::AddProducer { id, output, reply } => {
                self.add_producer(state, id, output, reply, turn);
            }
            Command::UsedUp(producer) => state.producers.used_up(producer),
            Command::RemoveProducer(id) => {
                state.producers.leave(id);
                // Relaxed: the count alone matters.
                self.producers.fetch_sub(1, Ordering::Relaxed);
            }
            Command::Subscribe(arrival) => self.subscribe(state, *arrival, turn),
            Command::Leave { consumer, how } => self.leave(state, &consumer, &how, turn),
            Command::Ready(consumer) => state.make_ready(consumer),
            Command::Acknowledge { blocks, kind, reply, claim } => {
                state.acknowledge(self, &blocks, kind, (claim, reply), turn);
            }
            Command::Settle { transaction, outcome } => state.settle(transaction, outcome, turn),
            Command::Disclaim(claim) => state.disclaim(claim, turn),
            Command::Hold { transaction } => state.hold(transaction),
            Command::Redeliver { blocks, seen, transaction } => {
                state.redeliver(&blocks, seen, transaction, turn);
            }
            Command::TakeBack { consumer, number, taken } => {
                state.take_back(consumer, number, taken, turn);
            }
            Command::Forget { consumer, through } => state.forget(consumer, through, turn),
            Command::Tick(at) => self.tick(state, at, turn),
            Command::Destroy => self.destroy(state, turn),
            Command::Rare(rare) => rare.run(self, state, turn),
        }
    }

    fn produce(
        self: &Arc<Self>,
        state: &mut State,
        mut message: Arc<Stored>,
        reply: Option<Sender>,
        (reserved, instead_of): (bool, Option<StoredKey>),
        turn: &mut Turn<'_>,
    ) {
        if reserved {
            self.unreserve(&message, &turn.shared.memory);
        }
        let is_late = self.origin != Origin::Dead && message.is_expired(turn.wall_ms);
        let copies = if is_late { None } else { self.wants_stored(&message, turn) };
        let mut refusal = self.make_room(state, &message, reserved, turn);
        if let (Ok(()), Some(_), Some(persist)) = (&refusal, &copies, &turn.shared.persist) {
            refusal = persist.check();
        }
        if let Err((status, reason)) = refusal {
            turn.remove_stored(instead_of);
            // Without a reply the producer chose not to know.
            tracing::debug!(destination = %self.name, %status, reason, "message refused");
            if let Some(reply) = reply {
                reply.refuse(status, &reason, turn);
            }
            return;
        }
        // Relaxed: a statistic with one writer.
        let received = self.counts.received.load(Ordering::Relaxed);
        self.counts.received.store(received + 1, Ordering::Relaxed);
        if let Some(copies) = copies {
            return self.store(state, message, reply, copies, instead_of, turn);
        }
        turn.remove_stored(instead_of);
        if is_late {
            self.bury(state, (&message, None), 0, DeadReason::Expired, turn);
        } else {
            Self::make_keepable(state, &mut message, turn);
            state.add(&message, turn);
        }
        if let Some(reply) = reply {
            reply.taken(turn);
        }
    }

    /// Moves a message that will stay out of the buffer it was read into, which it would keep.
    pub(super) fn make_keepable(state: &State, message: &mut Arc<Stored>, turn: &Turn<'_>) {
        let stays_long = message.due > turn.wall_ms;
        if (stays_long || turn.is_crowded() && state.somebody_is_late())
            && let Some(message) = Arc::get_mut(message)
        {
            message.packet.unshare();
        }
    }

    fn add_producer(
        &self,
        state: &mut State,
        id: i64,
        output: Arc<Output>,
        reply: Option<ReplyTo>,
        turn: &mut Turn<'_>,
    ) {
        if state.destroyed {
            // Relaxed: the count alone matters.
            self.producers.fetch_sub(1, Ordering::Relaxed);
            if let Some(to) = reply {
                let reason = format!("{} has just been destroyed; ask once more", self.name);
                turn.send_packet(&output, to.refuse(Status::RETRY, &reason));
            }
            return;
        }
        let mut producers = std::mem::take(&mut state.producers);
        let credit = producers.join(id, Arc::clone(&output), &state.level(&self.uid));
        state.producers = producers;
        if let Some(to) = reply {
            let packet = to
                .with(Status::OK)
                .long("JMQProducerID", id)
                .string("JMQDestinationID", &self.uid)
                .long("JMQBytes", credit.1)
                .int("JMQSize", credit.0);
            turn.send_packet(&output, packet);
        }
    }

    /// Gives producers that wait their next batch.
    fn serve_producers(&self, state: &mut State, turn: &mut Turn<'_>) {
        let mut producers = std::mem::take(&mut state.producers);
        producers.serve(&state.level(&self.uid), turn);
        state.producers = producers;
    }

    /// Delivers until nobody has credit or nothing waits; `false` if the bound came first.
    fn dispatch(
        self: &Arc<Self>,
        state: &mut State,
        left: &mut usize,
        turn: &mut Turn<'_>,
    ) -> bool {
        // What is not finished, or not begun, is looked at again in the next run.
        while *left > 0 {
            let Some(key) = state.fed.pop_front() else { return true };
            state.dispatch(self, key, left, turn);
            if *left == 0 {
                state.fed.push_front(key);
            } else if let Some(subscription) = state.subscriptions.get_mut(&key) {
                subscription.is_fed = false;
            }
        }
        false
    }

    /// Goes on with searches; `false` if some are not through.
    fn search(&self, state: &mut State, mut left: usize, turn: &mut Turn<'_>) -> bool {
        while let Some(mut job) = state.jobs.pop_front() {
            match job.run(state, &mut left, turn) {
                Stop::Done => {}
                Stop::Budget => {
                    state.jobs.push_front(job);
                    return false;
                }
                Stop::Cold(place) => {
                    state.jobs.push_front(job);
                    state.ask_ahead(Purpose::Browse, place, ahead::COUNT_MAX);
                    return true;
                }
            }
        }
        true
    }

    /// What follows from the commands and deliveries of a run.
    fn settle_up(self: &Arc<Self>, state: &mut State, turn: &mut Turn<'_>) {
        for (entry, reason) in std::mem::take(&mut state.dead) {
            let key = state.key_of(&entry);
            self.bury(state, (&entry.message, key), entry.deliveries, reason, turn);
        }
        let mut producers = std::mem::take(&mut state.producers);
        producers.hold_back(&state.level(&self.uid), turn);
        producers.serve(&state.level(&self.uid), turn);
        state.producers = producers;
        self.look_ahead(state, turn);
        turn.push_units();
        turn.push_forwards();
        if state.part != Part::Subscription {
            let (messages, bytes) =
                std::mem::replace(&mut state.accounted, (state.messages, state.bytes));
            if (messages, bytes) != state.accounted {
                let change = |now: u64, before: u64| now.cast_signed() - before.cast_signed();
                let memory = &turn.shared.memory;
                memory.add(change(state.messages, messages), change(state.bytes, bytes));
            }
        }
        // Relaxed: statistics.
        self.counts.messages.store(state.messages, Ordering::Relaxed);
        self.counts.bytes.store(state.bytes, Ordering::Relaxed);
        self.counts.searched.store(state.searched, Ordering::Relaxed);
        if state.wakes_at.is_some() || self.counts.delayed.load(Ordering::Relaxed) > 0 {
            self.counts.delayed.store(state.delayed() as u64, Ordering::Relaxed);
        }
        self.look_for_idleness(state, turn);
        if let Some(at) = state.wake_at.filter(|&at| state.wakes_at.is_none_or(|set| at < set)) {
            state.wakes_at = Some(at);
            turn.wake_at(self, at);
        }
    }

    /// Whether there is anything or anybody here.
    fn is_used(state: &State) -> bool {
        state.messages > 0
            || !state.subscribers.is_empty()
            || !state.routes.is_empty()
            || state.producers.len() > 0
            || !state.prepared.is_empty()
    }

    /// An auto-created destination that nobody uses goes after a while.
    fn look_for_idleness(self: &Arc<Self>, state: &mut State, turn: &mut Turn<'_>) {
        if self.origin != Origin::AutoCreated || state.destroyed {
            return;
        }
        if Self::is_used(state) {
            state.idle_since = None;
            return;
        }
        let since = *state.idle_since.get_or_insert(turn.wall_ms);
        if state.reaped_at.is_none() {
            let at = since.saturating_add(turn.shared.reap_time_ms());
            state.reaped_at = Some(at);
            turn.wake_at(self, at);
        }
    }

    fn tick(self: &Arc<Self>, state: &mut State, at: i64, turn: &mut Turn<'_>) {
        state.tick(at, turn);
        // This thread may have looked at the clock before the one whose tick it is.
        let now = turn.wall_ms.max(at);
        let mut is_idle = false;
        if state.reaped_at == Some(at) {
            state.reaped_at = None;
            let over = |since: i64| now - since >= turn.shared.reap_time_ms();
            // In the same run something may have come just before this.
            is_idle = state.idle_since.is_some_and(over) && !Self::is_used(state);
            if is_idle && !self.reserve.close_if_free() {
                // An open transaction has sent something to it.
                state.idle_since = Some(now);
                is_idle = false;
            }
        }
        let is_lost = state.orphan_until.is_some_and(|until| until <= now);
        if is_idle || is_lost && self.is_left_to_die() {
            self.destroy(state, turn);
        }
    }

    /// The destination is no more: its messages go, its consumers get nothing, and what arrives
    /// later is refused.
    pub(super) fn destroy(self: &Arc<Self>, state: &mut State, turn: &mut Turn<'_>) {
        if std::mem::replace(&mut state.destroyed, true) {
            return;
        }
        // Relaxed: a hint for those outside.
        self.destroyed.store(true, Ordering::Relaxed);
        self.reserve.close();
        if state.part == Part::Subscription {
            self.end_subscription(state, turn);
        } else {
            turn.shared.registry.remove(self);
            self.unrecord(turn);
        }
        state.clear(turn);
        for subscriber in std::mem::take(&mut state.subscribers).into_values() {
            for entry in subscriber.in_flight.entries() {
                state.subtract(&Item::Here(entry.clone()), turn);
            }
        }
        for (_, entry) in std::mem::take(&mut state.prepared).into_values().flatten() {
            state.subtract(&Item::Here(entry), turn);
        }
        for route in std::mem::take(&mut state.routes) {
            route.topic_is_gone(turn);
        }
        self.publish_routes(state);
        let empty = State::new(state.part, state.attributes.clone(), Plain::clone(&self.place));
        let accounted = state.accounted;
        // Producers that wait for room get their credit, and what they send is refused.
        let producers = std::mem::take(&mut state.producers);
        let (next_order, arriving) = (state.next_order, state.arriving.take());
        *state = State { destroyed: true, accounted, producers, next_order, arriving, ..empty };
        self.consumers.publish(Vec::new());
    }

    /// A subscription gets nothing more. What its consumers still have they may settle.
    pub(super) fn end_subscription(self: &Arc<Self>, state: &mut State, turn: &mut Turn<'_>) {
        state.destroyed = true;
        // Relaxed: a hint for those outside.
        self.destroyed.store(true, Ordering::Relaxed);
        self.reserve.close();
        turn.shared.subscriptions.remove(self);
        if let Some(identity) = state.identity.take() {
            if identity.is_durable() {
                self.unrecord(turn);
            }
            identity.detach(self, turn);
        }
        state.clear(turn);
        // What comes back from consumers finds no place and goes.
        state.subscriptions.clear();
    }

    /// Drops everything at the end of the broker: what destinations keep knows them in turn.
    pub(super) fn dissolve(&self) {
        let _entered = self.gate.enter(|state| {
            while self.inbox.pop().is_some() {}
            let place = Plain::clone(&self.place);
            *state = State::new(state.part, state.attributes.clone(), place);
            true
        });
        self.consumers.publish(Vec::new());
    }

    /// Shows the durable subscriptions of a topic.
    pub(super) fn publish_routes(&self, state: &State) {
        let durable = state.routes.iter().filter(|route| route.is_durable());
        self.durable_routes.publish(durable.cloned().collect());
    }

    pub(super) fn publish_consumers(&self, state: &State) {
        self.consumers
            .publish(state.open_subscribers().map(|one| Arc::clone(&one.consumer)).collect());
    }
}

/// What is held, and what room is kept for.
const fn beside(kept: Kept, messages: u64, bytes: u64) -> room::Held {
    room::Held {
        messages: messages.saturating_add(kept.count),
        bytes: bytes.saturating_add(kept.bytes),
    }
}

/// Flags a broker clears before it stores a message: they were meant for itself.
pub(super) const STORED_CLEAR: Flags = Flags::from_bits(
    Flags::FLOW_PAUSED.bits() | Flags::CONSUMER_FLOW.bits() | Flags::REDELIVERED.bits(),
);
