//! Branches of distributed transactions, and what is prepared, seen on the wire.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod support;

use support::{
    broker,
    raw::{
        QUEUE, Raw, TOPIC, about, bodies, body, counted, destroy, drain, held, in_transaction, int,
        long, reason, redeliver, status, times,
    },
    wait_until,
};
use tidegate::{
    broker::Broker,
    wire::{
        Packet, PacketBuilder, PacketType,
        java::{JavaValue, decode_hashtable},
    },
};

const NOFLAGS: i32 = 0;
const JOIN: i32 = 0x20_0000;
const END_SCAN: i32 = 0x80_0000;
const START_SCAN: i32 = 0x100_0000;
const SUSPEND: i32 = 0x200_0000;
const SUCCESS: i32 = 0x400_0000;
const RESUME: i32 = 0x800_0000;
const FAIL: i32 = 0x2000_0000;
const ONE_PHASE: i32 = 0x4000_0000;

/// The name of a branch: format 7, global name `tm`, branch name of one byte.
fn xid(number: u8) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 7, 0, 2, 0, 1];
    bytes.extend_from_slice(b"tm");
    bytes.resize(8 + 64, 0);
    bytes.push(number);
    bytes.resize(136, 0);
    bytes
}

/// A request about a branch that names only its XID.
fn named(kind: PacketType, flags: i32, number: u8) -> PacketBuilder {
    PacketBuilder::new(kind).int("JMQXAFlags", flags).body(xid(number))
}

fn start(flags: i32, number: u8) -> PacketBuilder {
    named(PacketType::START_TRANSACTION, flags, number)
}

fn end(flags: i32, number: u8) -> PacketBuilder {
    named(PacketType::END_TRANSACTION, flags, number)
}

fn prepare(number: u8) -> PacketBuilder {
    named(PacketType::PREPARE_TRANSACTION, NOFLAGS, number)
}

fn commit(flags: i32, number: u8) -> PacketBuilder {
    named(PacketType::COMMIT_TRANSACTION, flags, number)
}

fn rollback(number: u8) -> PacketBuilder {
    named(PacketType::ROLLBACK_TRANSACTION, NOFLAGS, number)
}

/// A scan for prepared branches finds these.
fn assert_recovered(raw: &mut Raw, flags: i32, expected: &[u8]) {
    let scan = PacketBuilder::new(PacketType::RECOVER_TRANSACTION).int("JMQXAFlags", flags);
    let reply = raw.request(scan);
    assert_eq!(status(&reply), 200);
    assert_eq!(int(&reply, "JMQQuantity"), i32::try_from(expected.len()).unwrap());
    let xids: Vec<u8> = expected.iter().flat_map(|&number| xid(number)).collect();
    assert_eq!(reply.body(), xids);
}

/// Asks, and says how that went.
fn ask(raw: &mut Raw, request: PacketBuilder) -> i32 {
    status(&raw.request(request))
}

/// Starts a branch.
fn begin(raw: &mut Raw, number: u8) -> i64 {
    let reply = raw.request(start(NOFLAGS, number));
    assert_eq!(status(&reply), 200, "{}", reason(&reply));
    long(&reply, "JMQTransactionID")
}

/// Ends and prepares a branch.
fn promise(raw: &mut Raw, number: u8) {
    assert_eq!(ask(raw, end(SUCCESS, number)), 200);
    let reply = raw.request(prepare(number));
    assert_eq!(status(&reply), 200, "{}", reason(&reply));
}

/// A client that has taken the first of three messages in a branch and sent another, and is gone
/// after the promise.
fn promised_and_gone(broker: &Broker, number: u8) {
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", 1..=3);
    raw.consume(0, "q", 10);
    let got = raw.messages(3);
    let transaction = begin(&mut raw, number);
    raw.fill_in(transaction, "q", &["4"]);
    assert_eq!(status(&raw.acknowledge_in(transaction, &[&got[0]])), 200);
    promise(&mut raw, number);
    let connections = broker.snapshot().connections;
    raw.reset();
    wait_until("the loss is noticed", || broker.snapshot().connections < connections);
}

