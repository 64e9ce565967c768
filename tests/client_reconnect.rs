//! A client whose connection is lost and comes back.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod support;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, mpsc::channel},
    thread,
    time::Duration,
};

use support::{broker, proxy::Proxy, wait_until};
use tidegate::{
    broker::Broker,
    client::{
        AcknowledgeError, AcknowledgeMode, Connection, ConnectionError, ConnectionEvent,
        ConnectionFactory, Consumer, ConsumerOptions, ReceiveError, RequestError, SendCause,
        Session, SessionError,
    },
    message::{DeliveryMode, Destination, DestinationKind, Message},
};

const DEADLINE: Duration = Duration::from_secs(20);

/// A broker behind a proxy.
struct Stage {
    broker: Broker,
    proxy: Proxy,
}

impl Stage {
    fn new() -> Self {
        let broker = broker(2);
        let proxy = Proxy::start(broker.jms_address());
        Self { broker, proxy }
    }

    fn factory(&self) -> ConnectionFactory {
        let mut factory = ConnectionFactory::new();
        factory.address_list(&format!("mqtcp://{}/jms", self.proxy.address())).unwrap();
        let attributes = [
            ("imqReconnectEnabled", "true"),
            ("imqReconnectAttempts", "-1"),
            ("imqReconnectInterval", "20"),
            ("imqAddressListIterations", "-1"),
        ];
        factory.set_attributes(attributes).unwrap();
        factory
    }

    fn connect(&self) -> Connection {
        let connection = self.factory().create_connection().unwrap();
        connection.start().unwrap();
        connection
    }

    /// Cuts the connection, and waits until it is there again.
    fn cut(&self, connection: &Connection) {
        let before = connection.id();
        self.proxy.cut();
        wait_until("the connection is restored", || connection.id() != before);
    }
}

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

fn next(consumer: &Consumer) -> Message {
    consumer.receive_timeout(DEADLINE).unwrap().expect("a message comes in time")
}

fn queue(name: &str) -> Destination {
    Destination::queue(name).unwrap()
}

fn send(session: &Session, queue: &Destination, texts: &[&str]) {
    let producer = session.create_producer(queue).unwrap();
    for text in texts {
        producer.send(Message::text(*text)).unwrap();
    }
}

fn session(connection: &Connection, mode: AcknowledgeMode) -> Session {
    connection.create_session(mode).unwrap()
}

#[test]
fn producers_consumers_and_durable_subscriptions_go_on_after_a_cut() {
    let stage = Stage::new();
    let connection = stage.factory().create_connection().unwrap();
    connection.set_client_id("traveller").unwrap();
    let (sending, receiving, subscribed) = (
        session(&connection, AcknowledgeMode::Auto),
        session(&connection, AcknowledgeMode::Auto),
        session(&connection, AcknowledgeMode::Auto),
    );
    let queue = queue("trips");
    let topic = Destination::topic("news").unwrap();
    let producer = sending.create_producer(&queue).unwrap();
    for n in 0..3 {
        producer.send(Message::text(format!("m{n}"))).unwrap();
    }
    let consumer = receiving.create_consumer(&queue).unwrap();
    let mut options = ConsumerOptions::new();
    options.durable("rs");
    let subscriber = subscribed.create_consumer_with(&topic, &options).unwrap();
    connection.start().unwrap();
    let first = next(&consumer);
    assert_eq!((text(&first).as_str(), first.is_redelivered()), ("m0", false));
    let consumer_id = consumer.id();
    stage.cut(&connection);
    producer.send(Message::text("m3")).unwrap();
    let got: Vec<_> = (0..3).map(|_| next(&consumer)).collect();
    assert_eq!(got.iter().map(text).collect::<Vec<_>>(), ["m1", "m2", "m3"]);
    // What had been sent ahead and not been seen may say so or not; what is new does not.
    assert!(!got[2].is_redelivered());
    assert_ne!(consumer.id(), consumer_id);
    send(&sending, &topic, &["extra"]);
    assert_eq!(text(&next(&subscriber)), "extra");
    assert_eq!(connection.client_id().as_deref(), Some("traveller"));
    subscriber.close().unwrap();
    subscribed.unsubscribe("rs").unwrap();
    connection.close().unwrap();
}

