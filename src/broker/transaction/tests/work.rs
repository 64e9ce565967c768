//! What is sent and acknowledged in a transaction, and its two ends.

use super::{Bench, branch, commit, end, ends, named, one_phase, prepare, rollback, settled};
use crate::{
    broker::transaction::{Effect, Outcome, State, TxCommand, TxReply},
    proto::transaction::{Association, Ending, Rollback, Target, TransactionRequest},
    wire::Status,
};

#[test]
fn a_commit_puts_in_what_was_sent_and_settles_what_was_acknowledged() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    assert_eq!(bench.send(id, 1, 1), 200);
    bench.acknowledge(id, 1, &["x", "y"], Status::OK);
    bench.acknowledge(id, 1, &["y"], Status::OK);
    assert_eq!(bench.send(id, 1, 2), 200);
    let (effects, reply) = bench.answered(1, commit(Target::id(id)));
    let expected = [
        Effect::Produce { destination: "a", message: 1 },
        Effect::Produce { destination: "a", message: 2 },
        settled("x", id, Outcome::Commit),
        settled("y", id, Outcome::Commit),
    ];
    assert_eq!(effects, expected);
    assert_eq!(reply, TxReply::done(id));
    assert_eq!(bench.states(), []);
}

#[test]
fn a_rollback_drops_what_was_sent_and_says_how_to_put_back() {
    let mut bench = Bench::new();
    for redeliver in [false, true] {
        let id = bench.local(1, 10);
        assert_eq!(bench.send(id, 1, 1), 200);
        bench.acknowledge(id, 1, &["x"], Status::OK);
        let request = TransactionRequest::Rollback(Rollback {
            target: Target::id(id),
            redeliver,
            seen: false,
            max_rollbacks: Some(2),
            dead_on_max: true,
        });
        let outcome =
            Outcome::Rollback { redeliver, seen: false, max_rollbacks: Some(2), dead_on_max: true };
        let (effects, reply) = bench.answered(1, request);
        assert_eq!(effects, [Effect::Drop(1, "a"), settled("x", id, outcome)]);
        assert_eq!(reply, TxReply::done(id));
    }
    assert_eq!(bench.states(), []);
}

#[test]
fn a_commit_waits_for_the_acknowledgements_before_it() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    assert_eq!(bench.expect(id, 1, &["x"]), []);
    assert_eq!(bench.expect(id, 1, &["y"]), []);
    assert_eq!(bench.ask(1, commit(Target::id(id))), []);
    let answer = |to, reply| Effect::Reply { to, reply };
    assert_eq!(bench.consumed(id, Status::OK), [answer(1 + 1, TxReply::bare(Status::OK))]);
    let expected = [
        answer(3, TxReply::bare(Status::OK)),
        settled("x", id, Outcome::Commit),
        settled("y", id, Outcome::Commit),
        answer(4, TxReply::done(id)),
    ];
    assert_eq!(bench.consumed(id, Status::OK), expected);
}

#[test]
fn each_acknowledgement_has_its_own_outcome_in_whatever_order_they_are_carried_out() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    let consumed = |ticket, status| TxCommand::Consumed { id, ticket, status, stored: Vec::new() };
    // The third one is carried out before anybody knows that it was sent.
    assert_eq!(bench.handle(consumed(4, Status::OK)), []);
    assert_eq!(bench.expect(id, 1, &["x"]), []);
    assert_eq!(bench.expect(id, 1, &["y"]), []);
    let told = |to, status: Status| {
        move |effects: &[_]| match effects {
            [Effect::Reply { to: told, reply }] => (*told, reply.status) == (to, status),
            _ => false,
        }
    };
    assert!(told(4, Status::OK)(&bench.expect(id, 1, &["z"])));
    assert!(told(3, Status::CONFLICT)(&bench.handle(consumed(3, Status::CONFLICT))));
    assert_eq!(bench.ask(1, rollback(Target::id(id))), [], "one is still on its way");
    let effects = bench.handle(consumed(2, Status::OK));
    assert!(told(2, Status::OK)(&effects[..1]), "{effects:?}");
    assert_eq!(effects.len(), 1 + 3 + 1, "all three are undone, and that is answered");
}

