//! Destinations: made, looked at, changed, paused, emptied and destroyed.

use std::collections::HashMap;

use crate::{
    sync::{Arc, Ordering, Plain},
    wire::{
        Status,
        java::{JavaObject, TableClass},
    },
};

use super::{
    super::{
        attributes::{Attribute, Attributes, LimitBehavior},
        command::{Command, Rare},
        config::is_administrable,
        destination::{Destination, Kind, Origin},
        dispatch::{Part, State},
        gather::Gather,
        turn::Turn,
    },
    Outcome, Refused,
    answer::{Answer, Caller},
    info::{self, CLASS, Change, Load, attribute_values},
    request::{AdminRequest, kind_named},
};

/// Bits of a destination's state: its consumers get nothing, its producers no credit.
const CONSUMERS_PAUSED: u32 = 1;
const PRODUCERS_PAUSED: u32 = 2;

/// Subscriptions that stand for themselves, by the name of their topic.
pub(super) type Subscriptions = HashMap<Box<str>, Vec<Arc<Destination>>>;

/// All subscriptions there are, by topic.
pub(super) fn subscriptions(turn: &Turn<'_>) -> Subscriptions {
    let mut by_topic = Subscriptions::new();
    for (_, one) in turn.shared.subscriptions.all() {
        by_topic.entry(one.name.clone()).or_default().push(one);
    }
    by_topic
}

/// The destination a request names.
fn named(request: &AdminRequest<'_>, turn: &Turn<'_>) -> Result<Arc<Destination>, Refused> {
    let (kind, name) = request.wanted_destination()?;
    find(kind, &name, turn)
}

fn find(kind: Kind, name: &str, turn: &Turn<'_>) -> Result<Arc<Destination>, Refused> {
    let found = turn.shared.registry.find(kind, name);
    found.ok_or_else(|| (Status::NOT_FOUND, format!("there is no {kind} {name}")))
}

/// What is counted of a destination and its subscriptions.
fn load(destination: &Destination, subscriptions: &Subscriptions) -> Load {
    let counts = destination.counts();
    let hanging = match destination.kind {
        Kind::Queue => None,
        Kind::Topic => subscriptions.get(&destination.name),
    };
    let mut load = Load {
        // Relaxed: statistics.
        messages: counts.messages.load(Ordering::Relaxed),
        bytes: counts.bytes.load(Ordering::Relaxed),
        delayed: counts.delayed.load(Ordering::Relaxed),
        producers: destination.producers(),
        state: counts.paused.load(Ordering::Relaxed),
        ..Load::default()
    };
    let all = std::iter::once(destination).chain(hanging.into_iter().flatten().map(|one| &**one));
    for one in all {
        for consumer in one.consumers().iter() {
            load.consumers += 1;
            load.unacknowledged += consumer.counts().1;
        }
    }
    load.active_consumers = match destination.kind {
        Kind::Queue => {
            let most = destination.attributes().active_consumers_max;
            load.consumers.min(usize::try_from(most).unwrap_or(usize::MAX))
        }
        Kind::Topic => load.consumers,
    };
    load
}

pub(super) fn list(request: &AdminRequest<'_>, turn: &Turn<'_>) -> Outcome {
    let mut all = match request.string("JMQDestination")? {
        Some(_) => vec![named(request, turn)?],
        None => turn.shared.registry.all(),
    };
    all.sort_by(|a, b| {
        a.name.cmp(&b.name).then((a.kind == Kind::Topic).cmp(&(b.kind == Kind::Topic)))
    });
    let subscriptions = subscriptions(turn);
    let objects = all.iter().map(|one| info::object(one, load(one, &subscriptions)));
    Ok(Some(Answer::vector(&[CLASS], objects)))
}

/// Everything about one destination, by name.
pub(super) fn query(request: &AdminRequest<'_>, kind: &str, turn: &Turn<'_>) -> Outcome {
    let kind = kind_named(kind).unwrap_or(Kind::Queue);
    let found = find(kind, &request.wanted_string("JMQTarget")?, turn)?;
    let load = load(&found, &subscriptions(turn));
    let counts = found.counts();
    let number = |value: u64| JavaObject::from(i64::try_from(value).unwrap_or(i64::MAX));
    let state = match load.state {
        0 => "running",
        CONSUMERS_PAUSED => "consumers paused",
        PRODUCERS_PAUSED => "producers paused",
        _ => "paused",
    };
    let origin = match found.origin {
        Origin::Administered => "administered",
        Origin::AutoCreated => "auto-created",
        Origin::Temporary(_) => "temporary",
        Origin::Dead => "dead messages",
        Origin::Subscription => "subscription",
    };
    let own = [
        ("name", JavaObject::from(&*found.name)),
        ("kind", kind.to_string().as_str().into()),
        ("origin", origin.into()),
        ("state", state.into()),
        ("messages", number(load.messages)),
        ("bytes", number(load.bytes)),
        ("delayed", number(load.delayed)),
        ("unacknowledged", number(load.unacknowledged)),
        ("producers", number(u64::from(load.producers))),
        ("consumers", number(load.consumers as u64)),
        // Relaxed: statistics.
        ("received", number(counts.received.load(Ordering::Relaxed))),
        ("expired", number(counts.expired.load(Ordering::Relaxed))),
    ];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    let all = own.chain(attribute_values(&found.attributes(), kind)).collect();
    Ok(Some(Answer::object(&JavaObject::Table(TableClass::Hashtable, all))))
}

