//! A backlog against a plain list, with bodies here and away.

use std::num::NonZeroU64;

use proptest::{collection::vec, prelude::*};

use super::{Backlog, Cursor, Entry, FETCHED_MAX, Found, Item, Place, Stop};
use crate::{
    broker::stored::Stored,
    sync::Arc,
    wire::{Packet, PacketBuilder, PacketType},
};

/// What the list knows of a message that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plain {
    priority: u8,
    order: u64,
    expires: i64,
    is_stored: bool,
    is_cold: bool,
}

impl Plain {
    fn packet(self) -> Packet {
        let packet = PacketBuilder::new(PacketType::TEXT_MESSAGE);
        packet.priority(self.priority).expiration(self.expires).finish()
    }

    fn sequence(self) -> u64 {
        if self.is_stored { self.order + 1 } else { 0 }
    }

    fn item(self) -> Item {
        let message = Stored::new(self.packet(), 1);
        message.set_sequence(self.sequence());
        let entry = Entry { message: Arc::new(message), order: self.order, deliveries: 3 };
        let item = Item::Here(entry);
        if self.is_cold { item.cooled() } else { item }
    }

    const fn place(self) -> Place {
        Place::new(self.priority as usize, self.order)
    }
}

/// The messages that wait, by priority and order.
#[derive(Debug, Default)]
struct Model {
    waiting: Vec<Plain>,
    out: Vec<Plain>,
}

impl Model {
    fn add(&mut self, one: Plain) {
        self.waiting.push(one);
        self.waiting.sort_unstable_by_key(|one| one.place().rank());
    }

    fn remove(&mut self, order: u64) -> Plain {
        let at = self.waiting.iter().position(|one| one.order == order).unwrap();
        self.waiting.remove(at)
    }

    fn at(&mut self, place: Place) -> &mut Plain {
        self.waiting.iter_mut().find(|one| one.place() == place).unwrap()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Arrive { priority: u8, expires: i64, is_stored: bool, is_cold: bool },
    Return { at: usize, is_cold: bool },
    Pop,
    Search,
    Warm { at: usize },
    Take { by_priority: bool },
    Expire { now: i64 },
    Walk,
}

fn step() -> impl Strategy<Value = Step> {
    let expires = prop_oneof![3 => Just(0), 1 => 1..50_i64];
    prop_oneof![
        6 => (0..10_u8, expires, any::<bool>(), any::<bool>()).prop_map(
            |(priority, expires, is_stored, is_cold)| Step::Arrive {
                priority,
                expires,
                is_stored,
                is_cold: is_cold && is_stored,
            }
        ),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(at, is_cold)| Step::Return { at, is_cold }),
        3 => Just(Step::Pop),
        2 => Just(Step::Search),
        3 => any::<usize>().prop_map(|at| Step::Warm { at }),
        1 => any::<bool>().prop_map(|by_priority| Step::Take { by_priority }),
        1 => (0..60_i64).prop_map(|now| Step::Expire { now }),
        1 => Just(Step::Walk),
    ]
}

fn gone(item: Option<Item>, wanted: Option<Plain>) {
    let seen = item.map(|item| (item.order(), item.deliveries(), matches!(item, Item::Away(_))));
    assert_eq!(seen, wanted.map(|one| (one.order, 3, one.is_cold)));
}

/// Whoever takes what is next finds it, or is told where its body is missing.
fn pop(backlog: &mut Backlog, model: &mut Model) {
    match (backlog.pop(), model.waiting.first().copied()) {
        (Found::Nothing, None) => {}
        (Found::Cold(place), Some(first)) => {
            assert!(first.is_cold && place == first.place());
            assert_eq!(backlog.missing(place, 1, 0)[0].sequence.get(), first.sequence());
        }
        (Found::Entry(entry), Some(first)) => {
            assert!(!first.is_cold && entry.order == first.order);
            assert_eq!(entry.message.sequence(), first.sequence());
            assert_eq!(entry.message.expires, first.expires);
            let taken = model.remove(first.order);
            model.out.push(taken);
        }
        (found, first) => panic!("{found:?} and {first:?}"),
    }
}

/// A fresh search for an even order, by somebody who fetches what is missing.
fn search(backlog: &mut Backlog, model: &mut Model) {
    let (mut cursor, mut budget) = (Cursor::default(), usize::MAX);
    let wanted = model.waiting.iter().find(|one| one.order % 2 == 0).copied();
    let mut passed: Vec<Entry> = Vec::new();
    let found = loop {
        match backlog.take_match(&mut cursor, &mut budget, |_| true) {
            Found::Nothing => break None,
            Found::Entry(entry) if entry.order % 2 == 0 => break Some(entry),
            Found::Entry(entry) => passed.push(entry),
            Found::Cold(place) => {
                let one = model.at(place);
                assert!(one.is_cold, "{one:?}");
                one.is_cold = false;
                let sequence = NonZeroU64::new(one.sequence()).unwrap();
                backlog.warm(place, sequence, one.packet());
            }
        }
    };
    passed.into_iter().for_each(|entry| backlog.restore(Item::Here(entry)));
    assert_eq!(found.map(|entry| entry.order), wanted.map(|one| one.order));
    if let Some(one) = wanted {
        let taken = model.remove(one.order);
        model.out.push(taken);
    }
}

