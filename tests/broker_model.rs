//! Random clients against the whole broker without sockets, beside the plainest broker there is.
//!
//! Every step is one packet or one lost connection. After each it must hold exactly: what was
//! delivered could be delivered, in its order, with its count and its flags, within its credit;
//! nobody who could have a message is without it; as many messages are there as should be.
//!
//! A failure prints its seed; `TIDEGATE_MODEL_SEED=seed` replays it and prints what is done.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "tests; a replay is told"
)]

mod model_support;

use std::collections::HashMap;

use bytes::Bytes;
use model_support::{Consumer, Message, Model, Place, Seen, Session};
use tidegate::{
    broker::BrokerConfig,
    internals::{Desk, auth},
    wire::{
        Decoder, Flags, Frame, MessageId, Packet, PacketBuilder, PacketType, Padding, Properties,
        VariableHeader,
    },
};

const SEEDS: u64 = 200;
const STEPS: usize = 250;
const CLIENTS_MAX: usize = 4;
const NEVER: i32 = 32768;

#[test]
fn the_broker_does_what_the_plainest_one_allows() {
    if let Ok(seed) = std::env::var("TIDEGATE_MODEL_SEED") {
        return World::new(seed.parse().expect("a seed is a number"), true).run();
    }
    for seed in 0..SEEDS {
        let failed = std::panic::catch_unwind(|| World::new(seed, false).run()).is_err();
        assert!(!failed, "TIDEGATE_MODEL_SEED={seed} replays it");
    }
}

/// A small generator of numbers that is the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len())]) }
    }
}

struct Client {
    number: usize,
    decoder: Decoder,
    next_id: i64,
    replies: HashMap<i64, Packet>,
    /// What a browser was shown.
    shown: Vec<Packet>,
}

struct World {
    desk: Desk,
    model: Model,
    numbers: Numbers,
    clients: Vec<Client>,
    seen: Vec<Seen>,
    sequence: i32,
    is_told: bool,
}

impl World {
    fn new(seed: u64, is_told: bool) -> Self {
        let mut model = Model::new();
        model.now = 1_000_000;
        Self {
            desk: Desk::new(BrokerConfig::default()),
            model,
            numbers: Numbers(seed),
            clients: Vec::new(),
            seen: Vec::new(),
            sequence: 0,
            is_told,
        }
    }

    fn run(mut self) {
        self.connect();
        let made = |name, mask| destination(PacketType::CREATE_DESTINATION, name, mask);
        self.ask(0, made("q", 1));
        self.ask(0, made("t", 2));
        for _ in 0..STEPS {
            self.step();
        }
        self.drain();
    }

    fn step(&mut self) {
        let at = self.numbers.below(self.clients.len());
        match self.numbers.below(100) {
            0..2 if self.clients.len() < CLIENTS_MAX => self.connect(),
            0..5 => self.lose(at),
            5..12 => self.create_session(at),
            12..15 => self.destroy_session(at),
            15..25 => self.add_consumer(at),
            25..30 => self.close_consumer(at),
            30..36 => self.start_or_stop(at),
            36..60 => self.send(at),
            60..73 => self.acknowledge(at),
            73..78 => self.redeliver(at),
            78..84 => self.resume(at),
            84..89 => self.end_transaction(at),
            89..93 => self.browse(at),
            93..96 => self.let_time_pass(at),
            96 => self.unsubscribe(at),
            _ => self.refuse(at),
        }
    }

    fn tell(&self, what: &str) {
        if self.is_told {
            println!("{what}");
        }
    }

    // Clients and sessions.

