//! Messages that wait for a consumer, in their order.
//!
//! Higher priority first, then by arrival. A message that comes back takes the place it had. One
//! that is taken out of the middle leaves an empty place, which goes when its lane is mostly that.
//!
//! A stored message may wait without its body, which is in the store then. Whatever needs no body
//! works all the same: counts, limits, expiry, removal. Whoever needs one is told at which place it is
//! missing, has it fetched, and goes on when it is there. Bodies that were fetched for a search and
//! not taken go again as others come.
//!
//! # Invariants
//! - Each lane ascends by order, empty places included.
//! - Every waiting message that expires has at least one entry in `expiring`.

mod item;
mod lane;
#[cfg(test)]
mod model;
mod place;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    num::NonZeroU64,
};

use crate::{sync::Arc, wire::Packet};

use self::lane::{Lane, Slot};
pub(super) use self::{
    item::{Entry, Item, Stub},
    place::{Cursor, Place},
};
use super::stored::{Share, Stored};

/// Priorities on the wire are 0 to 9; larger numbers count as 9.
pub(super) const PRIORITIES: usize = 10;

/// A lane, or the list of expirations, is tidied up only from this length on.
const TIDY_FROM: usize = 64;

/// Bodies that were fetched and may be here at a time, and their bytes; one may be larger.
const FETCHED_MAX: usize = 1024;
const FETCHED_BYTES_MAX: u64 = 4 << 20;

/// What was found by somebody who needs the body.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// A message, which waits no longer.
    Entry(Entry),
    /// The next one to look at, here, has its body in the store.
    Cold(Place),
}

/// Why somebody who looks through what waits has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// All have been shown, or enough.
    Done,
    /// The budget is used up.
    Budget,
    /// The next one has its body in the store.
    Cold(Place),
}

/// A body to be fetched: its message's place here and in the store.
#[derive(Debug, Clone)]
pub(super) struct Missing {
    pub place: Place,
    pub sequence: NonZeroU64,
    /// What its subscriptions share, if it was sent to a topic.
    pub share: Option<Arc<Share>>,
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
    delayed: BTreeMap<(i64, u64), Item>,
    /// Places to which bodies were fetched, the oldest first, with their sequences and sizes.
    fetched: VecDeque<(Place, NonZeroU64, u64)>,
    fetched_bytes: u64,
    cold: usize,
    here_bytes: u64,
    away_bytes: i64,
    /// What is here waits elsewhere, and is counted there.
    is_list: bool,
}

impl Backlog {
    /// A list of messages that wait elsewhere.
    pub(super) fn list() -> Self {
        Self { is_list: true, ..Self::default() }
    }

    /// Adds a message that has just arrived.
    pub(super) fn push(&mut self, item: Item) {
        let lane = self.insert(&item);
        self.lanes[lane].push(item.into());
    }

    /// Puts a message back where it was.
    pub(super) fn restore(&mut self, item: Item) {
        let lane = self.insert(&item);
        self.lanes[lane].restore(item.into());
    }

    fn insert(&mut self, item: &Item) -> usize {
        self.account_in(item);
        let (place, expires) = (item.place(), item.expires());
        if expires > 0 {
            self.note_expiration(expires, place);
        }
        self.filled |= 1 << place.lane();
        self.len += 1;
        place.lane()
    }

    fn note_expiration(&mut self, expiration: i64, place: Place) {
        if self.expiring.len() > TIDY_FROM && self.expiring.len() > 2 * self.len {
            let lanes = &self.lanes;
            self.expiring.retain(|Reverse((_, place))| {
                let lane = &lanes[place.lane()];
                lane.find(place.order()).is_some_and(|at| !lane.slots[at].is_empty())
            });
        }
        self.expiring.push(Reverse((expiration, place)));
    }

    fn account_in(&mut self, item: &Item) {
        match item {
            Item::Here(Entry { message, .. }) if message.sequence() == 0 => {}
            Item::Here(_) | Item::Away(_) if self.is_list => {}
            Item::Here(entry) => self.here_bytes += entry.message.bytes(),
            Item::Away(stub) => {
                self.cold += 1;
                if stub.share.as_ref().is_none_or(|share| share.drop_body()) {
                    self.away_bytes += i64::from(stub.bytes);
                }
            }
        }
    }

