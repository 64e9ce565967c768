//! A producer: the sending handle.

use std::time::Duration;

use super::{
    clock,
    completion::{Call, Reply},
    core::check,
    error::{RequestError, SendCause, SendError, SessionError},
    extras::{Extras, Headers},
    links::{Command, ProducerLink},
    listening,
    output::Push,
    session::{Session, SessionOwner},
    session_state::{SessionShared, read_id},
};
use crate::{
    message::{DeliveryMode, Destination, Message, MessageError, Origin},
    sync::{Arc, Snapshot},
    wire::{Flags, MessageId, PacketBuilder, PacketType},
};

/// Destinations that an anonymous producer stays ready for; the one used longest ago goes.
const TARGETS_MAX: usize = 64;

/// Sends messages to one destination, or to those it is told.
///
/// Shape: a handle that one owner sets up; several threads may send with it. Messages are sent
/// within the credit that the broker gives; without credit, a send waits for it.
///
/// Dropping it closes it without waiting for the broker; what was sent stays sent.
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
struct Target {
    destination: Destination,
    shared: Arc<ProducerShared>,
    session: Arc<SessionShared>,
}

/// What a producer's handle and its session share.
#[derive(Debug)]
pub(super) struct ProducerShared {
    pub(super) id: i64,
    pub(super) link: Arc<ProducerLink>,
}