/// What a body says is to be: an object of the reference's class, or a table of names and values.
fn change(request: &AdminRequest<'_>) -> Result<Change, Refused> {
    let bad = |reason: String| (Status::BAD_REQUEST, reason);
    let document = request.body()?;
    let Some(entries) = document.root.entries() else {
        return info::read(&document).map_err(bad);
    };
    let mut change = Change { kind: None, name: None, attributes: Vec::new() };
    for (name, value) in entries {
        let value = match value {
            JavaObject::Value(value) => JavaObject::from(value.clone()),
            _ => return Err(bad(format!("{name} is neither text nor number"))),
        };
        let text = value.text().map(str::to_owned);
        let text =
            text.unwrap_or_else(|| value.value().map_or_else(String::new, ToString::to_string));
        match name.as_str() {
            "name" => change.name = Some(text),
            "type" => {
                let kind = kind_named(&text);
                change.kind = Some(
                    kind.ok_or_else(|| bad(format!("type {text:?} is neither queue nor topic")))?,
                );
            }
            _ => change.attributes.push((name.clone(), text)),
        }
    }
    Ok(change)
}

/// The destination a change is about.
fn place(change: &Change) -> Result<(Kind, &str), Refused> {
    let missing =
        |what: &str| (Status::BAD_REQUEST, format!("the {what} of the destination is missing"));
    let name = change.name.as_deref().ok_or_else(|| missing("name"))?;
    Ok((change.kind.ok_or_else(|| missing("type"))?, name))
}

/// Attributes with a change carried out on them.
fn changed(
    mut attributes: Attributes,
    change: &[(String, String)],
    kind: Kind,
    origin: Origin,
) -> Result<Attributes, Refused> {
    let bad = |reason: String| (Status::BAD_REQUEST, reason);
    for (name, value) in change {
        if Attribute::named(name).is_some_and(|one| !one.is_for(kind)) {
            return Err(bad(format!("a {kind} has no {name}")));
        }
        attributes.set(name, value).map_err(|error| bad(error.to_string()))?;
    }
    if origin == Origin::Dead && attributes.limit_behavior == LimitBehavior::FlowControl {
        return Err(bad("the dead message queue cannot hold back those who die".into()));
    }
    Ok(attributes)
}

pub(super) fn create(request: &AdminRequest<'_>, caller: &Caller, turn: &mut Turn<'_>) -> Outcome {
    let change = change(request)?;
    let (kind, name) = place(&change)?;
    if !is_administrable(name) {
        let reason = format!(
            "{name:?} cannot be the name of a destination: it is blank, too long, \
                              reserved, or has '*' or '>' in it"
        );
        return Err((Status::BAD_REQUEST, reason));
    }
    let origin = Origin::Administered;
    let attributes = changed(Attributes::administered(), &change.attributes, kind, origin)?;
    let made = turn.shared.registry.ensure(kind, name, origin, || attributes);
    match made {
        Some((made, true)) => {
            turn.shared.subscriptions.attach_to(&made, turn);
            made.record_now(turn);
            tracing::info!(%kind, name, "made by an administrator");
            caller.answer_stored(Answer::done(), turn);
            Ok(None)
        }
        Some((_, false)) => Err((Status::CONFLICT, format!("there is a {kind} {name} already"))),
        None => Err((Status::RESOURCE_FULL, "there are too many destinations".into())),
    }
}

pub(super) fn update(request: &AdminRequest<'_>, caller: &Caller, turn: &mut Turn<'_>) -> Outcome {
    let change = change(request)?;
    let found = match request.destination()? {
        Some((kind, name)) => find(kind, &name, turn)?,
        None => {
            let (kind, name) = place(&change)?;
            find(kind, name, turn)?
        }
    };
    let caller = caller.clone();
    let work = Rare::command(move |at, state, turn| {
        let new = changed(state.attributes.clone(), &change.attributes, at.kind, at.origin);
        let answer = match new {
            _ if state.destroyed => gone(at),
            Err((status, reason)) => Answer::refusal(status, reason),
            Ok(attributes) => {
                at.set_attributes(state, attributes);
                at.record_now(turn);
                state.promote_all();
                tracing::info!(destination = %at.uid, "changed by an administrator");
                Answer::done()
            }
        };
        caller.answer_stored(answer, turn);
    });
    turn.send(&found, work);
    Ok(None)
}

