//! Cuts a stream of bytes into packets, whatever the network made of it.
//!
//! # Invariants
//! - Bytes are consumed only as whole packets, so any split gives the same packets.
//! - A packet that lies whole in what was fed is a slice of it: no copy, no allocation. Only a
//!   packet that spans two feeds is gathered in a buffer of its own. Up to
//!   [`GATHER_BYTES`] it is allocated once; beyond that it grows with what has arrived, so a header
//!   that promises much gets little.
//! - After an error the stream has no known packet boundary and nothing more comes out.

use bytes::{Buf as _, Bytes, BytesMut};

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
    /// The first bytes of a header that has not arrived whole.
    head: [u8; HEADER_LEN],
    head_len: usize,
    /// A packet whose header has arrived and whose rest has not.
    partial: BytesMut,
    /// The header of that packet.
    partial_header: Option<Header>,
    skip: u64,
    failed: Option<DecodeError>,
}

impl Decoder {
    /// A decoder that refuses packets over `limit` bytes.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self {
            limit,
            fed: Bytes::new(),
            head: [0; HEADER_LEN],
            head_len: 0,
            partial: BytesMut::new(),
            partial_header: None,
            skip: 0,
            failed: None,
        }
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
            (self.head_len, self.partial_header) = (0, None);
        }
        found
    }

    /// Whether a packet has begun to arrive and is not whole.
    #[must_use]
    pub fn is_mid_packet(&self) -> bool {
        self.head_len > 0 || self.partial_header.is_some() || self.skip > 0
    }

    fn cut(&mut self) -> Result<Option<Frame>, DecodeError> {
        self.skip_bytes();
        if let Some(header) = self.partial_header {
            return Ok(self.complete_partial(header));
        }
        let whole = self.fed.first_chunk::<HEADER_LEN>().filter(|_| self.head_len == 0);
        let Some(header) = whole else { return self.complete_head() };
        let header = Header::decode(header)?;
        let size = header.size as usize;
        if header.size > self.limit {
            return Ok(Some(self.begin_skip(header, 0)));
        }
        if self.fed.len() < size {
            self.begin_partial(header);
            return Ok(self.complete_partial(header));
        }
        let bytes = self.fed.split_to(size);
        Ok(Some(Frame::Packet(Packet::from_decoded(header, bytes))))
    }

    /// Gathers a header that was cut.
    fn complete_head(&mut self) -> Result<Option<Frame>, DecodeError> {
        let now = (HEADER_LEN - self.head_len).min(self.fed.len());
        let place = self.head.get_mut(self.head_len..self.head_len + now).unwrap_or_default();
        self.fed.copy_to_slice(place);
        self.head_len += now;
        if self.head_len < HEADER_LEN {
            // Whatever buffer was fed is used up and need not be held.
            self.fed = Bytes::new();
            return Ok(None);
        }
        self.head_len = 0;
        let header = Header::decode(&self.head)?;
        if header.size > self.limit {
            return Ok(Some(self.begin_skip(header, HEADER_LEN)));
        }
        self.begin_partial(header);
        self.partial.extend_from_slice(&self.head);
        Ok(self.complete_partial(header))
    }

    fn begin_partial(&mut self, header: Header) {
        self.partial_header = Some(header);
        self.partial = BytesMut::with_capacity((header.size as usize).min(GATHER_BYTES));
    }

    fn complete_partial(&mut self, header: Header) -> Option<Frame> {
        let size = header.size as usize;
        let missing = size - self.partial.len();
        let now = missing.min(self.fed.len());
        self.make_room(now, size);
        self.partial.extend_from_slice(&self.fed.split_to(now));
        if now < missing {
            // The copy lets go of the buffer that was fed.
            self.fed = Bytes::new();
            return None;
        }
        self.partial_header = None;
        let bytes = std::mem::take(&mut self.partial).freeze();
        Some(Frame::Packet(Packet::from_decoded(header, bytes)))
    }

    /// Doubles the buffer when it is full, and never past its packet: a buffer that ends up exactly
    /// full becomes the packet's bytes without another allocation.
    fn make_room(&mut self, more: usize, size: usize) {
        let (len, capacity) = (self.partial.len(), self.partial.capacity());
        if len + more <= capacity {
            return;
        }
        let room = (capacity * 2).max(len + more).min(size);
        let mut larger = BytesMut::with_capacity(room);
        larger.extend_from_slice(&self.partial);
        self.partial = larger;
    }

    /// Skips a packet of whose bytes this many are gone already.
    fn begin_skip(&mut self, header: Header, gone: usize) -> Frame {
        self.skip = u64::from(header.size) - gone as u64;
        self.skip_bytes();
        Frame::Oversized(header)
    }

    fn skip_bytes(&mut self) {
        let now = self.fed.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
        self.fed.advance(now);
        self.skip -= now as u64;
    }
}

/// The buffer a packet that spans feeds gets at once, in bytes.
const GATHER_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};

    use super::{Decoder, Frame, GATHER_BYTES};
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
    fn packets_that_end_on_the_edge_of_a_read_are_neither_lost_nor_doubled() {
        let ping = PacketBuilder::new(PacketType::PING).finish();
        for edge in [4_096, 8_192, 65_536] {
            for end in edge - 1..=edge + 1 {
                let first = PacketBuilder::new(PacketType::BYTES_MESSAGE);
                let first = first.body(vec![7; end - 72]).finish();
                assert_eq!(first.raw().len(), end);
                let wanted = [first.raw().clone(), ping.raw().clone(), first.raw().clone()];
                let stream = Bytes::from(wanted.concat());
                let chunks = stream.chunks(edge).map(Bytes::copy_from_slice);
                assert_eq!(decode(chunks), wanted, "{end} bytes in reads of {edge}");
            }
        }
    }

    #[test]
    fn a_large_packet_and_what_follows_in_the_same_write_both_come_out() {
        let big = PacketBuilder::new(PacketType::BYTES_MESSAGE).body(vec![1; 3 << 20]).finish();
        let ping = PacketBuilder::new(PacketType::PING).finish();
        let wanted = [big.raw().clone(), ping.raw().clone()];
        let stream = Bytes::from(wanted.concat());
        for size in [4_096, 65_536, 262_144, stream.len()] {
            let mut decoder = Decoder::new(4 << 20);
            let mut found = Vec::new();
            for chunk in stream.chunks(size) {
                decoder.feed(Bytes::copy_from_slice(chunk));
                while let Some(Frame::Packet(packet)) = decoder.next_frame().unwrap() {
                    found.push(packet.raw().clone());
                }
            }
            assert!(found == wanted, "reads of {size}");
        }
    }

    #[test]
    fn a_header_that_promises_much_gets_little() {
        let big = PacketBuilder::new(PacketType::BYTES_MESSAGE).body(vec![1; 1 << 20]).finish();
        let mut decoder = Decoder::new(2 << 20);
        decoder.feed(big.raw().slice(..100));
        assert!(decoder.next_frame().unwrap().is_none());
        assert!(decoder.is_mid_packet());
        assert_eq!(decoder.partial.capacity(), GATHER_BYTES);
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
