//! What a thread does that waits: sleep, look again, or look again for a while and then sleep.
//!
//! Waking a sleeping thread on another core costs more than anything else on the way of a message,
//! so who can spare a core lets it look again. A thread that does so gives way every few looks:
//! where there are more threads than cores, the one it waits for may be the next to run here. Not at
//! each look, as giving way is a system call and costs more than looking into a pipe.

use std::time::{Duration, Instant};

use super::clock;

/// What a thread of the client does that waits for the broker. See
/// [`ConnectionFactory::wait_strategy`](super::ConnectionFactory::wait_strategy).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Sleeps until something comes. Costs no processor time, and some ten microseconds to wake.
    #[default]
    Park,
    /// Looks again for so long, counted from when something came last, then sleeps. 50 µs cover a
    /// round trip on one machine.
    SpinThenPark(Duration),
    /// Looks again and never sleeps, giving way to other threads in between. Costs a core for each
    /// waiting thread.
    Spin,
}

impl WaitStrategy {
    /// The spinning of one wait.
    pub(super) const fn spins(self) -> Spins {
        Spins { strategy: self, until: None, looks: 0 }
    }
}

/// How one wait goes on that has not found anything yet.
#[derive(Debug)]
pub(super) struct Spins {
    strategy: WaitStrategy,
    /// Until when, once it has begun.
    until: Option<Instant>,
    looks: u32,
}

/// Looks after which a thread gives way once.
const LOOKS: u32 = 16;

impl Spins {
    /// Whether to look again before sleeping; gives way to others now and then.
    pub(super) fn go_on(&mut self) -> bool {
        let goes_on = match self.strategy {
            WaitStrategy::Park => false,
            WaitStrategy::SpinThenPark(time) => {
                let now = clock::now();
                // A time too far to name has no end.
                let until = self.until.or_else(|| now.checked_add(time));
                self.until = until;
                until.is_none_or(|until| now < until)
            }
            WaitStrategy::Spin => true,
        };
        self.looks = self.looks.wrapping_add(1);
        match goes_on {
            true if self.looks.is_multiple_of(LOOKS) => std::thread::yield_now(),
            true => std::hint::spin_loop(),
            false => {}
        }
        goes_on
    }

    /// Something came, though not what is waited for.
    pub(super) const fn begin_again(&mut self) {
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::WaitStrategy;

    #[test]
    fn parking_never_spins_and_spinning_never_parks() {
        assert!(!WaitStrategy::Park.spins().go_on());
        assert!(!WaitStrategy::SpinThenPark(Duration::ZERO).spins().go_on());
        for endless in [WaitStrategy::Spin, WaitStrategy::SpinThenPark(Duration::MAX)] {
            let mut spins = endless.spins();
            assert!((0..1000).all(|_| spins.go_on()));
        }
    }

    #[test]
    fn a_bounded_spin_ends_and_begins_again_when_something_came() {
        let mut spins = WaitStrategy::SpinThenPark(Duration::from_millis(5)).spins();
        assert!(spins.go_on());
        while spins.go_on() {}
        assert!(!spins.go_on());
        spins.begin_again();
        assert!(spins.go_on());
    }
}
