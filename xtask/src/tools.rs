//! Tools the checks need beyond cargo itself, installed when they are missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::runner::say;
use crate::work::Work;

/// `cargo fmt` and `cargo clippy`.
pub fn ensure_components(work: &mut Work<'_>) -> Result<(), String> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if !answers(work.cargo([subcommand, "--version"])) {
            say(&format!("cargo {subcommand} is missing, installing it"));
            work.run(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    Ok(())
}

/// A C++ compiler: the fuzzing runtime is C++.
pub fn ensure_cxx(work: &mut Work<'_>) -> Result<(), String> {
    let named = std::env::var("CXX").unwrap_or_default();
    let known = [named.as_str(), "c++", "g++", "clang++"];
    if known.iter().any(|name| !name.is_empty() && answers(version_of(name))) {
        return Ok(());
    }
    if !(is_root() && Path::new("/usr/bin/apt-get").exists()) {
        return Err("the fuzzers need a C++ compiler (g++ or clang++); please install one".into());
    }
    say("a C++ compiler is missing, installing g++");
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(["install", "--yes", "--no-install-recommends", "g++"]);
    work.run(Command::new("apt-get").args(["update", "--quiet"]))?;
    work.run(&mut install).map(drop)
}

/// A PostgreSQL server, for the tests that start one.
pub fn ensure_postgres(work: &mut Work<'_>) -> Result<(), String> {
    if has_postgres() {
        return Ok(());
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err(
            "the tests start a PostgreSQL server of their own; please install one, so that \
                    `initdb` is where `pg_config --bindir` says, or in PATH"
                .into(),
        );
    }
    say("a PostgreSQL server is missing, installing it");
    work.run(&mut as_root(&["apt-get", "update", "--quiet"]))?;
    let install = ["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"];
    work.run(&mut as_root(&install))?;
    if has_postgres() { Ok(()) } else { Err("no `initdb` after `postgresql` was installed".into()) }
}

/// Looks where the tests look.
fn has_postgres() -> bool {
    let mut ask = Command::new("pg_config");
    let told = ask.arg("--bindir").stderr(Stdio::null()).output();
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned());
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let path = std::env::var_os("PATH").unwrap_or_default();
    told.into_iter()
        .map(PathBuf::from)
        .chain(versions.map(|version| version.path().join("bin")))
        .chain(std::env::split_paths(&path))
        .any(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}

/// A command that only root may run.
fn as_root(words: &[&str]) -> Command {
    let mut command = if is_root() {
        Command::new(words[0])
    } else {
        let mut sudo = Command::new("sudo");
        // Fails where a password would be asked for, as nobody sits there.
        sudo.args(["-n", "DEBIAN_FRONTEND=noninteractive", words[0]]);
        sudo
    };
    command.args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// `cargo fuzz`.
pub fn ensure_cargo_fuzz(work: &mut Work<'_>) -> Result<(), String> {
    if answers(work.cargo(["fuzz", "--version"])) {
        return Ok(());
    }
    say("cargo-fuzz is missing, installing it");
    work.run(&mut work.cargo(["install", "cargo-fuzz", "--locked"])).map(drop)
}

fn version_of(program: &str) -> Command {
    let mut command = Command::new(program);
    command.arg("--version");
    command
}

fn answers(mut command: Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
