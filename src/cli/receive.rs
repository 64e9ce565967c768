//! `tidegate receive`: messages to output.

use std::time::Duration;

use tidegate::client::{AcknowledgeMode, Consumer, ConsumerOptions, Session};
use tidegate::message::{Body, Message};

use super::arguments::ReceiveArguments;
use super::connect::{connect, factory, queue};
use super::failure::Failure;
use super::output::Output;
use super::record;

/// Most messages that are written before they are acknowledged together.
const BATCH_MESSAGES_MAX: u64 = 100;

/// Limit for connecting and for answers when no `--timeout` is given.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Receives what the arguments ask for.
pub(super) fn run(arguments: &ReceiveArguments, output: &mut Output) -> Result<(), Failure> {
    let destination = queue(&arguments.queue)?;
    let limit = arguments.timeout.unwrap_or(ANSWER_LIMIT).max(Duration::from_secs(1));
    let connection = connect(&factory(&arguments.connection, limit)?)?;
    // A message is acknowledged once it is written, not before.
    let session = connection
        .create_session(AcknowledgeMode::Client)
        .map_err(|error| Failure::new("cannot create a session", &error))?;
    let what = format!("cannot receive from {destination}");
    let mut options = ConsumerOptions::new();
    options.selector(arguments.selector.as_deref().unwrap_or_default());
    let consumer = session.create_consumer_with(&destination, &options);
    let consumer = consumer.map_err(|error| Failure::new(&what, &error))?;
    connection.start().map_err(|error| Failure::new(&what, &error))?;
    let mut file = arguments.output.as_deref().map(Output::file).transpose()?;
    let mut receiver = Receiver {
        arguments,
        session,
        consumer,
        output: file.as_mut().unwrap_or(output),
        received: 0,
        unacknowledged: 0,
    };
    // After a failure nothing more is acknowledged: what may not have arrived comes again.
    receiver.all()?;
    receiver.settle()?;
    let received = receiver.received;
    connection.close().map_err(|error| Failure::new("cannot close in order", &error))?;
    match arguments.count {
        Some(count) if received < count => {
            Err(Failure::TimedOut(format!("{received} of {count} messages came in time")))
        }
        _ => Ok(()),
    }
}

struct Receiver<'a> {
    arguments: &'a ReceiveArguments,
    session: Session,
    consumer: Consumer,
    output: &'a mut Output,
    received: u64,
    unacknowledged: u64,
}

impl Receiver<'_> {
    fn all(&mut self) -> Result<(), Failure> {
        while self.arguments.count.is_none_or(|count| self.received < count) {
            let Some(message) = self.next()? else { break };
            self.write(&message)?;
            self.received += 1;
            self.unacknowledged += 1;
            // A person sees each message at once.
            if self.output.is_terminal() || self.unacknowledged >= BATCH_MESSAGES_MAX {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// The next message; `None` when the time is over or the connection has ended.
    fn next(&mut self) -> Result<Option<Message>, Failure> {
        let failed = |error| Failure::new("cannot receive", &error);
        if let Some(message) = self.consumer.try_receive().map_err(failed)? {
            return Ok(Some(message));
        }
        // What is written should be seen, and settled, before a long wait.
        self.settle()?;
        match self.arguments.timeout {
            Some(timeout) => self.consumer.receive_timeout(timeout).map_err(failed),
            None => self.consumer.receive().map_err(failed),
        }
    }

    /// Makes sure that what was written has arrived, and acknowledges it.
    fn settle(&mut self) -> Result<(), Failure> {
        self.output.flush()?;
        if self.unacknowledged > 0 {
            self.session
                .acknowledge()
                .map_err(|error| Failure::new("cannot acknowledge", &error))?;
            self.unacknowledged = 0;
        }
        Ok(())
    }

    fn write(&mut self, message: &Message) -> Result<(), Failure> {
        if self.arguments.json {
            return self.output.foreign_line(&record::to_json(message).to_string());
        }
        let body = message.body();
        match body.map_err(|error| Failure::new("cannot read a message", &error))? {
            Body::Text(text) => self.output.foreign_line(text.as_deref().unwrap_or_default()),
            Body::Bytes(bytes) if self.output.is_terminal() => match std::str::from_utf8(&bytes) {
                Ok(text) => self.output.foreign_line(text),
                Err(_) => Err(Failure::Failed(format!(
                    "a message of {} bytes would upset the terminal; use --output or a pipe",
                    bytes.len()
                ))),
            },
            Body::Bytes(bytes) => self.output.bytes(&bytes),
            other => {
                let json = record::body_to_json(&other).unwrap_or_default();
                self.output.foreign_line(&json.to_string())
            }
        }
    }
}
