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
    destination::{Destination, Kind, Origin},
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

    /// The destination, made if there is none, and whether it was. `None` if there are too many.
    pub(super) fn ensure(
        &self,
        kind: Kind,
        name: &str,
        origin: Origin,
        attributes: impl FnOnce() -> Attributes,
    ) -> Option<(Arc<Destination>, bool)> {
        if let Some(found) = self.find(kind, name) {
            return Some((found, false));
        }
        // Relaxed: a bound that may be passed by as many as threads race for the last place.
        if self.count.load(Ordering::Relaxed) >= DESTINATIONS_MAX as u64 {
            return None;
        }
        let new = Arc::new(Destination::new(name, kind, origin, attributes()));
        match self.insert(&new) {
            None => Some((new, true)),
            Some(other) => Some((other, false)),
        }
    }

    /// Puts a destination in; if there is one of that kind and name, that one comes back.
    pub(super) fn insert(&self, new: &Arc<Destination>) -> Option<Arc<Destination>> {
        let (place, name) = (place(new.kind), &new.name);
        let (before, after) = self.part(name).update(|part| {
            // Somebody else was first: theirs counts.
            if part[place].contains_key(name) {
                return None;
            }
            let mut next = part.clone();
            next[place].insert(name.clone(), Arc::clone(new));
            Some(next)
        });
        if after.is_some() {
            // Relaxed: see `ensure`.
            self.count.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        before[place].get(name).cloned()
    }

    /// Takes a destination out, if it is the one that is in.
    pub(super) fn remove(&self, gone: &Arc<Destination>) {
        let (place, name) = (place(gone.kind), &gone.name);
        let (_, after) = self.part(name).update(|part| {
            part[place].get(name).is_some_and(|one| Arc::ptr_eq(one, gone)).then(|| {
                let mut next = part.clone();
                next[place].remove(name);
                next
            })
        });
        if after.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
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
        broker::{
            attributes::Attributes,
            destination::{Kind, Origin},
        },
        sync::Arc,
    };

    #[test]
    fn threads_that_make_the_same_destination_get_the_same_one() {
        let registry = Registry::default();
        let made: Vec<_> = std::thread::scope(|scope| {
            let make = || {
                let one = |n| {
                    let name = format!("q{n}");
                    let make = Attributes::auto_created;
                    registry.ensure(Kind::Queue, &name, Origin::AutoCreated, make).unwrap().0
                };
                (0..100).map(one).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for other in &made[1..] {
            assert!(made[0].iter().zip(other).all(|(a, b)| Arc::ptr_eq(a, b)));
        }
        assert_eq!(registry.all().len(), 100);
        assert!(registry.find(Kind::Topic, "q1").is_none());
        registry.remove(&made[0][1]);
        registry.remove(&made[0][1]);
        assert!(registry.find(Kind::Queue, "q1").is_none());
        assert_eq!(registry.all().len(), 99);
    }
}
