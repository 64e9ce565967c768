//! Requests that wait for their replies.
//!
//! A request claims a slot; the slot's number is the low bits of the reply id that it sends. Who
//! reads the reply off the socket puts it into the slot and wakes the slot's waiter. A waiter that
//! gives up frees the slot under a new id, so a late reply finds nobody and is dropped.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries |
//! | --- | --- | --- | --- |
//! | R1 | `claim` sets `wanted` | `deliver` reads it | who waits; the request is sent after it |
//! | Q1 | push of the slot's queue | pop | the reply |

use crate::{
    proto::client::REPLY_ID_FIRST,
    sync::{Arc, AtomicU64, Ordering, Queue, Signal},
    wire::Packet,
};

/// Requests that may be under way at one time on one connection; more wait for a free slot.
pub(super) const SLOTS: usize = 64;

/// Tells the ids without a slot from all others: a bit that no count ever reaches.
const ELSEWHERE: u64 = 1 << 62;

/// The slots of one connection.
#[derive(Debug)]
pub(super) struct Replies {
    slots: Box<[Slot]>,
    free: Queue<usize>,
    /// Wakes those who wait for a free slot.
    freed: Arc<Signal>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    /// The reply id that is waited for; 0 for none.
    wanted: AtomicU64,
    /// The reply, or a late one of an earlier request.
    reply: Queue<Packet>,
    signal: Arc<Signal>,
}

/// A claimed slot. Give it back with [`Replies::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a slot that is not released is lost"]
pub(super) struct Ticket {
    slot: usize,
    id: u64,
}

impl Ticket {
    /// The reply id for the request's header.
    pub(super) const fn reply_id(self) -> i64 {
        // Ids count up from 16 and never reach the sign.
        self.id.cast_signed()
    }
}

impl Replies {
    pub(super) fn new() -> Self {
        let slot = || Slot {
            wanted: AtomicU64::new(0),
            reply: Queue::new(1),
            signal: Arc::new(Signal::new()),
        };
        let free = Queue::new(SLOTS);
        for at in 0..SLOTS {
            let pushed = free.push(at);
            debug_assert!(pushed.is_ok(), "as many places as slots");
        }
        let first = REPLY_ID_FIRST.unsigned_abs();
        Self {
            slots: std::iter::repeat_with(slot).take(SLOTS).collect(),
            free,
            freed: Arc::new(Signal::new()),
            next: AtomicU64::new(first),
        }
    }

    /// Claims a slot, if one is free.
    pub(super) fn claim(&self) -> Option<Ticket> {
        let slot = self.free.pop()?;
        // Relaxed: only the number's uniqueness matters.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = number * SLOTS as u64 + slot as u64;
        if let Some(slot) = self.slots.get(slot) {
            // Release (R1): before the request is sent, so before its reply can arrive.
            slot.wanted.store(id, Ordering::Release);
        }
        Some(Ticket { slot, id })
    }

    /// A reply id without a slot, for a request whose reply goes elsewhere.
    pub(super) fn next_elsewhere(&self) -> i64 {
        // Relaxed: only the number's uniqueness matters.
        (ELSEWHERE | self.next.fetch_add(1, Ordering::Relaxed)).cast_signed()
    }

    /// Whether the reply with this id goes elsewhere.
    pub(super) const fn is_elsewhere(id: i64) -> bool {
        id > 0 && id.cast_unsigned() & ELSEWHERE != 0
    }

    /// Where to sleep until a slot is free.
    pub(super) const fn freed(&self) -> &Arc<Signal> {
        &self.freed
    }

    /// Where to sleep until the reply is there.
    pub(super) fn signal(&self, ticket: Ticket) -> Arc<Signal> {
        self.slots.get(ticket.slot).map_or_else(Arc::default, |slot| Arc::clone(&slot.signal))
    }

