//! What bad input gets: an answer or a close for the one who sent it, nothing for anybody else.
#![cfg(all(feature = "broker", feature = "unstable-internals"))]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests read clocks for their deadlines, and may fail by panic"
)]

mod support;

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use bytes::Bytes;
use support::{
    broker, local,
    raw::{DEADLINE, QUEUE, Raw, TOPIC, acknowledge, blocks, int, long, reason, status},
};
use tidegate::{
    broker::{Broker, BrokerConfig},
    internals::auth,
    wire::{Flags, Packet, PacketBuilder, PacketType},
};

/// Runs `bad` while another connection sends and receives, which must not notice.
fn beside_an_honest_connection(bad: impl FnOnce(SocketAddr)) {
    let broker = broker(2);
    let address = broker.jms_address();
    let mut honest = Raw::login(address, 0);
    honest.create_destination("honest", QUEUE);
    let session = honest.create_session(1);
    honest.add_consumer(session, "honest", QUEUE, 10);
    honest.start();
    bad(address);
    let sent = Instant::now();
    honest.request(Raw::text("honest", QUEUE, "still here"));
    let message = honest.message();
    assert_eq!(status(&honest.request(acknowledge(&[&message]))), 200);
    assert!(sent.elapsed() < Duration::from_secs(1), "the honest connection noticed");
}

fn types(packets: &[Packet]) -> Vec<PacketType> {
    packets.iter().map(|packet| packet.header().packet_type).collect()
}

/// A well-formed packet with four bytes of its header replaced.
fn broken_header(at: usize, value: i32) -> Vec<u8> {
    let mut bytes = PacketBuilder::new(PacketType::HELLO).finish().raw().to_vec();
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    bytes
}

#[test]
fn a_stream_without_the_magic_is_closed_without_an_answer() {
    beside_an_honest_connection(|address| {
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n..."[..],
            &[0; 500],
        ] {
            let mut raw = Raw::connect(address);
            raw.send_bytes(&bytes.repeat(2));
            assert!(raw.until_end().is_empty());
        }
    });
}

#[test]
fn sizes_and_offsets_that_cannot_be_get_a_goodbye_and_a_close() {
    beside_an_honest_connection(|address| {
        let cases = [
            (8, 71),
            (8, 0),
            (8, -1),
            (8, i32::MIN),
            (52, 71),
            (52, 73),
            (52, i32::MAX),
            (56, 1),
            (56, -1),
            (56, i32::MAX),
        ];
        for (at, value) in cases {
            for logged_in in [false, true] {
                let mut raw =
                    if logged_in { Raw::login(address, 0) } else { Raw::connect(address) };
                raw.send_bytes(&broken_header(at, value));
                let said = raw.until_end();
                assert_eq!(types(&said), [PacketType::GOODBYE], "{value} at {at}");
                assert_eq!(int(&said[0], "JMQGoodbyeReason"), 4);
            }
        }
    });
}

#[test]
fn another_packet_version_is_told_so() {
    beside_an_honest_connection(|address| {
        let mut raw = Raw::connect(address);
        let mut bytes = broken_header(8, 72);
        bytes[4..6].copy_from_slice(&302_u16.to_be_bytes());
        raw.send_bytes(&bytes);
        let said = raw.until_end();
        assert_eq!(types(&said), [PacketType::HELLO_REPLY, PacketType::GOODBYE]);
        assert_eq!((status(&said[0]), said[0].header().consumer_id), (505, 0));
    });
}

