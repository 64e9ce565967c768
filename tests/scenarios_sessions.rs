//! Scenarios, each against a broker over real sockets: how sessions acknowledge, recover, commit,
//! roll back and end. See `support/scenario.rs` for which broker.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scenario.rs"]
mod scenario;

use std::{sync::mpsc::channel, time::Duration};

use scenario::{
    DEADLINE, Stage, next, nothing, numbered, pass_time, queue, send, session, text, texts, topic,
    wait_until,
};
use tidegate::{
    client::{
        AcknowledgeError, AcknowledgeMode, AttemptError, ConnectError, Connection, Consumer,
        ReceiveError, Session, XaCommit, XaEnd, XaError, XaStart, XaVote, Xid,
    },
    message::{DeliveryMode, Destination, Message},
};

const AUTO: AcknowledgeMode = AcknowledgeMode::Auto;
const CLIENT: AcknowledgeMode = AcknowledgeMode::Client;
const TRANSACTED: AcknowledgeMode = AcknowledgeMode::Transacted;
const PERSISTENT: DeliveryMode = DeliveryMode::Persistent;
const NON_PERSISTENT: DeliveryMode = DeliveryMode::NonPersistent;

/// Nothing is left in a queue, as a new connection sees it.
#[track_caller]
fn is_empty(stage: &Stage, queue: &Destination) {
    let connection = stage.connect();
    let consumer = session(&connection, AUTO).create_consumer(queue).unwrap();
    connection.start().unwrap();
    nothing(&consumer);
    connection.close().unwrap();
}

/// Text and how often it was delivered, which must fit the flag.
fn seen(message: &Message) -> (String, i32) {
    let count = message.delivery_count().unwrap();
    assert_eq!(message.is_redelivered(), count > 1, "{message:?}");
    (text(message), count)
}

#[test]
fn a_listener_gets_all_messages_in_order() {
    let stage = Stage::new();
    for (name, mode, count, delivery) in [
        ("cap.q.listener", AUTO, 10, PERSISTENT),
        ("cap.q.dups", AcknowledgeMode::DupsOk, 30, NON_PERSISTENT),
    ] {
        let connection = stage.connect();
        let (sending, receiving) = (session(&connection, AUTO), session(&connection, mode));
        let consumer = receiving.create_consumer(&queue(name)).unwrap();
        let (told, got) = channel();
        consumer.set_listener(move |message| told.send(text(&message)).unwrap()).unwrap();
        connection.start().unwrap();
        send(&sending, &queue(name), 0..count, delivery);
        for wanted in numbered(0..count) {
            assert_eq!(got.recv_timeout(DEADLINE).unwrap(), wanted);
        }
        connection.close().unwrap();
        is_empty(&stage, &queue(name));
    }
}

#[test]
fn a_client_session_acknowledges_all_so_far() {
    let stage = Stage::new();
    let connection = stage.connect();
    let (sending, receiving) = (session(&connection, AUTO), session(&connection, CLIENT));
    let queue = queue("cap.q.client");
    send(&sending, &queue, 0..6, PERSISTENT);
    let consumer = receiving.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    for part in [0..3, 3..6] {
        assert_eq!(texts(&consumer, 3), numbered(part));
        receiving.acknowledge().unwrap();
    }
    connection.close().unwrap();
    is_empty(&stage, &queue);
}

#[test]
fn a_session_without_acknowledgement_leaves_nothing_behind() {
    let stage = Stage::new();
    let connection = stage.connect();
    let sending = session(&connection, AUTO);
    let receiving = session(&connection, AcknowledgeMode::NoAcknowledge);
    let queue = queue("cap.q.noack");
    send(&sending, &queue, 0..3, NON_PERSISTENT);
    let consumer = receiving.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(texts(&consumer, 3), numbered(0..3));
    connection.close().unwrap();
    is_empty(&stage, &queue);
}

