//! Whose a transaction is, how long it stays, and what is said of it.

use super::{
    Bench, Done, LIMITS, branch, commit, end, ends, named, parted, prepare, recover, rollback,
    settled, start, with, xid,
};
use crate::{
    broker::transaction::{Effect, Outcome, State, TxCommand, TxReply, Verdict},
    proto::{
        broker_in::ReplyTo,
        transaction::{
            Association, AutoRollback, Ending, Start, Target, TransactionRequest, XaFlags,
        },
    },
    wire::{PacketType, Status, java},
};

#[test]
fn somebody_elses_local_transaction_does_not_exist() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    assert_eq!(bench.send(id, 2, 1), 500);
    assert_eq!(bench.status(2, commit(Target::id(id))), 404);
    assert_eq!(bench.status(2, rollback(Target::id(id))), 404);
    assert_eq!(bench.expect(id, 2, &["x"]).len(), 2);
    // And nobody can hold it up: its owner commits before the other's is carried out.
    assert_eq!(bench.status(1, commit(Target::id(id))), 200);
    assert_eq!(bench.consumed(id, Status::CONFLICT), []);
    assert_eq!(bench.status(2, commit(Target::id(id))), 404);
    assert_eq!(bench.status(1, commit(Target::id(id))), 200);
}

#[test]
fn what_is_over_is_remembered_for_a_while() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    assert_eq!(bench.status(1, commit(Target::id(id))), 200);
    assert_eq!(bench.reply(1, commit(Target::id(id))), TxReply::done(id));
    assert_eq!(bench.status(1, rollback(Target::id(id))), 412);
    assert_eq!(bench.status(1, TransactionRequest::Verify(Target::id(id))), 404);
    for _ in 0..LIMITS.remembered_max - 1 {
        let other = bench.local(1, 10);
        assert_eq!(bench.status(1, rollback(Target::id(other))), 200);
        assert_eq!(bench.status(1, commit(Target::id(other))), 412);
    }
    assert_eq!(bench.status(1, commit(Target::id(id))), 200);
    let other = bench.local(1, 10);
    assert_eq!(bench.status(1, rollback(Target::id(other))), 200);
    assert_eq!(bench.status(1, commit(Target::id(id))), 404);
}

#[test]
fn a_connection_takes_with_it_what_is_not_prepared() {
    let mut bench = Bench::new();
    let prepared = bench.prepared(1, 1);
    let local = bench.local(1, 10);
    let begun = bench.branch(1, 2);
    let other = bench.local(2, 10);
    assert_eq!(bench.send(local, 1, 5), 200);
    bench.acknowledge(begun, 1, &["x"], Status::OK);
    let effects = bench.ended(1);
    let undone = settled("x", begun, Outcome::undone(true));
    assert_eq!(effects, [Effect::Drop(5, "a"), undone]);
    assert_eq!(bench.states(), [(prepared, State::Prepared), (other, State::Started)]);
    let (effects, reply) = bench.answered(2, rollback(named(1)));
    let undone = settled("b", prepared, Outcome::undone(true));
    assert_eq!(effects, [Effect::Drop(7, "a"), undone], "no consumer can have it redelivered");
    assert_eq!(reply, TxReply::done(prepared));
    assert_eq!(bench.ended(1), []);
    assert_eq!(bench.ended(2), []);
    assert_eq!(bench.states(), []);
}

#[test]
fn a_prepared_local_transaction_is_finished_from_the_next_connection() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    assert_eq!(bench.send(id, 1, 1), 200);
    assert_eq!(bench.status(1, ends(Target::id(id), Ending::Success)), 200);
    assert_eq!(bench.status(1, commit(Target::id(id))), 412, "ended, and not prepared");
    let prepare = TransactionRequest::Prepare { target: Target::id(id), one_phase: false };
    assert_eq!(bench.status(1, prepare), 200);
    let verify = TransactionRequest::Verify(Target::id(id));
    assert_eq!(bench.status(2, verify.clone()), 404, "it is somebody else's");
    assert_eq!(bench.ended(1), []);
    let reply = bench.reply(2, verify);
    assert_eq!(reply.status.0, 200);
    let (effects, _) = bench.answered(2, commit(Target::id(id)));
    assert_eq!(effects, [Effect::Produce { destination: "a", message: 1 }]);
}

