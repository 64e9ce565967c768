//! Many consumers on one connection: what one of them gets costs no more than with few.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod support;

use std::{sync::mpsc::channel, time::Duration};

use support::broker;
use tidegate::{
    client::{AcknowledgeMode, Connection, ConnectionFactory},
    message::{DeliveryMode, Destination, Message},
};

const CONSUMERS: usize = 1000;
const DEADLINE: Duration = Duration::from_secs(60);

fn connect(broker: &tidegate::broker::Broker) -> Connection {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address())).unwrap();
    factory.create_connection().unwrap()
}

fn queue(n: usize) -> Destination {
    Destination::queue(format!("many{n}")).unwrap()
}

#[test]
fn each_of_a_thousand_consumers_of_a_session_gets_its_own() {
    let broker = broker(1);
    let connection = connect(&broker);
    let session = connection.create_session(AcknowledgeMode::DupsOk).unwrap();
    let consumers: Vec<_> =
        (0..CONSUMERS).map(|n| session.create_consumer(&queue(n)).unwrap()).collect();
    connection.start().unwrap();
    let sending = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let mut producer = sending.create_anonymous_producer().unwrap();
    producer.set_delivery_mode(DeliveryMode::NonPersistent);
    for n in (0..CONSUMERS).step_by(7).chain([0, CONSUMERS - 1]) {
        producer.send_to(&queue(n), Message::text(n.to_string())).unwrap();
        let message = consumers[n].receive_timeout(DEADLINE).unwrap().unwrap();
        assert_eq!(message.body_text().unwrap().unwrap(), n.to_string());
    }
    // Every second one goes; the others are not disturbed.
    for consumer in consumers.iter().step_by(2) {
        consumer.close().unwrap();
    }
    for n in (1..CONSUMERS).step_by(50).filter(|n| n % 2 == 1) {
        producer.send_to(&queue(n), Message::text(n.to_string())).unwrap();
        let message = consumers[n].receive_timeout(DEADLINE).unwrap().unwrap();
        assert_eq!(message.body_text().unwrap().unwrap(), n.to_string());
    }
    connection.close().unwrap();
}

#[test]
fn a_thousand_listeners_of_a_session_are_called_in_turn_and_let_go_when_closed() {
    let broker = broker(1);
    let connection = connect(&broker);
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let (told, calls) = channel();
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|n| {
            let consumer = session.create_consumer(&queue(n)).unwrap();
            let told = told.clone();
            consumer.set_listener(move |_message| told.send(n).unwrap()).unwrap();
            consumer
        })
        .collect();
    drop(told);
    let sending = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let mut producer = sending.create_anonymous_producer().unwrap();
    producer.set_delivery_mode(DeliveryMode::NonPersistent);
    let busy = [3, 500, 999];
    for _ in 0..20 {
        for n in busy {
            producer.send_to(&queue(n), Message::text("x")).unwrap();
        }
    }
    connection.start().unwrap();
    let mut counts = [0; CONSUMERS];
    for _ in 0..20 * busy.len() {
        counts[calls.recv_timeout(DEADLINE).unwrap()] += 1;
    }
    for (n, count) in counts.iter().enumerate() {
        assert_eq!(*count, if busy.contains(&n) { 20 } else { 0 }, "{n}");
    }
    for consumer in &consumers {
        consumer.close().unwrap();
    }
    // What the listeners held is dropped with them, although the session goes on.
    assert!(
        calls
            .recv_timeout(DEADLINE)
            .is_err_and(|error| { error == std::sync::mpsc::RecvTimeoutError::Disconnected })
    );
    connection.close().unwrap();
}
