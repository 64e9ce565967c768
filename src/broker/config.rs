//! The broker's settings: names, ranges, defaults, and where they come from.
//!
//! Every setting has one name, in the file and for [`BrokerConfig::set`]; a table of the file is a
//! prefix with a dot. Values are read the same way wherever they come from: blanks around them do
//! not matter, sizes may end in `k`, `m` or `g` with or without `b`. Whatever is wrong is an error
//! that names the place, the value and what is allowed, before anything starts.
//!
//! Attributes of destinations have a prefix that says whose they are:
//!
//! | prefix | whose |
//! | --- | --- |
//! | `destination.` | queues and topics that are made on first use |
//! | `queue.`, `topic.` | those of one kind; they win over `destination.` in the same file |
//! | `dmq.` | the dead message queue |
//! | `queues.NAME.`, `topics.NAME.` | one destination, which is there from the start |

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use toml::de::{DeTable, DeValue};

use crate::{
    proto::broker_in::Authentication, reactor::Idle, selector::Dialect, setting::nearest,
    wire::limits::PACKET_BYTES_MAX,
};

use super::{
    attributes::{ATTRIBUTES, Attribute, Attributes, LimitBehavior},
    database_url::DatabaseUrl,
    destination::Kind,
    limits::DESTINATION_NAME_BYTES_MAX,
    memory::default_memory_max,
    settings::{SETTINGS, shown},
};

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is no TOML, or its tables are not where they belong.
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
        nearest: String,
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

/// When what is stored is synced to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncMode {
    /// Before anybody is told that it is stored. Nothing that was acknowledged is ever lost.
    Always,
    /// This often. What was acknowledged since may be lost with the machine, not with the process.
    Interval(Duration),
    /// When the system likes. As above, with no bound but the system's.
    Os,
}

/// A destination that is there from the start, with limits of its own.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Administered {
    /// Queue or topic.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its attributes.
    pub attributes: Attributes,
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
    /// Address of the `admin` service; port 0 takes a free one.
    pub admin: SocketAddr,
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
    /// How long a destination that was made on first use stays without messages, producers and
    /// consumers.
    pub autocreate_reap_time: Duration,
    /// Attributes of queues that are made on first use.
    pub queue: Attributes,
    /// Attributes of topics that are made on first use.
    pub topic: Attributes,
    /// Destinations that are there from the start.
    pub administered: Vec<Administered>,
    /// Attributes of the dead message queue. Flow control is not for it.
    pub dmq: Attributes,
    /// Whether the dead message queue keeps messages without their bodies.
    pub dmq_truncate_body: bool,
    /// Whether each dead message gets a line in the log.
    pub log_dead_messages: bool,
    /// Whether selectors follow the JMS rules throughout, or the reference broker where that
    /// departs from them.
    pub selectors: Dialect,
    /// Most messages in all destinations together; `u64::MAX` is no limit.
    pub messages_max: u64,
    /// Most bytes of messages in all destinations together; `u64::MAX` is no limit.
    pub total_bytes_max: u64,
    /// Bytes of messages at which the broker's memory counts as full: towards it, connections are
    /// given less and less credit. `u64::MAX` is no limit; default half of the machine's memory.
    pub memory_max: u64,
    /// The database for persistent messages, which brokers may share, one after the other; none
    /// keeps them in the directory. Needs feature `postgres`.
    pub postgres: Option<DatabaseUrl>,
    /// How long a broker that says nothing still has a shared database to itself, 1 s to 1 h: so
    /// long nobody takes over from one that is gone without a word.
    pub lease: Duration,
    /// When what is stored is synced.
    pub sync: SyncMode,
    /// Most changes of one batch of the store.
    pub batch_changes_max: usize,
    /// Most bytes of messages in one batch of the store; a larger message has its own.
    pub batch_bytes_max: u64,
    /// How long a batch waits for more before it is committed.
    pub batch_delay: Duration,
    /// Bytes of stored messages that wait with their bodies in memory, in all destinations together;
    /// bodies beyond that stay in the store and are fetched ahead of their delivery. Never more than
    /// a quarter of `memory_max`; default 256 MiB.
    pub store_memory_max: u64,
    /// A commit that takes longer makes the store stressed.
    pub checkpoint_limit: Duration,
    /// Most messages produced in one transaction.
    pub transaction_messages_max: usize,
    /// Most messages acknowledged in one transaction.
    pub transaction_acks_max: usize,
    /// How many of its reconnect intervals a lost connection's temporary destinations stay, if it
    /// said that it may come back.
    pub reconnect_grace: u32,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7676)),
            jms: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin: SocketAddr::from(([127, 0, 0, 1], 0)),
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
            autocreate_reap_time: Duration::from_secs(120),
            queue: Attributes::auto_created(),
            topic: Attributes::auto_created(),
            administered: Vec::new(),
            dmq: Attributes::dead_messages(),
            dmq_truncate_body: false,
            log_dead_messages: false,
            selectors: Dialect::Jms,
            messages_max: u64::MAX,
            total_bytes_max: u64::MAX,
            memory_max: default_memory_max(),
            postgres: None,
            lease: Duration::from_secs(10),
            sync: SyncMode::Always,
            batch_changes_max: 4096,
            batch_bytes_max: 8 << 20,
            batch_delay: Duration::ZERO,
            store_memory_max: 256 << 20,
            checkpoint_limit: Duration::from_secs(60),
            transaction_messages_max: 1000,
            transaction_acks_max: 100,
            reconnect_grace: 5,
        }
    }
}

