//! Topics, subscriptions, client ids and temporary destinations are said as the reference client
//! says them; see `client_capture.rs`.
#![cfg(all(feature = "client", feature = "cli"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/replay.rs"]
mod replay;
#[path = "support/scripted.rs"]
mod scripted;

use std::time::Duration;

use replay::{recording, replay, replay_lines};
use scripted::{DEADLINE, blocks, queue};
use tidegate::{
    client::{AcknowledgeMode, Consumer, ConsumerOptions, RequestError, Session, SessionError},
    message::{DeliveryMode, Destination, DestinationKind, Message},
    wire::{PacketType, Status},
};

const SHORT: Duration = Duration::from_millis(20);

fn topic(name: &str) -> Destination {
    Destination::topic(name).unwrap()
}

fn next(consumer: &Consumer) -> Message {
    consumer.receive_timeout(DEADLINE).unwrap().expect("a message comes in time")
}

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

/// Sends texts `m0`, `m1` and so on with a producer of its own.
fn send(session: &Session, to: &Destination, numbers: std::ops::Range<u32>, mode: DeliveryMode) {
    let mut producer = session.create_producer(to).unwrap();
    producer.set_delivery_mode(mode);
    for n in numbers {
        producer.send(Message::text(format!("m{n}"))).unwrap();
    }
    producer.close().unwrap();
}

fn status<T>(result: Result<T, SessionError>) -> Option<Status> {
    match result.err()? {
        SessionError::Request(error) => error.status(),
        _ => None,
    }
}

#[test]
fn client_ids_are_said_as_the_java_client_says_them() {
    replay("client_id.jsonl", |factory| {
        let first = factory.create_connection().unwrap();
        first.set_client_id("cap-client-1").unwrap();
        let second = factory.create_connection().unwrap();
        assert_eq!(status(second.set_client_id("cap-client-1")), Some(Status::CONFLICT));
        assert_eq!(second.client_id(), None);
        second.close().unwrap();
        first.close().unwrap();
        let mut factory = factory.clone();
        factory.client_id("cap-client-2").unwrap();
        let third = factory.create_connection().unwrap();
        assert_eq!(third.client_id().as_deref(), Some("cap-client-2"));
        third.start().unwrap();
        third.close().unwrap();
    });
}

#[test]
fn a_durable_subscriber_is_said_as_the_java_client_says_it() {
    replay("durable_subscriber.jsonl", |factory| {
        let topic = topic("cap.t.durable");
        let mut options = ConsumerOptions::new();
        options.durable("sub1");
        let connection = factory.create_connection().unwrap();
        connection.set_client_id("cap-durable").unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let subscriber = session.create_consumer_with(&topic, &options).unwrap();
        connection.start().unwrap();
        send(&session, &topic, 0..1, DeliveryMode::Persistent);
        assert_eq!(text(&next(&subscriber)), "m0");
        subscriber.close().unwrap();
        send(&session, &topic, 1..3, DeliveryMode::Persistent);
        connection.close().unwrap();
        let connection = factory.create_connection().unwrap();
        connection.set_client_id("cap-durable").unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let subscriber = session.create_consumer_with(&topic, &options).unwrap();
        connection.start().unwrap();
        assert_eq!(text(&next(&subscriber)), "m1");
        assert_eq!(text(&next(&subscriber)), "m2");
        subscriber.close().unwrap();
        session.unsubscribe("sub1").unwrap();
        assert_eq!(status(session.unsubscribe("sub1")), Some(Status::NOT_FOUND));
        connection.close().unwrap();
    });
}

#[test]
fn shared_subscriptions_are_said_as_the_java_client_says_them() {
    replay("shared_subscriptions.jsonl", |factory| {
        let (a, b) = (factory.create_connection().unwrap(), factory.create_connection().unwrap());
        let one = a.create_session(AcknowledgeMode::Auto).unwrap();
        let two = b.create_session(AcknowledgeMode::Auto).unwrap();
        let topic = topic("cap.t.shared");
        let (mut fleeting, mut kept) = (ConsumerOptions::new(), ConsumerOptions::new());
        fleeting.shared("ns");
        kept.shared_durable("ds");
        let na = one.create_consumer_with(&topic, &fleeting).unwrap();
        let nb = two.create_consumer_with(&topic, &fleeting).unwrap();
        let da = one.create_consumer_with(&topic, &kept).unwrap();
        let db = two.create_consumer_with(&topic, &kept).unwrap();
        a.start().unwrap();
        b.start().unwrap();
        send(&one, &topic, 0..4, DeliveryMode::Persistent);
        // As the recording happened to spread them.
        for (consumer, count) in [(&na, 1), (&nb, 3), (&da, 0), (&db, 4)] {
            for _ in 0..count {
                assert_eq!(next(consumer).delivery_count(), Some(1));
            }
            assert!(consumer.receive_timeout(SHORT).unwrap().is_none());
        }
        da.close().unwrap();
        db.close().unwrap();
        one.unsubscribe("ds").unwrap();
        a.close().unwrap();
        b.close().unwrap();
        (na, nb)
    });
}

