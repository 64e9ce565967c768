//! A consumer: the receiving handle.

mod futures;

use std::time::{Duration, Instant};

use super::{
    acks::{self, Block, Unwanted},
    clock,
    error::{AcknowledgeError, ConnectionError, ReceiveError, RequestError, SessionError},
    links::{Arrived, Command, ConsumerLink},
    listener::Listener,
    options::ConsumerOptions,
    session::{AcknowledgeMode, Session, SessionOwner},
    session_state::{LastSeen, SessionShared, read_id},
};
pub use futures::{Messages, Receive};

use crate::{
    message::{Destination, DestinationKind, Message, MessageError},
    sync::Arc,
    wire::{Flags, Packet, PacketBuilder, PacketType},
};

/// The queue of dead messages, where expired ones are wanted.
const DEAD_QUEUE: &str = "mq.sys.dmq";

/// A consumer of one destination.
///
/// Shape: a handle; clones are the same consumer. The broker sends messages ahead, as far as
/// `imqConsumerFlowLimit` says; they wait here.
///
/// Dropping the last handle closes it without waiting for the broker: messages that wait go back.
#[derive(Debug, Clone)]
pub struct Consumer {
    owner: Arc<ConsumerOwner>,
}

#[derive(Debug)]
struct ConsumerOwner {
    shared: Arc<ConsumerShared>,
    session: Arc<SessionOwner>,
}

/// What a consumer's handles and its session share.
#[derive(Debug)]
pub(super) struct ConsumerShared {
    pub(super) link: Arc<ConsumerLink>,
    pub(super) destination: Destination,
    options: ConsumerOptions,
    /// Expired messages are handed out too.
    keeps_expired: bool,
    /// It is of a topic and keeps nothing while it is away.
    is_fleeting: bool,
}

