//! What every store of messages must do, whatever it is made of.
//!
//! [`run`] takes a function that makes an empty place for a store, as a function that opens the
//! store there. It is opened again and again, never twice at a time:
//!
//! ```ignore
//! store_support::run(|| {
//!     let folder = tempfile::tempdir().unwrap();
//!     move || Box::new(MyStore::open(folder.path()).unwrap()) as Box<dyn MessageStore>
//! });
//! ```
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(unreachable_pub, reason = "shared by test programs")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail loudly")]

pub mod sample;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use tidegate::store::{Batch, Durability, Entry, MessageStore, Outcome, Space};

/// A store, opened.
pub type Store = Box<dyn MessageStore>;

/// All that is in a store, by space and key.
pub type Contents = BTreeMap<(Space, Bytes), Bytes>;

type Open<'a> = &'a mut dyn FnMut() -> Store;

/// What is checked, and how.
type Check = (&'static str, fn(Open<'_>));

const CHECKS: &[Check] = &[
    ("a_new_store_is_fresh_and_later_loaded", a_new_store_is_fresh_and_later_loaded),
    ("entries_come_by_space_and_key", entries_come_by_space_and_key),
    ("a_later_change_of_the_same_key_counts", a_later_change_of_the_same_key_counts),
    ("removing_by_prefix_takes_just_those", removing_by_prefix_takes_just_those),
    ("removing_what_is_not_there_is_nothing", removing_what_is_not_there_is_nothing),
    ("values_of_no_byte_and_of_five_mebibytes_are_kept", values_of_all_sizes_are_kept),
    ("a_batch_of_many_changes_is_found_whole", a_batch_of_many_changes_is_found_whole),
    ("what_was_committed_survives_however_it_ends", what_was_committed_survives_however_it_ends),
    ("a_recovery_may_be_left_halfway", a_recovery_may_be_left_halfway),
    ("a_reader_sees_what_was_committed_before", a_reader_sees_what_was_committed_before),
    ("a_reader_elsewhere_sees_every_commit", a_reader_elsewhere_sees_every_commit),
    ("a_store_may_be_used_by_another_thread", a_store_may_be_used_by_another_thread),
    ("any_batches_leave_what_they_say", any_batches_leave_what_they_say),
];

/// Runs every check, each at a place of its own.
pub fn run<F: FnMut() -> Store>(mut place: impl FnMut() -> F) {
    for (name, check) in CHECKS {
        println!("{name}");
        check(&mut place());
    }
}

/// Reads all of a store, and holds the order of its entries.
pub fn contents(store: &mut Store) -> Contents {
    entries(store).into_iter().map(|entry| ((entry.space, entry.key), entry.value)).collect()
}

fn entries(store: &mut Store) -> Vec<Entry> {
    let entries: Result<Vec<Entry>, _> = store.recover().unwrap().entries.collect();
    let entries = entries.unwrap();
    for pair in entries.windows(2) {
        let [first, second] = pair else { unreachable!("windows of two") };
        assert!((first.space, &first.key) < (second.space, &second.key), "{first:?} {second:?}");
    }
    entries
}

/// Opens a store and gets it ready for commits.
fn opened(open: Open<'_>) -> Store {
    let mut store = open();
    contents(&mut store);
    store
}

fn put(batch: &mut Batch, space: Space, key: &[u8], value: &'static [u8]) {
    let (head, body) = value.split_at(value.len() / 2);
    batch.put(space, key, |out| out.extend_from_slice(head), Bytes::from_static(body));
}

fn commit(store: &mut Store, batch: &Batch) {
    store.commit(batch, Durability::Synced).unwrap();
}

fn found(open: Open<'_>) -> Vec<String> {
    let show = |entry: Entry| {
        format!("{} {} {}", entry.space, entry.key.escape_ascii(), entry.value.escape_ascii())
    };
    entries(&mut open()).into_iter().map(show).collect()
}

fn a_new_store_is_fresh_and_later_loaded(open: Open<'_>) {
    let mut store = open();
    assert!(!store.describe().is_empty());
    assert_eq!(outcome_and_count(&mut store), (Outcome::Fresh, 0));
    let mut batch = Batch::new(1);
    put(&mut batch, Space::About, b"k", b"value");
    commit(&mut store, &batch);
    drop(store);
    assert_eq!(outcome_and_count(&mut open()), (Outcome::Loaded, 1));
}

