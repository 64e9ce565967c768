//! Administration over the wire: requests as messages, answers as objects.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests read clocks for their deadlines, and may fail by panic"
)]

mod support;

use bytes::Bytes;
use support::{
    broker, local,
    raw::{QUEUE, Raw, TOPIC, acknowledge, bodies, body, int, long, status},
    wait_until,
};
use tidegate::{
    broker::{Broker, BrokerConfig},
    wire::{
        Flags, Packet, PacketBuilder, PacketType, Padding, VariableHeader,
        java::{
            JavaClass, JavaDocument, JavaField, JavaObject, TableClass, decode_object,
            encode_object,
        },
    },
};

/// Type bit of a temporary destination.
const TEMPORARY: i32 = 0x10;

/// Somebody who administers, as the reference's tools do it.
struct Admin {
    raw: Raw,
    id: i64,
}

impl Admin {
    fn connect(broker: &Broker) -> Self {
        let mut raw = Raw::connect(broker.admin_address());
        let id = long(&raw.hello(100), "JMQConnectionID");
        assert_eq!(status(&raw.authenticate("admin", "admin")), 200);
        let session = raw.create_session(2);
        assert_eq!(status(&raw.create_destination("answers", QUEUE | TEMPORARY)), 200);
        raw.add_consumer(session, "answers", QUEUE | TEMPORARY, 100);
        raw.start();
        let entrance = raw.create_destination("__JMQAdmin", QUEUE);
        assert_eq!((status(&entrance), int(&entrance, "JMQDestType")), (200, 8353));
        let producer = PacketBuilder::new(PacketType::ADD_PRODUCER)
            .string("JMQDestination", "__JMQAdmin")
            .int("JMQDestType", QUEUE)
            .long("JMQSessionID", session);
        assert_eq!(status(&raw.request(producer)), 200);
        Self { raw, id }
    }

    fn packet(number: i32, reply_to: Option<&str>) -> PacketBuilder {
        let fields = VariableHeader {
            destination: Some(b"__JMQAdmin"),
            reply_to: reply_to.map(str::as_bytes),
            reply_to_class: Some(b"com.sun.messaging.jmq.jmsclient.TemporaryQueueImpl"),
            ..VariableHeader::default()
        };
        PacketBuilder::new(PacketType::OBJECT_MESSAGE)
            .variable(&fields, Padding::Java)
            .unwrap()
            .flags(Flags::QUEUE)
            .int("JMQMessageType", number)
    }

    /// Sends a request and returns the answer.
    fn ask(&mut self, number: i32, more: impl FnOnce(PacketBuilder) -> PacketBuilder) -> Packet {
        let request = more(Self::packet(number, Some("answers")));
        assert_eq!(status(&self.raw.request(request)), 200, "taken");
        let answer = self.raw.message();
        assert_eq!(int(&answer, "JMQMessageType"), number + 1);
        assert!(!answer.header().flags.contains(Flags::PERSISTENT.with(Flags::ACKNOWLEDGE)));
        self.raw.request(acknowledge(&[&answer]));
        answer
    }

    /// The object of an answer that must be a success.
    fn object(
        &mut self,
        number: i32,
        more: impl FnOnce(PacketBuilder) -> PacketBuilder,
    ) -> JavaDocument {
        let answer = self.ask(number, more);
        assert_eq!(status(&answer), 200, "{}", error(&answer));
        decode_object(&answer.body(), 100_000).unwrap()
    }

    fn debug(&mut self, command: &str, kind: &str, target: &str) -> Packet {
        self.ask(72, |request| {
            request
                .string("JMQCommand", command)
                .string("JMQTargetType", kind)
                .string("JMQTarget", target)
        })
    }

    fn query(&mut self, kind: &str, target: &str) -> JavaObject {
        let answer = self.debug("query", kind, target);
        assert_eq!(status(&answer), 200, "{}", error(&answer));
        decode_object(&answer.body(), 10_000).unwrap().root
    }

    fn of_queue(&mut self, name: &str, entry: &str) -> JavaObject {
        self.query("queue", name).entry(entry).unwrap().clone()
    }

    fn create(&mut self, entries: &[(&str, &str)]) -> Packet {
        self.ask(10, |request| request.body(table(entries)))
    }
}

/// What makes a request out of one that has only its number.
type More<'a> = &'a dyn Fn(PacketBuilder) -> PacketBuilder;

