//! What can be wrong with bytes.

/// Why bytes are not a packet. Closes the connection they came on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first four bytes are not the protocol's magic number.
    #[error("not a packet: starts with {found:#010x}, not {:#010x}", super::MAGIC)]
    Magic {
        /// The four bytes found.
        found: u32,
    },
    /// The packet version is none that is spoken here.
    #[error("packet version {found} is not spoken here, only {}", super::VERSION)]
    Version {
        /// The version found.
        found: u16,
    },
    /// The size in the header is below the header's own.
    #[error("packet size {found} is below the {} bytes of its header", super::HEADER_LEN)]
    Size {
        /// The size found; may be negative.
        found: i32,
    },
    /// A section reaches outside its packet.
    #[error("properties at {offset} with {length} bytes lie outside a packet of {size} bytes")]
    Section {
        /// Where the properties start.
        offset: i32,
        /// How long they say they are.
        length: i32,
        /// The packet's size.
        size: u32,
    },
    /// The variable header ends in the middle of an entry, or an entry has an impossible length.
    #[error("variable header entry {id} at byte {offset} does not fit")]
    Variable {
        /// The entry's number.
        id: i16,
        /// Where in the variable header it stands.
        offset: usize,
    },
}