    fn account_out(&mut self, item: &Item) {
        match item {
            Item::Here(Entry { message, .. }) if message.sequence() == 0 => {}
            Item::Here(_) | Item::Away(_) if self.is_list => {}
            Item::Here(entry) => self.here_bytes -= entry.message.bytes(),
            Item::Away(stub) => {
                self.cold -= 1;
                // Of what is shared, the last holder says that it is gone.
                if stub.share.is_none() {
                    self.away_bytes -= i64::from(stub.bytes);
                }
            }
        }
    }

    /// The greatest sequence in the store among the next messages of a priority, so many at the most.
    pub(super) fn sequence_ahead(&self, priority: u8, count: usize) -> u64 {
        let lane = usize::from(priority).min(PRIORITIES - 1);
        let waiting = self.lanes[lane].slots.iter().filter(|slot| !slot.is_empty());
        waiting.take(count).map(Slot::sequence).max().unwrap_or(0)
    }

    /// Takes the next message.
    pub(super) fn pop(&mut self) -> Found {
        let Some(at) = self.highest() else { return Found::Nothing };
        // The first place of a lane is never an empty one.
        if let Some(Slot::Away(stub)) = self.lanes[at].slots.front() {
            return Found::Cold(stub.place());
        }
        self.take_found(at, 0)
    }

    /// Takes the message at this place, if it still waits there.
    pub(super) fn take(&mut self, place: Place) -> Option<Item> {
        let at = self.lanes[place.lane()].find(place.order())?;
        self.remove(place.lane(), at)
    }

    /// Takes the message without a body at this place, if it is that.
    pub(super) fn take_cold(&mut self, place: Place, sequence: NonZeroU64) -> Option<Stub> {
        self.cold_at(place).filter(|stub| stub.sequence == sequence)?;
        match self.take(place)? {
            Item::Away(stub) => Some(stub),
            Item::Here(_) => None,
        }
    }

    /// What is known of the message without a body at this place.
    pub(super) fn cold_at(&self, place: Place) -> Option<&Stub> {
        let lane = &self.lanes[place.lane()];
        match lane.slots.get(lane.find(place.order())?)? {
            Slot::Away(stub) => Some(stub),
            Slot::Here { .. } => None,
        }
    }

    fn remove(&mut self, lane: usize, at: usize) -> Option<Item> {
        let item = self.lanes[lane].take(at)?;
        self.account_out(&item);
        self.len -= 1;
        if self.lanes[lane].live == 0 {
            self.lanes[lane].slots.clear();
            self.filled &= !(1 << lane);
        }
        Some(item)
    }

    fn take_found(&mut self, lane: usize, at: usize) -> Found {
        match self.remove(lane, at) {
            Some(Item::Here(entry)) => Found::Entry(entry),
            Some(Item::Away(_)) | None => Found::Nothing,
        }
    }

    /// Takes the first message from the cursor on that `matches`, and moves the cursor behind what
    /// was looked at. Each look costs one of `budget`; at 0 the search stops without a find.
    pub(super) fn take_match(
        &mut self,
        cursor: &mut Cursor,
        budget: &mut usize,
        matches: impl Fn(&Stored) -> bool,
    ) -> Found {
        for at in (0..PRIORITIES).rev().filter(|at| self.filled & 1 << at != 0) {
            let lane = &self.lanes[at];
            while *budget > 0
                && let Some(order) = cursor.next_again(at)
            {
                *budget -= 1;
                let Some(index) = lane.find(order) else { continue };
                match &lane.slots[index] {
                    Slot::Away(stub) => {
                        cursor.look_again(stub.place());
                        return Found::Cold(stub.place());
                    }
                    Slot::Here { message: Some(message), .. } if matches(message) => {
                        return self.take_found(at, index);
                    }
                    Slot::Here { .. } => {}
                }
            }
            let seen = &mut cursor.seen[at];
            for index in lane.from(*seen)..lane.slots.len() {
                if *budget == 0 {
                    return Found::Nothing;
                }
                *budget -= 1;
                match &lane.slots[index] {
                    Slot::Away(stub) => return Found::Cold(stub.place()),
                    Slot::Here { order, message, .. } => {
                        *seen = order + 1;
                        if message.as_ref().is_some_and(|message| matches(message)) {
                            return self.take_found(at, index);
                        }
                    }
                }
            }
        }
        Found::Nothing
    }