impl Producer {
    pub(super) fn create(
        session: &Session,
        destination: Option<&Destination>,
    ) -> Result<Self, SessionError> {
        session.owner.shared.check_open()?;
        let open = |destination| Target::open(&session.owner.shared, destination);
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
    /// milliseconds. Default `None`, not at all.
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
    /// [`SendError`] with the message: refused, no reply, or the connection is lost.
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
        match self.target_or_own(destination) {
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
        match self.target_or_own(destination) {
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
        let session = &self.session.shared;
        if !listening::in_completion(session.key()) {
            session.await_completions();
        }
        let others = self.others.load_full();
        let mut outcome = Ok(());
        for target in self.target.iter().chain(others.iter()) {
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

    fn target_or_own(&self, destination: &Destination) -> Result<Arc<Target>, RequestError> {
        match &self.target {
            Some(own) if own.destination == *destination => Ok(Arc::clone(own)),
            _ => self.target_for(destination),
        }
    }

    fn target_for(&self, destination: &Destination) -> Result<Arc<Target>, RequestError> {
        let known = |targets: &Vec<Arc<Target>>| {
            targets.iter().find(|target| target.destination == *destination).map(Arc::clone)
        };
        if let Some(target) = self.others.read(known) {
            return Ok(target);
        }
        let target = Target::open(&self.session.shared, destination)?;
        self.others.update(|targets| {
            let skip = (targets.len() + 1).saturating_sub(TARGETS_MAX);
            let mut kept: Vec<_> = targets.iter().skip(skip).map(Arc::clone).collect();
            kept.push(Arc::clone(&target));
            Some(kept)
        });
        Ok(target)
    }

    fn send_to_target(
        &self,
        target: &Target,
        mut message: Message,
    ) -> Result<MessageId, SendError> {
        let ready = self.set_headers(target, &mut message);
        match ready.and_then(|()| self.transmit(target, &message)) {
            Ok(id) => Ok(id),
            Err(cause) => Err(SendError::new(message, cause)),
        }
    }

    fn send_to_target_async(
        &self,
        target: &Target,
        mut message: Message,
        completion: Call,
    ) -> Result<MessageId, SendError> {
        let session = &self.session.shared;
        if let Err(error) = session.open_send() {
            return Err(SendError::new(message, error));
        }
        let ready = self.set_headers(target, &mut message);
        match ready.and_then(|()| self.transmit_async(target, &message)) {
            Ok((id, reply)) => {
                session.completions.add(&session.core, message, id, reply, completion);
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
            headers = extras.headers(headers, &target.destination);
            extras.add_properties(&self.session.shared, message)?;
        }
        message.set_destination(target.destination.clone());
        message.set_delivery_mode(headers.delivery_mode);
        message.set_priority(headers.priority)?;
        self.set_times(headers.time_to_live, message);
        Ok(())
    }

    fn set_times(&self, time_to_live: Option<Duration>, message: &mut Message) {
        let time_to_live = time_to_live.filter(|time| !time.is_zero());
        if time_to_live.is_none() && self.delivery_delay.is_none() {
            message.set_expiration(0);
            message.set_delivery_time(None);
            return;
        }
        let now = clock::wall_millis();
        let after = |time: Duration| {
            now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
        };
        let delay = self.delivery_delay.unwrap_or_default();
        message.set_delivery_time(self.delivery_delay.map(after));
        // The time to live begins when the message may be delivered.
        message.set_expiration(time_to_live.map_or(0, |time| after(time.saturating_add(delay))));
    }

    /// The packet, with the right to send it.
    fn prepare(&self, target: &Target, message: &Message) -> Result<PacketBuilder, SendCause> {
        let session = &self.session.shared;
        let transaction_id = session.transaction()?;
        let origin = Origin { producer_id: Some(target.shared.id), transaction_id };
        let packet = message.encode(&origin)?;
        let open = || session.check_open().is_ok();
        Ok(packet.flags(session.core.take_credit(&target.shared.link, open)?))
    }

    fn transmit(&self, target: &Target, message: &Message) -> Result<MessageId, SendCause> {
        let core = &self.session.shared.core;
        let packet = self.prepare(target, message)?;
        let kind = message.kind().packet_type();
        let persistent = message.delivery_mode() == DeliveryMode::Persistent;
        let waits = core.settings.ack_on_produce.unwrap_or(persistent);
        if !waits {
            return Ok(self.write(packet, Push::Soon)?);
        }
        Ok(core.with_ticket(kind, |ticket| {
            let packet = packet.flags(Flags::ACKNOWLEDGE).consumer_id(ticket.reply_id());
            // Written when this thread waits for the reply, together with what others left.
            let id = self.write(packet, Push::Later)?;
            check(kind, core.await_reply(kind, ticket)?)?;
            Ok(id)
        })?)
    }

    fn transmit_async(
        &self,
        target: &Target,
        message: &Message,
    ) -> Result<(MessageId, Reply), SendCause> {
        let session = &self.session.shared;
        let packet = self.prepare(target, message)?;
        let reply = session.completions.announce(&session.core);
        let packet = packet.flags(Flags::ACKNOWLEDGE).consumer_id(reply.id);
        Ok((self.write(packet, Push::Soon)?, reply))
    }

    fn write(&self, packet: PacketBuilder, push: Push) -> Result<MessageId, RequestError> {
        let core = &self.session.shared.core;
        let mut sent = MessageId::default();
        core.submit_with(push, || {
            sent = core.stamp.next();
            packet.id(sent).finish_parts()
        })?;
        Ok(sent)
    }
}

impl Target {
    fn open(
        session: &Arc<SessionShared>,
        destination: &Destination,
    ) -> Result<Arc<Self>, RequestError> {
        session.ensure_destination(destination)?;
        let link = Arc::new(ProducerLink::new(Arc::clone(&session.link.signal)));
        let session_id = session.id;
        let build = |packet: PacketBuilder| {
            packet
                .string("JMQDestination", destination.name())
                .int("JMQDestType", destination.type_bits())
                .long("JMQSessionID", session_id)
        };
        let command = |reply_id| Some(Command::AddProducer { reply_id, link: Arc::clone(&link) });
        let reply = session.core.request_linked(PacketType::ADD_PRODUCER, build, command)?;
        let id = read_id(&reply, "JMQProducerID")?;
        let shared = Arc::new(ProducerShared { id, link });
        session.add_producer(&shared);
        let (destination, session) = (destination.clone(), Arc::clone(session));
        Ok(Arc::new(Self { destination, shared, session }))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.session.abandon_producer(&self.shared);
    }
}
