//! The incoming half of a connection: carries out what its client asks for.
//!
//! Owned by one loop; knows no socket. Packets come in, commands go to destinations and replies to
//! the output, all through the turn. What the client may refer to by id lives here.

mod consuming;
mod destinations;
mod producing;
mod sessions;
mod settling;

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;

use crate::{
    flow::Meter,
    proto::broker_in::{AckMode, Goodbye, Greeting, Inbound, ReplyTo, Request, Step},
    sync::Arc,
    wire::{
        Decoder, Flags, Frame, PacketBuilder, PacketType, Status,
        limits::PACKET_BEFORE_LOGIN_BYTES_MAX,
    },
};

use super::{
    command::{Command, Leave},
    connections::{ConnectionInfo, Profile},
    consumer::{Consumer, SessionState},
    destination::Destination,
    limits::{PER_CONNECTION_MAX, UNIQUE_IDS_MAX},
    output::Output,
    shared::Shared,
    turn::Turn,
};

/// Messages a connection may send before it marks one with F and asks for more.
pub(super) const CONNECTION_CREDIT: i32 = 5000;

/// Time between the tries of a client to come back, if it says nothing about it.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(10);

/// A request that is refused: with which status, and why.
type Refusal = (Status, String);

/// Whether a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Fate {
    /// It does.
    Open,
    /// It has ended: what is in the output is still written.
    Closing,
}

#[derive(Debug)]
struct Session {
    state: Arc<SessionState>,
    ack_mode: AckMode,
    /// Nested pauses asked for by STOP.
    pauses: u32,
}

/// The incoming half of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    id: i64,
    inbound: Inbound,
    decoder: Decoder,
    output: Arc<Output>,
    /// How others see this connection.
    info: Arc<ConnectionInfo>,
    started: bool,
    sessions: HashMap<i64, Session>,
    /// Consumers by id, with their session's. Closed ones stay while messages of theirs may still
    /// be settled.
    consumers: HashMap<i64, (i64, Arc<Consumer>)>,
    /// Producers by id, with their session's.
    producers: HashMap<i64, (Option<i64>, Arc<Destination>)>,
    temporary: Vec<Arc<Destination>>,
    /// Who logged in; nobody before that.
    user: String,
    client_id: Option<String>,
    /// Where the last message went.
    last: Option<Arc<Destination>>,
    steps: Vec<Step>,
    /// Steps that wait until an older connection of the same client is gone, as does every packet
    /// behind them.
    held: Option<Vec<Step>>,
}

impl Connection {
    /// A connection nobody has spoken on.
    pub(super) fn new(greeting: Greeting, output: Arc<Output>, info: Arc<ConnectionInfo>) -> Self {
        Self {
            id: greeting.connection_id,
            inbound: Inbound::new(greeting),
            decoder: Decoder::new(PACKET_BEFORE_LOGIN_BYTES_MAX),
            output,
            info,
            started: false,
            sessions: HashMap::new(),
            consumers: HashMap::new(),
            producers: HashMap::new(),
            temporary: Vec::new(),
            user: String::new(),
            client_id: None,
            last: None,
            steps: Vec::new(),
            held: None,
        }
    }

    /// Its id.
    pub(super) const fn id(&self) -> i64 {
        self.id
    }

    /// Whether the login is done.
    pub(super) const fn is_logged_in(&self) -> bool {
        self.inbound.is_open()
    }

    /// Whether it waits for an older connection to go: what arrives is left unread.
    pub(super) const fn is_waiting(&self) -> bool {
        self.held.is_some()
    }

    /// Whether its client may come back after it was lost, and how long after.
    pub(super) fn may_come_back(&self) -> Option<Duration> {
        let hello = self.inbound.hello();
        let interval = hello.reconnect_interval.map(i64::unsigned_abs).map(Duration::from_millis);
        hello.reconnectable.then(|| interval.unwrap_or(RECONNECT_INTERVAL))
    }

    /// Its output.
    pub(super) const fn output(&self) -> &Arc<Output> {
        &self.output
    }

    /// Takes bytes that arrived.
    pub(super) fn receive(&mut self, bytes: Bytes, turn: &mut Turn<'_>) -> Fate {
        self.decoder.feed(bytes);
        if self.is_waiting() {
            return Fate::Open;
        }
        self.take_packets(turn)
    }

