//! Which connection a session gets, and what happens when it leaves: the rules over a fixed table
//! of slots, without the connections themselves.
//!
//! # Invariants
//! - A connection exists only in a slot, so there are never more than the table has.
//! - The usage count of the connection that is joined is no higher than any count read in the scan
//!   that chose it.
//! - A retirement that stands has taken one off `open` while that was over the minimum. So release
//!   never brings the open connections under the minimum.
//!
//! # Ordering
//! | Edge | Release side | Acquire side | Carries | Model |
//! | --- | --- | --- | --- | --- |
//! | P1–P4 | | | see `slot.rs` | |
//! | F1, F2 | | | see `floor.rs` | |
//!
//! `open` carries nothing: its value alone decides, and all its changes are read-modify-writes.
//!
//! # Source
//! Siebel shared connection pooling: an unused connection, else a new one while there are fewer
//! than the maximum, else the one with the lowest usage count. The hint is ours: the connection a
//! thread used last, if nobody uses it or none has fewer sessions, is as good as any, and warm.

use crate::pool::floor::Floor;
use crate::pool::slot::{Left, Settled, Slot, Surplus, Word};
use crate::sync::{AtomicUsize, CachePadded, Ordering, broken, hint, set_hint, spin};

/// The slots of one pool.
#[derive(Debug)]
pub struct Table {
    slots: Box<[CachePadded<Slot>]>,
    shared: CachePadded<Shared>,
    open_min: usize,
}

/// What all threads read and few change.
#[derive(Debug)]
struct Shared {
    /// Connections that are open and will stay so for all that is decided yet.
    open: AtomicUsize,
    floor: Floor,
}

/// A connection by slot and generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "inside the crate")]
pub struct Place {
    /// Index into the table.
    pub index: usize,
    /// Generation of the slot.
    pub generation: u32,
}

/// What a session gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a count or a claim was taken"]
#[allow(clippy::exhaustive_enums, reason = "inside the crate")]
pub enum Assigned {
    /// An open connection; the session is counted.
    Joined(Place),
    /// An empty slot to make a connection in; the caller drives.
    Reserved(Place),
    /// An attempt that somebody began and nobody drives; the caller drives.
    TakenOver(Place),
    /// Nothing yet: every slot is in the making or being closed.
    Nothing,
    /// Every connection has as many sessions as can be counted.
    Full,
}

/// What a leaving session has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "`Close` leaves the connection to the caller"]
#[allow(clippy::exhaustive_enums, reason = "inside the crate")]
pub enum Released {
    /// Nothing.
    Done,
    /// Wake those who wait: the connection can be had again.
    Kept,
    /// Close the connection, then say that the slot is empty.
    Close,
}

/// What one look over the table found.
struct Scan {
    best: Word,
    best_index: usize,
    vacant: Option<(usize, Word)>,
    dormant: Option<(usize, Word)>,
    /// Nothing lower than this is to be found.
    enough: u64,
}

impl Table {
    /// A table for at most `max` connections of which `open_min` stay open.
    #[must_use]
    pub fn new(max: usize, open_min: usize) -> Self {
        Self {
            slots: (0..max).map(|_| CachePadded::new(Slot::new())).collect(),
            shared: CachePadded::new(Shared { open: AtomicUsize::new(0), floor: Floor::new() }),
            open_min,
        }
    }

    /// How many slots there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no slots, as in a pool that does not share.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The slot at `index`.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    #[must_use]
    pub fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// Takes the connection this thread used last, if nobody uses it now, or if nobody has fewer
    /// sessions.
    #[inline]
    #[must_use]
    pub fn join_hinted(&self) -> Option<Place> {
        let index = hint();
        let slot = self.slots.get(index)?;
        let seen = slot.peek();
        let lowest = seen.rank() == 0 || self.shared.floor.is_lowest(seen.rank());
        (lowest && slot.join(seen)).then_some(Place { index, generation: seen.generation() })
    }

    /// Finds a connection for a session.
    pub fn assign(&self) -> Assigned {
        if let Some(place) = self.join_hinted() {
            return Assigned::Joined(place);
        }
        self.assign_by_scan(Attempts::Allowed)
    }

    /// Finds an open connection for a session, without making one: `Nothing` where a new one
    /// would be made.
    pub fn assign_open(&self) -> Assigned {
        if let Some(place) = self.join_hinted() {
            return Assigned::Joined(place);
        }
        self.assign_by_scan(Attempts::Refused)
    }

