//! The state behind a destination's gate: who gets which message next.
//!
//! # Invariants
//! - A message is in exactly one place: in a backlog, in flight to one consumer, or settled.
//! - A consumer is in its subscription's ready list exactly if it may have credit; whoever gives
//!   it credit again sends [`Command::Ready`](super::command::Command::Ready).

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::{
    flow::Taken,
    proto::broker_in::{AckKind, BLOCK_LEN},
    sync::Arc,
    wire::{MessageId, Status},
};

use super::{
    backlog::{Backlog, Entry},
    consumer::Consumer,
    destination::Kind,
    in_flight::InFlight,
    output::{Outgoing, Output},
    stored::Stored,
    turn::Turn,
};

/// The one subscription of a queue.
pub(super) const SHARED: i64 = 0;

/// What is behind the gate.
#[derive(Debug, Default)]
pub(super) struct State {
    /// A queue has one, a topic one for each consumer.
    pub(super) subscriptions: HashMap<i64, Subscription>,
    /// By consumer. In order, so that a run is the same each time.
    pub(super) subscribers: BTreeMap<i64, Subscriber>,
    /// Subscriptions that have something to deliver, or a consumer that may take it. Each stands
    /// here once.
    pub(super) fed: VecDeque<i64>,
    pub(super) waiting_producers: VecDeque<(Arc<Output>, i64)>,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) next_order: u64,
    pub(super) destroyed: bool,
}

/// One stream of messages that its consumers share.
#[derive(Debug, Default)]
pub(super) struct Subscription {
    pub(super) backlog: Backlog,
    /// Consumers that may have credit, in the order in which they get the next messages.
    pub(super) ready: VecDeque<i64>,
    pub(super) is_fed: bool,
}

impl Subscription {
    /// Has the next dispatch look at this one, whose key this is.
    fn feed(&mut self, key: i64, fed: &mut VecDeque<i64>) {
        if !self.is_fed {
            self.is_fed = true;
            fed.push_back(key);
        }
    }
}

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) consumer: Arc<Consumer>,
    pub(super) subscription: i64,
    pub(super) in_flight: InFlight,
    pub(super) is_ready: bool,
    /// The consumer has left; this stays while something of its may still be settled.
    pub(super) has_left: bool,
}

impl State {
    pub(super) fn add(&mut self, message: &Arc<Stored>, kind: Kind) {
        let order = self.next_order;
        self.next_order += 1;
        let entry = Entry { message: Arc::clone(message), order, deliveries: 0 };
        match kind {
            Kind::Queue => {
                if let Some(queue) = self.subscriptions.get_mut(&SHARED) {
                    queue.backlog.push(entry);
                    queue.feed(SHARED, &mut self.fed);
                    self.messages += 1;
                    self.bytes += message.bytes();
                }
            }
            Kind::Topic => {
                for subscriber in self.subscribers.values() {
                    let consumer = &subscriber.consumer;
                    let own = consumer.no_local && consumer.connection_id == message.connection_id;
                    if own || consumer.is_closed() {
                        continue;
                    }
                    if let Some(one) = self.subscriptions.get_mut(&subscriber.subscription) {
                        one.backlog.push(entry.clone());
                        one.feed(subscriber.subscription, &mut self.fed);
                        self.messages += 1;
                        self.bytes += message.bytes();
                    }
                }
            }
        }
    }

    /// Whether what arrives now must wait for somebody.
    pub(super) fn somebody_is_late(&self) -> bool {
        self.subscriptions.values().any(|one| one.ready.is_empty())
    }

    pub(super) fn subtract(&mut self, entry: &Entry) {
        self.messages -= 1;
        self.bytes -= entry.message.bytes();
    }