#[test]
fn end_prepare_and_commit_may_be_asked_for_in_one_go() {
    let mut bench = Bench::new();
    let id = bench.branch(1, 1);
    assert_eq!(bench.expect(id, 1, &["x"]), []);
    assert_eq!(bench.ask(1, end(1)), []);
    assert_eq!(bench.ask(1, prepare(1)), []);
    assert_eq!(bench.ask(1, commit(named(1))), []);
    assert_eq!(bench.ask(1, rollback(named(1))).len(), 1, "a fourth one is too many");
    let effects = bench.consumed(id, Status::OK);
    let done = |to| Effect::Reply { to, reply: TxReply::done(id) };
    let expected = [
        Effect::Reply { to: 2, reply: TxReply::bare(Status::OK) },
        done(3),
        Effect::Hold { destination: "x", id },
        done(4),
        settled("x", id, Outcome::Commit),
        done(5),
    ];
    assert_eq!(effects, expected);
}

#[test]
fn what_waits_behind_the_end_is_told_what_became_of_it() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    assert_eq!(bench.expect(id, 1, &["x"]), []);
    assert_eq!(bench.ask(1, commit(Target::id(id))), []);
    assert_eq!(bench.ask(1, commit(Target::id(id))), []);
    assert_eq!(bench.ask(1, rollback(Target::id(id))), []);
    let effects = bench.consumed(id, Status::OK);
    let statuses: Vec<(u32, i32)> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Reply { to, reply } => Some((*to, reply.status.0)),
            _ => None,
        })
        .collect();
    assert_eq!(statuses, [(2, 200), (3, 200), (4, 200), (5, 412)]);
}

#[test]
fn after_a_failed_acknowledgement_nothing_but_a_rollback_is_possible() {
    let mut bench = Bench::new();
    let id = bench.branch(1, 1);
    assert_eq!(bench.send(id, 1, 1), 200);
    bench.acknowledge(id, 1, &["x"], Status::CONFLICT);
    assert_eq!(bench.states(), [(id, State::Failed)]);
    assert_eq!(bench.send(id, 1, 2), 500);
    let effects = bench.expect(id, 1, &["x"]);
    let [let_go, Effect::Reply { reply, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((let_go, reply.status.0), (&bench.let_go("x", id), 412));
    assert_eq!(bench.consumed(id, Status::OK), []);
    for request in [end(1), prepare(1), commit(named(1)), one_phase(1)] {
        let reply = bench.reply(1, request);
        assert_eq!((reply.status.0, reply.failed, reply.transaction), (412, true, Some(id)));
    }
    let (effects, reply) = bench.answered(1, rollback(named(1)));
    assert_eq!(effects, [Effect::Drop(1, "a"), settled("x", id, Outcome::undone(false))]);
    assert_eq!(reply, TxReply::done(id));
}

#[test]
fn a_failed_local_transaction_is_not_committed_but_rolled_back() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    assert_eq!(bench.send(id, 1, 1), 200);
    bench.acknowledge(id, 1, &["x"], Status::CONFLICT);
    let (effects, reply) = bench.answered(1, commit(Target::id(id)));
    assert_eq!(effects, [Effect::Drop(1, "a"), settled("x", id, Outcome::undone(false))]);
    assert_eq!((reply.status.0, reply.failed, reply.next), (412, true, None));
    assert!(reply.reason.is_some_and(|reason| reason.ends_with("it was rolled back")));
    // The application hears of it and rolls back what is no more.
    assert_eq!(bench.status(1, rollback(Target::id(id))), 200);
    assert_eq!(bench.status(1, commit(Target::id(id))), 412);
}

#[test]
fn an_unanswered_message_that_is_refused_fails_the_transaction() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    for message in 0..3 {
        assert_eq!(bench.send(id, 1, message), 200);
    }
    // Whoever hears of it may go on without it.
    assert_eq!(bench.send(id, 1, 3), 414);
    assert_eq!(bench.states(), [(id, State::Started)]);
    let produce = TxCommand::Produce {
        id,
        connection: 1,
        destination: "a",
        message: 4,
        is_copy: false,
        reply: None,
    };
    assert_eq!(bench.handle(produce), [Effect::Drop(4, "a")]);
    assert_eq!(bench.states(), [(id, State::Failed)]);
    // Nor may whoever hears of it, if it was one of several copies.
    let id = bench.local(1, 10);
    for message in 5..8 {
        assert_eq!(bench.send(id, 1, message), 200);
    }
    let (destination, reply) = ("a", Some(bench.number()));
    let copy =
        TxCommand::Produce { id, connection: 1, destination, message: 8, is_copy: true, reply };
    assert_eq!(bench.handle(copy).len(), 2);
    assert_eq!(bench.status(1, commit(Target::id(id))), 412);
    // The same if its destination had no room.
    let id = bench.local(1, 10);
    assert_eq!(bench.handle(TxCommand::Refused { id, connection: 2 }), []);
    assert_eq!(bench.status(1, commit(Target::id(id))), 200, "it was not connection 2's");
    let id = bench.local(1, 10);
    assert_eq!(bench.handle(TxCommand::Refused { id, connection: 1 }), []);
    assert_eq!(bench.status(1, commit(Target::id(id))), 412);
}

