//! What waits: a message, or what is known of one whose body is in the store only.

use std::num::NonZeroU64;

use crate::{sync::Arc, wire::Packet};

use super::{
    super::{
        dead::may_have_will,
        stored::{Known, Share, Stored},
    },
    place::Place,
};

/// Larger numbers count as this.
const PRIORITY_MAX: u8 = 9;

/// One message of one queue or subscription.
#[derive(Debug, Clone)]
pub(in crate::broker) struct Entry {
    /// The message itself, shared between subscriptions.
    pub message: Arc<Stored>,
    /// When it arrived at this destination: ascending.
    pub order: u64,
    /// How often it has been delivered and counts as seen.
    pub deliveries: u32,
}

/// One message of one queue or subscription whose body is in the store only.
#[derive(Debug, Clone)]
pub(in crate::broker) struct Stub {
    /// Its place in the order of the store.
    pub sequence: NonZeroU64,
    /// As of an [`Entry`].
    pub order: u64,
    /// When it expires, in milliseconds since 1970; 0: never.
    pub expires: i64,
    /// What its subscriptions share, if it was sent to a topic.
    pub share: Option<Arc<Share>>,
    /// Its size as limits count it.
    pub bytes: u32,
    /// As of an [`Entry`].
    pub deliveries: u32,
    /// Its priority, 9 at the most.
    pub priority: u8,
    /// It may say itself what becomes of it when it dies.
    pub has_will: bool,
}

impl Stub {
    /// What is to stay of an entry in memory; `None` if its message is not stored.
    pub(in crate::broker) fn of(entry: &Entry) -> Option<Self> {
        let message = &entry.message;
        let header = message.packet.header();
        Some(Self {
            sequence: NonZeroU64::new(message.sequence())?,
            order: entry.order,
            expires: message.expires,
            share: message.share.clone(),
            bytes: header.size,
            deliveries: entry.deliveries,
            priority: header.priority.min(PRIORITY_MAX),
            has_will: may_have_will(&message.packet),
        })
    }

    /// The entry it was, with the packet that the store has.
    pub(in crate::broker) fn entry(self, packet: Packet) -> Entry {
        let Self { sequence, order, expires, share, deliveries, .. } = self;
        let mut message = Stored::new(packet, 0);
        message.expires = expires;
        message.share = share;
        message.set_sequence(sequence.get());
        Entry { message: Arc::new(message), order, deliveries }
    }

    /// What is known of the message.
    pub(in crate::broker) fn known(&self) -> Known<'_> {
        let (sequence, bytes) = (self.sequence.get(), u64::from(self.bytes));
        Known { sequence, bytes, share: self.share.as_ref(), is_here: false }
    }

    /// Where it waits.
    pub(in crate::broker) const fn place(&self) -> Place {
        Place::new(self.priority as usize, self.order)
    }
}

/// One message of one queue or subscription, wherever its body is.
#[derive(Debug, Clone)]
pub(in crate::broker) enum Item {
    /// In memory.
    Here(Entry),
    /// In the store only.
    Away(Stub),
}

impl Item {
    /// What is known of the message.
    pub(in crate::broker) fn known(&self) -> Known<'_> {
        match self {
            Self::Here(entry) => entry.message.known(),
            Self::Away(stub) => stub.known(),
        }
    }

    /// As of an [`Entry`].
    pub(in crate::broker) const fn order(&self) -> u64 {
        match self {
            Self::Here(Entry { order, .. }) | Self::Away(Stub { order, .. }) => *order,
        }
    }

    /// As of an [`Entry`].
    pub(in crate::broker) const fn deliveries(&self) -> u32 {
        match self {
            Self::Here(Entry { deliveries, .. }) | Self::Away(Stub { deliveries, .. }) => {
                *deliveries
            }
        }
    }

    /// The same message, with another order and count.
    pub(in crate::broker) fn with(mut self, new_order: u64, new_deliveries: u32) -> Self {
        match &mut self {
            Self::Here(Entry { order, deliveries, .. })
            | Self::Away(Stub { order, deliveries, .. }) => {
                *order = new_order;
                *deliveries = new_deliveries;
            }
        }
        self
    }

    /// Its priority, 9 at the most.
    pub(in crate::broker) fn priority(&self) -> u8 {
        match self {
            Self::Here(entry) => entry.message.packet.header().priority.min(PRIORITY_MAX),
            Self::Away(stub) => stub.priority,
        }
    }

    /// When it expires, in milliseconds since 1970; 0: never.
    pub(in crate::broker) fn expires(&self) -> i64 {
        match self {
            Self::Here(entry) => entry.message.expires,
            Self::Away(stub) => stub.expires,
        }
    }

    /// Whether its topic gave it up.
    pub(in crate::broker) fn is_given_up(&self) -> bool {
        self.known().share.is_some_and(|share| share.is_given_up())
    }

    /// Without the body, if that can be had from the store.
    pub(in crate::broker) fn cooled(self) -> Self {
        match self {
            Self::Here(entry) => match Stub::of(&entry) {
                Some(stub) => Self::Away(stub),
                None => Self::Here(entry),
            },
            away @ Self::Away(_) => away,
        }
    }

    /// Where it waits.
    pub(in crate::broker) fn place(&self) -> Place {
        match self {
            Self::Here(entry) => Place::of(entry),
            Self::Away(stub) => stub.place(),
        }
    }
}