impl Consumer {
    pub(super) fn create(
        session: &Session,
        destination: &Destination,
        options: &ConsumerOptions,
    ) -> Result<Self, SessionError> {
        let shared = &session.owner.shared;
        let core = &shared.core;
        shared.check_open()?;
        options.check(destination, core.has_client_id())?;
        if destination.is_temporary() && !core.is_own_temporary(destination) {
            return Err(SessionError::IllegalState(
                "only the connection that made a temporary destination receives from it",
            ));
        }
        shared.ensure_destination(destination)?;
        let flow = core.settings.flow.clone();
        let link = ConsumerLink::new(core.next_key(), flow, Arc::clone(&shared.link));
        let consumer = Arc::new(ConsumerShared {
            link: Arc::new(link),
            destination: destination.clone(),
            options: options.clone(),
            keeps_expired: destination.name() == DEAD_QUEUE,
            is_fleeting: destination.kind() == DestinationKind::Topic && options.is_plain(),
        });
        loop {
            let link = &consumer.link;
            let build = |packet| consumer.fill_add(packet, shared);
            let command =
                |reply_id| Some(Command::AddConsumer { reply_id, link: Arc::clone(link) });
            let kind = PacketType::ADD_CONSUMER;
            let (reply, _epoch) = core.request_linked(kind, build, command)?;
            read_id(&reply, "JMQConsumerID")?;
            shared.add_consumer(&consumer);
            match core.is_registered(kind, &link.remote) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    // Nobody will have it, so it is not made again.
                    shared.abandon_consumer(&consumer);
                    return Err(error.into());
                }
            }
            // Its link was lost before whoever restored that could know it.
            shared.forget_consumer(&consumer);
        }
        let owner = ConsumerOwner { shared: consumer, session: Arc::clone(&session.owner) };
        Ok(Self { owner: Arc::new(owner) })
    }

    /// Waits for the next message. `None` when the consumer, its session or connection is closed.
    ///
    /// In an automatic session the message is acknowledged when this returns; in a transacted one
    /// it belongs to the transaction. While a lost connection is being restored it waits.
    ///
    /// # Errors
    /// [`ReceiveError`]: the connection is lost, the acknowledgement failed, the message cannot be
    /// read, or the session has listeners. After the connection was restored:
    /// [`RequestError::Unacknowledged`] if messages of a session of mode
    /// [`AcknowledgeMode::Client`] were not acknowledged before, [`RequestError::RolledBack`] if
    /// its transaction had begun work.
    pub fn receive(&self) -> Result<Option<Message>, ReceiveError> {
        self.receive_until(None)
    }

    /// Waits for the next message, for so long at most. `None` then, and as for
    /// [`receive`](Self::receive).
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Message>, ReceiveError> {
        if timeout.is_zero() {
            return self.try_receive();
        }
        self.receive_until(clock::deadline_after(Some(timeout)))
    }

    /// The next message that has arrived, if any. Never waits for the broker to send one.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn try_receive(&self) -> Result<Option<Message>, ReceiveError> {
        let (session, consumer) = self.parts();
        session.check_no_listeners()?;
        loop {
            session.ask_for_next(consumer);
            if consumer.link.inbox.is_empty() {
                session.core.flush();
                session.core.poll(1);
            }
            match consumer.next(session) {
                Some(Next::Message(arrived)) => {
                    if let Some(message) = session.accept(consumer, &arrived, Word::Now)? {
                        return Ok(Some(message));
                    }
                }
                Some(Next::Closed) => return Ok(None),
                Some(Next::Refused(error)) => return Err(refused(error)),
                None => return lost(session.core.lost()).map(|()| None),
            }
        }
    }

    /// Hands messages to `listener` as they come, one at a time in the whole session, on the
    /// session's thread. The listener may use the session, and close this consumer, but not its
    /// session or connection.
    ///
    /// The listener lives as long as the consumer is open: keep a handle of it.
    ///
    /// A listener that panics gets the message again, as often as
    /// `imqOnMessageExceptionRedeliveryAttempts` says; then the broker is told that it cannot be
    /// delivered. In a session of mode [`AcknowledgeMode::Client`] it gets the message once, which
    /// stays unacknowledged; in a transaction once, too, and the message belongs to the transaction
    /// from before the call on.
    ///
    /// ```
    /// # use std::sync::mpsc::channel;
    /// # use tidegate::client::AcknowledgeMode;
    /// # use tidegate::message::{Destination, Message};
    /// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
    /// # let mut factory = tidegate::client::ConnectionFactory::new();
    /// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
    /// # let connection = factory.create_connection()?;
    /// # let session = connection.create_session(AcknowledgeMode::Auto)?;
    /// let queue = Destination::queue("letters")?;
    /// let consumer = session.create_consumer(&queue)?;
    /// let (told, letters) = channel();
    /// consumer.set_listener(move |letter| told.send(letter).expect("somebody reads letters"))?;
    /// connection.start()?;
    /// session.create_producer(&queue)?.send(Message::text("dear"))?;
    /// assert_eq!(letters.recv()?.body_text()?.as_deref(), Some("dear"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    /// # Errors
    /// [`SessionError::IllegalState`] if it has a listener already, [`SessionError::Request`] if
    /// it is closed.
    pub fn set_listener(
        &self,
        listener: impl FnMut(Message) + Send + 'static,
    ) -> Result<(), SessionError> {
        let (session, consumer) = self.parts();
        if !consumer.link.claim_listener() {
            return Err(SessionError::IllegalState("the consumer has a listener"));
        }
        session.listen(Listener::new(Arc::clone(consumer), listener))
    }

    /// Messages that wait here for the application.
    #[must_use]
    pub fn buffered(&self) -> usize {
        usize::try_from(self.owner.shared.link.buffer.buffered()).unwrap_or(usize::MAX)
    }

    /// The consumer's id, as the broker numbered it: another one after the connection was restored.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.owner.shared.link.remote.get()
    }

    /// Closes the consumer. Waits for its running listener, unless called from a listener of the
    /// session; threads in `receive` get nothing; messages that wait go back to the broker, those
    /// handed out may still be acknowledged. Closing it again does nothing.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the broker does not answer in time.
    pub fn close(&self) -> Result<(), SessionError> {
        let (session, consumer) = self.parts();
        match session.close_consumer(consumer) {
            // It is closed all the same.
            Err(RequestError::Connection(_)) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    pub(super) fn parts(&self) -> (&Arc<SessionShared>, &Arc<ConsumerShared>) {
        (&self.owner.session.shared, &self.owner.shared)
    }

    fn receive_until(&self, deadline: Option<Instant>) -> Result<Option<Message>, ReceiveError> {
        let (session, consumer) = self.parts();
        session.check_no_listeners()?;
        loop {
            session.ask_for_next(consumer);
            let signal = &session.link.signal;
            match session.core.wait(signal, deadline, || consumer.next(session)) {
                Ok(Some(Next::Message(arrived))) => {
                    if let Some(message) = session.accept(consumer, &arrived, Word::Now)? {
                        return Ok(Some(message));
                    }
                }
                Ok(Some(Next::Refused(error))) => return Err(refused(error)),
                Ok(Some(Next::Closed) | None) => return Ok(None),
                Err(reason) => return lost(Some(reason)).map(|()| None),
            }
        }
    }
}

/// When the broker's word on an acknowledgement is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// Before the message is handed out.
    Now,
    /// By whoever comes next: see [`super::answers`].
    Later,
}

/// What a receiver finds.
#[derive(Debug)]
enum Next {
    Message(Arrived),
    Closed,
    /// The application must hear of something first.
    Refused(RequestError),
}

impl ConsumerShared {
    fn next(&self, session: &SessionShared) -> Option<Next> {
        if self.link.is_closed() {
            return Some(Next::Closed);
        }
        if !session.may_deliver() {
            return None;
        }
        if let Err(error) = session.check_work() {
            return Some(Next::Refused(error));
        }
        self.link.inbox.pop().map(Next::Message)
    }

