//! As `client_capture.rs`: how connections begin, are lost and come back.
#![cfg(all(feature = "client", feature = "cli"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "support/scripted.rs"]
mod scripted;

#[path = "support/replay.rs"]
mod replay;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    thread,
};

use replay::{recording, replay, scenario, scenario_lines};
use scripted::{DEADLINE, queue};
use tidegate::{
    client::{
        AcknowledgeMode, ConnectError, ConnectionError, Consumer, ConsumerOptions, ReceiveError,
        Session,
    },
    message::{Destination, Message},
    wire::Status,
};

const AUTO: AcknowledgeMode = AcknowledgeMode::Auto;
const CLIENT: AcknowledgeMode = AcknowledgeMode::Client;

fn next(consumer: &Consumer) -> Message {
    consumer.receive_timeout(DEADLINE).unwrap().expect("a message comes in time")
}

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

/// What the file of a recorded reconnect shows, in a queue session of this mode. `go_on` gets the
/// first message that follows.
fn reconnect(name: &str, mode: AcknowledgeMode, go_on: impl FnOnce(&Session, &Consumer)) {
    let number = mode as i32 + 1;
    let mut lines = recording(name);
    // The Java client has its consumers in a table, and registers them as they come there.
    let again = lines.iter().rposition(|line| line.event.as_deref() == Some("open")).unwrap();
    lines[again + 14..again + 22].rotate_left(4);
    let attributes = [
        ("imqReconnectEnabled", "true"),
        ("imqReconnectAttempts", "3"),
        ("imqReconnectInterval", "1"),
        ("imqAddressListIterations", "3"),
    ];
    scenario_lines(lines, &attributes, |connection| {
        connection.set_client_id(&format!("cap-reconnect-{number}")).unwrap();
        let session = |mode| connection.create_session(mode).unwrap();
        let (sending, receiving, subscribed) = (session(AUTO), session(mode), session(AUTO));
        let queue = queue(&format!("cap.q.reconnect.{number}"));
        let producer = sending.create_producer(&queue).unwrap();
        for n in 0..3 {
            producer.send(Message::text(format!("m{n}"))).unwrap();
        }
        let consumer = receiving.create_consumer(&queue).unwrap();
        let topic = Destination::topic(format!("cap.t.reconnect.{number}")).unwrap();
        let mut options = ConsumerOptions::new();
        options.durable("rs");
        let subscriber = subscribed.create_consumer_with(&topic, &options).unwrap();
        let before = connection.id();
        connection.start().unwrap();
        assert_eq!(text(&next(&consumer)), "m0");
        receiving.acknowledge().unwrap();
        // Cut here. The recorded application sends when all is restored, and so does this one.
        while connection.id() == before {
            thread::yield_now();
        }
        producer.send(Message::text("m3")).unwrap();
        go_on(&receiving, &consumer);
        subscriber.close().unwrap();
        subscribed.unsubscribe("rs").unwrap();
        (sending, receiving, subscribed, consumer, producer)
    });
}

fn the_rest(consumer: &Consumer) {
    let got: Vec<_> = (0..3).map(|_| next(consumer)).collect();
    assert_eq!(got.iter().map(text).collect::<Vec<_>>(), ["m1", "m2", "m3"]);
    let flags: Vec<_> = got.iter().map(Message::is_redelivered).collect();
    assert_eq!(flags, [true, true, false]);
}

#[test]
fn a_reconnect_is_said_as_the_java_client_says_it() {
    reconnect("reconnect_auto_ack.jsonl", AUTO, |_session, consumer| the_rest(consumer));
}

#[test]
fn a_reconnect_and_recover_is_said_as_the_java_client_says_it() {
    reconnect("reconnect_client_ack.jsonl", CLIENT, |session, consumer| {
        // The Java client demands it, for messages that waited in it. Nothing that ours handed out
        // was lost, so it would have gone on without.
        session.recover().unwrap();
        the_rest(consumer);
        session.acknowledge().unwrap();
    });
}

