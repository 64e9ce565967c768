//! Local transactions, seen on the wire: what is sent and acknowledged in one becomes true whole,
//! or not at all.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use std::{collections::HashMap, net::SocketAddr, thread};

use support::{
    broker,
    raw::{
        QUEUE, Raw, TOPIC, about, acknowledge, bodies, body, counted, delivery_count, destroy,
        drain, held, in_transaction, int, long, reason, redeliver, status, times,
    },
    wait_until,
};
use tidegate::wire::{Flags, Packet, PacketBuilder, PacketType};

fn is_marked_failed(packet: &Packet) -> bool {
    packet.properties().unwrap().boolean("JMQPrepareStateFAILED").unwrap().unwrap_or(false)
}

fn browse(raw: &mut Raw, queue: &str) -> usize {
    let reply = raw.request(
        PacketBuilder::new(PacketType::BROWSE)
            .string("JMQDestination", queue)
            .int("JMQDestType", QUEUE),
    );
    assert_eq!(status(&reply), 200);
    reply.body().len() / 32
}

#[test]
fn what_is_sent_is_seen_by_nobody_before_the_commit_and_then_in_order() {
    for loops in [1, 2] {
        let broker = broker(loops);
        let mut sender = Raw::login(broker.jms_address(), 0);
        let mut receiver = Raw::login(broker.jms_address(), 0);
        let session = receiver.create_session(1);
        for (name, kind) in [("q", QUEUE), ("r", QUEUE), ("t", TOPIC)] {
            receiver.create_destination(name, kind);
            receiver.add_consumer(session, name, kind, -1);
        }
        receiver.stop_session(session);
        receiver.start();
        let own = sender.create_session(0);
        let transaction = sender.begin(own);
        let mut sent = Vec::new();
        for (name, kind, text, priority) in [
            ("q", QUEUE, "q 1", 4),
            ("t", TOPIC, "t 1", 4),
            ("q", QUEUE, "q urgent", 9),
            ("r", QUEUE, "r 1", 4),
            ("q", QUEUE, "q 2", 4),
            ("t", TOPIC, "t 2", 4),
            ("q", QUEUE, "q idle", 0),
        ] {
            // Half of them do not ask for a reply.
            let message = Raw::text_in(transaction, name, kind, text).priority(priority);
            if priority == 4 {
                assert_eq!(status(&sender.request(message)), 200);
            } else {
                sender.send(message);
            }
            sent.push(text);
        }
        assert_eq!((browse(&mut sender, "q"), browse(&mut sender, "r")), (0, 0));
        receiver.start_session(session);
        assert!(receiver.messages_so_far().is_empty(), "nothing is committed");
        assert_eq!(held(&broker, "q"), 0);
        receiver.stop_session(session);
        let reply = sender.commit(transaction);
        assert_eq!((status(&reply), long(&reply, "JMQTransactionID")), (200, transaction));
        wait_until("all of it is there", || {
            ["q", "r", "t"].map(|name| held(&broker, name)) == [4, 1, 2]
        });
        receiver.start_session(session);
        let got = receiver.messages(7);
        let of = |name: char| -> Vec<String> {
            bodies(&got).into_iter().filter(|text| text.starts_with(name)).collect()
        };
        assert_eq!(of('q'), ["q urgent", "q 1", "q 2", "q idle"]);
        assert_eq!(of('r'), ["r 1"]);
        assert_eq!(of('t'), ["t 1", "t 2"]);
        for message in &got {
            assert_eq!(delivery_count(message), 1);
            let fields = message.variable().unwrap();
            assert_eq!(fields.transaction_id, Some(transaction), "it stays as produced");
        }
        assert!(receiver.messages_so_far().is_empty());
        assert_eq!(got.len(), sent.len());
    }
}

#[test]
fn a_rollback_forgets_what_was_sent_and_answers_whoever_asks() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", [""; 0]);
    let (session, _) = raw.consume(0, "q", -1);
    for asks in [false, true] {
        let transaction = raw.begin(session);
        raw.fill_in(transaction, "q", &["lost"]);
        if asks {
            let reply = raw.rollback(transaction);
            assert_eq!((status(&reply), long(&reply, "JMQTransactionID")), (200, transaction));
        } else {
            raw.send(about(PacketType::ROLLBACK_TRANSACTION, transaction));
        }
        let next = raw.begin(session);
        assert!(raw.messages_so_far().is_empty());
        let is_reply =
            |one: &Packet| one.header().packet_type == PacketType::ROLLBACK_TRANSACTION_REPLY;
        assert!(raw.look(is_reply).is_none(), "nobody asked");
        assert_eq!(status(&raw.rollback(next)), 200);
    }
    assert_eq!(held(&broker, "q"), 0);
}

