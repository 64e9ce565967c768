//! Settings of flow control, under the names of the Message Queue client runtime.

use crate::flow::{BufferSettings, Credit};
use crate::setting::{SettingError, number, switch};

/// Flow control of one client connection and its consumers.
///
/// Shape: six settings, each checked when it is set. The defaults are those of version 3.5 of the
/// Message Queue client runtime; see [`FlowSettings::later`] for what changed since.
///
/// | Name | Default | Range |
/// | --- | --- | --- |
/// | `imqConsumerFlowLimit` | 100 messages | −1 … `i32::MAX`; 0 and −1 are unlimited |
/// | `imqConsumerFlowThreshold` | 50 % | 0 … 100 |
/// | `imqConsumerFlowLimitPrefetch` | true | true, false |
/// | `imqConnectionFlowCount` | 100 messages | 0 … `i32::MAX`; 0 is off |
/// | `imqConnectionFlowLimitEnabled` | false | true, false |
/// | `imqConnectionFlowLimit` | 1000 messages | −1 … `i32::MAX`; 0 and −1 are unlimited |
///
/// # Source
/// The connection factory attributes of the Message Queue client runtime, reliability and flow
/// control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowSettings {
    consumer_limit: Credit,
    consumer_threshold_percent: u8,
    consumer_prefetch: bool,
    connection_count: u32,
    connection_limit_enabled: bool,
    connection_limit: Credit,
}

impl Default for FlowSettings {
    fn default() -> Self {
        Self {
            consumer_limit: Credit::Limited(100),
            consumer_threshold_percent: 50,
            consumer_prefetch: true,
            connection_count: 100,
            connection_limit_enabled: false,
            connection_limit: Credit::Limited(1000),
        }
    }
}

impl FlowSettings {
    /// The defaults of later versions: a consumer's limit is 1000 messages.
    #[must_use]
    pub fn later() -> Self {
        Self { consumer_limit: Credit::Limited(1000), ..Self::default() }
    }

    /// Sets one setting from text. `Ok(false)` means that the name is none of these six.
    ///
    /// # Errors
    /// [`SettingError`] if the value is no number, or outside the allowed range; nothing is
    /// changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, SettingError> {
        match name {
            "imqConsumerFlowLimit" => {
                self.consumer_limit = limit("imqConsumerFlowLimit", value)?;
            }
            "imqConsumerFlowThreshold" => {
                self.consumer_threshold_percent =
                    number("imqConsumerFlowThreshold", value, 0, 100)?;
            }
            "imqConsumerFlowLimitPrefetch" => {
                self.consumer_prefetch = switch("imqConsumerFlowLimitPrefetch", value)?;
            }
            "imqConnectionFlowCount" => {
                let count: i32 = number("imqConnectionFlowCount", value, 0, i32::MAX)?;
                self.connection_count = count.unsigned_abs();
            }
            "imqConnectionFlowLimitEnabled" => {
                self.connection_limit_enabled = switch("imqConnectionFlowLimitEnabled", value)?;
            }
            "imqConnectionFlowLimit" => {
                self.connection_limit = limit("imqConnectionFlowLimit", value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The value of one setting, as text that [`set`](Self::set) takes. `None` means that the name
    /// is none of these six.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "imqConsumerFlowLimit" => self.consumer_limit.to_wire().to_string(),
            "imqConsumerFlowThreshold" => self.consumer_threshold_percent.to_string(),
            "imqConsumerFlowLimitPrefetch" => self.consumer_prefetch.to_string(),
            "imqConnectionFlowCount" => self.connection_count.to_string(),
            "imqConnectionFlowLimitEnabled" => self.connection_limit_enabled.to_string(),
            "imqConnectionFlowLimit" => self.connection_limit.to_wire().to_string(),
            _ => return None,
        })
    }

    /// Whether messages that wait are counted over the whole connection.
    #[must_use]
    pub const fn limits_connection(&self) -> bool {
        self.connection_limit_enabled
    }

    /// What a consumer wishes for when it is added: its limit, or 1 without prefetch.
    #[must_use]
    pub const fn consumer_wish(&self) -> Credit {
        if self.consumer_prefetch { self.consumer_limit } else { Credit::Limited(1) }
    }

    /// The buffer of a consumer for which `agreed` messages were agreed.
    #[must_use]
    pub const fn consumer_buffer(&self, agreed: Credit) -> BufferSettings {
        if self.consumer_prefetch {
            BufferSettings::checked(agreed, self.consumer_threshold_percent)
        } else {
            BufferSettings::no_prefetch()
        }
    }

