//! One thread's loop.
//!
//! ```text
//!  mail ──▶ poll ──▶ readiness of each transport ──▶ deadlines ──▶ end of turn ──▶ (spin) ──▶ …
//! ```
//!
//! A turn that mail brought does not poll, as long as the poller has its say often enough.
//!
//! Registration is once, edge-triggered, both ways. An edge may carry data and the end of the
//! stream together; the handler learns of both at once and reads to the end.

use std::{
    io,
    sync::Arc as StdArc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use mio::{Events, Interest, Poll, Registry, Token, Waker, event::Source};

use super::{Idle, Key, calls, timer::Timers};
use crate::sync::{Mailbox, Wake};

/// Events taken from the poller at once.
const EVENTS: usize = 1024;
/// Turns in a row that mail alone may make, before the poller is asked what else there is.
const UNPOLLED_MAX: u32 = 8;
/// The waker's token; no [`Key`] has this generation.
const WAKER: Token = Token(usize::MAX);

/// Wakes a loop out of its poller.
#[derive(Debug)]
pub struct PollWaker(Waker);

impl Wake for PollWaker {
    fn wake(&self) {
        calls::count();
        if let Err(error) = self.0.wake() {
            // The loop polls on with its next deadline; mail then comes late, not never.
            tracing::error!(%error, "an event loop could not be woken");
        }
    }
}

/// What is ready on a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// Bytes, or the end, can be read.
    pub readable: bool,
    /// There is room to write again.
    pub writable: bool,
    /// The peer has ended its sending half, or the connection is broken: read to the end.
    pub closed: bool,
}

/// Whether a loop goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// There is more to do at once: poll without waiting.
    Again,
    /// Wait for something. `answer_due`: a peer owes an answer and will not take long.
    Wait {
        /// Whether a short spin is worth it.
        answer_due: bool,
    },
    /// End the loop.
    Stop,
}

/// What a loop serves.
pub trait Handler {
    /// What other threads may send in.
    type Mail: Send;

    /// Mail came.
    fn mail(&mut self, io: &mut Io, mail: Self::Mail);

    /// Something registered under `key` is ready.
    fn ready(&mut self, io: &mut Io, key: Key, readiness: Readiness);

    /// A deadline set for `key` has passed.
    fn deadline(&mut self, io: &mut Io, key: Key);

    /// A turn begins; its readiness follows.
    fn begin_turn(&mut self, io: &mut Io);

    /// Everything of this turn has been handed in.
    fn end_turn(&mut self, io: &mut Io) -> Next;
}

/// What a handler may ask of its loop.
#[derive(Debug)]
pub struct Io {
    registry: Registry,
    timers: Timers,
    now: Instant,
    wall_ms: i64,
}

impl Io {
    /// The monotonic time of this turn.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The wall clock of this turn, in milliseconds since 1970.
    #[must_use]
    pub const fn wall_ms(&self) -> i64 {
        self.wall_ms
    }

    /// Calls [`Handler::deadline`] for `key` once `after` has passed.
    pub fn set_deadline(&mut self, key: Key, after: Duration) {
        self.timers.set(self.now + after, key);
    }

    /// Watches a source under a key, both ways, until it is dropped.
    ///
    /// # Errors
    /// What the poller says.
    pub fn register(&self, source: &mut impl Source, key: Key) -> io::Result<()> {
        self.registry.register(source, key.token(), Interest::READABLE | Interest::WRITABLE)
    }

    /// The monotonic time at this instant.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the reactor is where time comes from")]
    pub fn clock(&self) -> Instant {
        Instant::now()
    }

    #[allow(clippy::disallowed_methods, reason = "the reactor is where time comes from")]
    fn read_clock(&mut self) {
        self.now = Instant::now();
        self.wall_ms = wall_ms();
    }
}

/// The wall clock, in milliseconds since 1970.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the reactor is where time comes from")]
pub fn wall_ms() -> i64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(wall.as_millis()).unwrap_or(i64::MAX)
}

/// A loop before it runs. Its drop, or its end, closes its mailbox.
#[derive(Debug)]
pub struct EventLoop<M> {
    poll: Poll,
    io: Io,
    mailbox: StdArc<Mailbox<M, PollWaker>>,
    idle: Idle,
}

