//! Any sequence of what clients may do to a broker, sensible or not.
//!
//! The bytes choose operations of up to four clients: packets as a client would send them with ids
//! it has learned, packets of any type with any properties, plain garbage, lost connections, full
//! sockets, time. Beside the broker runs the simplest model there is: what was accepted, what was
//! settled. It must hold that
//!
//! - the broker writes nothing but packets, and every delivery names a consumer of its client;
//! - R is set exactly from the second delivery on;
//! - a consumer never gets more than its window, and C stands on the last of it;
//! - in the end, what was accepted and not settled is there, once each, and nothing settled is.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::{
    broker::{BrokerConfig, desk::Desk},
    proto::auth,
    wire::{
        Decoder, Flags, Frame, MessageId, Packet, PacketBuilder, PacketType, Padding, Status,
        VariableHeader,
    },
};

const CLIENTS_MAX: usize = 4;
const OPERATIONS_MAX: usize = 300;
/// Queues, then a topic.
const NAMES: [(&str, i32); 3] = [("a", 1), ("b", 1), ("t", 2)];
/// The destination's limit of a consumer's window.
const WINDOW_MAX: i32 = 1000;

/// The body of the fuzz target `broker_ops`.
///
/// # Panics
/// If the broker breaks one of the laws above.
pub fn broker_ops(data: &[u8]) {
    let mut input = Input { data };
    let mut world = World::new();
    for _ in 0..OPERATIONS_MAX {
        let Some(operation) = input.byte() else { break };
        world.run(operation, &mut input);
    }
    world.finish();
}

/// The bytes that choose.
struct Input<'a> {
    data: &'a [u8],
}

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.data.split_first()?;
        self.data = rest;
        Some(first)
    }

    /// A number below `bound`; 0 when the bytes have run out.
    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte().unwrap_or(0)).checked_rem(bound).unwrap_or(0)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).copied()
    }
}

#[derive(Default)]
struct Client {
    number: usize,
    decoder: Option<Decoder>,
    sessions: Vec<i64>,
    consumers: BTreeMap<i64, Window>,
    producers: Vec<i64>,
    /// Deliveries as acknowledgement blocks.
    delivered: Vec<(i64, MessageId)>,
    /// What each outstanding request was about.
    asked: BTreeMap<i64, Asked>,
    next_id: i64,
    /// A limited socket holds packets back, so windows cannot be counted from here.
    limited: bool,
    open: bool,
}

#[derive(Clone, Copy, Default)]
struct Window {
    /// What it may get before it must resume; `None` without limit.
    size: Option<i32>,
    got: i32,
}

enum Asked {
    Send(MessageId, bool),
    Acknowledge(Vec<MessageId>),
    Consumer(i32),
    Other,
}

struct World {
    desk: Desk,
    clients: Vec<Client>,
    sequence: i32,
    /// Messages of queues: accepted, and settled for certain.
    accepted: BTreeSet<MessageId>,
    settled: BTreeSet<MessageId>,
    /// Acknowledged, and the answer was never read: behind a full socket it may be.
    unsure: BTreeSet<MessageId>,
    /// Something happened after which messages may be gone for good reasons.
    may_be_gone: bool,
}

impl World {
    fn new() -> Self {
        Self {
            desk: Desk::new(BrokerConfig::default()),
            clients: Vec::new(),
            sequence: 0,
            accepted: BTreeSet::new(),
            settled: BTreeSet::new(),
            unsure: BTreeSet::new(),
            may_be_gone: false,
        }
    }

