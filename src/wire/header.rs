//! The fixed header and the message id inside it.
//!
//! | offset | size | field | byte order |
//! | ---: | ---: | --- | --- |
//! | 0 | 4 | magic | big |
//! | 4 | 2 | version | big |
//! | 6 | 2 | packet type | big |
//! | 8 | 4 | packet size, header included | big |
//! | 12 | 8 | expiration, ms since 1970, 0 = never | big |
//! | 20 | 8 | timestamp, ms since 1970 | big |
//! | 28 | 16 | address | – |
//! | 44 | 4 | port | big |
//! | 48 | 4 | sequence | big |
//! | 52 | 4 | offset of the properties | big |
//! | 56 | 4 | size of the properties | big |
//! | 60 | 1 | priority | – |
//! | 61 | 1 | encryption, always 0 | – |
//! | 62 | 2 | flags | big |
//! | 64 | 8 | consumer id or reply id | big |

use std::fmt;

use super::{DecodeError, Flags, PacketType};

/// Length of the fixed header, in bytes.
pub const HEADER_LEN: usize = 72;

/// The first four bytes of every packet.
pub const MAGIC: u32 = 0x1BFF_E3C2;

/// Priority of control packets.
const CONTROL_PRIORITY: u8 = 5;
/// Priority of messages that say nothing else.
const MESSAGE_PRIORITY: u8 = 4;

/// The packet version spoken here.
pub const VERSION: u16 = 301;

/// Identifies a message: when and where it was made, and its number there.
///
/// Shape: 32 bytes on the wire, bytes 20 to 51 of the header, used verbatim in acknowledgements.
/// Two ids are equal only if all four parts are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[allow(clippy::exhaustive_structs, reason = "the wire fixes its four parts")]
pub struct MessageId {
    /// When the sender wrote the packet, in milliseconds since 1970.
    pub timestamp: i64,
    /// Address of the sender: IPv4-mapped, IPv4 with six distinguishing bytes, or IPv6.
    pub address: [u8; 16],
    /// Port of the sender.
    pub port: i32,
    /// Number of the packet at its sender.
    pub sequence: i32,
}

impl MessageId {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 32;

    /// Reads an id from its 32 bytes.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            timestamp: i64::from_be_bytes(part(bytes, 0)),
            address: part(bytes, 8),
            port: i32::from_be_bytes(part(bytes, 24)),
            sequence: i32::from_be_bytes(part(bytes, 28)),
        }
    }

    /// The 32 bytes of the id.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.timestamp.to_be_bytes());
        out[8..24].copy_from_slice(&self.address);
        out[24..28].copy_from_slice(&self.port.to_be_bytes());
        out[28..].copy_from_slice(&self.sequence.to_be_bytes());
        out
    }
}

impl fmt::Display for MessageId {
    /// `sequence-address-port-timestamp`, as in a message id's text after `ID:`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let a = &self.address;
        write!(f, "{}-", self.sequence)?;
        if a[..10] == [0; 10] && a[10..12] == [0xFF; 2] {
            write!(f, "{}.{}.{}.{}", a[12], a[13], a[14], a[15])?;
        } else if a[..4] == [0xFF, 0, 0, 0] && a[10..12] == [0xFF; 2] {
            write!(f, "{}.{}.{}.{}(", a[12], a[13], a[14], a[15])?;
            write!(f, "{:x}:{:x}:{:x}:{:x}:{:x}:{:x})", a[4], a[5], a[6], a[7], a[8], a[9])?;
        } else {
            for (at, pair) in a.as_chunks::<2>().0.iter().enumerate() {
                let colon = if at == 0 { "" } else { ":" };
                write!(f, "{colon}{:x}", u16::from_be_bytes(*pair))?;
            }
        }
        write!(f, "-{}-{}", self.port, self.timestamp)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({self})")
    }
}

/// The fixed header of a packet, decoded.
///
/// Shape: see the table above; magic and version are checked and not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the wire fixes its fields")]
pub struct Header {
    /// What the packet is.
    pub packet_type: PacketType,
    /// Whole size, in bytes, this header included.
    pub size: u32,
    /// When the message expires, in milliseconds since 1970; 0 = never.
    pub expiration: i64,
    /// The id of the packet or message.
    pub id: MessageId,
    /// Where the properties start, from the start of the packet.
    pub property_offset: u32,
    /// Length of the properties, in bytes.
    pub property_size: u32,
    /// 0 (lowest) to 9; 4 for messages unless set, 5 for control packets.
    pub priority: u8,
    /// Always 0.
    pub encryption: u8,
    /// Bit flags.
    pub flags: Flags,
    /// Requests and replies: the reply's correlation. Deliveries: the consumer.
    pub consumer_id: i64,
}

