//! The broker's end: it answers as it should, but for one packet in each step, if it is told so.
//!
//! It has no thread. It is run by whoever rings: the client's own thread as it writes or reads, its
//! housekeeper, or the one who gives orders. A gate lets one of them in at a time.

use bytes::{Buf as _, Bytes, BytesMut};

use super::reached::ClientReached;
use crate::{
    in_process::{Bell, Door, ServerEnd},
    proto::transaction::Xid,
    sync::{AtomicU64, Entered, Gate, Inbox, Ordering, Plain},
    wire::{
        Decoder, Flags, Frame, Header, MessageId, Packet, PacketBuilder, PacketType, Padding,
        Properties, Status, Value, VariableHeader,
    },
};

/// What is done to one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mischief {
    /// It is as it should be.
    None,
    /// It is not sent.
    Silent,
    /// The request is refused, with one of several statuses.
    Refused,
    /// It has no properties.
    Bare,
    /// Its properties have other types than they should.
    WrongTypes,
    /// Its numbers are none that a broker would give.
    StrangeNumbers,
    /// It answers another request.
    WrongId,
    /// It is of another type.
    WrongType,
    /// It comes twice.
    Twice,
    /// Only a part of it comes, then the end.
    Cut,
    /// One byte of it is another.
    Flipped,
    /// A goodbye comes before it.
    Goodbye,
    /// The end comes in its place.
    Gone,
    /// A message comes before it that may be for nobody.
    Message,
    /// Credit comes before it that nobody asked for.
    Credit,
    /// Pings come before it, which want answers.
    Pings,
    /// What is no packet comes before it.
    Garbage,
    /// The head of a packet comes before it that is larger than any.
    Oversized,
}

impl Mischief {
    pub(super) const ALL: [Self; 18] = [
        Self::None,
        Self::Silent,
        Self::Refused,
        Self::Bare,
        Self::WrongTypes,
        Self::StrangeNumbers,
        Self::WrongId,
        Self::WrongType,
        Self::Twice,
        Self::Cut,
        Self::Flipped,
        Self::Goodbye,
        Self::Gone,
        Self::Message,
        Self::Credit,
        Self::Pings,
        Self::Garbage,
        Self::Oversized,
    ];
}

/// The mischief of one step: what, to the how-manieth packet from here, and in which way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mood {
    pub mischief: Mischief,
    pub at: u8,
    pub way: u8,
}

/// What the hostile broker is told to do.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    Feel(Mood),
    /// Say something nobody asked for.
    Speak {
        what: u8,
        way: u8,
    },
    /// Credit for everybody, so that whoever waits for it goes on.
    Grant,
    /// Drop the connection, and with it what refers to this broker.
    HangUp,
}

const STATUSES: [i32; 12] = [200, 400, 401, 403, 404, 409, 412, 413, 449, 500, 503, -7];
const SIZES: [i32; 6] = [-1, 1, 2, 100, i32::MAX, i32::MIN];
const NUMBERS: [i64; 6] = [0, -1, 1, i64::MAX, i64::MIN, 17];
/// Most bytes that wait for a client that does not read.
const PENDING_MAX: usize = 1024 * 1024;

/// A broker that is told what to do.
pub(super) struct Hostile {
    entered: Inbox<ServerEnd>,
    orders: Inbox<Order>,
    state: Gate<State>,
    /// Packets said so far, those included that are only written in part.
    said: Plain<AtomicU64>,
}

struct State {
    end: Option<ServerEnd>,
    decoder: Decoder,
    pending: BytesMut,
    mood: Mood,
    next_id: i64,
    sequence: i32,
    consumers: Vec<i64>,
    producers: Vec<i64>,
    reached: ClientReached,
    said: Plain<AtomicU64>,
}

/// Tells it that something happened.
struct Ring(Plain<Hostile>);

impl Bell for Ring {
    fn input(&self) {
        self.0.run();
    }

    fn room(&self) {
        self.0.run();
    }
}

/// The way to it.
pub(super) struct HostileDoor(pub Plain<Hostile>);

impl Door for HostileDoor {
    fn enter(&self, end: ServerEnd) {
        end.set_bell(Plain::new(Ring(Plain::clone(&self.0))));
        self.0.entered.push(end);
        self.0.run();
    }
}

