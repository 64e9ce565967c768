//! The network may cut the broker's bytes anywhere: the client must not notice. Nor does what a
//! message carries matter to the others.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

use bytes::{BufMut, Bytes, BytesMut};
use scripted::{Peer, Scripted, Style, blocks, queue};
use tidegate::{
    client::AcknowledgeMode,
    message::Message,
    wire::{Flags, PacketBuilder, PacketType, Properties, Status},
};

const NONE: Flags = Flags::empty();
const KINDS: [PacketType; 3] =
    [PacketType::TEXT_MESSAGE, PacketType::BYTES_MESSAGE, PacketType::MESSAGE];

/// Logs in, sends three messages and a ping, and wants three acknowledgements and the answer.
fn converse(style: Style, sizes: [usize; 3]) {
    let broker = Scripted::start_with(style, move |peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        peer.hold();
        let mut ids = Vec::new();
        for (kind, size) in KINDS.into_iter().zip(sizes) {
            ids.push(deliver(peer, consumer, kind, size));
        }
        let ping = PacketBuilder::new(PacketType::PING).flags(Flags::ACKNOWLEDGE);
        peer.send(ping.consumer_id(4711));
        peer.release();
        let pong = peer.serve_until(PacketType::PING_REPLY);
        assert_eq!(pong.header().consumer_id, 4711);
        assert_eq!(scripted::int(&pong, "JMQStatus"), Some(Status::OK.0));
        peer.serve_to_the_end();
        let acks: Vec<_> = peer.seen_of(PacketType::ACKNOWLEDGE).iter().flat_map(blocks).collect();
        assert_eq!(acks, ids);
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    for (kind, size) in KINDS.into_iter().zip(sizes) {
        let message = consumer.receive_timeout(scripted::DEADLINE).unwrap().unwrap();
        let body = message.body_bytes().unwrap();
        assert_eq!(body.len(), if kind == PacketType::MESSAGE { 0 } else { size }, "{style:?}");
        assert!(body.iter().all(|&byte| byte == b'x'));
    }
    connection.close().unwrap();
    broker.join();
}

fn deliver(peer: &mut Peer, consumer: i64, kind: PacketType, size: usize) -> (i64, i32) {
    let size = if kind == PacketType::MESSAGE { 0 } else { size };
    let packet = PacketBuilder::new(kind).flags(Flags::QUEUE).consumer_id(consumer);
    let id = peer.send(packet.body(vec![b'x'; size]));
    (consumer, id.sequence)
}

#[test]
fn one_byte_at_a_time_gives_the_same_conversation() {
    converse(Style { chunk: Some(1), ..Style::default() }, [10, 300, 0]);
}

#[test]
fn a_cut_anywhere_in_the_first_four_hundred_bytes_gives_the_same_conversation() {
    for cut in 1..400 {
        converse(Style { cut_at: Some(cut), ..Style::default() }, [1, 2, 0]);
    }
}

#[test]
fn packets_that_end_on_the_edge_of_a_buffer_are_whole() {
    for edge in [4096, 8192, 65_536, 262_144] {
        for end in [edge - 1, edge, edge + 1] {
            // Header and body of the first message end there.
            converse(Style { chunk: Some(edge), ..Style::default() }, [end - 72, edge, 0]);
        }
    }
}

#[test]
fn a_ping_right_behind_a_large_message_is_answered() {
    converse(Style::default(), [3 << 20, 3 << 20, 0]);
}

#[test]
fn a_property_that_is_no_text_hides_neither_the_others_nor_the_body() {
    let mut table = BytesMut::new();
    table.put_slice(&[0, 0, 0, 1, 0, 0, 0, 3]);
    for (name, value) in [(&b"bad"[..], &[0xC3, 0x28][..]), (&[0xC3, 0x28], b"v"), (b"good", b"v")]
    {
        table.put_u16(u16::try_from(name.len()).unwrap());
        table.put_slice(name);
        table.put_i16(8);
        table.put_u16(u16::try_from(value.len()).unwrap());
        table.put_slice(value);
    }
    // The table that a Java client sends for a string that does not fit: cut off.
    let cut = Bytes::from_static(&[0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b'v', 0, 8]);
    let broker = Scripted::start(move |peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        for table in [table.freeze(), cut] {
            peer.deliver_with(consumer, "body", NONE, |packet| packet.property_section(table));
        }
        peer.serve_to_the_end();
        assert_eq!(peer.seen_of(PacketType::ACKNOWLEDGE).len(), 2);
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    let message = consumer.receive().unwrap().unwrap();
    assert_eq!(message.property_as::<String>("good").unwrap().as_deref(), Some("v"));
    assert!(message.property_as::<String>("bad").is_err());
    assert_eq!(message.body_text().unwrap().as_deref(), Some("body"));
    let message = consumer.receive().unwrap().unwrap();
    assert!(message.properties().is_err());
    assert_eq!(message.body_text().unwrap().as_deref(), Some("body"));
    connection.close().unwrap();
    broker.join();
}

#[test]
fn what_does_not_fit_is_an_error_where_it_is_set_and_nothing_is_sent() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let sent = peer.serve_until(PacketType::TEXT_MESSAGE);
        let owned: Properties = sent.properties().unwrap().to_owned();
        assert_eq!(owned.len(), 2);
        assert_eq!(sent.variable().unwrap().correlation_id.unwrap().len(), 32_767);
        peer.answer(&sent);
        peer.serve_to_the_end();
        assert!(peer.seen_of(PacketType::TEXT_MESSAGE).is_empty());
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let producer = session.create_producer(&queue("q")).unwrap();
    let mut message = Message::text("x");
    message.set_property("v", "a".repeat(65_535)).unwrap();
    assert!(message.set_property("w", "a".repeat(65_536)).is_err());
    message.set_property("n".repeat(60_000), 1).unwrap();
    message.set_correlation_id(Some(&"c".repeat(32_767))).unwrap();
    assert!(message.set_correlation_id(Some(&"c".repeat(32_768))).is_err());
    producer.send(message).unwrap();
    connection.close().unwrap();
    broker.join();
}
