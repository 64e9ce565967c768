//! Metered batches of one connection.
//!
//! Messages and control packets share a connection. So that control packets never wait behind a
//! long run of messages, messages go out in batches: the last of a batch is marked, then the
//! payload lane rests until the peer says go on. Control packets have a lane of their own and are
//! not counted.
//!
//! ```text
//!             admit: counted < N - 1                admit: the N-th, marked
//!            .----------------------.              .----------------------.
//!            v                      |              |                      v
//!  new --> [open, counted 0..N-1] --'              '------------------> [paused]
//!            ^                                                            |
//!            '----------------------- resume, counted = 0 ----------------'
//! ```

/// Counts the messages of one connection and pauses them after each batch.
///
/// Shape: a batch size in messages (0 = off, never pauses) and the number admitted since the last
/// resume. One owner; nothing is shared.
///
/// # Source
/// The wire protocol, connection metering; `imqConnectionFlowCount` of the Message Queue client
/// runtime (default 100).
#[derive(Debug, Clone)]
pub struct Meter {
    count: u32,
    admitted: u32,
    paused: bool,
}

/// A message that may be written now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "an admitted message was counted; write it, marked if it is the last"]
pub struct Admitted {
    /// It ends its batch and carries flag F; nothing more is admitted until the peer resumes.
    pub last: bool,
}

impl Meter {
    /// A meter with batches of `count` messages; 0 turns metering off.
    #[must_use]
    pub const fn new(count: u32) -> Self {
        Self { count, admitted: 0, paused: false }
    }

    /// A meter as negotiated at login: `JMQSize` of HELLO; absent, 0 or negative is off.
    #[must_use]
    pub const fn from_wire(size: Option<i32>) -> Self {
        match size {
            Some(size) if size > 0 => Self::new(size.unsigned_abs()),
            _ => Self::new(0),
        }
    }

    /// Counts one message, or refuses because the lane is paused.
    pub const fn admit(&mut self) -> Option<Admitted> {
        if self.paused {
            return None;
        }
        if self.count == 0 {
            return Some(Admitted { last: false });
        }
        self.admitted += 1;
        self.paused = self.admitted >= self.count;
        Some(Admitted { last: self.paused })
    }

    /// Starts a new batch, of `new_count` messages (0 = off) if given, else of the size it had.
    ///
    /// The peer may resume unasked; the batch then starts again in the middle.
    pub const fn resume(&mut self, new_count: Option<u32>) {
        if let Some(count) = new_count {
            self.count = count;
        }
        self.admitted = 0;
        self.paused = false;
    }

    /// As [`resume`](Self::resume), with `JMQSize` of the packet: absent or negative keeps the
    /// batch size, 0 turns metering off.
    pub fn resume_from_wire(&mut self, size: Option<i32>) {
        self.resume(size.and_then(|size| u32::try_from(size).ok()));
    }

    /// Whether the payload lane must wait for the peer.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// Messages that may still be admitted; `None` if metering is off.
    #[must_use]
    pub const fn left(&self) -> Option<u32> {
        if self.count == 0 && !self.paused {
            return None;
        }
        if self.paused { Some(0) } else { Some(self.count - self.admitted) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Admitted, Meter};

    fn admit_all(meter: &mut Meter, most: usize) -> Vec<bool> {
        std::iter::from_fn(|| meter.admit().map(|Admitted { last }| last)).take(most).collect()
    }

    #[test]
    fn the_last_of_a_batch_is_marked_and_pauses() {
        let mut meter = Meter::new(3);
        assert_eq!(admit_all(&mut meter, 10), [false, false, true]);
        assert!(meter.is_paused());
        assert_eq!(meter.left(), Some(0));
        meter.resume(None);
        assert_eq!(meter.left(), Some(3));
        assert_eq!(admit_all(&mut meter, 10), [false, false, true]);
    }

    #[test]
    fn zero_turns_metering_off() {
        let mut meter = Meter::new(0);
        assert!(admit_all(&mut meter, 500).iter().all(|last| !last));
        assert_eq!(meter.left(), None);
        meter.resume(Some(1));
        assert_eq!(admit_all(&mut meter, 5), [true]);
        meter.resume(Some(0));
        assert_eq!(admit_all(&mut meter, 5), [false; 5]);
    }

    #[test]
    fn sizes_on_the_wire_keep_replace_or_turn_off() {
        let mut meter = Meter::from_wire(Some(2));
        assert_eq!(admit_all(&mut meter, 5), [false, true]);
        meter.resume_from_wire(Some(-1));
        assert_eq!(admit_all(&mut meter, 5), [false, true]);
        meter.resume_from_wire(Some(1));
        assert_eq!(admit_all(&mut meter, 5), [true]);
        meter.resume_from_wire(None);
        assert_eq!(admit_all(&mut meter, 5), [true]);
        meter.resume_from_wire(Some(0));
        assert_eq!(admit_all(&mut meter, 5), [false; 5]);
        for off in [None, Some(0), Some(-1)] {
            assert_eq!(Meter::from_wire(off).left(), None);
        }
    }

    #[test]
    fn a_resume_in_the_middle_starts_the_batch_again() {
        let mut meter = Meter::new(4);
        assert_eq!(admit_all(&mut meter, 3), [false; 3]);
        meter.resume(None);
        assert_eq!(admit_all(&mut meter, 9), [false, false, false, true]);
        meter.resume(Some(1));
        assert_eq!(admit_all(&mut meter, 9), [true]);
    }
}
