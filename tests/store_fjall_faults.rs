//! Whatever fails under the store, and whenever the process or the machine stops: what was
//! acknowledged is there.
//!
//! A process with the fault layer (`faults/`) under it commits batches and says which are committed.
//! It is started anew for each operation on a file, which then fails, or is the last one.
//! `FAULTS_SECONDS` is how long that may take; what is left out of it is spread evenly.
#![cfg(all(feature = "fjall", target_os = "linux"))]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    reason = "tests read clocks for their deadlines, count over threads, and may fail by panic"
)]

mod faults_support;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use faults_support::{Faults, folder};
use tidegate::store::{
    Batch, Durability, FjallSettings, FjallStore, MessageStore, Outcome, Space, StoreError,
};

type Contents = BTreeMap<(Space, Bytes), Bytes>;

const BATCHES: u64 = 61;

fn settings() -> FjallSettings {
    // Small enough for memory to be written to tables now and then.
    let mut settings = FjallSettings::default();
    settings.buffer_bytes = 12 << 10;
    settings
}

/// Every fifth batch and the one before are not synced by themselves.
fn durability(number: u64) -> Durability {
    if number % 5 < 2 { Durability::Written } else { Durability::Synced }
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Some messages, one of them large, and the removal of earlier ones.
fn batch(number: u64) -> Batch {
    let mut batch = Batch::new(number);
    let fill = |len| Bytes::from(vec![u8::try_from(number).unwrap(); len]);
    for (space, body) in [(Space::Messages, fill(900)), (Space::Copies, fill(30))] {
        batch.put(space, &key(number), |head| head.extend_from_slice(b"head "), body);
    }
    batch.put(Space::Recent, b"last", |_| {}, Bytes::copy_from_slice(&key(number)));
    if number.is_multiple_of(2) {
        batch.remove(Space::Messages, &key(number / 2));
    }
    if number.is_multiple_of(20) {
        batch.remove_all(Space::Copies, &key(0)[..7]);
    }
    batch
}

/// What a store holds after each batch, and before the first.
fn states() -> Vec<Contents> {
    let mut states = vec![Contents::new()];
    let mut state = Contents::new();
    for number in 1..=BATCHES {
        let key = |number: u64| Bytes::copy_from_slice(&key(number));
        let mut put = |space, name: Bytes, value: Vec<u8>| {
            state.insert((space, name), Bytes::from(value));
        };
        let fill = |len| [b"head ".to_vec(), vec![u8::try_from(number).unwrap(); len]].concat();
        put(Space::Messages, key(number), fill(900));
        put(Space::Copies, key(number), fill(30));
        put(Space::Recent, Bytes::from_static(b"last"), key(number).to_vec());
        if number.is_multiple_of(2) {
            state.remove(&(Space::Messages, key(number / 2)));
        }
        if number.is_multiple_of(20) {
            state.retain(|(space, _), _| *space != Space::Copies);
        }
        states.push(state.clone());
    }
    states
}

#[test]
#[ignore = "other tests start it as a process of its own"]
fn a_process_that_commits() {
    let directory = std::env::var_os("STORE").expect("other tests say where");
    let mut store = match FjallStore::open(Path::new(&directory), settings()) {
        Ok(store) => store,
        Err(error) => return println!("says: not opened: {error}"),
    };
    match store.recover().map(|recovery| recovery.entries.collect::<Result<Vec<_>, _>>()) {
        Ok(Ok(_)) => {}
        Ok(Err(error)) | Err(error) => return println!("says: not read: {error}"),
    }
    for number in 1..=BATCHES {
        let durability = durability(number);
        let mut done = store.commit(&batch(number), durability);
        if durability == Durability::Written && number % 5 == 1 {
            done = done.and_then(|()| store.sync());
        }
        match done {
            Ok(()) if durability == Durability::Synced || number % 5 == 1 => {
                println!("says: acknowledged {number}");
            }
            Ok(()) => {}
            Err(error) => {
                println!("says: failed: {error}");
                // From now on it takes nothing, whether or not the disk works again.
                let mut next = batch(number + 1);
                for attempt in 0..3 {
                    if store.commit(&next, Durability::Synced).is_ok() || store.sync().is_ok() {
                        println!("says: took more after a failure");
                    }
                    next.reset(number + 2 + attempt);
                }
                return;
            }
        }
    }
    match store.close() {
        Ok(()) => println!("says: closed"),
        Err(error) => println!("says: failed: {error}"),
    }
}

/// What came of one run.
struct Ran {
    acknowledged: u64,
    is_closed: bool,
    text: String,
}

fn run_with(faults: &Faults, directory: &Path) -> Result<Ran, String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_process_that_commits", "--ignored", "--nocapture"]);
    command.env("STORE", directory);
    // What is above the store fails as well.
    let disk = directory.parent().unwrap();
    fs::create_dir_all(disk).unwrap();
    faults.set(&mut command, disk);
    let output = command.output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = format!("{out}{}", String::from_utf8_lossy(&output.stderr));
    let killed = output.status.signal() == Some(9) && faults.kills();
    if !(output.status.success() || killed) {
        return Err(format!("{}: {text}", output.status));
    }
    if text.contains("took more after") {
        return Err(text);
    }
    let told = out.lines().filter_map(|line| line.split_once("says: acknowledged "));
    let acknowledged = told.filter_map(|(_, number)| number.parse().ok()).max().unwrap_or(0);
    Ok(Ran { acknowledged, is_closed: out.contains("says: closed"), text })
}

