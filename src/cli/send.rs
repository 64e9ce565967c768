//! `tidegate send`: input to messages.

use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate::client::{AcknowledgeMode, Producer};
use tidegate::message::{DeliveryMode, Message};

use super::arguments::SendArguments;
use super::connect::{connect, factory, queue};
use super::failure::{Failure, with_causes};
use super::output::{Output, complain};
use super::record::{self, Outgoing};

/// Largest input for one message, in bytes. What the broker takes may be less.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// Sends what the arguments say and reports how many messages that were.
pub(super) fn run(arguments: &SendArguments, output: &mut Output) -> Result<(), Failure> {
    let destination = queue(&arguments.queue)?;
    let factory = factory(&arguments.connection, arguments.timeout)?;
    // Before connecting: a file that is not there is no reason to log in.
    let whole = match &arguments.file {
        Some(path) => Some(read_file(path)?),
        None if arguments.whole => Some(read_whole(io::stdin().lock(), "standard input")?),
        None => None,
    };
    let connection = connect(&factory)?;
    let session = connection
        .create_session(AcknowledgeMode::Auto)
        .map_err(|error| Failure::new("cannot create a session", &error))?;
    let producer = session
        .create_producer(&destination)
        .map_err(|error| Failure::new(&format!("cannot send to {destination}"), &error))?;
    let began = Instant::now();
    let mut sender = Sender { producer, arguments, sent: 0 };
    let result = match whole {
        Some(bytes) => sender.send(outgoing(Message::bytes(bytes)), "the message"),
        None => sender.lines(),
    };
    // Closing waits until the broker has everything, also what was sent before a failure.
    let closed = connection.close().map_err(|error| Failure::new("cannot close in order", &error));
    let sent = sender.sent;
    if let Err(failure) = result.and(closed) {
        complain(&format!("tidegate: {sent} messages were sent before that"));
        return Err(failure);
    }
    let seconds = began.elapsed().as_secs_f64();
    if arguments.json {
        let queue = &arguments.queue;
        output.line(&json!({"sent": sent, "queue": queue, "seconds": seconds}).to_string())
    } else {
        let plural = if sent == 1 { "message" } else { "messages" };
        output.line(&format!("sent {sent} {plural} to {destination}"))
    }
}

struct Sender<'a> {
    producer: Producer,
    arguments: &'a SendArguments,
    sent: u64,
}

impl Sender<'_> {
    /// One message for each line of standard input.
    fn lines(&mut self) -> Result<(), Failure> {
        let mut input = io::stdin().lock();
        if io::stdin().is_terminal() {
            complain("tidegate: each line is a message, Ctrl-D ends");
        }
        let unreadable = |error| Failure::new("cannot read standard input", &error);
        let mut line = Vec::new();
        for number in 1_u64.. {
            if self.arguments.count.is_some_and(|count| self.sent >= count) {
                break;
            }
            line.clear();
            let mut limited = (&mut input).take(MESSAGE_BYTES_MAX + 1);
            if limited.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
                break;
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            if line.len() as u64 > MESSAGE_BYTES_MAX {
                let most = MESSAGE_BYTES_MAX;
                return Err(Failure::Failed(format!("line {number} is over {most} bytes")));
            }
            let text = std::str::from_utf8(&line).map_err(|_| {
                Failure::Failed(format!(
                    "line {number} is not UTF-8; --whole sends input of any kind as one message"
                ))
            })?;
            let message = if self.arguments.json {
                if text.trim().is_empty() {
                    continue;
                }
                let wrong = |problem| Failure::Failed(format!("line {number}: {problem}"));
                record::from_json(text).map_err(wrong)?
            } else {
                outgoing(Message::text(text))
            };
            self.send(message, &format!("line {number}"))?;
        }
        Ok(())
    }

    fn send(&mut self, outgoing: Outgoing, what: &str) -> Result<(), Failure> {
        let Outgoing { message, delivery_mode, time_to_live_ms } = outgoing;
        let by_default = if self.arguments.non_persistent {
            DeliveryMode::NonPersistent
        } else {
            DeliveryMode::Persistent
        };
        self.producer.set_delivery_mode(delivery_mode.unwrap_or(by_default));
        self.producer.set_time_to_live(time_to_live_ms.map(Duration::from_millis));
        self.producer
            .set_priority(message.priority())
            .map_err(|error| Failure::Failed(format!("{what}: {error}")))?;
        self.producer
            .send(message)
            .map_err(|error| Failure::Failed(format!("{what}: {}", with_causes(&error))))?;
        self.sent += 1;
        Ok(())
    }
}

fn outgoing(message: Message) -> Outgoing {
    Outgoing { message, delivery_mode: None, time_to_live_ms: None }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    let file = File::open(path);
    let file = file.map_err(|error| Failure::new(&format!("cannot read {name}"), &error))?;
    read_whole(file, &name)
}

fn read_whole(from: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    from.take(MESSAGE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(&format!("cannot read {name}"), &error))?;
    if bytes.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(Failure::Failed(format!("{name} is over {MESSAGE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}
