//! `tidegate store` on directories of real brokers, and on broken ones.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may fail loudly")]

mod cli_support;
mod store_support;

use std::fs;
use std::path::Path;

use bytes::Bytes;
use cli_support::{Finished, TestBroker, run, tidegate};
use serde_json::{Value as Json, json};
use store_support::sample;
use tempfile::TempDir;
use tidegate::store::{
    Batch, Durability, FjallSettings, FjallStore, MessageStore as _, Space, record,
};

/// A directory with the sample in it.
fn filled(more: impl FnOnce(&mut Batch)) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut store = FjallStore::open(folder.path(), FjallSettings::default()).unwrap();
    store.recover().unwrap();
    sample::fill(&mut store);
    let mut batch = Batch::new(2);
    more(&mut batch);
    if !batch.is_empty() {
        store.commit(&batch, Durability::Synced).unwrap();
    }
    store.close().unwrap();
    folder
}

fn store<'a>(verb: &'a str, folder: &'a Path, more: &[&'a str]) -> Finished {
    let words = ["store", verb, folder.to_str().unwrap()];
    run(tidegate(words.into_iter().chain(more.iter().copied())), b"")
}

fn json(finished: &Finished) -> Json {
    serde_json::from_str(&finished.text()).unwrap()
}

/// Lines without the first, which says where they come from.
fn records(lines: &str) -> String {
    lines.split_once('\n').unwrap().1.to_owned()
}

#[test]
fn what_a_broker_stored_is_sound_and_goes_through_lines_to_another_broker() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let broker = TestBroker::start_with(["--data", data]);
    let send = tidegate(["send", "orders", "--persistent", "--address", &broker.address()]);
    run(send, b"one\ntwo\n").expect_code(0);
    // As long as a broker uses it nobody else looks into it.
    for verb in ["check", "stats", "export"] {
        let refused = store(verb, folder.path(), &[]).expect_code(5);
        assert!(refused.err.contains("in use by another process"), "{}", refused.err);
    }
    broker.stop();
    let checked = store("check", folder.path(), &[]).expect_code(0).text();
    assert!(checked.starts_with("sound: fjall in "), "{checked}");
    let stats = json(&store("stats", folder.path(), &["--json"]).expect_code(0));
    let orders = stats["destinations"].as_array().unwrap();
    let orders = orders.iter().find(|one| one["name"] == "orders").unwrap();
    assert_eq!((&orders["kind"], &orders["messages"]), (&json!("queue"), &json!(2)));
    assert!(stats["last_batch"].as_u64().unwrap() > 0);

    let lines = store("export", folder.path(), &[]).expect_code(0).text();
    let other = folder.path().join("other");
    let import = tidegate(["store", "import", other.to_str().unwrap()]);
    let imported = run(import, lines.as_bytes()).expect_code(0).text();
    assert!(imported.starts_with("imported ") && imported.contains(" records into "), "{imported}");
    let again = store("export", &other, &[]).expect_code(0).text();
    assert_eq!(records(&again), records(&lines));

    let broker = TestBroker::start_with(["--data", other.to_str().unwrap()]);
    let address = broker.address();
    let receive =
        tidegate(["receive", "orders", "--count", "2", "--timeout", "20s", "--address", &address]);
    assert_eq!(run(receive, b"").expect_code(0).text(), "one\ntwo\n");
    broker.stop();
    store("check", &other, &[]).expect_code(0);
}

#[test]
fn a_check_names_what_is_wrong_and_ends_with_a_code_of_its_own() {
    let folder = filled(|batch| {
        let key = record::message_key(sample::ORDERS, 5);
        batch.put(Space::Messages, &key, |_| {}, Bytes::from_static(b"not what was written"));
        record::remove_message(batch, sample::NEWS, 7);
    });
    let checked = store("check", folder.path(), &[]).expect_code(4);
    let text = checked.text();
    let wrong: Vec<_> = text.lines().filter(|line| line.starts_with("wrong: ")).collect();
    assert_eq!(wrong.len(), 1, "{text}");
    assert!(wrong[0].starts_with("wrong: messages 1/5: its checksum is"), "{text}");
    let left = "left over: 1 copies of no message, the first at copies 3/7";
    assert!(text.lines().any(|line| line == left), "{text}");
    assert!(text.contains("not sound: fjall in "), "{text}");
    assert!(checked.err.contains("tidegate: something is wrong in fjall in "), "{}", checked.err);
    let report = json(&store("check", folder.path(), &["--json"]).expect_code(4));
    assert_eq!(report["sound"], false);
    assert_eq!(report["problems"][0]["place"], "messages 1/5");
    // Nor does anything else take it for granted.
    store("stats", folder.path(), &[]).expect_code(4);
    let exported = store("export", folder.path(), &[]).expect_code(4);
    assert!(!exported.text().contains("\"end\""), "{}", exported.text());
}

#[test]
fn statistics_are_tables_for_people_and_an_object_for_programs() {
    let folder = filled(|_| {});
    let text = store("stats", folder.path(), &[]).expect_code(0).text();
    assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text}");
    for row in ["messages ", "orders ", "reader ", "40 "] {
        assert!(text.lines().any(|line| line.starts_with(row)), "{row} in {text}");
    }
    let stats = json(&store("stats", folder.path(), &["--json"]).expect_code(0));
    assert_eq!(stats["spaces"]["messages"]["entries"], 3);
    assert_eq!(stats["subscriptions"][0]["messages"], 1);
    let prepared = json!({ "id": 40, "created_ms": 11, "sends": 1, "consumes": 1 });
    assert_eq!(stats["transactions"][0], prepared);
}

#[test]
fn an_export_goes_to_a_file_as_well() {
    let folder = filled(|_| {});
    let file = folder.path().join("lines");
    let said = store("export", folder.path(), &["--output", file.to_str().unwrap()]);
    assert!(said.expect_code(0).text().starts_with("exported 11 records to "));
    let lines = store("export", folder.path(), &[]).expect_code(0).text();
    assert_eq!(fs::read_to_string(&file).unwrap(), lines);
    let other = folder.path().join("other");
    store("import", &other, &[file.to_str().unwrap()]).expect_code(0);
    // Not into what is not empty any more.
    let refused = store("import", &other, &[file.to_str().unwrap()]).expect_code(1);
    assert!(refused.err.contains("is not empty"), "{}", refused.err);
    store("check", &other, &[]).expect_code(0);
}

#[test]
fn an_import_that_breaks_off_says_where_and_what_to_remove() {
    let folder = filled(|_| {});
    let lines = store("export", folder.path(), &[]).expect_code(0).text();
    let cut = &lines[..lines.len() - 20];
    let other = folder.path().join("other");
    let import = tidegate(["store", "import", other.to_str().unwrap(), "-"]);
    let failed = run(import, cut.as_bytes()).expect_code(1);
    assert!(failed.err.contains("standard input: line 13: "), "{}", failed.err);
    assert!(failed.err.contains("is not complete, remove"), "{}", failed.err);
}

#[test]
fn a_directory_that_is_not_there_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    for verb in ["check", "stats", "export"] {
        let refused = store(verb, &missing, &[]).expect_code(2);
        assert!(refused.err.contains("is not a directory"), "{}", refused.err);
        // A directory without a store is left as it is.
        store(verb, folder.path(), &[]).expect_code(1);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
