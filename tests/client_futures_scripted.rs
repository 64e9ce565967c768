//! The client's futures before a broker that answers late, badly, or not at all.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/executors.rs"]
mod executors;
#[path = "support/scripted.rs"]
mod scripted;

use std::time::Duration;

use executors::{ALL, join_all, within};
use futures_lite::future::{poll_once, zip};
use scripted::{DEADLINE, Peer, Scripted, Style, gate, int, pass, queue};
use tidegate::{
    client::{
        AcknowledgeError, AcknowledgeMode, Connection, ReceiveError, RequestError, SendCause,
        SendError, SessionError,
    },
    message::{DeliveryMode, Message},
    wire::{Flags, PacketBuilder, PacketType, Status},
};

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

fn request_error(error: &SendError) -> &RequestError {
    match error.cause() {
        SendCause::Request(cause) => cause,
        other => panic!("{other:?}"),
    }
}

fn resume(peer: &mut Peer, credit: i32) {
    let resume = PacketBuilder::new(PacketType::RESUME_FLOW)
        .long("JMQProducerID", peer.producers[0])
        .int("JMQSize", credit);
    peer.send(resume);
}

fn start(broker: &Scripted) -> Connection {
    let connection = broker.connect();
    connection.start().unwrap();
    connection
}

#[test]
fn a_refused_acknowledgement_is_told_to_the_next_receive() {
    for executor in ALL {
        let broker = Scripted::start(|peer| {
            peer.login();
            let added = peer.serve_until(PacketType::ADD_CONSUMER);
            peer.answer(&added);
            peer.deliver(peer.consumers[0], "one", Flags::PERSISTENT);
            let ack = peer.serve_until(PacketType::ACKNOWLEDGE);
            // Not before the first one's is answered.
            peer.deliver(peer.consumers[0], "two", Flags::PERSISTENT);
            assert!(peer.packet_within(Duration::from_millis(50)).is_none());
            peer.status(&ack, Status(404));
            let ack = peer.serve_until(PacketType::ACKNOWLEDGE);
            peer.ok(&ack);
            peer.serve_to_the_end();
        });
        let connection = start(&broker);
        executor.run(async move {
            let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            let consumer = session.create_consumer_future(&queue("q")).await.unwrap();
            assert_eq!(text(&consumer.receive_future().await.unwrap().unwrap()), "one");
            for _ in 0..10 {
                assert!(poll_once(consumer.receive_future()).await.is_none());
            }
            match consumer.receive_future().await {
                Err(ReceiveError::Acknowledge(AcknowledgeError::Request(error))) => {
                    assert_eq!(error.status(), Some(Status(404)));
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(text(&consumer.receive_future().await.unwrap().unwrap()), "two");
            connection.close_future().await.unwrap();
        });
        broker.join();
    }
}

#[test]
fn a_commit_waits_for_the_word_on_what_was_received_and_tells_a_refusal() {
    for executor in ALL {
        let broker = Scripted::start(|peer| {
            peer.login();
            let added = peer.serve_until(PacketType::ADD_CONSUMER);
            peer.answer(&added);
            peer.deliver(peer.consumers[0], "one", Flags::PERSISTENT);
            let ack = peer.serve_until(PacketType::ACKNOWLEDGE);
            assert!(peer.packet_within(Duration::from_millis(50)).is_none(), "no commit yet");
            peer.status(&ack, Status(500));
            // No commit at all: the application rolls back, which sends the message back.
            let redeliver = peer.serve_until(PacketType::REDELIVER);
            assert_eq!(scripted::blocks(&redeliver).len(), 1);
            peer.serve_until(PacketType::ROLLBACK_TRANSACTION);
            peer.serve_to_the_end();
            assert!(peer.seen_of(PacketType::COMMIT_TRANSACTION).is_empty());
        });
        let connection = start(&broker);
        executor.run(async move {
            let mode = AcknowledgeMode::Transacted;
            let session = connection.create_session_future(mode).await.unwrap();
            let consumer = session.create_consumer_future(&queue("q")).await.unwrap();
            assert_eq!(text(&consumer.receive_future().await.unwrap().unwrap()), "one");
            match session.commit_future().await {
                Err(SessionError::Request(error)) => assert_eq!(error.status(), Some(Status(500))),
                other => panic!("{other:?}"),
            }
            session.rollback_future().await.unwrap();
            connection.close_future().await.unwrap();
        });
        broker.join();
    }
}

#[test]
fn sends_wait_for_credit_one_after_the_other_and_give_it_back_when_dropped() {
    for executor in ALL {
        let (paused, may_resume) = gate();
        let style = Style { producer_credit: Some(2), ..Style::default() };
        let broker = Scripted::start_with(style, move |peer| {
            peer.login();
            for _ in 0..2 {
                peer.serve_until(PacketType::TEXT_MESSAGE);
            }
            pass(&may_resume);
            assert!(peer.packet_within(Duration::from_millis(20)).is_none(), "without credit");
            resume(peer, 3);
            for n in 0..3 {
                let sent = peer.serve_until(PacketType::TEXT_MESSAGE);
                assert_eq!(sent.header().flags.contains(Flags::CONSUMER_FLOW), n == 2);
            }
            peer.serve_to_the_end();
            assert!(peer.seen_of(PacketType::TEXT_MESSAGE).is_empty());
        });
        let connection = start(&broker);
        executor.run(async move {
            let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            let mut producer = session.create_producer_future(&queue("q")).await.unwrap();
            producer.set_delivery_mode(DeliveryMode::NonPersistent);
            for _ in 0..2 {
                producer.send_future(Message::text("within")).await.unwrap();
            }
            for _ in 0..200 {
                let sending = producer.send_future(Message::text("dropped"));
                assert!(within(Duration::from_micros(50), sending).await.is_none());
            }
            let waiting =
                join_all((0..3).map(|n| producer.send_future(Message::text(n.to_string()))));
            let begun = async { paused.send(()).unwrap() };
            let (sent, ()) = zip(waiting, begun).await;
            assert!(sent.iter().all(Result::is_ok));
            // One that waits when all is closed is told so, and has its message back.
            let (last, closed) =
                zip(producer.send_future(Message::text("last")), session.close_future()).await;
            closed.unwrap();
            let error = last.unwrap_err();
            assert!(matches!(request_error(&error), RequestError::Closed { .. }), "{error:?}");
            assert_eq!(text(&error.into_inner()), "last");
            connection.close_future().await.unwrap();
        });
        broker.join();
    }
}

#[test]
fn a_send_that_is_not_answered_times_out_and_frees_its_place() {
    // All there are on a connection.
    const PLACES: usize = 64;
    for executor in ALL {
        let broker = Scripted::start(|peer| {
            peer.login();
            let mut sent = 0;
            while let Some(packet) = peer.packet_within(DEADLINE) {
                match packet.header().packet_type {
                    PacketType::TEXT_MESSAGE => sent += 1,
                    _ => peer.answer(&packet),
                }
            }
            assert_eq!(sent, 3 * PLACES);
        });
        let mut factory = broker.factory();
        factory.set_attribute("imqAckTimeout", "400").unwrap();
        let connection = factory.create_connection().unwrap();
        executor.run(async move {
            let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            let producer = session.create_producer_future(&queue("q")).await.unwrap();
            for _ in 0..3 {
                let sending = (0..PLACES).map(|_| producer.send_future(Message::text("x")));
                for outcome in join_all(sending).await {
                    let error = outcome.unwrap_err();
                    let timed_out = matches!(request_error(&error), RequestError::TimedOut { .. });
                    assert!(timed_out, "{error:?}");
                }
            }
            connection.close_future().await.unwrap();
        });
        broker.join();
    }
}

#[test]
fn sends_wait_for_room_when_the_broker_does_not_read() {
    const MESSAGES: usize = 200;
    for executor in ALL {
        let (full, may_read) = gate();
        let broker = Scripted::start(move |peer| {
            peer.login();
            let last = peer.serve_until(PacketType::ADD_PRODUCER);
            peer.answer(&last);
            pass(&may_read);
            for n in 0..MESSAGES {
                let sent = peer.serve_until(PacketType::BYTES_MESSAGE);
                assert_eq!(int(&sent, "n"), i32::try_from(n).ok());
            }
            peer.serve_to_the_end();
        });
        let connection = start(&broker);
        executor.run(async move {
            let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            let mut producer = session.create_producer_future(&queue("q")).await.unwrap();
            producer.set_delivery_mode(DeliveryMode::NonPersistent);
            let body = vec![7; 200_000];
            let mut waited = 0;
            for n in 0..MESSAGES {
                let mut message = Message::bytes(body.clone());
                message.set_property("n", i32::try_from(n).unwrap()).unwrap();
                let mut sending = std::pin::pin!(producer.send_future(message));
                match poll_once(sending.as_mut()).await {
                    Some(sent) => drop(sent.unwrap()),
                    None => {
                        if waited == 0 {
                            full.send(()).unwrap();
                        }
                        waited += 1;
                        within(DEADLINE, sending).await.unwrap().unwrap();
                    }
                }
            }
            assert!(waited > 0, "there was room for all");
            connection.close_future().await.unwrap();
        });
        broker.join();
    }
}

#[test]
fn a_lost_connection_ends_every_future_with_its_reason() {
    for executor in ALL {
        let broker = Scripted::start(|peer| {
            peer.login();
            peer.serve_until(PacketType::TEXT_MESSAGE);
            peer.hang_up();
        });
        let connection = start(&broker);
        executor.run(async move {
            let session = connection.create_session_future(AcknowledgeMode::Auto).await.unwrap();
            let consumer = session.create_consumer_future(&queue("q")).await.unwrap();
            let producer = session.create_producer_future(&queue("q")).await.unwrap();
            let mut messages = consumer.messages();
            let streaming = async {
                use futures_lite::StreamExt as _;
                let first = messages.next().await.unwrap();
                assert!(matches!(first, Err(ReceiveError::Connection(_))), "{first:?}");
                assert!(messages.next().await.is_none(), "it has ended");
            };
            let receiving = join_all((0..30).map(|_| consumer.receive_future()));
            let sending = producer.send_future(Message::text("x"));
            let ((received, sent), ()) = zip(zip(receiving, sending), streaming).await;
            assert!(received.iter().all(|got| matches!(got, Err(ReceiveError::Connection(_)))));
            let error = sent.unwrap_err();
            assert!(matches!(request_error(&error), RequestError::Connection(_)), "{error:?}");
            connection.close_future().await.unwrap();
        });
        broker.join();
    }
}
