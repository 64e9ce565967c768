//! What a receiver holds, and the one moment at which it asks for more.
//!
//! The thread that reads the socket counts messages in, the application's thread counts them out,
//! and whichever of them brings a paused buffer to its mark learns that it must ask for more:
//! exactly one of them, exactly once per pause. There is no third party that looks now and then.
//!
//! ```text
//!                    delivered(last)
//!   [flowing] ------------------------------> [paused]
//!       ^                                        |
//!       '--- buffered <= mark: Resume, once -----'   by delivered, consumed, discarded,
//!                                                    reset or a change of the settings
//! ```
//!
//! # Invariants
//! - Each pause is followed by exactly one [`Resume`] if messages are consumed.
//! - The mark is below the limit, so a resume asks for at least 1. (0 would be read as unlimited,
//!   and waiting for less than nothing would never end.)
//! - The count is never below zero.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | B1 | every change of the word | every change of the word | what was done with the messages counted so far | `resumer_sees_what_was_consumed` |
//! | B2 | `set` (epoch) | look of every change | the new settings | `a_pause_ends_once_while_settings_change` |
//!
//! # Source
//! The wire protocol, consumer and connection metering; the limits and threshold of the Message
//! Queue client runtime: the next batch is the limit minus what is still pending.

use crate::flow::Credit;
use crate::setting::{SettingError, in_range};
use crate::sync::{AtomicU64, Ordering, broken, edge};

/// Messages that wait for the application, of one consumer or of one connection.
///
/// Shape: a count of messages, a count of bytes (if the caller gives sizes), whether the sender is
/// paused, and settings that can be changed at run time. It holds no messages.
///
/// Count a message in *before* the application can take it, and out when it has taken it. Each
/// consumer has its own buffer, so one that stalls holds up nobody else's credit.
#[derive(Debug)]
pub struct Buffer {
    /// bit 63: paused; 32–62: epoch of the settings; 0–31: buffered messages.
    word: AtomicU64,
    /// 32–63: limit (all ones: none); 0–31: mark.
    limits: AtomicU64,
    /// Buffered bytes.
    bytes: AtomicU64,
    /// Bytes at or under which more is asked for; all ones without a byte budget.
    bytes_mark: AtomicU64,
}

/// Asks the sender for more. Whoever gets it must send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the sender stays paused until this resume is sent, and nobody else is told to"]
pub struct Resume {
    /// The next batch in messages: limit − buffered, at least 1; [`Resume::UNLIMITED`] without
    /// a limit.
    pub size: u32,
}

impl Resume {
    /// The size that stands for no limit.
    pub const UNLIMITED: u32 = u32::MAX;

    /// The number for `JMQSize`: −1 for no limit. Never 0.
    #[must_use]
    pub fn to_wire(self) -> i32 {
        self.credit().to_wire()
    }

    /// The size as a credit.
    #[must_use]
    pub const fn credit(self) -> Credit {
        if self.size == Self::UNLIMITED { Credit::Unlimited } else { Credit::Limited(self.size) }
    }
}

/// Limit and threshold of a [`Buffer`].
///
/// Shape: a limit in messages, a mark below it (messages at or under which more is asked for),
/// and optionally the same for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferSettings {
    limit: Credit,
    threshold_percent: u8,
    bytes: Option<u64>,
}

impl BufferSettings {
    /// A consumer's buffer: `limit` is the agreed prefetch in messages (0 counts as unlimited),
    /// and more is asked for at `threshold_percent` (0 … 100) of it, but always below it.
    ///
    /// # Errors
    /// [`SettingError`] if the threshold is over 100.
    ///
    /// # Source
    /// `imqConsumerFlowLimit` and `imqConsumerFlowThreshold`. At 50 of 1000, more is asked for
    /// once 500 are consumed; at 10, once 900 are.
    pub fn consumer(limit: Credit, threshold_percent: u8) -> Result<Self, SettingError> {
        in_range("imqConsumerFlowThreshold", threshold_percent, 0, 100)?;
        Ok(Self::checked(limit, threshold_percent))
    }

    /// As [`consumer`](Self::consumer), with a threshold that was checked before.
    pub(super) const fn checked(limit: Credit, threshold_percent: u8) -> Self {
        Self { limit, threshold_percent, bytes: None }
    }

