//! Any sequence of requests to a broker's administration, sensible or not.
//!
//! The bytes choose numbers, properties and bodies. It must hold that every request the broker knows
//! is answered exactly once, with a status and the next number, that nothing else is answered, and
//! that the broker lives on.

use bytes::Bytes;

use crate::{
    broker::{BrokerConfig, desk::Desk},
    proto::auth,
    wire::{
        Decoder, Flags, Frame, Packet, PacketBuilder, PacketType, Padding, VariableHeader,
        java::{JavaClass, JavaField, JavaObject, TableClass, decode_object, encode_object},
    },
};

const OPERATIONS_MAX: usize = 100;

/// Values of an answer that are read.
const ITEMS: usize = 1 << 20;

/// Numbers that mean nothing, between the first and the last that do.
const GAPS: [i32; 3] = [42, 48, 50];

const NAMES: [&str; 6] = ["a", "b", "mq.sys.dmq", "a.*", "", "temporary_destination://queue/x/1/1"];
const ATTRIBUTES: [&str; 10] = [
    "name",
    "type",
    "messages_max",
    "limit_behavior",
    "use_dmq",
    "consumer_flow_limit",
    "active_consumers_max",
    "autocreate_queue",
    "loops",
    "queue.messages_max",
];
const VALUES: [&str; 9] =
    ["a", "b", "queue", "topic", "5", "-1", "FLOW_CONTROL", "true", "REMOVE_OLDEST"];
const COMMANDS: [&str; 3] = ["query", "list", "destroy"];
const KINDS: [&str; 8] =
    ["queue", "topic", "broker", "connection", "durable", "producers", "producer", "consumer"];

/// The body of the fuzz target `admin_ops`.
///
/// # Panics
/// If the broker breaks one of the laws above.
pub fn admin_ops(data: &[u8]) {
    let mut input = Input { data };
    let mut admin = Admin::connect();
    for _ in 0..OPERATIONS_MAX {
        let Some(number) = input.byte() else { break };
        // Mostly numbers of the table.
        let number = if number < 240 { i32::from(number % 100) } else { i32::from(number) - 400 };
        admin.ask(number, &mut input);
    }
    admin.ask(28, &mut Input { data: &[] });
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

    fn bits(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.bits()) % from.len()]
    }
}

struct Admin {
    desk: Desk,
    client: usize,
    decoder: Decoder,
    sequence: i64,
}

impl Admin {
    /// Logs in, and listens for answers.
    fn connect() -> Self {
        let mut desk = Desk::new(BrokerConfig::default());
        let client = desk.connect_administrator();
        let mut this = Self { desk, client, decoder: Decoder::new(u32::MAX), sequence: 0 };
        let nonce = auth::nonce([7; 16]);
        let response = auth::digest_response(&auth::stored_hash("admin", "admin"), &nonce);
        let login = auth::authenticate_body("admin", &response).unwrap_or_default();
        let answers = |kind| {
            PacketBuilder::new(kind).string("JMQDestination", "answers").int("JMQDestType", 0x11)
        };
        for packet in [
            PacketBuilder::new(PacketType::HELLO),
            PacketBuilder::new(PacketType::AUTHENTICATE)
                .string("JMQAuthType", "digest")
                .body(login),
            answers(PacketType::CREATE_DESTINATION),
            // The implicit session takes what it is sent as it comes.
            answers(PacketType::ADD_CONSUMER).int("JMQSize", -1).int("JMQAckMode", 32768),
            PacketBuilder::new(PacketType::START),
        ] {
            this.send(packet);
        }
        this
    }

    /// Sends a packet; the messages that come back.
    fn send(&mut self, packet: PacketBuilder) -> Vec<Packet> {
        self.sequence += 1;
        let packet = packet.consumer_id(self.sequence).flags(Flags::ACKNOWLEDGE).finish();
        self.desk.receive(self.client, packet.raw().clone());
        assert!(!self.desk.is_ended(self.client), "a request ends the connection");
        self.decoder.feed(self.desk.take_written(self.client).into());
        let mut messages = Vec::new();
        while let Some(frame) = self.decoder.next_frame().expect("the broker writes packets") {
            match frame {
                Frame::Packet(packet) if packet.header().packet_type.is_message() => {
                    messages.push(packet);
                }
                Frame::Packet(_) => {}
                Frame::Oversized(header) => panic!("an oversized packet: {header:?}"),
            }
        }
        messages
    }

