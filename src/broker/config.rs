//! The broker's settings: names, ranges, defaults, and where they come from.
//!
//! Every setting has one name, in the file and for [`BrokerConfig::set`]; a table of the file is a
//! prefix with a dot. Values are read the same way wherever they come from: blanks around them do
//! not matter, sizes may end in `k`, `m` or `g` with or without `b`. Whatever is wrong is an error
//! that names the place, the value and what is allowed, before anything starts.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

use toml::de::{DeTable, DeValue};

use crate::{
    flow::Credit, proto::broker_in::Authentication, reactor::Idle, setting::nearest,
    wire::limits::PACKET_BYTES_MAX,
};

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is no TOML.
    #[error("{place}: {reason}")]
    Syntax {
        /// File and line.
        place: String,
        /// What the parser says.
        reason: String,
    },
    /// No setting has this name.
    #[error("{place}: there is no setting {name:?}; did you mean {nearest:?}?")]
    Name {
        /// File and line, or "setting".
        place: String,
        /// The name found.
        name: String,
        /// The most similar name there is.
        nearest: &'static str,
    },
    /// The value is not one of those allowed.
    #[error("{place}: {name} = {value:?} is not allowed; it takes {allowed}")]
    Value {
        /// File and line, or "setting".
        place: String,
        /// The setting.
        name: String,
        /// The value found.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The file cannot be read.
    #[error("{file}: cannot be read: {reason}")]
    File {
        /// The file.
        file: String,
        /// What the system says.
        reason: String,
    },
}

/// Limits of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DestinationLimits {
    /// Most messages, waiting or in flight.
    pub messages_max: u64,
    /// Most bytes of all messages.
    pub total_bytes_max: u64,
    /// Largest message, the whole packet, in bytes.
    pub message_bytes_max: u64,
    /// Prefetch allowed to a consumer.
    pub consumer_flow_limit: Credit,
    /// Messages a producer may send before it asks for more.
    pub producer_batch: u32,
}

impl Default for DestinationLimits {
    /// What the reference broker gives a destination it creates on first use.
    fn default() -> Self {
        Self {
            messages_max: 100_000,
            total_bytes_max: 10 << 30,
            message_bytes_max: 10 << 20,
            consumer_flow_limit: Credit::Limited(1000),
            producer_batch: 1000,
        }
    }
}

/// Settings of a broker.
///
/// Shape: plain values, all with safe defaults: loopback only, limits on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BrokerConfig {
    /// Address of the port mapper.
    pub listen: SocketAddr,
    /// Address of the `jms` service; port 0 takes a free one.
    pub jms: SocketAddr,
    /// Directory for the broker's files; none keeps everything in memory.
    pub data: Option<PathBuf>,
    /// Name of this broker, as the port mapper tells it.
    pub name: String,
    /// Event loops, each a thread.
    pub loops: usize,
    /// What a loop does when there is nothing to do.
    pub idle: Idle,
    /// How users prove who they are, unless they ask for the other way.
    pub authentication: Authentication,
    /// Time a connection has for its whole login.
    pub login_timeout: Duration,
    /// A connection silent for so long is pinged, and closed after six times as long.
    pub ping_interval: Duration,
    /// Most connections at a time.
    pub connections_max: usize,
    /// Largest packet, in bytes.
    pub packet_bytes_max: u32,
    /// Whether a queue is made when a client first names it.
    pub autocreate_queue: bool,
    /// Whether a topic is made when a client first names it.
    pub autocreate_topic: bool,
    /// Limits of destinations.
    pub destination: DestinationLimits,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7676)),
            jms: SocketAddr::from(([127, 0, 0, 1], 0)),
            data: None,
            name: "tidegate".into(),
            loops: cores.min(2),
            idle: Idle::default(),
            authentication: Authentication::Digest,
            login_timeout: Duration::from_secs(60),
            ping_interval: Duration::from_secs(120),
            connections_max: 20_000,
            packet_bytes_max: PACKET_BYTES_MAX,
            autocreate_queue: true,
            autocreate_topic: true,
            destination: DestinationLimits::default(),
        }
    }
}

/// One setting: its name, what it takes, and how a value gets in.
struct Setting {
    name: &'static str,
    allowed: &'static str,
    apply: fn(&mut BrokerConfig, &str) -> Option<()>,
}

