//! A whole broker without sockets, threads or clocks, for fuzzing and models.
//!
//! Everything above the reactor is the code that ships; each call is one turn of a loop. The same
//! input gives the same output, but for the numbers of ids.

use std::{
    io::{self, IoSlice},
    net::{Ipv4Addr, SocketAddr},
};

use bytes::{Bytes, BytesMut};

use crate::{
    message::DestinationKind,
    reactor::Transport,
    sync::{Arc, AtomicBool, AtomicUsize, Inbox, Ordering},
};

use super::{
    accounts::Accounts,
    arrival::PeerAddress,
    config::BrokerConfig,
    connection::{Connection, Fate},
    connections::{ConnectionInfo, Service},
    destination::Origin,
    ids::Ids,
    output::Output,
    shared::{Addresses, Shared},
    turn::{Carry, Turn},
};

/// Runs a broker by hand.
#[derive(Debug)]
pub struct Desk {
    shared: Shared,
    carry: Carry,
    clients: Vec<Option<Client>>,
    wall_ms: i64,
}

#[derive(Debug)]
struct Client {
    connection: Connection,
    pipe: Arc<Pipe>,
}

/// Takes what is written, up to a limit that stands for a full socket.
#[derive(Debug)]
struct Pipe {
    written: Inbox<Vec<u8>>,
    room: AtomicUsize,
    finished: AtomicBool,
}

impl Transport for Pipe {
    fn read(&self, _: &mut BytesMut) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut room = self.room.load(Ordering::Relaxed);
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut taken = Vec::new();
        for slice in slices {
            let now = slice.len().min(room);
            taken.extend_from_slice(slice.get(..now).unwrap_or_default());
            room -= now;
        }
        self.room.store(room, Ordering::Relaxed);
        let count = taken.len();
        self.written.push(taken);
        Ok(count)
    }

    fn finish(&self) {
        self.finished.store(true, Ordering::Relaxed);
    }

    fn abort(&self) {
        self.finish();
    }
}