    fn ask(&mut self, number: i32, input: &mut Input<'_>) {
        let fields = VariableHeader {
            destination: Some(b"__JMQAdmin"),
            reply_to: Some(b"answers"),
            ..VariableHeader::default()
        };
        let request = PacketBuilder::new(PacketType::OBJECT_MESSAGE)
            .variable(&fields, Padding::Java)
            .expect("short names fit")
            .flags(Flags::QUEUE)
            .int("JMQMessageType", number);
        let answers = self.send(fill(request, input));
        let known = number % 2 == 0 && (10..=98).contains(&number) && !GAPS.contains(&number);
        assert_eq!(answers.len(), usize::from(known), "answers to {number}");
        for answer in answers {
            let table = answer.properties().expect("an answer has properties");
            assert_eq!(table.int("JMQMessageType"), Ok(Some(number + 1)));
            let status = table.int("JMQStatus").expect("an int").expect("a status");
            assert_eq!(status == 200, table.value("JMQErrorString").is_none(), "{status}");
            let body = answer.body();
            assert!(body.is_empty() || decode_object(&body, ITEMS).is_ok(), "an answer's body");
        }
    }
}

/// Puts properties and a body into a request.
fn fill(mut request: PacketBuilder, input: &mut Input<'_>) -> PacketBuilder {
    let (first, second) = (input.bits(), input.bits());
    let is = |bits: u8, at: u8| bits & 1 << at != 0;
    if is(first, 0) {
        request = request.string("JMQDestination", input.pick(&NAMES));
    }
    if is(first, 1) {
        request = request.int("JMQDestType", i32::from(input.bits() % 4));
    }
    if is(first, 2) {
        request = request.int("JMQDestState", i32::from(input.bits() % 5) - 1);
    }
    if is(first, 3) {
        request = request.string("JMQCommand", input.pick(&COMMANDS));
    }
    if is(first, 4) {
        request = request.string("JMQTargetType", input.pick(&KINDS));
    }
    if is(first, 5) {
        request = request.string("JMQTarget", input.pick(&["a", "b", "5", "-1", ""]));
    }
    if is(first, 6) {
        request = request.string("JMQDurableName", "d").string("JMQClientID", "c");
    }
    if is(first, 7) {
        request = request.long("JMQTransactionID", i64::from(input.bits()));
    }
    if is(second, 0) {
        request = request.long("JMQConnectionID", i64::from(input.bits()));
    }
    if is(second, 1) {
        request = request.string("JMQServiceName", input.pick(&["jms", "admin", "x"]));
    }
    // Of the wrong type.
    if is(second, 2) {
        request = request.long("JMQTime", 1);
    }
    request.body(match second >> 6 {
        0 => Bytes::new(),
        1 => table(input),
        2 => info(input),
        _ => {
            let raw = input.data.get(..usize::from(input.data.first().copied().unwrap_or(0)));
            [&[0xAC, 0xED, 0, 5], raw.unwrap_or_default()].concat().into()
        }
    })
}

/// A table of names and values, mostly good ones.
fn table(input: &mut Input<'_>) -> Bytes {
    let entries = (0..input.bits() % 6)
        .map(|_| (input.pick(&ATTRIBUTES).to_owned(), input.pick(&VALUES).into()))
        .collect();
    encode_object(&[], &JavaObject::Table(TableClass::Hashtable, entries))
}

/// A change as the reference's tools say it.
fn info(input: &mut Input<'_>) -> Bytes {
    let field = |kind, name: &'static str, signature: &'static str| JavaField {
        kind,
        name: name.into(),
        signature: signature.into(),
    };
    let class = JavaClass {
        name: "com.sun.messaging.jmq.util.admin.DestinationInfo".into(),
        uid: 7_043_096_792_121_903_858,
        fields: vec![
            field(b'I', "destLimitBehavior", ""),
            field(b'I', "maxMessages", ""),
            field(b'I', "type", ""),
            field(b'I', "updateMask", ""),
            field(b'L', "name", "Ljava/lang/String;"),
        ]
        .into(),
    };
    let mask = i32::from(input.bits()) | i32::from(input.bits()) << 8;
    let values = vec![
        (i32::from(input.bits() % 6) - 1).into(),
        (i32::from(input.bits()) - 2).into(),
        i32::from(input.bits() % 4).into(),
        mask.into(),
        input.pick(&NAMES).into(),
    ];
    encode_object(&[class], &JavaObject::Record(0, values))
}