#[test]
fn what_is_prepared_outlives_its_connection_and_is_finished_by_another() {
    for loops in [1, 2] {
        for commits in [true, false] {
            let broker = broker(loops);
            let mut raw = Raw::login(broker.jms_address(), 0);
            promised_and_gone(&broker, 1);
            raw.consume(1, "q", -1);
            let rest = raw.messages(2);
            assert_eq!(counted(&rest), times(&[("2", 2), ("3", 2)]));
            assert!(raw.messages_so_far().is_empty(), "the first belongs to the branch");
            assert_recovered(&mut raw, START_SCAN, &[1]);
            let request = if commits { commit(NOFLAGS, 1) } else { rollback(1) };
            let reply = raw.request(request);
            assert_eq!(status(&reply), 200, "{}", reason(&reply));
            assert!(long(&reply, "JMQTransactionID") > 0);
            let expected = if commits { ("4", 1) } else { ("1", 2) };
            assert_eq!(counted(&raw.messages(1)), times(&[expected]));
            assert!(raw.messages_so_far().is_empty());
            assert_eq!(held(&broker, "q"), 3);
            assert_recovered(&mut raw, START_SCAN, &[]);
        }
    }
}

#[test]
fn a_rolled_back_branch_gives_its_messages_their_place_again() {
    let broker = broker(2);
    promised_and_gone(&broker, 1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    // The wishes of a client for its consumers mean nothing where these are gone.
    assert_eq!(ask(&mut raw, rollback(1).boolean("JMQRedeliver", false)), 200);
    let all = drain(broker.jms_address(), "q");
    assert_eq!(all, times(&[("1", 2), ("2", 2), ("3", 2)]));
}

#[test]
fn a_branch_that_is_not_prepared_ends_with_its_connection() {
    for loops in [1, 2] {
        for (written, ends) in [(1, false), (3, false), (3, true)] {
            let broker = broker(loops);
            let mut sender = Raw::login(broker.jms_address(), 0);
            sender.fill("q", 1..=5);
            let mut dying = Raw::login(broker.jms_address(), 0);
            dying.consume(0, "q", written);
            let got = dying.messages(usize::try_from(written).unwrap());
            let transaction = begin(&mut dying, 1);
            dying.fill_in(transaction, "q", &["never"]);
            assert_eq!(status(&dying.acknowledge_in(transaction, &[&got[0]])), 200);
            if ends {
                assert_eq!(ask(&mut dying, end(SUCCESS, 1)), 200);
            }
            dying.reset();
            wait_until("the loss is noticed", || broker.snapshot().connections == 1);
            assert_recovered(&mut sender, START_SCAN, &[]);
            assert_eq!(ask(&mut sender, commit(NOFLAGS, 1)), 412, "it was rolled back");
            sender.consume(1, "q", -1);
            let count = |number| if number <= written { 2 } else { 1 };
            let expected: Vec<_> =
                (1..=5).map(|number| (number.to_string(), count(number))).collect();
            assert_eq!(counted(&sender.messages(5)), expected);
            assert!(sender.messages_so_far().is_empty());
        }
    }
}

#[test]
fn a_scan_names_what_is_prepared_and_only_when_it_begins() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    for number in [3, 1, 2] {
        begin(&mut raw, number);
        assert_eq!(ask(&mut raw, end(SUCCESS, number)), 200);
    }
    for number in [1, 3] {
        assert_eq!(ask(&mut raw, prepare(number)), 200);
    }
    // In the order of their starts.
    assert_recovered(&mut raw, START_SCAN, &[3, 1]);
    assert_recovered(&mut raw, START_SCAN | END_SCAN, &[3, 1]);
    assert_recovered(&mut raw, END_SCAN, &[]);
    assert_recovered(&mut raw, NOFLAGS, &[]);
    let silent = raw.request(PacketBuilder::new(PacketType::RECOVER_TRANSACTION));
    assert_eq!((status(&silent), int(&silent, "JMQQuantity")), (200, 0));
    // Of those that are open, one is prepared later, and one is finished.
    assert_eq!(ask(&mut raw, prepare(2)), 200);
    assert_eq!(ask(&mut raw, commit(NOFLAGS, 3)), 200);
    assert_recovered(&mut raw, START_SCAN, &[1, 2]);
}

