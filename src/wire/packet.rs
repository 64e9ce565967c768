//! A packet: its header decoded, everything else as the bytes it came in.

use bytes::Bytes;

use super::{
    DecodeError, Flags, HEADER_LEN, Header, MessageId, PropertyError, PropertyTable, VariableHeader,
};

/// Packets up to this size are copied by [`Packet::unshare`].
const UNSHARED_BYTES_MAX: usize = 64 * 1024;

/// One packet of the protocol.
///
/// Shape: the decoded header and the whole packet's bytes; sections are slices of them, so a body
/// is shared and never copied. Cloning copies the header and counts a reference.
#[derive(Debug, Clone)]
pub struct Packet {
    header: Header,
    bytes: Bytes,
}

impl Packet {
    /// Takes exactly one packet's bytes.
    ///
    /// # Errors
    /// [`DecodeError`] if the header is wrong or its size is not that of `bytes`.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let wrong = || DecodeError::Size { found: i32::try_from(bytes.len()).unwrap_or(i32::MAX) };
        let header = bytes.first_chunk::<HEADER_LEN>().ok_or_else(wrong)?;
        let header = Header::decode(header)?;
        if header.size as usize != bytes.len() {
            return Err(wrong());
        }
        Ok(Self { header, bytes })
    }

    /// A packet whose header was decoded from these bytes, which are as long as it says.
    pub(super) fn from_decoded(header: Header, bytes: Bytes) -> Self {
        debug_assert_eq!(header.size as usize, bytes.len());
        Self { header, bytes }
    }

    /// The fixed header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The packet with these flags cleared in its decoded header. The bytes stay as they came;
    /// whoever writes the packet writes the header anew.
    #[must_use]
    pub fn without_flags(mut self, flags: Flags) -> Self {
        self.header.flags = self.header.flags.without(flags);
        self
    }

    /// The packet with another id in its decoded header; the bytes stay, as above.
    #[must_use]
    pub const fn with_id(mut self, id: MessageId) -> Self {
        self.header.id = id;
        self
    }

    /// Moves the packet into memory of its own, so that it no longer holds on to the buffer it was
    /// read into. Large packets fill most of what they hold and stay.
    pub fn unshare(&mut self) {
        if self.bytes.len() <= UNSHARED_BYTES_MAX {
            self.bytes = Bytes::copy_from_slice(&self.bytes);
        }
    }

    /// The whole packet's bytes.
    #[must_use]
    pub const fn raw(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes of the variable header; may be empty.
    #[must_use]
    pub fn variable_bytes(&self) -> &[u8] {
        self.bytes.get(HEADER_LEN..self.property_offset()).unwrap_or_default()
    }

    /// The variable header, decoded.
    ///
    /// # Errors
    /// [`DecodeError::Variable`].
    pub fn variable(&self) -> Result<VariableHeader<'_>, DecodeError> {
        VariableHeader::decode(self.variable_bytes())
    }

    /// The bytes of the property table; may be empty.
    #[must_use]
    pub fn property_bytes(&self) -> &[u8] {
        self.bytes.get(self.property_offset()..self.body_offset()).unwrap_or_default()
    }

    /// The property table, checked.
    ///
    /// # Errors
    /// [`PropertyError`] if the table cannot be read.
    pub fn properties(&self) -> Result<PropertyTable<'_>, PropertyError> {
        PropertyTable::new(self.property_bytes())
    }

    /// The body's bytes; may be empty.
    #[must_use]
    pub fn body_bytes(&self) -> &[u8] {
        self.bytes.get(self.body_offset()..).unwrap_or_default()
    }

    /// The body, shared.
    #[must_use]
    pub fn body(&self) -> Bytes {
        self.bytes.slice(self.body_offset().min(self.bytes.len())..)
    }

    /// Properties and body, where they are: what a delivery leaves untouched.
    #[must_use]
    pub fn tail_bytes(&self) -> &[u8] {
        self.bytes.get(self.property_offset()..).unwrap_or_default()
    }

    /// Properties and body, shared.
    #[must_use]
    pub fn tail(&self) -> Bytes {
        self.bytes.slice(self.property_offset().min(self.bytes.len())..)
    }

    fn property_offset(&self) -> usize {
        self.header.property_offset as usize
    }

    fn body_offset(&self) -> usize {
        // The header was checked: the sum lies within the packet.
        self.property_offset() + self.header.property_size as usize
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Packet;
    use crate::wire::{PacketBuilder, PacketType};

    #[test]
    fn an_unshared_packet_is_the_same_elsewhere() {
        let one = PacketBuilder::new(PacketType::TEXT_MESSAGE).int("n", 7).body("body").finish();
        let buffer = Bytes::from(one.raw().repeat(2));
        let mut packet = Packet::decode(buffer.slice(..one.raw().len())).unwrap();
        assert_eq!(packet.raw().as_ptr(), buffer.as_ptr(), "read in place");
        packet.unshare();
        assert_ne!(packet.raw().as_ptr(), buffer.as_ptr());
        assert_eq!((packet.raw(), packet.body()), (one.raw(), one.body()));
    }
}
