//! Breaks every edge, one at a time, and expects the model that stands for it to fail.
//!
//! Each runs in a process of its own: a model that finds a deadlock may abort, and the broken edge
//! is chosen by an environment variable. A second test reads the source and fails when an edge has
//! no canary, or a canary no edge.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::Canary;
use crate::{
    buffer, commit, demand, gate, helm, holders, lanes, mailbox, outlet, pipe, pool_shared,
    pool_slot, pool_turn, replies, snapshot, throttle, waiting, watch, window,
};

/// Every canary: a file of models adds its own table here.
fn canaries() -> impl Iterator<Item = &'static Canary> {
    [
        commit::CANARIES,
        demand::CANARIES,
        gate::CANARIES,
        helm::CANARIES,
        holders::CANARIES,
        lanes::CANARIES,
        mailbox::CANARIES,
        pipe::CANARIES,
        outlet::CANARIES,
        replies::CANARIES,
        snapshot::CANARIES,
        waiting::CANARIES,
        watch::CANARIES,
        window::CANARIES,
        buffer::CANARIES,
        throttle::CANARIES,
        pool_slot::CANARIES,
        pool_turn::CANARIES,
        pool_shared::CANARIES,
    ]
    .into_iter()
    .flatten()
}

/// How long a broken model may look for its failure.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn every_broken_edge_fails_its_model() {
    let mut lived = Vec::new();
    for canary in canaries() {
        let outcome = run(canary);
        eprintln!("canary {} in {}: {outcome:?}", canary.edge, canary.model);
        if outcome != Outcome::Failed {
            lived.push(format!("{} in {}: {outcome:?}", canary.edge, canary.model));
        }
    }
    assert!(lived.is_empty(), "models that did not notice a broken edge:\n{}", lived.join("\n"));
}

#[test]
fn every_edge_in_the_source_has_a_canary() {
    let mut edges = BTreeSet::new();
    collect_edges(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../src"), &mut edges);
    assert!(edges.len() > 5, "found only {edges:?}: is the source still where it was?");
    let known: BTreeSet<_> = canaries().map(|canary| canary.edge.to_owned()).collect();
    let missing: Vec<_> = edges.difference(&known).collect();
    assert!(missing.is_empty(), "edges without a canary: {missing:?}");
    let stale: Vec<_> = known.difference(&edges).collect();
    assert!(stale.is_empty(), "canaries without an edge: {stale:?}");
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The model found the broken edge.
    Failed,
    /// It explored everything and noticed nothing.
    Passed,
    /// It was still exploring.
    TimedOut,
    /// There is no such model.
    NoSuchModel,
}

fn run(canary: &Canary) -> Outcome {
    let program = std::env::current_exe().expect("the test knows its own program");
    let mut child = Command::new(program)
        .args(["--exact", canary.model, "--nocapture", "--test-threads=1"])
        .env("TIDEGATE_CANARY", canary.edge)
        // However deep the models go tonight, a canary must be caught at the usual bound.
        .env("LOOM_MAX_PREEMPTIONS", "2")
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the test can start its own program");
    // Its output ends when it does. Read elsewhere, so that the wait for it has a limit.
    let mut pipe = child.stdout.take().expect("it was piped");
    let (ended, end) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut said = String::new();
        pipe.read_to_string(&mut said).expect("a test's output is text");
        ended.send(said).ok();
    });
    let said = end.recv_timeout(PATIENCE);
    if said.is_err() {
        child.kill().expect("the child is ours");
    }
    let status = child.wait().expect("the child is ours");
    reader.join().expect("the reader does not panic");
    let Ok(said) = said else { return Outcome::TimedOut };
    match (said.contains("running 1 test"), status.success()) {
        (false, _) => Outcome::NoSuchModel,
        (true, true) => Outcome::Passed,
        (true, false) => Outcome::Failed,
    }
}

/// Finds the names in `edge("..")`, `fence_edge("..")` and `broken("..")`.
fn collect_edges(directory: &Path, edges: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).expect("the source can be read") {
        let path = entry.expect("the source can be read").path();
        if path.is_dir() {
            collect_edges(&path, edges);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("source is text");
            // Without white space, so that a name on a line of its own is found as well.
            let text: String = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .flat_map(str::split_whitespace)
                .collect();
            for call in ["edge(\"", "broken(\""] {
                let names = text.split(call).skip(1).filter_map(|rest| rest.split('"').next());
                edges.extend(names.map(str::to_owned));
            }
        }
    }
}