#[test]
fn one_message_is_acknowledged_and_the_others_come_again() {
    let stage = Stage::new();
    let connection = stage.connect();
    let (sending, receiving) = (session(&connection, AUTO), session(&connection, CLIENT));
    let queue = queue("cap.q.single");
    send(&sending, &queue, 0..3, PERSISTENT);
    let consumer = receiving.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    let messages = [next(&consumer), next(&consumer), next(&consumer)];
    receiving.acknowledge_message(&messages[1]).unwrap();
    consumer.close().unwrap();
    receiving.close().unwrap();
    let consumer = session(&connection, AUTO).create_consumer(&queue).unwrap();
    assert_eq!(seen(&next(&consumer)), ("m0".to_owned(), 2));
    assert_eq!(seen(&next(&consumer)), ("m2".to_owned(), 2));
    nothing(&consumer);
    connection.close().unwrap();
}

#[test]
fn everything_up_to_one_message_is_acknowledged_and_the_rest_comes_again() {
    let stage = Stage::new();
    let connection = stage.connect();
    let queue = queue("cap.q.ack.upto");
    send(&session(&connection, AUTO), &queue, 0..5, PERSISTENT);
    let session = session(&connection, CLIENT);
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    let messages: Vec<_> = (0..5).map(|_| next(&consumer)).collect();
    session.acknowledge_message(&messages[1]).unwrap();
    session.acknowledge_up_to(&messages[2]).unwrap();
    let again = session.acknowledge_up_to(&messages[2]);
    assert!(matches!(again, Err(AcknowledgeError::UnknownMessage)), "{again:?}");
    session.recover().unwrap();
    for n in [3, 4] {
        assert_eq!(seen(&next(&consumer)), (format!("m{n}"), 2));
    }
    nothing(&consumer);
    connection.close().unwrap();
}

#[test]
fn recover_brings_back_what_was_not_acknowledged() {
    let stage = Stage::new();
    let connection = stage.connect();
    let (sending, receiving) = (session(&connection, AUTO), session(&connection, CLIENT));
    let queue = queue("cap.q.recover");
    send(&sending, &queue, 0..3, PERSISTENT);
    let consumer = receiving.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    next(&consumer);
    receiving.acknowledge().unwrap();
    texts(&consumer, 2);
    receiving.recover().unwrap();
    assert_eq!(seen(&next(&consumer)), ("m1".to_owned(), 2));
    assert_eq!(seen(&next(&consumer)), ("m2".to_owned(), 2));
    receiving.acknowledge().unwrap();
    nothing(&consumer);
    connection.close().unwrap();
    is_empty(&stage, &queue);
}

#[test]
fn a_listener_that_fails_once_gets_the_message_again() {
    let stage = Stage::new();
    let mut factory = stage.factory();
    factory.redelivery(1, Duration::from_millis(20));
    let connection = stage.open(&factory).unwrap();
    let (sending, receiving) = (session(&connection, AUTO), session(&connection, AUTO));
    let queue = queue("cap.q.throws");
    let consumer = receiving.create_consumer(&queue).unwrap();
    let (told, calls) = channel();
    let mut first = true;
    consumer
        .set_listener(move |message| {
            told.send(text(&message)).unwrap();
            assert!(!std::mem::take(&mut first), "on purpose");
        })
        .unwrap();
    connection.start().unwrap();
    send(&sending, &queue, 0..2, PERSISTENT);
    let got: Vec<_> = (0..3).map(|_| calls.recv_timeout(DEADLINE).unwrap()).collect();
    assert_eq!(got, ["m0", "m0", "m1"]);
    connection.close().unwrap();
    is_empty(&stage, &queue);
}

#[test]
fn a_listener_that_fails_always_gives_the_message_back() {
    let stage = Stage::new();
    let mut factory = stage.factory();
    factory.redelivery(1, Duration::from_millis(5));
    let connection = stage.open(&factory).unwrap();
    let (sending, failing) = (session(&connection, AUTO), session(&connection, AUTO));
    let queue = queue("cap.q.fails");
    let consumer = failing.create_consumer(&queue).unwrap();
    let (told, calls) = channel();
    consumer
        .set_listener(move |_message| {
            told.send(()).unwrap();
            panic!("on purpose");
        })
        .unwrap();
    connection.start().unwrap();
    send(&sending, &queue, 0..1, PERSISTENT);
    // Twice here, then it is put back, and comes to whoever wants it.
    for _ in 0..2 {
        calls.recv_timeout(DEADLINE).unwrap();
    }
    consumer.close().unwrap();
    let other = session(&connection, AUTO).create_consumer(&queue).unwrap();
    assert_eq!(text(&next(&other)), "m0");
    connection.close().unwrap();
}

