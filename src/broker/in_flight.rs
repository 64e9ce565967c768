//! Messages a consumer has been given and not settled, in the order of their delivery.
//!
//! Acknowledgements nearly always come in that order, so the front is looked at first. If many are
//! out and one is settled far from the front, an index is made and kept until they are few again.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
};

use crate::wire::MessageId;

use super::backlog::Entry;

/// Below this length, looking through is as fast as an index.
const INDEXED_FROM: usize = 64;

#[derive(Debug)]
struct Slot {
    id: MessageId,
    /// `None` once settled, until everything before it is settled too.
    entry: Option<Entry>,
    /// The open transaction in which it was acknowledged; 0: none.
    held_by: i64,
}

/// Unsettled deliveries of one consumer.
///
/// Shape: a run of delivery numbers `first ..`, each with its message or settled; the first one is
/// never settled.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    slots: VecDeque<Slot>,
    first: u64,
    unsettled: usize,
    index: Option<HashMap<MessageId, u64>>,
}

impl InFlight {
    /// Records a delivery and returns its number, from 1 on.
    pub(super) fn deliver(&mut self, entry: Entry) -> u64 {
        if self.slots.is_empty() && self.first == 0 {
            self.first = 1;
        }
        let number = self.first + self.slots.len() as u64;
        let id = entry.message.packet.header().id;
        if let Some(index) = &mut self.index {
            index.insert(id, number);
        }
        self.slots.push_back(Slot { id, entry: Some(entry), held_by: 0 });
        self.unsettled += 1;
        number
    }

    /// Takes the delivery of a message out, wherever it stands, held or not.
    pub(super) fn settle(&mut self, id: &MessageId) -> Option<Entry> {
        let number = self.find(id)?;
        self.take(number)
    }

    /// Takes the delivery of a message out if no transaction holds it.
    pub(super) fn settle_open(&mut self, id: &MessageId) -> Option<Entry> {
        self.take_back(id, 0)
    }

    /// Takes the delivery of a message out if no other transaction than this one, or 0, holds it.
    pub(super) fn take_back(&mut self, id: &MessageId, transaction: i64) -> Option<Entry> {
        let number = self.find(id)?;
        let slot = self.slot(number)?;
        (slot.held_by == 0 || slot.held_by == transaction).then(|| self.take(number))?
    }

    /// The delivery of a message that nobody has acknowledged yet.
    pub(super) fn open(&mut self, id: &MessageId) -> Option<&mut Entry> {
        let number = self.find(id)?;
        let slot = self.slot(number)?;
        if slot.held_by == 0 { slot.entry.as_mut() } else { None }
    }

    /// Has a transaction hold the delivery of a message, if there is one that is open.
    pub(super) fn hold(&mut self, id: &MessageId, transaction: i64) -> Option<&Entry> {
        let slot = self.find(id).and_then(|number| self.slot(number));
        let slot = slot.filter(|slot| slot.held_by == 0)?;
        slot.held_by = transaction;
        slot.entry.as_ref()
    }

    /// Has a transaction let go of the delivery of a message.
    pub(super) fn let_go(&mut self, id: &MessageId, transaction: i64) {
        let slot = self.find(id).and_then(|number| self.slot(number));
        if let Some(slot) = slot.filter(|slot| slot.held_by == transaction) {
            slot.held_by = 0;
        }
    }

    /// Takes the delivery of a message out if this transaction holds it.
    pub(super) fn take_held(&mut self, id: &MessageId, transaction: i64) -> Option<Entry> {
        let number = self.find(id)?;
        self.slot(number).filter(|slot| slot.held_by == transaction)?;
        self.take(number)
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(at)
    }

