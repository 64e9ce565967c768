//! The settings of a connection, by the names of the factory's attributes.

use std::time::Duration;

use super::{
    address::{self, Address},
    error::ConfigError,
};
use crate::{
    flow::FlowSettings,
    setting::{SettingError, nearest, number, switch},
};

/// In which order the addresses of a list are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AddressListBehavior {
    /// In the order of the list.
    #[default]
    Priority,
    /// From a random place in the list on, around it.
    Random,
}

/// Every attribute that can be set.
const NAMES: [&str; 29] = [
    "imqAbortOnPingAckTimeout",
    "imqAckOnAcknowledge",
    "imqAckOnProduce",
    "imqAckTimeout",
    "imqAddressList",
    "imqAddressListBehavior",
    "imqAddressListIterations",
    "imqAsyncSendCompletionWaitTimeout",
    "imqConfiguredClientID",
    "imqConnectionFlowCount",
    "imqConnectionFlowLimit",
    "imqConnectionFlowLimitEnabled",
    "imqConsumerFlowLimit",
    "imqConsumerFlowLimitPrefetch",
    "imqConsumerFlowThreshold",
    "imqDefaultPassword",
    "imqDefaultUsername",
    "imqDisableSetClientID",
    "imqEnableSharedClientID",
    "imqOnMessageExceptionRedeliveryAttempts",
    "imqOnMessageExceptionRedeliveryIntervals",
    "imqPingAckTimeout",
    "imqPingInterval",
    "imqPortMapperSoTimeout",
    "imqQueueBrowserMaxMessagesPerRetrieve",
    "imqQueueBrowserRetrieveTimeout",
    "imqReconnectAttempts",
    "imqReconnectInterval",
    "imqSocketConnectTimeout",
];

/// Longest user name, password or client id, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 1024;

/// Most messages that a browser asks for at one time: their ids fill three megabytes.
const BROWSE_BATCH_MAX: u32 = 100_000;

/// Settings of one connection.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) addresses: Vec<Address>,
    pub(super) behavior: AddressListBehavior,
    /// Passes over the list; `None` for no end.
    pub(super) iterations: Option<u32>,
    /// Extra attempts per address; `None` for no end.
    pub(super) attempts: Option<u32>,
    pub(super) interval: Duration,
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
    limits_connection: bool,
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
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the password; the rest is found by its attribute names.
        f.debug_struct("Settings")
            .field("addresses", &self.address_list())
            .field("user", &self.user)
            .field("client_id", &self.client_id)
            .field("flow", &self.flow)
            .finish_non_exhaustive()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            behavior: AddressListBehavior::Priority,
            iterations: Some(5),
            attempts: Some(0),
            interval: Duration::from_secs(3),
            user: "guest".to_owned(),
            password: "guest".to_owned(),
            client_id: None,
            disables_set_client_id: false,
            shares_client_id: false,
            ack_timeout: None,
            completion_timeout: Some(Duration::from_secs(180)),
            ack_on_produce: None,
            ack_on_acknowledge: None,
            flow: FlowSettings::default(),
            limits_connection: false,
            ping_interval: Some(Duration::from_secs(30)),
            ping_ack_timeout: Duration::ZERO,
            abort_on_ping_timeout: false,
            connect_timeout: None,
            port_mapper_timeout: Some(Duration::from_secs(60)),
            browse_batch: 1000,
            browse_timeout: Some(Duration::from_secs(60)),
            redelivery_attempts: 1,
            redelivery_interval: Duration::from_millis(500),
        }
    }
}

