//! The broker's end of a connection, outgoing half: two lanes into one stream of bytes.
//!
//! Control packets overtake messages that are still staged. Messages go as far as the meter
//! allows: the last one of a batch carries F, then the lane waits for the client. Bytes once
//! encoded keep their order.
//!
//! # Invariants
//! - A message is encoded only while it is current: the session it was dispatched for still runs.
//! - At most [`TRANSMIT_BYTES`] beyond one packet are encoded and not sent.
//! - A message counts as sent when its last byte was taken by the transport.

use std::{collections::VecDeque, io::IoSlice};

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    flow::Meter,
    wire::{DecodeError, MessageId, PacketType, Status, put_status_reply},
};

/// Most bytes encoded ahead of one write.
pub const TRANSMIT_BYTES: usize = 256 * 1024;

/// Most pieces of one vectored write: two for each message of a metered batch of 100, and some.
pub const SLICES_MAX: usize = 256;

/// Bodies up to this size are copied behind their header, larger ones stay shared: below it a
/// copy costs less than one more piece in a vectored write.
const COPY_BYTES_MAX: usize = 512;

/// A message on its way to a consumer.
pub trait Payload {
    /// Whether it may still be sent.
    fn is_current(&self) -> bool;

    /// Whether it counts for the meter. What does not overtakes what does.
    fn is_metered(&self) -> bool;

    /// Writes everything up to the properties.
    ///
    /// # Errors
    /// If the message cannot be rewritten; it is then given back.
    fn encode_head(&self, flow_paused: bool, out: &mut BytesMut) -> Result<(), DecodeError>;

    /// Properties and body.
    fn tail(&self) -> Bytes;
}

/// The outgoing half of one connection.
#[derive(Debug)]
pub struct Outbound<P> {
    meter: Meter,
    staged: VecDeque<P>,
    /// Staged, and for no meter.
    free: VecDeque<P>,
    /// Encoded and not sent, oldest first, then `head`.
    pieces: VecDeque<Bytes>,
    head: BytesMut,
    /// Bytes encoded so far, and sent so far, since the connection began.
    encoded: u64,
    sent: u64,
    /// Where each encoded message ends.
    ends: VecDeque<(u64, P)>,
    /// Whether the message that carries F is encoded and the peer has not answered.
    answer_due: bool,
}

impl<P: Payload> Outbound<P> {
    /// Nothing to send yet.
    pub fn new(meter: Meter) -> Self {
        Self {
            meter,
            staged: VecDeque::new(),
            free: VecDeque::new(),
            pieces: VecDeque::new(),
            head: BytesMut::new(),
            encoded: 0,
            sent: 0,
            ends: VecDeque::new(),
            answer_due: false,
        }
    }

    /// Appends a control packet.
    pub fn put_control(&mut self, packet: &[u8]) {
        self.head.extend_from_slice(packet);
        self.encoded += packet.len() as u64;
    }

    /// Appends a reply that has only a status.
    pub fn put_status(
        &mut self,
        kind: PacketType,
        consumer_id: i64,
        status: Status,
        id: MessageId,
    ) {
        let before = self.head.len();
        put_status_reply(kind, consumer_id, status, id, &mut self.head);
        self.encoded += (self.head.len() - before) as u64;
    }

    /// Stages a message behind the others.
    pub fn stage(&mut self, payload: P) {
        if payload.is_metered() {
            self.staged.push_back(payload);
        } else {
            self.free.push_back(payload);
        }
    }

    /// Takes the staged messages that may not be sent any more.
    pub fn take_stale(&mut self, mut stale: impl FnMut(P)) {
        if self.staged.iter().all(Payload::is_current) {
            return;
        }
        for payload in std::mem::take(&mut self.staged) {
            if payload.is_current() {
                self.staged.push_back(payload);
            } else {
                stale(payload);
            }
        }
    }

    /// The peer has room for another batch; `size` replaces the batch's size if given.
    pub fn resume(&mut self, size: Option<i32>) {
        self.meter.resume_from_wire(size);
        self.answer_due = false;
    }

    /// Replaces the meter, before the first message.
    pub fn set_meter(&mut self, meter: Meter) {
        self.meter = meter;
    }

    /// Encodes staged messages as far as meter and buffer allow. What cannot be sent any more, or
    /// not encoded, goes to `refused`.
    pub fn encode_staged(&mut self, mut refused: impl FnMut(P, Option<DecodeError>)) {
        while self.pending() < TRANSMIT_BYTES && self.pieces.len() + 2 < SLICES_MAX {
            let Some(payload) = self.free.pop_front().or_else(|| self.staged.pop_front()) else {
                return;
            };
            if !payload.is_current() {
                refused(payload, None);
                continue;
            }
            let last = if payload.is_metered() {
                let Some(admitted) = self.meter.admit() else {
                    self.staged.push_front(payload);
                    return;
                };
                admitted.last
            } else {
                false
            };
            match self.encode(&payload, last) {
                Ok(()) => {
                    self.answer_due |= last;
                    self.ends.push_back((self.encoded, payload));
                }
                Err(error) => refused(payload, Some(error)),
            }
        }
    }

    fn encode(&mut self, payload: &P, last: bool) -> Result<(), DecodeError> {
        let before = self.head.len();
        payload.encode_head(last, &mut self.head)?;
        let tail = payload.tail();
        self.encoded += (self.head.len() - before + tail.len()) as u64;
        if tail.len() <= COPY_BYTES_MAX {
            self.head.extend_from_slice(&tail);
        } else {
            self.pieces.push_back(self.head.split().freeze());
            self.pieces.push_back(tail);
        }
        Ok(())
    }

