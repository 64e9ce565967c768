//! The incoming half of a connection: carries out what its client asks for.
//!
//! Owned by one loop; knows no socket. Packets come in, commands go to destinations and replies to
//! the output, all through the turn. What the client may refer to by id lives here.

mod administered;
mod consuming;
mod destinations;
mod producing;
mod sessions;
mod settling;

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use crate::{
    flow::Meter,
    proto::{
        broker_in::{AckMode, Goodbye, Greeting, Inbound, ReplyTo, Request, Step},
        transaction::TransactionRequest,
    },
    sync::{Arc, Plain},
    wire::{
        Decoder, Flags, Frame, PacketBuilder, PacketType, Status,
        limits::PACKET_BEFORE_LOGIN_BYTES_MAX,
    },
};

use super::{
    command::{Command, Leave, Rare, Reply},
    connections::{ConnectionInfo, Profile},
    consumer::{Consumer, SessionState},
    coordinator::{Answer, Transact},
    destination::Destination,
    limits::{PER_CONNECTION_MAX, UNIQUE_IDS_MAX},
    output::Output,
    shared::Shared,
    turn::Turn,
};

use self::{
    destinations::Named,
    producing::{Producer, remove_producer},
};

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
    /// Those of them that were closed one by one.
    closed: Vec<i64>,
    /// Producers by id.
    producers: HashMap<i64, Producer>,
    /// Browsers by id, the newest first, and the queues they look into.
    browsers: VecDeque<(i64, Arc<Destination>)>,
    /// Whether anything was ever done in a transaction.
    transacts: bool,
    temporary: Vec<Arc<Destination>>,
    /// Who logged in; nobody before that.
    user: String,
    client_id: Option<Plain<str>>,
    said_goodbye: bool,
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
            closed: Vec::new(),
            producers: HashMap::new(),
            browsers: VecDeque::new(),
            transacts: false,
            temporary: Vec::new(),
            user: String::new(),
            client_id: None,
            said_goodbye: false,
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
                Ok(Some(Frame::Packet(packet)))
                    if self.is_logged_in() && packet.header().packet_type.is_message() =>
                {
                    // Nothing else is asked so often, and no login has a say in it.
                    self.steps = steps;
                    let to = ReplyTo::of(packet.header());
                    if let Err((status, reason)) = self.message(&to, packet, turn)
                        && to.wanted
                    {
                        turn.send_packet(&self.output, to.refuse(status, &reason));
                    }
                    continue;
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
                if self.inbound.producer_credit() == 0 {
                    turn.credit_connection(&self.output);
                }
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
                self.said_goodbye = true;
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
        let consumers: Vec<Arc<Consumer>> =
            self.consumers.drain().map(|(_, (_, consumer))| consumer).collect();
        consumers.iter().for_each(|consumer| consumer.close());
        turn.touch_output(&self.output);
        for (id, gone) in self.producers.drain() {
            remove_producer(id, &gone, turn);
        }
        let grace = self.may_come_back().filter(|_| !self.said_goodbye);
        let grace = grace.map(|interval| interval * turn.shared.config.reconnect_grace);
        for destination in self.temporary.drain(..) {
            turn.send(
                &destination,
                match grace {
                    None => Command::Destroy,
                    Some(grace) => orphan(&destination, grace, turn.wall_ms),
                },
            );
        }
        if let Some(id) = self.client_id.take() {
            turn.shared.client_ids.release(&id, self.id);
        }
        turn.hand_in();
        let (output, info) = (Arc::clone(&self.output), Arc::clone(&self.info));
        let leave = move |turn: &mut Turn<'_>| {
            for consumer in consumers {
                output.leave(consumer, Leave::Ended, None);
            }
            output.gone(info);
            turn.touch_output(&output);
        };
        let ended = |connection, then| Transact::ConnectionEnded { connection, then };
        self.behind_transactions(leave, ended, turn);
        turn.hand_in();
    }

    /// Does this once the transactions of a session or connection that ends have put back what
    /// they held: what was acknowledged in them comes before what was not.
    fn behind_transactions(
        &self,
        leave: impl FnOnce(&mut Turn<'_>) + Send + Sync + 'static,
        ended: impl FnOnce(i64, Answer) -> Transact,
        turn: &mut Turn<'_>,
    ) {
        if self.transacts {
            let then = Answer::Asked(Box::new(move |_, turn| leave(turn)));
            turn.transact(ended(self.id, then));
        } else {
            leave(turn);
        }
    }

    fn request(
        &mut self,
        to: &ReplyTo,
        request: Request,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        let ok = match request {
            Request::Message(packet) => return self.message(to, packet, turn),
            Request::Acknowledge(blocks, kind, transaction) => {
                return self.acknowledge(to, &blocks, kind, transaction, turn);
            }
            Request::DeclareDead(block, obituary) => {
                return self.declare_dead(to, block, obituary, turn);
            }
            Request::Redeliver(blocks, seen, transaction) => {
                return self.redeliver(&blocks, seen, transaction, turn);
            }
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
            Request::DeleteConsumer { consumer, last, nothing_seen, in_transaction } => {
                let how = consuming::leave(last, nothing_seen, in_transaction);
                return self.delete_consumer(to, consumer, how, turn);
            }
            Request::FlowPaused => {
                turn.credit_connection(&self.output);
                return Ok(());
            }
            Request::Pong | Request::Goodbye => return Ok(()),
            Request::CreateSession(mode) => self.create_session(to, mode, turn)?,
            Request::DestroySession(id) => return self.destroy_session(to, id, turn),
            Request::CreateDestination(name, mask) => {
                self.create_destination(to, &name, mask, turn)?
            }
            Request::DestroyDestination(name, mask) => {
                return self.destroy_destination(to, &name, mask, turn);
            }
            Request::VerifyDestination(name, mask, selector) => {
                let selector = selector.as_deref();
                destinations::verify_destination(to, &name, mask, selector, turn.shared)?
            }
            Request::Browse(name, mask, selector) => {
                return self.browse(to, &name, mask, selector.as_deref(), turn);
            }
            Request::Deliver(browser, ids) => return self.deliver(to, browser, &ids, turn),
            Request::AddProducer { destination, kind, session } => {
                return self.add_producer(to, &destination, kind, session, turn);
            }
            Request::DeleteProducer(id) => {
                self.delete_producer(id, turn)?;
                to.with(Status::OK)
            }
            Request::AddConsumer(wish) => return self.add_consumer(to, &wish, turn),
            Request::Unsubscribe(name, client_id) => {
                return self.unsubscribe(to, &name, client_id.as_deref(), turn);
            }
            Request::Transaction(request) => return self.transaction(to, *request, turn),
            Request::Stop(session) => {
                self.stop(session, turn);
                to.with(Status::OK)
            }
            Request::SetClientId(wish) => self.set_client_id(to, wish.as_ref(), turn)?,
            Request::GenerateIds(count) => generate_ids(to, count, turn)?,
        };
        // STOP is answered even to those who did not ask.
        if to.wanted || to.request == PacketType::STOP {
            turn.send_packet(&self.output, ok);
        }
        Ok(())
    }

    /// Leaves a request about a transaction with the coordinator, which answers it.
    fn transaction(
        &mut self,
        to: &ReplyTo,
        request: TransactionRequest,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        self.transacts = true;
        if let TransactionRequest::Start(start) = &request {
            let session = start.session.filter(|session| !self.sessions.contains_key(session));
            if let Some(session) = session {
                return Err((Status::ERROR, format!("there is no session {session}")));
            }
        }
        turn.transact(Transact::Request {
            connection: self.id,
            user: Some(Plain::from(self.user.as_str())),
            request,
            reply: Answer::Client(Reply { output: Arc::clone(&self.output), to: *to }),
        });
        Ok(())
    }
}

/// Has a temporary destination wait for its client to come back.
fn orphan(destination: &Destination, grace: Duration, wall_ms: i64) -> Command {
    let until = wall_ms.saturating_add(i64::try_from(grace.as_millis()).unwrap_or(i64::MAX));
    destination.orphan();
    Rare::command(move |at, state, turn| {
        state.orphan_until = Some(until);
        turn.wake_at(at, until);
    })
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