    /// Takes what no transaction holds, up to the delivery of `last`, or all if it is `None`.
    pub(super) fn take_unheld(&mut self, last: Option<&MessageId>) -> Vec<Entry> {
        let count = match last {
            None => self.slots.len(),
            // If it is settled and so is all before it, there is nothing up to it.
            Some(id) => self.slots.iter().rposition(|slot| slot.id == *id).map_or(0, |at| at + 1),
        };
        let taken = self.take_numbers(self.first..self.first + count as u64);
        taken.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Every unsettled delivery.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter_map(|slot| slot.entry.as_ref())
    }

    /// Takes the delivery with this number out.
    pub(super) fn take(&mut self, number: u64) -> Option<Entry> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(at)?;
        let entry = slot.entry.take()?;
        if let Some(index) = &mut self.index {
            index.remove(&slot.id);
        }
        self.unsettled -= 1;
        while self.slots.front().is_some_and(|slot| slot.entry.is_none()) {
            self.slots.pop_front();
            self.first += 1;
        }
        if self.slots.len() < INDEXED_FROM {
            self.index = None;
        }
        Some(entry)
    }

    /// Takes what no transaction holds after the delivery of `last`. If that one is settled and so
    /// is all before it, everything is after it.
    pub(super) fn take_after(&mut self, last: Option<&MessageId>) -> Vec<Entry> {
        let position = |id: &MessageId| self.slots.iter().rposition(|slot| slot.id == *id);
        let keep = last.and_then(position).map_or(0, |at| at + 1);
        let taken = self.take_numbers(self.first + keep as u64..u64::MAX);
        taken.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Takes everything no transaction holds, with the numbers.
    pub(super) fn take_all(&mut self) -> Vec<(u64, Entry)> {
        self.take_numbers(self.first..u64::MAX)
    }

    /// Takes what no transaction holds among these, with the numbers.
    fn take_numbers(&mut self, numbers: Range<u64>) -> Vec<(u64, Entry)> {
        let end = numbers.end.min(self.first + self.slots.len() as u64);
        let mut taken = Vec::new();
        for number in numbers.start..end {
            if self.slot(number).is_some_and(|slot| slot.held_by == 0) {
                taken.extend(self.take(number).map(|entry| (number, entry)));
            }
        }
        taken
    }

    /// Forgets everything up to this number and returns how it went.
    pub(super) fn take_through(&mut self, number: u64) -> Vec<Entry> {
        let mut taken = Vec::new();
        while self.first <= number && !self.slots.is_empty() {
            let first = self.first;
            match self.take(first) {
                Some(entry) => taken.push(entry),
                None => break,
            }
        }
        taken
    }

    /// How many are unsettled.
    #[must_use]
    pub(super) const fn len(&self) -> usize {
        self.unsettled
    }

    /// Whether none is.
    #[must_use]
    pub(super) const fn is_empty(&self) -> bool {
        self.unsettled == 0
    }

    fn find(&mut self, id: &MessageId) -> Option<u64> {
        if let Some(index) = &self.index {
            return index.get(id).copied();
        }
        let unsettled = |slot: &Slot| slot.entry.is_some() && slot.id == *id;
        if let Some(at) = self.slots.iter().take(INDEXED_FROM).position(unsettled) {
            return Some(self.first + at as u64);
        }
        if self.slots.len() <= INDEXED_FROM {
            return None;
        }
        let numbered = self.slots.iter().zip(self.first..);
        let index: HashMap<MessageId, u64> = numbered
            .filter(|(slot, _)| slot.entry.is_some())
            .map(|(slot, number)| (slot.id, number))
            .collect();
        let found = index.get(id).copied();
        self.index = Some(index);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{INDEXED_FROM, InFlight};
    use crate::{
        broker::{backlog::Entry, stored::Stored},
        sync::Arc,
        wire::{MessageId, PacketBuilder, PacketType},
    };

    fn id(number: i32) -> MessageId {
        MessageId { sequence: number, ..MessageId::default() }
    }

    fn filled(count: i32) -> InFlight {
        let mut flight = InFlight::default();
        for number in 1..=count {
            let packet = PacketBuilder::new(PacketType::TEXT_MESSAGE).id(id(number)).finish();
            let message = Arc::new(Stored::new(packet, 1));
            let entry = Entry { message, order: 0, deliveries: 0 };
            assert_eq!(flight.deliver(entry), u64::try_from(number).unwrap());
        }
        flight
    }

    fn sequences(entries: &[Entry]) -> Vec<i32> {
        entries.iter().map(|entry| entry.message.packet.header().id.sequence).collect()
    }

    #[test]
    fn every_order_of_settling_finds_each_message_once() {
        let count = i32::try_from(INDEXED_FROM).unwrap() * 3;
        let forward: Vec<i32> = (1..=count).collect();
        let backward: Vec<i32> = (1..=count).rev().collect();
        let mixed: Vec<i32> =
            (1..=count).map(|n| (n * 71) % (count + 1)).filter(|&n| n > 0).collect();
        for order in [forward, backward, mixed] {
            let mut flight = filled(count);
            for &number in &order {
                let found =
                    flight.settle(&id(number)).map(|entry| entry.message.packet.header().id);
                assert_eq!(found, Some(id(number)));
                assert!(flight.settle(&id(number)).is_none(), "{number} settled twice");
            }
            assert_eq!(flight.len(), usize::try_from(count).unwrap() - order.len());
        }
    }

    #[test]
    fn after_the_last_one_seen_means_in_order_of_delivery() {
        let mut flight = filled(5);
        flight.settle(&id(3));
        assert_eq!(sequences(&flight.take_after(Some(&id(3)))), [4, 5]);
        assert_eq!(flight.len(), 2, "1 and 2 stay with the session");
        let mut flight = filled(3);
        flight.settle(&id(1));
        assert_eq!(sequences(&flight.take_after(Some(&id(1)))), [2, 3]);
        let mut flight = filled(3);
        assert_eq!(sequences(&flight.take_after(None)), [1, 2, 3]);
        assert!(flight.is_empty());
        let mut flight = filled(4);
        assert!(flight.hold(&id(3), 7).is_some());
        assert_eq!(sequences(&flight.take_after(Some(&id(1)))), [2, 4]);
        assert_eq!(sequences(&flight.take_after(None)), [1]);
        assert!(flight.take_held(&id(3), 7).is_some() && flight.is_empty());
    }

    #[test]
    fn what_a_transaction_holds_stays_when_the_rest_goes_back() {
        let mut flight = filled(5);
        assert!(flight.hold(&id(2), 7).is_some());
        assert!(flight.hold(&id(2), 8).is_none(), "it is held already");
        assert!(flight.hold(&id(9), 7).is_none(), "it is not there");
        assert!(flight.open(&id(2)).is_none() && flight.open(&id(3)).is_some());
        assert_eq!(sequences(&flight.take_unheld(Some(&id(3)))), [1, 3]);
        assert_eq!(flight.entries().count(), 3);
        assert!(flight.take_held(&id(2), 8).is_none() && flight.take_held(&id(4), 8).is_none());
        flight.let_go(&id(2), 8);
        assert!(flight.open(&id(2)).is_none(), "another transaction's");
        flight.let_go(&id(2), 7);
        assert!(flight.hold(&id(4), 7).is_some());
        assert!(flight.take_held(&id(4), 7).is_some());
        assert_eq!(sequences(&flight.take_unheld(None)), [2, 5]);
        assert!(flight.is_empty());
    }

    #[test]
    fn everything_up_to_a_number_can_be_taken() {
        let mut flight = filled(5);
        flight.settle(&id(2));
        assert_eq!(sequences(&flight.take_through(3)), [1, 3]);
        let rest: Vec<u64> = flight.take_all().into_iter().map(|(number, _)| number).collect();
        assert_eq!(rest, [4, 5]);
        assert_eq!(flight.take_through(9).len(), 0);
    }
}
