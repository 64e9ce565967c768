//! What is there again when a broker is gone without a word and another one has its store.
//!
//! A `MemoryStore` that is opened again gives what was committed, and lets the broker that had it
//! before write nothing more: as if that had been killed at this instant.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/raw.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "one request of it is used; a test has deadlines"
)]
mod raw;
#[path = "support/scenario.rs"]
mod scenario;

use std::{net::SocketAddr, time::Duration};

use scenario::{next, nothing, numbered, pass_time, queue, send, session, text, texts, topic};
use tidegate::{
    broker::{Broker, BrokerConfig, RecoveryReport},
    client::{
        AcknowledgeMode, Connection, ConnectionFactory, ConsumerOptions, SessionError, XaCommit,
        XaEnd, XaStart, XaVote, Xid,
    },
    message::{DeliveryMode, Destination, Message},
    store::{MemoryStore, Outcome},
    wire::{Flags, PacketBuilder, PacketType},
};

const AUTO: AcknowledgeMode = AcknowledgeMode::Auto;
const CLIENT: AcknowledgeMode = AcknowledgeMode::Client;
const TRANSACTED: AcknowledgeMode = AcknowledgeMode::Transacted;
const PERSISTENT: DeliveryMode = DeliveryMode::Persistent;
const NON_PERSISTENT: DeliveryMode = DeliveryMode::NonPersistent;

/// A broker, its store, and what the next one has in its settings.
struct Machine {
    broker: Broker,
    store: MemoryStore,
    settings: &'static str,
}

fn start(store: MemoryStore, settings: &str) -> Broker {
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut builder = Broker::builder();
    let config = BrokerConfig::from_toml_str(settings, "recovery").unwrap();
    builder.config(config).listen(free).jms(free).admin(free).start_with(store).unwrap()
}

impl Machine {
    fn new() -> Self {
        Self::with("")
    }

    fn with(settings: &'static str) -> Self {
        let store = MemoryStore::new();
        // The broker has a handle of its own; this one is opened again when the broker is killed.
        let broker = start(store.reopened(), settings);
        Self { broker, store, settings }
    }

    /// The broker is gone, and another one is there.
    fn kill(&mut self) -> RecoveryReport {
        let next = start(self.store.reopened(), self.settings);
        std::mem::replace(&mut self.broker, next).shutdown();
        self.broker.recovery().unwrap().clone()
    }

    fn connect(&self) -> Connection {
        let connection = self.connect_stopped();
        connection.start().unwrap();
        connection
    }

    fn connect_stopped(&self) -> Connection {
        self.factory().create_connection().unwrap()
    }

    fn factory(&self) -> ConnectionFactory {
        let mut factory = ConnectionFactory::new();
        let address = self.broker.jms_address();
        factory.address_list(&format!("mqtcp://{address}/jms")).unwrap();
        factory.address_list_iterations(Some(1)).consumer_flow_limit(1000).unwrap();
        factory
    }

    fn held(&self, name: &str) -> u64 {
        let all = self.broker.snapshot().destinations;
        all.iter().find(|one| one.name == name).map_or(0, |one| one.messages)
    }
}

/// Text, and how often it has been delivered, which must fit the flag.
fn seen(message: &Message) -> (String, i32) {
    let count = message.delivery_count().unwrap();
    assert_eq!(message.is_redelivered(), count > 1, "{message:?}");
    (text(message), count)
}

fn durable(name: &str) -> ConsumerOptions {
    let mut options = ConsumerOptions::new();
    options.durable(name);
    options
}

#[test]
fn persistent_messages_are_there_again_in_their_order_and_others_are_not() {
    let mut machine = Machine::new();
    let connection = machine.connect();
    let sending = session(&connection, AUTO);
    let to = queue("r.order");
    for (n, priority) in [(0, 4), (1, 9), (2, 4), (3, 0), (4, 9)] {
        let mut producer = sending.create_producer(&to).unwrap();
        producer.set_priority(priority).unwrap().set_delivery_mode(PERSISTENT);
        producer.send(Message::text(format!("m{n}"))).unwrap();
    }
    send(&sending, &to, 5..8, NON_PERSISTENT);
    let found = machine.kill();
    assert_eq!((found.outcome, found.messages, found.leftovers), (Outcome::Loaded, 5, 0));
    assert_eq!(machine.held("r.order"), 5);
    let connection = machine.connect();
    let consumer = session(&connection, AUTO).create_consumer(&to).unwrap();
    for wanted in ["m1", "m4", "m0", "m2", "m3"] {
        assert_eq!(seen(&next(&consumer)), (wanted.to_owned(), 1));
    }
    nothing(&consumer);
    connection.close().unwrap();
    assert_eq!(machine.kill().messages, 0);
}

