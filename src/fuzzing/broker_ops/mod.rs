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
//! - in the end, what was accepted and not settled is there, once each, and nothing settled is;
//! - when all transactions and subscriptions have ended, queues have as many messages as can be
//!   got, and topics have none.

mod basic;
mod client;
mod reached;
mod transactions;
mod wishes;

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::{
    broker::{BrokerConfig, desk::Desk},
    message::DestinationKind,
    proto::transaction::Xid,
    wire::{
        Flags, Frame, MessageId, Packet, PacketBuilder, PacketType, Padding, Status, VariableHeader,
    },
};

use self::client::{Asked, Client, WINDOW_MAX, Window};
pub use self::reached::{Reached, Times};

const CLIENTS_MAX: usize = 4;
const OPERATIONS_MAX: usize = 300;
/// Operations below this number are the basic ones.
const BASIC: u8 = 192;
/// Queues, then a topic.
const NAMES: [(&str, i32); 3] = [("a", 1), ("b", 1), ("t", 2)];
/// Longer than everything that is done later, or waited for, in milliseconds.
const AN_HOUR: u32 = 3_600_000;

/// The body of the fuzz target `broker_ops`.
///
/// # Panics
/// If the broker breaks one of the laws above.
pub fn broker_ops(data: &[u8]) {
    let _reached = broker_ops_reached(data);
}

