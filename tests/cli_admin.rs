//! `tidegate admin` against a running broker.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod cli_support;

use cli_support::{Finished, Running, TestBroker, bash, run, tidegate, wait_for};
use serde_json::Value;

/// Runs `tidegate admin` with these words at a broker.
fn admin(broker: &TestBroker, words: &[&str]) -> Finished {
    let address = broker.admin_address();
    let all = ["admin"].iter().chain(words).chain(&["--address"]).copied();
    run(tidegate(all.chain([address.as_str()])), b"")
}

/// What a list or query prints for programs.
fn json(broker: &TestBroker, words: &[&str]) -> Vec<Value> {
    let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    let finished = admin(broker, &words).expect_code(0);
    finished.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn named<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
}

/// A client that waits for a message that does not come.
fn receiver(broker: &TestBroker, queue: &str) -> Running {
    let address = broker.address();
    let receive = ["receive", queue, "--timeout", "60s", "--address", &address];
    let running = Running::start(tidegate(receive));
    wait_for("a consumer", || {
        let found = json(broker, &["list", "consumers"]);
        found.iter().any(|one| one["destination"] == queue).then_some(())
    });
    running
}

fn send(broker: &TestBroker, queue: &str, lines: &str) {
    let address = broker.address();
    run(tidegate(["send", queue, "--address", &address]), lines.as_bytes()).expect_code(0);
}

#[test]
fn destinations_are_made_changed_looked_at_and_destroyed() {
    let broker = TestBroker::start();
    let made = admin(&broker, &["create", "queue", "orders", "--set", "messages_max=2"]);
    assert_eq!(made.expect_code(0).text(), "done: create queue orders\n");
    let again = admin(&broker, &["create", "queue", "orders"]).expect_code(1);
    assert!(again.err.contains("already") && again.err.contains("409"), "{}", again.err);
    send(&broker, "orders", "one\ntwo\n");

    let table = admin(&broker, &["list", "destinations"]).expect_code(0).text();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("NAME "), "{table}");
    let orders = lines.iter().find(|line| line.starts_with("orders ")).unwrap();
    let cells: Vec<&str> = orders.split_whitespace().collect();
    assert_eq!(cells[..4], ["orders", "queue", "running", "2"]);
    assert_eq!(cells.last(), Some(&"administered"));
    let all = json(&broker, &["list", "destinations"]);
    assert_eq!(named(&all, "orders")["messages"], 2);
    assert_eq!(named(&all, "mq.sys.dmq")["origin"], "dead messages");

    admin(&broker, &["update", "queue", "orders", "--set", "messages_max=-1"]).expect_code(0);
    let query = admin(&broker, &["query", "queue", "orders"]).expect_code(0).text();
    let line = query.lines().find(|line| line.starts_with("messages_max:")).unwrap();
    assert!(line.ends_with(" -1"), "{line}");
    let query = json(&broker, &["query", "queue", "orders"]);
    assert_eq!((&query[0]["messages"], &query[0]["use_dmq"]), (&2.into(), &true.into()));

    let pause = ["pause", "queue", "orders", "--only", "producers"];
    admin(&broker, &pause).expect_code(0);
    assert_eq!(
        named(&json(&broker, &["list", "destinations"]), "orders")["state"],
        "producers paused"
    );
    admin(&broker, &["pause", "all"]).expect_code(0);
    assert_eq!(named(&json(&broker, &["list", "destinations"]), "orders")["state"], "paused");
    admin(&broker, &["resume", "all"]).expect_code(0);
    assert_eq!(named(&json(&broker, &["list", "destinations"]), "orders")["state"], "running");

    admin(&broker, &["purge", "queue", "orders", "--yes"]).expect_code(0);
    assert_eq!(named(&json(&broker, &["list", "destinations"]), "orders")["messages"], 0);
    admin(&broker, &["destroy", "queue", "orders", "--yes"]).expect_code(0);
    let gone = admin(&broker, &["destroy", "queue", "orders", "--yes"]).expect_code(1);
    assert!(gone.err.contains("no queue orders"), "{}", gone.err);
    broker.stop();
}