    /// Completes a request to add this consumer to its session.
    pub(super) fn fill_add(&self, packet: PacketBuilder, session: &SessionShared) -> PacketBuilder {
        let settings = &session.core.settings;
        let packet = packet
            .string("JMQDestination", self.destination.name())
            .int("JMQDestType", self.destination.type_bits())
            .long("JMQSessionID", session.remote.get())
            .int("JMQSize", settings.flow.consumer_wish().to_wire());
        let packet = match session.mode.to_wire() {
            Some(number) => packet.int("JMQAckMode", number),
            None => packet,
        };
        self.options.fill(packet, settings.shares_client_id)
    }

    /// Whether losing the acknowledgement of this message costs at most one more delivery, so that
    /// nobody waits for the broker's word.
    pub(super) fn is_lossy(&self, packet: &Packet) -> bool {
        self.is_fleeting && !packet.header().flags.contains(Flags::PERSISTENT)
    }

    /// Completes a request to delete this consumer. `last` is the last message that was handed out
    /// and is not settled.
    pub(super) fn fill_delete(
        &self,
        packet: PacketBuilder,
        id: i64,
        last: Option<LastSeen>,
    ) -> PacketBuilder {
        let packet = packet.long("JMQConsumerID", id).boolean("JMQBlock", true);
        match last {
            Some(last) => {
                let packet = packet.int("JMQBodyType", 3).body(last.message.encode().to_vec());
                if last.in_transaction {
                    return packet.boolean("JMQLastDeliveredIDInTransaction", true);
                }
                packet
            }
            None => packet.int("JMQBodyType", 0).boolean("JMQRedeliverAll", true),
        }
    }
}

impl SessionShared {
    fn check_no_listeners(&self) -> Result<(), ReceiveError> {
        if self.has_listeners() {
            return Err(ReceiveError::IllegalState(
                "the session hands messages to listeners; receive in another session",
            ));
        }
        Ok(())
    }

    /// Takes a message for the application; `None` if it is not for handing out.
    fn accept(
        &self,
        consumer: &ConsumerShared,
        arrived: &Arrived,
        word: Word,
    ) -> Result<Option<Message>, ReceiveError> {
        let Some(block) = arrived.block(&self.core) else { return Ok(None) };
        let packet = &arrived.packet;
        let Some(message) = self.open(consumer, packet, block)? else { return Ok(None) };
        match self.mode {
            AcknowledgeMode::Auto | AcknowledgeMode::Transacted => {
                let transaction = self.transaction().map_err(AcknowledgeError::from)?;
                match word {
                    Word::Now => self
                        .acknowledge_one(consumer, packet, block, transaction)
                        .map_err(AcknowledgeError::from)?,
                    Word::Later => self.acknowledge_soon(consumer, packet, block, transaction),
                }
            }
            AcknowledgeMode::Client | AcknowledgeMode::DupsOk => {
                self.link.acks.add(&self.core, block);
            }
            AcknowledgeMode::NoAcknowledge => {}
        }
        Ok(Some(message))
    }

    /// Without prefetch: the application comes for another message, so the broker may send it.
    pub(super) fn ask_for_next(&self, consumer: &ConsumerShared) {
        if consumer.link.settle() {
            self.core.consumed(&consumer.link, 1);
        }
    }

    /// Counts a message out and reads it; `None` if it has expired. What cannot be handed out is
    /// reported to the broker.
    pub(super) fn open(
        &self,
        consumer: &ConsumerShared,
        packet: &Packet,
        block: Block,
    ) -> Result<Option<Message>, ReceiveError> {
        if consumer.link.prefetches() {
            self.core.consumed(&consumer.link, 1);
        } else {
            consumer.link.owe();
        }
        let header = packet.header();
        let expires = header.expiration != 0 && !consumer.keeps_expired;
        if expires && header.expiration < clock::wall_millis() {
            self.decline(block, Unwanted::Expired);
            return Ok(None);
        }
        match self.read(packet) {
            Ok(message) => Ok(Some(message)),
            Err(error) => {
                self.decline(block, Unwanted::Unreadable);
                Err(error.into())
            }
        }
    }

    /// The message in a packet, with the properties that it gets here.
    pub(super) fn read(&self, packet: &Packet) -> Result<Message, MessageError> {
        let mut message = Message::from_packet(packet)?;
        self.add_local_properties(&mut message);
        Ok(message)
    }

    /// Tells the broker that a message was not handed over, or in vain, unless it has forgotten it.
    pub(super) fn decline(&self, block: Block, why: Unwanted) {
        if self.mode != AcknowledgeMode::NoAcknowledge {
            acks::decline(&self.core, block, why);
        }
    }
}

impl Drop for ConsumerOwner {
    fn drop(&mut self) {
        self.session.shared.abandon_consumer(&self.shared);
    }
}

fn refused(error: RequestError) -> ReceiveError {
    AcknowledgeError::from(error).into()
}

/// An error if the connection ended for another reason than being closed here.
fn lost(reason: Option<ConnectionError>) -> Result<(), ReceiveError> {
    match reason {
        None | Some(ConnectionError::Closed) => Ok(()),
        Some(reason) => Err(reason.into()),
    }
}
