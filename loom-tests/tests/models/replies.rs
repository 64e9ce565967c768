//! `sync/replies.rs`: a reply finds the request it answers, and wakes who waits for it.

use loom::{sync::Arc, thread};
use tidegate::internals::sync::{Queue, ReplyTable, Ticket};

use crate::support::{Canary, Evidence, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("replies.wake", "replies::a_reply_wakes_its_waiter"),
    canary("replies.id", "replies::a_late_reply_finds_nobody"),
    canary("replies.place", "replies::a_late_reply_finds_nobody"),
    canary("replies.freed", "replies::who_waits_for_a_slot_gets_one"),
];

/// Sleeps until the reply is there, as a requester does that does not read the socket itself.
fn wait(table: &ReplyTable<u32>, ticket: Ticket) -> u32 {
    let signal = table.signal(ticket);
    loop {
        let mut found = table.take(ticket);
        if found.is_none() {
            let look = || {
                found = table.take(ticket);
                found.is_some()
            };
            signal.sleep_unless(look, None);
        }
        if let Some(reply) = found {
            return reply;
        }
    }
}

#[test]
fn a_reply_wakes_its_waiter() {
    model("a_reply_wakes_its_waiter", || {
        let shared = Arc::new((ReplyTable::new(1), Evidence::new()));
        let ticket = shared.0.claim().unwrap();
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            other.1.leave(7);
            other.0.deliver(ticket.id(), 1);
        });
        assert_eq!(wait(&shared.0, ticket), 1);
        assert_eq!(shared.1.find(), 7);
        reader.join().unwrap();
    });
}

#[test]
fn a_late_reply_finds_nobody() {
    // The table has one slot here, so the second request gets the first one's.
    model("a_late_reply_finds_nobody", || {
        let shared = Arc::new((ReplyTable::new(1), Queue::new(1)));
        let given_up = shared.0.claim().unwrap();
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            other.0.deliver(given_up.id(), 1);
            // The second request, if it has been sent by now.
            let second: Option<u64> = other.1.pop();
            if let Some(id) = second {
                other.0.deliver(id, 2);
            }
            second
        });
        shared.0.release(given_up);
        let ticket = shared.0.claim().expect("it was given back");
        assert!(ticket.id() != given_up.id());
        shared.1.push(ticket.id()).unwrap();
        let early = shared.0.take(ticket);
        let sent = reader.join().unwrap();
        let reply = early.or_else(|| shared.0.take(ticket));
        assert_eq!(reply, sent.map(|_| 2));
        shared.0.release(ticket);
    });
}

#[test]
fn who_waits_for_a_slot_gets_one() {
    model("who_waits_for_a_slot_gets_one", || {
        let table: Arc<ReplyTable<u32>> = Arc::new(ReplyTable::new(1));
        let first = table.claim().unwrap();
        assert_eq!(table.claim(), None);
        let other = Arc::clone(&table);
        let holder = thread::spawn(move || other.release(first));
        let mut claimed = table.claim();
        while claimed.is_none() {
            let look = || {
                claimed = table.claim();
                claimed.is_some()
            };
            table.freed().sleep_unless(look, None);
            claimed = claimed.or_else(|| table.claim());
        }
        holder.join().unwrap();
        assert!(claimed.unwrap().id() != first.id());
    });
}
