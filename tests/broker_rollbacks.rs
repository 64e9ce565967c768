//! Rollbacks of local transactions, seen on the wire: what comes back, where, and how it counts.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use std::{net::SocketAddr, thread};

use support::{
    broker, local,
    raw::{
        QUEUE, Raw, TOPIC, about, acknowledge, bodies, body, counted, delivery_count, destroy,
        drain, held, in_transaction, long, redeliver, status, times,
    },
    wait_until,
};
use tidegate::{
    broker::{Broker, BrokerConfig},
    internals::sync::{AtomicBool, Ordering},
    wire::{Packet, PacketBuilder, PacketType},
};

/// How a client rolls back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// The rollback wants no answer; what was seen names the transaction twice.
    Java,
    /// Everything wants an answer, and names the kind of its blocks.
    C,
}

/// Rolls back as clients do: they say themselves what comes back. What comes next is redelivered.
fn roll_back(
    raw: &mut Raw,
    style: Style,
    session: i64,
    transaction: i64,
    seen: &[&Packet],
    unseen: &[&Packet],
) -> i64 {
    raw.stop_session(session);
    for (flag, some) in [(false, unseen), (true, seen)] {
        if some.is_empty() {
            continue;
        }
        let mut packet = redeliver(flag, some);
        if style == Style::C {
            packet = packet.int("JMQBodyType", 2);
        } else if flag {
            packet = packet.long("JMQTransactionID", transaction);
        }
        raw.send(if flag { in_transaction(transaction, packet) } else { packet });
    }
    raw.start_session(session);
    match style {
        Style::Java => {
            raw.send(about(PacketType::ROLLBACK_TRANSACTION, transaction));
        }
        Style::C => assert_eq!(status(&raw.rollback(transaction)), 200),
    }
    raw.begin(session)
}

/// 10 messages, all in the client's buffer, the first 5 of them consumed; the others, and the
/// transaction that goes on.
fn half_consumed(raw: &mut Raw) -> (i64, i64, Vec<Packet>, i64) {
    raw.fill("q", 1..=10);
    let (session, consumer) = raw.consume(0, "q", 10);
    let transaction = raw.begin(session);
    let mut got = raw.messages(10);
    for message in &got[..5] {
        assert_eq!(status(&raw.acknowledge_in(transaction, &[message])), 200);
    }
    assert_eq!(status(&raw.commit(transaction)), 200);
    let next = raw.begin(session);
    (session, consumer, got.split_off(5), next)
}

#[test]
fn a_rollback_counts_what_was_seen_and_not_what_lay_in_the_buffer() {
    for style in [Style::Java, Style::C] {
        for rollbacks in [1, 10] {
            let broker = broker(2);
            let mut raw = Raw::login(broker.jms_address(), 0);
            let (session, consumer, mut got, mut transaction) = half_consumed(&mut raw);
            for _ in 0..rollbacks {
                for message in &got[..2] {
                    assert_eq!(status(&raw.acknowledge_in(transaction, &[message])), 200);
                }
                let seen = [&got[0], &got[1]];
                let unseen: Vec<&Packet> = got[2..].iter().collect();
                transaction = roll_back(&mut raw, style, session, transaction, &seen, &unseen);
                // Its buffer was full, so the consumer is paused.
                raw.resume_consumer(consumer, 10);
                got = raw.messages(5);
            }
            let counts = 1 + rollbacks;
            let expected = [("6", counts), ("7", counts), ("8", 1), ("9", 1), ("10", 1)];
            assert_eq!(counted(&got), times(&expected), "{style:?}");
            let all: Vec<&Packet> = got.iter().collect();
            assert_eq!(status(&raw.acknowledge_in(transaction, &all)), 200);
            assert_eq!(status(&raw.commit(transaction)), 200);
            wait_until("all is consumed", || held(&broker, "q") == 0);
        }
    }
}

