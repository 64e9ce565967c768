//! One event loop of a broker: accepts, reads, keeps deadlines.

use std::{
    io,
    sync::Arc as StdArc,
    time::{Duration, Instant},
};

use mio::net::{TcpListener, TcpStream};

use crate::{
    in_process::ServerEnd,
    proto::broker_in::Goodbye,
    reactor::{Handler, Io, Key, Next, PollWaker, ReadBuffer, Readiness, Slots, Tcp, Transport},
    sync::{Arc, Mailbox},
};

use super::{
    admin::Work,
    arrival::{Arrival, Watched},
    connection::{Connection, Fate},
    connections::{ConnectionInfo, Home, Kill, Service},
    limits::{ADMIN_CONNECTIONS_EXTRA, TURN_BYTES_MAX},
    output::Output,
    port_mapper::{Inquiry, STEP_TIMEOUT, Stay},
    shared::Shared,
    turn::{Carry, Turn},
};

/// Time a connection that has ended gets to take what is still written to it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time between two looks at the wall clock, if something waits for a time of it, in
/// milliseconds.
const CLOCK_MS_MAX: u64 = 30_000;

/// A connection that stays silent for so many pings is closed.
const PINGS_MAX: u32 = 6;

/// What other threads send to a loop.
#[derive(Debug)]
pub(super) enum Mail {
    /// A connection to serve.
    Serve(Arrival, Service),
    /// Somebody in this process connects.
    Enter(ServerEnd),
    /// A connection within this process has input, or its end.
    Input(Key),
    /// A connection within this process takes output again.
    Room(Key),
    /// End a connection.
    Kill {
        /// Its place.
        key: Key,
        /// Its id.
        connection: i64,
        /// Why.
        why: Kill,
    },
    /// The connection that this one waited for is gone.
    GoOn {
        /// Its place.
        key: Key,
        /// Its id.
        connection: i64,
    },
    /// Something for all connections here.
    Work(Work),
    /// End in order.
    Shutdown,
}

/// Where a loop gets its mail.
pub(super) type LoopMailbox = StdArc<Mailbox<Mail, PollWaker>>;

/// What a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entrance {
    /// The port mapper.
    PortMapper,
    /// A service.
    Service(Service),
}

/// Who is at the other end.
#[derive(Debug)]
enum Peer {
    Listener(TcpListener, Entrance),
    Inquiry(Inquiry),
    Client(Box<Client>),
    /// Holds the key of the deadline for ticks.
    Clock,
}

#[derive(Debug)]
struct Client {
    connection: Connection,
    transport: Arc<dyn Transport>,
    last_heard: Instant,
    pings: u32,
    /// The peer's half has ended, or broke, or tells of more only once there was nothing: read
    /// until there is nothing.
    read_to_end: bool,
    /// Set when the connection has ended and only its last bytes are still going out.
    closing: bool,
}

/// One loop's part of a broker.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    peers: Slots<Peer>,
    carry: Carry,
    buffer: ReadBuffer,
    /// Clients that had more to read than their share of this turn.
    unread: Vec<Key>,
    /// All loops, this one included, for handing out connections in turn.
    mailboxes: Vec<LoopMailbox>,
    next_loop: usize,
    /// Which of the loops this is.
    own: usize,
    port_table: Vec<u8>,
    /// The key of the deadline for ticks, and when that is set to, in milliseconds since 1970.
    clock: Key,
    clock_at: Option<i64>,
    /// When a shutdown ends whatever has not ended by itself.
    shutdown: Option<Instant>,
}

impl Server {
    /// The `number`th loop, from 1.
    pub(super) fn new(
        shared: Arc<Shared>,
        number: u16,
        mailboxes: Vec<LoopMailbox>,
        port_table: Vec<u8>,
    ) -> Self {
        let mut peers = Slots::default();
        let clock = peers.insert(Peer::Clock);
        Self {
            shared,
            peers,
            carry: Carry::new(number),
            buffer: ReadBuffer::default(),
            unread: Vec::new(),
            mailboxes,
            next_loop: 0,
            own: usize::from(number.saturating_sub(1)),
            port_table,
            clock,
            clock_at: None,
            shutdown: None,
        }
    }

    /// Serves a listener on this loop.
    ///
    /// # Errors
    /// What the poller says.
    pub(super) fn listen(
        &mut self,
        io: &Io,
        mut listener: TcpListener,
        entrance: Entrance,
    ) -> io::Result<()> {
        io.register(&mut listener, self.peers.next_key())?;
        self.peers.insert(Peer::Listener(listener, entrance));
        Ok(())
    }

