//! Asynchronous sends: each is completed once, in order, and nobody waits for itself.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

use std::{sync::mpsc::channel, time::Duration};

use scripted::{DEADLINE, Peer, Scripted, Style, gate, pass, queue};
use tidegate::{
    client::{
        AcknowledgeMode, Connection, ConnectionError, Producer, RequestError, SendCause, SendError,
        Session, SessionError,
    },
    message::{DeliveryMode, Message},
    wire::{Flags, Packet, PacketBuilder, PacketType, Status},
};

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

fn producer(connection: &Connection, mode: AcknowledgeMode) -> (Session, Producer) {
    let session = connection.create_session(mode).unwrap();
    let producer = session.create_producer(&queue("q")).unwrap();
    (session, producer)
}

fn request_error(error: &SendError) -> &RequestError {
    match error.cause() {
        SendCause::Request(cause) => cause,
        other => panic!("{other:?}"),
    }
}

fn take_messages(peer: &mut Peer, count: usize) -> Vec<Packet> {
    (0..count).map(|_| peer.serve_until(PacketType::TEXT_MESSAGE)).collect()
}

#[test]
fn completions_run_in_the_order_of_the_sends_whatever_the_order_of_the_replies() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let sent = take_messages(peer, 5);
        for packet in sent.iter().rev() {
            // Asked for even though the messages are not persistent.
            assert!(packet.header().flags.contains(Flags::ACKNOWLEDGE));
            if packet.body_bytes() == b"m3" {
                let refusal = PacketBuilder::reply(packet.header(), Status::RESOURCE_FULL);
                peer.send(refusal.string("JMQReason", "full"));
            } else {
                peer.answer(packet);
            }
        }
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let (_session, mut producer) = producer(&connection, AcknowledgeMode::Auto);
    producer.set_delivery_mode(DeliveryMode::NonPersistent);
    let (told, completed) = channel();
    let mut ids = Vec::new();
    for n in 0..5 {
        let told = told.clone();
        let done = move |result| told.send(result).unwrap();
        ids.push(producer.send_async(Message::text(format!("m{n}")), done).unwrap());
    }
    for (n, id) in ids.into_iter().enumerate() {
        match completed.recv_timeout(DEADLINE).unwrap() {
            Ok(message) => assert_eq!((text(&message), message.id()), (format!("m{n}"), Some(id))),
            Err(error) => {
                assert_eq!((n, error.is_retryable()), (3, true));
                assert_eq!(text(&error.into_inner()), "m3");
            }
        }
    }
    connection.close().unwrap();
    broker.join();
}

#[test]
fn a_send_without_a_reply_is_completed_after_the_time_limit_and_disturbs_no_other() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let sent = take_messages(peer, 1);
        let other = take_messages(peer, 1);
        peer.answer(&other[0]);
        // Late: nobody waits for it any more.
        peer.serve_until(PacketType::DELETE_PRODUCER);
        peer.answer(&sent[0]);
        peer.hang_up();
    });
    let mut factory = broker.factory();
    factory.completion_timeout(Some(Duration::from_millis(50)));
    let connection = factory.create_connection().unwrap();
    let (_session, producer) = producer(&connection, AcknowledgeMode::Auto);
    let (told, completed) = channel();
    for n in 0..2 {
        let told = told.clone();
        producer
            .send_async(Message::text(n.to_string()), move |result| told.send(result).unwrap())
            .unwrap();
        let result = completed.recv_timeout(DEADLINE).unwrap();
        if n == 0 {
            let error = result.unwrap_err();
            assert!(
                request_error(&error).to_string().contains("imqAsyncSendCompletionWaitTimeout"),
                "{error:?}"
            );
        } else {
            assert!(result.is_ok());
        }
    }
    drop(producer);
    drop(connection);
    broker.join();
}

#[test]
fn closing_waits_for_open_sends_and_their_completions_may_not_close() {
    let (closing, closes) = gate();
    let broker = Scripted::start(move |peer| {
        peer.login();
        let sent = take_messages(peer, 3);
        pass(&closes);
        // Long enough for the closer to wait by then; nothing it sends may come before.
        assert!(peer.packet_within(Duration::from_millis(50)).is_none());
        for packet in &sent {
            peer.answer(packet);
        }
        peer.serve_to_the_end();
        assert_eq!(peer.seen_of(PacketType::TEXT_MESSAGE).len(), 1, "sent by a completion");
    });
    let connection = broker.connect();
    let (session, producer) = producer(&connection, AcknowledgeMode::Auto);
    let other = session.create_producer(&queue("other")).unwrap();
    let (told, completed) = channel();
    let mut other = Some(other);
    for n in 0..3 {
        let told = told.clone();
        let (session, connection) = (session.clone(), connection.clone());
        let other = other.take();
        let done = move |_result| {
            let refused = |result: Result<(), SessionError>| {
                matches!(result, Err(SessionError::IllegalState(_)))
            };
            let sent = other.is_none_or(|other| other.send(Message::text("more")).is_err());
            told.send([refused(session.close()), refused(connection.close()), sent]).unwrap();
        };
        producer.send_async(Message::text(n.to_string()), done).unwrap();
    }
    drop(told);
    closing.send(()).unwrap();
    producer.close().unwrap();
    // All have returned by now.
    let results: Vec<_> = completed.try_iter().collect();
    assert_eq!(results, [[true, true, false], [true, true, true], [true, true, true]]);
    connection.close().unwrap();
    broker.join();
}

