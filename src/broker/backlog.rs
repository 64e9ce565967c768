//! Messages that wait for a consumer, in their order.
//!
//! Higher priority first, then by arrival. A message that comes back takes the place it had. One
//! that is taken out of the middle leaves an empty place, which goes when its lane is mostly that.
//!
//! # Invariants
//! - Each lane ascends by order, empty places included.
//! - Every waiting message that expires has at least one entry in `expiring`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
};

use crate::sync::Arc;

use super::stored::Stored;

/// Priorities on the wire are 0 to 9; larger numbers count as 9.
const PRIORITIES: usize = 10;

/// A lane, or the list of expirations, is tidied up only from this length on.
const TIDY_FROM: usize = 64;

/// Most places that are looked at again one by one; beyond that, everything behind the first is.
const AGAIN_MAX: usize = 1024;

/// One message of one queue or subscription.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// The message itself, shared between subscriptions.
    pub message: Arc<Stored>,
    /// When it arrived at this destination: ascending.
    pub order: u64,
    /// How often it has been delivered and counts as seen.
    pub deliveries: u32,
}

/// Where a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    lane: usize,
    order: u64,
}

impl Place {
    /// The place of a message of this priority and order.
    pub(super) fn of(entry: &Entry) -> Self {
        Self { lane: lane(&entry.message), order: entry.order }
    }

    /// Sorts as a browser sees them: higher priority first, then by arrival.
    pub(super) const fn rank(self) -> (usize, u64) {
        (PRIORITIES - self.lane, self.order)
    }
}

/// How far somebody has looked through the waiting messages: in each lane, everything before an
/// order has been looked at, but for what came back there since.
#[derive(Debug, Clone, Default)]
pub(super) struct Cursor {
    seen: [u64; PRIORITIES],
    again: BTreeSet<Place>,
}

impl Cursor {
    /// Has the message at this place looked at again.
    pub(super) fn look_again(&mut self, place: Place) {
        if place.order >= self.seen[place.lane] {
            return;
        }
        self.again.insert(place);
        if self.again.len() > AGAIN_MAX {
            for place in std::mem::take(&mut self.again) {
                let seen = &mut self.seen[place.lane];
                *seen = place.order.min(*seen);
            }
        }
    }

    /// The first place of a lane that is to be looked at again.
    fn next_again(&mut self, lane: usize) -> Option<u64> {
        let all = Place { lane, order: 0 }..=Place { lane, order: u64::MAX };
        let first = *self.again.range(all).next()?;
        self.again.remove(&first);
        Some(first.order)
    }
}

#[derive(Debug)]
struct Slot {
    order: u64,
    deliveries: u32,
    /// `None`: an empty place.
    message: Option<Arc<Stored>>,
}

#[derive(Debug, Default)]
struct Lane {
    slots: VecDeque<Slot>,
    live: usize,
}

impl Lane {
    fn find(&self, order: u64) -> Option<usize> {
        self.slots.binary_search_by_key(&order, |slot| slot.order).ok()
    }

    fn from(&self, order: u64) -> usize {
        self.slots.partition_point(|slot| slot.order < order)
    }

    fn take(&mut self, at: usize) -> Option<Entry> {
        let slot = self.slots.get_mut(at)?;
        let message = slot.message.take()?;
        let entry = Entry { message, order: slot.order, deliveries: slot.deliveries };
        self.live -= 1;
        while self.slots.front().is_some_and(|slot| slot.message.is_none()) {
            self.slots.pop_front();
        }
        if self.slots.len() > TIDY_FROM && self.slots.len() > 2 * self.live {
            self.slots.retain(|slot| slot.message.is_some());
        }
        Some(entry)
    }
}

/// Waiting messages.
///
/// Shape: a deque for each priority, each ascending by order, and a bit for each that is not
/// empty; beside them what is not due yet, by time.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    lanes: [Lane; PRIORITIES],
    filled: u16,
    len: usize,
    /// When waiting messages expire. Those that left in time still stand here for a while.
    expiring: BinaryHeap<Reverse<(i64, Place)>>,
    delayed: BTreeMap<(i64, u64), Entry>,
}

impl Backlog {
    /// Adds a message that has just arrived.
    pub(super) fn push(&mut self, entry: Entry) {
        self.insert(entry, |lane, slot| lane.slots.push_back(slot));
    }

    /// Puts a message back where it was.
    pub(super) fn restore(&mut self, entry: Entry) {
        self.insert(entry, |lane, slot| {
            // What comes back is older than almost everything that waits.
            let at = lane.from(slot.order);
            match lane.slots.get_mut(at) {
                Some(place) if place.order == slot.order => *place = slot,
                _ => lane.slots.insert(at, slot),
            }
        });
    }

