//! Producers of one destination, and the credit they get.
//!
//! Where the limit behaviour is `FLOW_CONTROL`, a producer that has used up its batch gets the next
//! one when there is room for it and for the batches that are out, first come first served; all
//! are told to wait when the destination is full. Elsewhere the next batch comes at once.
//!
//! # Source
//! The wire protocol: producer to broker flow control.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    sync::Arc,
    wire::{PacketBuilder, PacketType},
};

use super::{
    attributes::{Attributes, LimitBehavior},
    output::Output,
    turn::Turn,
};

#[derive(Debug)]
struct Producer {
    output: Arc<Output>,
    /// It has credit left, as far as the broker knows.
    active: bool,
}

/// What the credit depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level<'a> {
    pub attributes: &'a Attributes,
    pub messages: u64,
    pub bytes: u64,
    /// An administrator has paused production.
    pub paused: bool,
    /// `Q:name` or `T:name`.
    pub uid: &'a str,
}

impl Level<'_> {
    const fn is_metered(&self) -> bool {
        matches!(self.attributes.limit_behavior, LimitBehavior::FlowControl)
    }

    const fn is_full(&self) -> bool {
        self.messages >= self.attributes.messages_max
            || self.bytes >= self.attributes.total_bytes_max
    }

    /// Whether there is room for one more batch beside `active` ones.
    fn has_room(&self, active: u64) -> bool {
        if self.paused {
            return false;
        }
        if !self.is_metered() {
            return true;
        }
        let (messages, bytes) = self.attributes.producer_credit();
        let beside = |batch: i64| active.saturating_mul(u64::try_from(batch).unwrap_or(0));
        let free =
            |max: u64, used: u64| if max == u64::MAX { max } else { max.saturating_sub(used) };
        free(self.attributes.messages_max, self.messages) > beside(i64::from(messages))
            && free(self.attributes.total_bytes_max, self.bytes) > beside(bytes)
    }
}

/// The producers of a destination.
///
/// Shape: by id, and a queue of those that wait for credit, each at most once.
#[derive(Debug, Default)]
pub(super) struct Producers {
    all: BTreeMap<i64, Producer>,
    waiting: VecDeque<i64>,
    active: u64,
}

impl Producers {
    /// A producer comes; its first credit, in messages and bytes. 0 makes it wait.
    pub(super) fn join(&mut self, id: i64, output: Arc<Output>, level: &Level<'_>) -> (i32, i64) {
        let active = !(level.paused || level.is_metered() && level.is_full());
        self.active += u64::from(active);
        self.all.insert(id, Producer { output, active });
        if active {
            return level.attributes.producer_credit();
        }
        self.waiting.push_back(id);
        (0, 0)
    }

    /// A producer leaves.
    pub(super) fn leave(&mut self, id: i64) {
        if let Some(gone) = self.all.remove(&id) {
            self.active -= u64::from(gone.active);
            if !gone.active {
                self.waiting.retain(|&other| other != id);
            }
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// A producer has used up its credit.
    pub(super) fn used_up(&mut self, id: i64) {
        let Some(producer) = self.all.get_mut(&id) else { return };
        if std::mem::replace(&mut producer.active, false) {
            self.active -= 1;
            self.waiting.push_back(id);
        }
    }

    /// Gives those that wait their next batch, as far as there is room.
    pub(super) fn serve(&mut self, level: &Level<'_>, turn: &mut Turn<'_>) {
        while let Some(&id) = self.waiting.front() {
            if !level.has_room(self.active) {
                return;
            }
            self.waiting.pop_front();
            let Some(producer) = self.all.get_mut(&id) else { continue };
            producer.active = true;
            self.active += 1;
            let (messages, bytes) = level.attributes.producer_credit();
            let max = i64::try_from(level.attributes.message_bytes_max).unwrap_or(-1);
            let packet = resume(id, level.uid, messages, bytes, max)
                .string("Reason", &format!("Producer {id} has become active"));
            turn.send_packet(&producer.output, packet);
        }
    }

    /// Tells all to wait if the destination is full, or production is paused.
    pub(super) fn hold_back(&mut self, level: &Level<'_>, turn: &mut Turn<'_>) {
        if self.active == 0 || !(level.paused || level.is_metered() && level.is_full()) {
            return;
        }
        let reason = if level.paused { "Destination Paused" } else { "Destination Full" };
        for (&id, producer) in self.all.iter_mut().filter(|(_, producer)| producer.active) {
            producer.active = false;
            self.waiting.push_back(id);
            let packet = resume(id, level.uid, 0, 0, 0).string("Reason", reason);
            turn.send_packet(&producer.output, packet);
        }
        self.active = 0;
    }
}

fn resume(id: i64, uid: &str, messages: i32, bytes: i64, max: i64) -> PacketBuilder {
    PacketBuilder::new(PacketType::RESUME_FLOW)
        .long("JMQProducerID", id)
        .int("JMQSize", messages)
        .long("JMQBytes", bytes)
        .long("JMQMaxMsgBytes", max)
        .string("JMQDestinationID", uid)
}
