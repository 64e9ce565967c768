//! Low-latency messaging runtime for servers.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod flow;

#[allow(
    unreachable_pub,
    dead_code,
    unused_imports,
    reason = "models, fuzzers and benches see more than users do"
)]
mod sync;

#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub mod internals {
    //! What models, fuzzers and benches need and users don't. No promise about any of it.
    pub use crate::sync;
}