/// The same, and how far the input came.
///
/// # Panics
/// As above.
#[must_use]
pub fn broker_ops_reached(data: &[u8]) -> Reached {
    let mut input = Input { data };
    let mut world = World::new();
    for _ in 0..OPERATIONS_MAX {
        let Some(operation) = input.byte() else { break };
        world.run(operation, &mut input);
    }
    world.finish()
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

struct World {
    desk: Desk,
    clients: Vec<Client>,
    sequence: i32,
    /// Messages of queues: accepted, and settled for certain.
    accepted: BTreeSet<MessageId>,
    settled: BTreeSet<MessageId>,
    /// Acknowledged, and the answer was never read: behind a full socket it may be. Or acknowledged
    /// in a transaction.
    unsure: BTreeSet<MessageId>,
    /// Something happened after which messages may be gone for good reasons.
    may_be_gone: bool,
    /// All transactions that were ever started.
    transactions: Vec<i64>,
    reached: Reached,
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
            transactions: Vec::new(),
            reached: Reached::default(),
        }
    }

    fn run(&mut self, operation: u8, input: &mut Input<'_>) {
        if self.clients.len() < CLIENTS_MAX && (self.clients.is_empty() || operation == 0) {
            return self.connect(input);
        }
        let at = input.below(self.clients.len());
        match operation.checked_sub(BASIC) {
            None => self.run_basic(operation, at, input),
            Some(operation) => match operation % 16 {
                0..=2 => self.subscribe(at, input),
                3 => self.unsubscribe(at, input),
                4 => self.browse(at, input),
                5 => self.deliver(at, input),
                6 => self.name_client(at, input),
                7 => self.concern_destination(at, input),
                8 => self.ask_something_small(at, input),
                9 => self.send_strangely(at, input),
                10 => self.acknowledge_strangely(at, input),
                11 => self.start_transaction(at, input),
                12 => self.work_in_transaction(at, input),
                13 => self.end_transaction_plainly(at, input),
                14 => self.end_transaction_strangely(at, input),
                _ => self.look_at_transactions(at, input),
            },
        }
    }

    fn ask(&mut self, at: usize, packet: PacketBuilder) {
        self.ask_about(at, packet, Asked::Other);
    }

    fn ask_about(&mut self, at: usize, packet: PacketBuilder, about: Asked) {
        let client = &mut self.clients[at];
        client.next_id += 1;
        let packet = packet.consumer_id(client.next_id).flags(Flags::ACKNOWLEDGE).finish();
        client.asked.insert(client.next_id, (packet.header().packet_type, about));
        self.put(at, &packet);
    }

    fn tell(&mut self, at: usize, packet: PacketBuilder) {
        self.put(at, &packet.finish());
    }

    fn put(&mut self, at: usize, packet: &Packet) {
        self.reached.sent(packet.header().packet_type);
        self.receive(at, packet.raw().clone());
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
        self.reached.received(header.packet_type);
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
        let transactions = [long("JMQTransactionID"), long("JMQNextTransactionID")];
        self.transactions.extend(transactions.into_iter().flatten());
        let asked = client.asked.remove(&header.consumer_id);
        if let Some((kind, _)) = asked.as_ref().filter(|_| ok) {
            self.reached.done(*kind);
        }
        match asked.map(|(_, about)| about) {
            Some(Asked::Consumer(size, max)) => {
                if let Some(consumer) = long("JMQConsumerID") {
                    client.consumers.insert(consumer, Window::of(size, max));
                }
            }
            Some(Asked::Browse) => {
                if let Some(browser) = long("JMQConsumerID") {
                    client.browsers.insert(browser, packet.body_bytes().to_vec());
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

    /// Everybody leaves; somebody new ends what is open and takes what is left.
    fn finish(mut self) -> Reached {
        let reached = std::mem::take(&mut self.reached);
        for client in std::mem::take(&mut self.clients) {
            self.desk.lose(client.number);
        }
        self.desk.advance(AN_HOUR);
        self.connect(&mut Input { data: &[0, 1] });
        self.end_all_transactions();
        self.end_all_subscriptions();
        assert_eq!(self.desk.messages_of(DestinationKind::Topic), 0, "nobody has these");
        self.ask(0, PacketBuilder::new(PacketType::CREATE_SESSION).int("JMQAckMode", 2));
        let session = self.clients[0].sessions[0];
        for (name, kind) in NAMES {
            self.ask(0, destination(PacketType::CREATE_DESTINATION, name, kind));
            let add = destination(PacketType::ADD_CONSUMER, name, kind)
                .long("JMQSessionID", session)
                .int("JMQSize", -1);
            self.ask_about(0, add, Asked::Consumer(-1, WINDOW_MAX));
        }
        self.ask(0, PacketBuilder::new(PacketType::START));
        let ids: Vec<MessageId> = self.clients[0].delivered.iter().map(|&(_, id)| id).collect();
        let unique: BTreeSet<MessageId> = ids.iter().copied().collect();
        assert_eq!(ids.len(), unique.len(), "a message is in one place");
        let left = self.desk.messages_of(DestinationKind::Queue);
        assert_eq!(ids.len() as u64, left, "what the broker counts is there");
        assert!(unique.is_disjoint(&self.settled), "what was settled does not come back");
        if !self.may_be_gone {
            let open = |id: &&MessageId| !self.settled.contains(id) && !self.unsure.contains(id);
            let mut wanted = self.accepted.iter().filter(open);
            assert!(wanted.all(|id| unique.contains(id)), "accepted and not settled is there");
        }
        // What is left when everybody has gone is what the fuzzer's leak detector looks at.
        self.desk.lose(self.clients[0].number);
        reached
    }

    /// Some of what was delivered, oldest first as a client would, or any of it.
    fn choose(&mut self, at: usize, input: &mut Input<'_>) -> Vec<(i64, MessageId)> {
        let delivered = &mut self.clients[at].delivered;
        let count = input.below(4).min(delivered.len());
        let from = input.below(delivered.len() + 1 - count);
        delivered.drain(from..from + count).collect()
    }

    fn next_message(&mut self) -> MessageId {
        self.sequence += 1;
        MessageId { sequence: self.sequence, port: 1, ..MessageId::default() }
    }
}

fn destination(kind: PacketType, name: &str, mask: i32) -> PacketBuilder {
    PacketBuilder::new(kind).string("JMQDestination", name).int("JMQDestType", mask)
}

fn blocks(chosen: &[(i64, MessageId)]) -> Vec<u8> {
    let block =
        |(consumer, id): &(i64, MessageId)| [&consumer.to_be_bytes()[..], &id.encode()].concat();
    chosen.iter().flat_map(block).collect()
}

/// A packet with the id of a transaction in its variable header.
fn within(transaction: i64, packet: PacketBuilder) -> PacketBuilder {
    let fields = VariableHeader { transaction_id: Some(transaction), ..VariableHeader::default() };
    packet.variable(&fields, Padding::Java).expect("a number fits")
}

/// A few names of branches.
fn xid(number: usize) -> Xid {
    let number = u8::try_from(number).unwrap_or(0);
    Xid::new(7, b"global", &[number]).expect("short names fit")
}
