//! Messages that wait for a consumer, in their order.
//!
//! Higher priority first, then by arrival. A message that comes back takes the place it had.

use std::collections::VecDeque;

use crate::sync::Arc;

use super::stored::Stored;

/// Priorities on the wire are 0 to 9; larger numbers count as 9.
const PRIORITIES: usize = 10;

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

/// Waiting messages.
///
/// Shape: a deque for each priority, each ascending by order, and a bit for each that is not empty.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    lanes: [VecDeque<Entry>; PRIORITIES],
    filled: u16,
    len: usize,
}

impl Backlog {
    /// Adds a message that has just arrived.
    pub(super) fn push(&mut self, entry: Entry) {
        let at = lane(&entry);
        self.filled |= 1 << at;
        self.len += 1;
        self.lanes[at].push_back(entry);
    }

    /// Puts a message back where it was.
    pub(super) fn restore(&mut self, entry: Entry) {
        let at = lane(&entry);
        self.filled |= 1 << at;
        self.len += 1;
        let lane = &mut self.lanes[at];
        // What comes back is older than almost everything that waits.
        if lane.front().is_none_or(|first| first.order > entry.order) {
            lane.push_front(entry);
        } else {
            let place = lane.partition_point(|other| other.order < entry.order);
            lane.insert(place, entry);
        }
    }

    /// Takes the next message.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let at = self.highest()?;
        let entry = self.lanes[at].pop_front();
        if self.lanes[at].is_empty() {
            self.filled &= !(1 << at);
        }
        self.len -= usize::from(entry.is_some());
        entry
    }

    /// Whether none waits.
    #[must_use]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn highest(&self) -> Option<usize> {
        self.filled.checked_ilog2().map(|bit| bit as usize)
    }
}

fn lane(entry: &Entry) -> usize {
    usize::from(entry.message.packet.header().priority).min(PRIORITIES - 1)
}

#[cfg(test)]
mod tests {
    use super::{Backlog, Entry};
    use crate::{
        broker::stored::Stored,
        sync::Arc,
        wire::{PacketBuilder, PacketType},
    };

    fn entry(order: u64, priority: u8) -> Entry {
        let packet = PacketBuilder::new(PacketType::TEXT_MESSAGE).priority(priority).finish();
        Entry { message: Arc::new(Stored { packet, connection_id: 1 }), order, deliveries: 0 }
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
        assert_eq!(orders(&mut backlog), [2, 4, 5, 1, 0, 3]);
        assert!(backlog.is_empty());
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
}
