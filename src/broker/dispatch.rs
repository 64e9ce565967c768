//! The state behind a destination's gate: who gets which message next.
//!
//! # Invariants
//! - A message is in exactly one place: in a backlog, in flight to one consumer, held by a prepared
//!   transaction, or settled.
//! - A consumer is in its subscription's ready list exactly if it may have credit; whoever gives
//!   it credit again sends [`Command::Ready`]. One that has credit
//!   and found nothing its selector takes is in the list of the hungry ones, until something comes.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::{
    flow::Taken,
    sync::{Arc, AtomicU64, Plain},
    wire::Flags,
};

use super::{
    ahead::Ahead,
    attributes::Attributes,
    backlog::{Backlog, Cursor, Entry, Found, Item, Place},
    browse::Job,
    command::{Arrival, Command},
    consumer::Consumer,
    dead::DeadReason,
    destination::Destination,
    in_flight::InFlight,
    limits::EXPIRY_SWEEP_MS,
    output::{Outgoing, Receiver, Trip},
    persist::{Copy, Marks},
    producers::{Level, Producers},
    recent::Recent,
    settle::Held,
    stored::{Known, Share, Stored},
    subscription::{Identity, Route},
    turn::Turn,
};

/// The one subscription of a queue.
pub(super) const SHARED: i64 = 0;

/// What a destination is to its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A queue: its consumers share what waits.
    Queue,
    /// A topic: each subscription has its own.
    Topic,
    /// A subscription that stands for itself: shared like a queue, fed by topics, which count its
    /// messages.
    Subscription,
}

/// What is behind the gate.
#[derive(Debug)]
pub(super) struct State {
    pub(super) part: Part,
    /// The number under which it is stored, shared with its destination.
    pub(super) place: Plain<AtomicU64>,
    /// Messages on their way into the store that somebody takes at once.
    pub(super) takes_soon: u32,
    /// Deliveries of single messages are marked here, for consumers with selectors.
    pub(super) marks_singly: bool,
    pub(super) attributes: Attributes,
    /// A queue has one, a topic one for each plain consumer.
    pub(super) subscriptions: HashMap<i64, Subscription>,
    /// By consumer. In order, so that a run is the same each time.
    pub(super) subscribers: BTreeMap<i64, Subscriber>,
    /// Subscriptions that have something to deliver, or a consumer that may take it. Each stands
    /// here once.
    pub(super) fed: VecDeque<i64>,
    /// A topic's subscriptions that stand for themselves.
    pub(super) routes: Vec<Route>,
    /// What such a subscription is, once somebody has come to it.
    pub(super) identity: Option<Identity>,
    /// Consumers that come while the subscription is recorded for one before them.
    pub(super) arriving: Option<Vec<Arrival>>,
    pub(super) producers: Producers,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Ids of the latest messages whose producers waited for a reply, so that one that is sent again
    /// is known, consumed or not.
    pub(super) recent: Recent,
    /// Whom a topic's message goes to; empty between two of them, kept for its memory.
    pub(super) recipients: Vec<i64>,
    /// What an acknowledgement settles; empty between two of them, kept for its memory.
    pub(super) settled: Vec<Arc<Stored>>,
    /// A topic's messages in order of arrival, where the limit behaviour may take one away.
    pub(super) arrivals: Backlog,
    pub(super) next_order: u64,
    /// What open transactions hold.
    pub(super) held: HashMap<i64, Vec<Held>>,
    /// What prepared transactions hold: subscriptions and messages.
    pub(super) prepared: HashMap<i64, Vec<(i64, Entry)>>,
    /// What it has to do with bodies that are in the store only.
    pub(super) ahead: Ahead,
    /// Searches that go through the waiting messages a part at a time.
    pub(super) jobs: VecDeque<Job>,
    /// Waiting messages that selectors of consumers have looked at, since the start.
    pub(super) searched: u64,
    /// Messages that died in this run.
    pub(super) dead: Vec<(Entry, DeadReason)>,
    pub(super) consumption_paused: bool,
    pub(super) production_paused: bool,
    /// When a temporary destination whose connection is gone goes too, in milliseconds since 1970.
    pub(super) orphan_until: Option<i64>,
    /// Since when nobody has used it, in milliseconds since 1970.
    pub(super) idle_since: Option<i64>,
    /// When it is looked at whether nobody has used it for long, as far as that was asked for.
    pub(super) reaped_at: Option<i64>,
    /// When the next tick is wanted, in milliseconds since 1970.
    pub(super) wake_at: Option<i64>,
    /// When the next tick comes, as far as it was asked for.
    pub(super) wakes_at: Option<i64>,
    /// Messages and bytes the broker's total knows of.
    pub(super) accounted: (u64, u64),
    pub(super) destroyed: bool,
}