    /// The buffer of the whole connection: without a limit unless the switch is on.
    #[must_use]
    pub const fn connection_buffer(&self) -> BufferSettings {
        BufferSettings::connection(if self.connection_limit_enabled {
            self.connection_limit
        } else {
            Credit::Unlimited
        })
    }

    /// Messages of a metered batch, to ask for at login; 0 is off.
    #[must_use]
    pub const fn connection_count(&self) -> u32 {
        self.connection_count
    }
}

fn limit(setting: &'static str, value: &str) -> Result<Credit, SettingError> {
    number(setting, value, -1, i32::MAX).map(Credit::from_wire)
}

#[cfg(test)]
mod tests {
    use super::FlowSettings;
    use crate::flow::{Buffer, BufferSettings, Credit};

    #[test]
    fn defaults_are_those_of_version_3_5() {
        let settings = FlowSettings::default();
        assert_eq!(settings.consumer_wish(), Credit::Limited(100));
        assert_eq!(settings.connection_count(), 100);
        assert_eq!(
            settings.consumer_buffer(Credit::Limited(100)),
            BufferSettings::consumer(Credit::Limited(100), 50).unwrap()
        );
        assert_eq!(settings.connection_buffer(), BufferSettings::connection(Credit::Unlimited));
        assert_eq!(FlowSettings::later().consumer_wish(), Credit::Limited(1000));
    }

    #[test]
    fn each_setting_reads_back_as_it_was_set() {
        let mut settings = FlowSettings::default();
        for (name, value) in [
            ("imqConsumerFlowLimit", "-1"),
            ("imqConsumerFlowThreshold", "7"),
            ("imqConsumerFlowLimitPrefetch", "false"),
            ("imqConnectionFlowCount", "0"),
            ("imqConnectionFlowLimitEnabled", "true"),
            ("imqConnectionFlowLimit", "12"),
        ] {
            assert_eq!(settings.set(name, value), Ok(true));
            assert_eq!(settings.get(name).as_deref(), Some(value));
        }
        assert_eq!(settings.get("imqAckTimeout"), None);
    }

    #[test]
    fn the_connection_limit_counts_only_when_its_switch_is_on() {
        let mut settings = FlowSettings::default();
        assert_eq!(settings.set("imqConnectionFlowLimit", "7"), Ok(true));
        assert_eq!(Buffer::new(settings.connection_buffer()).limit(), Credit::Unlimited);
        assert_eq!(settings.set("imqConnectionFlowLimitEnabled", "True"), Ok(true));
        assert_eq!(Buffer::new(settings.connection_buffer()).limit(), Credit::Limited(7));
    }

    #[test]
    fn zero_and_minus_one_are_unlimited() {
        for value in ["0", "-1"] {
            let mut settings = FlowSettings::default();
            assert_eq!(settings.set("imqConsumerFlowLimit", value), Ok(true));
            assert_eq!(settings.consumer_wish(), Credit::Unlimited);
            assert_eq!(settings.consumer_wish().to_wire(), -1);
        }
    }

    #[test]
    fn without_prefetch_one_message_is_wished_for() {
        let mut settings = FlowSettings::later();
        assert_eq!(settings.set("imqConsumerFlowLimitPrefetch", "false"), Ok(true));
        assert_eq!(settings.consumer_wish(), Credit::Limited(1));
        assert_eq!(settings.consumer_buffer(Credit::Limited(1)), BufferSettings::no_prefetch());
    }

    #[test]
    fn a_refusal_names_setting_value_and_range_and_changes_nothing() {
        let mut settings = FlowSettings::default();
        for (name, value, range) in [
            ("imqConsumerFlowLimit", "-2", "-1 to 2147483647"),
            ("imqConsumerFlowLimit", "2147483648", "-1 to 2147483647"),
            ("imqConsumerFlowThreshold", "101", "0 to 100"),
            ("imqConsumerFlowThreshold", "-1", "0 to 100"),
            ("imqConnectionFlowCount", "-1", "0 to 2147483647"),
            ("imqConnectionFlowLimit", "99999999999", "-1 to 2147483647"),
            ("imqConsumerFlowLimit", "many", "-1 to 2147483647"),
            ("imqConsumerFlowLimitPrefetch", "1", "true or false"),
            ("imqConnectionFlowLimitEnabled", "", "true or false"),
        ] {
            let error = settings.set(name, value).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
            assert!(error.contains(range), "{error}");
        }
        assert_eq!(settings, FlowSettings::default());
        assert_eq!(settings.set("imqAckTimeout", "1"), Ok(false));
    }
}
