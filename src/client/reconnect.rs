//! Restoring a lost link: to the same broker or another one, with everything that was registered.
//!
//! The housekeeping thread does it, while everybody else sleeps: it walks the address list, logs
//! in, and registers sessions, consumers and producers again over the new socket, which nobody else
//! knows yet. Only when all of that has worked does the connection go on, with another epoch.
//!
//! ```text
//!  lost -> rest -> address -> HELLO (with the lost connection's id) ... client id
//!        -> CREATE_SESSION each -> temporary destinations -> ADD_CONSUMER each (with its old id)
//!        -> ADD_PRODUCER each -> START_TRANSACTION -> the new epoch -> START
//! ```
//!
//! What waited in consumers is forgotten, as the broker sends it again, flagged. What cannot be
//! made good, a transaction with work in it or messages to be acknowledged, is noted in its
//! session, whose user must hear of it.
//!
//! # Source
//! The wire protocol, reconnect and fail-over.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use super::{
    address::Address,
    clock,
    connect::{self, Caller},
    consumer::ConsumerShared,
    core::{Core, LoggedIn},
    epoch::Epoch,
    error::AttemptError,
    event::ConnectionEvent,
    link::Link,
    links::Command,
    output::Push,
    producer::ProducerShared,
    reading::{Input, credit_of},
    session::AcknowledgeMode,
    session_state::SessionShared,
    settings::Settings,
    walk::{Step, Walk},
};
use crate::{
    flow::Credit,
    message::Destination,
    proto::client::{ClientEvent, ConnectionError, read_status, request},
    sync::Arc,
    wire::{Frame, Packet, PacketBuilder, PacketType, Status, limits::PACKET_BYTES_MAX},
};

/// How often everything is registered at most before the connection is given up.
const REBUILDS_MAX: u32 = 100;

/// Words for a request that a broker refuses while the link is restored.
const STEP: &str = "what the lost connection had";

/// Where a connection was, to begin there when it must be restored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whereabouts {
    /// Its place in the address list.
    pub(super) address: usize,
}

impl Core {
    /// Makes a new link after the last one was lost, or ends the connection. `whereabouts` tells
    /// where the last one was, and then where the new one is.
    pub(super) fn restore(&self, whereabouts: &mut Whereabouts) {
        let reason = self.outage();
        tracing::info!(%reason, "the connection to the broker is lost and will be restored");
        self.tell(&ConnectionEvent::Lost { reason: reason.clone() });
        for session in self.sessions.load_full().iter() {
            session.lose_work();
        }
        let outcome = self.walk(whereabouts, reason);
        match outcome {
            Ok(Some(address)) => {
                tracing::info!(address, "the connection to the broker is restored");
                self.tell(&ConnectionEvent::Restored { address });
            }
            Ok(None) => {}
            Err(reason) => {
                tracing::warn!(%reason, "the connection to the broker is given up");
                self.fail(reason);
            }
        }
    }

    pub(super) fn tell(&self, event: &ConnectionEvent) {
        if let Some(observer) = &*self.observer.load_full() {
            let told = catch_unwind(AssertUnwindSafe(|| observer.tell(event)));
            if told.is_err() {
                tracing::warn!(?event, "an observer of the connection panicked");
            }
        }
    }

