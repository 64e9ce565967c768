//! The client says what the reference client said: recorded conversations are played again, the
//! broker's side from the recording, and each packet of ours is compared with the recorded one.
#![cfg(all(feature = "client", feature = "cli"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

#[path = "support/replay.rs"]
mod replay;

use std::time::Duration;

use replay::{recording, replay_lines, scenario};
use scripted::{DEADLINE, queue};
use tidegate::{
    client::{AcknowledgeMode, Consumer, Session, SessionError},
    message::{DeliveryMode, Destination, Message},
    wire::{
        PacketType,
        capture::{CaptureLine, Direction},
    },
};

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

#[test]
fn acknowledging_one_message_is_said_as_the_java_client_says_it() {
    scenario("ack_client_single_ext.jsonl", &[], |connection| {
        let sending = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let session = connection.create_session(AcknowledgeMode::Client).unwrap();
        let queue = queue("cap.q.single");
        send(&sending, &queue, 3, DeliveryMode::Persistent);
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        let messages = [next(&consumer), next(&consumer)];
        session.acknowledge_message(&messages[1]).unwrap();
        drop(next(&consumer));
        consumer.close().unwrap();
        session.close().unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let consumer = session.create_consumer(&queue).unwrap();
        for wanted in ["m0", "m2"] {
            let message = next(&consumer);
            assert_eq!((text(&message).as_str(), message.is_redelivered()), (wanted, true));
        }
        (sending, consumer)
    });
}

#[test]
fn a_session_that_never_acknowledges_is_said_as_the_java_client_says_it() {
    scenario("ack_none.jsonl", &[], |connection| {
        let sending = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let session = connection.create_session(AcknowledgeMode::NoAcknowledge).unwrap();
        let queue = queue("cap.q.noack");
        send(&sending, &queue, 3, DeliveryMode::NonPersistent);
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        for n in 0..3 {
            assert_eq!(text(&next(&consumer)), format!("m{n}"));
        }
        // The broker has forgotten them, so nothing goes back.
        assert!(matches!(session.recover(), Err(SessionError::IllegalState(_))));
        session.acknowledge().unwrap();
        (sending, consumer)
    });
}

#[test]
fn a_delivery_delay_is_said_as_the_java_client_says_it() {
    scenario("delivery_delay.jsonl", &[], |connection| {
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let queue = queue("cap.q.delay");
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        let mut producer = session.create_producer(&queue).unwrap();
        producer.set_delivery_delay(Some(Duration::from_millis(800)));
        producer.send(Message::text("later")).unwrap();
        producer.set_delivery_delay(None);
        producer.send(Message::text("now")).unwrap();
        assert_eq!(text(&next(&consumer)), "now");
        let message = next(&consumer);
        assert_eq!(text(&message), "later");
        assert_eq!(message.delivery_time().unwrap() - message.timestamp().unwrap(), 800);
        (consumer, producer)
    });
}

#[test]
fn a_message_that_expired_while_it_waited_is_reported_as_the_java_client_reports_it() {
    let mut lines = recording("expiry_in_client_buffer.jsonl");
    for line in &mut lines {
        let Some(packet) = line.packet() else { continue };
        let header = *packet.unwrap().header();
        if line.direction == Direction::ToClient && header.expiration != 0 {
            // Long past, whatever the clock here says.
            let mut bytes = line.bytes.to_vec();
            bytes[12..20].copy_from_slice(&1_i64.to_be_bytes());
            line.bytes = bytes.into();
        }
    }
    replay_lines(lines, |factory| {
        let connection = factory.create_connection().unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let queue = queue("cap.q.exp2");
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        let mut producer = session.create_producer(&queue).unwrap();
        producer.set_time_to_live(Some(Duration::from_millis(300)));
        producer.send(Message::text("short")).unwrap();
        assert!(consumer.receive_timeout(Duration::from_millis(100)).unwrap().is_none());
        connection.close().unwrap();
        (consumer, producer)
    });
}

