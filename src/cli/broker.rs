//! `tidegate broker`: a broker until a signal ends it.

use std::pin::pin;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use tidegate::{
    broker::{Broker, BrokerConfig, StartError, SyncMode},
    store::{Outcome, StoreError},
};

use super::arguments::{BrokerArguments, LogLevel};
use super::failure::{Failure, with_causes};
use super::output::{Output, colour_on_stderr, complain};
use super::store::Seen;

/// Exit code when a second signal comes before the orderly end.
const IMPATIENT: i32 = 130;

/// A store that is read faster needs no progress.
const SHOWN_FROM: Duration = Duration::from_secs(1);

/// Why a broker stops.
enum Event {
    /// SIGINT or SIGTERM.
    Signal,
    /// An administrator has shut it down, or its store was taken over.
    Ended,
}

/// Serves until SIGINT or SIGTERM, until an administrator shuts it down, or until another broker
/// has taken over its store.
pub(super) fn run(arguments: &BrokerArguments, output: &mut Output) -> Result<(), Failure> {
    if arguments.settings {
        return BrokerConfig::settings()
            .try_for_each(|(name, allowed)| output.line(&format!("{name}: {allowed}")));
    }
    let config = settings(arguments)?;
    log_to_stderr(arguments.log);
    // Before anything is opened: a signal that comes early must not be lost.
    let signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::new("cannot watch for signals", &error))?;
    let (tell, events) = mpsc::channel();
    let asked = Asked::default();
    let mut stop = pin!(asked.0.listen());
    let watcher = watch(signals, tell.clone(), asked);
    let sync = config.sync;
    let mut reading = Reading::default();
    let mut progress = |count, of| reading.show(count, of);
    let started = if arguments.standby {
        let mut waiting = |error: &StoreError| tell_waiting(error, output);
        Broker::start_standby(config, stop.as_mut(), &mut waiting, &mut progress)
    } else {
        Broker::start_showing(config, &mut progress)
    };
    drop(reading);
    let broker = match started {
        Ok(broker) => broker,
        Err(_) if arguments.standby && events.try_recv().is_ok() => {
            watcher.end();
            return tell_stopped(output);
        }
        Err(error) => return Err(not_started(&error)),
    };
    output.line(&format!("tidegate broker {}", env!("CARGO_PKG_VERSION")))?;
    output.line(&format!("port mapper {}", broker.port_mapper_address()))?;
    output.line(&format!("service jms {}", broker.jms_address()))?;
    output.line(&format!("service admin {}", broker.admin_address()))?;
    tell_store(&broker, sync, output)?;
    output.line("ready, SIGINT or SIGTERM stops it")?;
    output.flush()?;
    let end = broker.end();
    thread::spawn(move || {
        end.wait();
        tell.send(Event::Ended)
    });
    if let Ok(Event::Signal) = events.recv() {
        complain("tidegate: stopping, clients are told");
    }
    let taken_over = broker.taken_over();
    broker.shutdown();
    watcher.end();
    match taken_over {
        Some(reason) => Err(Failure::InUse(format!("the broker has ended: {reason}"))),
        None => tell_stopped(output),
    }
}

fn not_started(error: &StartError) -> Failure {
    let text = format!("the broker did not start: {}", with_causes(error));
    match error {
        StartError::Store(StoreError::Corrupt { .. }) => Failure::Corrupt(text),
        StartError::Store(StoreError::InUse { .. }) => Failure::InUse(text),
        _ => Failure::Failed(text),
    }
}

/// Notified with the first signal.
#[derive(Default)]
struct Asked(event_listener::Event);

/// Watches for signals on a thread of its own.
struct Watcher {
    handle: Handle,
    thread: JoinHandle<()>,
}

fn watch(mut signals: Signals, tell: Sender<Event>, asked: Asked) -> Watcher {
    let handle = signals.handle();
    let thread = thread::spawn(move || {
        for (count, _signal) in signals.forever().enumerate() {
            // Whoever asks twice does not want to wait for the orderly end.
            if count > 0 || tell.send(Event::Signal).is_err() {
                std::process::exit(IMPATIENT);
            }
            asked.0.notify(usize::MAX);
        }
    });
    Watcher { handle, thread }
}

