//! Connection consumers: one destination, many sessions.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scenario.rs"]
mod scenario;
#[path = "support/scripted.rs"]
mod scripted;
mod support;

use std::{
    collections::HashSet,
    sync::mpsc::{Receiver, Sender, channel},
};

use scenario::{
    DEADLINE, Stage, next, nothing, numbered, queue, send, session, text, texts, topic,
};
use scripted::Scripted;
use support::proxy::Proxy;
use tidegate::{
    client::{
        AcknowledgeMode, Connection, ConnectionConsumer, ConnectionFactory, ConsumerOptions, Load,
        ServerSession, ServerSessionPool, ServerSessions, Session, SessionError, XaCommit, XaEnd,
        XaStart, Xid,
    },
    message::{DeliveryMode, Destination, Message},
    wire::PacketType,
};

const PERSISTENT: DeliveryMode = DeliveryMode::Persistent;

/// What a handler saw: the number of its session, the message's text, how often it was delivered.
type Seen = (usize, String, Option<i32>);

fn seen(number: usize, message: &Message) -> Seen {
    (number, text(message), message.delivery_count())
}

fn plain() -> ConsumerOptions {
    ConsumerOptions::new()
}

/// A pool whose handlers tell what they see.
fn telling(
    connection: &Connection,
    mode: AcknowledgeMode,
    count: usize,
) -> (ServerSessions, Receiver<Seen>) {
    let (tell, told) = channel();
    let mut number = 0;
    let pool = ServerSessions::start(connection, mode, count, |_session| {
        let tell = tell.clone();
        number += 1;
        let own = number;
        Ok(move |message: Message| tell.send(seen(own, &message)).unwrap())
    });
    (pool.unwrap(), told)
}

/// A pool of one session, whose handler tells what it sees and waits for leave to go on.
fn waiting(connection: &Connection, mode: AcknowledgeMode) -> (ServerSessions, Waiting) {
    let (tell, told) = channel();
    let (leave, left) = channel();
    let mut left = Some(left);
    let pool = ServerSessions::start(connection, mode, 1, |_session| {
        let (tell, left) = (tell.clone(), left.take().unwrap());
        Ok(move |message: Message| {
            tell.send(seen(1, &message)).unwrap();
            // Nobody gives leave any more: the test is over.
            let _leave = left.recv();
        })
    });
    (pool.unwrap(), Waiting { told, leave })
}

struct Waiting {
    told: Receiver<Seen>,
    leave: Sender<()>,
}

#[track_caller]
fn tell(told: &Receiver<Seen>) -> Seen {
    told.recv_timeout(DEADLINE).expect("a message comes in time")
}

/// The queue is empty, for a consumer that comes now.
fn is_empty(connection: &Connection, queue: &Destination) {
    let session = session(connection, AcknowledgeMode::Auto);
    nothing(&session.create_consumer(queue).unwrap());
    session.close().unwrap();
}

#[test]
fn each_message_is_handled_once_whatever_the_mode_of_the_sessions() {
    let stage = Stage::new();
    for (n, mode) in [
        AcknowledgeMode::Auto,
        AcknowledgeMode::DupsOk,
        AcknowledgeMode::NoAcknowledge,
        AcknowledgeMode::Auto,
    ]
    .into_iter()
    .enumerate()
    {
        let to = queue(&format!("cc.once{n}"));
        let connection = stage.connect_with(&[("imqConsumerFlowLimit", "20")]);
        let (pool, told) = telling(&connection, mode, 3);
        let consumer = connection.create_connection_consumer(&to, &plain(), pool, 7).unwrap();
        connection.start().unwrap();
        send(
            &session(&connection, AcknowledgeMode::Auto),
            &to,
            0..200,
            DeliveryMode::NonPersistent,
        );
        let all: Vec<_> = (0..200).map(|_| tell(&told)).collect();
        let different: HashSet<_> = all.iter().map(|(_, text, _)| text.clone()).collect();
        assert_eq!(different, numbered(0..200).into_iter().collect());
        // What one session gets is in order, as there is one consumer.
        for number in 1..=3 {
            let own = all.iter().filter(|(session, ..)| *session == number);
            let own: Vec<usize> = own.map(|(_, text, _)| text[1..].parse().unwrap()).collect();
            assert!(own.is_sorted(), "{own:?}");
        }
        consumer.close().unwrap();
        is_empty(&connection, &to);
        connection.close().unwrap();
    }
}