#[test]
fn a_rollback_may_leave_it_to_the_broker_to_put_back() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", 1..=3);
    let (session, _) = raw.consume(0, "q", -1);
    // What was seen counts; a client that knows better says so.
    for (seen, expected) in [(None, 2), (Some(true), 3), (Some(false), 3)] {
        let got = raw.messages(3);
        assert_eq!(bodies(&got), ["1", "2", "3"]);
        let transaction = raw.begin(session);
        let all: Vec<&Packet> = got.iter().collect();
        assert_eq!(status(&raw.acknowledge_in(transaction, &all)), 200);
        let mut rollback =
            about(PacketType::ROLLBACK_TRANSACTION, transaction).boolean("JMQRedeliver", true);
        if let Some(seen) = seen {
            rollback = rollback.boolean("JMQSetRedelivered", seen);
        }
        assert_eq!(status(&raw.request(rollback)), 200);
        let again = raw.messages(3);
        assert_eq!(counted(&again), times(&[("1", expected), ("2", expected), ("3", expected)]));
        raw.stop_session(session);
        raw.send(redeliver(false, &again.iter().collect::<Vec<_>>()));
        raw.start_session(session);
    }
}

#[test]
fn a_message_rolled_back_too_often_goes_to_the_dead_message_queue() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", ["poison"]);
    let (session, _) = raw.consume(0, "q", 10);
    for (dead, count) in [(false, 1), (false, 2), (true, 3)] {
        let message = raw.message();
        assert_eq!(delivery_count(&message), count);
        let transaction = raw.begin(session);
        assert_eq!(status(&raw.acknowledge_in(transaction, &[&message])), 200);
        let rollback = about(PacketType::ROLLBACK_TRANSACTION, transaction)
            .boolean("JMQRedeliver", true)
            .int("JMQMaxRollbacks", 2)
            .boolean("JMQDMQOnMaxRollbacks", dead);
        assert_eq!(status(&raw.request(rollback)), 200);
    }
    wait_until("it is dead", || held(&broker, "mq.sys.dmq") == 1);
    assert_eq!(held(&broker, "q"), 0);
    let dead = drain(broker.jms_address(), "mq.sys.dmq");
    assert_eq!(dead, times(&[("poison", 1)]));
}

#[test]
fn a_consumer_killed_inside_its_transaction_loses_neither_place_nor_count() {
    for loops in [1, 2] {
        // Prefetch 3: messages 1 to 3 were written; prefetch 1: only the first.
        for written in [1, 3] {
            for ack_mode in [0, 2] {
                let broker = broker(loops);
                let mut sender = Raw::login(broker.jms_address(), 0);
                sender.fill("q", 1..=5);
                let mut dying = Raw::login(broker.jms_address(), 0);
                let (session, _) = dying.consume(ack_mode, "q", written);
                let got = dying.messages(usize::try_from(written).unwrap());
                if ack_mode == 0 {
                    let transaction = dying.begin(session);
                    dying.fill_in(transaction, "q", &["never"]);
                    assert_eq!(status(&dying.acknowledge_in(transaction, &[&got[0]])), 200);
                }
                dying.reset();
                wait_until("the loss is noticed", || broker.snapshot().connections == 1);
                sender.consume(1, "q", -1);
                let count = |number| if number <= written { 2 } else { 1 };
                let expected: Vec<_> =
                    (1..=5).map(|number| (number.to_string(), count(number))).collect();
                assert_eq!(counted(&sender.messages(5)), expected);
                assert!(sender.messages_so_far().is_empty());
            }
        }
    }
}

/// Says at its end, be it a failure, that somebody need not go on.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Keeps the broker busy with transactions while `alive` holds.
fn keep_busy(address: SocketAddr, queue: &str, alive: &AtomicBool) {
    let mut raw = Raw::login(address, 0);
    let session = raw.create_session(0);
    raw.create_destination(queue, QUEUE);
    while alive.load(Ordering::Relaxed) {
        let asked: Vec<i64> = (0..8)
            .map(|_| {
                let transaction = raw.begin(session);
                for _ in 0..20 {
                    raw.send(Raw::text_in(transaction, queue, QUEUE, "x"));
                }
                raw.ask(about(PacketType::ROLLBACK_TRANSACTION, transaction))
            })
            .collect();
        assert!(asked.into_iter().all(|id| status(&raw.reply(id)) == 200));
    }
}

