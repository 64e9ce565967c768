//! Subscriptions, browsers, client ids, destinations, and whatever else clients wish for.

use crate::wire::{
    Flags, MessageId, PacketBuilder, PacketType, Padding, Properties, Value, VariableHeader,
};

use super::{
    Input, NAMES, World, blocks,
    client::{Asked, SHARED_WINDOW_MAX, WINDOW_MAX},
    destination,
};

const TEMPORARY: &str = "temporary_destination://queue/x/1/1";
const DEAD_MESSAGES: &str = "mq.sys.dmq";
/// Everything a message may be sent to, or asked for; some of it is not there.
const PLACES: [(&str, i32); 9] = [
    ("a", 1),
    ("b", 1),
    ("t", 2),
    ("n.x", 2),
    ("n.y", 2),
    ("n.*", 2),
    (TEMPORARY, 0x11),
    (DEAD_MESSAGES, 1),
    ("n*", 2),
];
const SELECTORS: [Option<&str>; 6] = [
    None,
    Some("JMSPriority > 4"),
    Some("n = 1"),
    Some("n IS NULL OR n < 100"),
    Some("n + 1 > 0 AND (n"),
    Some("  "),
];
const CLIENT_IDS: [&str; 5] = ["c1", "c2", "${u}-c", "", "id"];
/// As they are once the user's name is in.
const CLIENT_IDS_MADE: [Option<&str>; 5] =
    [None, Some("c1"), Some("c2"), Some("${u:guest}-c"), Some("id")];
const DURABLE: [&str; 2] = ["d1", "d2"];

/// Times from the start on, in milliseconds since 1970.
fn a_time(input: &mut Input<'_>) -> i64 {
    1_000_000 + i64::from(input.byte().unwrap_or(0)) * 1000
}

fn selected(packet: PacketBuilder, input: &mut Input<'_>) -> PacketBuilder {
    match input.pick(&SELECTORS).flatten() {
        Some(selector) => packet.string("JMQSelector", selector),
        None => packet,
    }
}

impl World {
    /// A consumer of any kind.
    pub(super) fn subscribe(&mut self, at: usize, input: &mut Input<'_>) {
        let Some(session) = input.pick(&self.clients[at].sessions) else { return };
        let kind = input.below(8);
        let topic = input.pick(&["t", "n.x", "n.*", ">", "n.y"]).unwrap_or("t");
        let (name, mask) = if kind == 0 { ("a", 1) } else { (topic, 2) };
        let size = i32::from(input.byte().unwrap_or(0) % 8) - 1;
        let durable = input.pick(&DURABLE).unwrap_or(DURABLE[0]);
        let add = destination(PacketType::ADD_CONSUMER, name, mask)
            .long("JMQSessionID", session)
            .boolean("JMQNoLocal", mask == 2 && input.below(4) == 0)
            .int("JMQSize", size);
        let add = selected(add, input);
        let add = match kind {
            2 => add.string("JMQDurableName", durable),
            3 => add.string("JMQDurableName", durable).boolean("JMQJMSShare", true),
            4 => add.string("JMQDurableName", durable).boolean("JMQShare", true),
            5 => add.string("JMQSharedSubscriptionName", "s").boolean("JMQJMSShare", true),
            6 => add.boolean("JMQShare", true),
            _ => add,
        };
        let max = match (name, kind) {
            ("n.*" | ">", _) => i32::MAX,
            (_, 3..=6) => SHARED_WINDOW_MAX,
            _ => WINDOW_MAX,
        };
        self.ask_about(at, add, Asked::Consumer(size, max));
    }

    pub(super) fn unsubscribe(&mut self, at: usize, input: &mut Input<'_>) {
        let name = input.pick(&DURABLE).unwrap_or(DURABLE[0]);
        let end = PacketBuilder::new(PacketType::DELETE_CONSUMER).string("JMQDurableName", name);
        self.ask(at, end);
    }

    /// Nobody has any subscription left.
    pub(super) fn end_all_subscriptions(&mut self) {
        for name in DURABLE {
            for id in CLIENT_IDS_MADE {
                let end = PacketBuilder::new(PacketType::DELETE_CONSUMER);
                let end = end.string("JMQDurableName", name);
                let end = match id {
                    Some(id) => end.string("JMQClientID", id),
                    None => end,
                };
                self.ask(0, end);
            }
        }
    }

    pub(super) fn browse(&mut self, at: usize, input: &mut Input<'_>) {
        let (name, mask) = input.pick(&PLACES).unwrap_or(PLACES[0]);
        let browse = selected(destination(PacketType::BROWSE, name, mask), input);
        self.ask_about(at, browse, Asked::Browse);
    }

    /// Asks for some of what a browser was told.
    pub(super) fn deliver(&mut self, at: usize, input: &mut Input<'_>) {
        let browsers: Vec<i64> = self.clients[at].browsers.keys().copied().collect();
        let Some(browser) = input.pick(&browsers) else { return };
        let ids = &self.clients[at].browsers[&browser];
        let count = ids.len() / MessageId::LEN;
        let from = input.below(count + 1);
        let to = from + input.below(count + 1 - from);
        let ids = ids[from * MessageId::LEN..to * MessageId::LEN].to_vec();
        // One in a few asks for what it was never told.
        let ids = if input.below(8) == 0 { vec![7; MessageId::LEN] } else { ids };
        let deliver = PacketBuilder::new(PacketType::DELIVER).long("JMQConsumerID", browser);
        self.ask(at, deliver.body(ids));
    }

