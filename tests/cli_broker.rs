//! `tidegate broker`: start, settings, signals.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod cli_support;

use std::fs;
use std::net::{SocketAddr, TcpStream};

use cli_support::{Running, TestBroker, run, tidegate};

#[test]
fn broker_prints_where_it_listens_and_listens_there() {
    let broker = TestBroker::start();
    for address in [&broker.port_mapper, &broker.service, &broker.admin] {
        let address: SocketAddr = address.parse().unwrap();
        assert!(address.ip().is_loopback());
        TcpStream::connect(address).unwrap();
    }
    broker.stop();
}

#[test]
fn broker_says_that_messages_are_in_memory_only() {
    let running =
        Running::start(tidegate(["broker", "--listen", "127.0.0.1:0", "--jms", "127.0.0.1:0"]));
    let said = running.line("all messages, persistent ones too, ");
    assert_eq!(said, "are kept in memory only");
    running.signal("TERM");
    running.finish().expect_code(0);
}

#[test]
fn broker_says_what_may_be_lost_if_it_does_not_always_sync() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    for (sync, said) in [
        ("store.sync=50ms", "synced every 50ms: if this machine fails, what was acknowledged in"),
        ("store.sync=os", "synced when the system likes: if this machine fails"),
    ] {
        let free = "127.0.0.1:0";
        let running = Running::start(tidegate([
            "broker", "--listen", free, "--jms", free, "--data", data, "--set", sync,
        ]));
        running.line("store fjall in ");
        running.line(said);
        running.line("ready");
        running.signal("TERM");
        running.finish().expect_code(0);
    }
}

#[test]
fn both_signals_stop_the_broker_in_order_with_code_0() {
    for signal in ["TERM", "INT"] {
        let broker = TestBroker::start();
        let waiting = Running::start(tidegate([
            "receive",
            "q",
            "--address",
            &broker.address(),
            "--timeout",
            "50s",
        ]));
        // It is connected once the broker has its consumer; a message shows that.
        let sent = run(tidegate(["send", "q", "--address", &broker.address()]), b"one\n");
        sent.expect_code(0);
        waiting.line("one");
        broker.running.signal(signal);
        let stopped = broker.running.finish().expect_code(0);
        assert!(stopped.text().contains("stopped"), "{}", stopped.text());
        // The client was told, and did not wait for its time to pass.
        let told = waiting.finish().expect_code(1);
        assert!(!told.err.is_empty());
    }
}

#[test]
fn second_broker_on_the_same_address_says_which_address_is_taken() {
    let broker = TestBroker::start();
    let command = tidegate(["broker", "--listen", &broker.port_mapper, "--jms", "127.0.0.1:0"]);
    let second = run(command, b"").expect_code(1);
    assert!(second.err.contains(&broker.port_mapper), "{}", second.err);
    assert!(second.out.is_empty());
    broker.stop();
}

#[test]
fn settings_of_the_command_line_win_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.toml");
    // The file alone could not start: its address is nobody's here.
    fs::write(&file, "listen = \"192.0.2.1:7676\"\nname = \"from-file\"\n").unwrap();
    let broker = TestBroker::start_with(["--config", file.to_str().unwrap()]);
    let table = read_port_table(&broker.port_mapper);
    assert!(table.starts_with("101 from-file "), "{table}");
    broker.stop();
    let broker =
        TestBroker::start_with(["--config", file.to_str().unwrap(), "--set", "name=from-line"]);
    let table = read_port_table(&broker.port_mapper);
    assert!(table.starts_with("101 from-line "), "{table}");
    broker.stop();
}

fn read_port_table(address: &str) -> String {
    use std::io::Read;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(cli_support::PATIENCE)).unwrap();
    let mut table = String::new();
    stream.read_to_string(&mut table).unwrap();
    table
}

/// A broken setting: the file's text, and what the error must name.
const BROKEN: &[(&str, &[&str])] = &[
    ("lopps = 2\n", &["line 1", "lopps", "loops"]),
    ("name = \"a\"\n\nloops = \"many\"\n", &["line 3", "loops", "many", "1 to 64"]),
    ("loops = 0\n", &["loops", "0", "1 to 64"]),
    ("loops = 1\nloops = 2\n", &["line 2", "loops"]),
    ("name = \"\"\n", &["name", "letters"]),
    ("autocreate_queue = \"ja\"\n", &["autocreate_queue", "ja", "true or false"]),
    ("[destination]\ntotal_bytes_max = \"1e3\"\n", &["line 2", "total_bytes_max", "1e3", "size"]),
    ("[destination]\nmessages_max = \"99999999999999999999\"\n", &["line 2", "messages_max"]),
    ("[destination]\nmesages_max = 1\n", &["line 2", "mesages_max", "destination.messages_max"]),
    ("loops = \n", &["line 1"]),
];

#[test]
fn broken_settings_name_file_line_key_value_and_what_is_allowed_and_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken.toml");
    for (text, parts) in BROKEN {
        fs::write(&file, text).unwrap();
        let path = file.to_str().unwrap();
        let command = tidegate(["broker", "--config", path, "--listen", "127.0.0.1:0"]);
        let finished = run(command, b"").expect_code(2);
        assert!(finished.out.is_empty(), "{text:?} started something");
        for part in parts.iter().chain(&["broken.toml"]) {
            assert!(finished.err.contains(part), "{text:?}: no {part:?} in {}", finished.err);
        }
    }
}

#[test]
fn blanks_line_ends_marks_and_units_around_values_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.toml");
    let texts: &[&[u8]] = &[
        b"\xef\xbb\xbfname = \"plain\"\n",
        b"name = \"plain\"\r\nloops = 1\r\n",
        b"name = \" plain\t\"\n",
        b"name = \"plain\"\nautocreate_queue = \"true \"\nloops = \"1\\t\"\n",
        b"name = \"plain\"\n[destination]\ntotal_bytes_max = \"10m\"\n",
        b"name = \"plain\"\n[destination]\ntotal_bytes_max = \"10 M\"\n",
        b"name = \"plain\"\n[destination]\ntotal_bytes_max = \" 10mb \"\nmessages_max = -1\n",
    ];
    for text in texts {
        fs::write(&file, text).unwrap();
        let broker = TestBroker::start_with(["--config", file.to_str().unwrap()]);
        let table = read_port_table(&broker.port_mapper);
        assert!(table.starts_with("101 plain "), "{text:?}: {table}");
        broker.stop();
    }
}

#[test]
fn settings_are_listed_with_what_they_take() {
    let text = run(tidegate(["broker", "--settings"]), b"").expect_code(0).text();
    for part in ["\nloops: a number from 1 to 64\n", "destination.messages_max: ", "listen: "] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn broken_arguments_are_refused_with_code_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["broker", "--loops", "none"], "1 to 64"),
        (&["broker", "--listen", "nowhere"], "HOST:PORT"),
        (&["broker", "--set", "loops"], "NAME=VALUE"),
        (&["broker", "--set", "lops=1"], "loops"),
        (&["broker", "--config", "/nonexistent/broker.toml"], "/nonexistent/broker.toml"),
        (&["brokr"], "broker"),
        (&[], "Usage"),
    ];
    for (arguments, part) in cases {
        let finished = run(tidegate(arguments.iter().copied()), b"").expect_code(2);
        assert!(finished.err.contains(part), "{arguments:?}: {}", finished.err);
        assert!(finished.out.is_empty());
    }
}
