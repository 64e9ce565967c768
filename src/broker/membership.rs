//! How consumers come to a destination and leave it.

use crate::{sync::Arc, wire::Status};

use super::{
    backlog::{Cursor, Entry, Item},
    command::{Arrival, Leave, Rare},
    consumer::Consumer,
    destination::Destination,
    dispatch::{Part, SHARED, State, Subscriber, Subscription},
    in_flight::InFlight,
    persist::refused,
    room::Refused,
    subscription::Sharing,
    turn::Turn,
};

/// What becomes of a consumer that comes.
enum Admission {
    /// It gets messages, at once or when its turn comes.
    Given { is_active: bool },
    /// Its subscription is to be recorded first.
    Recorded,
}

impl Destination {
    pub(super) fn subscribe(
        self: &Arc<Self>,
        state: &mut State,
        arrival: Arrival,
        turn: &mut Turn<'_>,
    ) {
        if let Some(waiting) = &mut state.arriving {
            // Whoever came before has the subscription recorded, and may change what it is.
            return waiting.push(arrival);
        }
        let is_active = match self.admit(state, &arrival, turn) {
            Ok(Admission::Recorded) => return self.record_first(state, arrival, turn),
            Ok(Admission::Given { is_active }) => is_active,
            Err((status, reason)) => {
                arrival.consumer.close();
                return arrival.reply.refuse(status, &reason, turn);
            }
        };
        let Arrival { consumer, size, reply, .. } = arrival;
        if reply.to.wanted {
            let ok = reply.to.with(Status::OK);
            let ok = ok.long("JMQConsumerID", consumer.id).int("JMQSize", size);
            // Before the consumer can be given anything, so that it is written first.
            turn.send_packet(&reply.output, ok);
        }
        let id = consumer.id;
        let subscription = if state.part == Part::Topic {
            state.subscriptions.insert(id, Subscription::default());
            id
        } else {
            SHARED
        };
        // A topic has looked at the selector before anything waits here.
        let searches = state.part == Part::Queue && consumer.selector.is_some();
        let new = Subscriber {
            consumer,
            subscription,
            in_flight: InFlight::default(),
            cursor: searches.then(|| Box::new(Cursor::default())),
            is_ready: false,
            is_active,
            has_left: false,
        };
        state.subscribers.insert(id, new);
        state.make_ready(id);
        self.publish_consumers(state);
    }

    /// Whether one more consumer may come, and gets messages at once.
    fn admit(
        self: &Arc<Self>,
        state: &mut State,
        arrival: &Arrival,
        turn: &mut Turn<'_>,
    ) -> Result<Admission, Refused> {
        let name = &self.name;
        if state.destroyed {
            let reason = format!("{name} has just been destroyed; ask once more");
            return Err((Status::RETRY, reason));
        }
        let open = state.open_subscribers().count();
        let conflict = |reason: String| Err((Status::CONFLICT, reason));
        if state.part == Part::Queue {
            let active = state.open_subscribers().filter(|one| one.is_active).count();
            let is_active = active < most(state.attributes.active_consumers_max);
            if !is_active && open - active >= most(state.attributes.backup_consumers_max) {
                return conflict(format!("{name} has {open} consumers, and takes no more"));
            }
            return Ok(Admission::Given { is_active });
        }
        let given = Ok(Admission::Given { is_active: true });
        let Some(wish) = &arrival.wish else { return given };
        let is_same = state.identity.as_ref().is_some_and(|now| now.is_same(wish));
        let shared = state.identity.as_ref().map(|now| now.sharing);
        if open > 0 && (wish.sharing == Sharing::None || !is_same) {
            let what = if is_same { "in use" } else { "in use with another topic or selector" };
            return conflict(format!("the subscription to {name} is {what}"));
        }
        if shared.is_some_and(|shared| shared != wish.sharing) {
            return conflict(format!("the subscription to {name} is shared in another way"));
        }
        if open >= most(state.attributes.shared_consumers_max) {
            return conflict(format!("the subscription to {name} has {open} consumers, its most"));
        }
        if !is_same {
            if !arrival.recorded && wish.is_durable() && turn.shared.persist.is_some() {
                return Ok(Admission::Recorded);
            }
            // Another topic or selector under the old name: the old subscription ends.
            if let Some(before) = state.identity.take() {
                before.detach(self, turn);
            }
            state.clear(turn);
            wish.attach(self, turn);
            state.identity = Some(wish.clone());
        }
        given
    }

