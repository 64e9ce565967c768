//! The heart of a connection: who reads the socket, and how everybody else learns of it.
//!
//! No thread belongs to reading. A thread that waits, for a message, a reply or for credit, takes
//! the connection's helm if it is free and reads for everybody until its own wish is there; the
//! others sleep at a signal of their own (see `sync::Helm`). One housekeeping thread looks in now
//! and then for what nobody waits for.
//!
//! ```text
//!  send ----> output gate ------------------------------> socket
//!                 ^ answers: RESUME, PING_REPLY              |
//!  receive --> helm: read a burst, answer F, hand out <------'
//!                        |            |           |
//!                  consumer inbox   reply slot   producer credit   --> signals of the waiters
//! ```
//!
//! # Invariants
//! - A pause of the connection (flag F) is answered before the burst's messages are handed on.
//! - A message is counted into its buffer before the application can take it.
//! - Before a thread sleeps or blocks, what it left in the output is written.
//! - The first reason for the end of a connection is the one that everybody gets.

use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};

use super::{
    clock,
    output::{Output, Push, Submitted},
    reading::{Input, credit_of},
    replies::{Replies, Ticket},
    settings::Settings,
    socket::{HEARTBEAT, ReadTimeout, Wait, Wire},
    stamp::Stamp,
};
use crate::{
    client::{
        RequestError,
        links::{Command, ConsumerLink, ProducerLink, SessionLink},
    },
    flow::{Buffer, Resume, Window},
    message::{Destination, DestinationKind},
    proto::client::{ClientEnd, ConnectionError, Welcome, read_status, request},
    sync::{Arc, AtomicBool, Helm, Inbox, Ordering, Signal, Snapshot},
    wire::{Decoder, Flags, Packet, PacketBuilder, PacketType, Status, limits::PACKET_BYTES_MAX},
};

/// What all handles of one connection share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) welcome: Welcome,
    pub(super) output: Output,
    pub(super) replies: Replies,
    /// Where the messages sent on this connection come from.
    pub(super) stamp: Stamp,
    /// Whether messages may be handed to the application.
    pub(super) started: AtomicBool,
    pub(super) wire: Wire,
    pub(super) helm: Helm<Input>,
    pub(super) commands: Inbox<Command>,
    /// Messages that may be sent before the broker resumes the connection.
    pub(super) credit: Window,
    /// Messages that wait on this connection, if `imqConnectionFlowLimitEnabled`.
    pub(super) buffered: Option<Buffer>,
    /// Somebody closes the connection, or has.
    closing: AtomicBool,
    lost: AtomicBool,
    reason: Snapshot<Option<ConnectionError>>,
    client_id: Snapshot<Option<String>>,
    sessions: Snapshot<Vec<Arc<SessionLink>>>,
    /// Wakes the housekeeping thread, if it sleeps, to write what is left.
    pub(super) keeper: Signal,
    pub(super) keeper_wanted: AtomicBool,
}

/// A connection after its login, before anybody shares it.
#[derive(Debug)]
pub(super) struct LoggedIn {
    pub(super) end: ClientEnd,
    pub(super) decoder: Decoder,
    pub(super) wire: Wire,
    pub(super) timeout: ReadTimeout,
    pub(super) welcome: Welcome,
    pub(super) stamp: Stamp,
}

impl Core {
    pub(super) fn new(login: LoggedIn, settings: Settings) -> Self {
        let LoggedIn { end, mut decoder, wire, timeout, welcome, stamp } = login;
        decoder.set_limit(PACKET_BYTES_MAX);
        let buffered =
            settings.limits_connection().then(|| Buffer::new(settings.flow.connection_buffer()));
        let input = Input::new(end, decoder, timeout);
        Self {
            credit: Window::new(credit_of(welcome.credit)),
            client_id: Snapshot::new(settings.client_id.clone()),
            settings,
            welcome,
            output: Output::new(),
            replies: Replies::new(),
            stamp,
            started: AtomicBool::new(false),
            wire,
            helm: Helm::new(input),
            commands: Inbox::new(),
            buffered,
            closing: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            reason: Snapshot::new(None),
            sessions: Snapshot::new(Vec::new()),
            keeper: Signal::new(),
            keeper_wanted: AtomicBool::new(false),
        }
    }