#[test]
fn what_a_transaction_held_comes_back_in_front_however_busy_transactions_are() {
    const ROUNDS: usize = 200;
    // A second consumer waits for the place of the first.
    let settings = "[queues.q]\nactive_consumers_max = 1\nbackup_consumers_max = 1";
    let config = BrokerConfig::from_toml_str(settings, "test").unwrap();
    let mut builder = Broker::builder();
    builder.config(config).loops(2).listen(local()).jms(local()).admin(local());
    let broker = builder.start().unwrap();
    let address = broker.jms_address();
    let alive = AtomicBool::new(true);
    thread::scope(|scope| {
        for queue in ["busy", "bustling"] {
            let alive = &alive;
            scope.spawn(move || keep_busy(address, queue, alive));
        }
        let stop = Stop(&alive);
        let wrong = (0..ROUNDS).find_map(|round| {
            let mut first = Raw::login(address, 0);
            first.fill("q", 1..=5);
            let (session, _) = first.consume(0, "q", 3);
            let got = first.messages(3);
            let transaction = first.begin(session);
            assert_eq!(status(&first.acknowledge_in(transaction, &[&got[0]])), 200);
            let mut second = Raw::login(address, 0);
            let (next_session, _) = second.consume(1, "q", -1);
            if round % 2 == 0 {
                first.reset();
            } else {
                first.send(destroy(session));
            }
            let all = second.messages(5);
            assert_eq!(status(&second.request(acknowledge(&all.iter().collect::<Vec<_>>()))), 200);
            assert_eq!(status(&second.request(destroy(next_session))), 200);
            let expected = times(&[("1", 2), ("2", 2), ("3", 2), ("4", 1), ("5", 1)]);
            let all = counted(&all);
            (all != expected).then_some((round, all))
        });
        drop(stop);
        assert_eq!(wrong, None);
    });
}

/// Closes a consumer whose application has seen everything up to this message, or nothing.
fn close(raw: &mut Raw, consumer: i64, last: Option<&Packet>) {
    let packet = PacketBuilder::new(PacketType::DELETE_CONSUMER).long("JMQConsumerID", consumer);
    let packet = match last {
        Some(last) => packet
            .int("JMQBodyType", 3)
            .boolean("JMQLastDeliveredIDInTransaction", true)
            .body(last.header().id.encode().to_vec()),
        None => packet.int("JMQBodyType", 0).boolean("JMQRedeliverAll", true),
    };
    assert_eq!(status(&raw.request(packet)), 200);
}

#[test]
fn a_closed_consumer_leaves_what_it_acknowledged_to_its_transaction() {
    for commits in [true, false] {
        let broker = broker(1);
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.fill("q", 1..=5);
        let (session, consumer) = raw.consume(0, "q", 10);
        let got = raw.messages(5);
        let transaction = raw.begin(session);
        assert_eq!(status(&raw.acknowledge_in(transaction, &[&got[0]])), 200);
        assert_eq!(status(&raw.acknowledge_in(transaction, &[&got[2]])), 200);
        close(&mut raw, consumer, Some(&got[2]));
        raw.add_consumer(session, "q", QUEUE, 10);
        let rest = raw.messages(3);
        assert_eq!(counted(&rest), times(&[("2", 2), ("4", 1), ("5", 1)]));
        assert!(raw.messages_so_far().is_empty());
        assert_eq!(held(&broker, "q"), 5);
        if commits {
            assert_eq!(status(&raw.commit(transaction)), 200);
            wait_until("consumed", || held(&broker, "q") == 3);
        } else {
            assert_eq!(status(&raw.rollback(transaction)), 200);
            // Its consumer is gone, and with it who would have them redelivered.
            assert_eq!(counted(&raw.messages(2)), times(&[("1", 2), ("3", 2)]));
        }
    }
}

