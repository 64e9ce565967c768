//! Any text as a selector, and any bytes as the message it is asked about.

use bytes::{BufMut, BytesMut};

use crate::{
    selector::{Dialect, Selector},
    wire::{Flags, HEADER_LEN, Header, MessageId, Packet, PacketType},
};

/// Ends the selector: no byte of any text.
const END: u8 = 0xFF;

/// Parses a selector, and evaluates it and others made from it.
///
/// Shape of `data`: a byte (bit 0 the reference's dialect, bit 1 persistent, the four highest the
/// priority), the selector, 0xFF, a byte that says how long the variable header is, the variable
/// header, the property table.
///
/// # Panics
/// If a refusal points nowhere, or what must be equivalent is not.
pub fn selector(data: &[u8]) {
    let Some((&head, rest)) = data.split_first() else { return };
    let dialect = if head & 1 == 0 { Dialect::Jms } else { Dialect::Reference };
    let end = rest.iter().position(|&byte| byte == END).unwrap_or(rest.len());
    let (text, rest) = rest.split_at(end);
    let text = String::from_utf8_lossy(text);
    let selector = match Selector::parse(&text, dialect) {
        Ok(selector) => selector,
        Err(error) => {
            let told = error.to_string();
            assert!(told.len() < 500 && !told.contains(char::is_control), "{told:?}");
            let places = 1..=text.chars().count() + 1;
            assert!(error.column().is_none_or(|column| places.contains(&column)), "{told}");
            return;
        }
    };
    assert_eq!(selector.text(), text);
    let Some(message) = message(head, rest.get(1..).unwrap_or_default()) else { return };
    let matches = selector.matches(&message);
    assert_eq!(matches, selector.matches(&message), "the same question twice");
    let ask = |text: String| {
        // It may have become too long or too deep.
        let selector = Selector::parse(&text, dialect).ok()?;
        Some(selector.matches(&message))
    };
    for same in ["({})", "({}) AND TRUE", "FALSE OR ({})", "NOT (NOT ({}))", "({}) = TRUE"] {
        let answer = ask(same.replace("{}", &text));
        assert!(answer.is_none_or(|answer| answer == matches), "{same}: {text}");
    }
    let opposite = ask(format!("NOT ({text})"));
    assert!(opposite.is_none_or(|opposite| !(opposite && matches)), "{text} and not");
}

/// A message with these sections, whatever is in them.
fn message(head: u8, rest: &[u8]) -> Option<Packet> {
    let (&len, rest) = rest.split_first()?;
    let (variable, properties) = rest.split_at_checked(len.into())?;
    let property_offset = u32::try_from(HEADER_LEN + variable.len()).ok()?;
    let property_size = u32::try_from(properties.len()).ok()?;
    let header = Header {
        packet_type: PacketType::TEXT_MESSAGE,
        size: property_offset.checked_add(property_size)?,
        expiration: 0,
        id: MessageId { timestamp: 4, address: [7; 16], port: 3, sequence: 9 },
        property_offset,
        property_size,
        priority: head >> 4,
        encryption: 0,
        flags: Flags::empty().set(Flags::PERSISTENT, head & 2 != 0),
        consumer_id: 0,
    };
    let mut bytes = BytesMut::new();
    bytes.put_slice(&header.encode());
    bytes.put_slice(variable);
    bytes.put_slice(properties);
    let packet = Packet::decode(bytes.freeze());
    Some(packet.expect("the sections lie where the header says"))
}
