//! The table of the broker's settings: what each takes and where its value goes.

use std::{path::PathBuf, time::Duration};

use crate::{proto::broker_in::Authentication, reactor::Idle, selector::Dialect};

use super::{
    attributes::show_limit,
    config::{BrokerConfig, SyncMode},
    database_url::DatabaseUrl,
    destination::Kind,
    value::{COUNT, SIZE, SWITCH, address, limit, plain, seconds, set, size, switch, within},
};

/// One setting: its name, what it takes, and how a value gets in.
pub(super) struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub allowed: &'static str,
    /// Puts a value in; `None` if it is not allowed.
    pub apply: fn(&mut BrokerConfig, &str) -> Option<()>,
    /// Its value as text that can be put in again.
    pub show: fn(&BrokerConfig) -> String,
}

const ADDRESS: &str = "HOST:PORT, such as 127.0.0.1:7676";
const SECONDS: &str = "a time from 1 to 86400 seconds, such as 60 or 60s";

const POSTGRES: &str = "store.postgres";

/// A value that is not allowed, as it may be told: without passwords.
pub(super) fn shown<'a>(name: &str, value: &'a str) -> &'a str {
    if name == POSTGRES { "…" } else { value }
}

/// All settings but the attributes of destinations.
pub(super) static SETTINGS: [Setting; 32] = [
    Setting {
        name: "listen",
        allowed: ADDRESS,
        apply: |config, value| set(&mut config.listen, address(value)),
        show: |config| config.listen.to_string(),
    },
    Setting {
        name: "jms",
        allowed: ADDRESS,
        apply: |config, value| set(&mut config.jms, address(value)),
        show: |config| config.jms.to_string(),
    },
    Setting {
        name: "admin",
        allowed: ADDRESS,
        apply: |config, value| set(&mut config.admin, address(value)),
        show: |config| config.admin.to_string(),
    },
    Setting {
        name: "data",
        allowed: "the path of a directory",
        apply: |config, value| {
            set(&mut config.data, (!value.is_empty()).then(|| Some(PathBuf::from(value))))
        },
        show: |config| {
            config.data.as_ref().map_or_else(String::new, |path| path.display().to_string())
        },
    },
    Setting {
        name: "name",
        allowed: "a name of 1 to 64 letters, digits, '-', '_' and '.'",
        apply: |config, value| set(&mut config.name, name(value)),
        show: |config| config.name.clone(),
    },
    Setting {
        name: "loops",
        allowed: "a number from 1 to 64",
        apply: |config, value| set(&mut config.loops, within(value, 1, 64)),
        show: |config| config.loops.to_string(),
    },
    Setting {
        name: "idle",
        allowed: "park, answer-due (the default), spin-then-park or spin",
        apply: |config, value| set(&mut config.idle, idle(value)),
        show: |config| show_idle(config.idle).to_owned(),
    },
    Setting {
        name: "authentication",
        allowed: "digest or basic",
        apply: |config, value| set(&mut config.authentication, authentication(value)),
        show: |config| config.authentication.name().to_owned(),
    },
    Setting {
        name: "login_timeout",
        allowed: SECONDS,
        apply: |config, value| set(&mut config.login_timeout, seconds(value)),
        show: |config| show_seconds(config.login_timeout),
    },
    Setting {
        name: "ping_interval",
        allowed: SECONDS,
        apply: |config, value| set(&mut config.ping_interval, seconds(value)),
        show: |config| show_seconds(config.ping_interval),
    },
    Setting {
        name: "connections_max",
        allowed: "a number from 1 to 1000000",
        apply: |config, value| set(&mut config.connections_max, within(value, 1, 1_000_000)),
        show: |config| config.connections_max.to_string(),
    },
    Setting {
        name: "packet_bytes_max",
        allowed: "a size from 512k to 2047m",
        apply: |config, value| {
            let size = size(value).filter(|size| (512 << 10..=2047 << 20).contains(size))?;
            set(&mut config.packet_bytes_max, u32::try_from(size).ok())
        },
        show: |config| config.packet_bytes_max.to_string(),
    },
    Setting {
        name: "autocreate_queue",
        allowed: SWITCH,
        apply: |config, value| set(&mut config.autocreate_queue, switch(value)),
        show: |config| config.autocreate_queue.to_string(),
    },
    Setting {
        name: "autocreate_topic",
        allowed: SWITCH,
        apply: |config, value| set(&mut config.autocreate_topic, switch(value)),
        show: |config| config.autocreate_topic.to_string(),
    },
    Setting {
        name: "autocreate_reap_time",
        allowed: SECONDS,
        apply: |config, value| set(&mut config.autocreate_reap_time, seconds(value)),
        show: |config| show_seconds(config.autocreate_reap_time),
    },
    Setting {
        name: POSTGRES,
        allowed: "an address of a database, such as postgresql://user:password@host:5432/name",
        apply: |config, value| set(&mut config.postgres, DatabaseUrl::new(value).map(Some)),
        show: |config| config.postgres.as_ref().map_or_else(String::new, DatabaseUrl::to_string),
    },
    Setting {
        name: "store.lease",
        allowed: "a time from 1s to 1h, as in 10s (the default)",
        apply: |config, value| set(&mut config.lease, time(value).filter(|time| *time >= SECOND)),
        show: |config| show_time(config.lease),
    },
    Setting {
        name: "store.sync",
        allowed: "always (the default), os, or a time from 1ms to 1h as in 50ms or 2s",
        apply: |config, value| set(&mut config.sync, sync(value)),
        show: |config| show_sync(config.sync),
    },
    Setting {
        name: "store.batch_changes_max",
        allowed: "a number from 1 to 100000",
        apply: |config, value| set(&mut config.batch_changes_max, within(value, 1, 100_000)),
        show: |config| config.batch_changes_max.to_string(),
    },
    Setting {
        name: "store.batch_bytes_max",
        allowed: "a size from 64k to 1g",
        apply: |config, value| {
            let size = size(value).filter(|size| (64 << 10..=1 << 30).contains(size));
            set(&mut config.batch_bytes_max, size)
        },
        show: |config| config.batch_bytes_max.to_string(),
    },
    Setting {
        name: "store.batch_delay",
        allowed: "a time from 0ms to 1s, as in 2ms; default 0ms",
        apply: |config, value| {
            set(&mut config.batch_delay, time(value).filter(|time| *time <= SECOND))
        },
        show: |config| show_time(config.batch_delay),
    },
    Setting {
        name: "store.memory_max",
        allowed: "a size from 0 on, such as 64m; never more than a quarter of memory_max is used",
        apply: |config, value| set(&mut config.store_memory_max, size(value)),
        show: |config| config.store_memory_max.to_string(),
    },
    Setting {
        name: "store.checkpoint_limit",
        allowed: "a time from 1ms to 1h, as in 500ms or 60s",
        apply: |config, value| {
            set(&mut config.checkpoint_limit, time(value).filter(|time| !time.is_zero()))
        },
        show: |config| show_time(config.checkpoint_limit),
    },
    Setting {
        name: "dmq.truncate_body",
        allowed: SWITCH,
        apply: |config, value| set(&mut config.dmq_truncate_body, switch(value)),
        show: |config| config.dmq_truncate_body.to_string(),
    },
    Setting {
        name: "log_dead_messages",
        allowed: SWITCH,
        apply: |config, value| set(&mut config.log_dead_messages, switch(value)),
        show: |config| config.log_dead_messages.to_string(),
    },
    Setting {
        name: "selectors",
        allowed: "jms or reference",
        apply: |config, value| set(&mut config.selectors, dialect(value)),
        show: |config| show_dialect(config.selectors).to_owned(),
    },
    Setting {
        name: "messages_max",
        allowed: COUNT,
        apply: |config, value| set(&mut config.messages_max, limit(value, plain)),
        show: |config| show_limit(config.messages_max),
    },
    Setting {
        name: "total_bytes_max",
        allowed: SIZE,
        apply: |config, value| set(&mut config.total_bytes_max, limit(value, size)),
        show: |config| show_limit(config.total_bytes_max),
    },
    Setting {
        name: "memory_max",
        allowed: "a size from 1m on, such as 512m, or -1 for no limit",
        apply: |config, value| {
            let bytes = limit(value, size).filter(|&bytes| bytes >= 1 << 20);
            set(&mut config.memory_max, bytes)
        },
        show: |config| show_limit(config.memory_max),
    },
    Setting {
        name: "transaction_messages_max",
        allowed: "a number from 1 to 1000000",
        apply: |config, value| {
            set(&mut config.transaction_messages_max, within(value, 1, 1_000_000))
        },
        show: |config| config.transaction_messages_max.to_string(),
    },
    Setting {
        name: "transaction_acks_max",
        allowed: "a number from 1 to 1000000",
        apply: |config, value| set(&mut config.transaction_acks_max, within(value, 1, 1_000_000)),
        show: |config| config.transaction_acks_max.to_string(),
    },
    Setting {
        name: "reconnect_grace",
        allowed: "a number of reconnect intervals from 1 to 1000",
        apply: |config, value| set(&mut config.reconnect_grace, within(value, 1, 1000)),
        show: |config| config.reconnect_grace.to_string(),
    },
];

