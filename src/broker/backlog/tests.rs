//! What a backlog does with messages that are in memory.

use super::{Backlog, Cursor, Entry, Found, Item, Place, Stop};
use crate::{
    broker::stored::Stored,
    sync::Arc,
    wire::{Packet, PacketBuilder, PacketType},
};

fn packet(priority: u8, expiration: i64) -> Packet {
    PacketBuilder::new(PacketType::TEXT_MESSAGE).priority(priority).expiration(expiration).finish()
}

fn entry(order: u64, priority: u8) -> Entry {
    let message = Arc::new(Stored::new(packet(priority, 0), 1));
    Entry { message, order, deliveries: 0 }
}

fn mortal(order: u64, expiration: i64) -> Entry {
    let message = Arc::new(Stored::new(packet(4, expiration), 1));
    Entry { message, order, deliveries: 0 }
}

fn taken(found: Found) -> Option<Entry> {
    match found {
        Found::Entry(entry) => Some(entry),
        Found::Nothing => None,
        Found::Cold(place) => panic!("{place:?} is in the store"),
    }
}

fn orders(backlog: &mut Backlog) -> Vec<u64> {
    std::iter::from_fn(|| taken(backlog.pop()).map(|entry| entry.order)).collect()
}

#[test]
fn higher_priorities_come_first_and_equal_ones_in_order_of_arrival() {
    let mut backlog = Backlog::default();
    for (order, priority) in [(0, 1), (1, 4), (2, 9), (3, 0), (4, 9), (5, 200)] {
        backlog.push(Item::Here(entry(order, priority)));
    }
    assert_eq!(backlog.oldest(), Some(Place::new(1, 0)));
    assert_eq!(backlog.lowest(), Some(Place::new(0, 3)));
    assert_eq!(orders(&mut backlog), [2, 4, 5, 1, 0, 3]);
    assert!(backlog.is_empty() && backlog.oldest().is_none() && backlog.lowest().is_none());
}

#[test]
fn what_comes_back_takes_its_old_place() {
    let mut backlog = Backlog::default();
    for order in [3, 5, 9] {
        backlog.push(Item::Here(entry(order, 4)));
    }
    for order in [4, 1, 2, 7, 10] {
        backlog.restore(Item::Here(entry(order, 4)));
    }
    assert_eq!(orders(&mut backlog), [1, 2, 3, 4, 5, 7, 9, 10]);
}

#[test]
fn what_is_taken_from_the_middle_can_come_back_there() {
    let mut backlog = Backlog::default();
    (0..200).for_each(|order| backlog.push(Item::Here(entry(order, 4))));
    let taken: Vec<Item> =
        (20..190).filter_map(|order| backlog.take(Place::new(4, order))).collect();
    assert_eq!((taken.len(), backlog.len()), (170, 30));
    taken.into_iter().rev().for_each(|entry| backlog.restore(entry));
    assert_eq!(orders(&mut backlog), (0..200).collect::<Vec<_>>());
}

#[test]
fn a_search_looks_at_each_message_once_and_again_at_what_came_back() {
    let mut backlog = Backlog::default();
    (0..100)
        .for_each(|order| backlog.push(Item::Here(entry(order, if order == 7 { 9 } else { 4 }))));
    let (mut cursor, mut budget) = (Cursor::default(), 1000);
    let wanted = |at: u64| move |message: &Stored| message.due == 0 && at < 100;
    let first = taken(backlog.take_match(&mut cursor, &mut budget, wanted(0))).unwrap();
    assert_eq!((first.order, budget), (7, 999), "the higher priority first");
    assert!(taken(backlog.take_match(&mut cursor, &mut budget, wanted(100))).is_none());
    assert_eq!(budget, 900);
    assert!(taken(backlog.take_match(&mut cursor, &mut budget, wanted(0))).is_none());
    assert_eq!(budget, 900, "nothing is looked at twice");
    cursor.look_again(Place::of(&first));
    backlog.restore(Item::Here(first));
    let again = taken(backlog.take_match(&mut cursor, &mut budget, wanted(0)));
    assert_eq!(again.unwrap().order, 7);
    assert_eq!(budget, 899, "what came back, and nothing behind it");
    let (mut fresh, mut small) = (Cursor::default(), 5);
    assert!(taken(backlog.take_match(&mut fresh, &mut small, wanted(100))).is_none());
    assert_eq!(small, 0);
}

#[test]
fn messages_expire_in_their_time_and_only_while_they_wait() {
    let mut backlog = Backlog::default();
    for (order, at) in [(0, 30), (1, 10), (2, 20), (3, 0)] {
        backlog.push(Item::Here(mortal(order, at)));
    }
    assert_eq!(backlog.next_expiration(), Some(10));
    assert_eq!(taken(backlog.pop()).unwrap().order, 0);
    let expired = |backlog: &mut Backlog, now| {
        std::iter::from_fn(|| backlog.take_expired(now).map(|item| item.order()))
            .collect::<Vec<_>>()
    };
    assert_eq!(expired(&mut backlog, 9), [0_u64; 0]);
    assert_eq!(expired(&mut backlog, 100), [1, 2]);
    assert_eq!(orders(&mut backlog), [3]);
    // What comes and goes leaves nothing behind for long.
    for order in 10..10_000 {
        backlog.push(Item::Here(mortal(order, 1_000_000)));
        backlog.pop();
    }
    assert!(backlog.expiring.len() < 200, "{}", backlog.expiring.len());
}

#[test]
fn what_is_delayed_is_due_in_order_of_its_times() {
    let mut backlog = Backlog::default();
    for (order, due) in [(0, 30), (1, 10), (2, 10)] {
        backlog.delay(Item::Here(entry(order, 4)), due);
    }
    assert!(backlog.is_empty());
    assert_eq!((backlog.delayed(), backlog.next_due()), (3, Some(10)));
    assert!(backlog.take_due(9).is_none());
    assert_eq!(backlog.take_due(10).unwrap().order(), 1);
    assert_eq!(backlog.take_due(10).unwrap().order(), 2);
    assert!(backlog.take_due(29).is_none());
    assert_eq!(backlog.drain().count(), 1);
}

#[test]
fn a_walk_shows_all_in_order_and_can_be_taken_up_again() {
    let mut backlog = Backlog::default();
    for (order, priority) in [(0, 1), (1, 4), (2, 9), (3, 4)] {
        backlog.push(Item::Here(entry(order, priority)));
    }
    let (mut cursor, mut shown) = (Cursor::default(), Vec::new());
    for budget in [2, 1, 5] {
        let mut left = budget;
        let done = backlog.walk(&mut cursor, &mut left, 0, |place, _| {
            shown.push(place.order());
            true
        });
        assert_eq!(done, if budget == 5 { Stop::Done } else { Stop::Budget });
    }
    assert_eq!(shown, [2, 1, 3, 0]);
}