    pub(super) fn name_client(&mut self, at: usize, input: &mut Input<'_>) {
        let name = PacketBuilder::new(PacketType::SET_CLIENTID);
        let choice = input.byte().unwrap_or(0);
        let name = match input.pick(&CLIENT_IDS) {
            Some(id) if choice & 1 == 0 => name.string("JMQClientID", id),
            _ => name,
        };
        let name = if choice & 2 != 0 { name.boolean("JMQShare", choice & 4 != 0) } else { name };
        self.ask(at, if choice & 8 != 0 { name.string("JMQNamespace", "x") } else { name });
    }

    /// Makes one, looks for it, or destroys it.
    pub(super) fn concern_destination(&mut self, at: usize, input: &mut Input<'_>) {
        let (name, mask) = input.pick(&PLACES).unwrap_or(PLACES[0]);
        match input.below(6) {
            0..=2 => self.ask(at, destination(PacketType::CREATE_DESTINATION, name, mask)),
            3 => {
                let verify = destination(PacketType::VERIFY_DESTINATION, name, mask);
                self.ask(at, selected(verify, input));
            }
            4 => self.ask(at, destination(PacketType::ADD_PRODUCER, name, mask)),
            _ => {
                self.may_be_gone = true;
                self.ask(at, destination(PacketType::DESTROY_DESTINATION, name, mask));
            }
        }
    }

    /// Requests without consequences for messages.
    pub(super) fn ask_something_small(&mut self, at: usize, input: &mut Input<'_>) {
        let kinds = [
            PacketType::GENERATE_UID,
            PacketType::GET_LICENSE,
            PacketType::PING,
            PacketType::FLOW_PAUSED,
            PacketType::RESUME_FLOW,
            PacketType::INFO_REQUEST,
            PacketType::DEBUG,
            PacketType::PING_REPLY,
            PacketType::AUTHENTICATE,
        ];
        let Some(kind) = input.pick(&kinds) else { return };
        let packet = PacketBuilder::new(kind).int("JMQQuantity", 3).int("JMQRequestType", 1);
        self.ask(at, packet);
    }

    /// Messages of all types, late ones and mortal ones, to all kinds of places.
    pub(super) fn send_strangely(&mut self, at: usize, input: &mut Input<'_>) {
        let (name, mask) = input.pick(&PLACES).unwrap_or(PLACES[0]);
        let kind = PacketType(1 + u16::try_from(input.below(6)).unwrap_or(0));
        let choice = input.byte().unwrap_or(0);
        let due = if choice & 1 != 0 { Some(a_time(input)) } else { None };
        let expiration = if choice & 2 != 0 { a_time(input) } else { 0 };
        let fields = VariableHeader {
            destination: Some(name.as_bytes()),
            delivery_time: due,
            correlation_id: Some(b"c"),
            message_type: Some(b"type"),
            ..VariableHeader::default()
        };
        let mut properties = Properties::new();
        properties.set("n", i32::from(input.byte().unwrap_or(0)));
        if choice & 4 != 0 {
            properties.set("JMS_SUN_PRESERVE_UNDELIVERED", choice & 8 != 0);
        }
        let message = PacketBuilder::new(kind)
            .variable(&fields, Padding::Java)
            .and_then(|message| message.properties(&properties).map_err(|_| 0))
            .map(|message| message.expiration(expiration).priority(choice >> 4));
        let Ok(message) = message else { return };
        let id = self.next_message();
        let flags = Flags::empty().set(Flags::QUEUE, mask & 1 != 0);
        let message = message.id(id).flags(flags).body(vec![1; 20]);
        let is_followed = NAMES[..2].contains(&(name, mask)) && expiration == 0;
        self.ask_about(at, message, Asked::Send(id, is_followed));
    }

    /// Acknowledgements that say something else than that a message was consumed.
    pub(super) fn acknowledge_strangely(&mut self, at: usize, input: &mut Input<'_>) {
        const COUNTS: [i32; 6] = [i32::MIN, -1, 0, 1, 7, i32::MAX];
        let mut chosen = self.choose(at, input);
        let packet = PacketBuilder::new(PacketType::ACKNOWLEDGE);
        let packet = match input.below(5) {
            0 => packet.boolean("JMQValidate", true),
            1 => packet
                .boolean("JMSXDeliveryCountUpdateOnly", true)
                .int("JMSXDeliveryCount", input.pick(&COUNTS).unwrap_or(0)),
            2 => packet.int("JMQAckType", 1),
            _ => {
                self.may_be_gone = true;
                let mut said = Properties::new();
                said.set("JMQAckType", 2);
                said.set("JMQDeadReason", i32::from(input.byte().unwrap_or(0) % 3));
                said.set("JMQComment", "c");
                said.set("JMSXDeliveryCount", input.pick(&COUNTS).unwrap_or(0));
                said.set("JMQException", Value::Object(vec![1, 2, 3].into()));
                chosen.truncate(1);
                let Ok(packet) = packet.properties(&said) else { return };
                packet
            }
        };
        self.ask(at, packet.body(blocks(&chosen)));
        // Whatever of it is still open may be acknowledged later.
        self.clients[at].delivered.extend(chosen);
    }
}