impl BrokerConfig {
    /// Names of all settings, with what each takes. The attributes of destinations stand there
    /// once, with the prefix `destination.`; see the other prefixes above.
    pub fn settings() -> impl Iterator<Item = (String, &'static str)> {
        let plain = SETTINGS.iter().map(|one| (one.name.to_owned(), one.allowed));
        let attribute = |one: &Attribute| (format!("destination.{}", one.name), one.allowed);
        plain.chain(ATTRIBUTES.iter().map(attribute))
    }

    /// Changes one setting by its name. The last one wins: `destination.messages_max` changes
    /// queues and topics, whatever was said before.
    ///
    /// # Errors
    /// [`ConfigError::Name`] or [`ConfigError::Value`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.set_at("setting", name, value)
    }

    fn set_at(&mut self, place: &str, name: &str, value: &str) -> Result<(), ConfigError> {
        let refused = |allowed| ConfigError::Value {
            place: place.into(),
            name: name.trim().into(),
            value: shown(name.trim(), value).into(),
            allowed,
        };
        if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name.trim()) {
            let applied = (setting.apply)(self, value.trim());
            return applied.ok_or_else(|| refused(setting.allowed));
        }
        let unknown = || unknown(place, name);
        // The name of a destination may hold dots, that of an attribute does not.
        let (prefix, key) = name.trim().rsplit_once('.').ok_or_else(unknown)?;
        let owner = Owner::read(prefix).ok_or_else(unknown)?;
        let attribute =
            Attribute::named(key).filter(|found| owner.has(found)).ok_or_else(unknown)?;
        let mut tried = Attributes::administered();
        attribute.apply(&mut tried, value).ok_or_else(|| refused(attribute.allowed))?;
        if owner == Owner::DeadMessages && tried.limit_behavior == LimitBehavior::FlowControl {
            return Err(refused("REMOVE_OLDEST, REJECT_NEWEST or REMOVE_LOW_PRIORITY"));
        }
        for attributes in self.attributes_of(owner, place)? {
            attribute.apply(attributes, value).ok_or_else(|| refused(attribute.allowed))?;
        }
        Ok(())
    }

    /// The attributes that belong to somebody; a destination of its own is made.
    fn attributes_of(
        &mut self,
        owner: Owner<'_>,
        place: &str,
    ) -> Result<Vec<&mut Attributes>, ConfigError> {
        Ok(match owner {
            Owner::Both => vec![&mut self.queue, &mut self.topic],
            Owner::Kind(Kind::Queue) => vec![&mut self.queue],
            Owner::Kind(Kind::Topic) => vec![&mut self.topic],
            Owner::DeadMessages => vec![&mut self.dmq],
            Owner::One(kind, name) => vec![&mut self.administer(kind, name, place)?.attributes],
        })
    }

    /// The destination of this name among those that are there from the start.
    fn administer(
        &mut self,
        kind: Kind,
        name: &str,
        place: &str,
    ) -> Result<&mut Administered, ConfigError> {
        if !is_administrable(name) {
            return Err(ConfigError::Value {
                place: place.into(),
                name: format!("name of a {kind}"),
                value: name.into(),
                allowed: "up to 4096 bytes that are not blank, without '*' and '>', and that do \
                          not begin with 'mq.', 'temporary_destination:' or '__JMQ'",
            });
        }
        let mut known = self.administered.iter();
        let known = known.position(|one| one.kind == kind && one.name == name);
        let at = known.unwrap_or_else(|| {
            let attributes = Attributes::administered();
            self.administered.push(Administered { kind, name: name.into(), attributes });
            self.administered.len() - 1
        });
        Ok(&mut self.administered[at])
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
            // What stands there, as in "duplicate key: loops"; no address with a password.
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
        // The general before the special, in whatever order they stand.
        let (general, special): (Vec<_>, Vec<_>) =
            table.iter().partition(|(key, _)| prefix.is_empty() && key.get_ref() == "destination");
        for (key, value) in general.into_iter().chain(special) {
            let name = format!("{prefix}{}", key.get_ref());
            let here = place(key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) => {
                    if let Some(Owner::One(kind, name)) = Owner::read(&name) {
                        if inner.iter().any(|(_, value)| value.get_ref().is_table()) {
                            return Err(ConfigError::Syntax { place: here, reason: quoted(name) });
                        }
                        // It is there even if nothing is said about it.
                        self.administer(kind, name, &here)?;
                    }
                    self.read(inner, &format!("{name}."), place)?;
                }
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

/// Whose attributes a prefix means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner<'a> {
    Both,
    Kind(Kind),
    DeadMessages,
    One(Kind, &'a str),
}

impl<'a> Owner<'a> {
    fn read(prefix: &'a str) -> Option<Self> {
        Some(match prefix {
            "destination" => Self::Both,
            "queue" => Self::Kind(Kind::Queue),
            "topic" => Self::Kind(Kind::Topic),
            "dmq" => Self::DeadMessages,
            other => match other.split_once('.')? {
                ("queues", name) => Self::One(Kind::Queue, name),
                ("topics", name) => Self::One(Kind::Topic, name),
                _ => return None,
            },
        })
    }

    /// Whether this attribute means something there.
    fn has(self, attribute: &Attribute) -> bool {
        match self {
            Self::Both => true,
            Self::Kind(kind) | Self::One(kind, _) => attribute.is_for(kind),
            // Dead messages do not die again.
            Self::DeadMessages => attribute.is_for(Kind::Queue) && attribute.name != "use_dmq",
        }
    }
}

/// Whether an administrator may make a destination of this name.
pub(super) fn is_administrable(name: &str) -> bool {
    let reserved = ["mq.", "temporary_destination:", "__JMQ"];
    let good = !name.trim().is_empty() && name.len() <= DESTINATION_NAME_BYTES_MAX;
    good && !name.contains(['*', '>']) && !reserved.iter().any(|begin| name.starts_with(begin))
}

fn quoted(name: &str) -> String {
    format!(
        "{name} holds another table; the name of a destination stands in quotes if it has dots, \
         as in [queues.\"a.b\"]"
    )
}

/// There is no setting of this name; the most similar one, with its prefix.
fn unknown(place: &str, name: &str) -> ConfigError {
    let (place, name) = (place.to_owned(), name.to_owned());
    let own = name.trim().rsplit_once('.').and_then(|(prefix, key)| {
        let owner = Owner::read(prefix)?;
        let known = ATTRIBUTES.iter().filter(|one| owner.has(one)).map(|one| one.name);
        Some(format!("{prefix}.{}", nearest(key, known)))
    });
    let nearest = own.unwrap_or_else(|| {
        let of = |prefix| ATTRIBUTES.iter().map(move |one| format!("{prefix}.{}", one.name));
        let attributes = ["destination", "queue", "topic", "dmq"].into_iter().flat_map(of);
        let known: Vec<String> =
            SETTINGS.iter().map(|one| one.name.to_owned()).chain(attributes).collect();
        nearest(&name, known.iter().map(String::as_str)).to_owned()
    });
    ConfigError::Name { place, name, nearest }
}

#[cfg(test)]
mod tests {
    use super::{BrokerConfig, ConfigError};
    use crate::{
        broker::{attributes::LimitBehavior, destination::Kind},
        flow::Credit,
    };

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
            for attributes in [&config.queue, &config.topic] {
                assert_eq!(attributes.total_bytes_max, 10 << 20);
                assert_eq!(attributes.consumer_flow_limit, Credit::Unlimited);
            }
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
    #[test]
    fn a_destination_of_its_own_is_there_even_if_nothing_is_said_about_it() {
        let config = read(
            "[queues.\"cap.flow\"]\nmessages_max = 10\nlimit_behavior = \"flow_control\"\n\
             [topics.news]\n[queues.\"cap.reject\"]\nmessages_max = 5\n",
        )
        .unwrap();
        let made: Vec<_> = config
            .administered
            .iter()
            .map(|one| (one.kind, one.name.as_str(), one.attributes.messages_max))
            .collect();
        assert_eq!(made.len(), 3);
        assert!(made.contains(&(Kind::Queue, "cap.flow", 10)), "{made:?}");
        assert!(made.contains(&(Kind::Topic, "news", u64::MAX)), "{made:?}");
        let flow = config.administered.iter().find(|one| one.name == "cap.flow").unwrap();
        assert_eq!(flow.attributes.limit_behavior, LimitBehavior::FlowControl);
        assert_eq!(config.queue.messages_max, 100_000, "the others keep theirs");

        let mut config = BrokerConfig::default();
        config.set("queues.cap.flow.messages_max", "7").unwrap();
        config.set("queues.cap.flow.use_dmq", "false").unwrap();
        assert_eq!(config.administered.len(), 1);
        assert_eq!(config.administered[0].name, "cap.flow");
    }

    #[test]
    fn the_special_wins_over_the_general_wherever_it_stands() {
        let config = read("[queue]\nmessages_max = 1\n[destination]\nmessages_max = 2\n").unwrap();
        assert_eq!((config.queue.messages_max, config.topic.messages_max), (1, 2));
    }

    #[test]
    fn a_destination_that_cannot_be_is_named_with_its_place() {
        for (text, wanted) in [
            ("[queues.\"a*\"]", "name of a queue = \"a*\" is not allowed"),
            ("[topics.\"mq.sys\"]", "name of a topic"),
            ("[queues.\" \"]", "not blank"),
            ("[queues.a.b]\nmessages_max = 1", "[queues.\"a.b\"]"),
            ("[queues.a]\nmesages_max = 1", "did you mean \"queues.a.messages_max\""),
            ("[queue]\nshared_consumers_max = 1", "there is no setting"),
            ("[topics.a]\nactive_consumers_max = 1", "there is no setting"),
            ("[queues.a]\nlimit_behavior = \"REJECT\"", "it takes FLOW_CONTROL, REMOVE_OLDEST"),
            ("[dmq]\nlimit_behavior = \"FLOW_CONTROL\"", "it takes REMOVE_OLDEST, REJECT_NEWEST"),
            ("[dmq]\nuse_dmq = true", "there is no setting"),
            ("queues = 1", "there is no setting"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
            assert!(error.starts_with("b.toml, line "), "{error}");
        }
    }

    #[test]
    fn a_refused_value_changes_nothing() {
        let mut config = BrokerConfig::default();
        config.set("queues.a.messages_max", "0").unwrap_err();
        assert!(config.administered.is_empty());
        config.set("dmq.limit_behavior", "FLOW_CONTROL").unwrap_err();
        assert_eq!(config.dmq.limit_behavior, LimitBehavior::RemoveOldest);
        config.set("dmq.limit_behavior", " reject_newest ").unwrap();
        assert_eq!(config.dmq.limit_behavior, LimitBehavior::RejectNewest);
    }

    #[test]
    fn every_setting_takes_what_it_says() {
        for (name, good, bad) in [
            ("log_dead_messages", "true", "1"),
            ("selectors", " Reference ", "JMS 2.0"),
            ("dmq.truncate_body", "TRUE", "yes"),
            ("messages_max", "-1", "0"),
            ("total_bytes_max", "2g", "-2"),
            ("memory_max", "1m", "1023k"),
            ("transaction_messages_max", "1000000", "0"),
            ("transaction_acks_max", "1", "1000001"),
            ("reconnect_grace", "1", "0"),
            ("autocreate_reap_time", "1 s", "0"),
            ("admin", "127.0.0.1:7678", "7678"),
        ] {
            let mut config = BrokerConfig::default();
            config.set(name, good).unwrap();
            let error = config.set(name, bad).unwrap_err();
            assert!(matches!(&error, ConfigError::Value { name: found, .. } if found == name));
        }
    }
}
