//! Numbers that are never given twice.

use crate::{
    sync::{AtomicU32, AtomicU64, Ordering},
    wire::MessageId,
};

/// Makes ids of connections, sessions, consumers and producers, and stamps of control packets.
#[derive(Debug)]
pub(super) struct Ids {
    next: AtomicU64,
    sequence: AtomicU32,
    address: [u8; 16],
    port: i32,
}

impl Ids {
    /// `random` sets runs of a broker apart; `address` and `port` are those of the service.
    pub(super) fn new(random: u16, wall_ms: i64, address: std::net::SocketAddr) -> Self {
        let mapped = match address.ip() {
            std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(ip) => ip.octets(),
        };
        // Positive, never zero: 15 random bits, then 40 bits of the clock, then room to count.
        let prefix = u64::from(random & 0x7FFF | 1) << 48;
        let clock = (wall_ms.unsigned_abs() & 0xFF_FFFF_FFFF) << 8;
        Self {
            next: AtomicU64::new(prefix | clock),
            sequence: AtomicU32::new(1),
            address: mapped,
            port: i32::from(address.port()),
        }
    }

    /// The next id: positive, and never given before.
    pub(super) fn next_id(&self) -> i64 {
        // Relaxed: the number alone matters. 2^48 of them fit before the prefix would change.
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        i64::try_from(id).unwrap_or(i64::MAX)
    }

    /// The id of the next control packet.
    pub(super) fn stamp(&self, wall_ms: i64) -> MessageId {
        // Relaxed: as above. It wraps, like the sequence of every other sender.
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        MessageId {
            timestamp: wall_ms,
            address: self.address,
            port: self.port,
            sequence: i32::from_be_bytes((sequence & 0x7FFF_FFFF).to_be_bytes()),
        }
    }
}
