//! The rows: who takes part in each, and what is asked of the broker.

use crate::{
    link::Wait,
    plan::Plan,
    report::{
        Goal::{AtLeast, AtMost},
        judge, median_of, rounds, verdict,
    },
    runs::{self, Clients, Middle, Rate, Trip},
};

type Row = (&'static str, fn(&Plan));

/// Every row, by the name it is filtered with.
const ROWS: [Row; 10] = [
    ("pair", |plan| pair(plan, Clients::Lean)),
    ("auto", auto),
    ("trip", |plan| trip(plan, Clients::Lean, Wait::Block, (1.15, 1.5))),
    ("spin", |plan| trip(plan, Clients::Lean, Wait::Spin, (1.35, f64::INFINITY))),
    ("topic", topic),
    ("queues", queues),
    ("four", four),
    ("crowded", crowded),
    ("connections", connections),
    ("library", |plan| {
        pair(plan, Clients::Library);
        trip(plan, Clients::Library, Wait::Block, (1.15, 1.5));
    }),
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

fn print_rates(contenders: &[(&str, &[Rate])]) {
    for (name, runs) in contenders {
        let rate = median_of(runs, |run| run.per_second) / 1e3;
        let cpu = median_of(runs, |run| run.cpu_ns) / 1e3;
        println!("  {name:<44} {rate:.0} k/s, {cpu:.2} µs of processor time each");
    }
}

fn rate(run: &Rate) -> f64 {
    run.per_second
}

/// One producer, one consumer, acknowledgements ten by ten.
fn pair(plan: &Plan, clients: Clients) {
    let through = |middle| move || runs::stream(plan, middle, clients, 1);
    let [relay, one, two] = rounds(
        plan.rounds,
        [&through(Middle::Relay), &through(Middle::Broker(1)), &through(Middle::Broker(2))],
    );
    let name = if clients == Clients::Lean { "lean clients" } else { "the library's client" };
    print_rates(&[
        ("one pair, relay", &relay),
        (&format!("one pair, one loop, {name}"), &one),
        (&format!("one pair, two loops, {name}"), &two),
    ]);
    judge("rate, one loop / relay", &one, &relay, rate, AtLeast(0.5));
    judge("rate, two loops / one", &two, &one, rate, AtLeast(0.9));
}

/// Each message acknowledged, and that answered, before the next.
fn auto(plan: &Plan) {
    let [bare, ours] =
        rounds(plan.rounds, [&|| runs::answered(plan), &|| runs::acknowledged(plan)]);
    print_rates(&[
        ("request and reply over one socket", &bare),
        ("each message acknowledged alone", &ours),
    ]);
    judge("rate, one loop / request and reply", &ours, &bare, rate, AtLeast(0.75));
}

/// Round trips through two queues, and the most that p50 and p99 may be of the relay's.
fn trip(plan: &Plan, clients: Clients, wait: Wait, (p50, p99): (f64, f64)) {
    let through = |middle| move || runs::trip(plan, middle, clients, wait);
    let [relay, one, two] = rounds(
        plan.rounds,
        [&through(Middle::Relay), &through(Middle::Broker(1)), &through(Middle::Broker(2))],
    );
    let who = if clients == Clients::Lean { "lean clients" } else { "the library's client" };
    let how = if wait == Wait::Block { "blocking" } else { "spinning" };
    for (name, runs) in [("relay", &relay), ("one loop", &one), ("two loops", &two)] {
        let [p50, p99, cpu] =
            [|run: &Trip| run.p50_us, |run: &Trip| run.p99_us, |run: &Trip| run.cpu_us]
                .map(|of| median_of(runs, of));
        let name = format!("round trip, {how}, {name}, {who}");
        println!("  {name:<44} p50 {p50:.1} µs, p99 {p99:.1} µs, {cpu:.1} µs of processor time");
    }
    judge("p50, one loop / relay", &one, &relay, |run| run.p50_us, AtMost(p50));
    if p99.is_finite() {
        judge("p99, one loop / relay", &one, &relay, |run| run.p99_us, AtMost(p99));
    }
    judge("p50, two loops / one", &two, &one, |run| run.p50_us, AtMost(1.1));
}

/// A message to everybody who listens.
fn topic(plan: &Plan) {
    let bare = || {
        let (arrival, writing) = runs::spread_barely(plan);
        [writing, arrival]
    };
    let ours = || [runs::spread(plan, 1); 2];
    let [bare, ours] = rounds(plan.rounds, [&bare, &ours]);
    let print = |name: &str, time: f64| println!("  {name:<44} {time:.0} µs");
    print("a bare writer writes to 100 sockets", median_of(&bare, |run| run[0]));
    print("the last of 100 has it from a bare writer", median_of(&bare, |run| run[1]));
    print("the last of 100 subscribers has it", median_of(&ours, |run| run[0]));
    judge("last arrival / time of writing", &ours, &bare, |run| run[0], AtMost(3.0));
}

/// Messages to one queue before the next has its turn.
const RUN: usize = 20;

/// Many queues with a consumer each, all in turn.
fn queues(plan: &Plan) {
    let through = |queues, run| move || runs::pump(plan, queues, run);
    let [one, many, each] =
        rounds(plan.rounds, [&through(1, 1), &through(plan.queues, RUN), &through(plan.queues, 1)]);
    let name = format!("{} queues, one loop", plan.queues);
    print_rates(&[
        ("one queue, one loop", &one),
        (&format!("{name}, {RUN} messages each"), &many),
        (&format!("{name}, one message each"), &each),
    ]);
    let time = |run: &Rate| 1.0 / run.per_second;
    for (how, many) in [(format!("{RUN} each"), &many), ("one each".to_owned(), &each)] {
        judge(&format!("time, many queues, {how} / one"), many, &one, time, AtMost(1.2));
        let cpu = |run: &Rate| run.cpu_ns;
        judge(&format!("processor time, {how} / one"), many, &one, cpu, AtMost(1.2));
    }
}

/// Round trips beside a queue in which very many messages wait.
fn crowded(plan: &Plan) {
    let beside = |waiting| move || runs::trip_beside(plan, waiting);
    let [alone, crowded] = rounds(plan.rounds, [&beside(0), &beside(plan.waiting)]);
    let crowd = format!("beside {} waiting messages", plan.waiting);
    for (name, runs) in [("beside an empty queue", &alone), (&crowd, &crowded)] {
        let [p50, p99] =
            [|run: &Trip| run.p50_us, |run: &Trip| run.p99_us].map(|of| median_of(runs, of));
        println!("  {:<44} p50 {p50:.1} µs, p99 {p99:.1} µs", format!("round trip, {name}"));
    }
    judge("p50, beside them / alone", &crowded, &alone, |run| run.p50_us, AtMost(1.1));
}

/// More producers and consumers on one queue.
fn four(plan: &Plan) {
    let through = |middle, pairs| move || runs::stream(plan, middle, Clients::Lean, pairs);
    let [relay, one, four] = rounds(
        plan.rounds,
        [
            &through(Middle::Relay, 4),
            &through(Middle::Broker(1), 1),
            &through(Middle::Broker(1), 4),
        ],
    );
    print_rates(&[
        ("relay, four pairs", &relay),
        ("one pair, one loop", &one),
        ("four producers and four consumers, one loop", &four),
    ]);
    judge("rate, four pairs / one", &four, &one, rate, AtLeast(1.0));
}

/// Many connections at a time.
fn connections(plan: &Plan) {
    let crowd = runs::crowd(plan, 1);
    let served = crowd.served as f64 / plan.connections as f64;
    println!("  {} of {} connections served", crowd.served, plan.connections);
    verdict("part of them served", served, "", AtLeast(1.0));
    let kib = crowd.bytes_each / 1024.0;
    if plan.is_test {
        // So few say nothing about memory.
        return;
    }
    verdict("KiB of the broker's memory for each", kib, "", AtMost(12.0));
}
