//! Every maximum of a selector.

/// Longest selector, in bytes: the wire carries it as a property, and those are no longer.
pub const TEXT_BYTES_MAX: usize = crate::wire::limits::PROPERTY_STRING_BYTES_MAX;

/// Most parentheses and unfinished operators open at once. `a = 1 OR b = 2 OR …` never has more
/// than two open, however long it is.
pub const DEPTH_MAX: usize = 256;

/// Most different names of properties and header fields in one selector.
pub const NAMES_MAX: usize = 128;

/// Most comparisons of characters that all LIKE of one evaluation may take together, some tens of
/// milliseconds. A pattern would have to be made for it to need that many, even on the longest
/// string a property can hold; the message then does not match.
pub const LIKE_EFFORT_MAX: u32 = 1 << 22;

/// Most values a program needs at once: an operator that waits holds one, and one is being made.
pub(super) const HEIGHT_MAX: usize = DEPTH_MAX + 1;
