//! What a store holds becomes a broker's again.
//!
//! Entries come by space, and the spaces in an order in which each finds what it refers to. What
//! refers to nothing is what a crash left behind of something that was removed in steps; it is
//! removed here.
//!
//! # Invariants
//! - Nothing is delivered before everything is read.
//! - A message is where it was: waiting in its place, delivered as often as it may have been, or
//!   held by its prepared transaction.

use std::collections::{HashMap, HashSet};

use crate::{
    proto::transaction::{Association, AutoRollback, Start, Xid},
    selector::Selector,
    store::{
        Entry as StoreEntry, MessageStore, Outcome, StoreError,
        record::{
            CopyRecord, DestinationRecord, FORMAT, MessageRecord, RecentRecord, Record, SharedBy,
            SubscriptionRecord, TransactionRecord, put_format, remove_deliveries,
        },
    },
    sync::{Arc, Plain},
};

use super::{
    attributes::Attributes,
    backlog::{Entry, Item},
    command::Rare,
    coordinator::{Answer, Handle, Transact},
    destination::{Destination, Kind, Origin},
    dispatch::{Part, SHARED, State},
    persist::{Position, StoredKey},
    shared::Shared,
    stored::{Share, Stored},
    subscription::{Identity, NoLocal, Sharing, Source, SubscriptionKey, SubscriptionName},
    transaction::{Finished, Promise, State as TransactionState, Verdict},
    turn::Turn,
    wildcard::{NameKind, classify},
};

/// How often progress is told, in entries.
const TOLD_EVERY: u64 = 65_536;

/// What was found in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// How the store was found.
    pub outcome: Outcome,
    /// Messages that are not consumed.
    pub messages: u64,
    /// Transactions that are prepared.
    pub transactions: u64,
    /// Entries that belonged to nobody and were removed.
    pub leftovers: u64,
}

/// Reads entries into a broker that serves nobody yet.
pub(super) struct Recoverer<'a, 't> {
    turn: &'a mut Turn<'t>,
    /// Queues, topics and subscriptions by their place.
    places: HashMap<u64, Arc<Destination>>,
    /// Up to where deliveries of a place and priority have gone.
    delivered: HashMap<(u64, u8), u64>,
    /// How often single messages were delivered, by place and sequence.
    deliveries: HashMap<(u64, u64), u32>,
    /// What prepared transactions hold, by place and sequence.
    held: HashMap<(u64, u64), i64>,
    /// The sequences of these.
    held_sequences: HashSet<u64>,
    transactions: Vec<TransactionRecord>,
    /// Messages of topics, and of topics that are no more: they stay if somebody has a copy.
    of_topics: HashMap<(u64, u64), TopicMessage>,
    recent: Vec<RecentRecord>,
    leftovers: Vec<StoredKey>,
    position: Position,
    messages: u64,
    is_new: bool,
}

/// Nobody's yet: of order 0, and never delivered.
struct TopicMessage {
    item: Item,
    due: i64,
    is_held: bool,
}

/// Reads a store into a broker.
///
/// # Errors
/// What is wrong with the store. The broker is of no use then.
pub(super) fn recover(
    store: &mut dyn MessageStore,
    turn: &mut Turn<'_>,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<(RecoveryReport, Position), StoreError> {
    let recovery = store.recover()?;
    let (outcome, estimate) = (recovery.outcome, recovery.estimate);
    let mut recoverer = Recoverer::new(turn);
    for (count, entry) in (1..).zip(recovery.entries) {
        recoverer.take(&entry?)?;
        if count % TOLD_EVERY == 0 {
            progress(count, estimate);
        }
    }
    recoverer.finish(outcome)
}

impl<'a, 't> Recoverer<'a, 't> {
    fn new(turn: &'a mut Turn<'t>) -> Self {
        Self {
            turn,
            places: HashMap::new(),
            delivered: HashMap::new(),
            deliveries: HashMap::new(),
            held: HashMap::new(),
            held_sequences: HashSet::new(),
            transactions: Vec::new(),
            of_topics: HashMap::new(),
            recent: Vec::new(),
            leftovers: Vec::new(),
            position: Position::default(),
            messages: 0,
            is_new: true,
        }
    }

