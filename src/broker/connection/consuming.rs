//! Consumers: how they come, get credit and leave; subscriptions they come to.

use crate::{
    flow::Credit,
    proto::broker_in::{AckMode, AddConsumer, ReplyTo, SubscriptionWish},
    selector::Selector,
    sync::{Arc, Plain},
    wire::{MessageId, Status},
};

use super::{
    super::{
        attributes::Attributes,
        command::{Arrival, Command, Leave, Rare, Reply},
        consumer::{Consumer, ConsumerParts},
        destination::{Destination, Kind, Origin},
        limits::PER_CONNECTION_MAX,
        subscription::{Identity, NoLocal, Sharing, Source, SubscriptionKey, SubscriptionName},
        turn::Turn,
    },
    Connection, Named, Refusal,
    destinations::parse,
    room,
};

impl Connection {
    pub(super) fn add_consumer(
        &mut self,
        to: &ReplyTo,
        wish: &AddConsumer,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        self.forget_refused();
        room(self.consumers.len(), "consumers")?;
        let selector = parse(wish.selector.as_deref(), turn.shared)?;
        // A consumer without session has one of its own with the connection's id.
        let session_id = wish.session.unwrap_or(self.id);
        if wish.session.is_none() && !self.sessions.contains_key(&self.id) {
            self.insert_session(self.id, AckMode::Unset);
        }
        let Some(session) = self.sessions.get(&session_id) else {
            return Err((Status::ERROR, format!("there is no session {session_id}")));
        };
        let ack_mode = match session.ack_mode {
            AckMode::Unset => wish.ack_mode,
            of_session => of_session,
        };
        let session = Arc::clone(&session.state);
        let source = match self.named(&wish.destination, wish.kind, turn)? {
            Named::One(destination) => Source::Topic(destination),
            Named::Many(pattern) => Source::Pattern(pattern),
        };
        let mut place = self.place(wish, source, selector, turn)?;
        // Size 0 means without limit, as −1 does.
        let prefetch = Credit::from_wire(wish.size).agree(place.limit);
        let id = turn.next_id();
        let consumer = Arc::new(Consumer::new(ConsumerParts {
            id,
            connection_id: self.id,
            destination: Arc::clone(&place.destination),
            output: Arc::clone(&self.output),
            session,
            forgets: ack_mode == AckMode::None,
            transacted: ack_mode == AckMode::Unset,
            no_local: place.identity.is_none() && wish.no_local,
            selector: place.selector.take(),
            limit: place.limit,
            prefetch,
        }));
        self.consumers.insert(id, (session_id, Arc::clone(&consumer)));
        let size = if wish.size == 0 { 0 } else { prefetch.to_wire() };
        let reply = Reply { output: Arc::clone(&self.output), to: *to };
        let wish = place.identity;
        let arrival = Arrival { consumer, wish, recorded: false, size, reply };
        turn.send(&place.destination, Command::Subscribe(Box::new(arrival)));
        Ok(())
    }

    /// Where a consumer's messages wait: at its destination, or at a subscription.
    fn place(
        &self,
        wish: &AddConsumer,
        source: Source,
        selector: Option<Selector>,
        turn: &Turn<'_>,
    ) -> Result<Place, Refusal> {
        let own = || self.client_id.clone().or_else(|| wish.client_id.as_deref().map(Plain::from));
        let (key, sharing) = match &wish.subscription {
            SubscriptionWish::Plain => match source {
                Source::Topic(destination) => return Ok(Place::at(destination, selector)),
                Source::Pattern(_) | Source::Gone => (None, Sharing::None),
            },
            SubscriptionWish::Durable { name, share, jms_share } => {
                let sharing = match (share, jms_share) {
                    (true, _) => Sharing::ClientId,
                    (false, true) => Sharing::Name,
                    (false, false) => Sharing::None,
                };
                (Some((true, given(name)?)), sharing)
            }
            SubscriptionWish::Shared(name) => (Some((false, given(name)?)), Sharing::Name),
            SubscriptionWish::SharedByClientId => {
                let selector = wish.selector.as_deref().map(Box::from);
                let topic = wish.destination.as_str().into();
                let name = SubscriptionName::Implied { topic, selector };
                (Some((false, name)), Sharing::ClientId)
            }
        };
        let client_id = own();
        let missing = |what: &str| {
            Err((Status::PRECONDITION_FAILED, format!("{what} needs a client id; set one first")))
        };
        if key.is_some() && client_id.is_none() {
            if sharing != Sharing::Name {
                return missing("a subscription that is durable or shared by client id");
            }
            if wish.no_local {
                return missing("a subscription without what its own clients send");
            }
        }
        if key.is_some() && matches!(&source, Source::Topic(topic) if topic.is_temporary()) {
            let reason = "a temporary topic has only plain subscriptions";
            return Err((Status::PRECONDITION_FAILED, reason.into()));
        }
        let no_local = wish.no_local.then(|| match (&key, &client_id) {
            (Some(_), Some(id)) => NoLocal::ClientId(Plain::clone(id)),
            _ => NoLocal::Connection(self.id),
        });
        let (attributes, d) = match &source {
            Source::Topic(topic) => {
                let attributes = Attributes::clone(&topic.attributes());
                let shared = sharing != Sharing::None;
                let limit = if shared {
                    attributes.shared_consumer_flow_limit
                } else {
                    attributes.consumer_flow_limit
                };
                (attributes, limit)
            }
            Source::Pattern(_) | Source::Gone => {
                (turn.shared.live.read(|live| live.topic.clone()), Credit::Unlimited)
            }
        };
        let key = key.map(|(durable, name)| SubscriptionKey { client_id, durable, name });
        let name = &wish.destination;
        let new = Destination::new(name, Kind::Topic, Origin::Subscription, attributes);
        let new = Arc::new(new);
        let destination = match &key {
            Some(key) => {
                let found = turn.shared.subscriptions.find_or_add(key, &new);
                found.ok_or_else(|| (Status::RESOURCE_FULL, "too many subscriptions".to_owned()))?
            }
            None => new,
        };
        let selector = selector.map(Plain::new);
        let identity = Identity { key, source, selector, no_local, sharing };
        Ok(Place { destination, identity: Some(identity), selector: None, limit: d })
    }

