//! The settings of a factory as typed methods.

use std::time::Duration;

use super::ConnectionFactory;
use crate::{
    client::{AddressListBehavior, ConfigError, ConnectionType, WaitStrategy},
    message::DeliveryMode,
};

impl ConnectionFactory {
    /// Sets `imqAddressList`: comma-separated, `[mq://][host][:port][/service]` for a port mapper,
    /// `mqtcp://host:port/jms` for the service itself. Default `mq://localhost:7676/jms`; at most
    /// 256. Addresses of other transports (`mq+ssl`, `mqssl`, `mqws`, `mqwss`, `http`, `https`) may
    /// stand in it; an attempt at one fails, and the next is tried.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if one is no address.
    pub fn address_list(&mut self, list: &str) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqAddressList", list)
    }

    /// Sets `imqAddressListBehavior`: in their order (default), or in a random one.
    pub fn address_list_behavior(&mut self, behavior: AddressListBehavior) -> &mut Self {
        self.settings.behavior = behavior;
        self
    }

    /// Sets `imqAddressListIterations`: passes over the list. Default 5, in the current profile 1;
    /// `None` has no end.
    pub fn address_list_iterations(&mut self, passes: Option<u32>) -> &mut Self {
        self.settings.iterations = passes.filter(|&passes| passes > 0);
        self
    }

    /// Sets `imqReconnectEnabled`: whether a lost connection is restored by itself. Default false.
    pub fn reconnect(&mut self, enabled: bool) -> &mut Self {
        self.settings.reconnect_enabled = enabled;
        self
    }

    /// Sets `imqReconnectAttempts`: extra attempts per address. Default 0; `None` has no end.
    pub fn reconnect_attempts(&mut self, attempts: Option<u32>) -> &mut Self {
        self.settings.attempts = attempts;
        self
    }

    /// Sets `imqReconnectInterval`: the rest between two attempts, at one address or the next.
    /// Default 3 s; whole milliseconds.
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

    /// Sets `imqConsumerFlowLimit`: messages that a consumer fetches ahead. Default 100, in the
    /// current profile 1000; 0 is without limit. More keep a fast consumer busy; fewer share a queue more evenly.
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

    /// Sets `imqOnMessageExceptionRedeliveryAttempts` and
    /// `imqOnMessageExceptionRedeliveryIntervals`: how often, and after what rest, a listener that failed on a message gets it again before the broker is told. Default
    /// once, after 500 ms.
    pub fn redelivery(&mut self, attempts: u32, interval: Duration) -> &mut Self {
        self.settings.redelivery_attempts = attempts;
        self.settings.redelivery_interval = interval;
        self
    }

    /// Sets what threads do that wait for the broker: sleep (default), look again for a while and
    /// then sleep, or look again for ever. Has no `imq…` name.
    pub fn wait_strategy(&mut self, strategy: WaitStrategy) -> &mut Self {
        self.settings.wait_strategy = strategy;
        self
    }

    /// Sets `imqKeyStore` and `imqKeyStorePassword`: the file with the certificate that TLS shows
    /// to the broker. Default none. Kept, and without effect in this build, which has no TLS.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if one has more than 1024 bytes.
    pub fn key_store(&mut self, path: &str, password: &str) -> Result<&mut Self, ConfigError> {
        self.set_attributes([("imqKeyStore", path), ("imqKeyStorePassword", password)])
    }

    /// Sets `imqSSLIsHostTrusted`: whether TLS takes any certificate of a broker. Default false.
    /// Kept, and without effect in this build, which has no TLS.
    ///
    /// # Errors
    /// None; for symmetry with the others.
    pub fn trust_any_host(&mut self, trusted: bool) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqSSLIsHostTrusted", &trusted.to_string())
    }

    /// Sets `imqSSLProviderClassname`, a class of Java's. Obsolete, and without effect.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if it has more than 1024 bytes.
    pub fn ssl_provider_classname(&mut self, class: &str) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqSSLProviderClassname", class)
    }

    /// Sets `imqConnectionType`: the transport to the one broker of version 3.0. Default TCP.
    /// Ignored once there is a list of addresses, as are the next six.
    ///
    /// # Errors
    /// None; for symmetry with the others.
    pub fn connection_type(&mut self, kind: ConnectionType) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqConnectionType", &kind.to_string())
    }

    /// Sets `imqConnectionHandler`: the Java class of the transport, which counts while the type
    /// is TCP. Default `com.sun.messaging.jmq.jmsclient.protocol.tcp.TCPStreamHandler`.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for a class that is none of the three known ones.
    pub fn connection_handler(&mut self, class: &str) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqConnectionHandler", class)
    }

    /// Sets `imqBrokerHostName` and `imqBrokerHostPort`: where the port mapper is. Default
    /// `localhost` and 7676.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for port 0 or what is no name of a host.
    pub fn broker_host(&mut self, host: &str, port: u16) -> Result<&mut Self, ConfigError> {
        let port = port.to_string();
        self.set_attributes([("imqBrokerHostName", host), ("imqBrokerHostPort", &port)])
    }

    /// Sets `imqBrokerServiceName`: the service to ask the port mapper for. Default empty, which is
    /// `jms`, or `ssljms` over TLS.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for what is no name of a service.
    pub fn broker_service_name(&mut self, name: &str) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqBrokerServiceName", name)
    }

    /// Sets `imqBrokerServicePort`: the port of the service itself. Default `None`: the port mapper
    /// tells it.
    ///
    /// # Errors
    /// None; for symmetry with the others.
    pub fn broker_service_port(&mut self, port: Option<u16>) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqBrokerServicePort", &port.unwrap_or(0).to_string())
    }

    /// Sets `imqConnectionURL`: the servlet of the HTTP tunnel. Default
    /// `http://localhost/imq/tunnel`.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for what is no such address.
    pub fn connection_url(&mut self, url: &str) -> Result<&mut Self, ConfigError> {
        self.set_attribute("imqConnectionURL", url)
    }

    /// Sets `imqLoadMaxToServerSession`: whether a server session gets as many messages as it
    /// takes (default), or one.
    pub fn load_max_to_server_session(&mut self, all: bool) -> &mut Self {
        self.settings.load_max_to_server_session = all;
        self
    }

    /// Sets `imqSetJMSXAppID`: messages sent get the property `JMSXAppID`, which tells this
    /// connection from others. Default false; `true` also for the other four sets that property.
    pub fn set_jmsx_app_id(&mut self, set: bool) -> &mut Self {
        self.settings.jmsx.app_id = set;
        self
    }

    /// Sets `imqSetJMSXUserID`: messages sent get `JMSXUserID`, the name of the user.
    pub fn set_jmsx_user_id(&mut self, set: bool) -> &mut Self {
        self.settings.jmsx.user_id = set;
        self
    }

    /// Sets `imqSetJMSXProducerTXID`: messages sent in a transaction get `JMSXProducerTXID`, its
    /// number as text.
    pub fn set_jmsx_producer_txid(&mut self, set: bool) -> &mut Self {
        self.settings.jmsx.producer_txid = set;
        self
    }

    /// Sets `imqSetJMSXConsumerTXID`: messages received in a transaction get `JMSXConsumerTXID`,
    /// its number as text. The broker does not see it.
    pub fn set_jmsx_consumer_txid(&mut self, set: bool) -> &mut Self {
        self.settings.jmsx.consumer_txid = set;
        self
    }

    /// Sets `imqSetJMSXRcvTimestamp`: messages received get `JMSXRcvTimestamp`, when they were
    /// handed to the application, in milliseconds since 1970. The broker does not see it.
    pub fn set_jmsx_receive_timestamp(&mut self, set: bool) -> &mut Self {
        self.settings.jmsx.receive_timestamp = set;
        self
    }

    /// Sets `imqOverrideJMSDeliveryMode` and `imqJMSDeliveryMode`: the delivery mode of every
    /// message, whatever the application says. Default `None`: what the application says.
    pub fn override_delivery_mode(&mut self, mode: Option<DeliveryMode>) -> &mut Self {
        self.settings.overrides.set_delivery_mode(mode);
        self
    }

    /// Sets `imqOverrideJMSExpiration` and `imqJMSExpiration`: the time to live of every message,
    /// whatever the application says; zero is for ever. Default `None`: what the application says.
    /// Whole milliseconds.
    pub fn override_time_to_live(&mut self, time: Option<Duration>) -> &mut Self {
        self.settings.overrides.set_time_to_live(time);
        self
    }

    /// Sets `imqOverrideJMSPriority` and `imqJMSPriority`: the priority of every message, whatever
    /// the application says. Default `None`: what the application says.
    ///
    /// # Errors
    /// [`ConfigError::Value`] above 9.
    pub fn override_priority(&mut self, priority: Option<u8>) -> Result<&mut Self, ConfigError> {
        let (on, number) = (priority.is_some().to_string(), priority.unwrap_or(4).to_string());
        self.set_attributes([("imqOverrideJMSPriority", on), ("imqJMSPriority", number)])
    }

    /// Sets `imqOverrideJMSHeadersToTemporaryDestinations`: whether messages to temporary
    /// destinations are overridden too. Default false.
    pub fn override_temporary_destinations(&mut self, too: bool) -> &mut Self {
        self.settings.overrides.temporaries = too;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionFactory;

    #[test]
    fn every_attribute_has_a_typed_method() {
        let source = include_str!("typed.rs");
        for attribute in ConnectionFactory::attributes() {
            let name = attribute.name();
            assert!(source.contains(&format!("`{name}`")), "{name}");
        }
    }
}