    /// Drops what is encoded, or staged for no meter: there is nobody to send it to any more.
    pub fn drop_encoded(&mut self) {
        self.free = VecDeque::new();
        self.pieces = VecDeque::new();
        self.head = BytesMut::new();
        self.ends = VecDeque::new();
        self.sent = self.encoded;
        self.answer_due = false;
    }

    /// Bytes encoded and not sent.
    pub fn pending(&self) -> usize {
        usize::try_from(self.encoded - self.sent).unwrap_or(usize::MAX)
    }

    /// Messages staged and not encoded.
    pub fn staged(&self) -> usize {
        self.staged.len() + self.free.len()
    }

    /// Whether the peer owes the answer to an F, which makes it worth a short spin.
    pub const fn is_answer_due(&self) -> bool {
        self.answer_due
    }

    /// Puts the bytes to send into `slices`, for one vectored write, and says how many it filled.
    pub fn transmit<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let pieces = self.pieces.iter().map(|piece| &piece[..]);
        let head = Some(&self.head[..]).filter(|head| !head.is_empty());
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(pieces.chain(head)) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        count
    }

    /// The transport took `count` bytes; messages whose last byte is among them go to `done`.
    pub fn transmitted(&mut self, count: usize, mut done: impl FnMut(P)) {
        self.sent += count as u64;
        let mut left = count;
        while left > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            let taken = left.min(piece.len());
            piece.advance(taken);
            left -= taken;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.head.advance(left.min(self.head.len()));
        if self.head.is_empty() {
            // Everything is out: start at the front of the same memory again.
            self.head.clear();
        }
        while self.ends.front().is_some_and(|&(end, _)| end <= self.sent) {
            if let Some((_, payload)) = self.ends.pop_front() {
                done(payload);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use bytes::{Bytes, BytesMut};

    use super::{Outbound, Payload, SLICES_MAX};
    use crate::{
        flow::Meter,
        wire::{DecodeError, MessageId, PacketType, Status},
    };

    #[derive(Debug, Clone, PartialEq)]
    struct Item(char, usize, bool);

    impl Payload for Item {
        fn is_current(&self) -> bool {
            self.2
        }
        fn is_metered(&self) -> bool {
            !self.0.is_uppercase()
        }
        fn encode_head(&self, flow_paused: bool, out: &mut BytesMut) -> Result<(), DecodeError> {
            out.extend_from_slice(if flow_paused { b"F" } else { b"-" });
            Ok(())
        }
        fn tail(&self) -> Bytes {
            Bytes::from(self.0.to_string().repeat(self.1))
        }
    }

    fn drain(out: &mut Outbound<Item>, step: usize, done: &mut Vec<char>) -> String {
        let mut text = Vec::new();
        loop {
            out.encode_staged(|item, _| panic!("{item:?}"));
            let bytes = {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = out.transmit(&mut slices);
                slices[..count]
                    .iter()
                    .flat_map(|slice| slice.to_vec())
                    .take(step)
                    .collect::<Vec<_>>()
            };
            if bytes.is_empty() {
                return String::from_utf8(text).unwrap();
            }
            text.extend_from_slice(&bytes);
            out.transmitted(bytes.len(), |item| done.push(item.0));
        }
    }

    #[test]
    fn messages_wait_for_the_meter_and_control_packets_do_not() {
        let mut out = Outbound::new(Meter::new(2));
        for name in ['a', 'b', 'c'] {
            out.stage(Item(name, 2, true));
        }
        let mut done = Vec::new();
        assert_eq!(drain(&mut out, 100, &mut done), "-aaFbb");
        assert!(out.is_answer_due());
        out.put_control(b"!");
        assert_eq!(drain(&mut out, 100, &mut done), "!");
        assert_eq!(done, ['a', 'b']);
        out.resume(None);
        assert_eq!(drain(&mut out, 100, &mut done), "-cc");
        assert_eq!((done.len(), out.pending(), out.staged()), (3, 0, 0));
    }

    #[test]
    fn what_is_for_no_meter_overtakes_what_is_for_one() {
        let mut out = Outbound::new(Meter::new(1));
        for name in ['a', 'b', 'B', 'C'] {
            out.stage(Item(name, 1, true));
        }
        let mut done = Vec::new();
        assert_eq!(drain(&mut out, 100, &mut done), "-B-CFa");
        assert_eq!((done, out.staged()), (vec!['B', 'C', 'a'], 1));
    }

    #[test]
    fn any_partial_write_keeps_the_stream_and_counts_whole_messages_only() {
        for step in [1, 2, 3, 7, 600, 2000] {
            let mut out = Outbound::new(Meter::new(0));
            out.stage(Item('a', 3, true));
            out.stage(Item('b', 700, true));
            out.stage(Item('c', 1, true));
            let mut done = Vec::new();
            let text = drain(&mut out, step, &mut done);
            assert_eq!(text, format!("-aaa-{}-c", "b".repeat(700)), "step {step}");
            assert_eq!(done, ['a', 'b', 'c']);
        }
    }

    #[test]
    fn stale_messages_are_given_back_and_not_sent() {
        let mut out = Outbound::new(Meter::new(0));
        out.stage(Item('a', 1, false));
        out.stage(Item('b', 1, true));
        let mut stale = Vec::new();
        out.take_stale(|item| stale.push(item.0));
        out.stage(Item('c', 1, false));
        out.encode_staged(|item, _| stale.push(item.0));
        assert_eq!(stale, ['a', 'c']);
        assert_eq!(drain(&mut out, 9, &mut Vec::new()), "-b");
        out.put_status(PacketType::SEND_REPLY, 1, Status::OK, MessageId::default());
        assert_eq!(out.pending(), 97);
    }
}