#[test]
fn a_client_acknowledge_session_that_lost_messages_must_recover_first() {
    let stage = Stage::new();
    let connection = stage.connect();
    let receiving = session(&connection, AcknowledgeMode::Client);
    let queue = queue("work");
    send(&session(&connection, AcknowledgeMode::Auto), &queue, &["a", "b", "c"]);
    let consumer = receiving.create_consumer(&queue).unwrap();
    assert_eq!(text(&next(&consumer)), "a");
    receiving.acknowledge().unwrap();
    let b = next(&consumer);
    stage.cut(&connection);
    let unacknowledged = |error: &AcknowledgeError| {
        matches!(error, AcknowledgeError::Request(RequestError::Unacknowledged))
    };
    assert!(unacknowledged(&receiving.acknowledge().unwrap_err()));
    assert!(unacknowledged(&receiving.acknowledge_message(&b).unwrap_err()));
    let error = consumer.receive_timeout(DEADLINE).unwrap_err();
    assert!(matches!(&error, ReceiveError::Acknowledge(cause) if unacknowledged(cause)), "{error}");
    receiving.recover().unwrap();
    let again: Vec<_> = (0..2).map(|_| next(&consumer)).collect();
    assert_eq!(again.iter().map(text).collect::<Vec<_>>(), ["b", "c"]);
    assert!(again[0].is_redelivered());
    receiving.acknowledge().unwrap();
    assert!(consumer.try_receive().unwrap().is_none());
    connection.close().unwrap();
}

#[test]
fn a_transaction_that_was_cut_is_rolled_back_and_says_so_once() {
    let stage = Stage::new();
    let connection = stage.connect();
    let transacted = session(&connection, AcknowledgeMode::Transacted);
    let auto = session(&connection, AcknowledgeMode::Auto);
    let (source, sink) = (queue("source"), queue("sink"));
    send(&auto, &source, &["order"]);
    let consumer = transacted.create_consumer(&source).unwrap();
    let producer = transacted.create_producer(&sink).unwrap();
    assert_eq!(text(&next(&consumer)), "order");
    producer.send(Message::text("lost")).unwrap();
    stage.cut(&connection);
    // The next thing that is done in it is told, whatever it is.
    let error = producer.send(Message::text("lost, too")).unwrap_err();
    let rolled_back = |cause: &RequestError| matches!(cause, RequestError::RolledBack);
    assert!(matches!(error.cause(), SendCause::Request(cause) if rolled_back(cause)), "{error:?}");
    assert_eq!(text(&error.into_inner()), "lost, too");
    let error = transacted.commit().unwrap_err();
    assert!(matches!(&error, SessionError::Request(cause) if rolled_back(cause)), "{error:?}");
    // All of it again.
    let order = next(&consumer);
    assert!(order.is_redelivered() && text(&order) == "order");
    producer.send(Message::text("bill")).unwrap();
    transacted.commit().unwrap();
    let bills = auto.create_consumer(&sink).unwrap();
    assert_eq!(text(&next(&bills)), "bill");
    assert!(bills.receive_timeout(Duration::from_millis(50)).unwrap().is_none());
    // An empty transaction loses nothing, and nobody is bothered.
    stage.cut(&connection);
    transacted.commit().unwrap();
    connection.close().unwrap();
}

#[test]
fn sends_wait_while_the_broker_is_away_and_arrive_once() {
    let stage = Stage::new();
    let connection = stage.connect();
    let auto = session(&connection, AcknowledgeMode::Auto);
    let queue = queue("patience");
    let producer = auto.create_producer(&queue).unwrap();
    producer.send(Message::text("before")).unwrap();
    stage.proxy.refuse(true);
    stage.proxy.cut();
    let sender = thread::spawn(move || {
        for n in 0..5 {
            producer.send(Message::text(format!("away {n}"))).unwrap();
        }
        producer
    });
    let attempts = stage.proxy.accepted();
    wait_until("it is tried again and again", || stage.proxy.accepted() > attempts + 2);
    assert!(!sender.is_finished());
    stage.proxy.refuse(false);
    drop(sender.join().unwrap());
    let consumer = auto.create_consumer(&queue).unwrap();
    let got: Vec<_> = (0..6).map(|_| text(&next(&consumer))).collect();
    assert_eq!(got, ["before", "away 0", "away 1", "away 2", "away 3", "away 4"]);
    assert!(consumer.receive_timeout(Duration::from_millis(50)).unwrap().is_none());
    connection.close().unwrap();
}

