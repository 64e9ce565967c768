//! A client that speaks packets and nothing else, for what a well-behaved one would never send.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tidegate::{
    broker::Broker,
    internals::auth,
    wire::{
        Decoder, Flags, Frame, MessageId, Packet, PacketBuilder, PacketType, Padding,
        VariableHeader,
    },
};

/// How long any one step of a test may take before it counts as failed.
pub const DEADLINE: Duration = Duration::from_secs(10);

pub const QUEUE: i32 = 1;
pub const TOPIC: i32 = 2;

pub struct Raw {
    pub stream: TcpStream,
    decoder: Decoder,
    inbox: VecDeque<Packet>,
    next_id: i64,
    port: i32,
    sequence: i32,
    /// The broker's last challenge, for whoever plays a login by hand.
    pub nonce: String,
}

impl Raw {
    /// Connects and logs in to the admin service as `admin`.
    pub fn administer(address: SocketAddr) -> Self {
        let mut raw = Self::connect(address);
        assert_eq!(status(&raw.hello(0)), 200);
        assert_eq!(status(&raw.authenticate("admin", "admin")), 200);
        raw
    }

    /// Connects and says nothing.
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the broker listens"))
    }

    /// Says nothing yet on this stream.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        let port = i32::from(stream.local_addr().unwrap().port());
        Self {
            stream,
            decoder: Decoder::new(1 << 30),
            inbox: VecDeque::new(),
            next_id: 0,
            port,
            sequence: 0,
            nonce: String::new(),
        }
    }

    /// Connects and logs in as `guest`, with metered batches of `metering` messages.
    pub fn login(address: SocketAddr, metering: i32) -> Self {
        let mut raw = Self::connect(address);
        let reply = raw.hello(metering);
        assert_eq!(status(&reply), 200);
        let reply = raw.authenticate("guest", "guest");
        assert_eq!(status(&reply), 200);
        raw
    }

    pub fn hello(&mut self, metering: i32) -> Packet {
        self.request(
            PacketBuilder::new(PacketType::HELLO)
                .int("JMQProtocolLevel", 500)
                .int("JMQRBufferSize", metering),
        )
    }

    /// Answers the challenge that follows a `HELLO_REPLY`.
    pub fn authenticate(&mut self, user: &str, password: &str) -> Packet {
        let challenge = self.expect(PacketType::AUTHENTICATE_REQUEST);
        let nonce = String::from_utf8(challenge.body().to_vec()).unwrap();
        let response = auth::digest_response(&auth::stored_hash(user, password), &nonce);
        self.request(
            PacketBuilder::new(PacketType::AUTHENTICATE)
                .string("JMQAuthType", "digest")
                .body(auth::authenticate_body(user, &response).unwrap()),
        )
    }

    /// Sends a packet that wants a reply, and waits for that.
    pub fn request(&mut self, builder: PacketBuilder) -> Packet {
        let id = self.ask(builder);
        self.reply(id)
    }

    /// Sends a packet that wants a reply, and returns the reply's id.
    pub fn ask(&mut self, builder: PacketBuilder) -> i64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(builder.consumer_id(id).flags(Flags::ACKNOWLEDGE));
        id
    }

    /// Asks for several things in one write, and returns the ids of the replies.
    pub fn ask_at_once<const N: usize>(&mut self, builders: [PacketBuilder; N]) -> [i64; N] {
        let mut bytes = Vec::new();
        let ids = builders.map(|builder| {
            self.next_id += 1;
            let builder = builder.consumer_id(self.next_id).flags(Flags::ACKNOWLEDGE);
            bytes.extend_from_slice(self.stamp(builder).raw());
            self.next_id
        });
        self.send_bytes(&bytes);
        ids
    }

    pub fn reply(&mut self, id: i64) -> Packet {
        let is_reply = |packet: &Packet| {
            packet.header().packet_type.is_reply() && packet.header().consumer_id == id
        };
        self.wait(is_reply).unwrap_or_else(|| panic!("no reply {id}"))
    }

    pub fn send(&mut self, builder: PacketBuilder) -> MessageId {
        let packet = self.stamp(builder);
        self.send_bytes(packet.raw());
        packet.header().id
    }

    pub fn stamp(&mut self, builder: PacketBuilder) -> Packet {
        self.sequence += 1;
        let id =
            MessageId { timestamp: 1, address: [7; 16], port: self.port, sequence: self.sequence };
        builder.id(id).finish()
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the broker reads");
    }

    pub fn create_session(&mut self, ack_mode: i32) -> i64 {
        let reply = self
            .request(PacketBuilder::new(PacketType::CREATE_SESSION).int("JMQAckMode", ack_mode));
        long(&reply, "JMQSessionID")
    }

    pub fn create_destination(&mut self, name: &str, kind: i32) -> Packet {
        self.request(
            PacketBuilder::new(PacketType::CREATE_DESTINATION)
                .string("JMQDestination", name)
                .int("JMQDestType", kind),
        )
    }

    pub fn add_consumer(&mut self, session: i64, name: &str, kind: i32, size: i32) -> i64 {
        let reply = self.request(
            PacketBuilder::new(PacketType::ADD_CONSUMER)
                .string("JMQDestination", name)
                .int("JMQDestType", kind)
                .long("JMQSessionID", session)
                .int("JMQSize", size),
        );
        assert_eq!(status(&reply), 200);
        long(&reply, "JMQConsumerID")
    }

    pub fn start(&mut self) {
        self.send(PacketBuilder::new(PacketType::START));
    }

    pub fn resume_consumer(&mut self, consumer: i64, size: i32) {
        self.send(
            PacketBuilder::new(PacketType::RESUME_FLOW)
                .long("JMQConsumerID", consumer)
                .int("JMQSize", size),
        );
    }

    /// Ends the connection without a goodbye, as a killed process does.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Creates a queue and sends texts to it that wait for their replies.
    pub fn fill(&mut self, queue: &str, texts: impl IntoIterator<Item = impl ToString>) {
        assert_eq!(status(&self.create_destination(queue, QUEUE)), 200);
        for text in texts {
            let reply = self.request(Self::text(queue, QUEUE, &text.to_string()));
            assert_eq!(status(&reply), 200, "{}", reason(&reply));
        }
    }

    /// A session that acknowledges as its consumers say, with one consumer of a queue, started.
    pub fn consume(&mut self, ack_mode: i32, queue: &str, size: i32) -> (i64, i64) {
        let session = self.create_session(ack_mode);
        let consumer = self.add_consumer(session, queue, QUEUE, size);
        self.start();
        (session, consumer)
    }

    /// The next so many messages.
    pub fn messages(&mut self, count: usize) -> Vec<Packet> {
        (0..count).map(|_| self.message()).collect()
    }

    /// Pauses one session and waits until it is.
    pub fn stop_session(&mut self, session: i64) {
        let stop = PacketBuilder::new(PacketType::STOP).long("JMQSessionID", session);
        assert_eq!(status(&self.request(stop)), 200);
    }

    pub fn start_session(&mut self, session: i64) {
        self.send(PacketBuilder::new(PacketType::START).long("JMQSessionID", session));
    }

    /// Starts a local transaction.
    pub fn begin(&mut self, session: i64) -> i64 {
        let reply = self.request(
            PacketBuilder::new(PacketType::START_TRANSACTION).long("JMQSessionID", session),
        );
        assert_eq!(status(&reply), 200, "{}", reason(&reply));
        long(&reply, "JMQTransactionID")
    }

    pub fn commit(&mut self, transaction: i64) -> Packet {
        self.request(about(PacketType::COMMIT_TRANSACTION, transaction))
    }

    pub fn rollback(&mut self, transaction: i64) -> Packet {
        self.request(about(PacketType::ROLLBACK_TRANSACTION, transaction))
    }

    /// Sends texts to a queue in a transaction.
    pub fn fill_in(&mut self, transaction: i64, queue: &str, texts: &[&str]) {
        for text in texts {
            let reply = self.request(Self::text_in(transaction, queue, QUEUE, text));
            assert_eq!(status(&reply), 200, "{}", reason(&reply));
        }
    }

    /// Acknowledges in a transaction.
    pub fn acknowledge_in(&mut self, transaction: i64, packets: &[&Packet]) -> Packet {
        self.request(in_transaction(transaction, acknowledge(packets)))
    }

    pub fn text(name: &str, kind: i32, text: &str) -> PacketBuilder {
        Self::text_in(0, name, kind, text)
    }

    /// A text that is sent in a transaction; 0: in none.
    pub fn text_in(transaction: i64, name: &str, kind: i32, text: &str) -> PacketBuilder {
        let fields = VariableHeader {
            destination: Some(name.as_bytes()),
            transaction_id: (transaction != 0).then_some(transaction),
            ..VariableHeader::default()
        };
        let queue = if kind == QUEUE { Flags::QUEUE } else { Flags::empty() };
        PacketBuilder::new(PacketType::TEXT_MESSAGE)
            .variable(&fields, Padding::Java)
            .unwrap()
            .flags(queue)
            .body(text.as_bytes().to_vec())
    }

    /// The next message, or panics.
    pub fn message(&mut self) -> Packet {
        self.wait(|packet| packet.header().packet_type.is_message()).expect("a message")
    }

    /// Everything the broker had for this client when it read what was sent so far. Control
    /// packets overtake messages that are just being dispatched, so it takes a second PING to know
    /// that those have arrived. Across loops a third covers the hand-over.
    pub fn messages_so_far(&mut self) -> Vec<Packet> {
        for _ in 0..3 {
            let pong = self.request(PacketBuilder::new(PacketType::PING));
            assert_eq!(pong.header().packet_type, PacketType::PING_REPLY);
        }
        let is_message = |packet: &Packet| packet.header().packet_type.is_message();
        let (messages, rest) = self.inbox.drain(..).partition::<Vec<_>, _>(is_message);
        self.inbox = rest.into();
        messages
    }

    pub fn expect(&mut self, kind: PacketType) -> Packet {
        self.wait(|packet| packet.header().packet_type == kind)
            .unwrap_or_else(|| panic!("no {kind}"))
    }

    /// The first packet like this, other ones being kept; `None` if the stream ends first.
    pub fn wait(&mut self, wanted: impl Fn(&Packet) -> bool) -> Option<Packet> {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(at) = self.inbox.iter().position(&wanted) {
                return self.inbox.remove(at);
            }
            assert!(Instant::now() < until, "nothing like it came in time");
            if !self.read() {
                return None;
            }
        }
    }

    /// A packet like this if it is here within some milliseconds.
    pub fn look(&mut self, wanted: impl Fn(&Packet) -> bool) -> Option<Packet> {
        self.read_within(Duration::from_millis(5));
        self.inbox.iter().position(wanted).and_then(|at| self.inbox.remove(at))
    }

    /// Reads to the end of the stream; everything that came.
    pub fn until_end(&mut self) -> Vec<Packet> {
        let until = Instant::now() + DEADLINE;
        while self.read() {
            assert!(Instant::now() < until, "the broker does not close");
        }
        self.inbox.drain(..).collect()
    }

    fn read(&mut self) -> bool {
        self.read_within(DEADLINE).expect("the broker neither answers nor closes")
    }

    /// Reads once; `None` if nothing came in time, `false` at the end of the stream.
    fn read_within(&mut self, time: Duration) -> Option<bool> {
        let mut buffer = [0; 65536];
        self.stream.set_read_timeout(Some(time)).unwrap();
        let count = match self.stream.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => panic!("{error}: the broker neither answers nor closes"),
        };
        self.decoder.feed(Bytes::copy_from_slice(&buffer[..count]));
        while let Some(frame) = self.decoder.next_frame().expect("the broker sends packets") {
            match frame {
                Frame::Packet(packet) => self.inbox.push_back(packet),
                Frame::Oversized(header) => panic!("{header:?}"),
            }
        }
        Some(count > 0)
    }
}