#[test]
fn a_session_takes_its_open_local_transaction_with_it() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    let other = bench.local(1, 11);
    let free = bench.ids + 1;
    let session_less = with(start(10), |start| start.session_less = true);
    assert_eq!(bench.status(1, session_less), 200);
    let begun = bench.branch(1, 1);
    bench.acknowledge(id, 1, &["x"], Status::OK);
    let effects = bench.session_ended(1, 10);
    assert_eq!(effects, [settled("x", id, Outcome::undone(true))]);
    assert_eq!(bench.session_ended(2, 11), []);
    let left = [(other, State::Started), (free, State::Started), (begun, State::Started)];
    assert_eq!(bench.states(), left);
}

#[test]
fn an_end_that_finds_acknowledgements_on_their_way_waits_for_them() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    assert_eq!(bench.expect(id, 1, &["x"]), []);
    let next =
        TransactionRequest::Commit { target: Target::id(id), one_phase: false, start_next: true };
    assert_eq!(bench.ask(1, next), []);
    let ended = |connection, then| TxCommand::ConnectionEnded { connection, then };
    assert_eq!(bench.handle(ended(1, 77)), []);
    let effects = parted(bench.consumed(id, Status::OK), 77);
    let expected = [
        Effect::Reply { to: 2, reply: TxReply::bare(Status::OK) },
        settled("x", id, Outcome::Commit),
        Effect::Reply { to: 3, reply: TxReply::done(id) },
    ];
    assert_eq!(effects, expected, "asked for in time, but with nobody left for a next one");
    assert_eq!(bench.states(), []);
    let id = bench.local(2, 10);
    assert_eq!(bench.expect(id, 2, &["x"]), []);
    assert_eq!(bench.handle(ended(2, 78)), []);
    let effects = parted(bench.consumed(id, Status::OK), 78);
    assert_eq!(effects[1..], [settled("x", id, Outcome::undone(true))]);
}

#[test]
fn a_client_may_choose_what_is_rolled_back_by_itself() {
    let mut bench = Bench::new();
    let all = with(branch(1, Association::New), |start| start.auto_rollback = AutoRollback::All);
    assert_eq!(bench.status(1, all), 200);
    assert_eq!(bench.status(1, end(1)), 200);
    assert_eq!(bench.status(1, prepare(1)), 200);
    let never =
        with(branch(2, Association::New), |start| start.auto_rollback = AutoRollback::Never);
    assert_eq!(bench.status(1, never), 200);
    let id = bench.ids;
    bench.acknowledge(id, 1, &["x"], Status::OK);
    assert_eq!(bench.ended(1), [Effect::Hold { destination: "x", id }]);
    assert_eq!(bench.states(), [(id, State::Started)]);
    assert_eq!(bench.status(2, end(2)), 200);
    assert_eq!(bench.status(2, prepare(2)), 200, "held once, and not again");
    let (effects, _) = bench.answered(2, commit(named(2)));
    assert_eq!(effects, [settled("x", id, Outcome::Commit)]);
}

