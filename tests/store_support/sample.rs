//! A store with some of everything in it.

use bytes::Bytes;
use tidegate::{
    message::DestinationKind,
    store::{
        Batch, Durability, MessageStore,
        record::{
            self, CopyRecord, DeliveredRecord, DeliveriesRecord, DestinationRecord,
            EndedTransaction, MessageHead, RecentRecord, SharedBy, SubscriptionRecord,
            TransactionRecord,
        },
    },
    wire::{Flags, MessageId, Packet, PacketBuilder, PacketType},
};

/// The queue `orders`, the topic `news`, and the durable subscription of it.
pub const ORDERS: u64 = 1;
pub const NEWS: u64 = 2;
pub const READER: u64 = 3;

/// The prepared transaction.
pub const PREPARED: u64 = 40;

/// Puts the sample into an empty store.
pub fn fill(store: &mut dyn MessageStore) {
    store.commit(&batch(), Durability::Synced).unwrap();
}

/// The one batch of the sample.
pub fn batch() -> Batch {
    let mut batch = Batch::new(1);
    record::put_format(&mut batch);
    record::put_destination(&mut batch, &destination(ORDERS, DestinationKind::Queue, "orders"));
    record::put_destination(&mut batch, &destination(NEWS, DestinationKind::Topic, "news"));
    record::put_subscription(&mut batch, &subscription());
    // Two messages of the queue, one of them held by the transaction; one of the topic.
    put_message(&mut batch, ORDERS, 5, &packet("three apples"));
    put_message(&mut batch, ORDERS, 6, &packet("\u{1}no text"));
    put_message(&mut batch, NEWS, 7, &packet("rain"));
    let copy = CopyRecord { subscription: READER, sequence: 7, topic: NEWS, delivered: true };
    record::put_copy(&mut batch, &copy);
    let delivered = DeliveredRecord { place: ORDERS, priority: 4, through: 5 };
    record::put_delivered(&mut batch, &delivered);
    let deliveries = DeliveriesRecord { place: READER, sequence: 7, count: 2 };
    record::put_deliveries(&mut batch, &deliveries);
    record::put_transaction(&mut batch, &transaction());
    record::put_recent(&mut batch, 1, &recent());
    batch
}

pub fn put_message(batch: &mut Batch, destination: u64, sequence: u64, packet: &Packet) {
    let head = MessageHead { received_ms: 1000 + sequence.cast_signed(), delivered: false };
    record::put_message(batch, destination, sequence, head, packet);
}

pub fn destination(id: u64, kind: DestinationKind, name: &str) -> DestinationRecord {
    DestinationRecord {
        id,
        kind,
        name: name.into(),
        administered: true,
        consumption_paused: false,
        production_paused: false,
        attributes: vec![("messages_max".into(), "5".into())],
    }
}

pub fn subscription() -> SubscriptionRecord {
    SubscriptionRecord {
        id: READER,
        client_id: Some("paper".into()),
        name: "reader".into(),
        topic: "news".into(),
        is_pattern: false,
        is_orphan: false,
        selector: None,
        no_local: None,
        shared: SharedBy::Nobody,
    }
}

pub fn id() -> MessageId {
    MessageId { timestamp: 9, address: [7; 16], port: 8, sequence: 3 }
}

pub fn packet(body: &'static str) -> Packet {
    PacketBuilder::new(PacketType::TEXT_MESSAGE)
        .flags(Flags::PERSISTENT)
        .id(id())
        .body(body)
        .finish()
}

pub fn transaction() -> TransactionRecord {
    TransactionRecord {
        id: PREPARED,
        xid: Some(Bytes::from_static(b"xid")),
        created_ms: 11,
        user: Some("guest".into()),
        one_phase: false,
        lifetime_ms: None,
        auto_rollback: 0,
        session_less: true,
        messages: vec![(ORDERS, packet("later"))],
        consumed: vec![(ORDERS, 6)],
    }
}

pub fn recent() -> RecentRecord {
    RecentRecord {
        batch: 1,
        sequence: 7,
        place: READER,
        messages: vec![(ORDERS, id())],
        transactions: vec![EndedTransaction { id: 39, xid: None, committed: true }],
    }
}
