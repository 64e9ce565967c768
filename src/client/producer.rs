//! A producer: the sending handle.

mod futures;

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{
    clock,
    completion::{Call, Reply},
    core::check,
    epoch::Epoch,
    error::{RequestError, SendCause, SendError, SessionError},
    extras::{Extras, Headers},
    links::{Command, ProducerLink},
    listening,
    output::{Push, SHARED_BODY_BYTES},
    replies::reply_id,
    session::{Session, SessionOwner},
    session_state::{SessionShared, read_id},
};
use crate::{
    message::{DeliveryMode, Destination, Message, MessageError, Origin, Outgoing},
    sync::{Arc, Snapshot},
    wire::{Flags, MessageId, PacketBuilder, PacketType, Status},
};

/// Destinations that an anonymous producer stays ready for; the one used longest ago goes.
const TARGETS_MAX: usize = 64;

/// Sends messages to one destination, or to those it is told.
///
/// Shape: a handle that one owner sets up; several threads may send with it. Messages are sent
/// within the credit that the broker gives; without credit, a send waits for it.
///
/// Dropping it closes it without waiting for the broker; what was sent stays sent.
///
/// ```
/// # use std::time::Duration;
/// # use tidegate::client::AcknowledgeMode;
/// # use tidegate::message::{DeliveryMode, Destination, Message};
/// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
/// # let mut factory = tidegate::client::ConnectionFactory::new();
/// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
/// # let connection = factory.create_connection()?;
/// # let session = connection.create_session(AcknowledgeMode::Auto)?;
/// let mut producer = session.create_producer(&Destination::topic("prices")?)?;
/// producer.set_delivery_mode(DeliveryMode::NonPersistent).set_priority(7)?;
/// producer.set_time_to_live(Some(Duration::from_secs(60)));
/// producer.send(Message::text("1.25"))?;
///
/// // Without a destination of its own, it is told with each message.
/// let anyone = session.create_anonymous_producer()?;
/// anyone.send_to(&Destination::queue("complaints")?, Message::text("too dear"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Producer {
    session: Arc<SessionOwner>,
    target: Option<Arc<Target>>,
    /// Where an anonymous producer has sent to, newest last.
    others: Snapshot<Vec<Arc<Target>>>,
    headers: Headers,
    delivery_delay: Option<Duration>,
    /// What the factory's attributes add; mostly nothing.
    extras: Option<Box<Extras>>,
}

/// A destination and the broker's producer for it. Its drop closes that producer.
#[derive(Debug)]
pub(super) struct Target {
    shared: Arc<ProducerShared>,
    session: Arc<SessionShared>,
}

/// What a producer's handle and its session share.
#[derive(Debug)]
pub(super) struct ProducerShared {
    pub(super) link: Arc<ProducerLink>,
    pub(super) destination: Destination,
    /// If the next link's broker does not take it, it is closed, and the rest goes on.
    pub(super) optional: bool,
}

impl Producer {
    pub(super) fn create(
        session: &Session,
        destination: Option<&Destination>,
    ) -> Result<Self, SessionError> {
        session.owner.shared.check_open()?;
        let open = |destination| Target::open(&session.owner.shared, destination, Use::Own);
        let target = destination.map(open).transpose()?;
        Ok(Self {
            session: Arc::clone(&session.owner),
            target,
            others: Snapshot::new(Vec::new()),
            headers: Headers {
                delivery_mode: DeliveryMode::Persistent,
                priority: 4,
                time_to_live: None,
            },
            delivery_delay: None,
            extras: Extras::of(&session.owner.shared.core),
        })
    }

    /// Sets the delivery mode of what is sent from now on. Default persistent: on the broker's
    /// disk before [`send`](Self::send) returns.
    pub fn set_delivery_mode(&mut self, mode: DeliveryMode) -> &mut Self {
        self.headers.delivery_mode = mode;
        self
    }

