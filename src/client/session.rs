//! A session: the scope of order and acknowledgement, and of the thread that runs its listeners.

use super::{
    acks::{self, Block},
    browser::Browser,
    connection::{Connection, ConnectionOwner},
    consumer::Consumer,
    epoch::Epoch,
    error::{AcknowledgeError, ConnectionError, RequestError, SessionError},
    listening,
    options::ConsumerOptions,
    producer::Producer,
    session_state::{SessionShared, read_id},
};
use crate::{
    message::{Destination, DestinationKind, Message},
    sync::{Arc, Ordering},
    wire::{PacketBuilder, PacketType},
};

/// When received messages count as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcknowledgeMode {
    /// Each one before `receive` returns it, or after its listener has returned.
    Auto,
    /// When the application says so, for all messages of the session so far.
    Client,
    /// In batches, lazily: cheapest, and after a failure some may come twice.
    DupsOk,
    /// Never: the broker forgets each message when it has sent it. What waits in the client when
    /// the consumer is closed, or the connection lost, is lost.
    NoAcknowledge,
    /// When the transaction is committed, see [`Session::commit`]; what is sent in the session
    /// belongs to the transaction, too.
    Transacted,
}

impl AcknowledgeMode {
    /// The protocol's number; none for transacted sessions.
    pub(super) const fn to_wire(self) -> Option<i32> {
        match self {
            Self::Auto => Some(1),
            Self::Client => Some(2),
            Self::DupsOk => Some(3),
            Self::NoAcknowledge => Some(0x8000),
            Self::Transacted => None,
        }
    }
}

/// A session of a connection.
///
/// Shape: a handle; clones are the same session. Order, acknowledgement and listeners are the
/// session's: its listeners run one at a time, on one thread. Several threads may use it, but what
/// one acknowledges, recovers, commits or rolls back, it does for all.
///
/// Dropping the last handle, of the session and of its consumers and producers, closes it without
/// waiting for the broker; an open transaction is rolled back.
#[derive(Debug, Clone)]
pub struct Session {
    pub(super) owner: Arc<SessionOwner>,
}

/// What the handles of a session hold; its drop is the drop of the last one.
#[derive(Debug)]
pub(super) struct SessionOwner {
    pub(super) shared: Arc<SessionShared>,
    pub(super) connection: Arc<ConnectionOwner>,
}

impl Session {
    pub(super) fn create(
        connection: &Connection,
        mode: AcknowledgeMode,
    ) -> Result<Self, SessionError> {
        if connection.core().is_closing() {
            return Err(ConnectionError::Closed.into());
        }
        let core = Arc::clone(connection.core());
        let kind = PacketType::CREATE_SESSION;
        let build = |packet: PacketBuilder| match mode.to_wire() {
            Some(number) => packet.int("JMQAckMode", number),
            None => packet,
        };
        let (shared, epoch) = loop {
            let (reply, epoch) = core.request_linked(kind, build, |_reply_id| None)?;
            let id = read_id(&reply, "JMQSessionID")?;
            let shared = Arc::new(SessionShared::new(Arc::clone(&core), id, epoch, mode));
            core.register(&shared);
            match core.is_registered(kind, &shared.remote) {
                Ok(true) => break (shared, epoch),
                Ok(false) => {}
                Err(error) => {
                    // Nobody will have it, so it is not made again.
                    shared.abandon();
                    core.unregister(&shared);
                    return Err(error.into());
                }
            }
            // Its link was lost before whoever restored that could know it.
            core.unregister(&shared);
        };
        let connection = Arc::clone(&connection.owner);
        let session = Self { owner: Arc::new(SessionOwner { shared, connection }) };
        if mode == AcknowledgeMode::Transacted {
            session.owner.shared.begin(epoch, None)?;
        }
        Ok(session)
    }

    /// Makes a producer that sends to `destination`, which is created if the broker allows that.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the broker refuses (404 no such destination, 403 forbidden,
    /// 405 too many producers) or the connection is lost.
    pub fn create_producer(&self, destination: &Destination) -> Result<Producer, SessionError> {
        Producer::create(self, Some(destination))
    }

    /// Makes a producer that is told with each message where it goes.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the session is closed.
    pub fn create_anonymous_producer(&self) -> Result<Producer, SessionError> {
        Producer::create(self, None)
    }

