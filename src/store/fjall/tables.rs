//! The list of tables of each keyspace, checked before the engine reads it.
//!
//! The engine writes a checksum of that list and does not look at it again. What an altered list
//! leads to may be a crash, or tables that are taken for gone. The tables themselves carry checksums
//! that are looked at whenever something is read.
//!
//! In the directory of a keyspace, `current` holds the number of the list (8 bytes, little-endian),
//! its checksum (XXH3, 16 bytes), and 0; the list is the file `v` with that number behind.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::xxh3_128;

use crate::store::StoreError;

/// Checks the lists of all keyspaces.
pub(super) fn check(inner: &Path) -> Result<(), StoreError> {
    let keyspaces = inner.join("keyspaces");
    let failed =
        |error: io::Error| StoreError::failed(format!("reading {}", keyspaces.display()), error);
    for keyspace in fs::read_dir(&keyspaces).map_err(failed)? {
        let directory = keyspace.map_err(failed)?.path();
        check_one(&directory).map_err(|(path, reason)| StoreError::Corrupt {
            place: path.display().to_string(),
            reason,
        })?;
    }
    Ok(())
}

fn check_one(directory: &Path) -> Result<(), (PathBuf, String)> {
    let path = directory.join("current");
    let current = read(&path)?;
    let parts = current.split_first_chunk::<8>();
    let parts = parts.and_then(|(number, rest)| Some((number, rest.split_first_chunk::<16>()?)));
    let Some((number, (checksum, [0]))) = parts else {
        return Err((path, "it names no list of tables".to_owned()));
    };
    let path = directory.join(format!("v{}", u64::from_le_bytes(*number)));
    if xxh3_128(&read(&path)?) != u128::from_le_bytes(*checksum) {
        return Err((path, "its checksum is another one".to_owned()));
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, (PathBuf, String)> {
    fs::read(path).map_err(|error: io::Error| (path.to_path_buf(), error.to_string()))
}
