//! What every model uses: running and counting, and a cell that only the claimed edge protects.

use std::io::Write as _;
use std::sync::atomic::Ordering;

use tidegate::internals::sync::UnsafeCell;

/// Runs a model over all its executions, and says how many there were.
///
/// Bounds come from loom's variables (`LOOM_MAX_PREEMPTIONS` and so on).
pub fn model(name: &str, execution: impl Fn() + Sync + Send + 'static) {
    static STDERR: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let executions = std::sync::Arc::new(RealCount::new(0));
    let counted = std::sync::Arc::clone(&executions);
    loom::model(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        execution();
    });
    let executions = executions.load(Ordering::Relaxed);
    let _line = STDERR.lock();
    // Past the test harness, which would swallow it: the count is part of the result.
    let _said = writeln!(std::io::stderr(), "model {name}: {executions} executions");
    // Not in a canary run, where only what the model itself finds may count.
    let canary = std::env::var_os("TIDEGATE_CANARY").is_some();
    assert!(canary || executions > 1, "a model with one execution explores nothing");
}

/// A real counter, which is no part of what is explored.
#[allow(clippy::disallowed_types, reason = "unmodelled on purpose")]
pub type RealCount = std::sync::atomic::AtomicUsize;

/// Where a fact is left by one thread for another, protected by nothing but the edge on trial.
///
/// loom ends the model if a read and a write, or two writes, are not ordered.
pub struct Evidence(UnsafeCell<u32>);

// SAFETY: every access is watched by loom, which fails the model on one that is not ordered.
unsafe impl Sync for Evidence {}

impl Evidence {
    pub fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    pub fn leave(&self, fact: u32) {
        self.0.with_mut(|cell| {
            // SAFETY: as above.
            unsafe { *cell = fact }
        });
    }

    pub fn find(&self) -> u32 {
        self.0.with(|cell| {
            // SAFETY: as above.
            unsafe { *cell }
        })
    }
}

/// A model that must fail when an edge is broken.
pub struct Canary {
    /// The edge's name in the source of the crate.
    pub edge: &'static str,
    /// The model that stands for it, as `file::name`.
    pub model: &'static str,
}

/// Shortens a table of canaries.
pub const fn canary(edge: &'static str, model: &'static str) -> Canary {
    Canary { edge, model }
}
