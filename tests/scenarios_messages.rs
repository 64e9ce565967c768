//! Scenarios, each against a broker over real sockets: connections, messages of all kinds, their
//! headers, and how they are sent. See `support/scenario.rs` for which broker.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scenario.rs"]
mod scenario;

use std::{sync::mpsc::channel, time::Duration};

use scenario::{
    DEADLINE, Stage, next, nothing, numbered, pass_time, queue, send, session, text, texts, topic,
    wait_until,
};
use tidegate::{
    client::{
        AcknowledgeMode, ConnectError, ConnectionError, ConnectionFactory, ReceiveError, SendCause,
    },
    message::{Body, DeliveryMode, MapBody, Message, MessageError, StreamItem},
    wire::Status,
};

const AUTO: AcknowledgeMode = AcknowledgeMode::Auto;
const PERSISTENT: DeliveryMode = DeliveryMode::Persistent;
const NON_PERSISTENT: DeliveryMode = DeliveryMode::NonPersistent;

#[test]
fn a_connection_starts_and_stops_and_closes() {
    let stage = Stage::new();
    let connection = stage.connect();
    connection.start().unwrap();
    connection.stop().unwrap();
    connection.start().unwrap();
    connection.close().unwrap();
}

#[test]
fn a_wrong_password_and_an_unknown_user_are_refused() {
    let stage = Stage::new();
    for (user, password) in [("guest", "wrong"), ("nobody", "x")] {
        let error = stage.open(stage.factory().credentials(user, password).unwrap());
        let Err(ConnectError::Refused { cause, .. }) = error else { panic!("{error:?}") };
        let refused =
            matches!(cause, ConnectionError::Refused { status: Status::INVALID_LOGIN, .. });
        assert!(refused, "{cause:?}");
    }
}

#[test]
fn the_port_mapper_leads_to_the_service() {
    let stage = Stage::new();
    // Of a foreign broker only the service is known.
    let Some(broker) = stage.embedded() else { return };
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address())).unwrap();
    let connection = factory.create_connection().unwrap();
    connection.start().unwrap();
    connection.close().unwrap();
}

#[test]
fn a_queue_keeps_the_order_of_persistent_and_other_messages() {
    let stage = Stage::new();
    for (name, mode) in [("cap.q.np", NON_PERSISTENT), ("cap.q.p", PERSISTENT)] {
        let connection = stage.connect();
        let session = session(&connection, AUTO);
        send(&session, &queue(name), 0..3, mode);
        let consumer = session.create_consumer(&queue(name)).unwrap();
        connection.start().unwrap();
        assert_eq!(texts(&consumer, 3), numbered(0..3));
        nothing(&consumer);
        assert!(consumer.try_receive().unwrap().is_none());
        connection.close().unwrap();
    }
}

