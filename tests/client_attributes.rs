//! What the attributes of a factory do: seen in the packets, in what is received, in what fails.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test reads the clock; cores and protocol do not")]

#[path = "support/scripted.rs"]
mod scripted;
mod support;

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::channel,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use scripted::{DEADLINE, Scripted, int, queue};
use support::broker;
use tidegate::{
    broker::Broker,
    client::{
        AcknowledgeMode, AttemptError, ConfigError, ConnectError, Connection, ConnectionError,
        ConnectionFactory, ConnectionType, Profile, RequestError, SessionError,
    },
    message::{DeliveryMode, Destination, DestinationKind, Message},
    wire::{Flags, Packet, PacketType},
};

/// Everything a client sent in a small life: its HELLO, then what it did.
struct Life {
    hello: Packet,
    packets: Vec<Packet>,
}

impl Life {
    /// The first packet of a kind.
    fn first(&self, kind: PacketType) -> Option<&Packet> {
        self.packets.iter().find(|packet| packet.header().packet_type == kind)
    }

    fn message(&self) -> &Packet {
        self.first(PacketType::TEXT_MESSAGE).unwrap()
    }

    fn property(&self, name: &'static str) -> String {
        let table = self.message().properties().unwrap();
        table.string(name).unwrap().map(|text| text.to_string()).unwrap_or_default()
    }

    /// Milliseconds that the message has to live.
    fn lives(&self) -> String {
        let header = self.message().header();
        match header.expiration {
            0 => "for ever".to_owned(),
            // The id is stamped after the expiration was computed.
            end => (end - header.id.timestamp).min(60_000).to_string(),
        }
    }
}

/// Connects with these attributes, adds a consumer, sends a persistent message of priority 4 in a
/// session of this mode, and goes.
fn life(mode: AcknowledgeMode, attributes: &[(&str, &str)]) -> Life {
    let (tell, told) = channel();
    let script = Scripted::start(move |peer| {
        peer.login();
        peer.serve_to_the_end();
        let hello = peer.hello.take().unwrap();
        tell.send(Life { hello, packets: peer.seen.drain(..).collect() }).unwrap();
    });
    let mut factory = script.factory();
    factory.set_attributes(attributes.iter().copied()).unwrap();
    let connection = factory.create_connection().unwrap();
    let session = connection.create_session(mode).unwrap();
    let _consumer = session.create_consumer(&queue("q")).unwrap();
    session.create_producer(&queue("q")).unwrap().send(Message::text("x")).unwrap();
    connection.close().unwrap();
    script.join();
    told.recv_timeout(DEADLINE).unwrap()
}

type Look = fn(&Life) -> String;
/// Attributes, where to look, and what is there.
type Case<'a> = (&'a [(&'a str, &'a str)], Look, &'a str);

