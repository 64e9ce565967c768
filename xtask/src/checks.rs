//! The checks themselves.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::readme;
use crate::runner::{self, Step, say};
use crate::tools;
use crate::work::Work;

/// Seconds each fuzz target runs within `cargo xtask test`.
const FUZZ_SECONDS: u64 = 5;

/// Seconds each fuzz target runs by `cargo xtask fuzz`, unless told otherwise.
pub const FUZZ_SECONDS_ALONE: u64 = 10;

/// What the models are built with: modelled primitives, and loom's own checks of itself.
const LOOM_FLAGS: &str = "--cfg loom -C debug-assertions";

/// Switches a model may make where it need not; 2 finds nearly all, 3 takes hours.
const LOOM_PREEMPTIONS: &str = "2";

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

const FORMAT: Step = Step { name: "format", limit: minutes(5), work: format };
const LINT: Step = Step { name: "lint", limit: minutes(15), work: lint };
const TESTS: Step = Step { name: "tests", limit: minutes(20), work: tests };

/// The inner loop.
pub fn quick() -> Vec<Step> {
    vec![FORMAT, LINT, TESTS]
}

/// Everything.
pub fn all() -> Vec<Step> {
    vec![
        FORMAT,
        LINT,
        Step { name: "lint of models and fuzzers", limit: minutes(10), work: lint_detached },
        TESTS,
        Step { name: "doc tests", limit: minutes(10), work: doc_tests },
        Step { name: "cores alone", limit: minutes(10), work: cores_alone },
        Step { name: "documentation", limit: minutes(10), work: documentation },
        Step { name: "models and canaries", limit: minutes(20), work: models },
        Step { name: "fuzzers", limit: minutes(20), work: fuzzers },
        Step { name: "examples", limit: minutes(15), work: examples },
        Step { name: "benches, once", limit: minutes(20), work: benches_once },
        Step { name: "README", limit: minutes(15), work: readme::run_commands },
    ]
}

/// The models alone, with the number of executions each explored.
pub fn loom_alone(root: &Path, filter: Option<&str>) -> ExitCode {
    alone(root, minutes(600), |work| run_models(work, filter))
}

/// One bench.
pub fn bench_alone(root: &Path, name: &str, rest: &[&str]) -> ExitCode {
    alone(root, minutes(600), |work| {
        let mut command = work.cargo(["bench", "--all-features", "--bench", name, "--"]);
        work.run(command.args(rest)).map(drop)
    })
}

/// Every fuzz target, or one.
pub fn fuzz_alone(root: &Path, target: Option<&str>, seconds: u64) -> ExitCode {
    alone(root, minutes(24 * 60), |work| run_fuzzers(work, target, seconds))
}

/// Kills a broker so often, and looks whether anything it acknowledged is lost.
pub fn crash_alone(root: &Path, rounds: u64, seed: u64) -> ExitCode {
    alone(root, minutes(24 * 60), |work| {
        let mut command =
            work.cargo(["test", "--release", "--all-features", "--test", "store_crash"]);
        command.args(["--", "--nocapture"]);
        command.env("TIDEGATE_CRASH_ROUNDS", rounds.to_string());
        command.env("TIDEGATE_CRASH_SEED", seed.to_string());
        work.run(&mut command).map(drop)
    })
}

fn alone(
    root: &Path,
    limit: Duration,
    work: impl FnOnce(&mut Work<'_>) -> Result<(), String>,
) -> ExitCode {
    match work(&mut Work::new(root, std::time::Instant::now() + limit)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            runner::complain(&format!("xtask: {problem}"));
            ExitCode::FAILURE
        }
    }
}

fn format(work: &mut Work<'_>) -> Result<(), String> {
    tools::ensure_components(work)?;
    let checks = [
        work.cargo(["fmt", "--all", "--check"]),
        work.cargo(["fmt", "--check", "--manifest-path", "loom-tests/Cargo.toml"]),
        work.cargo(["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"]),
    ];
    every(work, checks)
}

fn lint(work: &mut Work<'_>) -> Result<(), String> {
    tools::ensure_components(work)?;
    let deny = ["--", "-D", "warnings"];
    let mut all = work.cargo(["clippy", "--workspace", "--all-targets", "--all-features"]);
    let mut cores = work.cargo(["clippy", "--all-targets", "--no-default-features"]);
    all.args(deny);
    cores.args(deny);
    every(work, [all, cores])
}

fn lint_detached(work: &mut Work<'_>) -> Result<(), String> {
    let deny = ["--", "-D", "warnings"];
    let mut models = work.cargo(["clippy", "--all-targets", "--release"]);
    models.args(["--manifest-path", "loom-tests/Cargo.toml", "--target-dir", "target/loom"]);
    models.args(deny).env("RUSTFLAGS", LOOM_FLAGS);
    tools::ensure_cxx(work)?;
    let mut fuzzers = work.cargo(["clippy", "--all-targets"]);
    fuzzers.args(["--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target"]).args(deny);
    every(work, [models, fuzzers])
}