    // ---- waiting ----

    /// Waits until `ready` gives a result; `None` when `deadline` has passed.
    ///
    /// # Errors
    /// The reason of the connection's end.
    pub(super) fn wait<R>(
        &self,
        signal: &Arc<Signal>,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, ConnectionError> {
        self.helm.wait(
            signal,
            deadline,
            || {
                if let Some(result) = ready() {
                    return Some(Ok(Some(result)));
                }
                if let Some(reason) = self.lost() {
                    return Some(Err(reason));
                }
                let passed = deadline.is_some_and(|deadline| clock::now() >= deadline);
                passed.then_some(Ok(None))
            },
            |input, ready| self.lead(input, deadline, ready),
            || self.flush(),
        )
    }

    /// Reads until `ready` gives a result.
    fn lead<R>(
        &self,
        input: &mut Input,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut() -> Option<R>,
    ) -> R {
        loop {
            if let Some(result) = ready() {
                return result;
            }
            self.flush();
            let longest = clock::left(deadline).unwrap_or(HEARTBEAT);
            if self.output.backlog() == 0 {
                self.read(input, Wait::For(longest));
            } else {
                // The broker does not read. Go on reading, lest it waits for that.
                self.wait_ready(Some(input), longest);
            }
        }
    }

    /// Reads what is there, if nobody else does: so many bursts at most.
    pub(super) fn poll(&self, bursts: usize) {
        self.helm.try_take(|input| (0..bursts).all(|_| self.read(input, Wait::Poll)));
    }

    /// Whether somebody reads now.
    pub(super) fn is_driven(&self) -> bool {
        self.helm.is_taken()
    }

    /// Makes whoever reads look at its condition again, by an answer from the broker: for changes
    /// that no packet announces.
    pub(super) fn nudge_reader(&self) {
        if self.helm.is_taken() {
            let ping = PacketBuilder::new(PacketType::PING).flags(Flags::ACKNOWLEDGE);
            self.submit(ping, Push::Now);
        }
    }

    /// What tells this connection from others in this program.
    pub(super) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    // ---- names ----

    /// The client id, if the connection has one.
    pub(super) fn client_id(&self) -> Option<String> {
        self.client_id.read(Clone::clone)
    }

    pub(super) fn has_client_id(&self) -> bool {
        self.client_id.read(Option::is_some)
    }

    /// Sets the client id, on a connection that has none.
    pub(super) fn set_client_id(&self, id: &str) -> Result<(), RequestError> {
        let share = self.settings.shares_client_id;
        self.request(PacketType::SET_CLIENTID, |packet| {
            packet.string("JMQClientID", id).boolean("JMQShare", share)
        })?;
        self.client_id.publish(Some(id.to_owned()));
        Ok(())
    }

    /// The temporary destination of this connection with this number; `None` if its name would be
    /// too long.
    pub(super) fn temporary(&self, kind: DestinationKind, number: u64) -> Option<Destination> {
        let owner = self.client_id().unwrap_or_else(|| self.stamp.host());
        Destination::temporary(kind, &owner, self.stamp.port(), number).ok()
    }

    /// Whether this connection made the temporary destination: its name tells, all but the number.
    pub(super) fn is_own_temporary(&self, destination: &Destination) -> bool {
        let first = self.temporary(destination.kind(), 0);
        let own = first.as_ref().and_then(|first| first.name().strip_suffix('0'));
        own.is_some_and(|own| destination.name().starts_with(own))
    }

    // ---- requests ----

    /// Sends a request and waits for its reply, whose status must be OK. A broker that says "try
    /// again" is asked once more.
    pub(super) fn request(
        &self,
        kind: PacketType,
        build: impl Fn(PacketBuilder) -> PacketBuilder,
    ) -> Result<Packet, RequestError> {
        self.request_linked(kind, build, |_reply_id| None)
    }

    /// As [`request`](Self::request); `command` tells the reader what to do with the reply first.
    pub(super) fn request_linked(
        &self,
        kind: PacketType,
        build: impl Fn(PacketBuilder) -> PacketBuilder,
        command: impl Fn(i64) -> Option<Command>,
    ) -> Result<Packet, RequestError> {
        const RETRY: Status = Status(449);
        let ask = || {
            self.with_ticket(kind, |ticket| {
                let reply_id = ticket.reply_id();
                if let Some(command) = command(reply_id) {
                    self.commands.push(command);
                }
                self.submit(build(request(kind, reply_id)), Push::Later);
                self.await_reply(kind, ticket)
            })
        };
        match ask()? {
            reply if read_status(&reply)?.0 == RETRY => check(kind, ask()?),
            reply => check(kind, reply),
        }
    }

    /// Claims a reply slot for `work` and gives it back afterwards.
    pub(super) fn with_ticket<R>(
        &self,
        kind: PacketType,
        work: impl FnOnce(Ticket) -> Result<R, RequestError>,
    ) -> Result<R, RequestError> {
        let ticket = match self.replies.claim() {
            Some(ticket) => ticket,
            None => {
                let deadline = clock::deadline_after(self.settings.ack_timeout);
                let freed = Arc::clone(self.replies.freed());
                let claimed = self.wait(&freed, deadline, || self.replies.claim())?;
                claimed.ok_or_else(|| self.timed_out(kind))?
            }
        };
        let result = work(ticket);
        self.replies.release(ticket);
        result
    }

    /// Waits for the reply of a request that was sent with this ticket.
    pub(super) fn await_reply(
        &self,
        kind: PacketType,
        ticket: Ticket,
    ) -> Result<Packet, RequestError> {
        let deadline = clock::deadline_after(self.settings.ack_timeout);
        let signal = self.replies.signal(ticket);
        let reply = self.wait(&signal, deadline, || self.replies.take(ticket))?;
        reply.ok_or_else(|| self.timed_out(kind))
    }

    fn timed_out(&self, request: PacketType) -> RequestError {
        let waited = self.settings.ack_timeout.unwrap_or_default();
        RequestError::TimedOut { request, waited, setting: "imqAckTimeout" }
    }

    // ---- sending ----

    /// Sends a packet of the connection's own: never waits for room. What the broker sent or asked
    /// for bounds how many there are.
    pub(super) fn submit(&self, packet: PacketBuilder, push: Push) {
        let put = |buffer: &mut BytesMut| {
            let (head, body) = packet.id(self.stamp.next()).finish_parts();
            buffer.extend_from_slice(&head);
            buffer.extend_from_slice(&body);
            None
        };
        if let Err(kind) = self.output.submit(&self.wire, push, put) {
            // Whoever waits next is told.
            let _reason = self.write_failed(kind);
        }
    }

    /// Sends the message that `build` makes at its turn, once there is room; a large body is not
    /// copied.
    pub(super) fn submit_with(
        &self,
        push: Push,
        build: impl FnOnce() -> (BytesMut, Bytes),
    ) -> Result<(), ConnectionError> {
        if self.output.is_full() {
            self.make_room()?;
        }
        let put = |buffer: &mut BytesMut| {
            let (head, body) = build();
            buffer.extend_from_slice(&head);
            if body.len() >= super::output::SHARED_BODY_BYTES {
                return Some(body);
            }
            buffer.extend_from_slice(&body);
            None
        };
        match self.output.submit(&self.wire, push, put) {
            Ok(Submitted::Settled) => Ok(()),
            Ok(Submitted::Left) => {
                self.call_keeper();
                Ok(())
            }
            Err(kind) => Err(self.write_failed(kind)),
        }
    }

    /// Writes what waits, as far as the socket takes it.
    pub(super) fn flush(&self) {
        if let Err(kind) = self.output.flush(&self.wire) {
            let _reason = self.write_failed(kind);
        }
    }

    /// Waits until less is unwritten than senders may leave.
    fn make_room(&self) -> Result<(), ConnectionError> {
        while self.output.is_full() {
            if let Some(reason) = self.lost() {
                return Err(reason);
            }
            // With the helm, this thread reads as well. Without, somebody else does.
            let led = self.helm.try_take(|input| self.wait_ready(Some(input), STALLED_READER));
            if led.is_none() {
                self.wait_ready(None, STALLED);
            }
            self.flush();
        }
        Ok(())
    }

    /// Waits until the socket takes output; reads meanwhile if this thread has the helm.
    pub(super) fn wait_ready(&self, input: Option<&mut Input>, longest: Duration) {
        match self.wire.wait_ready(input.is_some(), longest) {
            Ok(ready) => {
                if let Some(input) = input.filter(|_| ready.input) {
                    self.read(input, Wait::Poll);
                }
            }
            Err(error) => self.fail(ConnectionError::Socket(error.kind())),
        }
    }

    /// The housekeeping thread writes what is left; it is woken only if it sleeps.
    fn call_keeper(&self) {
        // Relaxed: the signal's fence comes between this and the look at its sleepers.
        self.keeper_wanted.store(true, Ordering::Relaxed);
        self.keeper.wake_all();
    }

    // ---- credit ----

    /// Takes the right to send one message, waiting for it if need be; says which flags it must
    /// carry. `open` is asked once the producer's session closes: whether this thread may send all
    /// the same, if it need not wait.
    pub(super) fn take_credit(
        &self,
        producer: &ProducerLink,
        open: impl Fn() -> bool,
    ) -> Result<Flags, RequestError> {
        const CLOSED: RequestError = RequestError::Closed { what: "producer" };
        loop {
            if let Some(reason) = self.lost() {
                return Err(reason.into());
            }
            let ending = producer.is_ending();
            if ending && (producer.is_closed() || !open()) {
                return Err(CLOSED);
            }
            if let Some(own) = producer.credit.try_take() {
                if let Some(all) = self.credit.try_take() {
                    return Ok(Flags::empty()
                        .set(Flags::CONSUMER_FLOW, own.last())
                        .set(Flags::FLOW_PAUSED, all.last()));
                }
                let _open_again = producer.credit.give_back(own);
            }
            if ending {
                return Err(CLOSED);
            }
            let ready = || {
                let open = !producer.credit.is_paused() && !self.credit.is_paused();
                (open || producer.is_ending()).then_some(())
            };
            self.wait(&producer.signal, None, ready)?;
        }
    }

    // ---- the end ----

    /// Whether this caller is the one to close the connection.
    pub(super) fn begin_close(&self) -> bool {
        // AcqRel: forbids that two callers both close.
        !self.closing.swap(true, Ordering::AcqRel)
    }

    pub(super) fn is_closing(&self) -> bool {
        // Acquire: pairs with `begin_close`; what it guards is checked again by the broker.
        self.closing.load(Ordering::Acquire)
    }

    /// The reason of the connection's end, if it has ended.
    pub(super) fn lost(&self) -> Option<ConnectionError> {
        // Acquire: pairs with `fail`, so that the reason is there.
        if !self.lost.load(Ordering::Acquire) {
            return None;
        }
        self.reason.read(Clone::clone)
    }

    /// An error if the connection has ended.
    pub(super) fn check_alive(&self) -> Result<(), ConnectionError> {
        self.lost().map_or(Ok(()), Err)
    }

    /// Writes what waits and then `goodbye`, for a bounded time, without waiting for an answer.
    pub(super) fn part(&self, goodbye: PacketBuilder) {
        self.submit(goodbye, Push::Now);
        let deadline = clock::now() + PARTING;
        while self.output.backlog() > 0 && self.lost().is_none() && clock::now() < deadline {
            self.wait_ready(None, STALLED);
            self.flush();
        }
    }

    /// Ends the connection for this reason, unless it has ended already, and wakes everybody.
    pub(super) fn fail(&self, reason: ConnectionError) {
        self.reason.update(|earlier| earlier.is_none().then(|| Some(reason.clone())));
        // Release: whoever sees the flag finds the reason.
        self.lost.store(true, Ordering::Release);
        self.wire.shut_down();
        self.wake_everybody();
    }

    /// A write failed. The broker may have said why before it hung up: that is a better reason.
    pub(super) fn write_failed(&self, kind: ErrorKind) -> ConnectionError {
        self.poll(usize::MAX);
        self.fail(ConnectionError::Socket(kind));
        self.lost().unwrap_or(ConnectionError::Socket(kind))
    }

    fn wake_everybody(&self) {
        self.replies.wake_all();
        self.wake_sessions();
        self.keeper.wake_all();
    }

    /// Enters a session: its signal is woken when the connection ends or its credit changes.
    pub(super) fn register(&self, session: &Arc<SessionLink>) {
        self.sessions.update(|sessions| {
            let mut sessions = sessions.clone();
            sessions.push(Arc::clone(session));
            Some(sessions)
        });
    }

    /// Forgets a session.
    pub(super) fn unregister(&self, session: &Arc<SessionLink>) {
        self.sessions.update(|sessions| {
            let others = sessions.iter().filter(|other| !Arc::ptr_eq(other, session));
            Some(others.map(Arc::clone).collect())
        });
    }

    /// Wakes all sessions: they may hand out messages, or not any more.
    pub(super) fn wake_sessions(&self) {
        self.sessions.read(|sessions| sessions.iter().for_each(|s| s.signal.wake_all()));
    }

    /// Sends acknowledgements that have waited for others of their batch since the last call.
    pub(super) fn flush_idle_acknowledgements(&self) {
        for session in self.sessions.load_full().iter() {
            session.acks.flush_idle(self);
        }
    }

    /// Tells the reader something about a consumer or producer.
    pub(super) fn command(&self, command: Command) {
        self.commands.push(command);
    }

    // ---- what the application took ----

    /// The application has taken, or nobody will take, so many messages of a consumer.
    pub(super) fn consumed(&self, id: i64, link: &ConsumerLink, count: u32) {
        if let Some(resume) = link.buffer.discarded(count) {
            self.resume_consumer(id, resume);
        }
        self.discarded(count);
    }

    /// Everything that waited for a consumer went back to the broker.
    pub(super) fn emptied(&self, id: i64, link: &ConsumerLink, count: u32) {
        if let Some(resume) = link.buffer.reset() {
            self.resume_consumer(id, resume);
        }
        self.discarded(count);
    }

    /// So many messages wait no longer on this connection.
    pub(super) fn discarded(&self, count: u32) {
        if let Some(resume) = self.buffered.as_ref().and_then(|all| all.discarded(count)) {
            self.resume_connection(resume);
        }
    }

    pub(super) fn resume_consumer(&self, id: i64, resume: Resume) {
        let packet = PacketBuilder::new(PacketType::RESUME_FLOW)
            .long("JMQConsumerID", id)
            .int("JMQSize", resume.to_wire());
        self.submit(packet, Push::Later);
    }

    pub(super) fn resume_connection(&self, _resume: Resume) {
        // Without a size the broker keeps the batch that was agreed at login.
        self.submit(PacketBuilder::new(PacketType::RESUME_FLOW), Push::Now);
    }
}

/// The reply if its status is OK.
pub(super) fn check(request: PacketType, reply: Packet) -> Result<Packet, RequestError> {
    match read_status(&reply)? {
        (Status::OK, _) => Ok(reply),
        (status, reason) => Err(RequestError::Refused { request, status, reason }),
    }
}

/// How long the drop of a connection tries to get rid of what is unwritten.
const PARTING: Duration = Duration::from_secs(1);
/// How long a sender without the helm waits for room before it looks whether it could read.
const STALLED: Duration = Duration::from_millis(10);
/// How long a sender with the helm waits for room before others may have the helm.
const STALLED_READER: Duration = Duration::from_millis(100);
