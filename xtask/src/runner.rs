//! Runs a list of steps, goes on after a failure, and counts.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::work::Work;

/// One step of a run.
#[derive(Clone, Copy)]
pub struct Step {
    /// What is checked, for the list at the end.
    pub name: &'static str,
    /// The longest the step may take, compile time of a cold clone included.
    pub limit: Duration,
    /// The step itself; an error is one line that says what failed.
    pub work: fn(&mut Work<'_>) -> Result<(), String>,
}

struct Outcome {
    name: &'static str,
    took: Duration,
    passed: u64,
    failed: u64,
    problem: Option<String>,
    failures: Vec<String>,
}

/// Runs all steps, whatever fails, and reports. The last line is `N passed, N failed`.
pub fn run(root: &Path, steps: &[Step]) -> ExitCode {
    let started = Instant::now();
    let total = steps.len();
    let mut outcomes = Vec::with_capacity(total);
    for (index, step) in steps.iter().enumerate() {
        say(&format!("\n== step {}/{total}: {}", index + 1, step.name));
        let began = Instant::now();
        let mut work = Work::new(root, began + step.limit);
        let problem = (step.work)(&mut work).err();
        let took = began.elapsed();
        let verdict = problem.as_deref().unwrap_or("ok");
        say(&format!("== step {}/{total}: {} – {verdict} ({})", index + 1, step.name, show(took)));
        let (passed, failed) = work.counts();
        let failures = if failed > 0 { work.into_failures() } else { Vec::new() };
        outcomes.push(Outcome { name: step.name, took, passed, failed, problem, failures });
    }
    report(&outcomes, started.elapsed())
}

fn report(outcomes: &[Outcome], took: Duration) -> ExitCode {
    let width = outcomes.iter().map(|o| o.name.chars().count()).max().unwrap_or(0);
    say(&format!("\n== {} steps in {}", outcomes.len(), show(took)));
    let mut passed = 0;
    let mut failed = 0;
    for outcome in outcomes {
        let verdict = if outcome.problem.is_none() { "ok" } else { "FAILED" };
        let tests = match (outcome.passed, outcome.failed) {
            (0, 0) => String::new(),
            (good, bad) => format!("  {good} passed, {bad} failed inside"),
        };
        let name = outcome.name;
        say(&format!("   {name:width$}  {verdict:6}  {:>7}{tests}", show(outcome.took)));
        passed += outcome.passed + u64::from(outcome.problem.is_none());
        failed += outcome.failed + u64::from(outcome.problem.is_some());
    }
    for outcome in outcomes {
        for line in &outcome.failures {
            say(&format!("   {}: {line}", outcome.name));
        }
        if let Some(problem) = &outcome.problem {
            say(&format!("   failed: {}: {problem}", outcome.name));
        }
    }
    say(&format!("{passed} passed, {failed} failed"));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds >= 60 {
        format!("{}m{:02}s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1}s", time.as_secs_f64())
    }
}

/// Prints a line. A reader that has gone away ends the run, as there is nobody left to tell.
pub fn say(text: &str) {
    let mut out = io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Prints a line for people on standard error, if that still works.
pub fn complain(text: &str) {
    let mut err = io::stderr().lock();
    let _nobody_left_to_tell = writeln!(err, "{text}");
}