    fn insert(&mut self, entry: Entry, put: impl FnOnce(&mut Lane, Slot)) {
        let place = Place::of(&entry);
        let expiration = entry.message.expires;
        if expiration > 0 {
            self.note_expiration(expiration, place);
        }
        self.filled |= 1 << place.lane;
        self.len += 1;
        let Entry { message, order, deliveries } = entry;
        let lane = &mut self.lanes[place.lane];
        lane.live += 1;
        put(lane, Slot { order, deliveries, message: Some(message) });
    }

    fn note_expiration(&mut self, expiration: i64, place: Place) {
        if self.expiring.len() > TIDY_FROM && self.expiring.len() > 2 * self.len {
            let lanes = &self.lanes;
            self.expiring.retain(|Reverse((_, place))| {
                let lane = &lanes[place.lane];
                lane.find(place.order).is_some_and(|at| lane.slots[at].message.is_some())
            });
        }
        self.expiring.push(Reverse((expiration, place)));
    }

    /// The greatest sequence in the store among the next messages of a priority, so many at the most.
    pub(super) fn sequence_ahead(&self, priority: u8, count: usize) -> u64 {
        let lane = usize::from(priority).min(PRIORITIES - 1);
        let waiting = self.lanes[lane].slots.iter().filter_map(|slot| slot.message.as_ref());
        waiting.take(count).map(|message| message.sequence()).max().unwrap_or(0)
    }

    /// Takes the next message.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let at = self.highest()?;
        // The first place of a lane is never an empty one.
        let entry = self.lanes[at].take(0);
        self.account(at, entry.as_ref());
        entry
    }

    /// Takes the message at this place, if it still waits there.
    pub(super) fn take(&mut self, place: Place) -> Option<Entry> {
        let lane = &mut self.lanes[place.lane];
        let entry = lane.find(place.order).and_then(|at| lane.take(at));
        self.account(place.lane, entry.as_ref());
        entry
    }

    /// Takes the first message from the cursor on that `matches`, and moves the cursor behind what
    /// was looked at. Each look costs one of `budget`; at 0 the search stops without a find.
    pub(super) fn take_match(
        &mut self,
        cursor: &mut Cursor,
        budget: &mut usize,
        matches: impl Fn(&Stored) -> bool,
    ) -> Option<Entry> {
        for at in (0..PRIORITIES).rev().filter(|at| self.filled & 1 << at != 0) {
            let lane = &mut self.lanes[at];
            while *budget > 0
                && let Some(order) = cursor.next_again(at)
            {
                *budget -= 1;
                let place = lane.find(order).filter(|&index| {
                    lane.slots[index].message.as_ref().is_some_and(|message| matches(message))
                });
                if let Some(index) = place {
                    let entry = lane.take(index);
                    self.account(at, entry.as_ref());
                    return entry;
                }
            }
            let seen = &mut cursor.seen[at];
            for index in lane.from(*seen)..lane.slots.len() {
                let slot = &lane.slots[index];
                if *budget == 0 {
                    return None;
                }
                *budget -= 1;
                *seen = slot.order + 1;
                if slot.message.as_ref().is_some_and(|message| matches(message)) {
                    let entry = lane.take(index);
                    self.account(at, entry.as_ref());
                    return entry;
                }
            }
        }
        None
    }

    /// Takes a message that is the first of its priority and is like this.
    pub(super) fn take_first(&mut self, is_like: impl Fn(&Stored) -> bool) -> Option<Entry> {
        let at = (0..PRIORITIES).filter(|at| self.filled & 1 << at != 0).find(|&at| {
            let first = self.lanes[at].slots.front();
            first.and_then(|slot| slot.message.as_ref()).is_some_and(|message| is_like(message))
        })?;
        let entry = self.lanes[at].take(0);
        self.account(at, entry.as_ref());
        entry
    }

    fn account(&mut self, lane: usize, entry: Option<&Entry>) {
        self.len -= usize::from(entry.is_some());
        if self.lanes[lane].live == 0 {
            self.lanes[lane].slots.clear();
            self.filled &= !(1 << lane);
        }
    }

    /// Whether none waits; what is not due yet does not count.
    #[must_use]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many wait; what is not due yet does not count.
    #[must_use]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The place of the message that arrived first.
    pub(super) fn oldest(&self) -> Option<Place> {
        let fronts = self.lanes.iter().enumerate().filter_map(|(lane, one)| {
            one.slots.front().map(|slot| Place { lane, order: slot.order })
        });
        fronts.min_by_key(|place| place.order)
    }

    /// The place of the oldest message among those of the lowest priority.
    pub(super) fn lowest(&self) -> Option<Place> {
        let lane = self.filled.trailing_zeros() as usize;
        let first = self.lanes.get(lane)?.slots.front()?;
        Some(Place { lane, order: first.order })
    }

    /// Takes a message that has expired while it waited, the longest expired first.
    pub(super) fn take_expired(&mut self, wall_ms: i64) -> Option<Entry> {
        while self.next_expiration()? <= wall_ms {
            let Reverse((_, place)) = self.expiring.pop()?;
            if let Some(entry) = self.take(place) {
                return Some(entry);
            }
        }
        None
    }

    /// When the next message may expire, in milliseconds since 1970.
    pub(super) fn next_expiration(&self) -> Option<i64> {
        self.expiring.peek().map(|Reverse((at, _))| *at)
    }

    /// Keeps a message until its time.
    pub(super) fn delay(&mut self, entry: Entry) {
        self.delayed.insert((entry.message.due, entry.order), entry);
    }

    /// Takes a message whose time has come.
    pub(super) fn take_due(&mut self, wall_ms: i64) -> Option<Entry> {
        let first = self.delayed.first_entry()?;
        (first.key().0 <= wall_ms).then(|| first.remove())
    }

    /// When the next delayed message is due, in milliseconds since 1970.
    pub(super) fn next_due(&self) -> Option<i64> {
        self.delayed.first_key_value().map(|(&(due, _), _)| due)
    }

    /// Messages that are not due yet.
    #[must_use]
    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Takes everything out, what is not due yet included.
    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        let mut all: Vec<Entry> = std::mem::take(&mut self.delayed).into_values().collect();
        all.extend(std::iter::from_fn(|| self.pop()));
        self.expiring.clear();
        all
    }

    /// Shows waiting messages from the cursor on, in their order, and moves it along. Each costs
    /// one of `budget`; `true` once all have been shown. `each` says whether to go on.
    pub(super) fn walk(
        &self,
        cursor: &mut Cursor,
        budget: &mut usize,
        mut each: impl FnMut(Place, &Arc<Stored>) -> bool,
    ) -> bool {
        for at in (0..PRIORITIES).rev().filter(|at| self.filled & 1 << at != 0) {
            let lane = &self.lanes[at];
            let seen = &mut cursor.seen[at];
            for slot in lane.slots.range(lane.from(*seen)..) {
                if *budget == 0 {
                    return false;
                }
                *budget -= 1;
                *seen = slot.order + 1;
                let place = Place { lane: at, order: slot.order };
                if slot.message.as_ref().is_some_and(|message| !each(place, message)) {
                    return true;
                }
            }
        }
        true
    }

    fn highest(&self) -> Option<usize> {
        self.filled.checked_ilog2().map(|bit| bit as usize)
    }
}