/// One message of each kind, and what must arrive.
fn samples() -> Vec<Message> {
    let mut text = Message::text("hello é中😀 text");
    text.set_property("str", "välue").unwrap();
    text.set_property("int", -42_i32).unwrap();
    text.set_property("long", 1_i64 << 40).unwrap();
    text.set_property("bool", true).unwrap();
    text.set_property("byte", 7_i8).unwrap();
    text.set_property("short", -300_i16).unwrap();
    text.set_property("float", 1.5_f32).unwrap();
    text.set_property("double", -2.25_f64).unwrap();
    text.set_correlation_id(Some("corr-1")).unwrap();
    text.set_message_type(Some("type-1")).unwrap();
    let mut bytes = 0x0102_0304_i32.to_be_bytes().to_vec();
    bytes.extend([0, 3, b'u', b't', b'f', 0, 1, 2, 0xFF]);
    bytes.extend(3.5_f64.to_be_bytes());
    let mut map = MapBody::new();
    map.set("s", StreamItem::String("map".into())).set("i", StreamItem::Int(5));
    map.set("l", StreamItem::Long(6)).set("d", StreamItem::Double(7.5));
    map.set("f", StreamItem::Float(1.25)).set("z", StreamItem::Boolean(true));
    map.set("b", StreamItem::Byte(1)).set("h", StreamItem::Short(2));
    map.set("c", StreamItem::Char('C' as u16));
    map.set("raw", StreamItem::Bytes(vec![9, 8, 7].into()));
    let stream = vec![
        StreamItem::String("stream".into()),
        StreamItem::Int(1),
        StreamItem::Long(2),
        StreamItem::Boolean(false),
        StreamItem::Byte(3),
        StreamItem::Short(4),
        StreamItem::Char('x' as u16),
        StreamItem::Float(0.5),
        StreamItem::Double(0.25),
        StreamItem::Bytes(vec![1, 2, 3].into()),
    ];
    // The Java string "obj", serialized.
    let object = [0xAC, 0xED, 0, 5, 0x74, 0, 3, b'o', b'b', b'j'].to_vec();
    let mut plain = Message::plain();
    plain.set_property("only", "props").unwrap();
    vec![
        text,
        Message::bytes(bytes),
        Message::map(map),
        Message::stream(stream),
        Message::object(object),
        plain,
    ]
}

fn types(to_topic: bool, mode: DeliveryMode) {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let name = format!("cap.types.{to_topic}.{mode:?}");
    let destination = if to_topic { topic(&name) } else { queue(&name) };
    let before = to_topic.then(|| session.create_consumer(&destination).unwrap());
    let mut producer = session.create_producer(&destination).unwrap();
    producer.set_delivery_mode(mode);
    connection.start().unwrap();
    let sent = samples();
    for message in &sent {
        producer.send(message.clone()).unwrap();
    }
    let consumer = before.unwrap_or_else(|| session.create_consumer(&destination).unwrap());
    for wanted in sent {
        let got = next(&consumer);
        assert_eq!(got.body().unwrap(), wanted.body().unwrap());
        assert_eq!(got.properties().unwrap(), wanted.properties().unwrap());
        assert_eq!(got.correlation_id(), wanted.correlation_id());
        assert_eq!(got.message_type(), wanted.message_type());
        assert_eq!(got.delivery_mode(), mode);
        assert_eq!(got.destination(), Some(&destination));
        assert!(got.message_id().is_some());
    }
    nothing(&consumer);
    connection.close().unwrap();
}

#[test]
fn each_kind_of_persistent_message_passes_a_queue() {
    types(false, PERSISTENT);
}

#[test]
fn each_kind_of_other_message_passes_a_queue() {
    types(false, NON_PERSISTENT);
}

#[test]
fn each_kind_of_persistent_message_passes_a_topic() {
    types(true, PERSISTENT);
}

#[test]
fn each_kind_of_other_message_passes_a_topic() {
    types(true, NON_PERSISTENT);
}

#[test]
fn a_big_message_arrives_whole() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.big");
    let data: Vec<u8> =
        (0..200 * 1024_usize).map(|i| ((i * 31 + (i >> 8)) & 0xFF).try_into().unwrap()).collect();
    session.create_producer(&queue).unwrap().send(Message::bytes(data.clone())).unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(next(&consumer).body_bytes().unwrap(), data);
    connection.close().unwrap();
}

#[test]
fn a_compressed_message_arrives_as_it_was() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.zip");
    let wanted = "compress me ".repeat(200);
    let mut message = Message::text(wanted.clone());
    message.set_property("JMS_SUN_COMPRESS", true).unwrap();
    session.create_producer(&queue).unwrap().send(message).unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    let got = next(&consumer);
    assert_eq!(text(&got), wanted);
    let packed = got.property_as::<i32>("JMS_SUN_COMPRESSED_SIZE").unwrap().unwrap();
    assert!(packed < 200, "{packed}");
    connection.close().unwrap();
}