    fn connect(&mut self) {
        let number = self.desk.connect();
        self.tell(&format!("client {number} connects"));
        self.clients.push(Client {
            number,
            decoder: Decoder::new(u32::MAX),
            next_id: 0,
            replies: HashMap::new(),
            shown: Vec::new(),
        });
        let at = self.clients.len() - 1;
        self.ask(at, PacketBuilder::new(PacketType::HELLO).int("JMQProtocolLevel", 500));
        let response =
            auth::digest_response(&auth::stored_hash("guest", "guest"), &auth::nonce([7; 16]));
        let login = PacketBuilder::new(PacketType::AUTHENTICATE)
            .string("JMQAuthType", "digest")
            .body(auth::authenticate_body("guest", &response).unwrap());
        self.ask(at, login);
        self.settle(false);
    }

    fn lose(&mut self, at: usize) {
        if self.clients.len() == 1 {
            return;
        }
        let gone = self.clients.remove(at);
        self.tell(&format!("client {} is lost", gone.number));
        self.desk.lose(gone.number);
        self.read();
        self.model.end_client(gone.number);
        self.settle(true);
    }

    fn create_session(&mut self, at: usize) {
        let mode = self.numbers.pick(&[0, 0, 1, 2, 2, 3, NEVER]).unwrap();
        let ask = PacketBuilder::new(PacketType::CREATE_SESSION).int("JMQAckMode", mode);
        let id = long(&self.ask(at, ask), "JMQSessionID");
        let client = self.clients[at].number;
        self.tell(&format!("client {client} makes session {id} of mode {mode}"));
        let session = Session { client, mode, ..Session::default() };
        self.model.sessions.insert(id, session);
        if mode == 0 {
            self.begin(at, id);
        }
        self.settle(false);
    }

    fn begin(&mut self, at: usize, session: i64) {
        let start = PacketBuilder::new(PacketType::START_TRANSACTION).long("JMQSessionID", session);
        let transaction = long(&self.ask(at, start), "JMQTransactionID");
        self.model.sessions.get_mut(&session).unwrap().transaction = transaction;
    }

    fn session(&mut self, at: usize) -> Option<i64> {
        let client = self.clients[at].number;
        let all = self.model.sessions.iter().filter(|(_, one)| one.client == client);
        let all: Vec<i64> = all.map(|(&id, _)| id).collect();
        self.numbers.pick(&all)
    }

    fn destroy_session(&mut self, at: usize) {
        let Some(id) = self.session(at) else { return };
        self.tell(&format!("session {id} ends"));
        self.ask(at, PacketBuilder::new(PacketType::DESTROY_SESSION).long("JMQSessionID", id));
        self.model.end_session(id);
        self.settle(true);
    }

    fn start_or_stop(&mut self, at: usize) {
        let client = self.clients[at].number;
        let starts = !self.numbers.one_in(4);
        let kind = if starts { PacketType::START } else { PacketType::STOP };
        let session = if self.numbers.one_in(3) { self.session(at) } else { None };
        let packet = PacketBuilder::new(kind);
        self.tell(&format!("client {client}: {kind} {session:?}"));
        match session {
            None if starts => drop(self.model.started.insert(client)),
            None => drop(self.model.started.remove(&client)),
            Some(id) => {
                let pauses = &mut self.model.sessions.get_mut(&id).unwrap().pauses;
                *pauses = if starts { pauses.saturating_sub(1) } else { *pauses + 1 };
            }
        }
        self.send_only(
            at,
            match session {
                Some(id) => packet.long("JMQSessionID", id),
                None => packet,
            },
        );
        self.settle(false);
    }

    // Consumers.

