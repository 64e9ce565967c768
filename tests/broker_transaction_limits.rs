//! What a transaction may hold, and for how long, seen on the wire.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use std::time::Duration;

use support::{
    broker, local,
    raw::{
        QUEUE, Raw, about, acknowledge, bodies, counted, drain, held, in_transaction, long, reason,
        status, times,
    },
    wait_until,
};
use tidegate::{
    broker::{Broker, BrokerConfig},
    wire::{Packet, PacketBuilder, PacketType},
};

fn started_with(config: BrokerConfig) -> Broker {
    let mut builder = Broker::builder();
    builder.config(config).listen(local()).jms(local()).admin(local());
    builder.start().unwrap()
}

fn with_settings(settings: &str) -> Broker {
    started_with(BrokerConfig::from_toml_str(settings, "test").unwrap())
}

/// The status of a message to the queue `q`.
fn send(raw: &mut Raw, transaction: i64, text: &str) -> i32 {
    status(&raw.request(Raw::text_in(transaction, "q", QUEUE, text)))
}

fn verify(raw: &mut Raw, queue: &str) -> i32 {
    let request = PacketBuilder::new(PacketType::VERIFY_DESTINATION)
        .string("JMQDestination", queue)
        .int("JMQDestType", QUEUE);
    status(&raw.request(request))
}

/// Whether the broker still knows an open transaction.
fn is_open(raw: &mut Raw, transaction: i64) -> bool {
    let ask = about(PacketType::END_TRANSACTION, transaction).boolean("JMQNoOp", true);
    status(&raw.request(ask)) == 200
}

#[test]
fn a_transaction_takes_a_thousand_messages_and_a_hundred_acknowledgements() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", [""; 0]);
    let session = raw.create_session(0);
    let transaction = raw.begin(session);
    let asked: Vec<i64> =
        (0..1000).map(|_| raw.ask(Raw::text_in(transaction, "q", QUEUE, "x"))).collect();
    assert!(asked.into_iter().all(|id| status(&raw.reply(id)) == 200));
    let refused = raw.request(Raw::text_in(transaction, "q", QUEUE, "one too many"));
    assert_eq!(status(&refused), 414);
    assert!(reason(&refused).contains("has 1000 messages"), "{}", reason(&refused));
    assert_eq!(status(&raw.commit(transaction)), 200, "whoever hears of it may go on without");
    raw.add_consumer(session, "q", QUEUE, 101);
    raw.start();
    let got = raw.messages(101);
    let transaction = raw.begin(session);
    let all: Vec<&Packet> = got.iter().collect();
    assert_eq!(status(&raw.acknowledge_in(transaction, &all[..100])), 200);
    let refused = raw.acknowledge_in(transaction, &all[100..]);
    assert_eq!(status(&refused), 414);
    assert!(reason(&refused).contains("100 messages at the most"), "{}", reason(&refused));
    assert_eq!(status(&raw.commit(transaction)), 412);
    assert_eq!(held(&broker, "q"), 1000);
    // What was refused is let go with the rest.
    let transaction = raw.begin(session);
    assert_eq!(status(&raw.acknowledge_in(transaction, &all[1..])), 200);
    assert_eq!(status(&raw.commit(transaction)), 200);
    wait_until("consumed", || held(&broker, "q") == 900);
}

#[test]
fn both_limits_are_settings() {
    let broker = with_settings("transaction_messages_max = 2\ntransaction_acks_max = 1");
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", ["1", "2"]);
    let (session, _) = raw.consume(0, "q", 10);
    let got = raw.messages(2);
    let transaction = raw.begin(session);
    let statuses = ["a", "b", "c"].map(|text| send(&mut raw, transaction, text));
    assert_eq!(statuses, [200, 200, 414]);
    assert_eq!(status(&raw.acknowledge_in(transaction, &[&got[0], &got[1]])), 414);
    assert_eq!(status(&raw.commit(transaction)), 412);
}

#[test]
fn more_than_one_turn_carries_out_is_carried_out_in_the_next() {
    for loops in [1, 2] {
        const MESSAGES: usize = 10_000;
        let mut config = BrokerConfig::default();
        config.transaction_messages_max = MESSAGES;
        config.loops = loops;
        let broker = started_with(config);
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.fill("q", [""; 0]);
        let session = raw.create_session(0);
        let transaction = raw.begin(session);
        let texts: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
        let mut bytes = Vec::new();
        for text in &texts {
            let packet = raw.stamp(Raw::text_in(transaction, "q", QUEUE, text));
            bytes.extend_from_slice(packet.raw());
        }
        raw.send_bytes(&bytes);
        assert_eq!(status(&raw.commit(transaction)), 200);
        raw.add_consumer(session, "q", QUEUE, -1);
        raw.start();
        assert_eq!(bodies(&raw.messages(MESSAGES)), texts);
    }
}