fn tests(work: &mut Work<'_>) -> Result<(), String> {
    tools::ensure_postgres(work)?;
    let command = work.cargo([
        "test",
        "--workspace",
        "--all-features",
        "--lib",
        "--bins",
        "--tests",
        "--no-fail-fast",
    ]);
    every(work, [command])?;
    // A filter gone wrong must not look like success.
    if work.counts().0 == 0 { Err("no test ran".into()) } else { Ok(()) }
}

fn doc_tests(work: &mut Work<'_>) -> Result<(), String> {
    let command = work.cargo(["test", "--doc", "--all-features", "--no-fail-fast"]);
    every(work, [command])
}

fn cores_alone(work: &mut Work<'_>) -> Result<(), String> {
    let tests = work.cargo(["test", "--no-default-features", "--lib", "--no-fail-fast"]);
    every(work, [tests])
}

fn documentation(work: &mut Work<'_>) -> Result<(), String> {
    let mut command = work.cargo(["doc", "--no-deps", "--all-features"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    every(work, [command])
}

fn models(work: &mut Work<'_>) -> Result<(), String> {
    run_models(work, None)
}

fn run_models(work: &mut Work<'_>, filter: Option<&str>) -> Result<(), String> {
    let mut command = work.cargo(["test", "--release", "--no-fail-fast"]);
    command.args(["--manifest-path", "loom-tests/Cargo.toml", "--target-dir", "target/loom"]);
    if let Some(filter) = filter {
        command.args(["--", filter]);
    }
    command.env("RUSTFLAGS", LOOM_FLAGS);
    if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
        command.env("LOOM_MAX_PREEMPTIONS", LOOM_PREEMPTIONS);
    }
    let lines = work.run(&mut command)?;
    // Each model says on a line of its own what it explored; here they stand together.
    let mut models: Vec<_> = lines.iter().filter(|line| line.starts_with("model ")).collect();
    models.sort();
    let canaries = lines.iter().filter(|line| line.starts_with("canary ")).count();
    say(&format!("\n{} models explored, {canaries} canaries:", models.len()));
    for model in &models {
        say(&format!("   {model}"));
    }
    Ok(())
}

fn fuzzers(work: &mut Work<'_>) -> Result<(), String> {
    run_fuzzers(work, None, FUZZ_SECONDS)
}

fn run_fuzzers(work: &mut Work<'_>, only: Option<&str>, seconds: u64) -> Result<(), String> {
    tools::ensure_cxx(work)?;
    tools::ensure_cargo_fuzz(work)?;
    let known: Vec<String> = work.run(&mut fuzz(work, &["list"]))?;
    let targets: Vec<&str> = match only {
        Some(name) if known.iter().any(|k| k == name) => vec![name],
        Some(name) => return Err(format!("no fuzz target `{name}`, there are {known:?}")),
        None => known.iter().map(String::as_str).collect(),
    };
    if targets.is_empty() {
        return Err("there is no fuzz target".into());
    }
    work.run(&mut fuzz(work, &["build"]))?;
    let mut problems = Vec::new();
    for target in targets {
        // What is new goes to the first directory, which is not kept; the others only give.
        let (corpus, seeds) = (format!("fuzz/corpus/{target}"), format!("tests/seeds/{target}"));
        std::fs::create_dir_all(work.root.join(&corpus)).map_err(|error| error.to_string())?;
        let mut command = fuzz(work, &["run", target, &corpus, &seeds, "--"]);
        command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
        // Inputs take milliseconds. One that takes so long hangs.
        command.arg("-timeout=30");
        let result = work.run(&mut command);
        work.count(result.is_ok());
        problems.extend(result.err());
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// `cargo fuzz` with the flags a stable compiler needs for it.
fn fuzz(work: &Work<'_>, arguments: &[&str]) -> Command {
    let mut command = work.cargo(["fuzz"]);
    command.args(arguments).env("RUSTC_BOOTSTRAP", "1");
    command
}

/// Every example, to its end.
fn examples(work: &mut Work<'_>) -> Result<(), String> {
    let entries = std::fs::read_dir(work.root.join("examples"))
        .map_err(|error| format!("cannot read examples/: {error}"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .collect();
    names.sort();
    let mut problems = Vec::new();
    for name in &names {
        let mut command = work.cargo(["run", "--all-features", "--example", name]);
        let result = work.run(&mut command);
        work.count(result.is_ok());
        problems.extend(result.err());
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

fn benches_once(work: &mut Work<'_>) -> Result<(), String> {
    let command = work.cargo(["bench", "--all-features", "--benches", "--", "--test"]);
    every(work, [command])
}

/// Runs all commands, whatever fails, and joins the problems.
fn every(work: &mut Work<'_>, commands: impl IntoIterator<Item = Command>) -> Result<(), String> {
    let mut problems = Vec::new();
    for mut command in commands {
        problems.extend(work.run(&mut command).err());
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}
