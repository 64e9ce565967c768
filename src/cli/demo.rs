//! `tidegate demo`: credit holds back a slow consumer while a fast one runs on.
//!
//! ```text
//! producer ──▶ queue ──▶ fast consumer
//!                   └──▶ slow consumer: as many as its window, then nothing until it resumes
//! ```
//!
//! Broker and clients live in one process but speak over loopback sockets, as any others would. A
//! third connection measures round trips beside them. What is shown of credit is what the broker
//! says of itself.

mod report;
mod scene;

use std::time::{Duration, Instant};

use self::report::{Look, Report};
use self::scene::Scene;
use super::arguments::DemoArguments;
use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::Output;

/// How often the broker is asked.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How many looks make a line where nothing can be drawn over and over: one each second.
const LOOKS_PER_LINE: u64 = 10;

/// Runs the scene for the time asked for, shows it, and sums up.
pub(super) fn run(arguments: &DemoArguments, output: &mut Output) -> Result<(), Failure> {
    let window = arguments.window;
    let scene = Scene::start(arguments)?;
    output.line(&format!(
        "a broker, a producer at {} messages/s, a fast and a slow consumer",
        arguments.rate
    ))?;
    output.line(&format!(
        "window {window} messages each; the slow one works {:?} on a message",
        arguments.slow
    ))?;
    output.flush()?;
    let shown = watch(&scene, arguments, output);
    // Also after a failure: threads and sockets are put away in order.
    let ended = scene.end();
    let report = shown?;
    let totals = ended?;
    for line in report.summary(&totals, window) {
        output.line(&line)?;
    }
    output.flush()?;
    report.verdict(&totals, window).map_err(Failure::Failed)
}

fn watch(scene: &Scene, arguments: &DemoArguments, output: &mut Output) -> Result<Report, Failure> {
    let mut report = Report::default();
    let live = output.live(Look::ROWS, arguments.seconds);
    let interrupt = Interrupt::new()?;
    let began = Instant::now();
    let end = began + Duration::from_secs(arguments.seconds);
    let mut before = scene.look()?;
    for number in 1_u64.. {
        let due = began + LOOK_INTERVAL * u32::try_from(number).unwrap_or(u32::MAX);
        scene.wait_until(due.min(end))?;
        let look = scene.look()?;
        report.add(&look);
        let over = Instant::now() >= end || interrupt.came();
        if let Some(live) = &live {
            live.show(&look.rows(&before, output.is_narrow()), began.elapsed().as_secs());
        }
        if number.is_multiple_of(LOOKS_PER_LINE) || over {
            if live.is_none() {
                output.line(&look.line(&before))?;
                output.flush()?;
            }
            before = look;
        }
        if over {
            break;
        }
    }
    Ok(report)
}