#[test]
fn what_destroys_needs_a_yes() {
    let broker = TestBroker::start();
    send(&broker, "orders", "one\n");
    for words in [
        &["purge", "queue", "orders"][..],
        &["destroy", "queue", "orders"],
        &["destroy", "connection", "1"],
        &["destroy", "durable", "d", "--client-id", "c"],
        &["rollback", "1"],
        &["commit", "1"],
        &["shutdown"],
    ] {
        let refused = admin(&broker, words).expect_code(2);
        assert!(refused.err.contains("--yes"), "{words:?}: {}", refused.err);
        assert!(refused.out.is_empty());
    }
    let told = admin(&broker, &["purge", "queue", "orders"]).expect_code(2);
    assert!(told.err.contains("1 message and 0 consumers"), "{}", told.err);

    // On a terminal it is asked for.
    let address = broker.admin_address();
    for (typed, code, left) in [("no", 1, 1), ("", 1, 1), ("yes", 0, 0)] {
        let command = format!("$T admin purge queue orders --address {address}");
        // What is typed goes to the terminal, which shows it as well.
        let script =
            format!("export TERM=dumb; printf '{typed}\\n' | script -qefc \"{command}\" /dev/null");
        let finished = run(bash(&script), b"");
        let text = finished.text();
        assert_eq!(finished.code(), Some(code), "{typed}: {text}");
        assert!(text.contains("purge queue orders, which has 1 message"), "{text}");
        let now = json(&broker, &["list", "destinations"]);
        assert_eq!(named(&now, "orders")["messages"], left, "{typed}");
    }
    broker.stop();
}

#[test]
fn clients_are_listed_and_ended() {
    let broker = TestBroker::start();
    let waiting = receiver(&broker, "q");
    let consumers = json(&broker, &["list", "consumers", "--queue", "q"]);
    assert_eq!(consumers.len(), 1);
    assert_eq!((&consumers[0]["user"], &consumers[0]["kind"]), (&"guest".into(), &"queue".into()));
    let connection = consumers[0]["connection"].as_i64().unwrap().to_string();
    let connections = json(&broker, &["list", "connections"]);
    let own = connections.iter().find(|one| one["service"] == "jms").unwrap();
    assert_eq!(own["id"].to_string(), connection);
    assert_eq!(own["consumers"], 1);
    let one = json(&broker, &["query", "connection", &connection]);
    assert_eq!(one[0]["consumers"][0], consumers[0]["id"]);
    assert_eq!(one[0]["id"], own["id"]);
    let table = admin(&broker, &["list", "connections"]).expect_code(0);
    assert!(table.text().starts_with("ID "), "{}", table.text());

    admin(&broker, &["destroy", "connection", &connection, "--yes"]).expect_code(0);
    let ended = waiting.finish().expect_code(1);
    assert!(ended.err.contains("administrator"), "{}", ended.err);
    assert!(json(&broker, &["list", "consumers", "--queue", "q"]).is_empty());

    let waiting = receiver(&broker, "q");
    let consumers = json(&broker, &["list", "consumers", "--queue", "q"]);
    let id = consumers[0]["id"].to_string();
    admin(&broker, &["destroy", "consumer", &id, "--yes"]).expect_code(0);
    let unknown = admin(&broker, &["destroy", "consumer", &id, "--yes"]).expect_code(1);
    assert!(unknown.err.contains("no consumer"), "{}", unknown.err);
    let unknown = admin(&broker, &["destroy", "producer", "1", "--yes"]).expect_code(1);
    assert!(unknown.err.contains("no producer 1"), "{}", unknown.err);
    waiting.signal("INT");
    waiting.finish();
    // The program's own, where it sends its requests.
    let producers = json(&broker, &["list", "producers"]);
    assert!(producers.iter().all(|one| one["user"] == "admin"), "{producers:?}");
    broker.stop();
}

#[test]
fn what_is_not_there_is_an_empty_list() {
    let broker = TestBroker::start();
    for what in ["durables", "transactions"] {
        assert!(json(&broker, &["list", what]).is_empty());
        let table = admin(&broker, &["list", what]).expect_code(0);
        assert_eq!(table.text().lines().count(), 1, "the titles");
    }
    let services = json(&broker, &["list", "services"]);
    assert_eq!(named(&services, "admin")["type"], "ADMIN");
    let port = broker.service.rsplit_once(':').unwrap().1;
    assert_eq!(named(&services, "jms")["port"].to_string(), port);
    for words in [
        &["commit", "5", "--yes"][..],
        &["rollback", "5", "--yes"],
        &["destroy", "durable", "d", "--yes"],
        &["purge", "durable", "d", "--client-id", "c", "--yes"],
        &["query", "durable", "d"],
        &["query", "queue", "q"],
        &["query", "topic", "q"],
        &["query", "connection", "5"],
        &["destroy", "topic", "q", "--yes"],
        &["purge", "topic", "q", "--yes"],
        &["update", "topic", "q", "--set", "use_dmq=false"],
        &["list", "consumers", "--queue", "q"],
    ] {
        let refused = admin(&broker, words).expect_code(1);
        assert!(refused.err.contains("404"), "{words:?}: {}", refused.err);
    }
    broker.stop();
}