#[test]
fn a_message_that_is_refused_and_nobody_hears_of_it_fails_the_transaction() {
    let broker = with_settings("[queues.q]\nmessages_max = 1\nmessage_bytes_max = 1000");
    let mut raw = Raw::login(broker.jms_address(), 0);
    let session = raw.create_session(0);
    for text in ["too large".repeat(200), "one too many".to_owned()] {
        let transaction = raw.begin(session);
        assert_eq!(send(&mut raw, transaction, "fits"), 200);
        raw.send(Raw::text_in(transaction, "q", QUEUE, &text));
        let commit = raw.commit(transaction);
        assert_eq!(status(&commit), 412);
        assert_eq!(held(&broker, "q"), 0);
    }
}

#[test]
fn room_is_kept_for_what_is_not_committed_and_given_back_by_each_end() {
    let broker = with_settings("[queues.q]\nmessages_max = 3\nmessage_bytes_max = 1000");
    let mut raw = Raw::login(broker.jms_address(), 0);
    let session = raw.create_session(0);
    for end in ["rollback", "session", "connection"] {
        let mut other = Raw::login(broker.jms_address(), 0);
        let other_session = other.create_session(0);
        let transaction = other.begin(other_session);
        let large = "x".repeat(1000);
        assert_eq!(send(&mut other, transaction, &large), 423);
        assert_eq!(send(&mut other, transaction, "a"), 200);
        assert_eq!(send(&mut other, transaction, "b"), 200);
        let own = raw.begin(session);
        assert_eq!(send(&mut raw, own, "c"), 200);
        assert_eq!(send(&mut raw, own, "d"), 414, "three are on their way");
        assert_eq!(send(&mut raw, 0, "d"), 414, "for everybody");
        assert_eq!(send(&mut other, transaction, "d"), 414);
        match end {
            "rollback" => assert_eq!(status(&other.rollback(transaction)), 200),
            "session" => {
                let end = support::raw::destroy(other_session);
                assert_eq!(status(&other.request(end)), 200);
            }
            _ => other.reset(),
        }
        wait_until("there is room", || send(&mut raw, own, "d") == 200);
        assert_eq!(send(&mut raw, 0, "e"), 200);
        assert_eq!(send(&mut raw, 0, "f"), 414);
        assert_eq!(status(&raw.commit(own)), 200);
        wait_until("all is there", || held(&broker, "q") == 3);
        let mut reader = Raw::login(broker.jms_address(), 0);
        reader.consume(1, "q", -1);
        let got = reader.messages(3);
        assert_eq!(bodies(&got), ["e", "c", "d"], "in the order of becoming visible");
        let all: Vec<&Packet> = got.iter().collect();
        assert_eq!(status(&reader.request(acknowledge(&all))), 200);
    }
}

#[test]
fn bytes_are_kept_as_messages_are() {
    let broker = with_settings("[queues.q]\ntotal_bytes_max = 2000");
    let mut raw = Raw::login(broker.jms_address(), 0);
    let session = raw.create_session(0);
    let transaction = raw.begin(session);
    let half = "x".repeat(850);
    assert_eq!(send(&mut raw, transaction, &half), 200);
    assert_eq!(send(&mut raw, 0, &half), 200);
    assert_eq!(send(&mut raw, 0, &half), 414);
    assert_eq!(send(&mut raw, transaction, &half), 414);
    assert_eq!(status(&raw.rollback(transaction)), 200);
    assert_eq!(send(&mut raw, 0, &half), 200);
}

#[test]
fn the_broker_counts_what_is_not_committed() {
    let broker = with_settings("messages_max = 2");
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", ["1"]);
    let session = raw.create_session(0);
    let transaction = raw.begin(session);
    assert_eq!(send(&mut raw, transaction, "2"), 200);
    let refused = raw.request(Raw::text_in(transaction, "q", QUEUE, "3"));
    assert_eq!(status(&refused), 414);
    assert_eq!(reason(&refused), "the broker is full with 2 messages");
    assert_eq!(status(&raw.rollback(transaction)), 200);
    let transaction = raw.begin(session);
    assert_eq!(send(&mut raw, transaction, "2"), 200);
    assert_eq!(status(&raw.commit(transaction)), 200);
    wait_until("committed", || held(&broker, "q") == 2);
    assert_eq!(send(&mut raw, 0, "3"), 414);
    let all = raw.consume(1, "q", -1);
    assert!(all.0 > 0);
    for message in raw.messages(2) {
        assert_eq!(status(&raw.request(acknowledge(&[&message]))), 200);
    }
    wait_until("there is room again", || send(&mut raw, 0, "3") == 200);
}

