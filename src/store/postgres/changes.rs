//! A batch as the database takes it: for each table the ranges that go, then the keys that go,
//! then the entries that come.

use std::{collections::BTreeMap, error::Error, fmt};

use bytes::{BufMut as _, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::store::{Batch, Change, Space, Value};

/// What happens in one space. A key is in one of `removed` and `put` only, and whatever a range
/// takes was there before the batch.
#[derive(Debug, Default)]
pub(super) struct Changes<'a> {
    /// First keys, and the first behind; `None` if there is none behind.
    pub(super) ranges: Vec<(&'a [u8], Option<Vec<u8>>)>,
    pub(super) removed: Vec<&'a [u8]>,
    pub(super) put_keys: Vec<&'a [u8]>,
    pub(super) put_values: Vec<Parts<'a>>,
}

/// The changes of a batch, by space; spaces without any are left out.
pub(super) fn collapse(batch: &Batch) -> Vec<(Space, Changes<'_>)> {
    type Latest<'a> = BTreeMap<&'a [u8], Option<Value<'a>>>;
    let mut spaces: [(Vec<&[u8]>, Latest<'_>); Space::ALL.len()] = Default::default();
    for change in batch.changes() {
        match change {
            Change::Put { space, key, value } => {
                spaces[space as usize].1.insert(key, Some(value));
            }
            Change::Remove { space, key } => {
                spaces[space as usize].1.insert(key, None);
            }
            Change::RemoveAll { space, prefix } => {
                let (prefixes, latest) = &mut spaces[space as usize];
                prefixes.push(prefix);
                latest.retain(|key, _| !key.starts_with(prefix));
            }
        }
    }
    let all = Space::ALL.into_iter().zip(spaces);
    all.filter(|(_, (prefixes, latest))| !prefixes.is_empty() || !latest.is_empty())
        .map(|(space, (prefixes, latest))| {
            let ranges = prefixes.into_iter().map(|prefix| (prefix, behind(prefix))).collect();
            let mut changes = Changes { ranges, ..Changes::default() };
            for (key, value) in latest {
                match value {
                    Some(value) => {
                        changes.put_keys.push(key);
                        changes.put_values.push(Parts(value));
                    }
                    None => changes.removed.push(key),
                }
            }
            (space, changes)
        })
        .collect()
}

/// The first key behind all that begin with `prefix`, if there is one.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

/// A value that is written from its two parts.
pub(super) struct Parts<'a>(Value<'a>);

impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl ToSql for Parts<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(self.0.head);
        out.put_slice(self.0.body);
        Ok(IsNull::No)
    }

    accepts!(BYTEA);
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{behind, collapse};
    use crate::store::{Batch, Space};

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(behind(b"a"), Some(b"b".to_vec()));
        assert_eq!(behind(b"a\xFF\xFF"), Some(b"b".to_vec()));
        assert_eq!(behind(b"\xFE\xFF\x00"), Some(b"\xFE\xFF\x01".to_vec()));
        assert_eq!((behind(b"\xFF\xFF"), behind(b"")), (None, None));
    }

    #[test]
    fn the_last_change_of_a_key_is_left() {
        let mut batch = Batch::new(1);
        let put = |batch: &mut Batch, key: &[u8]| {
            batch.put(Space::Copies, key, |_| {}, Bytes::from_static(b"v"));
        };
        put(&mut batch, b"p1");
        batch.remove(Space::Copies, b"p2");
        put(&mut batch, b"q1");
        batch.remove_all(Space::Copies, b"p");
        put(&mut batch, b"p3");
        batch.remove(Space::Copies, b"q1");
        let spaces = collapse(&batch);
        let [(Space::Copies, changes)] = spaces.as_slice() else { panic!("{spaces:?}") };
        assert_eq!(changes.ranges, [(b"p".as_slice(), Some(b"q".to_vec()))]);
        assert_eq!(
            (&changes.removed, &changes.put_keys),
            (&vec![b"q1".as_slice()], &vec![b"p3".as_slice()])
        );
        assert_eq!(format!("{:?}", changes.put_values), "[1 bytes]");
    }
}
