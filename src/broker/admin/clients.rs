//! Connections, and the consumers and producers on them.

use std::collections::HashMap;

use crate::{
    sync::Arc,
    wire::{
        Status,
        java::{JavaObject, TableClass},
    },
};

use super::{
    super::{
        connection::Connection,
        connections::{ConnectionInfo, Kill},
        consumer::Consumer,
        destination::{Destination, Kind},
        subscription::{SubscriptionKey, SubscriptionName},
        turn::Turn,
    },
    Outcome, Refused,
    answer::{Answer, Caller},
    info::credit,
    request::AdminRequest,
    survey::survey,
};

type Entries = Vec<(String, JavaObject)>;

fn hashtable(entries: Entries) -> JavaObject {
    JavaObject::Table(TableClass::Hashtable, entries)
}

fn entry(name: &str, value: impl Into<JavaObject>) -> (String, JavaObject) {
    (name.to_owned(), value.into())
}

fn number(value: usize) -> JavaObject {
    i32::try_from(value).unwrap_or(i32::MAX).into()
}

/// What a request says about which connections it means.
fn filter(
    request: &AdminRequest<'_>,
) -> Result<impl Fn(&ConnectionInfo) -> bool + Send + Sync + use<>, Refused> {
    let (service, id) = (request.string("JMQServiceName")?, request.long("JMQConnectionID")?);
    Ok(move |info: &ConnectionInfo| {
        id.is_none_or(|id| info.id == id)
            && service.as_deref().is_none_or(|service| info.service.name() == service)
    })
}

fn unknown(id: i64) -> Refused {
    (Status::NOT_FOUND, format!("there is no connection {id}"))
}

/// A connection as tools know it. What it does not have is left out: a table holds no null.
fn describe(info: &ConnectionInfo, producers: usize, consumers: usize) -> Entries {
    let profile = info.profile();
    let mut entries = vec![
        entry("cxnid", info.id),
        entry("host", info.peer.host()),
        entry("port", info.peer.port()),
        entry("user", profile.user.as_str()),
        entry("nproducers", number(producers)),
        entry("nconsumers", number(consumers)),
        entry("clientplatform", profile.user_agent.as_str()),
        entry("service", info.service.name()),
    ];
    if let Some(id) = &profile.client_id {
        entries.push(entry("clientid", id.as_str()));
    }
    entries
}

pub(super) fn connections(
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
) -> Outcome {
    let wanted = filter(request)?;
    if let Some(id) = request.long("JMQConnectionID")?
        && turn.shared.connections.find(id).is_none()
    {
        return Err(unknown(id));
    }
    let caller = caller.clone();
    survey(
        turn,
        move |open, _| {
            let info = Arc::clone(open.info());
            wanted(&info).then(|| (info, open.producers().count(), open.consumers().count()))
        },
        move |mut said, turn| {
            said.sort_by_key(|(info, ..)| info.id);
            let rows = said.iter().map(|(info, producers, consumers)| {
                hashtable(describe(info, *producers, *consumers))
            });
            caller.answer(Answer::vector(&[], rows), turn);
        },
    );
    Ok(None)
}

/// Everything about one connection.
pub(super) fn query_connection(
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
) -> Outcome {
    let id = request.target_id()?;
    let caller = caller.clone();
    survey(
        turn,
        move |open, _| {
            if open.id() != id {
                return None;
            }
            let producers: Vec<i64> = open.producers().map(|(id, _)| id).collect();
            let consumers: Vec<i64> = open.consumers().map(|one| one.id).collect();
            Some((Arc::clone(open.info()), producers, consumers))
        },
        move |said, turn| {
            let answer = match said.first() {
                None => {
                    let (status, reason) = unknown(id);
                    Answer::refusal(status, reason)
                }
                Some((info, producers, consumers)) => {
                    let ids = |ids: &[i64]| {
                        let mut ids = ids.to_vec();
                        ids.sort_unstable();
                        JavaObject::Vector(ids.into_iter().map(JavaObject::from).collect())
                    };
                    let mut entries = describe(info, producers.len(), consumers.len());
                    entries.push(("producers".into(), ids(producers)));
                    entries.push(("consumers".into(), ids(consumers)));
                    Answer::object(&hashtable(entries))
                }
            };
            caller.answer(answer, turn);
        },
    );
    Ok(None)
}

pub(super) fn destroy_connection(
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
) -> Outcome {
    let wanted = filter(request)?;
    let id = request.long("JMQConnectionID")?;
    if id.is_none() && request.string("JMQServiceName")?.is_none() {
        let reason = "neither JMQConnectionID nor JMQServiceName says which connections";
        return Err((Status::BAD_REQUEST, reason.into()));
    }
    let all = turn.shared.connections.all();
    // Whoever ends all of a service stays to hear of it.
    let gone: Vec<Arc<ConnectionInfo>> = all
        .into_iter()
        .filter(|one| wanted(one) && (id.is_some() || one.id != caller.connection))
        .collect();
    if let Some(id) = id.filter(|_| gone.is_empty()) {
        return Err(unknown(id));
    }
    caller.answer_then(Answer::done(), turn, move |_| {
        gone.iter().for_each(|one| one.kill(Kill::Administrator));
    });
    Ok(None)
}

