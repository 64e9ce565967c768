//! A broker whose disk fails under it, and the order in which it syncs and answers.
#![cfg(all(feature = "cli", feature = "unstable-internals", target_os = "linux"))]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod cli_support;
mod faults_support;

use std::{fs, path::Path, thread};

use cli_support::{Running, tidegate, wait_for};
use faults_support::{Faults, folder};
use tidegate::{
    client::{AcknowledgeMode, Connection, ConnectionFactory, Producer, Session},
    message::{DeliveryMode, Destination, Message},
    wire::PacketType,
};

/// A broker with its messages in a directory, and a fault layer under it.
struct Kept {
    running: Running,
    address: String,
}

impl Kept {
    fn start(directory: &Path, faults: Option<&Faults>) -> Self {
        let place = directory.to_str().unwrap();
        let mut command = tidegate([
            "broker",
            "--listen",
            "127.0.0.1:0",
            "--jms",
            "127.0.0.1:0",
            "--data",
            place,
        ]);
        if let Some(faults) = faults {
            faults.set(&mut command, directory);
        }
        let running = Running::start(command);
        let address = format!("mqtcp://{}/jms", running.line("service jms "));
        running.line("ready");
        Self { running, address }
    }

    fn connect(&self) -> Connection {
        let mut factory = ConnectionFactory::new();
        factory.address_list(&self.address).unwrap();
        let connection = factory.create_connection().unwrap();
        connection.start().unwrap();
        connection
    }
}

fn queue(name: &str) -> Destination {
    Destination::queue(name).unwrap()
}

fn producer(session: &Session, name: &str, mode: DeliveryMode) -> Producer {
    let mut producer = session.create_producer(&queue(name)).unwrap();
    producer.set_delivery_mode(mode);
    producer
}

fn text(message: &Message) -> String {
    message.body_text().unwrap().unwrap_or_default().into_owned()
}

#[test]
fn after_a_failed_sync_nothing_persistent_is_taken_until_the_next_start() {
    let folder = folder();
    let directory = folder.path().join("data");
    fs::create_dir(&directory).unwrap();
    let armed = folder.path().join("armed");
    // One sync takes long, so that all the others wait for the next, which fails; then syncs work.
    let faults = Faults::at(1, "delay,eio")
        .of("fdatasync", armed.clone())
        .traced_to(folder.path().join("trace"));
    let broker = Kept::start(&directory, Some(&faults));
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Client).unwrap();
    let persistent = producer(&session, "kept", DeliveryMode::Persistent);
    for number in 0..3 {
        persistent.send(Message::text(format!("before {number}"))).unwrap();
    }
    let consumer = session.create_consumer(&queue("kept")).unwrap();
    assert_eq!(text(&consumer.receive().unwrap().unwrap()), "before 0");
    let others: Vec<_> = (0..8).map(|_| broker.connect()).collect();
    let prepared: Vec<_> = others
        .iter()
        .map(|connection| {
            let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
            (producer(&session, "kept", DeliveryMode::Persistent), session)
        })
        .collect();

    fs::write(&armed, []).unwrap();
    let first = thread::scope(|scope| {
        let first = scope.spawn(|| persistent.send(Message::text("first")).is_ok());
        wait_for("the long sync", || {
            faults.lines().iter().any(|line| line.starts_with("1 fdatasync")).then_some(())
        });
        let waiting: Vec<_> = prepared
            .iter()
            .enumerate()
            .map(|(number, (producer, _))| {
                scope.spawn(move || producer.send(Message::text(format!("waiting {number}"))))
            })
            .collect();
        for sent in waiting {
            let error = sent.join().unwrap().unwrap_err().to_string();
            assert!(!error.contains("timed out"), "{error}");
        }
        first.join().unwrap()
    });
    assert!(first, "its sync went well");

    // Syncs would work again, and nobody knows what the last one lost.
    assert!(persistent.send(Message::text("later")).is_err());
    assert!(session.acknowledge().is_err());
    let passing = producer(&session, "passing", DeliveryMode::NonPersistent);
    passing.send(Message::text("goes on")).unwrap();
    let passer = connection.create_session(AcknowledgeMode::Auto).unwrap();
    let taker = passer.create_consumer(&queue("passing")).unwrap();
    assert_eq!(text(&taker.receive().unwrap().unwrap()), "goes on");
    broker.running.signal("KILL");
    broker.running.finish();

    let broker = Kept::start(&directory, None);
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Auto).unwrap();
    persistent_again(&session);
    let consumer = session.create_consumer(&queue("kept")).unwrap();
    let mut found = Vec::new();
    loop {
        let message = text(&consumer.receive().unwrap().unwrap());
        if message == "the last" {
            break;
        }
        found.push(message);
    }
    found.retain(|message| !message.starts_with("waiting"));
    assert_eq!(found, ["before 0", "before 1", "before 2", "first"]);
}

fn persistent_again(session: &Session) {
    let persistent = producer(session, "kept", DeliveryMode::Persistent);
    persistent.send(Message::text("the last")).unwrap();
}

#[test]
fn every_reply_is_sent_after_the_sync_has_returned() {
    let folder = folder();
    let directory = folder.path().join("data");
    fs::create_dir(&directory).unwrap();
    let faults = Faults::traced(folder.path().join("trace"));
    let broker = Kept::start(&directory, Some(&faults));
    let connection = broker.connect();
    let session = connection.create_session(AcknowledgeMode::Client).unwrap();
    let persistent = producer(&session, "q", DeliveryMode::Persistent);
    let synced_before = |reply: PacketType, work: &dyn Fn()| {
        let before = faults.lines().len();
        work();
        let lines = faults.lines().split_off(before);
        let synced = lines.iter().position(|line| line == "returned fdatasync");
        // The type of a packet is in its bytes 6 and 7.
        let kind = format!("{:04x}", reply.0);
        let is_reply = |line: &String| {
            line.starts_with("sent")
                && line.rsplit(' ').next().and_then(|hex| hex.get(12..16)) == Some(&kind)
        };
        let replied = lines.iter().position(is_reply);
        let (Some(synced), Some(replied)) = (synced, replied) else {
            panic!("{synced:?} {replied:?} {kind} {lines:#?}")
        };
        assert!(synced < replied, "{lines:#?}");
    };
    synced_before(PacketType::SEND_REPLY, &|| {
        persistent.send(Message::text("one")).unwrap();
    });
    let consumer = session.create_consumer(&queue("q")).unwrap();
    assert_eq!(text(&consumer.receive().unwrap().unwrap()), "one");
    synced_before(PacketType::ACKNOWLEDGE_REPLY, &|| session.acknowledge().unwrap());
    let transacted = connection.create_session(AcknowledgeMode::Transacted).unwrap();
    let persistent = producer(&transacted, "q", DeliveryMode::Persistent);
    persistent.send(Message::text("two")).unwrap();
    synced_before(PacketType::COMMIT_TRANSACTION_REPLY, &|| transacted.commit().unwrap());
}
