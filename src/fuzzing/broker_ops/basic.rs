//! What every client does: connect, consume, send, acknowledge; and what none should.

use bytes::Bytes;

use crate::{
    proto::auth,
    wire::{Decoder, Flags, PacketBuilder, PacketType, Padding, VariableHeader},
};

use super::{
    Input, NAMES, World, blocks,
    client::{Asked, Client, WINDOW_MAX, Window},
    destination,
};

impl World {
    pub(super) fn run_basic(&mut self, operation: u8, at: usize, input: &mut Input<'_>) {
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

    pub(super) fn connect(&mut self, input: &mut Input<'_>) {
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
        self.ask_about(at, add, Asked::Consumer(size, WINDOW_MAX));
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
        let producer = input.pick(&self.clients[at].producers);
        let Some(message) = Self::message(name, kind, choice, None, producer) else { return };
        // Some expire at once, some while they wait.
        let expiration = if choice & 0xF0 == 0x10 { 1_000_100 } else { 0 };
        self.may_be_gone |= expiration > 0;
        let id = self.next_message();
        let message = message.expiration(expiration).id(id);
        self.ask_about(at, message, Asked::Send(id, kind == 1));
    }

    /// A text message that says what the bits of `choice` say.
    pub(super) fn message(
        name: &str,
        kind: i32,
        choice: u8,
        transaction: Option<i64>,
        producer: Option<i64>,
    ) -> Option<PacketBuilder> {
        let fields = VariableHeader {
            destination: Some(name.as_bytes()),
            transaction_id: transaction,
            producer_id: producer,
            ..VariableHeader::default()
        };
        let flags = Flags::empty()
            .set(Flags::QUEUE, kind == 1)
            .set(Flags::PERSISTENT, choice & 1 != 0)
            .set(Flags::CONSUMER_FLOW, choice & 2 != 0)
            .set(Flags::FLOW_PAUSED, choice & 4 != 0)
            .set(Flags::REDELIVERED, choice & 8 != 0);
        PacketBuilder::new(PacketType::TEXT_MESSAGE)
            .priority(choice % 11)
            .flags(flags)
            .body(vec![choice; usize::from(choice) * 5])
            .variable(&fields, Padding::Java)
            .ok()
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
                let max = self.clients[at].consumers[&consumer].max;
                self.clients[at].consumers.insert(consumer, Window::of(size, max));
                self.tell(at, packet.long("JMQConsumerID", consumer));
            }
            None => {
                // It may be metered from now on; see `connect`.
                self.clients[at].limited |= size > 0;
                self.tell(at, packet);
            }
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
}