/// Opens the store without a fault, and finds out whether all that was acknowledged is there.
fn check(ran: &Ran, directory: &Path, states: &[Contents]) -> Result<Outcome, String> {
    let read = || -> Result<(Outcome, Contents), StoreError> {
        // It was to be made there.
        fs::create_dir_all(directory.parent().unwrap()).unwrap();
        let mut store = FjallStore::open(directory, settings())?;
        let recovery = store.recover()?;
        let outcome = recovery.outcome;
        let entries = recovery.entries.map(|entry| entry.map(|e| ((e.space, e.key), e.value)));
        Ok((outcome, entries.collect::<Result<_, _>>()?))
    };
    let (outcome, contents) = read().map_err(|error| format!("{error}\n{}", ran.text))?;
    let found = states.iter().position(|state| *state == contents);
    let found = found.ok_or_else(|| format!("no batch ends like this\n{}", ran.text))?;
    let wanted = usize::try_from(ran.acknowledged).unwrap();
    if found < wanted {
        return Err(format!("batch {wanted} was acknowledged, {found} is there\n{}", ran.text));
    }
    Ok(outcome)
}

/// Runs the whole with a fault at one operation after the other, as far as the time goes.
fn at_every_operation(kinds: &[&'static str]) {
    let states = states();
    let seconds = std::env::var("FAULTS_SECONDS").map_or(15, |seconds| seconds.parse().unwrap());
    let operations = {
        let folder = folder();
        let faults = Faults::traced(folder.path().join("trace"));
        let directory = folder.path().join("disk/store");
        let ran = run_with(&faults, &directory).unwrap();
        assert!(ran.is_closed, "{}", ran.text);
        assert_eq!(ran.acknowledged, BATCHES);
        check(&ran, &directory, &states).unwrap();
        faults.operations()
    };
    // The layer is built by now.
    let until = Instant::now() + Duration::from_secs(seconds);
    assert!(operations > 200, "{operations} operations");
    let cases = operations * kinds.len();
    // A stride without a common divisor leads through all of them, evenly from the start.
    let stride = (cases * 5 / 8..).find(|stride| gcd(*stride, cases) == 1).unwrap();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let torn = AtomicUsize::new(0);
    thread::scope(|scope| {
        // More than there are cores: a case waits most of its time.
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    // Each number is taken once; nothing else is passed on with it.
                    let case = next.fetch_add(1, Ordering::Relaxed);
                    if case >= cases || Instant::now() > until {
                        return;
                    }
                    let case = case * stride % cases;
                    let (kind, at) = (kinds[case % kinds.len()], case / kinds.len() + 1);
                    let folder = folder();
                    let directory = folder.path().join("disk/store");
                    let faults = Faults::at(at, kind);
                    let checked = run_with(&faults, &directory)
                        .and_then(|ran| check(&ran, &directory, &states));
                    match checked {
                        Ok(Outcome::TornTailDropped { .. }) => {
                            torn.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(_) => {}
                        Err(error) => panic!("{kind} at operation {at}: {error}"),
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (done, torn) = (done.into_inner(), torn.into_inner());
    println!(
        "{done} of {cases} cases ({operations} operations, {kinds:?}), {torn} with a torn tail"
    );
    assert!(done > 0);
}

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[test]
fn nothing_acknowledged_is_lost_when_an_operation_fails() {
    at_every_operation(&["eio", "eio-on", "enospc", "enospc-on", "short", "delay"]);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    at_every_operation(&["kill"]);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_is_cut() {
    at_every_operation(&["cut", "tear"]);
}