/// An acknowledgement of deliveries.
pub fn acknowledge(packets: &[&Packet]) -> PacketBuilder {
    PacketBuilder::new(PacketType::ACKNOWLEDGE).body(blocks(packets))
}

/// Deliveries that come back.
pub fn redeliver(seen: bool, packets: &[&Packet]) -> PacketBuilder {
    PacketBuilder::new(PacketType::REDELIVER)
        .boolean("JMQSetRedelivered", seen)
        .body(blocks(packets))
}

/// A packet with the id of a transaction in its variable header.
pub fn in_transaction(transaction: i64, packet: PacketBuilder) -> PacketBuilder {
    let fields = VariableHeader { transaction_id: Some(transaction), ..VariableHeader::default() };
    packet.variable(&fields, Padding::Java).unwrap()
}

/// The end of a session.
pub fn destroy(session: i64) -> PacketBuilder {
    PacketBuilder::new(PacketType::DESTROY_SESSION).long("JMQSessionID", session)
}

/// A request about a transaction.
pub fn about(kind: PacketType, transaction: i64) -> PacketBuilder {
    PacketBuilder::new(kind).long("JMQTransactionID", transaction)
}

/// The 40-byte blocks that name deliveries.
pub fn blocks(packets: &[&Packet]) -> Vec<u8> {
    let block = |packet: &&Packet| {
        let header = packet.header();
        [&header.consumer_id.to_be_bytes()[..], &header.id.encode()].concat()
    };
    packets.iter().flat_map(block).collect()
}

