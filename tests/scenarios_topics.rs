//! Scenarios, each against a broker over real sockets: subscriptions, selectors, browsing,
//! temporary destinations, and who is held back when. See `support/scenario.rs` for which broker.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scenario.rs"]
mod scenario;

use std::{sync::mpsc::channel, time::Duration};

use scenario::{
    DEADLINE, SHORT, Stage, next, nothing, numbered, pass_time, queue, send, session, text, texts,
    topic, wait_until,
};
use tidegate::{
    client::{AcknowledgeMode, ConsumerOptions, Requestor, SessionError},
    message::{DeliveryMode, DestinationKind, Message},
    wire::Status,
};

const AUTO: AcknowledgeMode = AcknowledgeMode::Auto;
const PERSISTENT: DeliveryMode = DeliveryMode::Persistent;
const NON_PERSISTENT: DeliveryMode = DeliveryMode::NonPersistent;

fn status<T>(result: Result<T, SessionError>) -> Option<Status> {
    match result.err()? {
        SessionError::Request(error) => error.status(),
        SessionError::IllegalState(_) => None,
        other => panic!("{other:?}"),
    }
}

fn options(set: impl FnOnce(&mut ConsumerOptions) -> &mut ConsumerOptions) -> ConsumerOptions {
    let mut options = ConsumerOptions::new();
    set(&mut options).clone()
}

// ---- client ids and subscriptions ----

#[test]
fn a_client_id_belongs_to_one_connection_at_a_time() {
    let stage = Stage::new();
    let first = stage.connect();
    first.set_client_id("cap-client-1").unwrap();
    let second = stage.connect();
    assert_eq!(status(second.set_client_id("cap-client-1")), Some(Status::CONFLICT));
    second.close().unwrap();
    first.close().unwrap();
    let third = stage.connect_with(&[("imqConfiguredClientID", "cap-client-2")]);
    assert_eq!(third.client_id().as_deref(), Some("cap-client-2"));
    third.start().unwrap();
    third.close().unwrap();
}

#[test]
fn a_lost_connection_gives_back_its_client_id() {
    let stage = Stage::new();
    let (first, relay) = stage.connect_through_relay();
    first.set_client_id("cap-client-lost").unwrap();
    relay.cut();
    wait_until("the id is free again", || {
        let next = stage.connect();
        next.set_client_id("cap-client-lost").is_ok()
    });
}

#[test]
fn a_client_id_is_set_first_and_once_and_only_where_that_is_allowed() {
    let stage = Stage::new();
    let refused = |result: Result<(), SessionError>| {
        assert!(matches!(result, Err(SessionError::IllegalState(_))), "{result:?}");
    };
    let used = stage.connect();
    used.start().unwrap();
    refused(used.set_client_id("cap-used"));
    let configured = stage.connect_with(&[("imqConfiguredClientID", "cap-configured")]);
    refused(configured.set_client_id("cap-other"));
    let disabled = stage.connect_with(&[("imqDisableSetClientID", "true")]);
    refused(disabled.set_client_id("cap-disabled"));
    refused(stage.connect().set_client_id(" "));
}

#[test]
fn a_shared_client_id_belongs_to_several_connections_and_so_does_its_durable_subscription() {
    let stage = Stage::new();
    let attributes =
        [("imqConfiguredClientID", "cap-shared-id"), ("imqEnableSharedClientID", "true")];
    let (a, b) = (stage.connect_with(&attributes), stage.connect_with(&attributes));
    let exclusive = stage.connect();
    assert_eq!(status(exclusive.set_client_id("cap-shared-id")), Some(Status::CONFLICT));
    let (one, two) = (session(&a, AUTO), session(&b, AUTO));
    let topic = topic("cap.t.shared.id");
    let durable = options(|options| options.durable("ids"));
    let first = one.create_consumer_with(&topic, &durable).unwrap();
    let second = two.create_consumer_with(&topic, &durable).unwrap();
    a.start().unwrap();
    b.start().unwrap();
    send(&one, &topic, 0..20, PERSISTENT);
    let mut got = 0;
    for consumer in [&first, &second] {
        while consumer.receive_timeout(SHORT).unwrap().is_some() {
            got += 1;
        }
    }
    assert_eq!(got, 20);
    first.close().unwrap();
    second.close().unwrap();
    one.unsubscribe("ids").unwrap();
    a.close().unwrap();
    b.close().unwrap();
}

