//! Places for what a loop serves, named by keys that are never used twice.

use mio::Token;
use slab::Slab;

/// Names one occupant of [`Slots`]: its place, and which occupant of that place it is.
///
/// Shape: 32 bits each, which is also how it travels through the poller's token. An event that was
/// already on its way when its connection ended finds nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The poller's token for this key.
    #[must_use]
    pub fn token(self) -> Token {
        Token((self.generation as usize) << 32 | self.index as usize)
    }

    /// The key in a token that [`token`](Self::token) made.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "takes the two halves apart")]
    pub const fn from_token(token: Token) -> Self {
        Self { index: token.0 as u32, generation: (token.0 >> 32) as u32 }
    }
}

/// A slab whose keys carry a generation.
#[derive(Debug)]
pub struct Slots<T> {
    slab: Slab<(u32, T)>,
    generation: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slab: Slab::new(), generation: 0 }
    }
}

impl<T> Slots<T> {
    /// The key that the next [`insert`](Self::insert) will use.
    pub fn next_key(&self) -> Key {
        let index = u32::try_from(self.slab.vacant_key()).unwrap_or(u32::MAX);
        Key { index, generation: self.generation }
    }

    /// Puts a value in.
    pub fn insert(&mut self, value: T) -> Key {
        let key = self.next_key();
        self.slab.insert((self.generation, value));
        // The largest generations are the loop's own tokens.
        self.generation = (self.generation + 1) % (u32::MAX - 1);
        key
    }

    /// All values, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slab.iter_mut().map(|(_, (_, value))| value)
    }

    /// The value, if the key's occupant is still there.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slab.get_mut(key.index as usize) {
            Some((generation, value)) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    /// Takes the value out, if the key's occupant is still there.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get_mut(key)?;
        Some(self.slab.remove(key.index as usize).1)
    }

    /// All keys.
    pub fn keys(&self) -> Vec<Key> {
        let key = |(index, &(generation, _)): (usize, &(u32, T))| Key {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            generation,
        };
        self.slab.iter().map(key).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Slots};

    #[test]
    fn a_key_of_a_former_occupant_finds_nobody() {
        let mut slots = Slots::default();
        let first = slots.insert("a");
        assert_eq!(Key::from_token(first.token()), first);
        assert_eq!(slots.remove(first), Some("a"));
        let second = slots.insert("b");
        assert_ne!(first, second);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(
            (slots.get_mut(second).copied(), slots.keys(), slots.len()),
            (Some("b"), vec![second], 1)
        );
    }
}
