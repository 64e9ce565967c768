//! As `client_capture.rs`: what is sent to queues, and how it is received and acknowledged.
#![cfg(all(feature = "client", feature = "cli"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

#[path = "support/replay.rs"]
mod replay;

use std::sync::mpsc::channel;

use replay::{recording, scenario};
use scripted::{DEADLINE, queue};
use tidegate::{
    client::{AcknowledgeMode, Consumer, Session},
    message::{DeliveryMode, Destination, Message},
    wire::{Status, capture::Direction},
};

const AUTO: AcknowledgeMode = AcknowledgeMode::Auto;
const PERSISTENT: DeliveryMode = DeliveryMode::Persistent;
const NON_PERSISTENT: DeliveryMode = DeliveryMode::NonPersistent;

fn next(consumer: &Consumer) -> Message {
    consumer.receive_timeout(DEADLINE).unwrap().expect("a message comes in time")
}

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

/// Sends texts `m0`, `m1` and so on with a producer of its own.
fn send(session: &Session, to: &Destination, count: u32, mode: DeliveryMode) {
    let mut producer = session.create_producer(to).unwrap();
    producer.set_delivery_mode(mode);
    for n in 0..count {
        producer.send(Message::text(format!("m{n}"))).unwrap();
    }
    producer.close().unwrap();
}

fn receive(consumer: &Consumer, numbers: std::ops::Range<u32>) {
    for n in numbers {
        assert_eq!(text(&next(consumer)), format!("m{n}"));
    }
}

#[test]
fn acknowledging_all_so_far_is_said_as_the_java_client_says_it() {
    scenario("ack_client.jsonl", &[], |connection| {
        let session = |mode| connection.create_session(mode).unwrap();
        let (sending, receiving) = (session(AUTO), session(AcknowledgeMode::Client));
        let queue = queue("cap.q.client");
        send(&sending, &queue, 6, PERSISTENT);
        let consumer = receiving.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        for part in [0..3, 3..6] {
            receive(&consumer, part);
            receiving.acknowledge().unwrap();
        }
        (sending, receiving, consumer)
    });
}

#[test]
fn sends_with_and_without_replies_are_said_as_the_java_client_says_them() {
    let all = [("imqAckOnProduce", "true"), ("imqAckOnAcknowledge", "true")];
    let none = [("imqAckOnProduce", "false"), ("imqAckOnAcknowledge", "false")];
    for (file, name, attributes, mode) in [
        ("queue_text_nonpersistent_auto.jsonl", "cap.q.np", &[][..], NON_PERSISTENT),
        ("ack_on_produce_all.jsonl", "cap.q.ackproduce", &all, NON_PERSISTENT),
        ("ack_on_produce_off.jsonl", "cap.q.noackproduce", &none, PERSISTENT),
    ] {
        scenario(file, attributes, |connection| {
            let session = connection.create_session(AUTO).unwrap();
            send(&session, &queue(name), 3, mode);
            let consumer = session.create_consumer(&queue(name)).unwrap();
            connection.start().unwrap();
            receive(&consumer, 0..3);
            assert!(consumer.try_receive().unwrap().is_none());
            (session, consumer)
        });
    }
}

#[test]
fn lazy_acknowledgements_are_said_as_the_java_client_says_them() {
    scenario("ack_dups_ok.jsonl", &[], |connection| {
        let session = |mode| connection.create_session(mode).unwrap();
        let (sending, receiving) = (session(AUTO), session(AcknowledgeMode::DupsOk));
        let queue = queue("cap.q.dups");
        let consumer = receiving.create_consumer(&queue).unwrap();
        let (heard, ears) = channel();
        consumer.set_listener(move |message| heard.send(text(&message)).unwrap()).unwrap();
        connection.start().unwrap();
        send(&sending, &queue, 30, NON_PERSISTENT);
        for n in 0..30 {
            assert_eq!(ears.recv_timeout(DEADLINE).unwrap(), format!("m{n}"));
        }
        (sending, receiving, consumer)
    });
}

