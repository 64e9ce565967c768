//! Checking and counting what is in a store, and writing it as lines and back.
#![cfg(feature = "store-json")]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod store_support;

use bytes::Bytes;
use store_support::{Store, contents, sample};
use tidegate::{
    message::DestinationKind,
    store::{
        Batch, Durability, MemoryStore, Space, StoreError,
        record::{self, CopyRecord, DeliveredRecord, DeliveriesRecord, Record},
        tools::{self, CheckReport, ImportError},
    },
    wire::{PacketBuilder, PacketType},
};

fn filled() -> Store {
    let mut store = MemoryStore::new();
    sample::fill(&mut store);
    Box::new(store)
}

fn check(store: &mut Store) -> CheckReport {
    tools::check(&mut **store, &mut |_, _| ()).unwrap()
}

/// The sample with more in it.
fn with(more: impl FnOnce(&mut Batch)) -> Store {
    let mut store = filled();
    let mut batch = Batch::new(2);
    more(&mut batch);
    store.commit(&batch, Durability::Synced).unwrap();
    store
}

fn problems(store: &mut Store) -> Vec<String> {
    let show = |problem: tools::Problem| format!("{}: {}", problem.place, problem.reason);
    check(store).problems.into_iter().map(show).collect()
}

fn leftovers(store: &mut Store) -> Vec<String> {
    let report = check(store);
    assert_eq!(report.problems, []);
    let show = |one: tools::Leftover| format!("{} {}: {}", one.count, one.what, one.first);
    report.leftovers.into_iter().map(show).collect()
}

#[test]
fn a_sound_store_has_no_problems() {
    let report = check(&mut filled());
    assert!(report.is_sound() && report.leftovers.is_empty(), "{report:?}");
    assert_eq!(report.entries, 12);
    let empty = check(&mut (Box::new(MemoryStore::new()) as Store));
    assert!(empty.is_sound() && empty.entries == 0);
}

#[test]
fn every_altered_entry_is_found_and_named() {
    for ((space, key), value) in contents(&mut filled()) {
        let mut altered = value.to_vec();
        *altered.last_mut().unwrap() ^= 4;
        let mut store = with(|batch| batch.put(space, &key, |_| {}, altered.into()));
        let found = problems(&mut store);
        // What it was is missing then, which may be a second one.
        let of_it: Vec<_> = found.iter().filter(|text| text.contains("its checksum is")).collect();
        assert_eq!(of_it.len(), 1, "{found:?}");
        assert!(of_it[0].starts_with(&format!("{space} ")), "{found:?}");
        assert!(tools::stats(&mut *store, &mut |_, _| ()).is_err(), "{space}");
    }
}

#[test]
fn what_belongs_to_nobody_is_left_over_and_not_wrong() {
    let packet = sample::packet("x");
    let copy = |subscription, sequence, topic| CopyRecord {
        subscription,
        sequence,
        topic,
        delivered: false,
    };
    let mut store = with(|batch| {
        // A subscription keeps the message of a topic that is gone.
        sample::put_message(batch, 30, 1, &packet);
        record::put_copy(batch, &copy(sample::READER, 1, 30));
        sample::put_message(batch, 30, 2, &packet);
        sample::put_message(batch, sample::NEWS, 3, &packet);
        record::put_copy(batch, &copy(sample::READER, 4, sample::NEWS));
        record::put_copy(batch, &copy(31, 7, sample::NEWS));
        record::put_delivered(batch, &DeliveredRecord { place: 32, priority: 0, through: 1 });
        let counts = DeliveriesRecord { place: sample::ORDERS, sequence: 1, count: 1 };
        record::put_deliveries(batch, &counts);
        record::remove_message(batch, sample::ORDERS, 6);
        let mut other = sample::transaction();
        (other.id, other.messages[0].0, other.consumed) = (41, 33, Vec::new());
        record::put_transaction(batch, &other);
    });
    assert_eq!(
        leftovers(&mut store),
        [
            "1 copies of no message: copies 3/4",
            "1 copies of no subscription: copies 31/7",
            "1 counts of no message: deliveries 1/1",
            "1 marks of deliveries of nothing that is there: delivered 32/0",
            "2 messages nobody has a copy of: messages 2/3",
            "1 prepared acknowledgements of no message: transactions 40 of 1/6",
            "1 prepared sends to a destination that is not there: transactions 41",
        ]
    );
}

