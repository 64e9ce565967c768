//! Closing and losing a connection: everybody who waits is told, and nothing hangs.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

use std::{sync::mpsc::channel, thread, time::Duration};

use scripted::{DEADLINE, Peer, Scripted, gate, now, pass, queue};
use tidegate::{
    client::{
        AcknowledgeMode, ConnectError, Connection, ConnectionError, Consumer, ReceiveError,
        Session, SessionError,
    },
    message::Message,
    wire::{Flags, Packet, PacketBuilder, PacketType, Status},
};

const NONE: Flags = Flags::empty();

fn consumer(connection: &Connection, mode: AcknowledgeMode) -> (Session, Consumer) {
    let session = connection.create_session(mode).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    connection.start().unwrap();
    (session, consumer)
}

/// A broker that answers everything.
fn willing() -> Scripted {
    Scripted::start(|peer| {
        peer.login();
        peer.serve_to_the_end();
    })
}

/// Something that is closed while a thread waits in `receive`.
type Close = fn(&Connection, &Session, &Consumer) -> Result<(), SessionError>;

#[test]
fn receive_returns_nothing_at_once_when_its_consumer_session_or_connection_is_closed() {
    let closes: [Close; 3] = [
        |_, _, consumer| consumer.close(),
        |_, session, _| session.close(),
        |connection, _, _| connection.close(),
    ];
    for close in closes {
        let broker = willing();
        let connection = broker.connect();
        let (session, consumer) = consumer(&connection, AcknowledgeMode::Auto);
        let (told, result) = channel();
        let waiting = thread::spawn({
            let consumer = consumer.clone();
            move || told.send(consumer.receive().map(|message| message.is_some())).unwrap()
        });
        // Not before it waits; how long that takes does not matter, only that it is tried.
        assert!(result.recv_timeout(Duration::from_millis(30)).is_err());
        let begun = now();
        close(&connection, &session, &consumer).unwrap();
        assert!(!result.recv_timeout(DEADLINE).unwrap().unwrap());
        assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
        waiting.join().unwrap();
        // Once more, and everything above it: nothing to do.
        close(&connection, &session, &consumer).unwrap();
        connection.close().unwrap();
        broker.join();
    }
}

#[test]
fn a_listener_may_close_its_consumer_and_is_refused_its_session_and_connection() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        peer.deliver(peer.consumers[0], "m", NONE);
        peer.serve_to_the_end();
        assert_eq!(peer.seen_of(PacketType::DELETE_CONSUMER).len(), 1);
    });
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Client).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    let (told, results) = channel();
    consumer
        .set_listener({
            let connection = connection.clone();
            let consumer = consumer.clone();
            move |_message| {
                let refused = |result: Result<(), SessionError>| {
                    matches!(result, Err(SessionError::IllegalState(_)))
                };
                let outcomes = [
                    refused(connection.close()),
                    refused(session.close()),
                    consumer.close().is_ok(),
                ];
                told.send(outcomes).unwrap();
            }
        })
        .unwrap();
    connection.start().unwrap();
    assert_eq!(results.recv_timeout(DEADLINE).unwrap(), [true; 3]);
    assert!(matches!(consumer.receive(), Err(ReceiveError::IllegalState(_))));
    connection.close().unwrap();
    broker.join();
}