#[test]
fn a_send_gives_up_when_its_deadline_passes_without_a_broker() {
    let stage = Stage::new();
    let mut factory = stage.factory();
    factory.set_attribute("imqAckTimeout", "300").unwrap();
    let connection = factory.create_connection().unwrap();
    let auto = session(&connection, AcknowledgeMode::Auto);
    let producer = auto.create_producer(&queue("deadline")).unwrap();
    stage.proxy.refuse(true);
    stage.proxy.cut();
    let error = producer.send(Message::text("late")).unwrap_err();
    assert!(
        matches!(error.cause(), SendCause::Request(RequestError::TimedOut { .. })),
        "{error:?}"
    );
    // Closing does not wait for a broker that is not there.
    connection.close().unwrap();
    assert!(matches!(connection.lost(), Some(ConnectionError::Closed)));
}

#[test]
fn observers_see_the_loss_the_attempts_and_the_return() {
    let stage = Stage::new();
    let connection = stage.connect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    connection.set_observer(move |event| notes.lock().unwrap().push(event.clone()));
    stage.proxy.refuse(true);
    stage.proxy.cut();
    let trying = |event: &ConnectionEvent| matches!(event, ConnectionEvent::Trying { .. });
    wait_until("three attempts", || {
        seen.lock().unwrap().iter().filter(|event| trying(event)).count() >= 3
    });
    stage.proxy.refuse(false);
    let restored = |event: &ConnectionEvent| matches!(event, ConnectionEvent::Restored { .. });
    wait_until("it is restored", || seen.lock().unwrap().iter().any(restored));
    connection.close().unwrap();
    let seen = seen.lock().unwrap();
    assert!(matches!(seen.first(), Some(ConnectionEvent::Lost { .. })), "{seen:?}");
    let attempts: Vec<_> = seen
        .iter()
        .filter_map(|event| match event {
            ConnectionEvent::Trying { attempt, .. } => Some(*attempt),
            _ => None,
        })
        .collect();
    assert!(
        attempts.iter().copied().eq(1..=u32::try_from(attempts.len()).unwrap()),
        "{attempts:?}"
    );
    assert!(
        matches!(seen.last(), Some(ConnectionEvent::Ended { reason: ConnectionError::Closed })),
        "{seen:?}"
    );
}

#[test]
fn listeners_and_completions_go_on() {
    let stage = Stage::new();
    let connection = stage.connect();
    let listening = session(&connection, AcknowledgeMode::Auto);
    let sending = session(&connection, AcknowledgeMode::Auto);
    let queue = queue("heard");
    let consumer = listening.create_consumer(&queue).unwrap();
    let (heard, ears) = channel();
    consumer.set_listener(move |message| heard.send(text(&message)).unwrap()).unwrap();
    let mut producer = sending.create_producer(&queue).unwrap();
    producer.set_delivery_mode(DeliveryMode::Persistent);
    let (done, completed) = channel();
    for n in 0..100 {
        let done = done.clone();
        let complete = move |outcome: Result<Message, _>| {
            done.send(outcome.map(|message| text(&message))).unwrap();
        };
        producer.send_async(Message::text(n.to_string()), complete).unwrap();
        if n == 50 {
            stage.proxy.cut();
        }
    }
    let wanted: BTreeSet<_> = (0..100).map(|n: u32| n.to_string()).collect();
    let done: BTreeSet<_> =
        (0..100).map(|_| completed.recv_timeout(DEADLINE).unwrap().unwrap()).collect();
    assert_eq!(done, wanted);
    let mut heard = BTreeSet::new();
    while heard != wanted {
        heard.insert(ears.recv_timeout(DEADLINE).unwrap());
    }
    connection.close().unwrap();
}