/// Names that the reference broker has for some settings, and ours.
pub(super) const IMQ_NAMES: [(&str, &str); 8] = [
    ("imq.autocreate.queue", "autocreate_queue"),
    ("imq.autocreate.topic", "autocreate_topic"),
    ("imq.autocreate.reaptime", "autocreate_reap_time"),
    ("imq.destination.DMQ.truncateBody", "dmq.truncate_body"),
    ("imq.destination.logDeadMsgs", "log_dead_messages"),
    ("imq.system.max_count", "messages_max"),
    ("imq.system.max_size", "total_bytes_max"),
    ("imq.message.max_size", "packet_bytes_max"),
];

/// All settings with their values as text, attributes of destinations among them.
pub(super) fn texts(config: &BrokerConfig) -> Vec<(String, String)> {
    let plain = SETTINGS.iter().map(|one| (one.name.to_owned(), (one.show)(config)));
    let owners = [
        ("queue", &config.queue, Kind::Queue),
        ("topic", &config.topic, Kind::Topic),
        ("dmq", &config.dmq, Kind::Queue),
    ];
    let attributes = owners.into_iter().flat_map(|(owner, attributes, kind)| {
        attributes.texts(kind).map(move |(name, text)| (format!("{owner}.{name}"), text))
    });
    // Whether the dead are kept is not asked of the dead.
    plain.chain(attributes).filter(|(name, _)| name != "dmq.use_dmq").collect()
}

