//! Packets as text for people, one line each.

use std::fmt::{self, Display, Formatter};

use super::{Body, BodyError, Message};
use crate::wire::{Packet, Value, VariableHeader, decode_text, java::JavaValue};

/// Describes a packet in one line: type, size, sequence, flags, ids, variable header, properties
/// with their types, and the body, decoded if it is text, map or stream.
///
/// Shape: long texts, names and bodies are shortened; what cannot be decoded says so.
pub fn describe(packet: &Packet) -> impl Display + use<'_> {
    Description(packet)
}

struct Description<'a>(&'a Packet);

/// Most characters shown of a text.
const TEXT_CHARS_MAX: usize = 200;
/// Most bytes shown of a body.
const BODY_BYTES_MAX: usize = 48;
/// Most properties and values shown of a packet or body.
const ITEMS_MAX: usize = 64;

impl Display for Description<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let packet = self.0;
        let header = packet.header();
        write!(f, "{} {} bytes, #{}", header.packet_type, header.size, header.id.sequence)?;
        write!(f, " flags {} priority {}", header.flags, header.priority)?;
        let role = if header.packet_type.is_message() { "consumer-id" } else { "reply-id" };
        if header.consumer_id != 0 {
            write!(f, " {role} {}", header.consumer_id)?;
        }
        if header.expiration != 0 {
            write!(f, " expires {}", header.expiration)?;
        }
        write!(f, " id {}", header.id)?;
        match packet.variable() {
            Ok(fields) => put_fields(f, &fields)?,
            Err(error) => write!(f, " <{error}>")?,
        }
        put_properties(f, packet)?;
        put_body(f, packet)
    }
}

fn put_fields(f: &mut Formatter<'_>, fields: &VariableHeader<'_>) -> fmt::Result {
    let numbers = [
        ("transaction", fields.transaction_id),
        ("producer", fields.producer_id),
        ("delivery-time", fields.delivery_time),
        ("delivery-count", fields.delivery_count.map(i64::from)),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            write!(f, " {name} {value}")?;
        }
    }
    let strings = [
        ("destination", fields.destination),
        ("class", fields.destination_class),
        ("message-id", fields.message_id),
        ("correlation-id", fields.correlation_id),
        ("type", fields.message_type),
        ("reply-to", fields.reply_to),
        ("reply-to-class", fields.reply_to_class),
    ];
    for (name, value) in strings {
        if let Some(value) = value {
            write!(f, " {name} ")?;
            match decode_text(value) {
                Some(text) => put_text(f, &text)?,
                None => put_hex(f, value)?,
            }
        }
    }
    Ok(())
}

fn put_properties(f: &mut Formatter<'_>, packet: &Packet) -> fmt::Result {
    let table = match packet.properties() {
        Ok(table) => table,
        Err(error) => return write!(f, " {{{error}}}"),
    };
    if packet.property_bytes().is_empty() {
        return Ok(());
    }
    f.write_str(" {")?;
    for (at, property) in table.iter().take(ITEMS_MAX).enumerate() {
        f.write_str(if at == 0 { "" } else { ", " })?;
        put_shortened(f, &property.name_text())?;
        let value = property.value();
        write!(f, " {} ", type_name(&value))?;
        match &value {
            Value::String(text) => put_text(f, text)?,
            Value::Malformed(bytes) => put_hex(f, bytes)?,
            value => write!(f, "{value}")?,
        }
    }
    put_rest(f, table.len())?;
    f.write_str("}")
}

const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Boolean(_) => "boolean",
        Value::Byte(_) => "byte",
        Value::Short(_) => "short",
        Value::Int(_) => "int",
        Value::Long(_) => "long",
        Value::Float(_) => "float",
        Value::Double(_) => "double",
        Value::String(_) | Value::Malformed(_) => "string",
        Value::Object(_) => "object",
    }
}

fn put_body(f: &mut Formatter<'_>, packet: &Packet) -> fmt::Result {
    let raw = packet.body_bytes();
    if raw.is_empty() {
        return Ok(());
    }
    f.write_str(" body ")?;
    // Other packets have bodies too: acknowledgements, transaction ids.
    let Ok(message) = Message::from_packet(packet) else { return put_hex(f, raw) };
    match message.body() {
        Ok(Body::Text(text)) => put_text(f, text.as_deref().unwrap_or_default()),
        Ok(Body::Map(map)) => {
            f.write_str("map {")?;
            for (at, (name, value)) in map.iter().take(ITEMS_MAX).enumerate() {
                f.write_str(if at == 0 { "" } else { ", " })?;
                put_text(f, name)?;
                f.write_str(": ")?;
                put_java(f, value)?;
            }
            put_rest(f, map.len())?;
            f.write_str("}")
        }
        Ok(Body::Stream(items)) => {
            f.write_str("stream [")?;
            for (at, value) in items.iter().take(ITEMS_MAX).enumerate() {
                f.write_str(if at == 0 { "" } else { ", " })?;
                put_java(f, value)?;
            }
            put_rest(f, items.len())?;
            f.write_str("]")
        }
        Ok(Body::Bytes(_) | Body::Object(_) | Body::Plain) => put_hex(f, raw),
        Err(error @ BodyError::Java { .. }) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            write!(f, "<{error}: {}> ", cause.unwrap_or_default())?;
            put_hex(f, raw)
        }
        Err(error) => {
            write!(f, "<{error}> ")?;
            put_hex(f, raw)
        }
    }
}

