//! The broker as a whole: its settings, services and counters, and its end.

use crate::{
    sync::{AtomicU64, Ordering},
    wire::{
        Status, VERSION,
        java::{JavaObject, TableClass},
    },
};

use super::{
    super::{
        config::BrokerConfig,
        connections::Service,
        memory::Level,
        settings::{self, IMQ_NAMES},
        turn::Turn,
    },
    Outcome,
    answer::{Answer, Caller},
    info::typed,
    request::AdminRequest,
};

/// Settings that take effect while the broker runs.
const CHANGEABLE: [&str; 7] = [
    "autocreate_queue",
    "autocreate_topic",
    "autocreate_reap_time",
    "log_dead_messages",
    "dmq.truncate_body",
    "messages_max",
    "total_bytes_max",
];

/// Beginnings of the names of attributes that destinations made from now on get.
const CHANGEABLE_PREFIXES: [&str; 3] = ["destination.", "queue.", "topic."];

pub(super) fn hello(turn: &Turn<'_>) -> Answer {
    Answer::done().with("JMQInstanceName", turn.shared.config.name.as_str())
}

/// The services. The reference's tools know them as objects of a class whose fields are not known;
/// here they are tables.
pub(super) fn services(request: &AdminRequest<'_>, turn: &Turn<'_>) -> Outcome {
    let wanted = request.string("JMQServiceName")?;
    let connections = turn.shared.connections.all();
    let of = |service: Service| {
        let count = connections.iter().filter(|one| one.service == service).count();
        let entries = [
            ("name", JavaObject::from(service.name())),
            ("type", service.kind().into()),
            ("port", i32::from(turn.shared.address(service).port()).into()),
            ("host", turn.shared.address(service).ip().to_string().into()),
            ("nconnections", i32::try_from(count).unwrap_or(i32::MAX).into()),
        ];
        let entries = entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        JavaObject::Table(TableClass::Hashtable, entries)
    };
    let mut services = vec![Service::Jms, Service::Admin];
    services.retain(|one| wanted.as_deref().is_none_or(|wanted| one.name() == wanted));
    match wanted {
        Some(wanted) if services.is_empty() => {
            Err((Status::NOT_FOUND, format!("there is no service {wanted}")))
        }
        _ => Ok(Some(Answer::vector(&[], services.into_iter().map(of)))),
    }
}