#[test]
fn every_open_send_is_completed_when_the_connection_is_lost() {
    let broker = Scripted::start(|peer| {
        peer.login();
        take_messages(peer, 100);
        peer.hang_up();
    });
    let connection = broker.connect();
    let (session, producer) = producer(&connection, AcknowledgeMode::Auto);
    let (told, completed) = channel();
    for n in 0..100 {
        let told = told.clone();
        producer
            .send_async(Message::text(n.to_string()), move |result| told.send(result).unwrap())
            .unwrap();
    }
    for n in 0..100 {
        let error = completed.recv_timeout(DEADLINE).unwrap().unwrap_err();
        let cause = request_error(&error);
        let lost = matches!(cause, RequestError::Connection(ConnectionError::EndOfStream));
        assert!(lost, "{cause:?}");
        assert_eq!(text(&error.into_inner()), n.to_string());
    }
    let refused = producer.send_async(Message::text("late"), |_result| unreachable!());
    assert_eq!(text(&refused.unwrap_err().into_inner()), "late");
    session.close().unwrap();
    broker.join();
}

#[test]
fn a_commit_waits_for_open_sends_and_a_completion_may_not_commit() {
    let broker = Scripted::start(|peer| {
        peer.login();
        let sent = take_messages(peer, 2);
        // A commit before the replies would be read here.
        assert!(peer.packet_within(Duration::from_millis(50)).is_none());
        for packet in &sent {
            assert_eq!(packet.variable().unwrap().transaction_id, Some(7));
            peer.answer(packet);
        }
        let commit = peer.expect(PacketType::COMMIT_TRANSACTION);
        peer.ok(&commit);
        peer.serve_to_the_end();
    });
    let connection = broker.connect();
    let (session, producer) = producer(&connection, AcknowledgeMode::Transacted);
    let (told, completed) = channel();
    for n in 0..2 {
        let (told, session) = (told.clone(), session.clone());
        let done = move |_result| {
            let refused = [session.commit(), session.rollback()]
                .iter()
                .all(|result| matches!(result, Err(SessionError::IllegalState(_))));
            told.send(refused).unwrap();
        };
        producer.send_async(Message::text(n.to_string()), done).unwrap();
    }
    session.commit().unwrap();
    assert_eq!(completed.try_iter().collect::<Vec<_>>(), [true, true]);
    connection.close().unwrap();
    broker.join();
}

#[test]
fn more_sends_than_may_be_open_wait_and_none_is_lost() {
    const SENDS: usize = 2500;
    let style = Style { producer_credit: Some(-1), ..Style::default() };
    let broker = Scripted::start_with(style, |peer| {
        peer.login();
        let mut open = Vec::new();
        let mut answered = 0;
        while answered < SENDS {
            let patience = Duration::from_millis(if open.is_empty() { 10_000 } else { 20 });
            match peer.packet_within(patience) {
                Some(packet) if packet.header().packet_type == PacketType::TEXT_MESSAGE => {
                    open.push(packet);
                    assert!(open.len() <= 1000, "{}", open.len());
                }
                Some(packet) => peer.answer(&packet),
                None => {
                    assert!(!open.is_empty(), "the client sends no more");
                    answered += open.len();
                    open.drain(..).for_each(|packet| peer.answer(&packet));
                }
            }
        }
        peer.serve_to_the_end();
    });
    let mut factory = broker.factory();
    factory.set_attribute("imqAckOnProduce", "false").unwrap();
    let connection = factory.create_connection().unwrap();
    let (_session, producer) = producer(&connection, AcknowledgeMode::Auto);
    let (told, completed) = channel();
    for n in 0..SENDS {
        let told = told.clone();
        producer
            .send_async(Message::text("x"), move |result| told.send((n, result.is_ok())).unwrap())
            .unwrap();
    }
    for n in 0..SENDS {
        assert_eq!(completed.recv_timeout(DEADLINE).unwrap(), (n, true));
    }
    connection.close().unwrap();
    broker.join();
}
