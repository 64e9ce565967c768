//! Low-latency messaging runtime for servers.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(feature = "client", not(loom)))]
pub mod client;
pub mod flow;
#[cfg(all(feature = "wire", not(loom), any(test, feature = "unstable-internals")))]
#[doc(hidden)]
pub mod fuzzing;
pub mod pool;
mod setting;
pub mod throttle;

pub use setting::SettingError;

#[allow(
    unreachable_pub,
    dead_code,
    unused_imports,
    reason = "models, fuzzers and benches see more than users do"
)]
mod sync;

#[cfg(all(feature = "broker", not(loom)))]
pub mod broker;
#[cfg(all(feature = "wire", not(loom)))]
pub mod message;
#[cfg(all(feature = "wire", not(loom)))]
#[allow(unreachable_pub, dead_code, reason = "each side of a connection uses its half")]
mod proto;
#[cfg(all(feature = "broker", not(loom)))]
#[allow(unreachable_pub, dead_code, reason = "models, fuzzers and benches see more than users do")]
mod reactor;
#[cfg(all(feature = "wire", not(loom)))]
pub mod wire;

#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub mod internals {
    //! What models, fuzzers and benches need and users don't. No promise about any of it.
    #[cfg(all(feature = "broker", not(loom)))]
    pub use crate::broker::desk::Desk;
    #[cfg(all(feature = "wire", not(loom)))]
    pub use crate::proto::auth;
    pub mod pool {
        //! The steps of a pool without its connections.
        pub use crate::pool::parts::{
            Assigned, Granted, Left, Place, Released, Settled, Slot, State, Surplus, Table,
            TurnQueue, Waiting, Word,
        };
    }
    pub mod sync {
        //! The facade over what threads share, and what is built from it alone.
        pub use crate::sync::{
            Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Entered, Gate, Helm, Inbox, Lanes,
            Mailbox, Ordering, Queue, Signal, Snapshot, UnsafeCell, Wake, block_on, broken, edge,
            fence, fence_edge, sized, spin,
        };
    }
}
