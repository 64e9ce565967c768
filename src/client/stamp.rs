//! Ids of the packets this program sends.
//!
//! An id is unique by its four parts: time, address, port, and a number that counts up through the
//! whole program. The address carries six random bytes, so that programs behind one address
//! differ.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::clock;
use crate::{
    sync::{AtomicU32, Ordering},
    wire::MessageId,
};

/// Number of the last packet sent by this program.
static SEQUENCE: AtomicU32 = AtomicU32::new(0);

/// Where this connection's packets come from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    address: [u8; 16],
    port: i32,
    /// When it was made, in milliseconds since 1970.
    since: i64,
}

/// What tells a connection from all others: address, port and time.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.host(), self.port, self.since)
    }
}

impl Stamp {
    /// A stamp for packets from `local`, told apart by `random`.
    pub(super) fn new(local: SocketAddr, random: [u8; 6]) -> Self {
        let address = match local.ip() {
            IpAddr::V4(ip) => {
                let mut address = [0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 0];
                address[4..10].copy_from_slice(&random);
                // The top bit says that this is no hardware address.
                address[4] |= 0x80;
                address[12..].copy_from_slice(&ip.octets());
                address
            }
            IpAddr::V6(ip) => ip.octets(),
        };
        Self { address, port: local.port().into(), since: clock::wall_millis() }
    }

    /// The local address as text.
    pub(super) fn host(&self) -> String {
        let [.., a, b, c, d] = self.address;
        if self.address.starts_with(&[0xFF, 0, 0, 0]) {
            Ipv4Addr::new(a, b, c, d).to_string()
        } else {
            Ipv6Addr::from(self.address).to_string()
        }
    }

    /// The local port.
    pub(super) fn port(&self) -> u16 {
        u16::try_from(self.port).unwrap_or_default()
    }

    /// The id of the next packet.
    pub(super) fn next(&self) -> MessageId {
        // Relaxed: only the number's uniqueness matters.
        let number = SEQUENCE.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        MessageId {
            timestamp: clock::wall_millis(),
            address: self.address,
            port: self.port,
            // After 2^31 packets it starts again; the time differs by then.
            sequence: (number & i32::MAX.cast_unsigned()).cast_signed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stamp;

    #[test]
    fn ids_have_the_form_of_the_java_client_and_differ() {
        let stamp = Stamp::new("127.0.0.1:37078".parse().unwrap(), [1, 2, 3, 4, 5, 6]);
        let (a, b) = (stamp.next(), stamp.next());
        assert!(a.to_string().contains("-127.0.0.1(81:2:3:4:5:6)-37078-"), "{a}");
        assert_ne!(a.sequence, b.sequence);
        let v6 = Stamp::new("[::1]:5".parse().unwrap(), [0; 6]).next();
        assert!(v6.to_string().contains("-0:0:0:0:0:0:0:1-5-"), "{v6}");
    }
}
