//! The plainest broker there is: one queue, one topic with its subscriptions, lists and loops.
//!
//! It does not decide who gets a message. It is told who got which, and says whether that could be.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "each test uses its part")]

use std::collections::{BTreeMap, BTreeSet};

use tidegate::wire::MessageId;

/// Where messages wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Queue,
    /// The subscription of this consumer alone.
    Own(i64),
    /// A durable one that is shared.
    Durable,
    /// One that is shared, lives with its consumers and takes red messages only.
    Shared,
}

#[derive(Debug, Clone, Copy)]
pub struct Message {
    pub id: MessageId,
    pub priority: u8,
    pub red: bool,
    /// 0: never.
    pub expires: i64,
    /// 0: at once.
    pub due: i64,
}

#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub message: Message,
    order: u64,
    /// How often it was seen.
    deliveries: i32,
}

impl Entry {
    fn rank(&self) -> (u8, u64) {
        (9 - self.message.priority.min(9), self.order)
    }
}

#[derive(Debug, Clone)]
pub struct Delivery {
    pub entry: Entry,
    /// The open transaction that acknowledged it; 0: none.
    pub held_by: i64,
    /// It is the consumer's no longer.
    pub is_over: bool,
}

impl Delivery {
    fn is_held_by(&self, transaction: i64) -> bool {
        self.held_by == transaction && !self.is_over
    }
}

#[derive(Debug, Clone)]
pub struct Consumer {
    pub client: usize,
    pub session: i64,
    pub place: Place,
    /// What its selector takes: red ones, or all others.
    pub wants_red: Option<bool>,
    /// Messages it may still be sent; `None` without end.
    pub left: Option<u32>,
    pub forgets: bool,
    pub transacted: bool,
    pub is_open: bool,
    /// Everything it was ever sent, in order.
    pub deliveries: Vec<Delivery>,
}

impl Consumer {
    fn wants(&self, entry: &Entry) -> bool {
        self.wants_red.is_none_or(|red| red == entry.message.red)
    }
}

#[derive(Debug, Default)]
pub struct Session {
    pub client: usize,
    pub pauses: u32,
    pub mode: i32,
    pub transaction: i64,
}

/// One delivery as a client saw it.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub consumer: i64,
    pub id: MessageId,
    pub count: i32,
    pub redelivered: bool,
    pub last_of_window: bool,
}

#[derive(Debug, Default)]
pub struct Model {
    pub now: i64,
    next_order: u64,
    pub started: BTreeSet<usize>,
    pub sessions: BTreeMap<i64, Session>,
    pub consumers: BTreeMap<i64, Consumer>,
    waiting: BTreeMap<Place, Vec<Entry>>,
    delayed: BTreeMap<Place, Vec<Entry>>,
    sent_in: BTreeMap<i64, Vec<(bool, Message)>>,
    pub dead: u64,
}

impl Model {
    pub fn new() -> Self {
        let mut new = Self::default();
        new.waiting.insert(Place::Queue, Vec::new());
        new
    }

    // What clients do.

    pub fn add_consumer(&mut self, id: i64, consumer: Consumer) {
        self.waiting.entry(consumer.place).or_default();
        self.consumers.insert(id, consumer);
    }

    pub fn has(&self, place: Place) -> bool {
        self.waiting.contains_key(&place)
    }

    pub fn open_at(&self, place: Place) -> usize {
        self.consumers.values().filter(|one| one.is_open && one.place == place).count()
    }

    /// A message arrives at the queue or the topic.
    pub fn produce(&mut self, to_queue: bool, message: Message) {
        let places: Vec<Place> = if to_queue {
            vec![Place::Queue]
        } else {
            self.waiting
                .keys()
                .copied()
                .filter(|place| match place {
                    Place::Queue => false,
                    Place::Durable => true,
                    Place::Shared => message.red,
                    Place::Own(id) => {
                        self.consumers[id].wants_red.is_none_or(|red| red == message.red)
                    }
                })
                .collect()
        };
        let order = self.order();
        let entry = Entry { message, order, deliveries: 0 };
        for place in places {
            let late = message.due > self.now;
            let list = if late { &mut self.delayed } else { &mut self.waiting };
            list.entry(place).or_default().push(entry);
        }
    }