#[test]
fn attributes_show_in_the_packets() {
    let flow_count: Look = |life| int(&life.hello, "JMQRBufferSize").unwrap().to_string();
    let wish: Look =
        |life| int(life.first(PacketType::ADD_CONSUMER).unwrap(), "JMQSize").unwrap().to_string();
    let id: Look = |life| {
        let packet = life.first(PacketType::SET_CLIENTID);
        packet.map_or_else(String::new, |packet| {
            let table = packet.properties().unwrap();
            let id = table.string("JMQClientID").unwrap().unwrap();
            format!("{id} {}", table.boolean("JMQShare").unwrap().unwrap_or(false))
        })
    };
    let waits: Look = |life| life.message().header().flags.contains(Flags::ACKNOWLEDGE).to_string();
    let persistent: Look =
        |life| life.message().header().flags.contains(Flags::PERSISTENT).to_string();
    let priority: Look = |life| life.message().header().priority.to_string();
    let user: Look = |life| life.property("JMSXUserID");
    let transaction: Look = |life| life.property("JMSXProducerTXID");
    let app: Look = |life| {
        let id = life.property("JMSXAppID");
        let parts: Vec<_> = id.split('-').collect();
        let number = |text: &str| text.parse::<u64>().is_ok_and(|number| number > 0);
        let fits = matches!(parts[..], ["127.0.0.1", port, time] if number(port) && number(time));
        if fits { "address-port-time".to_owned() } else { id }
    };
    let mode = ("imqJMSDeliveryMode", "NON_PERSISTENT");
    #[rustfmt::skip]
    let table: &[Case<'_>] = &[
        (&[], flow_count, "100"),
        (&[("imqConnectionFlowCount", "7")], flow_count, "7"),
        (&[], wish, "100"),
        (&[("imqConsumerFlowLimit", "7")], wish, "7"),
        (&[("imqConsumerFlowLimit", "0")], wish, "-1"),
        (&[("imqConsumerFlowLimitPrefetch", "false")], wish, "1"),
        (&[], id, ""),
        (&[("imqConfiguredClientID", "me")], id, "me false"),
        (&[("imqConfiguredClientID", "${u}me"), ("imqEnableSharedClientID", "true")], id, "${u}me true"),
        (&[], waits, "true"),
        (&[("imqAckOnProduce", "false")], waits, "false"),
        // What is not persistent is not waited for, whoever says so.
        (&[("imqOverrideJMSDeliveryMode", "true"), mode], waits, "false"),
        (&[], persistent, "true"),
        (&[mode], persistent, "true"),
        (&[("imqOverrideJMSDeliveryMode", "true"), mode], persistent, "false"),
        (&[], priority, "4"),
        (&[("imqJMSPriority", "9")], priority, "4"),
        (&[("imqOverrideJMSPriority", "true"), ("imqJMSPriority", "9")], priority, "9"),
        (&[], Life::lives, "for ever"),
        (&[("imqJMSExpiration", "600000")], Life::lives, "for ever"),
        (&[("imqOverrideJMSExpiration", "true")], Life::lives, "for ever"),
        (&[("imqOverrideJMSExpiration", "true"), ("imqJMSExpiration", "600000")], Life::lives, "60000"),
        (&[], user, ""),
        (&[("imqSetJMSXUserID", "true")], user, "guest"),
        (&[], app, ""),
        (&[("imqSetJMSXAppID", "true")], app, "address-port-time"),
        (&[], transaction, ""),
        (&[("imqSetJMSXProducerTXID", "true")], transaction, ""),
    ];
    for (attributes, look, expected) in table {
        let seen = look(&life(AcknowledgeMode::Auto, attributes));
        assert_eq!(seen, *expected, "{attributes:?}");
    }
    let in_transaction = life(AcknowledgeMode::Transacted, &[("imqSetJMSXProducerTXID", "true")]);
    assert_eq!(transaction(&in_transaction), "7");
}

#[test]
fn ack_on_acknowledge_decides_whether_a_receiver_waits() {
    let (q, t) = (queue("q"), Destination::topic("t").unwrap());
    for (setting, from, waits) in [
        ("", &q, true),
        ("true", &q, true),
        ("false", &q, false),
        // Nothing that outlives the consumer is at stake.
        ("", &t, false),
        ("true", &t, true),
        ("false", &t, false),
    ] {
        let script = Scripted::start(move |peer| {
            peer.login();
            peer.serve_until(PacketType::START);
            peer.deliver(peer.consumers[0], "x", Flags::empty());
            let acknowledgement = peer.serve_until(PacketType::ACKNOWLEDGE);
            let flags = acknowledgement.header().flags;
            assert_eq!(flags.contains(Flags::ACKNOWLEDGE), waits, "{setting}");
            peer.answer(&acknowledgement);
            peer.serve_to_the_end();
        });
        let mut factory = script.factory();
        factory.set_attribute("imqAckOnAcknowledge", setting).unwrap();
        let connection = factory.create_connection().unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let consumer = session.create_consumer(from).unwrap();
        connection.start().unwrap();
        assert!(consumer.receive_timeout(DEADLINE).unwrap().is_some());
        connection.close().unwrap();
        script.join();
    }
}

#[test]
fn the_current_profile_asks_for_more_messages_ahead() {
    let wish = |profile: Profile| {
        let (tell, told) = channel();
        let script = Scripted::start(move |peer| {
            peer.login();
            peer.serve_to_the_end();
            tell.send(peer.windows[0]).unwrap();
        });
        let mut factory = ConnectionFactory::with_profile(profile);
        factory.address_list(&format!("mqtcp://{}/jms", script.address())).unwrap();
        let connection = factory.create_connection().unwrap();
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let _consumer = session.create_consumer(&queue("q")).unwrap();
        connection.close().unwrap();
        script.join();
        told.recv_timeout(DEADLINE).unwrap()
    };
    assert_eq!((wish(Profile::V35), wish(Profile::Current)), (100, 1000));
}

