//! The project's own commands, run as `cargo xtask …`.
//!
//! Needs nothing but the standard library, so that it builds in a second and never breaks because
//! of a dependency. What a check needs beyond Rust itself is installed when it is missing, see
//! `tools.rs`.
#![allow(
    clippy::disallowed_methods,
    reason = "steps are timed and bounded here; no protocol code reads this clock"
)]

mod checks;
mod readme;
mod runner;
mod tools;
mod work;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::runner::say;

const HELP: &str = "\
The project's own commands.

cargo xtask test [--quick]           every check; --quick: format, lint and tests only
cargo xtask loom [FILTER]            the models, and how many executions each explored
cargo xtask bench NAME [ARG ...]     one bench: cores, codec, broker, client, loopback
cargo xtask crash [--rounds N] [--seed S]
                                     kills a broker N times with the same store and looks whether
                                     anything it acknowledged is lost; 500 rounds, seed 1
cargo xtask fuzz [TARGET] [--seconds N]
                                     every fuzz target, or one; 10 seconds each by default
cargo xtask help                     this text

Ends with 0 if all went well, 1 if something failed, 2 if the command was not understood.
`test` ends with the line `N passed, N failed`, which counts tests and steps.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    match words.as_slice() {
        ["test"] => runner::run(&root, &checks::all()),
        ["test", "--quick"] => runner::run(&root, &checks::quick()),
        ["loom"] => checks::loom_alone(&root, None),
        ["loom", filter] if !filter.starts_with('-') => checks::loom_alone(&root, Some(filter)),
        ["bench", name, rest @ ..] if !name.starts_with('-') => {
            checks::bench_alone(&root, name, rest)
        }
        ["crash", rest @ ..] => match crash_arguments(rest) {
            Ok((rounds, seed)) => checks::crash_alone(&root, rounds, seed),
            Err(problem) => usage(&problem),
        },
        ["fuzz", rest @ ..] => match fuzz_arguments(rest) {
            Ok((target, seconds)) => checks::fuzz_alone(&root, target, seconds),
            Err(problem) => usage(&problem),
        },
        ["help" | "--help" | "-h"] => {
            say(HELP.trim_end());
            ExitCode::SUCCESS
        }
        [] => usage("a command is missing"),
        _ => usage(&format!("not understood: {}", words.join(" "))),
    }
}

/// The checkout this program was built from.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

fn usage(problem: &str) -> ExitCode {
    runner::complain(&format!("xtask: {problem}\n\n{}", HELP.trim_end()));
    ExitCode::from(2)
}

fn crash_arguments(words: &[&str]) -> Result<(u64, u64), String> {
    let (mut rounds, mut seed) = (500, 1);
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} needs a number", pair[0])) };
        let number = value.parse().map_err(|_| format!("{name} {value}: not a number"))?;
        match *name {
            "--rounds" => rounds = number,
            "--seed" => seed = number,
            _ => return Err(format!("not understood: {name}")),
        }
    }
    Ok((rounds, seed))
}

fn fuzz_arguments<'a>(words: &[&'a str]) -> Result<(Option<&'a str>, u64), String> {
    let mut target = None;
    let mut seconds = checks::FUZZ_SECONDS_ALONE;
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        if word == "--seconds" {
            let value = words.next().ok_or("--seconds needs a number")?;
            seconds = value
                .parse()
                .ok()
                .filter(|s| (1..=86_400).contains(s))
                .ok_or_else(|| format!("--seconds {value}: not a number from 1 to 86400"))?;
        } else if word.starts_with('-') || target.is_some() {
            return Err(format!("not understood: {word}"));
        } else {
            target = Some(word);
        }
    }
    Ok((target, seconds))
}