    pub(super) fn make_ready(&mut self, id: i64) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let key = subscriber.subscription;
        if subscriber.is_ready || subscriber.consumer.is_closed() {
            return;
        }
        let Some(subscription) = self.subscriptions.get_mut(&key) else { return };
        subscriber.is_ready = true;
        subscription.ready.push_back(id);
        subscription.feed(key, &mut self.fed);
    }

    pub(super) fn restore_all(&mut self, key: i64, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        match self.subscriptions.get_mut(&key) {
            Some(subscription) => {
                entries.into_iter().for_each(|entry| subscription.backlog.restore(entry));
                subscription.feed(key, &mut self.fed);
            }
            // A subscription that ended with its consumer.
            None => entries.iter().for_each(|entry| self.subtract(entry)),
        }
    }

    pub(super) fn take_back(&mut self, id: i64, number: u64, taken: Taken) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let entry = subscriber.in_flight.take(number);
        let again = subscriber.consumer.give_back(taken);
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        let key = subscriber.subscription;
        self.restore_all(key, entry.into_iter().collect());
        if again {
            self.make_ready(id);
        }
        self.retire(id);
    }

    /// Forgets a consumer that has left, once nothing of its is unsettled.
    pub(super) fn retire(&mut self, id: i64) {
        let is_over = |one: &Subscriber| one.has_left && one.in_flight.is_empty();
        if self.subscribers.get(&id).is_some_and(is_over) {
            self.subscribers.remove(&id);
        }
    }

    pub(super) fn forget(&mut self, id: i64, through: u64) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let gone = subscriber.in_flight.take_through(through);
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        gone.iter().for_each(|entry| self.subtract(entry));
        self.retire(id);
    }

    /// Deals the backlog of one subscription out, one message to each ready consumer in turn.
    pub(super) fn dispatch(&mut self, key: i64, left: &mut usize, turn: &mut Turn<'_>) {
        let Self { subscriptions, subscribers, messages, bytes, .. } = self;
        let Some(subscription) = subscriptions.get_mut(&key) else { return };
        while *left > 0 && !subscription.backlog.is_empty() {
            let Some(id) = subscription.ready.pop_front() else { return };
            let Some(subscriber) = subscribers.get_mut(&id) else { continue };
            let Some((taken, epoch, consumer_flow)) = take_turn(&subscriber.consumer) else {
                // Whoever gives it credit, or starts its session, makes it ready again.
                subscriber.is_ready = false;
                continue;
            };
            let entry = loop {
                let Some(entry) = subscription.backlog.pop() else { break None };
                if !entry.message.is_expired(turn.wall_ms) {
                    break Some(entry);
                }
                *messages -= 1;
                *bytes -= entry.message.bytes();
                turn.count_expired();
            };
            let Some(entry) = entry else {
                subscriber.consumer.give_back(taken);
                subscription.ready.push_front(id);
                return;
            };
            subscription.ready.push_back(id);
            *left -= 1;
            let count = i32::try_from(entry.deliveries).unwrap_or(i32::MAX - 1) + 1;
            let message = Arc::clone(&entry.message);
            let number = subscriber.in_flight.deliver(entry);
            let consumer = Arc::clone(&subscriber.consumer);
            consumer.count_dispatched(subscriber.in_flight.len());
            let output = Arc::clone(&consumer.output);
            output.push(Outgoing { message, consumer, number, count, taken, epoch, consumer_flow });
            turn.touch_output(&output);
        }
    }
}

/// A credit, the session's number, and whether the packet carries C; `None` if the consumer is
/// closed or stopped, or has no credit.
fn take_turn(consumer: &Consumer) -> Option<(Taken, u32, bool)> {
    if consumer.is_closed() {
        return None;
    }
    let epoch = consumer.session.running_epoch()?;
    let (taken, consumer_flow) = consumer.take_credit()?;
    Some((taken, epoch, consumer_flow))
}

/// The consumer and message of each block.
fn each_block(blocks: &[u8]) -> impl Iterator<Item = (i64, MessageId)> {
    blocks.chunks_exact(BLOCK_LEN).filter_map(|block| {
        let (consumer, id) = block.split_first_chunk()?;
        Some((i64::from_be_bytes(*consumer), MessageId::decode(id.first_chunk()?)))
    })
}

/// Settles what is there; the worst outcome is the answer.
pub(super) fn acknowledge(state: &mut State, blocks: &[u8], kind: AckKind) -> Status {
    let mut status = Status::OK;
    for (consumer, id) in each_block(blocks) {
        let Some(subscriber) = state.subscribers.get_mut(&consumer) else {
            // Everything of a consumer that has left is settled or went back.
            status = Status::CONFLICT;
            continue;
        };
        if kind == AckKind::CountOnly {
            continue;
        }
        let Some(mut entry) = subscriber.in_flight.settle(&id) else {
            status = Status::CONFLICT;
            continue;
        };
        let left = subscriber.in_flight.len();
        subscriber.consumer.count_unsettled(left);
        let key = subscriber.subscription;
        match kind {
            AckKind::Undeliverable => {
                entry.deliveries += 1;
                state.restore_all(key, vec![entry]);
            }
            AckKind::Dead => {
                tracing::warn!(message = %id, "a client gave a message up");
                state.subtract(&entry);
            }
            AckKind::Consumed | AckKind::CountOnly => state.subtract(&entry),
        }
        state.retire(consumer);
    }
    status
}

pub(super) fn redeliver(state: &mut State, blocks: &[u8], seen: bool) {
    for (consumer, id) in each_block(blocks) {
        let Some(subscriber) = state.subscribers.get_mut(&consumer) else { continue };
        let Some(mut entry) = subscriber.in_flight.settle(&id) else { continue };
        subscriber.consumer.count_unsettled(subscriber.in_flight.len());
        entry.deliveries += u32::from(seen);
        let key = subscriber.subscription;
        state.restore_all(key, vec![entry]);
        state.retire(consumer);
    }
}