#[test]
fn higher_priorities_come_first() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.prio");
    let mut producer = session.create_producer(&queue).unwrap();
    for (n, priority) in (0..).zip([1, 4, 9, 0, 9, 5]) {
        producer.set_priority(priority).unwrap();
        producer.send(Message::text(format!("p{priority}-{n}"))).unwrap();
    }
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(texts(&consumer, 6), ["p9-2", "p9-4", "p5-5", "p4-1", "p1-0", "p0-3"]);
    connection.close().unwrap();
}

#[test]
fn an_expired_message_is_not_delivered_but_kept_as_dead() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.exp");
    let mut producer = session.create_producer(&queue).unwrap();
    producer.set_time_to_live(Some(Duration::from_millis(100)));
    producer.send(Message::text("short")).unwrap();
    producer.set_time_to_live(Some(Duration::from_secs(60)));
    producer.send(Message::text("long")).unwrap();
    pass_time(Duration::from_millis(300));
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    let got = next(&consumer);
    assert_eq!(text(&got), "long");
    assert_eq!(got.expiration() - got.timestamp().unwrap(), 60_000);
    nothing(&consumer);
    let browser = session.create_browser(&scenario::queue("mq.sys.dmq"), None).unwrap();
    let mut reason: Option<Option<String>> = None;
    wait_until("the broker buries the message", || {
        let dead = browser.messages().unwrap().map(Result::unwrap);
        let ours = |message: &Message| message.destination() == Some(&queue);
        let found = dead.filter(ours).last();
        reason = found.map(|dead| dead.property_as("JMS_SUN_DMQ_UNDELIVERED_REASON").unwrap());
        reason.is_some()
    });
    assert_eq!(reason.flatten().as_deref(), Some("EXPIRED"));
    connection.close().unwrap();
}

#[test]
fn a_message_that_expires_in_the_clients_buffer_is_reported_dead() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.exp2");
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    let mut producer = session.create_producer(&queue).unwrap();
    producer.set_time_to_live(Some(Duration::from_millis(100)));
    producer.send(Message::text("short")).unwrap();
    pass_time(Duration::from_millis(300));
    nothing(&consumer);
    connection.close().unwrap();
    if let Some(broker) = stage.embedded() {
        let in_dead_queue = || {
            let all = broker.snapshot().destinations;
            all.iter().find(|one| one.name == "mq.sys.dmq").map_or(0, |dead| dead.messages)
        };
        wait_until("the broker buries the message", || in_dead_queue() == 1);
    }
}

#[test]
fn a_delayed_message_comes_when_it_is_due() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.delay");
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    let mut producer = session.create_producer(&queue).unwrap();
    producer.set_delivery_delay(Some(Duration::from_millis(400)));
    #[allow(clippy::disallowed_methods, reason = "the scenario is about a time")]
    let sent = std::time::Instant::now();
    producer.send(Message::text("later")).unwrap();
    producer.set_delivery_delay(None);
    producer.send(Message::text("now")).unwrap();
    assert_eq!(text(&next(&consumer)), "now");
    let message = next(&consumer);
    assert_eq!(text(&message), "later");
    assert!(sent.elapsed() >= Duration::from_millis(390), "{:?}", sent.elapsed());
    // It was stamped when it was written, a moment after its times were set.
    let delay = message.delivery_time().unwrap() - message.timestamp().unwrap();
    assert!((300..=400).contains(&delay), "{delay}");
    connection.close().unwrap();
}

