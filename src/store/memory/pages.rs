//! An ordered map that is cheap to keep an older state of: pages that are shared until they change.

use std::{
    collections::BTreeMap,
    ops::Bound::{self, Excluded, Included, Unbounded},
};

use bytes::Bytes;

use crate::sync::Arc;

/// Entries of a page at most; one that grows past this is split.
const PAGE_ENTRIES_MAX: usize = 64;

type Page = BTreeMap<Bytes, Bytes>;

/// The map: pages by a key that is not greater than any in them and greater than any before.
#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    pages: Arc<BTreeMap<Bytes, Arc<Page>>>,
    len: usize,
}

impl Pages {
    /// How many entries.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Bytes> {
        let (_, page) = self.pages.range::<[u8], _>(up_to(key)).next_back()?;
        page.get(key).cloned()
    }

    pub(super) fn insert(&mut self, key: Bytes, value: Bytes) {
        let pages = Arc::make_mut(&mut self.pages);
        // The first page has the empty key, so every other key has a page it belongs to.
        let start = pages.range::<[u8], _>(up_to(&key)).next_back().map(|(start, _)| start.clone());
        let page = Arc::make_mut(pages.entry(start.unwrap_or_default()).or_default());
        self.len += usize::from(page.insert(key, value).is_none());
        if page.len() > PAGE_ENTRIES_MAX
            && let Some(middle) = page.keys().nth(PAGE_ENTRIES_MAX / 2).cloned()
        {
            let second = page.split_off(&middle);
            pages.insert(middle, Arc::new(second));
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        let pages = Arc::make_mut(&mut self.pages);
        let Some((start, page)) = pages.range_mut::<[u8], _>(up_to(key)).next_back() else {
            return;
        };
        if !page.contains_key(key) {
            return;
        }
        if page.len() > 1 {
            Arc::make_mut(page).remove(key);
        } else {
            let start = start.clone();
            pages.remove(&start);
        }
        self.len -= 1;
    }

    pub(super) fn remove_all(&mut self, prefix: &[u8]) {
        // The page before the first key with this prefix may hold some of them.
        let before = self.pages.range::<[u8], _>((Unbounded, Excluded(prefix))).next_back();
        let from = before.map(|(start, _)| start.clone()).unwrap_or_default();
        let pages = self.pages.range(from..);
        let keys = pages.flat_map(|(_, page)| page.keys());
        let found =
            keys.skip_while(|key| key[..] < *prefix).take_while(|key| key.starts_with(prefix));
        for key in found.cloned().collect::<Vec<_>>() {
            self.remove(&key);
        }
    }

    /// All entries in order.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (Bytes, Bytes)> + Send {
        Arc::unwrap_or_clone(self.pages).into_values().flat_map(Arc::unwrap_or_clone)
    }
}

/// The keys up to this one.
const fn up_to(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Unbounded, Included(key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use proptest::{collection::vec, prelude::*};

    use super::Pages;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Keys of a few letters, so that they meet; enough of them for many pages.
        #[test]
        fn pages_are_an_ordered_map(
            steps in vec((0..100_u8, "[ab]{0,4}[a-h]{0,2}"), 0..1500)
        ) {
            let (mut pages, mut plain) = (Pages::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for (at, (choice, key)) in steps.into_iter().enumerate() {
                let (key, value) = (Bytes::from(key), Bytes::from(at.to_string()));
                match choice {
                    0 => kept.push((pages.clone(), plain.clone())),
                    1 => {
                        pages.remove_all(&key);
                        plain.retain(|other: &Bytes, _| !other.starts_with(&key));
                    }
                    2..20 => {
                        pages.remove(&key);
                        plain.remove(&key);
                    }
                    _ => {
                        pages.insert(key.clone(), value.clone());
                        plain.insert(key.clone(), value);
                    }
                }
                prop_assert_eq!(pages.get(&key), plain.get(&key).cloned());
                prop_assert_eq!(pages.len(), plain.len());
            }
            kept.push((pages, plain));
            for (pages, plain) in kept {
                let entries: Vec<_> = pages.into_entries().collect();
                prop_assert_eq!(entries, plain.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
