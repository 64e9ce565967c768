//! When what was written lately goes from memory into tables.
//!
//! The engine can see to that by itself, and may then wait for itself for ever. Each write to a
//! keyspace that is over its limit puts a message into a queue of 1,000; the thread that takes them
//! out answers one with a message into the same queue, and blocks while it is full. A thousand
//! commits during one table of another keyspace are enough, and from then on nothing leaves the memory
//! or the journal any more. So the engine is given no limit, and each keyspace is told once when it
//! is time.
//!
//! Of a keyspace no more is in memory than four times its limit: as much as two while it is written
//! to, and as much while a table is made of that.

use std::{thread, time::Duration};

use fjall::{AbstractTree, Database, Keyspace, PersistMode};

/// How long to wait before looking again whether a table is there: the engine tells nobody.
const PAUSE: Duration = Duration::from_millis(1);

/// Has a table made of what is in memory of a keyspace, if it is over its limit and none is being
/// made. Far over it, waits for that one.
///
/// # Errors
/// If the engine cannot write.
pub(super) fn empty(database: &Database, keyspace: &Keyspace, limit: u64) -> fjall::Result<()> {
    let size = keyspace.tree.active_memtable().size();
    if size <= limit {
        return Ok(());
    }
    while keyspace.sealed_memtable_count() > 0 {
        if size <= 2 * limit {
            return Ok(());
        }
        // An engine that has given up makes no table any more, and says so here.
        database.persist(PersistMode::Buffer)?;
        thread::park_timeout(PAUSE);
    }
    keyspace.rotate_memtable().map(drop)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fjall::AbstractTree;

    use crate::store::{Batch, Durability, FjallSettings, FjallStore, MessageStore, Space};

    #[test]
    fn of_very_many_small_commits_few_are_in_memory() {
        const COMMITS: u64 = 4000;
        const BODY: usize = 1000;
        let folder = tempfile::tempdir().unwrap();
        let settings = FjallSettings { buffer_bytes: 128 << 10, ..FjallSettings::default() };
        let mut store = FjallStore::open(folder.path(), settings).unwrap();
        let mut batch = Batch::default();
        for number in 1..=COMMITS {
            batch.reset(number);
            let key = number.to_be_bytes();
            batch.put(Space::Messages, &key, |_| {}, Bytes::from_static(&[7; BODY]));
            batch.put(Space::Recent, &key, |_| {}, Bytes::from_static(&[7; BODY / 8]));
            store.commit(&batch, Durability::Written).unwrap();
            for (space, limit) in [
                (Space::Messages, settings.buffer_bytes),
                (Space::Recent, settings.buffer_bytes / 8),
            ] {
                let keyspace = store.spaces.get(space);
                let sealed = keyspace.sealed_memtable_count();
                assert!(sealed <= 1, "{sealed} times {space} wait for a table");
                let size = keyspace.tree.active_memtable().size();
                let most = 2 * limit + 2 * BODY as u64;
                assert!(size <= most, "{size} bytes of {space} are in memory");
            }
        }
        assert!(store.spaces.get(Space::Messages).table_count() > 0);
    }
}