#[test]
fn a_temporary_destination_survives_and_its_reply_arrives() {
    let stage = Stage::new();
    let connection = stage.connect();
    let auto = session(&connection, AcknowledgeMode::Auto);
    let inbox = auto.create_temporary(DestinationKind::Queue).unwrap();
    let replies = auto.create_consumer(&inbox).unwrap();
    stage.cut(&connection);
    send(&auto, &inbox, &["reply"]);
    assert_eq!(text(&next(&replies)), "reply");
    replies.close().unwrap();
    auto.delete_temporary(&inbox).unwrap();
    connection.close().unwrap();
}

#[test]
fn a_broker_that_shuts_down_is_followed_by_the_next_one_of_the_list() {
    let (first, second) = (broker(1), broker(1));
    let mut factory = ConnectionFactory::new();
    let list = format!("mqtcp://{}/jms,mqtcp://{}/jms", first.jms_address(), second.jms_address());
    factory.address_list(&list).unwrap();
    let attributes = [("imqReconnectEnabled", "true"), ("imqReconnectInterval", "10")];
    factory.set_attributes(attributes).unwrap();
    let connection = factory.create_connection().unwrap();
    connection.set_client_id("mover").unwrap();
    connection.start().unwrap();
    let auto = session(&connection, AcknowledgeMode::Auto);
    let queue = queue("moved");
    let producer = auto.create_producer(&queue).unwrap();
    let consumer = auto.create_consumer(&queue).unwrap();
    producer.send(Message::text("old")).unwrap();
    assert_eq!(text(&next(&consumer)), "old");
    let waiting = thread::spawn(move || next(&consumer));
    first.shutdown();
    producer.send(Message::text("new")).unwrap();
    assert_eq!(text(&waiting.join().unwrap()), "new");
    connection.close().unwrap();
    second.shutdown();
}

#[test]
fn a_connection_that_nobody_takes_up_ends_with_the_reason() {
    let stage = Stage::new();
    let mut factory = stage.factory();
    let attributes = [("imqAddressListIterations", "2"), ("imqReconnectAttempts", "0")];
    factory.set_attributes(attributes).unwrap();
    let connection = factory.create_connection().unwrap();
    connection.start().unwrap();
    let auto = session(&connection, AcknowledgeMode::Auto);
    let consumer = auto.create_consumer(&queue("orphan")).unwrap();
    stage.proxy.refuse(true);
    let waiting = thread::spawn(move || consumer.receive().unwrap_err());
    stage.proxy.cut();
    let error = waiting.join().unwrap();
    assert!(
        matches!(
            &error,
            ReceiveError::Connection(ConnectionError::NotRestored { attempts: 2, .. })
        ),
        "{error:?}"
    );
    drop(stage.broker);
}

#[test]
fn without_the_setting_a_lost_connection_stays_lost() {
    let stage = Stage::new();
    let mut factory = stage.factory();
    factory.set_attribute("imqReconnectEnabled", "false").unwrap();
    let connection = factory.create_connection().unwrap();
    stage.proxy.cut();
    wait_until("it is lost", || connection.lost().is_some());
    assert!(session_is_refused(&connection));
}

fn session_is_refused(connection: &Connection) -> bool {
    let error = connection.create_session(AcknowledgeMode::Auto).unwrap_err();
    matches!(error, SessionError::Request(RequestError::Connection(_)))
}

#[test]
fn what_is_closed_while_the_broker_is_away_is_gone_when_it_is_back() {
    let stage = Stage::new();
    let connection = stage.connect();
    let auto = session(&connection, AcknowledgeMode::Auto);
    let queue = queue("left");
    let gone = auto.create_consumer(&queue).unwrap();
    let stays = auto.create_consumer(&queue).unwrap();
    let closed = session(&connection, AcknowledgeMode::Auto);
    stage.proxy.refuse(true);
    stage.proxy.cut();
    wait_until("the loss is seen", || stage.proxy.accepted() > 1);
    gone.close().unwrap();
    closed.close().unwrap();
    stage.proxy.refuse(false);
    let producer = auto.create_producer(&queue).unwrap();
    for n in 0..20 {
        producer.send(Message::text(n.to_string())).unwrap();
        // None of them goes to the one that is closed.
        assert_eq!(text(&next(&stays)), n.to_string());
    }
    connection.close().unwrap();
}
