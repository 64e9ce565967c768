//! A broker that does what a test says, over a real loopback socket.
//!
//! [`Scripted::start`] runs a script on a thread for each connection. In the script a [`Peer`]
//! answers what needs no thought by itself ([`Peer::serve_until`]), so that a test spells out only
//! what it is about. Every wait has a deadline.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use tidegate::{
    client::{Connection, ConnectionFactory},
    message::Destination,
    wire::{
        Decoder, Flags, Frame, MessageId, Packet, PacketBuilder, PacketType, Padding, Status,
        VariableHeader,
    },
};

/// The time, for deadlines of tests.
#[allow(clippy::disallowed_methods, reason = "tests have deadlines")]
pub fn now() -> Instant {
    Instant::now()
}

/// How long anything may take.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A listening script.
pub struct Scripted {
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Scripted {
    /// Runs `script` on the first connection.
    pub fn start(script: impl FnOnce(&mut Peer) + Send + 'static) -> Self {
        Self::start_with(Style::default(), script)
    }

    /// As [`start`](Self::start), writing in another style.
    pub fn start_with(style: Style, script: impl FnOnce(&mut Peer) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            script(&mut Peer::new(stream, style));
        });
        Self { address, threads: vec![thread] }
    }

    /// Runs `script`, which lets connections in as they come.
    pub fn start_accepting(script: impl FnOnce(&Door) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || script(&Door { listener }));
        Self { address, threads: vec![thread] }
    }

    /// A factory for this broker.
    pub fn factory(&self) -> ConnectionFactory {
        let mut factory = ConnectionFactory::new();
        let list = format!("mqtcp://{}/jms", self.address);
        factory.set_attribute("imqAddressList", &list).unwrap();
        factory.set_attribute("imqAddressListIterations", "1").unwrap();
        factory
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn connect(&self) -> Connection {
        self.factory().create_connection().unwrap()
    }

    /// Waits for the script's end, and fails if it failed.
    pub fn join(self) {
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Where connections come in.
pub struct Door {
    listener: TcpListener,
}

impl Door {
    /// The next connection.
    pub fn open(&self) -> Peer {
        let (stream, _) = self.listener.accept().unwrap();
        Peer::new(stream, Style::default())
    }
}

/// How the broker writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Bytes of each write; `None` for whole packets.
    pub chunk: Option<usize>,
    /// Where the first write ends, counted from the start of the stream.
    pub cut_at: Option<usize>,
    /// Credit of producers; `None` is 1000.
    pub producer_credit: Option<i32>,
    /// `JMQSize` of `HELLO_REPLY`, if any.
    pub connection_credit: Option<i32>,
    /// Destination limit of a consumer's window; `None` takes the wish.
    pub consumer_limit: Option<i32>,
}

/// The client, as the script sees it.
pub struct Peer {
    stream: TcpStream,
    decoder: Decoder,
    style: Style,
    written: usize,
    next_id: i64,
    sequence: i32,
    held: Option<BytesMut>,
    /// What [`login`](Self::login) got first.
    pub hello: Option<Packet>,
    /// Everything that came and was answered by itself.
    pub seen: VecDeque<Packet>,
    /// Consumers that were added, oldest first.
    pub consumers: Vec<i64>,
    /// Producers that were added, oldest first.
    pub producers: Vec<i64>,
    /// Windows of the consumers, as agreed.
    pub windows: Vec<i32>,
}

impl Peer {
    fn new(stream: TcpStream, style: Style) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            decoder: Decoder::new(100 << 20),
            style,
            written: 0,
            next_id: 1000,
            sequence: 0,
            held: None,
            hello: None,
            seen: VecDeque::new(),
            consumers: Vec::new(),
            producers: Vec::new(),
            windows: Vec::new(),
        }
    }

    /// The socket, for whoever goes on without packets.
    pub fn stream(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    // ---- reading ----

    /// The next packet, whatever it is.
    pub fn packet(&mut self) -> Packet {
        self.packet_within(DEADLINE).expect("the client sends something in time")
    }

    /// The next packet, if one comes in this time. `None` too when the client hangs up.
    pub fn packet_within(&mut self, time: Duration) -> Option<Packet> {
        let deadline = now() + time;
        loop {
            match self.decoder.next_frame().unwrap() {
                Some(Frame::Packet(packet)) => return Some(packet),
                Some(Frame::Oversized(header)) => panic!("oversized {header:?}"),
                None => {}
            }
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return None;
            }
            self.stream.set_read_timeout(Some(left)).unwrap();
            let mut buffer = vec![0; 64 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(len) => {
                    buffer.truncate(len);
                    self.decoder.feed(Bytes::from(buffer));
                }
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(_) => {}
            }
        }
    }

    /// The next packet, which must be of this type.
    pub fn expect(&mut self, kind: PacketType) -> Packet {
        let packet = self.packet();
        assert_eq!(packet.header().packet_type, kind);
        packet
    }

    /// Answers what needs no thought until a packet of this type comes, which is not answered.
    pub fn serve_until(&mut self, kind: PacketType) -> Packet {
        loop {
            let packet = self.packet();
            if packet.header().packet_type == kind {
                return packet;
            }
            self.answer(&packet);
            self.seen.push_back(packet);
        }
    }

    /// Answers until the client says goodbye or hangs up.
    pub fn serve_to_the_end(&mut self) {
        while let Some(packet) = self.packet_within(DEADLINE) {
            let ends = packet.header().packet_type == PacketType::GOODBYE;
            self.answer(&packet);
            self.seen.push_back(packet);
            if ends {
                return;
            }
        }
    }

    /// What came and was answered by itself, of one type.
    pub fn seen_of(&self, kind: PacketType) -> Vec<Packet> {
        let of = |packet: &&Packet| packet.header().packet_type == kind;
        self.seen.iter().filter(of).cloned().collect()
    }

    // ---- writing ----

    /// Sends a packet; the id it got.
    pub fn send(&mut self, packet: PacketBuilder) -> MessageId {
        let packet = self.stamped(packet);
        self.write(packet.raw());
        packet.header().id
    }

    fn stamped(&mut self, packet: PacketBuilder) -> Packet {
        self.sequence += 1;
        let id = MessageId { timestamp: 1, address: [7; 16], port: 1, sequence: self.sequence };
        packet.id(id).finish()
    }

    /// From here on everything is kept, and written at once by [`release`](Self::release).
    pub fn hold(&mut self) {
        self.held = Some(BytesMut::new());
    }

    pub fn release(&mut self) {
        let bytes = self.held.take().unwrap();
        self.write(&bytes);
    }

    /// Sends bytes in the style of this peer.
    pub fn write(&mut self, mut bytes: &[u8]) {
        if let Some(held) = &mut self.held {
            held.extend_from_slice(bytes);
            return;
        }
        while !bytes.is_empty() {
            let mut len = self.style.chunk.unwrap_or(bytes.len()).min(bytes.len());
            if let Some(cut) = self.style.cut_at.filter(|cut| *cut > self.written) {
                len = len.min(cut - self.written);
            }
            let (now, rest) = bytes.split_at(len);
            // A client that has hung up is found out where something is expected of it.
            if self.stream.write_all(now).is_err() {
                return;
            }
            self.written += len;
            bytes = rest;
            if !rest.is_empty() {
                // Gives the client a chance to read what there is.
                std::thread::yield_now();
            }
        }
    }

    /// Replies with a status and nothing else.
    pub fn status(&mut self, request: &Packet, status: Status) {
        self.send(PacketBuilder::reply(request.header(), status));
    }

    pub fn ok(&mut self, request: &Packet) {
        self.status(request, Status::OK);
    }

    /// Answers as a broker would that has room for everything.
    pub fn answer(&mut self, packet: &Packet) {
        let header = packet.header();
        let wants = header.flags.contains(Flags::ACKNOWLEDGE);
        let table = packet.properties().unwrap();
        let reply = PacketBuilder::reply(header, Status::OK);
        let reply = match header.packet_type {
            PacketType::START | PacketType::RESUME_FLOW | PacketType::REDELIVER => return,
            PacketType::CREATE_SESSION => {
                let id = self.id();
                reply.long("JMQSessionID", id)
            }
            PacketType::ADD_PRODUCER => {
                let id = self.id();
                self.producers.push(id);
                let credit = self.style.producer_credit.unwrap_or(1000);
                reply.long("JMQProducerID", id).int("JMQSize", credit)
            }
            PacketType::ADD_CONSUMER => {
                let id = self.id();
                self.consumers.push(id);
                let wish = table.int("JMQSize").unwrap().unwrap();
                let agreed = self.style.consumer_limit.map_or(wish, |limit| wish.min(limit));
                self.windows.push(agreed);
                reply.long("JMQConsumerID", id).int("JMQSize", agreed)
            }
            // Always the same number: a test that looks knows it.
            PacketType::START_TRANSACTION => reply.long("JMQTransactionID", 7),
            PacketType::DELETE_CONSUMER => {
                let id = table.long("JMQConsumerID").unwrap().unwrap_or(0);
                reply.long("JMQConsumerID", id)
            }
            _ if !wants => return,
            _ => reply,
        };
        if wants {
            self.send(reply);
        }
    }

    fn id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    /// Plays the login.
    pub fn login(&mut self) {
        self.login_saying(|reply| reply);
    }

    /// Plays the login, with more in its first reply.
    pub fn login_saying(&mut self, more: impl FnOnce(PacketBuilder) -> PacketBuilder) {
        let hello = self.expect(PacketType::HELLO);
        let mut reply = PacketBuilder::reply(hello.header(), Status::OK)
            .long("JMQConnectionID", 77)
            .int("JMQProtocolLevel", 500)
            .string("JMQVersion", "scripted");
        if let Some(credit) = self.style.connection_credit {
            reply = reply.int("JMQSize", credit);
        }
        self.send(more(reply));
        let ask = PacketBuilder::new(PacketType::AUTHENTICATE_REQUEST)
            .consumer_id(hello.header().consumer_id)
            .string("JMQAuthType", "digest")
            .boolean("JMQChallenge", true)
            .int("JMQStatus", 200)
            .body(Bytes::from_static(b"-69720c583e953e035925b875bc19d718"));
        self.send(ask);
        let answer = self.expect(PacketType::AUTHENTICATE);
        let body = answer.body_bytes();
        let digest = b"-1d8679593ad26cc18c62872def324d1b";
        assert!(body.ends_with(digest), "the digest of guest and guest");
        self.ok(&answer);
        self.hello = Some(hello);
    }

    /// Delivers a text message.
    pub fn deliver(&mut self, consumer: i64, text: &str, flags: Flags) -> MessageId {
        self.deliver_with(consumer, text, flags, |packet| packet)
    }

    /// Delivers a text message with something more.
    pub fn deliver_with(
        &mut self,
        consumer: i64,
        text: &str,
        flags: Flags,
        more: impl FnOnce(PacketBuilder) -> PacketBuilder,
    ) -> MessageId {
        let variable = VariableHeader {
            delivery_count: Some(1),
            destination: Some(b"q"),
            destination_class: Some(b"com.sun.messaging.BasicQueue"),
            ..VariableHeader::default()
        };
        let packet = PacketBuilder::new(PacketType::TEXT_MESSAGE)
            .flags(flags.with(Flags::QUEUE))
            .consumer_id(consumer)
            .variable(&variable, Padding::Java)
            .unwrap()
            .body(text.as_bytes().to_vec());
        let packet = self.stamped(more(packet));
        self.write(packet.raw());
        packet.header().id
    }

    /// Hangs up.
    pub fn hang_up(&self) {
        let _gone = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// The ids in an acknowledgement or redelivery: consumer and number of the message.
pub fn blocks(packet: &Packet) -> Vec<(i64, i32)> {
    packet
        .body_bytes()
        .chunks_exact(40)
        .map(|block| {
            let (consumer, id) = block.split_at(8);
            let id = MessageId::decode(id.try_into().unwrap());
            (i64::from_be_bytes(consumer.try_into().unwrap()), id.sequence)
        })
        .collect()
}

/// An `int` property of a packet.
pub fn int(packet: &Packet, name: &'static str) -> Option<i32> {
    packet.properties().unwrap().int(name).unwrap()
}

/// A `long` property of a packet.
pub fn long(packet: &Packet, name: &'static str) -> Option<i64> {
    packet.properties().unwrap().long(name).unwrap()
}

/// A queue by name.
pub fn queue(name: &str) -> Destination {
    Destination::queue(name).unwrap()
}

/// A way for a script and its test to wait for each other.
pub fn gate() -> (Sender<()>, Receiver<()>) {
    channel()
}

/// Waits for the other side of a [`gate`].
pub fn pass(gate: &Receiver<()>) {
    gate.recv_timeout(DEADLINE).expect("the other side gets here in time");
}
