//! A destination's messages on their way into the store, and out of it.

use crate::{
    store::record::{self, DestinationRecord, SharedBy, SubscriptionRecord},
    sync::{Arc, Ordering},
    wire::{Flags, Status},
};

use super::{
    super::{
        backlog::Entry,
        command::{AckReply, Sender},
        destination::{Destination, Origin},
        dispatch::{Part, SHARED, State},
        stored::Stored,
        subscription::{Identity, NoLocal, Sharing, Source, SubscriptionName},
        transaction::Outcome,
        turn::Turn,
    },
    Copy, Op, Ops, StoredKey, Then, Unit, Unstored, refused,
};

/// Why a message is not stored, or `None` if it need not be.
type Wanted = Option<Vec<Copy>>;

impl Destination {
    /// Its number in the store; 0 as long as it has none.
    pub(in crate::broker) fn place(&self) -> u64 {
        // Relaxed: the number alone matters, and whoever needs it learned of it from a commit.
        self.place.load(Ordering::Relaxed)
    }

    /// It is stored under this number from now on.
    pub(in crate::broker) fn set_place(&self, place: u64) {
        // Relaxed: as above.
        self.place.store(place, Ordering::Relaxed);
    }

    /// What a store keeps of a queue or topic.
    pub(in crate::broker) fn record(&self) -> DestinationRecord {
        // Relaxed: whoever changes this has it recorded again.
        let paused = self.counts().paused.load(Ordering::Relaxed);
        DestinationRecord {
            id: self.place(),
            kind: self.kind,
            name: self.name.to_string(),
            administered: self.origin == Origin::Administered,
            consumption_paused: paused & 1 != 0,
            production_paused: paused & 2 != 0,
            attributes: self
                .attributes()
                .texts(self.kind)
                .map(|(name, text)| (name.to_owned(), text))
                .collect(),
        }
    }

    /// What a store keeps of a durable subscription that is to be this.
    fn subscription_record(&self, identity: &Identity) -> Option<SubscriptionRecord> {
        let key = identity.key.as_ref().filter(|key| key.durable)?;
        let SubscriptionName::Given(name) = &key.name else { return None };
        let (topic, is_pattern, is_orphan) = match &identity.source {
            Source::Topic(topic) => (topic.name.to_string(), false, false),
            Source::Pattern(pattern) => (pattern.text().to_owned(), true, false),
            Source::Gone => (self.name.to_string(), false, true),
        };
        Some(SubscriptionRecord {
            id: self.place(),
            client_id: key.client_id.as_deref().map(str::to_owned),
            name: name.to_string(),
            topic,
            is_pattern,
            is_orphan,
            selector: identity.selector.as_ref().map(|selector| selector.text().to_owned()),
            no_local: match &identity.no_local {
                Some(NoLocal::ClientId(id)) => Some(id.to_string()),
                Some(NoLocal::Connection(_)) | None => None,
            },
            shared: match identity.sharing {
                Sharing::None => SharedBy::Nobody,
                Sharing::ClientId => SharedBy::ClientId,
                Sharing::Name => SharedBy::Name,
            },
        })
    }

    /// Has a durable subscription recorded as this; what it held as another one goes.
    pub(in crate::broker) fn record_subscription(
        self: &Arc<Self>,
        identity: Option<&Identity>,
        turn: &mut Turn<'_>,
    ) {
        let record = identity.and_then(|identity| self.subscription_record(identity));
        let Some(record) = record else { return };
        let at = Arc::clone(self);
        turn.record(move |batch, places| {
            if at.place() == 0 {
                at.set_place(places.take());
            } else {
                record::remove_subscription(batch, at.place());
            }
            let record = SubscriptionRecord { id: at.place(), ..record };
            record::put_subscription(batch, &record);
        });
    }

    /// Has a durable subscription recorded again whose topic is gone; it keeps what it has.
    pub(in crate::broker) fn record_orphan(&self, identity: &Identity, turn: &mut Turn<'_>) {
        if let Some(record) = self.subscription_record(identity).filter(|record| record.id != 0) {
            turn.record(move |batch, _| record::put_subscription(batch, &record));
        }
    }