    /// Sets the priority of what is sent from now on, 0 (lowest) to 9. Default 4.
    ///
    /// # Errors
    /// [`MessageError::Priority`] above 9.
    pub fn set_priority(&mut self, priority: u8) -> Result<&mut Self, MessageError> {
        if priority > 9 {
            return Err(MessageError::Priority { priority });
        }
        self.headers.priority = priority;
        Ok(self)
    }

    /// Sets after how long what is sent from now on expires, in whole milliseconds. Default
    /// `None`, never.
    pub fn set_time_to_live(&mut self, time: Option<Duration>) -> &mut Self {
        self.headers.time_to_live = time.filter(|time| !time.is_zero());
        self
    }

    /// Sets how long the broker keeps what is sent from now on before it delivers it, in whole
    /// milliseconds. Default `None`, not at all. A time to live counts from the send on: a message
    /// whose time to live is not longer is refused when it is sent.
    pub fn set_delivery_delay(&mut self, delay: Option<Duration>) -> &mut Self {
        self.delivery_delay = delay.filter(|delay| !delay.is_zero());
        self
    }

    /// Sends a message to the producer's destination, with the producer's mode, priority and times.
    ///
    /// A persistent message is the broker's when this returns; a non-persistent one is on its way.
    /// Returns the id under which it was sent.
    ///
    /// # Errors
    /// [`SendError`] with the message: refused, no reply, or the connection is lost. One that is
    /// being restored is waited for, as long as `imqAckTimeout` says, and the message sent then.
    pub fn send(&self, message: Message) -> Result<MessageId, SendError> {
        match &self.target {
            Some(target) => self.send_to_target(target, message),
            None => Err(SendError::new(message, MessageError::NoDestination)),
        }
    }