fn lane(message: &Stored) -> usize {
    usize::from(message.packet.header().priority).min(PRIORITIES - 1)
}

#[cfg(test)]
mod tests {
    use super::{Backlog, Cursor, Entry, Place};
    use crate::{
        broker::stored::Stored,
        sync::Arc,
        wire::{Packet, PacketBuilder, PacketType},
    };

    fn packet(priority: u8, expiration: i64) -> Packet {
        PacketBuilder::new(PacketType::TEXT_MESSAGE)
            .priority(priority)
            .expiration(expiration)
            .finish()
    }

    fn entry(order: u64, priority: u8) -> Entry {
        let message = Arc::new(Stored::new(packet(priority, 0), 1));
        Entry { message, order, deliveries: 0 }
    }

    fn mortal(order: u64, expiration: i64) -> Entry {
        let message = Arc::new(Stored::new(packet(4, expiration), 1));
        Entry { message, order, deliveries: 0 }
    }

    fn orders(backlog: &mut Backlog) -> Vec<u64> {
        std::iter::from_fn(|| backlog.pop().map(|entry| entry.order)).collect()
    }

    #[test]
    fn higher_priorities_come_first_and_equal_ones_in_order_of_arrival() {
        let mut backlog = Backlog::default();
        for (order, priority) in [(0, 1), (1, 4), (2, 9), (3, 0), (4, 9), (5, 200)] {
            backlog.push(entry(order, priority));
        }
        assert_eq!(backlog.oldest(), Some(Place { lane: 1, order: 0 }));
        assert_eq!(backlog.lowest(), Some(Place { lane: 0, order: 3 }));
        assert_eq!(orders(&mut backlog), [2, 4, 5, 1, 0, 3]);
        assert!(backlog.is_empty() && backlog.oldest().is_none() && backlog.lowest().is_none());
    }

