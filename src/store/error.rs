//! What goes wrong with a store.

use super::Space;

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It is used by another process.
    #[error("the store in {place} is in use by another process; end that one first")]
    InUse {
        /// Where.
        place: String,
    },
    /// Something in it is not what was written.
    #[error(
        "the store is corrupt at {place}: {reason}; nothing was changed, restore it or look at it with `tidegate store check`"
    )]
    Corrupt {
        /// Where, as exactly as is known.
        place: String,
        /// What.
        reason: String,
    },
    /// It was written by another version of this program.
    #[error(
        "the store has format {found}, and this program writes {known}; use the program that wrote it, or export with that and import with this"
    )]
    Format {
        /// Its format.
        found: u32,
        /// What is known here.
        known: u32,
    },
    /// A write or a sync failed. Nobody knows what of it is on the disk, so nothing more is written.
    #[error("{action} failed: {reason}")]
    Failed {
        /// What was tried.
        action: String,
        /// What the system said.
        reason: String,
    },
    /// The way to it is cut. It may come back, see [`MessageStore::revive`](super::MessageStore::revive).
    #[error("the store cannot be reached while {action}: {reason}")]
    Lost {
        /// What was tried.
        action: String,
        /// What was heard.
        reason: String,
    },
    /// Another broker has taken it over. This one may write nothing any more.
    #[error("another broker has taken over the store: {reason}")]
    Fenced {
        /// How that was noticed.
        reason: String,
    },
}

impl StoreError {
    /// A write, sync or read failed.
    pub fn failed(action: impl Into<String>, reason: impl ToString) -> Self {
        Self::Failed { action: action.into(), reason: reason.to_string() }
    }

    /// The way to it is cut.
    pub fn lost(action: impl Into<String>, reason: impl ToString) -> Self {
        Self::Lost { action: action.into(), reason: reason.to_string() }
    }

    /// An entry is not what was written.
    pub fn corrupt(space: Space, key: &[u8], reason: impl ToString) -> Self {
        let place = format!("{space} {}", key.escape_ascii());
        Self::Corrupt { place, reason: reason.to_string() }
    }
}