impl Desk {
    /// A broker with these settings; addresses in them mean nothing.
    #[must_use]
    pub fn new(config: BrokerConfig) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let ids = Ids::new(1, 1, address);
        Self {
            shared: Shared::new(
                config,
                Accounts::default(),
                ids,
                Addresses { port_mapper: address, jms: address, admin: address },
                None,
            ),
            carry: Carry::new(1),
            clients: Vec::new(),
            wall_ms: 1_000_000,
        }
    }

    /// Lets time pass.
    pub const fn advance(&mut self, ms: u32) {
        self.wall_ms += ms as i64;
    }

    /// A client connects; its number.
    pub fn connect(&mut self) -> usize {
        self.connect_to(Service::Jms)
    }

    /// An administrator's client connects; its number.
    pub fn connect_administrator(&mut self) -> usize {
        self.connect_to(Service::Admin)
    }

    fn connect_to(&mut self, service: Service) -> usize {
        let pipe = Arc::new(Pipe {
            written: Inbox::new(),
            room: AtomicUsize::new(usize::MAX),
            finished: AtomicBool::new(false),
        });
        let id = self.shared.ids.next_id();
        let transport: Arc<dyn Transport> = Arc::clone(&pipe) as Arc<dyn Transport>;
        let output = Arc::new(Output::new(id, transport));
        let greeting = self.shared.greeting(id, service, [7; 16]);
        let peer = PeerAddress::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        let info = Arc::new(ConnectionInfo::new(id, peer, service, None));
        self.shared.connections.add(&info);
        let connection = Connection::new(greeting, output, info);
        self.clients.push(Some(Client { connection, pipe }));
        self.clients.len() - 1
    }

    /// Bytes arrive from a client; one turn.
    pub fn receive(&mut self, client: usize, bytes: Bytes) {
        let Self { shared, carry, clients, wall_ms } = self;
        let mut turn = Turn::new(*wall_ms, shared, carry);
        if let Some(Some(open)) = clients.get_mut(client)
            && open.connection.receive(bytes, &mut turn) == Fate::Closing
        {
            open.connection.end(false, &mut turn);
        }
        turn.finish();
        self.settle();
    }

    /// A client's connection breaks.
    pub fn lose(&mut self, client: usize) {
        let Self { shared, carry, clients, wall_ms } = self;
        let mut turn = Turn::new(*wall_ms, shared, carry);
        if let Some(mut gone) = clients.get_mut(client).and_then(Option::take) {
            gone.connection.end(true, &mut turn);
        }
        turn.finish();
        self.settle();
    }

    /// A client's socket takes so many more bytes; one turn.
    pub fn set_room(&mut self, client: usize, room: usize) {
        let Self { shared, carry, clients, wall_ms } = self;
        let mut turn = Turn::new(*wall_ms, shared, carry);
        if let Some(Some(open)) = clients.get_mut(client) {
            open.pipe.room.store(room, Ordering::Relaxed);
            open.connection.output().set_writable();
            turn.touch_output(open.connection.output());
        }
        turn.finish();
        self.settle();
    }

    /// What was written to a client since the last call.
    pub fn take_written(&mut self, client: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(Some(open)) = self.clients.get(client) {
            while let Some(more) = open.pipe.written.pop() {
                bytes.extend_from_slice(&more);
            }
        }
        bytes
    }

    /// Whether the broker has ended this client's stream, or the client is gone.
    pub fn is_ended(&self, client: usize) -> bool {
        let open = self.clients.get(client).and_then(Option::as_ref);
        open.is_none_or(|open| open.pipe.finished.load(Ordering::Relaxed))
    }

    /// Messages that expired so far.
    pub fn expired(&self) -> u64 {
        self.shared.stats.expired_count()
    }

    /// Messages in all destinations, waiting or in flight.
    pub fn messages(&self) -> u64 {
        self.shared.registry.all().iter().map(|one| one.messages()).sum()
    }

    /// Messages in all destinations of a kind but the dead message queue.
    pub fn messages_of(&self, kind: DestinationKind) -> u64 {
        let all = self.shared.registry.all();
        let own = all.iter().filter(|one| one.kind == kind && one.origin != Origin::Dead);
        own.map(|one| one.messages()).sum()
    }

    /// Further turns until nothing is bounded away any more.
    fn settle(&mut self) {
        while self.carry.has_work() {
            let Self { shared, carry, wall_ms, .. } = self;
            Turn::new(*wall_ms, shared, carry).finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Desk;
    use crate::{
        broker::{BrokerConfig, attributes::LimitBehavior},
        message::DestinationKind,
        proto::auth,
        wire::{PacketBuilder, PacketType, Padding, VariableHeader},
    };

    fn send(desk: &mut Desk, packet: PacketBuilder) {
        desk.receive(0, packet.finish().raw().clone());
    }

    fn on_topic(kind: PacketType) -> PacketBuilder {
        PacketBuilder::new(kind).string("JMQDestination", "t").int("JMQDestType", 2)
    }

    #[test]
    fn a_subscription_nobody_comes_to_does_not_keep_what_its_topic_has_given_up() {
        for behavior in [LimitBehavior::RemoveOldest, LimitBehavior::RemoveLowPriority] {
            let mut config = BrokerConfig::default();
            config.topic.messages_max = 3;
            config.topic.limit_behavior = behavior;
            let mut desk = Desk::new(config);
            desk.connect();
            let proof = auth::stored_hash("guest", "guest");
            let proof = auth::digest_response(&proof, &auth::nonce([7; 16]));
            let login = PacketBuilder::new(PacketType::AUTHENTICATE)
                .string("JMQAuthType", "digest")
                .body(auth::authenticate_body("guest", &proof).unwrap());
            send(&mut desk, PacketBuilder::new(PacketType::HELLO));
            send(&mut desk, login);
            // A plain one that never starts, and one that stands for itself.
            send(&mut desk, on_topic(PacketType::ADD_CONSUMER));
            let durable = on_topic(PacketType::ADD_CONSUMER).string("JMQDurableName", "d");
            send(&mut desk, durable.boolean("JMQJMSShare", true));
            for number in 0..200_u8 {
                let fields =
                    VariableHeader { destination: Some(b"t"), ..VariableHeader::default() };
                let message = PacketBuilder::new(PacketType::TEXT_MESSAGE)
                    .variable(&fields, Padding::Java)
                    .unwrap()
                    .priority(number % 10);
                send(&mut desk, message);
            }
            assert_eq!(desk.messages_of(DestinationKind::Topic), 3, "{behavior}");
            let all = desk.shared.subscriptions.all();
            let kept = all.iter().map(|(_, one)| one.messages()).max().unwrap();
            assert!(kept <= 4, "{behavior}: {kept} are kept");
        }
    }
}