    /// Makes a consumer of `destination`, which is created if the broker allows that.
    ///
    /// # Errors
    /// As [`create_consumer_with`](Self::create_consumer_with).
    pub fn create_consumer(&self, destination: &Destination) -> Result<Consumer, SessionError> {
        self.create_consumer_with(destination, &ConsumerOptions::new())
    }

    /// Makes a consumer with a selector, a durable or shared subscription, or without local
    /// messages.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the broker refuses (400 bad selector, 404 no such destination,
    /// 409 too many consumers, or the subscription is in use or is another one) or the connection
    /// is lost; [`SessionError::IllegalState`] for options that do not go together, a durable
    /// subscription without client id, or another connection's temporary destination.
    pub fn create_consumer_with(
        &self,
        destination: &Destination,
        options: &ConsumerOptions,
    ) -> Result<Consumer, SessionError> {
        Consumer::create(self, destination, options)
    }

    /// Looks at the messages of a queue that this selector matches, or of all of it. The queue is
    /// created if the broker allows that.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] for a topic; [`SessionError::Request`] if the broker refuses
    /// (400 bad selector, 404 no such queue, 403 forbidden) or the connection is lost.
    pub fn create_browser(
        &self,
        queue: &Destination,
        selector: Option<&str>,
    ) -> Result<Browser, SessionError> {
        Browser::create(self, queue, selector)
    }

    /// Makes a temporary queue or topic, which ends with the connection.
    ///
    /// # Errors
    /// [`SessionError::Request`].
    pub fn create_temporary(&self, kind: DestinationKind) -> Result<Destination, SessionError> {
        let number = self.owner.connection.next_temporary();
        let made = self.owner.shared.core.temporary(kind, number).ok_or(
            SessionError::IllegalState("the client id is too long for temporary destinations"),
        )?;
        self.owner.shared.ensure_destination(&made)?;
        self.owner.shared.core.remember_temporary(&made);
        Ok(made)
    }

    /// Ends a temporary destination before its connection does.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] if it is none, another connection made it, or a consumer
    /// still receives from it; [`SessionError::Request`].
    pub fn delete_temporary(&self, destination: &Destination) -> Result<(), SessionError> {
        if !destination.is_temporary() {
            return Err(SessionError::IllegalState("only temporary destinations are deleted here"));
        }
        if !self.owner.shared.core.is_own_temporary(destination) {
            return Err(SessionError::IllegalState(
                "a temporary destination is deleted by the connection that made it",
            ));
        }
        if self.owner.shared.core.consumes(destination) {
            return Err(SessionError::IllegalState(
                "the temporary destination has a consumer; close that first",
            ));
        }
        self.owner.shared.core.forget_temporary(destination);
        self.owner.shared.core.request(PacketType::DESTROY_DESTINATION, |packet| {
            packet
                .string("JMQDestination", destination.name())
                .int("JMQDestType", destination.type_bits())
        })?;
        Ok(())
    }

    /// Ends a durable subscription, shared or not, that no consumer uses.
    ///
    /// # Errors
    /// [`SessionError::Request`]: 404 there is none, 409 it has a consumer.
    pub fn unsubscribe(&self, durable: &str) -> Result<(), SessionError> {
        self.owner.shared.core.request(PacketType::DELETE_CONSUMER, |packet| {
            packet.string("JMQDurableName", durable)
        })?;
        Ok(())
    }

    /// Commits what was sent and received since the last commit or rollback, and begins the next
    /// transaction. Waits for asynchronous sends of the session first.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate::client::AcknowledgeMode;
    /// # use tidegate::message::{Destination, Message};
    /// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
    /// # let mut factory = tidegate::client::ConnectionFactory::new();
    /// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
    /// # let connection = factory.create_connection()?;
    /// # let (orders, bills) = (Destination::queue("orders")?, Destination::queue("bills")?);
    /// # let ordering = connection.create_session(AcknowledgeMode::Auto)?;
    /// # ordering.create_producer(&orders)?.send(Message::text("a boat"))?;
    /// let session = connection.create_session(AcknowledgeMode::Transacted)?;
    /// let consumer = session.create_consumer(&orders)?;
    /// let producer = session.create_producer(&bills)?;
    /// connection.start()?;
    /// while let Some(order) = consumer.receive_timeout(Duration::from_millis(100))? {
    ///     // The order is gone if and only if its bill is there.
    ///     match producer.send(Message::text(format!("bill for {:?}", order.body_text()?))) {
    ///         Ok(_id) => session.commit()?,
    ///         Err(_full) => session.rollback()?,
    ///     }
    /// }
    /// # assert!(ordering.create_consumer(&bills)?.receive()?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] unless the session is [`AcknowledgeMode::Transacted`], or
    /// from within a completion of an asynchronous send. [`SessionError::Request`]: if the broker
    /// refused `COMMIT_TRANSACTION`, nothing is committed; roll back. If it refused or did not
    /// answer `START_TRANSACTION`, all is committed, but nothing can be sent or received before a
    /// rollback succeeds. [`RequestError::Interrupted`] or [`RequestError::Connection`]: whether it
    /// was committed is not known. [`RequestError::RolledBack`]: the connection was lost and
    /// restored in the middle of it, nothing is committed, and the next one has begun.
    pub fn commit(&self) -> Result<(), SessionError> {
        self.finish_transaction()?;
        Ok(self.owner.shared.commit()?)
    }

