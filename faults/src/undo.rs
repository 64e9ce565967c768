//! What a power cut would take back.
//!
//! What a file holds survives once that file was synced; a name survives, or its end, once its
//! directory was. The name of a new file survives with the file's own sync as well: so it is on ext4,
//! XFS and btrfs, and lsm-tree 3.1 relies on it for its blob files, whose directory it does not sync
//! (strict rules would leave tables without them). After a sync that failed, what was written before it never survives, as the kernel
//! takes it for written.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::{self, File},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

const SECTOR: u64 = 512;

/// A file or directory, whatever its name.
type Id = (u64, u64);

enum Step {
    /// These bytes lay there, and the file was this long.
    Bytes { file: Id, at: u64, old: Vec<u8>, new: u64, length: u64, is_lost: bool },
    /// The file or directory was not there.
    Made { parent: Id, file: Id, path: PathBuf },
    /// It was there; what was lies beside.
    Gone { parent: Id, path: PathBuf, beside: PathBuf },
    /// It had another name.
    Moved { parent: Id, from: PathBuf, to: PathBuf },
}

pub(crate) struct Undo {
    is_on: bool,
    /// Where what was removed is kept.
    beside: PathBuf,
    steps: Vec<Step>,
    open: HashMap<Id, File>,
    kept: u64,
}

fn id(path: &Path) -> Option<Id> {
    fs::metadata(path).ok().map(|of| (of.dev(), of.ino()))
}

fn parent_id(path: &Path) -> Id {
    path.parent().and_then(id).unwrap_or_default()
}

impl Undo {
    pub(crate) fn new(directory: &Path, is_on: bool) -> Self {
        let beside = directory.with_extension("beside");
        if is_on {
            fs::create_dir_all(&beside).expect("a directory beside can be made");
        }
        Self { is_on, beside, steps: Vec::new(), open: HashMap::new(), kept: 0 }
    }

    /// Bytes are about to be written, at `None` behind the last.
    pub(crate) fn writes(&mut self, fd: RawFd, at: Option<u64>, count: u64) {
        if !self.is_on {
            return;
        }
        let Some((file, handle)) = self.handle(fd) else { return };
        let length = handle.metadata().map_or(0, |of| of.len());
        let at = at.unwrap_or(length);
        let there = length.saturating_sub(at).min(count);
        self.note(file, at, there, count, length);
    }

    /// A file is about to get this length.
    pub(crate) fn resizes(&mut self, fd: RawFd, to: u64) {
        if !self.is_on {
            return;
        }
        let Some((file, handle)) = self.handle(fd) else { return };
        let length = handle.metadata().map_or(0, |of| of.len());
        self.note(file, to.min(length), length.saturating_sub(to), 0, length);
    }

    fn handle(&mut self, fd: RawFd) -> Option<(Id, &File)> {
        let path = PathBuf::from(format!("/proc/self/fd/{fd}"));
        let file = id(&path)?;
        if let Entry::Vacant(place) = self.open.entry(file) {
            place.insert(File::options().read(true).write(true).open(&path).ok()?);
        }
        self.open.get(&file).map(|handle| (file, handle))
    }

    fn note(&mut self, file: Id, at: u64, there: u64, new: u64, length: u64) {
        let mut old = vec![0; usize::try_from(there).expect("it fits into memory")];
        self.open[&file].read_exact_at(&mut old, at).expect("what is there can be read");
        self.steps.push(Step::Bytes { file, at, old, new, length, is_lost: false });
    }

    pub(crate) fn made(&mut self, path: &Path) {
        if self.is_on {
            let file = id(path).unwrap_or_default();
            let path = path.to_path_buf();
            self.steps.push(Step::Made { parent: parent_id(&path), file, path });
        }
    }

    /// A name is about to go, or to be given to something else.
    pub(crate) fn goes(&mut self, path: &Path) {
        if !self.is_on || !path.exists() {
            return;
        }
        self.kept += 1;
        let beside = self.beside.join(self.kept.to_string());
        if fs::hard_link(path, &beside).is_ok() {
            let path = path.to_path_buf();
            self.steps.push(Step::Gone { parent: parent_id(&path), path, beside });
        }
    }

    pub(crate) fn moved(&mut self, from: &Path, to: &Path) {
        if self.is_on {
            let (from, to) = (from.to_path_buf(), to.to_path_buf());
            self.steps.push(Step::Moved { parent: parent_id(&to), from, to });
        }
    }

    /// A file or directory was synced, or its sync failed.
    pub(crate) fn synced(&mut self, fd: RawFd, is_done: bool) {
        let Some(synced) = id(Path::new(&format!("/proc/self/fd/{fd}"))) else { return };
        if is_done {
            self.steps.retain(|step| match step {
                Step::Bytes { file, is_lost, .. } => *file != synced || *is_lost,
                Step::Made { parent, file, .. } => *parent != synced && *file != synced,
                Step::Gone { parent, .. } | Step::Moved { parent, .. } => *parent != synced,
            });
            return;
        }
        for step in &mut self.steps {
            if let Step::Bytes { file, is_lost, .. } = step {
                *is_lost |= *file == synced;
            }
        }
    }

    /// Takes everything back; with a seed, some sectors stay.
    pub(crate) fn all(&mut self, seed: Option<u64>) {
        for step in std::mem::take(&mut self.steps).into_iter().rev() {
            match step {
                Step::Bytes { file, at, old, new, length, .. } => {
                    self.take_back(file, at, &old, new, length, seed);
                }
                // Whatever is not there any more need not go.
                Step::Made { path, .. } => {
                    let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
                }
                Step::Gone { path, beside, .. } => {
                    let _ = fs::rename(beside, path);
                }
                Step::Moved { from, to, .. } => {
                    let _ = fs::rename(to, from);
                }
            }
        }
    }

    fn take_back(&self, file: Id, at: u64, old: &[u8], new: u64, length: u64, seed: Option<u64>) {
        let handle = &self.open[&file];
        let Some(seed) = seed else {
            handle.write_all_at(old, at).expect("what was there can be written");
            handle.set_len(length).expect("a file can have its length again");
            return;
        };
        let end = at + new.max(old.len() as u64);
        let mut from = at;
        while from < end {
            let to = ((from / SECTOR + 1) * SECTOR).min(end);
            let mixed = (seed ^ file.1.rotate_left(32) ^ (from / SECTOR))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
            if (mixed ^ (mixed >> 29)) & 0x10_0000 == 0 {
                let offset =
                    |position: u64| usize::try_from(position - at).expect("it is in memory");
                // Where nothing lay, a sector that was not written holds zeros.
                let was =
                    (from..to).map(|position| old.get(offset(position)).copied().unwrap_or(0));
                let was: Vec<u8> = was.collect();
                handle.write_all_at(&was, from).expect("what was there can be written");
            }
            from = to;
        }
    }
}

/// The name of an open file.
pub(crate) fn name_of(fd: impl AsRawFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}
