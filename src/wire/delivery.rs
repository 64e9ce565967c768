//! Rewrites a stored message for the consumer it goes to.
//!
//! A delivered packet is the produced one with another consumer id, a delivery count, and the
//! flags R, F, C and L set for this delivery; everything else stays as produced. Only the header
//! and the variable header are written anew, properties and body are the producer's bytes.

use bytes::{BufMut, BytesMut};

use super::{
    DecodeError, Flags, HEADER_LEN, Packet, Padding,
    variable::{
        DELIVERY_COUNT, DELIVERY_TIME, Entries, PRODUCER_ID, TRANSACTION_ID, end_list, put_entry,
    },
};

/// Id and length of an entry.
const ENTRY_HEAD_LEN: usize = 4;

/// The end of the list, with its padding.
const PADDING_MAX: usize = 6;

/// What one delivery adds to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "plain data between two modules")]
pub struct Delivery {
    /// The consumer it goes to.
    pub consumer_id: i64,
    /// How often the message has been delivered, this time included; R is set from 2 on. `None`
    /// for browsers, whose deliveries do not count.
    pub count: Option<i32>,
    /// Consumer metering: the consumer's credit is used up.
    pub consumer_flow: bool,
    /// Connection metering: the connection's batch is used up.
    pub flow_paused: bool,
    /// The last message of a browse batch.
    pub last: bool,
}

/// Writes the delivered packet up to its properties; [`Packet::tail`] follows.
///
/// # Errors
/// [`DecodeError::Variable`] if the message's variable header cannot be read; nothing is written.
pub fn encode_head(
    packet: &Packet,
    delivery: &Delivery,
    out: &mut BytesMut,
) -> Result<(), DecodeError> {
    let start = out.len();
    out.put_bytes(0, HEADER_LEN);
    if let Err(error) = put_variable(packet.variable_bytes(), delivery.count, out) {
        out.truncate(start);
        return Err(error);
    }
    let mut header = *packet.header();
    let old = header.property_offset;
    // The section grew by one entry of eight bytes at most; the packet limit is far below 2^31.
    let offset = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    header.size = (header.size - old).saturating_add(offset);
    header.property_offset = offset;
    header.consumer_id = delivery.consumer_id;
    header.flags = header
        .flags
        .set(Flags::REDELIVERED, delivery.count.is_some_and(|count| count > 1))
        .set(Flags::CONSUMER_FLOW, delivery.consumer_flow)
        .set(Flags::FLOW_PAUSED, delivery.flow_paused)
        .set(Flags::LAST, delivery.last);
    if let Some(place) = out.get_mut(start..start + HEADER_LEN) {
        place.copy_from_slice(&header.encode());
    }
    Ok(())
}

/// Copies the entries, with the delivery count where the Java writer has it: behind the numbers
/// and before the strings.
fn put_variable(section: &[u8], count: Option<i32>, out: &mut BytesMut) -> Result<(), DecodeError> {
    let start = out.len();
    // Where the numbers at the front end, and where the last entry does.
    let (mut numbers, mut end) = (0, 0);
    for entry in Entries::new(section) {
        let entry = entry?;
        let is_number = matches!(entry.id, TRANSACTION_ID | PRODUCER_ID | DELIVERY_TIME);
        if entry.id == DELIVERY_COUNT {
            return put_entries(section, count, out);
        }
        let is_at_front = is_number && numbers == end;
        end = entry.offset + ENTRY_HEAD_LEN + entry.value.len();
        if is_at_front {
            numbers = end;
        }
    }
    out.reserve(end + 2 * ENTRY_HEAD_LEN + PADDING_MAX);
    let (front, rest) = section.get(..end).unwrap_or_default().split_at(numbers);
    out.extend_from_slice(front);
    put_count(count, out);
    out.extend_from_slice(rest);
    if out.len() > start {
        end_list(Padding::Java, start, out);
    }
    Ok(())
}

/// The same for a message that came with a count, which is left out.
fn put_entries(section: &[u8], count: Option<i32>, out: &mut BytesMut) -> Result<(), DecodeError> {
    let start = out.len();
    let mut pending = count;
    for entry in Entries::new(section) {
        let entry = entry?;
        match entry.id {
            DELIVERY_COUNT => continue,
            TRANSACTION_ID | PRODUCER_ID | DELIVERY_TIME => {}
            _ => put_count(pending.take(), out),
        }
        put_entry(entry.id, entry.value, out);
    }
    put_count(pending, out);
    if out.len() > start {
        end_list(Padding::Java, start, out);
    }
    Ok(())
}

fn put_count(count: Option<i32>, out: &mut BytesMut) {
    if let Some(count) = count {
        put_entry(DELIVERY_COUNT, &count.to_be_bytes(), out);
    }
}
