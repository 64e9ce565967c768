//! Runs each contender on several threads under criterion, and sums up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};

/// Thread counts of each row.
pub(crate) const THREADS: [usize; 4] = [1, 2, 4, 8];

/// Measurements shorter than this say more about starting threads than about the contender.
const SHORTEST: Duration = Duration::from_micros(500);

/// What a row is to show.
pub(crate) struct Goal {
    /// How many times faster than the best of `peers`.
    pub(crate) ratio: f64,
    /// The peers that count for the ratio; all of them if empty.
    pub(crate) peers: &'static [&'static str],
    /// Most nanoseconds with one thread.
    pub(crate) most_ns: Option<f64>,
}

impl Goal {
    /// A row that is only there to be looked at.
    pub(crate) const NONE: Self = Self { ratio: 0.0, peers: &[], most_ns: None };
}

/// Nanoseconds per operation, by row, threads and contender.
type Results = BTreeMap<(usize, usize), Vec<(&'static str, Vec<f64>)>>;

pub(crate) struct Harness {
    criterion: Criterion,
    rows: Vec<(&'static str, Goal)>,
    results: Rc<RefCell<Results>>,
}

impl Harness {
    pub(crate) fn new() -> Self {
        let criterion = Criterion::default()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(300))
            .configure_from_args();
        Self { criterion, rows: Vec::new(), results: Rc::default() }
    }

    /// Begins a row; contenders that follow belong to it. The first is ours.
    pub(crate) fn row(&mut self, name: &'static str, goal: Goal) {
        self.rows.push((name, goal));
    }

    /// Measures one contender with each number of threads. `work` prepares what one thread needs,
    /// calls [`Start::run`], and hands back what that gives.
    pub(crate) fn contender(
        &mut self,
        name: &'static str,
        work: impl Fn(Start<'_>) -> Duration + Sync,
    ) {
        let row = self.rows.len() - 1;
        let mut group = self.criterion.benchmark_group(self.rows[row].0);
        for threads in THREADS {
            let results = Rc::clone(&self.results);
            group.bench_function(BenchmarkId::new(threads.to_string(), name), |bencher| {
                bencher.iter_custom(|iterations| {
                    let took = on_threads(threads, iterations, &work);
                    if took >= SHORTEST {
                        #[allow(clippy::cast_precision_loss, reason = "a mean")]
                        let ns = took.as_secs_f64() * 1e9 / iterations as f64;
                        let mut results = results.borrow_mut();
                        let contenders = results.entry((row, threads)).or_default();
                        match contenders.iter_mut().find(|(known, _)| *known == name) {
                            Some((_, all)) => all.push(ns),
                            None => contenders.push((name, vec![ns])),
                        }
                    }
                    took
                });
            });
        }
        group.finish();
    }

    /// Prints the table.
    pub(crate) fn finish(self) {
        self.criterion.final_summary();
        let results = self.results.borrow();
        if results.is_empty() {
            return;
        }
        println!("\nmedian (least) ns per operation; ratio = best peer / ours");
        for ((row, threads), contenders) in results.iter() {
            let (name, goal) = &self.rows[*row];
            let mut line = format!("{name}, {threads} thread(s):");
            for (contender, all) in contenders {
                line += &format!(" {contender} {:.1} ({:.1}),", median(all), least(all));
            }
            println!("{} {}", line, verdict(goal, *threads, contenders));
        }
    }
}

/// What the row's goal says to these numbers.
fn verdict(goal: &Goal, threads: usize, contenders: &[(&'static str, Vec<f64>)]) -> String {
    let Some(((_, ours), peers)) = contenders.split_first() else { return String::new() };
    let counted = |name: &&str| goal.peers.is_empty() || goal.peers.contains(name);
    let ratio = |of: fn(&[f64]) -> f64| {
        let peers = peers.iter().filter(|(name, _)| counted(name)).map(|(_, all)| of(all));
        peers.fold(f64::INFINITY, f64::min) / of(ours)
    };
    let (by_median, by_least) = (ratio(median), ratio(least));
    if goal.ratio == 0.0 || !by_median.is_finite() {
        return String::new();
    }
    let mut verdict = format!(
        "ratio {by_median:.1}, of the least {by_least:.1} (goal {:.0}){}",
        goal.ratio,
        met(by_median >= goal.ratio)
    );
    if let Some(most) = goal.most_ns.filter(|_| threads == 1) {
        verdict += &format!(", at most {most:.0} ns{}", met(median(ours) <= most));
    }
    verdict
}

fn met(holds: bool) -> &'static str {
    if holds { "" } else { " MISSED" }
}

fn least(all: &[f64]) -> f64 {
    all.iter().copied().fold(f64::INFINITY, f64::min)
}

fn median(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// One thread's part of a measurement.
pub(crate) struct Start<'s> {
    together: &'s Barrier,
    iterations: u64,
}

impl Start<'_> {
    /// Waits for the other threads, then runs `operation` as often as is measured.
    #[inline]
    pub(crate) fn run(self, mut operation: impl FnMut()) -> Duration {
        self.together.wait();
        let began = Instant::now();
        for _ in 0..self.iterations {
            operation();
        }
        began.elapsed()
    }

    /// As `run`, for an operation that is awaited, on a runtime of this thread's own.
    #[inline]
    pub(crate) fn run_async(self, mut operation: impl AsyncFnMut()) -> Duration {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        self.together.wait();
        runtime.block_on(async {
            let began = Instant::now();
            for _ in 0..self.iterations {
                operation().await;
            }
            began.elapsed()
        })
    }
}

/// The time of the slowest thread.
fn on_threads(
    threads: usize,
    iterations: u64,
    work: &(impl Fn(Start<'_>) -> Duration + Sync),
) -> Duration {
    let together = Barrier::new(threads);
    let start = || Start { together: &together, iterations };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| work(start()))).collect();
        let mine = work(start());
        others.into_iter().map(|other| other.join().unwrap()).fold(mine, Duration::max)
    })
}
