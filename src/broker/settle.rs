//! Deliveries that are settled, held by transactions, or come back.

use crate::{
    proto::broker_in::{AckKind, BLOCK_LEN},
    sync::Arc,
    wire::{MessageId, Status},
};

use super::{
    backlog::{Entry, Item},
    command::AckReply,
    dead::DeadReason,
    destination::Destination,
    dispatch::State,
    persist::{Op, Ops, StoredKey, Then, Unit},
    transaction::Outcome,
    turn::Turn,
};

/// An acknowledgement in a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    /// The transaction.
    pub transaction: i64,
    /// Which acknowledgement; as in [`TxCommand::Expect`](super::transaction::TxCommand::Expect).
    pub ticket: i64,
}

/// A delivery that an open transaction holds.
#[derive(Debug)]
pub(super) struct Held {
    consumer: i64,
    id: MessageId,
    /// The acknowledgement.
    ticket: i64,
}

/// The consumer and message of each block.
fn each_block(blocks: &[u8]) -> impl Iterator<Item = (i64, MessageId)> {
    blocks.chunks_exact(BLOCK_LEN).filter_map(|block| {
        let (consumer, id) = block.split_first_chunk()?;
        Some((i64::from_be_bytes(*consumer), MessageId::decode(id.first_chunk()?)))
    })
}

impl State {
    /// Settles what is there, or has a transaction hold what is consumed; the worst outcome is the
    /// answer. What is not consumed belongs to no transaction.
    pub(super) fn acknowledge(
        &mut self,
        at: &Arc<Destination>,
        blocks: &[u8],
        kind: AckKind,
        (claim, reply): (Option<Claim>, AckReply),
        turn: &mut Turn<'_>,
    ) {
        if kind == AckKind::Consumed && claim.is_none() {
            if self.stores() {
                return self.consume_stored(at, blocks, reply, turn);
            }
            let status = self.consume(blocks, turn);
            return reply.done(status, turn);
        }
        let mut status = Status::OK;
        let mut stored = Vec::new();
        for (consumer, id) in each_block(blocks) {
            let done = match claim {
                Some(claim) if kind == AckKind::Consumed => {
                    self.hold_one(consumer, id, claim, &mut stored)
                }
                _ => self.acknowledge_one(consumer, &id, kind, turn),
            };
            if !done {
                status = Status::CONFLICT;
            }
        }
        reply.done_with(status, stored, turn);
    }

    /// Has what is stored held until its removal is, and settles the rest.
    fn consume_stored(
        &mut self,
        at: &Arc<Destination>,
        blocks: &[u8],
        reply: AckReply,
        turn: &mut Turn<'_>,
    ) {
        let refusal = turn.shared.persist.as_ref().and_then(|persist| persist.check().err());
        // No transaction has a number below zero.
        let ticket = -turn.next_id();
        let mut status = Status::OK;
        let (mut held, mut ops) = (Vec::new(), Vec::new());
        for (consumer, id) in each_block(blocks) {
            let flight = self.subscribers.get_mut(&consumer).map(|one| &mut one.in_flight);
            let Some(entry) = flight.and_then(|flight| flight.hold(&id, ticket).cloned()) else {
                // Everything of a consumer that is not here is settled or went back.
                status = Status::CONFLICT;
                continue;
            };
            match (self.key_of(&entry), &refusal) {
                (Some(key), None) => {
                    ops.push(Op::Remove(key));
                    held.push(Held { consumer, id, ticket });
                }
                (Some(_), Some((why, _))) => {
                    status = *why;
                    self.let_go_of(consumer, &id, ticket);
                }
                (None, _) => {
                    drop(entry);
                    let one = Held { consumer, id, ticket };
                    self.settle_held(&one, ticket, Outcome::Commit, turn);
                }
            }
        }
        if held.is_empty() {
            return reply.done(status, turn);
        }
        self.held.insert(ticket, held);
        let then = Then::Acknowledged { at: Arc::clone(at), ticket, reply, status };
        turn.persist(Unit { ops: Ops::Many(ops), then });
    }

