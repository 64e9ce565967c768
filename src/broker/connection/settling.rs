//! Acknowledgements and deliveries that come back, split by destination.

use bytes::Bytes;

use crate::{
    proto::broker_in::{AckKind, BLOCK_LEN, Obituary, ReplyTo},
    sync::Arc,
    wire::Status,
};

use super::{
    super::{
        burial,
        command::{AckReply, Command, Reply},
        coordinator::{Answer, Handle, Transact},
        destination::Destination,
        turn::Turn,
    },
    Connection, Refusal,
};

impl Connection {
    /// Splits the blocks into runs of one destination each.
    pub(super) fn acknowledge(
        &mut self,
        to: &ReplyTo,
        blocks: &Bytes,
        kind: AckKind,
        transaction: i64,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        self.transacts |= transaction != 0;
        let runs = self.runs(blocks);
        let parts = runs.len();
        let reply = Reply { output: Arc::clone(&self.output), to: *to };
        let ack_reply = if transaction != 0 {
            let known = runs.iter().filter_map(|(at, _)| at.map(|at| Handle(Arc::clone(at))));
            let ticket = turn.next_id();
            turn.transact(Transact::Expect {
                id: transaction,
                ticket,
                connection: self.id,
                parts: known.collect(),
                messages: blocks.len() / BLOCK_LEN,
                reply: to.wanted.then_some(Answer::Client(reply)),
            });
            AckReply::to_transaction(parts, transaction, ticket)
        } else if to.wanted {
            AckReply::to_client(parts, reply)
        } else {
            AckReply::None
        };
        for (destination, blocks) in runs {
            let reply = ack_reply.clone();
            match destination {
                Some(destination) => {
                    turn.send(
                        destination,
                        Command::Acknowledge { blocks, kind, reply, transaction },
                    );
                }
                // What can be settled is settled all the same: an acknowledgement must not be lost
                // to its neighbour.
                None => reply.done(Status::NOT_FOUND, turn),
            }
        }
        Ok(())
    }

    /// Gives one delivery up.
    pub(super) fn declare_dead(
        &self,
        to: &ReplyTo,
        block: Bytes,
        obituary: Obituary,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let consumer = first_consumer(&block);
        let known = self.consumers.get(&consumer);
        let (_, known) =
            known.ok_or_else(|| (Status::NOT_FOUND, format!("there is no consumer {consumer}")))?;
        let reply = if to.wanted {
            AckReply::to_client(1, Reply { output: Arc::clone(&self.output), to: *to })
        } else {
            AckReply::None
        };
        let destination = Arc::clone(&known.destination);
        turn.send(&destination, burial::declare_dead(block, obituary, reply));
        Ok(())
    }

    pub(super) fn redeliver(
        &self,
        blocks: &Bytes,
        seen: bool,
        transaction: i64,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        for (destination, blocks) in self.runs(blocks) {
            if let Some(destination) = destination {
                turn.send(destination, Command::Redeliver { blocks, seen, transaction });
            }
        }
        Ok(())
    }

    /// Neighbouring blocks whose consumers have the same destination; `None` for consumers that
    /// do not exist.
    pub(super) fn runs(&self, blocks: &Bytes) -> Vec<(Option<&Arc<Destination>>, Bytes)> {
        let mut runs: Vec<(Option<&Arc<Destination>>, Bytes)> = Vec::with_capacity(1);
        let mut start = 0;
        let of = |at: usize| {
            let consumer = first_consumer(&blocks[at..]);
            self.consumers.get(&consumer).map(|(_, consumer)| &consumer.destination)
        };
        let same = |a: Option<&Arc<Destination>>, b: Option<&Arc<Destination>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        // Neighbours nearly always belong to one consumer, which need not be looked up again.
        let (mut current, mut consumer) = (of(0), first_consumer(blocks));
        for at in (BLOCK_LEN..blocks.len()).step_by(BLOCK_LEN) {
            let other = first_consumer(&blocks[at..]);
            if other == consumer {
                continue;
            }
            consumer = other;
            let next = of(at);
            if !same(current, next) {
                runs.push((current, blocks.slice(start..at)));
                (start, current) = (at, next);
            }
        }
        runs.push((current, blocks.slice(start..)));
        runs
    }
}

fn first_consumer(blocks: &[u8]) -> i64 {
    blocks.first_chunk().map_or(0, |id| i64::from_be_bytes(*id))
}