#[test]
fn what_a_lost_connection_had_comes_again_over_another_one() {
    replay("redelivery_after_disconnect.jsonl", |factory| {
        let connection = factory.create_connection().unwrap();
        let (sending, receiving) =
            (connection.create_session(AUTO).unwrap(), connection.create_session(CLIENT).unwrap());
        let queue = queue("cap.q.lost");
        let producer = sending.create_producer(&queue).unwrap();
        for n in 0..4 {
            producer.send(Message::text(format!("m{n}"))).unwrap();
        }
        producer.close().unwrap();
        let consumer = receiving.create_consumer(&queue).unwrap();
        connection.start().unwrap();
        assert_eq!(text(&next(&consumer)), "m0");
        receiving.acknowledge().unwrap();
        // Two more, or the end, which comes at once here.
        while let Ok(Some(message)) = consumer.receive() {
            assert_ne!(text(&message), "m0");
        }
        assert!(connection.lost().is_some());
        let other = factory.create_connection().unwrap();
        let again = other.create_session(AUTO).unwrap();
        let consumer = again.create_consumer(&queue).unwrap();
        other.start().unwrap();
        for wanted in ["m1", "m2", "m3"] {
            let message = next(&consumer);
            assert_eq!((text(&message).as_str(), message.is_redelivered()), (wanted, true));
        }
        other.close().unwrap();
        (connection, other, again, consumer)
    });
}

#[test]
fn a_broker_that_says_goodbye_is_the_reason_of_the_end() {
    scenario("broker_goodbye.jsonl", &[], |connection| {
        let session = connection.create_session(AUTO).unwrap();
        let consumer = session.create_consumer(&queue("cap.q.goodbye")).unwrap();
        connection.start().unwrap();
        let error = consumer.receive().unwrap_err();
        let goodbye = |cause: &ConnectionError| {
            matches!(cause, ConnectionError::Goodbye { reason: 1, exit: false, .. })
        };
        assert!(matches!(&error, ReceiveError::Connection(cause) if goodbye(cause)), "{error:?}");
    });
}

#[test]
fn a_refused_login_is_told_with_the_status() {
    let unknown = [("imqDefaultUsername", "nobody")];
    for (name, attributes) in [("auth_fail.jsonl", &[][..]), ("auth_unknown_user.jsonl", &unknown)]
    {
        replay(name, |factory| {
            let mut factory = factory.clone();
            factory.set_attributes(attributes.iter().copied()).unwrap();
            let error = factory.create_connection().unwrap_err();
            let ConnectError::Refused { cause, .. } = &error else { panic!("{error:?}") };
            let ConnectionError::Refused { status, .. } = cause else { panic!("{cause:?}") };
            assert_eq!(*status, Status::INVALID_LOGIN);
        });
    }
}

/// Recordings that no test of the client plays, and why.
const NOT_PLAYED: &[(&str, &str)] = &[
    ("portmapper", "it is text; `client_addresses.rs` asks a port mapper"),
    ("ping", "when its pings go is up to clocks; `client_broker.rs` looks at ours"),
    ("ping_with_reply", "as ping"),
    ("expiry", "nothing differs from what others play but the expiration that its broker applies"),
    (
        "types_topic_persistent",
        "acknowledgements cross sends as threads race; the queue's are played",
    ),
    ("types_topic_nonpersistent", "as types_topic_persistent"),
    (
        "queue_listener_auto",
        "as types_topic_persistent; ack_dups_ok has a listener that does not race",
    ),
    (
        "consumer_flow",
        "its acknowledgements cross messages; `client_receive.rs` counts the windows",
    ),
    ("connection_flow", "as consumer_flow"),
    ("connection_flow_count_only", "as consumer_flow"),
    ("cclient_text_bytes_auto", "another client, that says the same in other words"),
    ("cclient_tx", "as cclient_text_bytes_auto"),
    ("cclient_client_ack_recover", "as cclient_text_bytes_auto"),
    ("cclient_request_reply", "as cclient_text_bytes_auto"),
    ("cclient_durable", "as cclient_text_bytes_auto"),
];

#[test]
fn each_recording_is_played_or_it_is_said_why_not() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let sources: String = names(&tests)
        .iter()
        .filter(|name| name.starts_with("client_capture"))
        .map(|name| fs::read_to_string(tests.join(name)).unwrap())
        .collect();
    let reasons: BTreeMap<_, _> = NOT_PLAYED.iter().copied().collect();
    let recordings: BTreeSet<_> = names(&tests.join("vectors"))
        .iter()
        .filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned))
        .collect();
    for name in &recordings {
        let played = sources.contains(&format!("\"{name}.jsonl\""));
        let excused = reasons.contains_key(name.as_str());
        assert!(played != excused, "{name}: played {played}, excused {excused}");
    }
    assert!(reasons.keys().all(|name| recordings.contains(*name)));
}