#[test]
fn what_was_delivered_comes_again_flagged_and_what_was_acknowledged_does_not_come() {
    let mut machine = Machine::new();
    let connection = machine.connect();
    let to = queue("r.flags");
    send(&session(&connection, AUTO), &to, 0..6, PERSISTENT);
    let receiving = session(&connection, CLIENT);
    let consumer = receiving.create_consumer(&to).unwrap();
    let first = next(&consumer);
    receiving.acknowledge_message(&first).unwrap();
    texts(&consumer, 5);
    // One that nobody was ever given.
    connection.stop().unwrap();
    consumer.close().unwrap();
    send(&session(&connection, AUTO), &to, 6..7, PERSISTENT);
    machine.kill();
    let connection = machine.connect();
    let consumer = session(&connection, CLIENT).create_consumer(&to).unwrap();
    let mut got: Vec<_> = (0..6).map(|_| seen(&next(&consumer))).collect();
    let last = got.pop().unwrap();
    let wanted: Vec<_> = numbered(1..6).into_iter().map(|text| (text, 2)).collect();
    assert_eq!(got, wanted);
    assert_eq!(last, ("m6".to_owned(), 1));
    // Once more: each was delivered again.
    machine.kill();
    let connection = machine.connect();
    let consumer = session(&connection, AUTO).create_consumer(&to).unwrap();
    let counts: Vec<_> = (0..6).map(|_| seen(&next(&consumer)).1).collect();
    assert!(counts.iter().all(|count| *count >= 2), "{counts:?}");
}

#[test]
fn counts_of_deliveries_survive() {
    let mut machine = Machine::new();
    let connection = machine.connect();
    let to = queue("r.counts");
    send(&session(&connection, AUTO), &to, 0..1, PERSISTENT);
    let receiving = session(&connection, TRANSACTED);
    let consumer = receiving.create_consumer(&to).unwrap();
    for count in 1..=4 {
        assert_eq!(seen(&next(&consumer)), ("m0".to_owned(), count));
        receiving.rollback().unwrap();
    }
    // The fourth rollback is carried out when the message is there again.
    assert_eq!(seen(&next(&consumer)), ("m0".to_owned(), 5));
    // Nobody waits for a count, but what is stored behind it says that it is stored.
    send(&session(&connection, AUTO), &queue("r.other"), 0..1, PERSISTENT);
    machine.kill();
    let connection = machine.connect();
    let consumer = session(&connection, AUTO).create_consumer(&to).unwrap();
    assert_eq!(seen(&next(&consumer)), ("m0".to_owned(), 5), "it came back four times");
    connection.close().unwrap();
    assert_eq!(machine.kill().messages, 1);
}

#[test]
fn a_durable_subscription_keeps_what_it_has_not_acknowledged() {
    let mut machine = Machine::new();
    let to = topic("r.feed");
    let connect = |machine: &Machine| {
        let connection = machine.connect_stopped();
        connection.set_client_id("reader").unwrap();
        connection.start().unwrap();
        connection
    };
    let connection = connect(&machine);
    let receiving = session(&connection, AUTO);
    let reader = receiving.create_consumer_with(&to, &durable("all")).unwrap();
    let mut picky = durable("odd");
    picky.selector("n = 1");
    let odd = receiving.create_consumer_with(&to, &picky).unwrap();
    odd.close().unwrap();
    let producer = session(&connection, AUTO).create_producer(&to).unwrap();
    for n in 0..6 {
        let mut message = Message::text(format!("m{n}"));
        message.set_property("n", n % 2).unwrap();
        producer.send(message).unwrap();
    }
    assert_eq!(texts(&reader, 2), numbered(0..2));
    reader.close().unwrap();
    let found = machine.kill();
    assert_eq!(found.messages, 5, "only one had m0; {found:?}");
    let connection = connect(&machine);
    let receiving = session(&connection, AUTO);
    // Sent to the topic before anybody came back to it.
    let sender = machine.connect();
    send(&session(&sender, AUTO), &to, 6..7, PERSISTENT);
    let reader = receiving.create_consumer_with(&to, &durable("all")).unwrap();
    assert_eq!(texts(&reader, 5), numbered(2..7));
    let odd = receiving.create_consumer_with(&to, &picky).unwrap();
    assert_eq!(texts(&odd, 3), ["m1", "m3", "m5"]);
    odd.close().unwrap();
    receiving.unsubscribe("odd").unwrap();
    reader.close().unwrap();
    let found = machine.kill();
    assert_eq!((found.messages, found.leftovers), (0, 0));
    let connection = connect(&machine);
    let gone = session(&connection, AUTO).unsubscribe("odd");
    assert!(matches!(gone, Err(SessionError::Request(_))), "{gone:?}");
    session(&connection, AUTO).unsubscribe("all").unwrap();
}

