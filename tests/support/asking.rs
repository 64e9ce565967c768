//! What tests ask a broker for, as packets.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate::{
    broker::{Broker, BrokerConfig, DestinationSnapshot},
    wire::{
        Flags, MessageId, Packet, PacketBuilder, PacketType, Padding, Properties, VariableHeader,
    },
};

use super::{
    raw::{QUEUE, Raw, body, long, reason, status},
    wait_until,
};

/// A broker with these settings, on free ports.
pub fn broker_with(settings: &str) -> Broker {
    let free = "listen = \"127.0.0.1:0\"\nloops = 2\n";
    let config = BrokerConfig::from_toml_str(&format!("{free}{settings}"), "test").unwrap();
    let mut builder = Broker::builder();
    builder.config(config);
    builder.start().expect("a broker starts on free ports")
}

/// What a broker knows of one destination; `None` if there is none of this name.
pub fn look_at(broker: &Broker, name: &str) -> Option<DestinationSnapshot> {
    broker.snapshot().destinations.into_iter().find(|one| one.name == name)
}

/// Messages of a destination.
pub fn held(broker: &Broker, name: &str) -> u64 {
    look_at(broker, name).expect(name).messages
}

/// Waits until a destination has so many messages: replies may overtake the last bit of counting.
pub fn await_held(broker: &Broker, name: &str, count: u64) {
    wait_until(&format!("{name} has {count} messages"), || held(broker, name) == count);
}

pub fn destination(packet: PacketType, name: &str, mask: i32) -> PacketBuilder {
    PacketBuilder::new(packet).string("JMQDestination", name).int("JMQDestType", mask)
}

/// A consumer that wants to be sent 1000 messages ahead.
pub fn consumer(session: i64, name: &str, mask: i32) -> PacketBuilder {
    consumer_ahead(session, name, mask, 1000)
}

/// A consumer that wants to be sent so many messages ahead.
pub fn consumer_ahead(session: i64, name: &str, mask: i32, size: i32) -> PacketBuilder {
    destination(PacketType::ADD_CONSUMER, name, mask)
        .long("JMQSessionID", session)
        .int("JMQSize", size)
}

/// The end of a consumer whose application has seen these messages last; `None`: nothing.
pub fn close(consumer: i64, last: Option<&Packet>) -> PacketBuilder {
    let packet = PacketBuilder::new(PacketType::DELETE_CONSUMER).long("JMQConsumerID", consumer);
    match last {
        Some(last) => packet.int("JMQBodyType", 3).body(last.header().id.encode().to_vec()),
        None => packet.int("JMQBodyType", 0).boolean("JMQRedeliverAll", true),
    }
}

pub fn unsubscribe(name: &str) -> PacketBuilder {
    PacketBuilder::new(PacketType::DELETE_CONSUMER).string("JMQDurableName", name)
}

pub fn client_id(id: &str) -> PacketBuilder {
    PacketBuilder::new(PacketType::SET_CLIENTID).string("JMQClientID", id)
}

/// What a message says besides its text.
#[derive(Debug, Clone, Copy, Default)]
pub struct Way {
    pub transaction: Option<i64>,
    pub producer: Option<i64>,
    /// The producer's last message of its credit.
    pub last_of_credit: bool,
    pub due: Option<i64>,
}

/// A text message.
pub fn text(name: &str, mask: i32, text: &str, way: Way) -> PacketBuilder {
    let fields = VariableHeader {
        destination: Some(name.as_bytes()),
        transaction_id: way.transaction,
        producer_id: way.producer,
        delivery_time: way.due,
        ..VariableHeader::default()
    };
    let flags = Flags::empty()
        .set(Flags::QUEUE, mask & QUEUE != 0)
        .set(Flags::CONSUMER_FLOW, way.last_of_credit);
    PacketBuilder::new(PacketType::TEXT_MESSAGE)
        .variable(&fields, Padding::Java)
        .unwrap()
        .flags(flags)
        .body(text.as_bytes().to_vec())
}

/// A text message with properties.
pub fn with_properties(
    name: &str,
    mask: i32,
    body: &str,
    fill: impl FnOnce(&mut Properties),
) -> PacketBuilder {
    let mut properties = Properties::new();
    fill(&mut properties);
    text(name, mask, body, Way::default()).properties(&properties).unwrap()
}

/// Reads a text property.
pub fn property(packet: &Packet, name: &'static str) -> Option<String> {
    packet.properties().unwrap().string(name).unwrap().map(|text| text.into_owned())
}

/// Logs in, with a client id.
pub fn login_as(broker: &Broker, id: &str) -> Raw {
    let mut raw = Raw::login(broker.jms_address(), 0);
    asked(&mut raw, client_id(id));
    raw
}

/// Asks for something that must succeed.
pub fn asked(raw: &mut Raw, request: PacketBuilder) -> Packet {
    let reply = raw.request(request);
    assert_eq!(status(&reply), 200, "{}", reason(&reply));
    reply
}

/// Asks for something that must be refused, and returns the status.
pub fn refused(raw: &mut Raw, request: PacketBuilder) -> i32 {
    let reply = raw.request(request);
    assert!(!reason(&reply).is_empty(), "a refusal has a reason: {}", status(&reply));
    status(&reply)
}

/// Asks for a consumer, and returns its id.
pub fn subscribed(raw: &mut Raw, request: PacketBuilder) -> i64 {
    long(&asked(raw, request), "JMQConsumerID")
}

/// Sends texts and waits until the broker has each.
pub fn send_texts(
    raw: &mut Raw,
    name: &str,
    mask: i32,
    texts: impl IntoIterator<Item = impl ToString>,
) {
    for one in texts {
        asked(raw, text(name, mask, &one.to_string(), Way::default()));
    }
}

/// The next `count` messages' bodies.
pub fn next_bodies(raw: &mut Raw, count: usize) -> Vec<String> {
    (0..count).map(|_| body(&raw.message())).collect()
}

/// Milliseconds since 1970, later by so many.
pub fn in_ms(later: i64) -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap() + later
}

/// Waits until this time, in milliseconds since 1970, has passed.
pub fn await_time(at: i64) {
    wait_until("the time has come", || in_ms(0) > at);
}

/// What the dead message queue holds, once there are so many.
pub fn dead(broker: &Broker, count: u64) -> Vec<Packet> {
    await_held(broker, DEAD_MESSAGES, count);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let mut found = Vec::new();
    // What is on its way into a store is counted before it is there.
    wait_until("the dead are there", || {
        found = browse(&mut raw, DEAD_MESSAGES, None);
        found.len() as u64 >= count
    });
    found
}

/// What a browser sees.
pub fn browse(raw: &mut Raw, queue: &str, selector: Option<&str>) -> Vec<Packet> {
    let request = destination(PacketType::BROWSE, queue, QUEUE);
    let request = match selector {
        Some(selector) => request.string("JMQSelector", selector),
        None => request,
    };
    let found = asked(raw, request);
    if found.body().is_empty() {
        return Vec::new();
    }
    let browser = long(&found, "JMQConsumerID");
    let count = found.body().len() / MessageId::LEN;
    let deliver = PacketBuilder::new(PacketType::DELIVER).long("JMQConsumerID", browser);
    asked(raw, deliver.body(found.body()));
    let own = |packet: &Packet| {
        packet.header().packet_type.is_message() && packet.header().consumer_id == browser
    };
    (0..count).map(|_| raw.wait(own).unwrap()).collect()
}

pub const DEAD_MESSAGES: &str = "mq.sys.dmq";
