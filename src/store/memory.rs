//! A store in memory, for tests: of a broker that is started again, and of what a crash leaves.
//!
//! Every commit publishes a new state that shares with the last one all pages it did not touch, so
//! readers and those who open it again need no lock.

mod pages;

use bytes::Bytes;

use self::pages::Pages;
use super::{
    Batch, Change, Durability, Entry, MessageStore, Outcome, Recovery, Space, StoreError,
    StoreReader,
};
use crate::sync::{Arc, Snapshot};

/// A [`MessageStore`] in memory.
///
/// Its contents live as long as any handle to them. One handle writes, that of the last
/// [`reopened`](Self::reopened); those before it are fenced off, as a broker is that was taken over.
///
/// ```
/// use bytes::Bytes;
/// use tidegate::store::{Batch, Durability, MemoryStore, MessageStore, Outcome, Space};
///
/// let mut store = MemoryStore::new();
/// let mut batch = Batch::new(1);
/// batch.put(Space::Messages, b"key", |head| head.extend(b"head, "), Bytes::from_static(b"body"));
/// store.commit(&batch, Durability::Synced)?;
///
/// let mut again = store.reopened();
/// let recovery = again.recover()?;
/// assert_eq!(recovery.outcome, Outcome::Loaded);
/// let entries = recovery.entries.collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(entries[0].value, "head, body");
/// assert!(store.commit(&Batch::new(2), Durability::Synced).is_err(), "it was taken over");
/// # Ok::<(), tidegate::store::StoreError>(())
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Snapshot<State>>,
    opening: u64,
}

/// What is there at one instant.
#[derive(Debug, Clone, Default)]
struct State {
    /// How often it was opened; only the handle with this number writes.
    openings: u64,
    current: Contents,
    /// What the end of the machine would leave.
    synced: Contents,
}

#[derive(Debug, Clone, Default)]
struct Contents {
    /// The number of the last batch; 0 if there was none.
    last: u64,
    spaces: [Pages; Space::ALL.len()],
}

impl MemoryStore {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { shared: Arc::new(Snapshot::new(State::default())), opening: 0 }
    }

    /// Opens it again, as after the end of the process: with everything that was committed.
    /// Handles from before write nothing more.
    #[must_use]
    pub fn reopened(&self) -> Self {
        self.reopen(|state| state.current.clone())
    }

    /// Opens it again, as after the end of the machine: what was [`Written`](Durability::Written)
    /// behind the last sync is gone.
    #[must_use]
    pub fn reopened_after_power_cut(&self) -> Self {
        self.reopen(|state| state.synced.clone())
    }

    fn reopen(&self, keep: impl Fn(&State) -> Contents) -> Self {
        let opened = |state: &State| {
            let kept = keep(state);
            let openings = state.openings + 1;
            Some(State { openings, current: kept.clone(), synced: kept })
        };
        let (before, _) = self.shared.update(opened);
        Self { shared: Arc::clone(&self.shared), opening: before.openings + 1 }
    }

    /// Whether this handle may still write.
    fn may_write(&self, state: &State) -> Result<(), StoreError> {
        match state.openings - self.opening {
            0 => Ok(()),
            since => {
                Err(StoreError::Fenced { reason: format!("it was opened {since} times since") })
            }
        }
    }

    /// Publishes what `change` makes of the state, if this handle may still write.
    fn write(&self, change: impl Fn(&mut State)) -> Result<(), StoreError> {
        let changed = |state: &State| {
            self.may_write(state).ok()?;
            let mut next = state.clone();
            change(&mut next);
            Some(next)
        };
        match self.shared.update(changed) {
            (_, Some(_)) => Ok(()),
            (seen, None) => self.may_write(&seen),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MessageStore for MemoryStore {
    fn describe(&self) -> String {
        "memory".into()
    }

    fn recover(&mut self) -> Result<Recovery<'_>, StoreError> {
        let Contents { last, spaces } = self.shared.read(|state| state.current.clone());
        let len: usize = spaces.iter().map(Pages::len).sum();
        let entries = Space::ALL.into_iter().zip(spaces).flat_map(|(space, pages)| {
            pages.into_entries().map(move |(key, value)| Ok(Entry { space, key, value }))
        });
        Ok(Recovery {
            outcome: if last == 0 { Outcome::Fresh } else { Outcome::Loaded },
            estimate: Some(len as u64),
            entries: Box::new(entries),
        })
    }

    fn commit(&mut self, batch: &Batch, durability: Durability) -> Result<(), StoreError> {
        // The fence first: the number may be wrong just because another handle has gone on.
        let last = self.shared.read(|state| self.may_write(state).map(|()| state.current.last))?;
        if batch.number() <= last {
            let reason = format!("its number is not greater than that of the last one, {last}");
            return Err(StoreError::failed(format!("committing batch {}", batch.number()), reason));
        }
        self.write(|state| {
            state.current.last = batch.number();
            for change in batch.changes() {
                apply(&mut state.current.spaces, change);
            }
            if durability == Durability::Synced {
                state.synced.clone_from(&state.current);
            }
        })
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.write(|state| state.synced.clone_from(&state.current))
    }

    fn reader(&self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(MemoryReader { shared: Arc::clone(&self.shared) }))
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.sync()
    }
}

fn apply(spaces: &mut [Pages], change: Change<'_>) {
    match change {
        Change::Put { space, key, value } => {
            spaces[space as usize].insert(Bytes::copy_from_slice(key), value.to_vec().into());
        }
        Change::Remove { space, key } => spaces[space as usize].remove(key),
        Change::RemoveAll { space, prefix } => spaces[space as usize].remove_all(prefix),
    }
}

/// Reads what is published.
#[derive(Debug)]
struct MemoryReader {
    shared: Arc<Snapshot<State>>,
}

impl StoreReader for MemoryReader {
    fn get_all(&mut self, space: Space, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let values = |state: &State| {
            let pages = &state.current.spaces[space as usize];
            keys.iter().map(|key| pages.get(key)).collect()
        };
        Ok(self.shared.read(values))
    }
}