#[test]
fn a_transaction_is_there_whole_or_not_at_all() {
    let mut machine = Machine::new();
    let (from, to) = (queue("r.tx.from"), queue("r.tx.to"));
    let connection = machine.connect();
    send(&session(&connection, AUTO), &from, 0..4, PERSISTENT);
    let work = session(&connection, TRANSACTED);
    let consumer = work.create_consumer(&from).unwrap();
    texts(&consumer, 2);
    send(&work, &to, 10..12, PERSISTENT);
    work.commit().unwrap();
    texts(&consumer, 1);
    send(&work, &to, 12..13, PERSISTENT);
    let found = machine.kill();
    assert_eq!((found.messages, found.transactions), (4, 0));
    let connection = machine.connect();
    let receiving = session(&connection, AUTO);
    let consumer = receiving.create_consumer(&to).unwrap();
    assert_eq!(texts(&consumer, 2), numbered(10..12));
    nothing(&consumer);
    let consumer = receiving.create_consumer(&from).unwrap();
    assert_eq!(texts(&consumer, 2), numbered(2..4));
}

#[test]
fn a_prepared_branch_is_committed_or_rolled_back_by_the_next_broker() {
    for commits in [true, false] {
        let mut machine = Machine::new();
        let (from, to) = (queue("r.xa.from"), queue("r.xa.to"));
        let xid = Xid::new(7, b"global", b"branch").unwrap();
        let connection = machine.connect();
        send(&session(&connection, AUTO), &from, 0..2, PERSISTENT);
        let branch = connection.create_xa_session().unwrap();
        let resource = branch.resource();
        resource.start(&xid, XaStart::New).unwrap();
        let consumer = branch.session().create_consumer(&from).unwrap();
        assert_eq!(texts(&consumer, 1), ["m0"]);
        send(branch.session(), &to, 5..6, PERSISTENT);
        resource.end(&xid, XaEnd::Success).unwrap();
        assert_eq!(resource.prepare(&xid).unwrap(), XaVote::Ready);
        let found = machine.kill();
        assert_eq!((found.messages, found.transactions), (2, 1));
        let connection = machine.connect();
        let receiving = session(&connection, AUTO);
        let source = receiving.create_consumer(&from).unwrap();
        assert_eq!(text(&next(&source)), "m1", "m0 belongs to the branch");
        nothing(&source);
        let branch = connection.create_xa_session().unwrap();
        let resource = branch.resource();
        assert_eq!(resource.recover().unwrap(), [xid]);
        let target = receiving.create_consumer(&to).unwrap();
        if commits {
            resource.commit(&xid, XaCommit::Prepared).unwrap();
            assert_eq!(text(&next(&target)), "m5");
            nothing(&source);
        } else {
            resource.rollback(&xid).unwrap();
            assert_eq!(seen(&next(&source)), ("m0".to_owned(), 2));
            nothing(&target);
        }
        connection.close().unwrap();
        let found = machine.kill();
        assert_eq!((found.messages, found.transactions, found.leftovers), (0, 0, 0));
    }
}

#[test]
fn times_of_delivery_and_expiration_go_on() {
    let mut machine = Machine::new();
    let to = queue("r.times");
    let connection = machine.connect();
    let sending = session(&connection, AUTO);
    let producer = |delay: u64, life: u64| {
        let mut producer = sending.create_producer(&to).unwrap();
        producer.set_delivery_delay(Some(Duration::from_millis(delay)).filter(|t| !t.is_zero()));
        producer.set_time_to_live(Some(Duration::from_millis(life)).filter(|t| !t.is_zero()));
        producer
    };
    producer(0, 150).send(Message::text("dies")).unwrap();
    producer(400, 0).send(Message::text("late")).unwrap();
    producer(0, 60_000).send(Message::text("lives")).unwrap();
    machine.kill();
    pass_time(Duration::from_millis(200));
    let connection = machine.connect();
    let consumer = session(&connection, AUTO).create_consumer(&to).unwrap();
    assert_eq!(texts(&consumer, 2), ["lives", "late"]);
    nothing(&consumer);
    let dead = session(&connection, AUTO).create_consumer(&queue("mq.sys.dmq")).unwrap();
    assert_eq!(text(&next(&dead)), "dies");
    connection.close().unwrap();
    assert_eq!(machine.kill().messages, 0);
}

