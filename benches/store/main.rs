//! The store in a directory beside a bare file that is appended to and synced, alone and under a
//! broker.
//!
//! `cargo bench --bench store` measures every row; one word filters by name, `--quick` takes a first
//! look, `--test` runs each row once. `benches/README.md` says what each row measures.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures time, prints, and stops at the first surprise"
)]

mod bare;
mod brokered;
#[path = "../client/plan.rs"]
mod plan;
#[path = "../broker/report.rs"]
mod report;
mod stored;

use plan::Plan;
use report::{
    Goal::{self, AtLeast, AtMost},
    judge, median_of, rounds, verdict,
};
use tempfile::TempDir;

/// Bytes of a message's body.
const BODY_BYTES: usize = 1024;

/// A directory on the disk that is measured.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

type Row = (&'static str, fn(&Plan));

const ROWS: [Row; 7] = [
    ("commit", commit),
    ("passing", passing),
    ("recovery", recovery),
    ("one", |plan| sent(plan, "one producer, one in flight", 1, 1, 1, AtLeast(0.7))),
    ("window", |plan| sent(plan, "one producer, 256 in flight", 1, 256, 256, AtLeast(0.3))),
    ("producers", |plan| {
        sent(plan, "256 producers, one in flight each", 256, 1, 256, AtLeast(0.3))
    }),
    ("through", through),
];

fn main() {
    let plan = Plan::from_arguments(std::env::args().skip(1));
    for (name, row) in ROWS.into_iter().filter(|(name, _)| plan.wants(name)) {
        if plan.is_test {
            println!("Testing {name}");
        } else {
            println!("\n{name}");
        }
        row(&plan);
        if plan.is_test {
            println!("Success");
        }
    }
}

fn print_rate(name: &str, rates: &[f64]) {
    println!("  {name:<44} {:.0} messages/s", median_of(rates, |rate| *rate));
}

/// Messages committed in batches of several sizes.
fn commit(plan: &Plan) {
    for size in [1, 16, 256] {
        let [growing, whole, ours] = rounds(
            plan.rounds,
            [&|| bare::rate(plan, size, false), &|| bare::rate(plan, size, true), &|| {
                stored::rate(plan, size)
            }],
        );
        println!("  batches of {size}");
        print_rate("bare file, growing", &growing);
        print_rate("bare file, preallocated", &whole);
        print_rate("store", &ours);
        judge("store / growing file", &ours, &growing, |rate| *rate, AtLeast(0.7));
    }
}

/// Messages that come and go: a few at a time, and more than the store keeps in memory.
fn passing(plan: &Plan) {
    for depth in if plan.is_test { [100, 1_000] } else { [10_000, 200_000] } {
        let [ours] = rounds(plan.rounds.min(3), [&|| stored::passing(plan, depth)]);
        println!("  removed when {depth} others have come");
        println!("  {:<44} {:.0} ms", "longest commit", median_of(&ours, |run| run.longest_ms));
        verdict("messages/s", median_of(&ours, |run| run.rate), "", AtLeast(50_000.0));
    }
}

/// A store of very many messages, opened and read.
fn recovery(plan: &Plan) {
    let count: u32 = match (plan.is_test, plan.rounds) {
        (true, _) => 1_000,
        (_, ..5) => 100_000,
        _ => 1_000_000,
    };
    let seconds = stored::recovery(count);
    println!("  {count} messages of {BODY_BYTES} bytes");
    verdict("seconds for a million", seconds * 1e6 / f64::from(count), "", AtMost(10.0));
}

/// Messages a broker has acknowledged.
fn sent(plan: &Plan, name: &str, producers: usize, each: usize, batch: usize, goal: Goal) {
    let [bare, ours] = rounds(
        plan.rounds,
        [&|| bare::rate(plan, batch, false), &|| brokered::sent(plan, producers, each)],
    );
    print_rate(&format!("bare file, growing, batches of {batch}"), &bare);
    print_rate(name, &ours);
    judge("broker / bare file", &ours, &bare, |rate| *rate, goal);
    if batch > 1 {
        println!("  or, instead of the ratio:");
        verdict("messages/s", median_of(&ours, |rate| *rate), "", AtLeast(120_000.0));
    }
}

/// Messages from a producer to a consumer, acknowledged to both.
fn through(plan: &Plan) {
    let [ours] = rounds(plan.rounds, [&|| brokered::through(plan)]);
    print_rate("producer to consumer", &ours);
    verdict("messages/s", median_of(&ours, |rate| *rate), "", AtLeast(50_000.0));
}