impl Hostile {
    pub(super) fn new() -> Plain<Self> {
        let said = Plain::new(AtomicU64::new(0));
        Plain::new(Self {
            said: Plain::clone(&said),
            entered: Inbox::new(),
            orders: Inbox::new(),
            state: Gate::new(State {
                end: None,
                decoder: Decoder::new(u32::MAX),
                pending: BytesMut::new(),
                mood: Mood { mischief: Mischief::None, at: 0, way: 0 },
                next_id: 100,
                sequence: 0,
                consumers: Vec::new(),
                producers: Vec::new(),
                reached: ClientReached::default(),
                said,
            }),
        })
    }

    pub(super) fn order(&self, order: Order) {
        self.orders.push(order);
        self.run();
    }

    /// Packets said so far.
    pub(super) fn said(&self) -> u64 {
        // Relaxed: what the client has read was counted before it was written to the pipe.
        self.said.load(Ordering::Relaxed)
    }

    /// Ends it: nothing refers to it any more but this handle. No client may be connected.
    pub(super) fn finish(&self) -> ClientReached {
        self.order(Order::HangUp);
        let mut reached = ClientReached::default();
        let entered = self.state.enter(|state| {
            reached.add(&std::mem::take(&mut state.reached));
            true
        });
        debug_assert_eq!(entered, Entered::Done, "nobody is left who rings");
        reached
    }

    fn run(&self) {
        let entered = self.state.enter(|state| {
            while let Some(end) = self.entered.pop() {
                state.begin(end);
            }
            while let Some(order) = self.orders.pop() {
                state.obey(order);
            }
            state.serve();
            true
        });
        debug_assert_ne!(entered, Entered::More, "it takes everything");
    }
}