    /// Has a durable subscription recorded as its first consumer wants it, who comes once it is.
    fn record_first(self: &Arc<Self>, state: &mut State, arrival: Arrival, turn: &mut Turn<'_>) {
        state.arriving = Some(Vec::new());
        self.record_subscription(arrival.wish.as_ref(), turn);
        let at = Arc::clone(self);
        turn.after_stored(move |stored, turn| {
            let arrived = Rare::command(move |at, state, turn| {
                let waiting = state.arriving.take().unwrap_or_default();
                match stored.map_err(|reason| refused(&reason)) {
                    Ok(()) => at.subscribe(state, Arrival { recorded: true, ..arrival }, turn),
                    Err((status, reason)) => {
                        arrival.consumer.close();
                        arrival.reply.refuse(status, &reason, turn);
                    }
                }
                for next in waiting {
                    at.subscribe(state, next, turn);
                }
            });
            turn.send(&at, arrived);
        });
    }

    pub(super) fn leave(
        self: &Arc<Self>,
        state: &mut State,
        consumer: &Consumer,
        how: &Leave,
        turn: &mut Turn<'_>,
    ) {
        let Some(subscriber) = state.subscribers.get_mut(&consumer.id) else { return };
        let back = what_comes_back(subscriber, how);
        subscriber.has_left = true;
        consumer.count_unsettled(subscriber.in_flight.len());
        let (key, was_active) = (subscriber.subscription, subscriber.is_active);
        if state.part == Part::Topic {
            // A plain subscription ends with its consumer, and what waits in it with both.
            for entry in back {
                state.subtract(&Item::Here(entry), turn);
            }
            let waiting = state.subscriptions.remove(&key).map(|gone| gone.backlog);
            for item in waiting.unwrap_or_default().drain() {
                state.subtract(&item, turn);
            }
        } else {
            state.restore_all(key, back, turn);
        }
        state.retire(consumer.id);
        self.publish_consumers(state);
        if state.part == Part::Queue && was_active {
            state.promote();
        }
        let ends = state.part == Part::Subscription
            && state.identity.as_ref().is_some_and(|identity| !identity.is_durable());
        if ends && state.open_subscribers().next().is_none() {
            self.end_subscription(state, turn);
        }
    }
}

impl State {
    /// The backup consumer that has waited longest takes the place of an active one, if nobody who
    /// came meanwhile has it.
    pub(super) fn promote(&mut self) {
        let active = self.open_subscribers().filter(|one| one.is_active).count();
        if active >= most(self.attributes.active_consumers_max) {
            return;
        }
        let next = self.open_subscribers().find(|one| !one.is_active).map(|one| one.consumer.id);
        if let Some(id) = next {
            if let Some(next) = self.subscribers.get_mut(&id) {
                next.is_active = true;
            }
            self.make_ready(id);
        }
    }
}

fn most(max: u32) -> usize {
    usize::try_from(max).unwrap_or(usize::MAX)
}

/// What goes back when a consumer leaves, counted as it was seen.
fn what_comes_back(subscriber: &mut Subscriber, how: &Leave) -> Vec<Entry> {
    let transacted = subscriber.consumer.transacted;
    let flight = &mut subscriber.in_flight;
    let counted = |mut entry: Entry| {
        entry.deliveries += 1;
        entry
    };
    match how {
        Leave::After { last, in_transaction } => {
            let unseen = flight.take_after(last.as_ref());
            let seen = if transacted || *in_transaction {
                last.as_ref().map(|last| flight.take_unheld(Some(last))).unwrap_or_default()
            } else {
                Vec::new()
            };
            seen.into_iter().map(counted).chain(unseen).collect()
        }
        Leave::AllSeen if transacted => flight.take_unheld(None).into_iter().map(counted).collect(),
        Leave::AllSeen => Vec::new(),
        Leave::Ended => {
            let sent = subscriber.consumer.sent_through();
            let count = |(number, mut entry): (u64, Entry)| {
                entry.deliveries += u32::from(number <= sent);
                entry
            };
            // What a transaction holds goes back, or not, with that.
            flight.take_all().into_iter().map(count).collect()
        }
    }
}
