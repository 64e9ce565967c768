//! The store in a directory does what every store does, belongs to one process, and tells torn from
//! altered.
#![cfg(all(feature = "fjall", unix))]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests read clocks for their deadlines, and may fail by panic"
)]

mod store_support;

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use store_support::Contents;
use tempfile::TempDir;
use tidegate::store::{
    Batch, Durability, FjallSettings, FjallStore, MessageStore, Outcome, Space, StoreError,
};

/// A directory in memory, where there is one: nothing here is about the disk.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn settings() -> FjallSettings {
    FjallSettings::default()
}

fn open(directory: &Path) -> FjallStore {
    opened(directory, settings()).unwrap()
}

/// Opens a store. A process that is just being started by another test holds what this one has open
/// for an instant, the lock included.
fn opened(directory: &Path, settings: FjallSettings) -> Result<FjallStore, StoreError> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match FjallStore::open(directory, settings) {
            Err(StoreError::InUse { .. }) if Instant::now() < until => thread::yield_now(),
            other => return other,
        }
    }
}

#[test]
fn a_directory_is_a_store() {
    store_support::run(|| {
        let folder = folder();
        move || Box::new(open(folder.path())) as store_support::Store
    });
}

/// Batch `number`: an entry of its own, one that every batch replaces, and none of the batch before
/// the last.
fn batch(number: u64, body: usize) -> Batch {
    let mut batch = Batch::new(number);
    let key = |number: u64| number.to_be_bytes();
    let body = Bytes::from(vec![u8::try_from(number % 251).unwrap() + 1; body]);
    batch.put(Space::Messages, &key(number), |head| head.extend_from_slice(b"head "), body);
    batch.put(Space::Recent, b"last", |head| head.extend_from_slice(&key(number)), Bytes::new());
    if number > 2 {
        batch.remove(Space::Messages, &key(number - 2));
    }
    batch
}

fn commit(store: &mut FjallStore, batch: &Batch) {
    store.commit(batch, Durability::Synced).unwrap();
}

/// Opens a store and reads all of it.
fn read(directory: &Path, settings: FjallSettings) -> Result<(Outcome, Contents), StoreError> {
    let mut store = opened(directory, settings)?;
    let recovery = store.recover()?;
    let outcome = recovery.outcome;
    let entries = recovery.entries.map(|entry| entry.map(|e| ((e.space, e.key), e.value)));
    Ok((outcome, entries.collect::<Result<_, _>>()?))
}

#[test]
fn numbers_of_batches_ascend_over_starts() {
    let folder = folder();
    let mut store = open(folder.path());
    commit(&mut store, &batch(5, 1));
    drop(store);
    let mut store = open(folder.path());
    let error = store.commit(&batch(5, 2), Durability::Synced).unwrap_err().to_string();
    assert!(error.starts_with("committing batch 5 failed: its number is not greater"), "{error}");
    commit(&mut store, &batch(6, 1));
}

#[test]
fn what_a_batch_puts_survives_its_removal_of_very_many() {
    let folder = folder();
    let mut store = open(folder.path());
    let mut many = Batch::new(1);
    for key in 0..25_000_u32 {
        let key = [b"q".as_slice(), &key.to_be_bytes()].concat();
        many.put(Space::Messages, &key, |_| {}, Bytes::from_static(b"v"));
    }
    commit(&mut store, &many);
    let mut removal = Batch::new(2);
    removal.remove_all(Space::Messages, b"q");
    removal.put(Space::Messages, b"q and new", |_| {}, Bytes::from_static(b"v"));
    commit(&mut store, &removal);
    drop(store);
    let (outcome, contents) = read(folder.path(), settings()).unwrap();
    assert_eq!(outcome, Outcome::Loaded);
    let keys: Vec<_> = contents.keys().map(|(_, key)| key.escape_ascii().to_string()).collect();
    assert_eq!(keys, ["q and new"]);
}

// The lock.