#[test]
fn contradictions_are_wrong() {
    let packet = sample::packet("x");
    let same_name = sample::destination(3, DestinationKind::Queue, "orders");
    let found = problems(&mut with(|batch| record::put_destination(batch, &same_name)));
    assert_eq!(
        found,
        [
            "destinations 3: there is another queue named orders",
            "subscriptions 3: a destination has the same id"
        ]
    );
    let found = problems(&mut with(|batch| {
        sample::put_message(batch, sample::ORDERS, 8, &packet);
        let late = sample::destination(9, DestinationKind::Queue, "late");
        record::put_destination(batch, &late);
    }));
    assert_eq!(
        found,
        [
            "recent, batch 1: its last sequence is 7, and there is 8",
            "recent, batch 1: its last id is 3, and there is 9"
        ]
    );
    let found = problems(&mut with(|batch| {
        let mut other = sample::transaction();
        other.id = 41;
        record::put_transaction(batch, &other);
    }));
    assert_eq!(found, ["transactions 41: transaction 40 consumes 1/6 as well"]);
    let no_message = PacketBuilder::new(PacketType::PING).finish();
    let found =
        problems(&mut with(|batch| sample::put_message(batch, sample::ORDERS, 5, &no_message)));
    assert_eq!(found, ["messages 1/5: it is a packet of type PING and no message"]);
    let found = problems(&mut with(|batch| batch.remove(Space::About, b"format")));
    assert_eq!(
        found,
        [r#"about "format": it is not there, so something was not finished, an import perhaps"#]
    );
    let found = problems(&mut with(|batch| Record::Format(7).put(batch)));
    assert_eq!(found, [r#"about "format": it is 7, and this program knows 1"#]);
}

#[test]
fn an_entry_under_a_strange_key_is_wrong() {
    let found = problems(&mut with(|batch| {
        batch.put(Space::Copies, b"odd", |_| {}, Bytes::from_static(b"value"));
    }));
    assert_eq!(found, [r#"copies "odd": its key is not one of this space"#]);
}

#[test]
fn statistics_count_what_is_there() {
    let stats = tools::stats(&mut *filled(), &mut |_, _| ()).unwrap();
    assert_eq!((stats.format, stats.last_batch), (Some(1), 1));
    let entries: Vec<_> = stats.spaces.iter().map(|one| one.entries).collect();
    assert_eq!(entries, [1, 2, 1, 1, 1, 1, 3, 1, 1]);
    let all = contents(&mut filled());
    let bytes = |of: Space| -> u64 {
        let of = all.iter().filter(|((space, _), _)| *space == of);
        of.map(|((_, key), value)| (key.len() + value.len()) as u64).sum()
    };
    assert!(stats.spaces.iter().all(|one| one.bytes == bytes(one.space)));
    let orders = &stats.destinations[0];
    assert_eq!(orders.name, Some((DestinationKind::Queue, "orders".into())));
    let sizes = ["three apples", "\u{1}no text"].map(|body| sample::packet(body).raw().len());
    assert_eq!((orders.messages, orders.bytes), (2, sizes.iter().sum::<usize>() as u64));
    assert_eq!((orders.oldest_ms, orders.newest_ms), (Some(1005), Some(1006)));
    let reader = &stats.subscriptions[0];
    assert_eq!((reader.name.as_str(), reader.messages), ("reader", 1));
    let prepared = &stats.transactions[0];
    assert_eq!((prepared.id, prepared.sends, prepared.consumes), (40, 1, 1));
}

fn exported(store: &mut Store) -> String {
    let mut lines = Vec::new();
    tools::export(&mut **store, &mut lines, &mut |_, _| ()).unwrap();
    String::from_utf8(lines).unwrap()
}

fn imported(lines: &str) -> Result<Store, ImportError> {
    let mut store: Store = Box::new(MemoryStore::new());
    tools::import(&mut *store, &mut lines.as_bytes(), &mut |_, _| ())?;
    Ok(store)
}

#[test]
fn an_imported_export_is_the_same_store() {
    let lines = exported(&mut filled());
    let mut store = imported(&lines).unwrap();
    assert_eq!(contents(&mut store), contents(&mut filled()));
    assert_eq!(exported(&mut store), lines);
}

/// The lines are kept for years and read by other programs, so their form is held here.
#[test]
fn the_lines_of_an_export_have_this_form() {
    let lines = exported(&mut filled());
    let expected = [
        r#"{"store":{"format":1,"from":"memory","program":"tidegate VERSION"}}"#,
        r#"{"destination":{"id":1,"kind":"queue","name":"orders","administered":true,"consumption_paused":false,"production_paused":false,"attributes":[["messages_max","5"]]}}"#,
        r#"{"destination":{"id":2,"kind":"topic","name":"news","administered":true,"consumption_paused":false,"production_paused":false,"attributes":[["messages_max","5"]]}}"#,
        r#"{"subscription":{"id":3,"client_id":"paper","name":"reader","topic":"news","is_pattern":false,"is_orphan":false,"selector":null,"no_local":null,"shared":"nobody"}}"#,
        r#"{"transaction":{"id":40,"xid":"eGlk","created_ms":11,"user":"guest","one_phase":false,"lifetime_ms":null,"auto_rollback":0,"session_less":true,"sends":[{"destination":1,"packet":{"type":"TEXT_MESSAGE","id":{"timestamp":9,"address":"BwcHBwcHBwcHBwcHBwcHBw==","port":8,"sequence":3},"priority":4,"expiration":0,"flags":4,"consumer_id":0,"encryption":0,"fields":"","properties":"","body":{"text":"later"}}}],"consumes":[{"place":1,"sequence":6}]}}"#,
        r#"{"delivered":{"place":1,"priority":4,"through":5}}"#,
        r#"{"deliveries":{"place":3,"sequence":7,"count":2}}"#,
        r#"{"message":{"destination":1,"of":"orders","sequence":5,"received_ms":1005,"delivered":false,"packet":{"type":"TEXT_MESSAGE","id":{"timestamp":9,"address":"BwcHBwcHBwcHBwcHBwcHBw==","port":8,"sequence":3},"priority":4,"expiration":0,"flags":4,"consumer_id":0,"encryption":0,"fields":"","properties":"","body":{"text":"three apples"}}}}"#,
        r#"{"message":{"destination":1,"of":"orders","sequence":6,"received_ms":1006,"delivered":false,"packet":{"type":"TEXT_MESSAGE","id":{"timestamp":9,"address":"BwcHBwcHBwcHBwcHBwcHBw==","port":8,"sequence":3},"priority":4,"expiration":0,"flags":4,"consumer_id":0,"encryption":0,"fields":"","properties":"","body":{"base64":"AW5vIHRleHQ="}}}}"#,
        r#"{"message":{"destination":2,"of":"news","sequence":7,"received_ms":1007,"delivered":false,"packet":{"type":"TEXT_MESSAGE","id":{"timestamp":9,"address":"BwcHBwcHBwcHBwcHBwcHBw==","port":8,"sequence":3},"priority":4,"expiration":0,"flags":4,"consumer_id":0,"encryption":0,"fields":"","properties":"","body":{"text":"rain"}}}}"#,
        r#"{"copy":{"subscription":3,"sequence":7,"topic":2,"delivered":true}}"#,
        r#"{"recent":{"slot":1,"batch":1,"sequence":7,"place":3,"messages":[{"destination":1,"id":{"timestamp":9,"address":"BwcHBwcHBwcHBwcHBwcHBw==","port":8,"sequence":3}}],"transactions":[{"id":39,"xid":null,"committed":true}]}}"#,
        r#"{"end":{"lines":{"copies":1,"delivered":1,"deliveries":1,"destinations":2,"messages":3,"recent":1,"subscriptions":1,"transactions":1}}}"#,
    ];
    let expected = expected.map(|line| line.replace("VERSION", env!("CARGO_PKG_VERSION")));
    for (line, expected) in lines.lines().zip(&expected) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines.lines().count(), expected.len());
}

#[test]
fn an_import_needs_an_empty_store() {
    let lines = exported(&mut filled());
    let mut store = filled();
    let refused = tools::import(&mut *store, &mut lines.as_bytes(), &mut |_, _| ());
    assert!(matches!(refused, Err(ImportError::NotEmpty { .. })), "{refused:?}");
    assert_eq!(contents(&mut store), contents(&mut filled()));
}

#[test]
fn lines_that_are_not_those_of_an_export_are_refused_with_their_number() {
    let whole = exported(&mut filled());
    let without = |number: usize| {
        let kept = whole.lines().enumerate().filter(|(at, _)| at + 1 != number);
        kept.map(|(_, line)| format!("{line}\n")).collect::<String>()
    };
    let swapped = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        whole.replacen(from, to, 1)
    };
    let cases: [(String, &str); 15] = [
        (String::new(), "line 1: this is no export of a store"),
        (without(1), "line 1: this is no export of a store"),
        (without(13), "line 13: the end is missing"),
        (without(10), "line 12: there should be"),
        (whole[..whole.len() / 2].into(), "line 8: EOF while parsing a string at column"),
        (format!("{whole}{{\"end\":{{\"lines\":{{}}}}}}\n"), "line 14: something follows"),
        (swapped("\"count\"", "\"counts\""), "line 7: unknown field `counts`"),
        (swapped("\"recent\":{\"slot\":1,", "\"recent\":{"), "line 12: missing field `slot`"),
        (swapped("\"copy\"", "\"sheet\""), "line 11: unknown variant `sheet`"),
        (swapped("{\"copy\"", "{\"store\""), "line 11: unknown field `subscription`"),
        (swapped("\"id\":2,", "\"id\":1,"), "line 3: it is there twice, or not in the order"),
        (swapped("\"of\":\"news\"", "\"of\":\"orders\""), "line 10: `of` is not the name of"),
        (swapped("\"AW5vIHRleHQ=\"", "\"AW5v*\""), "line 9: Invalid"),
        (swapped("TEXT_MESSAGE", "LETTER"), "line 5: the type is no name and no number"),
        (swapped("\"format\":1", "\"format\":2"), "the store has format 2, and this program"),
    ];
    for (lines, expected) in cases {
        let error = imported(&lines).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}, and not {expected}");
    }
}

#[test]
fn a_store_whose_import_was_not_finished_is_known_as_such() {
    let whole = exported(&mut filled());
    // More than is committed at once comes before the mistake.
    let many: String = (0..25_000)
        .map(|sequence| {
            format!("{{\"deliveries\":{{\"place\":1,\"sequence\":{sequence},\"count\":1}}}}\n")
        })
        .collect();
    let first = whole.lines().next().unwrap();
    let mut store: Store = Box::new(MemoryStore::new());
    let lines = format!("{first}\n{many}oops\n");
    let error = tools::import(&mut *store, &mut lines.as_bytes(), &mut |_, _| ()).unwrap_err();
    assert!(error.is_of_input() && error.to_string().starts_with("line 25002: "), "{error}");
    assert_eq!(check(&mut store).entries, 20_000);
    assert!(problems(&mut store)[0].starts_with("about \"format\": it is not there"));
}

/// A broker goes on with the batch behind the latest one it finds.
#[test]
fn an_import_of_more_batches_than_there_were_says_which_was_the_last() {
    let mut store = with(|batch| {
        for sequence in 8..25_000 {
            sample::put_message(batch, sample::ORDERS, sequence, &sample::packet("x"));
        }
        let mut recent = sample::recent();
        recent.sequence = 25_000;
        record::put_recent(batch, 1, &recent);
    });
    let mut told = Vec::new();
    let lines = exported(&mut store);
    let mut other: Store = Box::new(MemoryStore::new());
    let mut progress = |count, _| told.push(count);
    tools::import(&mut *other, &mut lines.as_bytes(), &mut progress).unwrap();
    assert_eq!(told, [4096, 8192, 12_288, 16_384, 20_480, 24_576]);
    assert!(check(&mut other).is_sound());
    assert_eq!(tools::stats(&mut *other, &mut |_, _| ()).unwrap().last_batch, 3);
    other.commit(&Batch::new(4), Durability::Synced).unwrap();
    // Nothing else was added.
    let before = contents(&mut store);
    let more = contents(&mut other).into_keys().filter(|at| !before.contains_key(at));
    assert_eq!(more.map(|(space, _)| space).collect::<Vec<_>>(), [Space::Recent]);
}

#[test]
fn a_store_of_another_format_is_not_exported() {
    let mut store = with(|batch| Record::Format(7).put(batch));
    let refused = tools::export(&mut *store, &mut Vec::new(), &mut |_, _| ()).unwrap_err();
    let tools::ExportError::Store(StoreError::Format { found: 7, known: 1 }) = refused else {
        panic!("{refused}")
    };
}
