//! Sending: what goes out when, and what a send waits for.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

use std::time::Duration;

use scripted::{Scripted, Style, gate, pass, queue};
use tidegate::{
    client::{AcknowledgeMode, Connection, Producer, RequestError, SendCause},
    message::{DeliveryMode, Message},
    wire::{Flags, PacketBuilder, PacketType, Status},
};

fn producer(connection: &Connection, mode: DeliveryMode) -> Producer {
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let mut producer = session.create_producer(&queue("q")).unwrap();
    producer.set_delivery_mode(mode);
    producer
}

#[test]
fn a_persistent_message_is_sent_when_the_broker_says_so() {
    let (answer, answered) = gate();
    let broker = Scripted::start(move |peer| {
        peer.login();
        let sent = peer.serve_until(PacketType::TEXT_MESSAGE);
        let flags = sent.header().flags;
        assert!(flags.contains(Flags::ACKNOWLEDGE.with(Flags::PERSISTENT).with(Flags::QUEUE)));
        let variable = sent.variable().unwrap();
        assert_eq!(variable.destination, Some(&b"q"[..]));
        assert_eq!(variable.producer_id, Some(peer.producers[0]));
        assert_eq!(sent.header().priority, 4);
        answer.send(()).unwrap();
        peer.answer(&sent);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let producer = producer(&connection, DeliveryMode::Persistent);
    let id = producer.send(Message::text("m0")).unwrap();
    // The broker has answered by now, so it has passed this too.
    pass(&answered);
    assert!(id.to_string().contains("127.0.0.1("), "{id}");
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_refused_message_comes_back_with_the_brokers_words() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let sent = peer.serve_until(PacketType::TEXT_MESSAGE);
        let refusal = PacketBuilder::reply(sent.header(), Status::RESOURCE_FULL);
        peer.send(refusal.string("JMQReason", "queue q is full"));
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let producer = producer(&connection, DeliveryMode::Persistent);
    let error = producer.send(Message::text("too much")).unwrap_err();
    assert_eq!((error.status(), error.is_retryable()), (Some(Status::RESOURCE_FULL), true));
    assert!(error.cause().to_string().contains("request"), "{error}");
    let SendCause::Request(cause @ RequestError::Refused { .. }) = error.cause() else {
        panic!("{error:?}")
    };
    assert!(cause.to_string().contains("queue q is full"), "{cause}");
    let message = error.into_inner();
    assert_eq!(message.body_text().unwrap().as_deref(), Some("too much"));
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_non_persistent_message_waits_for_nothing_and_arrives_without_further_calls() {
    let (arrived, seen) = gate();
    let broker = Scripted::start(move |peer| {
        peer.login();
        for n in 0..50 {
            let sent = peer.serve_until(PacketType::TEXT_MESSAGE);
            assert!(!sent.header().flags.contains(Flags::ACKNOWLEDGE));
            assert_eq!(sent.body_bytes(), n.to_string().as_bytes());
        }
        arrived.send(()).unwrap();
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let producer = producer(&connection, DeliveryMode::NonPersistent);
    for n in 0..50 {
        producer.send(Message::text(n.to_string())).unwrap();
    }
    // Nobody waits on the connection: what was left in the buffer is written all the same.
    pass(&seen);
    connection.close().unwrap();
    broker.join();
}

#[test]
fn ack_on_produce_decides_for_both_modes() {
    for (setting, persistent, waits) in [
        ("true", false, true),
        ("true", true, true),
        ("false", true, false),
        ("", true, true),
        ("", false, false),
    ] {
        let broker = Scripted::start(move |peer| {
            peer.login();
            let sent = peer.serve_until(PacketType::TEXT_MESSAGE);
            assert_eq!(sent.header().flags.contains(Flags::ACKNOWLEDGE), waits, "{setting}");
            peer.answer(&sent);
            peer.serve_to_the_end();
        });
        let mut factory = broker.factory();
        factory.set_attribute("imqAckOnProduce", setting).unwrap();
        let connection = factory.create_connection().unwrap();
        let mode = if persistent { DeliveryMode::Persistent } else { DeliveryMode::NonPersistent };
        producer(&connection, mode).send(Message::text("x")).unwrap();
        connection.close().unwrap();
        broker.join();
    }
}

#[test]
fn the_last_message_of_a_producers_credit_is_marked_and_the_next_waits_for_more() {
    let style = Style { producer_credit: Some(3), ..Style::default() };
    let broker = Scripted::start_with(style, |peer| {
        peer.login();
        let mut credit = 3;
        for n in 1..=9 {
            let sent = peer.serve_until(PacketType::TEXT_MESSAGE);
            credit -= 1;
            assert_eq!(sent.header().flags.contains(Flags::CONSUMER_FLOW), credit == 0, "{n}");
            if credit == 0 {
                let next = (n < 9).then(|| peer.packet_within(Duration::from_millis(20)));
                assert!(next.flatten().is_none(), "sent without credit");
                credit = if n == 3 { 2 } else { 4 };
                let resume = PacketBuilder::new(PacketType::RESUME_FLOW)
                    .long("JMQProducerID", peer.producers[0])
                    .int("JMQSize", credit);
                peer.send(resume);
            }
        }
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let producer = producer(&connection, DeliveryMode::NonPersistent);
    for n in 0..9 {
        producer.send(Message::text(n.to_string())).unwrap();
    }
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_producer_without_credit_waits_for_the_first_one_and_unlimited_never_waits() {
    let style = Style { producer_credit: Some(0), ..Style::default() };
    let broker = Scripted::start_with(style, |peer| {
        peer.login();
        let last = peer.serve_until(PacketType::ADD_PRODUCER);
        peer.answer(&last);
        assert!(peer.packet_within(Duration::from_millis(30)).is_none(), "no credit");
        let resume = PacketBuilder::new(PacketType::RESUME_FLOW)
            .long("JMQProducerID", peer.producers[0])
            .int("JMQSize", -1);
        peer.send(resume);
        for _ in 0..2000 {
            let sent = peer.serve_until(PacketType::TEXT_MESSAGE);
            assert!(!sent.header().flags.contains(Flags::CONSUMER_FLOW));
        }
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let producer = producer(&connection, DeliveryMode::NonPersistent);
    for n in 0..2000 {
        producer.send(Message::text(n.to_string())).unwrap();
    }
    connection.close().unwrap();
    broker.join();
}

#[test]
fn the_connections_own_credit_is_marked_with_f_and_waited_for() {
    let style = Style { connection_credit: Some(2), ..Style::default() };
    let broker = Scripted::start_with(style, |peer| {
        peer.login();
        for n in 1..=6 {
            let sent = peer.serve_until(PacketType::TEXT_MESSAGE);
            let last = n % 2 == 0;
            assert_eq!(sent.header().flags.contains(Flags::FLOW_PAUSED), last, "{n}");
            if last {
                let next = (n < 6).then(|| peer.packet_within(Duration::from_millis(20)));
                assert!(next.flatten().is_none(), "sent without credit");
                peer.send(PacketBuilder::new(PacketType::RESUME_FLOW).int("JMQSize", 2));
            }
        }
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let producer = producer(&connection, DeliveryMode::NonPersistent);
    for n in 0..6 {
        producer.send(Message::text(n.to_string())).unwrap();
    }
    connection.close().unwrap();
    broker.join();
}

#[test]
fn an_anonymous_producer_adds_one_producer_for_each_destination() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_to_the_end();
        assert_eq!(peer.seen_of(PacketType::ADD_PRODUCER).len(), 2);
        let sent = peer.seen_of(PacketType::TEXT_MESSAGE);
        let names: Vec<_> =
            sent.iter().map(|packet| packet.variable().unwrap().destination.unwrap()).collect();
        assert_eq!(names, [b"a", b"b", b"a"]);
        assert_eq!(peer.seen_of(PacketType::DELETE_PRODUCER).len(), 2);
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let producer = session.create_anonymous_producer().unwrap();
    for name in ["a", "b", "a"] {
        producer.send_to(&queue(name), Message::text("x")).unwrap();
    }
    assert!(producer.send(Message::text("nowhere")).is_err());
    producer.close().unwrap();
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_message_larger_than_the_sockets_buffers_arrives_whole_between_small_ones() {
    const SIZES: [usize; 5] = [10, 20 << 20, 10, 40_000, 3 << 20];
    let broker = Scripted::start(|peer| {
        peer.login();
        let mut sizes = Vec::new();
        for _ in SIZES {
            let sent = peer.serve_until(PacketType::BYTES_MESSAGE);
            let body = sent.body_bytes();
            assert!(body.iter().enumerate().all(|(at, &byte)| usize::from(byte) == at % 251));
            sizes.push(body.len());
        }
        assert_eq!(sizes, SIZES);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let producer = producer(&connection, DeliveryMode::NonPersistent);
    for size in SIZES {
        let body: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect();
        producer.send(Message::bytes(body)).unwrap();
    }
    connection.close().unwrap();
    broker.join();
}

#[test]
fn credit_that_comes_unasked_replaces_what_was_left_and_zero_stops() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let resume = |peer: &mut scripted::Peer, credit: i32| {
            let packet = PacketBuilder::new(PacketType::RESUME_FLOW)
                .long("JMQProducerID", peer.producers[0])
                .int("JMQSize", credit);
            peer.send(packet);
        };
        let first = peer.serve_until(PacketType::TEXT_MESSAGE);
        assert!(!first.header().flags.contains(Flags::CONSUMER_FLOW));
        // Of a thousand, nothing is left when the reply comes.
        resume(peer, 0);
        peer.answer(&first);
        assert!(peer.packet_within(Duration::from_millis(30)).is_none(), "sent without credit");
        resume(peer, 1);
        let second = peer.serve_until(PacketType::TEXT_MESSAGE);
        assert!(second.header().flags.contains(Flags::CONSUMER_FLOW));
        // For a producer that nobody here has: of no consequence.
        let packet = PacketBuilder::new(PacketType::RESUME_FLOW);
        peer.send(packet.long("JMQProducerID", 1).int("JMQSize", 0));
        resume(peer, -1);
        peer.answer(&second);
        let third = peer.serve_until(PacketType::TEXT_MESSAGE);
        assert!(!third.header().flags.contains(Flags::CONSUMER_FLOW));
        peer.answer(&third);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let producer = producer(&connection, DeliveryMode::Persistent);
    for n in 0..3 {
        producer.send(Message::text(n.to_string())).unwrap();
    }
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_broker_without_memory_holds_everybody_back_from_the_login_on() {
    let style = Style { connection_credit: Some(0), ..Style::default() };
    let broker = Scripted::start_with(style, |peer| {
        peer.login();
        let last = peer.serve_until(PacketType::ADD_PRODUCER);
        peer.answer(&last);
        assert!(peer.packet_within(Duration::from_millis(30)).is_none(), "sent without credit");
        peer.send(PacketBuilder::new(PacketType::RESUME_FLOW).int("JMQSize", 1));
        let sent = peer.serve_until(PacketType::TEXT_MESSAGE);
        assert!(sent.header().flags.contains(Flags::FLOW_PAUSED));
        assert!(!sent.header().flags.contains(Flags::CONSUMER_FLOW));
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let producer = producer(&connection, DeliveryMode::NonPersistent);
    producer.send(Message::text("x")).unwrap();
    connection.close().unwrap();
    broker.join();
}