#[test]
fn a_listener_that_fails_once_is_called_again_without_a_word() {
    scenario("listener_throws.jsonl", &[], |connection| {
        let session = || connection.create_session(AUTO).unwrap();
        let (sending, receiving) = (session(), session());
        let queue = queue("cap.q.throws");
        let consumer = receiving.create_consumer(&queue).unwrap();
        let (heard, ears) = channel();
        let mut calls = 0;
        let listener = move |message: Message| {
            calls += 1;
            heard.send(text(&message)).unwrap();
            assert!(calls > 1, "on purpose");
        };
        consumer.set_listener(listener).unwrap();
        connection.start().unwrap();
        send(&sending, &queue, 2, PERSISTENT);
        for wanted in ["m0", "m0", "m1"] {
            assert_eq!(ears.recv_timeout(DEADLINE).unwrap(), wanted);
        }
        (sending, receiving, consumer)
    });
}

#[test]
fn priorities_are_said_as_the_java_client_says_them() {
    scenario("priority.jsonl", &[], |connection| {
        let session = connection.create_session(AUTO).unwrap();
        let queue = queue("cap.q.prio");
        let mut producer = session.create_producer(&queue).unwrap();
        for (at, priority) in [1, 4, 9, 0, 9, 5].into_iter().enumerate() {
            producer.set_priority(priority).unwrap();
            producer.send(Message::text(format!("p{priority}-{at}"))).unwrap();
        }
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        for wanted in ["p9-2", "p9-4", "p5-5", "p4-1", "p1-0", "p0-3"] {
            assert_eq!(text(&next(&consumer)), wanted);
        }
        (session, producer, consumer)
    });
}

#[test]
fn a_full_queue_refuses_one_message_and_the_others_arrive() {
    scenario("queue_full_reject.jsonl", &[], |connection| {
        let session = connection.create_session(AUTO).unwrap();
        let queue = queue("cap.reject");
        let producer = session.create_producer(&queue).unwrap();
        for n in 0..5 {
            producer.send(Message::text(format!("m{n}"))).unwrap();
        }
        let error = producer.send(Message::text("m5")).unwrap_err();
        assert_eq!(error.status(), Some(Status::RESOURCE_FULL));
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        receive(&consumer, 0..5);
        (session, producer, consumer)
    });
}

/// Sends what the recorded application sent, as this client writes it.
fn recorded_messages(file: &str, name: &str, starts_first: bool, mode: DeliveryMode) {
    let sent = recording(file).into_iter().filter(|line| line.direction == Direction::ToBroker);
    let sent: Vec<_> = sent
        .filter_map(|line| line.packet())
        .map(Result::unwrap)
        .filter(|packet| packet.header().packet_type.is_message())
        .map(|packet| Message::from_packet(&packet).unwrap())
        .collect();
    assert!(!sent.is_empty());
    scenario(file, &[], |connection| {
        let session = connection.create_session(AUTO).unwrap();
        let mut producer = session.create_producer(&queue(name)).unwrap();
        producer.set_delivery_mode(mode);
        if starts_first {
            connection.start().unwrap();
        }
        for message in &sent {
            producer.send(message.clone()).unwrap();
        }
        let consumer = session.create_consumer(&queue(name)).unwrap();
        if !starts_first {
            connection.start().unwrap();
        }
        for wanted in &sent {
            let got = next(&consumer);
            assert_eq!(got.body().unwrap(), wanted.body().unwrap());
            assert_eq!(got.properties().unwrap(), wanted.properties().unwrap());
        }
        (session, producer, consumer)
    });
}

#[test]
fn each_kind_of_message_is_written_as_the_java_client_writes_it() {
    for (persistent, mode) in [(true, PERSISTENT), (false, NON_PERSISTENT)] {
        let file = if persistent {
            "types_queue_persistent.jsonl"
        } else {
            "types_queue_nonpersistent.jsonl"
        };
        recorded_messages(file, &format!("cap.types.queue.{persistent}"), true, mode);
    }
}

#[test]
fn big_and_compressed_messages_are_written_as_the_java_client_writes_them() {
    recorded_messages("big_message.jsonl", "cap.q.big", false, PERSISTENT);
    recorded_messages("compressed_message.jsonl", "cap.q.zip", false, PERSISTENT);
}
