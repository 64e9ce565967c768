//! Starts the processes of the parts, talks to them, and looks at what they cost.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

/// How long a part may take to answer before the run counts as failed.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// How long a part may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// As many open files as the system lets this user have; 10,000 connections need more than the
/// usual 1,024.
const WITH_FILES: &str = r#"ulimit -S -n "$(ulimit -H -n)" && exec "$0" "$@""#;

/// The process of one part. Ended when dropped, first by the end of its input.
pub(crate) struct Part {
    name: String,
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Part {
    /// Starts a part and waits until it is ready.
    pub(crate) fn start(name: &str, settings: &[(&str, &dyn ToString)]) -> Self {
        let part = Self::begin(name, settings);
        assert_eq!(part.line(), "ready", "{name}");
        part
    }

    /// Starts a part that listens, and waits for its address.
    pub(crate) fn serve(name: &str, settings: &[(&str, &dyn ToString)]) -> (Self, SocketAddr) {
        let part = Self::begin(name, settings);
        let address = part.line().parse().expect("an address");
        (part, address)
    }

    fn begin(name: &str, settings: &[(&str, &dyn ToString)]) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new("sh");
        command.arg("-c").arg(WITH_FILES).arg(program).args(["part", name]);
        command.args(settings.iter().map(|(name, value)| format!("{name}={}", value.to_string())));
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = spawned.expect("a process");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { name: name.to_owned(), input: process.stdin.take(), process, lines }
    }

    /// Gives an order.
    pub(crate) fn tell(&mut self, order: &str) {
        let input = self.input.as_mut().expect("open until dropped");
        writeln!(input, "{order}").unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Gives an order and returns the numbers it is answered with.
    pub(crate) fn ask(&mut self, order: &str) -> Vec<u64> {
        self.tell(order);
        let line = self.line();
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        numbers.unwrap_or_else(|_| panic!("{} said: {line}", self.name))
    }

    fn line(&self) -> String {
        let line = self.lines.recv_timeout(ANSWER_LIMIT);
        line.unwrap_or_else(|_| panic!("`{}` ended, or took too long", self.name))
    }

    /// Processor time its threads have used so far, user and system, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).into_iter().flatten();
        let of = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        tasks.flatten().filter_map(of).sum()
    }

    /// Its memory that is resident, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let text = text.expect("the system tells about processes");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        let number = line.split_whitespace().next().expect("a number");
        number.parse::<u64>().expect("a number") * 1024
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.input = None;
        // Its output ends with it.
        while self.lines.recv_timeout(END_LIMIT).is_ok() {}
        if self.lines.recv_timeout(Duration::ZERO) != Err(RecvTimeoutError::Disconnected) {
            drop(self.process.kill());
        }
        drop(self.process.wait());
    }
}