#[test]
fn selectors_of_a_topic_are_said_as_the_java_client_says_them() {
    let mut lines = recording("selector_topic.jsonl");
    // Their buffer is in the order of priorities, ours in the order of arrival.
    let acknowledges = |line: &tidegate::wire::capture::CaptureLine| {
        let packet = line.packet()?.unwrap();
        let kind = packet.header().packet_type;
        (kind == PacketType::ACKNOWLEDGE).then(|| blocks(&packet)[0])
    };
    let first = lines.iter().position(|line| acknowledges(line).is_some()).unwrap();
    for acks in [first..first + 3, first + 3..first + 5] {
        lines[acks].sort_by_key(|line| acknowledges(line).unwrap());
    }
    replay_lines(lines, |factory| {
        let connection = factory.create_connection().unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let topic = topic("cap.t.sel");
        let mut options = ConsumerOptions::new();
        options.selector("JMSPriority > 5 OR name LIKE 'a%'");
        let some = session.create_consumer_with(&topic, &options).unwrap();
        let all = session.create_consumer(&topic).unwrap();
        let mut producer = session.create_producer(&topic).unwrap();
        connection.start().unwrap();
        producer.set_delivery_mode(DeliveryMode::NonPersistent);
        for n in 0..3 {
            let mut message = Message::text(format!("m{n}"));
            message.set_property("name", if n == 0 { "abc" } else { "xyz" }).unwrap();
            producer.set_priority(if n == 2 { 9 } else { 4 }).unwrap();
            producer.send(message).unwrap();
        }
        for n in 0..3 {
            assert_eq!(text(&next(&all)), format!("m{n}"));
        }
        assert_eq!([text(&next(&some)), text(&next(&some))], ["m0", "m2"]);
        assert!(some.receive_timeout(SHORT).unwrap().is_none());
        connection.close().unwrap();
        (some, all, producer)
    });
}

#[test]
fn selectors_of_a_queue_are_said_as_the_java_client_says_them() {
    replay("selector_queue.jsonl", |factory| {
        let connection = factory.create_connection().unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let queue = queue("cap.q.sel");
        let producer = session.create_producer(&queue).unwrap();
        for n in 0..6 {
            let mut message = Message::text(format!("m{n}"));
            message.set_property("n", n).unwrap();
            let colour = if n % 2 == 0 { "red" } else { "blue" };
            message.set_property("colour", colour).unwrap();
            producer.send(message).unwrap();
        }
        connection.start().unwrap();
        let mut options = ConsumerOptions::new();
        options.selector("colour = 'red' AND n BETWEEN 1 AND 4");
        let consumer = session.create_consumer_with(&queue, &options).unwrap();
        assert_eq!([text(&next(&consumer)), text(&next(&consumer))], ["m2", "m4"]);
        assert!(consumer.receive_timeout(SHORT).unwrap().is_none());
        consumer.close().unwrap();
        let consumer = session.create_consumer(&queue).unwrap();
        for wanted in ["m0", "m1", "m3", "m5"] {
            assert_eq!(text(&next(&consumer)), wanted);
        }
        consumer.close().unwrap();
        let refused = session.create_consumer_with(&queue, options.selector("n = = 3"));
        let SessionError::Request(error @ RequestError::Refused { .. }) = refused.unwrap_err()
        else {
            panic!("the broker refuses it")
        };
        assert_eq!(error.status(), Some(Status::BAD_REQUEST));
        assert!(error.to_string().contains("n = = 3"), "{error}");
        connection.close().unwrap();
        producer
    });
}

