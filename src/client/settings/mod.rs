//! The settings of a connection, by the names of the factory's attributes.

mod attribute;
mod connection_type;
mod destination;
mod load;
mod overrides;
mod table;

use std::{fmt, time::Duration};

pub(super) use self::{
    attribute::TEXT_BYTES_MAX,
    load::{from_environment, from_properties},
    overrides::{Jmsx, Overrides},
};
pub use self::{
    attribute::{Attribute, AttributeKind},
    connection_type::ConnectionType,
    destination::DestinationObject,
};
use self::{connection_type::OldAddress, table::ATTRIBUTES};
use super::{
    address::{self, Address},
    error::ConfigError,
    waiting::WaitStrategy,
};
use crate::{flow::FlowSettings, in_process::InProcess, setting::nearest};

/// Whose defaults a factory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Profile {
    /// Version 3.5 of the Message Queue client runtime.
    #[default]
    V35,
    /// Its current version: a consumer's flow limit is 1000 messages instead of 100, and a list of
    /// addresses is walked once instead of five times.
    Current,
}

/// In which order the addresses of a list are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AddressListBehavior {
    /// In the order of the list.
    #[default]
    Priority,
    /// In a random order, which another connection has otherwise.
    Random,
}

/// The shortest rest between attempts where brokers take over from one another.
const TAKEOVER_REST: Duration = Duration::from_secs(3);

/// Settings of one connection.
#[derive(Clone)]
pub(super) struct Settings {
    /// The broker is in this process; addresses do not matter then.
    pub(super) in_process: Option<InProcess>,
    profile: Profile,
    addresses: Vec<Address>,
    /// Counts while there are no `addresses`.
    old: OldAddress,
    pub(super) behavior: AddressListBehavior,
    /// Passes over the list; `None` for no end.
    pub(super) iterations: Option<u32>,
    /// Extra attempts per address; `None` for no end.
    pub(super) attempts: Option<u32>,
    pub(super) interval: Duration,
    /// A lost connection is restored.
    pub(super) reconnect_enabled: bool,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) client_id: Option<String>,
    pub(super) disables_set_client_id: bool,
    /// Several connections may use the client id, and its durable subscriptions.
    pub(super) shares_client_id: bool,
    /// `None` waits for ever.
    pub(super) ack_timeout: Option<Duration>,
    /// How long an asynchronous send waits for its reply; `None` waits for ever.
    pub(super) completion_timeout: Option<Duration>,
    pub(super) ack_on_produce: Option<bool>,
    pub(super) ack_on_acknowledge: Option<bool>,
    pub(super) flow: FlowSettings,
    /// `None` sends no pings.
    pub(super) ping_interval: Option<Duration>,
    pub(super) ping_ack_timeout: Duration,
    pub(super) abort_on_ping_timeout: bool,
    /// `None` waits as long as the system does.
    pub(super) connect_timeout: Option<Duration>,
    /// `None` waits for ever.
    pub(super) port_mapper_timeout: Option<Duration>,
    /// Messages that a browser asks for at one time.
    pub(super) browse_batch: u32,
    /// The longest wait for one of them; `None` waits for ever.
    pub(super) browse_timeout: Option<Duration>,
    pub(super) redelivery_attempts: u32,
    pub(super) redelivery_interval: Duration,
    pub(super) wait_strategy: WaitStrategy,
    /// A server session gets as many messages as it takes.
    pub(super) load_max_to_server_session: bool,
    pub(super) jmsx: Jmsx,
    pub(super) overrides: Overrides,
    tls: Tls,
}

/// What matters to TLS alone.
#[derive(Clone)]
struct Tls {
    key_store: String,
    key_store_password: String,
    trusts_host: bool,
    provider: String,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = ATTRIBUTES.iter().filter(|attribute| attribute.is_changed(self));
        f.debug_map().entries(changed.map(|one| (one.name(), one.show(self)))).finish()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(Profile::V35)
    }
}

