//! The rows: who takes part in each, and what is asked of the client.

use crate::{
    link::Wait,
    plan::Plan,
    report::{
        Goal::{self, AtLeast, AtMost},
        judge, median_of, rounds, verdict,
    },
    runs::{self, Times, Who},
};

type Row = (&'static str, fn(&Plan));

/// Every row, by the name it is filtered with.
const ROWS: [Row; 7] = [
    ("spin", |plan| trip(plan, Wait::Spin, AtMost(1.25))),
    ("park", |plan| trip(plan, Wait::Block, AtMost(1.2))),
    ("listener", listener),
    ("process", in_process),
    ("take", take),
    ("send", send),
    ("lone", lone),
];

/// Runs the rows that are wanted.
pub(crate) fn run(plan: &Plan) {
    for (name, row) in ROWS.into_iter().filter(|(name, _)| plan.wants(name)) {
        if plan.is_test {
            println!("Testing {name}");
        } else {
            println!("\n{name}");
        }
        row(plan);
        if plan.is_test {
            println!("Success");
        }
    }
}

fn print_times(name: &str, runs: &[Times]) {
    let [p50, p99] =
        [|run: &Times| run.p50_us, |run: &Times| run.p99_us].map(|of| median_of(runs, of));
    println!("  {name:<44} p50 {p50:.2} µs, p99 {p99:.2} µs");
}

/// A message to the peer, and one back.
fn trip(plan: &Plan, wait: Wait, goal: Goal) {
    let through = |who| move || runs::trip(plan, who, wait);
    let [bare, ours] = rounds(plan.rounds, [&through(Who::Bare), &through(Who::Client)]);
    print_times("round trip, bare sockets", &bare);
    print_times("round trip, the client", &ours);
    judge("p50, the client / bare", &ours, &bare, |run| run.p50_us, goal);
}

/// The same through the thread of a listener.
fn listener(plan: &Plan) {
    let through = |who| move || runs::trip(plan, who, Wait::Block);
    let [bare, parked, spun] = rounds(
        plan.rounds,
        [&through(Who::Bare), &through(Who::Listener), &through(Who::SpinningListener)],
    );
    print_times("round trip, bare sockets", &bare);
    print_times("through a listener, both threads park", &parked);
    print_times("through a listener, both spin for 50 µs first", &spun);
    judge("p50, spinning first / bare", &spun, &bare, |run| run.p50_us, AtMost(1.6));
}

/// A message to a broker in the same process, and back.
fn in_process(plan: &Plan) {
    let [ours] = rounds(plan.rounds, [&|| runs::trip_in_process(plan)]);
    print_times("round trip through a broker in the process", &ours);
    verdict("µs of p50", median_of(&ours, |run| run.p50_us), "", AtMost(3.0));
}

/// Messages that have arrived, taken by the application.
fn take(plan: &Plan) {
    let [rates] = rounds(plan.rounds, [&|| runs::taken(plan)]);
    let millions = median_of(&rates, |rate| *rate) / 1e6;
    verdict("millions of messages taken in a second", millions, "", AtLeast(1.5));
}

/// Messages sent without waiting for the broker.
fn send(plan: &Plan) {
    let [bare, ours] =
        rounds(plan.rounds, [&|| runs::sent(plan, Who::Bare), &|| runs::sent(plan, Who::Client)]);
    for (name, rates) in [
        ("batches of a bare sender, through a relay", &bare),
        ("the client, through a relay", &ours),
    ] {
        println!("  {name:<44} {:.0} k/s", median_of(rates, |rate| *rate) / 1e3);
    }
    judge("rate, the client / bare", &ours, &bare, |rate| *rate, AtLeast(0.5));
}

/// Messages sent now and then.
fn lone(plan: &Plan) {
    let [bare, ours] =
        rounds(plan.rounds, [&|| runs::lone(plan, Who::Bare), &|| runs::lone(plan, Who::Client)]);
    print_times("a bare write", &bare);
    print_times("a send of the client, written when it returns", &ours);
    let more: Vec<f64> =
        ours.iter().zip(&bare).map(|(ours, bare)| ours.p50_us - bare.p50_us).collect();
    verdict("µs of p50 more than the write", median_of(&more, |more| *more), "", AtMost(3.0));
}
