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

#[cfg(all(feature = "wire", not(loom)))]
#[allow(unreachable_pub, dead_code, reason = "each side of a connection uses its half")]
mod proto;
#[cfg(all(feature = "wire", not(loom)))]
pub mod wire;

#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub mod internals {
    //! What models, fuzzers and benches need and users don't. No promise about any of it.
    #[cfg(all(feature = "wire", not(loom)))]
    pub use crate::proto;
    pub use crate::sync;
}