impl Header {
    /// The header of a new packet: without id, flags and sections, of the priority its type has.
    pub(crate) const fn new(packet_type: PacketType) -> Self {
        let priority = if packet_type.is_message() { MESSAGE_PRIORITY } else { CONTROL_PRIORITY };
        Self {
            packet_type,
            size: 0,
            expiration: 0,
            id: MessageId { timestamp: 0, address: [0; 16], port: 0, sequence: 0 },
            property_offset: 0,
            property_size: 0,
            priority,
            encryption: 0,
            flags: Flags::empty(),
            consumer_id: 0,
        }
    }

    /// Reads a header and checks that its sections lie inside the packet.
    ///
    /// # Errors
    /// Any [`DecodeError`] about magic, version, size or sections.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, DecodeError> {
        let magic = u32::from_be_bytes(part(bytes, 0));
        if magic != MAGIC {
            return Err(DecodeError::Magic { found: magic });
        }
        let version = u16::from_be_bytes(part(bytes, 4));
        if version != VERSION {
            return Err(DecodeError::Version { found: version });
        }
        let found = i32::from_be_bytes(part(bytes, 8));
        let size = match u32::try_from(found) {
            Ok(size) if size as usize >= HEADER_LEN => size,
            _ => return Err(DecodeError::Size { found }),
        };
        let offset = i32::from_be_bytes(part(bytes, 52));
        let length = i32::from_be_bytes(part(bytes, 56));
        let (property_offset, property_size) = match (u32::try_from(offset), u32::try_from(length))
        {
            (Ok(start), Ok(length))
                if start as usize >= HEADER_LEN
                    && start.checked_add(length).is_some_and(|end| end <= size) =>
            {
                (start, length)
            }
            _ => return Err(DecodeError::Section { offset, length, size }),
        };
        Ok(Self {
            packet_type: PacketType(u16::from_be_bytes(part(bytes, 6))),
            size,
            expiration: i64::from_be_bytes(part(bytes, 12)),
            id: MessageId::decode(&part(bytes, 20)),
            property_offset,
            property_size,
            priority: bytes[60],
            encryption: bytes[61],
            flags: Flags::from_bits(u16::from_be_bytes(part(bytes, 62))),
            consumer_id: i64::from_be_bytes(part(bytes, 64)),
        })
    }

    /// The 72 bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..4].copy_from_slice(&MAGIC.to_be_bytes());
        out[4..6].copy_from_slice(&VERSION.to_be_bytes());
        out[6..8].copy_from_slice(&self.packet_type.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.size.to_be_bytes());
        out[12..20].copy_from_slice(&self.expiration.to_be_bytes());
        out[20..52].copy_from_slice(&self.id.encode());
        out[52..56].copy_from_slice(&self.property_offset.to_be_bytes());
        out[56..60].copy_from_slice(&self.property_size.to_be_bytes());
        out[60] = self.priority;
        out[61] = self.encryption;
        out[62..64].copy_from_slice(&self.flags.bits().to_be_bytes());
        out[64..].copy_from_slice(&self.consumer_id.to_be_bytes());
        out
    }
}

/// `N` bytes from `at` on; both are constants of the layout above.
fn part<const N: usize, const LEN: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::{Header, MessageId};
    use crate::wire::{PacketBuilder, PacketType};

    #[test]
    fn message_id_prints_each_kind_of_address() {
        let mut id = MessageId { timestamp: 4, address: [0; 16], port: 3, sequence: 9 };
        id.address[10..].copy_from_slice(&[0xFF, 0xFF, 127, 0, 0, 1]);
        assert_eq!(id.to_string(), "9-127.0.0.1-3-4");
        id.address[..10].copy_from_slice(&[0xFF, 0, 0, 0, 0x91, 0x4a, 0xe7, 0x56, 0xd6, 0x04]);
        assert_eq!(id.to_string(), "9-127.0.0.1(91:4a:e7:56:d6:4)-3-4");
        id.address = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(id.to_string(), "9-2001:db8:0:0:0:0:0:1-3-4");
        assert_eq!(MessageId::decode(&id.encode()), id);
    }

    #[test]
    fn sections_outside_the_packet_are_refused() {
        let good = PacketBuilder::new(PacketType::PING).finish();
        let mut bytes = [0; 72];
        bytes.copy_from_slice(&good.raw()[..72]);
        assert!(Header::decode(&bytes).is_ok());
        for (at, value) in [(8, 71), (8, 0), (8, -1), (52, 71), (52, 73), (52, -1), (56, 1)] {
            let mut broken = bytes;
            broken[at..at + 4].copy_from_slice(&i32::to_be_bytes(value));
            assert!(Header::decode(&broken).is_err(), "{value} at {at}");
        }
        let mut wrapping = bytes;
        wrapping[52..60].copy_from_slice(&[0x7F, 0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF]);
        assert!(Header::decode(&wrapping).is_err());
    }
}
