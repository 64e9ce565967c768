//! Looking at a queue without taking anything from it.
//!
//! ```text
//!  VERIFY_DESTINATION -> is it there, is the selector good
//!  BROWSE             -> the ids of all its messages, in the order of their delivery
//!  DELIVER some ids   -> those messages that are still there, the last one marked; again
//! ```
//!
//! The messages come to a number of their own, as those of a consumer do, and even while the
//! connection is stopped.

use bytes::Bytes;

use super::{
    clock,
    epoch::Epoch,
    error::{BrowseError, RequestError, SessionError},
    links::{Command, ConsumerLink},
    session::{Session, SessionOwner},
    session_state::read_id,
};
use crate::{
    message::{Destination, DestinationKind, Message},
    sync::Arc,
    wire::{Flags, MessageId, Packet, PacketBuilder, PacketType, Status},
};

/// Looks at the messages of a queue.
///
/// Shape: a handle; clones look at the same queue. Each call of [`messages`](Self::messages) looks
/// anew. It counts as no consumer. Dropping it does nothing.
///
/// ```
/// # use tidegate::client::AcknowledgeMode;
/// # use tidegate::message::{Destination, Message};
/// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
/// # let mut factory = tidegate::client::ConnectionFactory::new();
/// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
/// # let connection = factory.create_connection()?;
/// # let session = connection.create_session(AcknowledgeMode::Auto)?;
/// let queue = Destination::queue("letters")?;
/// let producer = session.create_producer(&queue)?;
/// for text in ["one", "two"] {
///     producer.send(Message::text(text))?;
/// }
/// let browser = session.create_browser(&queue, None)?;
/// assert_eq!(browser.messages()?.count(), 2);
/// assert_eq!(browser.messages()?.count(), 2); // They are all still there.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Browser {
    session: Arc<SessionOwner>,
    queue: Destination,
    selector: Option<String>,
}

/// The messages of a queue as they were when [`Browser::messages`] was called, but for those that
/// have gone since; fetched from the broker as they are asked for.
///
/// Shape: an iterator over copies, in the order in which they would be delivered. After an error
/// that is not about one message alone it ends, and so it does when the connection is lost, even
/// if that is restored. Dropping it lets go of what was fetched ahead.
#[derive(Debug)]
#[must_use = "nothing is fetched before it is asked for"]
pub struct Browse {
    session: Arc<SessionOwner>,
    /// The link on which the broker knows it; it does not outlive that.
    epoch: Epoch,
    id: i64,
    link: Arc<ConsumerLink>,
    /// Ids of messages that were not asked for yet.
    ids: Bytes,
    /// Messages of the last batch that may still come.
    coming: usize,
}

impl Browser {
    pub(super) fn create(
        session: &Session,
        queue: &Destination,
        selector: Option<&str>,
    ) -> Result<Self, SessionError> {
        if queue.kind() != DestinationKind::Queue {
            return Err(SessionError::IllegalState("only queues are browsed"));
        }
        let shared = &session.owner.shared;
        shared.check_open()?;
        let selector = selector.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let browser = Self { session: Arc::clone(&session.owner), queue: queue.clone(), selector };
        let verified =
            shared.core.request(PacketType::VERIFY_DESTINATION, |packet| browser.fill(packet));
        match verified {
            // Whether it may be created is for the broker to say.
            Err(error) if error.status() == Some(Status::NOT_FOUND) => {
                shared.ensure_destination(queue)?;
            }
            verified => drop(verified?),
        }
        Ok(browser)
    }

