//! `tidegate broker`: a broker until a signal ends it.

use std::sync::mpsc;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidegate::{
    broker::{Broker, BrokerConfig},
    store::Outcome,
};

use super::arguments::{BrokerArguments, LogLevel};
use super::failure::{Failure, with_causes};
use super::output::{Output, colour_on_stderr, complain};

/// Exit code when a second signal comes before the orderly end.
const IMPATIENT: i32 = 130;

/// Why a broker stops.
enum Event {
    /// SIGINT or SIGTERM.
    Signal,
    /// An administrator has shut it down.
    Ended,
}

/// Serves until SIGINT or SIGTERM, or until an administrator shuts it down.
pub(super) fn run(arguments: &BrokerArguments, output: &mut Output) -> Result<(), Failure> {
    if arguments.settings {
        return BrokerConfig::settings()
            .try_for_each(|(name, allowed)| output.line(&format!("{name}: {allowed}")));
    }
    let config = settings(arguments)?;
    log_to_stderr(arguments.log);
    // Before anything listens: a signal that comes early must not be lost.
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::new("cannot watch for signals", &error))?;
    let broker =
        Broker::start(config).map_err(|error| Failure::new("the broker did not start", &error))?;
    output.line(&format!("tidegate broker {}", env!("CARGO_PKG_VERSION")))?;
    output.line(&format!("port mapper {}", broker.port_mapper_address()))?;
    output.line(&format!("service jms {}", broker.jms_address()))?;
    output.line(&format!("service admin {}", broker.admin_address()))?;
    tell_store(&broker, output)?;
    output.line("ready, SIGINT or SIGTERM stops it")?;
    output.flush()?;
    let handle = signals.handle();
    let (tell, events) = mpsc::channel();
    let end = broker.end();
    let of_itself = tell.clone();
    thread::spawn(move || {
        end.wait();
        of_itself.send(Event::Ended)
    });
    let watcher = thread::spawn(move || {
        for _signal in signals.forever() {
            // Whoever asks twice does not want to wait for the orderly end.
            if tell.send(Event::Signal).is_err() {
                std::process::exit(IMPATIENT);
            }
        }
    });
    if let Ok(Event::Signal) = events.recv() {
        complain("tidegate: stopping, clients are told");
    }
    drop(events);
    broker.shutdown();
    handle.close();
    let _ended = watcher.join();
    // A reader that has gone away in the meantime is none of the broker's business.
    match output.line("stopped").and_then(|()| output.flush()) {
        Err(Failure::Closed) | Ok(()) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Says where persistent messages are kept, and what was found there.
fn tell_store(broker: &Broker, output: &mut Output) -> Result<(), Failure> {
    let (Some(store), Some(found)) = (broker.store(), broker.recovery()) else {
        return output.line("all messages, persistent ones too, are kept in memory only");
    };
    let how = match &found.outcome {
        Outcome::Fresh => "new".to_owned(),
        Outcome::TornTailDropped { what } => format!("recovered, without {what}"),
        _ => "recovered".to_owned(),
    };
    output.line(&format!("store {store}, {how}: {} messages", found.messages))?;
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
