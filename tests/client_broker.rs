//! The client and the broker of this crate, together over loopback.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod support;

use std::{sync::mpsc::channel, thread, time::Duration};

use support::{broker, wait_until};
use tidegate::{
    broker::Broker,
    client::{
        AcknowledgeMode, ConnectError, Connection, ConnectionError, ConnectionFactory, Consumer,
        ConsumerOptions, ExchangeError, ReceiveError, Requestor, Session,
    },
    message::{Body, DeliveryMode, Destination, DestinationKind, MapBody, Message},
};

const DEADLINE: Duration = Duration::from_secs(20);

fn factory(broker: &Broker) -> ConnectionFactory {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address())).unwrap();
    factory.address_list_iterations(Some(1));
    factory
}

fn connect(broker: &Broker) -> Connection {
    let connection = factory(broker).create_connection().unwrap();
    connection.start().unwrap();
    connection
}

fn queue(name: &str) -> Destination {
    Destination::queue(name).unwrap()
}

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

fn next(consumer: &Consumer) -> Message {
    consumer.receive_timeout(DEADLINE).unwrap().expect("a message comes in time")
}

fn send_numbers(session: &Session, queue: &Destination, count: usize, mode: DeliveryMode) {
    let mut producer = session.create_producer(queue).unwrap();
    producer.set_delivery_mode(mode);
    for n in 0..count {
        producer.send(Message::text(n.to_string())).unwrap();
    }
}

#[test]
fn each_kind_of_message_arrives_as_it_was_sent() {
    let broker = broker(1);
    let connection = connect(&broker);
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let queue = queue("kinds");
    let producer = session.create_producer(&queue).unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    let mut map = MapBody::default();
    map.set("n", 7_i32);
    let bodies = [
        Body::Text(Some("grüße 😀".to_owned())),
        Body::Bytes(vec![0, 1, 255].into()),
        Body::Map(map),
        Body::Stream(Vec::new()),
        Body::Object(vec![0xAC, 0xED].into()),
        Body::Plain,
    ];
    for body in bodies {
        let mut message = Message::new(body.clone());
        message.set_property("colour", "red").unwrap();
        message.set_correlation_id(Some("c-1")).unwrap();
        message.set_reply_to(Some(queue.clone()));
        let id = producer.send(message).unwrap();
        let got = next(&consumer);
        assert_eq!(got.body().unwrap(), body);
        assert_eq!(got.property_as::<String>("colour").unwrap().as_deref(), Some("red"));
        assert_eq!(got.correlation_id().as_deref(), Some("c-1"));
        assert_eq!(got.reply_to(), Some(&queue));
        assert_eq!(got.id(), Some(id));
        assert_eq!((got.is_redelivered(), got.delivery_count()), (false, Some(1)));
    }
    connection.close().unwrap();
    wait_until("the broker forgets the connection", || broker.snapshot().connections == 0);
}

#[test]
fn every_mode_of_acknowledgement_leaves_the_queue_empty() {
    let broker = broker(2);
    for mode in [AcknowledgeMode::Auto, AcknowledgeMode::Client, AcknowledgeMode::DupsOk] {
        let connection = connect(&broker);
        let session = connection.create_session(mode).unwrap();
        let queue = queue(&format!("{mode:?}"));
        send_numbers(&session, &queue, 250, DeliveryMode::NonPersistent);
        let consumer = session.create_consumer(&queue).unwrap();
        for n in 0..250 {
            assert_eq!(text(&next(&consumer)), n.to_string(), "{mode:?}");
        }
        session.acknowledge().unwrap();
        connection.close().unwrap();
        wait_until("everything is acknowledged", || {
            broker.snapshot().destinations.iter().all(|one| one.messages == 0)
        });
    }
}

#[test]
fn recover_after_every_second_message_keeps_order_and_credit() {
    let broker = broker(1);
    let mut factory = factory(&broker);
    factory.consumer_flow_limit(4).unwrap();
    let connection = factory.create_connection().unwrap();
    connection.start().unwrap();
    let session = connection.create_session(AcknowledgeMode::Client).unwrap();
    let queue = queue("recover");
    send_numbers(&session, &queue, 100, DeliveryMode::NonPersistent);
    let consumer = session.create_consumer(&queue).unwrap();
    for n in (0..100).step_by(2) {
        if n < 50 {
            // Seen, sent back, and seen again.
            assert_eq!(text(&next(&consumer)), n.to_string());
            assert_eq!(text(&next(&consumer)), (n + 1).to_string());
            session.recover().unwrap();
        }
        for m in [n, n + 1] {
            let message = next(&consumer);
            assert_eq!(text(&message), m.to_string());
            assert_eq!(message.is_redelivered(), n < 50, "{m}");
            assert!(consumer.buffered() <= 4);
        }
        session.acknowledge().unwrap();
    }
    // Closed while paused; the next consumer of the session gets what comes then.
    send_numbers(&session, &queue, 10, DeliveryMode::NonPersistent);
    assert_eq!(text(&next(&consumer)), "0");
    consumer.close().unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    for n in 1..10 {
        assert_eq!(text(&next(&consumer)), n.to_string());
    }
    session.acknowledge().unwrap();
    connection.close().unwrap();
    wait_until("everything is acknowledged", || {
        broker.snapshot().destinations.iter().all(|one| one.messages == 0)
    });
}