#[test]
fn what_gives_way_at_a_limit_does_so_at_the_commit() {
    for (behavior, kept) in [("REMOVE_OLDEST", ["3", "4", "5"]), ("FLOW_CONTROL", ["1", "2", "3"])]
    {
        let settings = format!("[queues.q]\nmessages_max = 3\nlimit_behavior = \"{behavior}\"");
        let broker = with_settings(&settings);
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.fill("q", 1..=3);
        let session = raw.create_session(0);
        let transaction = raw.begin(session);
        raw.fill_in(transaction, "q", &["4", "5"]);
        let first = drain(broker.jms_address(), "q");
        assert_eq!(first, times(&[("1", 1), ("2", 1), ("3", 1)]));
        wait_until("it has left", || broker.snapshot().connections == 1);
        assert_eq!(status(&raw.commit(transaction)), 200);
        let all = drain(broker.jms_address(), "q");
        let texts: Vec<&str> = all.iter().take(3).map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, kept, "{behavior}");
        assert_eq!(all.len(), if behavior == "FLOW_CONTROL" { 5 } else { 3 });
    }
}

#[test]
fn a_queue_nobody_uses_stays_for_what_is_not_committed() {
    let mut config = BrokerConfig::default();
    config.autocreate_reap_time = Duration::from_millis(30);
    let broker = started_with(config);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let session = raw.create_session(0);
    raw.fill("q", [""; 0]);
    let transaction = raw.begin(session);
    assert_eq!(send(&mut raw, transaction, "1"), 200);
    // A queue that is idle for less long is gone already.
    raw.fill("idle", [""; 0]);
    wait_until("an idle queue goes", || verify(&mut raw, "idle") == 404);
    assert_eq!(status(&raw.commit(transaction)), 200);
    assert_eq!(drain(broker.jms_address(), "q"), times(&[("1", 1)]));
    raw.fill("r", [""; 0]);
    let transaction = raw.begin(session);
    assert_eq!(status(&raw.request(Raw::text_in(transaction, "r", QUEUE, "1"))), 200);
    raw.fill("idle", [""; 0]);
    wait_until("an idle queue goes", || verify(&mut raw, "idle") == 404);
    assert_eq!(status(&raw.rollback(transaction)), 200);
    wait_until("it goes as well once nothing is to come", || verify(&mut raw, "r") == 404);
}

#[test]
fn a_transaction_that_outlives_its_time_is_rolled_back() {
    for loops in [1, 2] {
        let broker = broker(loops);
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.fill("q", ["1"]);
        let (session, _) = raw.consume(0, "q", 10);
        let message = raw.message();
        let start = |lifetime: i64| {
            PacketBuilder::new(PacketType::START_TRANSACTION)
                .long("JMQSessionID", session)
                .long("JMQLifetime", lifetime)
        };
        // The longest one there is ends nothing, and a short one comes before it all the same.
        let long_one = long(&raw.request(start(i64::MAX)), "JMQTransactionID");
        for lifetime in [1, 20, 7, 1, 1] {
            let transaction = long(&raw.request(start(lifetime)), "JMQTransactionID");
            let taken = raw.request(in_transaction(transaction, acknowledge(&[&message])));
            let sent = send(&mut raw, transaction, "never");
            wait_until("its time is over", || !is_open(&mut raw, transaction));
            let commit = raw.commit(transaction);
            assert_eq!(status(&commit), 412, "{} {sent}", status(&taken));
            assert!(reason(&commit).contains("timed out"), "{}", reason(&commit));
        }
        assert!(is_open(&mut raw, long_one));
        // Its message is what it was before: delivered, and not acknowledged.
        assert_eq!(status(&raw.request(acknowledge(&[&message]))), 200);
        assert!(raw.messages_so_far().is_empty());
        wait_until("nothing is left", || held(&broker, "q") == 0);
        assert_eq!(counted(&[message]), times(&[("1", 1)]));
    }
}