#[test]
fn closing_a_session_waits_for_its_running_listener_whose_acknowledgement_counts() {
    for close_consumer_only in [false, true] {
        let broker = Scripted::start(|peer| {
            peer.login();
            peer.serve_until(PacketType::START);
            peer.deliver(peer.consumers[0], "m", NONE);
            peer.serve_to_the_end();
            let order: Vec<_> =
                peer.seen.iter().map(|packet| packet.header().packet_type).collect();
            let ack = order.iter().position(|kind| *kind == PacketType::ACKNOWLEDGE);
            let delete = order.iter().position(|kind| *kind == PacketType::DELETE_CONSUMER);
            assert!(ack.unwrap() < delete.unwrap(), "{order:?}");
        });
        let connection = broker.connect();
        let session = connection.create_session(AcknowledgeMode::Client).unwrap();
        let consumer = session.create_consumer(&queue("q")).unwrap();
        let (running, runs) = gate();
        let (acknowledged, outcome) = channel();
        consumer
            .set_listener({
                let session = session.clone();
                move |_message| {
                    running.send(()).unwrap();
                    // Long enough for the closer to be waiting by then.
                    thread::park_timeout(Duration::from_millis(100));
                    acknowledged.send(session.acknowledge().is_ok()).unwrap();
                }
            })
            .unwrap();
        connection.start().unwrap();
        pass(&runs);
        if close_consumer_only {
            consumer.close().unwrap();
        } else {
            session.close().unwrap();
        }
        // The listener had returned before close did, so its result is there.
        assert!(outcome.try_recv().unwrap());
        connection.close().unwrap();
        broker.join();
    }
}

#[test]
fn a_listener_that_panics_gets_the_message_again_and_then_the_broker_is_told() {
    let broker = Scripted::start(|peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        let consumer = peer.consumers[0];
        peer.deliver(consumer, "bad", NONE);
        peer.deliver(consumer, "good", NONE);
        let declined = peer.serve_until(PacketType::ACKNOWLEDGE);
        assert_eq!(scripted::int(&declined, "JMQAckType"), Some(1));
        let done = peer.serve_until(PacketType::ACKNOWLEDGE);
        assert_eq!(scripted::int(&done, "JMQAckType"), None);
        peer.answer(&done);
        peer.serve_to_the_end();
    });
    let mut factory = broker.factory();
    factory.redelivery(2, Duration::from_millis(1));
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    let (told, texts) = channel();
    consumer
        .set_listener(move |message: Message| {
            let text = message.body_text().unwrap().unwrap().into_owned();
            let bad = text == "bad";
            told.send(text).unwrap();
            assert!(!bad, "this listener fails on purpose");
        })
        .unwrap();
    connection.start().unwrap();
    let got: Vec<_> = (0..4).map(|_| texts.recv_timeout(DEADLINE).unwrap()).collect();
    assert_eq!(got, ["bad", "bad", "bad", "good"]);
    connection.close().unwrap();
    broker.join();
}

/// How a broker ends a connection, and how the client must name that.
type Ending = (fn(&mut Peer, &Packet), fn(&ConnectionError) -> bool);

#[test]
fn every_waiter_is_told_how_the_connection_ended() {
    let endings: [Ending; 4] = [
        (
            |peer, _| {
                let packet = PacketBuilder::new(PacketType::GOODBYE)
                    .int("JMQGoodbyeReason", 1)
                    .string("JMQGoodbyeReasonString", "");
                peer.send(packet);
                peer.hang_up();
            },
            |error| matches!(error, ConnectionError::Goodbye { reason: 1, text, .. } if text == "broker shutdown"),
        ),
        (|peer, _| peer.hang_up(), |error| matches!(error, ConnectionError::EndOfStream)),
        (|peer, _| peer.write(&[b'G'; 100]), |error| matches!(error, ConnectionError::Garbage(_))),
        (
            |peer, request| {
                // A reply without a status tells its requester nothing, the others learn the end.
                let reply = PacketBuilder::new(request.header().packet_type.reply());
                peer.send(reply.consumer_id(request.header().consumer_id));
                peer.hang_up();
            },
            |error| matches!(error, ConnectionError::EndOfStream),
        ),
    ];
    for (end, fits) in endings {
        let broker = Scripted::start(move |peer| {
            peer.login();
            let request = peer.serve_until(PacketType::DELETE_CONSUMER);
            end(peer, &request);
        });
        let connection = broker.connect();
        let (session, consumer) = consumer(&connection, AcknowledgeMode::Auto);
        let other = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let waiting: Vec<_> = (0..2)
            .map(|n| {
                let consumer = if n == 0 {
                    consumer.clone()
                } else {
                    other.create_consumer(&queue("q")).unwrap()
                };
                thread::spawn(move || consumer.receive().map(|message| message.is_some()))
            })
            .collect();
        provoke(&session);
        for thread in waiting {
            let error = thread.join().unwrap().unwrap_err();
            let ReceiveError::Connection(cause) = &error else { panic!("{error:?}") };
            assert!(fits(cause), "{cause:?}");
        }
        assert!(fits(&connection.lost().unwrap()));
        assert!(connection.create_session(AcknowledgeMode::Auto).is_err());
        connection.close().unwrap();
        drop((session, consumer, other, connection));
        broker.join();
    }
}

