//! The housekeeping thread of a connection: what nobody else is there to do.
//!
//! It sleeps for a tick at a time. When nobody has read the socket for a while it reads what came,
//! so that pings are answered and an end is noticed; it sends pings on an idle connection, writes
//! what was left unwritten, and sends lazy acknowledgements that have waited long enough. A sender
//! that leaves a message behind wakes it, if it sleeps. When the link is lost it restores that, see
//! [`super::reconnect`].

use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{clock, core::Core, event::ConnectionEvent, output::Push, reconnect::Whereabouts};
use crate::{
    proto::client::ConnectionError,
    sync::{Arc, Ordering},
    wire::{Flags, PacketBuilder, PacketType},
};

/// How long it sleeps when nothing happens.
const TICK: Duration = Duration::from_millis(100);
/// How long it waits for more after it has written something for a sender.
const LINGER: Duration = Duration::from_micros(100);
/// How often it waits for more before it sleeps again.
const LINGERS: u32 = 5;
/// How long it waits for the socket to take something of a full output.
const FULL: Duration = Duration::from_millis(10);
/// Ticks without reading after which it reads itself.
const UNREAD_TICKS: u32 = 2;
/// Bursts that it reads at one time, before somebody who waits may have the helm.
const BURSTS: usize = 64;
/// Ticks between two looks for lazy acknowledgements.
const ACK_TICKS: u32 = 5;

/// Starts the thread.
pub(super) fn start(core: Arc<Core>, whereabouts: Whereabouts) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name("tidegate-keeper".to_owned()).spawn(move || {
        Keeper::new(Arc::clone(&core), whereabouts).run();
        if let Some(reason) = core.lost() {
            core.tell(&ConnectionEvent::Ended { reason });
        }
    })
}

struct Keeper {
    core: Arc<Core>,
    whereabouts: Whereabouts,
    ticks: u32,
    unread: u32,
    reads: u64,
    writes: u64,
    /// Since when neither a byte came nor went.
    idle_since: Instant,
    /// When the ping was sent that nothing has followed.
    pinged: Option<Instant>,
}

impl Keeper {
    fn new(core: Arc<Core>, whereabouts: Whereabouts) -> Self {
        let (reads, writes) = (core.output.reads(), core.output.writes());
        let idle_since = clock::now();
        Self { core, whereabouts, ticks: 0, unread: 0, reads, writes, idle_since, pinged: None }
    }

    fn run(mut self) {
        while self.core.lost().is_none() {
            let deadline = clock::now() + TICK;
            let core = Arc::clone(&self.core);
            // Relaxed, here and below: the signal's fences order the flag against the sleep.
            // Whoever closes the connection ends it, and wants no other link.
            let down = || !core.epoch().is_up() && !core.is_closing();
            let called =
                || core.keeper_wanted.load(Ordering::Relaxed) || core.lost().is_some() || down();
            core.keeper.sleep_unless(called, Some(deadline));
            if down() && core.lost().is_none() {
                core.restore(&mut self.whereabouts);
                self.pinged = None;
                self.idle_since = clock::now();
            }
            if core.keeper_wanted.swap(false, Ordering::Relaxed) {
                self.write_for_senders();
            }
            if clock::now() >= deadline {
                self.tick();
            }
        }
    }

    /// Writes what senders left, and stays for a moment, as there is often more. Senders need not
    /// wake this thread meanwhile.
    fn write_for_senders(&self) {
        let mut quiet = 0;
        while quiet < LINGERS && self.core.lost().is_none() && self.core.epoch().is_up() {
            let full = self.core.output.is_full();
            if full {
                // A future may wait for that, which does not write itself.
                self.core.wait_ready(None, FULL);
            }
            self.core.flush();
            if full && !self.core.output.is_full() {
                self.core.room.wake_all();
            }
            // A bounded nap, not a wait: nobody wakes it, which is what makes it cheap for them.
            thread::park_timeout(LINGER);
            let more = self.core.keeper_wanted.swap(false, Ordering::Relaxed);
            quiet = if more || self.core.output.is_full() { 0 } else { quiet + 1 };
        }
        self.core.flush();
        self.core.room.wake_all();
    }

    fn tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(ACK_TICKS) {
            self.core.flush_idle_acknowledgements();
        }
        self.core.flush();
        let (reads, writes) = (self.core.output.reads(), self.core.output.writes());
        let read = reads != self.reads || self.core.is_driven();
        self.unread = if read { 0 } else { self.unread + 1 };
        if self.unread >= UNREAD_TICKS {
            self.core.poll(BURSTS);
            self.core.flush();
        }
        if reads != self.reads {
            self.pinged = None;
        }
        if reads != self.reads || writes != self.writes {
            self.idle_since = clock::now();
        }
        (self.reads, self.writes) = (reads, writes);
        self.ping();
    }

    fn ping(&mut self) {
        let epoch = self.core.epoch();
        let settings = &self.core.settings;
        let Some(interval) = settings.ping_interval else { return };
        let now = clock::now();
        if let Some(pinged) = self.pinged {
            let waited = now.saturating_duration_since(pinged);
            let limit = settings.ping_ack_timeout;
            if settings.abort_on_ping_timeout && limit > Duration::ZERO && waited > limit {
                let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                self.core.lose(epoch, ConnectionError::PingTimeout { millis });
                return;
            }
        }
        if now.saturating_duration_since(self.idle_since) < interval {
            return;
        }
        let mut ping = PacketBuilder::new(PacketType::PING);
        if settings.abort_on_ping_timeout {
            ping = ping.flags(Flags::ACKNOWLEDGE);
            self.pinged.get_or_insert(now);
        }
        self.core.submit(epoch, ping, Push::Now);
        self.idle_since = now;
    }
}