/// What is counted for the broker as a whole.
fn counters(turn: &Turn<'_>) -> Vec<(String, JavaObject)> {
    let (stats, memory) = (&turn.shared.stats, &turn.shared.memory);
    let count = |value: u64| JavaObject::from(i64::try_from(value).unwrap_or(i64::MAX));
    let level = match memory.level() {
        Level::Green => "green",
        Level::Yellow => "yellow",
        Level::Orange => "orange",
        Level::Red => "red",
    };
    let entries = [
        ("connections", count(stats.connections())),
        ("producers", count(memory.producers())),
        ("destinations", count(turn.shared.registry.all().len() as u64)),
        ("messages", count(memory.messages())),
        ("bytes", count(memory.bytes())),
        ("memory_level", level.into()),
        ("expired", count(stats.expired_count())),
        ("violations", count(stats.violations())),
    ];
    let entries = entries.into_iter().chain(store_counters(turn));
    entries.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// How the store does. A checkpoint is one commit with its sync; times are in microseconds.
fn store_counters(turn: &Turn<'_>) -> Vec<(&'static str, JavaObject)> {
    let Some(persist) = &turn.shared.persist else { return vec![("store", "none".into())] };
    let count = |value: &AtomicU64| {
        // Relaxed: statistics.
        JavaObject::from(i64::try_from(value.load(Ordering::Relaxed)).unwrap_or(i64::MAX))
    };
    let counts = &persist.counts;
    let state = match persist.reason() {
        None => "working".to_owned(),
        Some(reason) => format!("refusing: {reason}"),
    };
    vec![
        ("store", persist.description.as_str().into()),
        ("store_state", state.into()),
        ("store_stressed", i32::from(persist.stress.is_stressed()).into()),
        ("store_alarms", count(&counts.alarms)),
        ("checkpoints", count(&counts.commits)),
        ("checkpoint_changes", count(&counts.changes)),
        ("checkpoint_bytes", count(&counts.bytes)),
        ("checkpoint_last_us", count(&counts.last_us)),
        ("checkpoint_p50_us", count(&counts.median_us)),
        ("checkpoint_p99_us", count(&counts.p99_us)),
        ("checkpoint_max_us", count(&counts.longest_us)),
    ]
}

/// The counters. The reference's tools know them as objects of a class whose fields are not known;
/// here they are a table.
pub(super) fn metrics(request: &AdminRequest<'_>, turn: &Turn<'_>) -> Outcome {
    if let Some((kind, _)) = request.destination()? {
        let reason = format!("counters of one {kind} are in the answer to DEBUG, query");
        return Err((Status::NOT_IMPLEMENTED, reason));
    }
    Ok(Some(Answer::object(&JavaObject::Table(TableClass::Hashtable, counters(turn)))))
}

/// The settings, under our names and, where there is one, under the reference's.
pub(super) fn properties(turn: &Turn<'_>) -> Answer {
    let texts = turn.shared.live.read(settings::texts);
    let mut entries: Vec<(String, JavaObject)> = vec![
        ("imq.instancename".into(), turn.shared.config.name.as_str().into()),
        ("imq.product.version".into(), env!("CARGO_PKG_VERSION").into()),
        ("imq.packet.version".into(), VERSION.to_string().into()),
    ];
    for (theirs, ours) in IMQ_NAMES {
        if let Some((_, text)) = texts.iter().find(|(name, _)| name == ours) {
            entries.push((theirs.into(), text.as_str().into()));
        }
    }
    entries.extend(texts.into_iter().map(|(name, text)| (name, text.into())));
    Answer::object(&JavaObject::Table(TableClass::Properties, entries))
}

/// Settings and counters, as numbers where they are such.
pub(super) fn query(turn: &Turn<'_>) -> Answer {
    let texts = turn.shared.live.read(settings::texts);
    let settings = texts.into_iter().map(|(name, text)| (name, typed(&text)));
    let entries = counters(turn).into_iter().chain(settings).collect();
    Answer::object(&JavaObject::Table(TableClass::Hashtable, entries))
}

/// Changes settings while the broker runs: all of those asked for, or none.
pub(super) fn update(request: &AdminRequest<'_>, turn: &Turn<'_>) -> Outcome {
    let bad = |reason: String| Err((Status::BAD_REQUEST, reason));
    let document = request.body()?;
    let Some(entries) = document.root.entries() else {
        return bad("the body is no table of settings".into());
    };
    let ours = |name: &str| {
        let known = IMQ_NAMES.iter().find(|(theirs, _)| *theirs == name);
        known.map_or(name, |(_, ours)| ours).to_owned()
    };
    let text = |value: &JavaObject| match value.text() {
        Some(text) => text.to_owned(),
        None => value.value().map_or_else(String::new, ToString::to_string),
    };
    let changes: Vec<(String, String)> =
        entries.iter().map(|(name, value)| (ours(name), text(value))).collect();
    let change = |config: &BrokerConfig| {
        let mut next = config.clone();
        changes.iter().try_for_each(|(name, value)| next.set(name, value)).map(|()| next)
    };
    if let Err(error) = turn.shared.live.read(change) {
        return bad(error.to_string());
    }
    if let Some((name, _)) = changes.iter().find(|(name, _)| !may_change(name)) {
        let reason = format!("{name} takes effect at the start of the broker only");
        return Err((Status::NOT_ALLOWED, reason));
    }
    let (before, after) = turn.shared.live.update(|config| change(config).ok());
    let after = after.unwrap_or(before);
    turn.shared.memory.set_limits(after.messages_max, after.total_bytes_max);
    for (name, value) in changes {
        tracing::info!(name, value, "changed by an administrator");
    }
    Ok(Some(Answer::done()))
}

fn may_change(name: &str) -> bool {
    let prefixes = CHANGEABLE_PREFIXES.iter();
    CHANGEABLE.contains(&name) || prefixes.into_iter().any(|prefix| name.starts_with(prefix))
}

pub(super) fn shut_down(
    request: &AdminRequest<'_>,
    caller: &Caller,
    turn: &mut Turn<'_>,
) -> Outcome {
    let unserved = |reason: &str| Err((Status::NOT_IMPLEMENTED, reason.to_owned()));
    if request.is("JMQRestart")? {
        return unserved("whoever started this broker starts it again; ask for a shutdown");
    }
    if request.int("JMQTime")?.is_some_and(|seconds| seconds > 0) {
        return unserved("a shutdown begins at once, and clients are told; JMQTime must be 0");
    }
    tracing::info!("shut down by an administrator");
    caller.answer_then(Answer::done(), turn, |turn| turn.shared.shut_down());
    Ok(None)
}
