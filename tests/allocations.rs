//! The hot path of the wire allocates nothing for a packet but the packet's own bytes.
#![allow(unsafe_code, reason = "an allocator that counts is unsafe to implement")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/allocator.rs"]
mod allocator;

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
#[cfg(feature = "broker")]
use tidegate::selector::{Dialect, Selector};
use tidegate::{
    message::{Destination, Message, Origin},
    wire::{
        Decoder, Frame, MessageId, Packet, PacketType, Status, delivery, delivery::Delivery,
        put_status_reply,
    },
};

// Each thread has its own count, so that tests do not see each other.
thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more, and no test either.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

fn allocations<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = ALLOCATIONS.get();
    let result = work();
    (ALLOCATIONS.get() - before, result)
}

fn packet() -> Packet {
    let mut message = Message::text("x".repeat(1024));
    message.set_destination(Destination::queue("orders").unwrap());
    message.set_property("n", 7_i32).unwrap().set_correlation_id(Some("c")).unwrap();
    let origin = Origin { producer_id: Some(1), transaction_id: None };
    message.encode(&origin).unwrap().finish()
}

fn decode_all(decoder: &mut Decoder, chunks: impl Iterator<Item = Bytes>) -> usize {
    let mut packets = 0;
    for chunk in chunks {
        decoder.feed(chunk);
        while let Some(Frame::Packet(packet)) = decoder.next_frame().unwrap() {
            assert!(packet.raw().len() > 1024);
            packets += 1;
        }
    }
    packets
}

#[test]
fn the_allocator_counts() {
    assert_eq!(allocations(|| Box::new(7)).0, 1);
}

#[test]
fn packets_that_arrive_whole_cost_one_allocation_a_read_and_none_each() {
    let read = Bytes::from(packet().raw().repeat(100));
    let mut decoder = Decoder::new(1 << 20);
    let (count, packets) = allocations(|| decode_all(&mut decoder, std::iter::once(read)));
    assert_eq!(packets, 100);
    // The count of references, made when the first packet is cut off the read.
    assert!(count <= 1, "{count}");
}

#[test]
fn a_packet_that_spans_reads_costs_its_own_buffer_only() {
    let packet = packet();
    let len = packet.raw().len();
    for cut in [1, 71, 72, 73, 500, len - 1] {
        let chunks = [packet.raw().slice(..cut), packet.raw().slice(cut..)];
        let mut decoder = Decoder::new(1 << 20);
        let (count, packets) = allocations(|| decode_all(&mut decoder, chunks.into_iter()));
        assert_eq!((packets, count), (1, 1), "cut at {cut}");
    }
}

#[test]
fn looking_into_a_packet_allocates_nothing() {
    let packet = packet();
    // The first share of bytes that were made in one piece makes their count of references.
    drop(packet.clone());
    let (count, ()) = allocations(|| {
        let fields = packet.variable().unwrap();
        assert_eq!(fields.destination_text().as_deref(), Some("orders"));
        assert_eq!(packet.properties().unwrap().int("n"), Ok(Some(7)));
        let message = Message::from_packet(&packet).unwrap();
        assert_eq!(message.body_text().unwrap().map(|text| text.len()), Some(1024));
        assert_eq!(message.property_as::<i32>("n"), Ok(Some(7)));
        assert_eq!(message.correlation_id().as_deref(), Some("c"));
    });
    assert_eq!(count, 0);
}

#[test]
fn a_sent_message_costs_its_sections_and_not_its_body() {
    let mut message = Message::bytes(vec![7; 100_000]);
    message.set_destination(Destination::queue("orders").unwrap());
    message.set_property("n", 7_i32).unwrap();
    let (_, warm) = allocations(|| message.encode(&Origin::default()).unwrap().finish_parts());
    let (count, parts) = allocations(|| message.encode(&Origin::default()).unwrap().finish_parts());
    // Property table, its count of references, variable header, and all of it in one piece.
    assert!(count <= 4, "{count}");
    assert_eq!(parts.1.as_ptr(), warm.1.as_ptr());
}

#[test]
fn deliveries_and_replies_are_written_without_allocating() {
    let packet = packet();
    drop(packet.clone());
    let mut out = BytesMut::with_capacity(4096);
    let delivery = Delivery {
        consumer_id: 1,
        count: Some(1),
        consumer_flow: false,
        flow_paused: true,
        last: false,
    };
    let (count, tail) = allocations(|| {
        delivery::encode_head(&packet, &delivery, &mut out).unwrap();
        let id = MessageId::default();
        put_status_reply(PacketType::SEND_REPLY, 1, Status::OK, id, &mut out);
        packet.tail()
    });
    assert_eq!(count, 0);
    assert!(tail.len() > 1024 && out.len() > 170);
}

#[test]
#[cfg(feature = "broker")]
fn selecting_a_message_allocates_nothing() {
    let mut message = Message::text("body");
    message.set_destination(Destination::queue("orders").unwrap());
    // Written in Java's form of UTF-8, which is not plain.
    message.set_property("name", "a\0😀%").unwrap().set_property("n", 7_i32).unwrap();
    message.set_property("d", 1.5_f64).unwrap().set_correlation_id(Some("c")).unwrap();
    let packet = message.encode(&Origin::default()).unwrap().finish();
    let deep = "1 = (0 + ".repeat(60) + "n" + &")".repeat(60);
    let many: String = (0..100).map(|n| format!("n{n} = 1 OR ")).collect();
    let selectors = [
        ("n = 7 AND name LIKE 'a__!%' ESCAPE '!'", true),
        ("name = 'a\0😀%' AND name <> 'b' AND name NOT IN ('x', 'y')", true),
        ("JMSMessageID LIKE 'ID:%' AND JMSCorrelationID = 'c' AND JMSType IS NULL", true),
        ("JMSDeliveryMode = 'PERSISTENT' AND JMSPriority BETWEEN 4 AND 4.5", true),
        ("name < 1 OR n = 7", false),
        ("name LIKE '%a%b%'", false),
        (&deep, false),
        (&(many + "n = 7"), true),
    ];
    for dialect in [Dialect::Jms, Dialect::Reference] {
        for (text, expected) in selectors {
            let selector = Selector::parse(text, dialect).unwrap();
            let (count, matches) = allocations(|| selector.matches(&packet));
            assert_eq!((count, matches), (0, expected), "{text}");
        }
    }
}