#[test]
fn sessions_work_at_the_same_time() {
    let stage = Stage::new();
    let connection = stage.connect();
    let (tell, told) = channel();
    // Each handler waits for the other to come.
    let meeting = std::sync::Arc::new(std::sync::Barrier::new(2));
    let pool = ServerSessions::start(&connection, AcknowledgeMode::Auto, 2, |_session| {
        let (tell, meeting) = (tell.clone(), meeting.clone());
        Ok(move |message: Message| {
            meeting.wait();
            tell.send(text(&message)).unwrap();
        })
    });
    let to = queue("cc.meeting");
    let _consumer = connection.create_connection_consumer(&to, &plain(), pool.unwrap(), 1).unwrap();
    connection.start().unwrap();
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..10, PERSISTENT);
    let mut all: Vec<_> = (0..10).map(|_| told.recv_timeout(DEADLINE).unwrap()).collect();
    all.sort();
    assert_eq!(all, numbered(0..10));
    connection.close().unwrap();
}

#[test]
fn without_prefetch_one_message_is_asked_for_at_a_time() {
    let stage = Stage::new();
    let connection = stage.connect_with(&[("imqConsumerFlowLimitPrefetch", "false")]);
    let (pool, told) = telling(&connection, AcknowledgeMode::Auto, 2);
    let to = queue("cc.lazy");
    let consumer = connection.create_connection_consumer(&to, &plain(), pool, 5).unwrap();
    connection.start().unwrap();
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..50, PERSISTENT);
    let mut all: Vec<_> = (0..50).map(|_| tell(&told).1).collect();
    all.sort_by_key(|text| text[1..].parse::<usize>().unwrap());
    assert_eq!(all, numbered(0..50));
    consumer.close().unwrap();
    is_empty(&connection, &to);
}

#[test]
fn what_no_handler_got_goes_back_uncounted_and_in_order_when_the_consumer_closes() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("cc.closing");
    let sending = session(&connection, AcknowledgeMode::Auto);
    send(&sending, &to, 0..10, PERSISTENT);
    let (pool, handler) = waiting(&connection, AcknowledgeMode::Auto);
    let consumer = connection.create_connection_consumer(&to, &plain(), pool, 4).unwrap();
    connection.start().unwrap();
    assert_eq!(tell(&handler.told), (1, "m0".to_owned(), Some(1)));
    let closing = std::thread::spawn({
        let consumer = consumer.clone();
        move || consumer.close()
    });
    scenario::wait_until("the consumer is closing", || consumer.is_closed());
    assert!(!closing.is_finished(), "a handler runs");
    handler.leave.send(()).unwrap();
    closing.join().unwrap().unwrap();
    // Three were in the load, six waited.
    let next_one = session(&connection, AcknowledgeMode::Auto);
    let other = next_one.create_consumer(&to).unwrap();
    for wanted in numbered(1..10) {
        let message = next(&other);
        assert_eq!((text(&message), message.delivery_count()), (wanted, Some(1)));
    }
    nothing(&other);
    assert!(handler.told.try_recv().is_err());
    consumer.close().unwrap();
}