#[test]
fn what_was_acknowledged_is_gone_after_the_commit_and_not_before() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", 1..=3);
    let (session, _) = raw.consume(0, "q", 3);
    let got = raw.messages(3);
    let transaction = raw.begin(session);
    for message in &got[..2] {
        assert_eq!(status(&raw.acknowledge_in(transaction, &[message])), 200);
    }
    assert_eq!(held(&broker, "q"), 3);
    raw.fill_in(transaction, "q", &["4"]);
    assert_eq!(status(&raw.commit(transaction)), 200);
    wait_until("settled", || held(&broker, "q") == 2);
    drop(raw);
    wait_until("the connection is gone", || broker.snapshot().connections == 0);
    assert_eq!(drain(broker.jms_address(), "q"), times(&[("3", 2), ("4", 1)]));
}

#[test]
fn a_failed_acknowledgement_leaves_only_the_rollback() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", 1..=3);
    let (session, _) = raw.consume(0, "q", 2);
    let got = raw.messages(2);
    for unknown_consumer in [false, true] {
        let transaction = raw.begin(session);
        raw.fill_in(transaction, "q", &["never"]);
        assert_eq!(status(&raw.acknowledge_in(transaction, &[&got[0]])), 200);
        let failed = if unknown_consumer {
            let mut block = support::raw::blocks(&[&got[1]]);
            block[..8].copy_from_slice(&77_i64.to_be_bytes());
            let packet = PacketBuilder::new(PacketType::ACKNOWLEDGE).body(block);
            let reply = raw.request(in_transaction(transaction, packet));
            assert_eq!(status(&reply), 404);
            reply
        } else {
            // It is acknowledged already.
            let reply = raw.acknowledge_in(transaction, &[&got[0]]);
            assert_eq!(status(&reply), 409);
            reply
        };
        assert!(reason(&failed).contains("can only be rolled back"), "{}", reason(&failed));
        let late = raw.request(Raw::text_in(transaction, "q", QUEUE, "late"));
        assert_eq!(status(&late), 500);
        assert_eq!(status(&raw.acknowledge_in(transaction, &[&got[1]])), 412);
        let commit = raw.commit(transaction);
        assert_eq!((status(&commit), is_marked_failed(&commit)), (412, true));
        assert!(reason(&commit).ends_with("it was rolled back"), "{}", reason(&commit));
        assert_eq!(status(&raw.rollback(transaction)), 200, "the application hears of it");
        assert_eq!(held(&broker, "q"), 3);
        assert!(raw.messages_so_far().is_empty());
    }
    // The deliveries are what they were before.
    let transaction = raw.begin(session);
    assert_eq!(status(&raw.acknowledge_in(transaction, &[&got[0], &got[1]])), 200);
    assert_eq!(status(&raw.commit(transaction)), 200);
    wait_until("consumed", || held(&broker, "q") == 1);
}

#[test]
fn each_acknowledgement_is_told_its_own_outcome() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("a", ["1"]);
    raw.fill("b", ["2"]);
    let session = raw.create_session(0);
    raw.add_consumer(session, "a", QUEUE, 10);
    raw.add_consumer(session, "b", QUEUE, 10);
    raw.start();
    let mut got = raw.messages(2);
    got.sort_by_key(body);
    let transaction = raw.begin(session);
    let packets = [&got[0], &got[1], &got[0]];
    let asked =
        raw.ask_at_once(packets.map(|packet| in_transaction(transaction, acknowledge(&[packet]))));
    let statuses: Vec<i32> = asked.into_iter().map(|id| status(&raw.reply(id))).collect();
    assert_eq!(statuses, [200, 200, 409]);
}

#[test]
fn a_message_belongs_to_the_first_transaction_that_acknowledged_it() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", ["1", "2"]);
    let (session, _) = raw.consume(0, "q", 10);
    let got = raw.messages(2);
    let (first, second) = (raw.begin(session), raw.begin(session));
    assert_eq!(status(&raw.acknowledge_in(first, &[&got[0]])), 200);
    // The other message of this acknowledgement is the second one's all the same.
    assert_eq!(status(&raw.acknowledge_in(second, &[&got[0], &got[1]])), 409);
    assert_eq!(status(&raw.request(acknowledge(&[&got[0]]))), 409, "nor can it be settled alone");
    assert_eq!(status(&raw.rollback(second)), 200);
    assert_eq!(held(&broker, "q"), 2);
    assert_eq!(status(&raw.commit(first)), 200);
    wait_until("consumed", || held(&broker, "q") == 1);
    assert_eq!(status(&raw.request(acknowledge(&[&got[1]]))), 200, "it was let go");
}