#[test]
fn too_many_acknowledgements_are_refused_and_fail_the_transaction() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    for _ in 0..3 {
        bench.acknowledge(id, 1, &["x"], Status::OK);
    }
    let effects = bench.expect(id, 1, &["x", "y"]);
    let [x, y, Effect::Reply { reply, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!([x, y], [&bench.let_go("x", id), &bench.let_go("y", id)]);
    assert_eq!(reply.status.0, 414);
    assert_eq!(bench.states(), [(id, State::Failed)]);
}

#[test]
fn work_in_an_unknown_transaction_is_refused_and_let_go() {
    let mut bench = Bench::new();
    assert_eq!(bench.send(77, 1, 1), 500);
    let effects = bench.expect(77, 1, &["x", "y"]);
    let [x, y, Effect::Reply { reply, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!([x, y], [&bench.let_go("x", 77), &bench.let_go("y", 77)]);
    assert_eq!((reply.status.0, reply.reason.as_deref()), (404, Some("Unknown transaction 77")));
    assert_eq!(bench.consumed(77, Status::OK), []);
    for request in [
        commit(Target::id(77)),
        rollback(Target::id(77)),
        ends(Target::id(77), Ending::Fail),
        TransactionRequest::Prepare { target: Target::id(77), one_phase: false },
        TransactionRequest::Verify(Target::id(77)),
    ] {
        let reply = bench.reply(1, request);
        assert_eq!((reply.status.0, reply.transaction), (404, Some(77)));
        assert_eq!(reply.reason.as_deref(), Some("Unknown transaction 77"));
    }
    assert_eq!(bench.status(1, branch(9, Association::Join)), 404);
    assert_eq!(bench.status(1, branch(9, Association::Resume)), 404);
}

#[test]
fn a_commit_may_start_the_next_one_of_the_session() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    let next = |target| TransactionRequest::Commit { target, one_phase: false, start_next: true };
    let reply = bench.reply(1, next(Target::id(id)));
    assert_eq!(reply, TxReply { next: Some(id + 1), ..TxReply::done(id) });
    assert_eq!(bench.send(id + 1, 1, 1), 200);
    let effects = bench.session_ended(1, 10);
    assert_eq!(effects, [Effect::Drop(1, "a")], "it belongs to the same session");
    // A branch has no next without a name.
    bench.branch(1, 1);
    assert_eq!(bench.status(1, end(1)), 200);
    let TransactionRequest::Commit { target, .. } = one_phase(1) else { panic!() };
    let request = TransactionRequest::Commit { target, one_phase: true, start_next: true };
    assert_eq!(bench.reply(1, request).next, None);
    assert_eq!(bench.states(), []);
}

#[test]
fn work_after_the_commit_was_asked_for_does_not_change_it() {
    let mut bench = Bench::new();
    let id = bench.local(1, 10);
    assert_eq!(bench.expect(id, 1, &["x"]), []);
    assert_eq!(bench.ask(1, commit(Target::id(id))), []);
    assert_eq!(bench.send(id, 1, 9), 500);
    let produce = TxCommand::Produce {
        id,
        connection: 1,
        destination: "a",
        message: 4,
        is_copy: false,
        reply: None,
    };
    assert_eq!(bench.handle(produce), [Effect::Drop(4, "a")]);
    let effects = bench.expect(id, 1, &["y"]);
    let [settle, Effect::Reply { reply, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*settle, bench.let_go("y", id));
    assert_eq!(reply.status.0, 412);
    let effects = bench.consumed(id, Status::OK);
    assert_eq!(effects[1], settled("x", id, Outcome::Commit));
}
