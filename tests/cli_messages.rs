//! `tidegate send` and `tidegate receive`: what goes in comes out.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod cli_support;

use std::fmt::Write as _;
use std::fs;

use cli_support::{Finished, Running, TestBroker, run, tidegate};
use serde_json::{Value, json};

/// A text of many lines, some of them awkward.
fn long_text() -> String {
    let mut text = String::new();
    for number in 0..12_000 {
        match number % 7 {
            0 => writeln!(text, "line {number}"),
            1 => writeln!(text),
            2 => writeln!(text, "  blanks around {number}  "),
            3 => writeln!(text, "Grüße, 世界, 🌊 {number}"),
            4 => writeln!(text, "tab\tand quote \" {number}"),
            5 => writeln!(text, "{}", "long ".repeat(number % 200)),
            _ => writeln!(text, "carriage return\r"),
        }
        .unwrap();
    }
    text
}

/// Bytes without a pattern a mistake could hide in.
fn binary(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_be_bytes()[0]
    })
    .take(len)
    .collect()
}

fn send(broker: &TestBroker, arguments: &[&str], input: &[u8]) -> Finished {
    let address = broker.address();
    let all = ["send", "--address", &address].into_iter().chain(arguments.iter().copied());
    run(tidegate(all), input)
}

fn receive(broker: &TestBroker, arguments: &[&str]) -> Finished {
    let address = broker.address();
    let all = ["receive", "--address", &address].into_iter().chain(arguments.iter().copied());
    run(tidegate(all), b"")
}

#[test]
fn text_of_twelve_thousand_lines_comes_back_byte_for_byte() {
    let broker = TestBroker::start();
    let text = long_text();
    let sent = send(&broker, &["lines", "--non-persistent"], text.as_bytes()).expect_code(0);
    assert_eq!(sent.text(), "sent 12000 messages to queue lines\n");
    let received =
        receive(&broker, &["lines", "--count", "12000", "--timeout", "30s"]).expect_code(0);
    assert!(received.out == text.as_bytes(), "the text changed");
    // All were acknowledged: nothing is left.
    let rest = receive(&broker, &["lines", "--timeout", "100ms"]).expect_code(0);
    assert!(rest.out.is_empty());
    broker.stop();
}

#[test]
fn persistent_lines_come_back_as_well() {
    let broker = TestBroker::start();
    send(&broker, &["lines", "--persistent"], b"one\ntwo\nthree").expect_code(0);
    let received = receive(&broker, &["lines", "--count", "3"]).expect_code(0);
    // The last line had no end; each message is printed with one.
    assert_eq!(received.text(), "one\ntwo\nthree\n");
    broker.stop();
}

#[test]
fn binary_file_of_five_megabytes_comes_back_byte_for_byte() {
    let broker = TestBroker::start();
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original.bin");
    let copy = folder.path().join("copy.bin");
    let bytes = binary(5_000_000);
    fs::write(&original, &bytes).unwrap();
    let sent = send(&broker, &["files", "--file", original.to_str().unwrap()], b"");
    assert_eq!(sent.expect_code(0).text(), "sent 1 message to queue files\n");
    let copy_path = copy.to_str().unwrap();
    receive(&broker, &["files", "--count", "1", "--output", copy_path]).expect_code(0);
    assert!(fs::read(&copy).unwrap() == bytes, "the file changed");
    // And the same through pipes.
    send(&broker, &["files", "--whole"], &bytes).expect_code(0);
    let piped = receive(&broker, &["files", "--count", "1"]).expect_code(0);
    assert!(piped.out == bytes, "the input changed");
    broker.stop();
}

#[test]
fn address_of_the_service_itself_works_as_well() {
    let broker = TestBroker::start();
    let direct = broker.direct();
    run(tidegate(["send", "q", "--address", &direct]), b"hello\n").expect_code(0);
    let received = run(tidegate(["receive", "q", "--count", "1", "--address", &direct]), b"");
    assert_eq!(received.expect_code(0).text(), "hello\n");
    broker.stop();
}

#[test]
fn messages_as_json_keep_body_headers_and_types() {
    let broker = TestBroker::start();
    let message = json!({
        "kind": "map",
        "body": {"small": {"type": "short", "value": 1}, "text": "x", "none": null},
        "properties": {"n": 1, "l": {"type": "long", "value": 1}, "d": 1.5, "b": true, "s": "ä"},
        "correlation_id": "it's",
        "reply_to": "queue:answers",
        "type": "order",
        "priority": 7,
        "time_to_live_ms": 3_600_000,
        "delivery_mode": "non-persistent",
    });
    let sent = send(&broker, &["typed", "--json"], message.to_string().as_bytes()).expect_code(0);
    let report: Value = serde_json::from_str(&sent.text()).unwrap();
    assert_eq!(report["sent"], 1);
    let received = receive(&broker, &["typed", "--json", "--count", "1"]).expect_code(0);
    let found: Value = serde_json::from_str(&received.text()).unwrap();
    for name in [
        "kind",
        "body",
        "properties",
        "correlation_id",
        "reply_to",
        "type",
        "priority",
        "delivery_mode",
    ] {
        assert_eq!(found[name], message[name], "{name} in {found}");
    }
    assert_eq!(found["destination"], "queue:typed");
    assert_eq!(found["redelivered"], false);
    let lives = found["expiration"].as_i64().unwrap() - found["timestamp"].as_i64().unwrap();
    assert!((3_599_000..=3_601_000).contains(&lives), "{found}");
    // What was printed can be sent again.
    send(&broker, &["again", "--json"], received.text().as_bytes()).expect_code(0);
    let again = receive(&broker, &["again", "--json", "--count", "1"]).expect_code(0);
    let again: Value = serde_json::from_str(&again.text()).unwrap();
    assert_eq!(again["body"], message["body"]);
    assert_eq!(again["properties"], message["properties"]);
    broker.stop();
}