#[test]
fn a_packet_over_the_limit_closes_before_login_and_is_skipped_afterwards() {
    beside_an_honest_connection(|address| {
        let mut raw = Raw::connect(address);
        raw.send_bytes(&broken_header(8, 64 * 1024 + 1));
        assert_eq!(types(&raw.until_end()), [PacketType::GOODBYE]);

        let mut raw = Raw::login(address, 0);
        let limit = BrokerConfig::default().packet_bytes_max;
        let size = limit + 1;
        let mut header = Raw::text("q", QUEUE, "")
            .flags(Flags::ACKNOWLEDGE)
            .consumer_id(77)
            .finish()
            .raw()
            .to_vec();
        header[8..12].copy_from_slice(&size.to_be_bytes());
        raw.send_bytes(&header);
        let reply = raw.reply(77);
        assert_eq!((reply.header().packet_type, status(&reply)), (PacketType::SEND_REPLY, 423));
        let mut left = size as usize - header.len();
        let chunk = vec![0; 1 << 20];
        while left > 0 {
            let now = left.min(chunk.len());
            raw.send_bytes(&chunk[..now]);
            left -= now;
        }
        let pong = raw.request(PacketBuilder::new(PacketType::PING));
        assert_eq!(pong.header().packet_type, PacketType::PING_REPLY);
    });
}

#[test]
fn truncated_and_wrong_logins_are_refused_and_closed() {
    beside_an_honest_connection(|address| {
        let good = auth::authenticate_body("guest", "x").unwrap();
        let attempts: [(&str, Vec<u8>); 6] = [
            ("digest", good[..good.len() - 1].to_vec()),
            ("digest", Vec::new()),
            ("digest", vec![0xFF; 8]),
            ("digest", good.to_vec()),
            ("basic", good.to_vec()),
            ("nonsense", good.to_vec()),
        ];
        for (kind, body) in attempts {
            let mut raw = Raw::connect(address);
            raw.hello(0);
            let reply = raw.request(
                PacketBuilder::new(PacketType::AUTHENTICATE)
                    .string("JMQAuthType", kind)
                    .body(body.clone()),
            );
            assert_eq!(status(&reply), 413, "{kind} {body:?}");
            let rest = raw.until_end();
            let goodbye = rest.last().expect("a goodbye");
            assert_eq!(goodbye.header().packet_type, PacketType::GOODBYE);
            assert_eq!(int(goodbye, "JMQGoodbyeReason"), 4);
        }
        for (user, password) in [("guest", "wrong"), ("nobody", "x"), ("", "")] {
            let mut raw = Raw::connect(address);
            raw.hello(0);
            let reply = raw.authenticate(user, password);
            assert_eq!(status(&reply), 413);
            assert!(reason(&reply).contains("forbidden"), "{}", reason(&reply));
        }
    });
}

#[test]
fn basic_login_works_when_asked_for_and_unknown_kinds_are_refused() {
    let broker = broker(1);
    for (password, wanted) in [("guest", 200), ("wrong", 413)] {
        let mut raw = Raw::connect(broker.jms_address());
        let hello = PacketBuilder::new(PacketType::HELLO).string("JMQAuthType", "basic");
        let reply = raw.request(hello);
        assert_eq!((status(&reply), int(&reply, "JMQProtocolLevel")), (200, 100));
        raw.expect(PacketType::AUTHENTICATE_REQUEST);
        let body = auth::authenticate_body("guest", &auth::basic_response(password)).unwrap();
        let reply = raw.request(
            PacketBuilder::new(PacketType::AUTHENTICATE).string("JMQAuthType", "basic").body(body),
        );
        assert_eq!(status(&reply), wanted);
    }
    let mut raw = Raw::connect(broker.jms_address());
    raw.ask(PacketBuilder::new(PacketType::HELLO).string("JMQAuthType", "jmqadminkey"));
    let said = raw.until_end();
    assert_eq!(
        types(&said),
        [PacketType::HELLO_REPLY, PacketType::AUTHENTICATE_REQUEST, PacketType::GOODBYE]
    );
    assert_eq!(status(&said[1]), 403);
}