impl Settings {
    /// Sets one attribute from text; blanks around a value do not matter.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        const MOST: i32 = i32::MAX;
        match name {
            "imqAddressList" => {
                self.addresses = address::parse_list(value).map_err(|error| {
                    SettingError::new("imqAddressList", value, error.to_string())
                })?;
            }
            "imqAddressListBehavior" => self.behavior = behavior(value)?,
            "imqAddressListIterations" => {
                let count = number::<i32>("imqAddressListIterations", value, -1, MOST)?;
                self.iterations = u32::try_from(count).ok().filter(|&count| count > 0);
            }
            "imqReconnectAttempts" => {
                let count = number::<i32>("imqReconnectAttempts", value, -1, MOST)?;
                self.attempts = u32::try_from(count).ok();
            }
            "imqReconnectInterval" => {
                self.interval = millis("imqReconnectInterval", value)?;
            }
            "imqDefaultUsername" => {
                check_len("imqDefaultUsername", value)?;
                value.clone_into(&mut self.user);
            }
            "imqDefaultPassword" => {
                if value.len() > TEXT_BYTES_MAX {
                    // Not shown: it is a password.
                    let allowed = format!("up to {TEXT_BYTES_MAX} bytes");
                    return Err(SettingError::new("imqDefaultPassword", "***", allowed).into());
                }
                value.clone_into(&mut self.password);
            }
            "imqConfiguredClientID" => {
                check_len("imqConfiguredClientID", value)?;
                let id = value.trim();
                self.client_id = (!id.is_empty()).then(|| id.to_owned());
            }
            "imqDisableSetClientID" => {
                self.disables_set_client_id = switch("imqDisableSetClientID", value)?;
            }
            "imqEnableSharedClientID" => {
                self.shares_client_id = switch("imqEnableSharedClientID", value)?;
            }
            "imqAckTimeout" => self.ack_timeout = positive(millis("imqAckTimeout", value)?),
            "imqAsyncSendCompletionWaitTimeout" => {
                let time = millis("imqAsyncSendCompletionWaitTimeout", value)?;
                self.completion_timeout = positive(time);
            }
            "imqAckOnProduce" => self.ack_on_produce = choice("imqAckOnProduce", value)?,
            "imqAckOnAcknowledge" => {
                self.ack_on_acknowledge = choice("imqAckOnAcknowledge", value)?;
            }
            "imqPingInterval" => {
                let seconds = number::<i32>("imqPingInterval", value, -1, MOST)?;
                let seconds = u64::try_from(seconds).unwrap_or(0);
                self.ping_interval = positive(Duration::from_secs(seconds));
            }
            "imqPingAckTimeout" => self.ping_ack_timeout = millis("imqPingAckTimeout", value)?,
            "imqAbortOnPingAckTimeout" => {
                self.abort_on_ping_timeout = switch("imqAbortOnPingAckTimeout", value)?;
            }
            "imqSocketConnectTimeout" => {
                self.connect_timeout = positive(millis("imqSocketConnectTimeout", value)?);
            }
            "imqPortMapperSoTimeout" => {
                self.port_mapper_timeout = positive(millis("imqPortMapperSoTimeout", value)?);
            }
            "imqQueueBrowserMaxMessagesPerRetrieve" => {
                let name = "imqQueueBrowserMaxMessagesPerRetrieve";
                self.browse_batch = number(name, value, 1, BROWSE_BATCH_MAX)?;
            }
            "imqQueueBrowserRetrieveTimeout" => {
                self.browse_timeout = positive(millis("imqQueueBrowserRetrieveTimeout", value)?);
            }
            "imqOnMessageExceptionRedeliveryAttempts" => {
                let name = "imqOnMessageExceptionRedeliveryAttempts";
                self.redelivery_attempts = number(name, value, 0, MOST.unsigned_abs())?;
            }
            "imqOnMessageExceptionRedeliveryIntervals" => {
                let name = "imqOnMessageExceptionRedeliveryIntervals";
                self.redelivery_interval = millis(name, value)?;
            }
            "imqConnectionFlowLimitEnabled" => {
                self.flow.set(name, value)?;
                self.limits_connection = switch("imqConnectionFlowLimitEnabled", value)?;
            }
            other => {
                if !self.flow.set(other, value)? {
                    return Err(ConfigError::Unknown {
                        name: other.chars().take(64).collect(),
                        nearest: nearest(other, NAMES),
                    });
                }
            }
        }
        Ok(())
    }

    /// The addresses to try; the default one if none were given.
    pub(super) fn address_list(&self) -> Vec<Address> {
        if self.addresses.is_empty() {
            return address::parse_list("").unwrap_or_default();
        }
        self.addresses.clone()
    }

    /// Whether messages that wait are counted over the whole connection.
    pub(super) const fn limits_connection(&self) -> bool {
        self.limits_connection
    }
}

fn behavior(value: &str) -> Result<AddressListBehavior, SettingError> {
    match value.trim() {
        word if word.eq_ignore_ascii_case("PRIORITY") => Ok(AddressListBehavior::Priority),
        word if word.eq_ignore_ascii_case("RANDOM") => Ok(AddressListBehavior::Random),
        _ => Err(SettingError::new("imqAddressListBehavior", value, "PRIORITY or RANDOM")),
    }
}