    fn run(&mut self, operation: u8, input: &mut Input<'_>) {
        if self.clients.len() < CLIENTS_MAX && (self.clients.is_empty() || operation == 0) {
            return self.connect(input);
        }
        let at = input.below(self.clients.len());
        match operation % 24 {
            0 | 1 => self.ask(
                at,
                PacketBuilder::new(PacketType::CREATE_SESSION)
                    .int("JMQAckMode", i32::from(input.byte().unwrap_or(1) % 5)),
            ),
            2 | 3 => {
                let (name, kind) = input.pick(&NAMES).unwrap_or(NAMES[0]);
                self.ask(at, destination(PacketType::CREATE_DESTINATION, name, kind));
            }
            4 | 5 => self.add_consumer(at, input),
            6..=9 => self.send(at, input),
            10 => self.start_or_stop(at, input),
            11..=13 => self.acknowledge(at, input),
            14 => self.redeliver(at, input),
            15 => self.resume(at, input),
            16 => self.delete_consumer(at, input),
            17 => {
                if let Some(session) = input.pick(&self.clients[at].sessions) {
                    self.ask(
                        at,
                        PacketBuilder::new(PacketType::DESTROY_SESSION)
                            .long("JMQSessionID", session),
                    );
                }
            }
            18 => self.lose(at, input),
            19 => self.odd_packet(at, input),
            20 => {
                let garbage = [input.byte().unwrap_or(0); 80];
                self.receive(at, Bytes::copy_from_slice(&garbage[..input.below(80)]));
            }
            21 => {
                let room = input.below(256) * 40;
                self.clients[at].limited = true;
                self.desk.set_room(self.clients[at].number, room);
                self.read(at);
            }
            22 => self.desk.advance(u32::from(input.byte().unwrap_or(0)) * 1000),
            _ => self.add_producer(at, input),
        }
    }

    fn connect(&mut self, input: &mut Input<'_>) {
        let number = self.desk.connect();
        let decoder = Some(Decoder::new(u32::MAX));
        self.clients.push(Client { number, decoder, open: true, ..Client::default() });
        let at = self.clients.len() - 1;
        let metering = i32::from(input.byte().unwrap_or(0) % 4);
        // A client whose metering it does not always answer cannot count its windows from here.
        self.clients[at].limited = metering > 0;
        let hello = PacketBuilder::new(PacketType::HELLO).int("JMQRBufferSize", metering);
        self.ask(at, hello);
        // One in a few stays without a login.
        if !input.byte().unwrap_or(1).is_multiple_of(8) {
            let nonce = auth::nonce([7; 16]);
            let response = auth::digest_response(&auth::stored_hash("guest", "guest"), &nonce);
            let body = auth::authenticate_body("guest", &response).unwrap_or_default();
            let login = PacketBuilder::new(PacketType::AUTHENTICATE)
                .string("JMQAuthType", "digest")
                .body(body);
            self.ask(at, login);
        }
    }

    fn add_consumer(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(session) = input.pick(&self.clients[at].sessions) else { return };
        let (name, kind) = input.pick(&NAMES).unwrap_or(NAMES[0]);
        let size = i32::from(input.byte().unwrap_or(0) % 8) - 1;
        let add = destination(PacketType::ADD_CONSUMER, name, kind)
            .long("JMQSessionID", session)
            .boolean("JMQNoLocal", kind == 2 && size % 2 == 0)
            .int("JMQSize", size);
        self.ask_about(at, add, Asked::Consumer(size));
    }

    fn add_producer(&mut self, at: usize, input: &mut Input<'_>) {
        match input.pick(&self.clients[at].producers).filter(|_| input.below(2) == 0) {
            Some(producer) => {
                self.ask(
                    at,
                    PacketBuilder::new(PacketType::DELETE_PRODUCER).long("JMQProducerID", producer),
                );
            }
            None => {
                let (name, kind) = input.pick(&NAMES).unwrap_or(NAMES[0]);
                self.ask(at, destination(PacketType::ADD_PRODUCER, name, kind));
            }
        }
    }

