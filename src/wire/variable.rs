//! The variable header: destination, reply-to and other optional fields of a packet.
//!
//! Shape: entries of `i16 id, i16 length, bytes`, ended by an id of 0 and zero padding to a
//! multiple of four. Order carries no meaning; unknown ids are skipped by their length.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};

use super::{DecodeError, decode_text, limits::VARIABLE_STRING_BYTES_MAX};

/// How the end of the list is padded. Readers never look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Padding {
    /// As the Java client and the reference broker: one to four bytes, never none; no section at
    /// all if there is nothing to say.
    #[default]
    Java,
    /// As the C client: none to three bytes, and at least the empty list.
    C,
}

/// The optional fields of a packet, borrowed from its bytes.
///
/// Shape: numbers decoded, strings as the bytes on the wire; [`decode_text`] reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_structs, reason = "the wire fixes its fields")]
pub struct VariableHeader<'a> {
    /// Transaction the packet belongs to.
    pub transaction_id: Option<i64>,
    /// Producer that sent the message.
    pub producer_id: Option<i64>,
    /// When the message may be delivered, in milliseconds since 1970.
    pub delivery_time: Option<i64>,
    /// How often the message has been delivered, this time included.
    pub delivery_count: Option<i32>,
    /// Name of the destination.
    pub destination: Option<&'a [u8]>,
    /// A foreign message id in place of the packet's own.
    pub message_id: Option<&'a [u8]>,
    /// `JMSCorrelationID`.
    pub correlation_id: Option<&'a [u8]>,
    /// Name of the destination for replies.
    pub reply_to: Option<&'a [u8]>,
    /// `JMSType`.
    pub message_type: Option<&'a [u8]>,
    /// Java class of the destination.
    pub destination_class: Option<&'a [u8]>,
    /// Java class of the destination for replies.
    pub reply_to_class: Option<&'a [u8]>,
}

pub(super) const TRANSACTION_ID: i16 = 8;
pub(super) const PRODUCER_ID: i16 = 9;
pub(super) const DELIVERY_TIME: i16 = 10;
pub(super) const DELIVERY_COUNT: i16 = 11;

impl<'a> VariableHeader<'a> {
    /// Reads a section; an empty one has no fields. If a field stands twice, the last one counts.
    ///
    /// # Errors
    /// [`DecodeError::Variable`] if an entry does not fit or a number has the wrong length.
    pub fn decode(section: &'a [u8]) -> Result<Self, DecodeError> {
        let mut header = Self::default();
        for entry in Entries::new(section) {
            header.take(entry?)?;
        }
        Ok(header)
    }

    fn take(&mut self, entry: Entry<'a>) -> Result<(), DecodeError> {
        let wrong = DecodeError::Variable { id: entry.id, offset: entry.offset };
        let long = || entry.value.try_into().map(i64::from_be_bytes).map_err(|_| wrong);
        match entry.id {
            TRANSACTION_ID => self.transaction_id = Some(long()?),
            PRODUCER_ID => self.producer_id = Some(long()?),
            DELIVERY_TIME => self.delivery_time = Some(long()?),
            DELIVERY_COUNT => {
                let count = entry.value.try_into().map(i32::from_be_bytes).map_err(|_| wrong)?;
                self.delivery_count = Some(count);
            }
            id => {
                if let Some(field) = self.string_mut(id) {
                    *field = Some(entry.value);
                }
            }
        }
        Ok(())
    }