#[test]
fn a_time_to_live_counts_from_the_send_on_and_must_be_longer_than_the_delay() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.delay.ttl");
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    let mut producer = session.create_producer(&queue).unwrap();
    producer.set_delivery_delay(Some(Duration::from_millis(50)));
    for (time_to_live, fits) in [(20, false), (50, false), (60_000, true)] {
        producer.set_time_to_live(Some(Duration::from_millis(time_to_live)));
        let sent = producer.send(Message::text(time_to_live.to_string()));
        assert_eq!(sent.is_ok(), fits, "{sent:?}");
        if let Err(error) = sent {
            let cause = error.cause();
            let told = SendCause::Message(MessageError::ExpiresUndelivered {
                time_to_live: Duration::from_millis(time_to_live),
                delay: Duration::from_millis(50),
            });
            assert_eq!(cause.to_string(), told.to_string());
            assert_eq!(text(&error.into_inner()), time_to_live.to_string());
        }
    }
    let message = next(&consumer);
    // It was stamped when it was written, a moment later.
    let lives = message.expiration() - message.timestamp().unwrap();
    assert!((59_000..=60_000).contains(&lives), "{lives}");
    nothing(&consumer);
    connection.close().unwrap();
}

#[test]
fn asynchronous_sends_are_completed_and_delivered() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.async");
    let producer = session.create_producer(&queue).unwrap();
    let (told, completed) = channel();
    for name in numbered(0..5) {
        let told = told.clone();
        producer
            .send_async(Message::text(name), move |result| {
                told.send(text(&result.unwrap())).unwrap()
            })
            .unwrap();
    }
    for name in numbered(0..5) {
        assert_eq!(completed.recv_timeout(DEADLINE).unwrap(), name);
    }
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(texts(&consumer, 5), numbered(0..5));
    connection.close().unwrap();
}

#[test]
fn messages_pass_whether_the_brokers_word_is_waited_for_or_not() {
    let stage = Stage::new();
    for (name, word, mode) in
        [("cap.q.noackproduce", "false", PERSISTENT), ("cap.q.ackproduce", "true", NON_PERSISTENT)]
    {
        let attributes = [("imqAckOnProduce", word), ("imqAckOnAcknowledge", word)];
        let connection = stage.connect_with(&attributes);
        let session = session(&connection, AUTO);
        send(&session, &queue(name), 0..3, mode);
        let consumer = session.create_consumer(&queue(name)).unwrap();
        connection.start().unwrap();
        assert_eq!(texts(&consumer, 3), numbered(0..3));
        connection.close().unwrap();
    }
}

#[test]
fn an_idle_connection_pings_and_lives() {
    let stage = Stage::new();
    for answered in [None, Some(Duration::from_secs(3))] {
        let mut factory = stage.factory();
        factory.ping_interval(Some(Duration::from_millis(200))).ping_ack_timeout(answered);
        let connection = stage.open(&factory).unwrap();
        connection.start().unwrap();
        pass_time(Duration::from_millis(900));
        assert!(connection.lost().is_none(), "{:?}", connection.lost());
        connection.close().unwrap();
    }
}

#[test]
fn a_broker_that_goes_says_goodbye() {
    let mut stage = Stage::new();
    // A foreign broker is not ours to end.
    if stage.embedded().is_none() {
        return;
    }
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let consumer = session.create_consumer(&queue("cap.q.goodbye")).unwrap();
    connection.start().unwrap();
    stage.end();
    let error = consumer.receive().unwrap_err();
    let goodbye =
        matches!(error, ReceiveError::Connection(ConnectionError::Goodbye { reason: 1, .. }));
    assert!(goodbye, "{error:?}");
}

#[test]
fn an_empty_text_and_no_text_are_the_same_on_the_wire() {
    let stage = Stage::new();
    let connection = stage.connect();
    let session = session(&connection, AUTO);
    let queue = queue("cap.q.empty");
    send(&session, &queue, 0..1, NON_PERSISTENT);
    session.create_producer(&queue).unwrap().send(Message::text("")).unwrap();
    let consumer = session.create_consumer(&queue).unwrap();
    connection.start().unwrap();
    assert_eq!(text(&next(&consumer)), "m0");
    assert_eq!(next(&consumer).body().unwrap(), Body::Text(None));
    connection.close().unwrap();
}