    /// Takes the reply, if it has arrived.
    pub(super) fn take(&self, ticket: Ticket) -> Option<Packet> {
        let slot = self.slots.get(ticket.slot)?;
        let reply = slot.reply.pop()?;
        // A late reply of an earlier request is dropped here.
        (reply.header().consumer_id == ticket.reply_id()).then_some(reply)
    }

    /// Gives the slot back.
    pub(super) fn release(&self, ticket: Ticket) {
        if let Some(slot) = self.slots.get(ticket.slot) {
            // Relaxed: a reply that still finds the old id is told apart by its own.
            slot.wanted.store(0, Ordering::Relaxed);
            drop(slot.reply.pop());
        }
        let pushed = self.free.push(ticket.slot);
        debug_assert!(pushed.is_ok(), "as many places as slots");
        self.freed.wake_all();
    }

    /// Puts a reply into its slot and wakes the waiter. Called by the one who reads the socket.
    pub(super) fn deliver(&self, reply: Packet) {
        let Ok(id) = u64::try_from(reply.header().consumer_id) else { return };
        let Ok(at) = usize::try_from(id % SLOTS as u64) else { return };
        let Some(slot) = self.slots.get(at) else { return };
        // Acquire (R1): pairs with `claim`.
        if slot.wanted.load(Ordering::Acquire) != id {
            return;
        }
        // The place may hold a late reply of an earlier request. Only one thread pushes, so it is
        // free after at most one pop.
        if let Err(reply) = slot.reply.push(reply) {
            drop(slot.reply.pop());
            let pushed = slot.reply.push(reply);
            debug_assert!(pushed.is_ok(), "one thread delivers");
        }
        slot.signal.wake_all();
    }

    /// Wakes everybody: the connection is lost.
    pub(super) fn wake_all(&self) {
        for slot in &self.slots {
            slot.signal.wake_all();
        }
        self.freed.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::{Replies, SLOTS, Ticket};
    use crate::wire::{Packet, PacketBuilder, PacketType};

    fn reply(ticket: Ticket) -> Packet {
        PacketBuilder::new(PacketType::SEND_REPLY).consumer_id(ticket.reply_id()).finish()
    }

    #[test]
    fn a_reply_finds_its_request_and_no_other() {
        let replies = Replies::new();
        let (a, b) = (replies.claim().unwrap(), replies.claim().unwrap());
        replies.deliver(reply(b));
        assert!(replies.take(a).is_none());
        assert_eq!(replies.take(b).unwrap().header().consumer_id, b.reply_id());
        assert!(replies.take(b).is_none());
    }

    #[test]
    fn a_late_reply_is_dropped_and_does_not_block_the_slot() {
        let replies = Replies::new();
        let tickets: Vec<_> = std::iter::from_fn(|| replies.claim()).collect();
        assert_eq!(tickets.len(), SLOTS);
        let old = tickets[5];
        replies.release(old);
        let new = replies.claim().unwrap();
        assert_ne!(new.reply_id(), old.reply_id());
        replies.deliver(reply(old));
        assert!(replies.take(new).is_none());
        replies.deliver(reply(new));
        assert!(replies.take(new).is_some());
    }

    #[test]
    fn ids_without_a_slot_are_told_from_those_with_one() {
        let replies = Replies::new();
        let ticket = replies.claim().unwrap();
        let elsewhere = replies.next_elsewhere();
        assert!(Replies::is_elsewhere(elsewhere) && !Replies::is_elsewhere(ticket.reply_id()));
        assert_ne!(elsewhere, replies.next_elsewhere());
        assert!(![0, 1, -1, i64::MIN].into_iter().any(Replies::is_elsewhere));
    }

    #[test]
    fn replies_nobody_asked_for_are_dropped() {
        let replies = Replies::new();
        for id in [0, 1, -1, i64::MIN, i64::MAX] {
            replies.deliver(PacketBuilder::new(PacketType::SEND_REPLY).consumer_id(id).finish());
        }
        assert!(replies.claim().is_some());
    }
}