    fn take(&mut self, entry: &StoreEntry) -> Result<(), StoreError> {
        let corrupt = |reason: String| StoreError::corrupt(entry.space, &entry.key, reason);
        let record = Record::decode(entry)?;
        if self.is_new && !matches!(record, Record::Format(_)) {
            // The format sorts first. An import writes it last.
            return Err(corrupt("the store has no format: an import was broken off".into()));
        }
        match record {
            Record::Format(FORMAT) => self.is_new = false,
            Record::Format(found) => return Err(StoreError::Format { found, known: FORMAT }),
            Record::Destination(record) => self.destination(&record).map_err(corrupt)?,
            Record::Subscription(record) => self.subscription(record).map_err(corrupt)?,
            Record::Transaction(record) => self.transaction(record),
            Record::Delivered(record) => {
                self.delivered.insert((record.place, record.priority), record.through);
            }
            Record::Deliveries(record) => {
                self.deliveries.insert((record.place, record.sequence), record.count);
            }
            Record::Message(record) => self.message(record),
            Record::Copy(record) => self.copy(record),
            Record::Recent(_, record) => {
                self.position.batch = self.position.batch.max(record.batch);
                self.position.sequence = self.position.sequence.max(record.sequence);
                self.position.place = self.position.place.max(record.place);
                self.recent.push(record);
            }
        }
        Ok(())
    }

    fn destination(&mut self, record: &DestinationRecord) -> Result<(), String> {
        let shared = self.turn.shared;
        let (origin, mut attributes) = if record.administered {
            (Origin::Administered, Attributes::administered())
        } else {
            (Origin::AutoCreated, Attributes::auto_created())
        };
        for (name, value) in &record.attributes {
            attributes.set(name, value).map_err(|error| error.to_string())?;
        }
        // What the settings say of a destination holds.
        let made = shared.registry.ensure(record.kind, &record.name, origin, || attributes);
        let (made, _) = made.ok_or("there are more destinations than a broker has")?;
        made.set_place(record.id);
        let (consumption, production) = (record.consumption_paused, record.production_paused);
        made.restore(|state| {
            state.consumption_paused = consumption;
            state.production_paused = production;
        });
        made.set_paused_counts(consumption, production);
        self.position.place = self.position.place.max(record.id);
        self.places.insert(record.id, made);
        Ok(())
    }

    fn subscription(&mut self, record: SubscriptionRecord) -> Result<(), String> {
        let shared = self.turn.shared;
        let source = self.source(&record)?;
        let selector = record.selector.as_deref();
        let selector = selector.map(|text| Selector::parse(text, shared.config.selectors));
        let selector = selector.transpose().map_err(|error| error.to_string())?;
        let client_id = record.client_id.map(|id| Plain::from(id.as_str()));
        let name = SubscriptionName::Given(record.name.into());
        let key = SubscriptionKey { client_id, durable: true, name };
        let attributes = match &source {
            Source::Topic(topic) => Attributes::clone(&topic.attributes()),
            Source::Pattern(_) | Source::Gone => shared.live.read(|live| live.topic.clone()),
        };
        let new = Destination::new(&record.topic, Kind::Topic, Origin::Subscription, attributes);
        let new = Arc::new(new);
        new.set_place(record.id);
        let identity = Identity {
            key: Some(key.clone()),
            source,
            selector: selector.map(Plain::new),
            no_local: record.no_local.map(|id| NoLocal::ClientId(id.as_str().into())),
            sharing: match record.shared {
                SharedBy::ClientId => Sharing::ClientId,
                SharedBy::Name => Sharing::Name,
                SharedBy::Nobody => Sharing::None,
            },
        };
        let made = shared.subscriptions.find_or_add(&key, &new);
        let made = made.ok_or("there are more subscriptions than a broker has")?;
        if !Arc::ptr_eq(&made, &new) {
            return Err("it is there twice".into());
        }
        identity.attach(&new, self.turn);
        new.restore(|state| state.identity = Some(identity));
        self.position.place = self.position.place.max(record.id);
        self.places.insert(record.id, new);
        Ok(())
    }

    fn source(&mut self, record: &SubscriptionRecord) -> Result<Source, String> {
        if record.is_orphan {
            return Ok(Source::Gone);
        }
        if record.is_pattern {
            return match classify(&record.topic) {
                Ok(NameKind::Pattern(pattern)) => Ok(Source::Pattern(pattern)),
                Ok(NameKind::Plain) => Err(format!("{} is no pattern", record.topic)),
                Err((_, reason)) => Err(reason),
            };
        }
        let shared = self.turn.shared;
        let attributes = || shared.live.read(|live| live.topic.clone());
        let made =
            shared.registry.ensure(Kind::Topic, &record.topic, Origin::AutoCreated, attributes);
        made.map(|(topic, _)| Source::Topic(topic))
            .ok_or_else(|| "there are more destinations than a broker has".into())
    }

