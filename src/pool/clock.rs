//! The one place of the pool that reads a clock.
//!
//! Every operation is timed, so a reading must cost less than what it measures. Where the
//! processor has a counter that always runs at one rate, a stamp is that counter: a third of the
//! cost of the operating system's clock on a virtual machine. Elsewhere it is that clock.
//! Everything else gets times as arguments. Under a model time stands still, since a model must
//! take the same path whenever it is run.

#![allow(unsafe_code, reason = "reading the processor's counter")]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::sync::modelled;

/// A time of a monotonic clock, in ticks of the [`Rate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Nanoseconds from `earlier` to this; zero if that is later.
    ///
    /// The counters of two processors may differ by a few ticks, which is why it can be. A number
    /// rather than a `Duration`, whose seconds cost a division to take apart and to put together.
    #[inline]
    pub(crate) fn nanos_since(self, earlier: Self) -> u64 {
        rate().nanos(self.0.saturating_sub(earlier.0))
    }
}

/// How many nanoseconds a tick has, and where ticks come from.
#[derive(Debug, Clone, Copy)]
struct Rate {
    /// Nanoseconds per tick, times 2³².
    scaled: u64,
    counter: Counter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    /// The processor's.
    Processor,
    /// Nanoseconds of the operating system's clock, since `start()`.
    System,
}

impl Rate {
    #[inline]
    fn nanos(self, ticks: u64) -> u64 {
        // 96 bits at most: ticks of 584 years, at under four nanoseconds each.
        let nanos = (u128::from(ticks) * u128::from(self.scaled)) >> 32;
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    const SYSTEM: Self = Self { scaled: 1 << 32, counter: Counter::System };

    /// Compares the processor's counter with the system's clock for a fifth of a millisecond,
    /// which gives the rate to about one in a thousand.
    fn measure() -> Self {
        const MEASURE: Duration = Duration::from_micros(200);
        if !counter::is_steady() {
            return Self::SYSTEM;
        }
        let (began, first) = reading();
        while now().saturating_duration_since(began) < MEASURE {
            std::hint::spin_loop();
        }
        let (ended, last) = reading();
        let took = ended.saturating_duration_since(began);
        let ticks = last.saturating_sub(first);
        let scaled = (took.as_nanos() << 32).checked_div(u128::from(ticks)).unwrap_or(0);
        match u64::try_from(scaled) {
            // Between a quarter of a gigahertz and 32 of them; anything else is no rate.
            Ok(scaled) if scaled < 1 << 34 && scaled > 1 << 27 => {
                Self { scaled, counter: Counter::Processor }
            }
            _ => Self::SYSTEM,
        }
    }
}

/// Both clocks at one time, as nearly as a few tries give it: a thread that is interrupted between
/// the two readings must not take the interruption for the rate.
fn reading() -> (Instant, u64) {
    let tries = (0..16).map(|_| {
        let before = counter::read();
        let time = now();
        (counter::read().saturating_sub(before), (time, before))
    });
    tries.min_by_key(|(apart, _)| *apart).map_or_else(|| (now(), counter::read()), |(_, best)| best)
}

static RATE: OnceLock<Rate> = OnceLock::new();

#[inline]
fn rate() -> Rate {
    *RATE.get_or_init(Rate::measure)
}

/// Finds the rate now rather than in the first operation.
pub(crate) fn prepare() {
    if !modelled() {
        rate();
    }
}

/// Reads the clock for a measurement.
#[inline]
pub(crate) fn stamp() -> Stamp {
    if modelled() {
        return Stamp(0);
    }
    Stamp(match rate().counter {
        Counter::Processor => counter::read(),
        Counter::System => system_nanos(),
    })
}

#[cold]
fn system_nanos() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let now = now();
    let start = *START.get_or_init(|| now);
    // A process runs for less than the 584 years that fit.
    u64::try_from(now.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the clock for a deadline.
#[inline]
#[allow(clippy::disallowed_methods, reason = "the pool's one place that reads a clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The deadline `timeout` from now; `None` if it is too far away to be told.
pub(crate) fn deadline_after(timeout: Duration) -> Option<Instant> {
    if modelled() { None } else { now().checked_add(timeout) }
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    /// Whether the counter runs at one rate in every state of the processor.
    pub(super) fn is_steady() -> bool {
        const POWER_MANAGEMENT: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        let highest = __cpuid(0x8000_0000).eax;
        highest >= POWER_MANAGEMENT && __cpuid(POWER_MANAGEMENT).edx & INVARIANT != 0
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 processor has the instruction, and where a kernel forbids it to
        // programs, reading the system's clock would not work either.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod counter {
    pub(super) fn is_steady() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::{Rate, now, rate, stamp};
    use std::time::Duration;

    #[test]
    fn stamps_agree_with_the_system_clock_within_two_percent() {
        // The load of the machine falls between two readings now and then: the best try counts.
        let off = (0..50).map(|_| {
            let (stamped, began) = (stamp(), now());
            while began.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
            let (by_stamps, by_clock) =
                (Duration::from_nanos(stamp().nanos_since(stamped)), began.elapsed());
            by_stamps.abs_diff(by_clock).as_nanos() * 100 / by_clock.as_nanos()
        });
        let best = off.min();
        assert!(best.is_some_and(|percent| percent <= 2), "{best:?} % off with {:?}", rate());
    }

    #[test]
    fn long_times_do_not_overflow_and_time_does_not_run_backwards() {
        assert_eq!(Rate::SYSTEM.nanos(u64::MAX), u64::MAX);
        let (first, second) = (stamp(), stamp());
        assert_eq!(first.nanos_since(first), 0);
        assert!(second < first || first.nanos_since(second) == 0);
    }
}
