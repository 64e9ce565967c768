//! A client at brokers that take over from one another, or send it on.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

use scripted::{Peer, Scripted, queue};
use tidegate::{
    client::{AcknowledgeMode, AttemptError, ConnectError, ConnectionError, ReceiveError},
    message::Message,
    wire::{PacketBuilder, PacketType, Status},
};

/// Answers HELLO with this status and property, and no more.
fn turn_away(peer: &mut Peer, status: Status, name: &'static str, value: &str) {
    let hello = peer.expect(PacketType::HELLO);
    peer.send(PacketBuilder::reply(hello.header(), status).string(name, value));
}

#[test]
fn a_broker_of_a_group_is_followed_by_the_one_it_named_without_being_asked_for() {
    let second = Scripted::start(|peer| {
        peer.login();
        let hello = peer.hello.take().unwrap();
        assert_eq!(scripted::long(&hello, "JMQConnectionID"), Some(77));
        let add = peer.serve_until(PacketType::ADD_CONSUMER);
        assert!(scripted::long(&add, "JMQOldConsumerID").is_some());
        peer.answer(&add);
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        peer.deliver(consumer, "taken over", tidegate::wire::Flags::empty());
        peer.serve_to_the_end();
    });
    let named = format!("mqtcp://{}/jms", second.address());
    let first = Scripted::start(move |peer| {
        peer.login_saying(|hello| hello.boolean("JMQHA", true).string("JMQBrokerList", &named));
        peer.serve_until(PacketType::START);
    });
    let connection = first.connect();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    let message: Message = consumer.receive_timeout(scripted::DEADLINE).unwrap().unwrap();
    assert_eq!(message.body_text().unwrap().as_deref(), Some("taken over"));
    first.join();
    connection.close().unwrap();
    second.join();
}

#[test]
fn a_client_that_is_sent_on_connects_there() {
    let owner = Scripted::start(|peer| {
        peer.login();
        peer.serve_to_the_end();
    });
    let address = format!("mqtcp://{}/jms", owner.address());
    let first = Scripted::start(move |peer| {
        turn_away(peer, Status::MOVED, "JMQStoreOwner", &address);
    });
    let connection = first.connect();
    assert_eq!(connection.id(), 77);
    connection.close().unwrap();
    first.join();
    owner.join();
}

#[test]
fn a_client_that_is_sent_on_to_nonsense_is_told_what() {
    let first = Scripted::start(|peer| {
        turn_away(peer, Status::MOVED, "JMQStoreOwner", "ftp://nowhere");
    });
    let error = first.factory().create_connection().unwrap_err();
    let ConnectError::Unreachable { last: AttemptError::Redirect { reason, .. }, .. } = error
    else {
        panic!("{error:?}");
    };
    assert!(reason.contains("ftp"), "{reason}");
    first.join();
}

#[test]
fn a_client_that_is_told_to_stay_away_does_and_one_that_is_not_comes_back() {
    for (exit, comes_back) in [(true, false), (false, true)] {
        let broker = Scripted::start_accepting(move |door| {
            let mut peer = door.open();
            peer.login();
            let start = peer.serve_until(PacketType::START);
            peer.answer(&start);
            let goodbye = PacketBuilder::new(PacketType::GOODBYE)
                .int("JMQGoodbyeReason", 3)
                .boolean("JMQExit", exit);
            peer.send(goodbye);
            if comes_back {
                let mut again = door.open();
                again.login();
                again.serve_until(PacketType::START);
                let consumer = again.consumers[0];
                again.deliver(consumer, "back", tidegate::wire::Flags::empty());
                again.serve_to_the_end();
            }
        });
        let mut factory = broker.factory();
        let attributes = [("imqReconnectEnabled", "true"), ("imqReconnectInterval", "1")];
        factory.set_attributes(attributes).unwrap();
        let connection = factory.create_connection().unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let consumer = session.create_consumer(&queue("q")).unwrap();
        connection.start().unwrap();
        match consumer.receive_timeout(scripted::DEADLINE) {
            Ok(Some(message)) if comes_back => {
                assert_eq!(message.body_text().unwrap().as_deref(), Some("back"));
            }
            Err(ReceiveError::Connection(ConnectionError::Goodbye { reason: 3, .. }))
                if !comes_back => {}
            other => panic!("exit {exit}: {other:?}"),
        }
        connection.close().unwrap();
        broker.join();
    }
}