#[test]
fn closing_at_any_time_loses_no_message_and_hands_none_out_twice() {
    const MESSAGES: usize = 600;
    let stage = Stage::new();
    let connection = stage.connect_with(&[("imqConsumerFlowLimit", "50")]);
    let to = queue("cc.anytime");
    let sending = session(&connection, AcknowledgeMode::Auto);
    send(&sending, &to, 0..MESSAGES, DeliveryMode::NonPersistent);
    connection.start().unwrap();
    let mut all = Vec::new();
    for round in 1_usize.. {
        let (pool, told) = telling(&connection, AcknowledgeMode::Auto, 3);
        let load = 1 + round % 9;
        let consumer = connection.create_connection_consumer(&to, &plain(), pool, load).unwrap();
        let wanted = (round * 7 % 31).min(MESSAGES - all.len());
        all.extend((0..wanted).map(|_| tell(&told)));
        consumer.close().unwrap();
        all.extend(told.try_iter());
        if all.len() >= MESSAGES {
            break;
        }
    }
    assert!(all.iter().all(|(_, _, count)| *count == Some(1)), "what went back was not counted");
    let mut texts: Vec<_> = all.into_iter().map(|(_, text, _)| text).collect();
    texts.sort_by_key(|text| text[1..].parse::<usize>().unwrap());
    assert_eq!(texts, numbered(0..MESSAGES));
    is_empty(&connection, &to);
}

#[test]
fn after_cuts_every_message_is_handled_and_only_marked_ones_twice() {
    const MESSAGES: usize = 300;
    let stage = Stage::new();
    let Some(broker) = stage.embedded() else { return };
    let proxy = Proxy::start(broker.jms_address());
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{}/jms", proxy.address())).unwrap();
    let attributes = [
        ("imqReconnectEnabled", "true"),
        ("imqReconnectAttempts", "-1"),
        ("imqReconnectInterval", "20"),
        ("imqAddressListIterations", "-1"),
        ("imqConsumerFlowLimit", "20"),
    ];
    factory.set_attributes(attributes).unwrap();
    let direct = stage.connect();
    for (mode, to) in [
        (AcknowledgeMode::Auto, queue("cc.cuts.auto")),
        (AcknowledgeMode::DupsOk, queue("cc.cuts.lazy")),
    ] {
        send(&session(&direct, AcknowledgeMode::Auto), &to, 0..MESSAGES, PERSISTENT);
        let connection = factory.create_connection().unwrap();
        let (pool, told) = telling(&connection, mode, 3);
        let consumer = connection.create_connection_consumer(&to, &plain(), pool, 4).unwrap();
        connection.start().unwrap();
        let mut different = HashSet::new();
        let (mut handled, mut cuts) = (0, 0);
        while different.len() < MESSAGES {
            let (_, text, count) = tell(&told);
            handled += 1;
            let is_new = different.insert(text.clone());
            assert!(is_new || count > Some(1), "{text} came twice, and was not marked");
            if handled % 50 == 0 && cuts < 5 {
                cuts += 1;
                proxy.cut();
            }
        }
        assert_eq!(cuts, 5);
        consumer.close().unwrap();
        connection.close().unwrap();
        direct.start().unwrap();
        is_empty(&direct, &to);
    }
}

#[test]
fn what_was_seen_and_not_acknowledged_comes_again_and_counts() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("cc.unacknowledged");
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..6, PERSISTENT);
    let (pool, told) = telling(&connection, AcknowledgeMode::Client, 2);
    let consumer = connection.create_connection_consumer(&to, &plain(), pool, 3).unwrap();
    connection.start().unwrap();
    (0..6).for_each(|_| drop(tell(&told)));
    consumer.close().unwrap();
    let again = session(&connection, AcknowledgeMode::Auto);
    let other = again.create_consumer(&to).unwrap();
    for wanted in numbered(0..6) {
        let message = next(&other);
        assert_eq!((text(&message), message.delivery_count()), (wanted, Some(2)));
        assert!(message.is_redelivered());
    }
}