// ---- transactions ----

#[test]
fn what_a_transaction_sends_is_there_when_it_is_committed() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, TRANSACTED);
    let queue = queue("cap.q.tx");
    send(&session, &queue, 0..3, PERSISTENT);
    session.commit().unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(texts(&consumer, 3), numbered(0..3));
    session.commit().unwrap();
    nothing(&consumer);
    connection.close().unwrap();
    is_empty(&stage, &queue);
}

#[test]
fn a_rollback_takes_back_what_was_sent_and_brings_back_what_was_received() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, TRANSACTED);
    let queue = queue("cap.q.txrb");
    let producer = session.create_producer(&queue).unwrap();
    producer.send(Message::text("gone")).unwrap();
    session.rollback().unwrap();
    for name in numbered(0..2) {
        producer.send(Message::text(name)).unwrap();
    }
    session.commit().unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    for times in 1..=2 {
        for wanted in numbered(0..2) {
            let message = next(&consumer);
            assert_eq!(seen(&message), (wanted, times));
            let property = message.property_as::<i32>("JMSXDeliveryCount").unwrap();
            assert_eq!(property, Some(times));
        }
        if times == 1 { session.rollback().unwrap() } else { session.commit().unwrap() }
    }
    nothing(&consumer);
    connection.close().unwrap();
    is_empty(&stage, &queue);
}

#[test]
fn a_topics_consumers_get_a_message_when_it_is_committed() {
    let stage = Stage::new();
    let connection = stage.connect();
    let publishing = session(&connection, TRANSACTED);
    let transacted = session(&connection, TRANSACTED);
    let automatic = session(&connection, AUTO);
    let topic = topic("cap.t.tx");
    let a = transacted.create_consumer(&topic).unwrap();
    let b = automatic.create_consumer(&topic).unwrap();
    connection.start().unwrap();
    publishing.create_producer(&topic).unwrap().send(Message::text("m0")).unwrap();
    nothing(&b);
    publishing.commit().unwrap();
    assert_eq!(text(&next(&b)), "m0");
    assert_eq!(text(&next(&a)), "m0");
    transacted.commit().unwrap();
    connection.close().unwrap();
}

/// Ten messages sent, five received and committed, in a session with a window of ten.
fn ten_of_which_five_are_done(stage: &Stage, name: &str) -> (Connection, Session, Consumer) {
    let connection = stage.connect_with(&[("imqConsumerFlowLimit", "10")]);
    send(&session(&connection, AUTO), &queue(name), 1..11, PERSISTENT);
    let session = session(&connection, TRANSACTED);
    let consumer = session.create_consumer(&queue(name)).unwrap();
    connection.start().unwrap();
    assert_eq!(texts(&consumer, 5), numbered(1..6));
    session.commit().unwrap();
    (connection, session, consumer)
}

#[test]
fn a_rollback_counts_only_what_was_seen_and_keeps_the_order() {
    let stage = Stage::new();
    for (name, rollbacks) in [("cap.q.rollback.once", 1), ("cap.q.rollback.often", 10)] {
        let (connection, session, consumer) = ten_of_which_five_are_done(&stage, name);
        for times in 1..=rollbacks {
            assert_eq!(seen(&next(&consumer)), ("m6".to_owned(), times));
            assert_eq!(seen(&next(&consumer)), ("m7".to_owned(), times));
            session.rollback().unwrap();
        }
        for (n, count) in [(6, rollbacks + 1), (7, rollbacks + 1), (8, 1), (9, 1), (10, 1)] {
            assert_eq!(seen(&next(&consumer)), (format!("m{n}"), count));
        }
        session.commit().unwrap();
        connection.close().unwrap();
        is_empty(&stage, &queue(name));
    }
}