/// One stream of messages that its consumers share.
#[derive(Debug, Default)]
pub(super) struct Subscription {
    pub(super) backlog: Backlog,
    /// Consumers that may have credit, in the order in which they get the next messages.
    pub(super) ready: VecDeque<i64>,
    /// Consumers that have credit and whose selectors took nothing of what waits.
    pub(super) hungry: Vec<i64>,
    pub(super) is_fed: bool,
    /// What may be given to consumers of what is stored.
    pub(super) marks: Marks,
}

impl Subscription {
    /// Has the next dispatch look at this one, whose key this is.
    pub(super) fn feed(&mut self, key: i64, fed: &mut VecDeque<i64>) {
        if !self.is_fed {
            self.is_fed = true;
            fed.push_back(key);
        }
    }
}

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) consumer: Arc<Consumer>,
    pub(super) subscription: i64,
    pub(super) in_flight: InFlight,
    /// How far its selector has looked through what waits; `None` without a selector of its own.
    pub(super) cursor: Option<Box<Cursor>>,
    pub(super) is_ready: bool,
    /// A backup consumer gets nothing before an active one has left.
    pub(super) is_active: bool,
    /// The consumer has left; this stays while something of its may still be settled.
    pub(super) has_left: bool,
}

impl State {
    pub(super) fn new(part: Part, attributes: Attributes, place: Plain<AtomicU64>) -> Self {
        let mut subscriptions = HashMap::new();
        if part != Part::Topic {
            subscriptions.insert(SHARED, Subscription::default());
        }
        Self {
            part,
            place,
            takes_soon: 0,
            marks_singly: false,
            attributes,
            subscriptions,
            subscribers: BTreeMap::new(),
            fed: VecDeque::new(),
            routes: Vec::new(),
            identity: None,
            arriving: None,
            producers: Producers::default(),
            messages: 0,
            bytes: 0,
            recent: Recent::default(),
            recipients: Vec::new(),
            settled: Vec::new(),
            arrivals: Backlog::list(),
            next_order: 0,
            held: HashMap::new(),
            prepared: HashMap::new(),
            ahead: Ahead::default(),
            jobs: VecDeque::new(),
            searched: 0,
            dead: Vec::new(),
            consumption_paused: false,
            production_paused: false,
            orphan_until: None,
            idle_since: None,
            reaped_at: None,
            wake_at: None,
            wakes_at: None,
            accounted: (0, 0),
            destroyed: false,
        }
    }

    /// What the credit of producers depends on.
    pub(super) fn level<'a>(&'a self, uid: &'a str) -> Level<'a> {
        Level {
            attributes: &self.attributes,
            messages: self.messages,
            bytes: self.bytes,
            paused: self.production_paused,
            uid,
        }
    }

    /// Takes a message in, and counts it if anybody gets it.
    pub(super) fn add(&mut self, message: &Arc<Stored>, turn: &mut Turn<'_>) {
        let order = self.next_order;
        self.next_order += 1;
        let entry = Entry { message: Arc::clone(message), order, deliveries: 0 };
        if self.part == Part::Topic {
            return self.publish(entry, None, turn);
        }
        self.count_in(message);
        self.enqueue(SHARED, Item::Here(entry), message.due, turn);
        if self.part == Part::Subscription {
            self.drop_given_up(SHARED, turn);
        }
    }