#[test]
fn a_durable_subscriber_gets_what_was_published_while_it_was_away() {
    let stage = Stage::new();
    let topic = topic("cap.t.durable");
    let durable = options(|options| options.durable("sub1"));
    let connection = stage.connect();
    connection.set_client_id("cap-durable").unwrap();
    let publishing = session(&connection, AUTO);
    let subscriber = publishing.create_consumer_with(&topic, &durable).unwrap();
    connection.start().unwrap();
    send(&publishing, &topic, 0..1, PERSISTENT);
    assert_eq!(text(&next(&subscriber)), "m0");
    // One consumer at a time has it, and it is not ended under its hands.
    let other = publishing.create_consumer_with(&topic, &durable);
    assert_eq!(status(other), Some(Status::CONFLICT));
    assert_eq!(status(publishing.unsubscribe("sub1")), Some(Status::CONFLICT));
    subscriber.close().unwrap();
    send(&publishing, &topic, 1..3, PERSISTENT);
    connection.close().unwrap();
    let connection = stage.connect();
    connection.set_client_id("cap-durable").unwrap();
    let session = session(&connection, AUTO);
    let subscriber = session.create_consumer_with(&topic, &durable).unwrap();
    connection.start().unwrap();
    assert_eq!(texts(&subscriber, 2), numbered(1..3));
    subscriber.close().unwrap();
    session.unsubscribe("sub1").unwrap();
    assert_eq!(status(session.unsubscribe("sub1")), Some(Status::NOT_FOUND));
    connection.close().unwrap();
}

#[test]
fn a_durable_subscriber_needs_a_client_id_and_a_shared_one_does_not() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let topic = topic("cap.t.noid");
    let durable = session.create_consumer_with(&topic, &options(|options| options.durable("d")));
    assert!(matches!(durable, Err(SessionError::IllegalState(_))), "{durable:?}");
    let shared = options(|options| options.shared_durable("sd"));
    session.create_consumer_with(&topic, &shared).unwrap().close().unwrap();
    session.unsubscribe("sd").unwrap();
    connection.close().unwrap();
}

#[test]
fn a_shared_subscription_gives_each_message_to_one_of_its_consumers() {
    let stage = Stage::new();
    let (a, b) = (stage.connect(), stage.connect());
    let (one, two) = (session(&a, AUTO), session(&b, AUTO));
    let topic = topic("cap.t.shared");
    let fleeting = options(|options| options.shared("ns"));
    let kept = options(|options| options.shared_durable("ds"));
    let [na, da] =
        [&fleeting, &kept].map(|options| one.create_consumer_with(&topic, options).unwrap());
    let [nb, db] =
        [&fleeting, &kept].map(|options| two.create_consumer_with(&topic, options).unwrap());
    // Another topic or selector under a name that is in use is another subscription.
    let other = options(|options| options.shared("ns").selector("a = 1"));
    assert_eq!(status(two.create_consumer_with(&topic, &other)), Some(Status::CONFLICT));
    a.start().unwrap();
    b.start().unwrap();
    send(&one, &topic, 0..4, PERSISTENT);
    for consumers in [[&na, &nb], [&da, &db]] {
        let mut got = Vec::new();
        for consumer in consumers {
            while let Some(message) = consumer.receive_timeout(2 * SHORT).unwrap() {
                got.push(text(&message));
            }
        }
        got.sort();
        assert_eq!(got, numbered(0..4));
    }
    da.close().unwrap();
    db.close().unwrap();
    one.unsubscribe("ds").unwrap();
    a.close().unwrap();
    b.close().unwrap();
}

#[test]
fn no_local_withholds_what_the_own_connection_sent() {
    let stage = Stage::new();
    let (a, b) = (stage.connect(), stage.connect());
    let (own, foreign) = (session(&a, AUTO), session(&b, AUTO));
    let topic = topic("cap.t.nolocal");
    let consumer = own.create_consumer_with(&topic, ConsumerOptions::new().no_local()).unwrap();
    a.start().unwrap();
    send(&own, &topic, 0..1, NON_PERSISTENT);
    send(&foreign, &topic, 1..2, NON_PERSISTENT);
    assert_eq!(text(&next(&consumer)), "m1");
    nothing(&consumer);
    a.close().unwrap();
    b.close().unwrap();
}