fn carry_out(step: &Step, order: u64, backlog: &mut Backlog, model: &mut Model) {
    match *step {
        Step::Arrive { priority, expires, is_stored, is_cold } => {
            let one = Plain { priority, order, expires, is_stored, is_cold };
            backlog.push(one.item());
            model.add(one);
        }
        Step::Return { at, is_cold } if !model.out.is_empty() => {
            let mut one = model.out.swap_remove(at % model.out.len());
            one.is_cold = is_cold && one.is_stored;
            backlog.restore(one.item());
            model.add(one);
        }
        Step::Warm { at } if !model.waiting.is_empty() => {
            let at = at % model.waiting.len();
            let one = &mut model.waiting[at];
            // One that is here already, or has another sequence, is not changed.
            let sequence = NonZeroU64::new(one.sequence().max(1)).unwrap();
            backlog.warm(one.place(), sequence.saturating_add(1), one.packet());
            backlog.warm(one.place(), sequence, one.packet());
            one.is_cold = false;
        }
        Step::Pop => pop(backlog, model),
        Step::Search => search(backlog, model),
        Step::Take { by_priority } => {
            let place = if by_priority { backlog.lowest() } else { backlog.oldest() };
            let all = &model.waiting;
            let wanted = if by_priority {
                all.iter().min_by_key(|one| (one.priority, one.order))
            } else {
                all.iter().min_by_key(|one| one.order)
            };
            let wanted = wanted.copied();
            gone(place.and_then(|place| backlog.take(place)), wanted);
            if let Some(one) = wanted {
                model.remove(one.order);
            }
        }
        Step::Expire { now } => {
            while let Some(item) = backlog.take_expired(now) {
                let one = model.remove(item.order());
                assert!((1..=now).contains(&one.expires));
                gone(Some(item), Some(one));
            }
            assert!(!model.waiting.iter().any(|one| (1..=now).contains(&one.expires)));
        }
        Step::Walk => {
            let (mut cursor, mut budget, mut shown) = (Cursor::default(), usize::MAX, Vec::new());
            let stop = backlog.walk(&mut cursor, &mut budget, 0, |place, _| {
                shown.push(place);
                true
            });
            let cold = model.waiting.iter().position(|one| one.is_cold);
            let places = model.waiting.iter().map(|one| one.place());
            let wanted: Vec<Place> = places.take(cold.unwrap_or(usize::MAX)).collect();
            assert_eq!(shown, wanted);
            let first = cold.map(|at| Stop::Cold(model.waiting[at].place()));
            assert_eq!(stop, first.unwrap_or(Stop::Done));
        }
        Step::Return { .. } | Step::Warm { .. } => {}
    }
}

proptest! {
    #[test]
    fn bodies_here_or_away_nothing_is_lost_and_order_holds(steps in vec(step(), 1..300)) {
        let (mut backlog, mut model) = (Backlog::default(), Model::default());
        for (step, order) in steps.iter().zip(0..) {
            carry_out(step, order, &mut backlog, &mut model);
            prop_assert_eq!(backlog.len(), model.waiting.len());
            let size = |one: &&Plain| u64::from(one.packet().header().size);
            let here = model.waiting.iter().filter(|one| one.is_stored && !one.is_cold);
            prop_assert_eq!(backlog.here_bytes(), here.map(|one| size(&one)).sum::<u64>());
            let away = model.waiting.iter().filter(|one| one.is_cold);
            let away: u64 = away.map(|one| size(&one)).sum();
            prop_assert_eq!(backlog.away_bytes(), away.cast_signed());
        }
        let rest: Vec<u64> = backlog.drain().map(|item| item.order()).collect();
        let wanted: Vec<u64> = model.waiting.iter().map(|one| one.order).collect();
        prop_assert_eq!(rest, wanted);
        prop_assert_eq!((backlog.here_bytes(), backlog.away_bytes()), (0, 0));
    }
}

#[test]
fn bodies_that_were_fetched_and_not_taken_go_again_the_oldest_first() {
    let mut backlog = Backlog::default();
    let one = |order| Plain { priority: 4, order, expires: 0, is_stored: true, is_cold: true };
    let count = FETCHED_MAX as u64 * 2;
    (0..count).for_each(|order| backlog.push(one(order).item()));
    for order in 0..count {
        let sequence = NonZeroU64::new(order + 1).unwrap();
        backlog.warm(one(order).place(), sequence, one(order).packet());
    }
    let size = u64::from(one(0).packet().header().size);
    assert_eq!(backlog.here_bytes(), FETCHED_MAX as u64 * size);
    assert_eq!(backlog.away_bytes().cast_unsigned(), (count - FETCHED_MAX as u64) * size);
    assert!(matches!(backlog.pop(), Found::Cold(place) if place == one(0).place()));
    let missing = backlog.missing(one(0).place(), 10, 3 * size);
    let orders: Vec<u64> = missing.iter().map(|one| one.place.order()).collect();
    assert_eq!(orders, [0, 1, 2], "as many as fit, and the next ones");
    assert_eq!(backlog.missing(one(5).place(), 10, 0).len(), 1, "one at least");
    assert!(backlog.missing(one(count - 1).place(), 10, size).is_empty(), "it is here");
}