    /// The older connection is gone: goes on with the login and what came behind it.
    pub(super) fn go_on(&mut self, turn: &mut Turn<'_>) -> Fate {
        for step in self.held.take().unwrap_or_default() {
            if self.carry_out(step, turn) == Fate::Closing {
                return Fate::Closing;
            }
        }
        self.receive(Bytes::new(), turn)
    }

    fn take_packets(&mut self, turn: &mut Turn<'_>) -> Fate {
        loop {
            let mut steps = std::mem::take(&mut self.steps);
            match self.decoder.next_frame() {
                Ok(None) => {
                    self.steps = steps;
                    return Fate::Open;
                }
                Ok(Some(Frame::Packet(packet))) => {
                    let accounts = turn.shared.accounts.of(self.info.peer.ip(), self.info.service);
                    self.inbound.handle_packet(packet, &accounts, &mut steps);
                }
                Ok(Some(Frame::Oversized(header))) => {
                    let limit = self.packet_limit(turn.shared);
                    self.inbound.handle_oversized(&header, limit, &mut steps);
                }
                Err(error) => {
                    turn.shared.stats.violation();
                    tracing::warn!(connection = self.id, peer = %self.info.peer, %error, "no packets; closing");
                    self.inbound.handle_garbage(error, &mut steps);
                }
            }
            let mut left = steps.drain(..);
            while let Some(step) = left.next() {
                if self.carry_out(step, turn) == Fate::Closing {
                    return Fate::Closing;
                }
                if let Some(held) = &mut self.held {
                    held.extend(left);
                    return Fate::Open;
                }
            }
            drop(left);
            self.steps = steps;
        }
    }

    fn packet_limit(&self, shared: &Shared) -> u32 {
        if self.is_logged_in() {
            shared.config.packet_bytes_max
        } else {
            PACKET_BEFORE_LOGIN_BYTES_MAX
        }
    }

    fn carry_out(&mut self, step: Step, turn: &mut Turn<'_>) -> Fate {
        match step {
            Step::Send(packet) => turn.send_packet(&self.output, packet),
            Step::LoggedIn(user) => {
                tracing::debug!(connection = self.id, %user, "logged in");
                self.decoder.set_limit(turn.shared.config.packet_bytes_max);
                let hello = self.inbound.hello();
                self.output.set_meter(Meter::from_wire(hello.metering));
                let user_agent = hello.user_agent.clone();
                let profile = Profile { user: user.clone(), user_agent, client_id: None };
                self.info.set_profile(profile);
                // Only its own user may end it.
                let previous = hello.previous.and_then(|id| turn.shared.connections.find(id));
                let previous =
                    previous.filter(|old| old.id != self.id && old.profile().user == user);
                if previous.is_some_and(|old| old.make_way_for(&self.info)) {
                    self.held = Some(Vec::new());
                }
                self.user = user;
            }
            Step::Close(goodbye) => {
                if let Some((reason, text)) = goodbye {
                    self.say_goodbye(reason, &text, turn);
                }
                self.output.finish();
                turn.touch_output(&self.output);
                return Fate::Closing;
            }
            Step::Carry(to, Request::Goodbye) => {
                if to.wanted {
                    turn.send_packet(&self.output, to.with(Status::OK));
                }
                self.output.finish();
                turn.touch_output(&self.output);
                return Fate::Closing;
            }
            Step::Carry(to, request) => {
                if let Err((status, reason)) = self.request(&to, request, turn)
                    && to.wanted
                {
                    turn.send_packet(&self.output, to.refuse(status, &reason));
                }
            }
        }
        Fate::Open
    }

    /// Tells the client why the connection ends.
    pub(super) fn say_goodbye(&self, reason: Goodbye, text: &str, turn: &mut Turn<'_>) {
        let packet = PacketBuilder::new(PacketType::GOODBYE)
            .int("JMQGoodbyeReason", reason as i32)
            .string("JMQGoodbyeReasonString", text)
            // Whoever was thrown out must not come back by itself.
            .boolean("JMQExit", reason == Goodbye::Killed);
        turn.send_packet(&self.output, packet);
    }

    /// Asks whether the client is still there.
    pub(super) fn ping(&self, turn: &mut Turn<'_>) {
        let packet = PacketBuilder::new(PacketType::PING).flags(Flags::ACKNOWLEDGE);
        turn.send_packet(&self.output, packet);
    }