#[test]
fn a_wildcard_subscriber_gets_from_all_topics_that_fit() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let consumer = session.create_consumer(&topic("cap.w.*")).unwrap();
    connection.start().unwrap();
    send(&session, &topic("cap.w.a"), 0..1, NON_PERSISTENT);
    send(&session, &topic("cap.w.b"), 1..2, NON_PERSISTENT);
    send(&session, &topic("cap.v.a"), 2..3, NON_PERSISTENT);
    let got = [next(&consumer), next(&consumer)];
    assert_eq!(got.each_ref().map(text), ["m0", "m1"]);
    assert_eq!(got[1].destination(), Some(&topic("cap.w.b")));
    nothing(&consumer);
    assert_eq!(status(session.create_consumer(&topic("cap.w.a*"))), Some(Status::NOT_ACCEPTABLE));
    assert_eq!(status(session.create_consumer(&queue("cap.w.*"))), Some(Status::UNSUPPORTED_TYPE));
    connection.close().unwrap();
}

// ---- selectors and browsing ----

#[test]
fn a_selector_chooses_from_a_queue_and_leaves_the_rest() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.sel");
    let producer = session.create_producer(&queue).unwrap();
    for n in 0..6 {
        let mut message = Message::text(format!("m{n}"));
        message.set_property("n", n).unwrap();
        message.set_property("colour", if n % 2 == 0 { "red" } else { "blue" }).unwrap();
        producer.send(message).unwrap();
    }
    connection.start().unwrap();
    let mut wanted = ConsumerOptions::new();
    wanted.selector("colour = 'red' AND n BETWEEN 1 AND 4");
    let consumer = session.create_consumer_with(&queue, &wanted).unwrap();
    assert_eq!(texts(&consumer, 2), ["m2", "m4"]);
    nothing(&consumer);
    consumer.close().unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    assert_eq!(texts(&consumer, 4), ["m0", "m1", "m3", "m5"]);
    consumer.close().unwrap();
    let refused = session.create_consumer_with(&queue, wanted.selector("n = = 3"));
    assert_eq!(status(refused), Some(Status::BAD_REQUEST));
    connection.close().unwrap();
}

#[test]
fn a_selector_chooses_from_a_topic() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let topic = topic("cap.t.sel");
    let mut wanted = ConsumerOptions::new();
    wanted.selector("JMSPriority > 5 OR name LIKE 'a%'");
    let some = session.create_consumer_with(&topic, &wanted).unwrap();
    let all = session.create_consumer(&topic).unwrap();
    let mut producer = session.create_producer(&topic).unwrap();
    producer.set_delivery_mode(NON_PERSISTENT);
    connection.start().unwrap();
    for n in 0..3 {
        let mut message = Message::text(format!("m{n}"));
        message.set_property("name", if n == 0 { "abc" } else { "xyz" }).unwrap();
        producer.set_priority(if n == 2 { 9 } else { 4 }).unwrap();
        producer.send(message).unwrap();
    }
    let sorted = |mut texts: Vec<String>| {
        texts.sort();
        texts
    };
    // Priorities may have changed the order.
    assert_eq!(sorted(texts(&all, 3)), numbered(0..3));
    assert_eq!(sorted(texts(&some, 2)), ["m0", "m2"]);
    nothing(&some);
    connection.close().unwrap();
}

#[test]
fn browsing_shows_a_queue_and_takes_nothing() {
    let stage = Stage::new();
    // In batches of three, to need more than one.
    let connection = stage.connect_with(&[("imqQueueBrowserMaxMessagesPerRetrieve", "3")]);
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.browse");
    let producer = session.create_producer(&queue).unwrap();
    for n in 0..4 {
        let mut message = Message::text(format!("m{n}"));
        message.set_property("n", n).unwrap();
        producer.send(message).unwrap();
    }
    // Not even started.
    let browse = |selector: Option<&str>| -> Vec<String> {
        let browser = session.create_browser(&queue, selector).unwrap();
        browser.messages().unwrap().map(|message| text(&message.unwrap())).collect()
    };
    assert_eq!(browse(None), numbered(0..4));
    assert_eq!(browse(Some("n >= 2")), numbered(2..4));
    let refused = session.create_browser(&queue, Some("n = = 3"));
    assert_eq!(status(refused), Some(Status::BAD_REQUEST));
    connection.start().unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    for wanted in numbered(0..4) {
        let message = next(&consumer);
        assert_eq!((text(&message), message.delivery_count()), (wanted, Some(1)));
    }
    consumer.close().unwrap();
    assert!(browse(None).is_empty());
    connection.close().unwrap();
}

