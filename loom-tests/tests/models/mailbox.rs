//! `sync/mailbox.rs`: mail arrives once (M1), no wake is lost (M2), one wake per burst, none stays
//! behind its owner's end (M3).

use loom::sync::{Arc, Notify};
use loom::thread;
use tidegate::internals::sync::{AtomicUsize, Mailbox, Ordering, Wake};

use crate::support::{Canary, canary, model};

pub const CANARIES: &[Canary] = &[
    canary("mailbox.look", "mailbox::no_lost_wake"),
    canary("mailbox.close", "mailbox::mail_after_the_end_is_dropped"),
    // The mailbox relies on both of a watch's fences.
    canary("watch.claim", "mailbox::no_lost_wake"),
    canary("watch.arm", "mailbox::no_lost_wake"),
];

struct Bell {
    notify: Notify,
    rung: AtomicUsize,
}

impl Bell {
    fn new() -> Self {
        Self { notify: Notify::new(), rung: AtomicUsize::new(0) }
    }
}

struct Handle(Arc<Bell>);

impl Wake for Handle {
    fn wake(&self) {
        self.0.rung.fetch_add(1, Ordering::Relaxed);
        self.0.notify.notify();
    }
}

/// Receives `expected` mails, asleep whenever there are none. A lost wake is a deadlock.
fn owner(mailbox: &Mailbox<u32, Handle>, bell: &Bell, expected: usize) -> Vec<u32> {
    let mut mails = Vec::new();
    loop {
        while let Some(mail) = mailbox.receive() {
            mails.push(mail);
        }
        if mails.len() >= expected {
            return mails;
        }
        if mailbox.prepare_sleep() {
            bell.notify.wait();
            mailbox.awake();
        }
    }
}

#[test]
fn no_lost_wake() {
    model("no_lost_wake", || {
        let bell = Arc::new(Bell::new());
        let mailbox = Arc::new(Mailbox::new(Handle(Arc::clone(&bell))));
        let sender = Arc::clone(&mailbox);
        let thread = thread::spawn(move || sender.send(7));
        assert_eq!(owner(&mailbox, &bell, 1), [7]);
        thread.join().unwrap();
        assert!(bell.rung.load(Ordering::Relaxed) <= 1, "an owner that is awake was woken");
    });
}

#[test]
fn mail_arrives_once() {
    model("mail_arrives_once", || {
        let bell = Arc::new(Bell::new());
        let mailbox = Arc::new(Mailbox::new(Handle(Arc::clone(&bell))));
        let threads = [1, 2].map(|mail| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.send(mail))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        let mut mails = owner(&mailbox, &bell, 2);
        mails.sort_unstable();
        assert_eq!(mails, [1, 2]);
        assert_eq!(mailbox.receive(), None);
        assert_eq!(bell.rung.load(Ordering::Relaxed), 0, "nobody slept");
    });
}

#[test]
fn a_burst_wakes_once() {
    model("a_burst_wakes_once", || {
        let bell = Arc::new(Bell::new());
        let mailbox = Arc::new(Mailbox::new(Handle(Arc::clone(&bell))));
        assert!(mailbox.prepare_sleep());
        let sender = Arc::clone(&mailbox);
        let thread = thread::spawn(move || sender.send(1));
        mailbox.send(2);
        thread.join().unwrap();
        assert_eq!(bell.rung.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn no_lost_wake_with_two_senders() {
    model("no_lost_wake_with_two_senders", || {
        let bell = Arc::new(Bell::new());
        let mailbox = Arc::new(Mailbox::new(Handle(Arc::clone(&bell))));
        let threads = [1, 2].map(|mail| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.send(mail))
        });
        let mut mails = owner(&mailbox, &bell, 2);
        mails.sort_unstable();
        assert_eq!(mails, [1, 2]);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn mail_after_the_end_is_dropped() {
    model("mail_after_the_end_is_dropped", || {
        let mailbox = Arc::new(Mailbox::new(Handle(Arc::new(Bell::new()))));
        let sender = Arc::clone(&mailbox);
        let thread = thread::spawn(move || sender.send(7));
        mailbox.close();
        thread.join().unwrap();
        assert!(mailbox.is_empty(), "mail lies where nobody looks");
    });
}
