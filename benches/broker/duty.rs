//! What the process of one part is told and tells, over its standard input and output.
//!
//! Settings come as `name=value` arguments, orders as lines. `count` is answered at once, whatever
//! the part is doing: how much it has done, and when. The end of the input ends the process.

use std::{
    collections::HashMap,
    io::{BufRead, Write},
    net::SocketAddr,
    process, str,
    sync::mpsc::{self, Receiver},
    thread,
    time::Instant,
};

use tidegate::internals::sync::{AtomicU64, Ordering};

/// What this process has done so far.
static DONE: AtomicU64 = AtomicU64::new(0);

/// Counts what was done.
pub(crate) fn count(more: u64) {
    // Relaxed: a statistic, read by the thread that answers `count`. One thread writes it, so no
    // addition has to be locked.
    DONE.store(DONE.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// One part's settings and orders.
pub(crate) struct Duty {
    settings: HashMap<String, String>,
    orders: Receiver<String>,
}

impl Duty {
    /// Reads the settings and begins to listen for orders.
    pub(crate) fn begin(arguments: impl Iterator<Item = String>) -> Self {
        let split = |text: String| {
            let (name, value) = text.split_once('=').expect("name=value");
            (name.to_owned(), value.to_owned())
        };
        let (sender, orders) = mpsc::channel();
        let begun = Instant::now();
        thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if line == "count" {
                    let (done, now) = (DONE.load(Ordering::Relaxed), begun.elapsed().as_nanos());
                    say(&format!("{done} {now}"));
                } else if sender.send(line).is_err() {
                    break;
                }
            }
            process::exit(0);
        });
        Self { settings: arguments.map(split).collect(), orders }
    }

    /// One setting.
    pub(crate) fn setting<T: str::FromStr>(&self, name: &str) -> T {
        let value = self.settings.get(name).unwrap_or_else(|| panic!("no setting `{name}`"));
        value.parse().unwrap_or_else(|_| panic!("`{name}` cannot be {value}"))
    }

    /// Where to connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.setting("address")
    }

    /// The next order; there is always one more, or the end of the process.
    pub(crate) fn order(&self) -> String {
        self.orders.recv().unwrap_or_else(|_| {
            loop {
                // The input has ended, and the process is about to.
                thread::park();
            }
        })
    }

    /// Says that everything is in place, and waits for the order to begin.
    pub(crate) fn ready(&self) -> String {
        say("ready");
        self.order()
    }
}

/// Tells the program that started this process.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // If nobody listens any more, the input has ended as well.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}