#[test]
fn a_branch_goes_from_state_to_state_as_the_protocol_says() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", [""; 0]);
    let id = begin(&mut raw, 1);
    let send = |raw: &mut Raw, text: &str| ask(raw, Raw::text_in(id, "q", QUEUE, text));
    assert_eq!(send(&mut raw, "1"), 200);
    for early in [prepare(1), commit(NOFLAGS, 1), commit(ONE_PHASE, 1), rollback(1)] {
        let reply = raw.request(early);
        assert_eq!((status(&reply), long(&reply, "JMQTransactionID")), (412, id));
        assert!(reason(&reply).contains("it is started"), "{}", reason(&reply));
    }
    assert_eq!(ask(&mut raw, end(SUSPEND, 1)), 200);
    assert_eq!(send(&mut raw, "while it is suspended"), 500);
    assert_eq!(ask(&mut raw, start(JOIN, 1)), 412);
    let resumed = raw.request(start(RESUME, 1));
    assert_eq!((status(&resumed), long(&resumed, "JMQTransactionID")), (200, id));
    assert_eq!(send(&mut raw, "2"), 200);
    assert_eq!(ask(&mut raw, end(SUCCESS, 1)), 200);
    assert_eq!(send(&mut raw, "after its end"), 500);
    assert_eq!(ask(&mut raw, commit(NOFLAGS, 1)), 412, "it is not prepared");
    let joined = raw.request(start(JOIN, 1));
    assert_eq!((status(&joined), long(&joined, "JMQTransactionID")), (200, id));
    assert_eq!(send(&mut raw, "3"), 200);
    promise(&mut raw, 1);
    assert_eq!(ask(&mut raw, prepare(1)), 200, "once more");
    assert_eq!(send(&mut raw, "after the promise"), 500);
    assert_eq!(ask(&mut raw, end(SUCCESS, 1)), 412);
    assert_eq!(held(&broker, "q"), 0);
    assert_eq!(ask(&mut raw, commit(NOFLAGS, 1)), 200);
    assert_eq!(ask(&mut raw, commit(NOFLAGS, 1)), 200, "asked again, after a lost reply");
    assert_eq!(ask(&mut raw, rollback(1)), 412);
    let all = drain(broker.jms_address(), "q");
    assert_eq!(all, times(&[("1", 1), ("2", 1), ("3", 1)]));
}

#[test]
fn a_branch_may_be_committed_in_one_phase() {
    // Both ways to say so.
    for by_flag in [true, false] {
        let broker = broker(1);
        let mut raw = Raw::login(broker.jms_address(), 0);
        raw.fill("q", ["1"]);
        raw.consume(0, "q", 10);
        let message = raw.message();
        let id = begin(&mut raw, 1);
        raw.fill_in(id, "q", &["2"]);
        assert_eq!(status(&raw.acknowledge_in(id, &[&message])), 200);
        assert_eq!(ask(&mut raw, end(SUCCESS | ONE_PHASE, 1)), 200);
        let request = if by_flag {
            commit(ONE_PHASE, 1)
        } else {
            commit(NOFLAGS, 1).boolean("JMQXAOnePhase", true)
        };
        assert_eq!(ask(&mut raw, request), 200);
        assert_eq!(counted(&[raw.message()]), times(&[("2", 1)]));
        wait_until("the first is consumed", || held(&broker, "q") == 1);
    }
}

#[test]
fn work_that_failed_can_only_be_rolled_back() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", ["1"]);
    raw.consume(0, "q", 10);
    let message = raw.message();
    for by_client in [true, false] {
        let id = begin(&mut raw, 1);
        raw.fill_in(id, "q", &["never"]);
        if by_client {
            assert_eq!(ask(&mut raw, end(FAIL, 1)), 200);
        } else {
            assert_eq!(status(&raw.acknowledge_in(id, &[&message])), 200);
            assert_eq!(status(&raw.acknowledge_in(id, &[&message])), 409);
        }
        for late in [end(SUCCESS, 1), prepare(1), commit(NOFLAGS, 1), commit(ONE_PHASE, 1)] {
            let reply = raw.request(late);
            let failed = reply.properties().unwrap().boolean("JMQPrepareStateFAILED").unwrap();
            assert_eq!((status(&reply), failed), (412, Some(true)));
        }
        assert_eq!(ask(&mut raw, rollback(1)), 200);
        assert_eq!(held(&broker, "q"), 1);
    }
}