    /// Takes in a message that has been counted and stored: a topic's for these durable
    /// subscriptions.
    pub(super) fn add_stored(
        &mut self,
        message: &Arc<Stored>,
        copies: &[Copy],
        turn: &mut Turn<'_>,
    ) {
        let order = self.next_order;
        self.next_order += 1;
        let entry = Entry { message: Arc::clone(message), order, deliveries: 0 };
        if self.part == Part::Topic {
            return self.publish(entry, Some(copies), turn);
        }
        self.enqueue(SHARED, Item::Here(entry), message.due, turn);
    }

    /// Drops what the topic has given up. Nobody may ever come to take it, so it goes when others
    /// come: a topic gives up the oldest of a priority first.
    fn drop_given_up(&mut self, key: i64, turn: &mut Turn<'_>) {
        while let Some(one) = self.subscriptions.get_mut(&key)
            && let Some(item) = one.backlog.take_given_up()
        {
            self.subtract(&item, turn);
        }
    }

    pub(super) fn count_in(&mut self, message: &Stored) {
        self.count_one(message.bytes());
        self.note_recent(message);
    }

    pub(super) const fn count_one(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    /// Has a message known that may be sent again.
    pub(super) fn note_recent(&mut self, message: &Stored) {
        if self.part != Part::Subscription && is_awaited(message) {
            self.recent.add(&message.packet.header().id);
        }
    }

    /// Whether a message that may be sent again is here already.
    pub(super) fn knows(&self, message: &Stored) -> bool {
        is_awaited(message) && self.recent.has(&message.packet.header().id)
    }

    /// Sends a topic's message to everybody it is for. One that is `stored` goes to those durable
    /// subscriptions for which it is, and has been counted.
    fn publish(&mut self, entry: Entry, stored: Option<&[Copy]>, turn: &mut Turn<'_>) {
        let message = &entry.message;
        let wants = |subscriber: &&Subscriber| {
            let consumer = &subscriber.consumer;
            let own = consumer.no_local && consumer.connection_id == message.connection_id;
            let selector = consumer.selector.as_ref();
            !own && !consumer.is_closed() && selector.is_none_or(|one| one.matches(&message.packet))
        };
        let mut plain = std::mem::take(&mut self.recipients);
        plain.extend(self.subscribers.values().filter(wants).map(|one| one.subscription));
        let others = self.routes.iter().filter(|route| {
            // Who subscribes durably now, after it was stored, gets what is sent from now on.
            (stored.is_none() || !route.is_durable()) && route.wants(message)
        });
        let mut routes: Vec<(Arc<Destination>, bool)> =
            others.map(|route| (Arc::clone(&route.to), false)).collect();
        let copies = stored.unwrap_or_default().iter();
        routes.extend(copies.map(|copy| (Arc::clone(&copy.to), copy.delivered)));
        let holders = plain.len() + routes.len();
        if holders == 0 {
            self.recipients = plain;
            return;
        }
        if let Some(share) = &message.share {
            share.set_holders(u32::try_from(holders).unwrap_or(u32::MAX));
        }
        if stored.is_none() {
            self.count_in(message);
        }
        let removes = self.attributes.limit_behavior.removes();
        if removes {
            self.note_arrival(Item::Here(entry.clone()).cooled());
        }
        for (to, marked) in routes {
            turn.forward(&to, Arc::clone(message), marked);
        }
        for key in plain.drain(..) {
            self.enqueue(key, Item::Here(entry.clone()), message.due, turn);
            if removes {
                self.drop_given_up(key, turn);
            }
        }
        self.recipients = plain;
    }

    /// Remembers the order of arrival, and forgets what is gone when it is most of what is there.
    fn note_arrival(&mut self, item: Item) {
        if self.arrivals.len() as u64 > 64 + 2 * self.messages {
            let mut all = std::mem::replace(&mut self.arrivals, Backlog::list());
            let is_held = |one: &Item| one.known().share.is_some_and(|share| share.is_held());
            all.drain().filter(is_held).for_each(|kept| self.arrivals.push(kept));
        }
        self.arrivals.push(item);
    }

    /// Puts a message into a backlog, or aside until it is `due`, in milliseconds since 1970.
    pub(super) fn enqueue(&mut self, key: i64, item: Item, due: i64, turn: &Turn<'_>) {
        let keeps = item.known().sequence == 0 || self.keeps_body(key, &turn.shared.memory);
        let item = if keeps { item } else { item.cooled() };
        let Self { subscriptions, subscribers, fed, wake_at, .. } = self;
        let Some(subscription) = subscriptions.get_mut(&key) else { return };
        if due > turn.wall_ms {
            note_wake(wake_at, due);
            return subscription.backlog.delay(item, due);
        }
        note_expiration(wake_at, item.expires(), turn.wall_ms);
        subscription.backlog.push(item);
        wake_hungry(subscription, subscribers);
        subscription.feed(key, fed);
    }

    /// Whether what arrives now must wait for somebody, or may have to.
    pub(super) fn somebody_is_late(&self) -> bool {
        // How far a subscription that stands for itself is, cannot be seen from here.
        !self.routes.is_empty() || self.subscriptions.values().any(|one| one.ready.is_empty())
    }

    /// A message goes, for one subscription, and so does what is stored of it there.
    pub(super) fn subtract(&mut self, item: &Item, turn: &mut Turn<'_>) {
        let known = item.known();
        turn.remove_stored(self.key_for(known.sequence, item.deliveries()));
        self.settled(known, turn);
    }

    /// A message is settled, for one subscription; what is stored of it there is gone.
    pub(super) fn settled(&mut self, message: Known<'_>, turn: &mut Turn<'_>) {
        self.count_gone(message.bytes);
        self.let_go(message, turn);
    }

    /// A message is here no more. A topic counts those that anybody has.
    pub(super) fn count_gone(&mut self, bytes: u64) {
        match self.part {
            Part::Queue => self.count_out(bytes),
            Part::Topic => {}
            Part::Subscription => {
                self.messages -= 1;
                self.bytes -= bytes;
            }
        }
    }

    /// A subscription has a message no longer; its topic is told if none has.
    pub(super) fn let_go(&mut self, message: Known<'_>, turn: &mut Turn<'_>) {
        let Known { sequence, bytes, share, is_here } = message;
        let Some(share) = share else { return };
        // A body is away when no holder has it, and as the message goes, that is counted no more.
        if sequence != 0 && is_here && share.drop_body() {
            self.ahead.away_bytes += bytes.cast_signed();
        }
        if !share.release() {
            return;
        }
        if sequence != 0 {
            self.ahead.away_bytes -= bytes.cast_signed();
        }
        if self.part == Part::Topic {
            self.released(share, sequence, bytes, turn);
        } else if let Some(topic) = &share.topic {
            let share = Arc::clone(share);
            turn.send(topic, Command::Released { share, sequence, bytes });
        }
    }

    /// No subscription of this topic has a message any more.
    pub(super) fn released(
        &mut self,
        share: &Share,
        sequence: u64,
        bytes: u64,
        turn: &mut Turn<'_>,
    ) {
        turn.remove_stored(self.key_in_topic(sequence));
        if !share.is_given_up() {
            self.count_out(bytes);
        }
    }

    /// The last holder of a message of this queue or topic is done with it.
    pub(super) fn count_out(&mut self, bytes: u64) {
        // What a destroyed topic's subscriptions still had is counted no more.
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub(super) fn make_ready(&mut self, id: i64) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let key = subscriber.subscription;
        if subscriber.is_ready || !subscriber.is_active || subscriber.consumer.is_closed() {
            return;
        }
        let Some(subscription) = self.subscriptions.get_mut(&key) else { return };
        subscriber.is_ready = true;
        subscription.hungry.retain(|&hungry| hungry != id);
        subscription.ready.push_back(id);
        subscription.feed(key, &mut self.fed);
    }

    pub(super) fn restore_all(&mut self, key: i64, entries: Vec<Entry>, turn: &mut Turn<'_>) {
        if entries.is_empty() {
            return;
        }
        // That a message was delivered once is stored before it is.
        for entry in entries.iter().filter(|entry| entry.deliveries > 1) {
            if let Some(key) = self.key_of(entry) {
                turn.count_stored(key, entry.deliveries);
            }
        }
        let keeps = self.keeps_body(key, &turn.shared.memory);
        let Self { subscriptions, subscribers, fed, wake_at, .. } = self;
        let Some(subscription) = subscriptions.get_mut(&key) else {
            // A subscription that ended with its consumer.
            let all = entries.into_iter().map(Item::Here);
            return all.for_each(|item| self.subtract(&item, turn));
        };
        for entry in entries {
            let place = Place::of(&entry);
            for subscriber in subscribers.values_mut() {
                if let Some(cursor) = &mut subscriber.cursor {
                    cursor.look_again(place);
                }
            }
            note_expiration(wake_at, entry.message.expires, turn.wall_ms);
            let item = Item::Here(entry);
            subscription.backlog.restore(if keeps { item } else { item.cooled() });
        }
        wake_hungry(subscription, subscribers);
        subscription.feed(key, fed);
    }

    pub(super) fn take_back(&mut self, id: i64, number: u64, taken: Taken, turn: &mut Turn<'_>) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let entry = subscriber.in_flight.take(number);
        let again = subscriber.consumer.give_back(taken);
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        let key = subscriber.subscription;
        self.restore_all(key, entry.into_iter().collect(), turn);
        if again {
            self.make_ready(id);
        }
        self.retire(id);
    }

    /// Forgets a consumer that has left, once nothing of its is unsettled.
    pub(super) fn retire(&mut self, id: i64) {
        let is_over = |one: &Subscriber| one.has_left && one.in_flight.is_empty();
        if self.subscribers.get(&id).is_some_and(is_over) {
            self.subscribers.remove(&id);
        }
    }

    pub(super) fn forget(&mut self, id: i64, through: u64, turn: &mut Turn<'_>) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let gone = subscriber.in_flight.take_through(through);
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        gone.into_iter().for_each(|entry| self.subtract(&Item::Here(entry), turn));
        self.retire(id);
    }

    /// A delivery cannot be written: its message is of no use to anybody.
    pub(super) fn cannot_be_written(
        &mut self,
        id: i64,
        number: u64,
        taken: Taken,
        turn: &mut Turn<'_>,
    ) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let entry = subscriber.in_flight.take(number);
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        if subscriber.consumer.give_back(taken) {
            self.make_ready(id);
        }
        if let Some(entry) = entry {
            self.die(entry, DeadReason::Error, turn);
        }
        self.retire(id);
    }