    fn string_mut(&mut self, id: i16) -> Option<&mut Option<&'a [u8]>> {
        Some(match id {
            1 => &mut self.destination,
            2 => &mut self.message_id,
            3 => &mut self.correlation_id,
            4 => &mut self.reply_to,
            5 => &mut self.message_type,
            6 => &mut self.destination_class,
            7 => &mut self.reply_to_class,
            _ => return None,
        })
    }

    /// The destination's name as text, if there is one and it is text.
    #[must_use]
    pub fn destination_text(&self) -> Option<Cow<'a, str>> {
        self.destination.and_then(decode_text)
    }

    /// Writes the section in the order of the Java writer. Strings are written as they are; a
    /// transaction id of 0 means none and is left out.
    ///
    /// # Errors
    /// The id of a string longer than the wire can say; nothing is written then.
    pub fn encode(&self, padding: Padding, out: &mut BytesMut) -> Result<(), i16> {
        self.check()?;
        self.put(padding, out);
        Ok(())
    }

    /// Whether every string fits.
    ///
    /// # Errors
    /// As of [`encode`](Self::encode).
    pub(crate) fn check(&self) -> Result<(), i16> {
        let too_long = |value: Option<&[u8]>| {
            value.is_some_and(|value| value.len() > VARIABLE_STRING_BYTES_MAX)
        };
        let found = self.strings().into_iter().find(|&(_, value)| too_long(value));
        found.map_or(Ok(()), |(id, _)| Err(id))
    }

    fn strings(&self) -> [(i16, Option<&'a [u8]>); 7] {
        [
            (1, self.destination),
            (2, self.message_id),
            (3, self.correlation_id),
            (4, self.reply_to),
            (5, self.message_type),
            (6, self.destination_class),
            (7, self.reply_to_class),
        ]
    }

    /// Writes the section; the caller has made sure that its strings fit.
    pub(crate) fn put(&self, padding: Padding, out: &mut BytesMut) {
        let strings = self.strings();
        let start = out.len();
        // Four numbers, the heads of the entries and the end, whether they are there or not.
        let text: usize = strings.iter().filter_map(|&(_, value)| value).map(<[u8]>::len).sum();
        if text > 0 {
            out.reserve(text + 11 * 4 + 3 * 8 + 4 + 6);
        }
        let longs = [
            (TRANSACTION_ID, self.transaction_id.filter(|&id| id != 0)),
            (PRODUCER_ID, self.producer_id),
            (DELIVERY_TIME, self.delivery_time),
        ];
        for (id, value) in longs {
            if let Some(value) = value {
                put_entry(id, &value.to_be_bytes(), out);
            }
        }
        if let Some(count) = self.delivery_count {
            put_entry(DELIVERY_COUNT, &count.to_be_bytes(), out);
        }
        for (id, value) in strings {
            if let Some(value) = value {
                put_entry(id, value, out);
            }
        }
        if out.len() > start || padding == Padding::C {
            end_list(padding, start, out);
        }
    }
}

/// Writes one entry; the caller has made sure that its length fits.
pub(super) fn put_entry(id: i16, value: &[u8], out: &mut BytesMut) {
    debug_assert!(value.len() <= VARIABLE_STRING_BYTES_MAX);
    out.put_i16(id);
    out.put_u16(u16::try_from(value.len()).unwrap_or(0));
    out.put_slice(value);
}

/// Writes the terminator and the padding of a list that began at `start`.
pub(super) fn end_list(padding: Padding, start: usize, out: &mut BytesMut) {
    out.put_i16(0);
    let len = out.len() - start;
    let pad = match padding {
        Padding::Java => 4 - len % 4,
        Padding::C => (4 - len % 4) % 4,
    };
    out.put_bytes(0, pad);
}

/// One entry of the list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) id: i16,
    pub(super) offset: usize,
    pub(super) value: &'a [u8],
}

/// Walks the entries up to the terminator.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    section: &'a [u8],
    at: usize,
}

impl<'a> Entries<'a> {
    pub(super) const fn new(section: &'a [u8]) -> Self {
        Self { section, at: 0 }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.at;
        // A list may end with its section instead of a terminator.
        let [a, b, tail @ ..] = self.section.get(offset..)? else { return None };
        let id = i16::from_be_bytes([*a, *b]);
        if id == 0 {
            return None;
        }
        let value = match tail {
            [c, d, value @ ..] => usize::try_from(i16::from_be_bytes([*c, *d]))
                .ok()
                .and_then(|length| value.get(..length)),
            _ => None,
        };
        // After a broken entry there is no telling where the next one starts.
        self.at = value.map_or(self.section.len(), |value| offset + 4 + value.len());
        Some(value.map_or(Err(DecodeError::Variable { id, offset }), |value| {
            Ok(Entry { id, offset, value })
        }))
    }
}
