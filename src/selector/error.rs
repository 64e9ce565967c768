//! Why a text is no selector.

use super::limits::{DEPTH_MAX, NAMES_MAX, TEXT_BYTES_MAX};

/// Why a text is refused as a selector: where, and what is wrong there.
///
/// Columns count characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// It is longer than any selector that the wire can carry.
    #[error("selector of {bytes} bytes; at most {TEXT_BYTES_MAX} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Something stands where something else has to.
    #[error("column {column}: {found} found; allowed here: {allowed}")]
    Unexpected {
        /// Where.
        column: usize,
        /// What stands there.
        found: String,
        /// What may stand there.
        allowed: &'static str,
    },
    /// A number, a string or a sign is written in a way that means nothing.
    #[error("column {column}: {reason}")]
    Malformed {
        /// Where.
        column: usize,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// An operator does not go with the literals it is given: wrong for every message.
    #[error("column {column}: {reason}")]
    Mistyped {
        /// Where the operator stands; 1 for the selector as a whole.
        column: usize,
        /// What it wants, and what it got.
        reason: String,
    },
    /// Too much is open at once: parentheses, and operators that wait for their right side.
    #[error(
        "column {column}: nested too deeply; at most {DEPTH_MAX} parentheses and unfinished \
         operators may be open at once"
    )]
    TooDeep {
        /// Where the first one too many stands.
        column: usize,
    },
    /// Too many different names.
    #[error("column {column}: too many different names; at most {NAMES_MAX} are looked up")]
    TooManyNames {
        /// Where the first one too many stands.
        column: usize,
    },
}

impl SelectorError {
    /// Where the mistake is, in characters from 1; `None` if it is the text as a whole.
    #[must_use]
    pub const fn column(&self) -> Option<usize> {
        match self {
            Self::TooLong { .. } => None,
            Self::Unexpected { column, .. }
            | Self::Malformed { column, .. }
            | Self::Mistyped { column, .. }
            | Self::TooDeep { column }
            | Self::TooManyNames { column } => Some(*column),
        }
    }
}

/// The column of a byte of `text`.
pub(super) fn column(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|&(start, _)| start < at).count() + 1
}