    fn send(&mut self, at: usize, input: &mut Input<'_>) {
        let (name, kind) = input.pick(&NAMES).unwrap_or(NAMES[0]);
        let choice = input.byte().unwrap_or(0);
        let fields = VariableHeader {
            destination: Some(name.as_bytes()),
            producer_id: input.pick(&self.clients[at].producers),
            ..VariableHeader::default()
        };
        let flags = Flags::empty()
            .set(Flags::QUEUE, kind == 1)
            .set(Flags::PERSISTENT, choice & 1 != 0)
            .set(Flags::CONSUMER_FLOW, choice & 2 != 0)
            .set(Flags::FLOW_PAUSED, choice & 4 != 0)
            .set(Flags::REDELIVERED, choice & 8 != 0);
        // Some expire at once, some while they wait.
        let expiration = if choice & 0xF0 == 0x10 { 1_000_100 } else { 0 };
        self.may_be_gone |= expiration > 0;
        let Ok(message) = PacketBuilder::new(PacketType::TEXT_MESSAGE)
            .priority(choice % 11)
            .expiration(expiration)
            .flags(flags)
            .body(vec![choice; usize::from(choice) * 5])
            .variable(&fields, Padding::Java)
        else {
            return;
        };
        self.sequence += 1;
        let id = MessageId { sequence: self.sequence, port: 1, ..MessageId::default() };
        self.ask_about(at, message.id(id), Asked::Send(id, kind == 1));
    }

    fn start_or_stop(&mut self, at: usize, input: &mut Input<'_>) {
        // Mostly started, or nothing would ever be delivered.
        let kind = if input.below(4) == 0 { PacketType::STOP } else { PacketType::START };
        let packet = PacketBuilder::new(kind);
        let session = input.pick(&self.clients[at].sessions).filter(|_| input.below(2) == 0);
        let packet = match session {
            Some(session) => packet.long("JMQSessionID", session),
            None => packet,
        };
        self.ask(at, packet);
    }

    /// Some of what was delivered, oldest first as a client would, or any of it.
    fn choose(&mut self, at: usize, input: &mut Input<'_>) -> Vec<(i64, MessageId)> {
        let delivered = &mut self.clients[at].delivered;
        let count = input.below(4).min(delivered.len());
        let from = input.below(delivered.len() + 1 - count);
        delivered.drain(from..from + count).collect()
    }

    fn acknowledge(&mut self, at: usize, input: &mut Input<'_>) {
        let chosen = self.choose(at, input);
        let kind = if input.below(8) == 0 { i32::from(input.byte().unwrap_or(0) % 4) } else { 0 };
        let packet = PacketBuilder::new(PacketType::ACKNOWLEDGE)
            .int("JMQAckType", kind)
            .body(blocks(&chosen));
        self.may_be_gone |= kind == 2;
        let settled =
            if kind == 0 { chosen.into_iter().map(|(_, id)| id).collect() } else { Vec::new() };
        self.unsure.extend(settled.iter().copied());
        self.ask_about(at, packet, Asked::Acknowledge(settled));
    }

    fn redeliver(&mut self, at: usize, input: &mut Input<'_>) {
        let chosen = self.choose(at, input);
        let packet = PacketBuilder::new(PacketType::REDELIVER)
            .boolean("JMQSetRedelivered", input.below(2) == 0)
            .body(blocks(&chosen));
        self.ask(at, packet);
    }

    fn resume(&mut self, at: usize, input: &mut Input<'_>) {
        let size = i32::from(input.byte().unwrap_or(0) % 8) - 1;
        let consumers: Vec<i64> = self.clients[at].consumers.keys().copied().collect();
        let packet = PacketBuilder::new(PacketType::RESUME_FLOW).int("JMQSize", size);
        match input.pick(&consumers).filter(|_| input.below(3) > 0) {
            Some(consumer) => {
                let window = Window { size: limited(size), got: 0 };
                self.clients[at].consumers.insert(consumer, window);
                self.tell(at, packet.long("JMQConsumerID", consumer));
            }
            None => self.tell(at, packet),
        }
    }