    pub fn produce_in(&mut self, transaction: i64, to_queue: bool, message: Message) {
        self.sent_in.entry(transaction).or_default().push((to_queue, message));
    }

    /// Deliveries that nobody has settled or acknowledged, of one client.
    pub fn open_deliveries(&self, client: usize) -> Vec<(i64, MessageId)> {
        let own = self.consumers.iter().filter(|(_, one)| one.client == client);
        own.flat_map(|(&id, one)| {
            let open = one.deliveries.iter().filter(|one| !one.is_over && one.held_by == 0);
            open.map(move |one| (id, one.entry.message.id))
        })
        .collect()
    }

    pub fn acknowledge(&mut self, consumer: i64, id: MessageId, transaction: i64) {
        let delivery = self.open(consumer, id);
        if transaction == 0 {
            delivery.is_over = true;
        } else {
            delivery.held_by = transaction;
        }
    }

    /// The consumer cannot take it.
    pub fn refuse(&mut self, consumer: i64, id: MessageId) {
        let place = self.consumers[&consumer].place;
        let entry = self.take(consumer, id, 1);
        // A plain subscription has nobody else.
        if !matches!(place, Place::Own(_)) {
            self.put_back(place, entry);
        }
    }

    /// Also what this transaction has acknowledged.
    pub fn redeliver(&mut self, consumer: i64, id: MessageId, seen: bool, transaction: i64) {
        let place = self.consumers[&consumer].place;
        let own = &mut self.consumers.get_mut(&consumer).unwrap().deliveries;
        let found = own.iter_mut().find(|one| {
            !one.is_over
                && one.entry.message.id == id
                && (one.held_by == 0 || one.held_by == transaction)
        });
        let Some(found) = found else { return };
        found.is_over = true;
        let mut entry = found.entry;
        entry.deliveries += i32::from(seen);
        self.put_back(place, entry);
    }

    /// `last`: the application has seen everything up to it. `None`: nothing; `all_seen`: all.
    pub fn close(&mut self, consumer: i64, last: Option<MessageId>, all_seen: bool) {
        let one = self.consumers.get_mut(&consumer).unwrap();
        one.is_open = false;
        let (place, transacted) = (one.place, one.transacted);
        let seen = match last {
            _ if all_seen => one.deliveries.len(),
            Some(id) => {
                let at = one.deliveries.iter().rposition(|one| one.entry.message.id == id);
                at.map_or(0, |at| at + 1)
            }
            None => 0,
        };
        let mut back = Vec::new();
        for (at, delivery) in one.deliveries.iter_mut().enumerate() {
            let is_back = at >= seen || transacted;
            if delivery.is_over || delivery.held_by != 0 || !is_back {
                continue;
            }
            delivery.is_over = true;
            let mut entry = delivery.entry;
            entry.deliveries += i32::from(at < seen);
            back.push(entry);
        }
        self.leave(place);
        back.into_iter().for_each(|entry| self.put_back(place, entry));
    }

    /// A subscription that lives with its consumers ends with the last.
    fn leave(&mut self, place: Place) {
        let ends = match place {
            Place::Queue | Place::Durable => false,
            Place::Own(_) => true,
            Place::Shared => self.open_at(Place::Shared) == 0,
        };
        if ends {
            self.waiting.remove(&place);
            self.delayed.remove(&place);
        }
    }

    pub fn unsubscribe(&mut self) {
        self.waiting.remove(&Place::Durable);
        self.delayed.remove(&Place::Durable);
        for one in self.consumers.values_mut().filter(|one| one.place == Place::Durable) {
            one.deliveries.iter_mut().for_each(|one| one.is_over = true);
        }
    }

    /// A session ends; its transaction is rolled back.
    pub fn end_session(&mut self, session: i64) {
        let ended = self.sessions.remove(&session).unwrap();
        if ended.transaction != 0 {
            self.sent_in.remove(&ended.transaction);
            self.release(ended.transaction, true);
        }
        let own: Vec<i64> = self.consumers_of(session);
        for id in &own {
            self.consumers.get_mut(id).unwrap().is_open = false;
        }
        for id in own {
            let one = &self.consumers[&id];
            let place = one.place;
            let open: Vec<MessageId> = one
                .deliveries
                .iter()
                .filter(|one| !one.is_over)
                .map(|one| one.entry.message.id)
                .collect();
            self.leave(place);
            for message in open {
                let entry = self.take(id, message, 1);
                self.put_back(place, entry);
            }
            self.consumers.remove(&id);
        }
    }