#[test]
fn only_a_plain_acknowledgement_belongs_to_the_transaction() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", 1..=3);
    let (session, _) = raw.consume(0, "q", 10);
    let got = raw.messages(3);
    let transaction = raw.begin(session);
    // Asking whether it could be acknowledged does not acknowledge it.
    let validate = acknowledge(&[&got[0]]).boolean("JMQValidate", true);
    assert_eq!(status(&raw.request(in_transaction(transaction, validate))), 200);
    assert_eq!(status(&raw.acknowledge_in(transaction, &[&got[0]])), 200);
    // Nor does saying how often it was delivered.
    let count = acknowledge(&[&got[1]])
        .boolean("JMSXDeliveryCountUpdateOnly", true)
        .int("JMSXDeliveryCount", 3);
    assert_eq!(status(&raw.request(in_transaction(transaction, count))), 200);
    raw.stop_session(session);
    raw.send(redeliver(true, &[&got[1]]));
    raw.start_session(session);
    assert_eq!(counted(&[raw.message()]), times(&[("2", 4)]));
    // What cannot be delivered goes back, committed or not.
    let undeliverable = acknowledge(&[&got[2]]).int("JMQAckType", 1);
    assert_eq!(status(&raw.request(in_transaction(transaction, undeliverable))), 200);
    assert_eq!(counted(&[raw.message()]), times(&[("3", 2)]));
    assert_eq!(status(&raw.commit(transaction)), 200);
    wait_until("only the first is consumed", || held(&broker, "q") == 2);
}

#[test]
fn a_transaction_nobody_knows_is_refused_by_name() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let mut other = Raw::login(broker.jms_address(), 0);
    raw.fill("q", ["1"]);
    let (session, _) = raw.consume(0, "q", 10);
    let message = raw.message();
    let foreign = other.create_session(0);
    // One that never was, and one that is another connection's.
    for unknown in [4711, other.begin(foreign)] {
        for kind in [
            PacketType::COMMIT_TRANSACTION,
            PacketType::ROLLBACK_TRANSACTION,
            PacketType::PREPARE_TRANSACTION,
            PacketType::VERIFY_TRANSACTION,
            PacketType::END_TRANSACTION,
        ] {
            let request = about(kind, unknown).int("JMQXAFlags", 0x400_0000);
            let reply = raw.request(request);
            assert_eq!(status(&reply), 404, "{kind}");
            assert_eq!(reason(&reply), format!("Unknown transaction {unknown}"));
            assert_eq!(long(&reply, "JMQTransactionID"), unknown);
        }
        let reply = raw.request(Raw::text_in(unknown, "q", QUEUE, "x"));
        assert_eq!((status(&reply), held(&broker, "q")), (500, 1));
        assert_eq!(status(&raw.acknowledge_in(unknown, &[&message])), 404);
    }
    // It is let go: a transaction of its own can have it.
    let transaction = raw.begin(session);
    assert_eq!(status(&raw.acknowledge_in(transaction, &[&message])), 200);
    assert_eq!(status(&raw.commit(transaction)), 200);
    wait_until("consumed", || held(&broker, "q") == 0);
    let missing = raw.request(PacketBuilder::new(PacketType::COMMIT_TRANSACTION));
    assert_eq!((status(&missing), reason(&missing).as_str()), (500, "missing TransactionID"));
}

#[test]
fn nobody_loses_a_message_to_a_transaction_of_somebody_else() {
    let broker = broker(2);
    let mut owner = Raw::login(broker.jms_address(), 0);
    let mut other = Raw::login(broker.jms_address(), 0);
    owner.fill("q", ["1", "2", "3"]);
    let (session, _) = owner.consume(0, "q", 1);
    let first = owner.message();
    let transaction = owner.begin(session);
    assert_eq!(status(&owner.acknowledge_in(transaction, &[&first])), 200);
    other.consume(2, "q", 1);
    let second = other.message();
    assert_eq!(status(&other.acknowledge_in(transaction, &[&second])), 404);
    assert_eq!(status(&owner.commit(transaction)), 200);
    wait_until("one is consumed", || held(&broker, "q") == 2);
    assert_eq!(status(&other.request(acknowledge(&[&second]))), 200, "it is still its own");
    wait_until("and now two are", || held(&broker, "q") == 1);
}

