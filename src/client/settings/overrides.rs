//! What an administrator may put over the headers and properties of messages.

use std::time::Duration;

use crate::message::DeliveryMode;

/// Values that replace what the application says, for whole connections.
#[derive(Debug, Clone)]
pub(in crate::client) struct Overrides {
    pub(super) replaces_delivery_mode: bool,
    pub(super) mode: DeliveryMode,
    pub(super) replaces_time_to_live: bool,
    /// Zero is for ever.
    pub(super) time: Duration,
    pub(super) replaces_priority: bool,
    /// 0 to 9.
    pub(super) number: u32,
    /// Messages to temporary destinations are overridden too.
    pub(in crate::client) temporaries: bool,
}

impl Default for Overrides {
    fn default() -> Self {
        Self {
            replaces_delivery_mode: false,
            mode: DeliveryMode::Persistent,
            replaces_time_to_live: false,
            time: Duration::ZERO,
            replaces_priority: false,
            number: 4,
            temporaries: false,
        }
    }
}

impl Overrides {
    /// The delivery mode of all messages.
    pub(in crate::client) fn delivery_mode(&self) -> Option<DeliveryMode> {
        self.replaces_delivery_mode.then_some(self.mode)
    }

    /// The time to live of all messages; zero is for ever.
    pub(in crate::client) fn time_to_live(&self) -> Option<Duration> {
        self.replaces_time_to_live.then_some(self.time)
    }

    /// The priority of all messages.
    pub(in crate::client) fn priority(&self) -> Option<u8> {
        self.replaces_priority.then(|| u8::try_from(self.number).unwrap_or(4))
    }

    pub(in crate::client) fn set_delivery_mode(&mut self, mode: Option<DeliveryMode>) {
        self.replaces_delivery_mode = mode.is_some();
        self.mode = mode.unwrap_or_default();
    }

    pub(in crate::client) fn set_time_to_live(&mut self, time: Option<Duration>) {
        self.replaces_time_to_live = time.is_some();
        self.time = time.unwrap_or_default();
    }

    /// Whether there is anything to replace.
    pub(in crate::client) const fn any(&self) -> bool {
        self.replaces_delivery_mode || self.replaces_time_to_live || self.replaces_priority
    }
}

/// Which properties that JMS defines are added to messages.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::client) struct Jmsx {
    pub(in crate::client) app_id: bool,
    pub(in crate::client) user_id: bool,
    pub(in crate::client) producer_txid: bool,
    pub(in crate::client) consumer_txid: bool,
    pub(in crate::client) receive_timestamp: bool,
}
