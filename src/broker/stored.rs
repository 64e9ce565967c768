//! A message as a broker holds it.

use crate::{
    sync::{Arc, AtomicBool, AtomicU64, Holders, Ordering, Plain},
    wire::Packet,
};

use super::destination::Destination;

/// A message that was taken from a producer.
#[derive(Debug)]
pub(super) struct Stored {
    /// The packet as it was produced.
    pub packet: Packet,
    /// The connection that produced it; no-local consumers on it do not get it.
    pub connection_id: i64,
    /// That connection's client id; no-local subscriptions of it do not get the message.
    pub client_id: Option<Plain<str>>,
    /// When it expires, in milliseconds since 1970; 0: never.
    pub expires: i64,
    /// When it may be delivered, in milliseconds since 1970; 0: at once.
    pub due: i64,
    /// What the subscriptions that hold it share, if it was sent to a topic.
    pub share: Option<Arc<Share>>,
    /// Its place in the order of the store; 0: it is not stored.
    sequence: AtomicU64,
}

impl Stored {
    /// A message nobody holds yet.
    pub(super) fn new(packet: Packet, connection_id: i64) -> Self {
        Self {
            expires: packet.header().expiration.max(0),
            packet,
            connection_id,
            client_id: None,
            due: 0,
            share: None,
            sequence: AtomicU64::new(0),
        }
    }

    /// Its place in the order of the store; 0 if it is not stored.
    pub(super) fn sequence(&self) -> u64 {
        // Relaxed: it is set before the message goes on from its commit, through a gate.
        self.sequence.load(Ordering::Relaxed)
    }

    /// It is stored in this place.
    pub(super) fn set_sequence(&self, sequence: u64) {
        // Relaxed: as above.
        self.sequence.store(sequence, Ordering::Relaxed);
    }

    /// Its size as limits count it: the whole packet, in bytes.
    #[must_use]
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.packet.header().size)
    }

    /// Whether it has expired at this time, in milliseconds since 1970.
    #[must_use]
    pub(super) const fn is_expired(&self, wall_ms: i64) -> bool {
        self.expires > 0 && self.expires <= wall_ms
    }

    /// Whether its topic gave it up.
    pub(super) fn is_given_up(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.is_given_up())
    }

    /// What stays known of it without its body.
    pub(super) fn known(&self) -> Known<'_> {
        let (sequence, bytes, share) = (self.sequence(), self.bytes(), self.share.as_ref());
        Known { sequence, bytes, share, is_here: true }
    }
}

/// What is known of a message wherever its body is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    /// Its place in the order of the store; 0: it is not stored.
    pub sequence: u64,
    /// Its size as limits count it.
    pub bytes: u64,
    /// What its subscriptions share, if it was sent to a topic.
    pub share: Option<&'a Arc<Share>>,
    /// Its body is in memory.
    pub is_here: bool,
}

/// What the subscriptions of a topic share of one message.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// The topic, which counts the message once however many subscriptions hold it; `None`: it is
    /// no more.
    pub topic: Option<Arc<Destination>>,
    /// The store's number of a topic that is no more.
    old_place: u64,
    /// How many of the holders of a stored message have its body.
    bodies: Holders,
    /// How many subscriptions hold the message.
    holders: Holders,
    /// The topic had no room for it any more.
    given_up: AtomicBool,
    /// It is in the dead message queue, or was to go there.
    buried: AtomicBool,
}

impl Share {
    /// Of a message for this topic.
    pub(super) fn of(topic: &Arc<Destination>) -> Self {
        Self { topic: Some(Arc::clone(topic)), ..Self::default() }
    }

    /// Of a stored message whose topic, which had this number in the store, is no more.
    pub(super) fn of_old(place: u64) -> Self {
        Self { old_place: place, ..Self::default() }
    }

    /// The number under which the store has the message.
    pub(super) fn place(&self) -> u64 {
        self.topic.as_ref().map_or(self.old_place, |topic| topic.place())
    }

    /// So many subscriptions hold it from now on. Called before any of them is told.
    pub(super) fn set_holders(&self, count: u32) {
        self.bodies.set(count);
        self.holders.set(count);
    }

    /// One more holds it, with its body; `true` if nobody had that.
    pub(super) fn hold(&self) -> bool {
        self.holders.add();
        self.take_body()
    }

    /// One more holds it; `false` if nobody does any more.
    pub(super) fn retain(&self) -> bool {
        self.holders.retain()
    }

    /// A holder has its body no longer; `true` for the last one.
    pub(super) fn drop_body(&self) -> bool {
        self.bodies.release()
    }

    /// A holder has its body again; `true` for the first one.
    pub(super) fn take_body(&self) -> bool {
        self.bodies.add()
    }

    /// A subscription is done with it; `true` for the last one.
    pub(super) fn release(&self) -> bool {
        self.holders.release()
    }

    /// Whether any subscription still holds it.
    pub(super) fn is_held(&self) -> bool {
        self.holders.any()
    }

    /// Gives it up; `true` for who does so first. Subscriptions that still have it drop it.
    pub(super) fn give_up(&self) -> bool {
        // Relaxed: the flag alone decides.
        !self.given_up.swap(true, Ordering::Relaxed)
    }

    /// Buries it; `true` for who does so first.
    pub(super) fn bury(&self) -> bool {
        // Relaxed: the flag alone decides.
        !self.buried.swap(true, Ordering::Relaxed)
    }

    /// Whether it was given up.
    pub(super) fn is_given_up(&self) -> bool {
        // Relaxed: seen late, the message is delivered once more, as it might have been before.
        self.given_up.load(Ordering::Relaxed)
    }
}