#[test]
fn a_start_that_fails_has_an_id_for_those_who_read_that_first() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let mut other = Raw::login(broker.jms_address(), 0);
    let foreign = other.create_session(0);
    for session in [4711, foreign] {
        let start = PacketBuilder::new(PacketType::START_TRANSACTION);
        let reply = raw.request(start.long("JMQSessionID", session));
        assert_eq!((status(&reply), long(&reply, "JMQTransactionID")), (500, 0));
        assert!(reason(&reply).contains(&format!("no session {session}")), "{}", reason(&reply));
    }
    let start = PacketBuilder::new(PacketType::START_TRANSACTION);
    let reply = raw.request(start.int("JMQAutoRollback", 4));
    assert_eq!((status(&reply), long(&reply, "JMQTransactionID")), (400, 0));
}

#[test]
fn what_is_over_stays_over() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", [""; 0]);
    let session = raw.create_session(0);
    let committed = raw.begin(session);
    raw.fill_in(committed, "q", &["1"]);
    assert_eq!(status(&raw.commit(committed)), 200);
    assert_eq!(status(&raw.commit(committed)), 200, "asked again, after a lost reply");
    assert_eq!(status(&raw.rollback(committed)), 412);
    let undone = raw.begin(session);
    raw.fill_in(undone, "q", &["2"]);
    assert_eq!(status(&raw.rollback(undone)), 200);
    assert_eq!(status(&raw.rollback(undone)), 200);
    assert_eq!(status(&raw.commit(undone)), 412);
    for over in [committed, undone] {
        let late = raw.request(Raw::text_in(over, "q", QUEUE, "late"));
        assert_eq!(status(&late), 500);
    }
    assert_eq!(drain(broker.jms_address(), "q"), times(&[("1", 1)]));
}

#[test]
fn a_commit_may_start_the_next_transaction() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", [""; 0]);
    let session = raw.create_session(0);
    let first = raw.begin(session);
    raw.fill_in(first, "q", &["1"]);
    let and_next =
        |id| about(PacketType::COMMIT_TRANSACTION, id).boolean("JMQStartNextTransaction", true);
    let reply = raw.request(and_next(first));
    assert_eq!((status(&reply), long(&reply, "JMQTransactionID")), (200, first));
    let next = long(&reply, "JMQNextTransactionID");
    raw.fill_in(next, "q", &["2"]);
    assert_eq!(status(&raw.request(destroy(session))), 200);
    assert_eq!(status(&raw.commit(next)), 412, "it ended with its session");
    assert_eq!(drain(broker.jms_address(), "q"), times(&[("1", 1)]));
}

#[test]
fn what_is_sent_to_a_destination_that_ends_goes_with_it_and_the_rest_is_carried_out() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("gone", ["1", "2"]);
    raw.fill("kept", ["1"]);
    let session = raw.create_session(0);
    raw.add_consumer(session, "gone", QUEUE, 10);
    raw.start();
    let got = raw.messages(2);
    let transaction = raw.begin(session);
    raw.fill_in(transaction, "gone", &["x"]);
    raw.fill_in(transaction, "kept", &["2"]);
    assert_eq!(status(&raw.acknowledge_in(transaction, &[&got[0]])), 200);
    let request = PacketBuilder::new(PacketType::DESTROY_DESTINATION)
        .string("JMQDestination", "gone")
        .int("JMQDestType", QUEUE);
    assert_eq!(status(&raw.request(request)), 200);
    let late = raw.request(Raw::text_in(transaction, "gone", QUEUE, "late"));
    assert_eq!((status(&late), reason(&late).as_str()), (500, "Unknown Destination:gone"));
    assert_eq!(status(&raw.create_destination("gone", QUEUE)), 200);
    assert_eq!(status(&raw.commit(transaction)), 200);
    assert_eq!(drain(broker.jms_address(), "kept"), times(&[("1", 1), ("2", 1)]));
    assert_eq!(drain(broker.jms_address(), "gone"), []);
}

#[test]
fn one_message_to_many_topics_is_whole_or_refused() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let session = raw.create_session(0);
    for name in ["t.a", "t.b"] {
        raw.create_destination(name, TOPIC);
        raw.add_consumer(session, name, TOPIC, 10);
    }
    raw.start();
    let unknown = raw.request(Raw::text_in(4711, "t.*", TOPIC, "x"));
    assert_eq!(status(&unknown), 500, "no transaction has it");
    let transaction = raw.begin(session);
    let sent = raw.request(Raw::text_in(transaction, "t.*", TOPIC, "y"));
    assert_eq!(status(&sent), 200);
    assert!(raw.messages_so_far().is_empty());
    assert_eq!(status(&raw.commit(transaction)), 200);
    assert_eq!(bodies(&raw.messages(2)), ["y", "y"]);
}

