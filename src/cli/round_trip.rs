//! Round trips through a broker: over one queue there, over another back.
//!
//! ```text
//! caller ──▶ the echo's queue ──▶ echo thread ──▶ the caller's queue ──▶ caller
//! ```
//!
//! Caller and echo have a connection each, so a round trip crosses the broker twice. Both queues
//! are temporary: they end with their connections, and two runs never meet.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use tidegate::client::{AcknowledgeMode, Connection, Consumer, Producer};
use tidegate::message::{DeliveryMode, Destination, DestinationKind, Message};

use super::failure::Failure;

/// Longest round trip that is told apart from longer ones.
const LONGEST: Duration = Duration::from_secs(3600);

/// The two queues, with this process at both ends.
pub(super) struct RoundTrips {
    connection: Connection,
    there: Producer,
    back: Consumer,
    echo_connection: Connection,
    echo: Option<JoinHandle<()>>,
    body: Bytes,
    timeout: Duration,
    number: u64,
}

impl RoundTrips {
    /// Makes queues of its own and starts the echo.
    pub(super) fn new(
        connect: impl Fn() -> Result<Connection, Failure>,
        body_bytes: usize,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let (echo_connection, connection) = (connect()?, connect()?);
        let (requests, there) = consumer(&echo_connection)?;
        let (back, here) = consumer(&connection)?;
        let answers = producer(&echo_connection, &here)?;
        let there = producer(&connection, &there)?;
        let echo = thread::Builder::new().name("echo".into()).spawn(move || {
            // Ends when the connection is closed.
            while let Ok(Some(message)) = requests.receive() {
                if answers.send(message).is_err() {
                    break;
                }
            }
        });
        let echo = echo.map_err(|error| Failure::new("cannot start a thread", &error))?;
        let body = Bytes::from(vec![b'.'; body_bytes]);
        Ok(Self {
            connection,
            there,
            back,
            echo_connection,
            echo: Some(echo),
            body,
            timeout,
            number: 0,
        })
    }

    /// One round trip, timed.
    pub(super) fn once(&mut self) -> Result<Duration, Failure> {
        self.number += 1;
        let number = self.number;
        let what = format!("round trip {number}");
        let began = Instant::now();
        self.there
            .send(Message::bytes(self.body.clone()))
            .map_err(|error| Failure::new(&what, &error))?;
        let answer = self.back.receive_timeout(self.timeout);
        match answer.map_err(|error| Failure::new(&what, &error))? {
            Some(_) => Ok(began.elapsed()),
            None => Err(Failure::TimedOut(format!("{what}: no answer within {:?}", self.timeout))),
        }
    }

    /// Closes both connections and ends the echo.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        let failed = |error| Failure::new("cannot close in order", &error);
        self.echo_connection.close().map_err(failed)?;
        self.connection.close().map_err(failed)?;
        if let Some(echo) = self.echo.take() {
            let _ended = echo.join();
        }
        Ok(())
    }
}

/// A started consumer of a new temporary queue, and the queue.
fn consumer(connection: &Connection) -> Result<(Consumer, Destination), Failure> {
    let failed = |error| Failure::new("cannot make a temporary queue", &error);
    let session = connection.create_session(AcknowledgeMode::Auto).map_err(failed)?;
    let queue = session.create_temporary(DestinationKind::Queue).map_err(failed)?;
    let consumer = session.create_consumer(&queue).map_err(failed)?;
    connection.start().map_err(failed)?;
    Ok((consumer, queue))
}

/// A producer of messages that no store delays: what is measured is the way.
fn producer(connection: &Connection, queue: &Destination) -> Result<Producer, Failure> {
    let failed = |error| Failure::new("cannot send to a temporary queue", &error);
    let session = connection.create_session(AcknowledgeMode::Auto).map_err(failed)?;
    let mut producer = session.create_producer(queue).map_err(failed)?;
    producer.set_delivery_mode(DeliveryMode::NonPersistent);
    Ok(producer)
}

/// How long things took.
#[derive(Debug)]
pub(super) struct Times(Histogram<u64>);

impl Times {
    pub(super) fn new() -> Self {
        let longest = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        Self(Histogram::new_with_bounds(1, longest, 3).expect("sensible bounds"))
    }

    pub(super) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The percentiles people ask for, in microseconds, each with its name.
    pub(super) fn percentiles(&self) -> [(&'static str, f64); 5] {
        let at = |quantile| microseconds(self.0.value_at_quantile(quantile));
        [
            ("p50", at(0.5)),
            ("p90", at(0.9)),
            ("p99", at(0.99)),
            ("p99.9", at(0.999)),
            ("max", microseconds(self.0.max())),
        ]
    }

    /// The first percentiles in a few words, for a line of progress.
    pub(super) fn in_short(&self) -> String {
        let [(_, p50), _, (_, p99), ..] = self.percentiles();
        format!("p50 {p50:.0} µs, p99 {p99:.0} µs")
    }

    /// One line for each percentile.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.percentiles().into_iter().map(|(name, time)| format!("{name:<6} {time:>9.1} µs"))
    }
}

#[allow(clippy::cast_precision_loss, reason = "an hour in nanoseconds is far below 2^53")]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut times = Times::new();
        for microseconds in 1..=1000 {
            times.record(Duration::from_micros(microseconds));
        }
        let close = |found: f64, wanted: f64| (found - wanted).abs() <= wanted * 0.01;
        let found = times.percentiles().map(|(_, time)| time);
        for (found, wanted) in found.into_iter().zip([500.0, 900.0, 990.0, 999.0, 1000.0]) {
            assert!(close(found, wanted), "{found} instead of {wanted}");
        }
        assert_eq!(times.count(), 1000);
    }
}
