//! Places of waiting messages, and how far somebody has looked through them.

use std::collections::BTreeSet;

use super::{Entry, PRIORITIES};

/// Most places that are looked at again one by one; beyond that, everything behind the first is.
const AGAIN_MAX: usize = 1024;

/// Bits of the order in a place.
const ORDER_BITS: u32 = 60;

/// Where a message waits.
///
/// Shape: priority in the upper 4 bits, order of arrival in the other 60.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::broker) struct Place(u64);

impl Place {
    /// The place of this entry.
    pub(in crate::broker) fn of(entry: &Entry) -> Self {
        let priority = usize::from(entry.message.packet.header().priority);
        Self::new(priority.min(PRIORITIES - 1), entry.order)
    }

    pub(super) const fn new(lane: usize, order: u64) -> Self {
        Self((lane as u64) << ORDER_BITS | order)
    }

    pub(super) const fn lane(self) -> usize {
        (self.0 >> ORDER_BITS) as usize
    }

    pub(super) const fn order(self) -> u64 {
        self.0 & ((1 << ORDER_BITS) - 1)
    }

    /// Sorts as a browser sees them: higher priority first, then by arrival.
    pub(in crate::broker) const fn rank(self) -> (usize, u64) {
        (PRIORITIES - self.lane(), self.order())
    }
}

/// How far somebody has looked through the waiting messages: in each lane, everything before an
/// order has been looked at, but for what came back there since.
#[derive(Debug, Clone, Default)]
pub(in crate::broker) struct Cursor {
    pub(super) seen: [u64; PRIORITIES],
    again: BTreeSet<Place>,
}

impl Cursor {
    /// Has the message at this place looked at again.
    pub(in crate::broker) fn look_again(&mut self, place: Place) {
        if place.order() >= self.seen[place.lane()] {
            return;
        }
        self.again.insert(place);
        if self.again.len() > AGAIN_MAX {
            for place in std::mem::take(&mut self.again) {
                let seen = &mut self.seen[place.lane()];
                *seen = place.order().min(*seen);
            }
        }
    }

    /// The first place of a lane that is to be looked at again.
    pub(super) fn next_again(&mut self, lane: usize) -> Option<u64> {
        let all = Place::new(lane, 0)..Place::new(lane + 1, 0);
        let first = *self.again.range(all).next()?;
        self.again.remove(&first);
        Some(first.order())
    }
}
