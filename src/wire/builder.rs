//! Writes new packets.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    Flags, HEADER_LEN, Header, MessageId, Packet, PacketType, Padding, Properties, PropertyError,
    Status, Value, VariableHeader, property::TableWriter,
};

/// Builds one packet section by section.
///
/// Protocol names and numbers are short constants, so the methods that put them cannot fail; an
/// application's own strings go through [`properties`](Self::properties) and
/// [`variable`](Self::variable), which can.
#[derive(Debug)]
pub struct PacketBuilder {
    header: Header,
    variable: BytesMut,
    table: TableWriter,
    application: Bytes,
    body: Bytes,
}

impl PacketBuilder {
    /// A packet of this type with nothing in it.
    #[must_use]
    pub fn new(packet_type: PacketType) -> Self {
        Self {
            header: Header::new(packet_type),
            variable: BytesMut::new(),
            table: TableWriter::new(),
            application: Bytes::new(),
            body: Bytes::new(),
        }
    }

    /// The reply to a request, with its status.
    #[must_use]
    pub fn reply(request: &Header, status: Status) -> Self {
        Self::new(request.packet_type.reply())
            .consumer_id(request.consumer_id)
            .int("JMQStatus", status.0)
    }

    /// Sets flags.
    #[must_use]
    pub fn flags(mut self, flags: Flags) -> Self {
        self.header.flags = self.header.flags.with(flags);
        self
    }

    /// Sets the consumer id, which correlates requests and replies.
    #[must_use]
    pub fn consumer_id(mut self, id: i64) -> Self {
        self.header.consumer_id = id;
        self
    }

    /// Sets the id: who sends this, when, and its number.
    #[must_use]
    pub fn id(mut self, id: MessageId) -> Self {
        self.header.id = id;
        self
    }

    /// Sets the priority, 0 to 9.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.header.priority = priority;
        self
    }

    /// Sets the expiration, in milliseconds since 1970; 0 = never.
    #[must_use]
    pub fn expiration(mut self, expiration: i64) -> Self {
        self.header.expiration = expiration;
        self
    }

    /// Puts an `int` protocol property.
    #[must_use]
    pub fn int(self, name: &'static str, value: i32) -> Self {
        self.put(name, &Value::Int(value))
    }

    /// Puts a `long` protocol property.
    #[must_use]
    pub fn long(self, name: &'static str, value: i64) -> Self {
        self.put(name, &Value::Long(value))
    }

    /// Puts a `boolean` protocol property.
    #[must_use]
    pub fn boolean(self, name: &'static str, value: bool) -> Self {
        self.put(name, &Value::Boolean(value))
    }

    /// Puts a string protocol property, cut to what the wire can say.
    #[must_use]
    pub fn string(self, name: &'static str, value: &str) -> Self {
        // Three bytes a character at most here, six for the rare ones: half of that is plenty.
        let cut = value.floor_char_boundary(super::limits::PROPERTY_STRING_BYTES_MAX / 2);
        self.put(name, &Value::String(value.get(..cut).unwrap_or_default().to_owned()))
    }

    fn put(mut self, name: &'static str, value: &Value) -> Self {
        let put = self.table.put(name, value);
        debug_assert_eq!(put, Ok(()), "protocol properties fit");
        self
    }

    /// Puts an application's property table in place of protocol properties.
    ///
    /// # Errors
    /// [`PropertyError::TooLong`] if a name or string does not fit.
    pub fn properties(mut self, properties: &Properties) -> Result<Self, PropertyError> {
        let mut table = BytesMut::new();
        properties.encode(&mut table)?;
        self.application = table.freeze();
        Ok(self)
    }

    /// Puts a property table in its wire form in place of protocol properties; it is not checked.
    #[must_use]
    pub fn property_section(mut self, table: impl Into<Bytes>) -> Self {
        self.application = table.into();
        self
    }

    /// Sets the variable header.
    ///
    /// # Errors
    /// The number of a string field that does not fit.
    pub fn variable(mut self, fields: &VariableHeader<'_>, padding: Padding) -> Result<Self, i16> {
        self.variable.clear();
        fields.encode(padding, &mut self.variable)?;
        Ok(self)
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Everything before the body, and the body, which is shared and not copied.
    ///
    /// # Panics
    /// If the packet would be larger than 2 GiB; callers check their bodies against the packet
    /// limit first.
    #[must_use]
    pub fn finish_parts(self) -> (BytesMut, Bytes) {
        let mut out = BytesMut::new();
        let body = self.finish_into(&mut out);
        (out, body)
    }

    /// Writes everything before the body behind what is in `out`, and returns the body.
    ///
    /// # Panics
    /// As [`finish_parts`](Self::finish_parts).
    #[must_use = "the packet goes on with its body"]
    pub fn finish_into(self, out: &mut BytesMut) -> Bytes {
        let table = self.table.finish();
        let table: &[u8] = if self.application.is_empty() { &table } else { &self.application };
        out.reserve(HEADER_LEN + self.variable.len() + table.len());
        let put_variable = |out: &mut BytesMut| out.put_slice(&self.variable);
        put_head(self.header, put_variable, |out| out.put_slice(table), self.body.len(), out);
        self.body
    }

    /// The packet in one piece.
    ///
    /// # Panics
    /// As [`finish_parts`](Self::finish_parts).
    #[must_use]
    pub fn finish(self) -> Packet {
        let (mut out, body) = self.finish_parts();
        out.put_slice(&body);
        Packet::decode(out.freeze()).expect("a built packet decodes")
    }
}

