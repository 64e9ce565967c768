//! `tidegate ping`, `tidegate demo` and `tidegate dump`: what they show is there and adds up.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod cli_support;

use std::fs;

use cli_support::{Running, TestBroker, run, tidegate};

/// The number behind these words.
fn number_after(text: &str, words: &str) -> f64 {
    let (_, rest) = text.split_once(words).unwrap_or_else(|| panic!("no {words:?} in {text}"));
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("no number after {words:?} in {text}"))
}

#[test]
fn ping_measures_as_many_round_trips_as_asked_and_prints_ordered_percentiles() {
    let broker = TestBroker::start();
    let address = broker.address();
    let ping = tidegate(["ping", "--count", "500", "--size", "1k", "--address", &address]);
    let text = run(ping, b"").expect_code(0).text();
    assert!(text.contains("1024 bytes"), "{text}");
    assert!(text.contains("500 round trips in"), "{text}");
    let found = ["\np50", "\np90", "\np99 ", "\np99.9", "\nmax"].map(|p| number_after(&text, p));
    assert!(found.is_sorted(), "{text}");
    assert!(found[0] > 0.0, "{text}");
    broker.stop();
}

#[test]
fn ping_against_nobody_fails() {
    let ping = tidegate(["ping", "--address", "mq://127.0.0.1:1/jms", "--timeout", "2s"]);
    let failed = run(ping, b"").expect_code(1);
    assert!(failed.err.contains("127.0.0.1:1"), "{}", failed.err);
}

#[test]
fn ping_ends_when_its_broker_does() {
    let broker = TestBroker::start();
    let address = broker.address();
    let ping = Running::start(tidegate(["ping", "--count", "1000000000", "--address", &address]));
    ping.line("ping ");
    broker.stop();
    let failed = ping.finish();
    assert!(matches!(failed.code(), Some(1 | 3)), "{:?} {}", failed.status, failed.err);
    assert!(!failed.err.is_empty() && !failed.err.contains("panicked"), "{}", failed.err);
}

#[test]
fn interrupted_measurements_sum_up_what_they_have() {
    let broker = TestBroker::start();
    let address = broker.address();
    let ping = Running::start(tidegate(["ping", "--count", "1000000000", "--address", &address]));
    // The first line of progress: signals are watched by then.
    ping.line("ping ");
    ping.any_line("round trips, p50");
    ping.signal("INT");
    let text = ping.finish().expect_code(0).text();
    assert!(text.contains("p99.9"), "{text}");
    broker.stop();
    let demo = Running::start(tidegate(["demo", "--seconds", "600", "--rate", "1000"]));
    demo.any_line("sent ");
    demo.signal("INT");
    let text = demo.finish().expect_code(0).text();
    assert!(text.contains("by the fast consumer"), "{text}");
}

#[test]
fn demo_holds_the_slow_consumer_at_its_window_while_the_fast_one_runs_on() {
    let demo = ["demo", "--seconds", "3", "--rate", "5000", "--window", "50", "--slow", "20ms"];
    let text = run(tidegate(demo), b"").expect_code(0).text();
    // The summary begins where the lines of progress end.
    let (_, text) = text.split_at(text.rfind("\nsent ").unwrap());
    let fast = number_after(text, "received ");
    let slow = number_after(text, "by the fast consumer, ");
    let sent = number_after(text, "\nsent ");
    assert!(sent > 5000.0, "{text}");
    // It worked all the time, a message every 20 ms, and the other one got nearly all.
    assert!((20.0..=150.0).contains(&slow), "{text}");
    assert!(fast > 10.0 * slow && fast + slow <= sent, "{text}");
    let without = number_after(text, "had no credit in ");
    let looks = number_after(text, &format!("had no credit in {without} of "));
    assert!(looks >= 20.0 && without >= looks / 2.0, "{text}");
    let most = number_after(text, "never more than ");
    assert!((1.0..=50.0).contains(&most), "{text}");
    assert!(text.contains("round trip") && text.contains("p99.9"), "{text}");
}

#[test]
fn dump_prints_a_line_for_each_packet_of_a_capture() {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/ping_with_reply.jsonl");
    let lines = fs::read_to_string(capture).unwrap().lines().count();
    let text = run(tidegate(["dump", capture]), b"").expect_code(0).text();
    assert_eq!(text.lines().count(), lines);
    for part in ["HELLO", "JMQVersion", "AUTHENTICATE", "PING", "PING_REPLY"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn dump_reads_raw_packets_and_says_where_they_stop_being_some() {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/ping_with_reply.jsonl");
    let mut raw = Vec::new();
    let mut packets = 0;
    for line in fs::read_to_string(capture).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line.get("type").is_some() {
            let hex = line["hex"].as_str().unwrap();
            let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            raw.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
            packets += 1;
        }
    }
    let text = run(tidegate(["dump", "-"]), &raw).expect_code(0).text();
    assert_eq!(text.lines().count(), packets);
    let cut = run(tidegate(["dump", "-"]), &raw[..raw.len() - 1]).expect_code(1);
    assert_eq!(cut.text().lines().count(), packets - 1);
    assert!(cut.err.contains("ends inside"), "{}", cut.err);
    raw.extend([b'x'; 100]);
    let broken = run(tidegate(["dump", "-"]), &raw).expect_code(1);
    assert_eq!(broken.text().lines().count(), packets);
    assert!(broken.err.contains(&format!("after packet {packets}")), "{}", broken.err);
    let missing = run(tidegate(["dump", "/nonexistent"]), b"").expect_code(1);
    assert!(missing.err.contains("/nonexistent"), "{}", missing.err);
}
