//! A client that speaks packets and nothing else, for what a well-behaved one would never send.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tidegate::{
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

    pub fn text(name: &str, kind: i32, text: &str) -> PacketBuilder {
        let fields =
            VariableHeader { destination: Some(name.as_bytes()), ..VariableHeader::default() };
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