impl Settings {
    /// The defaults of a profile.
    pub(super) fn new(profile: Profile) -> Self {
        let (flow, iterations) = match profile {
            Profile::V35 => (FlowSettings::default(), 5),
            Profile::Current => (FlowSettings::later(), 1),
        };
        Self {
            profile,
            in_process: None,
            addresses: Vec::new(),
            old: OldAddress::default(),
            behavior: AddressListBehavior::Priority,
            iterations: Some(iterations),
            attempts: Some(0),
            interval: Duration::from_secs(3),
            reconnect_enabled: false,
            user: "guest".to_owned(),
            password: "guest".to_owned(),
            client_id: None,
            disables_set_client_id: false,
            shares_client_id: false,
            ack_timeout: None,
            completion_timeout: Some(Duration::from_secs(180)),
            ack_on_produce: None,
            ack_on_acknowledge: None,
            flow,
            ping_interval: Some(Duration::from_secs(30)),
            ping_ack_timeout: Duration::ZERO,
            abort_on_ping_timeout: false,
            connect_timeout: None,
            port_mapper_timeout: Some(Duration::from_secs(60)),
            browse_batch: 1000,
            browse_timeout: Some(Duration::from_secs(60)),
            redelivery_attempts: 1,
            redelivery_interval: Duration::from_millis(500),
            wait_strategy: WaitStrategy::Park,
            load_max_to_server_session: true,
            jmsx: Jmsx::default(),
            overrides: Overrides::default(),
            tls: Tls {
                key_store: String::new(),
                key_store_password: String::new(),
                trusts_host: false,
                provider: "com.sun.net.ssl.internal.ssl.Provider".to_owned(),
            },
        }
    }

    /// Every attribute, grouped.
    pub(super) fn attributes() -> &'static [Attribute] {
        &ATTRIBUTES
    }

    /// Sets one attribute from text; blanks around a value do not matter.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        Ok(find(name)?.set(self, value)?)
    }

    /// The value of an attribute, as text; stars for a password.
    pub(super) fn get(&self, name: &str) -> Result<String, ConfigError> {
        Ok(find(name)?.show(self))
    }

    /// Whether there is such an attribute, and its value is another than that of the profile.
    pub(super) fn is_changed(&self, name: &str) -> bool {
        find(name).is_ok_and(|attribute| attribute.is_changed(self))
    }

    /// These settings where brokers take over from one another: with the addresses that one of them
    /// named, no end to the attempts, and time for a takeover between them.
    pub(super) fn for_takeover(&self, brokers: &str) -> Self {
        let mut settings = self.clone();
        settings.addresses = self.address_list();
        match address::parse_list(brokers) {
            Ok(named) => {
                for one in named {
                    if !settings.addresses.contains(&one) {
                        settings.addresses.push(one);
                    }
                }
            }
            Err(error) => tracing::debug!(%error, brokers, "the broker named no addresses"),
        }
        settings.iterations = None;
        settings.interval = settings.interval.max(TAKEOVER_REST);
        settings
    }

    /// The addresses to try, one at least.
    pub(super) fn address_list(&self) -> Vec<Address> {
        if self.addresses.is_empty() {
            return vec![self.old.address()];
        }
        self.addresses.clone()
    }

    /// Whether messages that wait are counted over the whole connection.
    pub(super) const fn limits_connection(&self) -> bool {
        self.flow.limits_connection()
    }

    /// Attributes that were set and have no effect, each with the reason.
    pub(super) fn without_effect(&self) -> Vec<(&'static Attribute, &'static str)> {
        let has_list = !self.addresses.is_empty();
        let needs_tls = |address: &Address| address.missing().is_some_and(|it| it.contains("TLS"));
        let has_tls = self.addresses.iter().any(needs_tls);
        let reason = |attribute: &Attribute| {
            if attribute.is_old() {
                has_list.then_some("imqAddressList says where to connect")
            } else if attribute.needs().is_some() {
                Some(if has_tls {
                    "this build does not include TLS, and will not reach the addresses that need it"
                } else {
                    "no address needs TLS"
                })
            } else {
                None
            }
        };
        let changed = ATTRIBUTES.iter().filter(|attribute| attribute.is_changed(self));
        changed.filter_map(|attribute| Some((attribute, reason(attribute)?))).collect()
    }
}

fn find(name: &str) -> Result<&'static Attribute, ConfigError> {
    let found = ATTRIBUTES.iter().find(|attribute| attribute.name() == name);
    found.ok_or_else(|| ConfigError::Unknown {
        name: name.chars().take(64).collect(),
        nearest: nearest(name, ATTRIBUTES.iter().map(Attribute::name)),
    })
}

#[cfg(test)]
mod tests;