    /// Has a queue or topic recorded as it is now: one that an administrator made or changed.
    pub(in crate::broker) fn record_now(self: &Arc<Self>, turn: &mut Turn<'_>) {
        if self.is_temporary() || self.origin == Origin::Subscription {
            return;
        }
        let at = Arc::clone(self);
        turn.record(move |batch, places| {
            if at.place() == 0 {
                at.set_place(places.take());
            }
            record::put_destination(batch, &at.record());
        });
    }

    /// Has everything removed that is stored of it; it is destroyed.
    pub(in crate::broker) fn unrecord(self: &Arc<Self>, turn: &mut Turn<'_>) {
        if self.is_temporary() {
            return;
        }
        let at = Arc::clone(self);
        // Whether it is recorded is certain only in the order of commits.
        turn.record(move |batch, _| match at.place() {
            0 => {}
            place if at.origin == Origin::Subscription => {
                record::remove_subscription(batch, place);
            }
            place => record::remove_destination(batch, at.kind, place),
        });
    }

    /// Whether somebody here takes a message at once.
    pub(in crate::broker) fn is_ready(&self) -> bool {
        self.consumers.read(|all| all.iter().any(|one| one.takes_now() > 0))
    }

    /// The durable subscriptions that get a message of this topic, whoever asks.
    pub(in crate::broker) fn copies(&self, message: &Stored) -> Vec<Copy> {
        self.durable_routes.read(|routes| {
            let wanted = routes.iter().filter(|route| route.wants(message));
            wanted
                .map(|route| Copy { to: Arc::clone(&route.to), delivered: route.to.is_ready() })
                .collect()
        })
    }

    /// Whether a message must be stored here before it is delivered; a topic's with its copies.
    pub(in crate::broker) fn wants_stored(&self, message: &Stored, turn: &Turn<'_>) -> Wanted {
        let is_persistent = message.packet.header().flags.contains(Flags::PERSISTENT);
        if turn.shared.persist.is_none() || !is_persistent || self.is_temporary() {
            return None;
        }
        if message.share.is_none() {
            return Some(Vec::new());
        }
        Some(self.copies(message)).filter(|copies| !copies.is_empty())
    }

    /// Has a message stored that was let in, `instead_of` another one; it goes on from there.
    pub(in crate::broker) fn store(
        self: &Arc<Self>,
        state: &mut State,
        message: Arc<Stored>,
        reply: Option<Sender>,
        copies: Vec<Copy>,
        instead_of: Option<StoredKey>,
        turn: &mut Turn<'_>,
    ) {
        // From here on, so that limits hold for what is on its way.
        state.count_in(&message);
        let marked = state.takes_at_once();
        let put = Op::Put {
            at: Arc::clone(self),
            message: Arc::clone(&message),
            delivered: marked,
            copies: copies.clone(),
        };
        let ops = match instead_of {
            None => Ops::One(put),
            Some(key) => Ops::Many(vec![put, Op::Remove(key)]),
        };
        let then = Then::Produced { at: Arc::clone(self), message, reply, copies, marked };
        turn.persist(Unit { ops, then });
    }

    /// A message is stored, or will not be.
    pub(in crate::broker) fn stored(
        &self,
        state: &mut State,
        mut message: Arc<Stored>,
        (reply, marked): (Option<Sender>, bool),
        copies: &[Copy],
        outcome: Result<(), Unstored>,
        turn: &mut Turn<'_>,
    ) {
        state.takes_soon = state.takes_soon.saturating_sub(u32::from(marked));
        if let Err(reason) = outcome {
            state.count_out(message.bytes());
            // It may be sent again.
            state.recent.forget(&message.packet.header().id);
            let (status, reason) = refused(&reason);
            tracing::debug!(destination = %self.name, reason, "message not stored");
            if let Some(reply) = reply {
                reply.refuse(status, &reason, turn);
            }
            return;
        }
        if state.destroyed {
            // What was destroyed with it is removed from the store with it.
            state.count_out(message.bytes());
        } else {
            Self::make_keepable(state, &mut message, turn);
            state.note_mark(marked);
            state.add_stored(&message, copies, turn);
        }
        if let Some(reply) = reply {
            reply.taken(turn);
        }
    }

