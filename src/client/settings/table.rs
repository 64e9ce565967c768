//! The one table of all attributes: setting them, showing them, their documentation and the search
//! for the nearest name go by it.
//!
//! # Source
//! The connection factory attributes of the Message Queue client runtime.

use super::{
    super::address::{self, Address},
    AddressListBehavior, Settings,
    attribute::{
        Attribute,
        AttributeKind::{self, Boolean, Integer, Long},
        Field::{
            Choice, Count, Endless, Flow, Millis, Port, Seconds, Secret, Special, Switch, Text,
            Timeout,
        },
    },
    connection_type::{ConnectionType, DEFAULT_HANDLER},
};
use crate::message::DeliveryMode;

/// Text; named apart from the standard library's type.
const STRING: AttributeKind = AttributeKind::String;

const MOST: u32 = i32::MAX.unsigned_abs();
/// Most messages that a browser asks for at one time: their ids fill three megabytes.
const BROWSE_BATCH_MAX: u32 = 100_000;

const CONNECTION: &str = "connection handling";
pub(super) const OLD: &str = "3.0 connection handling";
const IDENTITY: &str = "client identification";
const FLOW: &str = "reliability and flow control";
const SESSIONS: &str = "queue browser and server sessions";
const PROPERTIES: &str = "JMS-defined properties";
const OVERRIDES: &str = "message header overrides";