    fn delete_consumer(&mut self, at: usize, input: &mut Input<'_>) {
        let consumers: Vec<i64> = self.clients[at].consumers.keys().copied().collect();
        let Some(consumer) = input.pick(&consumers) else { return };
        let packet =
            PacketBuilder::new(PacketType::DELETE_CONSUMER).long("JMQConsumerID", consumer);
        let seen = &self.clients[at].delivered;
        let last = seen.iter().rfind(|(owner, _)| *owner == consumer).map(|(_, id)| id.encode());
        let packet = match (input.below(3), last) {
            (0, Some(last)) => packet.int("JMQBodyType", 3).body(last.to_vec()),
            (1, _) => packet.boolean("JMQRedeliverAll", true),
            _ => packet,
        };
        self.ask(at, packet);
    }

    fn lose(&mut self, at: usize, input: &mut Input<'_>) {
        if input.below(2) == 0 {
            self.ask(at, PacketBuilder::new(PacketType::GOODBYE));
        }
        self.desk.lose(self.clients[at].number);
        self.clients.remove(at);
    }

    /// A packet of any type with properties that may or may not be its own.
    fn odd_packet(&mut self, at: usize, input: &mut Input<'_>) {
        const INTS: [&str; 4] = ["JMQSize", "JMQDestType", "JMQAckMode", "JMQQuantity"];
        const LONGS: [&str; 3] = ["JMQSessionID", "JMQConsumerID", "JMQProducerID"];
        let kind = PacketType(u16::from(input.byte().unwrap_or(0)));
        // It may destroy a destination, or a message of its own kind may be accepted unseen.
        self.may_be_gone = true;
        let mut packet = PacketBuilder::new(kind).body(vec![0; input.below(100)]);
        for _ in 0..input.below(4) {
            let value = input.byte().unwrap_or(0);
            packet = match value % 4 {
                0 => packet.int(INTS[input.below(4)], i32::from(value) - 64),
                1 => packet.long(LONGS[input.below(3)], i64::from(value)),
                2 => packet.string("JMQDestination", NAMES[input.below(3)].0),
                _ => packet.string("JMQClientID", "id"),
            };
        }
        self.ask(at, packet);
    }

    fn ask(&mut self, at: usize, packet: PacketBuilder) {
        self.ask_about(at, packet, Asked::Other);
    }

    fn ask_about(&mut self, at: usize, packet: PacketBuilder, about: Asked) {
        let client = &mut self.clients[at];
        client.next_id += 1;
        client.asked.insert(client.next_id, about);
        let packet = packet.consumer_id(client.next_id).flags(Flags::ACKNOWLEDGE);
        self.tell(at, packet);
    }

    fn tell(&mut self, at: usize, packet: PacketBuilder) {
        self.receive(at, packet.finish().raw().clone());
    }

    fn receive(&mut self, at: usize, bytes: Bytes) {
        self.desk.receive(self.clients[at].number, bytes);
        for reader in 0..self.clients.len() {
            self.read(reader);
        }
    }

    fn read(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let bytes = self.desk.take_written(client.number);
        let Some(mut decoder) = client.decoder.take() else { return };
        decoder.feed(Bytes::from(bytes));
        while let Some(frame) = decoder.next_frame().expect("the broker writes packets") {
            match frame {
                Frame::Packet(packet) => self.heard(at, &packet),
                Frame::Oversized(header) => panic!("no packet is this large: {header:?}"),
            }
        }
        self.clients[at].decoder = Some(decoder);
    }

    fn heard(&mut self, at: usize, packet: &Packet) {
        let client = &mut self.clients[at];
        let header = packet.header();
        if header.packet_type.is_message() {
            return client.delivery(packet);
        }
        let table = packet.properties().expect("the broker writes tables");
        if !header.packet_type.is_reply() {
            client.open &= header.packet_type != PacketType::GOODBYE;
            return;
        }
        let status = table.int("JMQStatus").expect("an int").map(Status);
        let ok = status.is_some_and(Status::is_ok);
        let long = |name| table.long(name).expect("a long").filter(|_| ok);
        client.sessions.extend(long("JMQSessionID"));
        client.producers.extend(long("JMQProducerID"));
        match client.asked.remove(&header.consumer_id) {
            Some(Asked::Consumer(size)) => {
                if let Some(consumer) = long("JMQConsumerID") {
                    client.consumers.insert(consumer, Window { size: limited(size), got: 0 });
                }
            }
            Some(Asked::Send(id, to_queue)) if ok && to_queue => {
                self.accepted.insert(id);
            }
            Some(Asked::Acknowledge(ids)) if ok => {
                self.unsure.retain(|id| !ids.contains(id));
                self.settled.extend(ids);
            }
            // Some of them may have been settled, one was not there.
            Some(Asked::Acknowledge(ids)) if !ids.is_empty() => self.may_be_gone = true,
            _ => {}
        }
    }

