//! What a store may hold after anything has happened to it.
//!
//! The first byte chooses what the others are: entries, under a right checksum or not; lines of an
//! import; or changes to a store that crashes now and then. It must hold that
//!
//! - what is read as a record is written again as it was, and nothing else is read;
//! - a store without a problem can be counted, and comes back from its lines as it was;
//! - what was imported is exported as the same lines;
//! - a store has after a crash what a plain map has that was copied at its last sync.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::store::{
    Batch, Change, Durability, Entry, MemoryStore, MessageStore as _, Space,
    record::{Record, put_format, put_sealed},
    tools,
};

const OPERATIONS_MAX: usize = 1000;

type Contents = BTreeMap<(Space, Bytes), Bytes>;

/// The body of the fuzz target `store_recovery`.
///
/// # Panics
/// If one of the laws above does not hold.
pub fn store_recovery(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    match choice % 3 {
        0 => _ = entries(&mut Input { data }),
        1 => _ = lines(data),
        _ => crashes(&mut Input { data }),
    }
}

/// The bytes that choose.
struct Input<'a> {
    data: &'a [u8],
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.data.split_first()?;
        self.data = rest;
        Some(first)
    }

    /// Bytes behind their length in two bytes, or as many of them as there are.
    fn bytes(&mut self) -> &'a [u8] {
        let len = [self.byte().unwrap_or(0), self.byte().unwrap_or(0)];
        let len = usize::from(u16::from_be_bytes(len)).min(self.data.len());
        let (taken, rest) = self.data.split_at(len);
        self.data = rest;
        taken
    }

    fn space(&mut self) -> Option<Space> {
        self.byte().map(|byte| Space::ALL[usize::from(byte) % Space::ALL.len()])
    }
}

/// The entry a batch of one puts.
fn entry_of(batch: &Batch) -> Entry {
    match batch.changes().next() {
        Some(Change::Put { space, key, value }) => {
            Entry { space, key: Bytes::copy_from_slice(key), value: value.to_vec().into() }
        }
        other => panic!("{other:?} is no put"),
    }
}

/// How many entries the store has, if it is sound.
fn entries(input: &mut Input<'_>) -> Option<u64> {
    let mut store = MemoryStore::new();
    let mut batch = Batch::new(1);
    put_format(&mut batch);
    store.commit(&batch, Durability::Synced).expect("the first batch");
    for number in 2..OPERATIONS_MAX as u64 {
        let (Some(space), Some(seal)) = (input.space(), input.byte()) else { break };
        let (key, value) = (input.bytes(), input.bytes());
        batch.reset(number);
        if seal % 8 == 0 {
            batch.put(space, key, |_| {}, Bytes::copy_from_slice(value));
        } else {
            put_sealed(&mut batch, space, key, value);
        }
        let entry = entry_of(&batch);
        match Record::decode(&entry) {
            Ok(record) => {
                assert_eq!((record.space(), record.key()), (space, entry.key.clone()));
                let mut again = Batch::new(1);
                record.put(&mut again);
                assert_eq!(entry_of(&again), entry, "{record:?}");
            }
            // Seldom, so that the rest is worth a look.
            Err(_) if seal % 8 > 1 => continue,
            Err(_) => {}
        }
        store.commit(&batch, Durability::Synced).expect("numbers ascend");
    }
    let report = tools::check(&mut store, &mut |_, _| ()).expect("memory can be read");
    let counted = tools::stats(&mut store, &mut |_, _| ());
    let exported = export(&mut store);
    if !report.is_sound() {
        return None;
    }
    let stats = counted.expect("a sound store can be counted");
    let entries: u64 = stats.spaces.iter().map(|one| one.entries).sum();
    assert_eq!(entries, report.entries);
    let lines = exported.expect("a sound store can be exported");
    let mut other = MemoryStore::new();
    tools::import(&mut other, &mut &lines[..], &mut |_, _| ()).expect("its own lines");
    let (mut before, mut after) = (contents(&mut store), contents(&mut other));
    if stats.last_batch == 0 {
        // The import says that it was the first batch.
        after.retain(|(space, _), _| *space != Space::Recent);
        before.retain(|(space, _), _| *space != Space::Recent);
    }
    assert_eq!(before, after);
    Some(entries)
}