    fn add_consumer(&mut self, at: usize) {
        let Some(session) = self.session(at) else { return };
        let client = self.clients[at].number;
        let wants_red = self.numbers.pick(&[None, None, Some(true), Some(false)]).unwrap();
        let size = self.numbers.pick(&[-1, 1, 2, 3, 7]).unwrap();
        let kind = self.numbers.below(8);
        let (name, mask) = if kind < 4 { ("q", 1) } else { ("t", 2) };
        let (wants_red, limit) = match kind {
            6 => (None, 5),
            7 => (Some(true), 5),
            _ => (wants_red, 1000),
        };
        let add = destination(PacketType::ADD_CONSUMER, name, mask)
            .long("JMQSessionID", session)
            .int("JMQSize", size);
        let add = match wants_red {
            Some(true) => add.string("JMQSelector", "red"),
            Some(false) => add.string("JMQSelector", "NOT red"),
            None => add,
        };
        let add = match kind {
            6 => add.string("JMQDurableName", "d").boolean("JMQJMSShare", true),
            7 => add.string("JMQSharedSubscriptionName", "s").boolean("JMQJMSShare", true),
            _ => add,
        };
        let id = long(&self.ask(at, add), "JMQConsumerID");
        let place = match kind {
            0..4 => Place::Queue,
            6 => Place::Durable,
            7 => Place::Shared,
            _ => Place::Own(id),
        };
        self.tell(&format!(
            "consumer {id} of session {session} at {place:?}, {size}, {wants_red:?}"
        ));
        let mode = self.model.sessions[&session].mode;
        let consumer = Consumer {
            client,
            session,
            place,
            wants_red,
            left: u32::try_from(size).ok().map(|size| size.min(limit)),
            forgets: mode == NEVER,
            transacted: mode == 0,
            is_open: true,
            deliveries: Vec::new(),
        };
        self.model.add_consumer(id, consumer);
        self.settle(false);
    }

    fn consumer(&mut self, at: usize) -> Option<i64> {
        let client = self.clients[at].number;
        let own =
            self.model.consumers.iter().filter(|(_, one)| one.client == client && one.is_open);
        let own: Vec<i64> = own.map(|(&id, _)| id).collect();
        self.numbers.pick(&own)
    }

    fn close_consumer(&mut self, at: usize) {
        let Some(id) = self.consumer(at) else { return };
        let all = &self.model.consumers[&id].deliveries;
        let all: Vec<MessageId> = all.iter().map(|one| one.entry.message.id).collect();
        let packet = PacketBuilder::new(PacketType::DELETE_CONSUMER).long("JMQConsumerID", id);
        let (last, all_seen) = match self.numbers.below(4) {
            0 => (None, true),
            1 => (None, false),
            _ => (self.numbers.pick(&all), false),
        };
        self.tell(&format!("consumer {id} closes, seen {last:?}, all {all_seen}"));
        self.ask(
            at,
            match last {
                Some(last) => packet.int("JMQBodyType", 3).body(last.encode().to_vec()),
                None if all_seen => packet,
                None => packet.boolean("JMQRedeliverAll", true),
            },
        );
        self.model.close(id, last, all_seen);
        self.settle(false);
    }

    fn resume(&mut self, at: usize) {
        let Some(id) = self.consumer(at) else { return };
        let size = self.numbers.pick(&[-1, 1, 2, 5, 50]).unwrap();
        self.tell(&format!("consumer {id} resumes with {size}"));
        let resume = PacketBuilder::new(PacketType::RESUME_FLOW)
            .long("JMQConsumerID", id)
            .int("JMQSize", size);
        self.send_only(at, resume);
        let consumer = self.model.consumers.get_mut(&id).unwrap();
        let limit = match consumer.place {
            Place::Durable | Place::Shared => 5,
            Place::Queue | Place::Own(_) => 1000,
        };
        consumer.left = u32::try_from(size).ok().map(|size| size.min(limit));
        self.settle(false);
    }

    fn unsubscribe(&mut self, at: usize) {
        if !self.model.has(Place::Durable) || self.model.open_at(Place::Durable) > 0 {
            return;
        }
        self.tell("the durable subscription ends");
        let end = PacketBuilder::new(PacketType::DELETE_CONSUMER).string("JMQDurableName", "d");
        self.ask(at, end);
        self.model.unsubscribe();
        self.settle(false);
    }

    // Messages.