    /// Tries addresses until one works; `None` if somebody closes the connection meanwhile.
    ///
    /// # Errors
    /// Why the connection ends: the broker refuses it, or no address works.
    fn walk(
        &self,
        whereabouts: &mut Whereabouts,
        lost: ConnectionError,
    ) -> Result<Option<String>, ConnectionError> {
        let settings = self.settings_to_restore();
        let addresses = settings.address_list();
        let random = u64::from_ne_bytes(connect::random());
        let mut last: Option<ConnectionError> = None;
        let (mut attempt, mut rebuilds) = (0, 0);
        for step in Walk::again(&settings, random, whereabouts.address) {
            if self.is_closing() || self.lost().is_some() {
                return Ok(None);
            }
            let place = match step {
                Step::Rest(time) => {
                    let ended = || self.is_closing() || self.lost().is_some();
                    let deadline = clock::deadline_after(Some(time));
                    while !ended() && deadline.is_none_or(|deadline| clock::now() < deadline) {
                        self.keeper.sleep_unless(ended, deadline);
                    }
                    continue;
                }
                Step::Try { address, .. } => address,
            };
            attempt += 1;
            let address = &addresses[place];
            self.tell(&ConnectionEvent::Trying { address: address.to_string(), attempt });
            let error = match self.try_address(address) {
                Ok(()) => {
                    whereabouts.address = place;
                    return Ok(Some(address.to_string()));
                }
                Err(Failed::Attempt(AttemptError::Login { cause, .. }))
                    if connect::is_final(&cause) && !is_conflict(&cause) =>
                {
                    return Err(cause);
                }
                Err(Failed::Attempt(error)) => {
                    tracing::debug!(%address, %error, "no connection");
                    if let AttemptError::Login { cause, .. } = error { Some(cause) } else { None }
                }
                Err(Failed::Rebuild(cause)) => {
                    tracing::debug!(%address, %cause, "not everything could be registered again");
                    rebuilds += 1;
                    if rebuilds >= REBUILDS_MAX {
                        return Err(cause);
                    }
                    Some(cause)
                }
            };
            last = error.or(last);
        }
        let cause = Box::new(last.unwrap_or(lost));
        Err(ConnectionError::NotRestored { attempts: attempt, cause })
    }

    /// The settings, with what the last broker said if it is one of several that take over.
    fn settings_to_restore(&self) -> Settings {
        let brokers = self.welcome(|welcome| welcome.takeover.then(|| welcome.brokers.clone()));
        brokers.map_or_else(|| self.settings.clone(), |named| self.settings.for_takeover(&named))
    }

    fn try_address(&self, address: &Address) -> Result<(), Failed> {
        let caller = Caller {
            client_id: self.client_id(),
            lost_connection: Some(self.welcome(|welcome| welcome.connection_id)),
        };
        let login = connect::attempt(address, &self.settings, &caller)?;
        let epoch = self.epoch().next();
        let (link, input, made) = Dialogue::new(self, login, epoch).rebuild()?;
        self.relink(link, input);
        // Somebody may have closed one of them, and found no link to tell the broker.
        made.delete_leftovers(self, epoch);
        // Messages and credit may be there already, and nobody be waiting for them.
        self.poll(1);
        Ok(())
    }
}

/// Why an address did not work.
enum Failed {
    Attempt(AttemptError),
    /// The login worked; what the old link had could not be made again.
    Rebuild(ConnectionError),
}

impl From<AttemptError> for Failed {
    fn from(error: AttemptError) -> Self {
        Self::Attempt(error)
    }
}

impl From<ConnectionError> for Failed {
    fn from(error: ConnectionError) -> Self {
        Self::Rebuild(error)
    }
}

/// Whether the client id is taken: by the lost connection, as long as the broker holds that for
/// alive.
fn is_conflict(cause: &ConnectionError) -> bool {
    matches!(cause, ConnectionError::Refused { status: Status::CONFLICT, .. })
}

/// One request after the other over a new link that nobody else uses yet.
struct Dialogue<'a> {
    core: &'a Core,
    login: LoggedIn,
    epoch: Epoch,
    deadline: Option<Instant>,
    /// Credit that came for producers that were registered a moment before.
    credit: VecDeque<(i64, Option<i32>)>,
}

/// What was registered over it.
struct Made {
    sessions: Vec<Arc<SessionShared>>,
    consumers: Vec<Arc<ConsumerShared>>,
    producers: Vec<Arc<ProducerShared>>,
}