#[test]
fn what_was_seen_and_not_acknowledged_comes_again_after_the_connection_is_dropped() {
    let broker = broker(1);
    let queue = queue("again");
    {
        let connection = connect(&broker);
        let session = connection.create_session(AcknowledgeMode::Client).unwrap();
        send_numbers(&session, &queue, 3, DeliveryMode::Persistent);
        let consumer = session.create_consumer(&queue).unwrap();
        assert_eq!(text(&next(&consumer)), "0");
        assert_eq!(text(&next(&consumer)), "1");
    }
    let connection = connect(&broker);
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    for n in 0..3 {
        assert_eq!(text(&next(&consumer)), n.to_string());
    }
    connection.close().unwrap();
}

#[test]
fn requests_are_answered_over_a_temporary_queue_by_a_listener_on_another_connection() {
    let broker = broker(2);
    let server = connect(&broker);
    let serving = server.create_session(AcknowledgeMode::DupsOk).unwrap();
    let replies = serving.create_anonymous_producer().unwrap();
    let listener = serving.create_consumer(&queue("ask")).unwrap();
    listener
        .set_listener(move |message| {
            let to = message.reply_to().unwrap().clone();
            let mut reply = Message::text(format!("re {}", text(&message)));
            reply.set_correlation_id(message.message_id().as_deref()).unwrap();
            replies.send_to(&to, reply).unwrap();
        })
        .unwrap();
    let client = connect(&broker);
    let session = client.create_session(AcknowledgeMode::DupsOk).unwrap();
    let inbox = session.create_temporary(DestinationKind::Queue).unwrap();
    let consumer = session.create_consumer(&inbox).unwrap();
    let mut producer = session.create_producer(&queue("ask")).unwrap();
    producer.set_delivery_mode(DeliveryMode::NonPersistent);
    for n in 0..300 {
        let mut request = Message::text(n.to_string());
        request.set_reply_to(Some(inbox.clone()));
        let id = producer.send(request).unwrap();
        let reply = next(&consumer);
        assert_eq!(text(&reply), format!("re {n}"));
        assert_eq!(reply.correlation_id().as_deref(), Some(format!("ID:{id}").as_str()));
    }
    consumer.close().unwrap();
    session.delete_temporary(&inbox).unwrap();
    client.close().unwrap();
    server.close().unwrap();
}

#[test]
fn a_requestor_gets_the_reply_to_its_own_request_and_not_a_late_one() {
    let broker = broker(1);
    let server = connect(&broker);
    let serving = server.create_session(AcknowledgeMode::Auto).unwrap();
    let replies = serving.create_anonymous_producer().unwrap();
    let listener = serving.create_consumer(&queue("ask")).unwrap();
    let mut late: Option<Message> = None;
    listener
        .set_listener(move |request| {
            if text(&request) == "wait" {
                late = Some(request);
                return;
            }
            for request in late.take().into_iter().chain([request]) {
                let mut reply = Message::text(format!("re {}", text(&request)));
                // As a service does that keeps to what it is told.
                let own = request.correlation_id().map(std::borrow::Cow::into_owned);
                let told = own.or_else(|| request.message_id());
                reply.set_correlation_id(told.as_deref()).unwrap();
                replies.send_to(request.reply_to().unwrap(), reply).unwrap();
            }
        })
        .unwrap();
    let client = connect(&broker);
    let session = client.create_session(AcknowledgeMode::Auto).unwrap();
    let mut requestor = Requestor::new(&session, &queue("ask")).unwrap();
    requestor.producer().set_delivery_mode(DeliveryMode::NonPersistent);
    let short = Duration::from_millis(50);
    assert!(requestor.request_timeout(Message::text("wait"), short).unwrap().is_none());
    assert_eq!(text(&requestor.request(Message::text("now")).unwrap()), "re now");
    let mut own = Message::text("own");
    own.set_correlation_id(Some("mine")).unwrap();
    assert_eq!(text(&requestor.request(own).unwrap()), "re own");
    requestor.close().unwrap();
    let other = client.create_session(AcknowledgeMode::DupsOk).unwrap();
    let mut requestor = Requestor::new(&other, &queue("ask")).unwrap();
    let closer = thread::spawn(move || {
        // Not before it waits; how long that takes does not matter, only that it is tried.
        thread::park_timeout(short);
        client.close().unwrap();
    });
    let ended = requestor.request(Message::text("wait"));
    assert!(matches!(ended, Err(ExchangeError::Closed)), "{ended:?}");
    closer.join().unwrap();
    server.close().unwrap();
}