    fn send(&mut self, at: usize) {
        let to_queue = !self.numbers.one_in(3);
        let transacted: Vec<i64> = {
            let client = self.clients[at].number;
            let own = self.model.sessions.values().filter(|one| one.client == client);
            own.map(|one| one.transaction).filter(|&id| id != 0).collect()
        };
        let transaction =
            if self.numbers.one_in(3) { self.numbers.pick(&transacted) } else { None };
        self.sequence += 1;
        let id = MessageId { sequence: self.sequence, port: 1, ..MessageId::default() };
        let message = Message {
            id,
            priority: u8::try_from(self.numbers.pick(&[4, 4, 4, 0, 9, 7]).unwrap()).unwrap(),
            red: self.numbers.one_in(2),
            // A topic's expire in each subscription by itself, which cannot be counted from here.
            expires: if to_queue && self.numbers.one_in(12) { self.model.now + 2500 } else { 0 },
            due: if self.numbers.one_in(12) { self.model.now + 2500 } else { 0 },
        };
        // What expires before it is due is no sensible wish.
        let message = Message { due: if message.expires > 0 { 0 } else { message.due }, ..message };
        let name = if to_queue { "q" } else { "t" };
        let fields = VariableHeader {
            destination: Some(name.as_bytes()),
            transaction_id: transaction,
            delivery_time: Some(message.due).filter(|&due| due > 0),
            ..VariableHeader::default()
        };
        let mut properties = Properties::new();
        properties.set("red", message.red);
        let packet = PacketBuilder::new(PacketType::TEXT_MESSAGE)
            .id(id)
            .priority(message.priority)
            .expiration(message.expires)
            .flags(Flags::empty().set(Flags::QUEUE, to_queue))
            .variable(&fields, Padding::Java)
            .unwrap()
            .properties(&properties)
            .unwrap()
            .body(vec![0; self.numbers.below(2000)]);
        self.tell(&format!("{message:?} to {name} in {transaction:?}"));
        self.ask(at, packet);
        match transaction {
            Some(transaction) => self.model.produce_in(transaction, to_queue, message),
            None => self.model.produce(to_queue, message),
        }
        self.settle(false);
    }

    /// Some open deliveries of one session, mostly the oldest, and its transaction.
    fn choose(&mut self, at: usize) -> Option<(i64, Vec<(i64, MessageId)>)> {
        let open = self.model.open_deliveries(self.clients[at].number);
        let (first, _) = self.numbers.pick(&open)?;
        let session = self.model.consumers[&first].session;
        let of = |consumer: i64| self.model.consumers[&consumer].session;
        let mut open: Vec<_> = open.into_iter().filter(|(one, _)| of(*one) == session).collect();
        let transaction = self.model.sessions[&session].transaction;
        let count = 1 + self.numbers.below(open.len().min(6));
        let from =
            if self.numbers.one_in(3) { self.numbers.below(open.len() - count + 1) } else { 0 };
        Some((transaction, open.drain(from..from + count).collect()))
    }

    fn acknowledge(&mut self, at: usize) {
        let Some((transaction, chosen)) = self.choose(at) else { return };
        self.tell(&format!("acknowledges {chosen:?} in {transaction}"));
        let packet = PacketBuilder::new(PacketType::ACKNOWLEDGE).body(blocks(&chosen));
        self.ask(at, within(transaction, packet));
        for (consumer, id) in chosen {
            self.model.acknowledge(consumer, id, transaction);
        }
        self.settle(false);
    }

    fn redeliver(&mut self, at: usize) {
        let Some((transaction, chosen)) = self.choose(at) else { return };
        let seen = self.numbers.one_in(2);
        self.tell(&format!("has {chosen:?} redelivered, seen {seen}, in {transaction}"));
        let packet = PacketBuilder::new(PacketType::REDELIVER)
            .boolean("JMQSetRedelivered", seen)
            .body(blocks(&chosen));
        self.send_only(at, within(transaction, packet));
        for (consumer, id) in chosen {
            self.model.redeliver(consumer, id, seen, transaction);
        }
        // Blocks of several destinations go back one destination after the other.
        self.settle(false);
    }