    /// A message died: it is counted out, and buried at the end of the run.
    pub(super) fn die(&mut self, entry: Entry, reason: DeadReason, turn: &mut Turn<'_>) {
        // What is stored of it goes when it is buried.
        self.settled(entry.message.known(), turn);
        self.dead.push((entry, reason));
    }

    /// As [`die`](Self::die), wherever the body is.
    pub(super) fn die_anywhere(&mut self, item: Item, reason: DeadReason, turn: &mut Turn<'_>) {
        match item {
            Item::Here(entry) => self.die(entry, reason, turn),
            Item::Away(stub) => self.die_away(stub, reason, turn),
        }
    }

    /// Looks again at everybody who has stopped.
    pub(super) fn go_on(&mut self) {
        let Self { subscriptions, subscribers, fed, .. } = self;
        if let Some(subscription) = subscriptions.get_mut(&SHARED) {
            wake_hungry(subscription, subscribers);
            subscription.feed(SHARED, fed);
        }
    }

    /// Deals the backlog of one subscription out, one message to each ready consumer in turn.
    pub(super) fn dispatch(
        &mut self,
        at: &Arc<Destination>,
        key: i64,
        left: &mut usize,
        turn: &mut Turn<'_>,
    ) {
        if self.consumption_paused {
            return;
        }
        let mut gone = Vec::new();
        let mut burst = None;
        let stores = self.stores();
        let mut unmarked = None;
        let (mut next_cold, mut search_cold) = (None, None);
        let Self { subscriptions, subscribers, searched, .. } = self;
        let Some(subscription) = subscriptions.get_mut(&key) else { return };
        while *left > 0 && !subscription.backlog.is_empty() {
            let Some(id) = subscription.ready.pop_front() else { break };
            let Some(subscriber) = subscribers.get_mut(&id) else { continue };
            let Some((taken, epoch, consumer_flow)) = take_turn(&subscriber.consumer) else {
                // Whoever gives it credit, or starts its session, makes it ready again.
                subscriber.is_ready = false;
                continue;
            };
            *left -= 1;
            let before = *left;
            let next = next_for(subscriber, &mut subscription.backlog, left);
            *searched += (before - *left) as u64;
            let entry = match next {
                Found::Entry(entry) => entry,
                Found::Nothing => {
                    subscriber.consumer.give_back(taken);
                    if *left == 0 {
                        subscription.ready.push_front(id);
                    } else {
                        subscriber.is_ready = false;
                        subscription.hungry.push(id);
                    }
                    continue;
                }
                Found::Cold(place) => {
                    subscriber.consumer.give_back(taken);
                    if let Some(item) = subscription.backlog.take_useless(place, turn.wall_ms) {
                        subscription.ready.push_front(id);
                        gone.push(item);
                        continue;
                    }
                    if subscriber.cursor.is_some() {
                        // It goes on with what it asks for, and holds up nobody meanwhile.
                        subscriber.is_ready = false;
                        subscription.hungry.push(id);
                        search_cold.get_or_insert(place);
                        continue;
                    }
                    subscription.ready.push_front(id);
                    next_cold = Some(place);
                    break;
                }
            };
            if entry.message.is_given_up() || entry.message.is_expired(turn.wall_ms) {
                subscriber.consumer.give_back(taken);
                subscription.ready.push_front(id);
                gone.push(Item::Here(entry));
                continue;
            }
            if stores && !subscription.marks.let_through(&entry) {
                subscriber.consumer.give_back(taken);
                subscription.ready.push_front(id);
                unmarked.get_or_insert_with(|| (entry.clone(), subscriber.cursor.is_some()));
                if turn.stores_nothing() {
                    // It waits for the store, and holds up nothing that does not.
                    subscription.marks.stall(entry);
                    continue;
                }
                if let Some(cursor) = &mut subscriber.cursor {
                    cursor.look_again(Place::of(&entry));
                }
                subscription.backlog.restore(Item::Here(entry));
                break;
            }
            subscription.ready.push_back(id);
            let count = i32::try_from(entry.deliveries).unwrap_or(i32::MAX).saturating_add(1);
            let message = Arc::clone(&entry.message);
            let number = subscriber.in_flight.deliver(entry);
            let consumer = Arc::clone(&subscriber.consumer);
            consumer.count_dispatched(subscriber.in_flight.len());
            let output = Arc::clone(&consumer.output);
            let trip = Trip { consumer, number, count, taken, epoch, consumer_flow };
            let outgoing = Outgoing { message, to: Receiver::Consumer(trip) };
            burst = turn.add_to_burst(burst, output, outgoing);
        }
        turn.leave_burst(burst);
        if let Some((entry, is_single)) = unmarked {
            self.mark_ahead((at, key), &entry, is_single, turn);
        }
        if key == SHARED {
            self.fetch_ahead(next_cold, search_cold);
        }
        for item in gone {
            if item.is_given_up() {
                self.subtract(&item, turn);
            } else {
                self.die_anywhere(item, DeadReason::Expired, turn);
            }
        }
    }

