//! Consumers: how they come, get credit and leave.

use crate::{
    flow::Credit,
    proto::broker_in::{AckMode, AddConsumer, ReplyTo},
    sync::Arc,
    wire::{MessageId, Status},
};

use super::{
    super::{
        command::{Command, Leave},
        consumer::{Consumer, ConsumerParts},
        turn::Turn,
    },
    Connection, Refusal, room,
};

impl Connection {
    pub(super) fn add_consumer(
        &mut self,
        to: &ReplyTo,
        wish: &AddConsumer,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        room(self.consumers.len(), "consumers")?;
        let unserved = [
            (wish.selector.is_some(), "selectors"),
            (wish.durable.is_some(), "durable subscriptions"),
            (wish.shared.is_some() || wish.is_shared, "shared subscriptions"),
        ];
        if let Some((_, what)) = unserved.into_iter().find(|&(wanted, _)| wanted) {
            return Err((Status::NOT_IMPLEMENTED, format!("{what} are not served")));
        }
        // A consumer without session has one of its own with the connection's id.
        let session_id = wish.session.unwrap_or(self.id);
        if wish.session.is_none() && !self.sessions.contains_key(&self.id) {
            self.insert_session(self.id, AckMode::Unset);
        }
        let Some(session) = self.sessions.get(&session_id) else {
            return Err((Status::ERROR, format!("there is no session {session_id}")));
        };
        let (state, ack_mode) = (Arc::clone(&session.state), session.ack_mode);
        let destination = self.destination(&wish.destination, wish.kind, turn.shared)?;
        // Size 0 means without limit, as −1 does.
        let prefetch = Credit::from_wire(wish.size).agree(destination.consumer_limit());
        let id = turn.next_id();
        let consumer = Arc::new(Consumer::new(ConsumerParts {
            id,
            connection_id: self.id,
            destination: Arc::clone(&destination),
            output: Arc::clone(&self.output),
            session: state,
            forgets: ack_mode == AckMode::None,
            no_local: wish.no_local,
            prefetch,
        }));
        self.consumers.insert(id, (session_id, Arc::clone(&consumer)));
        let size = if wish.size == 0 { 0 } else { prefetch.to_wire() };
        let reply = to.with(Status::OK).long("JMQConsumerID", id).int("JMQSize", size);
        if to.wanted {
            // Before the subscription, so that it is written before the first message.
            turn.send_packet(&self.output, reply);
        }
        turn.send(&destination, Command::Subscribe(consumer));
        Ok(())
    }

    pub(super) fn delete_consumer(
        &mut self,
        to: &ReplyTo,
        id: i64,
        last: Option<MessageId>,
        nothing_seen: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        self.forget_settled();
        let open = self.consumers.get(&id).filter(|(_, consumer)| !consumer.is_closed());
        let Some((_, consumer)) = open else {
            return Err((Status::NOT_FOUND, format!("there is no consumer {id}")));
        };
        let how = match (last, nothing_seen) {
            (Some(last), _) => Leave::After(Some(last)),
            (None, true) => Leave::After(None),
            (None, false) => Leave::AllSeen,
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
        Ok(())
    }

    /// Drops closed consumers that have nothing left to settle.
    pub(super) fn forget_settled(&mut self) {
        self.consumers.retain(|_, (_, consumer)| !consumer.is_closed() || consumer.counts().1 > 0);
    }

    pub(super) fn resume_consumer(&self, id: i64, size: Option<i32>, turn: &mut Turn<'_>) {
        // A consumer that is just being deleted is no error: its RESUME was on the way.
        let Some((_, consumer)) = self.consumers.get(&id) else { return };
        if consumer.resume(size, consumer.destination.consumer_limit()) {
            turn.send(&consumer.destination, Command::Ready(id));
        }
    }
}