/// A consumer as tools know it.
fn describe_consumer(
    consumer: &Consumer,
    at: &Destination,
    key: Option<&SubscriptionKey>,
    turn: &Turn<'_>,
) -> Entries {
    let (delivered, unacknowledged) = consumer.counts();
    let count = |value: u64| JavaObject::from(i64::try_from(value).unwrap_or(i64::MAX));
    let mut entries = vec![
        entry("id", consumer.id),
        entry("cxnid", consumer.connection_id),
        entry("destination", &*at.name),
        entry("type", at.kind.to_string()),
        entry("window", credit(consumer.prefetch)),
        entry("delivered", count(delivered)),
        entry("unacknowledged", count(unacknowledged)),
        entry("nolocal", consumer.no_local),
    ];
    if let Some(selector) = &consumer.selector {
        entries.push(entry("selector", selector.text()));
    }
    if let Some(info) = turn.shared.connections.find(consumer.connection_id) {
        entries.push(entry("user", info.profile().user.as_str()));
        entries.push(entry("host", info.peer.host()));
    }
    if let Some(key) = key {
        entries.push(entry("durable", key.durable));
        if let Some(id) = &key.client_id {
            entries.push(entry("clientid", &**id));
        }
        if let SubscriptionName::Given(name) = &key.name {
            entries.push(entry("subscription", &**name));
        }
    }
    entries
}

pub(super) fn consumers(request: &AdminRequest<'_>, turn: &Turn<'_>) -> Outcome {
    let wanted = request.destination()?;
    if let Some((kind, name)) = &wanted
        && turn.shared.registry.find(*kind, name).is_none()
    {
        return Err((Status::NOT_FOUND, format!("there is no {kind} {name}")));
    }
    let is_wanted = |one: &Destination| {
        wanted.as_ref().is_none_or(|(kind, name)| one.kind == *kind && *one.name == **name)
    };
    let mut rows: Vec<(i64, Entries)> = Vec::new();
    let mut add = |at: &Destination, key: Option<&SubscriptionKey>| {
        if is_wanted(at) {
            let all = at.consumers();
            let row = |one: &Arc<Consumer>| (one.id, describe_consumer(one, at, key, turn));
            rows.extend(all.iter().map(row));
        }
    };
    turn.shared.registry.all().iter().for_each(|at| add(at, None));
    turn.shared.subscriptions.all().iter().for_each(|(key, at)| add(at, Some(key)));
    rows.sort_by_key(|(id, _)| *id);
    let rows = rows.into_iter().map(|(_, entries)| JavaObject::Table(TableClass::HashMap, entries));
    Ok(Some(Answer::vector(&[], rows)))
}

/// All producers, by id.
pub(super) fn producers(
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
) -> Outcome {
    let wanted = request.destination()?;
    let caller = caller.clone();
    survey(
        turn,
        move |open, _| {
            let info = Arc::clone(open.info());
            let all: Vec<_> = open
                .producers()
                .filter(|(_, to)| match (&wanted, to) {
                    (None, _) => true,
                    (Some((kind, name)), Some(to)) => to.kind == *kind && *to.name == **name,
                    (Some(_), None) => false,
                })
                .map(|(id, to)| (id, to.cloned()))
                .collect();
            (!all.is_empty()).then_some((info, all))
        },
        move |said, turn| {
            let by_id: HashMap<i64, Entries> = said
                .into_iter()
                .flat_map(|(info, all)| {
                    all.into_iter()
                        .map(move |(id, to)| (id, describe_producer(id, to.as_deref(), &info)))
                })
                .collect();
            let mut rows: Vec<_> = by_id.into_iter().collect();
            rows.sort_by_key(|(id, _)| *id);
            let rows = rows.into_iter().map(|(id, entries)| (id.to_string(), hashtable(entries)));
            caller.answer(Answer::object(&hashtable(rows.collect())), turn);
        },
    );
    Ok(None)
}

fn describe_producer(id: i64, to: Option<&Destination>, info: &ConnectionInfo) -> Entries {
    let mut entries = vec![
        entry("id", id),
        entry("cxnid", info.id),
        entry("user", info.profile().user.as_str()),
        entry("host", info.peer.host()),
    ];
    match to {
        Some(to) => {
            entries.push(entry("destination", &*to.name));
            entries.push(entry("type", to.kind.to_string()));
        }
        // It sends to all topics that fit a pattern.
        None => entries.push(entry("type", Kind::Topic.to_string())),
    }
    entries
}

pub(super) fn destroy_producer(
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
) -> Outcome {
    end_one(request, caller, turn, "producer", Connection::end_producer)
}

pub(super) fn destroy_consumer(
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
) -> Outcome {
    end_one(request, caller, turn, "consumer", Connection::end_consumer)
}

/// Ends what a request names, on whichever connection it is.
fn end_one(
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
    what: &'static str,
    end: fn(&mut Connection, i64, &mut Turn<'_>) -> bool,
) -> Outcome {
    let id = request.target_id()?;
    let caller = caller.clone();
    survey(
        turn,
        move |open, turn| end(open, id, turn).then_some(()),
        move |found, turn| caller.answer(ended(&found, what, id), turn),
    );
    Ok(None)
}

fn ended(found: &[()], what: &str, id: i64) -> Answer {
    if found.is_empty() {
        return Answer::refusal(Status::NOT_FOUND, format!("there is no {what} {id}"));
    }
    tracing::info!(id, "{what} ended by an administrator");
    Answer::done()
}
