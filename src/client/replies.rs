//! The ids of replies, and the requests that wait for them.
//!
//! Most replies go into a slot of a [`ReplyTable`], where a thread waits for them. Those to
//! asynchronous sends go elsewhere, and are told by a bit of their id.

use crate::{
    proto::client::REPLY_ID_FIRST,
    sync::{Arc, ReplyTable, Signal, Ticket},
    wire::Packet,
};

/// Tells the ids without a slot from all others: a bit that no count ever reaches.
const ELSEWHERE: u64 = 1 << 62;

/// The replies that one connection waits for.
#[derive(Debug)]
pub(super) struct Replies {
    table: ReplyTable<Packet>,
}

/// The reply id for the header of the request that has this ticket.
pub(super) const fn reply_id(ticket: Ticket) -> i64 {
    // Ids count up from 16 times the slots and never reach the sign.
    ticket.id().cast_signed()
}

impl Replies {
    pub(super) fn new() -> Self {
        Self { table: ReplyTable::new(REPLY_ID_FIRST.unsigned_abs()) }
    }

    /// Claims a slot, if one is free.
    pub(super) fn claim(&self) -> Option<Ticket> {
        self.table.claim()
    }

    /// A reply id without a slot, for a request whose reply goes elsewhere.
    pub(super) fn next_elsewhere(&self) -> i64 {
        (ELSEWHERE | self.table.next_number()).cast_signed()
    }

    /// Whether the reply with this id goes elsewhere.
    pub(super) const fn is_elsewhere(id: i64) -> bool {
        id > 0 && id.cast_unsigned() & ELSEWHERE != 0
    }

    /// Where to sleep until a slot is free.
    pub(super) const fn freed(&self) -> &Arc<Signal> {
        self.table.freed()
    }

    /// Where to sleep until the reply is there.
    pub(super) fn signal(&self, ticket: Ticket) -> Arc<Signal> {
        self.table.signal(ticket)
    }

    /// Takes the reply, if it has arrived.
    pub(super) fn take(&self, ticket: Ticket) -> Option<Packet> {
        self.table.take(ticket)
    }

    /// Gives the slot back.
    pub(super) fn release(&self, ticket: Ticket) {
        self.table.release(ticket);
    }

    /// Puts a reply into its slot and wakes the waiter. Called by the one who reads the socket.
    pub(super) fn deliver(&self, reply: Packet) {
        if let Ok(id) = u64::try_from(reply.header().consumer_id) {
            self.table.deliver(id, reply);
        }
    }

    /// Wakes everybody: the connection is lost.
    pub(super) fn wake_all(&self) {
        self.table.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::{Replies, reply_id};
    use crate::{
        sync::{ReplyTable, Ticket},
        wire::{Packet, PacketBuilder, PacketType},
    };

    fn reply(ticket: Ticket) -> Packet {
        PacketBuilder::new(PacketType::SEND_REPLY).consumer_id(reply_id(ticket)).finish()
    }

    #[test]
    fn a_reply_finds_its_request_and_no_other() {
        let replies = Replies::new();
        let (a, b) = (replies.claim().unwrap(), replies.claim().unwrap());
        replies.deliver(reply(b));
        assert!(replies.take(a).is_none());
        assert_eq!(replies.take(b).unwrap().header().consumer_id, reply_id(b));
        assert!(replies.take(b).is_none());
    }

    #[test]
    fn a_late_reply_is_dropped_and_does_not_block_the_slot() {
        let replies = Replies::new();
        let tickets: Vec<_> = std::iter::from_fn(|| replies.claim()).collect();
        assert_eq!(tickets.len(), ReplyTable::<Packet>::SLOTS);
        let old = tickets[5];
        replies.release(old);
        let new = replies.claim().unwrap();
        assert_ne!(new.id(), old.id());
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
        assert!(Replies::is_elsewhere(elsewhere) && !Replies::is_elsewhere(reply_id(ticket)));
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
