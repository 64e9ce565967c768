//! Who may connect to which service, and what becomes of a connection whose client comes back.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests read clocks for their deadlines, and may fail by panic"
)]

mod support;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use support::{
    broker,
    raw::{QUEUE, Raw, TOPIC, body, delivery_count, flags, int, long, status},
    wait_until,
};
use tidegate::{
    broker::Broker,
    wire::{Packet, PacketBuilder, PacketType, portmapper::PortTable},
};

fn set_client_id(raw: &mut Raw, id: &str, more: impl Fn(PacketBuilder) -> PacketBuilder) -> i32 {
    let wish = PacketBuilder::new(PacketType::SET_CLIENTID).string("JMQClientID", id);
    status(&raw.request(more(wish)))
}

fn plain(builder: PacketBuilder) -> PacketBuilder {
    builder
}

/// Logs in as a client that has lost the connection `previous`.
fn hello_again(address: SocketAddr, previous: i64) -> Raw {
    let mut raw = Raw::connect(address);
    let hello = PacketBuilder::new(PacketType::HELLO)
        .int("JMQProtocolLevel", 500)
        .int("JMQRBufferSize", 100)
        .boolean("JMQReconnectable", true)
        .long("JMQConnectionID", previous);
    let reply = raw.request(hello);
    assert_eq!(status(&reply), 200);
    assert_ne!(long(&reply, "JMQConnectionID"), previous);
    raw
}

/// Logs in and returns the connection's id.
fn login(address: SocketAddr) -> (Raw, i64) {
    let mut raw = Raw::connect(address);
    let id = long(&raw.hello(100), "JMQConnectionID");
    assert_eq!(status(&raw.authenticate("guest", "guest")), 200);
    (raw, id)
}

fn is_ended(raw: &mut Raw) -> bool {
    raw.until_end().iter().all(|packet| packet.header().packet_type != PacketType::PING_REPLY)
}

#[test]
fn the_port_table_has_a_line_for_administrators() {
    let broker = broker(1);
    let mut stream = TcpStream::connect(broker.port_mapper_address()).unwrap();
    stream.write_all(b"101\n").unwrap();
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    let table = PortTable::decode(&text).unwrap();
    let found = table.services.iter().find(|one| one.kind == "ADMIN").unwrap();
    assert_eq!((found.name.as_str(), found.protocol.as_str()), ("admin", "tcp"));
    assert_eq!(found.port, broker.admin_address().port());
    assert!(table.services.iter().any(|one| one.kind == "NORMAL" && one.name == "jms"));
}

#[test]
fn only_administrators_log_in_to_the_admin_service() {
    let broker = broker(2);
    let mut admin = Raw::connect(broker.admin_address());
    let hello = admin.hello(0);
    assert_eq!(hello.properties().unwrap().string("JMQService").unwrap().unwrap(), "admin");
    assert_eq!(status(&admin.authenticate("admin", "admin")), 200);
    assert_eq!(status(&admin.request(PacketBuilder::new(PacketType::CREATE_SESSION))), 200);

    let mut guest = Raw::connect(broker.admin_address());
    guest.hello(0);
    assert_eq!(status(&guest.authenticate("guest", "guest")), 413);
    let said: Vec<Packet> = guest.until_end();
    assert_eq!(said.last().unwrap().header().packet_type, PacketType::GOODBYE);

    // An administrator may use the other service as well.
    let mut both = Raw::connect(broker.jms_address());
    both.hello(0);
    assert_eq!(status(&both.authenticate("admin", "admin")), 200);
}

#[test]
fn a_login_with_the_admin_key_is_not_served() {
    let broker = broker(1);
    let mut raw = Raw::connect(broker.admin_address());
    let hello = PacketBuilder::new(PacketType::HELLO)
        .int("JMQProtocolLevel", 350)
        .string("JMQAuthType", "jmqadminkey");
    raw.request(hello);
    let refused = raw.expect(PacketType::AUTHENTICATE_REQUEST);
    assert_eq!(status(&refused), 403);
    assert_eq!(raw.until_end().last().unwrap().header().packet_type, PacketType::GOODBYE);
}

#[test]
fn administrators_still_get_in_when_all_places_are_taken() {
    let mut config = tidegate::broker::BrokerConfig::default();
    config.listen = support::local();
    config.set("connections_max", "1").unwrap();
    let broker = Broker::start(config).unwrap();
    let _only = Raw::login(broker.jms_address(), 0);
    let mut refused = Raw::connect(broker.jms_address());
    assert!(refused.until_end().is_empty());
    Raw::administer(broker.admin_address());
}

#[test]
fn a_client_that_comes_back_finds_its_old_connection_gone() {
    for loops in [1, 2] {
        let broker = broker(loops);
        let address = broker.jms_address();
        for round in 0..20 {
            // The connection of the round before may not be gone yet.
            let (queue, id) = (format!("q{round}"), format!("app{round}"));
            let (mut old, previous) = login(address);
            assert_eq!(set_client_id(&mut old, &id, plain), 200);
            old.create_destination(&queue, QUEUE);
            let session = old.create_session(2);
            old.add_consumer(session, &queue, QUEUE, 10);
            old.start();
            for text in ["one", "two"] {
                old.request(Raw::text(&queue, QUEUE, text));
            }
            assert_eq!((body(&old.message()), body(&old.message())), ("one".into(), "two".into()));

            // The old connection is still there when the new one logs in, and everything the client
            // asks for next is on its way before the broker has said anything.
            let mut new = hello_again(address, previous);
            let challenge = new.authenticate("guest", "guest");
            assert_eq!(status(&challenge), 200);
            assert_eq!(set_client_id(&mut new, &id, plain), 200, "its client id is free");
            let session = new.create_session(2);
            new.add_consumer(session, &queue, QUEUE, 10);
            new.start();
            let again = new.message();
            assert_eq!((body(&again), delivery_count(&again)), ("one".into(), 2));
            assert!(flags(&again).contains('R'));
            assert_eq!(body(&new.message()), "two");
            assert!(is_ended(&mut old), "the old one is closed");
        }
        wait_until("one connection is left", || broker.snapshot().connections <= 1);
    }
}