impl Made {
    /// Tells the broker of what was closed while there was no link to tell it over.
    fn delete_leftovers(&self, core: &Core, epoch: Epoch) {
        let consumers = self.consumers.iter().filter(|consumer| consumer.link.is_deleted());
        for consumer in consumers.filter(|consumer| consumer.link.remote.end_on(epoch)) {
            let packet = PacketBuilder::new(PacketType::DELETE_CONSUMER);
            let packet = consumer.fill_delete(packet, consumer.link.remote.get(), None);
            core.submit(epoch, packet, Push::Later);
            core.command(Command::RemoveConsumer(Arc::clone(&consumer.link)));
        }
        let producers = self.producers.iter().filter(|producer| producer.link.is_closed());
        for producer in producers.filter(|producer| producer.link.remote.end_on(epoch)) {
            let packet = PacketBuilder::new(PacketType::DELETE_PRODUCER);
            let packet = packet.long("JMQProducerID", producer.link.remote.get());
            core.submit(epoch, packet, Push::Later);
            core.command(Command::RemoveProducer(Arc::clone(&producer.link)));
        }
        let sessions = self.sessions.iter().filter(|session| session.is_finished());
        for session in sessions.filter(|session| session.remote.end_on(epoch)) {
            let packet = PacketBuilder::new(PacketType::DESTROY_SESSION);
            let packet = packet.long("JMQSessionID", session.remote.get());
            core.submit(epoch, packet, Push::Later);
        }
        core.flush();
    }
}

impl<'a> Dialogue<'a> {
    fn new(core: &'a Core, mut login: LoggedIn, epoch: Epoch) -> Self {
        login.decoder.set_limit(PACKET_BYTES_MAX);
        let longest = core.settings.ack_timeout.unwrap_or(connect::LOGIN_LONGEST);
        let deadline = clock::deadline_after(Some(longest));
        Self { core, login, epoch, deadline, credit: VecDeque::new() }
    }

    /// Registers everything again.
    fn rebuild(mut self) -> Result<(Link, Input, Made), ConnectionError> {
        let sessions = self.core.sessions.load_full();
        let open = || sessions.iter().filter(|session| !session.is_finished());
        for session in open() {
            let mode = session.mode.to_wire();
            let reply = self.ask(PacketType::CREATE_SESSION, |packet| match mode {
                Some(number) => packet.int("JMQAckMode", number),
                None => packet,
            })?;
            session.remote.set(long(&reply, "JMQSessionID")?, self.epoch);
        }
        for made in self.core.temporaries.load_full().iter() {
            self.ensure_destination(made)?;
        }
        let mut consumers = Vec::new();
        for session in open() {
            for consumer in session.consumers().iter().filter(|c| !c.link.is_deleted()) {
                self.ensure_destination(&consumer.destination)?;
                let old = consumer.link.remote.get();
                let reply = self.ask(PacketType::ADD_CONSUMER, |packet| {
                    consumer.fill_add(packet, session).long("JMQOldConsumerID", old)
                })?;
                let size = int(&reply, "JMQSize")?;
                let agreed = size.map_or(Credit::Unlimited, Credit::from_wire);
                consumers.push((long(&reply, "JMQConsumerID")?, Arc::clone(consumer), agreed));
            }
        }
        let mut producers = Vec::new();
        for session in open() {
            for producer in session.producers().iter().filter(|p| !p.link.is_closed()) {
                let added = self.ensure_destination(&producer.destination).and_then(|()| {
                    let id = session.remote.get();
                    self.ask(PacketType::ADD_PRODUCER, |packet| producer.fill_add(packet, id))
                });
                match added {
                    Ok(reply) => {
                        let id = long(&reply, "JMQProducerID")?;
                        producers.push((id, Arc::clone(producer), int(&reply, "JMQSize")?));
                    }
                    Err(ConnectionError::Refused { status, .. }) if producer.optional => {
                        let name = producer.destination.name();
                        tracing::debug!(name, %status, "a producer was not taken again");
                        producer.link.close();
                    }
                    Err(error) => return Err(error),
                }
            }
            if session.mode == AcknowledgeMode::Transacted {
                let id = session.remote.get();
                let reply = self
                    .ask(PacketType::START_TRANSACTION, |packet| packet.long("JMQSessionID", id))?;
                session.set_transaction(Some(long(&reply, "JMQTransactionID")?));
            }
        }
        let sessions = open().map(Arc::clone).collect();
        let LoggedIn { end, decoder, wire, timeout, welcome, .. } = self.login;
        let wire = Arc::new(wire);
        let mut input = Input::new(self.epoch, Arc::clone(&wire), end, decoder, timeout);
        input.renew();
        for (id, consumer, agreed) in &consumers {
            input.renew_consumer(*id, &consumer.link, *agreed);
        }
        for (id, producer, size) in &producers {
            input.renew_producer(*id, &producer.link, *size);
            // The newest word counts.
            for (_, size) in self.credit.iter().filter(|(of, _)| of == id) {
                let _was_paused = producer.link.credit.resume(credit_of(*size));
            }
        }
        let consumers = consumers.into_iter().map(|(_, consumer, _)| consumer).collect();
        let producers = producers.into_iter().map(|(_, producer, _)| producer).collect();
        Ok((Link { wire, welcome }, input, Made { sessions, consumers, producers }))
    }