    /// A consumer cannot take a message.
    fn refuse(&mut self, at: usize) {
        let Some((transaction, chosen)) = self.choose(at) else { return };
        if transaction != 0 {
            return;
        }
        let (consumer, id) = chosen[0];
        self.tell(&format!("{consumer} cannot take {id}"));
        let packet = PacketBuilder::new(PacketType::ACKNOWLEDGE)
            .int("JMQAckType", 1)
            .body(blocks(&chosen[..1]));
        self.ask(at, packet);
        self.model.refuse(consumer, id);
        self.settle(false);
    }

    fn end_transaction(&mut self, at: usize) {
        let Some(session) = self.session(at) else { return };
        let transaction = self.model.sessions[&session].transaction;
        if transaction == 0 {
            return;
        }
        let (kind, redeliver) = self
            .numbers
            .pick(&[
                (PacketType::COMMIT_TRANSACTION, false),
                (PacketType::ROLLBACK_TRANSACTION, true),
                (PacketType::ROLLBACK_TRANSACTION, false),
            ])
            .unwrap();
        self.tell(&format!("{kind} {transaction}, redeliver {redeliver}"));
        let packet = PacketBuilder::new(kind).long("JMQTransactionID", transaction);
        self.ask(at, if redeliver { packet.boolean("JMQRedeliver", true) } else { packet });
        if kind == PacketType::COMMIT_TRANSACTION {
            self.model.commit(transaction);
        } else {
            self.model.rollback(transaction, redeliver);
        }
        self.settle(false);
        self.begin(at, session);
    }

    fn browse(&mut self, at: usize) {
        let red = self.numbers.pick(&[None, Some(true), Some(false)]).unwrap();
        let packet = destination(PacketType::BROWSE, "q", 1);
        let packet = match red {
            Some(true) => packet.string("JMQSelector", "red"),
            Some(false) => packet.string("JMQSelector", "NOT red"),
            None => packet,
        };
        let found = self.ask(at, packet);
        let wanted = self.model.browse(red);
        let ids: Vec<u8> = wanted.iter().flat_map(MessageId::encode).collect();
        assert_eq!(found.body_bytes(), ids, "what a browser is told");
        if !wanted.is_empty() {
            let browser = long(&found, "JMQConsumerID");
            let deliver = PacketBuilder::new(PacketType::DELIVER).long("JMQConsumerID", browser);
            self.ask(at, deliver.body(found.body()));
            let shown = std::mem::take(&mut self.clients[at].shown);
            assert!(shown.iter().all(|one| one.header().consumer_id == browser));
            let ids: Vec<MessageId> = shown.iter().map(|one| one.header().id).collect();
            assert_eq!(ids, wanted, "what a browser is shown");
            let last = shown.iter().position(|one| one.header().flags.contains(Flags::LAST));
            assert_eq!(last, Some(shown.len() - 1));
        }
        self.settle(false);
    }

    fn let_time_pass(&mut self, at: usize) {
        self.tell("five seconds later");
        self.desk.advance(5000);
        self.model.now += 5000;
        self.ask(at, PacketBuilder::new(PacketType::PING));
        self.model.look_at_the_clock();
        self.settle(false);
    }

    // The wire.

    fn ask(&mut self, at: usize, packet: PacketBuilder) -> Packet {
        let client = &mut self.clients[at];
        client.next_id += 1;
        let id = client.next_id;
        self.send_only(at, packet.consumer_id(id).flags(Flags::ACKNOWLEDGE));
        let reply = self.clients[at].replies.remove(&id).expect("a reply");
        let status = reply.properties().unwrap().int("JMQStatus").unwrap();
        assert_eq!(status, Some(200), "{reply:?}");
        reply
    }