    /// Looks at the queue as it is now. Messages that are expired, not yet due, or uncommitted are
    /// not among them.
    ///
    /// # Errors
    /// [`SessionError::Request`]: 404 the queue is gone, 403 forbidden; or the session is closed.
    pub fn messages(&self) -> Result<Browse, SessionError> {
        let shared = &self.session.shared;
        shared.check_open()?;
        let flow = shared.core.settings.flow.clone();
        let key = shared.core.next_key();
        let link = Arc::new(ConsumerLink::new(key, flow, Arc::clone(&shared.link)));
        let command = |reply_id| Some(Command::AddConsumer { reply_id, link: Arc::clone(&link) });
        let fill = |packet: PacketBuilder| self.fill(packet);
        let (reply, epoch) = shared.core.request_linked(PacketType::BROWSE, fill, command)?;
        let id = read_id(&reply, "JMQConsumerID")?;
        let session = Arc::clone(&self.session);
        Ok(Browse { session, epoch, id, link, ids: reply.body(), coming: 0 })
    }

    /// The queue.
    #[must_use]
    pub const fn queue(&self) -> &Destination {
        &self.queue
    }

    /// The selector, if there is one.
    #[must_use]
    pub fn selector(&self) -> Option<&str> {
        self.selector.as_deref()
    }

    fn fill(&self, packet: PacketBuilder) -> PacketBuilder {
        let packet = packet
            .string("JMQDestination", self.queue.name())
            .int("JMQDestType", self.queue.type_bits());
        match &self.selector {
            Some(selector) => packet.string("JMQSelector", selector),
            None => packet,
        }
    }
}

impl Browse {
    /// Asks for the next messages; whether some will come.
    fn ask(&mut self) -> Result<bool, RequestError> {
        let core = &self.session.shared.core;
        self.session.shared.check_open()?;
        let most = usize::try_from(core.settings.browse_batch).unwrap_or(usize::MAX);
        let count = (self.ids.len() / MessageId::LEN).min(most);
        let ids = self.ids.split_to(count * MessageId::LEN);
        let id = self.id;
        let asked = core.request_on(self.epoch, PacketType::DELIVER, |packet| {
            packet.long("JMQConsumerID", id).body(ids.clone())
        });
        match asked {
            // All of these have gone.
            Err(error) if error.status() == Some(Status::NOT_FOUND) => Ok(false),
            asked => {
                drop(asked?);
                self.coming = count;
                Ok(true)
            }
        }
    }

    /// Waits for a message that was asked for.
    fn await_next(&self) -> Result<Packet, BrowseError> {
        let shared = &self.session.shared;
        let longest = shared.core.settings.browse_timeout;
        let ready = || match self.link.inbox.pop() {
            Some(arrived) => Some(Ok(arrived.packet)),
            None if shared.core.epoch() != self.epoch => {
                Some(Err(shared.core.interrupted(PacketType::DELIVER)))
            }
            None => shared.check_open().err().map(Err),
        };
        let deadline = clock::deadline_after(longest);
        match shared.core.wait(&shared.link.signal, deadline, ready) {
            Ok(Some(outcome)) => Ok(outcome?),
            Ok(None) => Err(BrowseError::TimedOut { waited: longest.unwrap_or_default() }),
            Err(reason) => Err(RequestError::from(reason).into()),
        }
    }

    fn take(&mut self, packet: &Packet) -> Result<Message, BrowseError> {
        self.session.shared.core.consumed(&self.link, 1);
        let last = packet.header().flags.contains(Flags::LAST);
        self.coming = if last { 0 } else { self.coming.saturating_sub(1) };
        Ok(Message::from_packet(packet)?)
    }

    fn next_packet(&mut self) -> Option<Result<Packet, BrowseError>> {
        while self.coming == 0 {
            if self.ids.len() < MessageId::LEN {
                return None;
            }
            match self.ask() {
                Ok(_some_come) => {}
                Err(error) => return Some(Err(error.into())),
            }
        }
        Some(self.await_next())
    }
}

impl Iterator for Browse {
    type Item = Result<Message, BrowseError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_packet()? {
            Ok(packet) => Some(self.take(&packet)),
            Err(error) => {
                self.ids = Bytes::new();
                self.coming = 0;
                Some(Err(error))
            }
        }
    }
}

impl std::iter::FusedIterator for Browse {}

impl Drop for Browse {
    fn drop(&mut self) {
        self.session.shared.let_go(&self.link);
    }
}
