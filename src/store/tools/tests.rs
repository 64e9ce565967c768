use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};

use super::{export, import};
use crate::store::{
    Batch, Durability, MemoryStore, MessageStore, Space,
    record::{Record, put_format, tests::any_record},
};

fn contents(store: &mut MemoryStore) -> BTreeMap<(Space, Bytes), Bytes> {
    let entries = store.recover().expect("memory can be read").entries;
    let entries = entries.map(|entry| entry.map(|entry| ((entry.space, entry.key), entry.value)));
    entries.collect::<Result<_, _>>().expect("all of it")
}

proptest! {
    #[test]
    fn any_records_come_back_from_their_lines(records in vec(any_record(), 0..12)) {
        let mut batch = Batch::new(1);
        put_format(&mut batch);
        for record in records.iter().filter(|record| !matches!(record, Record::Format(_))) {
            record.put(&mut batch);
        }
        // There is a latest batch, so the import need not say which one it was.
        Record::Recent(7, crate::store::record::RecentRecord { batch: 9, ..Default::default() })
            .put(&mut batch);
        let mut store = MemoryStore::new();
        store.commit(&batch, Durability::Synced).unwrap();
        let mut lines = Vec::new();
        export(&mut store, &mut lines, &mut |_, _| ()).unwrap();
        let mut other = MemoryStore::new();
        import(&mut other, &mut &lines[..], &mut |_, _| ()).unwrap();
        prop_assert_eq!(contents(&mut other), contents(&mut store));
    }
}
