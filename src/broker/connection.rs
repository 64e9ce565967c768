//! The incoming half of a connection: carries out what its client asks for.
//!
//! Owned by one loop; knows no socket. Packets come in, commands go to destinations and replies to
//! the output, all through the turn. What the client may refer to by id lives here.

use std::{collections::HashMap, net::IpAddr};

use bytes::Bytes;

use crate::{
    flow::{Credit, Meter},
    proto::broker_in::{
        AckKind, AckMode, AddConsumer, BLOCK_LEN, DestinationMask, Goodbye, Greeting, Inbound,
        ReplyTo, Request, Step,
    },
    sync::Arc,
    wire::{
        Decoder, Flags, Frame, Packet, PacketBuilder, PacketType, Status,
        limits::PACKET_BEFORE_LOGIN_BYTES_MAX,
    },
};

use super::{
    command::{AckReply, Command, Joint, Leave, Reply},
    consumer::{Consumer, ConsumerParts, SessionState},
    destination::{Destination, Kind, STORED_CLEAR},
    limits::{DESTINATION_NAME_BYTES_MAX, PER_CONNECTION_MAX, UNIQUE_IDS_MAX},
    output::Output,
    shared::Shared,
    stored::Stored,
    turn::Turn,
};

/// Messages a connection may send before it marks one with F and asks for more.
pub(super) const CONNECTION_CREDIT: i32 = 5000;

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
    peer: IpAddr,
    started: bool,
    sessions: HashMap<i64, Session>,
    /// Consumers by id, with their session's. Closed ones stay while messages of theirs may still
    /// be settled.
    consumers: HashMap<i64, (i64, Arc<Consumer>)>,
    /// Producers by id, with their session's.
    producers: HashMap<i64, (Option<i64>, Arc<Destination>)>,
    temporary: Vec<Arc<Destination>>,
    client_id: Option<String>,
    /// Where the last message went.
    last: Option<Arc<Destination>>,
    steps: Vec<Step>,
}

impl Connection {
    /// A connection nobody has spoken on.
    pub(super) fn new(greeting: Greeting, output: Arc<Output>, peer: IpAddr) -> Self {
        Self {
            id: greeting.connection_id,
            inbound: Inbound::new(greeting),
            decoder: Decoder::new(PACKET_BEFORE_LOGIN_BYTES_MAX),
            output,
            peer,
            started: false,
            sessions: HashMap::new(),
            consumers: HashMap::new(),
            producers: HashMap::new(),
            temporary: Vec::new(),
            client_id: None,
            last: None,
            steps: Vec::new(),
        }
    }

    /// Whether the login is done.
    pub(super) const fn is_logged_in(&self) -> bool {
        self.inbound.is_open()
    }

    /// Its output.
    pub(super) const fn output(&self) -> &Arc<Output> {
        &self.output
    }