    fn let_go_of(&mut self, consumer: i64, id: &MessageId, ticket: i64) {
        if let Some(subscriber) = self.subscribers.get_mut(&consumer) {
            subscriber.in_flight.let_go(id, ticket);
        }
    }

    /// Settles what is there, for good: what nearly all acknowledgements do. Neighbouring blocks
    /// are nearly always of one consumer, which is looked up once for all of them.
    fn consume(&mut self, blocks: &[u8], turn: &mut Turn<'_>) -> Status {
        let mut status = Status::OK;
        let mut each = each_block(blocks).peekable();
        while let Some(&(consumer, _)) = each.peek() {
            let mut settled = std::mem::take(&mut self.settled);
            let subscriber = self.subscribers.get_mut(&consumer);
            let mut flight = subscriber.map(|one| &mut one.in_flight);
            while let Some((_, id)) = each.next_if(|(next, _)| *next == consumer) {
                match flight.as_mut().and_then(|flight| flight.settle_open(&id)) {
                    Some(entry) => settled.push(entry.message),
                    // Everything of a consumer that is not here is settled or went back.
                    None => status = Status::CONFLICT,
                }
            }
            if let Some(subscriber) = self.subscribers.get(&consumer) {
                subscriber.consumer.count_unsettled(subscriber.in_flight.len());
            }
            for message in settled.drain(..) {
                self.settled(message.known(), turn);
                turn.spare().keep_message(message);
            }
            self.settled = settled;
            self.retire(consumer);
        }
        status
    }

    fn acknowledge_one(
        &mut self,
        consumer: i64,
        id: &MessageId,
        kind: AckKind,
        turn: &mut Turn<'_>,
    ) -> bool {
        // Everything of a consumer that is not here is settled or went back.
        let Some(subscriber) = self.subscribers.get_mut(&consumer) else { return false };
        let Some(open) = subscriber.in_flight.open(id) else { return false };
        match kind {
            AckKind::Validate => return true,
            AckKind::CountOnly(count) => {
                // The next delivery counts one more than the client has seen.
                let seen = count.checked_sub(1).and_then(|seen| u32::try_from(seen).ok());
                open.deliveries = seen.unwrap_or(open.deliveries);
                return true;
            }
            AckKind::Consumed | AckKind::Undeliverable => {}
        }
        let key = subscriber.subscription;
        let Some(mut entry) = subscriber.in_flight.settle(id) else { return false };
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        if self.part != super::dispatch::Part::Topic {
            entry.deliveries += 1;
            self.restore_all(key, vec![entry], turn);
        } else {
            // Whom else should a plain subscriber's message go to?
            self.subtract(&Item::Here(entry), turn);
        }
        self.retire(consumer);
        true
    }

    /// Takes a delivery that a client declares dead out of flight; the caller buries it.
    pub(super) fn take_dead(
        &mut self,
        consumer: i64,
        id: &MessageId,
        turn: &mut Turn<'_>,
    ) -> Option<Entry> {
        let subscriber = self.subscribers.get_mut(&consumer)?;
        subscriber.in_flight.open(id)?;
        let entry = subscriber.in_flight.settle(id)?;
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        // What is stored of it goes when it is buried.
        self.settled(entry.message.known(), turn);
        self.retire(consumer);
        Some(entry)
    }

    fn hold_one(
        &mut self,
        consumer: i64,
        id: MessageId,
        claim: Claim,
        stored: &mut Vec<StoredKey>,
    ) -> bool {
        let Some(subscriber) = self.subscribers.get_mut(&consumer) else { return false };
        let Some(entry) = subscriber.in_flight.hold(&id, claim.transaction).cloned() else {
            return false;
        };
        stored.extend(self.key_of(&entry));
        let held = self.held.entry(claim.transaction).or_default();
        held.push(Held { consumer, id, ticket: claim.ticket });
        true
    }

    /// An acknowledgement was refused by its transaction: what it did here is undone.
    pub(super) fn disclaim(&mut self, claim: Claim, turn: &mut Turn<'_>) {
        let Some(held) = self.held.get_mut(&claim.transaction) else { return };
        let its: Vec<Held> = held.extract_if(.., |one| one.ticket == claim.ticket).collect();
        if held.is_empty() {
            self.held.remove(&claim.transaction);
        }
        for one in its {
            self.settle_held(&one, claim.transaction, Outcome::undone(false), turn);
        }
    }