#[test]
fn a_handler_that_rolls_back_gets_its_load_again_in_order() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("cc.rollback");
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..6, PERSISTENT);
    let (tell_it, told) = channel();
    let pool = ServerSessions::start(&connection, AcknowledgeMode::Transacted, 1, |session| {
        let (tell, session, mut failed) = (tell_it.clone(), session.clone(), false);
        Ok(move |message: Message| {
            tell.send(seen(1, &message)).unwrap();
            let text = text(&message);
            if text == "m1" && !failed {
                failed = true;
                session.rollback().unwrap();
            } else if text != "m0" {
                session.commit().unwrap();
            }
        })
    });
    let consumer = connection.create_connection_consumer(&to, &plain(), pool.unwrap(), 4).unwrap();
    connection.start().unwrap();
    let got: Vec<_> = (0..8).map(|_| tell(&told)).map(|(_, text, count)| (text, count)).collect();
    let first = [("m0", 1), ("m1", 1)];
    let again = [("m0", 2), ("m1", 2), ("m2", 1), ("m3", 1)];
    let with = |all: &[(&str, i32)]| -> Vec<_> {
        all.iter().map(|&(text, count)| (text.to_owned(), Some(count))).collect()
    };
    assert_eq!(got[..2], with(&first));
    // What had not been put into the session yet may come in between.
    let load: Vec<_> = got.iter().skip(2).filter(|one| one.0.as_str() < "m4").cloned().collect();
    assert_eq!(load, with(&again));
    consumer.close().unwrap();
    connection.close().unwrap();
    let connection = stage.connect();
    connection.start().unwrap();
    is_empty(&connection, &to);
}

#[test]
fn a_handler_that_panics_gets_the_message_again_and_then_the_broker_has_it() {
    let stage = Stage::new();
    let connection = stage.connect_with(&[("imqOnMessageExceptionRedeliveryIntervals", "1")]);
    let to = queue("cc.panic");
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..3, PERSISTENT);
    let (tell_it, told) = channel();
    let pool = ServerSessions::start(&connection, AcknowledgeMode::Auto, 1, |_session| {
        let (tell, mut calls) = (tell_it.clone(), 0);
        Ok(move |message: Message| {
            calls += 1;
            tell.send(seen(1, &message)).unwrap();
            // Once, and once more as the settings say.
            assert!(calls > 2, "a handler that fails");
        })
    });
    let consumer = connection.create_connection_consumer(&to, &plain(), pool.unwrap(), 1).unwrap();
    connection.start().unwrap();
    let mut all: Vec<_> = (0..5).map(|_| tell(&told).1).collect();
    assert_eq!(all[..2], ["m0", "m0"]);
    all.sort();
    assert_eq!(all, ["m0", "m0", "m0", "m1", "m2"]);
    consumer.close().unwrap();
    is_empty(&connection, &to);
}

#[test]
fn a_handler_may_not_close_what_waits_for_it() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("cc.itself");
    let (give, given) = channel::<(ConnectionConsumer, Connection)>();
    let (tell, told) = channel();
    let mut given = Some(given);
    let pool = ServerSessions::start(&connection, AcknowledgeMode::Auto, 1, |session| {
        let (given, tell, session) = (given.take().unwrap(), tell.clone(), session.clone());
        Ok(move |_message| {
            let (consumer, connection) = given.recv().unwrap();
            let all = [consumer.close(), session.close(), connection.close()];
            tell.send(all).unwrap();
        })
    });
    let consumer = connection.create_connection_consumer(&to, &plain(), pool.unwrap(), 1).unwrap();
    connection.start().unwrap();
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..1, PERSISTENT);
    give.send((consumer.clone(), connection.clone())).unwrap();
    for outcome in told.recv_timeout(DEADLINE).unwrap() {
        assert!(matches!(outcome, Err(SessionError::IllegalState(_))), "{outcome:?}");
    }
    connection.close().unwrap();
    assert!(consumer.is_closed());
}