    /// Takes back what was sent and received since the last commit or rollback, and begins the
    /// next transaction. Received messages come again in their order, marked as redelivered; those
    /// that only waited in the client come as if for the first time.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] as for [`commit`](Self::commit); [`SessionError::Request`].
    pub fn rollback(&self) -> Result<(), SessionError> {
        self.finish_transaction()?;
        Ok(self.owner.shared.roll_back()?)
    }

    /// Waits until everything sent in the transaction is answered.
    fn finish_transaction(&self) -> Result<(), SessionError> {
        let shared = &self.owner.shared;
        if shared.mode != AcknowledgeMode::Transacted {
            return Err(SessionError::IllegalState("the session is not transacted"));
        }
        if listening::in_completion(shared.key()) {
            return Err(SessionError::IllegalState(
                "a completion cannot end the transaction, which waits for the completion",
            ));
        }
        shared.await_completions();
        Ok(())
    }

    /// Acknowledges all messages that the session has handed out so far. Nothing to do in an
    /// automatic or transacted session, or one that never acknowledges; in a lazy one, an
    /// unfinished batch is sent.
    ///
    /// # Errors
    /// [`AcknowledgeError::Request`]; the messages come again. [`RequestError::Unacknowledged`] if
    /// the connection was lost and restored meanwhile: [`recover`](Self::recover) the session.
    pub fn acknowledge(&self) -> Result<(), AcknowledgeError> {
        let shared = &self.owner.shared;
        match shared.mode {
            AcknowledgeMode::Auto
            | AcknowledgeMode::NoAcknowledge
            | AcknowledgeMode::Transacted => Ok(()),
            AcknowledgeMode::DupsOk => {
                shared.link.acks.flush(&shared.core);
                shared.core.flush();
                Ok(())
            }
            AcknowledgeMode::Client => {
                shared.check_work()?;
                let blocks = shared.link.acks.take_all();
                let Some(last) = blocks.last() else { return Ok(()) };
                if blocks.iter().any(|block| block.epoch != last.epoch) {
                    // The application took one just when its link was lost.
                    return Err(shared.must_recover(blocks));
                }
                shared.acknowledge(last.epoch, &blocks)
            }
        }
    }

    /// Acknowledges one message and no other, whatever was received before it.
    ///
    /// # Errors
    /// [`AcknowledgeError::UnknownMessage`] if this session has not handed it out, or it is
    /// acknowledged already; [`AcknowledgeError::IllegalState`] in another mode than
    /// [`AcknowledgeMode::Client`]; [`AcknowledgeError::Request`].
    pub fn acknowledge_message(&self, message: &Message) -> Result<(), AcknowledgeError> {
        let shared = &self.owner.shared;
        if shared.mode != AcknowledgeMode::Client {
            return Err(AcknowledgeError::IllegalState(
                "single messages are acknowledged in sessions of mode Client",
            ));
        }
        shared.check_work()?;
        let id = message.id().ok_or(AcknowledgeError::UnknownMessage)?;
        let block = shared.link.acks.take_one(message.consumer_id(), id);
        let block = block.ok_or(AcknowledgeError::UnknownMessage)?;
        shared.acknowledge(block.epoch, &[block])
    }

