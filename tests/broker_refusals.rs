//! A store that stops taking anything: whoever asked for something that must be stored hears that it
//! is not, however long the way to the store is.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    reason = "a test ends where it fails, and its flag is its own"
)]

#[path = "support/raw.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "a part of it is used; a test has deadlines"
)]
mod raw;
#[path = "support/scenario.rs"]
mod scenario;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use scenario::{next, queue, send, session, text, texts, topic};
use tidegate::{
    broker::Broker,
    client::{AcknowledgeMode, Connection, ConnectionFactory, ConsumerOptions, SendError},
    message::{DeliveryMode, Message},
    store::{Batch, Durability, MemoryStore, MessageStore, Recovery, StoreError, StoreReader},
};

const AUTO: AcknowledgeMode = AcknowledgeMode::Auto;
const PERSISTENT: DeliveryMode = DeliveryMode::Persistent;

/// A store that fails from a moment on.
#[derive(Debug)]
struct Failing {
    inner: MemoryStore,
    fails: Arc<AtomicBool>,
}

impl MessageStore for Failing {
    fn describe(&self) -> String {
        "memory that fails".into()
    }

    fn recover(&mut self) -> Result<Recovery<'_>, StoreError> {
        self.inner.recover()
    }

    fn commit(&mut self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::failed("a commit", "the disk is gone"));
        }
        self.inner.commit(batch, durability)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.inner.sync()
    }

    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        self.inner.reader()
    }

    fn close(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn start() -> (Broker, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let store = Failing { inner: MemoryStore::new(), fails: Arc::clone(&fails) };
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut builder = Broker::builder();
    builder.listen(free).jms(free).admin(free);
    (builder.start_with(store).unwrap(), fails)
}

fn connect(broker: &Broker) -> Connection {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{}/jms", broker.jms_address())).unwrap();
    factory.address_list_iterations(Some(1));
    let connection = factory.create_connection().unwrap();
    connection.set_client_id("reader").unwrap();
    connection.start().unwrap();
    connection
}

#[track_caller]
fn is_refused(sent: Result<impl std::fmt::Debug, SendError>) {
    let error = sent.expect_err("it cannot be stored");
    assert!(format!("{error:?}").contains("503"), "{error:?}");
}

#[test]
fn a_message_for_many_topics_is_confirmed_when_all_copies_are_stored_and_not_before() {
    let (broker, fails) = start();
    let connection = connect(&broker);
    let session = session(&connection, AUTO);
    let mut durable = ConsumerOptions::new();
    durable.durable("all");
    let subscriber = session.create_consumer_with(&topic("many.a"), &durable).unwrap();
    let plain = session.create_consumer(&topic("many.b")).unwrap();
    let producer = session.create_producer(&topic("many.*")).unwrap();
    producer.send(Message::text("one")).unwrap();
    assert_eq!((text(&next(&subscriber)), text(&next(&plain))), ("one".into(), "one".into()));
    fails.store(true, Ordering::SeqCst);
    is_refused(producer.send(Message::text("two")));
    // Again, when it is known already that nothing is stored.
    is_refused(producer.send(Message::text("three")));
}

#[test]
fn without_its_store_a_broker_serves_what_needs_none() {
    let (broker, fails) = start();
    let connection = connect(&broker);
    let sending = session(&connection, AUTO);
    send(&sending, &queue("rest"), 0..1, PERSISTENT);
    fails.store(true, Ordering::SeqCst);
    let mut producer = sending.create_producer(&queue("rest")).unwrap();
    is_refused(producer.send(Message::text("lost")));
    producer.set_delivery_mode(DeliveryMode::NonPersistent);
    for n in 1..4 {
        producer.send(Message::text(format!("m{n}"))).unwrap();
    }
    // The stored message before them waits: nobody could say that it was delivered.
    let consumer = session(&connection, AUTO).create_consumer(&queue("rest")).unwrap();
    assert_eq!(texts(&consumer, 3), ["m1", "m2", "m3"]);
}

#[test]
fn a_delivery_is_confirmed_as_dead_when_it_is_stored_among_the_dead_and_not_before() {
    let (broker, fails) = start();
    let connection = connect(&broker);
    send(&session(&connection, AUTO), &queue("dying"), 0..2, PERSISTENT);
    let mut client = raw::Raw::login(broker.jms_address(), 0);
    client.consume(2, "dying", 10);
    let got = client.messages(2);
    let declare = |packet| raw::acknowledge(&[packet]).int("JMQAckType", 2);
    assert_eq!(raw::status(&client.request(declare(&got[0]))), 200);
    assert_eq!(raw::held(&broker, "mq.sys.dmq"), 1);
    fails.store(true, Ordering::SeqCst);
    assert_eq!(raw::status(&client.request(declare(&got[1]))), 503);
}