#[test]
fn a_name_is_checked_and_used_once_at_a_time() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let mut other = Raw::login(broker.jms_address(), 0);
    let malformed = |change: fn(&mut Vec<u8>)| {
        let mut bytes = xid(1);
        change(&mut bytes);
        PacketBuilder::new(PacketType::START_TRANSACTION).int("JMQXAFlags", 0).body(bytes)
    };
    for request in [
        malformed(|bytes| bytes.truncate(135)),
        malformed(|bytes| bytes.push(0)),
        malformed(Vec::clear),
        malformed(|bytes| bytes[..4].fill(0xff)),
        malformed(|bytes| bytes[5] = 65),
        malformed(|bytes| bytes[6] = 0xff),
        start(SUSPEND, 1),
    ] {
        let reply = raw.request(request);
        assert_eq!((status(&reply), long(&reply, "JMQTransactionID")), (400, 0));
    }
    assert_eq!(ask(&mut raw, start(JOIN, 1)), 404);
    assert_eq!(ask(&mut raw, start(RESUME, 1)), 404);
    begin(&mut raw, 1);
    for again in [&mut raw, &mut other] {
        let reply = again.request(start(NOFLAGS, 1));
        assert_eq!((status(&reply), long(&reply, "JMQTransactionID")), (409, 0));
        assert!(reason(&reply).contains("is in use already"), "{}", reason(&reply));
    }
    assert_eq!(ask(&mut raw, end(SUCCESS, 1)), 200);
    assert_eq!(ask(&mut raw, rollback(1)), 200);
    begin(&mut other, 1);
    assert_eq!(ask(&mut raw, end(SUCCESS, 2)), 404);
}

#[test]
fn several_connections_work_in_one_branch() {
    for joiner_dies in [true, false] {
        let broker = broker(2);
        let mut first = Raw::login(broker.jms_address(), 0);
        let mut second = Raw::login(broker.jms_address(), 0);
        first.fill("a", ["1"]);
        first.fill("b", ["2"]);
        first.consume(0, "a", 10);
        second.consume(0, "b", 10);
        let (one, two) = (first.message(), second.message());
        let id = begin(&mut first, 1);
        assert_eq!(status(&first.acknowledge_in(id, &[&one])), 200);
        let joined = second.request(start(JOIN, 1));
        assert_eq!((status(&joined), long(&joined, "JMQTransactionID")), (200, id));
        assert_eq!(status(&second.acknowledge_in(id, &[&two])), 200);
        second.fill_in(id, "a", &["3"]);
        let mut left = if joiner_dies {
            second.reset();
            first
        } else {
            first.reset();
            second
        };
        wait_until("the loss is noticed", || broker.snapshot().connections == 1);
        let ended = ask(&mut left, end(SUCCESS, 1));
        if joiner_dies {
            // What it did stays with the branch, which is another connection's.
            assert_eq!(ended, 200);
            assert_eq!(ask(&mut left, prepare(1)), 200);
            assert_eq!(ask(&mut left, commit(NOFLAGS, 1)), 200);
            assert_eq!(counted(&[left.message()]), times(&[("3", 1)]));
            wait_until("consumed", || held(&broker, "b") == 0);
        } else {
            assert_eq!(ended, 412, "it ended with whoever began it");
            assert_eq!(drain(broker.jms_address(), "a"), times(&[("1", 2)]));
            // Delivered, and no longer acknowledged.
            assert_eq!(status(&left.request(support::raw::acknowledge(&[&two]))), 200);
        }
    }
}

#[test]
fn a_branch_keeps_what_it_acknowledged_when_the_session_ends() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", 1..=3);
    let (session, _) = raw.consume(0, "q", 10);
    let got = raw.messages(3);
    let id = begin(&mut raw, 1);
    assert_eq!(status(&raw.acknowledge_in(id, &[&got[1]])), 200);
    assert_eq!(ask(&mut raw, destroy(session)), 200);
    raw.consume(1, "q", 10);
    assert_eq!(counted(&raw.messages(2)), times(&[("1", 2), ("3", 2)]));
    assert!(raw.messages_so_far().is_empty());
    promise(&mut raw, 1);
    assert_eq!(held(&broker, "q"), 3);
    assert_eq!(ask(&mut raw, commit(NOFLAGS, 1)), 200);
    wait_until("consumed", || held(&broker, "q") == 2);
}

