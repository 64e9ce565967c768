//! Steps of transactions that outlive the broker: stored whole, and carried out then.

use std::collections::VecDeque;

use crate::wire::Flags;

use super::{
    super::{
        command::Command,
        persist::{Copy, Op, Ops, Prepared, Then, Unit, Unstored, refused},
        transaction::{Change, Effect, Outcome, Promise, TxReply},
        turn::Turn,
    },
    Done, Handle, Transact, carry_out,
};
use crate::sync::Arc;

type Step = Change<Handle, Arc<super::Stored>>;

/// Has a step stored if anything of it is to be, and carried out then; otherwise at once.
pub(super) fn durably(change: Step, then: Vec<Done>, turn: &mut Turn<'_>) {
    if turn.shared.persist.is_none() {
        return carry_out(then, turn);
    }
    let (id, ops, puts) = match change {
        Change::Prepared(promise) => {
            let id = promise.id;
            (id, prepare(*promise, turn), VecDeque::new())
        }
        Change::Ended { id, xid, was_prepared, committed, stored } => {
            let mut ops: Vec<Op> = Vec::new();
            let mut puts = VecDeque::new();
            if committed {
                ops.extend(stored.into_iter().map(Op::Remove));
                put_produced(&then, &mut ops, &mut puts, turn);
            }
            if was_prepared || !ops.is_empty() {
                ops.push(Op::Ended { id, xid, was_prepared, committed });
            }
            (id, ops, puts)
        }
    };
    if ops.is_empty() {
        return carry_out(then, turn);
    }
    let then = Box::new(move |result: Result<(), Unstored>, turn: &mut Turn<'_>| match result {
        Ok(()) => go_on(then, puts, turn),
        Err(reason) => fail(id, then, &reason, turn),
    });
    turn.persist(Unit { ops: Ops::Many(ops), then: Then::Rare(then) });
    turn.push_units();
}

/// What is stored of a prepared transaction; nothing if it touches nothing that is.
fn prepare(promise: Promise<Handle, Arc<super::Stored>>, turn: &Turn<'_>) -> Vec<Op> {
    let Promise { id, start, created_ms, user, one_phase, produced, stored } = promise;
    let is_persistent =
        |message: &super::Stored| message.packet.header().flags.contains(Flags::PERSISTENT);
    let messages: Vec<_> = produced
        .into_iter()
        .filter(|(at, message)| is_persistent(message) && !at.0.is_temporary())
        .map(|(at, message)| (at.0, message))
        .collect();
    // A branch is found again by its name whatever it did; a local one only if it matters.
    if turn.shared.persist.is_none()
        || start.xid.is_none() && messages.is_empty() && stored.is_empty()
    {
        return Vec::new();
    }
    vec![Op::Prepare(Box::new(Prepared {
        id,
        xid: start.xid,
        created_ms,
        user,
        one_phase,
        lifetime_ms: start.lifetime_ms,
        auto_rollback: start.auto_rollback as i32,
        session_less: start.session_less,
        messages,
        consumed: stored,
    }))]
}

/// Has what a commit sends stored, as far as it must be.
fn put_produced(
    then: &[Done],
    ops: &mut Vec<Op>,
    puts: &mut VecDeque<(Vec<Copy>, bool)>,
    turn: &Turn<'_>,
) {
    for effect in then {
        let Effect::Produce { destination: Handle(at), message } = effect else { continue };
        if let Some(its) = at.wants_stored(message, turn).filter(|_| !at.is_destroyed()) {
            let delivered = at.is_ready();
            puts.push_back((its.clone(), delivered));
            ops.push(Op::Put {
                at: Arc::clone(at),
                message: Arc::clone(message),
                delivered,
                copies: its,
            });
        }
    }
}

/// Carries out what is stored.
fn go_on(then: Vec<Done>, mut puts: VecDeque<(Vec<Copy>, bool)>, turn: &mut Turn<'_>) {
    let mut rest = Vec::with_capacity(then.len());
    for effect in then {
        match effect {
            // It has its place in the store already; in the order in which they were put.
            Effect::Produce { destination: Handle(at), message } if message.sequence() != 0 => {
                let (copies, marked) = puts.pop_front().unwrap_or_default();
                turn.send_now(&at, Command::Committed { message, copies, marked });
            }
            other => rest.push(other),
        }
    }
    carry_out(rest, turn);
}

/// A step could not be stored. Nothing of it is done, and what was acknowledged in it stays with
/// its consumers.
fn fail(id: i64, then: Vec<Done>, reason: &Unstored, turn: &mut Turn<'_>) {
    let (status, reason) = refused(reason);
    let undone = then.into_iter().map(|effect| match effect {
        Effect::Produce { destination, message } => Effect::Drop(message, destination),
        Effect::Settle { destination, id, .. } => {
            Effect::Settle { destination, id, outcome: Outcome::undone(false) }
        }
        Effect::Reply { to, reply } => {
            let reply = TxReply {
                status,
                reason: Some(format!("what became of transaction {id} is not known: {reason}")),
                ..reply
            };
            Effect::Reply { to, reply }
        }
        other => other,
    });
    let undone: Vec<Done> = undone.collect();
    turn.transact(Transact::Doubtful { id });
    carry_out(undone, turn);
}
