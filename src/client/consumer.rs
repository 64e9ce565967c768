//! A consumer: the receiving handle.

use std::time::{Duration, Instant};

use super::{
    acks::{self, Block, Unwanted},
    clock,
    error::{AcknowledgeError, ConnectionError, ReceiveError, SessionError},
    links::{Command, ConsumerLink},
    listener::Listener,
    session::{AcknowledgeMode, Session, SessionOwner, SessionShared, read_id},
};
use crate::{
    message::{Destination, DestinationKind, Message},
    sync::Arc,
    wire::{Packet, PacketBuilder, PacketType},
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
    /// Expired messages are handed out too.
    keeps_expired: bool,
}

/// What a consumer wants beside its destination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsumerOptions {
    selector: Option<String>,
    durable: Option<String>,
    no_local: bool,
}

impl ConsumerOptions {
    /// Every message of the destination, as long as the consumer is open.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only messages that this selector matches. Default none; a blank one counts as none.
    pub fn selector(&mut self, selector: &str) -> &mut Self {
        self.selector = Some(selector.trim().to_owned()).filter(|text| !text.is_empty());
        self
    }

    /// Of a topic: keeps messages under this name while no consumer is there. Default none; the
    /// connection needs a client id.
    pub fn durable(&mut self, name: &str) -> &mut Self {
        self.durable = Some(name.to_owned());
        self
    }

    /// Of a topic: no messages that were sent on the same connection. Default is to get them.
    pub fn no_local(&mut self) -> &mut Self {
        self.no_local = true;
        self
    }
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
        if options.no_local && destination.kind() == DestinationKind::Queue {
            return Err(SessionError::IllegalState("no-local is for topics"));
        }
        if !destination.is_temporary() {
            shared.ensure_destination(destination)?;
        }
        let flow = core.settings.flow.clone();
        let wish = flow.consumer_wish().to_wire();
        let link = Arc::new(ConsumerLink::new(flow, Arc::clone(&shared.link.signal)));
        let (mode, session_id) = (shared.mode.to_wire(), shared.id);
        let build = |packet: PacketBuilder| {
            let mut packet = packet
                .string("JMQDestination", destination.name())
                .int("JMQDestType", destination.type_bits())
                .long("JMQSessionID", session_id)
                .int("JMQAckMode", mode)
                .int("JMQSize", wish)
                .boolean("JMQNoLocal", options.no_local)
                .boolean("JMQReconnect", false)
                .boolean("JMQShare", false);
            if let Some(selector) = &options.selector {
                packet = packet.string("JMQSelector", selector);
            }
            if let Some(name) = &options.durable {
                packet = packet.string("JMQDurableName", name);
            }
            packet
        };
        let command = |reply_id| Some(Command::AddConsumer { reply_id, link: Arc::clone(&link) });
        let reply = core.request_linked(PacketType::ADD_CONSUMER, build, command)?;
        let id = read_id(&reply, "JMQConsumerID")?;
        let keeps_expired = destination.name() == DEAD_QUEUE;
        let consumer = Arc::new(ConsumerShared { id, link, keeps_expired });
        shared.add_consumer(&consumer);
        let owner = ConsumerOwner { shared: consumer, session: Arc::clone(&session.owner) };
        Ok(Self { owner: Arc::new(owner) })
    }

    /// Waits for the next message. `None` when the consumer, its session or connection is closed.
    ///
    /// In an automatic session the message is acknowledged when this returns.
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
    /// delivered. (In a session of mode [`AcknowledgeMode::Client`] it stays unacknowledged.)
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

    fn parts(&self) -> (&Arc<SessionShared>, &Arc<ConsumerShared>) {
        (&self.owner.session.shared, &self.owner.shared)
    }

    fn receive_until(&self, deadline: Option<Instant>) -> Result<Option<Message>, ReceiveError> {
        let (session, consumer) = self.parts();
        session.check_no_listeners()?;
        loop {
            session.ask_for_next(consumer);
            let signal = &consumer.link.signal;
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

    /// Completes a request to delete this consumer. `last` is the last message that was handed out
    /// and may still be acknowledged.
    pub(super) fn fill_delete(&self, packet: PacketBuilder, last: Option<Block>) -> PacketBuilder {
        let packet = packet.long("JMQConsumerID", self.id).boolean("JMQBlock", true);
        match last {
            Some(block) => packet.int("JMQBodyType", 3).body(block.message.encode().to_vec()),
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
        let block = Block::of(packet.header());
        match self.mode {
            AcknowledgeMode::Auto => {
                acks::acknowledge(&self.core, &[block], self.answer())
                    .map_err(AcknowledgeError::from)?;
            }
            AcknowledgeMode::Client | AcknowledgeMode::DupsOk => {
                self.link.acks.add(&self.core, block);
            }
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
            acks::decline(&self.core, Block::of(header), Unwanted::Expired);
            return Ok(None);
        }
        Message::from_packet(packet).map(Some).map_err(|error| {
            acks::decline(&self.core, Block::of(header), Unwanted::Unreadable);
            error.into()
        })
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