#[test]
fn what_was_sent_behind_the_login_waits_with_it() {
    let broker = broker(2);
    let address = broker.jms_address();
    let (mut old, previous) = login(address);
    assert_eq!(set_client_id(&mut old, "app", plain), 200);
    let mut new = hello_again(address, previous);
    // The proof and everything behind it in one write.
    let nonce = new.expect(PacketType::AUTHENTICATE_REQUEST);
    let nonce = body(&nonce);
    let hash = tidegate::internals::auth::stored_hash("guest", "guest");
    let response = tidegate::internals::auth::digest_response(&hash, &nonce);
    let proof = PacketBuilder::new(PacketType::AUTHENTICATE)
        .string("JMQAuthType", "digest")
        .body(tidegate::internals::auth::authenticate_body("guest", &response).unwrap());
    let rest = [
        PacketBuilder::new(PacketType::SET_CLIENTID).string("JMQClientID", "app"),
        PacketBuilder::new(PacketType::CREATE_SESSION),
        PacketBuilder::new(PacketType::PING),
    ];
    let mut bytes = Vec::new();
    for (id, builder) in (100..).zip([proof].into_iter().chain(rest)) {
        let flags = tidegate::wire::Flags::ACKNOWLEDGE;
        bytes.extend_from_slice(new.stamp(builder.consumer_id(id).flags(flags)).raw());
    }
    new.send_bytes(&bytes);
    for id in 100..104 {
        assert_eq!(status(&new.reply(id)), 200, "reply {id}");
    }
    assert!(is_ended(&mut old));
}

#[test]
fn a_connection_of_somebody_else_is_left_alone() {
    let broker = broker(2);
    let address = broker.jms_address();
    let (mut old, previous) = login(address);
    let mut other = hello_again(address, previous);
    assert_eq!(status(&other.authenticate("admin", "admin")), 200);
    let mut failed = hello_again(address, previous);
    assert_eq!(status(&failed.authenticate("guest", "wrong")), 413);
    for nobody in [0, -1, previous + 1_000_000] {
        let mut new = hello_again(address, nobody);
        assert_eq!(status(&new.authenticate("guest", "guest")), 200);
    }
    assert_eq!(status(&old.request(PacketBuilder::new(PacketType::PING))), 200);
}

#[test]
fn client_ids_are_shared_by_those_who_are_willing() {
    let broker = broker(2);
    let address = broker.jms_address();
    let mut raws: Vec<Raw> = (0..3).map(|_| Raw::login(address, 0)).collect();
    let shared = |builder: PacketBuilder| builder.boolean("JMQShare", true);
    let within = |builder: PacketBuilder| builder.string("JMQNamespace", "ns");
    assert_eq!(set_client_id(&mut raws[0], "a", shared), 200);
    assert_eq!(set_client_id(&mut raws[1], "a", shared), 200);
    assert_eq!(set_client_id(&mut raws[2], "a", plain), 409);
    assert_eq!(set_client_id(&mut raws[0], "b", within), 200);
    assert_eq!(set_client_id(&mut raws[1], "b", within), 409);
    assert_eq!(set_client_id(&mut raws[2], "${u:guest}", plain), 400);
    assert_eq!(set_client_id(&mut raws[2], "${u}x", plain), 200);
    assert_eq!(set_client_id(&mut raws[1], "${u}x", plain), 409);
    // Taking no id gives the old one back.
    assert_eq!(status(&raws[2].request(PacketBuilder::new(PacketType::SET_CLIENTID))), 200);
    assert_eq!(set_client_id(&mut raws[1], "${u}x", plain), 200);
}

#[test]
fn destinations_of_the_settings_are_there_from_the_start() {
    let mut config = tidegate::broker::BrokerConfig::default();
    config.listen = support::local();
    for (name, value) in [
        ("autocreate_queue", "false"),
        ("autocreate_topic", "false"),
        ("queues.cap.reject.messages_max", "2"),
        ("topics.news.use_dmq", "false"),
    ] {
        config.set(name, value).unwrap();
    }
    let broker = Broker::start(config).unwrap();
    let mut raw = Raw::login(broker.jms_address(), 0);
    assert_eq!(status(&raw.create_destination("cap.reject", QUEUE)), 200);
    assert_eq!(status(&raw.create_destination("news", TOPIC)), 200);
    assert_eq!(status(&raw.create_destination("news", QUEUE)), 404);
    let sent =
        ["1", "2", "3"].map(|text| status(&raw.request(Raw::text("cap.reject", QUEUE, text))));
    assert_eq!(sent, [200, 200, 414]);
    assert_eq!(int(&raw.create_destination("cap.reject", QUEUE), "JMQDestType") & 1, 1);
}