    /// Moves what is due among what waits, buries what has expired, and says when to look again.
    pub(super) fn tick(&mut self, at: i64, turn: &mut Turn<'_>) {
        if self.wakes_at != Some(at) {
            // Asked for before an earlier one was, or for another reason. Were it to ask for the
            // next one as well, ticks would become more and more.
            return;
        }
        (self.wake_at, self.wakes_at) = (None, None);
        let keys: Vec<i64> = self.subscriptions.keys().copied().collect();
        for key in keys {
            while let Some(item) =
                self.subscriptions.get_mut(&key).and_then(|one| one.backlog.take_due(turn.wall_ms))
            {
                // It arrives now, behind what came meanwhile.
                let order = self.next_order;
                self.next_order += 1;
                let deliveries = item.deliveries();
                self.enqueue(key, item.with(order, deliveries), 0, turn);
            }
            while let Some(item) = self
                .subscriptions
                .get_mut(&key)
                .and_then(|one| one.backlog.take_expired(turn.wall_ms))
            {
                self.die_anywhere(item, DeadReason::Expired, turn);
            }
            let Some(one) = self.subscriptions.get(&key) else { continue };
            let expiration = one.backlog.next_expiration().map(|at| sweep_at(at, turn.wall_ms));
            let next = [one.backlog.next_due(), expiration];
            next.into_iter().flatten().for_each(|at| note_wake(&mut self.wake_at, at));
        }
    }

