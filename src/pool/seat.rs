//! Where a slot's connection lies, and the turn on it.
//!
//! # Invariants
//! - Whoever has a [`Claim`] is the only one to touch the occupant. A claim is made by
//!   - the driver of an attempt (the slot is `Connecting` and counts it),
//!   - the one who retired the connection (the slot is `Retiring`),
//!   - the one who has the turn and found the slot `Open` in the generation it is counted in,
//!   - the owner of a seat outside the table.
//!
//!   These exclude each other: sessions that are counted keep the slot from being retired, and
//!   condemning it takes the turn.

#![allow(unsafe_code, reason = "the seat is guarded by the slot's word and the turn")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::pool::connect::Connector;
use crate::pool::turn::TurnQueue;
use crate::sync::{CachePadded, UnsafeCell};

/// A connection's place.
pub(crate) struct Seat<C: Connector> {
    pub(crate) turn: CachePadded<TurnQueue>,
    occupant: UnsafeCell<Occupant<C>>,
}

/// What lies in a seat.
pub(crate) enum Occupant<C: Connector> {
    Nothing,
    Attempt(Pin<Box<C::Connecting>>),
    Connection(C::Connection),
}

// SAFETY: the occupant is entered by one claim at a time, and the edges P1 to P4, T1 and T2 make
// the last claim's changes visible to the next; so sharing a seat is handing its content around.
unsafe impl<C: Connector> Sync for Seat<C> {}

impl<C: Connector> Seat<C> {
    pub(crate) fn new(occupant: Occupant<C>) -> Self {
        Self { turn: CachePadded::new(TurnQueue::new()), occupant: UnsafeCell::new(occupant) }
    }

    /// Claims the occupant.
    ///
    /// # Safety
    /// The caller is one of those named in the invariants of this module, and nobody else is
    /// until the claim is dropped.
    #[inline]
    pub(crate) unsafe fn claim(&self) -> Claim<'_, C> {
        Claim { seat: self }
    }
}

/// The right to a seat's occupant.
pub(crate) struct Claim<'s, C: Connector> {
    seat: &'s Seat<C>,
}

impl<'s, C: Connector> Claim<'s, C> {
    #[inline]
    fn with<R>(&mut self, f: impl FnOnce(&mut Occupant<C>) -> R) -> R {
        self.seat.occupant.with_mut(|occupant| {
            // SAFETY: the one who made the claim promised that nobody else has one.
            let occupant = unsafe { &mut *occupant };
            f(occupant)
        })
    }

    pub(crate) fn put(&mut self, occupant: Occupant<C>) {
        // The old occupant is dropped after the access has ended: its drop is foreign code.
        drop(self.with(|place| std::mem::replace(place, occupant)));
    }

    pub(crate) fn take(&mut self) -> Occupant<C> {
        self.with(|place| std::mem::replace(place, Occupant::Nothing))
    }

    pub(crate) fn take_connection(&mut self) -> Option<C::Connection> {
        match self.take() {
            Occupant::Connection(connection) => Some(connection),
            Occupant::Nothing | Occupant::Attempt(_) => None,
        }
    }

    /// Whether a connection lies here. Several claims that only ask this may exist at once.
    pub(crate) fn has_connection(&self) -> bool {
        self.seat.occupant.with(|occupant| {
            // SAFETY: the one who made the claim promised that nobody changes the occupant.
            matches!(unsafe { &*occupant }, Occupant::Connection(_))
        })
    }

    /// Goes on with the attempt in this seat.
    pub(crate) fn poll_attempt(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<C::Connection, C::Error>> {
        self.with(|place| match place {
            Occupant::Attempt(attempt) => attempt.as_mut().poll(context),
            Occupant::Nothing | Occupant::Connection(_) => {
                unreachable!("a driver's seat holds an attempt")
            }
        })
    }

    /// The connection in this seat, for as long as the claim lasts.
    #[inline]
    pub(crate) fn connection(&self) -> &C::Connection {
        let occupant = self.seat.occupant.with(|occupant| {
            // SAFETY: the one who made the claim promised that nobody else has one, and `&self`
            // keeps it from being used for a change meanwhile.
            unsafe { &*occupant }
        });
        expect_connection(match occupant {
            Occupant::Connection(connection) => Some(connection),
            Occupant::Nothing | Occupant::Attempt(_) => None,
        })
    }

    /// The connection in this seat, to use.
    #[inline]
    pub(crate) fn connection_mut(&mut self) -> &mut C::Connection {
        let occupant = self.seat.occupant.with_mut(|occupant| {
            // SAFETY: as in `with`; `&mut self` keeps it from being used twice.
            unsafe { &mut *occupant }
        });
        expect_connection(match occupant {
            Occupant::Connection(connection) => Some(connection),
            Occupant::Nothing | Occupant::Attempt(_) => None,
        })
    }

    /// Runs `f` on the connection, as one access that a model can watch.
    pub(crate) fn with_connection<R>(&mut self, f: impl FnOnce(&mut C::Connection) -> R) -> R {
        self.with(|place| match place {
            Occupant::Connection(connection) => f(connection),
            Occupant::Nothing | Occupant::Attempt(_) => expect_connection(None),
        })
    }
}

#[inline]
fn expect_connection<T>(connection: Option<T>) -> T {
    connection.expect("an open connection is in its seat while it is claimed")
}
