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

use bytes::{Buf, BytesMut};

use crate::{
    flow::Meter,
    wire::{DecodeError, MessageId, PacketType, Status, put_status_reply},
};

/// Most bytes encoded ahead of one write.
pub const TRANSMIT_BYTES: usize = 256 * 1024;

/// Most pieces of one vectored write: two for each message of a metered batch of 100, and some.
pub const SLICES_MAX: usize = 256;

/// Most messages that are encoded and not sent: two pieces each, and one for what stands behind.
const ENCODED_MAX: usize = (SLICES_MAX - 1) / 2;

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
    fn tail(&self) -> &[u8];
}

/// A message that is encoded, and how many bytes of it are not sent.
#[derive(Debug)]
struct Encoded<P> {
    /// In `Outbound::own`: everything up to the message's tail that no message before it has.
    own: usize,
    /// At the end of the payload's tail; 0 if the tail was copied.
    shared: usize,
    payload: P,
}

/// The outgoing half of one connection.
#[derive(Debug)]
pub struct Outbound<P> {
    meter: Meter,
    staged: VecDeque<P>,
    /// Staged, and for no meter.
    free: VecDeque<P>,
    /// Encoded and not sent, oldest first.
    messages: VecDeque<Encoded<P>>,
    /// Bytes to send that are not in payloads, in order: control packets, what comes before a tail,
    /// and copied tails. Its memory is used again and again.
    own: BytesMut,
    /// How many of these come behind the last message.
    trailing: usize,
    /// Bytes encoded so far, and sent so far, since the connection began.
    encoded: u64,
    sent: u64,
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
            messages: VecDeque::new(),
            own: BytesMut::new(),
            trailing: 0,
            encoded: 0,
            sent: 0,
            answer_due: false,
        }
    }

    /// Appends a control packet.
    pub fn put_control(&mut self, packet: &[u8]) {
        self.own.extend_from_slice(packet);
        self.count_own(packet.len());
    }

    /// Appends a reply that has only a status.
    pub fn put_status(
        &mut self,
        kind: PacketType,
        consumer_id: i64,
        status: Status,
        id: MessageId,
    ) {
        let before = self.own.len();
        put_status_reply(kind, consumer_id, status, id, &mut self.own);
        self.count_own(self.own.len() - before);
    }

    const fn count_own(&mut self, bytes: usize) {
        self.trailing += bytes;
        self.encoded += bytes as u64;
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
        while self.pending() < TRANSMIT_BYTES && self.messages.len() < ENCODED_MAX {
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
                Ok(shared) => {
                    self.answer_due |= last;
                    let own = std::mem::take(&mut self.trailing);
                    self.messages.push_back(Encoded { own, shared, payload });
                }
                Err(error) => refused(payload, Some(error)),
            }
        }
    }

    /// Returns how many bytes stay where they are.
    fn encode(&mut self, payload: &P, last: bool) -> Result<usize, DecodeError> {
        let before = self.own.len();
        payload.encode_head(last, &mut self.own)?;
        let tail = payload.tail();
        let is_copied = tail.len() <= COPY_BYTES_MAX;
        if is_copied {
            self.own.extend_from_slice(tail);
        }
        self.count_own(self.own.len() - before);
        let shared = if is_copied { 0 } else { tail.len() };
        self.encoded += shared as u64;
        Ok(shared)
    }

    /// Drops what is encoded, or staged for no meter: there is nobody to send it to any more.
    pub fn drop_encoded(&mut self) {
        self.free = VecDeque::new();
        self.messages = VecDeque::new();
        self.own = BytesMut::new();
        self.trailing = 0;
        self.sent = self.encoded;
        self.answer_due = false;
    }

    /// Bytes encoded and not sent.
    pub fn pending(&self) -> usize {
        usize::try_from(self.encoded - self.sent).unwrap_or(usize::MAX)
    }

    /// Bytes of these that are in memory of their own: all but the large tails, which are there
    /// whether somebody reads them or not.
    pub fn pending_own(&self) -> usize {
        self.own.len()
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
        let mut count = 0;
        let mut put = |bytes: &'a [u8]| {
            if !bytes.is_empty()
                && let Some(slice) = slices.get_mut(count)
            {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
        };
        // Own bytes between two shared tails are one piece, however many messages they are of.
        let (mut own, mut run) = (&self.own[..], 0);
        for message in &self.messages {
            run += message.own;
            if message.shared > 0 {
                let (before, behind) = own.split_at(run);
                put(before);
                let tail = message.payload.tail();
                put(&tail[tail.len() - message.shared..]);
                (own, run) = (behind, 0);
            }
        }
        put(own);
        count
    }

    /// The transport took `count` bytes; messages whose last byte is among them go to `done`.
    pub fn transmitted(&mut self, count: usize, mut done: impl FnMut(P)) {
        self.sent += count as u64;
        let (mut left, mut own) = (count, 0);
        while let Some(first) = self.messages.front_mut() {
            let from_own = left.min(first.own);
            let from_shared = (left - from_own).min(first.shared);
            (first.own, first.shared) = (first.own - from_own, first.shared - from_shared);
            left -= from_own + from_shared;
            own += from_own;
            if first.own + first.shared > 0 {
                break;
            }
            if let Some(sent) = self.messages.pop_front() {
                done(sent.payload);
            }
        }
        let from_own = left.min(self.trailing);
        self.trailing -= from_own;
        self.own.advance(own + from_own);
        if self.own.is_empty() {
            // Everything is out: start at the front of the same memory again.
            self.own.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use bytes::BytesMut;

    use super::{Outbound, Payload, SLICES_MAX};
    use crate::{
        flow::Meter,
        wire::{DecodeError, MessageId, PacketType, Status},
    };

    #[derive(Debug, Clone, PartialEq)]
    struct Item(char, bool, Vec<u8>);

    fn item(name: char, bytes: usize, is_current: bool) -> Item {
        Item(name, is_current, name.to_string().repeat(bytes).into_bytes())
    }

    impl Payload for Item {
        fn is_current(&self) -> bool {
            self.1
        }
        fn is_metered(&self) -> bool {
            !self.0.is_uppercase()
        }
        fn encode_head(&self, flow_paused: bool, out: &mut BytesMut) -> Result<(), DecodeError> {
            out.extend_from_slice(if flow_paused { b"F" } else { b"-" });
            Ok(())
        }
        fn tail(&self) -> &[u8] {
            &self.2
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
            out.stage(item(name, 2, true));
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
            out.stage(item(name, 1, true));
        }
        let mut done = Vec::new();
        assert_eq!(drain(&mut out, 100, &mut done), "-B-CFa");
        assert_eq!((done, out.staged()), (vec!['B', 'C', 'a'], 1));
    }

    #[test]
    fn any_partial_write_keeps_the_stream_and_counts_whole_messages_only() {
        for step in [1, 2, 3, 7, 600, 2000] {
            let mut out = Outbound::new(Meter::new(0));
            out.stage(item('a', 3, true));
            out.stage(item('b', 700, true));
            out.stage(item('c', 1, true));
            let mut done = Vec::new();
            let text = drain(&mut out, step, &mut done);
            assert_eq!(text, format!("-aaa-{}-c", "b".repeat(700)), "step {step}");
            assert_eq!(done, ['a', 'b', 'c']);
        }
    }

    #[test]
    fn control_packets_keep_their_place_among_messages() {
        for step in [1, 2, 701, 2000] {
            let mut out = Outbound::new(Meter::new(0));
            for (message, control) in [(item('a', 2, true), b"1"), (item('b', 700, true), b"2")] {
                out.stage(message);
                out.encode_staged(|item, _| panic!("{item:?}"));
                out.put_control(control);
            }
            out.stage(item('c', 600, true));
            let mut done = Vec::new();
            let text = drain(&mut out, step, &mut done);
            let [b, c] = [("b", 700), ("c", 600)].map(|(name, count)| name.repeat(count));
            assert_eq!(text, format!("-aa1-{b}2-{c}"), "step {step}");
            assert_eq!((done.len(), out.pending()), (3, 0));
        }
    }

    #[test]
    fn stale_messages_are_given_back_and_not_sent() {
        let mut out = Outbound::new(Meter::new(0));
        out.stage(item('a', 1, false));
        out.stage(item('b', 1, true));
        let mut stale = Vec::new();
        out.take_stale(|item| stale.push(item.0));
        out.stage(item('c', 1, false));
        out.encode_staged(|item, _| stale.push(item.0));
        assert_eq!(stale, ['a', 'c']);
        assert_eq!(drain(&mut out, 9, &mut Vec::new()), "-b");
        out.put_status(PacketType::SEND_REPLY, 1, Status::OK, MessageId::default());
        assert_eq!(out.pending(), 97);
    }
}
