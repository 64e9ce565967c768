//! Ctrl-C as a wish to end: the first one is heard, a second one ends the program at once.

#![allow(
    clippy::disallowed_types,
    reason = "a flag a signal handler sets; the facade is the library's"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use super::failure::Failure;

/// Whether the user has pressed Ctrl-C.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on.
    pub(super) fn new() -> Result<Self, Failure> {
        let came = Arc::new(AtomicBool::new(false));
        // In this order: the first signal finds the flag clear and only sets it.
        let registered = flag::register_conditional_default(SIGINT, Arc::clone(&came))
            .and_then(|_| flag::register(SIGINT, Arc::clone(&came)));
        registered.map_err(|error| Failure::new("cannot watch for signals", &error))?;
        Ok(Self(came))
    }

    pub(super) fn came(&self) -> bool {
        // Relaxed: nothing but the flag itself is handed over.
        self.0.load(Ordering::Relaxed)
    }
}