    /// The connection has ended: everything it had goes back or away. `is_lost`: nothing more can
    /// be written; otherwise what is in the output still is.
    pub(super) fn end(&mut self, is_lost: bool, turn: &mut Turn<'_>) {
        if is_lost {
            self.output.abort();
        }
        for (_, (_, consumer)) in self.consumers.drain() {
            consumer.close();
            self.output.leave(consumer, Leave::Ended, None);
        }
        turn.touch_output(&self.output);
        for destination in self.temporary.drain(..) {
            turn.shared.registry.remove(destination.kind, &destination.name);
            turn.send(&destination, Command::Destroy);
        }
        if let Some(id) = self.client_id.take() {
            turn.shared.client_ids.release(&id, self.id);
        }
        turn.hand_in();
        self.output.gone(Arc::clone(&self.info));
        turn.touch_output(&self.output);
    }

    fn request(
        &mut self,
        to: &ReplyTo,
        request: Request,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let ok = match request {
            Request::Message(packet) => return self.message(to, packet, turn),
            Request::Acknowledge(blocks, kind) => return self.acknowledge(to, &blocks, kind, turn),
            Request::Redeliver(blocks, seen) => return self.redeliver(&blocks, seen, turn),
            Request::ResumeConnection(size) => {
                self.output.resume(size);
                turn.touch_output(&self.output);
                return Ok(());
            }
            Request::ResumeConsumer(id, size) => {
                self.resume_consumer(id, size, turn);
                return Ok(());
            }
            Request::Start(session) => {
                self.start(session, turn);
                return Ok(());
            }
            Request::DeleteConsumer { consumer, last, nothing_seen } => {
                return self.delete_consumer(to, consumer, last, nothing_seen, turn);
            }
            Request::FlowPaused => {
                turn.send_packet(&self.output, connection_credit(turn.shared));
                return Ok(());
            }
            Request::Pong | Request::Goodbye => return Ok(()),
            Request::CreateSession(mode) => self.create_session(to, mode, turn)?,
            Request::DestroySession(id) => self.destroy_session(to, id, turn)?,
            Request::CreateDestination(name, mask) => {
                self.create_destination(to, &name, mask, turn.shared)?
            }
            Request::DestroyDestination(name, mask) => {
                self.destroy_destination(&name, mask, turn);
                to.with(Status::OK)
            }
            Request::VerifyDestination(name, mask) => {
                destinations::verify_destination(to, &name, mask, turn.shared)
            }
            Request::AddProducer { destination, kind, session } => {
                self.add_producer(to, &destination, kind, session, turn)?
            }
            Request::DeleteProducer(id) => match self.producers.remove(&id) {
                Some(_) => to.with(Status::OK),
                None => return Err((Status::ERROR, format!("there is no producer {id}"))),
            },
            Request::AddConsumer(wish) => return self.add_consumer(to, &wish, turn),
            Request::Unsubscribe(name) => {
                return Err((
                    Status::NOT_FOUND,
                    format!("there is no durable subscription {name}"),
                ));
            }
            Request::Stop(session) => {
                self.stop(session, turn);
                to.with(Status::OK)
            }
            Request::SetClientId(wish) => self.set_client_id(to, wish.as_ref(), turn)?,
            Request::GenerateIds(count) => generate_ids(to, count, turn)?,
        };
        // STOP is answered even to those who did not ask.
        if to.wanted || to.header.packet_type == PacketType::STOP {
            turn.send_packet(&self.output, ok);
        }
        Ok(())
    }
}

pub(super) fn room(count: usize, what: &str) -> Result<(), Refusal> {
    if count < PER_CONNECTION_MAX {
        return Ok(());
    }
    Err((Status::RESOURCE_FULL, format!("a connection has at most {PER_CONNECTION_MAX} {what}")))
}

fn generate_ids(to: &ReplyTo, count: i32, turn: &Turn<'_>) -> Result<PacketBuilder, Refusal> {
    if !(0..=UNIQUE_IDS_MAX).contains(&count) {
        let reason = format!("{count} is not from 0 to {UNIQUE_IDS_MAX}");
        return Err((Status::BAD_REQUEST, reason));
    }
    let body: Vec<u8> = (0..count).flat_map(|_| turn.next_id().to_be_bytes()).collect();
    let reply = to.with(Status::OK);
    Ok(if count > 0 { reply.int("JMQQuantity", count).body(body) } else { reply })
}

/// The next batch for all producers of a connection.
pub(super) fn connection_credit(shared: &Shared) -> PacketBuilder {
    PacketBuilder::new(PacketType::RESUME_FLOW)
        .int("JMQSize", CONNECTION_CREDIT)
        .long("JMQBytes", -1)
        .long("JMQMaxMsgBytes", i64::from(shared.config.packet_bytes_max))
}