#[test]
fn no_local_is_said_as_the_java_client_says_it() {
    replay("topic_nolocal.jsonl", |factory| {
        let (a, b) = (factory.create_connection().unwrap(), factory.create_connection().unwrap());
        let own = a.create_session(AcknowledgeMode::Auto).unwrap();
        let foreign = b.create_session(AcknowledgeMode::Auto).unwrap();
        let topic = topic("cap.t.nolocal");
        let consumer = own.create_consumer_with(&topic, ConsumerOptions::new().no_local()).unwrap();
        a.start().unwrap();
        send(&own, &topic, 0..1, DeliveryMode::NonPersistent);
        send(&foreign, &topic, 1..2, DeliveryMode::NonPersistent);
        assert_eq!(text(&next(&consumer)), "m1");
        assert!(consumer.receive_timeout(SHORT).unwrap().is_none());
        a.close().unwrap();
        b.close().unwrap();
        consumer
    });
}

#[test]
fn a_wildcard_is_said_as_the_java_client_says_it() {
    replay("topic_wildcard.jsonl", |factory| {
        let connection = factory.create_connection().unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let consumer = session.create_consumer(&topic("cap.w.*")).unwrap();
        connection.start().unwrap();
        for (n, name) in (0..).zip(["cap.w.a", "cap.w.b"]) {
            send(&session, &topic(name), n..n + 1, DeliveryMode::NonPersistent);
        }
        for name in ["cap.w.a", "cap.w.b"] {
            assert_eq!(next(&consumer).destination(), Some(&topic(name)));
        }
        connection.close().unwrap();
        consumer
    });
}

#[test]
fn a_foreign_temporary_topic_is_sent_to_and_not_received_from() {
    replay("temp_topic_and_foreign_consumer.jsonl", |factory| {
        let (a, b) = (factory.create_connection().unwrap(), factory.create_connection().unwrap());
        let own = a.create_session(AcknowledgeMode::Auto).unwrap();
        let foreign = b.create_session(AcknowledgeMode::Auto).unwrap();
        let temporary = own.create_temporary(DestinationKind::Topic).unwrap();
        let consumer = own.create_consumer(&temporary).unwrap();
        a.start().unwrap();
        let producer = foreign.create_producer(&temporary).unwrap();
        producer.send(Message::text("x")).unwrap();
        assert_eq!(text(&next(&consumer)), "x");
        let refused = |result: Result<(), SessionError>| {
            assert!(matches!(result, Err(SessionError::IllegalState(_))), "{result:?}");
        };
        refused(foreign.create_consumer(&temporary).map(drop));
        refused(foreign.delete_temporary(&temporary));
        // It has a consumer, and an ordinary one is no temporary one.
        refused(own.delete_temporary(&temporary));
        refused(own.delete_temporary(&topic("cap.t.sel")));
        a.close().unwrap();
        b.close().unwrap();
        (consumer, producer)
    });
}

#[test]
fn request_and_reply_are_said_as_the_java_client_says_them() {
    replay("temp_queue_request_reply.jsonl", |factory| {
        let (client, server) =
            (factory.create_connection().unwrap(), factory.create_connection().unwrap());
        let asking = client.create_session(AcknowledgeMode::Auto).unwrap();
        let serving = server.create_session(AcknowledgeMode::Auto).unwrap();
        let requests = serving.create_consumer(&queue("cap.q.request")).unwrap();
        let (keep, kept) = std::sync::mpsc::channel();
        requests
            .set_listener(move |request| {
                let producer = serving.create_anonymous_producer().unwrap();
                let mut reply = Message::text(format!("reply to {}", text(&request)));
                reply.set_correlation_id(request.message_id().as_deref()).unwrap();
                producer.send_to(request.reply_to().unwrap(), reply).unwrap();
                // Kept, as the recorded application kept it.
                keep.send(producer).unwrap();
            })
            .unwrap();
        server.start().unwrap();
        client.start().unwrap();
        let inbox = asking.create_temporary(DestinationKind::Queue).unwrap();
        let replies = asking.create_consumer(&inbox).unwrap();
        let producer = asking.create_producer(&queue("cap.q.request")).unwrap();
        let mut request = Message::text("ask");
        request.set_reply_to(Some(inbox.clone()));
        producer.send(request).unwrap();
        let reply = next(&replies);
        assert_eq!(text(&reply), "reply to ask");
        assert!(reply.correlation_id().unwrap().starts_with("ID:667-"));
        replies.close().unwrap();
        asking.delete_temporary(&inbox).unwrap();
        client.close().unwrap();
        server.close().unwrap();
        (requests, producer, kept)
    });
}