/// A value with its type, where its form does not say it.
fn put_java(f: &mut Formatter<'_>, value: &JavaValue) -> fmt::Result {
    let kind = match value {
        JavaValue::String(text) => return put_text(f, text),
        JavaValue::Bytes(bytes) => {
            f.write_str("bytes ")?;
            return put_hex(f, bytes);
        }
        JavaValue::Null => return f.write_str("null"),
        JavaValue::Boolean(_) => "boolean",
        JavaValue::Byte(_) => "byte",
        JavaValue::Short(_) => "short",
        JavaValue::Char(_) => "char",
        JavaValue::Int(_) => "int",
        JavaValue::Long(_) => "long",
        JavaValue::Float(_) => "float",
        JavaValue::Double(_) => "double",
    };
    write!(f, "{kind} {value}")
}

fn put_rest(f: &mut Formatter<'_>, len: usize) -> fmt::Result {
    if len > ITEMS_MAX { write!(f, ", … {} more", len - ITEMS_MAX) } else { Ok(()) }
}

/// A text in quotes.
fn put_text(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        None => write!(f, "{text:?}"),
        Some((cut, _)) => {
            write!(f, "{:?}… ({} bytes)", text.get(..cut).unwrap_or_default(), text.len())
        }
    }
}

/// A text without quotes.
fn put_shortened(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    let (shown, more) = match text.char_indices().nth(TEXT_CHARS_MAX) {
        None => (text, ""),
        Some((cut, _)) => (text.get(..cut).unwrap_or_default(), "…"),
    };
    // Names come from the wire: nothing in them may end the line or move the cursor.
    shown
        .chars()
        .try_for_each(|c| if c.is_control() { f.write_str("�") } else { write!(f, "{c}") })?;
    f.write_str(more)
}

fn put_hex(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for byte in bytes.iter().take(BODY_BYTES_MAX) {
        write!(f, "{byte:02x}")?;
    }
    if bytes.len() > BODY_BYTES_MAX {
        write!(f, "… ({} bytes)", bytes.len())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::describe;
    use crate::{
        message::{Destination, MapBody, Message, Origin, StreamItem},
        wire::{PacketBuilder, PacketType},
    };

    fn described(mut message: Message) -> String {
        message.set_destination(Destination::queue("q").unwrap());
        message.set_property("n", 7_i32).unwrap();
        describe(&message.encode(&Origin::default()).unwrap().finish()).to_string()
    }

    #[test]
    fn a_packet_is_one_line_with_everything_in_it() {
        let text = described(Message::text("a\nb"));
        assert_eq!(
            text,
            "TEXT_MESSAGE 132 bytes, #0 flags QP priority 4 id 0-0:0:0:0:0:0:0:0-0-0 destination \
             \"q\" class \"com.sun.messaging.BasicQueue\" {n int 7} body \"a\\nb\""
        );
        let map: MapBody = [("k", StreamItem::from("v"))].into_iter().collect();
        assert!(described(Message::map(map)).ends_with("body map {\"k\": \"v\"}"));
        let stream = Message::stream(vec![StreamItem::Int(1), StreamItem::Null]);
        assert!(described(stream).ends_with("body stream [int 1, null]"));
        assert!(described(Message::bytes(vec![1, 0xAB])).ends_with("body 01ab"));
        let reply = PacketBuilder::new(PacketType::SEND_REPLY).consumer_id(9).int("JMQStatus", 200);
        let reply = describe(&reply.finish()).to_string();
        assert!(reply.contains("reply-id 9 ") && reply.ends_with("{JMQStatus int 200}"), "{reply}");
    }

    #[test]
    fn long_and_broken_parts_are_shortened_and_named() {
        let long = described(Message::text("x".repeat(100_000)));
        assert!(long.len() < 600 && long.ends_with("… (100000 bytes)"), "{long}");
        let items = described(Message::stream(vec![StreamItem::Null; 1000]));
        assert!(items.ends_with("… 936 more]"), "{items}");
        let broken = PacketBuilder::new(PacketType::MAP_MESSAGE)
            .property_section(&[0, 0, 0, 9][..])
            .body(&[1, 2][..])
            .finish();
        let broken = describe(&broken).to_string();
        assert!(broken.contains("{property table of version 9, not 1}"), "{broken}");
        assert!(broken.contains("the stream header is missing> 0102"), "{broken}");
        let lines = described(Message::text("\u{1b}[31m\r\n"));
        assert!(!lines.contains(|c: char| c.is_control()), "{lines}");
    }
}