pub(super) fn destroy(request: &AdminRequest<'_>, caller: &Caller, turn: &mut Turn<'_>) -> Outcome {
    let found = named(request, turn)?;
    if found.origin == Origin::Dead {
        return Err((
            Status::FORBIDDEN,
            "the dead message queue stays; purge it to empty it".into(),
        ));
    }
    let caller = caller.clone();
    // Not found any more from now on, whatever it has to do before.
    turn.shared.registry.remove(&found);
    turn.send(
        &found,
        Rare::command(move |at, state, turn| {
            at.destroy(state, turn);
            tracing::info!(destination = %at.uid, "destroyed by an administrator");
            caller.answer_stored(Answer::done(), turn);
        }),
    );
    Ok(None)
}

fn gone(at: &Destination) -> Answer {
    Answer::refusal(Status::NOT_FOUND, format!("{} has just been destroyed", at.name))
}

pub(super) fn purge(request: &AdminRequest<'_>, caller: &Caller, turn: &mut Turn<'_>) -> Outcome {
    let found = named(request, turn)?;
    let caller = caller.clone();
    everywhere(
        vec![found],
        turn,
        |at, state, turn| {
            state.clear(turn);
            tracing::info!(destination = %at.uid, "purged by an administrator");
        },
        move |turn| caller.answer_stored(Answer::done(), turn),
    );
    Ok(None)
}

pub(super) fn pause(request: &AdminRequest<'_>, caller: &Caller, turn: &mut Turn<'_>) -> Outcome {
    let state = match request.int("JMQDestState")?.unwrap_or(3) {
        state @ 1..=3 => state.unsigned_abs(),
        other => {
            let reason =
                format!("JMQDestState {other} is none of 1 consumers, 2 producers, 3 both");
            return Err((Status::BAD_REQUEST, reason));
        }
    };
    set_paused(state, request, caller, turn)
}

pub(super) fn resume(request: &AdminRequest<'_>, caller: &Caller, turn: &mut Turn<'_>) -> Outcome {
    set_paused(0, request, caller, turn)
}

fn set_paused(
    paused: u32,
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
) -> Outcome {
    let target = request.string("JMQPauseTarget")?;
    if target.as_deref() == Some("JMQServiceName") || request.string("JMQServiceName")?.is_some() {
        return Err((
            Status::NOT_IMPLEMENTED,
            "a service is not paused; pause destinations".into(),
        ));
    }
    let all = match request.string("JMQDestination")? {
        Some(_) => vec![named(request, turn)?],
        // Who names none means all but those that belong to somebody: the answer to this goes to
        // such a one.
        None => {
            let mut all = turn.shared.registry.all();
            all.retain(|one| matches!(one.origin, Origin::Administered | Origin::AutoCreated));
            all
        }
    };
    let caller = caller.clone();
    everywhere(
        all,
        turn,
        move |at, state, turn| {
            // Relaxed: for people.
            at.counts().paused.store(paused, Ordering::Relaxed);
            at.record_now(turn);
            state.set_paused(paused & CONSUMERS_PAUSED != 0, paused & PRODUCERS_PAUSED != 0);
        },
        move |turn| caller.answer_stored(Answer::done(), turn),
    );
    Ok(None)
}

/// Does something behind the gates of destinations and of all subscriptions that hang on them, and
/// something else when that is done everywhere.
fn everywhere(
    all: Vec<Arc<Destination>>,
    turn: &mut Turn<'_>,
    work: impl Fn(&Arc<Destination>, &mut State, &mut Turn<'_>) + Send + Sync + 'static,
    done: impl FnOnce(&mut Turn<'_>) + Send + Sync + 'static,
) {
    let by_topic = subscriptions(turn);
    let mut places: Vec<Arc<Destination>> = Vec::new();
    for one in all {
        if one.kind == Kind::Topic {
            places.extend(by_topic.get(&one.name).into_iter().flatten().cloned());
        }
        places.push(one);
    }
    if places.is_empty() {
        return done(turn);
    }
    let gather: Plain<Gather<()>> = Gather::new(places.len(), |_, turn| done(turn));
    let work = Plain::new(work);
    for place in places {
        let (gather, work) = (Plain::clone(&gather), Plain::clone(&work));
        let command: Command = Rare::command(move |at, state, turn| {
            if !state.destroyed {
                work(at, state, turn);
            }
            // Whoever is told at the end is told behind all that was changed.
            turn.push_units();
            gather.add(Vec::new(), turn);
        });
        turn.send(&place, command);
    }
}

impl State {
    /// Consumers that waited for a place get one, if there are more places now.
    fn promote_all(&mut self) {
        if self.part != Part::Queue {
            return;
        }
        let most = usize::try_from(self.attributes.active_consumers_max).unwrap_or(usize::MAX);
        let active = self.open_subscribers().filter(|one| one.is_active).count();
        let waiting = self.open_subscribers().count() - active;
        for _ in 0..most.saturating_sub(active).min(waiting) {
            self.promote();
        }
    }

    /// Pauses or resumes the two sides.
    fn set_paused(&mut self, consumers: bool, producers: bool) {
        self.production_paused = producers;
        self.consumption_paused = consumers;
        if !consumers {
            let Self { subscriptions, fed, .. } = self;
            for (key, subscription) in subscriptions {
                subscription.feed(*key, fed);
            }
        }
    }
}