#[test]
fn a_level_that_is_not_spoken_is_answered_with_the_one_that_is() {
    let broker = broker(1);
    let mut raw = Raw::connect(broker.jms_address());
    raw.ask(PacketBuilder::new(PacketType::HELLO).int("JMQProtocolLevel", 501));
    let said = raw.until_end();
    assert_eq!(types(&said), [PacketType::HELLO_REPLY, PacketType::GOODBYE]);
    assert_eq!((status(&said[0]), int(&said[0], "JMQProtocolLevel")), (505, 500));
}

#[test]
fn requests_before_login_are_refused_and_the_login_still_works() {
    let broker = broker(1);
    let mut raw = Raw::connect(broker.jms_address());
    // NULL is never answered: its reply would be a message.
    for kind in PacketType::all().filter(|kind| !kind.is_reply() && *kind != PacketType::NULL) {
        let login = [PacketType::HELLO, PacketType::AUTHENTICATE, PacketType::GOODBYE];
        if kind == PacketType::PING || login.contains(&kind) {
            continue;
        }
        let reply = raw.request(PacketBuilder::new(kind));
        assert_eq!((reply.header().packet_type, status(&reply)), (kind.reply(), 500), "{kind}");
        raw.send(PacketBuilder::new(kind));
    }
    let pong = raw.request(PacketBuilder::new(PacketType::PING));
    assert_eq!(status(&pong), 200, "PING is served before login");
    assert_eq!(status(&raw.hello(0)), 200);
    assert_eq!(status(&raw.authenticate("guest", "guest")), 200);
    let again = raw.ask(PacketBuilder::new(PacketType::HELLO));
    assert_eq!(status(&raw.reply(again)), 500, "one HELLO a connection");
    assert_eq!(types(&raw.until_end()), [PacketType::GOODBYE]);
}

#[test]
fn well_framed_nonsense_is_answered_and_the_connection_stays() {
    beside_an_honest_connection(|address| {
        let mut raw = Raw::login(address, 0);
        let unknown = raw.request(PacketBuilder::new(PacketType(1000)));
        assert_eq!((unknown.header().packet_type, status(&unknown)), (PacketType(1001), 501));
        raw.send(PacketBuilder::new(PacketType(1000)));
        let text = |kind, name, value: &str| PacketBuilder::new(kind).string(name, value);
        let cases = [
            (PacketBuilder::new(PacketType::CREATE_SESSION).int("JMQAckMode", 7), 400),
            (text(PacketType::CREATE_SESSION, "JMQAckMode", "1"), 500),
            (PacketBuilder::new(PacketType::CREATE_DESTINATION), 500),
            (text(PacketType::CREATE_DESTINATION, "JMQDestination", "q"), 500),
            (
                text(PacketType::CREATE_DESTINATION, "JMQDestination", "q").int("JMQDestType", 3),
                500,
            ),
            (
                text(PacketType::CREATE_DESTINATION, "JMQDestination", " ").int("JMQDestType", 1),
                500,
            ),
            (
                text(PacketType::CREATE_DESTINATION, "JMQDestination", "a*").int("JMQDestType", 1),
                415,
            ),
            (PacketBuilder::new(PacketType::ADD_CONSUMER).long("JMQSessionID", 5), 500),
            (PacketBuilder::new(PacketType::DELETE_CONSUMER).long("JMQConsumerID", 5), 404),
            (PacketBuilder::new(PacketType::DELETE_CONSUMER), 500),
            (PacketBuilder::new(PacketType::DELETE_PRODUCER).long("JMQProducerID", 5), 500),
            (PacketBuilder::new(PacketType::DELETE_PRODUCER).int("JMQProducerID", 5), 500),
            (PacketBuilder::new(PacketType::DESTROY_SESSION).long("JMQSessionID", 5), 500),
            (PacketBuilder::new(PacketType::ACKNOWLEDGE), 500),
            (PacketBuilder::new(PacketType::ACKNOWLEDGE).body(vec![0; 39]), 500),
            (PacketBuilder::new(PacketType::ACKNOWLEDGE).body(vec![0; 40]), 404),
            (PacketBuilder::new(PacketType::GENERATE_UID).int("JMQQuantity", -1), 400),
            (PacketBuilder::new(PacketType::GENERATE_UID).int("JMQQuantity", i32::MAX), 400),
            (text(PacketType::SET_CLIENTID, "JMQClientID", " "), 400),
            (PacketBuilder::new(PacketType::TEXT_MESSAGE), 500),
            (Raw::text("nowhere", QUEUE, "x"), 500),
            (PacketBuilder::new(PacketType::COMMIT_TRANSACTION), 500),
            (PacketBuilder::new(PacketType::BROWSE), 500),
            (PacketBuilder::new(PacketType::DELIVER).long("JMQConsumerID", 5), 500),
            (
                PacketBuilder::new(PacketType::DELIVER).long("JMQConsumerID", 5).body(vec![0; 32]),
                404,
            ),
        ];
        for (packet, wanted) in cases {
            let text = format!("{packet:?}");
            let reply = raw.request(packet);
            assert_eq!(status(&reply), wanted, "{text}");
        }
        // A table of an unknown version, as in no request a client would send.
        let mut bytes = PacketBuilder::new(PacketType::CREATE_SESSION)
            .int("JMQAckMode", 1)
            .flags(Flags::ACKNOWLEDGE)
            .consumer_id(99)
            .finish()
            .raw()
            .to_vec();
        bytes[75] = 7;
        raw.send_bytes(&bytes);
        assert_eq!(status(&raw.reply(99)), 500);
        // The C client reads this id before the status.
        let malformed = PacketBuilder::new(PacketType::START_TRANSACTION).body(vec![0; 7]);
        let refused = raw.request(malformed.int("JMQXAFlags", 0));
        assert_eq!(status(&refused), 400);
        assert_eq!(long(&refused, "JMQTransactionID"), 0);
        assert_eq!(raw.create_session(1).signum(), 1);
    });
}

