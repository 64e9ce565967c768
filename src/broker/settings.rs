//! The table of the broker's settings: what each takes and where its value goes.

use std::{path::PathBuf, time::Duration};

use crate::{proto::broker_in::Authentication, reactor::Idle, selector::Dialect};

use super::{
    config::BrokerConfig,
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
}

const ADDRESS: &str = "HOST:PORT, such as 127.0.0.1:7676";
const SECONDS: &str = "a time from 1 to 86400 seconds, such as 60 or 60s";

/// All settings but the attributes of destinations.
pub(super) static SETTINGS: [Setting; 24] = [
    Setting {
        name: "listen",
        allowed: ADDRESS,
        apply: |config, value| set(&mut config.listen, address(value)),
    },
    Setting {
        name: "jms",
        allowed: ADDRESS,
        apply: |config, value| set(&mut config.jms, address(value)),
    },
    Setting {
        name: "admin",
        allowed: ADDRESS,
        apply: |config, value| set(&mut config.admin, address(value)),
    },
    Setting {
        name: "data",
        allowed: "the path of a directory",
        apply: |config, value| {
            set(&mut config.data, (!value.is_empty()).then(|| Some(PathBuf::from(value))))
        },
    },
    Setting {
        name: "name",
        allowed: "a name of 1 to 64 letters, digits, '-', '_' and '.'",
        apply: |config, value| set(&mut config.name, name(value)),
    },
    Setting {
        name: "loops",
        allowed: "a number from 1 to 64",
        apply: |config, value| set(&mut config.loops, within(value, 1, 64)),
    },
    Setting {
        name: "idle",
        allowed: "park, answer-due (the default), spin-then-park or spin",
        apply: |config, value| set(&mut config.idle, idle(value)),
    },
    Setting {
        name: "authentication",
        allowed: "digest or basic",
        apply: |config, value| set(&mut config.authentication, authentication(value)),
    },
    Setting {
        name: "login_timeout",
        allowed: SECONDS,
        apply: |config, value| set(&mut config.login_timeout, seconds(value)),
    },
    Setting {
        name: "ping_interval",
        allowed: SECONDS,
        apply: |config, value| set(&mut config.ping_interval, seconds(value)),
    },
    Setting {
        name: "connections_max",
        allowed: "a number from 1 to 1000000",
        apply: |config, value| set(&mut config.connections_max, within(value, 1, 1_000_000)),
    },
    Setting {
        name: "packet_bytes_max",
        allowed: "a size from 512k to 2047m",
        apply: |config, value| {
            let size = size(value).filter(|size| (512 << 10..=2047 << 20).contains(size))?;
            set(&mut config.packet_bytes_max, u32::try_from(size).ok())
        },
    },
    Setting {
        name: "autocreate_queue",
        allowed: SWITCH,
        apply: |config, value| set(&mut config.autocreate_queue, switch(value)),
    },
    Setting {
        name: "autocreate_topic",
        allowed: SWITCH,
        apply: |config, value| set(&mut config.autocreate_topic, switch(value)),
    },
    Setting {
        name: "autocreate_reap_time",
        allowed: SECONDS,
        apply: |config, value| set(&mut config.autocreate_reap_time, seconds(value)),
    },
    Setting {
        name: "dmq.truncate_body",
        allowed: SWITCH,
        apply: |config, value| set(&mut config.dmq_truncate_body, switch(value)),
    },
    Setting {
        name: "log_dead_messages",
        allowed: SWITCH,
        apply: |config, value| set(&mut config.log_dead_messages, switch(value)),
    },
    Setting {
        name: "selectors",
        allowed: "jms or reference",
        apply: |config, value| set(&mut config.selectors, dialect(value)),
    },
    Setting {
        name: "messages_max",
        allowed: COUNT,
        apply: |config, value| set(&mut config.messages_max, limit(value, plain)),
    },
    Setting {
        name: "total_bytes_max",
        allowed: SIZE,
        apply: |config, value| set(&mut config.total_bytes_max, limit(value, size)),
    },
    Setting {
        name: "memory_max",
        allowed: "a size from 1m on, such as 512m, or -1 for no limit",
        apply: |config, value| {
            let bytes = limit(value, size).filter(|&bytes| bytes >= 1 << 20);
            set(&mut config.memory_max, bytes)
        },
    },
    Setting {
        name: "transaction_messages_max",
        allowed: "a number from 1 to 1000000",
        apply: |config, value| {
            set(&mut config.transaction_messages_max, within(value, 1, 1_000_000))
        },
    },
    Setting {
        name: "transaction_acks_max",
        allowed: "a number from 1 to 1000000",
        apply: |config, value| set(&mut config.transaction_acks_max, within(value, 1, 1_000_000)),
    },
    Setting {
        name: "reconnect_grace",
        allowed: "a number of reconnect intervals from 1 to 1000",
        apply: |config, value| set(&mut config.reconnect_grace, within(value, 1, 1000)),
    },
];

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
