//! Browsing: batches, what vanished meanwhile, and how it ends.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

use std::time::Duration;

use scripted::{Peer, Scripted, long, queue};
use tidegate::{
    client::{AcknowledgeMode, BrowseError, RequestError, SessionError},
    message::Destination,
    wire::{Flags, MessageId, Packet, PacketBuilder, PacketType, Status},
};

const BROWSE: i64 = 4242;

/// The id of the message with this number.
fn id(number: i32) -> MessageId {
    MessageId { timestamp: 5, address: [9; 16], port: 2, sequence: number }
}

fn numbers(packet: &Packet) -> Vec<i32> {
    let ids = packet.body_bytes().chunks_exact(MessageId::LEN);
    ids.map(|id| MessageId::decode(id.try_into().unwrap()).sequence).collect()
}

/// Answers BROWSE with these messages.
fn list(peer: &mut Peer, request: &Packet, numbers: std::ops::Range<i32>) {
    let body: Vec<u8> = numbers.flat_map(|number| id(number).encode()).collect();
    let reply = PacketBuilder::reply(request.header(), Status::OK).long("JMQConsumerID", BROWSE);
    peer.send(reply.body(body));
}

fn deliver(peer: &mut Peer, number: i32, last: bool) {
    let flags = if last { Flags::LAST } else { Flags::empty() };
    peer.deliver(BROWSE, &number.to_string(), flags);
}

#[test]
fn messages_come_in_batches_while_stopped_and_those_that_vanished_are_skipped() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let verify = peer.serve_until(PacketType::VERIFY_DESTINATION);
        let selector = verify.properties().unwrap().string("JMQSelector").unwrap();
        assert_eq!(selector.as_deref(), Some("n > 0"));
        peer.answer(&verify);
        let browse = peer.expect(PacketType::BROWSE);
        list(peer, &browse, 0..7);
        // Of the first three the last has gone, of the second three all, and the last is there.
        for (batch, there) in
            [(vec![0, 1, 2], vec![0, 1]), (vec![3, 4, 5], vec![]), (vec![6], vec![6])]
        {
            let request = peer.expect(PacketType::DELIVER);
            assert_eq!(long(&request, "JMQConsumerID"), Some(BROWSE));
            assert_eq!(numbers(&request), batch);
            if there.is_empty() {
                peer.status(&request, Status::NOT_FOUND);
                continue;
            }
            // All of it in one burst: the number is known before the messages come.
            peer.hold();
            peer.ok(&request);
            for number in &there {
                deliver(peer, *number, there.last() == Some(number));
            }
            peer.release();
        }
        peer.serve_to_the_end();
        assert!(peer.seen_of(PacketType::ACKNOWLEDGE).is_empty());
        assert!(peer.seen_of(PacketType::ADD_CONSUMER).is_empty());
    });
    let mut factory = broker.factory();
    factory.browser_batch(3).unwrap();
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let browser = session.create_browser(&queue("q"), Some(" n > 0 ")).unwrap();
    let texts: Vec<_> = browser
        .messages()
        .unwrap()
        .map(|message| message.unwrap().body_text().unwrap().unwrap().into_owned())
        .collect();
    assert_eq!(texts, ["0", "1", "6"]);
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_browse_that_is_dropped_asks_for_nothing_more_and_what_still_comes_is_dropped() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let browse = peer.serve_until(PacketType::BROWSE);
        list(peer, &browse, 0..20);
        let request = peer.expect(PacketType::DELIVER);
        peer.ok(&request);
        for number in 0..5 {
            deliver(peer, number, false);
        }
        let session = peer.serve_until(PacketType::CREATE_SESSION);
        for number in 5..10 {
            deliver(peer, number, number == 9);
        }
        peer.answer(&session);
        peer.serve_to_the_end();
        assert!(peer.seen_of(PacketType::DELIVER).is_empty());
    });
    let mut factory = broker.factory();
    factory.browser_batch(10).unwrap();
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let browser = session.create_browser(&queue("q"), None).unwrap();
    let first = browser.messages().unwrap().next().unwrap().unwrap();
    assert_eq!(first.body_text().unwrap().as_deref(), Some("0"));
    drop(connection.create_session(AcknowledgeMode::Auto).unwrap());
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_message_that_does_not_come_in_time_ends_the_browse_with_an_error() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let browse = peer.serve_until(PacketType::BROWSE);
        list(peer, &browse, 0..3);
        let request = peer.expect(PacketType::DELIVER);
        peer.ok(&request);
        deliver(peer, 0, false);
        peer.serve_to_the_end();
    });
    let mut factory = broker.factory();
    factory.browser_timeout(Some(Duration::from_millis(30)));
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let browser = session.create_browser(&queue("q"), None).unwrap();
    let mut messages = browser.messages().unwrap();
    assert!(messages.next().unwrap().is_ok());
    let error = messages.next().unwrap().unwrap_err();
    assert!(matches!(error, BrowseError::TimedOut { .. }), "{error:?}");
    assert!(error.to_string().contains("imqQueueBrowserRetrieveTimeout"), "{error}");
    assert!(messages.next().is_none());
    drop(messages);
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_browse_ends_with_its_session_and_topics_are_not_browsed() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let browse = peer.serve_until(PacketType::BROWSE);
        list(peer, &browse, 0..3);
        let request = peer.expect(PacketType::DELIVER);
        peer.ok(&request);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let topic = Destination::topic("t").unwrap();
    let refused = session.create_browser(&topic, None);
    assert!(matches!(refused, Err(SessionError::IllegalState(_))));
    let browser = session.create_browser(&queue("q"), None).unwrap();
    let mut messages = browser.messages().unwrap();
    let waiting =
        std::thread::spawn(move || (messages.next().unwrap().map(drop), messages.next().is_none()));
    // Not before it waits; how long that takes does not matter, only that it is tried.
    std::thread::park_timeout(Duration::from_millis(30));
    session.close().unwrap();
    let (first, ended) = waiting.join().unwrap();
    let closed = BrowseError::Request(RequestError::Closed { what: "session" });
    assert_eq!(format!("{:?}", first.unwrap_err()), format!("{closed:?}"));
    assert!(ended);
    assert!(browser.messages().is_err());
    connection.close().unwrap();
    broker.join();
}
