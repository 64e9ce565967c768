//! Makes connections, as its settings say.

use std::{fmt, time::Duration};

use super::{
    connection::Connection,
    error::{ConfigError, ConnectError},
    settings::{AddressListBehavior, Settings},
};

/// Makes connections to a broker.
///
/// Shape: a set of settings, each under its `imq…` name ([`set_attribute`](Self::set_attribute))
/// and as a typed method. The defaults are those of version 3.5 of the Message Queue client
/// runtime. Every setting is checked when it is set; a refused one changes nothing.
///
/// ```no_run
/// use tidegate::client::{AcknowledgeMode, ConnectionFactory};
/// use tidegate::message::{Destination, Message};
///
/// let mut factory = ConnectionFactory::new();
/// factory.set_attribute("imqAddressList", "mq://localhost:7676/jms")?;
/// let connection = factory.create_connection()?;
/// let session = connection.create_session(AcknowledgeMode::Auto)?;
/// let queue = Destination::queue("greetings")?;
/// session.create_producer(&queue)?.send(Message::text("hello"))?;
/// let consumer = session.create_consumer(&queue)?;
/// connection.start()?;
/// let message = consumer.receive()?.expect("nobody closes the consumer");
/// assert_eq!(message.body_text()?.as_deref(), Some("hello"));
/// connection.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
/// The connection factory attributes of the Message Queue client runtime.
#[derive(Clone, Default)]
pub struct ConnectionFactory {
    settings: Settings,
}

impl fmt::Debug for ConnectionFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl ConnectionFactory {
    /// A factory with the default settings: the broker on this machine, user `guest`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets one attribute from text. Blanks around the value do not matter.
    ///
    /// # Errors
    /// [`ConfigError::Unknown`] with the nearest name, [`ConfigError::Value`] with what is allowed.
    pub fn set_attribute(&mut self, name: &str, value: &str) -> Result<&mut Self, ConfigError> {
        self.settings.set(name, value)?;
        Ok(self)
    }

    /// Sets several attributes, as from a map.
    ///
    /// # Errors
    /// As [`set_attribute`](Self::set_attribute), for the first that is refused; nothing is
    /// changed then.
    pub fn set_attributes<N: AsRef<str>, V: AsRef<str>>(
        &mut self,
        attributes: impl IntoIterator<Item = (N, V)>,
    ) -> Result<&mut Self, ConfigError> {
        let mut settings = self.settings.clone();
        for (name, value) in attributes {
            settings.set(name.as_ref(), value.as_ref())?;
        }
        self.settings = settings;
        Ok(self)
    }