#[test]
fn a_dead_message_is_in_one_place() {
    let mut machine = Machine::with(
        "[queues.\"r.small\"]\nmessages_max = 2\nlimit_behavior = \"REMOVE_OLDEST\"\n",
    );
    let connection = machine.connect();
    send(&session(&connection, AUTO), &queue("r.small"), 0..5, PERSISTENT);
    let found = machine.kill();
    assert_eq!((found.messages, machine.held("r.small"), machine.held("mq.sys.dmq")), (5, 2, 3));
    let connection = machine.connect();
    let receiving = session(&connection, AUTO);
    let consumer = receiving.create_consumer(&queue("r.small")).unwrap();
    assert_eq!(texts(&consumer, 2), numbered(3..5));
    let dead = receiving.create_consumer(&queue("mq.sys.dmq")).unwrap();
    assert_eq!(texts(&dead, 3), numbered(0..3));
}

#[test]
fn consumers_with_selectors_are_given_what_is_marked_for_them_alone() {
    let mut machine = Machine::new();
    let to = queue("r.selected");
    let connection = machine.connect();
    let producer = session(&connection, AUTO).create_producer(&to).unwrap();
    for n in 0..10 {
        let mut message = Message::text(format!("m{n}"));
        message.set_property("n", n).unwrap();
        producer.send(message).unwrap();
    }
    let mut options = ConsumerOptions::new();
    options.selector("n = 3 or n = 8");
    let receiving = session(&connection, CLIENT);
    let picky = receiving.create_consumer_with(&to, &options).unwrap();
    assert_eq!(texts(&picky, 2), ["m3", "m8"]);
    machine.kill();
    let connection = machine.connect();
    let consumer = session(&connection, AUTO).create_consumer(&to).unwrap();
    for n in 0..10 {
        let count = if n == 3 || n == 8 { 2 } else { 1 };
        assert_eq!(seen(&next(&consumer)), (format!("m{n}"), count));
    }
    connection.close().unwrap();
    let found = machine.kill();
    assert_eq!((found.messages, found.leftovers), (0, 0));
}

#[test]
fn a_destroyed_queue_does_not_come_back() {
    let mut machine = Machine::new();
    let connection = machine.connect();
    let sending = session(&connection, AUTO);
    let to = queue("r.gone");
    send(&sending, &to, 0..3, PERSISTENT);
    assert_eq!(machine.held("r.gone"), 3);
    destroy(&machine, &to);
    let found = machine.kill();
    assert_eq!((found.messages, found.leftovers), (0, 0));
    assert!(machine.broker.snapshot().destinations.iter().all(|one| one.name != "r.gone"));
}

/// As a client's request does.
fn destroy(machine: &Machine, queue: &Destination) {
    let mut client = raw::Raw::login(machine.broker.jms_address(), 0);
    let request = PacketBuilder::new(PacketType::DESTROY_DESTINATION)
        .string("JMQDestination", queue.name())
        .int("JMQDestType", 1)
        .flags(Flags::ACKNOWLEDGE);
    assert_eq!(raw::status(&client.request(request)), 200);
}

#[test]
fn a_branch_that_was_to_end_with_its_connection_is_rolled_back() {
    let mut machine = Machine::new();
    let from = queue("r.auto");
    send(&session(&machine.connect(), AUTO), &from, 0..1, PERSISTENT);
    let mut client = raw::Raw::login(machine.broker.jms_address(), 0);
    // Format 7, global and branch name of one byte.
    let mut xid = vec![0, 0, 0, 7, 0, 1, 0, 1, b'g'];
    xid.resize(72, 0);
    xid.push(b'b');
    xid.resize(136, 0);
    let about = |kind, flags| PacketBuilder::new(kind).body(xid.clone()).int("JMQXAFlags", flags);
    let begin = about(PacketType::START_TRANSACTION, 0).int("JMQAutoRollback", 1);
    let id = raw::long(&client.request(begin), "JMQTransactionID");
    client.consume(2, "r.auto", 10);
    let got = client.messages(1);
    assert_eq!(raw::status(&client.acknowledge_in(id, &[&got[0]])), 200);
    let success = 0x0400_0000;
    for (kind, flags) in
        [(PacketType::END_TRANSACTION, success), (PacketType::PREPARE_TRANSACTION, 0)]
    {
        assert_eq!(raw::status(&client.request(about(kind, flags))), 200);
    }
    assert_eq!(machine.kill().transactions, 1);
    let connection = machine.connect();
    let branch = connection.create_xa_session().unwrap();
    assert_eq!(branch.resource().recover().unwrap(), []);
    let consumer = session(&connection, AUTO).create_consumer(&from).unwrap();
    assert_eq!(seen(&next(&consumer)), ("m0".to_owned(), 2));
    assert_eq!(machine.kill().transactions, 0);
}
