//! The client says what the reference client said: recorded conversations are played again, the
//! broker's side from the recording, and each packet of ours is compared with the recorded one.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io::BufReader,
    path::Path,
    time::Duration,
};

use bytes::BytesMut;
use scripted::{DEADLINE, Peer, Scripted, queue};
use tidegate::{
    client::{AcknowledgeMode, Connection, ConnectionFactory},
    message::{DeliveryMode, Message},
    wire::{
        Flags, Packet, PacketType,
        capture::{CaptureLine, Direction, read_capture},
    },
};

fn recording(name: &str) -> Vec<CaptureLine> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    let file = BufReader::new(File::open(path).unwrap());
    read_capture(file).map(Result::unwrap).filter(|line| line.event.is_none()).collect()
}

/// Plays the broker's side of a recording and compares the client's.
fn play(peer: &mut Peer, lines: &[CaptureLine]) {
    // Their reply ids, and ours.
    let mut ids: HashMap<i64, i64> = HashMap::new();
    for line in lines {
        let recorded = line.packet().unwrap().unwrap();
        let header = *recorded.header();
        if line.direction == Direction::ToBroker {
            let ours = peer.packet();
            compare(line.number, &ours, &recorded);
            ids.insert(header.consumer_id, ours.header().consumer_id);
            continue;
        }
        let mut bytes = BytesMut::from(&recorded.raw()[..]);
        if header.packet_type.is_reply() {
            bytes[64..72].copy_from_slice(&ids[&header.consumer_id].to_be_bytes());
        }
        peer.write(&bytes);
    }
}

fn compare(line: u64, ours: &Packet, recorded: &Packet) {
    let (a, b) = (ours.header(), recorded.header());
    assert_eq!(a.packet_type, b.packet_type, "line {line}");
    assert_eq!((a.flags, a.priority), (b.flags, b.priority), "line {line}");
    let wants_reply = a.flags.contains(Flags::ACKNOWLEDGE);
    assert_eq!(a.consumer_id != 0, wants_reply, "line {line}: reply id");
    assert_eq!(ours.variable().unwrap(), recorded.variable().unwrap(), "line {line}");
    match a.packet_type {
        // We say "all that were not seen" where nothing seen is unacknowledged; same effect.
        PacketType::DELETE_CONSUMER if scripted::int(ours, "JMQBodyType") == Some(0) => {}
        // Who we are, and how we prove it, differs.
        PacketType::HELLO | PacketType::AUTHENTICATE => {
            assert_eq!(names(ours), names(recorded), "line {line}");
        }
        _ => {
            assert_eq!(values(ours), values(recorded), "line {line}");
            assert_eq!(ours.body_bytes(), recorded.body_bytes(), "line {line}");
        }
    }
}

fn names(packet: &Packet) -> BTreeSet<(String, i16)> {
    let table = packet.properties().unwrap();
    table.iter().map(|property| (property.name_text().into_owned(), property.kind)).collect()
}

fn values(packet: &Packet) -> BTreeSet<String> {
    let table = packet.properties().unwrap().to_owned();
    table.iter().map(|(name, value)| format!("{name} {} {value}", value.kind())).collect()
}

/// Runs a scenario against a recording; what it returns is dropped after the connection is closed.
fn scenario<R>(
    name: &'static str,
    attributes: &[(&str, &str)],
    run: impl FnOnce(&Connection) -> R,
) {
    let broker = Scripted::start(move |peer| play(peer, &recording(name)));
    let mut factory: ConnectionFactory = broker.factory();
    factory.set_attribute("imqConsumerFlowLimit", "1000").unwrap();
    factory.set_attributes(attributes.iter().copied()).unwrap();
    let connection = factory.create_connection().unwrap();
    let kept = run(&connection);
    connection.close().unwrap();
    drop(kept);
    broker.join();
}

#[test]
fn starting_stopping_and_closing_is_said_as_the_java_client_says_it() {
    scenario("connect_close.jsonl", &[], |connection| {
        connection.start().unwrap();
        connection.stop().unwrap();
        connection.start().unwrap();
    });
}

#[test]
fn sending_and_receiving_is_said_as_the_java_client_says_it() {
    scenario("queue_text_persistent_auto.jsonl", &[], |connection| {
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let queue = queue("cap.q.p");
        let producer = session.create_producer(&queue).unwrap();
        for n in 0..3 {
            producer.send(Message::text(format!("m{n}"))).unwrap();
        }
        producer.close().unwrap();
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        for n in 0..3 {
            let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
            assert_eq!(message.body_text().unwrap().unwrap(), format!("m{n}"));
        }
        assert!(consumer.receive_timeout(Duration::from_millis(20)).unwrap().is_none());
        (session, consumer)
    });
}

#[test]
fn recovering_is_said_as_the_java_client_says_it() {
    scenario("recover_client_ack.jsonl", &[], |connection| {
        let sending = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let session = connection.create_session(AcknowledgeMode::Client).unwrap();
        let queue = queue("cap.q.recover");
        let producer = sending.create_producer(&queue).unwrap();
        for n in 0..3 {
            producer.send(Message::text(format!("m{n}"))).unwrap();
        }
        producer.close().unwrap();
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        let next = || consumer.receive_timeout(DEADLINE).unwrap().unwrap();
        drop(next());
        session.acknowledge().unwrap();
        drop([next(), next()]);
        session.recover().unwrap();
        for n in 1..3 {
            let message = next();
            assert_eq!(message.body_text().unwrap().unwrap(), format!("m{n}"));
            assert_eq!((message.is_redelivered(), message.delivery_count()), (true, Some(2)));
        }
        session.acknowledge().unwrap();
        (sending, session, consumer)
    });
}

#[test]
fn without_prefetch_a_message_is_asked_for_only_when_the_application_comes_for_it() {
    let attributes = [("imqConsumerFlowLimitPrefetch", "false")];
    scenario("consumer_flow_no_prefetch.jsonl", &attributes, |connection| {
        let sending = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let queue = queue("cap.q.noprefetch");
        let mut producer = sending.create_producer(&queue).unwrap();
        producer.set_delivery_mode(DeliveryMode::NonPersistent);
        for n in 0..4 {
            producer.send(Message::text(format!("m{n}"))).unwrap();
        }
        producer.close().unwrap();
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        for n in 0..4 {
            let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
            assert_eq!(message.body_text().unwrap().unwrap(), format!("m{n}"));
        }
        assert!(consumer.receive_timeout(Duration::from_millis(20)).unwrap().is_none());
        (sending, session, consumer)
    });
}
