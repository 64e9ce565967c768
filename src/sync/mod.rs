//! The only place that names `std::sync`, crossbeam, arc-swap or loom.
//!
//! Everything that threads share is built from these names. A normal build gets the real
//! primitives, a build with `--cfg loom` the modelled ones, and no other file knows the
//! difference: the code under the models is the code that ships.
//!
//! Atomics are type aliases, not re-exports, so that clippy's `disallowed-types` flags a bypass
//! and nothing else. loom's constructors are not `const`, so there are no atomics in statics.

mod canary;
mod cell;
mod demand;
mod gate;
mod helm;
mod holders;
mod lanes;
mod mailbox;
mod outlet;
mod pipe;
mod queue;
mod replies;
mod reserve;
mod snapshot;
mod wait;
mod waiting;
mod watch;

pub use canary::{broken, edge, fence_edge, order_edge};
pub use cell::UnsafeCell;
pub use demand::Demand;
pub use gate::{Entered, Gate};
pub use helm::{Helm, Signal};
pub use holders::Holders;
pub use lanes::Lanes;
pub use mailbox::{Mailbox, Wake};
pub use outlet::{Back, Front, Outlet};
pub use pipe::{Closed, Pipe};
pub use queue::{Inbox, Queue};
pub use replies::{ReplyTable, Ticket};
pub use reserve::{Kept, Reserve};
pub use snapshot::Snapshot;
pub use wait::{block_on, hint, modelled, set_hint};
pub use waiting::Waiting;
pub use watch::Watch;

pub use crossbeam_utils::CachePadded;
pub use event_listener::{Event, EventListener};

#[cfg(not(loom))]
use std as imp;

#[cfg(loom)]
use loom as imp;

pub use std::sync::atomic::Ordering;

pub use imp::sync::atomic::fence;

#[allow(clippy::disallowed_types, reason = "this is the facade that everybody else goes through")]
mod aliases {
    use super::imp;

    /// An atomic `bool`.
    pub type AtomicBool = imp::sync::atomic::AtomicBool;
    /// An atomic `u32`.
    pub type AtomicU32 = imp::sync::atomic::AtomicU32;
    /// An atomic `u64`.
    pub type AtomicU64 = imp::sync::atomic::AtomicU64;
    /// An atomic `usize`.
    pub type AtomicUsize = imp::sync::atomic::AtomicUsize;
    /// A shared, counted pointer; under loom one that reports leaks.
    pub type Arc<T> = imp::sync::Arc<T>;
    /// A shared, counted pointer to something that no model watches: an error, a callback.
    pub type Plain<T> = std::sync::Arc<T>;
}

pub use aliases::{Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Plain};

/// Gives way in a loop that waits for another thread.
///
/// Under loom this yields to the model: a native spin would end it at its branch limit.
#[inline]
pub fn spin() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Chooses a size: `real` in a normal build, `model` under loom, where every slot costs paths.
#[must_use]
pub const fn sized(real: usize, model: usize) -> usize {
    if cfg!(loom) { model } else { real }
}