    /// A transaction has ended: what it held is settled, or goes back.
    pub(super) fn settle(&mut self, transaction: i64, outcome: Outcome, turn: &mut Turn<'_>) {
        for one in self.held.remove(&transaction).unwrap_or_default() {
            self.settle_held(&one, transaction, outcome, turn);
        }
        for (key, entry) in self.prepared.remove(&transaction).unwrap_or_default() {
            self.end_one(key, entry, outcome, turn);
        }
    }

    fn settle_held(&mut self, one: &Held, transaction: i64, outcome: Outcome, turn: &mut Turn<'_>) {
        let Some(subscriber) = self.subscribers.get_mut(&one.consumer) else { return };
        let key = subscriber.subscription;
        let goes_back = match outcome {
            Outcome::Commit => true,
            Outcome::Rollback { redeliver, .. } => redeliver || subscriber.has_left,
        };
        if !goes_back {
            // The client still has it, and says itself what becomes of it.
            return subscriber.in_flight.let_go(&one.id, transaction);
        }
        let Some(entry) = subscriber.in_flight.take_held(&one.id, transaction) else { return };
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        self.end_one(key, entry, outcome, turn);
        self.retire(one.consumer);
    }

    fn end_one(&mut self, key: i64, mut entry: Entry, outcome: Outcome, turn: &mut Turn<'_>) {
        match outcome {
            // What was stored of it was removed with the commit.
            Outcome::Commit => self.settled(entry.message.known(), turn),
            Outcome::Rollback { seen, max_rollbacks, dead_on_max, .. } => {
                entry.deliveries += u32::from(seen);
                if dead_on_max && max_rollbacks.is_some_and(|max| entry.deliveries >= max) {
                    self.die(entry, DeadReason::Undeliverable, turn);
                } else {
                    self.restore_all(key, vec![entry], turn);
                }
            }
        }
    }

    /// A transaction is prepared: what it holds no longer belongs to its consumers.
    pub(super) fn hold(&mut self, transaction: i64) {
        let mut kept = Vec::new();
        for Held { consumer, id, .. } in self.held.remove(&transaction).unwrap_or_default() {
            let Some(subscriber) = self.subscribers.get_mut(&consumer) else { continue };
            let key = subscriber.subscription;
            if let Some(entry) = subscriber.in_flight.take_held(&id, transaction) {
                subscriber.consumer.count_unsettled(subscriber.in_flight.len());
                kept.push((key, entry));
            }
            self.retire(consumer);
        }
        if !kept.is_empty() {
            self.prepared.entry(transaction).or_default().extend(kept);
        }
    }

    /// Deliveries come back, also those that this transaction holds, which is about to be rolled
    /// back.
    pub(super) fn redeliver(
        &mut self,
        blocks: &[u8],
        seen: bool,
        transaction: i64,
        turn: &mut Turn<'_>,
    ) {
        for (consumer, id) in each_block(blocks) {
            let Some(subscriber) = self.subscribers.get_mut(&consumer) else { continue };
            let key = subscriber.subscription;
            let entry = subscriber.in_flight.take_back(&id, transaction);
            subscriber.consumer.count_unsettled(subscriber.in_flight.len());
            let entry = entry.or_else(|| self.take_prepared(transaction, key, &id));
            let Some(mut entry) = entry else { continue };
            entry.deliveries += u32::from(seen);
            self.restore_all(key, vec![entry], turn);
            self.retire(consumer);
        }
    }

    /// Takes a message back from a prepared transaction.
    fn take_prepared(&mut self, transaction: i64, key: i64, id: &MessageId) -> Option<Entry> {
        let kept = self.prepared.get_mut(&transaction)?;
        let is_it =
            |(at, entry): &(i64, Entry)| *at == key && entry.message.packet.header().id == *id;
        let at = kept.iter().position(is_it)?;
        Some(kept.swap_remove(at).1)
    }
}