fn plain(builder: PacketBuilder) -> PacketBuilder {
    builder
}

fn named(name: &'static str, kind: i32) -> impl Fn(PacketBuilder) -> PacketBuilder {
    move |builder| builder.string("JMQDestination", name).int("JMQDestType", kind)
}

fn error(answer: &Packet) -> String {
    let text = answer.properties().unwrap().string("JMQErrorString").unwrap();
    text.unwrap_or_default().into_owned()
}

fn table(entries: &[(&str, &str)]) -> Bytes {
    let entries = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
    encode_object(&[], &JavaObject::Table(TableClass::Hashtable, entries.collect()))
}

fn rows(document: &JavaDocument) -> &[JavaObject] {
    document.root.elements().unwrap()
}

fn texts(rows: &[JavaObject], entry: &str) -> Vec<String> {
    rows.iter()
        .map(|row| row.entry(entry).and_then(JavaObject::text).unwrap_or("-").into())
        .collect()
}

fn numbers(rows: &[JavaObject], entry: &str) -> Vec<i64> {
    rows.iter().map(|row| row.entry(entry).and_then(JavaObject::number).unwrap_or(-1)).collect()
}

/// A consumer that is asked for by more properties than the support knows.
fn subscribe(
    raw: &mut Raw,
    session: i64,
    topic: &str,
    more: impl Fn(PacketBuilder) -> PacketBuilder,
) -> i64 {
    let request = PacketBuilder::new(PacketType::ADD_CONSUMER)
        .string("JMQDestination", topic)
        .int("JMQDestType", TOPIC)
        .long("JMQSessionID", session)
        .int("JMQSize", 100);
    let reply = raw.request(more(request));
    assert_eq!(status(&reply), 200);
    long(&reply, "JMQConsumerID")
}

#[test]
fn requests_are_answered_as_the_reference_answers_them() {
    let broker = broker(2);
    let mut admin = Admin::connect(&broker);
    let hello = admin.ask(28, |request| request.int("JMQProtocolLevel", 500));
    assert_eq!(hello.header().packet_type, PacketType::OBJECT_MESSAGE);
    assert_eq!(status(&hello), 200);
    let name = hello.properties().unwrap().string("JMQInstanceName").unwrap().unwrap();
    assert_eq!(name, "tidegate");
    let log = admin.ask(24, plain);
    assert_eq!((log.header().packet_type, status(&log)), (PacketType::TEXT_MESSAGE, 501));
    assert!(!error(&log).is_empty());
    for number in [34, 46, 58, 68, 74, 78, 80, 84, 86, 92, 98] {
        let answer = admin.ask(number, plain);
        assert_eq!((status(&answer), error(&answer).is_empty()), (501, false), "{number}");
    }
    // Nothing of it is stored.
    assert!(broker.snapshot().destinations.iter().all(|one| one.name != "__JMQAdmin"));
}

