//! A message as a broker holds it.

use crate::wire::Packet;

/// A message that was taken from a producer.
#[derive(Debug)]
pub(super) struct Stored {
    /// The packet as it was produced.
    pub packet: Packet,
    /// The connection that produced it; no-local consumers on it do not get it.
    pub connection_id: i64,
}

impl Stored {
    /// Its size as limits count it: the whole packet, in bytes.
    #[must_use]
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.packet.header().size)
    }

    /// Whether it has expired at this time, in milliseconds since 1970.
    #[must_use]
    pub(super) const fn is_expired(&self, wall_ms: i64) -> bool {
        let expiration = self.packet.header().expiration;
        expiration > 0 && expiration <= wall_ms
    }
}
