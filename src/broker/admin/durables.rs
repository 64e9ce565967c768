//! Durable subscriptions.
//!
//! The reference's tools know these as objects of a class whose fields are not known; here they are
//! tables.

use crate::{
    sync::{Arc, Ordering, Plain},
    wire::{
        Status,
        java::{JavaObject, TableClass},
    },
};

use super::{
    super::{
        command::Rare,
        destination::Destination,
        subscription::{SubscriptionKey, SubscriptionName},
        turn::Turn,
    },
    Outcome, Refused,
    answer::{Answer, Caller},
    request::AdminRequest,
};

/// All of them, by client id and name.
fn all(turn: &Turn<'_>) -> Vec<(SubscriptionKey, Arc<Destination>)> {
    let mut all = turn.shared.subscriptions.all();
    all.retain(|(key, _)| key.durable);
    all.sort_by(|(a, _), (b, _)| a.client_id.cmp(&b.client_id).then_with(|| name(a).cmp(name(b))));
    all
}

fn name(key: &SubscriptionKey) -> &str {
    match &key.name {
        SubscriptionName::Given(name) => name,
        SubscriptionName::Implied { topic, .. } => topic,
    }
}

fn describe(key: &SubscriptionKey, at: &Destination) -> JavaObject {
    let count = |value: u64| JavaObject::from(i64::try_from(value).unwrap_or(i64::MAX));
    let counts = at.counts();
    let consumers = at.consumers();
    let mut entries = vec![
        ("name".to_owned(), JavaObject::from(name(key))),
        ("destination".to_owned(), (*at.name).into()),
        // Relaxed: statistics.
        ("nmessages".to_owned(), count(counts.messages.load(Ordering::Relaxed))),
        ("nbytes".to_owned(), count(counts.bytes.load(Ordering::Relaxed))),
        ("nconsumers".to_owned(), count(consumers.len() as u64)),
    ];
    if let Some(id) = &key.client_id {
        entries.push(("clientid".to_owned(), (**id).into()));
    }
    JavaObject::Table(TableClass::Hashtable, entries)
}

/// The one that a request names by `JMQDurableName` and `JMQClientID`.
fn named(
    name: &str,
    client_id: Option<&str>,
    turn: &Turn<'_>,
) -> Result<(SubscriptionKey, Arc<Destination>), Refused> {
    let key = SubscriptionKey {
        client_id: client_id.map(Plain::from),
        durable: true,
        name: SubscriptionName::Given(name.into()),
    };
    match turn.shared.subscriptions.find(&key) {
        Some(found) => Ok((key, found)),
        None => {
            let of = client_id.map_or_else(String::new, |id| format!(" of client {id}"));
            Err((Status::NOT_FOUND, format!("there is no durable subscription {name}{of}")))
        }
    }
}

fn of_request(request: &AdminRequest<'_>, turn: &Turn<'_>) -> Result<Arc<Destination>, Refused> {
    let (name, id) = (request.wanted_string("JMQDurableName")?, request.string("JMQClientID")?);
    named(&name, id.as_deref(), turn).map(|(_, found)| found)
}

pub(super) fn list(request: &AdminRequest<'_>, turn: &Turn<'_>) -> Outcome {
    let topic = request.string("JMQDestination")?;
    let mut all = all(turn);
    all.retain(|(_, at)| topic.as_deref().is_none_or(|topic| *at.name == *topic));
    Ok(Some(Answer::vector(&[], all.iter().map(|(key, at)| describe(key, at)))))
}

/// One of them: `JMQTarget` is its name, `JMQCommandArg` the client id.
pub(super) fn query(request: &AdminRequest<'_>, turn: &Turn<'_>) -> Outcome {
    let (name, id) = (request.wanted_string("JMQTarget")?, request.string("JMQCommandArg")?);
    let (key, found) = named(&name, id.as_deref(), turn)?;
    Ok(Some(Answer::object(&describe(&key, &found))))
}

pub(super) fn destroy(request: &AdminRequest<'_>, caller: &Caller, turn: &mut Turn<'_>) -> Outcome {
    let found = of_request(request, turn)?;
    let caller = caller.clone();
    turn.send(&found, Rare::command(move |at, state, turn| {
        let answer = if state.open_subscribers().next().is_some() {
            let reason = "the subscription is in use; end its consumers first";
            Answer::refusal(Status::CONFLICT, reason.into())
        } else {
            at.destroy(state, turn);
            tracing::info!(topic = %at.name, "a durable subscription ended by an administrator");
            Answer::done()
        };
        caller.answer_stored(answer, turn);
    }));
    Ok(None)
}

pub(super) fn purge(request: &AdminRequest<'_>, caller: &Caller, turn: &mut Turn<'_>) -> Outcome {
    let found = of_request(request, turn)?;
    let caller = caller.clone();
    turn.send(
        &found,
        Rare::command(move |_, state, turn| {
            state.clear(turn);
            caller.answer_stored(Answer::done(), turn);
        }),
    );
    Ok(None)
}
