//! Stores for brokers whose messages wait outside of their memory.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(unreachable_pub, reason = "shared by test programs")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

pub mod made;
pub mod watched;

use tidegate::{
    broker::{Broker, BrokerConfig},
    message::DestinationKind,
    store::{
        Batch, Durability, MessageStore,
        record::{self, DestinationRecord, MessageHead, RecentRecord},
    },
    wire::{Flags, MessageId, Packet, PacketBuilder, PacketType},
};

/// The place in the store of the one queue that is there from the start.
pub const PLACE: u64 = 1;

/// A broker with this store, on free ports. No body stays in memory unless somebody is about to
/// take it.
pub fn start(store: impl MessageStore + 'static, settings: &str) -> Broker {
    let settings =
        format!("listen = \"127.0.0.1:0\"\nloops = 1\nstore.memory_max = \"0\"\n{settings}");
    let config = BrokerConfig::from_toml_str(&settings, "cold").unwrap();
    let mut builder = Broker::builder();
    builder.config(config).start_with(store).unwrap()
}

/// The queue with the number [`PLACE`].
pub fn queue(name: &str) -> DestinationRecord {
    DestinationRecord {
        id: PLACE,
        kind: DestinationKind::Queue,
        name: name.into(),
        administered: false,
        consumption_paused: false,
        production_paused: false,
        attributes: vec![("messages_max".into(), "-1".into())],
    }
}

/// A persistent text for a queue, as it is stored; its id is its sequence.
pub fn packet(name: &str, sequence: u64, text: String) -> Packet {
    let fields =
        tidegate::wire::VariableHeader { destination: Some(name.as_bytes()), ..Default::default() };
    let sequence = i32::try_from(sequence).unwrap();
    PacketBuilder::new(PacketType::TEXT_MESSAGE)
        .variable(&fields, tidegate::wire::Padding::Java)
        .unwrap()
        .flags(Flags::QUEUE.with(Flags::PERSISTENT))
        .priority(4)
        .id(MessageId { timestamp: 1, address: [9; 16], port: 1, sequence })
        .body(text.into_bytes())
        .finish()
}

/// What is known of a message that nobody was given.
pub const HEAD: MessageHead = MessageHead { received_ms: 1, delivered: false };

/// Puts so many texts, `m1` and so on, into a queue of an empty store.
pub fn fill(store: &mut impl MessageStore, name: &str, count: u64) {
    drop(store.recover().unwrap());
    let mut batch = Batch::new(1);
    record::put_format(&mut batch);
    record::put_destination(&mut batch, &queue(name));
    for sequence in 1..=count {
        let packet = packet(name, sequence, format!("m{sequence}"));
        record::put_message(&mut batch, PLACE, sequence, HEAD, &packet);
        if batch.len() >= 4096 || sequence == count {
            let recent = RecentRecord {
                batch: batch.number(),
                sequence,
                place: PLACE,
                ..RecentRecord::default()
            };
            record::put_recent(&mut batch, 1, &recent);
            store.commit(&batch, Durability::Written).unwrap();
            let next = batch.number() + 1;
            batch.reset(next);
        }
    }
}