fn outcome_and_count(store: &mut Store) -> (Outcome, usize) {
    let recovery = store.recover().unwrap();
    (recovery.outcome, recovery.entries.count())
}

fn entries_come_by_space_and_key(open: Open<'_>) {
    // In order. Keys that are the beginning of others, and all kinds of bytes.
    let keys: [&[u8]; 9] =
        [b"\0", b"\0\0", b"\0\xFF", b"\x01", b"a", b"a\0", b"ab", b"\x80", &[0xFF; 32]];
    let mut store = opened(open);
    let mut batch = Batch::new(1);
    for space in Space::ALL.into_iter().rev() {
        for key in keys.iter().rev() {
            put(&mut batch, space, key, b"value");
        }
    }
    commit(&mut store, &batch);
    drop(store);
    let expected: Vec<_> = Space::ALL
        .into_iter()
        .flat_map(|space| keys.map(|key| format!("{space} {} value", key.escape_ascii())))
        .collect();
    assert_eq!(found(open), expected);
}

fn a_later_change_of_the_same_key_counts(open: Open<'_>) {
    let mut store = opened(open);
    let space = Space::Messages;
    let mut batch = Batch::new(1);
    put(&mut batch, space, b"removed later", b"1");
    commit(&mut store, &batch);
    batch.reset(2);
    put(&mut batch, space, b"put twice", b"1");
    put(&mut batch, space, b"put twice", b"2");
    put(&mut batch, space, b"put and removed", b"1");
    batch.remove(space, b"put and removed");
    batch.remove(space, b"removed and put");
    put(&mut batch, space, b"removed and put", b"1");
    put(&mut batch, space, b"all 1", b"1");
    put(&mut batch, Space::Copies, b"all 1", b"elsewhere");
    batch.remove_all(space, b"all");
    put(&mut batch, space, b"all 2", b"2");
    put(&mut batch, space, b"removed later", b"2");
    batch.remove(space, b"removed later");
    commit(&mut store, &batch);
    drop(store);
    let expected = [
        "messages all 2 2",
        "messages put twice 2",
        "messages removed and put 1",
        "copies all 1 elsewhere",
    ];
    assert_eq!(found(open), expected);
}

fn removing_by_prefix_takes_just_those(open: Open<'_>) {
    let keys: [&[u8]; 8] =
        [b"a", b"a\xFF", b"a\xFF\0", b"a\xFF\xFF", b"b", b"\xFE", b"\xFF", b"\xFF\xFF\x01"];
    let left = |prefix: &[u8]| -> Vec<_> {
        let kept = keys.iter().filter(|key| !key.starts_with(prefix));
        kept.map(|key| format!("copies {} v", key.escape_ascii())).collect()
    };
    let mut number = 0;
    for prefix in [b"a\xFF".as_slice(), b"\xFF", b"\xFF\xFF", b"b", b"c", b""] {
        let mut store = opened(open);
        // What is there since an earlier batch, and what the same batch brings.
        for at_once in [false, true] {
            number += 1;
            let mut batch = Batch::new(number);
            for key in keys {
                put(&mut batch, Space::Copies, key, b"v");
            }
            if !at_once {
                commit(&mut store, &batch);
                number += 1;
                batch.reset(number);
            }
            batch.remove_all(Space::Copies, prefix);
            commit(&mut store, &batch);
            drop(store);
            assert_eq!(found(open), left(prefix), "{}", prefix.escape_ascii());
            store = opened(open);
        }
    }
}

fn removing_what_is_not_there_is_nothing(open: Open<'_>) {
    let mut store = opened(open);
    let mut batch = Batch::new(1);
    commit(&mut store, &batch);
    batch.reset(5);
    batch.remove(Space::Recent, b"nobody");
    batch.remove_all(Space::Recent, b"no");
    commit(&mut store, &batch);
    batch.reset(6);
    put(&mut batch, Space::Recent, b"k", b"v");
    commit(&mut store, &batch);
    drop(store);
    assert_eq!(found(open), ["recent k v"]);
}

/// Bytes that do not repeat soon.
fn noise(len: usize) -> Bytes {
    let mut numbers = Numbers(len as u64);
    (0..len.div_ceil(8)).flat_map(|_| numbers.next().to_be_bytes()).take(len).collect()
}

