//! Acknowledgements and deliveries that come back, split by destination.

use bytes::Bytes;

use crate::{
    proto::broker_in::{AckKind, BLOCK_LEN, ReplyTo},
    sync::Arc,
    wire::Status,
};

use super::{
    super::{
        command::{AckReply, Command, Joint, Reply},
        destination::Destination,
        turn::Turn,
    },
    Connection, Refusal,
};

impl Connection {
    /// Splits the blocks into runs of one destination each.
    pub(super) fn acknowledge(
        &self,
        to: &ReplyTo,
        blocks: &Bytes,
        kind: AckKind,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let runs = self.runs(blocks);
        if let Some(unknown) = runs
            .iter()
            .find_map(|(destination, run)| destination.is_none().then(|| first_consumer(run)))
        {
            // Settle what can be settled all the same: an ack must not be lost to its neighbour.
            for (destination, run) in runs {
                if let Some(destination) = destination {
                    let blocks = run;
                    turn.send(
                        destination,
                        Command::Acknowledge { blocks, kind, reply: AckReply::None },
                    );
                }
            }
            return Err((Status::NOT_FOUND, format!("there is no consumer {unknown}")));
        }
        let reply = Reply { output: Arc::clone(&self.output), to: *to };
        let reply = match (to.wanted, runs.len()) {
            (false, _) => AckReply::None,
            (true, 1) => AckReply::Direct(reply),
            (true, parts) => AckReply::Joint(Arc::new(Joint::new(parts, reply))),
        };
        for (destination, blocks) in runs {
            if let Some(destination) = destination {
                let reply = reply.clone();
                turn.send(destination, Command::Acknowledge { blocks, kind, reply });
            }
        }
        Ok(())
    }

    pub(super) fn redeliver(
        &self,
        blocks: &Bytes,
        seen: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        for (destination, blocks) in self.runs(blocks) {
            if let Some(destination) = destination {
                turn.send(destination, Command::Redeliver { blocks, seen });
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
        let mut current = of(0);
        for at in (BLOCK_LEN..blocks.len()).step_by(BLOCK_LEN) {
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