#[test]
fn after_recover_and_rollback_a_window_is_neither_lost_nor_doubled() {
    let stage = Stage::new();
    for mode in [CLIENT, TRANSACTED] {
        let name = format!("cap.q.window.{mode:?}");
        let queue = queue(&name);
        let connection = stage.connect_with(&[("imqConsumerFlowLimit", "4")]);
        send(&session(&connection, AUTO), &queue, 0..100, NON_PERSISTENT);
        let session = session(&connection, mode);
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        for n in (0..100).step_by(2) {
            for again in [n < 50, false] {
                for wanted in numbered(n..n + 2) {
                    assert_eq!(text(&next(&consumer)), wanted);
                    assert!(consumer.buffered() <= 4, "{}", consumer.buffered());
                }
                match (mode, again) {
                    (CLIENT, true) => session.recover().unwrap(),
                    (CLIENT, false) => session.acknowledge().unwrap(),
                    (_, true) => session.rollback().unwrap(),
                    (_, false) => session.commit().unwrap(),
                }
                if !again {
                    break;
                }
            }
        }
        nothing(&consumer);
        connection.close().unwrap();
        is_empty(&stage, &queue);
    }
}

#[test]
fn a_consumer_that_is_closed_while_paused_leaves_its_window_to_the_next_one() {
    let stage = Stage::new();
    for mode in [CLIENT, TRANSACTED] {
        let queue = queue(&format!("cap.q.window.closed.{mode:?}"));
        let connection = stage.connect_with(&[("imqConsumerFlowLimit", "4")]);
        send(&session(&connection, AUTO), &queue, 0..100, NON_PERSISTENT);
        let session = session(&connection, mode);
        connection.start().unwrap();
        for n in (0..100).step_by(2) {
            let consumer = session.create_consumer(&queue).unwrap();
            // Two are taken, two more wait, so the broker has paused it.
            assert_eq!(texts(&consumer, 2), numbered(n..n + 2));
            wait_until("it is paused", || consumer.buffered() >= 2.min(98 - n));
            match mode {
                CLIENT => session.acknowledge().unwrap(),
                _ => session.commit().unwrap(),
            }
            consumer.close().unwrap();
        }
        connection.close().unwrap();
        is_empty(&stage, &queue);
    }
}

#[test]
fn a_listener_commits_and_rolls_back_its_own_messages() {
    let stage = Stage::new();
    let connection = stage.connect();
    let queue = queue("cap.q.tx.listener");
    send(&session(&connection, AUTO), &queue, 0..3, PERSISTENT);
    let session = session(&connection, TRANSACTED);
    let consumer = session.create_consumer(&queue).unwrap();
    let (told, calls) = channel();
    consumer
        .set_listener(move |message| {
            let outcome =
                if message.is_redelivered() { session.commit() } else { session.rollback() };
            told.send((seen(&message), outcome.is_ok())).unwrap();
        })
        .unwrap();
    connection.start().unwrap();
    for wanted in numbered(0..3) {
        for times in 1..=2 {
            let call = calls.recv_timeout(DEADLINE).unwrap();
            assert_eq!(call, ((wanted.clone(), times), true));
        }
    }
    connection.close().unwrap();
    is_empty(&stage, &queue);
}

#[test]
fn closing_sessions_rolls_back_and_gives_back() {
    let stage = Stage::new();
    let connection = stage.connect();
    let automatic = session(&connection, AUTO);
    let transacted = session(&connection, TRANSACTED);
    let client = session(&connection, CLIENT);
    let queue = queue("cap.q.sessclose");
    let producer = automatic.create_producer(&queue).unwrap();
    let consumer = client.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    producer.send(Message::text("m0")).unwrap();
    next(&consumer);
    producer.close().unwrap();
    transacted.create_producer(&queue).unwrap().send(Message::text("uncommitted")).unwrap();
    transacted.close().unwrap();
    client.close().unwrap();
    let again = automatic.create_consumer(&queue).unwrap();
    assert_eq!(seen(&next(&again)), ("m0".to_owned(), 2));
    nothing(&again);
    again.close().unwrap();
    automatic.close().unwrap();
    connection.close().unwrap();
}