    /// As sessions do: another connection's temporary destination is not made here.
    fn ensure_destination(&mut self, destination: &Destination) -> Result<(), ConnectionError> {
        if destination.is_temporary() && !self.core.is_own_temporary(destination) {
            return Ok(());
        }
        let made = self.ask(PacketType::CREATE_DESTINATION, |packet| {
            packet
                .string("JMQDestination", destination.name())
                .int("JMQDestType", destination.type_bits())
        });
        match made {
            Err(ConnectionError::Refused { status: Status::CONFLICT, .. }) => Ok(()),
            made => made.map(drop),
        }
    }

    /// Sends a request and waits for its reply, whose status must be OK.
    fn ask(
        &mut self,
        kind: PacketType,
        build: impl FnOnce(PacketBuilder) -> PacketBuilder,
    ) -> Result<Packet, ConnectionError> {
        let deadline = self.deadline.unwrap_or_else(|| clock::now() + connect::LOGIN_LONGEST);
        let reply_id = self.core.replies.next_elsewhere();
        self.send(build(request(kind, reply_id)), deadline)?;
        loop {
            let LoggedIn { wire, timeout, decoder, end, .. } = &mut self.login;
            let packet = match connect::next_packet(wire, timeout, decoder, deadline)? {
                Frame::Packet(packet) => packet,
                Frame::Oversized(header) => {
                    return Err(ConnectionError::TooLarge {
                        packet: header.packet_type,
                        bytes: header.size,
                        most: PACKET_BYTES_MAX,
                    });
                }
            };
            match end.handle_packet(&packet)? {
                ClientEvent::Reply if packet.header().consumer_id == reply_id => {
                    return match read_status(&packet)? {
                        (Status::OK, _) => Ok(packet),
                        (status, reason) => {
                            Err(ConnectionError::Refused { step: STEP, status, reason })
                        }
                    };
                }
                ClientEvent::Resume { producer: None, credit } => {
                    self.login.welcome.credit = credit;
                }
                ClientEvent::Resume { producer: Some(id), credit } => {
                    // As many as there are producers, or the broker makes them up.
                    if self.credit.len() >= CREDITS_MAX {
                        self.credit.pop_front();
                    }
                    self.credit.push_back((id, credit));
                }
                ClientEvent::Goodbye { reason, text, exit } => {
                    return Err(ConnectionError::Goodbye { reason, text, exit });
                }
                // Before START there are none.
                ClientEvent::Delivery { .. } => {
                    return Err(ConnectionError::OutOfTurn { packet: packet.header().packet_type });
                }
                ClientEvent::Nothing | ClientEvent::LoggedIn | ClientEvent::Reply => {}
            }
            while let Some(answer) = self.login.end.poll_transmit() {
                self.send(answer, deadline)?;
            }
        }
    }

    fn send(&self, packet: PacketBuilder, deadline: Instant) -> Result<(), ConnectionError> {
        let packet = packet.id(self.core.stamp.next()).finish();
        connect::send_all(&self.login.wire, packet.raw(), deadline)
    }
}

/// Words of credit that are kept while producers are registered.
const CREDITS_MAX: usize = 10_000;

fn long(reply: &Packet, name: &'static str) -> Result<i64, ConnectionError> {
    let malformed =
        |cause| ConnectionError::Malformed { packet: reply.header().packet_type, cause };
    let value = reply.properties().map_err(malformed)?.long(name).map_err(malformed)?;
    value.ok_or_else(|| malformed(crate::wire::PropertyError::Missing { name }))
}

fn int(reply: &Packet, name: &'static str) -> Result<Option<i32>, ConnectionError> {
    let malformed =
        |cause| ConnectionError::Malformed { packet: reply.header().packet_type, cause };
    reply.properties().map_err(malformed)?.int(name).map_err(malformed)
}