    /// Everybody leaves; somebody new takes what is left.
    fn finish(mut self) {
        for client in std::mem::take(&mut self.clients) {
            self.desk.lose(client.number);
        }
        let left = self.desk.messages();
        self.connect(&mut Input { data: &[0, 1] });
        self.ask(0, PacketBuilder::new(PacketType::CREATE_SESSION).int("JMQAckMode", 2));
        let session = self.clients[0].sessions[0];
        for (name, kind) in NAMES {
            self.ask(0, destination(PacketType::CREATE_DESTINATION, name, kind));
            let add = destination(PacketType::ADD_CONSUMER, name, kind)
                .long("JMQSessionID", session)
                .int("JMQSize", -1);
            self.ask_about(0, add, Asked::Consumer(-1));
        }
        self.ask(0, PacketBuilder::new(PacketType::START));
        let ids: Vec<MessageId> = self.clients[0].delivered.iter().map(|&(_, id)| id).collect();
        let unique: BTreeSet<MessageId> = ids.iter().copied().collect();
        assert_eq!(ids.len(), unique.len(), "a message is in one place");
        let expired = usize::try_from(self.desk.expired()).unwrap_or(usize::MAX);
        assert!(
            ids.len().saturating_add(expired) as u64 >= left,
            "what the broker counts is there"
        );
        assert!(unique.is_disjoint(&self.settled), "what was settled does not come back");
        if !self.may_be_gone {
            let open = |id: &&MessageId| !self.settled.contains(id) && !self.unsure.contains(id);
            let mut wanted = self.accepted.iter().filter(open);
            assert!(wanted.all(|id| unique.contains(id)), "accepted and not settled is there");
        }
        // What is left when everybody has gone is what the fuzzer's leak detector looks at.
        self.desk.lose(self.clients[0].number);
    }
}

impl Client {
    fn delivery(&mut self, packet: &Packet) {
        let header = packet.header();
        let variable = packet.variable().expect("the broker writes variable headers");
        let count = variable.delivery_count.expect("a delivery has a count");
        assert!(count >= 1);
        assert_eq!(header.flags.contains(Flags::REDELIVERED), count >= 2, "R from the second on");
        let window =
            self.consumers.get_mut(&header.consumer_id).expect("a consumer of this client");
        window.got += 1;
        let marked = header.flags.contains(Flags::CONSUMER_FLOW);
        if !self.limited {
            match window.size {
                Some(size) => {
                    assert!(window.got <= size, "never more than the window");
                    assert_eq!(marked, window.got == size, "C on the last of it");
                }
                None => assert!(!marked || window.got == WINDOW_MAX),
            }
        }
        self.delivered.push((header.consumer_id, header.id));
    }
}

/// The window that comes of a client's wish; `None` if it is the destination's, which is larger
/// than what is ever sent here.
fn limited(size: i32) -> Option<i32> {
    Some(size).filter(|&size| size > 0)
}

fn destination(kind: PacketType, name: &str, mask: i32) -> PacketBuilder {
    PacketBuilder::new(kind).string("JMQDestination", name).int("JMQDestType", mask)
}

fn blocks(chosen: &[(i64, MessageId)]) -> Vec<u8> {
    let block =
        |(consumer, id): &(i64, MessageId)| [&consumer.to_be_bytes()[..], &id.encode()].concat();
    chosen.iter().flat_map(block).collect()
}
