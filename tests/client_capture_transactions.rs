//! Transactions are said as the reference client says them; see `client_capture.rs`.
#![cfg(all(feature = "client", feature = "cli"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/replay.rs"]
mod replay;
#[path = "support/scripted.rs"]
mod scripted;

use std::time::Duration;

use replay::replay;
use scripted::{DEADLINE, queue};
use tidegate::{
    client::{AcknowledgeMode, Consumer},
    message::{Destination, Message},
};

const SHORT: Duration = Duration::from_millis(20);

fn next(consumer: &Consumer) -> Message {
    consumer.receive_timeout(DEADLINE).unwrap().expect("a message comes in time")
}

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

#[test]
fn committing_is_said_as_the_java_client_says_it() {
    replay("tx_local_commit.jsonl", |factory| {
        let connection = factory.create_connection().unwrap();
        let session = connection.create_session(AcknowledgeMode::Transacted).unwrap();
        let queue = queue("cap.q.tx");
        let producer = session.create_producer(&queue).unwrap();
        for n in 0..3 {
            producer.send(Message::text(format!("m{n}"))).unwrap();
        }
        session.commit().unwrap();
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        for n in 0..3 {
            assert_eq!(text(&next(&consumer)), format!("m{n}"));
        }
        session.commit().unwrap();
        assert!(consumer.receive_timeout(SHORT).unwrap().is_none());
        connection.close().unwrap();
        (producer, consumer)
    });
}

#[test]
fn rolling_back_is_said_as_the_java_client_says_it() {
    replay("tx_local_rollback.jsonl", |factory| {
        let connection = factory.create_connection().unwrap();
        let session = connection.create_session(AcknowledgeMode::Transacted).unwrap();
        let queue = queue("cap.q.txrb");
        let producer = session.create_producer(&queue).unwrap();
        producer.send(Message::text("gone")).unwrap();
        session.rollback().unwrap();
        for n in 0..2 {
            producer.send(Message::text(format!("m{n}"))).unwrap();
        }
        session.commit().unwrap();
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        for times in 1..=2 {
            for n in 0..2 {
                let message = next(&consumer);
                assert_eq!(text(&message), format!("m{n}"));
                assert_eq!(message.delivery_count(), Some(times));
                assert_eq!(message.is_redelivered(), times == 2);
            }
            if times == 1 {
                session.rollback().unwrap();
            } else {
                session.commit().unwrap();
            }
        }
        assert!(consumer.receive_timeout(SHORT).unwrap().is_none());
        connection.close().unwrap();
        (producer, consumer)
    });
}

#[test]
fn two_transacted_sessions_of_a_topic_are_said_as_the_java_client_says_them() {
    replay("tx_topic_two_consumers.jsonl", |factory| {
        let connection = factory.create_connection().unwrap();
        let publishing = connection.create_session(AcknowledgeMode::Transacted).unwrap();
        let transacted = connection.create_session(AcknowledgeMode::Transacted).unwrap();
        let automatic = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let topic = Destination::topic("cap.t.tx").unwrap();
        let a = transacted.create_consumer(&topic).unwrap();
        let b = automatic.create_consumer(&topic).unwrap();
        connection.start().unwrap();
        let producer = publishing.create_producer(&topic).unwrap();
        producer.send(Message::text("m0")).unwrap();
        assert!(b.receive_timeout(SHORT).unwrap().is_none());
        publishing.commit().unwrap();
        assert_eq!(text(&next(&b)), "m0");
        assert_eq!(text(&next(&a)), "m0");
        transacted.commit().unwrap();
        connection.close().unwrap();
        (producer, a, b)
    });
}

#[test]
fn closing_sessions_is_said_as_the_java_client_says_it() {
    replay("session_close.jsonl", |factory| {
        let connection = factory.create_connection().unwrap();
        let automatic = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let transacted = connection.create_session(AcknowledgeMode::Transacted).unwrap();
        let client = connection.create_session(AcknowledgeMode::Client).unwrap();
        let queue = queue("cap.q.sessclose");
        let producer = automatic.create_producer(&queue).unwrap();
        let consumer = client.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        producer.send(Message::text("m0")).unwrap();
        assert_eq!(text(&next(&consumer)), "m0");
        producer.close().unwrap();
        let other = transacted.create_producer(&queue).unwrap();
        other.send(Message::text("uncommitted")).unwrap();
        transacted.close().unwrap();
        client.close().unwrap();
        let again = automatic.create_consumer(&queue).unwrap();
        let message = next(&again);
        assert_eq!((text(&message).as_str(), message.is_redelivered()), ("m0", true));
        assert!(again.receive_timeout(SHORT).unwrap().is_none());
        again.close().unwrap();
        automatic.close().unwrap();
        connection.close().unwrap();
        (consumer, other)
    });
}