#[test]
fn any_split_of_the_bytes_gives_the_same_replies() {
    let broker = broker(1);
    // Everything that needs no answer first, with sizes that end on round offsets.
    let conversation = |raw: &mut Raw| {
        let mut bytes = Vec::new();
        let mut put = |builder: PacketBuilder, id: i64| {
            let packet = raw.stamp(builder.consumer_id(id).flags(Flags::ACKNOWLEDGE));
            bytes.extend_from_slice(packet.raw());
        };
        let destination = PacketBuilder::new(PacketType::CREATE_DESTINATION)
            .string("JMQDestination", "split")
            .int("JMQDestType", QUEUE);
        put(destination, 1001);
        for (id, size) in [(1002, 4096), (1003, 8192), (1004, 65536), (1005, 3 << 20)] {
            put(Raw::text("split", QUEUE, &"x".repeat(size)), id);
        }
        put(PacketBuilder::new(PacketType::PING), 1006);
        let id = raw.stamp(PacketBuilder::new(PacketType::PING)).header().id;
        assert_ne!(id.sequence, 0);
        bytes
    };
    for size in [1, 71, 72, 73, 4096, 8192, 65536, usize::MAX] {
        let mut raw = Raw::login(broker.jms_address(), 0);
        let bytes = conversation(&mut raw);
        // Byte by byte only as far as it is interesting.
        let (slow, fast) = bytes.split_at(if size < 72 { 600 } else { bytes.len() });
        for chunk in slow.chunks(size) {
            raw.send_bytes(chunk);
        }
        raw.send_bytes(fast);
        for id in 1001..=1006 {
            assert_eq!(status(&raw.reply(id)), 200, "reply {id} at chunks of {size}");
        }
    }
}