fn factory(broker: &Broker) -> ConnectionFactory {
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mqtcp://{}/jms", broker.jms_address())).unwrap();
    factory.address_list_iterations(Some(1));
    factory
}

fn started(factory: &ConnectionFactory) -> Connection {
    let connection = factory.create_connection().unwrap();
    connection.start().unwrap();
    connection
}

fn wall_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[test]
fn received_messages_get_time_and_transaction_here_and_only_when_asked_for() {
    let broker = broker(1);
    let mut asking = factory(&broker);
    asking.set_jmsx_receive_timestamp(true).set_jmsx_consumer_txid(true);
    for (factory, mode, has_time, has_transaction) in [
        (&asking, AcknowledgeMode::Transacted, true, true),
        (&asking, AcknowledgeMode::Auto, true, false),
        (&factory(&broker), AcknowledgeMode::Transacted, false, false),
    ] {
        let connection = started(factory);
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let receiving = connection.create_session(mode).unwrap();
        let before = wall_millis();
        session.create_producer(&queue("q")).unwrap().send(Message::text("x")).unwrap();
        let consumer = receiving.create_consumer(&queue("q")).unwrap();
        let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
        let time: Option<i64> = message.property_as("JMSXRcvTimestamp").unwrap();
        assert_eq!(time.is_some(), has_time);
        assert!(time.is_none_or(|time| (before..=wall_millis()).contains(&time)), "{time:?}");
        let transaction: Option<String> = message.property_as("JMSXConsumerTXID").unwrap();
        assert_eq!(transaction.is_some(), has_transaction);
        assert!(transaction.is_none_or(|id| id.parse::<i64>().is_ok_and(|id| id != 0)));
        if mode == AcknowledgeMode::Transacted {
            receiving.commit().unwrap();
        }
        connection.close().unwrap();
    }
}

#[test]
fn listeners_get_the_time_too_and_the_broker_does_not_see_it() {
    let broker = broker(1);
    let mut asking = factory(&broker);
    asking.set_jmsx_receive_timestamp(true);
    let connection = started(&asking);
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    let (tell, told) = channel();
    consumer
        .set_listener(move |message| {
            let time: Option<i64> = message.property_as("JMSXRcvTimestamp").unwrap();
            tell.send(time.is_some()).unwrap();
        })
        .unwrap();
    let sending = connection.create_session(AcknowledgeMode::Auto).unwrap();
    sending.create_producer(&queue("q")).unwrap().send(Message::text("x")).unwrap();
    assert!(told.recv_timeout(DEADLINE).unwrap());
    sending.create_producer(&queue("other")).unwrap().send(Message::text("x")).unwrap();
    let browser = sending.create_browser(&queue("other"), None).unwrap();
    let seen = browser.messages().unwrap().next().unwrap().unwrap();
    assert_eq!(seen.property("JMSXRcvTimestamp").unwrap(), None);
    connection.close().unwrap();
}

#[test]
fn overrides_spare_temporary_destinations_unless_told_otherwise() {
    let broker = broker(1);
    for (too, expected) in
        [(false, (2, DeliveryMode::Persistent)), (true, (9, DeliveryMode::NonPersistent))]
    {
        let mut factory = factory(&broker);
        factory.override_priority(Some(9)).unwrap();
        factory.override_delivery_mode(Some(DeliveryMode::NonPersistent));
        factory.override_temporary_destinations(too);
        let connection = started(&factory);
        let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
        let got = |destination: &Destination| {
            let mut producer = session.create_producer(destination).unwrap();
            producer.set_priority(2).unwrap();
            let consumer = session.create_consumer(destination).unwrap();
            producer.send(Message::text("x")).unwrap();
            let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
            (message.priority(), message.delivery_mode())
        };
        let temporary = session.create_temporary(DestinationKind::Queue).unwrap();
        assert_eq!(got(&temporary), expected);
        assert_eq!(got(&queue("lasting")), (9, DeliveryMode::NonPersistent));
        connection.close().unwrap();
    }
}

#[test]
fn an_override_of_the_time_to_live_replaces_the_producers() {
    let broker = broker(1);
    let mut factory = factory(&broker);
    factory.override_time_to_live(Some(Duration::ZERO));
    let connection = started(&factory);
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let mut producer = session.create_producer(&queue("q")).unwrap();
    producer.set_time_to_live(Some(Duration::from_secs(60)));
    producer.send(Message::text("for ever")).unwrap();
    let consumer = session.create_consumer(&queue("q")).unwrap();
    let message = consumer.receive_timeout(DEADLINE).unwrap().unwrap();
    assert_eq!(message.expiration(), 0);
    connection.close().unwrap();
}

