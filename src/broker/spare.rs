//! Memory that a loop has used and uses again, so that a message costs none of its own.

use crate::{
    sync::Arc,
    wire::{Packet, PacketBuilder, PacketType},
};

use super::{
    command::Command,
    destination::Destination,
    output::Outgoing,
    stored::{Share, Stored},
};

/// Most vectors of a kind that are kept.
const VECTORS_MAX: usize = 64;

/// Room in a vector that is kept, at most. A large one is seldom needed and would stay large.
const VECTOR_LEN_MAX: usize = 512;

/// Most messages whose memory is kept.
const MESSAGES_MAX: usize = 1024;

/// Room for messages that a new vector has from the start.
const BURST_MESSAGES: usize = 4;

/// What is free.
#[derive(Debug)]
pub(super) struct Spare {
    commands: Vec<Vec<Command>>,
    bursts: Vec<Vec<Outgoing>>,
    /// Each shared with nobody, and blank.
    messages: Vec<Arc<Stored>>,
    /// As these.
    shares: Vec<Arc<Share>>,
    /// Stands in them, so that they hold nothing.
    blank: Packet,
}

impl Default for Spare {
    fn default() -> Self {
        Self {
            commands: Vec::new(),
            bursts: Vec::new(),
            messages: Vec::new(),
            shares: Vec::new(),
            blank: PacketBuilder::new(PacketType::NULL).finish(),
        }
    }
}

impl Spare {
    /// An empty vector.
    pub(super) fn commands(&mut self) -> Vec<Command> {
        self.commands.pop().unwrap_or_default()
    }

    /// Keeps an emptied vector.
    pub(super) fn keep_commands(&mut self, commands: Vec<Command>) {
        keep(&mut self.commands, commands);
    }

    /// An empty vector.
    pub(super) fn burst(&mut self) -> Vec<Outgoing> {
        self.bursts.pop().unwrap_or_else(|| Vec::with_capacity(BURST_MESSAGES))
    }

    /// Keeps an emptied vector.
    pub(super) fn keep_burst(&mut self, burst: Vec<Outgoing>) {
        keep(&mut self.bursts, burst);
    }

    /// Puts a message where it can be shared.
    pub(super) fn share(&mut self, message: Stored) -> Arc<Stored> {
        if let Some(mut place) = self.messages.pop()
            && let Some(blank) = Arc::get_mut(&mut place)
        {
            *blank = message;
            return place;
        }
        Arc::new(message)
    }

    /// Keeps the memory of a message, if nobody else holds it.
    pub(super) fn keep_message(&mut self, mut message: Arc<Stored>) {
        if self.messages.len() < MESSAGES_MAX
            && let Some(stored) = Arc::get_mut(&mut message)
        {
            let blank = Stored::new(self.blank.clone(), 0);
            let gone = std::mem::replace(stored, blank);
            self.messages.push(message);
            if let Some(share) = gone.share {
                self.keep_share(share);
            }
        }
    }

    /// What subscriptions are to share of a message for this topic.
    pub(super) fn share_of(&mut self, topic: &Arc<Destination>) -> Arc<Share> {
        let share = Share::of(topic);
        if let Some(mut place) = self.shares.pop()
            && let Some(blank) = Arc::get_mut(&mut place)
        {
            *blank = share;
            return place;
        }
        Arc::new(share)
    }

    /// Keeps the memory of a share, if nobody else has it.
    pub(super) fn keep_share(&mut self, mut share: Arc<Share>) {
        if self.shares.len() < MESSAGES_MAX
            && let Some(gone) = Arc::get_mut(&mut share)
        {
            *gone = Share::default();
            self.shares.push(share);
        }
    }
}

fn keep<T>(kept: &mut Vec<Vec<T>>, vector: Vec<T>) {
    debug_assert!(vector.is_empty(), "what is kept is memory");
    if kept.len() < VECTORS_MAX && vector.capacity() <= VECTOR_LEN_MAX {
        kept.push(vector);
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, MESSAGES_MAX, PacketBuilder, PacketType, Spare, Stored, VECTORS_MAX};

    fn message(text: &'static str) -> Stored {
        let body = bytes::Bytes::from_static(text.as_bytes());
        Stored::new(PacketBuilder::new(PacketType::TEXT_MESSAGE).body(body).finish(), 1)
    }

    #[test]
    fn a_message_that_is_gone_leaves_its_memory_and_nothing_else() {
        let mut spare = Spare::default();
        let first = spare.share(message("first"));
        let (place, other) = (Arc::as_ptr(&first), Arc::clone(&first));
        spare.keep_message(first);
        assert!(spare.messages.is_empty(), "somebody holds it");
        spare.keep_message(other);
        assert!(spare.messages[0].packet.body_bytes().is_empty());
        let second = spare.share(message("second"));
        assert_eq!((Arc::as_ptr(&second), second.packet.body_bytes()), (place, &b"second"[..]));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut spare = Spare::default();
        for _ in 0..2 * MESSAGES_MAX {
            spare.keep_message(Arc::new(message("")));
            spare.keep_commands(Vec::with_capacity(1));
            spare.keep_burst(Vec::with_capacity(1_000_000));
        }
        assert_eq!(spare.messages.len(), MESSAGES_MAX);
        assert_eq!((spare.commands.len(), spare.bursts.len()), (VECTORS_MAX, 0));
    }
}