    /// Acknowledges one message and all that this session has handed out before it.
    ///
    /// ```
    /// # use tidegate::client::AcknowledgeMode;
    /// # use tidegate::message::{Destination, Message};
    /// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
    /// # let mut factory = tidegate::client::ConnectionFactory::new();
    /// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
    /// # let connection = factory.create_connection()?;
    /// # let session = connection.create_session(AcknowledgeMode::Client)?;
    /// # connection.start()?;
    /// let queue = Destination::queue("letters")?;
    /// let producer = session.create_producer(&queue)?;
    /// for text in ["a", "b", "c", "d"] {
    ///     producer.send(Message::text(text))?;
    /// }
    /// let consumer = session.create_consumer(&queue)?;
    /// let [a, b, c, d] = [(); 4].map(|()| consumer.receive());
    /// session.acknowledge_message(&c?.unwrap())?; // This one alone.
    /// session.acknowledge_up_to(&b?.unwrap())?; // And what came before.
    /// session.recover()?; // The rest comes again.
    /// let again = consumer.receive()?.unwrap();
    /// assert_eq!(again.body_text()?.as_deref(), Some("d"));
    /// assert!(again.is_redelivered());
    /// # drop((a, d));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    /// # Errors
    /// As [`acknowledge_message`](Self::acknowledge_message).
    pub fn acknowledge_up_to(&self, message: &Message) -> Result<(), AcknowledgeError> {
        let shared = &self.owner.shared;
        if shared.mode != AcknowledgeMode::Client {
            return Err(AcknowledgeError::IllegalState(
                "some messages are acknowledged in sessions of mode Client",
            ));
        }
        shared.check_work()?;
        let id = message.id().ok_or(AcknowledgeError::UnknownMessage)?;
        let blocks = shared.link.acks.take_through(message.consumer_id(), id);
        let last = blocks.last().ok_or(AcknowledgeError::UnknownMessage)?;
        shared.acknowledge(last.epoch, &blocks)
    }

    /// Sends every message that was handed out and not acknowledged, and every one that waits,
    /// back to the broker: they come again, the former marked as redelivered.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] in a transacted session, which is rolled back instead, and
    /// in one that never acknowledges; [`SessionError::Request`].
    pub fn recover(&self) -> Result<(), SessionError> {
        let shared = &self.owner.shared;
        if shared.mode == AcknowledgeMode::NoAcknowledge {
            return Err(SessionError::IllegalState("the broker keeps nothing of this session"));
        }
        if !matches!(shared.present_transaction(), Ok(None)) {
            return Err(SessionError::IllegalState("transactions are rolled back, not recovered"));
        }
        Ok(shared.recover()?)
    }

    /// Closes the session with its consumers and producers. Waits for a running listener and for
    /// asynchronous sends and their completions; threads
    /// in `receive` get nothing; unacknowledged messages go back to the broker, an open transaction
    /// is rolled back. Closing it again does nothing.
    ///
    /// # Errors
    /// [`SessionError::IllegalState`] from within a listener or completion of this session, which
    /// would wait for itself; [`SessionError::Request`] if the broker does not answer in time.
    pub fn close(&self) -> Result<(), SessionError> {
        let shared = &self.owner.shared;
        if listening::in_session(shared.key()) {
            return Err(SessionError::IllegalState(
                "a listener or completion cannot close its session, which waits for it",
            ));
        }
        shared.begin_close();
        let outcome = shared.finish_close();
        shared.core.unregister(shared);
        match outcome {
            // It is closed all the same.
            Err(RequestError::Connection(_)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// How this session acknowledges.
    #[must_use]
    pub fn mode(&self) -> AcknowledgeMode {
        self.owner.shared.mode
    }
}

impl SessionShared {
    /// Some of these messages were lost with their link: the others go back when the session is
    /// recovered.
    fn must_recover(&self, unacknowledged: Vec<Block>) -> AcknowledgeError {
        self.link.acks.put_back(unacknowledged);
        // Release: see `check_work`.
        self.lost_work.store(true, Ordering::Release);
        RequestError::Unacknowledged.into()
    }

    /// Acknowledges what came over one link, as the application wishes.
    fn acknowledge(&self, epoch: Epoch, blocks: &[Block]) -> Result<(), AcknowledgeError> {
        match acks::acknowledge(&self.core, epoch, blocks, None, self.answer()) {
            // They come again.
            Err(RequestError::Interrupted { .. }) => Err(RequestError::Unacknowledged.into()),
            outcome => Ok(outcome?),
        }
    }
}

impl SessionOwner {
    /// Ends the session without waiting for anybody.
    pub(super) fn abandon(&self) {
        self.shared.abandon();
        self.shared.core.unregister(&self.shared);
    }
}

impl Drop for SessionOwner {
    fn drop(&mut self) {
        self.abandon();
    }
}
