//! What a step does: commands with a deadline, their output shown as it comes and counted.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::runner::{complain, say};

/// How long output may still come after a command has ended; a process it left behind may hold
/// the pipe open forever.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// How often a running command is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// One step at work.
pub struct Work<'a> {
    /// The checkout.
    pub root: &'a Path,
    deadline: Instant,
    passed: u64,
    failed: u64,
    /// What a reader of the end of a long output wants to know of each failed test.
    failures: Vec<String>,
    /// So many of the next lines belong to the last failure.
    failure_goes_on: u8,
}

/// A line of output, with its end cut off.
enum Line {
    Out(String),
    Err(String),
}

impl<'a> Work<'a> {
    /// A step that must end by `deadline`.
    pub fn new(root: &'a Path, deadline: Instant) -> Self {
        Self { root, deadline, passed: 0, failed: 0, failures: Vec::new(), failure_goes_on: 0 }
    }

    /// Names of the tests that failed so far, and where and why they did.
    pub fn into_failures(self) -> Vec<String> {
        self.failures
    }

    /// Tests that passed and failed so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.passed, self.failed)
    }

    /// Counts one thing that was tried.
    pub fn count(&mut self, good: bool) {
        if good {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
    }

    /// A cargo command in the checkout.
    pub fn cargo<I, S>(&self, arguments: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments);
        // What cargo set for this program itself must not reach another package's build.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Runs a command in the checkout and returns what it printed, line by line.
    ///
    /// Output is passed on as it comes. Lines in which a test runner sums up are counted.
    pub fn run(&mut self, command: &mut Command) -> Result<Vec<String>, String> {
        let shown = describe(command);
        say(&format!("$ {shown}"));
        let mut child = command
            .current_dir(self.root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
        let lines = read_lines(&mut child);
        let mut seen = Vec::new();
        let mut ended: Option<(ExitStatus, Instant)> = None;
        loop {
            match lines.recv_timeout(LOOK_INTERVAL) {
                Ok(Line::Out(line)) => {
                    self.count_summary(&line);
                    say(&line);
                    seen.push(line);
                    continue;
                }
                Ok(Line::Err(line)) => {
                    complain(&line);
                    seen.push(line);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) if ended.is_some() => break,
                Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK_INTERVAL),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ended.is_none() {
                let status = child.try_wait().map_err(|e| format!("`{shown}`: {e}"))?;
                ended = status.map(|status| (status, Instant::now()));
            }
            match ended {
                Some((_, since)) if since.elapsed() > DRAIN_LIMIT => break,
                Some(_) => {}
                None if Instant::now() > self.deadline => {
                    kill_with_descendants(&mut child);
                    return Err(format!("`{shown}` took too long and was stopped"));
                }
                None => {}
            }
        }
        match ended {
            Some((status, _)) if status.success() => Ok(seen),
            Some((status, _)) => Err(format!("`{shown}`: {status}")),
            None => Err(format!("`{shown}` was lost")),
        }
    }

    fn count_summary(&mut self, line: &str) {
        self.note_failure(line);
        if let Some((good, bad)) = test_summary(line) {
            self.passed += good;
            self.failed += bad;
        } else if line.trim() == "Success" {
            // A bench body that ran once.
            self.passed += 1;
        }
    }
}

impl Work<'_> {
    fn note_failure(&mut self, line: &str) {
        let is_panic = line.starts_with("thread '") && line.contains(" panicked at ");
        if line.starts_with("test ") && line.ends_with(" ... FAILED") {
            self.failures.push(line.to_owned());
        } else if is_panic {
            self.failures.push(line.to_owned());
            self.failure_goes_on = 3;
        } else if self.failure_goes_on > 0 && !line.starts_with("stack backtrace") {
            self.failures.push(line.to_owned());
            self.failure_goes_on -= 1;
        } else {
            self.failure_goes_on = 0;
        }
    }
}

/// `test result: ok. 12 passed; 1 failed; …` as (12, 1).
fn test_summary(line: &str) -> Option<(u64, u64)> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = numbers.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

fn describe(command: &Command) -> String {
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            text.push_str(&format!("{}={:?} ", name.to_string_lossy(), value.to_string_lossy()));
        }
    }
    let program = Path::new(command.get_program());
    text.push_str(&program.file_name().unwrap_or_default().to_string_lossy());
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

fn read_lines(child: &mut Child) -> Receiver<Line> {
    let (sender, receiver) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        forward(out, sender.clone(), Line::Out);
    }
    if let Some(err) = child.stderr.take() {
        forward(err, sender, Line::Err);
    }
    receiver
}

fn forward(from: impl Read + Send + 'static, to: Sender<Line>, kind: fn(String) -> Line) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            line.clear();
            if to.send(kind(text)).is_err() {
                return;
            }
        }
    });
}

/// Stops a command and whatever it started, by process id.
fn kill_with_descendants(child: &mut Child) {
    let mut wanted = vec![child.id()];
    let parents = parents_of_processes();
    let mut next = 0;
    while let Some(&parent) = wanted.get(next) {
        wanted.extend(parents.iter().filter(|(_, p)| **p == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    // Children first would let a parent start more of them.
    for pid in wanted {
        let _already_gone = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    }
    let _reaped = child.wait();
}

fn parents_of_processes() -> HashMap<u32, u32> {
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name in brackets may hold anything; the parent is the second field behind it.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        if let Some(parent) = parent.and_then(|text| text.parse().ok()) {
            parents.insert(pid, parent);
        }
    }
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_a_test_runner_are_understood() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; finished";
        assert_eq!(test_summary(line), Some((12, 3)));
        assert_eq!(test_summary("test result: nonsense"), None);
        assert_eq!(test_summary("running 3 tests"), None);
    }

    #[test]
    fn failed_tests_are_named_with_their_reasons() {
        let root = std::env::temp_dir();
        let mut work = Work::new(&root, Instant::now() + Duration::from_secs(20));
        let lines = [
            "test a ... ok",
            "test b ... FAILED",
            "---- b stdout ----",
            "thread 'b' (7) panicked at x.rs:1:2:",
            "left",
            "stack backtrace:",
            "  0: f",
        ];
        lines.iter().for_each(|line| work.note_failure(line));
        let failures = ["test b ... FAILED", "thread 'b' (7) panicked at x.rs:1:2:", "left"];
        assert_eq!(work.into_failures(), failures);
    }

    #[test]
    fn output_of_a_command_comes_back_line_by_line() {
        let root = std::env::temp_dir();
        let mut work = Work::new(&root, Instant::now() + Duration::from_secs(20));
        let lines = work.run(Command::new("printf").arg("a\\nb\\n"));
        assert_eq!(lines, Ok(vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn command_past_its_deadline_is_stopped_with_its_children() {
        let root = std::env::temp_dir();
        let began = Instant::now();
        let mut work = Work::new(&root, began + Duration::from_millis(200));
        let result = work.run(Command::new("sh").args(["-c", "sleep 60 & wait"]));
        assert!(result.is_err_and(|problem| problem.contains("took too long")));
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