const ADDRESS: &str = "HOST:PORT, such as 127.0.0.1:7676";
const SWITCH: &str = "true or false";
const SECONDS: &str = "a time from 1 to 86400 seconds, such as 60 or 60s";

const SETTINGS: [Setting; 18] = [
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
        name: "destination.messages_max",
        allowed: "a number from 1 on, or -1 for no limit",
        apply: |config, value| set(&mut config.destination.messages_max, limit(value, plain)),
    },
    Setting {
        name: "destination.total_bytes_max",
        allowed: "a size from 1 on, such as 10m, or -1 for no limit",
        apply: |config, value| set(&mut config.destination.total_bytes_max, limit(value, size)),
    },
    Setting {
        name: "destination.message_bytes_max",
        allowed: "a size from 1 on, such as 10m, or -1 for no limit",
        apply: |config, value| set(&mut config.destination.message_bytes_max, limit(value, size)),
    },
    Setting {
        name: "destination.consumer_flow_limit",
        allowed: "a number from 1 to 1000000, or 0 or -1 for no limit",
        apply: |config, value| set(&mut config.destination.consumer_flow_limit, credit(value)),
    },
    Setting {
        name: "destination.producer_batch",
        allowed: "a number from 1 to 1000",
        apply: |config, value| set(&mut config.destination.producer_batch, within(value, 1, 1000)),
    },
];

impl BrokerConfig {
    /// Names of all settings, with what each takes.
    pub fn settings() -> impl Iterator<Item = (&'static str, &'static str)> {
        SETTINGS.iter().map(|setting| (setting.name, setting.allowed))
    }

    /// Changes one setting by its name.
    ///
    /// # Errors
    /// [`ConfigError::Name`] or [`ConfigError::Value`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.set_at("setting", name, value)
    }

    fn set_at(&mut self, place: &str, name: &str, value: &str) -> Result<(), ConfigError> {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name.trim()) else {
            return Err(ConfigError::Name {
                place: place.into(),
                name: name.into(),
                nearest: nearest(name, SETTINGS.iter().map(|setting| setting.name)),
            });
        };
        (setting.apply)(self, value.trim()).ok_or_else(|| ConfigError::Value {
            place: place.into(),
            name: setting.name.into(),
            value: value.into(),
            allowed: setting.allowed,
        })
    }

    /// Reads settings from TOML over the defaults. `file` is for errors. Keys that stand twice are
    /// an error.
    ///
    /// # Errors
    /// Any [`ConfigError`], with file and line.
    pub fn from_toml_str(text: &str, file: &str) -> Result<Self, ConfigError> {
        // A byte-order mark, as some editors leave it.
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let place = |at: usize| {
            let before = text.get(..at).unwrap_or(text);
            format!("{file}, line {}", before.matches('\n').count() + 1)
        };
        let table = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            // What stands there, as in "duplicate key: loops".
            let found = text.get(span.clone()).unwrap_or_default().trim();
            let found = found.lines().next().filter(|found| found.len() <= 64);
            let found = found.map_or_else(String::new, |found| format!(": {found}"));
            ConfigError::Syntax {
                place: place(span.start),
                reason: format!("{}{found}", error.message().trim()),
            }
        })?;
        let mut config = Self::default();
        config.read(table.get_ref(), "", &place)?;
        Ok(config)
    }

    /// Reads settings from a file.
    ///
    /// # Errors
    /// Any [`ConfigError`].
    pub fn from_file(path: &std::path::Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::File { file: file.clone(), reason: error.to_string() })?;
        Self::from_toml_str(&text, &file)
    }

    fn read(
        &mut self,
        table: &DeTable<'_>,
        prefix: &str,
        place: &dyn Fn(usize) -> String,
    ) -> Result<(), ConfigError> {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            let here = place(key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) => self.read(inner, &format!("{name}."), place)?,
                DeValue::String(text) => self.set_at(&here, &name, text)?,
                DeValue::Boolean(value) => self.set_at(&here, &name, &value.to_string())?,
                DeValue::Integer(number) => self.set_at(&here, &name, &number.to_string())?,
                other => {
                    // No setting takes these; say what the one of this name does take.
                    self.set_at(&here, &name, &format!("{other:?}"))?;
                }
            }
        }
        Ok(())
    }
}