/// Every attribute.
pub(super) static ATTRIBUTES: [Attribute; 54] = [
    Attribute::new(
        "imqAddressList",
        STRING,
        "",
        Special {
            allowed: "addresses such as mq://host:7676/jms or mqtcp://host:7677/jms, with commas \
                      between them",
            set: set_addresses,
            show: |s| list(&s.addresses),
        },
        "brokers to connect to; without any, the 3.0 attributes say where, which is \
         mq://localhost:7676/jms by default",
    )
    .of(CONNECTION),
    Attribute::new(
        "imqAddressListBehavior",
        STRING,
        "PRIORITY",
        Special { allowed: "PRIORITY or RANDOM", set: set_behavior, show: show_behavior },
        "whether the addresses are tried in their order or in a random one",
    )
    .of(CONNECTION),
    Attribute::new(
        "imqAddressListIterations",
        Integer,
        "5",
        Endless(|s| &mut s.iterations, 1, i32::MIN),
        "passes over the list before it is given up; 0 or less has no end",
    )
    .later("1")
    .of(CONNECTION),
    Attribute::new(
        "imqReconnectEnabled",
        Boolean,
        "false",
        Switch(|s| &mut s.reconnect_enabled),
        "whether a lost connection is restored by itself",
    )
    .of(CONNECTION),
    Attribute::new(
        "imqReconnectAttempts",
        Integer,
        "0",
        Endless(|s| &mut s.attempts, 0, -1),
        "attempts at an address, after the first, before the next one is tried; -1 has no end",
    )
    .of(CONNECTION),
    Attribute::new(
        "imqReconnectInterval",
        Long,
        "3000",
        Millis(|s| &mut s.interval),
        "milliseconds between two attempts, at the same address or the next",
    )
    .of(CONNECTION),
    Attribute::new(
        "imqPingInterval",
        Integer,
        "30",
        Seconds(|s| &mut s.ping_interval),
        "seconds of silence after which the broker is pinged; 0 and -1 are never",
    )
    .of(CONNECTION),
    Attribute::new(
        "imqPingAckTimeout",
        Integer,
        "0",
        Millis(|s| &mut s.ping_ack_timeout),
        "milliseconds to wait for the answer to a ping; counts with imqAbortOnPingAckTimeout",
    )
    .of(CONNECTION),
    Attribute::new(
        "imqAbortOnPingAckTimeout",
        Boolean,
        "false",
        Switch(|s| &mut s.abort_on_ping_timeout),
        "whether a connection whose ping is not answered in time is given up",
    )
    .of(CONNECTION),
    Attribute::new(
        "imqSocketConnectTimeout",
        Integer,
        "0",
        Timeout(|s| &mut s.connect_timeout),
        "milliseconds to wait for a TCP connection; 0 is as long as the system waits",
    )
    .of(CONNECTION),
    Attribute::new(
        "imqPortMapperSoTimeout",
        Integer,
        "60000",
        Timeout(|s| &mut s.port_mapper_timeout),
        "milliseconds to wait for the port mapper's answer; 0 is for ever",
    )
    .of(CONNECTION),
    Attribute::new(
        "imqKeyStore",
        STRING,
        "",
        Text(|s| &mut s.tls.key_store),
        "file with the certificate that this client shows to the broker",
    )
    .needs_tls()
    .of(CONNECTION),
    Attribute::new(
        "imqKeyStorePassword",
        STRING,
        "",
        Secret(|s| &mut s.tls.key_store_password),
        "password of that file",
    )
    .needs_tls()
    .of(CONNECTION),
    Attribute::new(
        "imqSSLIsHostTrusted",
        Boolean,
        "false",
        Switch(|s| &mut s.tls.trusts_host),
        "whether any certificate of a broker is taken",
    )
    .needs_tls()
    .of(CONNECTION),
    Attribute::new(
        "imqSSLProviderClassname",
        STRING,
        "com.sun.net.ssl.internal.ssl.Provider",
        Text(|s| &mut s.tls.provider),
        "class of Java's TLS provider; obsolete, and of no effect here",
    )
    .needs_tls()
    .of(CONNECTION),
    Attribute::new(
        "imqConnectionType",
        STRING,
        "TCP",
        Special {
            allowed: "TCP, TLS, HTTP or Direct",
            set: |s, text| {
                let kind = ConnectionType::from_name(text).ok_or(None)?;
                s.old.change(|old| old.connection_type = kind)
            },
            show: |s| s.old.connection_type.to_string(),
        },
        "transport, without imqAddressList",
    )
    .of(OLD),
    Attribute::new(
        "imqConnectionHandler",
        STRING,
        DEFAULT_HANDLER,
        Special {
            allowed: "com.sun.messaging.jmq.jmsclient.protocol. and tcp.TCPStreamHandler, \
                      ssl.SSLStreamHandler or http.HTTPStreamHandler",
            set: |s, text| {
                ConnectionType::of_handler(text).ok_or(None)?;
                s.old.change(|old| text.clone_into(&mut old.handler))
            },
            show: |s| s.old.handler.clone(),
        },
        "Java class of the transport, without imqAddressList; counts where imqConnectionType is TCP",
    )
    .of(OLD),
    Attribute::new(
        "imqBrokerHostName",
        STRING,
        "localhost",
        Special {
            allowed: "the name or address of a host",
            set: |s, text| s.old.change(|old| text.clone_into(&mut old.host)),
            show: |s| s.old.host.clone(),
        },
        "host of the broker, without imqAddressList",
    )
    .of(OLD),
    Attribute::new(
        "imqBrokerHostPort",
        Integer,
        "7676",
        Port(|s| &mut s.old.port, 1),
        "port of the broker's port mapper, without imqAddressList",
    )
    .of(OLD),
    Attribute::new(
        "imqBrokerServiceName",
        STRING,
        "",
        Special {
            allowed: "the name of a service, or nothing",
            set: |s, text| s.old.change(|old| text.clone_into(&mut old.service)),
            show: |s| s.old.service.clone(),
        },
        "service that the port mapper is asked for, without imqAddressList; by default jms or ssljms",
    )
    .of(OLD),
    Attribute::new(
        "imqBrokerServicePort",
        Integer,
        "0",
        Port(|s| &mut s.old.service_port, 0),
        "port of the service itself, without imqAddressList; 0 asks the port mapper",
    )
    .of(OLD),
    Attribute::new(
        "imqConnectionURL",
        STRING,
        "http://localhost/imq/tunnel",
        Special {
            allowed: "http://host:port/context/tunnel, or the same with https",
            set: |s, text| s.old.change(|old| text.clone_into(&mut old.url)),
            show: |s| s.old.url.clone(),
        },
        "servlet of the HTTP tunnel, without imqAddressList; counts where the transport is HTTP",
    )
    .of(OLD),
    Attribute::new(
        "imqDefaultUsername",
        STRING,
        "guest",
        Text(|s| &mut s.user),
        "user to log in as",
    )
    .of(IDENTITY),
    Attribute::new(
        "imqDefaultPassword",
        STRING,
        "guest",
        Secret(|s| &mut s.password),
        "password of that user",
    )
    .of(IDENTITY),
    Attribute::new(
        "imqConfiguredClientID",
        STRING,
        "",
        Special {
            allowed: "a client id, or ${u} and some text, where the broker puts the user's name in",
            set: set_client_id,
            show: |s| s.client_id.clone().unwrap_or_default(),
        },
        "client id of every connection, which durable subscriptions need",
    )
    .of(IDENTITY),
    Attribute::new(
        "imqDisableSetClientID",
        Boolean,
        "false",
        Switch(|s| &mut s.disables_set_client_id),
        "whether an application may not set a client id of its own",
    )
    .of(IDENTITY),
    Attribute::new(
        "imqEnableSharedClientID",
        Boolean,
        "false",
        Switch(|s| &mut s.shares_client_id),
        "whether several connections may have the client id at one time",
    )
    .of(IDENTITY),
    Attribute::new(
        "imqAckTimeout",
        Integer,
        "0",
        Timeout(|s| &mut s.ack_timeout),
        "milliseconds to wait for any answer of the broker; 0 is for ever",
    )
    .of(FLOW),
    Attribute::new(
        "imqAckOnProduce",
        STRING,
        "",
        Choice(|s| &mut s.ack_on_produce),
        "whether sends wait for the broker's word; unset, those of persistent messages do",
    )
    .of(FLOW),
    Attribute::new(
        "imqAckOnAcknowledge",
        STRING,
        "",
        Choice(|s| &mut s.ack_on_acknowledge),
        "whether acknowledgements wait for the broker's word; those of dups-ok sessions never \
         do; unset, those of non-persistent messages of a plain topic consumer do not",
    )
    .of(FLOW),
    Attribute::new(
        "imqAsyncSendCompletionWaitTimeout",
        Long,
        "180000",
        Timeout(|s| &mut s.completion_timeout),
        "milliseconds after which an asynchronous send without an answer fails; 0 is never",
    )
    .of(FLOW),
    Attribute::new(
        "imqConnectionFlowCount",
        Integer,
        "100",
        Flow("0 to 2147483647"),
        "messages after which the broker lets control packets through; 0 is off",
    )
    .of(FLOW),
    Attribute::new(
        "imqConnectionFlowLimitEnabled",
        Boolean,
        "false",
        Flow("true or false"),
        "whether imqConnectionFlowLimit counts",
    )
    .of(FLOW),
    Attribute::new(
        "imqConnectionFlowLimit",
        Integer,
        "1000",
        Flow("-1 to 2147483647"),
        "messages of all consumers that may wait in a connection; 0 and -1 are without limit",
    )
    .of(FLOW),
    Attribute::new(
        "imqConsumerFlowLimit",
        Integer,
        "100",
        Flow("-1 to 2147483647"),
        "messages that may wait in a consumer; 0 and -1 are without limit",
    )
    .later("1000")
    .of(FLOW),
    Attribute::new(
        "imqConsumerFlowThreshold",
        Integer,
        "50",
        Flow("0 to 100"),
        "percent of that limit at which more messages are asked for",
    )
    .of(FLOW),
    Attribute::new(
        "imqConsumerFlowLimitPrefetch",
        Boolean,
        "true",
        Flow("true or false"),
        "whether messages come before they are asked for; if not, one at a time",
    )
    .of(FLOW),
    Attribute::new(
        "imqOnMessageExceptionRedeliveryAttempts",
        Integer,
        "1",
        Count(|s| &mut s.redelivery_attempts, 0, MOST),
        "how often a listener that fails gets the message again before it counts as undeliverable",
    )
    .of(FLOW),
    Attribute::new(
        "imqOnMessageExceptionRedeliveryIntervals",
        Long,
        "500",
        Millis(|s| &mut s.redelivery_interval),
        "milliseconds before it does",
    )
    .of(FLOW),
    Attribute::new(
        "imqQueueBrowserMaxMessagesPerRetrieve",
        Integer,
        "1000",
        Count(|s| &mut s.browse_batch, 1, BROWSE_BATCH_MAX),
        "messages that a browser fetches at one time",
    )
    .of(SESSIONS),
    Attribute::new(
        "imqQueueBrowserRetrieveTimeout",
        Long,
        "60000",
        Timeout(|s| &mut s.browse_timeout),
        "milliseconds that a browser waits for one of them; 0 is for ever",
    )
    .of(SESSIONS),
    Attribute::new(
        "imqLoadMaxToServerSession",
        Boolean,
        "true",
        Switch(|s| &mut s.load_max_to_server_session),
        "whether a server session gets as many messages as it takes, or one",
    )
    .of(SESSIONS),
    Attribute::new(
        "imqSetJMSXAppID",
        Boolean,
        "false",
        Switch(|s| &mut s.jmsx.app_id),
        "whether messages sent get JMSXAppID, which names the connection",
    )
    .of(PROPERTIES),
    Attribute::new(
        "imqSetJMSXUserID",
        Boolean,
        "false",
        Switch(|s| &mut s.jmsx.user_id),
        "whether messages sent get JMSXUserID, the user's name",
    )
    .of(PROPERTIES),
    Attribute::new(
        "imqSetJMSXProducerTXID",
        Boolean,
        "false",
        Switch(|s| &mut s.jmsx.producer_txid),
        "whether messages sent in a transaction get JMSXProducerTXID, its number",
    )
    .of(PROPERTIES),
    Attribute::new(
        "imqSetJMSXConsumerTXID",
        Boolean,
        "false",
        Switch(|s| &mut s.jmsx.consumer_txid),
        "whether messages received in a transaction get JMSXConsumerTXID, its number",
    )
    .of(PROPERTIES),
    Attribute::new(
        "imqSetJMSXRcvTimestamp",
        Boolean,
        "false",
        Switch(|s| &mut s.jmsx.receive_timestamp),
        "whether messages received get JMSXRcvTimestamp, milliseconds since 1970",
    )
    .of(PROPERTIES),
    Attribute::new(
        "imqOverrideJMSDeliveryMode",
        Boolean,
        "false",
        Switch(|s| &mut s.overrides.replaces_delivery_mode),
        "whether imqJMSDeliveryMode replaces the delivery mode of messages sent",
    )
    .of(OVERRIDES),
    Attribute::new(
        "imqJMSDeliveryMode",
        STRING,
        "PERSISTENT",
        Special {
            allowed: "PERSISTENT or NON_PERSISTENT (2 or 1)",
            set: |s, text| {
                s.overrides.mode = match text.to_ascii_uppercase().as_str() {
                    "PERSISTENT" | "2" => DeliveryMode::Persistent,
                    "NON_PERSISTENT" | "1" => DeliveryMode::NonPersistent,
                    _ => return Err(None),
                };
                Ok(())
            },
            show: |s| {
                let persistent = s.overrides.mode == DeliveryMode::Persistent;
                (if persistent { "PERSISTENT" } else { "NON_PERSISTENT" }).to_owned()
            },
        },
        "the delivery mode for that",
    )
    .of(OVERRIDES),
    Attribute::new(
        "imqOverrideJMSExpiration",
        Boolean,
        "false",
        Switch(|s| &mut s.overrides.replaces_time_to_live),
        "whether imqJMSExpiration replaces the time to live of messages sent",
    )
    .of(OVERRIDES),
    Attribute::new(
        "imqJMSExpiration",
        Long,
        "0",
        Millis(|s| &mut s.overrides.time),
        "milliseconds to live for that; 0 is for ever",
    )
    .of(OVERRIDES),
    Attribute::new(
        "imqOverrideJMSPriority",
        Boolean,
        "false",
        Switch(|s| &mut s.overrides.replaces_priority),
        "whether imqJMSPriority replaces the priority of messages sent",
    )
    .of(OVERRIDES),
    Attribute::new(
        "imqJMSPriority",
        Integer,
        "4",
        Count(|s| &mut s.overrides.number, 0, 9),
        "the priority for that",
    )
    .of(OVERRIDES),
    Attribute::new(
        "imqOverrideJMSHeadersToTemporaryDestinations",
        Boolean,
        "false",
        Switch(|s| &mut s.overrides.temporaries),
        "whether messages to temporary destinations are overridden too",
    )
    .of(OVERRIDES),
];

fn set_addresses(settings: &mut Settings, text: &str) -> Result<(), Option<String>> {
    settings.addresses = address::parse_list(text).map_err(|error| Some(error.to_string()))?;
    Ok(())
}

fn list(addresses: &[Address]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn set_behavior(settings: &mut Settings, text: &str) -> Result<(), Option<String>> {
    settings.behavior = match text {
        word if word.eq_ignore_ascii_case("PRIORITY") => AddressListBehavior::Priority,
        word if word.eq_ignore_ascii_case("RANDOM") => AddressListBehavior::Random,
        _ => return Err(None),
    };
    Ok(())
}

fn show_behavior(settings: &Settings) -> String {
    let word = match settings.behavior {
        AddressListBehavior::Priority => "PRIORITY",
        AddressListBehavior::Random => "RANDOM",
    };
    word.to_owned()
}

fn set_client_id(settings: &mut Settings, text: &str) -> Result<(), Option<String>> {
    if text.starts_with("${") && !text.starts_with("${u}") {
        return Err(None);
    }
    settings.client_id = (!text.is_empty()).then(|| text.to_owned());
    Ok(())
}