impl<M: Send> EventLoop<M> {
    /// Makes the poller and the mailbox.
    ///
    /// # Errors
    /// What the system says.
    #[allow(clippy::disallowed_methods, reason = "the reactor is where time comes from")]
    pub fn new(idle: Idle) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = PollWaker(Waker::new(poll.registry(), WAKER)?);
        let registry = poll.registry().try_clone()?;
        let io = Io { registry, timers: Timers::default(), now: Instant::now(), wall_ms: 0 };
        Ok(Self { poll, io, mailbox: StdArc::new(Mailbox::new(waker)), idle })
    }

    /// Where others leave mail.
    #[must_use]
    pub fn mailbox(&self) -> StdArc<Mailbox<M, PollWaker>> {
        StdArc::clone(&self.mailbox)
    }

    /// What handlers use, for use before the loop runs.
    pub const fn io(&mut self) -> &mut Io {
        &mut self.io
    }

    /// Runs until the handler says stop.
    ///
    /// # Errors
    /// If the poller fails, which ends everything the loop serves.
    pub fn run(mut self, handler: &mut impl Handler<Mail = M>) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut spin_until: Option<Instant> = None;
        let mut next = Next::Again;
        let mut unpolled = 0;
        loop {
            let got_mail = self.take_mail(handler);
            if got_mail && unpolled < UNPOLLED_MAX {
                unpolled += 1;
                events.clear();
            } else {
                if got_mail {
                    next = Next::Again;
                }
                let timeout = self.timeout(next, spin_until);
                if unpolled < UNPOLLED_MAX && !self.mailbox.is_empty() {
                    // It came while this thread gave way.
                    self.mailbox.awake();
                    continue;
                }
                unpolled = 0;
                calls::count();
                match self.poll.poll(&mut events, timeout) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                }
                self.mailbox.awake();
            }
            self.io.read_clock();
            handler.begin_turn(&mut self.io);
            let busy = self.hand_in(&events, handler) || got_mail;
            next = handler.end_turn(&mut self.io);
            match next {
                Next::Stop => return Ok(()),
                Next::Wait { answer_due } if busy => {
                    // `None` means spin for ever.
                    let spin = self.idle.spin(answer_due).unwrap_or(Duration::from_secs(3600));
                    spin_until = Some(self.io.now + spin);
                }
                Next::Wait { .. } | Next::Again => {}
            }
        }
    }

    /// Hands in mail; `true` if there was any.
    fn take_mail(&mut self, handler: &mut impl Handler<Mail = M>) -> bool {
        let mut any = false;
        while let Some(mail) = self.mailbox.receive() {
            handler.mail(&mut self.io, mail);
            any = true;
        }
        any
    }

    /// Hands in readiness and deadlines; `true` if there were any.
    fn hand_in(&mut self, events: &Events, handler: &mut impl Handler<Mail = M>) -> bool {
        let mut busy = false;
        for event in events.iter().filter(|event| event.token() != WAKER) {
            busy = true;
            let readiness = Readiness {
                readable: event.is_readable(),
                writable: event.is_writable(),
                closed: event.is_read_closed() || event.is_error(),
            };
            handler.ready(&mut self.io, Key::from_token(event.token()), readiness);
        }
        while let Some(key) = self.io.timers.due(self.io.now) {
            busy = true;
            handler.deadline(&mut self.io, key);
        }
        busy
    }

    fn timeout(&self, next: Next, spin_until: Option<Instant>) -> Option<Duration> {
        if next == Next::Again {
            return Some(Duration::ZERO);
        }
        if self.idle == Idle::Spin || spin_until.is_some_and(|until| self.io.now < until) {
            calls::count();
            std::thread::yield_now();
            return Some(Duration::ZERO);
        }
        if !self.mailbox.prepare_sleep() {
            return Some(Duration::ZERO);
        }
        // The poller waits in whole milliseconds; round up, or the last one would be spun away.
        let wait = self.io.timers.wait(self.io.now);
        wait.map(|wait| wait + Duration::from_micros(999))
    }
}

impl<M> Drop for EventLoop<M> {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}