impl State {
    fn begin(&mut self, end: ServerEnd) {
        self.end = Some(end);
        self.decoder = Decoder::new(u32::MAX);
        self.pending.clear();
        self.consumers.clear();
        self.producers.clear();
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Feel(mood) => self.mood = mood,
            Order::Speak { what, way } => self.speak(what, way),
            Order::Grant => {
                for producer in self.producers.clone() {
                    let credit = PacketBuilder::new(PacketType::RESUME_FLOW);
                    let credit = credit.long("JMQProducerID", producer).int("JMQSize", 5);
                    self.put(credit);
                }
                self.put(PacketBuilder::new(PacketType::RESUME_FLOW).int("JMQSize", 7));
            }
            Order::HangUp => self.end = None,
        }
    }

    /// Reads, answers, writes, as far as all that goes.
    fn serve(&mut self) {
        let mut buffer = BytesMut::with_capacity(64 * 1024);
        self.flush();
        while let Some(end) = &self.end {
            match end.read(&mut buffer) {
                Ok(0) => {
                    self.end = None;
                    break;
                }
                Ok(_) => self.hear(buffer.split().freeze()),
                Err(_nothing) => break,
            }
            buffer.reserve(64 * 1024);
        }
    }

    fn hear(&mut self, bytes: Bytes) {
        self.decoder.feed(bytes);
        while let Some(frame) = self.decoder.next_frame().expect("the client writes packets") {
            match frame {
                Frame::Packet(packet) => self.answer(&packet),
                Frame::Oversized(header) => panic!("no packet is this large: {header:?}"),
            }
        }
        self.flush();
    }

    // ---- what it says ----

    fn answer(&mut self, packet: &Packet) {
        let header = packet.header();
        self.reached.heard(header.packet_type);
        let table = packet.properties().expect("the client writes tables");
        let id = self.next_id;
        let long = |name| table.long(name).expect("a long").unwrap_or(0);
        let size = table.int("JMQSize").expect("an int");
        match header.packet_type {
            PacketType::HELLO => {
                self.reply(header, |reply, numbers| {
                    reply
                        .int("JMQProtocolLevel", 500 + 100 * numbers.off())
                        .long("JMQConnectionID", numbers.id(77))
                        .string("JMQVersion", "hostile")
                        .int("JMQSize", numbers.size(100))
                });
                let mut kind = "digest";
                if self.mood.mischief == Mischief::StrangeNumbers && self.mood.at == 1 {
                    kind = if self.mood.way.is_multiple_of(2) { "basic" } else { "riddle" };
                }
                let ask = PacketBuilder::new(PacketType::AUTHENTICATE_REQUEST)
                    .consumer_id(header.consumer_id)
                    .string("JMQAuthType", kind)
                    .boolean("JMQChallenge", true)
                    .int("JMQStatus", 200)
                    .body(&b"-69720c583e953e035925b875bc19d718"[..]);
                return self.say(ask);
            }
            PacketType::CREATE_SESSION => {
                self.reply(header, |reply, numbers| reply.long("JMQSessionID", numbers.id(id)));
            }
            PacketType::ADD_CONSUMER | PacketType::BROWSE => {
                self.consumers.push(id);
                let names: Vec<u8> = (1..=3).flat_map(|n| message_id(n).encode()).collect();
                let is_browse = header.packet_type == PacketType::BROWSE;
                self.reply(header, |reply, numbers| {
                    let reply = reply.long("JMQConsumerID", numbers.id(id));
                    let reply = reply.int("JMQSize", numbers.size(size.unwrap_or(-1)));
                    if is_browse { reply.body(names.clone()) } else { reply }
                });
            }
            PacketType::ADD_PRODUCER => {
                // Of two producers with one number only one would hear of credit: these need none.
                let numbers = self.numbers();
                let credit = if numbers.way.is_some() { -1 } else { 2 };
                self.producers.push(numbers.id(id));
                self.reply(header, |reply, numbers| {
                    reply.long("JMQProducerID", numbers.id(id)).int("JMQSize", credit)
                });
            }
            PacketType::START_TRANSACTION => {
                self.reply(header, |reply, numbers| reply.long("JMQTransactionID", numbers.id(id)));
            }
            PacketType::RECOVER_TRANSACTION => {
                let xid = Xid::new(7, b"global", b"branch").expect("short names fit").encode();
                self.reply(header, |reply, numbers| {
                    reply.body(xid[..Xid::LEN - usize::from(numbers.off() != 0)].to_vec())
                });
            }
            PacketType::DELETE_CONSUMER => {
                let consumer = long("JMQConsumerID");
                self.reply(header, |reply, numbers| {
                    reply.long("JMQConsumerID", numbers.id(consumer))
                });
            }
            PacketType::DELIVER => {
                let browser = long("JMQConsumerID");
                self.reply(header, |reply, _| reply);
                let count = packet.body_bytes().len() / MessageId::LEN;
                for n in 0..count.min(10) {
                    let last = Flags::empty().set(Flags::LAST, n + 1 == count);
                    self.deliver(browser, PacketType::TEXT_MESSAGE, last, 0);
                }
            }
            // Nobody waits for an answer to these. Without one to its pings a client gives up in
            // the end, whatever else it may wait for.
            PacketType::START | PacketType::RESUME_FLOW | PacketType::PING => return,
            _ if !header.flags.contains(Flags::ACKNOWLEDGE) => return,
            _ => self.reply(header, |reply, _| reply),
        }
        self.next_id += 1;
    }

    fn reply(&mut self, header: &Header, fill: impl Fn(PacketBuilder, Numbers) -> PacketBuilder) {
        let Mood { mischief, at, way } = self.mood;
        let mischief = if at == 0 { mischief } else { Mischief::None };
        let kind = header.packet_type.reply();
        let numbers = self.numbers();
        let usual = |status| fill(PacketBuilder::reply(header, status), numbers);
        let reply = match mischief {
            Mischief::Refused => {
                let status = STATUSES[usize::from(way) % STATUSES.len()];
                usual(Status(status)).string("JMQReason", "I would rather not")
            }
            Mischief::Bare => PacketBuilder::new(kind).consumer_id(header.consumer_id),
            Mischief::WrongTypes => {
                let reply = PacketBuilder::new(kind).consumer_id(header.consumer_id);
                let reply = if way.is_multiple_of(2) {
                    reply.string("JMQStatus", "fine")
                } else {
                    reply.int("JMQStatus", 200)
                };
                reply
                    .string("JMQSessionID", "1")
                    .boolean("JMQConsumerID", true)
                    .int("JMQProducerID", 5)
                    .string("JMQTransactionID", "")
                    .long("JMQSize", 5)
            }
            Mischief::WrongId => {
                let other = header.consumer_id.wrapping_add(i64::from(way) - 128);
                usual(Status::OK).consumer_id(other)
            }
            Mischief::WrongType => {
                let wrong = PacketType(u16::from(way) % 90);
                PacketBuilder::new(wrong).consumer_id(header.consumer_id).int("JMQStatus", 200)
            }
            _ => usual(Status::OK),
        };
        self.say(reply);
    }

    /// The numbers of the packet that is said next.
    fn numbers(&self) -> Numbers {
        let Mood { mischief, at, way } = self.mood;
        let strange = mischief == Mischief::StrangeNumbers && at == 0;
        Numbers { way: strange.then_some(way) }
    }

    fn deliver(&mut self, consumer: i64, kind: PacketType, flags: Flags, way: u8) {
        let variable = VariableHeader {
            delivery_count: (way & 1 == 0).then_some(1 + i32::from(way)),
            destination: (way & 2 == 0).then_some(b"a"),
            message_type: (way & 4 != 0).then_some(b"kind"),
            correlation_id: (way & 8 != 0).then_some(b"\xff\xfe"),
            reply_to: (way & 16 != 0).then_some(b"temporary_destination://queue/x/1/1"),
            reply_to_class: (way & 32 != 0).then_some(b"no.such.Class"),
            ..VariableHeader::default()
        };
        let mut properties = Properties::new();
        properties.set("n", Value::Int(i32::from(way)));
        // Gone long ago, or never.
        let expiration = if way & 64 == 0 { 0 } else { 1 };
        let packet = PacketBuilder::new(kind)
            .flags(flags)
            .consumer_id(consumer)
            .expiration(expiration)
            .variable(&variable, Padding::Java)
            .expect("short fields fit")
            .body(vec![way; usize::from(way) * 3]);
        let packet = if way & 128 == 0 {
            packet.properties(&properties).expect("a short table")
        } else {
            packet.property_section(vec![way; 9])
        };
        self.say(packet);
    }

    /// Says something nobody asked for.
    fn speak(&mut self, what: u8, way: u8) {
        let known = self.consumers.get(usize::from(way) % self.consumers.len().max(1)).copied();
        let strange = NUMBERS[usize::from(way) % NUMBERS.len()];
        let flags = Flags::empty()
            .set(Flags::QUEUE, way & 1 != 0)
            .set(Flags::CONSUMER_FLOW, way & 2 != 0)
            .set(Flags::FLOW_PAUSED, way & 4 != 0)
            .set(Flags::REDELIVERED, way & 8 != 0)
            .set(Flags::LAST, way & 16 != 0);
        match what % 16 {
            // Deliveries of each kind, and of more than was asked for.
            kind @ 0..=5 => {
                let kind = PacketType(u16::from(kind) + 1);
                self.deliver(known.unwrap_or(strange), kind, flags, way);
            }
            6 => {
                for _ in 0..way {
                    self.deliver(known.unwrap_or(strange), PacketType::TEXT_MESSAGE, flags, 0);
                }
            }
            7 => self.deliver(strange, PacketType::TEXT_MESSAGE, flags, way),
            8 => self.speak_of_credit(way),
            9 => self.say(PacketBuilder::new(PacketType::PING).flags(Flags::ACKNOWLEDGE)),
            10 => {
                let kind = [PacketType::INFO, PacketType::DEBUG, PacketType::ERROR];
                let kind = kind[usize::from(way) % 3];
                self.say(PacketBuilder::new(kind).body(vec![way; 9]));
            }
            // A reply nobody asked for, or that came too late.
            11 => {
                let kind = PacketType((u16::from(way) % 80) | 1);
                let late = i64::try_from(self.reached.heard_in_all() % 40).unwrap_or(0);
                let reply = PacketBuilder::new(kind).consumer_id(16 + late);
                self.say(reply.int("JMQStatus", 200).long("JMQConsumerID", strange));
            }
            12 => self.say_goodbye(way),
            13 => self.write(&[way; 100]),
            14 => {
                let wild = PacketBuilder::new(PacketType(u16::from(way) << 3));
                self.say(wild.consumer_id(strange).property_section(vec![way; 5]));
            }
            _ => self.deliver(known.unwrap_or(strange), PacketType(1), flags, 128 | way),
        }
    }

    fn speak_of_credit(&mut self, way: u8) {
        let credit = PacketBuilder::new(PacketType::RESUME_FLOW);
        let size = if way & 8 == 0 { SIZES[usize::from(way) % SIZES.len()] } else { 0 };
        let credit = if way & 1 == 0 { credit } else { credit.int("JMQSize", size) };
        let producer = self.producers.get(usize::from(way >> 4)).copied();
        let credit = match producer {
            Some(producer) => credit.long("JMQProducerID", producer),
            None if way & 2 == 0 => credit,
            None => credit.long("JMQProducerID", NUMBERS[usize::from(way) % NUMBERS.len()]),
        };
        self.say(credit);
    }

    fn say_goodbye(&mut self, way: u8) {
        let goodbye = PacketBuilder::new(PacketType::GOODBYE);
        let goodbye = match way % 4 {
            0 => goodbye,
            1 => goodbye.string("JMQGoodbyeReason", "text"),
            _ => goodbye
                .int("JMQGoodbyeReason", i32::from(way) - 10)
                .boolean("JMQExit", way.is_multiple_of(2)),
        };
        self.put(goodbye);
    }

    /// Says this, or does to it what the mood is for.
    fn say(&mut self, packet: PacketBuilder) {
        let Mood { mischief, at, way } = self.mood;
        if mischief == Mischief::None || at > 0 {
            self.mood.at = at.saturating_sub(1);
            return self.put(packet);
        }
        self.mood.mischief = Mischief::None;
        self.reached.did(mischief);
        let strange = NUMBERS[usize::from(way) % NUMBERS.len()];
        match mischief {
            Mischief::Silent => return,
            Mischief::Cut | Mischief::Flipped => return self.spoil(packet, mischief, way),
            Mischief::Gone => self.end = None,
            Mischief::Goodbye => self.say_goodbye(way),
            Mischief::Credit => self.speak_of_credit(way),
            Mischief::Garbage => self.write(&[way; 100]),
            Mischief::Message => {
                let to = self.consumers.last().copied().filter(|_| way & 1 == 0);
                self.deliver(to.unwrap_or(strange), PacketType::TEXT_MESSAGE, Flags::QUEUE, way);
            }
            Mischief::Pings => {
                for _ in 0..way {
                    self.put(PacketBuilder::new(PacketType::PING).flags(Flags::ACKNOWLEDGE));
                }
            }
            Mischief::Oversized => {
                let head = PacketBuilder::new(PacketType::TEXT_MESSAGE).finish();
                let mut head = head.raw().to_vec();
                // The size is the third word.
                head[8..12].copy_from_slice(&[way | 0x40, 0xFF, 0xFF, 0xF0]);
                self.write(&head);
            }
            Mischief::Twice => {
                let packet = packet.id(message_id(0)).finish();
                for _ in 0..2 {
                    self.count(&packet);
                    self.write(packet.raw());
                }
                return;
            }
            // Those the reply was made with.
            _ => {}
        }
        self.put(packet);
    }

    /// Says a part of this and leaves, or all of it with another byte.
    fn spoil(&mut self, packet: PacketBuilder, how: Mischief, way: u8) {
        let packet = packet.finish();
        self.count(&packet);
        let mut bytes = packet.raw().to_vec();
        let at = bytes.len() * usize::from(way) / 256;
        if how == Mischief::Cut {
            self.write(&bytes[..at]);
            self.flush();
            self.end = None;
        } else {
            bytes[at] ^= way | 1;
            self.write(&bytes);
        }
    }

    fn put(&mut self, packet: PacketBuilder) {
        self.sequence += 1;
        let packet = packet.id(message_id(self.sequence)).finish();
        self.count(&packet);
        self.write(packet.raw());
    }

    fn count(&mut self, packet: &Packet) {
        self.reached.said(packet.header().packet_type);
        // Relaxed: see `Hostile::said`.
        self.said.fetch_add(1, Ordering::Relaxed);
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.end.is_some() && self.pending.len() < PENDING_MAX {
            self.pending.extend_from_slice(bytes);
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(end) = &self.end else { return };
        while !self.pending.is_empty() {
            match end.write(std::iter::once(&self.pending[..])) {
                Ok(count) => self.pending.advance(count),
                // It rings when there is room.
                Err(_full) => break,
            }
        }
    }
}

/// The numbers of a reply, as they should be or not.
#[derive(Clone, Copy)]
struct Numbers {
    way: Option<u8>,
}

impl Numbers {
    fn id(self, usual: i64) -> i64 {
        self.way.map_or(usual, |way| NUMBERS[usize::from(way) % NUMBERS.len()])
    }

    fn size(self, usual: i32) -> i32 {
        self.way.map_or(usual, |way| SIZES[usize::from(way / 8) % SIZES.len()])
    }

    /// 0, or something else between -1 and 1.
    fn off(self) -> i32 {
        self.way.map_or(0, |way| if way.is_multiple_of(2) { -1 } else { 1 })
    }
}

fn message_id(sequence: i32) -> MessageId {
    MessageId { timestamp: 1, address: [7; 16], port: 1, sequence }
}