#[test]
fn dropping_everything_rolls_an_open_transaction_back() {
    let stage = Stage::new();
    let queue = queue("cap.q.txdrop");
    {
        let connection = stage.connect();
        send(&session(&connection, AUTO), &queue, 0..1, PERSISTENT);
        let session = session(&connection, TRANSACTED);
        let consumer = session.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        assert_eq!(text(&next(&consumer)), "m0");
        send(&session, &queue, 1..2, PERSISTENT);
    }
    let connection = stage.connect();
    let consumer = session(&connection, AUTO).create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(seen(&next(&consumer)), ("m0".to_owned(), 2));
    nothing(&consumer);
    connection.close().unwrap();
}

#[test]
fn distributed_transactions_commit_and_roll_back() {
    let stage = Stage::new();
    let xid = |n: u8| Xid::new(4660, &[b'g', b't', b'x', n], &[b'b', b'q', n]).unwrap();
    let connection = stage.connect();
    let xa = connection.create_xa_session().unwrap();
    let (session, resource) = (xa.session(), xa.resource());
    let queue = queue("cap.q.xa");
    let producer = session.create_producer(&queue).unwrap();
    connection.start().unwrap();
    // Two phases, found by a scan between them.
    resource.start(&xid(1), XaStart::New).unwrap();
    producer.send(Message::text("m0")).unwrap();
    resource.end(&xid(1), XaEnd::Success).unwrap();
    assert_eq!(resource.prepare(&xid(1)).unwrap(), XaVote::Ready);
    assert!(resource.recover().unwrap().contains(&xid(1)));
    resource.commit(&xid(1), XaCommit::Prepared).unwrap();
    assert!(!resource.recover().unwrap().contains(&xid(1)));
    // One phase.
    resource.start(&xid(2), XaStart::New).unwrap();
    producer.send(Message::text("m1")).unwrap();
    resource.end(&xid(2), XaEnd::Success).unwrap();
    resource.commit(&xid(2), XaCommit::OnePhase).unwrap();
    // Received and rolled back, then received and committed.
    let consumer = session.create_consumer(&queue).unwrap();
    resource.start(&xid(3), XaStart::New).unwrap();
    assert_eq!(seen(&next(&consumer)), ("m0".to_owned(), 1));
    resource.end(&xid(3), XaEnd::Success).unwrap();
    resource.rollback(&xid(3)).unwrap();
    resource.start(&xid(4), XaStart::New).unwrap();
    assert_eq!(seen(&next(&consumer)), ("m0".to_owned(), 2));
    assert_eq!(seen(&next(&consumer)), ("m1".to_owned(), 1));
    resource.end(&xid(4), XaEnd::Success).unwrap();
    assert_eq!(resource.prepare(&xid(4)).unwrap(), XaVote::Ready);
    resource.commit(&xid(4), XaCommit::Prepared).unwrap();
    // Failed work can only be rolled back.
    resource.start(&xid(5), XaStart::New).unwrap();
    producer.send(Message::text("never")).unwrap();
    resource.end(&xid(5), XaEnd::Fail).unwrap();
    resource.rollback(&xid(5)).unwrap();
    let gone = resource.prepare(&xid(5));
    let told = matches!(gone, Err(XaError::UnknownBranch { .. } | XaError::Protocol { .. }));
    assert!(told, "{gone:?}");
    nothing(&consumer);
    connection.close().unwrap();
    is_empty(&stage, &queue);
}