    /// Sets `imqAddressList`: comma-separated, `[mq://][host][:port][/service]` for a port mapper,
    /// `mqtcp://host:port/jms` for the service itself. Default `mq://localhost:7676/jms`; at most
    /// 256.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if one is no address, or needs a transport that is not included.
    pub fn address_list(&mut self, list: &str) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqAddressList", list)
    }

    /// Sets `imqAddressListBehavior`: in order (default), or from a random place on.
    pub fn address_list_behavior(&mut self, behavior: AddressListBehavior) -> &mut Self {
        self.settings.behavior = behavior;
        self
    }

    /// Sets `imqAddressListIterations`: passes over the list. Default 5; `None` has no end.
    pub fn address_list_iterations(&mut self, passes: Option<u32>) -> &mut Self {
        self.settings.iterations = passes.filter(|&passes| passes > 0);
        self
    }

    /// Sets `imqReconnectAttempts`: extra attempts per address. Default 0; `None` has no end.
    pub fn reconnect_attempts(&mut self, attempts: Option<u32>) -> &mut Self {
        self.settings.attempts = attempts;
        self
    }

    /// Sets `imqReconnectInterval`: the rest between two attempts at one address. Default 3 s;
    /// whole milliseconds.
    pub fn reconnect_interval(&mut self, interval: Duration) -> &mut Self {
        self.settings.interval = interval;
        self
    }

    /// Sets `imqDefaultUsername` and `imqDefaultPassword`. Default `guest` and `guest`; at most
    /// 1024 bytes each. The password is sent as a digest unless the broker asks for more.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if one is too long.
    pub fn credentials(&mut self, user: &str, password: &str) -> Result<&mut Self, ConfigError> {
        self.set_attributes([("imqDefaultUsername", user), ("imqDefaultPassword", password)])
    }

    /// Sets `imqConfiguredClientID`, which durable subscriptions need. Default none; at most 1024
    /// bytes; one connection at a time has it.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if it is too long.
    pub fn client_id(&mut self, id: &str) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqConfiguredClientID", id)
    }

    /// Sets `imqDisableSetClientID`: the client id is the configured one, or none. Default is that
    /// the application may set it.
    pub fn disable_set_client_id(&mut self) -> &mut Self {
        self.settings.disables_set_client_id = true;
        self
    }

    /// Sets `imqEnableSharedClientID`: several connections may use the client id at one time, and
    /// share its durable subscriptions. Default is that one connection at a time has it.
    pub fn share_client_id(&mut self) -> &mut Self {
        self.settings.shares_client_id = true;
        self
    }

    /// Sets `imqAckTimeout`: the longest wait for any reply. Default `None`, for ever. After it,
    /// whether the request was done is not known.
    pub fn ack_timeout(&mut self, timeout: Option<Duration>) -> &mut Self {
        self.settings.ack_timeout = timeout.filter(|timeout| !timeout.is_zero());
        self
    }

    /// Sets `imqAsyncSendCompletionWaitTimeout`: the longest wait for the reply to an asynchronous
    /// send. Default 180 s; `None` is for ever.
    pub fn completion_timeout(&mut self, timeout: Option<Duration>) -> &mut Self {
        self.settings.completion_timeout = timeout.filter(|timeout| !timeout.is_zero());
        self
    }

    /// Sets `imqAckOnProduce`: whether sends wait for the broker's word. Default `None`:
    /// persistent messages do. `Some(false)` is fast and does not notice a refused message.
    pub fn ack_on_produce(&mut self, wait: Option<bool>) -> &mut Self {
        self.settings.ack_on_produce = wait;
        self
    }

    /// Sets `imqAckOnAcknowledge`: whether acknowledgements wait for the broker's word. Default
    /// `None`: all but those of lazy sessions do.
    pub fn ack_on_acknowledge(&mut self, wait: Option<bool>) -> &mut Self {
        self.settings.ack_on_acknowledge = wait;
        self
    }

    /// Sets `imqConnectionFlowCount`: messages after which the broker waits for this client, so
    /// that control packets get through. Default 100; 0 is off; larger ones cost latency of
    /// control packets and save round trips.
    ///
    /// # Errors
    /// [`ConfigError::Value`] above 2,147,483,647.
    pub fn connection_flow_count(&mut self, messages: u32) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqConnectionFlowCount", &messages.to_string())
    }

    /// Sets `imqConnectionFlowLimit` and `imqConnectionFlowLimitEnabled`: messages of all
    /// consumers that may wait in this client before it stops the broker. Default `None`, off.
    ///
    /// # Errors
    /// [`ConfigError::Value`] above 2,147,483,647.
    pub fn connection_flow_limit(
        &mut self,
        messages: Option<u32>,
    ) -> Result<&mut Self, ConfigError> {
        let (limit, enabled) = (messages.unwrap_or(1000).to_string(), messages.is_some());
        self.set_attributes([
            ("imqConnectionFlowLimit", limit.as_str()),
            ("imqConnectionFlowLimitEnabled", if enabled { "true" } else { "false" }),
        ])
    }

    /// Sets `imqConsumerFlowLimit`: messages that a consumer fetches ahead. Default 100; 0 is
    /// without limit. More keep a fast consumer busy; fewer share a queue more evenly.
    ///
    /// # Errors
    /// [`ConfigError::Value`] above 2,147,483,647.
    pub fn consumer_flow_limit(&mut self, messages: u32) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqConsumerFlowLimit", &messages.to_string())
    }

    /// Sets `imqConsumerFlowThreshold`: percent of the limit at or under which more is asked for.
    /// Default 50; 0 to 100.
    ///
    /// # Errors
    /// [`ConfigError::Value`] above 100.
    pub fn consumer_flow_threshold(&mut self, percent: u8) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqConsumerFlowThreshold", &percent.to_string())
    }

    /// Sets `imqConsumerFlowLimitPrefetch` to false: one message at a time. Default is to
    /// prefetch.
    ///
    /// # Errors
    /// None; for symmetry with the others.
    pub fn no_prefetch(&mut self) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqConsumerFlowLimitPrefetch", "false")
    }

    /// Sets `imqPingInterval`: how long a connection is silent before it is pinged. Default 30 s;
    /// `None` is off; seen to a tenth of a second.
    pub fn ping_interval(&mut self, interval: Option<Duration>) -> &mut Self {
        self.settings.ping_interval = interval.filter(|interval| !interval.is_zero());
        self
    }

    /// Sets `imqPingAckTimeout` and `imqAbortOnPingAckTimeout`: how long after a ping something
    /// must come from the broker, else the connection is given up. Default `None`, off.
    pub fn ping_ack_timeout(&mut self, timeout: Option<Duration>) -> &mut Self {
        self.settings.abort_on_ping_timeout = timeout.is_some();
        self.settings.ping_ack_timeout = timeout.unwrap_or_default();
        self
    }

    /// Sets `imqSocketConnectTimeout`: the longest wait for a TCP connection. Default `None`, as
    /// long as the system waits.
    pub fn socket_connect_timeout(&mut self, timeout: Option<Duration>) -> &mut Self {
        self.settings.connect_timeout = timeout.filter(|timeout| !timeout.is_zero());
        self
    }

    /// Sets `imqPortMapperSoTimeout`: the longest wait for the port mapper's answer. Default 60 s;
    /// `None` is for ever.
    pub fn port_mapper_timeout(&mut self, timeout: Option<Duration>) -> &mut Self {
        self.settings.port_mapper_timeout = timeout.filter(|timeout| !timeout.is_zero());
        self
    }

    /// Sets `imqQueueBrowserMaxMessagesPerRetrieve`: messages that a browser fetches at one time.
    /// Default 1000; 1 to 100,000. They are in memory until they are taken from the iterator.
    ///
    /// # Errors
    /// [`ConfigError::Value`] outside that range.
    pub fn browser_batch(&mut self, messages: u32) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqQueueBrowserMaxMessagesPerRetrieve", &messages.to_string())
    }

    /// Sets `imqQueueBrowserRetrieveTimeout`: the longest wait for one message of a browser.
    /// Default 60 s; `None` is for ever.
    pub fn browser_timeout(&mut self, timeout: Option<Duration>) -> &mut Self {
        self.settings.browse_timeout = timeout.filter(|timeout| !timeout.is_zero());
        self
    }

    /// Sets `imqOnMessageExceptionRedeliveryAttempts` and `…Intervals`: how often, and after what
    /// rest, a listener that failed on a message gets it again before the broker is told. Default
    /// once, after 500 ms.
    pub fn redelivery(&mut self, attempts: u32, interval: Duration) -> &mut Self {
        self.settings.redelivery_attempts = attempts;
        self.settings.redelivery_interval = interval;
        self
    }

    /// Connects and logs in, trying the addresses as the settings say. Blocks meanwhile.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`] if no address worked, [`ConnectError::Refused`] if a broker
    /// refuses this client for good.
    pub fn create_connection(&self) -> Result<Connection, ConnectError> {
        Connection::open(&self.settings)
    }
}