    pub(super) fn unsubscribe(
        &self,
        to: &ReplyTo,
        name: &str,
        client_id: Option<&str>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let client_id = self.client_id.clone().or_else(|| client_id.map(Plain::from));
        let key = SubscriptionKey { client_id, durable: true, name: given(name)? };
        let unknown = || (Status::NOT_FOUND, format!("there is no durable subscription {name:?}"));
        let found = turn.shared.subscriptions.find(&key).ok_or_else(unknown)?;
        let (reply, name) = (Reply { output: Arc::clone(&self.output), to: *to }, name.to_owned());
        let end = Rare::command(move |at, state, turn| {
            let refused = if state.destroyed {
                Some((Status::NOT_FOUND, format!("there is no durable subscription {name:?}")))
            } else if state.open_subscribers().next().is_some() {
                let reason = format!("the subscription {name:?} is in use; close it first");
                Some((Status::CONFLICT, reason))
            } else {
                let topic_is_gone = state.identity.as_ref().is_some_and(Identity::is_orphan);
                at.destroy(state, turn);
                topic_is_gone.then(|| {
                    let reason = format!("the topic of {name:?} was destroyed; it ends as well");
                    (Status::PRECONDITION_FAILED, reason)
                })
            };
            match refused {
                _ if !reply.to.wanted => {}
                None => turn.after_stored(move |stored, turn| reply.after(stored, turn)),
                Some((status, reason)) => reply.refuse(status, &reason, turn),
            }
        });
        turn.send(&found, end);
        Ok(())
    }

    pub(super) fn delete_consumer(
        &mut self,
        to: &ReplyTo,
        id: i64,
        how: Leave,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        self.forget_settled();
        let open = self.consumers.get(&id).filter(|(_, consumer)| !consumer.is_closed());
        let Some((_, consumer)) = open else {
            return Err((Status::NOT_FOUND, format!("there is no consumer {id}")));
        };
        consumer.close();
        // The reply goes with the request: what comes back must be in its place before the
        // client can ask for anything else.
        let reply = to.wanted.then(|| {
            let stamp = turn.stamp();
            to.with(Status::OK).long("JMQConsumerID", id).id(stamp).finish()
        });
        self.output.leave(Arc::clone(consumer), how, reply);
        turn.touch_output(&self.output);
        self.closed.push(id);
        Ok(())
    }

    /// Drops closed consumers that have nothing left to settle.
    fn forget_settled(&mut self) {
        let Self { closed, consumers, .. } = self;
        closed.retain(|id| {
            let is_kept = consumers.get(id).is_some_and(|(_, consumer)| consumer.counts().1 > 0);
            if !is_kept {
                consumers.remove(id);
            }
            is_kept
        });
    }

    /// Drops consumers that were refused, if there seem to be too many.
    fn forget_refused(&mut self) {
        if self.consumers.len() >= PER_CONNECTION_MAX {
            let is_kept = |consumer: &Consumer| !consumer.is_closed() || consumer.counts().1 > 0;
            self.consumers.retain(|_, (_, consumer)| is_kept(consumer));
        }
    }

    pub(super) fn resume_consumer(&self, id: i64, size: Option<i32>, turn: &mut Turn<'_>) {
        // A consumer that is just being deleted is no error: its RESUME was on the way.
        let Some((_, consumer)) = self.consumers.get(&id) else { return };
        if consumer.resume(size) {
            turn.send(&consumer.destination, Command::Ready(id));
        }
    }
}

/// How a consumer leaves whose client has seen its messages up to `last`.
pub(super) const fn leave(
    last: Option<MessageId>,
    nothing_seen: bool,
    in_transaction: bool,
) -> Leave {
    match (last, nothing_seen) {
        (Some(last), _) => Leave::After { last: Some(last), in_transaction },
        (None, true) => Leave::After { last: None, in_transaction },
        (None, false) => Leave::AllSeen,
    }
}

/// Where a consumer's messages wait, and what it may be sent ahead.
struct Place {
    destination: Arc<Destination>,
    identity: Option<Identity>,
    selector: Option<Selector>,
    limit: Credit,
}

impl Place {
    fn at(destination: Arc<Destination>, selector: Option<Selector>) -> Self {
        let limit = destination.attributes().consumer_flow_limit;
        Self { destination, identity: None, selector, limit }
    }
}

/// A name the client gave a subscription.
fn given(name: &str) -> Result<SubscriptionName, Refusal> {
    if name.trim().is_empty() {
        let reason = "the name of the subscription is blank";
        return Err((Status::PRECONDITION_FAILED, reason.into()));
    }
    Ok(SubscriptionName::Given(name.into()))
}
