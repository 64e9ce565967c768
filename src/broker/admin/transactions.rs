//! Transactions that are open, and decisions on them.

use crate::wire::{
    Status,
    java::{JavaObject, TableClass},
};

use super::{
    super::{
        coordinator::{Answer as Asker, Told, Transact},
        transaction::{Listed, Verdict},
        turn::Turn,
    },
    Outcome,
    answer::{Answer, Caller},
    request::{AdminRequest, Number},
};

/// What is told about one transaction. Its state is the number the protocol gives it.
fn describe(one: &Listed) -> JavaObject {
    let count = |value: usize| JavaObject::from(i32::try_from(value).unwrap_or(i32::MAX));
    let mut entries = vec![
        ("txnid".to_owned(), JavaObject::from(one.id)),
        ("state".to_owned(), (one.state as i32).into()),
        ("timestamp".to_owned(), one.created_ms.into()),
        ("nmsgs".to_owned(), count(one.messages)),
        ("nacks".to_owned(), count(one.acknowledgements)),
    ];
    if let Some(xid) = &one.xid {
        entries.push(("xid".to_owned(), xid.to_string().into()));
    }
    if let Some(user) = &one.user {
        entries.push(("user".to_owned(), (**user).into()));
    }
    if let Some(connection) = one.connection {
        entries.push(("cxnid".to_owned(), connection.into()));
    }
    JavaObject::Table(TableClass::Hashtable, entries)
}

pub(super) fn list(request: &AdminRequest<'_>, caller: &Caller, turn: &mut Turn<'_>) -> Outcome {
    let wanted = request.long("JMQTransactionID")?;
    let caller = caller.clone();
    let heard = move |heard, turn: &mut Turn<'_>| {
        let Told::List(mut all) = heard else { return };
        all.retain(|one| wanted.is_none_or(|id| one.id == id));
        let answer = match wanted {
            Some(id) if all.is_empty() => unknown(id),
            _ => {
                let count = i32::try_from(all.len()).unwrap_or(i32::MAX);
                Answer::vector(&[], all.iter().map(describe)).with("JMQQuantity", count)
            }
        };
        caller.answer(answer, turn);
    };
    turn.transact(Transact::List(Asker::Asked(Box::new(heard))));
    Ok(None)
}

fn unknown(id: i64) -> Answer {
    Answer::refusal(Status::NOT_FOUND, format!("there is no transaction {id}"))
}

pub(super) fn decide(
    number: Number,
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
) -> Outcome {
    let id = request.wanted_long("JMQTransactionID")?;
    let verdict = match number {
        Number::CommitTransaction => Verdict::Commit,
        _ => Verdict::Rollback,
    };
    let caller = caller.clone();
    let heard = move |heard, turn: &mut Turn<'_>| {
        let Told::Outcome(reply) = heard else { return };
        let answer = if reply.status.is_ok() {
            tracing::info!(transaction = id, ?verdict, "decided by an administrator");
            Answer::done()
        } else {
            let reason = reply.reason.unwrap_or_else(|| reply.status.to_string());
            Answer::refusal(reply.status, reason)
        };
        caller.answer(answer, turn);
    };
    turn.transact(Transact::Admin { id, verdict, reply: Asker::Asked(Box::new(heard)) });
    Ok(None)
}
