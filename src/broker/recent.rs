//! Ids of the messages that came lately, by which one that is sent again is known.
//!
//! A client whose connection was lost sends again what was not answered. What was taken the first
//! time must not be taken again, even if it has been consumed meanwhile. Each sender has at most a
//! window of messages on their way, so a window of each sender's latest ids is enough, whatever
//! others send.

use std::collections::{HashMap, VecDeque};

use crate::wire::MessageId;

/// Ids that are kept of one sender: more than one has on its way.
const PER_SENDER: usize = 1024;

/// Senders that are kept, the latest ones.
const SENDERS_MAX: usize = 4096;

/// Where a message comes from: every connection of a client sends from a port of its own.
type Sender = ([u8; 16], i32);

/// The latest ids.
///
/// Shape: for each sender its latest ids in the order they came, oldest first; and the senders in the
/// order of their first message.
#[derive(Debug, Default)]
pub(super) struct Recent {
    by_sender: HashMap<Sender, Window>,
    senders: VecDeque<Sender>,
}

#[derive(Debug, Default)]
struct Window {
    ids: VecDeque<(i64, i32)>,
    /// The greatest there was, so that a new one is seen to be new at once.
    greatest: (i64, i32),
}

impl Recent {
    /// A message came.
    pub(super) fn add(&mut self, id: &MessageId) {
        let sender = (id.address, id.port);
        let window = self.by_sender.entry(sender).or_insert_with(|| {
            self.senders.push_back(sender);
            Window { greatest: (i64::MIN, i32::MIN), ..Window::default() }
        });
        let number = (id.timestamp, id.sequence);
        window.greatest = window.greatest.max(number);
        window.ids.push_back(number);
        if window.ids.len() > PER_SENDER {
            window.ids.pop_front();
        }
        if self.senders.len() > SENDERS_MAX
            && let Some(oldest) = self.senders.pop_front()
        {
            self.by_sender.remove(&oldest);
        }
    }

    /// Whether a message with this id came lately.
    pub(super) fn has(&self, id: &MessageId) -> bool {
        let number = (id.timestamp, id.sequence);
        let window = self.by_sender.get(&(id.address, id.port));
        window.is_some_and(|window| number <= window.greatest && window.ids.contains(&number))
    }

    /// The message is not taken after all.
    pub(super) fn forget(&mut self, id: &MessageId) {
        if let Some(window) = self.by_sender.get_mut(&(id.address, id.port)) {
            window.ids.retain(|number| *number != (id.timestamp, id.sequence));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PER_SENDER, Recent, SENDERS_MAX};
    use crate::wire::MessageId;

    fn id(port: i32, sequence: i32) -> MessageId {
        MessageId { port, sequence, ..MessageId::default() }
    }

    #[test]
    fn a_message_is_known_until_its_sender_has_sent_many_more() {
        let mut recent = Recent::default();
        let window = i32::try_from(PER_SENDER).unwrap();
        for sequence in 0..window {
            assert!(!recent.has(&id(1, sequence)));
            recent.add(&id(1, sequence));
        }
        (0..window * 3).for_each(|sequence| recent.add(&id(2, sequence)));
        assert!((0..window).all(|sequence| recent.has(&id(1, sequence))), "others do not matter");
        recent.add(&id(1, window));
        assert!(!recent.has(&id(1, 0)) && recent.has(&id(1, 1)));
        recent.forget(&id(1, 7));
        assert!(!recent.has(&id(1, 7)) && recent.has(&id(1, 8)));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut recent = Recent::default();
        let senders = i32::try_from(SENDERS_MAX).unwrap();
        (0..senders * 2).for_each(|port| recent.add(&id(port, 1)));
        assert_eq!((recent.by_sender.len(), recent.senders.len()), (SENDERS_MAX, SENDERS_MAX));
        assert!(!recent.has(&id(0, 1)) && recent.has(&id(senders * 2 - 1, 1)));
    }
}
