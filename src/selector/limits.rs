//! Every maximum of a selector.

/// Longest selector, in bytes: the wire carries it as a property, and those are no longer.
pub const TEXT_BYTES_MAX: usize = crate::wire::limits::PROPERTY_STRING_BYTES_MAX;

/// Most parentheses and unfinished operators open at once. `a = 1 OR b = 2 OR …` never has more
/// than two open, however long it is.
pub const DEPTH_MAX: usize = 256;

/// Most different names of properties and header fields in one selector.
pub const NAMES_MAX: usize = 128;

/// Most comparisons of characters in one evaluation, some tens of milliseconds. A message on which a
/// selector needs more does not match. Only patterns and messages made for each other come near it:
/// it suffices to search the longest string a property can hold for some sixty patterns.
pub const EFFORT_MAX: usize = 1 << 22;

/// Most values a program needs at once. An operator that waits holds one; a BETWEEN after its AND
/// holds two, but there is an open parenthesis between any two of those; and one is being made.
pub(super) const HEIGHT_MAX: usize = DEPTH_MAX + 2;
