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
//! - Nothing made for one link, an id or a packet, is used on the next; see [`super::epoch`].

use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};

use super::{
    clock,
    driver::Driver,
    epoch::{Epoch, Present},
    event::Observer,
    link::Link,
    output::{Output, Push, Refused, Submitted},
    reading::{Input, credit_of},
    replies::{Replies, reply_id},
    session_state::SessionShared,
    settings::Settings,
    socket::{HEARTBEAT, ReadTimeout, Wait, Wire},
    stamp::Stamp,
};
use crate::{
    client::{
        RequestError,
        links::{Command, ConsumerLink, ProducerLink},
    },
    flow::{Buffer, Resume, Window},
    message::{Destination, DestinationKind},
    proto::client::{ClientEnd, ConnectionError, Welcome, read_status, request},
    sync::{
        Arc, AtomicBool, AtomicU64, Helm, Inbox, Ordering, Queue, Signal, Snapshot, Ticket, fence,
    },
    wire::{
        Decoder, Flags, MessageId, Packet, PacketBuilder, PacketType, Status,
        limits::PACKET_BYTES_MAX,
    },
};

/// What all handles of one connection share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) output: Output,
    pub(super) replies: Replies,
    /// Where the messages sent on this connection come from.
    pub(super) stamp: Stamp,
    /// Whether messages may be handed to the application.
    pub(super) started: AtomicBool,
    pub(super) helm: Helm<Input>,
    /// Reads for futures.
    pub(super) driver: Driver,
    pub(super) commands: Inbox<Command>,
    pub(super) present: Present,
    /// The present link, or the last one.
    pub(super) link: Snapshot<Link>,
    /// The input half of a new link, until whoever reads takes it. One place, for the newest.
    pub(super) fresh: Queue<Input>,
    /// Where those sleep who can do nothing without a link.
    pub(super) restored: Arc<Signal>,
    /// Why the last link was lost, if one was.
    pub(super) outage: Snapshot<Option<ConnectionError>>,
    pub(super) observer: Snapshot<Option<Observer>>,
    /// Temporary destinations that were made here and not deleted.
    pub(super) temporaries: Snapshot<Vec<Destination>>,
    next_key: AtomicU64,
    /// Messages that may be sent before the broker resumes the connection.
    pub(super) credit: Window,
    /// Messages that wait on this connection, if `imqConnectionFlowLimitEnabled`.
    pub(super) buffered: Option<Buffer>,
    /// Somebody closes the connection, or has.
    closing: AtomicBool,
    lost: AtomicBool,
    reason: Snapshot<Option<ConnectionError>>,
    client_id: Snapshot<Option<String>>,
    pub(super) sessions: Snapshot<Vec<Arc<SessionShared>>>,
    /// Where futures wait until less is unwritten than senders may leave.
    pub(super) room: Signal,
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
        let wire = Arc::new(wire);
        let input = Input::new(Epoch::FIRST, Arc::clone(&wire), end, decoder, timeout);
        Self {
            credit: Window::new(credit_of(welcome.credit)),
            client_id: Snapshot::new(settings.client_id.clone()),
            settings,
            output: Output::new(Arc::clone(&wire)),
            replies: Replies::new(),
            stamp,
            started: AtomicBool::new(false),
            helm: Helm::new(input),
            driver: Driver::new(),
            commands: Inbox::new(),
            present: Present::new(),
            link: Snapshot::new(Link { wire, welcome }),
            fresh: Queue::new(1),
            restored: Arc::new(Signal::new()),
            outage: Snapshot::new(None),
            observer: Snapshot::new(None),
            temporaries: Snapshot::new(Vec::new()),
            next_key: AtomicU64::new(1),
            buffered,
            closing: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            reason: Snapshot::new(None),
            sessions: Snapshot::new(Vec::new()),
            room: Signal::new(),
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
        let mut look = || {
            if let Some(result) = ready() {
                return Some(Ok(Some(result)));
            }
            if let Some(reason) = self.lost() {
                return Some(Err(reason));
            }
            let passed = deadline.is_some_and(|deadline| clock::now() >= deadline);
            passed.then_some(Ok(None))
        };
        let mut spins = self.settings.wait_strategy.spins();
        loop {
            let found = look().or_else(|| {
                self.helm.try_take(|input| self.lead(input, signal, deadline, &mut look))
            });
            if let Some(result) = found {
                return result;
            }
            // Somebody else reads, and may come upon what this thread waits for.
            self.flush();
            if !spins.go_on() {
                break;
            }
        }
        self.helm.wait(
            signal,
            deadline,
            look,
            |input, ready| self.lead(input, signal, deadline, ready),
            || self.flush(),
        )
    }

    /// Reads until `ready` gives a result.
    fn lead<R>(
        &self,
        input: &mut Input,
        signal: &Signal,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut() -> Option<R>,
    ) -> R {
        let mut spins = self.settings.wait_strategy.spins();
        loop {
            if let Some(result) = ready() {
                return result;
            }
            let longest = clock::left(deadline).unwrap_or(HEARTBEAT);
            if !self.epoch().is_up() {
                // There is nothing to read. Whoever restores the link wakes everybody.
                let mut found = None;
                let look = || {
                    found = ready();
                    found.is_some() || self.epoch().is_up()
                };
                signal.sleep_unless(look, clock::deadline_after(Some(longest.min(HEARTBEAT))));
                if let Some(result) = found {
                    return result;
                }
                continue;
            }
            self.flush();
            if self.output.backlog() == 0 {
                let wait = if spins.go_on() { Wait::Poll } else { Wait::For(longest) };
                if self.read(input, wait) {
                    spins.begin_again();
                }
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
            self.submit(self.epoch(), ping, Push::Now);
        }
    }

    /// A number for a consumer or producer that stays the same over all links.
    pub(super) fn next_key(&self) -> u64 {
        // Relaxed: only the number's uniqueness matters.
        self.next_key.fetch_add(1, Ordering::Relaxed)
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
    /// again" is asked once more, and so is the next one if the connection is lost meanwhile and
    /// restored: `build` reads the ids it uses when it is called.
    pub(super) fn request(
        &self,
        kind: PacketType,
        build: impl Fn(PacketBuilder) -> PacketBuilder,
    ) -> Result<Packet, RequestError> {
        self.request_linked(kind, build, |_reply_id| None).map(|(reply, _epoch)| reply)
    }

    /// As [`request`](Self::request); `command` tells the reader what to do with the reply first.
    /// Says on which link it was answered, too.
    pub(super) fn request_linked(
        &self,
        kind: PacketType,
        build: impl Fn(PacketBuilder) -> PacketBuilder,
        command: impl Fn(i64) -> Option<Command>,
    ) -> Result<(Packet, Epoch), RequestError> {
        loop {
            let epoch = self.await_link(kind)?;
            let submit = |reply_id| {
                if let Some(command) = command(reply_id) {
                    self.commands.push(command);
                }
                self.submit(epoch, build(request(kind, reply_id)), Push::Later);
            };
            match self.ask(epoch, kind, submit) {
                Err(RequestError::Interrupted { .. }) => {}
                outcome => return outcome.map(|reply| (reply, epoch)),
            }
        }
    }

    /// As [`request`](Self::request), on this link and no other.
    ///
    /// # Errors
    /// [`RequestError::Interrupted`] if the link is gone.
    pub(super) fn request_on(
        &self,
        epoch: Epoch,
        kind: PacketType,
        build: impl Fn(PacketBuilder) -> PacketBuilder,
    ) -> Result<Packet, RequestError> {
        let submit = |reply_id| self.submit(epoch, build(request(kind, reply_id)), Push::Later);
        self.ask(epoch, kind, submit)
    }

    /// As [`request_on`](Self::request_on); `submit` submits the request with this reply id.
    pub(super) fn ask(
        &self,
        epoch: Epoch,
        kind: PacketType,
        submit: impl Fn(i64),
    ) -> Result<Packet, RequestError> {
        if !epoch.is_up() {
            return Err(self.interrupted(kind));
        }
        let ask = || {
            self.with_ticket(kind, |ticket| {
                submit(reply_id(ticket));
                self.await_reply(epoch, kind, ticket)
            })
        };
        match ask()? {
            reply if read_status(&reply)?.0 == Status::RETRY => check(kind, ask()?),
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

    /// Waits for the reply of a request that was sent with this ticket on this link.
    pub(super) fn await_reply(
        &self,
        epoch: Epoch,
        kind: PacketType,
        ticket: Ticket,
    ) -> Result<Packet, RequestError> {
        let deadline = clock::deadline_after(self.settings.ack_timeout);
        let signal = self.replies.signal(ticket);
        let reply = self.wait(&signal, deadline, || match self.replies.take(ticket) {
            Some(reply) => Some(Ok(reply)),
            None if self.epoch() != epoch => Some(Err(self.interrupted(kind))),
            None => None,
        })?;
        reply.ok_or_else(|| self.timed_out(kind))?
    }

    pub(super) fn timed_out(&self, request: PacketType) -> RequestError {
        let waited = self.settings.ack_timeout.unwrap_or_default();
        RequestError::TimedOut { request, waited, setting: "imqAckTimeout" }
    }

    // ---- sending ----

    /// Sends a packet of the connection's own on this link, if it is there still: never waits for
    /// room. What the broker sent or asked for bounds how many there are.
    pub(super) fn submit(&self, epoch: Epoch, packet: PacketBuilder, push: Push) {
        self.submit_own(epoch, push, |id, out| {
            let body = packet.id(id).finish_into(out);
            out.extend_from_slice(&body);
        });
    }

    /// As [`submit`](Self::submit); `put` writes the packet with this id.
    pub(super) fn submit_own(
        &self,
        epoch: Epoch,
        push: Push,
        put: impl FnOnce(MessageId, &mut BytesMut),
    ) {
        let put = |out: &mut BytesMut| {
            put(self.stamp.next(), out);
            None
        };
        if let Err(Refused::Failed(kind)) = self.output.submit(epoch, push, put) {
            // Whoever waits next is told.
            self.write_failed(epoch, kind);
        }
    }

    /// Sends a message on this link, once there is room: `put` writes it, at its turn, and may
    /// return a large body that follows and is not copied.
    ///
    /// # Errors
    /// It was not sent, at most a part of it: [`RequestError::Interrupted`] if it may be sent on
    /// the next link.
    pub(super) fn submit_message(
        &self,
        epoch: Epoch,
        kind: PacketType,
        push: Push,
        put: impl FnOnce(&mut BytesMut) -> Option<Bytes>,
    ) -> Result<(), RequestError> {
        if self.output.is_full() {
            self.make_room(epoch)?;
        }
        self.submit_message_now(epoch, kind, push, put)
    }

    /// As [`submit_message`](Self::submit_message), whether there is room or not.
    pub(super) fn submit_message_now(
        &self,
        epoch: Epoch,
        kind: PacketType,
        push: Push,
        put: impl FnOnce(&mut BytesMut) -> Option<Bytes>,
    ) -> Result<(), RequestError> {
        match self.output.submit(epoch, push, put) {
            Ok(Submitted::Settled) => Ok(()),
            Ok(Submitted::Left) => {
                self.call_keeper();
                Ok(())
            }
            Err(Refused::Stale) => Err(self.interrupted(kind)),
            Err(Refused::Failed(error)) => {
                self.write_failed(epoch, error);
                Err(self.interrupted(kind))
            }
        }
    }

    /// Writes what waits, as far as the socket takes it.
    pub(super) fn flush(&self) {
        let epoch = self.epoch();
        if let Err(Refused::Failed(kind)) = self.output.flush(epoch) {
            self.write_failed(epoch, kind);
        }
    }

    /// Waits until less is unwritten than senders may leave, or the link is gone.
    fn make_room(&self, epoch: Epoch) -> Result<(), ConnectionError> {
        while self.output.is_full() && self.epoch() == epoch {
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
        let epoch = self.epoch();
        match self.wire().wait_ready(input.is_some(), longest) {
            Ok(ready) => {
                if let Some(input) = input.filter(|_| ready.input) {
                    self.read(input, Wait::Poll);
                }
            }
            Err(error) => self.lose(epoch, ConnectionError::Socket(error.kind())),
        }
    }

    /// The housekeeping thread writes what is left; it is woken only if it sleeps.
    pub(super) fn call_keeper(&self) {
        // Relaxed: the signal's fence comes between this and the look at its sleepers.
        self.keeper_wanted.store(true, Ordering::Relaxed);
        self.keeper.wake_all();
    }

    // ---- credit ----

    /// Takes the right to send one message on this link, waiting for it if need be; says which flags
    /// it must carry. `open` is asked once the producer's session closes: whether this thread may send all
    /// the same, if it need not wait.
    pub(super) fn take_credit(
        &self,
        epoch: Epoch,
        kind: PacketType,
        producer: &ProducerLink,
        open: impl Fn() -> bool,
    ) -> Result<Flags, RequestError> {
        loop {
            if let Some(flags) = self.try_take_credit(epoch, kind, producer, &open)? {
                return Ok(flags);
            }
            let ready = || self.may_have_credit(epoch, producer).then_some(());
            self.wait(&producer.signal, None, ready)?;
        }
    }

    /// As [`take_credit`](Self::take_credit), without waiting: `None` if there is no credit.
    pub(super) fn try_take_credit(
        &self,
        epoch: Epoch,
        kind: PacketType,
        producer: &ProducerLink,
        open: impl Fn() -> bool,
    ) -> Result<Option<Flags>, RequestError> {
        const CLOSED: RequestError = RequestError::Closed { what: "producer" };
        self.check_alive()?;
        if self.epoch() != epoch {
            return Err(self.interrupted(kind));
        }
        let ending = producer.is_ending();
        if ending && (producer.is_closed() || !open()) {
            return Err(CLOSED);
        }
        if let Some(own) = producer.credit.try_take() {
            if let Some(all) = self.credit.try_take() {
                if self.epoch() == epoch {
                    let flags = Flags::empty().set(Flags::CONSUMER_FLOW, own.last());
                    return Ok(Some(flags.set(Flags::FLOW_PAUSED, all.last())));
                }
                // It may be of the next link, whose last message must carry the mark.
                let _open_again = self.credit.give_back(all);
                let _open_again = producer.credit.give_back(own);
                return Err(self.interrupted(kind));
            }
            let _open_again = producer.credit.give_back(own);
        }
        if ending { Err(CLOSED) } else { Ok(None) }
    }

    /// Whether it is worth while to try and take credit.
    pub(super) fn may_have_credit(&self, epoch: Epoch, producer: &ProducerLink) -> bool {
        let open = !producer.credit.is_paused() && !self.credit.is_paused();
        open || producer.is_ending() || self.epoch() != epoch
    }

    // ---- the end ----

    /// Whether this caller is the one to close the connection.
    pub(super) fn begin_close(&self) -> bool {
        // AcqRel: forbids that two callers both close.
        let first = !self.closing.swap(true, Ordering::AcqRel);
        // No link is made any more for those who wait for one.
        self.restored.wake_all();
        first
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
        self.submit(self.epoch(), goodbye, Push::Now);
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
        // SeqCst fence: see `relink`.
        fence(Ordering::SeqCst);
        self.wire().shut_down();
        self.wake_everybody();
    }

    /// A write failed. The broker may have said why before it hung up: that is a better reason.
    fn write_failed(&self, epoch: Epoch, kind: ErrorKind) {
        self.poll(usize::MAX);
        self.lose(epoch, ConnectionError::Socket(kind));
    }

    pub(super) fn wake_everybody(&self) {
        self.replies.wake_all();
        self.restored.wake_all();
        self.room.wake_all();
        self.driver.demand.signal().wake_all();
        self.sessions.read(|sessions| {
            for session in sessions {
                session.link.signal.wake_all();
                session.completions.wake();
            }
        });
        self.keeper.wake_all();
    }

    /// Enters a session: its signal is woken when the connection ends or its credit changes, and
    /// it is made again on a new link.
    pub(super) fn register(&self, session: &Arc<SessionShared>) {
        self.sessions.update(|sessions| {
            let mut sessions = sessions.clone();
            sessions.push(Arc::clone(session));
            Some(sessions)
        });
    }

    /// Forgets a session.
    pub(super) fn unregister(&self, session: &Arc<SessionShared>) {
        self.sessions.update(|sessions| {
            let others = sessions.iter().filter(|other| !Arc::ptr_eq(other, session));
            Some(others.map(Arc::clone).collect())
        });
    }

    /// Wakes all sessions: they may hand out messages, or not any more.
    pub(super) fn wake_sessions(&self) {
        self.sessions.read(|sessions| sessions.iter().for_each(|s| s.link.signal.wake_all()));
    }

    /// Sends acknowledgements that have waited for others of their batch since the last call.
    pub(super) fn flush_idle_acknowledgements(&self) {
        for session in self.sessions.load_full().iter() {
            session.link.acks.flush_idle(self);
        }
    }

    /// Tells the reader something about a consumer or producer.
    pub(super) fn command(&self, command: Command) {
        self.commands.push(command);
    }

    // ---- what the application took ----

    /// The application has taken, or nobody will take, so many messages of a consumer.
    pub(super) fn consumed(&self, link: &ConsumerLink, count: u32) {
        if let Some(resume) = link.buffer.discarded(count) {
            self.resume_consumer(link, resume);
        }
        self.discarded(count);
    }

    /// Everything that waited for a consumer went back to the broker.
    pub(super) fn emptied(&self, link: &ConsumerLink, count: u32) {
        if let Some(resume) = link.buffer.reset() {
            self.resume_consumer(link, resume);
        }
        self.discarded(count);
    }

    /// So many messages wait no longer on this connection.
    pub(super) fn discarded(&self, count: u32) {
        if let Some(resume) = self.buffered.as_ref().and_then(|all| all.discarded(count)) {
            self.resume_connection(resume);
        }
    }

    pub(super) fn resume_consumer(&self, link: &ConsumerLink, resume: Resume) {
        let (epoch, id) = link.remote.on();
        let packet = PacketBuilder::new(PacketType::RESUME_FLOW)
            .long("JMQConsumerID", id)
            .int("JMQSize", resume.to_wire());
        self.submit(epoch, packet, Push::Later);
    }

    pub(super) fn resume_connection(&self, _resume: Resume) {
        // Without a size the broker keeps the batch that was agreed at login.
        let packet = PacketBuilder::new(PacketType::RESUME_FLOW);
        self.submit(self.epoch(), packet, Push::Now);
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
