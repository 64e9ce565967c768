//! Asynchronous sends: who waits for their replies, and runs what the application left.
//!
//! The sender goes on at once. A thread of the session's own, started with the first such send,
//! waits for the replies in the order of the sends, like any thread that waits: it may be the one
//! that reads the socket. So completions run one at a time and in order, never on the sender's
//! thread, and never while somebody holds anything.
//!
//! ```text
//!  send_async: open += 1 -> reply announced to the reader -> packet written -> line
//!  thread:     line -> await reply -> run the completion -> open -= 1 -> wake who waits for that
//! ```
//!
//! # Invariants
//! - Each send that was accepted is completed once: with the broker's word, with the time limit,
//!   or with the reason of the connection's end.
//! - The thread ends only when the session closes and no send is open.
//! - Nothing is sent on a new link before what was sent before on the last one.
//!
//! # Ordering
//! `open` is counted up before the session's closing flag is looked at, and the thread looks at the
//! flag before the count, with a `SeqCst` fence between on both sides: no send is accepted that the
//! thread does not see.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    clock,
    core::{Core, check},
    epoch::Epoch,
    error::{RequestError, SendError},
    links::{Awaited, Command},
    listening::{self, Role},
    producer::Target,
    session_state::SessionShared,
};
use crate::{
    message::Message,
    proto::client::ConnectionError,
    sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Inbox, Ordering, Queue, Signal, fence},
    wire::{MessageId, Packet},
};

/// Asynchronous sends of one session that may be open at one time; more wait.
const OPEN_MAX: usize = 1000;

/// What an application left to be run.
pub(super) type Call = Box<dyn FnOnce(Result<Message, SendError>) + Send>;

/// The asynchronous sends of one session.
#[derive(Debug)]
pub(super) struct Completions {
    line: Inbox<Pending>,
    /// Sends whose completion has not returned.
    open: AtomicUsize,
    /// Those of them that were written at least once.
    written: AtomicUsize,
    /// The newest link on which all of an earlier one have been sent again.
    caught_up: AtomicU64,
    /// Where the thread sleeps; woken by replies, new sends and the session's end.
    signal: Arc<Signal>,
    /// Woken when a completion has returned.
    returned: Signal,
    has_thread: AtomicBool,
    /// One place, until somebody joins it.
    thread: Queue<JoinHandle<()>>,
}

/// One send whose reply is waited for.
struct Pending {
    message: Message,
    /// The id under which it was sent.
    sent: MessageId,
    reply: Reply,
    /// Where it goes once more if the link is lost.
    target: Arc<Target>,
    deadline: Option<Instant>,
    call: Call,
}

/// Where a reply will be found, if its link lasts so long.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) id: i64,
    epoch: Epoch,
    awaited: Arc<Awaited>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("reply", &self.reply).finish_non_exhaustive()
    }
}

impl Reply {
    /// Announces to the reader that a reply is awaited, and what to wake then; before its request
    /// is sent.
    pub(super) fn announce(core: &Core, epoch: Epoch, signal: &Arc<Signal>) -> Self {
        let awaited = Arc::new(Awaited::new(Arc::clone(signal)));
        let id = core.replies.next_elsewhere();
        core.command(Command::AwaitReply { reply_id: id, awaited: Arc::clone(&awaited) });
        Self { id, epoch, awaited }
    }

    /// The reply, if it has come; `Some(None)` if its link is gone.
    #[allow(clippy::option_option, reason = "a reply, no reply, or neither yet")]
    pub(super) fn look(&self, core: &Core) -> Option<Option<Packet>> {
        match self.awaited.reply.pop() {
            Some(packet) => Some(Some(packet)),
            None => (core.epoch() != self.epoch).then_some(None),
        }
    }
}

impl Completions {
    pub(super) fn new() -> Self {
        Self {
            line: Inbox::new(),
            open: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
            caught_up: AtomicU64::new(Epoch::FIRST.number()),
            signal: Arc::new(Signal::new()),
            returned: Signal::new(),
            has_thread: AtomicBool::new(false),
            thread: Queue::new(1),
        }
    }

    /// Wakes the thread and who waits for it, to see that the session closes or the link is lost.
    pub(super) fn wake(&self) {
        self.signal.wake_all();
        self.returned.wake_all();
    }

    /// Waits until the thread has ended, if there is one: the session closes.
    pub(super) fn join(&self, core: &Core) {
        if let Some(thread) = self.thread.pop() {
            core.nudge_reader();
            // Its panic would have been reported by the panic hook.
            let _ended = thread.join();
        }
    }

    /// Announces to the reader that the thread waits for a reply; before its request is sent.
    pub(super) fn announce(&self, core: &Core, epoch: Epoch) -> Reply {
        Reply::announce(core, epoch, &self.signal)
    }

    /// Hands a send that was written over to the thread.
    pub(super) fn add(
        &self,
        core: &Core,
        message: Message,
        sent: MessageId,
        reply: Reply,
        target: Arc<Target>,
        call: Call,
    ) {
        let deadline = clock::deadline_after(core.settings.completion_timeout);
        // Relaxed: the same thread, or one that it has told, sends what comes behind this.
        self.written.fetch_add(1, Ordering::Relaxed);
        self.line.push(Pending { message, sent, reply, target, deadline, call });
        self.signal.wake_all();
    }

    /// A send was completed, or not made after all.
    pub(super) fn close_one(&self) {
        // Release: what the completion did comes before what a waiter does next.
        self.open.fetch_sub(1, Ordering::Release);
        self.returned.wake_all();
    }