    /// Sends a message to `destination`, as [`send`](Self::send) does.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to(
        &self,
        destination: &Destination,
        message: Message,
    ) -> Result<MessageId, SendError> {
        match self.target_for(destination) {
            Ok(target) => self.send_to_target(&target, message),
            Err(error) => Err(SendError::new(message, error)),
        }
    }

    /// Sends a message to the producer's destination without waiting for the broker. When the
    /// broker has answered, `completion` gets the message with its id, or an error that holds it.
    ///
    /// The broker always answers such a send, whatever the delivery mode. Completions of a session
    /// run one at a time, in the order of the sends, on a thread of the session's; they may send and
    /// acknowledge, but not close their session or connection, nor commit or roll back. At most
    /// 1000 sends of a session are open at one time; more wait here, as for credit.
    ///
    /// Returns the id under which it was sent.
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
    /// let producer = session.create_producer(&Destination::queue("log")?)?;
    /// let (told, outcomes) = channel();
    /// for n in 0..100 {
    ///     let told = told.clone();
    ///     producer.send_async(Message::text(format!("line {n}")), move |outcome| {
    ///         let _nobody_asks = told.send(outcome);
    ///     })?;
    /// }
    /// for outcome in outcomes.iter().take(100) {
    ///     outcome?; // The broker has it.
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError`] with the message if it was not sent at all; `completion` is dropped then.
    pub fn send_async(
        &self,
        message: Message,
        completion: impl FnOnce(Result<Message, SendError>) + Send + 'static,
    ) -> Result<MessageId, SendError> {
        match &self.target {
            Some(target) => self.send_to_target_async(target, message, Box::new(completion)),
            None => Err(SendError::new(message, MessageError::NoDestination)),
        }
    }

    /// Sends a message to `destination`, as [`send_async`](Self::send_async) does.
    ///
    /// # Errors
    /// As [`send_async`](Self::send_async).
    pub fn send_to_async(
        &self,
        destination: &Destination,
        message: Message,
        completion: impl FnOnce(Result<Message, SendError>) + Send + 'static,
    ) -> Result<MessageId, SendError> {
        match self.target_for(destination) {
            Ok(target) => self.send_to_target_async(&target, message, Box::new(completion)),
            Err(error) => Err(SendError::new(message, error)),
        }
    }

    /// Closes the producer, after the asynchronous sends of its session, unless this is called from
    /// a completion. Closing it again does nothing; sending with it is an error then.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the broker does not answer in time.
    pub fn close(&self) -> Result<(), SessionError> {
        let others = self.others.load_full();
        close_all(&self.session.shared, self.target.iter().chain(others.iter()))
    }

    fn target_for(&self, destination: &Destination) -> Result<Arc<Target>, RequestError> {
        if let Some(target) = self.own_or_known_target(destination) {
            return Ok(target);
        }
        let target = Target::open(&self.session.shared, destination, Use::Passing)?;
        self.remember(&target);
        Ok(target)
    }

    fn own_or_known_target(&self, destination: &Destination) -> Option<Arc<Target>> {
        match &self.target {
            Some(own) if own.shared.destination == *destination => Some(Arc::clone(own)),
            _ => self.known_target(destination),
        }
    }

    fn known_target(&self, destination: &Destination) -> Option<Arc<Target>> {
        let known = |targets: &Vec<Arc<Target>>| {
            let found = targets.iter().find(|target| target.shared.destination == *destination);
            found.map(Arc::clone)
        };
        let target = self.others.read(known)?;
        // A new link's broker did not take it; this one may by now.
        let refused = target.shared.link.is_closed() && !self.session.shared.is_closing();
        (!refused).then_some(target)
    }

    fn remember(&self, target: &Arc<Target>) {
        let destination = &target.shared.destination;
        self.others.update(|targets| {
            let skip = (targets.len() + 1).saturating_sub(TARGETS_MAX);
            let other = |other: &&Arc<Target>| other.shared.destination != *destination;
            let mut kept: Vec<_> =
                targets.iter().skip(skip).filter(other).map(Arc::clone).collect();
            kept.push(Arc::clone(target));
            Some(kept)
        });
    }

    fn send_to_target(
        &self,
        target: &Target,
        mut message: Message,
    ) -> Result<MessageId, SendError> {
        let ready = self.set_headers(target, &mut message);
        match ready.and_then(|()| target.transmit(&message, None)) {
            Ok(id) => Ok(id),
            Err(cause) => Err(SendError::new(message, cause)),
        }
    }

    fn send_to_target_async(
        &self,
        target: &Arc<Target>,
        mut message: Message,
        completion: Call,
    ) -> Result<MessageId, SendError> {
        let session = &self.session.shared;
        if let Err(error) = session.open_send() {
            return Err(SendError::new(message, error));
        }
        let ready = self.set_headers(target, &mut message);
        match ready.and_then(|()| target.transmit_async(&message)) {
            Ok((id, reply)) => {
                let target = Arc::clone(target);
                session.completions.add(&session.core, message, id, reply, target, completion);
                Ok(id)
            }
            Err(cause) => {
                session.completions.close_one();
                Err(SendError::new(message, cause))
            }
        }
    }

    fn set_headers(&self, target: &Target, message: &mut Message) -> Result<(), SendCause> {
        let mut headers = self.headers;
        if let Some(extras) = &self.extras {
            headers = extras.headers(headers, &target.shared.destination);
            extras.add_properties(&self.session.shared, message)?;
        }
        message.set_destination(target.shared.destination.clone());
        message.set_delivery_mode(headers.delivery_mode);
        message.set_priority(headers.priority)?;
        Ok(self.set_times(headers.time_to_live, message)?)
    }

    fn set_times(
        &self,
        time_to_live: Option<Duration>,
        message: &mut Message,
    ) -> Result<(), MessageError> {
        let time_to_live = time_to_live.filter(|time| !time.is_zero());
        if time_to_live.is_none() && self.delivery_delay.is_none() {
            message.set_expiration(0);
            message.set_delivery_time(None);
            return Ok(());
        }
        if let (Some(time_to_live), Some(delay)) = (time_to_live, self.delivery_delay)
            && time_to_live <= delay
        {
            return Err(MessageError::ExpiresUndelivered { time_to_live, delay });
        }
        let now = clock::wall_millis();
        let after = |time: Duration| {
            now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
        };
        message.set_delivery_time(self.delivery_delay.map(after));
        message.set_expiration(time_to_live.map_or(0, after));
        Ok(())
    }
}

impl Target {
    fn open(
        session: &Arc<SessionShared>,
        destination: &Destination,
        use_: Use,
    ) -> Result<Arc<Self>, RequestError> {
        session.ensure_destination(destination)?;
        let link = Arc::new(ProducerLink::new(Arc::clone(&session.link.signal)));
        let optional = use_ == Use::Passing || destination.is_temporary();
        let destination = destination.clone();
        let shared = Arc::new(ProducerShared { link, destination, optional });
        loop {
            let link = &shared.link;
            let build = |packet| shared.fill_add(packet, session.remote.get());
            let command =
                |reply_id| Some(Command::AddProducer { reply_id, link: Arc::clone(link) });
            let kind = PacketType::ADD_PRODUCER;
            let (reply, _epoch) = session.core.request_linked(kind, build, command)?;
            read_id(&reply, "JMQProducerID")?;
            session.add_producer(&shared);
            match session.core.is_registered(kind, &shared.link.remote) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    // Nobody will have it, so it is not made again.
                    session.abandon_producer(&shared);
                    return Err(error);
                }
            }
            // Its link was lost before whoever restored that could know it.
            session.forget_producer(&shared);
        }
        Ok(Arc::new(Self { shared, session: Arc::clone(session) }))
    }

    /// Sends the message and waits for the broker's word if that is due. A link that is lost on
    /// the way is waited for, and the message sent again, under the same id so that the broker
    /// takes it once. `sent` is the id of an attempt that was made before.
    fn transmit(&self, message: &Message, sent: Option<MessageId>) -> Result<MessageId, SendCause> {
        let core = &self.session.core;
        let kind = message.kind().packet_type();
        let persistent = message.delivery_mode() == DeliveryMode::Persistent;
        let waits = sent.is_some() || core.settings.ack_on_produce.unwrap_or(persistent);
        let mut sent = sent;
        loop {
            let epoch = core.await_link(kind)?;
            self.session.catch_up(epoch);
            match self.attempt(epoch, message, waits, &mut sent) {
                Err(SendCause::Request(RequestError::Interrupted { .. })) => {}
                outcome => return outcome,
            }
        }
    }

    fn attempt(
        &self,
        epoch: Epoch,
        message: &Message,
        waits: bool,
        sent: &mut Option<MessageId>,
    ) -> Result<MessageId, SendCause> {
        let core = &self.session.core;
        let kind = message.kind().packet_type();
        let (ready, flags) = self.prepare(epoch, message)?;
        if !waits {
            return Ok(self.write(epoch, &ready, (flags, 0), Push::Soon, sent)?);
        }
        Ok(core.with_ticket(kind, |ticket| {
            let again = sent.is_some();
            let flags = flags.with(Flags::ACKNOWLEDGE).set(Flags::INDEMPOTENT, again);
            // Written when this thread waits for the reply, together with what others left.
            let id = self.write(epoch, &ready, (flags, reply_id(ticket)), Push::Later, sent)?;
            match check(kind, core.await_reply(epoch, kind, ticket)?) {
                // It had arrived before.
                Err(error) if again && error.status() == Some(Status::NOT_MODIFIED) => Ok(id),
                reply => reply.map(|_reply| id),
            }
        })?)
    }

    /// Sends the message, whose reply goes to the session's completions.
    fn transmit_async(&self, message: &Message) -> Result<(MessageId, Reply), SendCause> {
        let core = &self.session.core;
        let kind = message.kind().packet_type();
        loop {
            let epoch = core.await_link(kind)?;
            self.session.catch_up(epoch);
            let reply = self.session.completions.announce(core, epoch);
            let written = self.prepare(epoch, message).and_then(|(ready, flags)| {
                let flags = flags.with(Flags::ACKNOWLEDGE);
                Ok(self.write(epoch, &ready, (flags, reply.id), Push::Soon, &mut None)?)
            });
            match written {
                Ok(id) => return Ok((id, reply)),
                Err(cause) => {
                    core.command(Command::ForgetReply(reply.id));
                    if !matches!(cause, SendCause::Request(RequestError::Interrupted { .. })) {
                        return Err(cause);
                    }
                }
            }
        }
    }

    /// Sends a message again whose link was lost before the broker had answered.
    pub(super) fn send_again(
        &self,
        message: &Message,
        sent: MessageId,
    ) -> Result<(), RequestError> {
        match self.transmit(message, Some(sent)) {
            Ok(_id) => Ok(()),
            Err(SendCause::Request(error)) => Err(error),
            Err(SendCause::Message(_)) => unreachable!("it was written before"),
        }
    }

    /// The message, ready to be written, with the right to send it: the flags it must carry.
    fn prepare<'a>(
        &self,
        epoch: Epoch,
        message: &'a Message,
    ) -> Result<(Outgoing<'a>, Flags), SendCause> {
        let session = &self.session;
        let ready = self.check(message)?;
        let open = || session.check_open().is_ok();
        let kind = message.kind().packet_type();
        let flags = session.core.take_credit(epoch, kind, &self.shared.link, open)?;
        Ok((ready, flags))
    }

    /// The message, ready to be written, in the transaction of now.
    fn check<'a>(&self, message: &'a Message) -> Result<Outgoing<'a>, SendCause> {
        let session = &self.session;
        let transaction_id = session.transaction()?;
        if transaction_id.is_some() {
            session.touch();
        }
        let producer_id = Some(self.shared.link.remote.get());
        Ok(message.outgoing(&Origin { producer_id, transaction_id })?)
    }

    fn write(
        &self,
        epoch: Epoch,
        ready: &Outgoing<'_>,
        (flags, reply_id): (Flags, i64),
        push: Push,
        sent: &mut Option<MessageId>,
    ) -> Result<MessageId, RequestError> {
        let core = &self.session.core;
        let mut id = MessageId::default();
        core.submit_message(epoch, ready.packet_type(), push, |out| {
            id = *sent.get_or_insert_with(|| core.stamp.next());
            put(ready, id, (flags, reply_id), out)
        })?;
        Ok(id)
    }
}

/// Writes a message, but for a large body, which is given back to be written from where it is.
fn put(
    ready: &Outgoing<'_>,
    id: MessageId,
    (flags, reply_id): (Flags, i64),
    out: &mut BytesMut,
) -> Option<Bytes> {
    ready.put(id, flags, reply_id, out);
    let body = ready.body();
    if body.len() >= SHARED_BODY_BYTES {
        return Some(body.clone());
    }
    out.extend_from_slice(body);
    None
}

impl ProducerShared {
    /// Completes a request to add this producer to a session.
    pub(super) fn fill_add(&self, packet: PacketBuilder, session: i64) -> PacketBuilder {
        packet
            .string("JMQDestination", self.destination.name())
            .int("JMQDestType", self.destination.type_bits())
            .long("JMQSessionID", session)
    }
}

/// Closes what is open of these, after the asynchronous sends of their session, unless this is
/// called from a completion.
fn close_all<'a>(
    session: &SessionShared,
    targets: impl Iterator<Item = &'a Arc<Target>>,
) -> Result<(), SessionError> {
    if !listening::in_completion(session.key()) {
        session.await_completions();
    }
    let mut outcome = Ok(());
    for target in targets {
        if target.shared.link.close() {
            let deleted = session.delete_producer(&target.shared);
            outcome = outcome.and(deleted);
        }
    }
    match outcome {
        // It is closed all the same.
        Err(RequestError::Connection(_)) => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// What a target is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It is the destination of its producer.
    Own,
    /// One of those that an anonymous producer is told.
    Passing,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.session.abandon_producer(&self.shared);
    }
}
