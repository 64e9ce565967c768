//! Cuts a stream of bytes into packets, whatever the network made of it.
//!
//! # Invariants
//! - Bytes are consumed only as whole packets, so any split gives the same packets.
//! - A packet that lies whole in what was fed is a slice of it: no copy, no allocation. Only a
//!   packet that spans two feeds is gathered in a buffer of its own, which grows with what has
//!   arrived, never with what a header promises.
//! - After an error the stream has no known packet boundary and nothing more comes out.

use bytes::{Buf, Bytes, BytesMut};

use super::{DecodeError, HEADER_LEN, Header, Packet};

/// What the decoder found.
#[derive(Debug, Clone)]
#[allow(clippy::exhaustive_enums, reason = "callers must handle each of the two")]
pub enum Frame {
    /// A packet.
    Packet(Packet),
    /// A packet over the size limit. Its bytes are skipped as they come, without being kept.
    Oversized(Header),
}

/// Incremental decoder of one direction of one connection.
///
/// Shape: what was fed and not yet taken, at most one partial packet, and a count of bytes to skip.
#[derive(Debug)]
pub struct Decoder {
    limit: u32,
    fed: Bytes,
    partial: BytesMut,
    skip: u64,
    failed: Option<DecodeError>,
}

impl Decoder {
    /// A decoder that refuses packets over `limit` bytes.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { limit, fed: Bytes::new(), partial: BytesMut::new(), skip: 0, failed: None }
    }

    /// Changes the size limit; holds from the next header on.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Adds bytes that arrived. Take all frames out before the next call.
    pub fn feed(&mut self, bytes: Bytes) {
        if self.fed.is_empty() {
            self.fed = bytes;
        } else {
            let mut both = BytesMut::with_capacity(self.fed.len() + bytes.len());
            both.extend_from_slice(&self.fed);
            both.extend_from_slice(&bytes);
            self.fed = both.freeze();
        }
    }

    /// The next frame, if a whole one has arrived. When this gives `None`, what is left of a
    /// packet has been put aside, and the fed bytes are no longer held.
    ///
    /// # Errors
    /// [`DecodeError`] if the stream is not one of packets; the same again on every later call.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let found = self.cut();
        if let Err(error) = found {
            self.failed = Some(error);
            self.fed = Bytes::new();
            self.partial = BytesMut::new();
        }
        found
    }

    /// Whether a packet has begun to arrive and is not whole.
    #[must_use]
    pub fn is_mid_packet(&self) -> bool {
        !self.partial.is_empty() || self.skip > 0
    }

    fn cut(&mut self) -> Result<Option<Frame>, DecodeError> {
        self.skip_bytes();
        if !self.partial.is_empty() {
            return self.complete_partial();
        }
        let Some(header) = self.fed.first_chunk::<HEADER_LEN>() else {
            self.put_aside();
            return Ok(None);
        };
        let header = Header::decode(header)?;
        if header.size > self.limit {
            return Ok(Some(self.begin_skip(header)));
        }
        if self.fed.len() < header.size as usize {
            self.put_aside();
            return Ok(None);
        }
        let bytes = self.fed.split_to(header.size as usize);
        Packet::decode(bytes).map(|packet| Some(Frame::Packet(packet)))
    }

    fn complete_partial(&mut self) -> Result<Option<Frame>, DecodeError> {
        self.take_until(HEADER_LEN);
        let Some(header) = self.partial.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let header = Header::decode(header)?;
        if header.size > self.limit {
            return Ok(Some(self.begin_skip(header)));
        }
        self.take_until(header.size as usize);
        if self.partial.len() < header.size as usize {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.partial).freeze();
        Packet::decode(bytes).map(|packet| Some(Frame::Packet(packet)))
    }

    /// Moves fed bytes to the partial packet until it has `len`.
    fn take_until(&mut self, len: usize) {
        let missing = len.saturating_sub(self.partial.len()).min(self.fed.len());
        self.partial.extend_from_slice(&self.fed.split_to(missing));
    }

    /// Copies the unfinished rest, so that it does not hold on to the buffer it was read into.
    fn put_aside(&mut self) {
        self.partial = BytesMut::from(&self.fed[..]);
        self.fed = Bytes::new();
    }

    fn begin_skip(&mut self, header: Header) -> Frame {
        self.skip = u64::from(header.size) - self.partial.len() as u64;
        self.partial = BytesMut::new();
        self.skip_bytes();
        Frame::Oversized(header)
    }

    fn skip_bytes(&mut self) {
        let now = self.fed.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
        self.fed.advance(now);
        self.skip -= now as u64;
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};

    use super::{Decoder, Frame};
    use crate::wire::{DecodeError, PacketBuilder, PacketType};

    fn packets() -> Vec<Bytes> {
        [(PacketType::PING, 0), (PacketType::TEXT_MESSAGE, 300), (PacketType::BYTES_MESSAGE, 5000)]
            .into_iter()
            .map(|(kind, len)| {
                PacketBuilder::new(kind).int("n", 7).body(vec![b'x'; len]).finish().raw().clone()
            })
            .collect()
    }

    fn decode(chunks: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
        let mut decoder = Decoder::new(1 << 20);
        let mut found = Vec::new();
        for chunk in chunks {
            decoder.feed(chunk);
            while let Some(frame) = decoder.next_frame().unwrap() {
                match frame {
                    Frame::Packet(packet) => found.push(packet.raw().clone()),
                    Frame::Oversized(header) => panic!("{header:?}"),
                }
            }
        }
        assert!(!decoder.is_mid_packet());
        found
    }

    #[test]
    fn every_split_gives_the_same_packets() {
        let wanted = packets();
        let stream = Bytes::from(wanted.concat());
        for cut in 0..stream.len() {
            assert_eq!(decode([stream.slice(..cut), stream.slice(cut..)]), wanted, "cut at {cut}");
        }
        for size in [1, 7, 71, 72, 73, 4096] {
            let chunks = stream.chunks(size).map(Bytes::copy_from_slice);
            assert_eq!(decode(chunks), wanted, "chunks of {size}");
        }
    }

    #[test]
    fn packets_that_arrive_whole_share_the_fed_bytes() {
        let stream = Bytes::from(packets().concat());
        let mut decoder = Decoder::new(1 << 20);
        decoder.feed(stream.clone());
        let mut at = 0;
        while let Some(Frame::Packet(packet)) = decoder.next_frame().unwrap() {
            assert_eq!(packet.raw().as_ptr(), stream[at..].as_ptr());
            at += packet.raw().len();
        }
        assert_eq!(at, stream.len());
    }

    #[test]
    fn oversized_packets_are_skipped_at_any_split_and_the_next_one_is_found() {
        let big = PacketBuilder::new(PacketType::BYTES_MESSAGE).body(vec![1; 5000]).finish();
        let ping = PacketBuilder::new(PacketType::PING).finish();
        let mut stream = BytesMut::from(&big.raw()[..]);
        stream.extend_from_slice(ping.raw());
        let stream = stream.freeze();
        for size in [1, 50, 72, 100, 5072, 6000] {
            let mut decoder = Decoder::new(1000);
            let mut seen = Vec::new();
            for chunk in stream.chunks(size) {
                decoder.feed(Bytes::copy_from_slice(chunk));
                while let Some(frame) = decoder.next_frame().unwrap() {
                    seen.push(match frame {
                        Frame::Packet(packet) => packet.header().packet_type,
                        Frame::Oversized(header) => header.packet_type,
                    });
                }
            }
            assert_eq!(seen, [PacketType::BYTES_MESSAGE, PacketType::PING], "chunks of {size}");
        }
    }

    #[test]
    fn a_stream_that_is_none_of_packets_fails_once_and_for_all() {
        let mut decoder = Decoder::new(1000);
        decoder.feed(Bytes::from(vec![b'G'; 100]));
        let magic = Err(DecodeError::Magic { found: 0x4747_4747 });
        assert_eq!(decoder.next_frame().map(|_| ()), magic);
        decoder.feed(packets()[0].clone());
        assert_eq!(decoder.next_frame().map(|_| ()), magic);
    }
}