    fn accept(&mut self, io: &mut Io, key: Key) {
        loop {
            let Some(Peer::Listener(listener, entrance)) = self.peers.get_mut(key) else { return };
            let (accepted, entrance) = (listener.accept(), *entrance);
            match accepted {
                Ok((stream, peer)) => match entrance {
                    Entrance::PortMapper => self.inquire(io, stream),
                    Entrance::Service(service) => {
                        self.hand_out(io, Arrival::Tcp(stream, peer), service);
                    }
                },
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        // Out of descriptors, most likely. The edge is used up: look again later.
                        tracing::error!(%error, "a connection cannot be accepted");
                        io.set_deadline(key, Duration::from_millis(100));
                        return;
                    }
                },
            }
        }
    }

    fn inquire(&mut self, io: &mut Io, mut stream: TcpStream) {
        let key = self.peers.next_key();
        if let Err(error) = io.register(&mut stream, key) {
            return tracing::error!(%error, "a port mapper connection cannot be watched");
        }
        // Through a plain box, as the facade's pointer may not be able to turn into a trait object.
        let transport: Box<dyn Transport> = Box::new(Tcp::new(stream));
        self.peers.insert(Peer::Inquiry(Inquiry::new(Arc::from(transport))));
        io.set_deadline(key, STEP_TIMEOUT);
    }

    fn hand_out(&mut self, io: &mut Io, arrival: Arrival, service: Service) {
        let limit = self.shared.config.connections_max;
        // When applications have taken all places, administrators still find one.
        let limit = match service {
            Service::Jms => limit,
            Service::Admin => limit.saturating_add(ADMIN_CONNECTIONS_EXTRA),
        };
        if self.shared.stats.connections() >= limit as u64 {
            let peer = arrival.peer();
            return tracing::warn!(%peer, limit, "refused: too many connections");
        }
        self.shared.stats.connected();
        let to = self.next_loop;
        self.next_loop = (to + 1) % self.mailboxes.len();
        if to == 0 {
            // The loop that accepts is the first one.
            self.serve(io, arrival, service);
        } else {
            self.mailboxes[to].send(Mail::Serve(arrival, service));
        }
    }

    fn serve(&mut self, io: &mut Io, arrival: Arrival, service: Service) {
        let key = self.peers.next_key();
        let home = Home { mailbox: StdArc::clone(&self.mailboxes[self.own]), key };
        let peer = arrival.peer();
        let mut nonce = [0; 16];
        let ready = arrival.watch(io, &home).and_then(|watched| {
            getrandom::fill(&mut nonce).map_err(io::Error::other)?;
            Ok(watched)
        });
        let Watched { transport, is_polled } = match ready {
            Ok(watched) => watched,
            Err(error) => {
                self.shared.stats.disconnected();
                return tracing::error!(%peer, %error, "a connection cannot be served");
            }
        };
        let connection_id = self.shared.ids.next_id();
        let output = Arc::new(Output::new(connection_id, Arc::clone(&transport)));
        let greeting = self.shared.greeting(connection_id, service, nonce);
        let info = Arc::new(ConnectionInfo::new(connection_id, peer, service, Some(home)));
        self.shared.connections.add(&info);
        let connection = Connection::new(greeting, output, info);
        self.peers.insert(Peer::Client(Box::new(Client {
            connection,
            transport,
            last_heard: io.now(),
            pings: 0,
            read_to_end: !is_polled,
            closing: false,
        })));
        if !is_polled {
            self.unread.push(key);
        }
        io.set_deadline(key, self.shared.config.login_timeout);
        tracing::debug!(connection = connection_id, %peer, service = service.name(), "accepted");
    }

    /// Reads one client's share of a turn.
    fn read(&mut self, io: &mut Io, key: Key) {
        let Self { shared, peers, carry, buffer, unread, .. } = self;
        let Some(Peer::Client(client)) = peers.get_mut(key) else { return };
        if client.connection.is_waiting() {
            // It is read when it goes on.
            return;
        }
        let mut turn = Turn::new(io.wall_ms(), shared, carry);
        let mut budget = TURN_BYTES_MAX;
        let lost = loop {
            match buffer.read(&*client.transport) {
                Ok((bytes, may_have_more)) => {
                    turn.set_crowded(buffer.is_crowded());
                    budget = budget.saturating_sub(bytes.len());
                    client.last_heard = io.now();
                    client.pings = 0;
                    let end = !client.closing
                        && client.connection.receive(bytes, &mut turn) == Fate::Closing;
                    turn.hand_in();
                    if end {
                        client.closing = true;
                        client.connection.end(false, &mut turn);
                        io.set_deadline(key, CLOSE_TIMEOUT);
                    }
                    if client.connection.is_waiting() {
                        break false;
                    }
                    if !(may_have_more || client.read_to_end) {
                        break false;
                    }
                    if budget == 0 {
                        unread.push(key);
                        break false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(_) => break true,
            }
        };
        if lost {
            self.drop_client(io, key);
        }
    }

    /// A client takes output again.
    fn room(&mut self, io: &Io, key: Key) {
        let Self { shared, peers, carry, .. } = self;
        let Some(Peer::Client(client)) = peers.get_mut(key) else { return };
        let mut turn = Turn::new(io.wall_ms(), shared, carry);
        let output = client.connection.output();
        output.set_writable();
        turn.touch_output(output);
    }

    /// Ends a connection because somebody said so.
    fn kill(&mut self, io: &mut Io, key: Key, connection: i64, why: Kill) {
        let Self { shared, peers, carry, .. } = &mut *self;
        let Some(Peer::Client(client)) = peers.get_mut(key) else { return };
        if client.connection.id() != connection {
            return;
        }
        match why {
            Kill::Replaced => {
                tracing::info!(connection, "its client has come back on another connection");
                self.drop_client(io, key);
            }
            Kill::Administrator if client.closing => {}
            Kill::Administrator => {
                tracing::info!(connection, "ended by an administrator");
                let mut turn = Turn::new(io.wall_ms(), shared, carry);
                let text = "ended by an administrator";
                client.connection.say_goodbye(Goodbye::Killed, text, &mut turn);
                self.close(io, key);
            }
        }
    }

    /// The connection that one waited for is gone.
    fn go_on(&mut self, io: &mut Io, key: Key, connection: i64) {
        let Self { shared, peers, carry, unread, .. } = &mut *self;
        let Some(Peer::Client(client)) = peers.get_mut(key) else { return };
        let waits = client.connection.id() == connection && client.connection.is_waiting();
        if !waits || client.closing {
            return;
        }
        let mut turn = Turn::new(io.wall_ms(), shared, carry);
        let fate = client.connection.go_on(&mut turn);
        turn.hand_in();
        // What arrived meanwhile has used up its edge.
        unread.push(key);
        if fate == Fate::Closing {
            self.close(io, key);
        }
    }

    /// The connection is gone.
    fn drop_client(&mut self, io: &Io, key: Key) {
        let Some(Peer::Client(mut client)) = self.peers.remove(key) else { return };
        let Self { shared, carry, .. } = self;
        let mut turn = Turn::new(io.wall_ms(), shared, carry);
        client.connection.end(true, &mut turn);
        // Count it out only when what it had is back in its place.
        turn.finish();
        shared.stats.disconnected();
    }

    fn client_deadline(&mut self, io: &mut Io, key: Key) {
        let Self { shared, peers, carry, .. } = self;
        let Some(Peer::Client(client)) = peers.get_mut(key) else { return };
        let silent = io.now().duration_since(client.last_heard);
        let interval = shared.config.ping_interval;
        if client.closing {
            return self.drop_client(io, key);
        }
        let mut turn = Turn::new(io.wall_ms(), shared, carry);
        if !client.connection.is_logged_in() {
            tracing::info!(
                seconds = shared.config.login_timeout.as_secs(),
                "no login in time; closing"
            );
            client.connection.say_goodbye(Goodbye::Fatal, "no login in time", &mut turn);
            return self.close(io, key);
        }
        if silent < interval {
            return io.set_deadline(key, interval.saturating_sub(silent));
        }
        if client.pings >= PINGS_MAX {
            tracing::info!(seconds = silent.as_secs(), "silent too long; closing");
            client.connection.say_goodbye(Goodbye::Other, "silent too long", &mut turn);
            return self.close(io, key);
        }
        client.pings += 1;
        client.connection.ping(&mut turn);
        io.set_deadline(key, interval);
    }

    /// Ends a client in order: what was said is still written.
    fn close(&mut self, io: &mut Io, key: Key) {
        let Self { shared, peers, carry, .. } = self;
        let Some(Peer::Client(client)) = peers.get_mut(key) else { return };
        if client.closing {
            return;
        }
        client.closing = true;
        let mut turn = Turn::new(io.wall_ms(), shared, carry);
        client.connection.output().finish();
        client.connection.end(false, &mut turn);
        io.set_deadline(key, CLOSE_TIMEOUT);
    }

    fn work(&mut self, io: &Io, work: Work) {
        let Self { shared, peers, carry, .. } = self;
        let mut turn = Turn::new(io.wall_ms(), shared, carry);
        let mut open: Vec<&mut Connection> = peers
            .values_mut()
            .filter_map(|peer| match peer {
                Peer::Client(client) if !client.closing => Some(&mut client.connection),
                _ => None,
            })
            .collect();
        work.run(&mut open, &mut turn);
        turn.hand_in();
    }

    fn begin_shutdown(&mut self, io: &mut Io) {
        if self.shutdown.is_some() {
            return;
        }
        self.shutdown = Some(io.now() + CLOSE_TIMEOUT);
        for key in self.peers.keys() {
            let Self { shared, peers, carry, .. } = &mut *self;
            match peers.get_mut(key) {
                Some(Peer::Client(client)) => {
                    let mut turn = Turn::new(io.wall_ms(), shared, carry);
                    client.connection.say_goodbye(
                        Goodbye::Shutdown,
                        "the broker shuts down",
                        &mut turn,
                    );
                    self.close(io, key);
                }
                Some(Peer::Listener(..) | Peer::Inquiry(_) | Peer::Clock) => {
                    self.peers.remove(key);
                }
                None => {}
            }
        }
    }

    /// Has the loop wake for the next tick. The wall clock may be moved meanwhile, so it is looked
    /// at again at times.
    fn set_clock(&mut self, io: &mut Io) {
        let Some(at) = self.carry.next_tick() else { return };
        if self.clock_at.is_none_or(|set| at < set) {
            let wait = u64::try_from(at - io.wall_ms()).unwrap_or(0).clamp(1, CLOCK_MS_MAX);
            io.set_deadline(self.clock, Duration::from_millis(wait));
            self.clock_at = Some(at);
        }
    }

    /// Drops what has ended; `true` when a shutdown is complete.
    fn reap(&mut self, io: &Io) -> bool {
        let Some(until) = self.shutdown else { return false };
        for key in self.peers.keys() {
            if let Some(Peer::Client(client)) = self.peers.get_mut(key) {
                let output = client.connection.output();
                if output.is_finished() || io.now() >= until {
                    self.drop_client(io, key);
                }
            }
        }
        self.peers.len() == 0
    }
}

impl Handler for Server {
    type Mail = Mail;

    fn mail(&mut self, io: &mut Io, mail: Mail) {
        match mail {
            Mail::Serve(arrival, service) if self.shutdown.is_none() => {
                self.serve(io, arrival, service);
            }
            Mail::Serve(..) => self.shared.stats.disconnected(),
            Mail::Enter(end) if self.shutdown.is_none() => {
                self.hand_out(io, Arrival::InProcess(end), Service::Jms);
            }
            // Dropped: its client sees the end.
            Mail::Enter(_) => {}
            // Read in the turn that follows, whose time is read by then.
            Mail::Input(key) => self.unread.push(key),
            Mail::Room(key) => self.room(io, key),
            Mail::Kill { key, connection, why } => self.kill(io, key, connection, why),
            Mail::GoOn { key, connection } => self.go_on(io, key, connection),
            Mail::Work(work) => self.work(io, work),
            Mail::Shutdown => self.begin_shutdown(io),
        }
    }

    fn ready(&mut self, io: &mut Io, key: Key, readiness: Readiness) {
        let Self { peers, buffer, port_table, .. } = &mut *self;
        match peers.get_mut(key) {
            None => {}
            Some(Peer::Clock) => {}
            Some(Peer::Listener(..)) => self.accept(io, key),
            Some(Peer::Inquiry(inquiry)) => {
                let something = readiness.readable || readiness.closed;
                if something && inquiry.readable(port_table, buffer) == Stay::No {
                    peers.remove(key);
                }
            }
            Some(Peer::Client(client)) => {
                client.read_to_end |= readiness.closed;
                if readiness.writable {
                    self.room(io, key);
                }
                if readiness.readable || readiness.closed {
                    self.read(io, key);
                }
            }
        }
    }

    fn deadline(&mut self, io: &mut Io, key: Key) {
        match self.peers.get_mut(key) {
            None => {}
            // Whatever is due is found at the end of the turn.
            Some(Peer::Clock) => self.clock_at = None,
            Some(Peer::Listener(..)) => self.accept(io, key),
            Some(Peer::Inquiry(inquiry)) => match inquiry.deadline(&self.port_table) {
                Stay::Yes => io.set_deadline(key, STEP_TIMEOUT),
                Stay::No => drop(self.peers.remove(key)),
            },
            Some(Peer::Client(_)) => self.client_deadline(io, key),
        }
    }

    fn begin_turn(&mut self, io: &mut Io) {
        // Whoever had more than its share goes on, behind what the others had in that turn.
        for key in std::mem::take(&mut self.unread) {
            self.read(io, key);
        }
    }

    fn end_turn(&mut self, io: &mut Io) -> Next {
        let Self { shared, carry, .. } = &mut *self;
        Turn::new(io.wall_ms(), shared, carry).finish();
        self.set_clock(io);
        if self.reap(io) {
            return Next::Stop;
        }
        if self.carry.has_work() || !self.unread.is_empty() || self.shutdown.is_some() {
            return Next::Again;
        }
        Next::Wait { answer_due: self.carry.answer_due() }
    }
}
