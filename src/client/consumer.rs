//! A consumer: the receiving handle.

use std::time::{Duration, Instant};

use super::{
    acks::{self, Block, Unwanted},
    clock,
    error::{AcknowledgeError, ConnectionError, ReceiveError, SessionError},
    links::{Command, ConsumerLink},
    listener::Listener,
    options::ConsumerOptions,
    session::{AcknowledgeMode, Session, SessionOwner},
    session_state::{LastSeen, SessionShared, read_id},
};
use crate::{
    message::{Destination, DestinationKind, Message},
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
    pub(super) id: i64,
    pub(super) link: Arc<ConsumerLink>,
    pub(super) destination: Destination,
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
        let wish = flow.consumer_wish().to_wire();
        let link = Arc::new(ConsumerLink::new(flow, Arc::clone(&shared.link)));
        let (mode, session_id) = (shared.mode.to_wire(), shared.id);
        let build = |packet: PacketBuilder| {
            let packet = packet
                .string("JMQDestination", destination.name())
                .int("JMQDestType", destination.type_bits())
                .long("JMQSessionID", session_id)
                .int("JMQSize", wish);
            let packet = match mode {
                Some(number) => packet.int("JMQAckMode", number),
                None => packet,
            };
            options.fill(packet, core.settings.shares_client_id)
        };
        let command = |reply_id| Some(Command::AddConsumer { reply_id, link: Arc::clone(&link) });
        let reply = core.request_linked(PacketType::ADD_CONSUMER, build, command)?;
        let id = read_id(&reply, "JMQConsumerID")?;
        let consumer = Arc::new(ConsumerShared {
            id,
            link,
            destination: destination.clone(),
            keeps_expired: destination.name() == DEAD_QUEUE,
            is_fleeting: destination.kind() == DestinationKind::Topic && options.is_plain(),
        });
        shared.add_consumer(&consumer);
        let owner = ConsumerOwner { shared: consumer, session: Arc::clone(&session.owner) };
        Ok(Self { owner: Arc::new(owner) })
    }

    /// Waits for the next message. `None` when the consumer, its session or connection is closed.
    ///
    /// In an automatic session the message is acknowledged when this returns; in a transacted one
    /// it belongs to the transaction.
    ///
    /// # Errors
    /// [`ReceiveError`]: the connection is lost, the acknowledgement failed, the message cannot be
    /// read, or the session has listeners.
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
                Some(Next::Message(packet)) => {
                    if let Some(message) = session.accept(consumer, &packet)? {
                        return Ok(Some(message));
                    }
                }
                Some(Next::Closed) => return Ok(None),
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

    /// The consumer's id, as the broker numbered it.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.owner.shared.id
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
            Err(super::error::RequestError::Connection(_)) => Ok(()),
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
                Ok(Some(Next::Message(packet))) => {
                    if let Some(message) = session.accept(consumer, &packet)? {
                        return Ok(Some(message));
                    }
                }
                Ok(Some(Next::Closed) | None) => return Ok(None),
                Err(reason) => return lost(Some(reason)).map(|()| None),
            }
        }
    }
}

/// What a receiver finds.
#[derive(Debug)]
enum Next {
    Message(Packet),
    Closed,
}

impl ConsumerShared {
    fn next(&self, session: &SessionShared) -> Option<Next> {
        if self.link.is_closed() {
            return Some(Next::Closed);
        }
        if !session.may_deliver() {
            return None;
        }
        self.link.inbox.pop().map(Next::Message)
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
        last: Option<LastSeen>,
    ) -> PacketBuilder {
        let packet = packet.long("JMQConsumerID", self.id).boolean("JMQBlock", true);
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
        packet: &Packet,
    ) -> Result<Option<Message>, ReceiveError> {
        let Some(message) = self.open(consumer, packet)? else { return Ok(None) };
        match self.mode {
            AcknowledgeMode::Auto | AcknowledgeMode::Transacted => {
                let transaction = self.transaction();
                transaction
                    .and_then(|id| self.acknowledge_one(consumer, packet, id))
                    .map_err(AcknowledgeError::from)?;
            }
            AcknowledgeMode::Client | AcknowledgeMode::DupsOk => {
                self.link.acks.add(&self.core, Block::of(packet.header()));
            }
            AcknowledgeMode::NoAcknowledge => {}
        }
        Ok(Some(message))
    }

    /// Without prefetch: the application comes for another message, so the broker may send it.
    pub(super) fn ask_for_next(&self, consumer: &ConsumerShared) {
        if consumer.link.settle() {
            self.core.consumed(consumer.id, &consumer.link, 1);
        }
    }

    /// Counts a message out and reads it; `None` if it has expired. What cannot be handed out is
    /// reported to the broker.
    pub(super) fn open(
        &self,
        consumer: &ConsumerShared,
        packet: &Packet,
    ) -> Result<Option<Message>, ReceiveError> {
        if consumer.link.prefetches() {
            self.core.consumed(consumer.id, &consumer.link, 1);
        } else {
            consumer.link.owe();
        }
        let header = packet.header();
        let expires = header.expiration != 0 && !consumer.keeps_expired;
        if expires && header.expiration < clock::wall_millis() {
            self.decline(packet, Unwanted::Expired);
            return Ok(None);
        }
        match Message::from_packet(packet) {
            Ok(mut message) => {
                self.add_local_properties(&mut message);
                Ok(Some(message))
            }
            Err(error) => {
                self.decline(packet, Unwanted::Unreadable);
                Err(error.into())
            }
        }
    }

    /// Tells the broker that a message was not handed over, or in vain, unless it has forgotten it.
    pub(super) fn decline(&self, packet: &Packet, why: Unwanted) {
        if self.mode != AcknowledgeMode::NoAcknowledge {
            acks::decline(&self.core, Block::of(packet.header()), why);
        }
    }
}

impl Drop for ConsumerOwner {
    fn drop(&mut self) {
        self.session.shared.abandon_consumer(&self.shared);
    }
}

/// An error if the connection ended for another reason than being closed here.
fn lost(reason: Option<ConnectionError>) -> Result<(), ReceiveError> {
    match reason {
        None | Some(ConnectionError::Closed) => Ok(()),
        Some(reason) => Err(reason.into()),
    }
}