    fn assign_by_scan(&self, attempts: Attempts) -> Assigned {
        // The first look starts at the first slot, so that sessions which come one after the other
        // fill the table in order. Who loses a race looks on from where it lost it, so that
        // several losers spread out.
        let mut start = 0;
        loop {
            let floor = self.shared.floor.before_scan();
            let scan = self.scan(start);
            let place = |index, seen: Word| Place { index, generation: seen.generation() };
            let tried = if scan.best.rank() == 0 {
                scan.best_index
            } else if let Some((index, seen)) = scan.dormant {
                if attempts == Attempts::Refused {
                    return Assigned::Nothing;
                }
                if self.slots[index].take_over(seen) {
                    return Assigned::TakenOver(place(index, seen));
                }
                start = index;
                spin();
                continue;
            } else if let Some((index, seen)) = scan.vacant {
                if attempts == Attempts::Refused {
                    return Assigned::Nothing;
                }
                if self.slots[index].reserve(seen) {
                    return Assigned::Reserved(place(index, seen));
                }
                start = index;
                spin();
                continue;
            } else if Word::rank_is_joinable(scan.best.rank()) {
                self.raise_floor(floor, scan.best.rank());
                scan.best_index
            } else if scan.best.state() == crate::pool::slot::State::Open && !scan.best.is_shut() {
                return Assigned::Full;
            } else {
                return Assigned::Nothing;
            };
            // A canary run takes the count for granted and joins what is there now.
            let seen = if broken("table.choice") { self.slots[tried].peek() } else { scan.best };
            if self.slots[tried].join(seen) {
                set_hint(tried);
                return Assigned::Joined(place(tried, seen));
            }
            start = tried;
            spin();
        }
    }

    /// Claims an empty slot for a connection that exists already. `None` if there is none.
    pub fn reserve_vacant(&self) -> Option<Place> {
        self.slots.iter().enumerate().find_map(|(index, slot)| {
            let seen = slot.peek();
            (seen.is_vacant() && slot.reserve(seen))
                .then_some(Place { index, generation: seen.generation() })
        })
    }

    /// One look at every slot from `start` round, up to an unused open connection, or one at
    /// the floor. Among equals the first seen is chosen.
    #[inline]
    fn scan(&self, start: usize) -> Scan {
        let (before, after) = self.slots.split_at(start);
        let mut scan = Scan {
            best: Word::WORST,
            best_index: 0,
            vacant: None,
            dormant: None,
            enough: self.shared.floor.confirmed(),
        };
        if scan.over(start, after) {
            scan.over(0, before);
        }
        scan
    }

    /// Proposes the lowest usage count of a scan that began at `before` as the floor, and confirms
    /// it if a second look finds nothing below it.
    fn raise_floor(&self, before: u64, usage: u64) {
        let Some(proposal) = self.shared.floor.propose(before, usage) else { return };
        let below = self.slots.iter().any(|slot| {
            let seen = slot.look_again();
            seen.rank() < usage || seen.is_vacant() || seen.is_dormant()
        });
        if !below {
            self.shared.floor.confirm(&proposal);
        }
    }

    /// The confirmed floor of usage counts; 0 if there is none.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.shared.floor.confirmed()
    }

    /// A slot was opened, emptied or left by its driver: there may be something better now than
    /// the floor says.
    pub fn became_available(&self) {
        self.shared.floor.clear();
    }

    /// A connection was made in a slot: counts it as open, before anybody can use it.
    pub fn count_opened(&self) {
        // Relaxed: only the value counts. Before `opened`, so that a condemnation, which takes one
        // off, can only come later.
        self.shared.open.fetch_add(1, Ordering::Relaxed);
    }

    /// A counted connection broke, or its pool was shut down.
    pub fn count_lost(&self) {
        // Relaxed: only the value counts.
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections that are open, at some instant during the call.
    #[must_use]
    pub fn open(&self) -> usize {
        // Relaxed: a statistic.
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Takes a session off its connection.
    #[inline]
    pub fn release(&self, place: Place) -> Released {
        let slot = &self.slots[place.index];
        // Relaxed: a guess. If it says surplus, `give_up_surplus` decides; if it says none, then
        // another release or a condemnation came before this one.
        let surplus = if self.shared.open.load(Ordering::Relaxed) > self.open_min {
            Surplus::Yes
        } else {
            Surplus::No
        };
        match slot.leave(place.generation, surplus) {
            Left::Stays(usage) => {
                self.shared.floor.left(usage);
                Released::Done
            }
            Left::Stale => Released::Done,
            Left::Retired => self.retired(slot),
        }
    }

    /// The caller has retired a connection and owns it: decides whether it is really closed.
    #[cold]
    fn retired(&self, slot: &Slot) -> Released {
        if slot.peek().is_shut() {
            self.count_lost();
            return Released::Close;
        }
        if self.give_up_surplus() {
            return Released::Close;
        }
        match slot.kept() {
            Settled::Done => {
                self.became_available();
                Released::Kept
            }
            Settled::Shut => {
                self.count_lost();
                Released::Close
            }
        }
    }

    /// Takes one off the open connections if there are more than the minimum.
    fn give_up_surplus(&self) -> bool {
        // Relaxed throughout: only the value counts. The exchange forbids that two connections
        // leave on one surplus.
        let mut open = self.shared.open.load(Ordering::Relaxed);
        while open > self.open_min || broken("table.surplus") {
            match self.shared.open.compare_exchange_weak(
                open,
                open - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => open = now,
            }
        }
        false
    }
}

/// Whether a session may make a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempts {
    Allowed,
    Refused,
}