#[test]
fn a_message_that_cannot_take_the_properties_comes_back_unsent() {
    let broker = broker(1);
    let mut factory = factory(&broker);
    factory.set_jmsx_user_id(true);
    let connection = started(&factory);
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let mut message = Message::text("full");
    for number in 0..16_384 {
        message.set_property(format!("p{number}"), 1).unwrap();
    }
    let producer = session.create_producer(&queue("q")).unwrap();
    let error = producer.send(message).unwrap_err();
    assert_eq!(error.into_inner().body_text().unwrap().as_deref(), Some("full"));
    connection.close().unwrap();
}

#[test]
fn user_and_password_are_those_of_the_attributes() {
    let broker = broker(1);
    let mut factory = factory(&broker);
    factory.set_attribute("imqDefaultUsername", "admin").unwrap();
    let refused = factory.create_connection().unwrap_err();
    assert!(matches!(refused, ConnectError::Refused { .. }), "{refused:?}");
    factory.set_attribute("imqDefaultPassword", "admin").unwrap();
    factory.create_connection().unwrap().close().unwrap();
}

#[test]
fn the_attributes_of_version_3_0_lead_to_the_broker_and_a_list_of_addresses_overrules_them() {
    let broker = broker(1);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut factory = ConnectionFactory::new();
    factory.address_list_iterations(Some(1));
    factory.broker_host("127.0.0.1", broker.port_mapper_address().port()).unwrap();
    factory.create_connection().unwrap().close().unwrap();
    factory.broker_host("127.0.0.1", nobody).unwrap();
    factory.broker_service_port(Some(broker.jms_address().port())).unwrap();
    factory.create_connection().unwrap().close().unwrap();
    assert_eq!(factory.attributes_without_effect().len(), 0);
    factory.address_list(&format!("mqtcp://127.0.0.1:{nobody}/jms")).unwrap();
    assert!(factory.create_connection().is_err());
    let ignored: Vec<_> =
        factory.attributes_without_effect().into_iter().map(|(one, _)| one.name()).collect();
    assert_eq!(ignored, ["imqBrokerHostName", "imqBrokerHostPort", "imqBrokerServicePort"]);
}

#[test]
fn the_direct_type_names_the_call_that_reaches_a_broker_of_this_process() {
    let broker = broker(1);
    let mut factory = ConnectionFactory::new();
    factory.connection_type(ConnectionType::Direct).unwrap();
    let error = factory.create_connection().unwrap_err();
    let ConnectError::Unreachable { attempts: 1, last: last @ AttemptError::SameProcess, .. } =
        error
    else {
        panic!("{error:?}")
    };
    assert!(last.to_string().contains("create_connection_in_process"), "{last}");
    factory.create_connection_in_process(&broker.in_process()).unwrap().close().unwrap();
}

#[test]
fn a_silent_broker_is_waited_for_as_long_as_the_attributes_say() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let mut factory = ConnectionFactory::new();
    factory.address_list_iterations(Some(1));
    factory.address_list(&format!("mq://{address}/jms")).unwrap();
    factory.set_attribute("imqPortMapperSoTimeout", "50").unwrap();
    let error = factory.create_connection().unwrap_err();
    let ConnectError::Unreachable { last: AttemptError::PortMapper { .. }, .. } = error else {
        panic!("{error:?}")
    };
    factory.address_list(&format!("mqtcp://{address}/jms")).unwrap();
    factory.set_attribute("imqAckTimeout", "50").unwrap();
    let error = factory.create_connection().unwrap_err();
    let ConnectError::Unreachable {
        last: AttemptError::Login { cause: ConnectionError::Socket(kind), .. },
        ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(kind, std::io::ErrorKind::TimedOut);
}