#[test]
fn a_message_taken_while_a_browse_is_under_way_is_skipped() {
    let stage = Stage::new();
    let connection = stage.connect_with(&[("imqQueueBrowserMaxMessagesPerRetrieve", "2")]);
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.browse.gone");
    send(&session, &queue, 0..6, PERSISTENT);
    connection.start().unwrap();
    let browser = session.create_browser(&queue, None).unwrap();
    let mut messages = browser.messages().unwrap();
    let mut shown = |count: usize| -> Vec<String> {
        messages.by_ref().take(count).map(|message| text(&message.unwrap())).collect()
    };
    assert_eq!(shown(2), numbered(0..2));
    let consumer = session.create_consumer(&queue).unwrap();
    assert_eq!(texts(&consumer, 5), numbered(0..5));
    consumer.close().unwrap();
    assert_eq!(shown(6), ["m5"]);
    connection.close().unwrap();
}

// ---- temporary destinations ----

#[test]
fn a_request_is_answered_over_a_temporary_queue() {
    let stage = Stage::new();
    let (client, server) = (stage.connect(), stage.connect());
    let (asking, serving) = (session(&client, AUTO), session(&server, AUTO));
    let requests = serving.create_consumer(&queue("cap.q.request")).unwrap();
    let replies = serving.create_anonymous_producer().unwrap();
    requests
        .set_listener(move |request| {
            let mut reply = Message::text(format!("reply to {}", text(&request)));
            reply.set_correlation_id(request.message_id().as_deref()).unwrap();
            replies.send_to(request.reply_to().unwrap(), reply).unwrap();
        })
        .unwrap();
    server.start().unwrap();
    client.start().unwrap();
    let inbox = asking.create_temporary(DestinationKind::Queue).unwrap();
    let consumer = asking.create_consumer(&inbox).unwrap();
    let mut request = Message::text("ask");
    request.set_reply_to(Some(inbox.clone()));
    let id = asking.create_producer(&queue("cap.q.request")).unwrap().send(request).unwrap();
    let reply = next(&consumer);
    assert_eq!(text(&reply), "reply to ask");
    assert_eq!(reply.correlation_id().as_deref(), Some(format!("ID:{id}").as_str()));
    // Not while it has a consumer.
    assert!(matches!(asking.delete_temporary(&inbox), Err(SessionError::IllegalState(_))));
    consumer.close().unwrap();
    asking.delete_temporary(&inbox).unwrap();
    let mut requestor = Requestor::new(&asking, &queue("cap.q.request")).unwrap();
    assert_eq!(text(&requestor.request(Message::text("again")).unwrap()), "reply to again");
    requestor.close().unwrap();
    client.close().unwrap();
    server.close().unwrap();
}

#[test]
fn a_foreign_temporary_topic_takes_messages_and_no_consumers() {
    let stage = Stage::new();
    let (a, b) = (stage.connect(), stage.connect());
    let (own, foreign) = (session(&a, AUTO), session(&b, AUTO));
    let temporary = own.create_temporary(DestinationKind::Topic).unwrap();
    let consumer = own.create_consumer(&temporary).unwrap();
    a.start().unwrap();
    let producer = foreign.create_producer(&temporary).unwrap();
    producer.send(Message::text("x")).unwrap();
    assert_eq!(text(&next(&consumer)), "x");
    let refused = foreign.create_consumer(&temporary);
    assert!(matches!(refused, Err(SessionError::IllegalState(_))), "{refused:?}");
    a.close().unwrap();
    // It went with its connection.
    wait_until("the topic is gone", || producer.send(Message::text("late")).is_err());
    b.close().unwrap();
}

// ---- flow ----