    fn transaction(&mut self, record: TransactionRecord) {
        for key in &record.consumed {
            self.held.insert(*key, record.id.cast_signed());
            self.held_sequences.insert(key.1);
        }
        self.transactions.push(record);
    }

    fn message(&mut self, record: MessageRecord) {
        let MessageRecord { destination: place, sequence, head, packet } = record;
        self.position.sequence = self.position.sequence.max(sequence);
        let Some(at) = self.places.get(&place).map(Arc::clone) else {
            // Its topic may be gone while a subscription has it still.
            return self.of_topic(place, stored(packet, sequence, Some(Share::of_old(place))));
        };
        if at.kind == Kind::Topic {
            return self.of_topic(place, stored(packet, sequence, Some(Share::of(&at))));
        }
        let mut message = stored(packet, sequence, None);
        if at.origin == Origin::Dead {
            // Its time was up once; that is enough.
            message.expires = 0;
        }
        self.messages += 1;
        let due = message.due;
        let item = Item::Here(Entry { message: Arc::new(message), order: 0, deliveries: 0 });
        self.put(&at, (place, sequence), (item, due), head.delivered);
    }

    /// Keeps a message until those come who have a copy of it.
    fn of_topic(&mut self, place: u64, message: Stored) {
        if let Some(topic) = self.places.get(&place) {
            topic.restore(|state| state.note_recent(&message));
        }
        let (due, key) = (message.due, (place, message.sequence()));
        let item = Item::Here(Entry { message: Arc::new(message), order: 0, deliveries: 0 });
        // What a transaction holds has its body.
        let keeps = self.held_sequences.contains(&key.1) || self.turn.shared.memory.keeps_bodies();
        let item = if keeps { item } else { item.cooled() };
        self.of_topics.insert(key, TopicMessage { item, due, is_held: false });
    }

    fn copy(&mut self, record: CopyRecord) {
        let CopyRecord { subscription, sequence, topic, delivered } = record;
        let of_topic = self.of_topics.get_mut(&(topic, sequence));
        let (Some(at), Some(of_topic)) = (self.places.get(&subscription), of_topic) else {
            let key = StoredKey { place: subscription, sequence, is_copy: true, is_counted: false };
            return self.leftovers.push(key);
        };
        let is_first = !std::mem::replace(&mut of_topic.is_held, true);
        let (at, item, due) = (Arc::clone(at), of_topic.item.clone(), of_topic.due);
        let known = item.known();
        // Counted before it is seen whether the body stays, as of a message that comes.
        if let Some(true) = known.share.map(|share| share.hold())
            && !is_first
        {
            let bytes = known.bytes.cast_signed();
            at.restore(|state| state.ahead.away_bytes -= bytes);
        }
        self.put(&at, (subscription, sequence), (item, due), delivered);
    }

    /// Puts a message where it waits, or where its transaction holds it.
    fn put(
        &mut self,
        at: &Arc<Destination>,
        key: (u64, u64),
        (item, due): (Item, i64),
        may_be_delivered: bool,
    ) {
        let priority = item.priority();
        let through = self.delivered.get(&(key.0, priority)).copied().unwrap_or(0);
        let once = u32::from(may_be_delivered || key.1 <= through);
        let transaction = self.held.get(&key).copied();
        // Of what a transaction holds, the delivery to it counts when it is rolled back.
        let once = if transaction.is_some() { 0 } else { once };
        let deliveries = self.deliveries.remove(&key).unwrap_or(0).max(once);
        let turn = &*self.turn;
        at.restore(|state| state.recovered((item, due), deliveries, transaction, turn));
    }

    fn finish(mut self, outcome: Outcome) -> Result<(RecoveryReport, Position), StoreError> {
        for (&(place, sequence), one) in &self.of_topics {
            if !one.is_held {
                let key = StoredKey { place, sequence, is_copy: false, is_counted: false };
                self.leftovers.push(key);
                continue;
            }
            self.messages += 1;
            if let Some(topic) = self.places.get(&place) {
                topic.restore(|state| state.count_one(one.item.known().bytes));
            }
        }
        let transactions = self.transactions.len() as u64;
        for record in std::mem::take(&mut self.transactions) {
            self.prepared(record)?;
        }
        self.recent.sort_unstable_by_key(|record| record.batch);
        for record in &self.recent {
            remember(record, &self.places, self.turn.shared);
        }
        if self.is_new {
            self.turn.record(|batch, _| put_format(batch));
        }
        // Counts whose messages are gone.
        for &(place, sequence) in self.deliveries.keys() {
            self.turn.record(move |batch, _| remove_deliveries(batch, place, sequence));
        }
        let leftovers = self.leftovers.len() as u64;
        for key in std::mem::take(&mut self.leftovers) {
            self.turn.remove_stored(Some(key));
        }
        // Each looks at its clock and its consumers for the first time.
        let all: HashSet<_> = self.places.keys().copied().collect();
        for place in all {
            self.turn.send(&self.places[&place], Rare::command(|_, _, _| ()));
        }
        let report = RecoveryReport { outcome, messages: self.messages, transactions, leftovers };
        Ok((report, self.position))
    }