#[test]
fn a_producer_gets_its_next_credit_inside_a_transaction() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", [""; 0]);
    let session = raw.create_session(0);
    let producer = raw.request(
        PacketBuilder::new(PacketType::ADD_PRODUCER)
            .string("JMQDestination", "q")
            .int("JMQDestType", QUEUE)
            .long("JMQSessionID", session),
    );
    let producer = long(&producer, "JMQProducerID");
    let transaction = raw.begin(session);
    let fields = tidegate::wire::VariableHeader {
        destination: Some(b"q"),
        producer_id: Some(producer),
        transaction_id: Some(transaction),
        ..Default::default()
    };
    let message = PacketBuilder::new(PacketType::TEXT_MESSAGE)
        .variable(&fields, tidegate::wire::Padding::Java)
        .unwrap()
        .flags(Flags::QUEUE.with(Flags::CONSUMER_FLOW));
    assert_eq!(status(&raw.request(message)), 200);
    let resume = raw.expect(PacketType::RESUME_FLOW);
    assert_eq!((long(&resume, "JMQProducerID"), int(&resume, "JMQSize")), (producer, 1000));
    assert_eq!(status(&raw.commit(transaction)), 200);
}

/// Sends in transactions, every fifth of which is rolled back; what was committed.
fn produce(address: SocketAddr, rounds: u32) -> Vec<String> {
    let mut raw = Raw::login(address, 0);
    let session = raw.create_session(0);
    let mut committed = Vec::new();
    for round in 0..rounds {
        let transaction = raw.begin(session);
        let undone = round % 5 == 4;
        for (name, part) in [("a", "1"), ("b", "2"), ("a", "3")] {
            let text = format!("{round}.{part}");
            raw.send(Raw::text_in(transaction, name, QUEUE, &text));
            if !undone {
                committed.push(text);
            }
        }
        let reply = if undone { raw.rollback(transaction) } else { raw.commit(transaction) };
        assert_eq!(status(&reply), 200, "{}", reason(&reply));
    }
    committed
}

#[test]
fn transactions_of_several_loops_lose_nothing_and_double_nothing() {
    const ROUNDS: u32 = 200;
    let broker = broker(2);
    let address = broker.jms_address();
    // One connection for each loop: the next one is this thread's peer.
    let mut raw = Raw::login(address, 0);
    let session = raw.create_session(0);
    for name in ["a", "b"] {
        raw.create_destination(name, QUEUE);
        raw.add_consumer(session, name, QUEUE, -1);
    }
    raw.start();
    let sender = thread::spawn(move || produce(address, ROUNDS));
    let wanted = ROUNDS as usize / 5 * 4 * 3;
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut order: Vec<String> = Vec::new();
    let mut round = 0;
    while seen.len() < wanted {
        let transaction = raw.begin(session);
        let left = wanted - seen.len();
        let got = raw.messages(left.min(3));
        let packets: Vec<&Packet> = got.iter().collect();
        let acknowledged = raw.ask(in_transaction(transaction, acknowledge(&packets)));
        round += 1;
        if round % 7 == 0 {
            let rollback = about(PacketType::ROLLBACK_TRANSACTION, transaction);
            let reply = raw.request(rollback.boolean("JMQRedeliver", true));
            assert_eq!(status(&reply), 200);
        } else {
            // Not waiting for the acknowledgement first.
            let reply = raw.commit(transaction);
            assert_eq!(status(&reply), 200, "{}", reason(&reply));
            for message in &got {
                *seen.entry(body(message)).or_default() += 1;
                if delivery_count(message) == 1 {
                    order.push(body(message));
                }
            }
        }
        assert_eq!(status(&raw.reply(acknowledged)), 200);
    }
    let sent = sender.join().unwrap();
    assert_eq!(sent.len(), wanted);
    assert!(sent.iter().all(|text| seen.get(text) == Some(&1)), "each once: {seen:?}");
    let numbers = |part: &str| -> Vec<u32> {
        let of_part = order.iter().filter_map(|text| text.split_once('.'));
        of_part.filter(|(_, own)| *own == part).map(|(round, _)| round.parse().unwrap()).collect()
    };
    for part in ["1", "2", "3"] {
        assert!(numbers(part).is_sorted(), "{part} in the order of the commits");
    }
    wait_until("all is consumed", || held(&broker, "a") + held(&broker, "b") == 0);
}
