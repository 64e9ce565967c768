//! `tidegate attributes`, and attributes of the client in other commands.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]
#![allow(clippy::disallowed_methods, reason = "how long a command takes is what is tested")]

mod cli_support;

use std::fs;
use std::time::{Duration, Instant};

use cli_support::{Finished, TestBroker, bash, run, tidegate};
use serde_json::Value;
use tidegate::client::ConnectionFactory;

fn objects(finished: &Finished) -> Vec<Value> {
    finished.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What is printed about one attribute.
fn about(finished: &Finished, name: &str) -> Value {
    objects(finished).into_iter().find(|one| one["name"] == name).unwrap()
}

#[test]
fn every_attribute_is_printed_with_default_meaning_and_value() {
    let table = run(tidegate(["attributes"]), b"").expect_code(0).text();
    let json = run(tidegate(["attributes", "--json"]), b"").expect_code(0);
    assert!(table.starts_with("NAME "), "{table}");
    assert!(!table.contains('\u{1b}'));
    let known = ConnectionFactory::attributes();
    assert_eq!((table.lines().count(), objects(&json).len()), (known.len() + 1, known.len()));
    for attribute in known {
        let line = table.lines().find(|line| line.starts_with(&format!("{} ", attribute.name())));
        assert!(line.is_some_and(|line| line.ends_with(attribute.meaning())), "{line:?}");
        let object = about(&json, attribute.name());
        assert_eq!(
            (&object["meaning"], &object["changed"]),
            (&attribute.meaning().into(), &false.into())
        );
        assert_eq!(object["value"], object["default"], "{object}");
    }
    let limit = about(&json, "imqConsumerFlowLimit");
    assert_eq!((&limit["default"], &limit["current_default"]), (&"100".into(), &"1000".into()));
}

#[test]
fn a_later_source_wins_environment_then_file_then_set() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.properties");
    fs::write(&file, "imqAckTimeout=2\nimqReconnectInterval=2\n").unwrap();
    let file = file.display().to_string();
    let mut command = tidegate([
        "attributes",
        "--json",
        "--properties",
        &file,
        "--set",
        "imqAckTimeout=3",
        "imqAckTimeout",
        "imqReconnectInterval",
        "imqPingInterval",
    ]);
    for name in ["imqAckTimeout", "imqReconnectInterval", "imqPingInterval"] {
        command.env(name, "1");
    }
    let printed = run(command, b"").expect_code(0);
    let values: Vec<_> = objects(&printed)
        .into_iter()
        .map(|one| (one["name"].clone(), one["value"].clone(), one["changed"].clone()))
        .collect();
    let expected =
        [("imqReconnectInterval", "2"), ("imqPingInterval", "1"), ("imqAckTimeout", "3")];
    assert_eq!(values, expected.map(|(name, value)| (name.into(), value.into(), true.into())));
}

#[test]
fn passwords_are_never_printed() {
    for arguments in [&["attributes"][..], &["attributes", "--json"]] {
        let mut command = tidegate(arguments.iter().copied());
        command.env("imqDefaultPassword", "s3cret").env("imqKeyStorePassword", "s3cret");
        let printed = run(command, b"").expect_code(0);
        assert!(printed.text().contains("***"), "{}", printed.text());
        assert!(!printed.text().contains("s3cret") && !printed.err.contains("s3cret"));
    }
    let long = format!("imqDefaultPassword={}", "s3cret".repeat(1000));
    let refused = run(tidegate(["attributes", "--set", &long]), b"").expect_code(2);
    assert!(!refused.err.contains("s3cret"), "{}", refused.err);
}