    /// A consumer's buffer without prefetch: one message at a time.
    ///
    /// # Source
    /// `imqConsumerFlowLimitPrefetch=false`: the client asks for 1, with a threshold of 0.
    #[must_use]
    pub const fn no_prefetch() -> Self {
        Self { limit: Credit::Limited(1), threshold_percent: 0, bytes: None }
    }

    /// A connection's buffer: each metered batch is answered while fewer than `limit` messages
    /// wait for all its consumers together; without a limit, at once.
    ///
    /// A soft limit: up to one batch more may arrive.
    ///
    /// # Source
    /// `imqConnectionFlowLimit`, where `imqConnectionFlowLimitEnabled` is true.
    #[must_use]
    pub const fn connection(limit: Credit) -> Self {
        Self { limit, threshold_percent: 100, bytes: None }
    }

    /// Adds a byte budget: more is asked for only when the buffered bytes are at or under the same
    /// threshold of `bytes`, or nothing is buffered at all.
    #[must_use]
    pub const fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    fn limits(self) -> Limits {
        match self.limit {
            Credit::Limited(0 | Resume::UNLIMITED) | Credit::Unlimited => Limits::NONE,
            Credit::Limited(limit) => {
                let mark = u64::from(limit) * u64::from(self.threshold_percent) / 100;
                let mark = u32::try_from(mark).map_or(limit, |mark| mark.min(limit - 1));
                Limits { limit, mark }
            }
        }
    }

    fn bytes_mark(self) -> u64 {
        let percent = u64::from(self.threshold_percent);
        // Divided first where the product would not fit; so large a budget has no use for rest.
        self.bytes.map_or(u64::MAX, |bytes| {
            bytes.checked_mul(percent).map_or(bytes / 100 * percent, |product| product / 100)
        })
    }
}

impl Buffer {
    /// An empty buffer whose sender may start.
    #[must_use]
    pub fn new(settings: BufferSettings) -> Self {
        Self {
            word: AtomicU64::new(0),
            limits: AtomicU64::new(settings.limits().pack()),
            bytes: AtomicU64::new(0),
            bytes_mark: AtomicU64::new(settings.bytes_mark()),
        }
    }

    /// Counts one message in; `last` says that it carried the mark and the sender has paused.
    pub fn delivered(&self, last: bool) -> Option<Resume> {
        self.delivered_sized(last, 0)
    }

    /// Counts one message of `bytes` bytes in.
    pub fn delivered_sized(&self, last: bool, bytes: u64) -> Option<Resume> {
        self.adjust_bytes(bytes, u64::saturating_add);
        self.change(|word| Word {
            buffered: word.buffered.saturating_add(1),
            paused: word.paused || last,
            ..word
        })
    }

    /// Counts one message out: the application has taken it.
    pub fn consumed(&self) -> Option<Resume> {
        self.discarded_sized(1, 0)
    }

    /// Counts one message of `bytes` bytes out; the same size as when it came in.
    pub fn consumed_sized(&self, bytes: u64) -> Option<Resume> {
        self.discarded_sized(1, bytes)
    }

    /// Counts `count` messages out that nobody took: expired, or of a closed consumer.
    pub fn discarded(&self, count: u32) -> Option<Resume> {
        self.discarded_sized(count, 0)
    }

    /// Counts `count` messages of together `bytes` bytes out.
    pub fn discarded_sized(&self, count: u32, bytes: u64) -> Option<Resume> {
        if !broken("buffer.bytes_first") {
            self.adjust_bytes(bytes, u64::saturating_sub);
        }
        let resume =
            self.change(|word| Word { buffered: word.buffered.saturating_sub(count), ..word });
        if broken("buffer.bytes_first") {
            self.adjust_bytes(bytes, u64::saturating_sub);
        }
        resume
    }

    /// Empties the count: everything buffered went back to the sender (recover, rollback).
    ///
    /// A paused sender is asked for a whole window, once. Messages that the application took
    /// before and did not count out yet must not be counted out afterwards.
    ///
    /// # Source
    /// The wire protocol: after REDELIVER the buffer is empty, so a paused consumer owes exactly
    /// one resume of its limit.
    pub fn reset(&self) -> Option<Resume> {
        // Relaxed: published by the exchange of `change`, like every other count of bytes.
        self.bytes.store(0, Ordering::Relaxed);
        self.change(|word| Word { buffered: 0, ..word })
    }