fn millis(setting: &'static str, value: &str) -> Result<Duration, SettingError> {
    let most = i32::MAX.unsigned_abs();
    Ok(Duration::from_millis(number::<u32>(setting, value, 0, most)?.into()))
}

/// A switch that may be left unset.
fn choice(setting: &'static str, value: &str) -> Result<Option<bool>, SettingError> {
    if value.trim().is_empty() {
        return Ok(None);
    }
    match switch(setting, value) {
        Ok(on) => Ok(Some(on)),
        Err(_) => Err(SettingError::new(setting, value, "true, false or nothing")),
    }
}

/// 0 stands for none.
fn positive(time: Duration) -> Option<Duration> {
    (time > Duration::ZERO).then_some(time)
}

fn check_len(setting: &'static str, value: &str) -> Result<(), SettingError> {
    if value.len() > TEXT_BYTES_MAX {
        let shown: String = value.chars().take(32).collect();
        return Err(SettingError::new(setting, shown, format!("up to {TEXT_BYTES_MAX} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{NAMES, Settings, nearest};

    fn value_for(name: &str) -> &'static str {
        match name {
            "imqAddressList" => "mq://a,mqtcp://b:1/jms",
            "imqAddressListBehavior" => " random ",
            name if name.contains("Enable") || name.contains("Abort") => "true",
            name if name.contains("Disable") => "false",
            name if name.contains("AckOn") || name.contains("Prefetch") => "false",
            _ => "7",
        }
    }

    #[test]
    fn every_listed_name_can_be_set_and_no_other() {
        for name in &NAMES {
            let mut settings = Settings::default();
            settings.set(name, value_for(name)).unwrap();
            let error = Settings::default().set(&format!("{name}x"), "1").unwrap_err().to_string();
            assert!(error.contains(&format!("did you mean {name}?")), "{error}");
        }
    }

    #[test]
    fn a_name_with_a_slip_is_led_to_the_right_one() {
        for (wrong, right) in [
            ("imqAdressList", "imqAddressList"),
            ("IMQACKTIMEOUT", "imqAckTimeout"),
            ("consumerFlowLimit", "imqConsumerFlowLimit"),
            ("imqPingIntervall", "imqPingInterval"),
        ] {
            assert_eq!(nearest(wrong, NAMES), right);
        }
    }

    #[test]
    fn a_bad_value_names_setting_value_and_what_is_allowed() {
        for (name, value, allowed) in [
            ("imqAddressList", "ftp://h", "mq://"),
            ("imqAddressListBehavior", "FIRST", "PRIORITY or RANDOM"),
            ("imqAddressListIterations", "-2", "-1 to 2147483647"),
            ("imqReconnectInterval", "-1", "0 to 2147483647"),
            ("imqAckTimeout", "soon", "0 to 2147483647"),
            ("imqAckOnProduce", "maybe", "true, false"),
            ("imqConsumerFlowThreshold", "101", "0 to 100"),
            ("imqAbortOnPingAckTimeout", "1", "true or false"),
        ] {
            let error = Settings::default().set(name, value).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
            assert!(error.contains(allowed), "{error}");
        }
        let secret = "x".repeat(2000);
        let error = Settings::default().set("imqDefaultPassword", &secret).unwrap_err();
        assert!(!error.to_string().contains("xxx"), "{error}");
    }

    #[test]
    fn zero_and_negative_mean_no_end_where_the_attribute_says_so() {
        let mut settings = Settings::default();
        assert_eq!((settings.iterations, settings.attempts), (Some(5), Some(0)));
        settings.set("imqAddressListIterations", "0").unwrap();
        settings.set("imqReconnectAttempts", "-1").unwrap();
        settings.set("imqPingInterval", "-1").unwrap();
        settings.set("imqPortMapperSoTimeout", "0").unwrap();
        assert_eq!((settings.iterations, settings.attempts), (None, None));
        assert_eq!((settings.ping_interval, settings.port_mapper_timeout), (None, None));
        settings.set("imqAckTimeout", "1500").unwrap();
        assert_eq!(settings.ack_timeout, Some(Duration::from_millis(1500)));
    }
}
