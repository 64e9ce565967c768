//! The message itself.

use std::{borrow::Cow, fmt};

use bytes::{Bytes, BytesMut};

use super::{
    Body, BodyError, BodyKind, Destination, DestinationKind, FromProperty, MapBody, MessageError,
    ReadPropertyError, StreamItem, compress, identifier,
};
use crate::wire::{
    Flags, MessageId, Packet, Properties, PropertyError, PropertyTable, Value, decode_text,
    encode_text,
    limits::{PACKET_BYTES_MAX, VARIABLE_STRING_BYTES_MAX},
};

/// Whether a message survives the end of its broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(clippy::exhaustive_enums, reason = "the wire has one bit for it")]
pub enum DeliveryMode {
    /// On disk before it is acknowledged.
    #[default]
    Persistent,
    /// In memory only.
    NonPersistent,
}

/// A message.
///
/// Shape: the body in its wire form, decoded when asked for; headers; properties. A received
/// message holds on to the packet it came in and shares its bytes. Cloning shares the body.
#[derive(Clone)]
pub struct Message {
    pub(super) kind: BodyKind,
    pub(super) body: Bytes,
    pub(super) compressed: bool,
    pub(super) properties: Table,
    pub(super) destination: Option<Destination>,
    pub(super) reply_to: Option<Destination>,
    /// In the wire's form of text, like the next two.
    pub(super) correlation_id: Option<Bytes>,
    pub(super) message_type: Option<Bytes>,
    foreign_id: Option<Bytes>,
    pub(super) priority: u8,
    pub(super) delivery_mode: DeliveryMode,
    pub(super) expiration: i64,
    pub(super) delivery_time: Option<i64>,
    redelivered: bool,
    delivery_count: Option<i32>,
    id: Option<MessageId>,
    consumer_id: i64,
}

/// Properties as they came, or as they were set.
#[derive(Clone)]
pub(super) enum Table {
    Wire(Bytes),
    Set(Properties),
}

