//! Changes that are carried out whole or not at all.

use std::ops::Range;

use bytes::Bytes;

use super::Space;

/// A value in two parts that belong together, so that a body need not be copied to get a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "its two parts are what it is")]
pub struct Value<'a> {
    /// Its first bytes.
    pub head: &'a [u8],
    /// The bytes behind them.
    pub body: &'a [u8],
}

impl Value<'_> {
    /// Bytes of both.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Both in one.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        [self.head, self.body].concat()
    }
}

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change<'a> {
    /// The entry has this value from now on.
    Put {
        /// Where.
        space: Space,
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: Value<'a>,
    },
    /// There is no such entry any more; there may have been none.
    Remove {
        /// Where.
        space: Space,
        /// Its key.
        key: &'a [u8],
    },
    /// There is no entry any more whose key begins like this.
    RemoveAll {
        /// Where.
        space: Space,
        /// How the keys begin.
        prefix: &'a [u8],
    },
}

#[derive(Debug, Clone)]
enum Kind {
    Put { head: Range<usize>, body: Bytes },
    Remove,
    RemoveAll,
}

#[derive(Debug, Clone)]
struct Noted {
    space: Space,
    key: Range<usize>,
    kind: Kind,
}

/// Changes that belong together, in order: a later one of the same key counts.
///
/// Shape: keys and heads in one run of bytes, bodies shared with whoever has them.
#[derive(Debug, Default)]
pub struct Batch {
    number: u64,
    bytes: Vec<u8>,
    changes: Vec<Noted>,
    body_bytes: usize,
}

impl Batch {
    /// An empty one with this number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// Forgets everything and keeps the memory; the number is this from now on.
    pub fn reset(&mut self, number: u64) {
        self.number = number;
        self.bytes.clear();
        self.changes.clear();
        self.body_bytes = 0;
    }

    /// Its number: greater than that of the batch before.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Adds an entry, or replaces it. `head` writes the first bytes of the value, which see those
    /// of the body behind them.
    pub fn put(&mut self, space: Space, key: &[u8], head: impl FnOnce(&mut Vec<u8>), body: Bytes) {
        let key = self.append(key);
        let start = self.bytes.len();
        head(&mut self.bytes);
        let head = start..self.bytes.len();
        self.body_bytes += body.len();
        self.changes.push(Noted { space, key, kind: Kind::Put { head, body } });
    }

    /// Removes an entry.
    pub fn remove(&mut self, space: Space, key: &[u8]) {
        let key = self.append(key);
        self.changes.push(Noted { space, key, kind: Kind::Remove });
    }

    /// Removes all entries whose keys begin like this.
    pub fn remove_all(&mut self, space: Space, prefix: &[u8]) {
        let key = self.append(prefix);
        self.changes.push(Noted { space, key, kind: Kind::RemoveAll });
    }

    fn append(&mut self, key: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        start..self.bytes.len()
    }

    /// The changes, in order.
    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        self.changes.iter().map(|noted| {
            let (space, key) = (noted.space, &self.bytes[noted.key.clone()]);
            match &noted.kind {
                Kind::Put { head, body } => Change::Put {
                    space,
                    key,
                    value: Value { head: &self.bytes[head.clone()], body },
                },
                Kind::Remove => Change::Remove { space, key },
                Kind::RemoveAll => Change::RemoveAll { space, prefix: key },
            }
        })
    }

    /// How many changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of all keys and values.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len() + self.body_bytes
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Batch, Change};
    use crate::store::Space;

    #[test]
    fn changes_come_in_order_with_their_parts() {
        let mut batch = Batch::new(7);
        let body = Bytes::from_static(b"body");
        batch.put(Space::Messages, b"k1", |head| head.extend_from_slice(b"head"), body);
        batch.remove(Space::Copies, b"k2");
        batch.remove_all(Space::Messages, b"k");
        let seen: Vec<String> = batch
            .changes()
            .map(|change| match change {
                Change::Put { space, key, value } => format!(
                    "put {space} {} {} {}",
                    key.escape_ascii(),
                    value.to_vec().escape_ascii(),
                    value.len()
                ),
                Change::Remove { space, key } => format!("remove {space} {}", key.escape_ascii()),
                Change::RemoveAll { space, prefix } => {
                    format!("remove all {space} {}", prefix.escape_ascii())
                }
            })
            .collect();
        assert_eq!(
            seen,
            ["put messages k1 headbody 8", "remove copies k2", "remove all messages k"]
        );
        assert_eq!((batch.number(), batch.len(), batch.size()), (7, 3, 2 + 4 + 4 + 2 + 1));
        batch.reset(8);
        assert!(batch.is_empty() && batch.size() == 0 && batch.changes().next().is_none());
    }
}
