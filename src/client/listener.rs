//! The thread of a session with listeners: one more thread that waits, and may read the socket.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread::{self, JoinHandle},
};

use super::{
    acks::{self, Block, Unwanted},
    clock,
    consumer::ConsumerShared,
    listening,
    session::{AcknowledgeMode, SessionShared},
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
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("consumer", &self.consumer.id).finish_non_exhaustive()
    }
}

impl Listener {
    pub(super) fn new(
        consumer: Arc<ConsumerShared>,
        call: impl FnMut(Message) + Send + 'static,
    ) -> Self {
        Self { consumer, call: Box::new(call) }
    }
}

/// Starts the thread.
pub(super) fn start(session: Arc<SessionShared>) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name("tidegate-session".to_owned()).spawn(move || run(&session))
}

fn run(session: &Arc<SessionShared>) {
    let mut listeners: Vec<Listener> = Vec::new();
    let mut turn = 0;
    loop {
        let next = session.core.wait(&session.link.signal, None, || {
            if session.is_closing() {
                return Some(None);
            }
            while let Some(listener) = session.listeners.pop() {
                listeners.push(listener);
            }
            listeners.retain(|listener| !listener.consumer.link.is_closed());
            take_next(session, &listeners, &mut turn).map(Some)
        });
        // Closing, or the connection is lost, which those who use the session are told.
        let Ok(Some(Some((at, packet)))) = next else { break };
        if let Some(listener) = listeners.get_mut(at) {
            hand_over(session, listener, &packet);
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

/// The next message of some consumer, which counts as running from here on; each consumer in turn.
fn take_next(
    session: &SessionShared,
    listeners: &[Listener],
    turn: &mut usize,
) -> Option<(usize, Packet)> {
    if !session.may_deliver() {
        return None;
    }
    for step in 1..=listeners.len() {
        let at = (*turn + step) % listeners.len();
        let consumer = &listeners.get(at)?.consumer;
        if consumer.link.inbox.is_empty() {
            continue;
        }
        // Relaxed: the fence orders it.
        session.running.store(consumer.id.unsigned_abs(), Ordering::Relaxed);
        // SeqCst fence: who runs comes before the look at the closed flag; see `await_listener`.
        fence(Ordering::SeqCst);
        let open = !consumer.link.is_closed() && session.may_deliver() && !session.is_closing();
        if let Some(packet) = open.then(|| consumer.link.inbox.pop()).flatten() {
            *turn = at;
            return Some((at, packet));
        }
        // Release: nothing was run; a closer may go on.
        session.running.store(0, Ordering::Release);
        session.returned.wake_all();
    }
    None
}

/// Runs the listener on a message, again if it fails, and acknowledges as the session does.
fn hand_over(session: &SessionShared, listener: &mut Listener, packet: &Packet) {
    let core = &session.core;
    let Ok(Some(_)) = session.open(&listener.consumer, packet) else { return };
    let block = Block::of(packet.header());
    if session.mode == AcknowledgeMode::Client {
        // Before the call: the listener may acknowledge it.
        session.link.acks.add(core, block);
    }
    if !call(session, listener, packet) {
        if session.mode != AcknowledgeMode::Client {
            acks::decline(core, block, Unwanted::Failed);
        }
        return;
    }
    match session.mode {
        AcknowledgeMode::Client => {}
        AcknowledgeMode::DupsOk => session.link.acks.add(core, block),
        AcknowledgeMode::Auto => {
            if let Err(error) = acks::acknowledge(core, &[block], session.answer()) {
                // The broker delivers it again, here or elsewhere.
                tracing::warn!(%error, "a listener's message was not acknowledged");
            }
        }
    }
}

/// Calls the listener until it does not fail, as often as the settings allow; whether it did not.
fn call(session: &SessionShared, listener: &mut Listener, packet: &Packet) -> bool {
    let settings = &session.core.settings;
    let repeats = match session.mode {
        AcknowledgeMode::Client => 0,
        AcknowledgeMode::Auto | AcknowledgeMode::DupsOk => settings.redelivery_attempts,
    };
    for attempt in 0..=repeats {
        if attempt > 0 {
            let deadline = clock::deadline_after(Some(settings.redelivery_interval));
            let ended = || session.is_closing().then_some(());
            let closing = session.core.wait(&session.link.signal, deadline, ended);
            if !matches!(closing, Ok(None)) {
                return false;
            }
        }
        let Ok(message) = Message::from_packet(packet) else { return false };
        let call = &mut listener.call;
        let run = || listening::run(session.place(), || call(message));
        if catch_unwind(AssertUnwindSafe(run)).is_ok() {
            return true;
        }
        tracing::warn!(consumer = listener.consumer.id, attempt, "a listener panicked");
    }
    false
}