    fn send_only(&mut self, at: usize, packet: PacketBuilder) {
        self.desk.receive(self.clients[at].number, packet.finish().raw().clone());
        self.read();
    }

    fn read(&mut self) {
        for client in &mut self.clients {
            client.decoder.feed(Bytes::from(self.desk.take_written(client.number)));
            while let Some(frame) = client.decoder.next_frame().expect("packets") {
                let Frame::Packet(packet) = frame else { panic!("{frame:?}") };
                let header = packet.header();
                if header.packet_type.is_reply() {
                    client.replies.insert(header.consumer_id, packet);
                } else if header.packet_type.is_message() {
                    match packet.variable().unwrap().delivery_count {
                        None => client.shown.push(packet),
                        Some(count) => self.seen.push(Seen {
                            consumer: header.consumer_id,
                            id: header.id,
                            count,
                            redelivered: header.flags.contains(Flags::REDELIVERED),
                            last_of_window: header.flags.contains(Flags::CONSUMER_FLOW),
                        }),
                    }
                }
            }
        }
    }

    /// The model knows what was asked for: does what came of it fit?
    fn settle(&mut self, loosely: bool) {
        let seen = std::mem::take(&mut self.seen);
        for one in &seen {
            self.tell(&format!("    {one:?}"));
        }
        self.model.deliver(&seen, loosely);
        assert_eq!(self.desk.messages(), self.model.messages(), "messages that are there");
    }

    /// Everybody leaves; somebody new takes what is left.
    fn drain(mut self) {
        self.tell("the end");
        self.connect();
        while self.clients.len() > 1 {
            self.lose(0);
        }
        self.let_time_pass(0);
        let ask = PacketBuilder::new(PacketType::CREATE_SESSION).int("JMQAckMode", NEVER);
        let session = long(&self.ask(0, ask), "JMQSessionID");
        let client = self.clients[0].number;
        let mode = Session { client, mode: NEVER, ..Session::default() };
        self.model.sessions.insert(session, mode);
        self.model.started.insert(client);
        self.send_only(0, PacketBuilder::new(PacketType::START));
        for place in [Place::Queue, Place::Durable] {
            let (name, mask) = if place == Place::Queue { ("q", 1) } else { ("t", 2) };
            let add = destination(PacketType::ADD_CONSUMER, name, mask)
                .long("JMQSessionID", session)
                .int("JMQSize", -1);
            let add = match place {
                Place::Durable => add.string("JMQDurableName", "d").boolean("JMQJMSShare", true),
                _ => add,
            };
            let id = long(&self.ask(0, add), "JMQConsumerID");
            let consumer = Consumer {
                client,
                session,
                place,
                wants_red: None,
                left: None,
                forgets: true,
                transacted: false,
                is_open: true,
                deliveries: Vec::new(),
            };
            self.model.add_consumer(id, consumer);
            self.settle(false);
        }
        assert_eq!(self.desk.messages(), self.model.dead, "nothing but dead messages is left");
    }
}

fn destination(kind: PacketType, name: &str, mask: i32) -> PacketBuilder {
    PacketBuilder::new(kind).string("JMQDestination", name).int("JMQDestType", mask)
}

fn within(transaction: i64, packet: PacketBuilder) -> PacketBuilder {
    let fields = VariableHeader { transaction_id: Some(transaction), ..VariableHeader::default() };
    if transaction == 0 { packet } else { packet.variable(&fields, Padding::Java).unwrap() }
}

fn blocks(chosen: &[(i64, MessageId)]) -> Vec<u8> {
    let block =
        |(consumer, id): &(i64, MessageId)| [&consumer.to_be_bytes()[..], &id.encode()].concat();
    chosen.iter().flat_map(block).collect()
}

fn long(packet: &Packet, name: &'static str) -> i64 {
    packet.properties().unwrap().long(name).unwrap().expect(name)
}