#[test]
fn a_lifetime_ends_what_is_not_prepared() {
    let mut bench = Bench::new();
    let mortal = |start: &mut Start| start.lifetime_ms = Some(100);
    let effects = bench.ask(1, with(start(10), mortal));
    assert_eq!(effects[0], Effect::WakeAt(1_100));
    let id = bench.ids;
    bench.now += 1;
    assert_eq!(bench.status(1, with(branch(1, Association::New), mortal)), 200);
    let prepared = bench.ids;
    assert_eq!(bench.status(1, end(1)), 200);
    assert_eq!(bench.status(1, prepare(1)), 200);
    assert_eq!(bench.send(id, 1, 1), 200);
    bench.now = 1_100;
    assert_eq!(bench.handle(TxCommand::Tick { at: 1_100 }), [Effect::Drop(1, "a")]);
    assert_eq!(bench.handle(TxCommand::Tick { at: 1_100 }), []);
    let reply = bench.reply(1, commit(Target::id(id)));
    let reason = format!("transaction {id}: it is timed out and cannot be committed");
    assert_eq!((reply.status.0, reply.reason), (412, Some(reason)));
    assert_eq!(bench.states(), [(prepared, State::Prepared)]);
    let reply = bench.reply(1, TransactionRequest::Verify(named(1)));
    let table = java::decode_hashtable(&reply.body).unwrap();
    assert_eq!(table[4], ("JMQLifetime".to_owned(), 100_i64.into()), "it still has it");
    assert_eq!(bench.status(1, commit(named(1))), 200);
}

#[test]
fn ticks_come_for_the_first_that_ends_and_then_for_the_next() {
    let mut bench = Bench::new();
    let wakes = |effects: Vec<Done>| -> Vec<i64> {
        let wake = |effect| match effect {
            Effect::WakeAt(at) => Some(at),
            _ => None,
        };
        effects.into_iter().filter_map(wake).collect()
    };
    for (ms, expected) in [(50, &[1_050][..]), (60, &[]), (20, &[1_020]), (u64::MAX, &[])] {
        let lives = with(start(10), |start| start.lifetime_ms = Some(ms));
        assert_eq!(wakes(bench.ask(1, lives)), expected, "{ms}");
    }
    let tick = |at| TxCommand::Tick { at };
    // The clock of whoever carries it out may be a little behind.
    bench.now = 1_019;
    assert_eq!(wakes(bench.handle(tick(1_020))), [1_050]);
    assert_eq!(bench.states().len(), 3);
    bench.now = 1_050;
    assert_eq!(wakes(bench.handle(tick(1_050))), [1_060]);
    assert!(wakes(bench.handle(tick(1_050))).is_empty(), "the one from before");
    bench.now = 1_070;
    assert_eq!(wakes(bench.handle(tick(1_060))), [i64::MAX]);
    assert_eq!(bench.states().len(), 1);
}

#[test]
fn there_is_a_most_of_open_transactions() {
    let mut bench = Bench::new();
    let ids: Vec<i64> = (0..8).map(|session| bench.local(1, session)).collect();
    let reply = bench.reply(1, start(9));
    assert_eq!((reply.status.0, reply.transaction), (414, None));
    assert!(reply.reason.is_some_and(|reason| reason.contains("8 transactions are open")));
    let next = TransactionRequest::Commit {
        target: Target::id(ids[0]),
        one_phase: false,
        start_next: true,
    };
    assert!(bench.reply(1, next).next.is_some(), "in place of the one before");
    assert_eq!(bench.status(1, rollback(Target::id(ids[1]))), 200);
    bench.local(1, 9);
    assert_eq!(bench.status(1, start(9)), 414);
}

