//! A helm: state that one of the threads waiting for it drives, while the others sleep.
//!
//! Several threads wait, each for something of its own, and all of it arrives through one socket.
//! Whoever comes first takes the helm and reads for everybody; the others sleep at a [`Signal`] of
//! their own and are woken when their thing has arrived. When the one at the helm has what it
//! wanted it leaves, and wakes one of the sleepers to take over. So a lone thread that waits for
//! an answer reads it itself: no other thread is crossed.
//!
//! ```text
//!              try_take                            leave, nobody in line
//!   [free] ----------------> [one thread drives] -----------------------> [free]
//!                               ^          |
//!                               '----------'  leave, somebody in line: woken, takes the helm
//! ```
//!
//! # Invariants
//! - One thread drives at a time.
//! - While somebody stands by, somebody drives or has been woken to.
//! - A signal stands in line at most once, so the line is as long as there are signals.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | H1 | exchange of `gate` on leaving | exchange of `gate` on taking | the state | `helm_has_one_driver` |
//! | H2 | fence of `call_next` after the gate is free | fence of `stand_by` before the look at the gate | either the line or the free helm is seen | `helm_is_taken_over` |
//!
//! # Source
//! The leader/followers pattern (Schmidt and others, Pattern-Oriented Software Architecture 2).

use std::time::Instant;

use event_listener::{Event, EventListener, IntoNotification as _, Listener as _};

use super::{Arc, AtomicBool, Gate, Inbox, Ordering, broken, fence, fence_edge};

/// Where threads sleep until what they wait for has arrived.
///
/// Shape: a list of sleepers, and whether it stands in line for a helm.
pub struct Signal {
    event: Event,
    in_line: AtomicBool,
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signal").finish_non_exhaustive()
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

impl Signal {
    /// A signal at which nobody sleeps.
    #[must_use]
    pub fn new() -> Self {
        Self { event: Event::new(), in_line: AtomicBool::new(false) }
    }

    /// Wakes everybody who sleeps here. What they wait for must be visible before this call; the
    /// event's own fence orders it against their last look.
    pub fn wake_all(&self) {
        // The number woken is of no interest: those not asleep look before they sleep.
        let _woken = self.event.notify(usize::MAX);
    }

    /// A place among those who are woken from here on, for a future. It may be called to the helm
    /// in the place of a thread: see [`Helm::hand_over`].
    #[must_use]
    pub fn listen(&self) -> EventListener {
        self.event.listen()
    }

    /// Sleeps until woken, unless `done` says, after this thread is listed as a sleeper, that
    /// there is no need to. Returns after `deadline` at the latest.
    pub fn sleep_unless(&self, done: impl FnOnce() -> bool, deadline: Option<Instant>) {
        let listener = self.event.listen();
        if !done() {
            wait(listener, deadline);
        }
    }
}

/// State that one of several waiting threads drives. See the module's text.
#[derive(Debug)]
pub struct Helm<T> {
    gate: Gate<T>,
    line: Inbox<Arc<Signal>>,
}

impl<T> Helm<T> {
    /// Puts a state behind a free helm.
    #[must_use]
    pub fn new(state: T) -> Self {
        Self { gate: Gate::new(state), line: Inbox::new() }
    }

    /// Waits until `ready` gives a result, driving the state if nobody else does.
    ///
    /// `ready` is asked often and must answer from what was dispatched; a deadline or a failure is
    /// an answer too. `drive` runs with the helm and comes back with the answer of the `ready` it
    /// is given. `before_sleep` runs each time this thread is about to sleep, `deadline` bounds one
    /// sleep.
    pub fn wait<R>(
        &self,
        signal: &Arc<Signal>,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<R>,
        mut drive: impl FnMut(&mut T, &mut dyn FnMut() -> Option<R>) -> R,
        mut before_sleep: impl FnMut(),
    ) -> R {
        if let Some(result) = ready() {
            return result;
        }
        loop {
            if let Some(result) = self.try_take(|state| drive(state, &mut ready)) {
                return result;
            }
            before_sleep();
            let mut found = None;
            let look = || {
                found = ready();
                found.is_some()
            };
            self.stand_by(signal, look, deadline);
            if let Some(result) = found.or_else(&mut ready) {
                // This thread may have been the one that was woken to take over.
                self.hand_over();
                return result;
            }
        }
    }

    /// Takes the helm if it is free, runs `drive` with the state, and leaves: if somebody stands
    /// by, one of them is woken to take over. `None` if somebody else is at the helm.
    pub fn try_take<R>(&self, drive: impl FnOnce(&mut T) -> R) -> Option<R> {
        let (mut drive, mut result) = (Some(drive), None);
        let entered = self.gate.try_enter(|state| {
            // Nobody announces work at this gate, so it runs once.
            result = drive.take().map(|drive| drive(state));
            true
        });
        if entered.is_some() {
            self.call_next();
        }
        result
    }

    /// Whether somebody was at the helm at some instant during the call: a guess.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        !self.gate.is_idle()
    }

    /// Sleeps at `signal` as one who would take the helm, unless `ready` or the helm has become
    /// free. Returns when woken, for whatever reason, and after `deadline` at the latest.
    fn stand_by(
        &self,
        signal: &Arc<Signal>,
        ready: impl FnOnce() -> bool,
        deadline: Option<Instant>,
    ) {
        // Listening comes first: whoever wakes this signal from here on ends the sleep below.
        let listener = signal.event.listen();
        // Relaxed: fences stand around it, of `listen` before and the one below after, as around
        // the swap of `call_next`. So a leaver that takes this signal out of the line after this
        // swap sees the listener; and if it did before, its leaving is seen below.
        if !signal.in_line.swap(true, Ordering::Relaxed) {
            self.line.push(Arc::clone(signal));
        }
        // SeqCst fence (H2): standing in line comes before the look at the helm, as leaving it
        // comes before the look at the line. Without it, both could miss each other.
        fence_edge("helm.stand_by", Ordering::SeqCst);
        if ready() || self.gate.is_idle() {
            return;
        }
        wait(listener, deadline);
    }

    /// Passes a call to take over on, if nobody drives: for one who stood by, was perhaps called,
    /// and goes away without driving, and for futures, which listen at the same signals and never
    /// drive.
    pub fn hand_over(&self) {
        if self.gate.is_idle() && !broken("helm.pass_on") {
            self.call_next();
        }
    }

    /// Wakes one of those who stand by; called by whoever has left the helm.
    fn call_next(&self) {
        // SeqCst fence (H2): see `stand_by`. It has no canary: the queue's `pop` begins with such a
        // fence too, today, so a model without this one still passes. It is not promised there.
        fence(Ordering::SeqCst);
        while let Some(signal) = self.line.pop() {
            // Relaxed, both: see `stand_by`. Either this sees the sleeper's listener, or the sleeper
            // sees the signal out of line and stands in again. A swap, as it must read the
            // sleeper's to be ordered with it.
            signal.in_line.swap(false, Ordering::Relaxed);
            if signal.event.notify(1.additional()) > 0 {
                // Others may sleep at the same signal, so it keeps its place in line.
                if !signal.in_line.swap(true, Ordering::Relaxed) {
                    self.line.push(signal);
                }
                return;
            }
        }
    }
}

fn wait(listener: EventListener, deadline: Option<Instant>) {
    match deadline {
        None => listener.wait(),
        Some(deadline) => {
            // Whether it was the deadline is for the caller to see: it looks again anyway.
            let _woken = listener.wait_deadline(deadline);
        }
    }
}
