//! Values under their checksum: how they begin, and how their fields are written and read.

use bytes::Bytes;

use super::super::{Batch, Space, StoreError};
use crate::wire::{DecodeError, HEADER_LEN, Packet};

/// The form of all values as they are written today.
const VERSION: u8 = 1;

/// Checksum and version.
pub(super) const PREFIX_LEN: usize = 5;

/// Why a value cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("its key is not one of this space")]
    Key,
    #[error("it is shorter than a checksum and a version")]
    NoPrefix,
    #[error("its checksum is {found:08x}, and what was found has {of_found:08x}")]
    Checksum { found: u32, of_found: u32 },
    #[error("it has version {found}, and this program knows {VERSION}")]
    Version { found: u8 },
    #[error("it ends inside a field")]
    Short,
    #[error("{0} bytes are left behind its last field")]
    Left(usize),
    #[error("{found} stands where only numbers below {below} have a meaning")]
    Choice { found: u8, below: u8 },
    #[error("a text in it is not UTF-8")]
    Text,
    #[error("its packet cannot be read: {0}")]
    Packet(#[from] DecodeError),
}

/// Where an entry is, for people.
pub(in crate::store) fn place(space: Space, key: &[u8]) -> String {
    let number = |at: usize| {
        let part = key.get(at..at + 8)?.first_chunk()?;
        Some(u64::from_be_bytes(*part))
    };
    let numbers = match (key.len(), number(0), number(8)) {
        (8, Some(first), _) => first.to_string(),
        (9, Some(first), _) => format!("{first}/{}", key[8]),
        (16, Some(first), Some(second)) => format!("{first}/{second}"),
        _ => format!("\"{}\"", key.escape_ascii()),
    };
    format!("{space} {numbers}")
}

pub(super) fn corrupt(space: Space, key: &[u8], fault: &Fault) -> StoreError {
    StoreError::Corrupt { place: place(space, key), reason: fault.to_string() }
}

/// Adds an entry whose fields `write` appends.
pub(super) fn put(batch: &mut Batch, space: Space, key: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
    put_with_body(batch, space, key, write, &[], Bytes::new());
}

/// As [`put`], with the last of its bytes shared; `body_bytes` are those of `body`.
pub(super) fn put_with_body(
    batch: &mut Batch,
    space: Space,
    key: &[u8],
    write: impl FnOnce(&mut Vec<u8>),
    body_bytes: &[u8],
    body: Bytes,
) {
    debug_assert_eq!(body_bytes, body);
    let head = |out: &mut Vec<u8>| {
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, VERSION]);
        write(out);
        let sealed = checksum(space, key, [&out[start + 4..], body_bytes]);
        out[start..start + 4].copy_from_slice(&sealed.to_be_bytes());
    };
    batch.put(space, key, head, body);
}

/// The checksum also knows the space, as keys of several spaces look alike.
fn checksum(space: Space, key: &[u8], parts: [&[u8]; 2]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[space as u8]);
    hasher.update(key);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// Reads the fields of a value.
///
/// Lengths that stand in it are compared with what is there before anything is made of them.
pub(super) struct Reader {
    rest: Bytes,
}

impl Reader {
    /// The fields of a value, once checksum and version have been found right.
    pub(super) fn of_value(space: Space, key: &[u8], value: &Bytes) -> Result<Self, Fault> {
        let (sealed, behind) = value.split_first_chunk::<4>().ok_or(Fault::NoPrefix)?;
        let version = *behind.first().ok_or(Fault::NoPrefix)?;
        let found = u32::from_be_bytes(*sealed);
        let of_found = checksum(space, key, [behind, &[]]);
        if found != of_found {
            return Err(Fault::Checksum { found, of_found });
        }
        if version != VERSION {
            return Err(Fault::Version { found: version });
        }
        Ok(Self { rest: value.slice(PREFIX_LEN..) })
    }

    /// The next bytes, shared.
    fn take(&mut self, len: u64) -> Result<Bytes, Fault> {
        match usize::try_from(len) {
            Ok(len) if len <= self.rest.len() => Ok(self.rest.split_to(len)),
            _ => Err(Fault::Short),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let bytes = *self.rest.first_chunk::<N>().ok_or(Fault::Short)?;
        self.rest = self.rest.slice(N..);
        Ok(bytes)
    }

    /// One of so many choices.
    pub(super) fn choice(&mut self, below: u8) -> Result<u8, Fault> {
        let [found] = self.array()?;
        if found < below { Ok(found) } else { Err(Fault::Choice { found, below }) }
    }

    pub(super) fn truth(&mut self) -> Result<bool, Fault> {
        Ok(self.choice(2)? == 1)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Fault> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Fault> {
        self.array().map(i64::from_be_bytes)
    }

    /// Bytes behind their length, in memory of their own.
    pub(super) fn bytes(&mut self) -> Result<Bytes, Fault> {
        let len = self.u64()?;
        Ok(Bytes::copy_from_slice(&self.take(len)?))
    }

    /// A text behind its length.
    pub(super) fn text(&mut self) -> Result<String, Fault> {
        let len = self.u64()?;
        String::from_utf8(self.take(len)?.into()).map_err(|_| Fault::Text)
    }

    /// A packet behind its length, shared.
    pub(super) fn packet(&mut self) -> Result<Packet, Fault> {
        let len = self.u64()?;
        Ok(Packet::decode(self.take(len)?)?)
    }

    /// A packet that is all there is left, shared.
    pub(super) fn last_packet(self) -> Result<Packet, Fault> {
        Ok(Packet::decode(self.rest)?)
    }

    /// What may be there.
    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        if self.truth()? { read(self).map(Some) } else { Ok(None) }
    }

    /// A list behind its length. No item is empty, so a list has at most as many as bytes follow.
    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let count = self.u64()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    /// Makes sure that nothing follows.
    pub(super) fn end(self) -> Result<(), Fault> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(Fault::Left(left)),
        }
    }
}

/// Writes what [`Reader`] reads.
pub(super) trait Write {
    fn number<const N: usize>(&mut self, bytes: [u8; N]);
    fn bytes(&mut self, bytes: &[u8]);
    fn packet(&mut self, packet: &Packet);
    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T));
    fn list<T>(&mut self, items: &[T], write: impl FnMut(&mut Self, &T));
}

impl Write for Vec<u8> {
    fn number<const N: usize>(&mut self, bytes: [u8; N]) {
        self.extend_from_slice(&bytes);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number((bytes.len() as u64).to_be_bytes());
        self.extend_from_slice(bytes);
    }

    fn packet(&mut self, packet: &Packet) {
        let (header, behind) = packet_parts(packet);
        self.number(((header.len() + behind.len()) as u64).to_be_bytes());
        self.extend_from_slice(&header);
        self.extend_from_slice(behind);
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.number((items.len() as u64).to_be_bytes());
        for item in items {
            write(self, item);
        }
    }
}

/// A packet as it is written: its decoded header, which may differ from the bytes it came in, and
/// the bytes behind that.
pub(super) fn packet_parts(packet: &Packet) -> ([u8; HEADER_LEN], &[u8]) {
    let behind = packet.raw().get(HEADER_LEN..);
    (packet.header().encode(), behind.unwrap_or_default())
}
