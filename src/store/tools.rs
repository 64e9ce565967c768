//! What can be done with a whole store, whatever it is made of: check it, count it, write it as
//! lines of JSON, and read those into an empty one.
//!
//! The store must not be used by a broker meanwhile. Nothing but [`import()`] writes to it.

mod check;
#[cfg(feature = "store-json")]
mod export;
#[cfg(feature = "store-json")]
mod import;
#[cfg(feature = "store-json")]
mod line;
mod stats;
#[cfg(all(test, feature = "store-json"))]
mod tests;

use super::{Entry, Recovery, StoreError};

#[cfg(feature = "store-json")]
pub(super) use self::line::kind;
pub use self::{
    check::{CheckReport, Leftover, Problem, check},
    stats::{DestinationStats, SpaceStats, StoreStats, SubscriptionStats, TransactionStats, stats},
};
#[cfg(feature = "store-json")]
pub use self::{
    export::{ExportError, export},
    import::{ImportError, import},
};

/// Told from time to time how many entries have been seen, and about how many there are, if that is
/// known.
pub type Progress<'a> = &'a mut dyn FnMut(u64, Option<u64>);

/// How often progress is told, in entries.
const TOLD_EVERY: u64 = 4096;

/// Gives each entry to `each`, until one cannot be read or is refused.
fn read_all(
    recovery: Recovery<'_>,
    progress: Progress<'_>,
    mut each: impl FnMut(&Entry) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let Recovery { estimate, entries, .. } = recovery;
    for (count, entry) in (1..).zip(entries) {
        each(&entry?)?;
        if count % TOLD_EVERY == 0 {
            progress(count, estimate);
        }
    }
    Ok(())
}