    pub fn end_client(&mut self, client: usize) {
        let own: Vec<i64> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.client == client)
            .map(|(&id, _)| id)
            .collect();
        own.into_iter().for_each(|session| self.end_session(session));
        self.started.remove(&client);
    }

    pub fn commit(&mut self, transaction: i64) {
        for one in self.consumers.values_mut() {
            for held in one.deliveries.iter_mut().filter(|one| one.is_held_by(transaction)) {
                held.is_over = true;
            }
        }
        for (to_queue, message) in self.sent_in.remove(&transaction).unwrap_or_default() {
            self.produce(to_queue, message);
        }
    }

    pub fn rollback(&mut self, transaction: i64, redeliver: bool) {
        self.sent_in.remove(&transaction);
        self.release(transaction, redeliver);
    }

    /// What a transaction has acknowledged goes back, or is its consumer's again.
    fn release(&mut self, transaction: i64, redeliver: bool) {
        let mut back = Vec::new();
        for one in self.consumers.values_mut() {
            let goes_back = redeliver || !one.is_open;
            for held in one.deliveries.iter_mut().filter(|one| one.is_held_by(transaction)) {
                held.held_by = 0;
                if goes_back {
                    held.is_over = true;
                    let mut entry = held.entry;
                    entry.deliveries += 1;
                    back.push((one.place, entry));
                }
            }
        }
        back.into_iter().for_each(|(place, entry)| self.put_back(place, entry));
    }

    /// Time has passed; a tick was carried out.
    pub fn look_at_the_clock(&mut self) {
        for place in self.delayed.keys().copied().collect::<Vec<_>>() {
            let all = std::mem::take(self.delayed.get_mut(&place).unwrap());
            let (mut due, rest): (Vec<_>, _) =
                all.into_iter().partition(|one| one.message.due <= self.now);
            due.sort_by_key(|one| (one.message.due, one.order));
            for entry in due {
                // It arrives now.
                let order = self.order();
                self.waiting.get_mut(&place).unwrap().push(Entry { order, ..entry });
            }
            self.delayed.insert(place, rest);
        }
        let now = self.now;
        for list in self.waiting.values_mut() {
            let before = list.len();
            list.retain(|one| !is_expired(&one.message, now));
            self.dead += (before - list.len()) as u64;
        }
    }

    // What the broker did.

    /// Deliveries of one step, each client's in order. `loosely`: things went back one after the
    /// other, so that one could be delivered before the next was there.
    pub fn deliver(&mut self, all: &[Seen], loosely: bool) {
        let mut given: Vec<(i64, Entry)> = Vec::new();
        for seen in all {
            let consumer =
                self.consumers.get_mut(&seen.consumer).expect("a consumer that is known");
            assert!(consumer.is_open, "{seen:?} after the consumer was closed");
            let waiting = self.waiting.get_mut(&consumer.place).expect("a place that is there");
            let at = waiting.iter().position(|one| one.message.id == seen.id);
            let entry = waiting.remove(at.unwrap_or_else(|| panic!("{seen:?} does not wait")));
            assert!(!is_expired(&entry.message, self.now), "{seen:?} has expired");
            assert!(consumer.wants(&entry), "{seen:?} is not selected");
            assert_eq!(seen.count, entry.deliveries + 1, "{seen:?}");
            assert_eq!(seen.redelivered, seen.count > 1, "{seen:?}");
            if let Some(left) = &mut consumer.left {
                *left = left.checked_sub(1).unwrap_or_else(|| panic!("{seen:?} without credit"));
            }
            assert_eq!(seen.last_of_window, consumer.left == Some(0), "{seen:?}");
            let is_over = consumer.forgets;
            consumer.deliveries.push(Delivery { entry, held_by: 0, is_over });
            given.push((seen.consumer, entry));
        }
        for seen in all {
            assert!(self.is_running(seen.consumer), "{seen:?} while it is stopped");
        }
        if !loosely {
            self.check_order(&given);
        }
        self.check_that_nobody_waits_in_vain();
    }

    fn check_order(&self, given: &[(i64, Entry)]) {
        for (at, (consumer, entry)) in given.iter().enumerate() {
            let before = given[..at].iter().rfind(|(other, _)| other == consumer);
            assert!(
                before.is_none_or(|(_, before)| before.rank() < entry.rank()),
                "{entry:?} after {before:?}"
            );
            let one = &self.consumers[consumer];
            let skipped = self.waiting[&one.place].iter().find(|waiting| {
                waiting.rank() < entry.rank()
                    && one.wants(waiting)
                    && !is_expired(&waiting.message, self.now)
            });
            assert!(skipped.is_none(), "{entry:?} before {skipped:?}");
        }
    }

    fn check_that_nobody_waits_in_vain(&self) {
        for (id, one) in &self.consumers {
            if !one.is_open || one.left == Some(0) || !self.is_running(*id) {
                continue;
            }
            let forgotten = self.waiting[&one.place]
                .iter()
                .find(|waiting| one.wants(waiting) && !is_expired(&waiting.message, self.now));
            assert!(forgotten.is_none(), "{id} could have {forgotten:?}");
        }
    }

    /// Messages of the queue, the topic and the dead message queue.
    pub fn messages(&self) -> u64 {
        let kept = |place: &Place| {
            let lists = [&self.waiting, &self.delayed].map(|list| list.get(place));
            let waiting = lists.into_iter().flatten().flatten().map(|one| one.message.id);
            let out = self.consumers.values().filter(move |one| one.place == *place);
            let out = out.flat_map(|one| one.deliveries.iter().filter(|one| !one.is_over));
            waiting.chain(out.map(|one| one.entry.message.id)).collect::<Vec<_>>()
        };
        let places = self.waiting.keys().copied();
        let places = places.chain(self.consumers.values().map(|one| one.place));
        let places: BTreeSet<Place> = places.filter(|place| *place != Place::Queue).collect();
        let of_topic: BTreeSet<MessageId> = places.iter().flat_map(kept).collect();
        kept(&Place::Queue).len() as u64 + of_topic.len() as u64 + self.dead
    }

    /// What a browser of the queue sees.
    pub fn browse(&self, red: Option<bool>) -> Vec<MessageId> {
        let out = self.consumers.values().filter(|one| one.place == Place::Queue);
        let out = out.flat_map(|one| one.deliveries.iter().filter(|one| !one.is_over));
        let mut all: Vec<Entry> = self.waiting[&Place::Queue].clone();
        all.extend(out.map(|one| one.entry));
        all.retain(|one| !is_expired(&one.message, self.now));
        all.retain(|one| red.is_none_or(|red| red == one.message.red));
        all.sort_by_key(Entry::rank);
        all.into_iter().map(|one| one.message.id).collect()
    }

    fn is_running(&self, consumer: i64) -> bool {
        let one = &self.consumers[&consumer];
        let session = self.sessions.get(&one.session);
        self.started.contains(&one.client) && session.is_some_and(|session| session.pauses == 0)
    }

    fn consumers_of(&self, session: i64) -> Vec<i64> {
        let own = self.consumers.iter().filter(|(_, one)| one.session == session);
        own.map(|(&id, _)| id).collect()
    }

    fn open(&mut self, consumer: i64, id: MessageId) -> &mut Delivery {
        let own = &mut self.consumers.get_mut(&consumer).unwrap().deliveries;
        own.iter_mut()
            .find(|one| !one.is_over && one.held_by == 0 && one.entry.message.id == id)
            .unwrap()
    }

    /// Takes an open delivery back, counted.
    fn take(&mut self, consumer: i64, id: MessageId, seen: i32) -> Entry {
        let delivery = self.open(consumer, id);
        delivery.is_over = true;
        let mut entry = delivery.entry;
        entry.deliveries += seen;
        entry
    }

    /// What has no place any more is gone.
    fn put_back(&mut self, place: Place, entry: Entry) {
        if let Some(list) = self.waiting.get_mut(&place) {
            list.push(entry);
        }
    }

    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }
}

fn is_expired(message: &Message, now: i64) -> bool {
    message.expires > 0 && message.expires <= now
}