    /// A message of a transaction that is committed and stored.
    pub(in crate::broker) fn committed(
        &self,
        state: &mut State,
        message: Arc<Stored>,
        (copies, marked): (&[Copy], bool),
        turn: &mut Turn<'_>,
    ) {
        self.unreserve(&message, &turn.shared.memory);
        // Its transaction was told that there is room.
        if self.make_room(state, &message, true, turn).is_ok() {
            // Relaxed: a statistic with one writer.
            let received = self.counts().received.load(Ordering::Relaxed);
            self.counts().received.store(received + 1, Ordering::Relaxed);
            state.count_in(&message);
            state.note_mark(marked);
            state.add_stored(&message, copies, turn);
        }
    }

    /// An acknowledgement is stored, or will not be.
    pub(in crate::broker) fn removed(
        state: &mut State,
        ticket: i64,
        reply: &AckReply,
        (status, outcome): (Status, Result<(), Unstored>),
        turn: &mut Turn<'_>,
    ) {
        let (outcome, status) = match outcome {
            Ok(()) => (Outcome::Commit, status),
            // Its consumer has it still, and may say the same again.
            Err(_) => (Outcome::undone(false), Status::UNAVAILABLE),
        };
        state.settle(ticket, outcome, turn);
        reply.done(status, turn);
    }
}

impl State {
    /// Where a message of this destination is stored, if it is. Of one that is destroyed all went
    /// together.
    pub(in crate::broker) fn key_of(&self, entry: &Entry) -> Option<StoredKey> {
        self.key_for(entry.message.sequence(), entry.deliveries)
    }

    /// As [`key_of`](Self::key_of), of a message that was delivered so often.
    pub(in crate::broker) fn key_for(&self, sequence: u64, deliveries: u32) -> Option<StoredKey> {
        // Relaxed: as in `place`.
        let place = self.place.load(Ordering::Relaxed);
        let is_kept = !self.destroyed
            && match self.part {
                Part::Queue => true,
                // Only durable subscriptions have a place.
                Part::Subscription => place != 0,
                // Who subscribes plainly holds nothing that is stored.
                Part::Topic => false,
            };
        (sequence != 0 && is_kept).then_some(StoredKey {
            place,
            sequence,
            is_copy: self.part == Part::Subscription,
            is_counted: deliveries > 1 || self.marks_singly,
        })
    }

    /// Whether anything that is consumed here may be stored.
    pub(in crate::broker) fn stores(&self) -> bool {
        // Relaxed: as in `place`.
        self.part != Part::Topic && self.place.load(Ordering::Relaxed) != 0
    }

    /// Where a message of this topic is stored, if it is.
    pub(in crate::broker) fn key_in_topic(&self, sequence: u64) -> Option<StoredKey> {
        // Relaxed: as in `place`.
        let place = self.place.load(Ordering::Relaxed);
        let is_stored = place != 0 && sequence != 0;
        is_stored.then_some(StoredKey { place, sequence, is_copy: false, is_counted: false })
    }

    /// Whether a message that comes now is given to somebody as soon as it may be.
    fn takes_at_once(&mut self) -> bool {
        let Some(one) = self.subscriptions.get(&SHARED) else { return false };
        if !one.backlog.is_empty() {
            return false;
        }
        let ready = one.ready.iter().filter_map(|id| self.subscribers.get(id));
        let credit = ready.map(|one| one.consumer.takes_now());
        let takes = credit.fold(0, u64::saturating_add) > u64::from(self.takes_soon);
        self.takes_soon += u32::from(takes);
        takes
    }
}