#[test]
fn closing_the_connection_waits_for_the_handler_whose_acknowledgement_counts() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("cc.connection");
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..3, PERSISTENT);
    let (pool, handler) = waiting(&connection, AcknowledgeMode::Auto);
    let consumer = connection.create_connection_consumer(&to, &plain(), pool, 3).unwrap();
    connection.start().unwrap();
    tell(&handler.told);
    let closing = std::thread::spawn(move || connection.close());
    scenario::wait_until("the connection is closing", || consumer.is_closed());
    assert!(!closing.is_finished());
    handler.leave.send(()).unwrap();
    closing.join().unwrap().unwrap();
    let connection = stage.connect();
    connection.start().unwrap();
    let next_one = session(&connection, AcknowledgeMode::Auto);
    let other = next_one.create_consumer(&to).unwrap();
    assert_eq!(texts(&other, 2), numbered(1..3));
    nothing(&other);
}

#[test]
fn dropping_the_consumer_ends_it_without_waiting() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("cc.dropped");
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..5, PERSISTENT);
    let (pool, handler) = waiting(&connection, AcknowledgeMode::Auto);
    let consumer = connection.create_connection_consumer(&to, &plain(), pool, 2).unwrap();
    connection.start().unwrap();
    tell(&handler.told);
    drop(consumer);
    let next_one = session(&connection, AcknowledgeMode::Auto);
    let other = next_one.create_consumer(&to).unwrap();
    handler.leave.send(()).unwrap();
    assert_eq!(texts(&other, 4), numbered(1..5));
}

#[test]
fn a_durable_subscription_outlives_its_connection_consumer() {
    let stage = Stage::new();
    let connection = stage.connect_with(&[("imqConfiguredClientID", "cc-client")]);
    let to = topic("cc.news");
    let mut durable = plain();
    durable.durable("paper");
    let mut shared = plain();
    shared.shared_durable("pages");
    for options in [durable, shared] {
        let publishing = session(&connection, AcknowledgeMode::Auto);
        for round in [0..5, 5..10] {
            let (pool, told) = telling(&connection, AcknowledgeMode::Auto, 2);
            let consumer = connection.create_connection_consumer(&to, &options, pool, 3).unwrap();
            if round.start == 0 {
                send(&publishing, &to, 0..5, PERSISTENT);
            }
            connection.start().unwrap();
            let mut all: Vec<_> = (0..5).map(|_| tell(&told).1).collect();
            all.sort();
            assert_eq!(all, numbered(round.clone()));
            consumer.close().unwrap();
            if round.start == 0 {
                send(&publishing, &to, 5..10, PERSISTENT);
            }
        }
    }
    let last = session(&connection, AcknowledgeMode::Auto);
    last.unsubscribe("paper").unwrap();
    last.unsubscribe("pages").unwrap();
    connection.close().unwrap();
}

/// A pool as a program would make its own: the test runs its loads, and closes it by saying no more
/// that its session is free.
struct Own {
    session: Session,
    free: std::sync::Mutex<Receiver<()>>,
    loads: Sender<Load>,
    end: Sender<()>,
}

struct OwnSession {
    session: Session,
    loads: Sender<Load>,
}

impl ServerSessionPool for Own {
    fn acquire(&self) -> Option<Box<dyn ServerSession>> {
        self.free.lock().unwrap().recv().ok()?;
        let (session, loads) = (self.session.clone(), self.loads.clone());
        Some(Box::new(OwnSession { session, loads }))
    }

    fn close(&self) {
        self.end.send(()).unwrap();
    }
}

impl ServerSession for OwnSession {
    fn session(&self) -> &Session {
        &self.session
    }

    fn start(self: Box<Self>, load: Load) {
        self.loads.send(load).unwrap();
    }
}

