//! What becomes of dead messages.
//!
//! # Source
//! The wire protocol: dead message queue.

use bytes::Bytes;

use crate::{
    proto::broker_in::{Obituary, first_block},
    sync::{Arc, Ordering},
    wire::Status,
};

use super::{
    command::{AckReply, Command, Rare},
    dead::{DeadReason, Death, dead_copy, is_logged, is_wanted},
    destination::{Destination, Origin},
    dispatch::{Part, State},
    persist::StoredKey,
    shared::Shared,
    stored::Stored,
    turn::Turn,
};

impl Destination {
    /// Puts a copy of a message that died here into the dead message queue, if it is wanted there.
    pub(super) fn bury(
        &self,
        state: &State,
        (message, key): (&Stored, Option<StoredKey>),
        deliveries: u32,
        reason: DeadReason,
        turn: &mut Turn<'_>,
    ) {
        let comment = match reason {
            DeadReason::Expired => format!("it expired while it waited in {}", self.name),
            DeadReason::Oldest => format!("{} was full, and it was the oldest there", self.name),
            DeadReason::LowPriority => {
                format!("{} was full, and nothing there had a lower priority", self.name)
            }
            DeadReason::Undeliverable => format!("it was rolled back too often in {}", self.name),
            DeadReason::Error => format!("it could not be written to a consumer of {}", self.name),
        };
        let death = Death {
            reason,
            comment: Some(&comment),
            exception: None,
            client_deliveries: None,
            deliveries,
            broker: &turn.shared.config.name,
            wall_ms: turn.wall_ms,
            truncate: turn.shared.live.read(|live| live.dmq_truncate_body),
        };
        self.bury_as(state, (message, key), &death, turn);
    }

    /// One more has expired here.
    pub(super) fn count_expired(&self, shared: &Shared) {
        shared.stats.expired();
        // Relaxed: a statistic.
        self.counts().expired.fetch_add(1, Ordering::Relaxed);
    }

    /// What is stored of it under `key` goes in the same commit.
    fn bury_as(
        &self,
        state: &State,
        (message, key): (&Stored, Option<StoredKey>),
        death: &Death<'_>,
        turn: &mut Turn<'_>,
    ) {
        if death.reason == DeadReason::Expired {
            self.count_expired(turn.shared);
        }
        // A topic's message may die in several subscriptions, and is buried once. One that dies
        // among the dead is gone.
        let share = message.share.as_ref().filter(|_| state.part != Part::Queue);
        let is_first = share.is_none_or(|share| share.bury());
        if !is_first || self.origin == Origin::Dead {
            return turn.remove_stored(key);
        }
        let packet = &message.packet;
        if is_logged(packet, turn.shared.live.read(|live| live.log_dead_messages)) {
            let (id, reason) = (packet.header().id, death.reason.name());
            tracing::info!(destination = %self.name, message = %id, reason, "a message is dead");
        }
        if !is_wanted(packet, state.attributes.use_dmq) {
            return turn.remove_stored(key);
        }
        let mut dead = Stored::new(dead_copy(packet, death), 0);
        // Its time was up once; that is enough.
        dead.expires = 0;
        let shared = turn.shared;
        turn.send(
            &shared.dmq,
            Command::Produce {
                message: Arc::new(dead),
                reply: None,
                used_up: None,
                reserved: false,
                instead_of: key,
            },
        );
    }
}

/// Buries what a client declares dead: one delivery to a consumer of this destination.
pub(super) fn declare_dead(block: Bytes, obituary: Obituary, reply: AckReply) -> Command {
    Rare::command(move |at, state, turn| {
        let refusal = turn.shared.persist.as_ref().and_then(|persist| persist.check().err());
        if let Some((status, _)) = refusal.filter(|_| state.stores()) {
            // It could not leave its place, and stays with its consumer.
            return reply.done(status, turn);
        }
        let found = first_block(&block);
        let entry = found.and_then(|(consumer, id)| state.take_dead(consumer, &id, turn));
        let Some(entry) = entry else { return reply.done(Status::CONFLICT, turn) };
        let reason = if obituary.expired { DeadReason::Expired } else { DeadReason::Undeliverable };
        let death = Death {
            reason,
            comment: obituary.comment.as_deref(),
            exception: obituary.exception.as_deref(),
            client_deliveries: obituary.deliveries,
            deliveries: entry.deliveries,
            broker: &turn.shared.config.name,
            wall_ms: turn.wall_ms,
            truncate: turn.shared.live.read(|live| live.dmq_truncate_body),
        };
        let key = state.key_of(&entry);
        at.bury_as(state, (&entry.message, key), &death, turn);
        // Behind what the dead message queue has stored in its place.
        let buried = Rare::command(move |_, _, turn| {
            turn.after_stored(move |stored, turn| {
                let status = stored.map_or(Status::UNAVAILABLE, |()| Status::OK);
                reply.done(status, turn);
            });
        });
        let shared = turn.shared;
        turn.send(&shared.dmq, buried);
    })
}