#[test]
fn what_makes_no_sense_is_refused_or_left_alone_and_the_connection_stays() {
    let broker = broker(1);
    let mut admin = Admin::connect(&broker);
    let silent = [
        Admin::packet(42, Some("answers")),
        Admin::packet(1000, Some("answers")),
        Admin::packet(-1, Some("answers")),
        Admin::packet(20, None),
        Admin::packet(20, Some("nowhere")),
    ];
    for request in silent {
        assert_eq!(status(&admin.raw.request(request)), 200);
    }
    assert!(admin.raw.messages_so_far().is_empty());
    let refused: [(i32, More<'_>, i32); 12] = [
        (10, &plain, 400),
        (10, &|request| request.body("no java"), 400),
        (10, &|request| request.body(encode_object(&[], &"text".into())), 400),
        (12, &plain, 400),
        (12, &named("nothing", QUEUE), 404),
        (20, &named("nothing", TOPIC), 404),
        (30, &|request| named("nothing", QUEUE)(request).int("JMQDestState", 4), 400),
        (62, &plain, 400),
        (62, &|request| request.long("JMQTransactionID", 5), 404),
        (70, &plain, 400),
        (
            72,
            &|request| request.string("JMQCommand", "dance").string("JMQTargetType", "queue"),
            400,
        ),
        (14, &|request| request.string("JMQDurableName", "nothing"), 404),
    ];
    for (number, more, wanted) in refused {
        let answer = admin.ask(number, more);
        assert_eq!((status(&answer), error(&answer).is_empty()), (wanted, false), "{number}");
    }
    assert_eq!(status(&admin.ask(28, plain)), 200);
}

#[test]
fn the_entrance_is_for_administrators_only() {
    let broker = broker(1);
    let mut guest = Raw::login(broker.jms_address(), 0);
    let created = guest.create_destination("__JMQAdmin", QUEUE);
    assert_eq!((status(&created), int(&created, "JMQDestType")), (200, QUEUE));
    guest.create_destination("mine", QUEUE);
    let session = guest.create_session(1);
    guest.add_consumer(session, "mine", QUEUE, 10);
    guest.start();
    // A queue like any other.
    assert_eq!(status(&guest.request(Admin::packet(38, Some("mine")))), 200);
    assert!(guest.messages_so_far().is_empty());
    let queue = broker.snapshot().destinations.into_iter().find(|one| one.name == "__JMQAdmin");
    assert_eq!(queue.unwrap().messages, 1);
}

#[test]
fn destinations_are_made_listed_changed_and_destroyed() {
    let broker = broker(2);
    let mut admin = Admin::connect(&broker);
    let made = admin.create(&[
        ("name", "orders"),
        ("type", "queue"),
        ("messages_max", "2"),
        ("limit_behavior", "reject_newest"),
    ]);
    assert_eq!((status(&made), error(&made)), (200, String::new()));
    assert_eq!(status(&admin.create(&[("name", "orders"), ("type", "queue")])), 409);
    assert_eq!(status(&admin.create(&[("name", "orders"), ("type", "topic")])), 200);
    for (entries, part) in [
        (&[("name", "a*"), ("type", "queue")][..], "a*"),
        (&[("name", "mq.sys.x"), ("type", "queue")], "mq.sys.x"),
        (&[("name", "x")], "type"),
        (&[("type", "queue")], "name"),
        (&[("name", "x"), ("type", "pipe")], "pipe"),
        (&[("name", "x"), ("type", "queue"), ("messages_max", "0")], "messages_max"),
        (&[("name", "x"), ("type", "queue"), ("mesages_max", "1")], "messages_max"),
        (
            &[("name", "x"), ("type", "queue"), ("shared_consumers_max", "1")],
            "shared_consumers_max",
        ),
    ] {
        let refused = admin.create(entries);
        assert_eq!(status(&refused), 400, "{entries:?}");
        assert!(error(&refused).contains(part), "{}", error(&refused));
    }

    let mut guest = Raw::login(broker.jms_address(), 0);
    guest.create_destination("orders", QUEUE);
    let sent = ["1", "2", "3"].map(|text| status(&guest.request(Raw::text("orders", QUEUE, text))));
    assert_eq!(sent, [200, 200, 414]);

    let all = admin.object(20, plain);
    let fields = |name| -> Vec<_> {
        rows(&all).iter().map(|row| all.field(row, name).unwrap().clone()).collect()
    };
    let names =
        [JavaObject::from("answers"), "mq.sys.dmq".into(), "orders".into(), "orders".into()];
    assert_eq!(fields("name"), names);
    assert_eq!(fields("type"), [1, 1, 1, 2].map(JavaObject::from));
    assert_eq!(fields("fulltype"), [0x11, 0x1001, 1, 2].map(JavaObject::from));
    assert_eq!(fields("maxMessages"), [100_000, 1000, 2, -1].map(JavaObject::from));
    let one = admin.object(20, named("orders", QUEUE));
    assert_eq!(one.field(&rows(&one)[0], "nMessages"), Some(&2.into()));

    let change = table(&[("name", "orders"), ("type", "queue"), ("messages_max", "3")]);
    assert_eq!(status(&admin.ask(40, |request| request.body(change))), 200);
    assert_eq!(status(&guest.request(Raw::text("orders", QUEUE, "3"))), 200);
    assert_eq!(admin.of_queue("orders", "messages_max"), 3_i64.into());
    assert_eq!(admin.of_queue("orders", "received"), 3_i64.into());
    assert_eq!(admin.of_queue("orders", "origin"), "administered".into());
    let broken = table(&[("messages_max", "4"), ("use_dmq", "perhaps")]);
    let refused = admin.ask(40, |request| named("orders", QUEUE)(request).body(broken));
    assert_eq!(status(&refused), 400);
    assert_eq!(admin.of_queue("orders", "messages_max"), 3_i64.into(), "all or nothing");

    assert_eq!(status(&admin.ask(12, named("orders", QUEUE))), 200);
    assert_eq!(status(&admin.ask(12, named("orders", QUEUE))), 404);
    assert_eq!(status(&guest.request(Raw::text("orders", QUEUE, "4"))), 500);
    assert_eq!(status(&admin.ask(12, named("mq.sys.dmq", QUEUE))), 403);
    let held_back = table(&[("limit_behavior", "FLOW_CONTROL")]);
    let refused = admin.ask(40, |request| named("mq.sys.dmq", QUEUE)(request).body(held_back));
    assert_eq!(status(&refused), 400);
}

#[test]
fn a_change_may_come_as_the_references_object() {
    let broker = broker(1);
    let mut admin = Admin::connect(&broker);
    let field = |kind: u8, name: &'static str, signature: &'static str| JavaField {
        kind,
        name: name.into(),
        signature: signature.into(),
    };
    let class = JavaClass {
        name: "com.sun.messaging.jmq.util.admin.DestinationInfo".into(),
        uid: 7_043_096_792_121_903_858,
        fields: vec![
            field(b'I', "destLimitBehavior", ""),
            field(b'I', "maxMessages", ""),
            field(b'I', "maxProducers", ""),
            field(b'I', "type", ""),
            field(b'I', "updateMask", ""),
            field(b'L', "name", "Ljava/lang/String;"),
        ]
        .into(),
    };
    let info = |behavior: i32, messages: i32, mask: i32| {
        let values = vec![
            behavior.into(),
            messages.into(),
            9_i32.into(),
            QUEUE.into(),
            mask.into(),
            "stock".into(),
        ];
        encode_object(std::slice::from_ref(&class), &JavaObject::Record(0, values))
    };
    let made = admin.ask(10, |request| request.body(info(1, 7, 0x1 | 0x2 | 0x4 | 0x40)));
    assert_eq!((status(&made), error(&made)), (200, String::new()));
    assert_eq!(admin.of_queue("stock", "messages_max"), 7_i64.into());
    assert_eq!(admin.of_queue("stock", "limit_behavior"), "REMOVE_OLDEST".into());
    assert_eq!(admin.of_queue("stock", "producers_max"), 100_i64.into(), "not in the mask");
    let changed = admin.ask(40, |request| request.body(info(3, 8, 0x40)));
    assert_eq!(status(&changed), 200);
    assert_eq!(admin.of_queue("stock", "messages_max"), 7_i64.into());
    assert_eq!(admin.of_queue("stock", "limit_behavior"), "REMOVE_LOW_PRIORITY".into());
}

#[test]
fn a_purge_takes_what_waits_and_leaves_what_is_with_consumers() {
    let broker = broker(2);
    let mut admin = Admin::connect(&broker);
    let mut guest = Raw::login(broker.jms_address(), 0);
    guest.create_destination("q", QUEUE);
    let session = guest.create_session(2);
    guest.add_consumer(session, "q", QUEUE, 1);
    guest.start();
    for text in ["1", "2", "3"] {
        guest.request(Raw::text("q", QUEUE, text));
    }
    let first = guest.message();
    assert_eq!(status(&admin.ask(32, named("q", QUEUE))), 200);
    assert_eq!(admin.of_queue("q", "messages"), 1_i64.into());
    assert_eq!(status(&guest.request(acknowledge(&[&first]))), 200);
    assert_eq!(admin.of_queue("q", "messages"), 0_i64.into());

    guest.create_destination("t", TOPIC);
    guest.request(PacketBuilder::new(PacketType::SET_CLIENTID).string("JMQClientID", "app"));
    let durable =
        subscribe(&mut guest, session, "t", |request| request.string("JMQDurableName", "d"));
    guest.request(PacketBuilder::new(PacketType::DELETE_CONSUMER).long("JMQConsumerID", durable));
    for text in ["1", "2"] {
        guest.request(Raw::text("t", TOPIC, text));
    }
    let durables = admin.object(22, plain);
    assert_eq!(numbers(rows(&durables), "nmessages"), [2]);
    assert_eq!(status(&admin.ask(32, named("t", TOPIC))), 200);
    let durables = admin.object(22, plain);
    assert_eq!(numbers(rows(&durables), "nmessages"), [0]);
}

#[test]
fn paused_consumers_get_nothing_and_paused_producers_no_credit() {
    let broker = broker(2);
    let mut admin = Admin::connect(&broker);
    let mut guest = Raw::login(broker.jms_address(), 0);
    guest.create_destination("q", QUEUE);
    let session = guest.create_session(1);
    guest.add_consumer(session, "q", QUEUE, 10);
    guest.start();
    let pause = |state| move |request| named("q", QUEUE)(request).int("JMQDestState", state);
    assert_eq!(status(&admin.ask(30, pause(1))), 200);
    assert_eq!(admin.of_queue("q", "state"), "consumers paused".into());
    guest.request(Raw::text("q", QUEUE, "kept"));
    assert!(guest.messages_so_far().is_empty());
    assert_eq!(status(&admin.ask(36, named("q", QUEUE))), 200);
    assert_eq!(body(&guest.message()), "kept");

    assert_eq!(status(&admin.ask(30, pause(2))), 200);
    let producer = PacketBuilder::new(PacketType::ADD_PRODUCER)
        .string("JMQDestination", "q")
        .int("JMQDestType", QUEUE)
        .long("JMQSessionID", session);
    let producer = guest.request(producer);
    assert_eq!(int(&producer, "JMQSize"), 0);
    assert_eq!(status(&admin.ask(36, named("q", QUEUE))), 200);
    let resumed = guest.expect(PacketType::RESUME_FLOW);
    assert_eq!(long(&resumed, "JMQProducerID"), long(&producer, "JMQProducerID"));
    assert_eq!(int(&resumed, "JMQSize"), 1000);
    assert_eq!(status(&admin.ask(30, pause(3))), 200);
    assert_eq!(admin.of_queue("q", "state"), "paused".into());
    let service = admin.ask(30, |request| request.string("JMQPauseTarget", "JMQServiceName"));
    assert_eq!(status(&service), 501);
}

#[test]
fn a_paused_topic_holds_all_its_subscriptions() {
    let broker = broker(2);
    let mut admin = Admin::connect(&broker);
    let mut guest = Raw::login(broker.jms_address(), 0);
    guest.request(PacketBuilder::new(PacketType::SET_CLIENTID).string("JMQClientID", "app"));
    guest.create_destination("t", TOPIC);
    let session = guest.create_session(1);
    subscribe(&mut guest, session, "t", plain);
    subscribe(&mut guest, session, "t", |request| request.string("JMQDurableName", "d"));
    guest.start();
    let pause = |request| named("t", TOPIC)(request).int("JMQDestState", 1);
    assert_eq!(status(&admin.ask(30, pause)), 200);
    // One that comes later as well.
    subscribe(&mut guest, session, "t", |request| {
        request.string("JMQSharedSubscriptionName", "s").boolean("JMQJMSShare", true)
    });
    guest.request(Raw::text("t", TOPIC, "kept"));
    assert!(guest.messages_so_far().is_empty());
    // All destinations at once, but that of the answers.
    assert_eq!(status(&admin.ask(30, plain)), 200);
    assert_eq!(admin.of_queue("answers", "state"), "running".into());
    assert_eq!(status(&admin.ask(36, plain)), 200);
    let arrived = [guest.message(), guest.message(), guest.message()];
    assert_eq!(bodies(&arrived), ["kept", "kept", "kept"]);
}

#[test]
fn connections_are_listed_and_ended() {
    for loops in [1, 2] {
        let broker = broker(loops);
        let mut admin = Admin::connect(&broker);
        let mut guest = Raw::connect(broker.jms_address());
        let hello = PacketBuilder::new(PacketType::HELLO)
            .int("JMQProtocolLevel", 500)
            .string("JMQUserAgent", "a test");
        let id = long(&guest.request(hello), "JMQConnectionID");
        assert_eq!(status(&guest.authenticate("guest", "guest")), 200);
        guest.request(PacketBuilder::new(PacketType::SET_CLIENTID).string("JMQClientID", "app"));
        guest.create_destination("q", QUEUE);
        let session = guest.create_session(1);
        guest.add_consumer(session, "q", QUEUE, 10);

        let all = admin.object(16, plain);
        assert_eq!(numbers(rows(&all), "cxnid"), [admin.id, id]);
        assert_eq!(texts(rows(&all), "user"), ["admin", "guest"]);
        assert_eq!(texts(rows(&all), "service"), ["admin", "jms"]);
        assert_eq!(texts(rows(&all), "clientid"), ["-", "app"]);
        assert_eq!(texts(rows(&all), "clientplatform"), ["", "a test"]);
        assert_eq!(texts(rows(&all), "host"), ["127.0.0.1", "127.0.0.1"]);
        assert_eq!(numbers(rows(&all), "nconsumers"), [1, 1]);
        assert_eq!(numbers(rows(&all), "nproducers"), [1, 0]);
        let port = guest.stream.local_addr().unwrap().port();
        assert_eq!(numbers(rows(&all), "port")[1], i64::from(port));
        let of_jms = admin.object(16, |request| request.string("JMQServiceName", "jms"));
        assert_eq!(numbers(rows(&of_jms), "cxnid"), [id]);
        let one = admin.query("connection", &id.to_string());
        assert_eq!(one.entry("consumers").unwrap().elements().unwrap().len(), 1);

        assert_eq!(status(&admin.ask(70, |request| request.long("JMQConnectionID", id))), 200);
        let said = guest.until_end();
        let goodbye = said.iter().find(|one| one.header().packet_type == PacketType::GOODBYE);
        let goodbye = goodbye.unwrap();
        assert_eq!(int(goodbye, "JMQGoodbyeReason"), 3);
        assert_eq!(goodbye.properties().unwrap().boolean("JMQExit").unwrap(), Some(true));
        drop(guest);
        wait_until("the connection is gone", || broker.snapshot().connections == 1);
        assert_eq!(status(&admin.ask(70, |request| request.long("JMQConnectionID", id))), 404);
        assert_eq!(status(&admin.ask(16, |request| request.long("JMQConnectionID", id))), 404);

        // All of a service, but for whoever asks.
        let mut others: Vec<Raw> = (0..3).map(|_| Raw::login(broker.jms_address(), 0)).collect();
        let of_jms = |request: PacketBuilder| request.string("JMQServiceName", "jms");
        assert_eq!(status(&admin.ask(70, of_jms)), 200);
        for other in &mut others {
            assert!(!other.until_end().is_empty());
        }
        let of_admin = |request: PacketBuilder| request.string("JMQServiceName", "admin");
        assert_eq!(status(&admin.ask(70, of_admin)), 200);
        assert_eq!(status(&admin.ask(28, plain)), 200);
    }
}

#[test]
fn consumers_and_producers_are_listed_and_ended() {
    let broker = broker(2);
    let mut admin = Admin::connect(&broker);
    let mut guest = Raw::login(broker.jms_address(), 0);
    guest.create_destination("q", QUEUE);
    let session = guest.create_session(2);
    let consumer = guest.add_consumer(session, "q", QUEUE, 7);
    let producer = guest.request(
        PacketBuilder::new(PacketType::ADD_PRODUCER)
            .string("JMQDestination", "q")
            .int("JMQDestType", QUEUE)
            .long("JMQSessionID", session),
    );
    let producer = long(&producer, "JMQProducerID");
    guest.start();
    guest.request(Raw::text("q", QUEUE, "one"));
    guest.message();

    let of_q = admin.object(18, named("q", QUEUE));
    assert_eq!(numbers(rows(&of_q), "id"), [consumer]);
    assert_eq!(numbers(rows(&of_q), "window"), [7]);
    assert_eq!(numbers(rows(&of_q), "unacknowledged"), [1]);
    assert_eq!(texts(rows(&of_q), "user"), ["guest"]);
    let all = admin.object(18, plain);
    assert_eq!(rows(&all).len(), 2, "that of the answers too");

    let list = admin.debug("list", "producers", "");
    let list = decode_object(&list.body(), 10_000).unwrap().root;
    let one = list.entry(&producer.to_string()).unwrap();
    assert_eq!(one.entry("destination"), Some(&"q".into()));
    assert_eq!(one.entry("user"), Some(&"guest".into()));
    let of_q = admin.ask(72, |request| {
        let request = request.string("JMQCommand", "list").string("JMQTargetType", "producers");
        named("q", QUEUE)(request)
    });
    assert_eq!(decode_object(&of_q.body(), 10_000).unwrap().root.entries().unwrap().len(), 1);

    assert_eq!(status(&admin.debug("destroy", "consumer", &consumer.to_string())), 200);
    assert_eq!(status(&admin.debug("destroy", "consumer", &consumer.to_string())), 404);
    assert_eq!(status(&admin.debug("destroy", "consumer", "many")), 400);
    // What it had goes to another one, flagged.
    let mut other = Raw::login(broker.jms_address(), 0);
    let session = other.create_session(1);
    other.add_consumer(session, "q", QUEUE, 7);
    other.start();
    let again = other.message();
    assert!(again.header().flags.contains(Flags::REDELIVERED));
    assert_eq!(status(&admin.debug("destroy", "producer", &producer.to_string())), 200);
    assert_eq!(status(&admin.debug("destroy", "producer", &producer.to_string())), 404);
    assert_eq!(admin.of_queue("q", "producers"), 0_i64.into());
}

#[test]
fn durable_subscriptions_are_listed_purged_and_ended() {
    let broker = broker(2);
    let mut admin = Admin::connect(&broker);
    let mut guest = Raw::login(broker.jms_address(), 0);
    guest.request(PacketBuilder::new(PacketType::SET_CLIENTID).string("JMQClientID", "app"));
    guest.create_destination("t", TOPIC);
    let session = guest.create_session(1);
    let one = subscribe(&mut guest, session, "t", |request| request.string("JMQDurableName", "d1"));
    subscribe(&mut guest, session, "t", |request| request.string("JMQDurableName", "d2"));
    guest.request(Raw::text("t", TOPIC, "kept"));
    let list = admin.object(22, plain);
    assert_eq!(texts(rows(&list), "name"), ["d1", "d2"]);
    assert_eq!(texts(rows(&list), "clientid"), ["app", "app"]);
    assert_eq!(texts(rows(&list), "destination"), ["t", "t"]);
    assert_eq!(numbers(rows(&list), "nconsumers"), [1, 1]);
    assert_eq!(numbers(rows(&list), "nmessages"), [1, 1]);

    let d1 = |request: PacketBuilder| {
        request.string("JMQDurableName", "d1").string("JMQClientID", "app")
    };
    assert_eq!(status(&admin.ask(14, d1)), 409, "in use");
    guest.request(PacketBuilder::new(PacketType::DELETE_CONSUMER).long("JMQConsumerID", one));
    assert_eq!(status(&admin.ask(66, d1)), 200);
    let list = admin.object(22, |request| request.string("JMQDestination", "t"));
    assert_eq!(numbers(rows(&list), "nmessages"), [0, 1]);
    assert_eq!(status(&admin.ask(14, d1)), 200);
    assert_eq!(status(&admin.ask(14, d1)), 404);
    assert_eq!(texts(rows(&admin.object(22, plain)), "name"), ["d2"]);
}

#[test]
fn transactions_are_listed_and_decided() {
    let broker = broker(2);
    let mut admin = Admin::connect(&broker);
    let mut guest = Raw::login(broker.jms_address(), 0);
    guest.create_destination("q", QUEUE);
    let session = guest.create_session(0);
    let start = PacketBuilder::new(PacketType::START_TRANSACTION).long("JMQSessionID", session);
    let id = long(&guest.request(start), "JMQTransactionID");
    let fields = VariableHeader {
        destination: Some(b"q"),
        transaction_id: Some(id),
        ..VariableHeader::default()
    };
    let sent = PacketBuilder::new(PacketType::TEXT_MESSAGE)
        .variable(&fields, Padding::Java)
        .unwrap()
        .flags(Flags::QUEUE)
        .body("x");
    assert_eq!(status(&guest.request(sent)), 200);
    let answer = admin.ask(60, plain);
    assert_eq!((status(&answer), int(&answer, "JMQQuantity")), (200, 1));
    let list = decode_object(&answer.body(), 1000).unwrap();
    assert_eq!(numbers(rows(&list), "txnid"), [id]);
    assert_eq!(numbers(rows(&list), "nmsgs"), [1]);
    assert_eq!(numbers(rows(&list), "state"), [1]);
    assert_eq!(texts(rows(&list), "user"), ["guest"]);
    let it = |request: PacketBuilder| request.long("JMQTransactionID", id);
    let commit = admin.ask(62, it);
    assert_ne!(status(&commit), 200, "only what is prepared is committed from outside");
    assert!(!error(&commit).is_empty());
    assert_eq!(status(&admin.ask(64, it)), 200);
    assert_eq!(status(&admin.ask(60, it)), 404);
    assert_eq!(admin.of_queue("q", "messages"), 0_i64.into());
}

#[test]
fn settings_are_told_and_some_of_them_changed() {
    let broker = broker(2);
    let mut admin = Admin::connect(&broker);
    let told = admin.object(54, plain).root;
    assert!(matches!(told, JavaObject::Table(TableClass::Properties, _)));
    assert_eq!(told.entry("autocreate_queue"), Some(&"true".into()));
    assert_eq!(told.entry("imq.autocreate.queue"), Some(&"true".into()));
    assert_eq!(told.entry("imq.instancename"), Some(&"tidegate".into()));
    assert_eq!(told.entry("queue.messages_max"), Some(&"100000".into()));

    let update = |admin: &mut Admin, entries: &[(&str, &str)]| {
        let body = table(entries);
        admin.ask(56, |request| request.body(body))
    };
    let changed = update(
        &mut admin,
        &[("imq.autocreate.queue", "false"), ("messages_max", "2"), ("queue.messages_max", "7")],
    );
    assert_eq!((status(&changed), error(&changed)), (200, String::new()));
    let mut guest = Raw::login(broker.jms_address(), 0);
    assert_eq!(status(&guest.create_destination("new", QUEUE)), 404);
    assert_eq!(status(&update(&mut admin, &[("autocreate_queue", "true")])), 200);
    assert_eq!(status(&guest.create_destination("new", QUEUE)), 200);
    assert_eq!(admin.of_queue("new", "messages_max"), 7_i64.into());
    let sent = ["1", "2", "3"].map(|text| status(&guest.request(Raw::text("new", QUEUE, text))));
    assert_eq!(sent, [200, 200, 414], "the broker as a whole is full");

    for (entries, wanted, part) in [
        (&[("loops", "2")][..], 405, "loops"),
        (&[("lopps", "2")], 400, "\"loops\""),
        (&[("messages_max", "0")], 400, "messages_max"),
        (&[("messages_max", "9"), ("jms", "127.0.0.1:1")], 405, "jms"),
    ] {
        let refused = update(&mut admin, entries);
        assert_eq!(status(&refused), wanted, "{entries:?}");
        assert!(error(&refused).contains(part), "{}", error(&refused));
    }
    let broker_now = admin.query("broker", "");
    assert_eq!(broker_now.entry("messages_max"), Some(&2_i64.into()), "all or nothing");
    assert_eq!(broker_now.entry("messages"), Some(&2_i64.into()));
    assert_eq!(broker_now.entry("memory_level"), Some(&"green".into()));
}

#[test]
fn services_and_counters_are_told() {
    let broker = broker(1);
    let mut admin = Admin::connect(&broker);
    let services = admin.object(26, plain);
    assert_eq!(texts(rows(&services), "name"), ["jms", "admin"]);
    assert_eq!(texts(rows(&services), "type"), ["NORMAL", "ADMIN"]);
    let ports = [broker.jms_address().port(), broker.admin_address().port()].map(i64::from);
    assert_eq!(numbers(rows(&services), "port"), ports);
    let unknown = admin.ask(26, |request| request.string("JMQServiceName", "other"));
    assert_eq!(status(&unknown), 404);
    let counters = admin.object(52, plain).root;
    assert_eq!(counters.entry("connections"), Some(&1_i64.into()));
}

#[test]
fn answers_come_past_the_limits_of_their_place() {
    let mut config = BrokerConfig::default();
    config.listen = local();
    config.set("queue.message_bytes_max", "200").unwrap();
    let broker = Broker::start(config).unwrap();
    let mut admin = Admin::connect(&broker);
    assert!(admin.object(54, plain).root.entries().unwrap().len() > 50);
}

#[test]
fn a_shutdown_is_answered_and_everybody_is_told() {
    let broker = broker(2);
    let mut admin = Admin::connect(&broker);
    let mut guest = Raw::login(broker.jms_address(), 0);
    let unserved: [More<'_>; 2] =
        [&|request| request.boolean("JMQRestart", true), &|request| request.int("JMQTime", 10)];
    for more in unserved {
        assert_eq!(status(&admin.ask(38, more)), 501);
    }
    let request = Admin::packet(38, Some("answers"));
    admin.raw.send(request);
    let answer = admin.raw.message();
    assert_eq!((int(&answer, "JMQMessageType"), status(&answer)), (39, 200));
    let goodbye = guest.expect(PacketType::GOODBYE);
    assert_eq!(int(&goodbye, "JMQGoodbyeReason"), 1);
    drop((guest, admin));
    broker.end().wait();
}