/// Writes a packet in one pass behind what is in `out`, all but its body of `body_len` bytes: the
/// two sections where they are to stand, then the header before them, with their sizes.
///
/// # Panics
/// If the packet would be larger than 2 GiB.
pub(crate) fn put_head(
    mut header: Header,
    variable: impl FnOnce(&mut BytesMut),
    table: impl FnOnce(&mut BytesMut),
    body_len: usize,
    out: &mut BytesMut,
) {
    let start = out.len();
    out.put_bytes(0, HEADER_LEN);
    variable(out);
    let offset = out.len() - start;
    table(out);
    let head = out.len() - start;
    let checked = |len: usize| u32::try_from(len).ok().filter(|&len| i32::try_from(len).is_ok());
    header.size = checked(head + body_len).expect("a packet is smaller than 2 GiB");
    header.property_offset = checked(offset).expect("checked with the size");
    header.property_size = checked(head - offset).expect("checked with the size");
    if let Some(place) = out.get_mut(start..start + HEADER_LEN) {
        place.copy_from_slice(&header.encode());
    }
}

/// Writes a reply that has a status and nothing else, without building a packet: the reply to
/// every persistent send and every acknowledgement.
pub fn put_status_reply(
    reply: PacketType,
    consumer_id: i64,
    status: Status,
    id: MessageId,
    out: &mut BytesMut,
) {
    const NAME: &[u8; 9] = b"JMQStatus";
    const TABLE_LEN: u32 = 4 + 4 + 2 + 9 + 2 + 4;
    const HEADER_SIZE: u32 = 72;
    let header = Header {
        size: HEADER_SIZE + TABLE_LEN,
        id,
        property_offset: HEADER_SIZE,
        property_size: TABLE_LEN,
        consumer_id,
        ..Header::new(reply)
    };
    out.put_slice(&header.encode());
    out.put_i32(1);
    out.put_i32(1);
    out.put_u16(9);
    out.put_slice(NAME);
    out.put_i16(4);
    out.put_i32(status.0);
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::{PacketBuilder, put_status_reply};
    use crate::wire::{MessageId, PacketType, Status};

    #[test]
    fn the_short_way_to_a_status_reply_writes_the_same_bytes() {
        let request = *PacketBuilder::new(PacketType::ACKNOWLEDGE).consumer_id(9).finish().header();
        let long = PacketBuilder::reply(&request, Status::OK).finish();
        let mut short = BytesMut::new();
        let id = MessageId::default();
        put_status_reply(PacketType::ACKNOWLEDGE_REPLY, 9, Status::OK, id, &mut short);
        assert_eq!(short, long.raw());
        assert_eq!(short.len(), 97);
    }
}
