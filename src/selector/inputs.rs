//! What a message has for the names in a selector, read from its bytes as they are.

use std::io::Write as _;

use super::{
    program::{Field, Program},
    value::Value,
};
use crate::wire::{Flags, Packet, PropertyTable, RawText};

/// Room for a message id as text: two numbers of 32 bits, one of 64, the longest address, and what
/// stands between them.
const MESSAGE_ID_BYTES: usize = 96;

/// Where the text of a message id is written, as the wire has it in binary.
pub(super) struct MessageIdText {
    bytes: [u8; MESSAGE_ID_BYTES],
}

impl MessageIdText {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; MESSAGE_ID_BYTES] }
    }

    fn write(&mut self, packet: &Packet) -> Value<'_> {
        let mut room = self.bytes.as_mut_slice();
        let fits = write!(room, "ID:{}", packet.header().id).is_ok();
        let left = room.len();
        let (text, _) = self.bytes.split_at(MESSAGE_ID_BYTES - left);
        if fits { Value::of_text(text) } else { Value::Unreadable }
    }
}

/// Puts the message's values where the program expects them. `values` starts as all UNKNOWN.
///
/// A property table that cannot be read makes every property unreadable, and so does a variable
/// header its fields.
pub(super) fn read<'a>(
    program: &Program,
    packet: &'a Packet,
    id: &'a mut MessageIdText,
    values: &mut [Value<'a>],
) {
    if !program.properties.is_empty() {
        read_properties(program, packet, values);
    }
    if program.fields.is_empty() {
        return;
    }
    let header = packet.header();
    let variable = packet.variable();
    let text = |bytes: Option<&'a [u8]>| bytes.map_or(Value::Unknown, Value::of_text);
    let mut id = Some(id);
    for &(field, input) in &program.fields {
        let value = match (field, &variable) {
            (Field::DeliveryMode, _) => {
                let persistent = header.flags.contains(Flags::PERSISTENT);
                let name = if persistent { "PERSISTENT" } else { "NON_PERSISTENT" };
                Value::Text(RawText::Plain(name))
            }
            (Field::Priority, _) => Value::Integer(header.priority.into()),
            (Field::Timestamp, _) => Value::Integer(header.id.timestamp),
            (Field::CorrelationId, Ok(variable)) => text(variable.correlation_id),
            (Field::Type, Ok(variable)) => text(variable.message_type),
            (Field::MessageId, Ok(variable)) => match (variable.message_id, id.take()) {
                (Some(foreign), _) => Value::of_text(foreign),
                (None, Some(id)) => id.write(packet),
                // A field has one input, so this is the second one of none.
                (None, None) => Value::Unreadable,
            },
            (Field::CorrelationId | Field::Type | Field::MessageId, Err(_)) => Value::Unreadable,
        };
        if let Some(place) = values.get_mut(usize::from(input)) {
            *place = value;
        }
    }
}

fn read_properties<'a>(program: &Program, packet: &'a Packet, values: &mut [Value<'a>]) {
    let walked = PropertyTable::walk(packet.property_bytes(), |property| {
        let place = program.input_of(property.name).and_then(|at| values.get_mut(at));
        // The first one of a name counts, as everywhere.
        if let Some(place @ Value::Unknown) = place {
            *place = Value::of_property(&property);
        }
    });
    if walked.is_err() {
        for &(_, input) in &program.properties {
            if let Some(place) = values.get_mut(usize::from(input)) {
                *place = Value::Unreadable;
            }
        }
    }
}
