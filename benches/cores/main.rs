//! The lock-free cores beside the libraries that people use for the same, in one run.
//!
//! `cargo bench --bench cores` prints criterion's numbers, and at the end a table of ratios with
//! the goal of each row. `-- --test` runs each body once. One argument filters by name, for
//! instance `-- shared/1`, or `-- credit --quick`. Numbers are nanoseconds per operation of one
//! thread, while 1, 2, 4 or 8 threads do the same. `benches/README.md` says what each row measures.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench measures time, prints, and stops at the first surprise"
)]

mod flow;
mod harness;
mod pools;
mod throttle;

fn main() {
    let mut harness = harness::Harness::new();
    pools::shared(&mut harness);
    pools::crowded(&mut harness);
    pools::exclusive(&mut harness);
    flow::credit(&mut harness);
    flow::floor(&mut harness);
    throttle::admit(&mut harness);
    throttle::admit_beside_a_writer(&mut harness);
    harness.finish();
}
