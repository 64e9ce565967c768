//! What throttling does over time: a store that is overloaded for ten minutes, and comes back.
//!
//! ```sh
//! cargo run --example throttle_curve
//! ```
//!
//! A simulated store makes a checkpoint every 20 seconds. How long it takes depends on how many
//! jobs press on it, and during the overload on somebody else's load too. A monitor watches the
//! checkpoints; while it says stressed, jobs tell the controller, which throttles the channel.
//! Nothing here waits: time is an argument, so forty minutes take no time.
//!
//! Coloured on a terminal, plain when piped. `COLUMNS` sets the width, `NO_COLOR` turns colour off.

use std::error::Error;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use tidegate::throttle::{
    ChannelSettings, JobController, JobEvent, MonitorSettings, StressMonitor, StressPolicy,
};

const MINUTES: u64 = 40;
const OVERLOAD: std::ops::Range<u64> = 5 * 60..15 * 60;
const CHECKPOINT_EVERY: u64 = 20;
const CHANNEL: &str = "ims-ms";

fn main() -> Result<(), Box<dyn Error>> {
    let curve = simulate()?;
    let out = io::stdout();
    let terminal = out.is_terminal();
    let paint = Paint {
        colour: terminal && std::env::var_os("NO_COLOR").is_none(),
        block: if terminal { "█" } else { "#" },
    };
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let columns: usize = columns.unwrap_or(100);
    match draw(&mut out.lock(), &curve, &paint, columns.clamp(40, 250) - LABEL) {
        // Piped into something that has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        drawn => Ok(drawn?),
    }
}

/// One second of the channel.
#[derive(Debug, Clone, Copy)]
struct Sample {
    level: u32,
    depth: u32,
    jobs: u32,
    checkpoint_seconds: u64,
    stressed: bool,
}

fn simulate() -> Result<Vec<Sample>, Box<dyn Error>> {
    let mut limits = MonitorSettings::default();
    limits.calm_percent(75)?;
    let mut monitor = StressMonitor::new(limits);
    let signal = monitor.signal();
    let mut controller = JobController::new(StressPolicy::default());
    let throttle = controller.add_channel(CHANNEL, ChannelSettings::new(10, 8)?)?;
    // The generation of each running job.
    let mut jobs: Vec<u64> = Vec::new();
    let mut backlog = 400_u64;
    let mut checkpoint_seconds = 0;
    let mut curve = Vec::new();
    for second in 0..MINUTES * 60 {
        let now = Duration::from_secs(second);
        let pressing = u64::try_from(jobs.len())?;
        // Forty messages a second come in; each job delivers eight.
        let delivered = backlog.min(8 * pressing);
        backlog = backlog + 40 - delivered;
        throttle.processed(delivered);
        if second % CHECKPOINT_EVERY == 0 {
            let elsewhere = if OVERLOAD.contains(&second) { 40 } else { 1 };
            checkpoint_seconds = elsewhere + 5 * pressing;
            monitor.observe(Duration::from_secs(checkpoint_seconds));
        }
        if signal.is_stressed() {
            controller.handle_stress(CHANNEL, now)?;
        }
        controller.handle_backlog(CHANNEL, backlog)?;
        controller.handle_tick(now);
        while let Some(event) = controller.poll_event() {
            if let JobEvent::Start { jobs: started, generation, .. } = event {
                jobs.extend((0..started).map(|_| generation));
            }
        }
        let state = throttle.state();
        // Jobs of an older generation finish their message and leave, and so do jobs that the
        // backlog no longer justifies.
        let wanted = usize::try_from(state.wanted(backlog))?;
        let mut kept = 0;
        let stays = |job: &u64| {
            let stays = *job == state.generation() && kept < wanted;
            kept += usize::from(stays);
            stays
        };
        let (staying, leaving): (Vec<_>, Vec<_>) = jobs.into_iter().partition(stays);
        for generation in leaving {
            controller.handle_job_ended(CHANNEL, generation)?;
        }
        jobs = staying;
        curve.push(Sample {
            level: state.level(),
            depth: state.depth(),
            jobs: u32::try_from(jobs.len())?,
            checkpoint_seconds,
            stressed: signal.is_stressed(),
        });
    }
    Ok(curve)
}

fn draw(out: &mut impl Write, curve: &[Sample], paint: &Paint, columns: usize) -> io::Result<()> {
    // Of each stretch of time, what it ended with.
    let width = columns.min(curve.len());
    let samples: Vec<_> =
        (1..=width).map(|column| curve[column * curve.len() / width - 1]).collect();
    writeln!(out, "A store overloaded from minute 5 to 15; channel: depth 10, 8 jobs at most.\n")?;
    let mut band = |name: &str, colour, rows: &[u64], value: &dyn Fn(&Sample) -> u64| {
        writeln!(out, "{name}")?;
        for least in rows.iter().rev() {
            let row = samples.iter().map(|sample| value(sample) >= *least);
            let row: String = row.map(|filled| if filled { paint.block } else { " " }).collect();
            writeln!(out, "{least:>10}  {}", paint.text(colour, row.trim_end()))?;
        }
        writeln!(out)
    };
    let checkpoint = |sample: &Sample| sample.checkpoint_seconds;
    band("checkpoint time, seconds (stressed over 60)", RED, &[20, 40, 60, 80], &checkpoint)?;
    band("stressed, says the monitor", RED, &[1], &|sample| sample.stressed.into())?;
    band("level", YELLOW, &[1, 2, 3, 4], &|sample| sample.level.into())?;
    let depths = [10, 50, 250, 1250, 6250];
    band("thread depth, messages per job", CYAN, &depths, &|sample| sample.depth.into())?;
    band("jobs", GREEN, &[1, 2, 3, 4, 5, 6, 7, 8], &|sample| sample.jobs.into())?;
    writeln!(out, "{:>10}  {}", "minute", axis(width))?;
    if let Some(last) = curve.last() {
        let Sample { level, depth, jobs, .. } = last;
        writeln!(out, "\nat the end: level {level}, depth {depth}, {jobs} jobs")?;
    }
    Ok(())
}

/// A mark every five minutes.
fn axis(width: usize) -> String {
    let mut marks = String::new();
    for minute in (0..40).step_by(5) {
        while marks.len() < minute * width / 40 {
            marks.push(' ');
        }
        marks.push_str(&minute.to_string());
    }
    marks
}

struct Paint {
    colour: bool,
    block: &'static str,
}

impl Paint {
    fn text(&self, colour: u8, text: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Columns of the numbers on the left.
const LABEL: usize = 12;
const RED: u8 = 31;
const GREEN: u8 = 32;
const YELLOW: u8 = 33;
const CYAN: u8 = 36;