/// Another process that opens a store when it is told to, and says what came of it.
struct Opener {
    process: Child,
    tell: Option<ChildStdin>,
    answers: BufReader<std::process::ChildStdout>,
}

impl Opener {
    fn start(directory: &Path, user: Option<u32>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_process_that_opens_a_store", "--ignored", "--nocapture"]);
        command.env("STORE", directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(user) = user {
            command.uid(user);
        }
        let mut process = command.spawn().unwrap();
        let tell = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut opener = Self { process, tell, answers };
        assert_eq!(opener.hear(), "ready");
        opener
    }

    fn tell(&mut self) {
        self.tell.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// What it says next.
    fn hear(&mut self) -> String {
        for line in self.answers.by_ref().lines() {
            let line = line.unwrap();
            if let Some((_, said)) = line.split_once("says: ") {
                return said.to_owned();
            }
        }
        panic!("it ended without a word")
    }

    fn ask(&mut self) -> String {
        self.tell();
        self.hear()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Lets it end in order.
    fn end(&mut self) {
        self.tell.take();
        self.process.wait().unwrap();
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // It may have ended already.
        let _already_gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

#[test]
#[ignore = "other tests start it as a process of its own"]
fn a_process_that_opens_a_store() {
    let directory = PathBuf::from(std::env::var_os("STORE").expect("other tests say where"));
    println!("says: ready");
    let mut lines = std::io::stdin().lines();
    let mut stores = Vec::new();
    while lines.next().is_some() {
        match FjallStore::open(&directory, settings()) {
            Ok(store) => {
                stores.push(store);
                println!("says: opened");
            }
            Err(error) => println!("says: {error}"),
        }
    }
}

fn assert_in_use(said: &str, directory: &Path) {
    let place = directory.to_str().unwrap();
    assert!(said.contains(place) && said.contains("in use"), "{said}");
}

#[test]
fn a_second_process_is_refused_and_the_first_is_undisturbed() {
    let folder = folder();
    let mut store = open(folder.path());
    commit(&mut store, &batch(1, 10));
    assert_in_use(&Opener::start(folder.path(), None).ask(), folder.path());
    // The same directory by another name.
    let link = folder.path().with_extension("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    assert_in_use(&Opener::start(&link, None).ask(), &link);
    fs::remove_file(&link).unwrap();
    // And the same process.
    let again = FjallStore::open(folder.path(), settings()).unwrap_err();
    assert!(matches!(again, StoreError::InUse { .. }), "{again}");
    commit(&mut store, &batch(2, 10));
    drop(store);
    assert_eq!(read(folder.path(), settings()).unwrap().1.len(), 3);
}

#[test]
fn a_killed_process_leaves_no_lock() {
    let folder = folder();
    let mut first = Opener::start(folder.path(), None);
    assert_eq!(first.ask(), "opened");
    first.kill();
    let mut store = open(folder.path());
    commit(&mut store, &batch(1, 10));
}

#[test]
fn of_two_starts_in_the_same_instant_exactly_one_wins() {
    for round in 0..50 {
        let folder = folder();
        if round % 2 == 0 {
            // Half of them make the store as well.
            drop(open(folder.path()));
        }
        let mut two = [(); 2].map(|()| Opener::start(folder.path(), None));
        two.iter_mut().for_each(Opener::tell);
        let mut said = two.each_mut().map(Opener::hear);
        said.sort_by_key(|said| said != "opened");
        assert_eq!(said[0], "opened", "round {round}");
        assert_in_use(&said[1], folder.path());
        two.iter_mut().for_each(Opener::end);
        drop(open(folder.path()));
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_named_with_the_reason() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let set = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    fs::set_permissions(folder.path().join("lock"), fs::Permissions::from_mode(0o444)).unwrap();
    set(0o555);
    // Nothing is read-only for the superuser, so the process is somebody else's.
    let is_root = fs::metadata("/proc/self").is_ok_and(|of| of.uid() == 0);
    let said = Opener::start(folder.path(), is_root.then_some(65_534)).ask();
    set(0o755);
    let place = folder.path().to_str().unwrap();
    assert!(said.contains(place) && said.contains("denied"), "{said}");
}

#[test]
fn a_missing_directory_is_made_or_named() {
    let folder = folder();
    let missing = folder.path().join("a/b");
    let mut settings = settings();
    settings.create = false;
    for _ in 0..2 {
        let error = FjallStore::open(&missing, settings).unwrap_err().to_string();
        assert!(error.contains(missing.to_str().unwrap()), "{error}");
        assert!(!folder.path().join("a").exists());
    }
    drop(open(&missing));
    assert_eq!(opened(&missing, settings).unwrap().recover().unwrap().outcome, Outcome::Loaded);
    // A directory with something else in it.
    fs::create_dir(folder.path().join("other")).unwrap();
    let other = folder.path().join("other");
    let error = FjallStore::open(&other, settings).unwrap_err().to_string();
    assert!(error.contains(other.to_str().unwrap()), "{error}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
}

#[test]
fn a_store_that_was_not_made_to_its_end_is_made_again() {
    let folder = folder();
    drop(open(folder.path()));
    fs::rename(folder.path().join("messages"), folder.path().join("messages.new")).unwrap();
    fs::remove_file(folder.path().join("messages.new/0.jnl")).unwrap();
    assert_eq!(open(folder.path()).recover().unwrap().outcome, Outcome::Fresh);
    assert!(!folder.path().join("messages.new").exists());
}

// Torn and altered.

/// All files below a directory.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                // The engine removes files of its own accord.
                let Ok(bytes) = fs::read(&path) else { continue };
                found.insert(path.strip_prefix(directory).unwrap().to_path_buf(), bytes);
            }
        }
    }
    found
}

fn lay_out(files: &BTreeMap<PathBuf, Vec<u8>>) -> TempDir {
    let folder = folder();
    for (path, bytes) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

/// A store of a few batches, and how it is altered.
struct Sample {
    files: BTreeMap<PathBuf, Vec<u8>>,
    journal: PathBuf,
    /// Where each batch ends; the first is where the journal began.
    ends: Vec<usize>,
    /// What the store holds after each of them.
    states: Vec<Contents>,
    /// How often it was opened; every fifth time, it is used as well.
    opened: Cell<u32>,
}

const BATCHES: u64 = 4;

impl Sample {
    fn new(durability: Durability, body: usize) -> Self {
        let folder = folder();
        // After its second start, a journal is as long as what is in it.
        drop(open(folder.path()));
        let mut store = open(folder.path());
        let journal = PathBuf::from("messages/0.jnl");
        let length = || usize::try_from(fs::metadata(folder.path().join(&journal)).unwrap().len());
        let mut ends = vec![length().unwrap()];
        let mut states = vec![Contents::new()];
        for number in 1..=BATCHES {
            store.commit(&batch(number, body), durability).unwrap();
            ends.push(length().unwrap());
            let entries = store.recover().unwrap().entries.map(Result::unwrap);
            states.push(entries.map(|e| ((e.space, e.key), e.value)).collect());
        }
        drop(store);
        let files = files(folder.path());
        assert_eq!(files[&journal].len(), *ends.last().unwrap());
        Self { files, journal, ends, states, opened: Cell::new(0) }
    }

    /// How many batches end at or before this byte.
    fn whole_before(&self, at: usize) -> usize {
        self.ends.iter().filter(|end| **end <= at).count() - 1
    }

    /// Opens the store with another journal: how many batches there are, or why it is corrupt. Now and
    /// then it is opened again, and used.
    fn found(&self, journal: Vec<u8>) -> Result<(Outcome, usize), String> {
        let mut altered = self.files.clone();
        altered.insert(self.journal.clone(), journal);
        let folder = lay_out(&altered);
        let (outcome, contents) = match read(folder.path(), settings()) {
            Ok(found) => found,
            Err(StoreError::Corrupt { place, reason }) => {
                assert!(place.contains(self.journal.to_str().unwrap()), "{place} {reason}");
                assert!(files(folder.path()) == altered, "files were changed: {reason}");
                return Err(reason);
            }
            Err(other) => panic!("{other}"),
        };
        let batches = self.states.iter().position(|state| *state == contents);
        let batches = batches.unwrap_or_else(|| panic!("a wrong entry: {contents:?}"));
        if !self.opened.replace(self.opened.get() + 1).is_multiple_of(5) {
            return Ok((outcome, batches));
        }
        let mut store = open(folder.path());
        assert_eq!(store.recover().unwrap().outcome, Outcome::Loaded);
        let next = self.states.len() as u64;
        commit(&mut store, &batch(next, 1));
        drop(store);
        let (outcome_then, contents) = read(folder.path(), settings()).unwrap();
        assert_eq!(outcome_then, Outcome::Loaded);
        assert!(
            contents.contains_key(&(Space::Messages, Bytes::copy_from_slice(&next.to_be_bytes())))
        );
        Ok((outcome, batches))
    }
}

#[test]
fn a_journal_cut_anywhere_gives_the_batches_before() {
    let sample = Sample::new(Durability::Synced, 40);
    let journal = &sample.files[&sample.journal];
    for cut in 0..=journal.len() {
        let found = sample.found(journal[..cut].to_vec());
        let whole = sample.whole_before(cut);
        match found {
            Ok((Outcome::Loaded, batches)) if sample.ends[whole] == cut => {
                assert_eq!(batches, whole)
            }
            Ok((Outcome::TornTailDropped { .. }, batches)) => {
                assert_eq!(batches, whole, "cut {cut}")
            }
            other => panic!("cut {cut}: {other:?}"),
        }
    }
}

#[test]
fn an_altered_byte_of_a_journal_is_corrupt() {
    let sample = Sample::new(Durability::Synced, 40);
    let journal = &sample.files[&sample.journal];
    let mut numbers = 0_u8;
    for at in 0..journal.len() {
        // Every bit has its turn, and now and then all of them.
        numbers = numbers.wrapping_add(1);
        let flip = if numbers % 9 == 8 { 0xFF } else { 1 << (numbers % 9) };
        let mut altered = journal.clone();
        altered[at] ^= flip;
        let found = sample.found(altered);
        let whole = sample.whole_before(at);
        match found {
            Err(_) => {}
            // A sequence number may be greater, as long as it is less than the next one.
            Ok((Outcome::Loaded, batches)) if (5..13).contains(&(at - sample.ends[whole])) => {
                assert_eq!(batches, sample.states.len() - 1, "byte {at} xor {flip}");
            }
            // Of the last batch it cannot always be known.
            Ok((Outcome::TornTailDropped { .. }, batches))
                if whole + 1 == sample.states.len() - 1 =>
            {
                assert_eq!(batches, whole, "byte {at} xor {flip}");
            }
            other => panic!("byte {at} xor {flip}: {other:?}"),
        }
    }
}

#[test]
fn a_sector_of_the_last_batch_that_was_never_written_is_torn_and_of_another_one_corrupt() {
    let folder = folder();
    drop(open(folder.path()));
    let mut store = open(folder.path());
    (1..=3).for_each(|number| commit(&mut store, &batch(number, 3000)));
    drop(store);
    let files = files(folder.path());
    let journal = Path::new("messages/0.jnl");
    let each = files[journal].len() / 3;
    for (at, is_last) in [(512, false), (each + 512, false), (each * 2 + 600, true)] {
        let mut altered = files.clone();
        let sector = at / 512 * 512;
        altered.get_mut(journal).unwrap()[sector..sector + 512].fill(0);
        let folder = lay_out(&altered);
        match read(folder.path(), settings()) {
            Ok((Outcome::TornTailDropped { what }, contents)) if is_last => {
                assert!(what.contains("0.jnl"), "{what}");
                assert_eq!(contents.len(), 3);
                assert!(folder.path().join("messages/torn").exists());
            }
            Err(StoreError::Corrupt { .. }) if !is_last => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn of_batches_that_were_never_synced_those_before_the_hole_are_there() {
    let sample = Sample::new(Durability::Written, 2000);
    let journal = &sample.files[&sample.journal];
    for sector in (0..journal.len() - 512).step_by(512) {
        let mut altered = journal.clone();
        altered[sector..sector + 512].fill(0);
        let (outcome, batches) = sample.found(altered).unwrap();
        assert_eq!(batches, sample.whole_before(sector));
        assert!(matches!(outcome, Outcome::TornTailDropped { .. }), "{outcome:?}");
    }
}

#[test]
fn a_missing_journal_is_corrupt() {
    let sample = Sample::new(Durability::Synced, 40);
    let mut files = sample.files;
    files.insert("messages/2.jnl".into(), Vec::new());
    let error = read(lay_out(&files).path(), settings()).unwrap_err().to_string();
    assert!(error.contains("2.jnl") && error.contains("missing"), "{error}");
}

/// A store most of which lies in tables and blob files.
fn flushed() -> (BTreeMap<PathBuf, Vec<u8>>, FjallSettings, Contents) {
    let folder = folder();
    let mut settings = settings();
    settings.buffer_bytes = 8 << 10;
    let mut store = opened(folder.path(), settings).unwrap();
    let is_in = |path: &PathBuf, name: &str| path.components().any(|part| part.as_os_str() == name);
    let are_there = |name| files(folder.path()).keys().any(|path| is_in(path, name));
    let mut number = 0;
    while number < 400 || !are_there("tables") || !are_there("blobs") {
        for _ in 0..20 {
            number += 1;
            commit(&mut store, &batch(number, if number % 2 == 0 { 700 } else { 20 }));
        }
        assert!(number < 10_000, "nothing is flushed");
    }
    // Something that stays, large and small.
    for key in 0..20_u8 {
        number += 1;
        let mut batch = batch(number, 20);
        batch.put(Space::Copies, &[key], |_| {}, Bytes::from(vec![key; 900]));
        batch.put(Space::Messages, &[key], |_| {}, Bytes::from(vec![key; 900]));
        commit(&mut store, &batch);
    }
    drop(store);
    let files = files(folder.path());
    let (_, contents) = read(folder.path(), settings).unwrap();
    (files, settings, contents)
}

#[test]
fn an_altered_byte_of_a_table_is_an_error_or_harmless() {
    let (files, settings, contents) = flushed();
    let whole: usize = files
        .iter()
        .filter(|(path, _)| path.extension().is_none())
        .map(|(_, bytes)| bytes.len())
        .sum();
    // A thousand places, spread evenly.
    let stride = (whole / 1000).max(1) | 1;
    let (mut errors, mut at) = (0, 0);
    let (mut cases, mut from) = (0, 0);
    for (path, bytes) in
        files.iter().filter(|(path, _)| path.extension().is_none() && !path.ends_with("lock"))
    {
        while at < from + bytes.len() {
            let mut altered = files.clone();
            altered.get_mut(path).unwrap()[at - from] ^= 1 << (cases % 8);
            let folder = lay_out(&altered);
            match read(folder.path(), settings) {
                Ok((_, found)) => {
                    assert!(found == contents, "{} byte {}", path.display(), at - from)
                }
                Err(StoreError::Corrupt { .. }) => errors += 1,
                Err(other) => panic!("{} byte {}: {other}", path.display(), at - from),
            }
            cases += 1;
            at += stride;
        }
        from += bytes.len();
    }
    println!("{cases} places, {errors} of them noticed");
    assert!(errors * 2 > cases, "{errors} of {cases}");
}