#[test]
fn what_a_listener_gets_belongs_to_the_branch_that_was_active_then() {
    let stage = Stage::new();
    let queue = queue("cap.q.xa.listener");
    let xid = Xid::new(4660, b"listener", b"1").unwrap();
    let connection = stage.connect();
    let xa = connection.create_xa_session().unwrap();
    let resource = xa.resource();
    let consumer = xa.session().create_consumer(&queue).unwrap();
    let (told, calls) = channel();
    resource.start(&xid, XaStart::New).unwrap();
    consumer
        .set_listener({
            let resource = resource.clone();
            move |message| {
                // The first ends the branch that it came in, and so the next comes in none.
                let ended = (text(&message) == "m0").then(|| resource.end(&xid, XaEnd::Success));
                told.send((seen(&message), ended.is_none_or(|ended| ended.is_ok()))).unwrap();
            }
        })
        .unwrap();
    connection.start().unwrap();
    send(&session(&connection, AUTO), &queue, 0..2, PERSISTENT);
    for name in numbered(0..2) {
        assert_eq!(calls.recv_timeout(DEADLINE).unwrap(), ((name, 1), true));
    }
    consumer.close().unwrap();
    resource.rollback(&xid).unwrap();
    connection.close().unwrap();
    let connection = stage.connect();
    let consumer = session(&connection, AUTO).create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(text(&next(&consumer)), "m0");
    nothing(&consumer);
    connection.close().unwrap();
}

#[test]
fn a_prepared_branch_outlives_its_connection_and_is_settled_by_another() {
    let stage = Stage::new();
    let queue = queue("cap.q.xa.lost");
    let branch = |n: u8| Xid::new(4660, b"outlives", &[n]).unwrap();
    let (connection, relay) = stage.connect_through_relay();
    send(&session(&connection, AUTO), &queue, 0..2, PERSISTENT);
    let xa = connection.create_xa_session().unwrap();
    let resource = xa.resource();
    let consumer = xa.session().create_consumer(&queue).unwrap();
    connection.start().unwrap();
    for n in 0..2 {
        resource.start(&branch(n), XaStart::New).unwrap();
        assert_eq!(text(&next(&consumer)), format!("m{n}"));
        resource.end(&branch(n), XaEnd::Success).unwrap();
        assert_eq!(resource.prepare(&branch(n)).unwrap(), XaVote::Ready);
    }
    relay.cut();
    wait_until("the cut is noticed", || connection.lost().is_some());
    let connection = stage.connect();
    let xa = connection.create_xa_session().unwrap();
    let resource = xa.resource();
    let prepared = resource.recover().unwrap();
    assert!(prepared.contains(&branch(0)) && prepared.contains(&branch(1)), "{prepared:?}");
    resource.commit(&branch(0), XaCommit::Prepared).unwrap();
    let consumer = xa.session().create_consumer(&queue).unwrap();
    connection.start().unwrap();
    nothing(&consumer);
    resource.rollback(&branch(1)).unwrap();
    assert_eq!(text(&next(&consumer)), "m1");
    nothing(&consumer);
    connection.close().unwrap();
}

// ---- lost connections ----

#[test]
fn after_a_cut_everything_unacknowledged_comes_again_in_order() {
    let stage = Stage::new();
    let queue = queue("cap.q.lost");
    let (connection, relay) = stage.connect_through_relay();
    send(&session(&connection, AUTO), &queue, 0..4, PERSISTENT);
    let client = session(&connection, CLIENT);
    let consumer = client.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    next(&consumer);
    client.acknowledge().unwrap();
    texts(&consumer, 2);
    relay.cut();
    let error = consumer.receive_timeout(DEADLINE);
    // The fourth may have been in the buffer; what follows is the end.
    let error = error.and_then(|_fourth| consumer.receive_timeout(DEADLINE)).unwrap_err();
    assert!(matches!(error, ReceiveError::Connection(_)), "{error:?}");
    let connection = stage.connect();
    let other = session(&connection, AUTO).create_consumer(&queue).unwrap();
    connection.start().unwrap();
    for n in 1..4 {
        let message = next(&other);
        assert_eq!(text(&message), format!("m{n}"));
        assert!(n == 3 || message.is_redelivered(), "m{n}");
    }
    nothing(&other);
    connection.close().unwrap();
}