#[test]
fn browsing_is_said_as_the_java_client_says_it() {
    scenario("queue_browser.jsonl", &[], |connection| {
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let queue = queue("cap.q.browse");
        let producer = session.create_producer(&queue).unwrap();
        for n in 0..4 {
            let mut message = Message::text(format!("m{n}"));
            message.set_property("n", n).unwrap();
            producer.send(message).unwrap();
        }
        connection.start().unwrap();
        let browse = |selector: Option<&str>| -> Vec<String> {
            let browser = session.create_browser(&queue, selector).unwrap();
            browser.messages().unwrap().map(|message| text(&message.unwrap())).collect()
        };
        assert_eq!(browse(None), ["m0", "m1", "m2", "m3"]);
        assert_eq!(browse(Some("n >= 2")), ["m2", "m3"]);
        let consumer = session.create_consumer(&queue).unwrap();
        for n in 0..4 {
            assert_eq!(text(&next(&consumer)), format!("m{n}"));
        }
        consumer.close().unwrap();
        assert!(browse(None).is_empty());
        (session, producer)
    });
}

#[test]
fn asynchronous_sends_are_said_as_the_java_client_says_them() {
    scenario("async_send.jsonl", &[], |connection| {
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let queue = queue("cap.q.async");
        let producer = session.create_producer(&queue).unwrap();
        let (told, completed) = std::sync::mpsc::channel();
        for n in 0..5 {
            let told = told.clone();
            let done = move |result: Result<Message, _>| told.send(text(&result.unwrap())).unwrap();
            producer.send_async(Message::text(format!("m{n}")), done).unwrap();
        }
        for n in 0..5 {
            assert_eq!(completed.recv_timeout(DEADLINE).unwrap(), format!("m{n}"));
        }
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        for n in 0..5 {
            assert_eq!(text(&next(&consumer)), format!("m{n}"));
        }
        (producer, consumer)
    });
}

#[test]
fn a_producer_that_is_held_back_says_what_the_java_client_says() {
    replay_lines(without_untimely_credit(recording("producer_flow.jsonl")), |factory| {
        let (sending, receiving) =
            (factory.create_connection().unwrap(), factory.create_connection().unwrap());
        let session = sending.create_session(AcknowledgeMode::Auto).unwrap();
        let other = receiving.create_session(AcknowledgeMode::Auto).unwrap();
        let queue = queue("cap.flow");
        let to = queue.clone();
        let sender = std::thread::spawn(move || {
            send(&session, &to, 30, DeliveryMode::NonPersistent);
            session
        });
        let consumer = other.create_consumer(&queue).unwrap();
        receiving.start().unwrap();
        for n in 0..30 {
            assert_eq!(text(&next(&consumer)), format!("m{n}"));
        }
        let session = sender.join().unwrap();
        sending.close().unwrap();
        receiving.close().unwrap();
        (session, consumer)
    });
}

/// Leaves out the credit that the recorded client had no time to use, and each credit of 0 that
/// came when it was just using the one before: whether ours has the time is chance.
fn without_untimely_credit(lines: Vec<CaptureLine>) -> Vec<CaptureLine> {
    #[derive(Clone, Copy, PartialEq)]
    enum Step {
        Credit,
        NoCredit,
        Message,
    }
    let step = |line: &CaptureLine| {
        let packet = line.packet()?.unwrap();
        let kind = packet.header().packet_type;
        if kind == PacketType::RESUME_FLOW && line.direction == Direction::ToClient {
            let none = scripted::int(&packet, "JMQSize") == Some(0);
            return Some(if none { Step::NoCredit } else { Step::Credit });
        }
        let sent = kind == PacketType::TEXT_MESSAGE && line.direction == Direction::ToBroker;
        sent.then_some(Step::Message)
    };
    let steps: Vec<_> = lines.iter().map(step).collect();
    let next_but = |at: usize, skipped: Step| {
        steps[at + 1..].iter().flatten().copied().find(|step| *step != skipped)
    };
    let mut in_use = false;
    let keep: Vec<bool> = (0..lines.len())
        .map(|at| match steps[at] {
            Some(Step::Credit) => {
                in_use = next_but(at, Step::NoCredit) == Some(Step::Message);
                in_use
            }
            Some(Step::NoCredit) => !in_use,
            Some(Step::Message) => {
                in_use = false;
                true
            }
            None => true,
        })
        .collect();
    let mut keep = keep.into_iter();
    lines.into_iter().filter(|_| keep.next().unwrap()).collect()
}