#[test]
fn what_is_prepared_can_still_be_redelivered_by_its_client() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", 1..=3);
    let (session, _) = raw.consume(0, "q", -1);
    let got = raw.messages(3);
    let id = begin(&mut raw, 1);
    for message in &got[..2] {
        assert_eq!(status(&raw.acknowledge_in(id, &[message])), 200);
    }
    promise(&mut raw, 1);
    assert_eq!(status(&raw.acknowledge_in(id, &[&got[2]])), 412);
    raw.stop_session(session);
    // Whoever does not name the transaction gets nothing of it.
    raw.send(redeliver(true, &[&got[1]]));
    raw.send(in_transaction(id, redeliver(true, &[&got[0]])));
    raw.start_session(session);
    assert_eq!(counted(&[raw.message()]), times(&[("1", 2)]));
    assert!(raw.messages_so_far().is_empty());
    assert_eq!(ask(&mut raw, rollback(1)), 200);
    assert_eq!(counted(&[raw.message()]), times(&[("2", 2)]), "the broker has it, and puts back");
    assert_eq!(held(&broker, "q"), 3);
}

#[test]
fn a_client_chooses_what_is_rolled_back_by_itself() {
    let broker = broker(2);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", 1..=2);
    let mut dying = Raw::login(broker.jms_address(), 0);
    dying.consume(0, "q", 10);
    let got = dying.messages(2);
    for (number, choice) in [(1, 1), (2, 3)] {
        let reply = dying.request(start(NOFLAGS, number).int("JMQAutoRollback", choice));
        let id = long(&reply, "JMQTransactionID");
        let message = &got[usize::from(number) - 1];
        assert_eq!(status(&dying.acknowledge_in(id, &[message])), 200);
    }
    promise(&mut dying, 1);
    dying.reset();
    wait_until("the loss is noticed", || broker.snapshot().connections == 1);
    // The first goes with its connection, prepared or not, the second never does.
    assert_recovered(&mut raw, START_SCAN, &[]);
    assert_eq!(drain(broker.jms_address(), "q"), times(&[("1", 2)]));
    promise(&mut raw, 2);
    assert_eq!(ask(&mut raw, commit(NOFLAGS, 2)), 200);
    wait_until("consumed", || held(&broker, "q") == 1);
}

/// What VERIFY says of a transaction that is prepared.
fn described(reply: &Packet) -> Vec<(String, JavaValue)> {
    assert_eq!(status(reply), 200, "{}", reason(reply));
    decode_hashtable(&reply.body()).unwrap()
}

#[test]
fn whoever_verifies_is_told_about_what_is_prepared() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let lives = start(NOFLAGS, 1).long("JMQLifetime", 3_600_000).int("JMQAutoRollback", 3);
    let id = long(&raw.request(lives), "JMQTransactionID");
    let by_id = || about(PacketType::VERIFY_TRANSACTION, id);
    // The id says nothing if it is 0.
    let by_xid = || about(PacketType::VERIFY_TRANSACTION, 0).body(xid(1));
    assert_eq!(ask(&mut raw, by_id()), 404, "it is not prepared");
    promise(&mut raw, 1);
    for request in [by_id(), by_xid()] {
        let table = described(&raw.request(request));
        let get = |name: &str| {
            let found = table.iter().find(|(own, _)| own == name);
            found.map(|(_, value)| value.clone()).unwrap()
        };
        assert_eq!(get("State"), JavaValue::Int(6));
        assert_eq!(get("JMQAutoRollback"), JavaValue::Int(3));
        assert_eq!(get("JMQSessionLess"), JavaValue::Boolean(false));
        assert_eq!(get("JMQLifetime"), JavaValue::Long(3_600_000));
        assert_eq!(get("JMQXid"), JavaValue::String("7:746d:01".into()));
        assert!(matches!(get("JMQCreateTime"), JavaValue::Long(ms) if ms > 0));
    }
    assert_eq!(ask(&mut raw, commit(NOFLAGS, 1)), 200);
    assert_eq!(ask(&mut raw, by_id()), 404);
    assert_eq!(ask(&mut raw, by_xid()), 404);
}

#[test]
fn an_end_that_only_asks_changes_nothing() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", [""; 0]);
    let id = begin(&mut raw, 1);
    assert_eq!(ask(&mut raw, end(SUCCESS, 1).boolean("JMQNoOp", true)), 200);
    raw.fill_in(id, "q", &["1"]);
    assert_eq!(ask(&mut raw, end(SUCCESS, 2).boolean("JMQNoOp", true)), 404);
}