#[test]
fn text_that_is_none_is_stored_and_forwarded_as_it_came() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    raw.create_destination("q", QUEUE);
    let table: [&[u8]; 2] = [
        // Key and value are no UTF-8.
        &[0, 0, 0, 1, 0, 0, 0, 1, 0, 2, 0xC3, 0x28, 0, 8, 0, 2, 0xC3, 0x28],
        // Cut off where a client could not say how long the value is.
        &[0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b'v', 0, 8],
    ];
    for table in table {
        let plain = Raw::text("q", QUEUE, "").flags(Flags::ACKNOWLEDGE).consumer_id(500);
        let plain = raw.stamp(plain);
        let mut bytes = plain.raw().to_vec();
        bytes.extend_from_slice(table);
        bytes.push(b'c');
        let size = i32::try_from(bytes.len()).unwrap();
        bytes[8..12].copy_from_slice(&size.to_be_bytes());
        bytes[56..60].copy_from_slice(&i32::try_from(table.len()).unwrap().to_be_bytes());
        raw.send_bytes(&bytes);
        assert_eq!(status(&raw.reply(500)), 200);
    }
    let session = raw.create_session(1);
    raw.add_consumer(session, "q", QUEUE, 10);
    raw.start();
    for table in table {
        let message = raw.message();
        assert_eq!((message.property_bytes(), &message.body()[..]), (table, &b"c"[..]));
    }
}

#[test]
fn connections_that_do_not_log_in_are_closed_in_time_however_busy_they_look() {
    let mut config = BrokerConfig::default();
    config.set("login_timeout", "2").unwrap();
    config.set("listen", "127.0.0.1:0").unwrap();
    let broker = Broker::start(config).unwrap();
    let address = broker.jms_address();
    let idle_one = Raw::login(address, 0);
    let hello = PacketBuilder::new(PacketType::HELLO).flags(Flags::ACKNOWLEDGE).finish();
    let ping = PacketBuilder::new(PacketType::PING).finish();
    let begun = Instant::now();
    let mut silent: Vec<(TcpStream, usize)> = Vec::new();
    for number in 0..400 {
        let mut stream = TcpStream::connect(address).unwrap();
        if number % 4 == 1 {
            stream.write_all(hello.raw()).unwrap();
        }
        stream.set_nonblocking(true).unwrap();
        silent.push((stream, number % 4));
    }
    let mut trickled = 0;
    let mut next_trickle = begun;
    let mut buffer = [0; 4096];
    while !silent.is_empty() {
        let now = Instant::now();
        assert!(now < begun + Duration::from_secs(6), "{} are still open", silent.len());
        if now >= next_trickle {
            next_trickle += Duration::from_millis(200);
            for (stream, kind) in &mut silent {
                // A byte of a HELLO now and then; a PING now and then.
                let bytes = match kind {
                    2 => &hello.raw()[trickled % 72..=trickled % 72],
                    3 => &ping.raw()[..],
                    _ => continue,
                };
                drop(stream.write(bytes));
            }
            trickled += 1;
            let asked = Instant::now();
            drop(Raw::login(address, 0));
            assert!(asked.elapsed() < Duration::from_secs(1), "an honest login waits");
        }
        silent.retain_mut(|(stream, _)| {
            loop {
                match stream.read(&mut buffer) {
                    Ok(0) => break false,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                    Err(_) => break false,
                }
            }
        });
        std::thread::yield_now();
    }
    assert!(begun.elapsed() >= Duration::from_secs(2), "nobody is closed before their time");
    let mut idle_one = idle_one;
    assert_eq!(status(&idle_one.request(PacketBuilder::new(PacketType::PING))), 200);
}