#[test]
fn a_request_without_an_answer_is_waited_for_as_long_as_the_attribute_says() {
    let script = Scripted::start(|peer| {
        peer.login();
        let _unanswered = peer.serve_until(PacketType::CREATE_SESSION);
        peer.serve_to_the_end();
    });
    let mut factory = script.factory();
    factory.set_attribute("imqAckTimeout", "50").unwrap();
    let connection = factory.create_connection().unwrap();
    let error = connection.create_session(AcknowledgeMode::Auto).unwrap_err();
    let SessionError::Request(RequestError::TimedOut { waited, setting, .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!((waited, setting), (Duration::from_millis(50), "imqAckTimeout"));
    drop(connection);
    script.join();
}

/// A port that lets nobody in: its queue of connections is full. Gives back what fills it, too.
#[cfg(target_os = "linux")]
fn crowded() -> (socket2::Socket, Vec<TcpStream>, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let soon = Duration::from_millis(200);
    let waiting: Vec<_> =
        (0..16).map_while(|_| TcpStream::connect_timeout(&address, soon).ok()).collect();
    (socket, waiting, address)
}

#[test]
#[cfg(target_os = "linux")]
fn a_port_that_lets_nobody_in_is_waited_for_as_long_as_the_attribute_says() {
    let (_socket, _waiting, address) = crowded();
    let mut factory = ConnectionFactory::new();
    factory.address_list_iterations(Some(1));
    factory.address_list(&format!("mqtcp://{address}/jms")).unwrap();
    factory.set_attribute("imqSocketConnectTimeout", "50").unwrap();
    let error = factory.create_connection().unwrap_err();
    let ConnectError::Unreachable { last: AttemptError::Connect { reason, .. }, .. } = error else {
        panic!("{error:?}")
    };
    assert!(reason.contains("timed out"), "{reason}");
}

#[test]
fn a_broker_that_does_not_answer_a_ping_is_given_up_only_if_the_attribute_says_so() {
    for aborts in [true, false] {
        let (pinged, seen) = scripted::gate();
        let script = Scripted::start(move |peer| {
            peer.login();
            let _unanswered = peer.serve_until(PacketType::PING);
            pinged.send(()).unwrap();
            peer.serve_to_the_end();
        });
        let mut factory = script.factory();
        factory.ping_interval(Some(Duration::from_millis(100)));
        factory.set_attribute("imqPingAckTimeout", "100").unwrap();
        factory.set_attribute("imqAbortOnPingAckTimeout", &aborts.to_string()).unwrap();
        let connection = factory.create_connection().unwrap();
        scripted::pass(&seen);
        if aborts {
            support::wait_until("the connection is given up", || connection.lost().is_some());
        } else {
            // An unanswered ping does not keep the connection from being used.
            connection.create_session(AcknowledgeMode::Auto).unwrap();
            assert!(connection.lost().is_none());
            connection.close().unwrap();
        }
        drop(connection);
        script.join();
    }
}

#[test]
fn an_application_may_not_set_a_client_id_where_that_is_disabled() {
    let broker = broker(1);
    let mut factory = factory(&broker);
    factory.set_attribute("imqDisableSetClientID", "true").unwrap();
    let connection = factory.create_connection().unwrap();
    let error = connection.set_client_id("mine").unwrap_err();
    assert!(
        matches!(error, SessionError::IllegalState(why) if why.contains("imqDisableSetClientID"))
    );
    connection.close().unwrap();
}

#[test]
fn properties_of_a_file_are_all_taken_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("factory.properties");
    let mut factory = ConnectionFactory::new();
    std::fs::write(&path, "imqAckTimeout=5\nimqReconnectEnabled=true\n").unwrap();
    factory.load_properties(&path).unwrap();
    assert_eq!(factory.attribute("imqAckTimeout").unwrap(), "5");
    assert_eq!(factory.attribute("imqReconnectEnabled").unwrap(), "true");
    std::fs::write(&path, "imqAckTimeout=6\nimqReconnectEnabled=perhaps\n").unwrap();
    let error = factory.load_properties(&path).unwrap_err();
    assert!(matches!(error, ConfigError::Line { line: 2, .. }), "{error:?}");
    assert_eq!(factory.attribute("imqAckTimeout").unwrap(), "5");
}

#[test]
fn passwords_are_shown_nowhere() {
    let mut factory = ConnectionFactory::new();
    factory.credentials("me", "s3cret").unwrap().key_store("/store", "s3cret").unwrap();
    assert_eq!(factory.attribute("imqDefaultPassword").unwrap(), "***");
    assert_eq!(factory.attribute("imqKeyStorePassword").unwrap(), "***");
    let shown = format!("{factory:?}");
    assert!(shown.contains("/store") && !shown.contains("s3cret"), "{shown}");
}
