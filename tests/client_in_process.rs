//! Client and broker in one process, without sockets: what pipes do otherwise than sockets could.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test ends where it fails, and measures time"
)]

mod support;

use std::{
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use support::{broker, local, wait_until};
use tidegate::{
    broker::{Broker, BrokerConfig},
    client::{
        AcknowledgeMode, AttemptError, ConnectError, Connection, ConnectionError,
        ConnectionFactory, InProcess, ReceiveError,
    },
    message::{DeliveryMode, Destination, DestinationKind, Message},
};

const DEADLINE: Duration = Duration::from_secs(20);

fn connect(broker: &InProcess) -> Connection {
    let connection = ConnectionFactory::new().create_connection_in_process(broker).unwrap();
    connection.start().unwrap();
    connection
}

fn queue(name: &str) -> Destination {
    Destination::queue(name).unwrap()
}

fn config() -> BrokerConfig {
    let mut config = BrokerConfig::default();
    config.listen = local();
    config
}

#[test]
fn a_large_message_goes_through_a_small_pipe() {
    let broker = broker(2);
    let connection = connect(&broker.in_process());
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let producer = session.create_producer(&queue("large")).unwrap();
    let consumer = session.create_consumer(&queue("large")).unwrap();
    for len in [0, 1, 128 * 1024, 8 * 1024 * 1024 + 1] {
        let body: Vec<u8> = (0_u32..).map(|n| n.to_le_bytes()[1]).take(len).collect();
        producer.send(Message::bytes(body.clone())).unwrap();
        let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
        assert!(message.body_bytes().unwrap() == body, "{len} bytes differ");
    }
    connection.close().unwrap();
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody_but_itself() {
    const COUNT: usize = 400;
    let broker = broker(1);
    let way = broker.in_process();
    // It takes all it can be sent, and nobody asks for it.
    let mut factory = ConnectionFactory::new();
    factory.consumer_flow_limit(0).unwrap().connection_flow_count(0).unwrap();
    let slow = factory.create_connection_in_process(&way).unwrap();
    let session = slow.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("slow")).unwrap();
    slow.start().unwrap();

    let connection = connect(&way);
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let producer = session.create_producer(&queue("slow")).unwrap();
    for n in 0..COUNT {
        let mut body = n.to_le_bytes().to_vec();
        body.resize(16 * 1024, 7);
        producer.send(Message::bytes(body)).unwrap();
    }
    let other = session.create_consumer(&queue("other")).unwrap();
    session.create_producer(&queue("other")).unwrap().send(Message::text("on")).unwrap();
    assert!(other.receive_timeout(DEADLINE).unwrap().is_some());
    // All of it comes, in order, once somebody reads.
    for n in 0..COUNT {
        let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
        assert_eq!(message.body_bytes().unwrap()[..8], n.to_le_bytes());
    }
    slow.close().unwrap();
    connection.close().unwrap();
}

#[test]
fn a_sender_waits_for_a_broker_that_does_not_keep_up() {
    const COUNT: usize = 3000;
    let broker = broker(1);
    let way = broker.in_process();
    let (told, sums) = channel();
    let threads: Vec<_> = (0..3_u8)
        .map(|number| {
            let (way, told) = (way.clone(), told.clone());
            thread::spawn(move || {
                let connection = connect(&way);
                let session = connection.create_session(AcknowledgeMode::DupsOk).unwrap();
                let queue = queue(&format!("flood{number}"));
                let consumer = session.create_consumer(&queue).unwrap();
                let mut producer = session.create_producer(&queue).unwrap();
                producer.set_delivery_mode(DeliveryMode::NonPersistent);
                for n in 0..COUNT {
                    let mut body = n.to_le_bytes().to_vec();
                    body.resize(8 + n * 7 % 9000, number);
                    producer.send(Message::bytes(body)).unwrap();
                }
                for n in 0..COUNT {
                    let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
                    let body = message.body_bytes().unwrap();
                    assert_eq!((&body[..8], body.len()), (&n.to_le_bytes()[..], 8 + n * 7 % 9000));
                }
                connection.close().unwrap();
                told.send(()).unwrap();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
        sums.recv_timeout(DEADLINE).unwrap();
    }
}

#[test]
fn too_many_connections_are_refused_and_places_come_free() {
    let mut config = config();
    config.connections_max = 2;
    let broker = Broker::start(config).unwrap();
    let way = broker.in_process();
    let (first, second) = (connect(&way), connect(&way));
    let error = ConnectionFactory::new().create_connection_in_process(&way).unwrap_err();
    let ConnectError::Unreachable { addresses, attempts: 1, last } = error else {
        panic!("{error:?}")
    };
    assert_eq!(addresses, "in-process");
    let AttemptError::Login { cause, .. } = last else { panic!("{last:?}") };
    // It ends before or behind the first word.
    let ended = matches!(cause, ConnectionError::EndOfStream | ConnectionError::Socket(_));
    assert!(ended, "{cause:?}");
    first.close().unwrap();
    wait_until("a place is free", || broker.snapshot().connections == 1);
    connect(&way).close().unwrap();
    second.close().unwrap();
}

#[test]
fn a_broker_that_has_ended_refuses_at_once() {
    let broker = broker(2);
    let way = broker.in_process();
    broker.shutdown();
    let began = Instant::now();
    let error = ConnectionFactory::new().create_connection_in_process(&way).unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn whoever_waits_learns_that_the_broker_goes() {
    let broker = broker(2);
    let way = broker.in_process();
    let connection = connect(&way);
    let waits: Vec<_> = (0..3)
        .map(|n| {
            let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
            let consumer = session.create_consumer(&queue(&format!("nothing{n}"))).unwrap();
            thread::spawn(move || consumer.receive())
        })
        .collect();
    wait_until("all wait", || broker.snapshot().destinations.len() >= 4);
    broker.shutdown();
    for wait in waits {
        let error = wait.join().unwrap().unwrap_err();
        let told = matches!(error, ReceiveError::Connection(ConnectionError::Goodbye { .. }));
        assert!(told, "{error:?}");
    }
    // The handle outlives both, and still says no.
    assert!(ConnectionFactory::new().create_connection_in_process(&way).is_err());
    drop(connection);
}

#[test]
fn a_lost_client_gives_its_messages_back() {
    let broker = broker(1);
    let way = broker.in_process();
    let connection = connect(&way);
    let session = connection.create_session(AcknowledgeMode::Client).unwrap();
    let consumer = session.create_consumer(&queue("back")).unwrap();
    session.create_producer(&queue("back")).unwrap().send(Message::text("m")).unwrap();
    assert!(consumer.receive_timeout(DEADLINE).unwrap().is_some());
    drop((connection, session, consumer));
    let connection = connect(&way);
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("back")).unwrap();
    let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
    assert!(message.is_redelivered());
    connection.close().unwrap();
}

#[test]
fn temporary_destinations_of_connections_have_names_of_their_own() {
    let broker = broker(1);
    let way = broker.in_process();
    let connections = [connect(&way), connect(&way)];
    let mut names: Vec<_> = connections
        .iter()
        .map(|connection| {
            let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
            session.create_temporary(DestinationKind::Queue).unwrap().name().to_owned()
        })
        .collect();
    names.dedup();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn a_message_from_a_socket_reaches_a_client_in_process() {
    let broker = broker(2);
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{}/jms", broker.jms_address())).unwrap();
    let outside = factory.create_connection().unwrap();
    let inside = connect(&broker.in_process());
    let session = inside.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("both")).unwrap();
    let sender = outside.create_session(AcknowledgeMode::Auto).unwrap();
    let producer = sender.create_producer(&queue("both")).unwrap();
    for n in 0..100 {
        producer.send(Message::text(n.to_string())).unwrap();
        let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
        assert_eq!(message.body_text().unwrap().unwrap(), n.to_string());
    }
    outside.close().unwrap();
    inside.close().unwrap();
}