    fn open(&self) -> usize {
        // Acquire: pairs with `close_one`.
        self.open.load(Ordering::Acquire)
    }
}

impl SessionShared {
    /// Makes room for one asynchronous send, and sees to it that there is a thread.
    pub(super) fn open_send(self: &Arc<Self>) -> Result<(), RequestError> {
        let completions = &self.completions;
        // A completion that sends would wait for itself.
        if !listening::in_completion(self.key()) {
            while completions.open() >= OPEN_MAX {
                completions.returned.sleep_unless(|| completions.open() < OPEN_MAX, None);
            }
        }
        // Relaxed: the fence orders it.
        completions.open.fetch_add(1, Ordering::Relaxed);
        // SeqCst fence: see the module's text.
        fence(Ordering::SeqCst);
        let outcome = self.check_not_closing().and_then(|()| self.start_completing());
        if outcome.is_err() {
            completions.close_one();
        }
        outcome
    }

    fn start_completing(self: &Arc<Self>) -> Result<(), RequestError> {
        let completions = &self.completions;
        // AcqRel: forbids that two senders both start the thread.
        if completions.has_thread.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let session = Arc::clone(self);
        let started = thread::Builder::new()
            .name("tidegate-completions".to_owned())
            .spawn(move || session.complete_all());
        match started {
            Ok(thread) => {
                let pushed = completions.thread.push(thread);
                debug_assert!(pushed.is_ok(), "one thread is started");
                Ok(())
            }
            Err(error) => {
                // Release: the next sender tries again.
                completions.has_thread.store(false, Ordering::Release);
                Err(ConnectionError::Socket(error.kind()).into())
            }
        }
    }

    /// Waits until the asynchronous sends of an earlier link have been sent again on this one, so
    /// that what is sent now comes behind them. Not from within a completion: it would wait for
    /// itself.
    pub(super) fn catch_up(&self, epoch: Epoch) {
        let completions = &self.completions;
        // Relaxed: the number alone; who is behind waits below.
        if completions.caught_up.load(Ordering::Relaxed) == epoch.number()
            || listening::in_completion(self.key())
        {
            return;
        }
        let gone = || self.core.epoch() != epoch || self.core.lost().is_some();
        // Acquire: pairs with the end of `complete`.
        let done = || completions.written.load(Ordering::Acquire) == 0 || gone();
        while !done() {
            completions.returned.sleep_unless(done, None);
        }
        if !gone() {
            // Relaxed: as above.
            completions.caught_up.store(epoch.number(), Ordering::Relaxed);
        }
    }

    /// Waits until no asynchronous send of the session is open.
    pub(super) fn await_completions(&self) {
        let completions = &self.completions;
        while completions.open() > 0 {
            completions.returned.sleep_unless(|| completions.open() == 0, None);
        }
    }

    fn complete_all(&self) {
        while let Some(pending) = self.next_pending() {
            self.complete(pending);
        }
    }

    /// The next send in line; `None` when the session closes and none is open.
    fn next_pending(&self) -> Option<Pending> {
        let completions = &self.completions;
        let look = || {
            if let Some(pending) = completions.line.pop() {
                return Some(Some(pending));
            }
            if !self.is_closing() {
                return None;
            }
            // SeqCst fence: see the module's text.
            fence(Ordering::SeqCst);
            (completions.open() == 0).then_some(None)
        };
        loop {
            match self.core.wait(&completions.signal, None, look) {
                Ok(Some(found)) => return found,
                Ok(None) => {}
                // The connection is lost: there is nothing to read, and what is open still is to
                // be completed.
                Err(_reason) => {
                    let mut found = None;
                    let stop = || {
                        found = look();
                        found.is_some()
                    };
                    completions.signal.sleep_unless(stop, None);
                    if let Some(found) = found {
                        return found;
                    }
                }
            }
        }
    }

    fn complete(&self, pending: Pending) {
        let Pending { mut message, sent, reply, target, deadline, call } = pending;
        let core = &self.core;
        let kind = message.kind().packet_type();
        let outcome = match core.wait(&self.completions.signal, deadline, || reply.look(core)) {
            Ok(Some(Some(packet))) => check(kind, packet).map(|_reply| ()),
            // The link was lost. The session is open for this send until it is completed.
            Ok(Some(None)) => {
                core.command(Command::ForgetReply(reply.id));
                let place = self.place(Role::Completion);
                listening::run(place, || target.send_again(&message, sent))
            }
            Ok(None) => {
                core.command(Command::ForgetReply(reply.id));
                Err(RequestError::TimedOut {
                    request: kind,
                    waited: core.settings.completion_timeout.unwrap_or(Duration::MAX),
                    setting: "imqAsyncSendCompletionWaitTimeout",
                })
            }
            Err(reason) => Err(reason.into()),
        };
        let outcome = match outcome {
            Ok(()) => {
                message.set_id(sent);
                Ok(message)
            }
            Err(cause) => Err(SendError::new(message, cause)),
        };
        let place = self.place(Role::Completion);
        let run = || listening::run(place, || call(outcome));
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            tracing::warn!(
                session = self.remote.get(),
                "the completion of an asynchronous send panicked"
            );
        }
        // Release: the message is at the broker before what `catch_up` lets through.
        self.completions.written.fetch_sub(1, Ordering::Release);
        self.completions.close_one();
    }
}
