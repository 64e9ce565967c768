//! Scenarios of connections that are lost and restored. See `support/scenario.rs` for which broker.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scenario.rs"]
mod scenario;
mod support;

use std::{collections::BTreeSet, net::ToSocketAddrs as _};

use scenario::{DEADLINE, Stage, next, nothing, queue, session, text, topic, wait_until};
use support::proxy::Proxy;
use tidegate::{
    client::{AcknowledgeMode, ConsumerOptions},
    message::Message,
};

/// One of three messages is consumed, then the network is cut; one more is sent, and all others
/// arrive. A durable subscriber of the same connection survives.
fn reconnect(mode: AcknowledgeMode, number: u32) {
    let stage = Stage::new();
    let broker = stage.service().to_socket_addrs().unwrap().next().unwrap();
    let proxy = Proxy::start(broker);
    let mut factory = stage.factory_for(&proxy.address().to_string());
    let attributes = [
        ("imqReconnectEnabled", "true"),
        ("imqReconnectAttempts", "-1"),
        ("imqReconnectInterval", "500"),
        ("imqAddressListIterations", "-1"),
    ];
    factory.set_attributes(attributes).unwrap();
    let connection = factory.create_connection().unwrap();
    connection.set_client_id(&format!("cap-reconnect-{number}")).unwrap();
    let (sending, receiving, subscribed) = (
        session(&connection, AcknowledgeMode::Auto),
        session(&connection, mode),
        session(&connection, AcknowledgeMode::Auto),
    );
    let queue = queue(&format!("cap.q.reconnect.{number}"));
    let producer = sending.create_producer(&queue).unwrap();
    for n in 0..3 {
        producer.send(Message::text(format!("m{n}"))).unwrap();
    }
    let consumer = receiving.create_consumer(&queue).unwrap();
    let mut options = ConsumerOptions::new();
    options.durable("rs");
    let news = topic(&format!("cap.t.reconnect.{number}"));
    let subscriber = subscribed.create_consumer_with(&news, &options).unwrap();
    connection.start().unwrap();
    assert_eq!(text(&next(&consumer)), "m0");
    receiving.acknowledge().unwrap();
    let before = connection.id();
    proxy.cut();
    wait_until("the connection is restored", || connection.id() != before);
    producer.send(Message::text("m3")).unwrap();
    let mut got = BTreeSet::new();
    while got.len() < 3 {
        let message = consumer.receive_timeout(DEADLINE).unwrap().expect("it comes in time");
        assert_ne!(text(&message), "m0", "it was acknowledged");
        // What had been sent to the client before the cut says so, what is new does not.
        assert_eq!(message.is_redelivered(), text(&message) != "m3");
        got.insert(text(&message));
    }
    assert!(got.iter().map(String::as_str).eq(["m1", "m2", "m3"]), "{got:?}");
    receiving.acknowledge().unwrap();
    nothing(&consumer);
    subscriber.close().unwrap();
    subscribed.unsubscribe("rs").unwrap();
    connection.close().unwrap();
}

#[test]
fn an_automatic_session_goes_on_over_a_restored_connection() {
    reconnect(AcknowledgeMode::Auto, 1);
}

#[test]
fn a_session_that_acknowledges_itself_goes_on_over_a_restored_connection() {
    reconnect(AcknowledgeMode::Client, 2);
}
