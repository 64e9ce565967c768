//! A message on its way out.
//!
//! All that can be wrong with it is found before it is written, so that the writing is one pass
//! that cannot fail: it may be done where packets of many threads are put together.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};

use super::{
    DeliveryMode, Destination, DestinationKind, Message, MessageError, compress, message::Table,
    message::UNCOMPRESSED_SIZE,
};
use crate::wire::{
    Flags, Header, MessageId, PacketBuilder, PacketType, Padding, Properties, PropertyTable, Value,
    VariableHeader,
    limits::{MESSAGE_BYTES_MAX, VARIABLE_STRING_BYTES_MAX},
    put_head,
};

/// Who sends a message: what the variable header says beside the application's own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_structs, reason = "plain data between two modules")]
pub struct Origin {
    /// The producer, as the broker numbered it.
    pub producer_id: Option<i64>,
    /// The open transaction.
    pub transaction_id: Option<i64>,
}

/// A checked message, to be written once its id is known.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    message: &'a Message,
    origin: Origin,
    flags: Flags,
    name: Cow<'a, [u8]>,
    reply_name: Option<Cow<'a, [u8]>>,
    table: Section<'a>,
    body: Cow<'a, Bytes>,
}

/// A property table, in its wire form or about to be.
#[derive(Debug)]
enum Section<'a> {
    /// As it came: names and strings that are no text stay what they are.
    Wire(&'a [u8]),
    Set(Cow<'a, Properties>),
}

impl Message {
    /// The packet to send, without id, consumer id and the flags that belong to the connection.
    ///
    /// Packs the body if the property `JMS_SUN_COMPRESS` is true and it is not packed already.
    ///
    /// # Errors
    /// [`MessageError::NoDestination`], [`MessageError::TooLarge`], [`MessageError::Properties`] if
    /// a received message's properties cannot be read.
    pub fn encode(&self, origin: &Origin) -> Result<PacketBuilder, MessageError> {
        let ready = self.outgoing(origin)?;
        let mut table = BytesMut::new();
        ready.table.put(&mut table);
        PacketBuilder::new(self.kind.packet_type())
            .priority(self.priority)
            .expiration(self.expiration)
            .flags(ready.flags)
            .property_section(table)
            .body(ready.body.as_ref().clone())
            .variable(&ready.fields(), Padding::Java)
            .map_err(|id| ready.too_long(id))
    }

    /// Checks and prepares the message; as [`encode`](Self::encode), without copying anything.
    ///
    /// # Errors
    /// As of `encode`.
    pub(crate) fn outgoing(&self, origin: &Origin) -> Result<Outgoing<'_>, MessageError> {
        let destination = self.destination.as_ref().ok_or(MessageError::NoDestination)?;
        let packed = Flags::empty().set(Flags::COMPRESSED, self.compressed);
        let (body, flags, table) = if self.compressed || !self.wants_compression() {
            let table = match &self.properties {
                Table::Wire(section) => Section::Wire(section),
                Table::Set(properties) => Section::Set(Cow::Borrowed(properties)),
            };
            (Cow::Borrowed(&self.body), packed, table)
        } else {
            self.pack(packed)?
        };
        let len = body.len() + table.checked_len()?;
        if len > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLarge { len });
        }
        let ready = Outgoing {
            message: self,
            origin: *origin,
            flags: flags
                .set(Flags::QUEUE, destination.kind() == DestinationKind::Queue)
                .set(Flags::PERSISTENT, self.delivery_mode == DeliveryMode::Persistent)
                .set(Flags::WILDCARD, destination.is_wildcard()),
            name: destination.wire_name(),
            reply_name: self.reply_to.as_ref().map(Destination::wire_name),
            table,
            body,
        };
        ready.fields().check().map_err(|id| ready.too_long(id))?;
        Ok(ready)
    }

    fn pack(&self, flags: Flags) -> Result<(Cow<'_, Bytes>, Flags, Section<'_>), MessageError> {
        let mut properties = self.properties().map_err(MessageError::Properties)?.into_owned();
        let (body, flags) = if self.body.is_empty() {
            (Bytes::new(), flags)
        } else {
            (compress::deflate(&self.body), flags.with(Flags::COMPRESSED))
        };
        let size = |len: usize| i32::try_from(len).unwrap_or(i32::MAX);
        properties.set(UNCOMPRESSED_SIZE, size(self.body.len()));
        properties.set(COMPRESSED_SIZE, size(body.len()));
        Ok((Cow::Owned(body), flags, Section::Set(Cow::Owned(properties))))
    }

    fn wants_compression(&self) -> bool {
        matches!(self.property("JMS_SUN_COMPRESS"), Ok(Some(Value::Boolean(true))))
    }
}

impl Outgoing<'_> {
    /// Writes all of the packet but its body behind what is in `out`. `flags` are those of the
    /// connection, `reply_id` is 0 if no reply is wanted.
    pub(crate) fn put(&self, id: MessageId, flags: Flags, reply_id: i64, out: &mut BytesMut) {
        let header = Header {
            priority: self.message.priority,
            expiration: self.message.expiration,
            flags: self.flags.with(flags),
            consumer_id: reply_id,
            id,
            ..Header::new(self.packet_type())
        };
        let put_fields = |out: &mut BytesMut| self.fields().put(Padding::Java, out);
        put_head(header, put_fields, |out| self.table.put(out), self.body.len(), out);
    }

    /// The type of its packet.
    pub(crate) const fn packet_type(&self) -> PacketType {
        self.message.kind.packet_type()
    }

    /// The body, which stands behind that.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    /// The error for the field with this number.
    fn too_long(&self, id: i16) -> MessageError {
        // Other fields were checked when they were set, or came this way; a name may have grown
        // when it was written in Java's form.
        let (header, text) = match id {
            4 => ("name of the reply destination", self.reply_name.as_ref()),
            _ => ("name of the destination", Some(&self.name)),
        };
        let len = text.map_or(0, |text| text.len());
        MessageError::TooLong { header, len, max: VARIABLE_STRING_BYTES_MAX }
    }

    fn fields(&self) -> VariableHeader<'_> {
        let message = self.message;
        VariableHeader {
            transaction_id: self.origin.transaction_id,
            producer_id: self.origin.producer_id,
            delivery_time: message.delivery_time,
            delivery_count: None,
            destination: Some(&self.name),
            message_id: None,
            correlation_id: message.correlation_id.as_deref(),
            reply_to: self.reply_name.as_deref(),
            message_type: message.message_type.as_deref(),
            destination_class: message.destination.as_ref().map(Destination::wire_class),
            reply_to_class: message.reply_to.as_ref().map(Destination::wire_class),
        }
    }
}

impl Section<'_> {
    /// The length of the section, if it can be written.
    fn checked_len(&self) -> Result<usize, MessageError> {
        match self {
            Self::Wire(section) => PropertyTable::new(section).map(|_| section.len()),
            Self::Set(properties) => properties.encoded_len(),
        }
        .map_err(MessageError::Properties)
    }

    /// Writes the section, which was checked.
    fn put(&self, out: &mut BytesMut) {
        match self {
            Self::Wire(section) => out.extend_from_slice(section),
            Self::Set(properties) => {
                let put = properties.encode(out);
                debug_assert_eq!(put, Ok(()), "checked before");
            }
        }
    }
}

/// Length of the packed body.
const COMPRESSED_SIZE: &str = "JMS_SUN_COMPRESSED_SIZE";