fn export(store: &mut MemoryStore) -> Option<Vec<u8>> {
    let mut lines = Vec::new();
    tools::export(store, &mut lines, &mut |_, _| ()).ok().map(|_| lines)
}

fn contents(store: &mut MemoryStore) -> Contents {
    let entries = store.recover().expect("memory can be read").entries;
    let entries = entries.map(|entry| entry.map(|entry| ((entry.space, entry.key), entry.value)));
    entries.collect::<Result<_, _>>().expect("all of it")
}

/// How many records were imported, if that went well.
fn lines(data: &[u8]) -> Option<u64> {
    let mut store = MemoryStore::new();
    let imported = tools::import(&mut store, &mut &data[..], &mut |_, _| ());
    tools::check(&mut store, &mut |_, _| ()).expect("memory can be read");
    let imported = imported.ok()?;
    let lines = export(&mut store).expect("what was imported can be exported");
    let mut other = MemoryStore::new();
    tools::import(&mut other, &mut &lines[..], &mut |_, _| ()).expect("its own lines");
    assert_eq!(contents(&mut other), contents(&mut store));
    assert_eq!(export(&mut other), Some(lines));
    Some(imported)
}

fn crashes(input: &mut Input<'_>) {
    let mut store = MemoryStore::new();
    let (mut plain, mut synced) = (Contents::new(), Contents::new());
    let mut batch = Batch::new(1);
    let mut number = 1;
    for _ in 0..OPERATIONS_MAX {
        let Some(choice) = input.byte() else { break };
        match choice % 16 {
            0..8 => {
                let Some(space) = input.space() else { break };
                let (key, value) = (input.bytes(), input.bytes());
                let (head, body) = value.split_at(value.len() / 2);
                let body = Bytes::copy_from_slice(body);
                batch.put(space, key, |out| out.extend_from_slice(head), body);
            }
            8 | 9 => {
                let Some(space) = input.space() else { break };
                batch.remove(space, input.bytes());
            }
            10 => {
                let Some(space) = input.space() else { break };
                batch.remove_all(space, input.bytes());
            }
            11..14 => {
                let is_synced = choice % 2 == 0;
                let durability = if is_synced { Durability::Synced } else { Durability::Written };
                store.commit(&batch, durability).expect("numbers ascend");
                batch.changes().for_each(|change| apply(&mut plain, change));
                if is_synced {
                    synced.clone_from(&plain);
                }
                number += 1;
                batch.reset(number);
            }
            14 => {
                store = store.reopened();
                synced.clone_from(&plain);
                assert_eq!(contents(&mut store), plain);
            }
            _ => {
                store = store.reopened_after_power_cut();
                plain.clone_from(&synced);
                // What was being gathered is gone with it.
                batch.reset(number);
                assert_eq!(contents(&mut store), plain);
            }
        }
    }
    assert_eq!(contents(&mut store.reopened()), plain);
}

fn apply(plain: &mut Contents, change: Change<'_>) {
    match change {
        Change::Put { space, key, value } => {
            plain.insert((space, Bytes::copy_from_slice(key)), value.to_vec().into());
        }
        Change::Remove { space, key } => {
            plain.remove(&(space, Bytes::copy_from_slice(key)));
        }
        Change::RemoveAll { space, prefix } => {
            plain.retain(|(of, key), _| *of != space || !key.starts_with(prefix));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Input, entries, lines};

    #[test]
    fn the_seeds_reach_a_sound_store_a_broken_one_and_a_whole_import() {
        let sound = include_bytes!("../../tests/seeds/store_recovery/sound_entries");
        let broken = include_bytes!("../../tests/seeds/store_recovery/broken_entries");
        let whole = include_bytes!("../../tests/seeds/store_recovery/lines");
        assert_eq!(entries(&mut Input { data: &sound[1..] }), Some(12));
        assert_eq!(entries(&mut Input { data: &broken[1..] }), None);
        assert_eq!(lines(&whole[1..]), Some(11));
    }
}