#[test]
fn a_cut_rolls_an_open_transaction_back_in_order() {
    let stage = Stage::new();
    let queue = queue("cap.q.lost.tx");
    let (connection, relay) = stage.connect_through_relay();
    send(&session(&connection, AUTO), &queue, 1..6, PERSISTENT);
    let transacted = session(&connection, TRANSACTED);
    let consumer = transacted.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(text(&next(&consumer)), "m1");
    send(&transacted, &queue, 6..7, PERSISTENT);
    relay.cut();
    wait_until("the cut is noticed", || connection.lost().is_some());
    let connection = stage.connect();
    let other = session(&connection, AUTO).create_consumer(&queue).unwrap();
    connection.start().unwrap();
    let messages: Vec<_> = (1..6).map(|_| next(&other)).collect();
    let order: Vec<_> = messages.iter().map(text).collect();
    assert_eq!(order, numbered(1..6));
    assert_eq!(seen(&messages[0]).1, 2);
    nothing(&other);
    connection.close().unwrap();
}

#[test]
fn nobody_listens_where_nobody_is() {
    let mut stage = Stage::new();
    if stage.embedded().is_none() {
        return;
    }
    let factory = stage.factory();
    stage.end();
    let error = factory.create_connection().unwrap_err();
    let ConnectError::Unreachable { last: AttemptError::Connect { .. }, .. } = error else {
        panic!("{error:?}")
    };
}

/// A slow listener sends with another session's producer and commits, while somebody closes.
fn close_during_a_listener(stage: &Stage, name: &str, close: fn(&Connection, &Session)) {
    let connection = stage.connect();
    let (asked, done) = (queue(name), queue(&format!("{name}.done")));
    send(&session(&connection, AUTO), &asked, 0..1, PERSISTENT);
    let transacted = session(&connection, TRANSACTED);
    let producer = transacted.create_producer(&done).unwrap();
    let consumer = transacted.create_consumer(&asked).unwrap();
    let (running, runs) = channel();
    let (told, outcome) = channel();
    consumer
        .set_listener({
            let transacted = transacted.clone();
            move |_message| {
                running.send(()).unwrap();
                pass_time(Duration::from_millis(200));
                producer.send(Message::text("done")).unwrap();
                told.send(transacted.commit().is_ok()).unwrap();
            }
        })
        .unwrap();
    connection.start().unwrap();
    runs.recv_timeout(DEADLINE).unwrap();
    close(&connection, &transacted);
    // The listener had returned before the close did.
    assert!(outcome.try_recv().unwrap());
    connection.close().unwrap();
    is_empty(stage, &asked);
    let connection = stage.connect();
    let consumer = session(&connection, AUTO).create_consumer(&done).unwrap();
    connection.start().unwrap();
    assert_eq!(text(&next(&consumer)), "done");
    connection.close().unwrap();
}

#[test]
fn a_slow_listener_is_waited_for_and_its_work_counts_whoever_closes() {
    let stage = Stage::new();
    close_during_a_listener(&stage, "cap.q.slow.session", |_, session| session.close().unwrap());
    close_during_a_listener(&stage, "cap.q.slow.all", |connection, _| connection.close().unwrap());
}

#[test]
fn a_listener_uses_another_session_until_it_returns_although_the_connection_closes() {
    let stage = Stage::new();
    let connection = stage.connect();
    let (asked, done) = (queue("cap.q.other"), queue("cap.q.other.done"));
    // Made first, so that it is closed first.
    let other = session(&connection, AUTO);
    let producer = other.create_producer(&done).unwrap();
    send(&other, &asked, 0..1, PERSISTENT);
    let consumer = session(&connection, AUTO).create_consumer(&asked).unwrap();
    let (running, runs) = channel();
    consumer
        .set_listener(move |_message| {
            running.send(()).unwrap();
            pass_time(Duration::from_millis(200));
            producer.send(Message::text("done")).unwrap();
        })
        .unwrap();
    connection.start().unwrap();
    runs.recv_timeout(DEADLINE).unwrap();
    connection.close().unwrap();
    let connection = stage.connect();
    let consumer = session(&connection, AUTO).create_consumer(&done).unwrap();
    connection.start().unwrap();
    assert_eq!(text(&next(&consumer)), "done");
    connection.close().unwrap();
    is_empty(&stage, &asked);
}