fn values_of_all_sizes_are_kept(open: Open<'_>) {
    let sizes = [0, 1, 7, 4096, 65_535, 65_536, 1 << 20, 5 << 20];
    let key = |head: usize, body: usize| Bytes::from(format!("{head:08} {body:08}"));
    let mut store = opened(open);
    let mut expected = Contents::new();
    let mut number = 0;
    for (head, body) in sizes.map(|size| (0, size)).into_iter().chain([(5 << 20, 0), (9, 9)]) {
        number += 1;
        let mut batch = Batch::new(number);
        let (key, body) = (key(head, body), noise(body));
        let head = noise(head);
        batch.put(Space::Messages, &key, |out| out.extend_from_slice(&head), body.clone());
        commit(&mut store, &batch);
        expected.insert((Space::Messages, key), [head, body].concat().into());
    }
    let mut reader = store.reader().unwrap();
    for ((space, key), value) in &expected {
        let got = reader.get_all(*space, std::slice::from_ref(key)).unwrap();
        assert!(got == [Some(value.clone())], "{}", key.escape_ascii());
    }
    drop((reader, store));
    assert!(contents(&mut open()) == expected);
}

fn a_batch_of_many_changes_is_found_whole(open: Open<'_>) {
    const CHANGES: u32 = 20_000;
    let mut store = opened(open);
    let mut batch = Batch::new(1);
    for number in 0..CHANGES {
        put(&mut batch, Space::Messages, &number.to_be_bytes(), b"a value of some length");
    }
    commit(&mut store, &batch);
    batch.reset(2);
    for number in (0..CHANGES).step_by(2) {
        batch.remove(Space::Messages, &number.to_be_bytes());
    }
    commit(&mut store, &batch);
    drop(store);
    let keys: Vec<_> = contents(&mut open()).into_keys().map(|(_, key)| key).collect();
    let expected: Vec<_> = (1..CHANGES).step_by(2).map(|key| key.to_be_bytes().to_vec()).collect();
    assert!(keys == expected, "{} keys", keys.len());
}

fn what_was_committed_survives_however_it_ends(open: Open<'_>) {
    type End = fn(Store);
    let closed = |mut store: Store| store.close().unwrap();
    let synced = |mut store: Store| store.sync().unwrap();
    let ends: [(&str, Durability, End); 5] = [
        ("closed", Durability::Synced, closed),
        ("dropped", Durability::Synced, drop),
        ("written and closed", Durability::Written, closed),
        ("written and synced", Durability::Written, synced),
        ("written and dropped", Durability::Written, drop),
    ];
    let mut expected = Contents::new();
    let mut number = 0;
    for (name, durability, end) in ends {
        let mut store = opened(open);
        for _ in 0..20 {
            // Numbers ascend, and not by one each time.
            number += 1 + number % 3;
            let key = Bytes::from(format!("{name} {number}"));
            let mut batch = Batch::new(number);
            put(&mut batch, Space::Messages, &key, b"value");
            put(&mut batch, Space::Recent, b"last", b"value");
            store.commit(&batch, durability).unwrap();
            expected.insert((Space::Messages, key), Bytes::from_static(b"value"));
        }
        expected.insert((Space::Recent, "last".into()), Bytes::from_static(b"value"));
        end(store);
        assert_eq!(contents(&mut open()), expected, "{name}");
    }
}

fn a_recovery_may_be_left_halfway(open: Open<'_>) {
    let mut store = opened(open);
    let mut batch = Batch::new(1);
    (0..100_u8).for_each(|key| put(&mut batch, Space::Messages, &[key], b"v"));
    commit(&mut store, &batch);
    drop(store);
    let mut store = open();
    let first = store.recover().unwrap().entries.next().unwrap().unwrap();
    assert_eq!(first.key[..], [0]);
    batch.reset(2);
    batch.remove(Space::Messages, &first.key);
    commit(&mut store, &batch);
    drop(store);
    assert_eq!(contents(&mut open()).len(), 99);
}