    /// A prepared transaction is there again.
    fn prepared(&mut self, record: TransactionRecord) -> Result<(), StoreError> {
        let id = record.id.cast_signed();
        let corrupt =
            |reason: String| StoreError::Corrupt { place: format!("transaction {id}"), reason };
        let xid = record.xid.as_deref().map(Xid::decode).transpose();
        let start = Start {
            session: None,
            xid: xid.map_err(|error| corrupt(error.to_string()))?,
            association: Association::New,
            auto_rollback: match record.auto_rollback {
                1 => AutoRollback::All,
                3 => AutoRollback::Never,
                _ => AutoRollback::NotPrepared,
            },
            lifetime_ms: record.lifetime_ms,
            session_less: record.session_less,
        };
        let mut produced = Vec::new();
        for (place, packet) in record.messages {
            // What it sends to a queue that was destroyed meanwhile is refused then as now.
            let Some(at) = self.places.get(&place) else { continue };
            let share = (at.kind == Kind::Topic).then(|| Share::of(at));
            let message = Arc::new(stored(packet, 0, share));
            at.promise(&message, &self.turn.shared.memory);
            produced.push((Handle(Arc::clone(at)), message));
        }
        let mut parts: Vec<Handle> = Vec::new();
        let mut kept = Vec::new();
        for (place, sequence) in record.consumed {
            let Some(at) = self.places.get(&place) else { continue };
            let handle = Handle(Arc::clone(at));
            if !parts.contains(&handle) {
                parts.push(handle);
            }
            let is_copy = at.origin == Origin::Subscription;
            kept.push(StoredKey { place, sequence, is_copy, is_counted: false });
        }
        let promise = Promise {
            id,
            start,
            created_ms: record.created_ms,
            user: record.user.map(|user| user.as_str().into()),
            one_phase: record.one_phase,
            produced,
            stored: kept,
        };
        let ends_with_connection = promise.start.auto_rollback == AutoRollback::All;
        self.turn.shared.coordinator.restore(promise, parts);
        if ends_with_connection {
            let (verdict, nobody) = (Verdict::Rollback, Answer::Asked(Box::new(|_, _| ())));
            self.turn.transact(Transact::Admin { id, verdict, reply: nobody });
        }
        Ok(())
    }
}

/// A message out of the store.
fn stored(packet: crate::wire::Packet, sequence: u64, share: Option<Share>) -> Stored {
    let due = packet.variable().ok().and_then(|variable| variable.delivery_time).unwrap_or(0);
    let mut message = Stored::new(packet, 0);
    message.due = due;
    message.share = share.map(Arc::new);
    message.set_sequence(sequence);
    message
}

/// What ended lately is known again.
fn remember(record: &RecentRecord, places: &HashMap<u64, Arc<Destination>>, shared: &Shared) {
    for ended in &record.transactions {
        let xid = ended.xid.as_deref().and_then(|xid| Xid::decode(xid).ok());
        let state = if ended.committed {
            TransactionState::Committed
        } else {
            TransactionState::RolledBack
        };
        let finished = Finished { id: ended.id.cast_signed(), xid, owner: None, state };
        shared.coordinator.remember(finished);
    }
    for (place, id) in &record.messages {
        if let Some(at) = places.get(place) {
            at.restore(|state| state.recent.add(id));
        }
    }
}

impl State {
    /// A message waits again, or is held by its transaction.
    fn recovered(
        &mut self,
        (item, due): (Item, i64),
        deliveries: u32,
        transaction: Option<i64>,
        turn: &Turn<'_>,
    ) {
        self.count_one(item.known().bytes);
        if let Item::Here(entry) = &item
            && self.part == Part::Queue
        {
            self.note_recent(&entry.message);
        }
        let order = self.next_order;
        self.next_order += 1;
        match (transaction, item.with(order, deliveries)) {
            (Some(id), Item::Here(entry)) => {
                self.prepared.entry(id).or_default().push((SHARED, entry));
            }
            (_, item) => self.enqueue(SHARED, item, due, turn),
        }
        // Nothing else is counted before all is read, but which bodies fit must be known.
        self.account_bodies(&turn.shared.memory);
    }
}