impl Watcher {
    fn end(self) {
        self.handle.close();
        let _ended = self.thread.join();
    }
}

/// How far the store has been read, shown once that takes long enough to wonder.
struct Reading {
    began: Instant,
    seen: Option<Seen>,
}

impl Default for Reading {
    fn default() -> Self {
        Self { began: Instant::now(), seen: None }
    }
}

impl Reading {
    fn show(&mut self, count: u64, of: Option<u64>) {
        if self.began.elapsed() >= SHOWN_FROM {
            self.seen.get_or_insert_with(|| Seen::new("reading the store")).show(count, of);
        }
    }
}

/// Says for whom a standby waits.
fn tell_waiting(error: &StoreError, output: &mut Output) {
    let place = match error {
        StoreError::InUse { place } => place.clone(),
        other => other.to_string(),
    };
    let told = output.line(&format!("standby, waits for {place}")).and_then(|()| output.flush());
    // It waits all the same, and fails with its first word as a broker.
    let _nobody_reads = told;
}

fn tell_stopped(output: &mut Output) -> Result<(), Failure> {
    // A reader that has gone away in the meantime is none of the broker's business.
    match output.line("stopped").and_then(|()| output.flush()) {
        Err(Failure::Closed) | Ok(()) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Says where persistent messages are kept, and what was found there.
fn tell_store(broker: &Broker, sync: SyncMode, output: &mut Output) -> Result<(), Failure> {
    let (Some(store), Some(found)) = (broker.store(), broker.recovery()) else {
        return output.line("all messages, persistent ones too, are kept in memory only");
    };
    let how = match &found.outcome {
        Outcome::Fresh => "new".to_owned(),
        Outcome::TornTailDropped { what } => format!("recovered, without {what}"),
        _ => "recovered".to_owned(),
    };
    output.line(&format!("store {store}, {how}: {} messages", found.messages))?;
    match sync {
        SyncMode::Interval(time) => output.line(&format!(
            "synced every {time:?}: if this machine fails, what was acknowledged in the last {time:?} may be lost"
        ))?,
        SyncMode::Os => output.line(
            "synced when the system likes: if this machine fails, what was acknowledged lately may be lost",
        )?,
        _ => {}
    }
    if found.transactions > 0 {
        let count = found.transactions;
        output.line(&format!(
            "prepared transactions {count}, see `tidegate admin list transactions`"
        ))?;
    }
    if found.leftovers > 0 {
        let count = found.leftovers;
        output.line(&format!("removed {count} entries that belonged to nothing any more"))?;
    }
    Ok(())
}

/// The file's settings, and the command line's over them.
fn settings(arguments: &BrokerArguments) -> Result<BrokerConfig, Failure> {
    let usage = |error| Failure::Usage(with_causes(&error));
    let mut config = match &arguments.config {
        Some(path) => BrokerConfig::from_file(path).map_err(usage)?,
        None => BrokerConfig::default(),
    };
    let options = [
        ("listen", &arguments.listen),
        ("jms", &arguments.jms),
        ("admin", &arguments.admin),
        ("data", &arguments.data),
        ("loops", &arguments.loops),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            config.set(name, value).map_err(usage)?;
        }
    }
    for assignment in &arguments.set {
        let Some((name, value)) = assignment.split_once('=') else {
            return Err(Failure::Usage(format!("--set {assignment}: it takes NAME=VALUE")));
        };
        config.set(name, value).map_err(usage)?;
    }
    if arguments.standby && config.postgres.is_none() {
        let reason = "--standby: it takes a database that brokers share; name it in store.postgres";
        return Err(Failure::Usage(reason.into()));
    }
    Ok(config)
}

/// What the broker has to say while it runs goes to standard error.
fn log_to_stderr(level: LogLevel) {
    let level = match level {
        LogLevel::Off => return,
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    // Somebody else's log stays as it is; one that cannot be written is no reason to stop.
    let _already_there = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(colour_on_stderr())
        .log_internal_errors(false)
        .try_init();
}
