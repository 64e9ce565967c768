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
        settle::Claim,
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
        let reply = Reply { output: Arc::clone(&self.output), to: *to };
        let claim = (transaction != 0).then(|| Claim { transaction, ticket: turn.next_id() });
        let ack_reply = if let Some(claim) = claim {
            let known = runs.clone().filter_map(|(at, _)| at.map(|at| Handle(Arc::clone(at))));
            turn.transact(Transact::Expect {
                id: transaction,
                ticket: claim.ticket,
                connection: self.id,
                parts: known.collect(),
                messages: blocks.len() / BLOCK_LEN,
                reply: to.wanted.then_some(Answer::Client(reply)),
            });
            AckReply::to_transaction(runs.clone().count(), claim)
        } else if to.wanted {
            AckReply::to_client(runs.clone().count(), reply)
        } else {
            AckReply::None
        };
        for (destination, blocks) in runs {
            let reply = ack_reply.clone();
            match destination {
                Some(destination) => {
                    turn.send(destination, Command::Acknowledge { blocks, kind, reply, claim });
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
    pub(super) fn runs<'a>(
        &'a self,
        blocks: &'a Bytes,
    ) -> impl Iterator<Item = (Option<&'a Arc<Destination>>, Bytes)> + Clone {
        let of = |consumer: i64| {
            self.consumers.get(&consumer).map(|(_, consumer)| &consumer.destination)
        };
        let same = |a: Option<&Arc<Destination>>, b: Option<&Arc<Destination>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        let mut start = 0;
        std::iter::from_fn(move || {
            let mut consumer = first_consumer(blocks.get(start..).filter(|rest| !rest.is_empty())?);
            let destination = of(consumer);
            let mut end = start + BLOCK_LEN;
            while let Some(rest) = blocks.get(end..).filter(|rest| !rest.is_empty()) {
                let next = first_consumer(rest);
                // Neighbours nearly always belong to one consumer, which need not be looked up again.
                if next != consumer && !same(of(next), destination) {
                    break;
                }
                consumer = next;
                end += BLOCK_LEN;
            }
            let run = blocks.slice(start..end.min(blocks.len()));
            start = end;
            Some((destination, run))
        })
    }
}

fn first_consumer(blocks: &[u8]) -> i64 {
    blocks.first_chunk().map_or(0, |id| i64::from_be_bytes(*id))
}