#[test]
fn a_slow_listener_gets_everything_through_a_small_window() {
    let stage = Stage::new();
    for (name, attributes) in [
        ("cap.q.cflow", vec![("imqConsumerFlowLimit", "10"), ("imqConsumerFlowThreshold", "50")]),
        (
            "cap.q.connflow",
            vec![
                ("imqConnectionFlowLimitEnabled", "true"),
                ("imqConnectionFlowLimit", "10"),
                ("imqConnectionFlowCount", "5"),
            ],
        ),
    ] {
        let connection = stage.connect_with(&attributes);
        let (sending, receiving) = (session(&connection, AUTO), session(&connection, AUTO));
        send(&sending, &queue(name), 0..40, NON_PERSISTENT);
        let consumer = receiving.create_consumer(&queue(name)).unwrap();
        let (told, got) = channel();
        consumer
            .set_listener({
                let consumer = consumer.clone();
                move |message| {
                    // The soft limit of a connection is exceeded by one batch at most.
                    assert!(consumer.buffered() <= 15, "{}", consumer.buffered());
                    pass_time(Duration::from_millis(3));
                    told.send(text(&message)).unwrap();
                }
            })
            .unwrap();
        connection.start().unwrap();
        for wanted in numbered(0..40) {
            assert_eq!(got.recv_timeout(DEADLINE).unwrap(), wanted, "{name}");
        }
        connection.close().unwrap();
    }
}

#[test]
fn without_prefetch_messages_come_one_at_a_time() {
    let stage = Stage::new();
    let connection = stage.connect_with(&[("imqConsumerFlowLimitPrefetch", "false")]);
    let (sending, receiving) = (session(&connection, AUTO), session(&connection, AUTO));
    let queue = queue("cap.q.noprefetch");
    send(&sending, &queue, 0..4, NON_PERSISTENT);
    let consumer = receiving.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    for wanted in numbered(0..4) {
        assert_eq!(text(&next(&consumer)), wanted);
        assert!(consumer.buffered() <= 1);
    }
    nothing(&consumer);
    connection.close().unwrap();
}

#[test]
fn a_metered_connection_gets_everything() {
    let stage = Stage::new();
    let connection = stage.connect_with(&[("imqConnectionFlowCount", "5")]);
    let (sending, receiving) = (session(&connection, AUTO), session(&connection, AUTO));
    let queue = queue("cap.q.connflow2");
    send(&sending, &queue, 0..20, NON_PERSISTENT);
    let consumer = receiving.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(texts(&consumer, 20), numbered(0..20));
    connection.close().unwrap();
}

#[test]
fn a_producer_is_held_back_at_a_full_queue_and_loses_nothing() {
    let stage = Stage::new();
    let (a, b) = (stage.connect(), stage.connect());
    let (sending, receiving) = (session(&a, AUTO), session(&b, AUTO));
    let queue = queue("cap.flow");
    let (told, sent) = channel();
    let sender = std::thread::spawn({
        let queue = queue.clone();
        move || {
            let mut producer = sending.create_producer(&queue).unwrap();
            producer.set_delivery_mode(NON_PERSISTENT);
            for name in numbered(0..30) {
                producer.send(Message::text(name)).unwrap();
                told.send(()).unwrap();
            }
            producer.close().unwrap();
        }
    });
    let mut total = 0;
    let mut count = || {
        total += sent.try_iter().count();
        total
    };
    wait_until("the queue fills", || count() >= 10);
    pass_time(Duration::from_millis(200));
    assert!(count() < 30, "the producer was not held back");
    let consumer = receiving.create_consumer(&queue).unwrap();
    b.start().unwrap();
    assert_eq!(texts(&consumer, 30), numbered(0..30));
    sender.join().unwrap();
    assert_eq!(count(), 30);
    a.close().unwrap();
    b.close().unwrap();
}

#[test]
fn a_full_queue_refuses_and_keeps_what_it_has() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.reject");
    let producer = session.create_producer(&queue).unwrap();
    let mut accepted = 0;
    let error = loop {
        match producer.send(Message::text(format!("m{accepted}"))) {
            Ok(_id) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 8, "no limit");
    };
    assert_eq!((accepted, error.status()), (5, Some(Status::RESOURCE_FULL)));
    assert!(error.is_retryable());
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(texts(&consumer, 5), numbered(0..5));
    // There is room again.
    producer.send(error.into_inner()).unwrap();
    assert_eq!(text(&next(&consumer)), "m5");
    connection.close().unwrap();
}