/// Sends the one request on which the script ends the connection; its waiter is told, too.
fn provoke(session: &Session) {
    assert!(session.unsubscribe("nobody").is_err());
}

#[test]
fn a_send_that_waits_for_credit_ends_when_its_producer_or_session_is_closed() {
    for close_session in [false, true] {
        let style = scripted::Style { producer_credit: Some(0), ..Default::default() };
        let broker = Scripted::start_with(style, |peer| {
            peer.login();
            peer.serve_to_the_end();
        });
        let connection = broker.connect();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let producer = std::sync::Arc::new(session.create_producer(&queue("q")).unwrap());
        let (told, result) = channel();
        let sending = thread::spawn({
            let producer = std::sync::Arc::clone(&producer);
            move || told.send(producer.send(Message::text("x"))).unwrap()
        });
        assert!(result.recv_timeout(Duration::from_millis(30)).is_err());
        if close_session {
            session.close().unwrap();
        } else {
            producer.close().unwrap();
        }
        let error = result.recv_timeout(DEADLINE).unwrap().unwrap_err();
        assert_eq!(error.into_inner().body_text().unwrap().as_deref(), Some("x"));
        sending.join().unwrap();
        connection.close().unwrap();
        broker.join();
    }
}

#[test]
fn a_request_that_is_not_answered_in_time_names_the_setting() {
    let (given_up, late) = gate();
    let broker = Scripted::start(move |peer| {
        peer.login();
        let request = peer.serve_until(PacketType::CREATE_SESSION);
        pass(&late);
        // Nobody waits for it any more, and it disturbs nobody.
        peer.answer(&request);
        peer.serve_to_the_end();
    });
    let mut factory = broker.factory();
    factory.ack_timeout(Some(Duration::from_millis(300)));
    let connection = factory.create_connection().unwrap();
    let error = connection.create_session(AcknowledgeMode::Auto).unwrap_err();
    let SessionError::Request(cause) = &error else { panic!("{error:?}") };
    assert!(cause.to_string().contains("imqAckTimeout"), "{cause}");
    given_up.send(()).unwrap();
    // A slow machine may need more than one try.
    let made = (0..20).find_map(|_| connection.create_session(AcknowledgeMode::Auto).ok());
    assert!(made.is_some());
    drop(made);
    drop(connection);
    broker.join();
}

#[test]
fn a_refused_login_says_why_and_is_not_tried_again() {
    let broker = Scripted::start(|peer| {
        let hello = peer.expect(PacketType::HELLO);
        let reply = PacketBuilder::reply(hello.header(), Status::FORBIDDEN);
        peer.send(reply.string("JMQReason", "not you"));
        peer.hang_up();
    });
    let error = broker.factory().create_connection().unwrap_err();
    let ConnectError::Refused { cause, .. } = &error else { panic!("{error:?}") };
    assert!(cause.to_string().contains("not you"), "{cause}");
    broker.join();
}

#[test]
fn dropping_everything_with_a_broker_that_never_reads_or_answers_does_not_hang() {
    let (done, finished) = gate();
    let broker = Scripted::start(move |peer| {
        peer.login();
        peer.serve_until(PacketType::START);
        pass(&finished);
    });
    let connection = broker.connect();
    let begun = now();
    let (session, consumer) = consumer(&connection, AcknowledgeMode::DupsOk);
    drop((consumer, session, connection));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    done.send(()).unwrap();
    broker.join();
}
