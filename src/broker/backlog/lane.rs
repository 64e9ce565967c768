//! The waiting messages of one priority.

use std::collections::VecDeque;

use crate::sync::Arc;

use super::{super::stored::Stored, Entry, Item, Stub, TIDY_FROM};

/// A lane that was longer than this gives its memory back when it is empty.
const KEPT_LEN_MAX: usize = 1 << 12;

/// One place. Millions may be there, so its size counts.
#[derive(Debug)]
pub(super) enum Slot {
    /// With its message in memory; `None`: an empty place.
    Here { order: u64, deliveries: u32, message: Option<Arc<Stored>> },
    /// With its message in the store only.
    Away(Stub),
}

const _: () = assert!(size_of::<Slot>() <= 48, "what is kept of a message in the store is small");

impl From<Item> for Slot {
    fn from(item: Item) -> Self {
        match item {
            Item::Here(Entry { message, order, deliveries }) => {
                Self::Here { order, deliveries, message: Some(message) }
            }
            Item::Away(stub) => Self::Away(stub),
        }
    }
}

impl Slot {
    pub(super) const fn order(&self) -> u64 {
        match self {
            Self::Here { order, .. } | Self::Away(Stub { order, .. }) => *order,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        matches!(self, Self::Here { message: None, .. })
    }

    /// The message's place in the order of the store; 0 if it is not stored, or nothing is here.
    pub(super) fn sequence(&self) -> u64 {
        match self {
            Self::Here { message, .. } => message.as_ref().map_or(0, |message| message.sequence()),
            Self::Away(stub) => stub.sequence.get(),
        }
    }

    fn take(&mut self) -> Option<Item> {
        let order = self.order();
        match std::mem::replace(self, Self::Here { order, deliveries: 0, message: None }) {
            Self::Here { order, deliveries, message } => {
                message.map(|message| Item::Here(Entry { message, order, deliveries }))
            }
            Self::Away(stub) => Some(Item::Away(stub)),
        }
    }
}

/// Shape: a deque that ascends by order, empty places included; the first place is never empty.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) slots: VecDeque<Slot>,
    pub(super) live: usize,
}

impl Lane {
    pub(super) fn find(&self, order: u64) -> Option<usize> {
        self.slots.binary_search_by_key(&order, Slot::order).ok()
    }

    pub(super) fn from(&self, order: u64) -> usize {
        // Mostly it is the first.
        if self.slots.front().is_none_or(|first| first.order() >= order) {
            return 0;
        }
        self.slots.partition_point(|slot| slot.order() < order)
    }

    pub(super) fn push(&mut self, slot: Slot) {
        self.live += 1;
        self.slots.push_back(slot);
    }

    /// Puts a slot where its order belongs.
    pub(super) fn restore(&mut self, slot: Slot) {
        self.live += 1;
        // What comes back is older than almost everything that waits.
        let at = self.from(slot.order());
        match self.slots.get_mut(at) {
            Some(place) if place.order() == slot.order() => *place = slot,
            _ => self.slots.insert(at, slot),
        }
    }

    pub(super) fn take(&mut self, at: usize) -> Option<Item> {
        let item = self.slots.get_mut(at)?.take()?;
        self.live -= 1;
        while self.slots.front().is_some_and(Slot::is_empty) {
            self.slots.pop_front();
        }
        if self.slots.len() > TIDY_FROM && self.slots.len() > 2 * self.live {
            self.slots.retain(|slot| !slot.is_empty());
        }
        if self.live == 0 && self.slots.capacity() > KEPT_LEN_MAX {
            self.slots = VecDeque::new();
        }
        Some(item)
    }
}