#[test]
fn the_broker_is_looked_at_changed_and_shut_down() {
    let broker = TestBroker::start();
    let query = json(&broker, &["query", "broker"]);
    assert_eq!(query[0]["autocreate_queue"], true);
    assert_eq!(query[0]["memory_level"], "green");
    let update = ["update", "broker", "--set", "autocreate_queue=false", "--set", "messages_max=9"];
    let done = json(&broker, &update);
    assert_eq!(done[0]["done"], "update broker: autocreate_queue=false, messages_max=9");
    let query = json(&broker, &["query", "broker"]);
    assert_eq!(query[0]["messages_max"], 9);
    let address = broker.address();
    run(tidegate(["send", "new", "--address", &address]), b"x\n").expect_code(1);
    let fixed = admin(&broker, &["update", "broker", "--set", "loops=1"]).expect_code(1);
    assert!(fixed.err.contains("loops") && fixed.err.contains("start"), "{}", fixed.err);

    let done = admin(&broker, &["shutdown", "--yes"]).expect_code(0);
    assert_eq!(done.text(), "done: shut down the broker\n");
    // It ends by itself, and in order.
    let stopped = broker.running.finish().expect_code(0);
    assert!(stopped.text().contains("stopped"), "{}", stopped.text());
}

#[test]
fn broken_arguments_are_refused_before_anybody_is_called() {
    // Nobody listens there.
    let nowhere = ["--address", "mq://127.0.0.1:1/admin"];
    for (words, parts) in [
        (
            &["create", "queue", "q", "--set", "mesages_max=1"][..],
            &["mesages_max", "\"messages_max\""][..],
        ),
        (&["create", "queue", "q", "--set", "messages_max=0"], &["messages_max", "from 1 on"]),
        (&["create", "queue", "q", "--set", "messages_max"], &["NAME=VALUE"]),
        (&["update", "queue", "q"], &["--set NAME=VALUE"]),
        (&["update", "broker"], &["--set NAME=VALUE"]),
        (&["update", "broker", "--set", "lops=1"], &["lops", "loops"]),
        (&["destroy", "queue"], &["NAME"]),
        (&["destroy", "connection", "x"], &["x"]),
        (&["list", "queues"], &["destinations"]),
        (&["list"], &["<WHAT>", "--help"]),
        (&["pause", "queue", "q", "--only", "some"], &["consumers", "producers"]),
    ] {
        let all = ["admin"].iter().chain(words).chain(&nowhere).copied();
        let refused = run(tidegate(all), b"").expect_code(2);
        for part in parts {
            assert!(refused.err.contains(part), "{words:?}: no {part:?} in {}", refused.err);
        }
    }
    let all = ["admin", "list", "destinations"].iter().chain(&nowhere).copied();
    let refused = run(tidegate(all), b"").expect_code(1);
    assert!(refused.err.contains("127.0.0.1:1"), "{}", refused.err);
    let broker = TestBroker::start();
    let wrong = admin(&broker, &["list", "connections", "--queue", "q"]).expect_code(2);
    assert!(wrong.err.contains("--queue"), "{}", wrong.err);
    broker.stop();
}

#[test]
fn only_administrators_get_in() {
    let broker = TestBroker::start();
    let address = broker.admin_address();
    let as_guest = ["admin", "list", "destinations", "--user", "guest", "--password", "guest"];
    let refused = run(tidegate(as_guest.into_iter().chain(["--address", &address])), b"");
    assert!(refused.expect_code(1).err.contains("guest"));
    let mut with_variable = tidegate(["admin", "list", "destinations", "--address", &address]);
    with_variable.env("TIDEGATE_PASSWORD", "wrong");
    assert!(run(with_variable, b"").expect_code(1).err.contains("admin"));
    broker.stop();
}

#[test]
fn help_teaches_with_examples() {
    for words in [
        &["admin"][..],
        &["admin", "list"],
        &["admin", "query"],
        &["admin", "create"],
        &["admin", "update"],
        &["admin", "purge"],
        &["admin", "pause"],
        &["admin", "destroy"],
    ] {
        let help = run(tidegate(words.iter().copied().chain(["--help"])), b"").expect_code(0);
        assert!(help.text().contains("\n  tidegate admin "), "{words:?}: {}", help.text());
    }
}