fn show_seconds(time: Duration) -> String {
    time.as_secs().to_string()
}

const SECOND: Duration = Duration::from_secs(1);

/// Longest time of a setting of the store.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// A time in milliseconds or seconds, as in `50ms` or `2s`.
fn time(value: &str) -> Option<Duration> {
    let value = value.to_ascii_lowercase();
    let time = match value.strip_suffix("ms") {
        Some(number) => Duration::from_millis(number.trim().parse().ok()?),
        None => Duration::from_secs(value.strip_suffix('s')?.trim().parse().ok()?),
    };
    (time <= TIME_MAX).then_some(time)
}

fn show_time(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

fn sync(value: &str) -> Option<SyncMode> {
    Some(match value.to_ascii_lowercase().as_str() {
        "always" => SyncMode::Always,
        "os" => SyncMode::Os,
        interval => SyncMode::Interval(time(interval).filter(|time| !time.is_zero())?),
    })
}

fn show_sync(sync: SyncMode) -> String {
    match sync {
        SyncMode::Always => "always".into(),
        SyncMode::Os => "os".into(),
        SyncMode::Interval(interval) => show_time(interval),
    }
}

fn show_idle(idle: Idle) -> &'static str {
    match idle {
        Idle::Park => "park",
        Idle::SpinThenPark(_) => "spin-then-park",
        Idle::Spin => "spin",
        _ => "answer-due",
    }
}

const fn show_dialect(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Jms => "jms",
        Dialect::Reference => "reference",
    }
}

fn name(value: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&value.len()).then_some(())?;
    value.chars().all(good).then(|| value.to_owned())
}

fn idle(value: &str) -> Option<Idle> {
    Some(match value {
        "park" => Idle::Park,
        "answer-due" => Idle::default(),
        "spin-then-park" => Idle::SpinThenPark(Duration::from_micros(50)),
        "spin" => Idle::Spin,
        _ => return None,
    })
}

fn dialect(value: &str) -> Option<Dialect> {
    Some(match value.to_ascii_lowercase().as_str() {
        "jms" => Dialect::Jms,
        "reference" => Dialect::Reference,
        _ => return None,
    })
}

fn authentication(value: &str) -> Option<Authentication> {
    Some(match value.to_ascii_lowercase().as_str() {
        "digest" => Authentication::Digest,
        "basic" => Authentication::Basic,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{BrokerConfig, IMQ_NAMES, SETTINGS, texts};

    #[test]
    fn what_is_told_can_be_put_in_again() {
        let mut config = BrokerConfig::default();
        for (name, value) in [
            ("loops", "3"),
            ("idle", "spin"),
            ("data", "somewhere"),
            ("store.postgres", "postgres://host/name"),
            ("store.lease", "1500ms"),
            ("login_timeout", "7"),
            ("selectors", "reference"),
            ("messages_max", "9"),
            ("queue.limit_behavior", "REMOVE_OLDEST"),
            ("dmq.messages_max", "-1"),
        ] {
            config.set(name, value).unwrap();
        }
        let told = texts(&config);
        let mut again = BrokerConfig::default();
        for (name, value) in told.iter().filter(|(_, value)| !value.is_empty()) {
            again.set(name, value).unwrap();
        }
        assert_eq!(texts(&again), told);
        assert!(told.contains(&("loops".into(), "3".into())));
        assert!(told.contains(&("queue.limit_behavior".into(), "REMOVE_OLDEST".into())));
        assert!(IMQ_NAMES.iter().all(|(_, ours)| SETTINGS.iter().any(|one| one.name == *ours)));
    }
}
