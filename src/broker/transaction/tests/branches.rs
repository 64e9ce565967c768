//! What transaction managers do.

use super::{Bench, branch, commit, end, ends, named, one_phase, prepare, recover, rollback, xid};
use crate::{
    broker::transaction::{Effect, State, TxReply},
    proto::transaction::{Association, Ending, Target, TransactionRequest, XaFlags},
    wire::java,
};

#[test]
fn a_branch_is_finished_by_whichever_connection_asks() {
    let mut bench = Bench::new();
    let id = bench.branch(1, 1);
    assert_eq!(bench.send(id, 2, 1), 200);
    assert_eq!(bench.reply(2, end(1)), TxReply::done(id));
    assert_eq!(bench.reply(3, prepare(1)), TxReply::done(id));
    assert_eq!(bench.reply(3, prepare(1)), TxReply::done(id), "again, and nothing more happens");
    let (effects, reply) = bench.answered(4, commit(Target::xid(xid(1), Some(id))));
    assert_eq!(effects, [Effect::Produce { destination: "a", message: 1 }]);
    assert_eq!(reply, TxReply::done(id));
}

#[test]
fn a_branch_needs_its_end_and_its_promise_before_the_commit() {
    let mut bench = Bench::new();
    bench.branch(1, 1);
    for request in [prepare(1), commit(named(1)), one_phase(1), rollback(named(1))] {
        assert_eq!(bench.status(1, request), 412, "work goes on");
    }
    assert_eq!(bench.status(1, end(1)), 200);
    assert_eq!(bench.status(1, commit(named(1))), 412, "nothing was promised");
    assert_eq!(bench.status(1, one_phase(1)), 200);
    bench.branch(1, 2);
    assert_eq!(bench.status(1, end(2)), 200);
    assert_eq!(bench.status(1, prepare(2)), 200);
    assert_eq!(bench.status(1, one_phase(2)), 412, "two phases have begun");
    assert_eq!(bench.status(1, commit(named(2))), 200);
}

#[test]
fn a_prepare_for_one_phase_is_followed_by_either_commit() {
    let mut bench = Bench::new();
    for number in [1, 2] {
        bench.branch(1, number);
        assert_eq!(bench.status(1, end(number)), 200);
        let prepare = TransactionRequest::Prepare { target: named(number), one_phase: true };
        assert_eq!(bench.status(1, prepare), 200);
    }
    assert_eq!(bench.status(1, one_phase(1)), 200);
    assert_eq!(bench.status(1, commit(named(2))), 200);
}

#[test]
fn suspended_work_goes_on_and_failed_work_does_not() {
    let mut bench = Bench::new();
    let id = bench.branch(1, 1);
    assert_eq!(bench.status(1, ends(named(1), Ending::Suspend)), 200);
    assert_eq!(bench.send(id, 1, 1), 500, "while it is suspended");
    assert_eq!(bench.status(1, branch(1, Association::Join)), 412);
    assert_eq!(bench.reply(1, branch(1, Association::Resume)), TxReply::done(id));
    assert_eq!(bench.send(id, 1, 2), 200);
    assert_eq!(bench.status(1, end(1)), 200);
    assert_eq!(bench.reply(2, branch(1, Association::Join)), TxReply::done(id));
    assert_eq!(bench.send(id, 2, 3), 200);
    assert_eq!(bench.status(2, ends(named(1), Ending::Fail)), 200);
    assert_eq!(bench.status(1, prepare(1)), 412);
    let (effects, _) = bench.answered(1, rollback(named(1)));
    assert_eq!(effects, [Effect::Drop(2, "a"), Effect::Drop(3, "a")]);
}

#[test]
fn an_end_that_only_asks_changes_nothing() {
    let mut bench = Bench::new();
    let id = bench.branch(1, 1);
    let ask = TransactionRequest::End { target: named(1), ending: Ending::Suspend, no_op: true };
    assert_eq!(bench.reply(1, ask.clone()), TxReply::done(id));
    assert_eq!(bench.states(), [(id, State::Started)]);
    assert_eq!(bench.status(1, end(1)), 200);
    assert_eq!(bench.status(1, one_phase(1)), 200);
    assert_eq!(bench.status(1, ask), 404);
}

#[test]
fn an_xid_is_used_once_at_a_time_and_then_again() {
    let mut bench = Bench::new();
    let id = bench.branch(1, 1);
    let reply = bench.reply(2, branch(1, Association::New));
    assert_eq!((reply.status.0, reply.transaction), (409, None));
    assert_eq!(bench.status(1, end(1)), 200);
    assert_eq!(bench.status(1, branch(1, Association::New)), 409);
    assert_eq!(bench.status(1, rollback(named(1))), 200);
    let again = bench.branch(1, 1);
    assert_ne!(again, id);
    // The old id beside the XID is another transaction's.
    let mixed = Target::xid(xid(1), Some(id));
    assert_eq!(bench.status(1, ends(mixed, Ending::Success)), 412, "that one was rolled back");
    assert_eq!(bench.status(1, ends(Target::xid(xid(1), Some(99)), Ending::Success)), 404);
    assert_eq!(bench.states(), [(again, State::Started)]);
}

#[test]
fn a_scan_finds_the_prepared_branches_only() {
    let mut bench = Bench::new();
    bench.branch(1, 1);
    bench.prepared(1, 2);
    bench.prepared(2, 3);
    let local = bench.local(1, 10);
    assert_eq!(bench.status(1, ends(Target::id(local), Ending::Success)), 200);
    let prepare = TransactionRequest::Prepare { target: Target::id(local), one_phase: false };
    assert_eq!(bench.status(1, prepare), 200);
    bench.ended(1);
    let reply = bench.reply(3, recover(XaFlags(0x0180_0000)));
    assert_eq!((reply.status.0, reply.quantity), (200, Some(2)));
    assert_eq!(reply.body, [xid(2).encode(), xid(3).encode()].concat());
    for flags in [XaFlags(0), XaFlags::END_SCAN] {
        let reply = bench.reply(3, recover(flags));
        assert_eq!((reply.status.0, reply.quantity, reply.body.len()), (200, Some(0), 0));
    }
}

#[test]
fn verifying_tells_the_prepared_from_all_others() {
    let mut bench = Bench::new();
    let id = bench.branch(1, 1);
    let verify = TransactionRequest::Verify(named(1));
    let reply = bench.reply(2, verify.clone());
    assert_eq!((reply.status.0, reply.transaction), (404, Some(id)));
    assert_eq!(bench.status(1, end(1)), 200);
    assert_eq!(bench.status(1, prepare(1)), 200);
    let reply = bench.reply(2, verify);
    assert_eq!(reply.status.0, 200);
    let table = java::decode_hashtable(&reply.body).unwrap();
    let text: Vec<String> = table.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let expected = [
        "State=6",
        "JMQAutoRollback=2",
        "JMQSessionLess=false",
        "JMQCreateTime=1000",
        "JMQLifetime=0",
        "JMQXid=\"1:74657374:01\"",
    ];
    assert_eq!(text, expected);
}
