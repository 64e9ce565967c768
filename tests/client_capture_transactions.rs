//! Transactions are said as the reference client says them; see `client_capture.rs`.
#![cfg(all(feature = "client", feature = "cli"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/replay.rs"]
mod replay;
#[path = "support/scripted.rs"]
mod scripted;

use std::time::Duration;

use replay::{recording_without, replay, replay_lines};
use scripted::{DEADLINE, queue};
use tidegate::{
    client::{AcknowledgeMode, Consumer, XaCommit, XaEnd, XaStart, XaVote, Xid},
    message::{Destination, Message},
    wire::PacketType,
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

#[test]
fn distributed_transactions_are_said_as_the_java_client_says_them() {
    // The Java client asks for a number to tell its resource managers apart by; we have no use for
    // one.
    let lines = recording_without("xa_transactions.jsonl", &[PacketType::GENERATE_UID]);
    replay_lines(lines, |factory| {
        let xid =
            |n: u8| Xid::new(4660, &[b'g', b't', b'x', 0, 0, 0, 0, n], &[b'b', b'q', n]).unwrap();
        let connection = factory.create_connection().unwrap();
        let xa = connection.create_xa_session().unwrap();
        let (session, resource) = (xa.session(), xa.resource());
        let queue = queue("cap.q.xa");
        let producer = session.create_producer(&queue).unwrap();
        connection.start().unwrap();
        resource.start(&xid(1), XaStart::New).unwrap();
        producer.send(Message::text("m0")).unwrap();
        resource.end(&xid(1), XaEnd::Success).unwrap();
        assert_eq!(resource.prepare(&xid(1)).unwrap(), XaVote::Ready);
        assert_eq!(resource.recover().unwrap(), [xid(1)]);
        resource.commit(&xid(1), XaCommit::Prepared).unwrap();
        resource.start(&xid(2), XaStart::New).unwrap();
        producer.send(Message::text("m1")).unwrap();
        resource.end(&xid(2), XaEnd::Success).unwrap();
        resource.commit(&xid(2), XaCommit::OnePhase).unwrap();
        let consumer = session.create_consumer(&queue).unwrap();
        resource.start(&xid(3), XaStart::New).unwrap();
        assert_eq!(text(&next(&consumer)), "m0");
        resource.end(&xid(3), XaEnd::Success).unwrap();
        resource.rollback(&xid(3)).unwrap();
        resource.start(&xid(4), XaStart::New).unwrap();
        for (wanted, times) in [("m0", 2), ("m1", 1)] {
            let message = next(&consumer);
            assert_eq!((text(&message).as_str(), message.delivery_count()), (wanted, Some(times)));
        }
        resource.end(&xid(4), XaEnd::Success).unwrap();
        assert_eq!(resource.prepare(&xid(4)).unwrap(), XaVote::Ready);
        resource.commit(&xid(4), XaCommit::Prepared).unwrap();
        resource.start(&xid(5), XaStart::New).unwrap();
        producer.send(Message::text("never")).unwrap();
        resource.end(&xid(5), XaEnd::Fail).unwrap();
        resource.rollback(&xid(5)).unwrap();
        connection.close().unwrap();
        (xa, producer, consumer)
    });
}