fn a_reader_sees_what_was_committed_before(open: Open<'_>) {
    let mut store = opened(open);
    let mut reader = store.reader().unwrap();
    let space = Space::Messages;
    let keys = [b"b".as_slice(), b"missing", b"a", b"b"].map(Bytes::from_static);
    assert_eq!(reader.get_all(space, &keys).unwrap(), [const { None }; 4]);
    let mut batch = Batch::new(1);
    put(&mut batch, space, b"a", b"of a");
    put(&mut batch, space, b"b", b"of b");
    put(&mut batch, Space::Copies, b"missing", b"elsewhere");
    store.commit(&batch, Durability::Written).unwrap();
    let (a, b) = (Some(Bytes::from_static(b"of a")), Some(Bytes::from_static(b"of b")));
    let expected = [b.clone(), None, a, b];
    assert_eq!(reader.get_all(space, &keys).unwrap(), expected);
    assert_eq!(reader.get_all(space, &[]).unwrap(), []);
    batch.reset(2);
    batch.remove_all(space, b"b");
    put(&mut batch, space, b"a", b"again");
    commit(&mut store, &batch);
    let expected = [None, None, Some(Bytes::from_static(b"again")), None];
    assert_eq!(reader.get_all(space, &keys).unwrap(), expected);
    assert_eq!(store.reader().unwrap().get_all(space, &keys).unwrap(), expected);
}

fn a_reader_elsewhere_sees_every_commit(open: Open<'_>) {
    const COMMITS: u64 = 200;
    let mut store = opened(open);
    let mut reader = store.reader().unwrap();
    let (told, hears) = mpsc::channel();
    let reading = thread::spawn(move || {
        let mut seen = 0;
        for committed in hears {
            let got = reader.get_all(Space::Recent, &[Bytes::from_static(b"k")]).unwrap();
            let value = got[0].as_ref().and_then(|value| value.first_chunk()).copied();
            let value = u64::from_be_bytes(value.expect("it was committed"));
            assert!(value >= committed && value >= seen, "{value} after {committed} and {seen}");
            seen = value;
        }
        seen
    });
    for number in 1..=COMMITS {
        let mut batch = Batch::new(number);
        let value = Bytes::copy_from_slice(&number.to_be_bytes());
        batch.put(Space::Recent, b"k", |_| {}, value);
        store.commit(&batch, Durability::Written).unwrap();
        told.send(number).unwrap();
    }
    drop(told);
    assert_eq!(reading.join().unwrap(), COMMITS);
}

fn a_store_may_be_used_by_another_thread(open: Open<'_>) {
    let mut store = opened(open);
    let elsewhere = thread::spawn(move || {
        let mut batch = Batch::new(1);
        put(&mut batch, Space::Transactions, b"k", b"v");
        commit(&mut store, &batch);
        store.close().unwrap();
    });
    elsewhere.join().unwrap();
    assert_eq!(found(open), ["transactions k v"]);
}

/// Random batches beside a plain map, with the store opened again at any time.
fn any_batches_leave_what_they_say(open: Open<'_>) {
    let mut numbers = Numbers(6);
    let mut store = opened(open);
    let mut plain = Contents::new();
    let mut batch = Batch::default();
    for number in 1..=300 {
        batch.reset(number);
        for _ in 0..numbers.below(12) {
            let space = Space::ALL[numbers.below(3)];
            let key: Vec<u8> = (0..=numbers.below(3)).map(|_| numbers.letter()).collect();
            match numbers.below(10) {
                0 => {
                    batch.remove_all(space, &key);
                    plain.retain(|(of, other), _| *of != space || !other.starts_with(&key));
                }
                1..4 => {
                    batch.remove(space, &key);
                    plain.remove(&(space, key.into()));
                }
                _ => {
                    let value = noise(numbers.below(300));
                    batch.put(space, &key, |out| out.push(7), value.clone());
                    plain.insert((space, key.into()), [&[7], &value[..]].concat().into());
                }
            }
        }
        let durability =
            if numbers.below(4) == 0 { Durability::Synced } else { Durability::Written };
        store.commit(&batch, durability).unwrap();
        if numbers.below(30) == 0 {
            drop(store);
            store = open();
            assert_eq!(contents(&mut store), plain, "after batch {number}");
        }
    }
    store.close().unwrap();
    drop(store);
    assert_eq!(contents(&mut open()), plain);
}

/// A small generator of numbers that is the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn letter(&mut self) -> u8 {
        [b'a', b'b', 0, 0xFF][self.below(4)]
    }
}