/// Such a pool, how to say that its session is free, its loads, and how it learns of its end.
#[allow(clippy::type_complexity, reason = "four ends of one thing")]
fn own(session: &Session) -> (Own, Sender<()>, Receiver<Load>, Receiver<()>) {
    let (is_free, free) = channel();
    let (loads, loaded) = channel();
    let (end, ended) = channel();
    let free = std::sync::Mutex::new(free);
    (Own { session: session.clone(), free, loads, end }, is_free, loaded, ended)
}

#[test]
fn loads_of_a_pool_of_ones_own_have_at_most_so_many_messages_and_go_back_if_dropped() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("cc.own");
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..10, PERSISTENT);
    let serving = session(&connection, AcknowledgeMode::Auto);
    let (pool, is_free, loads, ended) = own(&serving);
    let consumer = connection.create_connection_consumer(&to, &plain(), pool, 4).unwrap();
    connection.start().unwrap();
    scenario::wait_until("all have arrived", || consumer.buffered() == 10);
    is_free.send(()).unwrap();
    let load = loads.recv_timeout(DEADLINE).unwrap();
    assert_eq!(load.len(), 4);
    // Three come again, uncounted; the one that runs is done.
    let mut first = Vec::new();
    let session_of_load = load.session().clone();
    assert!(session_of_load.create_consumer(&to).unwrap().receive().is_err(), "it has a load");
    drop(load);
    is_free.send(()).unwrap();
    let load = loads.recv_timeout(DEADLINE).unwrap();
    load.run(|message| first.push(text(&message)));
    assert_eq!(first, numbered(4..8));
    let mut rest = Vec::new();
    while rest.len() < 6 {
        is_free.send(()).unwrap();
        let load = loads.recv_timeout(DEADLINE).unwrap();
        load.run(|message| rest.push((text(&message), message.delivery_count())));
    }
    let wanted = numbered(8..10).into_iter().chain(numbered(0..4));
    assert_eq!(rest, wanted.map(|text| (text, Some(1))).collect::<Vec<_>>());
    // Nobody is free any more: the consumer closes by itself.
    drop(is_free);
    ended.recv_timeout(DEADLINE).unwrap();
    scenario::wait_until("it has ended", || consumer.is_closed());
    connection.close().unwrap();
}

#[test]
fn a_load_is_one_message_where_the_attribute_says_so() {
    let stage = Stage::new();
    let connection = stage.connect_with(&[("imqLoadMaxToServerSession", "false")]);
    let to = queue("cc.single");
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..10, PERSISTENT);
    let serving = session(&connection, AcknowledgeMode::Auto);
    let (pool, is_free, loads, _ended) = own(&serving);
    let consumer = connection.create_connection_consumer(&to, &plain(), pool, 4).unwrap();
    connection.start().unwrap();
    scenario::wait_until("all have arrived", || consumer.buffered() == 10);
    is_free.send(()).unwrap();
    let load = loads.recv_timeout(DEADLINE).unwrap();
    assert_eq!(load.len(), 1);
    drop((load, is_free));
    connection.close().unwrap();
}

#[test]
fn a_pool_that_gives_a_session_of_another_kind_loses_its_consumer_and_no_message() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("cc.unfit");
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..3, PERSISTENT);
    connection.start().unwrap();
    let listening = session(&connection, AcknowledgeMode::Auto);
    let unused = listening.create_consumer(&queue("cc.unfit.unused")).unwrap();
    unused.set_listener(drop).unwrap();
    let foreign = stage.connect();
    for unfit in [listening, session(&foreign, AcknowledgeMode::Auto)] {
        let (pool, is_free, _loads, ended) = own(&unfit);
        let consumer = connection.create_connection_consumer(&to, &plain(), pool, 4).unwrap();
        is_free.send(()).unwrap();
        ended.recv_timeout(DEADLINE).unwrap();
        consumer.close().unwrap();
    }
    let next_one = session(&connection, AcknowledgeMode::Auto);
    assert_eq!(texts(&next_one.create_consumer(&to).unwrap(), 3), numbered(0..3));
}

