//! Runs the program as a user would: processes, pipes, signals. Every wait has a deadline, and
//! what was started is ended by its process id, also when a test fails.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(unreachable_pub, reason = "shared by test programs")]
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]
#![allow(clippy::disallowed_methods, reason = "the one place that waits, with a deadline")]

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest any single step may take; most take milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");

/// The program with arguments, and no variable of the tester's own shell that changes output.
pub fn tidegate<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    plain(&mut command);
    command
}

/// A script for `bash`, with `$T` the program, as it would be typed.
pub fn bash(script: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("set -o pipefail; {script}")]).env("T", PROGRAM);
    plain(&mut command);
    command
}

fn plain(command: &mut Command) {
    for name in ["NO_COLOR", "COLUMNS", "TIDEGATE_PASSWORD", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("imq") {
            command.env_remove(name);
        }
    }
    command.env("TERM", "xterm").env("RUST_BACKTRACE", "1");
}

/// What a process left behind.
pub struct Finished {
    pub status: ExitStatus,
    pub out: Vec<u8>,
    pub err: String,
}

impl Finished {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    /// Fails unless the program ended with this code, and never by a panic.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        let text = String::from_utf8_lossy(&self.out);
        assert_eq!(self.code(), Some(code), "out: {text}\nerr: {}", self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        assert!(!text.contains("panicked"), "{text}");
        self
    }
}

/// Runs a command to its end with this input.
#[track_caller]
pub fn run(mut command: Command, input: &[u8]) -> Finished {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Guard(child.spawn().unwrap());
    let mut stdin = child.0.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that does not read its input to the end is no failure.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let out = read_all(child.0.stdout.take().unwrap());
    let err = read_all(child.0.stderr.take().unwrap());
    let status = child.wait();
    writer.join().unwrap();
    Finished {
        status,
        out: out.join().unwrap(),
        err: String::from_utf8_lossy(&err.join().unwrap()).into_owned(),
    }
}

fn read_all(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Ends its process when it goes.
struct Guard(Child);

impl Guard {
    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        wait_for("the end of a process", || self.0.try_wait().unwrap())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Fails if it has ended by itself, as it should have.
        let _already_gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Looks again until there is something, or the patience is over.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come within {PATIENCE:?}");
        // What another process does wakes nobody here; a pause between looks leaves it the core.
        thread::sleep(Duration::from_millis(5));
    }
}

/// A process that goes on while the test does something else.
pub struct Running {
    child: Guard,
    lines: Receiver<String>,
    err: RefCell<Option<JoinHandle<Vec<u8>>>>,
    stdin: Option<ChildStdin>,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Guard(child.spawn().unwrap());
        let out = BufReader::new(child.0.stdout.take().unwrap());
        let err = read_all(child.0.stderr.take().unwrap());
        let stdin = child.0.stdin.take();
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, err: RefCell::new(Some(err)), stdin }
    }

    /// The rest of the next line that begins so.
    #[track_caller]
    pub fn line(&self, beginning: &str) -> String {
        let found = self.wait_line(beginning, |line| line.starts_with(beginning));
        found[beginning.len()..].trim().to_owned()
    }

    /// The next line with these words in it.
    #[track_caller]
    pub fn any_line(&self, words: &str) -> String {
        self.wait_line(words, |line| line.contains(words))
    }

    #[track_caller]
    fn wait_line(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if wanted(&line) => return line,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => panic!("no line with {what:?} in time"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended without {what:?}: {}", self.complaints())
                }
            }
        }
    }

    /// What it said on standard error, once it has ended.
    fn complaints(&self) -> String {
        let reader = self.err.borrow_mut().take();
        let err = reader.map(|reader| reader.join().unwrap()).unwrap_or_default();
        String::from_utf8_lossy(&err).into_owned()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Waits for the end. Lines nobody asked for are the output.
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        drop(self.stdin.take());
        let status = self.child.wait();
        let lines: Vec<String> = self.lines.iter().collect();
        let err = self.complaints();
        Finished { status, out: lines.join("\n").into_bytes(), err }
    }
}

/// A broker on free ports.
pub struct TestBroker {
    pub running: Running,
    pub port_mapper: String,
    pub service: String,
    pub admin: String,
}

impl TestBroker {
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with([])
    }

    #[track_caller]
    pub fn start_with<'a>(more: impl IntoIterator<Item = &'a str>) -> Self {
        let own = ["broker", "--listen", "127.0.0.1:0", "--jms", "127.0.0.1:0"];
        let running = Running::start(tidegate(own.into_iter().chain(more)));
        let port_mapper = running.line("port mapper ");
        let service = running.line("service jms ");
        let admin = running.line("service admin ");
        running.line("ready");
        Self { running, port_mapper, service, admin }
    }

    /// The address a client uses, through the port mapper.
    pub fn address(&self) -> String {
        format!("mq://{}/jms", self.port_mapper)
    }

    /// The address of the service itself.
    pub fn direct(&self) -> String {
        format!("mqtcp://{}/jms", self.service)
    }

    /// The address administrators use, through the port mapper.
    pub fn admin_address(&self) -> String {
        format!("mq://{}/admin", self.port_mapper)
    }

    /// Stops it in order.
    #[track_caller]
    pub fn stop(self) -> Finished {
        self.running.signal("TERM");
        self.running.finish().expect_code(0)
    }
}