    /// Takes bytes that arrived.
    pub(super) fn receive(&mut self, bytes: Bytes, shared: &Shared, turn: &mut Turn<'_>) -> Fate {
        self.decoder.feed(bytes);
        loop {
            let mut steps = std::mem::take(&mut self.steps);
            match self.decoder.next_frame() {
                Ok(None) => {
                    self.steps = steps;
                    return Fate::Open;
                }
                Ok(Some(Frame::Packet(packet))) => {
                    let accounts = shared.accounts.from(self.peer);
                    self.inbound.handle_packet(packet, &accounts, &mut steps);
                }
                Ok(Some(Frame::Oversized(header))) => {
                    let limit = self.packet_limit(shared);
                    self.inbound.handle_oversized(&header, limit, &mut steps);
                }
                Err(error) => {
                    shared.stats.violation();
                    tracing::warn!(connection = self.id, peer = %self.peer, %error, "no packets; closing");
                    self.inbound.handle_garbage(error, &mut steps);
                }
            }
            for step in steps.drain(..) {
                if self.carry_out(step, shared, turn) == Fate::Closing {
                    return Fate::Closing;
                }
            }
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

    fn carry_out(&mut self, step: Step, shared: &Shared, turn: &mut Turn<'_>) -> Fate {
        match step {
            Step::Send(packet) => turn.send_packet(&self.output, packet),
            Step::LoggedIn(user) => {
                tracing::debug!(connection = self.id, %user, "logged in");
                self.decoder.set_limit(shared.config.packet_bytes_max);
                self.output.set_meter(Meter::from_wire(self.inbound.metering()));
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
                if let Err((status, reason)) = self.request(&to, request, shared, turn)
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
            .boolean("JMQExit", false);
        turn.send_packet(&self.output, packet);
    }

    /// Asks whether the client is still there.
    pub(super) fn ping(&self, turn: &mut Turn<'_>) {
        let packet = PacketBuilder::new(PacketType::PING).flags(Flags::ACKNOWLEDGE);
        turn.send_packet(&self.output, packet);
    }

    /// The connection has ended: everything it had goes back or away. `is_lost`: nothing more can
    /// be written; otherwise what is in the output still is.
    pub(super) fn end(&mut self, is_lost: bool, shared: &Shared, turn: &mut Turn<'_>) {
        if is_lost {
            self.output.abort();
        }
        for (_, (_, consumer)) in self.consumers.drain() {
            consumer.close();
            self.output.leave(consumer, Leave::Ended, None);
        }
        turn.touch_output(&self.output);
        for destination in self.temporary.drain(..) {
            shared.registry.remove(destination.kind, &destination.name);
            turn.send(&destination, Command::Destroy);
        }
        if let Some(id) = self.client_id.take() {
            shared.release_client_id(&id, self.id);
        }
    }

    fn request(
        &mut self,
        to: &ReplyTo,
        request: Request,
        shared: &Shared,
        turn: &mut Turn<'_>,
    ) -> Result<(), (Status, String)> {
        let ok = match request {
            Request::Message(packet) => return self.message(to, packet, shared, turn),
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
                turn.send_packet(&self.output, connection_credit(shared));
                return Ok(());
            }
            Request::Pong | Request::Goodbye => return Ok(()),
            Request::CreateSession(mode) => self.create_session(to, mode, turn)?,
            Request::DestroySession(id) => self.destroy_session(to, id, turn)?,
            Request::CreateDestination(name, mask) => {
                self.create_destination(to, &name, mask, shared)?
            }
            Request::DestroyDestination(name, mask) => {
                self.destroy_destination(&name, mask, shared, turn);
                to.with(Status::OK)
            }
            Request::VerifyDestination(name, mask) => verify_destination(to, &name, mask, shared),
            Request::AddProducer { destination, kind, session } => {
                self.add_producer(to, &destination, kind, session, shared, turn)?
            }
            Request::DeleteProducer(id) => match self.producers.remove(&id) {
                Some(_) => to.with(Status::OK),
                None => return Err((Status::ERROR, format!("there is no producer {id}"))),
            },
            Request::AddConsumer(wish) => return self.add_consumer(to, &wish, shared, turn),
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
            Request::SetClientId(id) => self.set_client_id(to, id, shared)?,
            Request::GenerateIds(count) => generate_ids(to, count, turn)?,
        };
        // STOP is answered even to those who did not ask.
        if to.wanted || to.header.packet_type == PacketType::STOP {
            turn.send_packet(&self.output, ok);
        }
        Ok(())
    }

    fn message(
        &mut self,
        to: &ReplyTo,
        packet: Packet,
        shared: &Shared,
        turn: &mut Turn<'_>,
    ) -> Result<(), (Status, String)> {
        let flags = packet.header().flags;
        let kind = if flags.contains(Flags::QUEUE) { Kind::Queue } else { Kind::Topic };
        let variable = packet.variable().map_err(|error| (Status::ERROR, error.to_string()))?;
        if let Some(id) = variable.transaction_id.filter(|&id| id != 0) {
            return Err((Status::ERROR, format!("Unknown transaction {id}")));
        }
        let name =
            variable.destination.ok_or_else(|| (Status::ERROR, "no destination".to_owned()))?;
        let destination = match &self.last {
            Some(last) if last.kind == kind && last.name.as_bytes() == name => Arc::clone(last),
            _ => {
                let name = variable.destination_text().unwrap_or_default();
                let found = shared
                    .registry
                    .find(kind, &name)
                    .ok_or_else(|| (Status::ERROR, format!("Unknown Destination:{name}")))?;
                self.last = Some(Arc::clone(&found));
                found
            }
        };
        if flags.contains(Flags::FLOW_PAUSED) {
            turn.send_packet(&self.output, connection_credit(shared));
        }
        let credit = variable
            .producer_id
            .filter(|_| flags.contains(Flags::CONSUMER_FLOW))
            .map(|producer| (Arc::clone(&self.output), producer));
        let reply = to.wanted.then(|| Reply { output: Arc::clone(&self.output), to: *to });
        let message = Stored { packet: packet.without_flags(STORED_CLEAR), connection_id: self.id };
        let message = Arc::new(message);
        turn.send(&destination, Command::Produce { message, reply, credit });
        Ok(())
    }

    /// Splits the blocks into runs of one destination each.
    fn acknowledge(
        &self,
        to: &ReplyTo,
        blocks: &Bytes,
        kind: AckKind,
        turn: &mut Turn<'_>,
    ) -> Result<(), (Status, String)> {
        let runs = self.runs(blocks);
        if let Some(unknown) = runs
            .iter()
            .find_map(|(destination, run)| destination.is_none().then(|| first_consumer(run)))
        {
            // Settle what can be settled all the same: an ack must not be lost to its neighbour.
            for (destination, run) in runs {
                if let Some(destination) = destination {
                    let blocks = run;
                    turn.send(
                        destination,
                        Command::Acknowledge { blocks, kind, reply: AckReply::None },
                    );
                }
            }
            return Err((Status::NOT_FOUND, format!("there is no consumer {unknown}")));
        }
        let reply = Reply { output: Arc::clone(&self.output), to: *to };
        let reply = match (to.wanted, runs.len()) {
            (false, _) => AckReply::None,
            (true, 1) => AckReply::Direct(reply),
            (true, parts) => AckReply::Joint(Arc::new(Joint::new(parts, reply))),
        };
        for (destination, blocks) in runs {
            if let Some(destination) = destination {
                let reply = reply.clone();
                turn.send(destination, Command::Acknowledge { blocks, kind, reply });
            }
        }
        Ok(())
    }

    fn redeliver(
        &self,
        blocks: &Bytes,
        seen: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(), (Status, String)> {
        for (destination, blocks) in self.runs(blocks) {
            if let Some(destination) = destination {
                turn.send(destination, Command::Redeliver { blocks, seen });
            }
        }
        Ok(())
    }

    /// Neighbouring blocks whose consumers have the same destination; `None` for consumers that
    /// do not exist.
    fn runs(&self, blocks: &Bytes) -> Vec<(Option<&Arc<Destination>>, Bytes)> {
        let mut runs: Vec<(Option<&Arc<Destination>>, Bytes)> = Vec::with_capacity(1);
        let mut start = 0;
        let of = |at: usize| {
            let consumer = first_consumer(&blocks[at..]);
            self.consumers.get(&consumer).map(|(_, consumer)| &consumer.destination)
        };
        let same = |a: Option<&Arc<Destination>>, b: Option<&Arc<Destination>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        let mut current = of(0);
        for at in (BLOCK_LEN..blocks.len()).step_by(BLOCK_LEN) {
            let next = of(at);
            if !same(current, next) {
                runs.push((current, blocks.slice(start..at)));
                (start, current) = (at, next);
            }
        }
        runs.push((current, blocks.slice(start..)));
        runs
    }

    fn resume_consumer(&self, id: i64, size: Option<i32>, turn: &mut Turn<'_>) {
        // A consumer that is just being deleted is no error: its RESUME was on the way.
        let Some((_, consumer)) = self.consumers.get(&id) else { return };
        if consumer.resume(size, consumer.destination.consumer_limit()) {
            turn.send(&consumer.destination, Command::Ready(id));
        }
    }

    fn create_session(
        &mut self,
        to: &ReplyTo,
        ack_mode: AckMode,
        turn: &Turn<'_>,
    ) -> Result<PacketBuilder, (Status, String)> {
        room(self.sessions.len(), "sessions")?;
        let id = turn.ids.next_id();
        self.insert_session(id, ack_mode);
        Ok(to.with(Status::OK).long("JMQSessionID", id))
    }

    fn insert_session(&mut self, id: i64, ack_mode: AckMode) {
        let session = Session { state: Arc::new(SessionState::stopped()), ack_mode, pauses: 0 };
        session.state.set_running(self.started);
        self.sessions.insert(id, session);
    }

    fn destroy_session(
        &mut self,
        to: &ReplyTo,
        id: i64,
        turn: &mut Turn<'_>,
    ) -> Result<PacketBuilder, (Status, String)> {
        if self.sessions.remove(&id).is_none() {
            return Err((Status::ERROR, format!("there is no session {id}")));
        }
        self.producers.retain(|_, (session, _)| *session != Some(id));
        let gone: Vec<Arc<Consumer>> = self
            .consumers
            .extract_if(|_, (session, _)| *session == id)
            .map(|(_, (_, consumer))| consumer)
            .collect();
        for consumer in gone {
            consumer.close();
            self.output.leave(consumer, Leave::Ended, None);
        }
        turn.touch_output(&self.output);
        Ok(to.with(Status::OK))
    }

    /// Resumes one session, or the connection with all that are not paused.
    fn start(&mut self, session: Option<i64>, turn: &mut Turn<'_>) {
        match session {
            None => self.started = true,
            Some(id) => {
                let Some(session) = self.sessions.get_mut(&id) else { return };
                session.pauses = session.pauses.saturating_sub(1);
            }
        }
        self.update_sessions(turn);
    }

    fn stop(&mut self, session: Option<i64>, turn: &mut Turn<'_>) {
        match session {
            None => self.started = false,
            Some(id) => {
                let Some(session) = self.sessions.get_mut(&id) else { return };
                session.pauses = session.pauses.saturating_add(1);
            }
        }
        self.update_sessions(turn);
    }

    /// Sets each session running or stopped. Behind a stop, the output first gives back what was
    /// dispatched under it; then the reply may go.
    fn update_sessions(&self, turn: &mut Turn<'_>) {
        let mut stopped = false;
        for (id, session) in &self.sessions {
            let running = self.started && session.pauses == 0;
            if !session.state.set_running(running) {
                continue;
            }
            if running {
                let own = self.consumers.iter().filter(|(_, (session, _))| session == id);
                for (consumer_id, (_, consumer)) in own {
                    turn.send(&consumer.destination, Command::Ready(*consumer_id));
                }
            } else {
                stopped = true;
            }
        }
        if stopped {
            self.output.recall();
            turn.touch_output(&self.output);
        }
    }

    fn create_destination(
        &mut self,
        to: &ReplyTo,
        name: &str,
        mask: DestinationMask,
        shared: &Shared,
    ) -> Result<PacketBuilder, (Status, String)> {
        self.destination(name, mask, shared)?;
        Ok(to
            .with(Status::OK)
            .int("JMQDestType", mask.0)
            .string("JMQDestUID", name)
            .boolean("JMQValidateXMLSchema", false)
            .boolean("JMQReloadXMLSchemaOnFailure", false))
    }

    /// The destination, made if that is allowed.
    fn destination(
        &mut self,
        name: &str,
        mask: DestinationMask,
        shared: &Shared,
    ) -> Result<Arc<Destination>, (Status, String)> {
        let kind = kind_of(mask);
        if let Some(found) = shared.registry.find(kind, name) {
            return Ok(found);
        }
        if name.len() > DESTINATION_NAME_BYTES_MAX {
            let reason = format!("the name is longer than {DESTINATION_NAME_BYTES_MAX} bytes");
            return Err((Status::BAD_REQUEST, reason));
        }
        if name.contains(['*', '>']) {
            return Err(match kind {
                Kind::Queue => {
                    (Status::UNSUPPORTED_TYPE, "a queue's name holds no wildcard".into())
                }
                Kind::Topic => (Status::NOT_IMPLEMENTED, "wildcard topics are not served".into()),
            });
        }
        if name.starts_with("mq.") {
            return Err((Status::ERROR, format!("{name}: names from 'mq.' on are reserved")));
        }
        let allowed = mask.is_temporary()
            || match kind {
                Kind::Queue => shared.config.autocreate_queue,
                Kind::Topic => shared.config.autocreate_topic,
            };
        if !allowed {
            return Err((Status::NOT_FOUND, format!("{name} does not exist")));
        }
        let owner = mask.is_temporary().then_some(self.id);
        let made = shared
            .registry
            .ensure(kind, name, owner, shared.config.destination)
            .ok_or_else(|| (Status::RESOURCE_FULL, "too many destinations".to_owned()))?;
        if made.owner == Some(self.id) {
            self.temporary.push(Arc::clone(&made));
        }
        Ok(made)
    }

    fn destroy_destination(
        &mut self,
        name: &str,
        mask: DestinationMask,
        shared: &Shared,
        turn: &mut Turn<'_>,
    ) {
        if let Some(gone) = shared.registry.remove(kind_of(mask), name) {
            self.temporary.retain(|kept| !Arc::ptr_eq(kept, &gone));
            turn.send(&gone, Command::Destroy);
        }
    }

    fn add_producer(
        &mut self,
        to: &ReplyTo,
        name: &str,
        mask: DestinationMask,
        session: Option<i64>,
        shared: &Shared,
        turn: &Turn<'_>,
    ) -> Result<PacketBuilder, (Status, String)> {
        room(self.producers.len(), "producers")?;
        if let Some(session) = session.filter(|session| !self.sessions.contains_key(session)) {
            return Err((Status::ERROR, format!("there is no session {session}")));
        }
        let destination = self.destination(name, mask, shared)?;
        let id = turn.ids.next_id();
        let batch = i32::try_from(destination.limits.producer_batch).unwrap_or(i32::MAX);
        let reply = to
            .with(Status::OK)
            .long("JMQProducerID", id)
            .string("JMQDestinationID", &destination.uid())
            .long("JMQBytes", -1)
            .int("JMQSize", batch);
        self.producers.insert(id, (session, destination));
        Ok(reply)
    }

    fn add_consumer(
        &mut self,
        to: &ReplyTo,
        wish: &AddConsumer,
        shared: &Shared,
        turn: &mut Turn<'_>,
    ) -> Result<(), (Status, String)> {
        room(self.consumers.len(), "consumers")?;
        let unserved = [
            (wish.selector.is_some(), "selectors"),
            (wish.durable.is_some(), "durable subscriptions"),
            (wish.shared.is_some() || wish.is_shared, "shared subscriptions"),
        ];
        if let Some((_, what)) = unserved.into_iter().find(|&(wanted, _)| wanted) {
            return Err((Status::NOT_IMPLEMENTED, format!("{what} are not served")));
        }
        // A consumer without session has one of its own with the connection's id.
        let session_id = wish.session.unwrap_or(self.id);
        if wish.session.is_none() && !self.sessions.contains_key(&self.id) {
            self.insert_session(self.id, AckMode::Unset);
        }
        let Some(session) = self.sessions.get(&session_id) else {
            return Err((Status::ERROR, format!("there is no session {session_id}")));
        };
        let (state, ack_mode) = (Arc::clone(&session.state), session.ack_mode);
        let destination = self.destination(&wish.destination, wish.kind, shared)?;
        // Size 0 means without limit, as −1 does.
        let prefetch = Credit::from_wire(wish.size).agree(destination.consumer_limit());
        let id = turn.ids.next_id();
        let consumer = Arc::new(Consumer::new(ConsumerParts {
            id,
            connection_id: self.id,
            destination: Arc::clone(&destination),
            output: Arc::clone(&self.output),
            session: state,
            forgets: ack_mode == AckMode::None,
            no_local: wish.no_local,
            prefetch,
        }));
        self.consumers.insert(id, (session_id, Arc::clone(&consumer)));
        let size = if wish.size == 0 { 0 } else { prefetch.to_wire() };
        let reply = to.with(Status::OK).long("JMQConsumerID", id).int("JMQSize", size);
        if to.wanted {
            // Before the subscription, so that it is written before the first message.
            turn.send_packet(&self.output, reply);
        }
        turn.send(&destination, Command::Subscribe(consumer));
        Ok(())
    }

    fn delete_consumer(
        &mut self,
        to: &ReplyTo,
        id: i64,
        last: Option<crate::wire::MessageId>,
        nothing_seen: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(), (Status, String)> {
        self.forget_settled();
        let open = self.consumers.get(&id).filter(|(_, consumer)| !consumer.is_closed());
        let Some((_, consumer)) = open else {
            return Err((Status::NOT_FOUND, format!("there is no consumer {id}")));
        };
        let how = match (last, nothing_seen) {
            (Some(last), _) => Leave::After(Some(last)),
            (None, true) => Leave::After(None),
            (None, false) => Leave::AllSeen,
        };
        consumer.close();
        // The reply goes with the request: what comes back must be in its place before the
        // client can ask for anything else.
        let reply = to.wanted.then(|| {
            let stamp = turn.ids.stamp(turn.wall_ms);
            to.with(Status::OK).long("JMQConsumerID", id).id(stamp).finish()
        });
        self.output.leave(Arc::clone(consumer), how, reply);
        turn.touch_output(&self.output);
        Ok(())
    }

    /// Drops closed consumers that have nothing left to settle.
    fn forget_settled(&mut self) {
        self.consumers.retain(|_, (_, consumer)| !consumer.is_closed() || consumer.counts().1 > 0);
    }

    fn set_client_id(
        &mut self,
        to: &ReplyTo,
        id: Option<String>,
        shared: &Shared,
    ) -> Result<PacketBuilder, (Status, String)> {
        if let Some(id) = &id {
            if id.trim().is_empty() {
                return Err((Status::BAD_REQUEST, "the client id is blank".into()));
            }
            if self.client_id.as_ref() != Some(id) && !shared.take_client_id(id, self.id) {
                return Err((Status::CONFLICT, format!("the client id {id} is in use")));
            }
        }
        if let Some(old) = self.client_id.take().filter(|old| Some(old) != id.as_ref()) {
            shared.release_client_id(&old, self.id);
        }
        self.client_id = id;
        Ok(to.with(Status::OK))
    }
}

fn first_consumer(blocks: &[u8]) -> i64 {
    blocks.first_chunk().map_or(0, |id| i64::from_be_bytes(*id))
}

fn kind_of(mask: DestinationMask) -> Kind {
    if mask.is_queue() { Kind::Queue } else { Kind::Topic }
}

fn room(count: usize, what: &str) -> Result<(), (Status, String)> {
    if count < PER_CONNECTION_MAX {
        return Ok(());
    }
    Err((Status::RESOURCE_FULL, format!("a connection has at most {PER_CONNECTION_MAX} {what}")))
}

fn verify_destination(
    to: &ReplyTo,
    name: &str,
    mask: DestinationMask,
    shared: &Shared,
) -> PacketBuilder {
    let kind = kind_of(mask);
    match shared.registry.find(kind, name) {
        Some(found) => {
            let temporary = if found.owner.is_some() { DestinationMask::TEMPORARY } else { 0 };
            let own = mask.0 & (DestinationMask::QUEUE | DestinationMask::TOPIC);
            to.with(Status::OK).int("JMQDestType", own | temporary)
        }
        None => {
            let can_create = match kind {
                Kind::Queue => shared.config.autocreate_queue,
                Kind::Topic => shared.config.autocreate_topic,
            };
            to.with(Status::NOT_FOUND).boolean("JMQCanCreate", can_create)
        }
    }
}

fn generate_ids(
    to: &ReplyTo,
    count: i32,
    turn: &Turn<'_>,
) -> Result<PacketBuilder, (Status, String)> {
    if !(0..=UNIQUE_IDS_MAX).contains(&count) {
        let reason = format!("{count} is not from 0 to {UNIQUE_IDS_MAX}");
        return Err((Status::BAD_REQUEST, reason));
    }
    let body: Vec<u8> = (0..count).flat_map(|_| turn.ids.next_id().to_be_bytes()).collect();
    let reply = to.with(Status::OK);
    Ok(if count > 0 { reply.int("JMQQuantity", count).body(body) } else { reply })
}

/// The next batch for all producers of a connection.
fn connection_credit(shared: &Shared) -> PacketBuilder {
    PacketBuilder::new(PacketType::RESUME_FLOW)
        .int("JMQSize", CONNECTION_CREDIT)
        .long("JMQBytes", -1)
        .long("JMQMaxMsgBytes", i64::from(shared.config.packet_bytes_max))
}
