//! The bit flags of a packet.

use std::fmt;

/// Bit flags of a packet's header.
///
/// Shape: 16 bits, each with a letter of its own in captures and dumps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Flags(u16);

/// One letter a bit, lowest first.
const LETTERS: [char; 13] = ['Q', 'R', 'P', 'S', 'A', 'L', 'F', 'T', 'C', 'B', 'Z', 'I', 'W'];

impl Flags {
    /// The destination is a queue; clear means a topic.
    pub const QUEUE: Self = Self(0x0001);
    /// The message was delivered before.
    pub const REDELIVERED: Self = Self(0x0002);
    /// Delivery mode persistent.
    pub const PERSISTENT: Self = Self(0x0004);
    /// Unused by brokers.
    pub const SELECTORS_PROCESSED: Self = Self(0x0008);
    /// A reply is wanted.
    pub const ACKNOWLEDGE: Self = Self(0x0010);
    /// The last message of a browse batch.
    pub const LAST: Self = Self(0x0020);
    /// Connection metering: the sender waits for `RESUME_FLOW`.
    pub const FLOW_PAUSED: Self = Self(0x0040);
    /// Sent in a transaction; informational.
    pub const TRANSACTED: Self = Self(0x0080);
    /// Consumer or producer metering: the sender waits for `RESUME_FLOW` with that id.
    pub const CONSUMER_FLOW: Self = Self(0x0100);
    /// Unused.
    pub const SERVER_PACKET: Self = Self(0x0200);
    /// The body is a zlib stream.
    pub const COMPRESSED: Self = Self(0x0400);
    /// Sent again after a reconnect.
    pub const INDEMPOTENT: Self = Self(0x0800);
    /// The destination name is a wildcard.
    pub const WILDCARD: Self = Self(0x1000);

    /// No flag set.
    #[must_use]
    pub const fn empty() -> Self {
        Self(0)
    }

    /// The flags in these bits.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The bits as they stand in the header.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// `other` set if `on`, cleared if not.
    #[must_use]
    pub const fn set(self, other: Self, on: bool) -> Self {
        if on { self.with(other) } else { self.without(other) }
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("-");
        }
        (0..16_usize).filter(|bit| self.0 >> bit & 1 == 1).try_for_each(|bit| {
            let letter = LETTERS.get(bit).copied().unwrap_or('?');
            write!(f, "{letter}")
        })
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({self})")
    }
}