#[test]
fn the_port_mapper_answers_everybody_and_keeps_nobody() {
    let broker = broker(1);
    let jms = broker.jms_address().port();
    for request in [&b"101\n"[..], b"", b"nonsense\n", b"101\n1\n2\n3\n4\n5\n6\n7\n8\n"] {
        let mut stream = TcpStream::connect(broker.port_mapper_address()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(request).unwrap();
        let begun = Instant::now();
        let mut text = Vec::new();
        let end = stream.read_to_end(&mut text);
        let text = String::from_utf8(text).unwrap();
        if request.len() < 12 {
            assert!(end.is_ok());
            assert!(text.starts_with("101 tidegate 301\n"), "{text}");
            assert!(text.contains(&format!("\njms tcp NORMAL {jms} ")), "{text}");
            assert!(text.ends_with("\n.\n"), "{text}");
        }
        assert!(begun.elapsed() < Duration::from_secs(3));
    }
}

#[test]
fn a_peer_that_does_not_read_is_closed_and_costs_bounded_memory() {
    let broker = broker(1);
    let mut raw = Raw::login(broker.jms_address(), 0);
    let ping = PacketBuilder::new(PacketType::PING).flags(Flags::ACKNOWLEDGE).finish();
    let many: Vec<u8> = ping.raw().repeat(10_000);
    let until = Instant::now() + DEADLINE;
    // 97 bytes of answer for 72 of question, never read: the broker ends it.
    while raw.stream.write_all(&many).is_ok() {
        assert!(Instant::now() < until, "the broker goes on answering a peer that does not read");
    }
    assert_eq!(broker.snapshot().violations, 0);
}

#[test]
fn client_ids_are_exclusive_and_free_again_with_their_connection() {
    let broker = broker(2);
    let set = |id: &str| PacketBuilder::new(PacketType::SET_CLIENTID).string("JMQClientID", id);
    let mut first = Raw::login(broker.jms_address(), 0);
    let mut second = Raw::login(broker.jms_address(), 0);
    assert_eq!(status(&first.request(set("id"))), 200);
    assert_eq!(status(&first.request(set("id"))), 200, "it has it already");
    assert_eq!(status(&second.request(set("id"))), 409);
    assert_eq!(status(&second.request(set("other"))), 200);
    assert_eq!(status(&first.request(PacketBuilder::new(PacketType::GOODBYE))), 200);
    assert!(first.until_end().is_empty());
    assert_eq!(status(&second.request(set("id"))), 200);
}

#[test]
fn a_second_broker_is_kept_out_of_a_data_directory_and_a_crash_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let start = || Broker::builder().listen(local()).data(directory.path()).start();
    let first = start().unwrap();
    let refused = start().unwrap_err().to_string();
    assert!(
        refused.contains("in use") && refused.contains(directory.path().to_str().unwrap()),
        "{refused}"
    );
    drop(first);
    assert!(directory.path().join("lock").exists(), "the file stays, the lock does not");
    start().unwrap();
}

#[test]
fn a_shutdown_says_goodbye_to_everybody() {
    let broker = broker(2);
    let mut clients: Vec<Raw> = (0..4).map(|_| Raw::login(broker.jms_address(), 0)).collect();
    broker.shutdown();
    for client in &mut clients {
        let said = client.until_end();
        assert_eq!(types(&said), [PacketType::GOODBYE]);
        assert_eq!(int(&said[0], "JMQGoodbyeReason"), 1);
    }
}

#[test]
fn acknowledging_somebody_elses_delivery_settles_nothing() {
    let broker = broker(2);
    let mut owner = Raw::login(broker.jms_address(), 0);
    let mut thief = Raw::login(broker.jms_address(), 0);
    owner.create_destination("q", QUEUE);
    owner.request(Raw::text("q", QUEUE, "x"));
    let session = owner.create_session(2);
    owner.add_consumer(session, "q", QUEUE, 10);
    owner.start();
    let message = owner.message();
    assert_eq!(status(&thief.request(acknowledge(&[&message]))), 404);
    thief.send(
        PacketBuilder::new(PacketType::REDELIVER)
            .boolean("JMQSetRedelivered", true)
            .body(Bytes::from(blocks(&[&message]))),
    );
    assert_eq!(thief.create_session(1).signum(), 1);
    assert_eq!(status(&owner.request(acknowledge(&[&message]))), 200);
    let _topic_is_another_thing = thief.create_destination("q", TOPIC);
}