#[test]
fn line_that_is_no_message_is_named_and_those_before_it_are_sent() {
    let broker = TestBroker::start();
    let lines = b"{\"body\": \"good\"}\n{\"bodi\": \"bad\"}\n{\"body\": \"never\"}\n";
    let failed = send(&broker, &["q", "--json"], lines).expect_code(1);
    assert!(failed.err.contains("line 2") && failed.err.contains("bodi"), "{}", failed.err);
    let failed = send(&broker, &["q"], b"fine\n\xff\xfe\n").expect_code(1);
    assert!(failed.err.contains("line 2") && failed.err.contains("--whole"), "{}", failed.err);
    let received = receive(&broker, &["q", "--timeout", "300ms"]).expect_code(0);
    assert_eq!(received.text(), "good\nfine\n");
    broker.stop();
}

#[test]
fn count_takes_so_many_and_leaves_the_rest() {
    let broker = TestBroker::start();
    send(&broker, &["q", "--count", "3"], b"1\n2\n3\n4\n").expect_code(0);
    let first = receive(&broker, &["q", "--count", "2"]).expect_code(0);
    assert_eq!(first.text(), "1\n2\n");
    let rest = receive(&broker, &["q", "--timeout", "300ms"]).expect_code(0);
    assert_eq!(rest.text(), "3\n");
    broker.stop();
}

#[test]
fn fewer_messages_than_asked_for_until_the_timeout_end_with_code_3() {
    let broker = TestBroker::start();
    send(&broker, &["q"], b"only\n").expect_code(0);
    let ended = receive(&broker, &["q", "--count", "2", "--timeout", "300ms"]).expect_code(3);
    assert_eq!(ended.text(), "only\n");
    assert!(ended.err.contains("1 of 2"), "{}", ended.err);
    broker.stop();
}

#[test]
fn selector_the_broker_refuses_is_an_error_with_the_brokers_reason() {
    let broker = TestBroker::start();
    let refused = receive(&broker, &["q", "--selector", "n = = 1"]).expect_code(1);
    assert!(refused.err.contains("refused ADD_CONSUMER"), "{}", refused.err);
    assert!(refused.err.contains("selector"), "{}", refused.err);
    broker.stop();
}

#[test]
fn message_that_could_not_be_written_comes_again() {
    let broker = TestBroker::start();
    send(&broker, &["q"], b"precious\n").expect_code(0);
    let full = receive(&broker, &["q", "--count", "1", "--output", "/dev/full"]).expect_code(1);
    assert!(full.err.contains("/dev/full"), "{}", full.err);
    let again = receive(&broker, &["q", "--count", "1", "--json"]).expect_code(0);
    let again: Value = serde_json::from_str(&again.text()).unwrap();
    assert_eq!(again["body"], "precious");
    assert_eq!(again["redelivered"], true);
    broker.stop();
}

#[test]
fn waiting_receiver_prints_each_message_as_it_comes() {
    let broker = TestBroker::start();
    let address = broker.address();
    let waiting = Running::start(tidegate(["receive", "q", "--address", &address]));
    let mut sender = Running::start(tidegate(["send", "q", "--address", &address]));
    for number in 0..3 {
        sender.write(format!("message {number}\n").as_bytes());
        assert_eq!(waiting.line("message "), number.to_string());
    }
    sender.finish().expect_code(0);
    broker.stop();
    waiting.finish().expect_code(1);
}

#[test]
fn what_is_wrong_with_the_connection_is_said() {
    let broker = TestBroker::start();
    let address = broker.address();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["send", "q", "--address", "mq://127.0.0.1:1/jms"], 1, "127.0.0.1:1"),
        (&["send", "q", "--address", "gopher://somewhere"], 2, "gopher"),
        (&["send", "q", "--address", &address, "--password", "wrong"], 1, ""),
        (&["send", "q", "--address", &address, "--user", "nobody"], 1, ""),
        (&["send", "no name", "--address", &address], 2, "no name"),
        (&["send", "q", "--address", &address, "--file", "/nonexistent"], 1, "/nonexistent"),
        (&["receive", "q", "--address", &address, "--timeout", "soon"], 2, "soon"),
    ];
    for (arguments, code, part) in cases {
        let failed = run(tidegate(arguments.iter().copied()), b"x\n").expect_code(*code);
        assert!(failed.err.contains(part), "{arguments:?}: {}", failed.err);
        assert!(!failed.err.is_empty() && failed.out.is_empty(), "{arguments:?}");
    }
    broker.stop();
}

#[test]
fn password_can_come_from_the_environment() {
    let broker = TestBroker::start();
    let address = broker.address();
    let mut good = tidegate(["send", "q", "--address", &address]);
    good.env("TIDEGATE_PASSWORD", "guest");
    run(good, b"x\n").expect_code(0);
    let mut bad = tidegate(["send", "q", "--address", &address]);
    bad.env("TIDEGATE_PASSWORD", "wrong");
    run(bad, b"x\n").expect_code(1);
    broker.stop();
}