#[test]
fn a_mistake_names_the_attribute_and_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.properties");
    fs::write(&file, "\nimqAckTimeout=soon\n").unwrap();
    let file = file.display().to_string();
    let cases: &[(&[&str], &[&str])] = &[
        (&["attributes", "imqAckTimeouts"], &["imqAckTimeouts", "did you mean imqAckTimeout?"]),
        (&["attributes", "--set", "imqAckTimeout"], &["NAME=VALUE"]),
        (&["attributes", "--set", "imqJMSPriority=10"], &["imqJMSPriority", "0 to 9"]),
        (&["attributes", "--properties", &file], &["wrong.properties, line 2", "0 to 2147483647"]),
        (&["attributes", "--properties", "/nowhere"], &["/nowhere"]),
        (&["send", "q", "--set", "imqAdressList=x"], &["imqAddressList?"]),
        (&["receive", "q", "--properties", &file], &["wrong.properties, line 2"]),
        (&["ping", "--set", "imqPingInterval=x"], &["imqPingInterval", "-1 to"]),
    ];
    for (arguments, parts) in cases {
        let refused = run(tidegate(arguments.iter().copied()), b"").expect_code(2);
        for part in *parts {
            assert!(refused.err.contains(part), "{arguments:?}: {}", refused.err);
        }
    }
    let mut command = tidegate(["receive", "q"]);
    command.env("imqReconnectEnable", "true");
    let refused = run(command, b"").expect_code(2);
    assert!(refused.err.contains("environment") && refused.err.contains("imqReconnectEnabled?"));
}

#[test]
fn a_terminal_gets_them_laid_out_for_reading() {
    let typed = "$T attributes --set imqAckTimeout=5";
    let finished = run(bash(&format!("script -qefc '{typed}' /dev/null < /dev/null")), b"");
    let text = finished.expect_code(0).text();
    assert!(
        text.contains("CONNECTION HANDLING:") && text.contains("* imqAckTimeout = 5"),
        "{text}"
    );
    assert!(text.contains("  imqReconnectEnabled = false"), "{text}");
}

#[test]
fn commands_take_attributes_from_environment_and_set() {
    let broker = TestBroker::start();
    let mut send = tidegate(["send", "q", "--set", "imqJMSPriority=9"]);
    send.env("imqAddressList", broker.address()).env("imqOverrideJMSPriority", "true");
    run(send, b"x\n").expect_code(0);
    // What is said on the command line wins.
    let address = broker.address();
    let mut receive = tidegate(["receive", "q", "--count", "1", "--json", "--address", &address]);
    receive.env("imqAddressList", "mq://127.0.0.1:1/jms");
    let received = run(receive, b"").expect_code(0);
    assert_eq!(objects(&received)[0]["priority"], 9);
    let set = format!("imqAddressList={address}");
    run(tidegate(["ping", "--count", "3", "--set", &set]), b"").expect_code(0);
    broker.stop();
}

#[test]
fn where_nobody_listens_is_said_quickly_unless_more_passes_are_asked_for() {
    let began = Instant::now();
    let once = run(tidegate(["receive", "q", "--address", "mq://127.0.0.1:1/jms"]), b"");
    let once = once.expect_code(1);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(once.err.contains("(1 attempt)"), "{}", once.err);
    let more = ["--set", "imqAddressListIterations=3", "--set", "imqReconnectInterval=1"];
    let all = ["receive", "q", "--address", "mq://127.0.0.1:1/jms"].into_iter().chain(more);
    let thrice = run(tidegate(all), b"").expect_code(1);
    assert!(thrice.err.contains("(3 attempts)"), "{}", thrice.err);
}

#[test]
fn an_attribute_without_effect_is_told() {
    let all =
        ["attributes", "--json", "--set", "imqBrokerHostPort=7", "--set", "imqAddressList=mq://h"];
    let printed = run(tidegate(all), b"").expect_code(0);
    let port = about(&printed, "imqBrokerHostPort");
    assert_eq!(port["without_effect"], "imqAddressList says where to connect");
    let all =
        ["receive", "q", "--address", "mqssl://127.0.0.1:1/ssljms", "--set", "imqKeyStore=/k"];
    let failed = run(tidegate(all), b"").expect_code(1);
    assert!(failed.err.contains("imqKeyStore has no effect"), "{}", failed.err);
    assert!(failed.err.contains("needs TLS, which this build does not include"), "{}", failed.err);
}