    /// Takes a message that is the first of its priority and was given up.
    pub(super) fn take_given_up(&mut self) -> Option<Item> {
        let at = (0..PRIORITIES).filter(|at| self.filled & 1 << at != 0).find(|&at| match self
            .lanes[at]
            .slots
            .front()
        {
            Some(Slot::Here { message: Some(message), .. }) => message.is_given_up(),
            Some(Slot::Away(stub)) => stub.share.as_ref().is_some_and(|one| one.is_given_up()),
            Some(Slot::Here { .. }) | None => false,
        })?;
        self.remove(at, 0)
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

    /// Bytes of stored messages that are here with their bodies.
    pub(super) const fn here_bytes(&self) -> u64 {
        self.here_bytes
    }

    /// Bytes of bodies that are in no memory, as far as this backlog has made it so; below zero, if
    /// others have made it so what this one has fetched.
    pub(super) const fn away_bytes(&self) -> i64 {
        self.away_bytes
    }

    /// The place of the message that arrived first.
    pub(super) fn oldest(&self) -> Option<Place> {
        let fronts =
            self.lanes.iter().enumerate().filter_map(|(lane, one)| {
                one.slots.front().map(|slot| Place::new(lane, slot.order()))
            });
        fronts.min_by_key(|place| place.order())
    }

    /// The place of the oldest message among those of the lowest priority.
    pub(super) fn lowest(&self) -> Option<Place> {
        let lane = self.filled.trailing_zeros() as usize;
        let first = self.lanes.get(lane)?.slots.front()?;
        Some(Place::new(lane, first.order()))
    }

    /// Takes a message that has expired while it waited, the longest expired first.
    pub(super) fn take_expired(&mut self, wall_ms: i64) -> Option<Item> {
        while self.next_expiration()? <= wall_ms {
            let Reverse((_, place)) = self.expiring.pop()?;
            if let Some(item) = self.take(place) {
                return Some(item);
            }
        }
        None
    }

    /// When the next message may expire, in milliseconds since 1970.
    pub(super) fn next_expiration(&self) -> Option<i64> {
        self.expiring.peek().map(|Reverse((at, _))| *at)
    }

    /// Keeps a message until its time, in milliseconds since 1970.
    pub(super) fn delay(&mut self, item: Item, due: i64) {
        self.account_in(&item);
        self.delayed.insert((due, item.order()), item);
    }

    /// Takes a message whose time has come.
    pub(super) fn take_due(&mut self, wall_ms: i64) -> Option<Item> {
        let first = self.delayed.first_entry()?;
        let item = (first.key().0 <= wall_ms).then(|| first.remove())?;
        self.account_out(&item);
        Some(item)
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

    /// Takes any message out, what is not due yet included.
    pub(super) fn remove_any(&mut self) -> Option<Item> {
        self.take_due(i64::MAX).or_else(|| {
            let at = self.highest()?;
            self.remove(at, 0)
        })
    }

    /// Takes one message after the other out, what is not due yet included.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Item> + '_ {
        std::iter::from_fn(|| self.remove_any())
    }

    /// Takes the message without a body at this place if nobody would be given it.
    pub(super) fn take_useless(&mut self, place: Place, wall_ms: i64) -> Option<Item> {
        let stub = self.cold_at(place)?;
        let is_useless = (1..=wall_ms).contains(&stub.expires)
            || stub.share.as_ref().is_some_and(|share| share.is_given_up());
        if is_useless { self.take(place) } else { None }
    }

    /// Shows waiting messages from the cursor on, in their order, and moves it along. Each costs
    /// one of `budget`. `each` says whether to go on. What has expired is not shown without a body.
    pub(super) fn walk(
        &self,
        cursor: &mut Cursor,
        budget: &mut usize,
        wall_ms: i64,
        mut each: impl FnMut(Place, &Arc<Stored>) -> bool,
    ) -> Stop {
        for at in (0..PRIORITIES).rev().filter(|at| self.filled & 1 << at != 0) {
            let lane = &self.lanes[at];
            let seen = &mut cursor.seen[at];
            for slot in lane.slots.range(lane.from(*seen)..) {
                if *budget == 0 {
                    return Stop::Budget;
                }
                *budget -= 1;
                match slot {
                    Slot::Away(stub) if !(1..=wall_ms).contains(&stub.expires) => {
                        return Stop::Cold(stub.place());
                    }
                    Slot::Here { order, message: Some(message), .. } => {
                        *seen = order + 1;
                        if !each(Place::new(at, *order), message) {
                            return Stop::Done;
                        }
                    }
                    Slot::Here { .. } | Slot::Away(_) => *seen = slot.order() + 1,
                }
            }
        }
        Stop::Done
    }

    /// The first message without a body among so many that are next.
    pub(super) fn cold_ahead(&self, count: usize) -> Option<Place> {
        if self.cold == 0 {
            return None;
        }
        let next = self.lanes[self.highest()?].slots.iter().take(count);
        next.filter_map(|slot| match slot {
            Slot::Away(stub) => Some(stub.place()),
            Slot::Here { .. } => None,
        })
        .next()
    }

    /// Bodies that are missing from this place on, in its lane: so many and so many bytes at the
    /// most, but at least one.
    pub(super) fn missing(&self, from: Place, count: usize, bytes: u64) -> Vec<Missing> {
        let lane = &self.lanes[from.lane()];
        let mut missing: Vec<Missing> = Vec::new();
        let mut left = bytes;
        // What has its body is looked over, but not without end.
        for slot in lane.slots.range(lane.from(from.order())..).take(4 * count) {
            let Slot::Away(stub) = slot else { continue };
            if missing.len() == count || !missing.is_empty() && left < u64::from(stub.bytes) {
                break;
            }
            left = left.saturating_sub(u64::from(stub.bytes));
            let (sequence, share) = (stub.sequence, stub.share.clone());
            missing.push(Missing { place: stub.place(), sequence, share });
        }
        missing
    }

    /// Gives a message the body that was fetched for it, if it still waits without. Of those that
    /// were fetched before and not taken, the oldest may lose theirs for it.
    pub(super) fn warm(&mut self, place: Place, sequence: NonZeroU64, packet: Packet) {
        let waits = |stub: &&Stub| stub.sequence == sequence;
        let Some(stub) = self.cold_at(place).filter(waits).cloned() else { return };
        let bytes = u64::from(stub.bytes);
        if stub.share.as_ref().is_none_or(|share| share.take_body()) {
            self.away_bytes -= i64::from(stub.bytes);
        }
        self.cold -= 1;
        self.here_bytes += bytes;
        self.replace(place, Item::Here(stub.entry(packet)));
        self.fetched.push_back((place, sequence, bytes));
        self.fetched_bytes += bytes;
        while self.fetched.len() > FETCHED_MAX
            || self.fetched_bytes > FETCHED_BYTES_MAX && self.fetched.len() > 1
        {
            self.cool_oldest();
        }
    }

    fn cool_oldest(&mut self) {
        let Some((place, sequence, bytes)) = self.fetched.pop_front() else { return };
        self.fetched_bytes -= bytes;
        let lane = &self.lanes[place.lane()];
        let Some(at) = lane.find(place.order()) else { return };
        let Slot::Here { order, deliveries, message: Some(message) } = &lane.slots[at] else {
            return;
        };
        let entry = Entry { message: Arc::clone(message), order: *order, deliveries: *deliveries };
        if let Some(stub) = Stub::of(&entry).filter(|stub| stub.sequence == sequence) {
            self.account_out(&Item::Here(entry));
            let cold = Item::Away(stub);
            self.account_in(&cold);
            self.replace(place, cold);
        }
    }

    fn replace(&mut self, place: Place, item: Item) {
        let lane = &mut self.lanes[place.lane()];
        if let Some(at) = lane.find(place.order()) {
            lane.slots[at] = item.into();
        }
    }

    fn highest(&self) -> Option<usize> {
        self.filled.checked_ilog2().map(|bit| bit as usize)
    }
}