/// Puts a value in if there is one.
fn set<T>(place: &mut T, value: Option<T>) -> Option<()> {
    *place = value?;
    Some(())
}

fn address(value: &str) -> Option<SocketAddr> {
    // A name is looked up once, here; the first address counts.
    value.parse().ok().or_else(|| value.to_socket_addrs().ok()?.next())
}

fn name(value: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&value.len()).then_some(())?;
    value.chars().all(good).then(|| value.to_owned())
}

fn within<T: std::str::FromStr + PartialOrd>(value: &str, low: T, high: T) -> Option<T> {
    value.parse().ok().filter(|number| *number >= low && *number <= high)
}

fn switch(value: &str) -> Option<bool> {
    value.to_ascii_lowercase().parse().ok()
}

fn seconds(value: &str) -> Option<Duration> {
    let number = value.strip_suffix('s').unwrap_or(value).trim_end();
    within(number, 1, 86_400).map(Duration::from_secs)
}

fn plain(value: &str) -> Option<u64> {
    value.parse().ok()
}

/// A size in bytes: `10`, `10k`, `10 m`, `10MB`.
fn size(value: &str) -> Option<u64> {
    let lower = value.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
    let unit = lower.get(digits.len()..)?.trim_start();
    let shift = match unit {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn limit(value: &str, read: fn(&str) -> Option<u64>) -> Option<u64> {
    if value == "-1" { Some(u64::MAX) } else { read(value).filter(|&number| number > 0) }
}

fn credit(value: &str) -> Option<Credit> {
    match within(value, -1, 1_000_000)? {
        -1 | 0 => Some(Credit::Unlimited),
        limited => u32::try_from(limited).ok().map(Credit::Limited),
    }
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

fn authentication(value: &str) -> Option<Authentication> {
    Some(match value.to_ascii_lowercase().as_str() {
        "digest" => Authentication::Digest,
        "basic" => Authentication::Basic,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{BrokerConfig, ConfigError};
    use crate::flow::Credit;

    fn read(text: &str) -> Result<BrokerConfig, ConfigError> {
        BrokerConfig::from_toml_str(text, "b.toml")
    }

    #[test]
    fn values_are_read_whatever_stands_around_them() {
        for text in [
            "loops = 3\n[destination]\ntotal_bytes_max = \"10m\"\nconsumer_flow_limit = -1\n",
            "\u{FEFF}loops = 3\r\n[destination]\r\ntotal_bytes_max = \" 10 M \"\r\nconsumer_flow_limit=0\r\n",
            "loops = \"3\\t\"\ndestination.total_bytes_max = \"10mb\"\ndestination.consumer_flow_limit = \" -1\"\n",
        ] {
            let config = read(text).unwrap();
            assert_eq!(config.loops, 3);
            assert_eq!(config.destination.total_bytes_max, 10 << 20);
            assert_eq!(config.destination.consumer_flow_limit, Credit::Unlimited);
        }
        assert!(!read("autocreate_queue = \"false \"").unwrap().autocreate_queue);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_place_and_what_is_allowed() {
        let error = read("\n\nloops = 0\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "b.toml, line 3: loops = \"0\" is not allowed; it takes a number from 1 to 64"
        );
        for bad in [
            "destination.total_bytes_max = \"1e3\"",
            "destination.total_bytes_max = \"99999999999999999999\"",
            "destination.total_bytes_max = \"\"",
            "destination.total_bytes_max = 0",
            "listen = \"7676 and more\"",
            "authentication = \"digets\"",
            "login_timeout = -1",
            "loops = [1]",
            "loops = 1.5",
            "packet_bytes_max = 100",
        ] {
            assert!(matches!(read(bad), Err(ConfigError::Value { .. })), "{bad}");
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest_right_one() {
        let error = read("[destination]\nmesages_max = 5").unwrap_err();
        assert!(error.to_string().contains("\"destination.messages_max\""), "{error}");
        assert!(error.to_string().contains("line 2"), "{error}");
        assert!(
            BrokerConfig::default()
                .set("lopps", "1")
                .unwrap_err()
                .to_string()
                .contains("\"loops\"")
        );
    }

    #[test]
    fn a_key_that_stands_twice_is_an_error() {
        let error = read("loops = 1\nloops = 2\n").unwrap_err();
        assert!(matches!(error, ConfigError::Syntax { .. }), "{error}");
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
