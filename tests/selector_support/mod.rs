//! Messages to select from, and tables of what selectors make of them.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses its part")]

pub mod tree;

use tidegate::{
    message::{Destination, Message, Origin},
    selector::{Dialect, Selector},
    wire::{MessageId, Packet, PacketBuilder, PacketType, Properties, Value},
};

pub const DIALECTS: [Dialect; 2] = [Dialect::Jms, Dialect::Reference];

pub fn message(properties: &[(&str, Value)]) -> Message {
    let mut message = Message::text("body");
    message.set_destination(Destination::queue("q").unwrap());
    for (name, value) in properties {
        message.set_property(*name, value.clone()).unwrap();
    }
    message
}

pub fn packet(message: &Message) -> Packet {
    let id = MessageId { timestamp: 1_700_000_000_000, sequence: 7, ..MessageId::default() };
    message.encode(&Origin::default()).unwrap().id(id).finish()
}

/// A message with properties of any kind, also such as no application can set.
pub fn with(properties: &[(&str, Value)]) -> Packet {
    let mut table = Properties::new();
    for (name, value) in properties {
        table.set(*name, value.clone());
    }
    PacketBuilder::new(PacketType::TEXT_MESSAGE).properties(&table).unwrap().finish()
}

#[track_caller]
pub fn parse(text: &str, dialect: Dialect) -> Selector {
    match Selector::parse(text, dialect) {
        Ok(selector) => selector,
        Err(error) => panic!("{text}: {error}"),
    }
}

/// Checks a table of selectors and of the names of the messages each of them wants.
#[track_caller]
pub fn check(messages: &[(&str, Packet)], dialects: &[Dialect], table: &[(&str, &str)]) {
    for (text, expected) in table {
        for &dialect in dialects {
            let selector = parse(text, dialect);
            let wanted = messages.iter().filter(|(_, packet)| selector.matches(packet));
            let names: Vec<_> = wanted.map(|(name, _)| *name).collect();
            assert_eq!(names.join(" "), *expected, "{dialect:?}: {text}");
        }
    }
}
