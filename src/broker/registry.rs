//! All destinations by kind and name.
//!
//! Looked up for every message that goes to another destination than the one before it, changed
//! seldom: so each part is a map behind a snapshot, replaced whole. Parts keep that cheap with many
//! destinations.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use crate::sync::{Arc, AtomicU64, Ordering, Snapshot};

use super::{
    attributes::Attributes,
    destination::{Destination, Kind},
    limits::DESTINATIONS_MAX,
};

const PARTS: usize = 64;

/// Queues, then topics.
type Part = [HashMap<Box<str>, Arc<Destination>>; 2];

/// The destinations of a broker.
#[derive(Debug)]
pub(super) struct Registry {
    parts: Vec<Snapshot<Part>>,
    hasher: RandomState,
    count: AtomicU64,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| Snapshot::new(Part::default())).collect(),
            hasher: RandomState::new(),
            count: AtomicU64::new(0),
        }
    }
}

impl Registry {
    /// The destination of this kind and name.
    pub(super) fn find(&self, kind: Kind, name: &str) -> Option<Arc<Destination>> {
        self.part(name).read(|part| part[place(kind)].get(name).cloned())
    }

    /// The destination, made if there is none. `None` if there are too many.
    pub(super) fn ensure(
        &self,
        kind: Kind,
        name: &str,
        owner: Option<i64>,
        limits: Attributes,
    ) -> Option<Arc<Destination>> {
        if let Some(found) = self.find(kind, name) {
            return Some(found);
        }
        // Relaxed: a bound that may be passed by as many as threads race for the last place.
        if self.count.load(Ordering::Relaxed) >= DESTINATIONS_MAX as u64 {
            return None;
        }
        let new = Arc::new(Destination::new(name, kind, owner, limits));
        let (before, after) = self.part(name).update(|part| {
            // Somebody else was first: theirs counts.
            if part[place(kind)].contains_key(name) {
                return None;
            }
            let mut next = part.clone();
            next[place(kind)].insert(name.into(), Arc::clone(&new));
            Some(next)
        });
        match after {
            Some(_) => {
                self.count.fetch_add(1, Ordering::Relaxed);
                Some(new)
            }
            None => before[place(kind)].get(name).cloned(),
        }
    }

    /// Takes a destination out.
    pub(super) fn remove(&self, kind: Kind, name: &str) -> Option<Arc<Destination>> {
        let (before, after) = self.part(name).update(|part| {
            part[place(kind)].contains_key(name).then(|| {
                let mut next = part.clone();
                next[place(kind)].remove(name);
                next
            })
        });
        after?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        before[place(kind)].get(name).cloned()
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> Vec<Arc<Destination>> {
        let of_part =
            |part: &Part| part.iter().flat_map(HashMap::values).cloned().collect::<Vec<_>>();
        self.parts.iter().flat_map(|part| part.read(of_part)).collect()
    }

    fn part(&self, name: &str) -> &Snapshot<Part> {
        let hash = self.hasher.hash_one(name);
        &self.parts[usize::try_from(hash % PARTS as u64).unwrap_or(0)]
    }
}

const fn place(kind: Kind) -> usize {
    match kind {
        Kind::Queue => 0,
        Kind::Topic => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::Registry;
    use crate::{
        broker::{attributes::Attributes, destination::Kind},
        sync::Arc,
    };

    #[test]
    fn threads_that_make_the_same_destination_get_the_same_one() {
        let registry = Registry::default();
        let made: Vec<_> = std::thread::scope(|scope| {
            let make = || {
                (0..100)
                    .map(|n| {
                        registry
                            .ensure(Kind::Queue, &format!("q{n}"), None, Attributes::auto_created())
                            .unwrap()
                    })
                    .collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for other in &made[1..] {
            assert!(made[0].iter().zip(other).all(|(a, b)| Arc::ptr_eq(a, b)));
        }
        assert_eq!(registry.all().len(), 100);
        assert!(registry.find(Kind::Topic, "q1").is_none());
        assert!(registry.remove(Kind::Queue, "q1").is_some());
        assert!(registry.remove(Kind::Queue, "q1").is_none());
        assert_eq!(registry.all().len(), 99);
    }
}
