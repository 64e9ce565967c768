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
    /// The topic it was sent to, which counts it once however many subscriptions hold it.
    pub topic: Option<Arc<Destination>>,
    /// Its place in the order of the store; 0: it is not stored.
    sequence: AtomicU64,
    /// How many subscriptions of the topic hold it.
    holders: Holders,
    /// The topic had no room for it any more.
    given_up: AtomicBool,
    /// It is in the dead message queue, or was to go there.
    buried: AtomicBool,
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
            topic: None,
            sequence: AtomicU64::new(0),
            holders: Holders::default(),
            given_up: AtomicBool::new(false),
            buried: AtomicBool::new(false),
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

    /// So many subscriptions hold it from now on. Called before any of them is told.
    pub(super) fn set_holders(&self, count: u32) {
        self.holders.set(count);
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