impl Message {
    /// A message with this text. Empty text reads back as none, as on the wire.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Body::Text(Some(text.into())))
    }

    /// A message with these bytes, which are not copied.
    #[must_use]
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self::new(Body::Bytes(bytes.into()))
    }

    /// A message with these named values.
    #[must_use]
    pub fn map(map: MapBody) -> Self {
        Self::new(Body::Map(map))
    }

    /// A message with these values in order.
    #[must_use]
    pub fn stream(items: Vec<StreamItem>) -> Self {
        Self::new(Body::Stream(items))
    }

    /// A message with a Java object, serialized by whoever made it.
    #[must_use]
    pub fn object(serialized: impl Into<Bytes>) -> Self {
        Self::new(Body::Object(serialized.into()))
    }

    /// A message without body.
    #[must_use]
    pub fn plain() -> Self {
        Self::new(Body::Plain)
    }

    /// A message with this body; persistent, of priority 4, without anything else.
    #[must_use]
    pub fn new(body: Body) -> Self {
        Self {
            kind: body.kind(),
            body: body.encode(),
            compressed: false,
            properties: Table::Set(Properties::new()),
            destination: None,
            reply_to: None,
            correlation_id: None,
            message_type: None,
            foreign_id: None,
            priority: 4,
            delivery_mode: DeliveryMode::Persistent,
            expiration: 0,
            delivery_time: None,
            redelivered: false,
            delivery_count: None,
            id: None,
            consumer_id: 0,
        }
    }

    /// The message in a packet; shares its bytes. Properties and body are not looked into: what is
    /// wrong with them is an error when they are read. A destination whose name is no text is left
    /// out.
    ///
    /// # Errors
    /// [`MessageError::NotAMessage`], [`MessageError::Variable`].
    pub fn from_packet(packet: &Packet) -> Result<Self, MessageError> {
        let header = packet.header();
        let kind = BodyKind::of(header.packet_type)
            .ok_or(MessageError::NotAMessage { found: header.packet_type })?;
        let variable = packet.variable().map_err(MessageError::Variable)?;
        let share = |bytes: &[u8]| packet.raw().slice_ref(bytes);
        let flagged = if header.flags.contains(Flags::QUEUE) {
            DestinationKind::Queue
        } else {
            DestinationKind::Topic
        };
        let destination = variable.destination.and_then(|name| {
            Destination::from_wire(share(name), variable.destination_class.map(share), flagged)
        });
        let reply_to = variable.reply_to.and_then(|name| {
            Destination::reply_from_wire(share(name), variable.reply_to_class.map(share), flagged)
        });
        Ok(Self {
            kind,
            body: packet.body(),
            compressed: header.flags.contains(Flags::COMPRESSED),
            properties: Table::Wire(share(packet.property_bytes())),
            destination,
            reply_to,
            correlation_id: variable.correlation_id.map(share),
            message_type: variable.message_type.map(share),
            foreign_id: variable.message_id.map(share),
            priority: header.priority,
            delivery_mode: if header.flags.contains(Flags::PERSISTENT) {
                DeliveryMode::Persistent
            } else {
                DeliveryMode::NonPersistent
            },
            expiration: header.expiration,
            delivery_time: variable.delivery_time,
            redelivered: header.flags.contains(Flags::REDELIVERED),
            delivery_count: variable.delivery_count,
            id: Some(header.id),
            consumer_id: header.consumer_id,
        })
    }

    /// Replaces the body.
    pub fn set_body(&mut self, body: Body) -> &mut Self {
        self.kind = body.kind();
        self.body = body.encode();
        self.compressed = false;
        self
    }

    /// Sets a property; replaces one of the same name.
    ///
    /// # Errors
    /// [`MessageError::PropertyName`] if the name is no Java identifier or a word of the selector
    /// language, [`MessageError::PropertyType`] for objects, [`MessageError::Properties`] if name
    /// or string takes more than 65,535 bytes, there are too many, or the received properties
    /// cannot be read. The message is unchanged then.
    pub fn set_property(
        &mut self,
        name: impl Into<String>,
        value: impl Into<Value>,
    ) -> Result<&mut Self, MessageError> {
        let (name, value) = (name.into(), value.into());
        let shortened = || name.chars().take(64).collect();
        if !identifier::is_identifier(&name) || identifier::is_reserved(&name) {
            return Err(MessageError::PropertyName { name: shortened() });
        }
        if matches!(value, Value::Object(_) | Value::Malformed(_)) {
            return Err(MessageError::PropertyType { name: shortened() });
        }
        self.own_properties()?.try_set(name, value).map_err(MessageError::Properties)?;
        Ok(self)
    }

    /// Takes a property out.
    ///
    /// # Errors
    /// [`MessageError::Properties`] if the received properties cannot be read.
    pub fn remove_property(&mut self, name: &str) -> Result<Option<Value>, MessageError> {
        Ok(self.own_properties()?.remove(name))
    }

    /// Takes all properties out, unreadable ones too.
    pub fn clear_properties(&mut self) -> &mut Self {
        self.properties = Table::Set(Properties::new());
        self
    }

    /// Sets where the message goes.
    pub fn set_destination(&mut self, destination: Destination) -> &mut Self {
        self.destination = Some(destination);
        self
    }

    /// Sets where replies should go.
    pub fn set_reply_to(&mut self, reply_to: Option<Destination>) -> &mut Self {
        self.reply_to = reply_to;
        self
    }

    /// Sets the correlation id, which ties a reply to its request.
    ///
    /// # Errors
    /// [`MessageError::TooLong`] if it takes more than 32,767 bytes.
    pub fn set_correlation_id(&mut self, id: Option<&str>) -> Result<&mut Self, MessageError> {
        self.correlation_id = header_text("correlation id", id)?;
        Ok(self)
    }

    /// Sets the application's own type of the message.
    ///
    /// # Errors
    /// [`MessageError::TooLong`] if it takes more than 32,767 bytes.
    pub fn set_message_type(&mut self, name: Option<&str>) -> Result<&mut Self, MessageError> {
        self.message_type = header_text("message type", name)?;
        Ok(self)
    }

    /// Sets the priority, 0 (lowest) to 9; 4 unless set.
    ///
    /// # Errors
    /// [`MessageError::Priority`].
    pub fn set_priority(&mut self, priority: u8) -> Result<&mut Self, MessageError> {
        if priority > 9 {
            return Err(MessageError::Priority { priority });
        }
        self.priority = priority;
        Ok(self)
    }

    /// Sets the delivery mode; persistent unless set.
    pub fn set_delivery_mode(&mut self, mode: DeliveryMode) -> &mut Self {
        self.delivery_mode = mode;
        self
    }

    /// Sets when the message expires, in milliseconds since 1970; 0 = never.
    pub fn set_expiration(&mut self, expiration: i64) -> &mut Self {
        self.expiration = expiration;
        self
    }

    /// Sets the earliest time of delivery, in milliseconds since 1970.
    pub fn set_delivery_time(&mut self, time: Option<i64>) -> &mut Self {
        self.delivery_time = time;
        self
    }

    /// Notes the id, and with it the time, under which the message was sent.
    pub fn set_id(&mut self, id: MessageId) -> &mut Self {
        self.id = Some(id);
        self.foreign_id = None;
        self
    }

    /// Which kind of body there is.
    #[must_use]
    pub const fn kind(&self) -> BodyKind {
        self.kind
    }

    /// The body, decoded.
    ///
    /// # Errors
    /// [`BodyError`]; headers and properties stay readable.
    pub fn body(&self) -> Result<Body, BodyError> {
        Body::decode(self.kind, &self.body_bytes()?)
    }

    /// The text of a text body; `None` if it is null or empty. Borrowed unless it was compressed.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn body_text(&self) -> Result<Option<Cow<'_, str>>, BodyError> {
        if self.kind != BodyKind::Text {
            return Err(BodyError::Kind { found: self.kind, wanted: BodyKind::Text });
        }
        if self.compressed {
            let plain = self.body_bytes()?;
            let text = decode_text(&plain).ok_or(BodyError::Text)?.into_owned();
            return Ok(Some(text).filter(|text| !text.is_empty()).map(Cow::Owned));
        }
        let text = decode_text(&self.body).ok_or(BodyError::Text)?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// The wire form of a body of any kind: of a bytes body the bytes, of an object body the
    /// serialized object. Shared unless it was compressed.
    ///
    /// # Errors
    /// [`BodyError::Compressed`], [`BodyError::CompressedSize`].
    pub fn body_bytes(&self) -> Result<Bytes, BodyError> {
        if !self.compressed {
            return Ok(self.body.clone());
        }
        let most = PACKET_BYTES_MAX as usize;
        let told = self.property_as::<i32>(UNCOMPRESSED_SIZE).ok().flatten();
        let told = told.and_then(|size| usize::try_from(size).ok());
        compress::inflate(&self.body, told.map_or(most, |told| told.min(most)))
    }

    /// All properties.
    ///
    /// # Errors
    /// [`PropertyError`] if the received table cannot be read.
    pub fn properties(&self) -> Result<Cow<'_, Properties>, PropertyError> {
        match &self.properties {
            Table::Wire(section) => Ok(Cow::Owned(PropertyTable::new(section)?.to_owned())),
            Table::Set(properties) => Ok(Cow::Borrowed(properties)),
        }
    }

    /// The value of a property. `JMSXDeliveryCount` is the delivery count of a received message.
    ///
    /// # Errors
    /// [`PropertyError`] if the received table cannot be read.
    pub fn property(&self, name: &str) -> Result<Option<Value>, PropertyError> {
        let found = match &self.properties {
            Table::Wire(section) => PropertyTable::new(section)?.value(name),
            Table::Set(properties) => properties.value(name).cloned(),
        };
        if found.is_none() && name == "JMSXDeliveryCount" {
            return Ok(self.delivery_count.map(Value::Int));
        }
        Ok(found)
    }

    /// The value of a property as the type asked for: `message.property_as::<i32>("n")`.
    ///
    /// # Errors
    /// [`ReadPropertyError::Conversion`] if it is of a type that does not convert,
    /// [`ReadPropertyError::Table`] if the received table cannot be read.
    pub fn property_as<T: FromProperty>(&self, name: &str) -> Result<Option<T>, ReadPropertyError> {
        let Some(value) = self.property(name)? else { return Ok(None) };
        T::from_value(&value).map(Some).ok_or_else(|| ReadPropertyError::Conversion {
            name: name.to_owned(),
            value: value.to_string().chars().take(64).collect(),
            wanted: T::NAME,
        })
    }

    /// Where the message goes or went.
    #[must_use]
    pub const fn destination(&self) -> Option<&Destination> {
        self.destination.as_ref()
    }

    /// Where replies should go.
    #[must_use]
    pub const fn reply_to(&self) -> Option<&Destination> {
        self.reply_to.as_ref()
    }

    /// The correlation id; bytes that are no text are replaced.
    #[must_use]
    pub fn correlation_id(&self) -> Option<Cow<'_, str>> {
        self.correlation_id.as_deref().map(lossy_text)
    }

    /// The application's own type of the message; bytes that are no text are replaced.
    #[must_use]
    pub fn message_type(&self) -> Option<Cow<'_, str>> {
        self.message_type.as_deref().map(lossy_text)
    }

    /// The priority, 0 (lowest) to 9.
    #[must_use]
    pub const fn priority(&self) -> u8 {
        self.priority
    }

    /// The delivery mode.
    #[must_use]
    pub const fn delivery_mode(&self) -> DeliveryMode {
        self.delivery_mode
    }

    /// When the message expires, in milliseconds since 1970; 0 = never.
    #[must_use]
    pub const fn expiration(&self) -> i64 {
        self.expiration
    }

    /// When the message was sent, in milliseconds since 1970; `None` before that.
    #[must_use]
    pub fn timestamp(&self) -> Option<i64> {
        self.id.map(|id| id.timestamp)
    }

    /// The earliest time of delivery, in milliseconds since 1970: when it was sent, unless set.
    #[must_use]
    pub fn delivery_time(&self) -> Option<i64> {
        self.delivery_time.or_else(|| self.timestamp())
    }

    /// Whether the message was delivered before and not acknowledged.
    #[must_use]
    pub const fn is_redelivered(&self) -> bool {
        self.redelivered
    }

    /// How often a received message has been delivered, this time included.
    #[must_use]
    pub const fn delivery_count(&self) -> Option<i32> {
        self.delivery_count
    }

    /// The message id as text, `ID:` and the sender's number, address, port and time; `None`
    /// before the message is sent. A foreign id that travelled along stands in its place.
    #[must_use]
    pub fn message_id(&self) -> Option<String> {
        match &self.foreign_id {
            Some(foreign) => Some(lossy_text(foreign).into_owned()),
            None => self.id.map(|id| format!("ID:{id}")),
        }
    }

    /// The id as the wire has it, for acknowledgements; `None` before the message is sent.
    #[must_use]
    pub const fn id(&self) -> Option<MessageId> {
        self.id
    }

    /// The consumer a received message was delivered to, as the broker numbered it.
    #[must_use]
    pub const fn consumer_id(&self) -> i64 {
        self.consumer_id
    }

    fn own_properties(&mut self) -> Result<&mut Properties, MessageError> {
        if let Table::Wire(section) = &self.properties {
            let read = PropertyTable::new(section).map_err(MessageError::Properties)?;
            self.properties = Table::Set(read.to_owned());
        }
        match &mut self.properties {
            Table::Set(properties) => Ok(properties),
            Table::Wire(_) => unreachable!("replaced just above"),
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("kind", &self.kind)
            .field("body_bytes", &self.body.len())
            .field("destination", &self.destination)
            .field("id", &self.id)
            .field("priority", &self.priority)
            .field("delivery_mode", &self.delivery_mode)
            .field("redelivered", &self.redelivered)
            .field("properties", &self.properties())
            .finish_non_exhaustive()
    }
}

/// Length of the body before it was packed; the reader needs it.
pub(super) const UNCOMPRESSED_SIZE: &str = "JMS_SUN_UNCOMPRESSED_SIZE";

/// A header's text in the wire's form.
fn header_text(header: &'static str, text: Option<&str>) -> Result<Option<Bytes>, MessageError> {
    let Some(text) = text else { return Ok(None) };
    let len = crate::wire::encoded_len(text);
    if len > VARIABLE_STRING_BYTES_MAX {
        return Err(MessageError::TooLong { header, len, max: VARIABLE_STRING_BYTES_MAX });
    }
    let mut out = BytesMut::with_capacity(len);
    encode_text(text, &mut out);
    Ok(Some(out.freeze()))
}

fn lossy_text(bytes: &[u8]) -> Cow<'_, str> {
    decode_text(bytes).unwrap_or_else(|| String::from_utf8_lossy(bytes))
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