#[test]
fn an_administrator_commits_what_is_prepared_and_rolls_back_anything() {
    let mut bench = Bench::new();
    let admin = |id, verdict| TxCommand::Admin { id, verdict, reply: 99 };
    let told = |effects: &[Done]| match effects.last() {
        Some(Effect::Reply { to: 99, reply }) => reply.status.0,
        other => panic!("{other:?}"),
    };
    let first = bench.prepared(1, 1);
    let second = bench.prepared(1, 2);
    let local = bench.local(1, 10);
    assert_eq!(told(&bench.handle(admin(local, Verdict::Commit))), 412);
    let effects = bench.handle(admin(first, Verdict::Commit));
    assert_eq!(effects[0], Effect::Produce { destination: "a", message: 7 });
    assert_eq!(effects[1], settled("b", first, Outcome::Commit));
    assert_eq!(told(&effects), 200);
    let effects = bench.handle(admin(second, Verdict::Rollback));
    assert_eq!(effects[1], settled("b", second, Outcome::undone(true)));
    assert_eq!(told(&effects), 200);
    assert_eq!(told(&bench.handle(admin(local, Verdict::Rollback))), 200);
    assert_eq!(told(&bench.handle(admin(local, Verdict::Rollback))), 412);
    assert_eq!(told(&bench.handle(admin(1234, Verdict::Rollback))), 404);
    assert_eq!(bench.status(1, commit(Target::id(local))), 412);
    assert_eq!(bench.states(), []);
}

#[test]
fn the_list_says_whose_it_is_and_how_much_is_in_it() {
    let mut bench = Bench::new();
    let id = bench.prepared(1, 1);
    let local = bench.local(2, 10);
    bench.ended(1);
    let effects = bench.handle(TxCommand::List(5));
    let [Effect::List { to: 5, transactions }] = &effects[..] else { panic!("{effects:?}") };
    let [branch, other] = &transactions[..] else { panic!("{transactions:?}") };
    assert_eq!((branch.id, branch.xid, branch.connection), (id, Some(xid(1)), None));
    assert_eq!((branch.messages, branch.acknowledgements, branch.created_ms), (1, 1, 1_000));
    assert_eq!(branch.user.as_deref(), Some("guest"));
    assert_eq!((other.id, other.xid, other.connection), (local, None, Some(2)));
}

#[test]
fn replies_have_the_properties_of_their_kind() {
    let answer = |kind, reply: &TxReply| {
        let to = ReplyTo { request: kind, id: 0, wanted: true };
        let packet = reply.packet(&to).finish();
        let names: Vec<String> = packet
            .properties()
            .unwrap()
            .iter()
            .map(|property| format!("{}/{}", property.name_text(), property.kind))
            .collect();
        (packet.header().packet_type, names.join(" "))
    };
    let id = "JMQStatus/4 JMQTransactionID/5";
    for (kind, reply) in [
        (PacketType::START_TRANSACTION, PacketType::START_TRANSACTION_REPLY),
        (PacketType::END_TRANSACTION, PacketType::END_TRANSACTION_REPLY),
        (PacketType::PREPARE_TRANSACTION, PacketType::PREPARE_TRANSACTION_REPLY),
        (PacketType::COMMIT_TRANSACTION, PacketType::COMMIT_TRANSACTION_REPLY),
        (PacketType::ROLLBACK_TRANSACTION, PacketType::ROLLBACK_TRANSACTION_REPLY),
    ] {
        assert_eq!(answer(kind, &TxReply::done(5)), (reply, id.to_owned()));
    }
    let refused = TxReply::refuse(Status::RESOURCE_FULL, None, "no".into());
    let (_, names) = answer(PacketType::START_TRANSACTION, &refused);
    assert_eq!(names, format!("{id} JMQReason/8"), "an id even if there is none");
    let (kind, names) = answer(PacketType::TEXT_MESSAGE, &TxReply::bare(Status::OK));
    assert_eq!((kind, names.as_str()), (PacketType::SEND_REPLY, "JMQStatus/4"));
    let mut bench = Bench::new();
    let (_, names) =
        answer(PacketType::RECOVER_TRANSACTION, &bench.reply(1, recover(XaFlags::START_SCAN)));
    assert_eq!(names, "JMQStatus/4 JMQQuantity/4");
    let next = TxReply { next: Some(6), failed: true, ..TxReply::done(5) };
    let (_, names) = answer(PacketType::COMMIT_TRANSACTION, &next);
    assert_eq!(names, format!("{id} JMQNextTransactionID/5 JMQPrepareStateFAILED/1"));
}