#[test]
fn a_closed_consumer_that_gives_all_back_keeps_what_its_transaction_holds() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", 1..=3);
    let (session, consumer) = raw.consume(0, "q", 10);
    let got = raw.messages(3);
    let transaction = raw.begin(session);
    assert_eq!(status(&raw.acknowledge_in(transaction, &[&got[1]])), 200);
    close(&mut raw, consumer, None);
    raw.add_consumer(session, "q", QUEUE, 10);
    assert_eq!(counted(&raw.messages(2)), times(&[("1", 1), ("3", 1)]));
    assert_eq!(status(&raw.commit(transaction)), 200);
    wait_until("consumed", || held(&broker, "q") == 2);
    assert!(raw.messages_so_far().is_empty());
}

#[test]
fn a_client_that_closes_in_order_gives_everything_back() {
    for style in [Style::Java, Style::C] {
        let broker = broker(2);
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.fill("q", 1..=4);
        let (session, consumer) = raw.consume(0, "q", 10);
        let got = raw.messages(4);
        let transaction = raw.begin(session);
        raw.fill_in(transaction, "q", &["never"]);
        for message in &got[..2] {
            assert_eq!(status(&raw.acknowledge_in(transaction, &[message])), 200);
        }
        assert_eq!(status(&raw.request(PacketBuilder::new(PacketType::STOP))), 200);
        close(&mut raw, consumer, Some(&got[1]));
        let rollback = about(PacketType::ROLLBACK_TRANSACTION, transaction);
        match style {
            Style::Java => {
                raw.send(rollback.boolean("JMQUpdateConsumed", true));
            }
            Style::C => assert_eq!(status(&raw.request(rollback)), 200),
        }
        assert_eq!(status(&raw.request(destroy(session))), 200);
        assert_eq!(status(&raw.request(PacketBuilder::new(PacketType::GOODBYE))), 200);
        raw.until_end();
        drop(raw);
        wait_until("it has left", || broker.snapshot().connections == 0);
        let expected = [("1", 2), ("2", 2), ("3", 1), ("4", 1)];
        assert_eq!(drain(broker.jms_address(), "q"), times(&expected), "{style:?}");
    }
}

#[test]
fn subscriptions_keep_what_was_rolled_back_and_forget_what_was_committed() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("t", TOPIC);
    let client_id = PacketBuilder::new(PacketType::SET_CLIENTID).string("JMQClientID", "c");
    assert_eq!(status(&raw.request(client_id)), 200);
    let session = raw.create_session(0);
    let durable = PacketBuilder::new(PacketType::ADD_CONSUMER)
        .string("JMQDestination", "t")
        .int("JMQDestType", TOPIC)
        .string("JMQDurableName", "d")
        .long("JMQSessionID", session);
    let consumer = long(&raw.request(durable), "JMQConsumerID");
    raw.add_consumer(session, "t", TOPIC, 10);
    raw.start();
    for text in ["1", "2"] {
        assert_eq!(status(&raw.request(Raw::text("t", TOPIC, text))), 200);
    }
    let got = raw.messages(4);
    let first: Vec<&Packet> = got.iter().filter(|one| body(one) == "1").collect();
    let second: Vec<&Packet> = got.iter().filter(|one| body(one) == "2").collect();
    let consumed = raw.begin(session);
    assert_eq!(status(&raw.acknowledge_in(consumed, &first)), 200);
    assert_eq!(status(&raw.commit(consumed)), 200);
    wait_until("consumed by both", || held(&broker, "t") == 1);
    let undone = raw.begin(session);
    assert_eq!(status(&raw.acknowledge_in(undone, &second)), 200);
    let rollback = about(PacketType::ROLLBACK_TRANSACTION, undone).boolean("JMQRedeliver", true);
    assert_eq!(status(&raw.request(rollback)), 200);
    let again = raw.messages(2);
    assert_eq!(counted(&again), times(&[("2", 2), ("2", 2)]));
    assert!(again.iter().any(|one| one.header().consumer_id == consumer));
}
