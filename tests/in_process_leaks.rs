//! What connections within one process leave behind: nothing. Alone in its program, so that the
//! counts are its own.
#![cfg(all(feature = "client", feature = "broker", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod support;

use std::{fs, time::Duration};

use support::{broker, wait_until};
use tidegate::{
    client::{AcknowledgeMode, Connection, ConnectionFactory, InProcess},
    message::{Destination, Message},
};

const DEADLINE: Duration = Duration::from_secs(20);

/// Descriptors and threads of this process.
fn counts() -> (usize, usize) {
    let count = |of: &str| fs::read_dir(format!("/proc/self/{of}")).unwrap().count();
    (count("fd"), count("task"))
}

fn connect(broker: &InProcess) -> Connection {
    let connection = ConnectionFactory::new().create_connection_in_process(broker).unwrap();
    connection.start().unwrap();
    connection
}

fn many_connections_come_and_go() {
    let broker = broker(2);
    let way = broker.in_process();
    let (descriptors, _) = counts();
    let connections: Vec<_> = (0..200).map(|_| connect(&way)).collect();
    let queue = Destination::queue("many").unwrap();
    for (n, connection) in connections.iter().enumerate() {
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        session.create_producer(&queue).unwrap().send(Message::text("one")).unwrap();
        let consumer = session.create_consumer(&queue).unwrap();
        assert!(consumer.receive_timeout(DEADLINE).unwrap().is_some(), "connection {n}");
    }
    assert_eq!(broker.snapshot().connections, 200);
    // Looking at them takes one more at both times.
    assert_eq!(counts().0, descriptors, "a connection has no descriptor");
    // Some in order, some not.
    for connection in connections.into_iter().step_by(2) {
        connection.close().unwrap();
    }
    wait_until("all are gone", || broker.snapshot().connections == 0);
}

/// Drops broker, way and connection in one of the six orders.
fn the_ends_go_in_order(order: usize) {
    let broker = broker(2);
    let way = broker.in_process();
    let connection = connect(&way);
    let session = connection.create_session(AcknowledgeMode::Client).unwrap();
    let queue = Destination::queue("order").unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    session.create_producer(&queue).unwrap().send(Message::text("m")).unwrap();
    assert!(consumer.receive_timeout(DEADLINE).unwrap().is_some());
    let mut parts: [Option<Box<dyn FnOnce()>>; 3] = [
        Some(Box::new(move || drop(broker))),
        Some(Box::new(move || drop(way))),
        Some(Box::new(move || drop((connection, session, consumer)))),
    ];
    let first = order / 2;
    let second = (first + 1 + order % 2) % 3;
    for at in [first, second, 3 - first - second] {
        parts[at].take().unwrap()();
    }
}

#[test]
fn whatever_goes_first_neither_threads_nor_descriptors_are_left() {
    let before = counts();
    many_connections_come_and_go();
    (0..6).for_each(the_ends_go_in_order);
    // A thread that was joined may be listed a moment longer.
    wait_until("all are as they were", || counts() == before);
}