impl Scan {
    /// Looks at `slots`, the first of which is number `base`. `false` once nothing lower is to be
    /// found.
    #[inline]
    fn over(&mut self, base: usize, slots: &[CachePadded<Slot>]) -> bool {
        for (offset, slot) in slots.iter().enumerate() {
            let seen = slot.peek();
            if seen.rank() < self.best.rank() {
                self.best = seen;
                self.best_index = base + offset;
                if seen.rank() <= self.enough {
                    return false;
                }
            }
            if !Word::rank_is_joinable(seen.rank()) {
                self.note(base + offset, seen);
            }
        }
        true
    }

    #[cold]
    fn note(&mut self, index: usize, seen: Word) {
        if seen.is_vacant() {
            self.vacant.get_or_insert((index, seen));
        } else if seen.is_dormant() {
            self.dormant.get_or_insert((index, seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Assigned, Place, Released, Table};
    use crate::pool::slot::Settled;

    fn login(table: &Table) -> Place {
        match table.assign() {
            Assigned::Joined(place) => place,
            Assigned::Reserved(place) => {
                table.count_opened();
                assert_eq!(table.slot(place.index).opened(1), Settled::Done);
                place
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sessions_that_come_one_after_the_other_share_in_order() {
        let table = Table::new(10, 10);
        let places: Vec<_> = (0..100).map(|_| login(&table)).collect();
        for (session, place) in places.iter().enumerate() {
            assert_eq!(place.index, session % 10, "session {}", session + 1);
        }
        assert_eq!(table.open(), 10);
    }

    #[test]
    fn the_connection_that_lost_a_session_gets_the_next() {
        let table = Table::new(5, 5);
        let places: Vec<_> = (0..15).map(|_| login(&table)).collect();
        assert_eq!(table.release(places[3]), Released::Done);
        assert_eq!(login(&table).index, 3);
        assert_eq!(login(&table).index, 0);
    }

    #[test]
    fn more_than_the_minimum_closes_and_exactly_the_minimum_stays() {
        let table = Table::new(3, 2);
        let places: Vec<_> = (0..3).map(|_| login(&table)).collect();
        assert_eq!(table.release(places[0]), Released::Close);
        table.slot(0).emptied();
        assert_eq!(table.open(), 2);
        // The sentence "at least the minimum" would close this one and fall under the minimum.
        assert_eq!(table.release(places[1]), Released::Done);
        assert_eq!(table.release(places[2]), Released::Done);
        assert_eq!(table.open(), 2);
    }

    #[test]
    fn an_unused_connection_is_preferred_to_a_new_one() {
        let table = Table::new(3, 3);
        let first = login(&table);
        assert_eq!(table.release(first), Released::Done);
        assert_eq!(login(&table), first);
        assert_eq!(table.open(), 1);
        assert_eq!(login(&table).index, 1);
    }

    #[test]
    fn a_vacancy_is_filled_before_anything_is_shared() {
        let table = Table::new(2, 1);
        let first = login(&table);
        assert_eq!(table.assign_open(), Assigned::Nothing);
        let _second = login(&table);
        assert_eq!(table.assign_open(), Assigned::Joined(first));
    }
}