pub fn status(packet: &Packet) -> i32 {
    packet.properties().unwrap().int("JMQStatus").unwrap().expect("a status")
}

pub fn reason(packet: &Packet) -> String {
    let table = packet.properties().unwrap();
    table.string("JMQReason").unwrap().unwrap_or_default().into_owned()
}

pub fn long(packet: &Packet, name: &'static str) -> i64 {
    packet.properties().unwrap().long(name).unwrap().expect(name)
}

pub fn int(packet: &Packet, name: &'static str) -> i32 {
    packet.properties().unwrap().int(name).unwrap().expect(name)
}

pub fn body(packet: &Packet) -> String {
    String::from_utf8(packet.body().to_vec()).unwrap()
}

pub fn bodies(packets: &[Packet]) -> Vec<String> {
    packets.iter().map(body).collect()
}

pub fn flags(packet: &Packet) -> String {
    packet.header().flags.to_string()
}

pub fn delivery_count(packet: &Packet) -> i32 {
    packet.variable().unwrap().delivery_count.expect("a delivery has a count")
}

/// Text and delivery count of each, which must agree with its flag R.
pub fn counted(packets: &[Packet]) -> Vec<(String, i32)> {
    let one = |packet: &Packet| {
        let count = delivery_count(packet);
        assert_eq!(packet.header().flags.contains(Flags::REDELIVERED), count > 1, "{packet:?}");
        (body(packet), count)
    };
    packets.iter().map(one).collect()
}

/// Texts with their delivery counts, as [`counted`] reads them.
pub fn times(expected: &[(&str, i32)]) -> Vec<(String, i32)> {
    expected.iter().map(|&(text, count)| (text.to_owned(), count)).collect()
}

/// Messages of a destination, waiting or not settled.
pub fn held(broker: &Broker, name: &str) -> u64 {
    let all = broker.snapshot().destinations;
    all.iter().find(|one| one.name == name).map_or(0, |one| one.messages)
}

/// Everything in a queue, read by a client of its own.
pub fn drain(address: SocketAddr, queue: &str) -> Vec<(String, i32)> {
    let mut raw = Raw::login(address, 0);
    raw.consume(2, queue, -1);
    counted(&raw.messages_so_far())
}
