//! `tidegate ping`: how long a round trip takes.

use std::time::{Duration, Instant};

use super::arguments::PingArguments;
use super::connect::{connect, factory};
use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::Output;
use super::round_trip::{RoundTrips, Times};

/// How often progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Measures and prints.
pub(super) fn run(arguments: &PingArguments, output: &mut Output) -> Result<(), Failure> {
    let factory = factory(&arguments.connection, arguments.timeout)?;
    let address = factory.addresses().join(",");
    let connect = || connect(&factory);
    let mut round_trips = RoundTrips::new(connect, arguments.size, arguments.timeout)?;
    output.foreign_line(&format!("ping {address}, {} bytes", arguments.size))?;
    output.flush()?;
    let interrupt = Interrupt::new()?;
    let mut times = Times::new();
    let began = Instant::now();
    let mut shown = began;
    let mut result = Ok(());
    for number in 1..=arguments.count {
        match round_trips.once() {
            Ok(time) => times.record(time),
            Err(failure) => {
                result = Err(failure);
                break;
            }
        }
        if interrupt.came() {
            break;
        }
        if shown.elapsed() >= PROGRESS_INTERVAL {
            shown = Instant::now();
            output.line(&format!("{number} round trips, {}", times.in_short()))?;
            output.flush()?;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    // What was measured is worth knowing even if the end failed.
    if times.count() > 0 {
        output.line(&format!("{} round trips in {seconds:.2} s", times.count()))?;
        for line in times.lines() {
            output.line(&line)?;
        }
    }
    result?;
    round_trips.close()
}
