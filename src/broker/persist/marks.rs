//! What may be given to consumers: a stored message leaves only when the store says that it may have
//! been delivered. So whatever comes again after a crash is flagged.
//!
//! Nearly every message that somebody waits for carries the mark from the start, in the commit that
//! stores it. What had to wait is marked ahead of its delivery: up to a sequence for each priority, as
//! many messages at once as the consumers have credit for; one by one for those who search.

use std::collections::HashSet;

use crate::sync::Arc;

use super::{
    super::{
        backlog::{Entry, PRIORITIES},
        command::Rare,
        destination::Destination,
        dispatch::{SHARED, State},
        turn::Turn,
    },
    Op, Ops, StoredKey, Then, Unit,
};

/// Most messages that are marked at once.
const AHEAD_MAX: usize = 1024;

/// The marks of one backlog.
#[derive(Debug, Default)]
pub(in crate::broker) struct Marks {
    /// Up to which sequence everything of a priority is marked.
    through: [u64; PRIORITIES],
    /// Single messages that are marked, by their order.
    single: HashSet<u64>,
    /// A mark is on its way into the store.
    asked: bool,
    /// Messages that could not be marked when their turn came: the store takes nothing.
    stalled: Vec<Entry>,
}

impl Marks {
    /// Whether a message may leave. What it carried for that is used up.
    pub(in crate::broker) fn let_through(&mut self, entry: &Entry) -> bool {
        let sequence = entry.message.sequence();
        sequence == 0
            || entry.deliveries > 0
            || sequence <= self.through[lane(entry)]
            || self.single.remove(&entry.order)
    }

    /// A single message is marked.
    pub(in crate::broker) fn add(&mut self, order: u64) {
        self.single.insert(order);
    }

    /// Everything of a priority is marked up to a sequence.
    pub(in crate::broker) fn raise(&mut self, priority: u8, through: u64) {
        let mark = &mut self.through[usize::from(priority).min(PRIORITIES - 1)];
        *mark = through.max(*mark);
    }

    /// A message waits until the store is back.
    pub(in crate::broker) fn stall(&mut self, entry: Entry) {
        self.stalled.push(entry);
    }

    /// What waits for the store.
    pub(in crate::broker) fn take_stalled(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.stalled)
    }
}

fn lane(entry: &Entry) -> usize {
    usize::from(entry.message.packet.header().priority).min(PRIORITIES - 1)
}

/// What is on its way to be marked.
#[derive(Debug, Clone, Copy)]
enum Mark {
    /// One message, by its order.
    Single(u64),
    /// Everything of a priority up to a sequence.
    Through(u8, u64),
}

impl State {
    /// The message that is taken in next carries a mark.
    pub(in crate::broker) fn note_mark(&mut self, marked: bool) {
        let order = self.next_order;
        if let Some(one) = self.subscriptions.get_mut(&SHARED).filter(|_| marked) {
            one.marks.add(order);
        }
    }

    /// Has this message, the next one of its subscription, marked, and those behind it; `is_single`:
    /// nothing but this one.
    pub(in crate::broker) fn mark_ahead(
        &mut self,
        (at, key): (&Arc<Destination>, i64),
        entry: &Entry,
        is_single: bool,
        turn: &mut Turn<'_>,
    ) {
        let Some(stored) = self.key_of(entry) else { return };
        let Some(one) = self.subscriptions.get_mut(&key).filter(|one| !one.marks.asked) else {
            return;
        };
        one.marks.asked = true;
        let StoredKey { place, sequence, .. } = stored;
        let priority = entry.message.packet.header().priority;
        let (op, mark) = if is_single {
            self.marks_singly = true;
            (Op::Count(stored, 1), Mark::Single(entry.order))
        } else {
            let credit = one.ready.iter().filter_map(|id| self.subscribers.get(id));
            let credit = credit
                .map(|one| one.consumer.credit_left().map_or(AHEAD_MAX, |left| left as usize));
            let count = credit.fold(0, usize::saturating_add).clamp(1, AHEAD_MAX);
            let through = one.backlog.sequence_ahead(priority, count).max(sequence);
            (Op::Deliver { place, priority, through }, Mark::Through(priority, through))
        };
        let at = Arc::clone(at);
        let then = Box::new(move |stored: Result<(), _>, turn: &mut Turn<'_>| {
            let marked = Rare::command(move |_, state, turn| {
                state.marked(key, stored.is_ok().then_some(mark), turn);
            });
            turn.send(&at, marked);
        });
        turn.persist(Unit { ops: Ops::One(op), then: Then::Rare(then) });
    }

    /// What was asked for is marked, or will never be.
    fn marked(&mut self, key: i64, mark: Option<Mark>, turn: &mut Turn<'_>) {
        let Self { subscriptions, fed, .. } = self;
        let Some(one) = subscriptions.get_mut(&key) else { return };
        let Some(mark) = mark else {
            // The store takes nothing any more, so nothing more is asked of it.
            return one.feed(key, fed);
        };
        one.marks.asked = false;
        match mark {
            Mark::Single(order) => one.marks.add(order),
            Mark::Through(priority, through) => one.marks.raise(priority, through),
        }
        let stalled = one.marks.take_stalled();
        one.feed(key, fed);
        self.restore_all(key, stalled, turn);
    }
}