    /// Takes everything out, counted out.
    pub(super) fn clear(&mut self, turn: &mut Turn<'_>) {
        let keys: Vec<i64> = self.subscriptions.keys().copied().collect();
        for key in keys {
            let Some(one) = self.subscriptions.get_mut(&key) else { continue };
            for entry in one.marks.take_stalled() {
                self.subtract(&Item::Here(entry), turn);
            }
            while let Some(one) = self.subscriptions.get_mut(&key)
                && let Some(item) = one.backlog.remove_any()
            {
                self.subtract(&item, turn);
            }
        }
        self.drop_dying(turn);
        self.arrivals = Backlog::list();
    }

    /// Messages that wait and are not due yet.
    pub(super) fn delayed(&self) -> usize {
        self.subscriptions.values().map(|one| one.backlog.delayed()).sum()
    }

    /// Consumers that have not left.
    pub(super) fn open_subscribers(&self) -> impl Iterator<Item = &Subscriber> {
        self.subscribers.values().filter(|one| !one.has_left && !one.consumer.is_closed())
    }
}

/// Whether a producer waits, or may wait, for a reply to it, and so may send it again.
fn is_awaited(message: &Stored) -> bool {
    message.packet.header().flags.contains(Flags::ACKNOWLEDGE)
}

fn note_wake(wake_at: &mut Option<i64>, at: i64) {
    *wake_at = Some(wake_at.map_or(at, |before| before.min(at)));
}

/// One look a second is enough for what expires while it waits.
fn sweep_at(expiration: i64, wall_ms: i64) -> i64 {
    expiration.max(wall_ms + EXPIRY_SWEEP_MS)
}

fn note_expiration(wake_at: &mut Option<i64>, expiration: i64, wall_ms: i64) {
    if expiration > 0 {
        note_wake(wake_at, sweep_at(expiration, wall_ms));
    }
}

fn wake_hungry(subscription: &mut Subscription, subscribers: &mut BTreeMap<i64, Subscriber>) {
    for id in subscription.hungry.drain(..) {
        if let Some(subscriber) = subscribers.get_mut(&id) {
            subscriber.is_ready = true;
            subscription.ready.push_back(id);
        }
    }
}

/// The next message for this consumer: the first, or the first its selector takes.
fn next_for(subscriber: &mut Subscriber, backlog: &mut Backlog, left: &mut usize) -> Found {
    match (&mut subscriber.cursor, &subscriber.consumer.selector) {
        (Some(cursor), Some(selector)) => {
            backlog.take_match(cursor, left, |message| selector.matches(&message.packet))
        }
        _ => backlog.pop(),
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