    #[test]
    fn what_comes_back_takes_its_old_place() {
        let mut backlog = Backlog::default();
        for order in [3, 5, 9] {
            backlog.push(entry(order, 4));
        }
        for order in [4, 1, 2, 7, 10] {
            backlog.restore(entry(order, 4));
        }
        assert_eq!(orders(&mut backlog), [1, 2, 3, 4, 5, 7, 9, 10]);
    }

    #[test]
    fn what_is_taken_from_the_middle_can_come_back_there() {
        let mut backlog = Backlog::default();
        (0..200).for_each(|order| backlog.push(entry(order, 4)));
        let taken: Vec<Entry> =
            (20..190).filter_map(|order| backlog.take(Place { lane: 4, order })).collect();
        assert_eq!((taken.len(), backlog.len()), (170, 30));
        taken.into_iter().rev().for_each(|entry| backlog.restore(entry));
        assert_eq!(orders(&mut backlog), (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn a_search_looks_at_each_message_once_and_again_at_what_came_back() {
        let mut backlog = Backlog::default();
        (0..100).for_each(|order| backlog.push(entry(order, if order == 7 { 9 } else { 4 })));
        let (mut cursor, mut budget) = (Cursor::default(), 1000);
        let wanted = |at: u64| move |message: &Stored| message.due == 0 && at < 100;
        let first = backlog.take_match(&mut cursor, &mut budget, wanted(0)).unwrap();
        assert_eq!((first.order, budget), (7, 999), "the higher priority first");
        assert!(backlog.take_match(&mut cursor, &mut budget, wanted(100)).is_none());
        assert_eq!(budget, 900);
        assert!(backlog.take_match(&mut cursor, &mut budget, wanted(0)).is_none());
        assert_eq!(budget, 900, "nothing is looked at twice");
        cursor.look_again(Place::of(&first));
        backlog.restore(first);
        assert_eq!(backlog.take_match(&mut cursor, &mut budget, wanted(0)).unwrap().order, 7);
        assert_eq!(budget, 899, "what came back, and nothing behind it");
        let (mut fresh, mut small) = (Cursor::default(), 5);
        assert!(backlog.take_match(&mut fresh, &mut small, wanted(100)).is_none());
        assert_eq!(small, 0);
    }

    #[test]
    fn messages_expire_in_their_time_and_only_while_they_wait() {
        let mut backlog = Backlog::default();
        for (order, at) in [(0, 30), (1, 10), (2, 20), (3, 0)] {
            backlog.push(mortal(order, at));
        }
        assert_eq!(backlog.next_expiration(), Some(10));
        assert_eq!(backlog.pop().unwrap().order, 0);
        let expired = |backlog: &mut Backlog, now| {
            std::iter::from_fn(|| backlog.take_expired(now).map(|entry| entry.order))
                .collect::<Vec<_>>()
        };
        assert_eq!(expired(&mut backlog, 9), [0_u64; 0]);
        assert_eq!(expired(&mut backlog, 100), [1, 2]);
        assert_eq!(orders(&mut backlog), [3]);
        // What comes and goes leaves nothing behind for long.
        for order in 10..10_000 {
            backlog.push(mortal(order, 1_000_000));
            backlog.pop();
        }
        assert!(backlog.expiring.len() < 200, "{}", backlog.expiring.len());
    }

    #[test]
    fn what_is_delayed_is_due_in_order_of_its_times() {
        let mut backlog = Backlog::default();
        for (order, due) in [(0, 30), (1, 10), (2, 10)] {
            let mut message = Stored::new(packet(4, 0), 1);
            message.due = due;
            backlog.delay(Entry { message: Arc::new(message), order, deliveries: 0 });
        }
        assert!(backlog.is_empty());
        assert_eq!((backlog.delayed(), backlog.next_due()), (3, Some(10)));
        assert!(backlog.take_due(9).is_none());
        assert_eq!(backlog.take_due(10).unwrap().order, 1);
        assert_eq!(backlog.take_due(10).unwrap().order, 2);
        assert!(backlog.take_due(29).is_none());
        assert_eq!(backlog.take_all().len(), 1);
    }

    #[test]
    fn a_walk_shows_all_in_order_and_can_be_taken_up_again() {
        let mut backlog = Backlog::default();
        for (order, priority) in [(0, 1), (1, 4), (2, 9), (3, 4)] {
            backlog.push(entry(order, priority));
        }
        let (mut cursor, mut shown) = (Cursor::default(), Vec::new());
        for budget in [2, 1, 5] {
            let mut left = budget;
            let done = backlog.walk(&mut cursor, &mut left, |place, _| {
                shown.push(place.order);
                true
            });
            assert_eq!(done, budget == 5);
        }
        assert_eq!(shown, [2, 1, 3, 0]);
    }
}
