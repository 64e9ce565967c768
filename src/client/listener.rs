//! The thread of a session with listeners: one more thread that waits, and may read the socket.

use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    thread::{self, JoinHandle},
};

use super::{
    acks::{Block, Unwanted},
    clock,
    consumer::ConsumerShared,
    error::RequestError,
    links::Arrived,
    listening::{self, Role},
    session::AcknowledgeMode,
    session_state::SessionShared,
};
use crate::{
    message::Message,
    sync::{Arc, Ordering, fence},
    wire::Packet,
};

/// A consumer and what its messages are handed to.
pub(super) struct Listener {
    consumer: Arc<ConsumerShared>,
    call: Box<dyn FnMut(Message) + Send>,
    /// It stands in the line of those that may have messages.
    in_line: bool,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("consumer", &self.consumer.link.remote.get())
            .finish_non_exhaustive()
    }
}

impl Listener {
    pub(super) fn new(
        consumer: Arc<ConsumerShared>,
        call: impl FnMut(Message) + Send + 'static,
    ) -> Self {
        Self { consumer, call: Box::new(call), in_line: false }
    }
}

/// Starts the thread.
pub(super) fn start(session: Arc<SessionShared>) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name("tidegate-session".to_owned()).spawn(move || run(&session))
}

fn run(session: &Arc<SessionShared>) {
    let mut turns = Turns::default();
    loop {
        let next = session.core.wait(&session.link.signal, None, || {
            if session.is_closing() {
                return Some(None);
            }
            turns.take_news(session);
            turns.take_next(session).map(Some)
        });
        // Closing, or the connection is lost, which those who use the session are told.
        let Ok(Some(Some((key, arrived)))) = next else { break };
        if let Some(listener) = turns.listeners.get_mut(&key) {
            if let Some(block) = arrived.block(&session.core) {
                let call = &mut *listener.call;
                hand_over(session, &listener.consumer, call, &arrived.packet, block);
            }
            session.ask_for_next(&listener.consumer);
        }
        // Release: what the listener did comes before what a closer does next.
        session.running.store(0, Ordering::Release);
        session.returned.wake_all();
    }
    // A closer that waits for a listener waits for none.
    session.running.store(0, Ordering::Release);
    session.returned.wake_all();
}

/// The listeners of a session by their consumers' keys, and whose turn it is.
#[derive(Default)]
struct Turns {
    listeners: HashMap<u64, Listener>,
    /// Consumers that may have messages, in the order of their turns, each once.
    waiting: VecDeque<u64>,
    /// How many consumers had been closed at the last look.
    gone: u64,
}

impl Turns {
    /// Takes in new listeners and what came, and lets go of closed ones.
    fn take_news(&mut self, session: &SessionShared) {
        while let Some(listener) = session.listeners.pop() {
            let key = listener.consumer.link.key;
            self.listeners.insert(key, listener);
            self.line_up(key);
            // SeqCst fence: the new listener comes before the look for messages; see
            // `Routes::wake_touched`.
            fence(Ordering::SeqCst);
        }
        while let Some(key) = session.link.ready.pop() {
            self.line_up(key);
        }
        // Acquire: pairs with `ConsumerLink::end`.
        let gone = session.link.gone.load(Ordering::Acquire);
        if gone != self.gone {
            self.gone = gone;
            self.listeners.retain(|_, listener| !listener.consumer.link.is_closed());
        }
    }

    fn line_up(&mut self, key: u64) {
        if let Some(listener) = self.listeners.get_mut(&key)
            && !std::mem::replace(&mut listener.in_line, true)
        {
            self.waiting.push_back(key);
        }
    }

    /// The next message of some consumer, which counts as running from here on; each consumer in
    /// turn.
    fn take_next(&mut self, session: &SessionShared) -> Option<(u64, Arrived)> {
        if !session.may_deliver() {
            return None;
        }
        while let Some(key) = self.waiting.pop_front() {
            let Some(listener) = self.listeners.get_mut(&key) else { continue };
            let consumer = &listener.consumer;
            if consumer.link.inbox.is_empty() {
                listener.in_line = false;
                continue;
            }
            // Relaxed: the fence orders it.
            session.running.store(key, Ordering::Relaxed);
            // SeqCst fence: who runs comes before the look at the closed flag; see
            // `await_listener`.
            fence(Ordering::SeqCst);
            let may_go_on = session.may_deliver() && !session.is_closing();
            let open = may_go_on && !consumer.link.is_closed();
            let arrived = open.then(|| consumer.link.inbox.pop()).flatten();
            // At the end of the line, for its next message or for when it may go on.
            self.waiting.push_back(key);
            if let Some(arrived) = arrived {
                return Some((key, arrived));
            }
            // Release: nothing was run; a closer may go on.
            session.running.store(0, Ordering::Release);
            session.returned.wake_all();
            if !may_go_on {
                return None;
            }
            if listener.consumer.link.is_closed() {
                // It is let go with the next news.
                self.waiting.pop_back();
            }
        }
        None
    }
}