#[test]
fn a_load_belongs_to_the_branch_of_a_distributed_transaction_that_is_active() {
    let stage = Stage::new();
    let connection = stage.connect();
    let to = queue("cc.branch");
    send(&session(&connection, AcknowledgeMode::Auto), &to, 0..3, PERSISTENT);
    let xa = connection.create_xa_session().unwrap();
    let resource = xa.resource();
    let (pool, is_free, loads, _ended) = own(xa.session());
    let consumer = connection.create_connection_consumer(&to, &plain(), pool, 3).unwrap();
    connection.start().unwrap();
    scenario::wait_until("all have arrived", || consumer.buffered() == 3);
    for (branch, commits) in [(1_u8, false), (2, true)] {
        is_free.send(()).unwrap();
        let xid = Xid::new(77, &[branch], b"cc").unwrap();
        let load = loads.recv_timeout(DEADLINE).unwrap();
        resource.start(&xid, XaStart::New).unwrap();
        let mut got = Vec::new();
        load.run(|message| got.push(text(&message)));
        resource.end(&xid, XaEnd::Success).unwrap();
        assert_eq!(got, numbered(0..3));
        if commits {
            resource.commit(&xid, XaCommit::OnePhase).unwrap();
        } else {
            resource.rollback(&xid).unwrap();
            scenario::wait_until("all have come again", || consumer.buffered() == 3);
        }
    }
    drop(is_free);
    consumer.close().unwrap();
    is_empty(&connection, &to);
}

#[test]
fn a_goodbye_waits_at_the_broker_if_there_is_a_connection_consumer() {
    for (has_consumer, wanted) in [(true, true), (false, false)] {
        let broker = Scripted::start(move |peer| {
            peer.login();
            let goodbye = peer.serve_until(PacketType::GOODBYE);
            let blocks = goodbye.properties().unwrap().boolean("JMQBlock").unwrap();
            assert_eq!(blocks, Some(wanted));
            peer.answer(&goodbye);
        });
        let connection = broker.connect();
        let consumer = has_consumer.then(|| {
            let (pool, _told) = telling(&connection, AcknowledgeMode::Auto, 1);
            connection.create_connection_consumer(&queue("q"), &plain(), pool, 1).unwrap()
        });
        connection.close().unwrap();
        drop(consumer);
        broker.join();
    }
}

#[test]
fn a_lost_connection_ends_consumer_and_pool() {
    let stage = Stage::new();
    let (connection, relay) = stage.connect_through_relay();
    let (pool, _told) = telling(&connection, AcknowledgeMode::Auto, 2);
    let to = queue("cc.lost");
    let consumer = connection.create_connection_consumer(&to, &plain(), pool, 1).unwrap();
    connection.start().unwrap();
    relay.cut();
    scenario::wait_until("it has ended", || consumer.is_closed());
    consumer.close().unwrap();
    let none = connection.create_connection_consumer(
        &to,
        &plain(),
        ServerSessions::start(&stage.connect(), AcknowledgeMode::Auto, 1, |_| Ok(drop)).unwrap(),
        1,
    );
    assert!(matches!(none, Err(SessionError::Request(_))), "{none:?}");
}

#[test]
fn loads_and_pools_of_nothing_are_refused() {
    let stage = Stage::new();
    let connection = stage.connect();
    let (pool, _told) = telling(&connection, AcknowledgeMode::Auto, 1);
    let none = connection.create_connection_consumer(&queue("cc.none"), &plain(), pool, 0);
    assert!(matches!(none, Err(SessionError::IllegalState(_))), "{none:?}");
    let none = ServerSessions::start(&connection, AcknowledgeMode::Auto, 0, |_| Ok(drop));
    assert!(matches!(none, Err(SessionError::IllegalState(_))), "{none:?}");
}