#[test]
fn a_prepared_branch_has_no_lifetime_any_more() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let lives = |number| start(NOFLAGS, number).long("JMQLifetime", 1000);
    let id = long(&raw.request(lives(1)), "JMQTransactionID");
    promise(&mut raw, 1);
    // A later one with less time is gone; so the first's time is over as well soon.
    let other = long(&raw.request(lives(2)), "JMQTransactionID");
    let is_open = |raw: &mut Raw, id| {
        ask(raw, about(PacketType::END_TRANSACTION, id).boolean("JMQNoOp", true)) == 200
    };
    wait_until("its time is over", || !is_open(&mut raw, other));
    assert!(is_open(&mut raw, id));
    assert_eq!(ask(&mut raw, commit(NOFLAGS, 1)), 200);
}

#[test]
fn a_local_transaction_may_be_prepared_and_finished_after_a_reconnect() {
    let broker = broker(2);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.fill("q", ["1"]);
    let (session, _) = raw.consume(0, "q", 10);
    let message = raw.message();
    let id = raw.begin(session);
    raw.fill_in(id, "q", &["2"]);
    assert_eq!(status(&raw.acknowledge_in(id, &[&message])), 200);
    let end = about(PacketType::END_TRANSACTION, id).int("JMQXAFlags", SUCCESS);
    assert_eq!(ask(&mut raw, end), 200);
    assert_eq!(ask(&mut raw, about(PacketType::PREPARE_TRANSACTION, id)), 200);
    let mut next = Raw::login(broker.jms_address(), 0);
    let verify = || about(PacketType::VERIFY_TRANSACTION, id);
    assert_eq!(ask(&mut next, verify()), 404, "it is another connection's");
    raw.reset();
    wait_until("the loss is noticed", || broker.snapshot().connections == 1);
    assert_recovered(&mut next, START_SCAN, &[]);
    assert_eq!(described(&next.request(verify()))[0].1, JavaValue::Int(6));
    assert_eq!(status(&next.commit(id)), 200);
    assert_eq!(ask(&mut next, verify()), 404);
    assert_eq!(drain(broker.jms_address(), "q"), times(&[("2", 1)]));
}

#[test]
fn subscriptions_outlive_their_consumers_in_a_prepared_branch() {
    let broker = broker(2);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("t", TOPIC);
    let durable = |raw: &mut Raw| {
        let client_id = PacketBuilder::new(PacketType::SET_CLIENTID).string("JMQClientID", "c");
        assert_eq!(ask(raw, client_id), 200);
        let session = raw.create_session(0);
        let reply = raw.request(
            PacketBuilder::new(PacketType::ADD_CONSUMER)
                .string("JMQDestination", "t")
                .int("JMQDestType", TOPIC)
                .string("JMQDurableName", "d")
                .long("JMQSessionID", session),
        );
        assert_eq!(status(&reply), 200, "{}", reason(&reply));
        raw.start();
        session
    };
    let mut dying = Raw::login(broker.jms_address(), 0);
    let session = durable(&mut dying);
    dying.add_consumer(session, "t", TOPIC, 10);
    for text in ["1", "2"] {
        assert_eq!(ask(&mut raw, Raw::text("t", TOPIC, text)), 200);
    }
    let got = dying.messages(4);
    for (number, text) in [(1, "1"), (2, "2")] {
        let id = begin(&mut dying, number);
        let both: Vec<&Packet> = got.iter().filter(|one| body(one) == text).collect();
        assert_eq!(both.len(), 2);
        assert_eq!(status(&dying.acknowledge_in(id, &both)), 200);
        promise(&mut dying, number);
    }
    dying.reset();
    wait_until("the loss is noticed", || broker.snapshot().connections == 1);
    durable(&mut raw);
    assert!(raw.messages_so_far().is_empty(), "both belong to the branches");
    assert_eq!(ask(&mut raw, rollback(1)), 200);
    assert_eq!(ask(&mut raw, commit(NOFLAGS, 2)), 200);
    assert_eq!(bodies(&[raw.message()]), ["1"]);
    assert!(raw.messages_so_far().is_empty());
    wait_until("the topic keeps the one that came back", || held(&broker, "t") == 1);
}