/// Runs the listener on a message, again if it fails, and acknowledges as the session does. Not on
/// one whose link is gone.
pub(super) fn hand_over(
    session: &SessionShared,
    consumer: &ConsumerShared,
    listener: &mut dyn FnMut(Message),
    packet: &Packet,
    block: Block,
) {
    if block.epoch != session.core.epoch() {
        return;
    }
    let Ok(Some(message)) = session.open(consumer, packet, block) else { return };
    let settles = match settles(session) {
        Ok(settles) => settles,
        // It waits until the session is rolled back.
        Err(error) => return tracing::warn!(%error, "a listener was not called"),
    };
    match settles {
        // Before the call, in which the application may acknowledge, commit or roll back.
        Settles::WhenAsked => session.link.acks.add(&session.core, block),
        Settles::With(id) if !acknowledge(session, consumer, packet, block, Some(id)) => return,
        Settles::With(_) | Settles::Afterwards => {}
    }
    let repeats = match settles {
        Settles::Afterwards => session.core.settings.redelivery_attempts,
        Settles::WhenAsked | Settles::With(_) => 0,
    };
    let done = call(session, listener, message, packet, repeats);
    match session.mode {
        _ if settles != Settles::Afterwards => {}
        AcknowledgeMode::NoAcknowledge => {}
        _ if !done => session.decline(block, Unwanted::Failed),
        AcknowledgeMode::DupsOk => session.link.acks.add(&session.core, block),
        _ => {
            let _told = acknowledge(session, consumer, packet, block, None);
        }
    }
}

/// When a message counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settles {
    /// When its listener has returned.
    Afterwards,
    /// When the application acknowledges it.
    WhenAsked,
    /// With the transaction that is open when it is handed over.
    With(i64),
}

fn settles(session: &SessionShared) -> Result<Settles, RequestError> {
    Ok(match session.mode {
        AcknowledgeMode::Client => Settles::WhenAsked,
        AcknowledgeMode::Transacted | AcknowledgeMode::Auto => {
            // If the last one was lost the application hears of that when it commits.
            session.present_transaction()?.map_or(Settles::Afterwards, Settles::With)
        }
        AcknowledgeMode::DupsOk | AcknowledgeMode::NoAcknowledge => Settles::Afterwards,
    })
}

/// Whether the broker took the acknowledgement.
fn acknowledge(
    session: &SessionShared,
    consumer: &ConsumerShared,
    packet: &Packet,
    block: Block,
    transaction: Option<i64>,
) -> bool {
    let outcome = session.acknowledge_one(consumer, packet, block, transaction);
    if let Err(error) = &outcome {
        // The broker delivers it again, here or elsewhere.
        tracing::warn!(%error, "a listener's message was not acknowledged");
    }
    outcome.is_ok()
}

/// Calls the listener with the message until it does not fail, so many times more at most; whether
/// it did not.
fn call(
    session: &SessionShared,
    listener: &mut dyn FnMut(Message),
    first: Message,
    packet: &Packet,
    repeats: u32,
) -> bool {
    let settings = &session.core.settings;
    let mut opened = Some(first);
    for attempt in 0..=repeats {
        if attempt > 0 {
            let deadline = clock::deadline_after(Some(settings.redelivery_interval));
            let ended = || session.is_closing().then_some(());
            let closing = session.core.wait(&session.link.signal, deadline, ended);
            if !matches!(closing, Ok(None)) {
                return false;
            }
        }
        let message = match opened.take() {
            Some(message) => message,
            // The listener has got the last one.
            None => match session.read(packet) {
                Ok(message) => message,
                Err(_unreadable) => return false,
            },
        };
        let run = || listening::run(session.place(Role::Listener), || listener(message));
        if catch_unwind(AssertUnwindSafe(run)).is_ok() {
            return true;
        }
        tracing::warn!(consumer = packet.header().consumer_id, attempt, "a listener panicked");
    }
    false
}