    /// Changes limit, threshold and byte budget at run time.
    ///
    /// The window that the sender uses now stays as it is; the new limit counts from the next
    /// resume on, and that may be due at once.
    pub fn set(&self, settings: BufferSettings) -> Option<Resume> {
        // Relaxed, both: the exchange below publishes them (B2).
        self.limits.store(settings.limits().pack(), Ordering::Relaxed);
        self.bytes_mark.store(settings.bytes_mark(), Ordering::Relaxed);
        self.change(|word| {
            if broken("buffer.epoch") {
                return word;
            }
            Word { epoch: word.epoch.wrapping_add(1) & EPOCH_MASK, ..word }
        })
    }

    /// Messages buffered now. For metrics.
    #[must_use]
    pub fn buffered(&self) -> u32 {
        self.now().buffered
    }

    /// Bytes buffered now, as far as sizes were given. For metrics.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        // Relaxed: a statistic.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the sender waits for a resume. For metrics.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.now().paused
    }

    /// The limit in messages.
    #[must_use]
    pub fn limit(&self) -> Credit {
        // Relaxed: a setting; each value is valid by itself.
        Limits::unpack(self.limits.load(Ordering::Relaxed)).resume(0).credit()
    }

    fn now(&self) -> Word {
        // Relaxed: a statistic.
        Word::unpack(self.word.load(Ordering::Relaxed))
    }

    fn adjust_bytes(&self, bytes: u64, by: impl Fn(u64, u64) -> u64) {
        if bytes != 0 {
            // Relaxed, both: a count that decides nothing until the exchange of `change`, which
            // comes after it and publishes it (B1). The closure never refuses.
            let count = |now| Some(by(now, bytes));
            let _always = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        }
    }

    /// Applies `next` to the word; whoever brings a paused buffer to its mark ends the pause.
    fn change(&self, next: impl Fn(Word) -> Word) -> Option<Resume> {
        // Acquire (B1, B2): bytes and settings read below are at least as new as the word. So of
        // several changes the last one judges by everything the others left: no pause is missed.
        let look = edge("buffer.look", Ordering::Acquire, Ordering::Relaxed);
        let mut seen = self.word.load(look);
        loop {
            // Relaxed, all three: ordered by the look. Were they changed since, then the epoch or
            // another change of the word makes the exchange fail, or is still to come and judges.
            let limits = Limits::unpack(self.limits.load(Ordering::Relaxed));
            let bytes = self.bytes.load(Ordering::Relaxed);
            let bytes_mark = self.bytes_mark.load(Ordering::Relaxed);
            let next = next(Word::unpack(seen));
            // An empty buffer is always due, whatever sizes the caller gave.
            let low = next.buffered <= limits.mark && bytes <= bytes_mark || next.buffered == 0;
            let due = next.paused && low;
            let word = Word { paused: next.paused && !due, ..next };
            // Forbids that two threads end the same pause, and that a pause is judged by a count
            // or by settings that another thread has just changed: the last exchange judges all.
            // Success AcqRel (B1): what this thread did with the messages comes before, and who
            // resumes sees what the others did. Failure Acquire: the next look.
            let success = edge("buffer.change", Ordering::AcqRel, Ordering::Relaxed);
            match self.word.compare_exchange_weak(seen, word.pack(), success, look) {
                Ok(_) => return due.then(|| limits.resume(next.buffered)),
                Err(now) => seen = now,
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    buffered: u32,
    paused: bool,
    epoch: u32,
}

impl Word {
    fn pack(self) -> u64 {
        u64::from(self.buffered)
            | u64::from(self.epoch) << EPOCH_SHIFT
            | u64::from(self.paused) << PAUSED_SHIFT
    }

    #[allow(clippy::cast_possible_truncation, reason = "each field is cut to its bits")]
    const fn unpack(word: u64) -> Self {
        Self {
            buffered: word as u32,
            paused: word >> PAUSED_SHIFT == 1,
            epoch: (word >> EPOCH_SHIFT) as u32 & EPOCH_MASK,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    limit: u32,
    mark: u32,
}

impl Limits {
    const NONE: Self = Self { limit: Resume::UNLIMITED, mark: u32::MAX };

    const fn resume(self, buffered: u32) -> Resume {
        if self.limit == Resume::UNLIMITED {
            return Resume { size: Resume::UNLIMITED };
        }
        // The mark is below the limit and the count at or under the mark: at least 1.
        Resume { size: self.limit.saturating_sub(buffered) }
    }

    fn pack(self) -> u64 {
        u64::from(self.limit) << 32 | u64::from(self.mark)
    }

    #[allow(clippy::cast_possible_truncation, reason = "each field is cut to its bits")]
    const fn unpack(word: u64) -> Self {
        Self { limit: (word >> 32) as u32, mark: word as u32 }
    }
}

const EPOCH_SHIFT: u32 = 32;
const EPOCH_MASK: u32 = (1 << 31) - 1;
const PAUSED_SHIFT: u32 = 63;

#[cfg(test)]
mod tests {
    use super::{Buffer, BufferSettings, EPOCH_MASK, Limits, Resume, Word};
    use crate::flow::Credit::{Limited, Unlimited};

    fn consumer(limit: u32, threshold: u8) -> Buffer {
        Buffer::new(BufferSettings::consumer(Limited(limit), threshold).unwrap())
    }

    #[test]
    fn the_words_survive_packing_at_their_bounds() {
        for buffered in [0, 1, u32::MAX] {
            for epoch in [0, 1, EPOCH_MASK] {
                for paused in [false, true] {
                    let word = Word { buffered, paused, epoch };
                    assert_eq!(Word::unpack(word.pack()), word);
                }
            }
        }
        for limits in [Limits::NONE, Limits { limit: 1, mark: 0 }, Limits { limit: 9, mark: 8 }] {
            assert_eq!(Limits::unpack(limits.pack()), limits);
        }
    }

    #[test]
    fn the_mark_stays_below_the_limit_at_every_threshold() {
        for (limit, threshold, mark) in
            [(1, 0, 0), (1, 100, 0), (2, 50, 1), (2, 100, 1), (1000, 99, 990), (1000, 100, 999)]
        {
            let settings = BufferSettings::consumer(Limited(limit), threshold).unwrap();
            assert_eq!(settings.limits(), Limits { limit, mark }, "{limit} at {threshold} %");
        }
        let largest = BufferSettings::consumer(Limited(u32::MAX - 1), 100).unwrap();
        assert_eq!(largest.limits().mark, u32::MAX - 2);
    }

    #[test]
    fn a_threshold_over_100_percent_is_refused_with_its_range() {
        assert!(BufferSettings::consumer(Limited(1), 100).is_ok());
        let error = BufferSettings::consumer(Limited(1), 101).unwrap_err().to_string();
        assert!(error.contains("imqConsumerFlowThreshold"), "{error}");
        assert!(error.contains("101") && error.contains("0 to 100"), "{error}");
    }

    #[test]
    fn nothing_is_asked_for_before_the_window_was_used_up() {
        let buffer = consumer(4, 50);
        assert_eq!(buffer.delivered(false), None);
        assert_eq!(buffer.consumed(), None);
        assert!(!buffer.is_paused());
    }

    #[test]
    fn an_application_that_kept_up_is_asked_for_at_delivery() {
        let buffer = consumer(4, 50);
        for _ in 0..3 {
            assert_eq!(buffer.delivered(false), None);
            assert_eq!(buffer.consumed(), None);
        }
        assert_eq!(buffer.delivered(true), Some(Resume { size: 3 }));
    }

    #[test]
    fn without_prefetch_one_message_is_asked_for_at_a_time() {
        let buffer = Buffer::new(BufferSettings::no_prefetch());
        for _ in 0..3 {
            assert_eq!(buffer.delivered(true), None);
            assert_eq!(buffer.consumed(), Some(Resume { size: 1 }));
        }
    }

    #[test]
    fn recover_of_a_paused_buffer_owes_one_whole_window() {
        let buffer = consumer(4, 50);
        for n in 0..4 {
            assert_eq!(buffer.delivered(n == 3), None);
        }
        assert_eq!(buffer.consumed(), None);
        assert_eq!(buffer.reset(), Some(Resume { size: 4 }));
        assert_eq!(buffer.reset(), None);
        assert_eq!(buffer.buffered(), 0);
    }

    #[test]
    fn recover_of_a_flowing_buffer_owes_nothing() {
        let buffer = consumer(4, 50);
        assert_eq!(buffer.delivered(false), None);
        assert_eq!(buffer.reset(), None);
        assert_eq!(buffer.buffered(), 0);
    }

    #[test]
    fn discarded_messages_count_like_consumed_ones() {
        let buffer = consumer(4, 50);
        for n in 0..4 {
            assert_eq!(buffer.delivered(n == 3), None);
        }
        assert_eq!(buffer.discarded(3), Some(Resume { size: 3 }));
        assert_eq!(buffer.discarded(5), None);
        assert_eq!(buffer.buffered(), 0);
    }

    #[test]
    fn a_connection_is_answered_below_its_limit() {
        let buffer = Buffer::new(BufferSettings::connection(Limited(3)));
        assert_eq!(buffer.delivered(false), None);
        assert!(buffer.delivered(true).is_some());
        assert_eq!(buffer.delivered(true), None);
        assert_eq!(buffer.delivered(false), None);
        assert_eq!(buffer.consumed(), None);
        assert!(buffer.consumed().is_some());
    }

    #[test]
    fn without_a_limit_a_mark_is_answered_at_once_and_with_no_limit() {
        for settings in [
            BufferSettings::connection(Unlimited),
            BufferSettings::consumer(Unlimited, 50).unwrap(),
            BufferSettings::consumer(Limited(0), 50).unwrap(),
        ] {
            let buffer = Buffer::new(settings);
            assert_eq!(buffer.delivered(false), None);
            let resume = buffer.delivered(true).unwrap();
            assert_eq!((resume.to_wire(), resume.credit()), (-1, Unlimited));
            assert_eq!(buffer.limit(), Unlimited);
        }
    }

    #[test]
    fn a_byte_budget_holds_back_until_the_bytes_are_down() {
        let settings = BufferSettings::consumer(Limited(4), 50).unwrap().with_bytes(1000);
        let buffer = Buffer::new(settings);
        for (n, bytes) in [900, 300, 10, 10].into_iter().enumerate() {
            assert_eq!(buffer.delivered_sized(n == 3, bytes), None);
        }
        assert_eq!(buffer.consumed_sized(10), None);
        assert_eq!(buffer.consumed_sized(10), None);
        assert_eq!(buffer.buffered_bytes(), 1200);
        assert_eq!(buffer.consumed_sized(900), Some(Resume { size: 3 }));
    }

    #[test]
    fn an_empty_buffer_asks_whatever_sizes_were_given() {
        let buffer = Buffer::new(BufferSettings::no_prefetch().with_bytes(0));
        assert_eq!(buffer.delivered_sized(true, 77), None);
        assert_eq!(buffer.consumed(), Some(Resume { size: 1 }));
        assert_eq!(BufferSettings::connection(Limited(2)).with_bytes(u64::MAX).bytes_mark(), {
            u64::MAX / 100 * 100
        });
    }

    #[test]
    fn a_raised_limit_or_threshold_can_make_the_resume_due() {
        let buffer = consumer(4, 0);
        for n in 0..4 {
            assert_eq!(buffer.delivered(n == 3), None);
        }
        assert_eq!(buffer.consumed(), None);
        let raised = BufferSettings::consumer(Limited(10), 50).unwrap();
        assert_eq!(buffer.set(raised), Some(Resume { size: 7 }));
        assert_eq!(buffer.set(raised), None);
        assert_eq!(buffer.limit(), Limited(10));
    }

    #[test]
    fn a_lowered_limit_asks_for_less_and_never_for_nothing() {
        let buffer = consumer(10, 90);
        for n in 0..10 {
            assert_eq!(buffer.delivered(n == 9), None);
        }
        assert_eq!(buffer.set(BufferSettings::consumer(Limited(2), 100).unwrap()), None);
        for left in (2..10).rev() {
            assert_eq!(buffer.consumed(), None, "{left} left");
        }
        assert_eq!(buffer.consumed(), Some(Resume { size: 1 }));
    }
}