#[test]
fn many_threads_share_one_connection_and_each_gets_its_own() {
    const THREADS: usize = 6;
    const MESSAGES: usize = 200;
    let broker = broker(2);
    let connection = connect(&broker);
    let (told, done) = channel();
    let threads: Vec<_> = (0..THREADS)
        .map(|n| {
            let (connection, told) = (connection.clone(), told.clone());
            thread::spawn(move || {
                let mode = if n % 2 == 0 { AcknowledgeMode::Auto } else { AcknowledgeMode::DupsOk };
                let session = connection.create_session(mode).unwrap();
                let queue = queue(&format!("thread{n}"));
                let mut producer = session.create_producer(&queue).unwrap();
                let consumer = session.create_consumer(&queue).unwrap();
                for m in 0..MESSAGES {
                    let persistent = m % 3 == 0;
                    producer.set_delivery_mode(if persistent {
                        DeliveryMode::Persistent
                    } else {
                        DeliveryMode::NonPersistent
                    });
                    producer.send(Message::text(format!("{n}/{m}"))).unwrap();
                    assert_eq!(text(&next(&consumer)), format!("{n}/{m}"));
                }
                session.close().unwrap();
                told.send(n).unwrap();
            })
        })
        .collect();
    for _ in 0..THREADS {
        done.recv_timeout(Duration::from_secs(60)).expect("no thread hangs or fails");
    }
    for thread in threads {
        thread.join().unwrap();
    }
    connection.close().unwrap();
}

#[test]
fn topics_reach_every_consumer_and_not_its_own_sender_if_so_wished() {
    let broker = broker(1);
    let topic = Destination::topic("news").unwrap();
    let one = connect(&broker);
    let two = connect(&broker);
    let session = one.create_session(AcknowledgeMode::Auto).unwrap();
    let everything = session.create_consumer(&topic).unwrap();
    let foreign = session.create_consumer_with(&topic, ConsumerOptions::new().no_local()).unwrap();
    let other = two.create_session(AcknowledgeMode::Auto).unwrap();
    session.create_producer(&topic).unwrap().send(Message::text("mine")).unwrap();
    other.create_producer(&topic).unwrap().send(Message::text("yours")).unwrap();
    assert_eq!(text(&next(&everything)), "mine");
    assert_eq!(text(&next(&everything)), "yours");
    assert_eq!(text(&next(&foreign)), "yours");
    one.close().unwrap();
    two.close().unwrap();
}

#[test]
fn a_wrong_password_is_refused_and_a_closed_port_is_unreachable() {
    let broker = broker(1);
    let error = factory(&broker).credentials("guest", "wrong").unwrap().create_connection();
    assert!(matches!(error, Err(ConnectError::Refused { .. })), "{error:?}");
    let mut factory = factory(&broker);
    broker.shutdown();
    factory.reconnect_interval(Duration::from_millis(1)).address_list_iterations(Some(2));
    let error = factory.create_connection();
    assert!(matches!(error, Err(ConnectError::Unreachable { attempts: 2, .. })), "{error:?}");
}

#[test]
fn a_broker_that_shuts_down_says_goodbye_to_everybody_who_waits() {
    let broker = broker(1);
    let connection = connect(&broker);
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    let waiting = thread::spawn(move || consumer.receive().map(|message| message.is_some()));
    wait_until("the consumer is there", || {
        broker.snapshot().destinations.iter().any(|one| one.consumers.len() == 1)
    });
    broker.shutdown();
    let error = waiting.join().unwrap().unwrap_err();
    let fits =
        matches!(&error, ReceiveError::Connection(ConnectionError::Goodbye { reason: 1, .. }));
    assert!(fits, "{error:?}");
    connection.close().unwrap();
}

#[test]
fn an_idle_connection_notices_a_shutdown_and_pings_meanwhile() {
    let broker = broker(1);
    let mut factory = factory(&broker);
    factory.ping_interval(Some(Duration::from_millis(200)));
    factory.ping_ack_timeout(Some(Duration::from_secs(10)));
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    drop(session);
    broker.shutdown();
    wait_until("the connection is seen to be lost", || connection.lost().is_some());
    assert!(matches!(connection.lost(), Some(ConnectionError::Goodbye { reason: 1, .. })));
}
