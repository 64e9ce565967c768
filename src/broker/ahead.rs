//! Bodies that wait in the store are fetched ahead of whoever needs them.
//!
//! ```text
//! behind a gate             fetching thread                 behind the gate again
//! a body is missing ──▶ many of them in one read ──▶ given to what waits, which goes on
//! ```
//!
//! # Invariants
//! - Of a backlog, one request of each purpose is on its way at a time.
//! - A request is answered, if only when a lost store is back, or its destination is no more.
//! - Whoever stopped at a missing body is looked at again with the answer.

use std::{collections::VecDeque, num::NonZeroU64, time::Duration};

use bytes::Bytes;

use crate::{
    reactor::{Handler, Io, Key, Next, Readiness},
    store::{
        Space, StoreError, StoreReader,
        record::{message_key, read_message},
    },
    sync::{Arc, Ordering},
    wire::Packet,
};

use super::{
    backlog::{Missing, Place, Stub},
    command::{Command, Rare},
    dead::DeadReason,
    destination::Destination,
    dispatch::{Part, SHARED, State},
    memory::Memory,
    side::Side,
    turn::Turn,
};

/// Most bodies of one request, and most bytes of them; one body may be larger.
pub(super) const COUNT_MAX: usize = 256;
const BYTES_MAX: u64 = 1 << 20;

/// Bodies are fetched when one is missing among so many that are next.
const LOOK_AHEAD: usize = COUNT_MAX / 2;

/// How soon a store that could not be read is asked again.
const RETRY_EVERY: Duration = Duration::from_millis(250);

/// Whom bodies are fetched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Consumers that take what is next.
    Next,
    /// Consumers that search.
    Search,
    /// Browsers.
    Browse,
    /// The dead message queue.
    Dead,
}

/// Bodies that a destination wants.
#[derive(Debug)]
pub(super) struct Ask {
    at: Arc<Destination>,
    purpose: Purpose,
    wanted: Vec<Wanted>,
}

/// A body that is wanted: for what waits here, from there in the store.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    here: Place,
    sequence: NonZeroU64,
    /// The store's number of the queue or topic.
    place: u64,
}

/// What became of a body that was asked for.
type Body = Result<Packet, Unreadable>;

/// Why there is no body.
#[derive(Debug)]
struct Unreadable {
    reason: String,
    /// Something is there, but not what was written. It stays, for whoever looks into it.
    is_there: bool,
}

/// What a destination has to do with bodies elsewhere.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// By purpose, whether a request is on its way.
    asked: [bool; 4],
    /// To be sent at the end of the run.
    asks: Vec<(Purpose, Vec<Wanted>)>,
    /// What died without its body and is to be buried, the oldest first.
    dying: VecDeque<(Stub, DeadReason)>,
    /// What has expired in this run and is not buried.
    expired: u64,
    /// As in [`State::let_go`]: bytes of bodies in no memory, beside what the backlog says.
    pub(super) away_bytes: i64,
    /// What the broker's totals know of, waiting and away.
    accounted: (u64, i64),
}

impl Ahead {
    const fn is_free(&self, purpose: Purpose) -> bool {
        !self.asked[purpose as usize]
    }

    /// What died and is not buried.
    pub(super) fn take_dying(&mut self) -> VecDeque<(Stub, DeadReason)> {
        std::mem::take(&mut self.dying)
    }

    fn ask(&mut self, purpose: Purpose, wanted: Vec<Wanted>) {
        if !wanted.is_empty() {
            self.asked[purpose as usize] = true;
            self.asks.push((purpose, wanted));
        }
    }
}

impl State {
    /// Whether a message that is put into the backlog keeps its body in memory. What consumers are
    /// about to take does.
    pub(super) fn keeps_body(&self, key: i64, memory: &Memory) -> bool {
        self.part == Part::Topic || memory.keeps_bodies() || self.is_taken_soon(key)
    }

    /// Whether somebody takes what is put into the backlog now before long.
    fn is_taken_soon(&self, key: i64) -> bool {
        let Some(one) = self.subscriptions.get(&key) else { return false };
        let ready = one.ready.iter().filter_map(|id| self.subscribers.get(id));
        one.backlog.here_bytes() < BYTES_MAX
            && ready.map(|one| one.consumer.takes_now()).any(|n| n > 0)
    }

    /// Asks for what has stopped a search, and for what has stopped those who take what is next, or
    /// soon would.
    pub(super) fn fetch_ahead(&mut self, next: Option<Place>, search: Option<Place>) {
        if let Some(place) = search {
            self.ask_ahead(Purpose::Search, place, COUNT_MAX);
        }
        let credit = self.credit_ahead();
        // Without credit, nobody takes it soon.
        let soon = || self.subscriptions.get(&SHARED)?.backlog.cold_ahead(LOOK_AHEAD);
        if let Some(place) = next.or_else(|| soon().filter(|_| credit > 0)) {
            self.ask_ahead(Purpose::Next, place, credit);
        }
    }

    /// Asks for what is missing from this place on; `most`: of so many messages.
    pub(super) fn ask_ahead(&mut self, purpose: Purpose, from: Place, most: usize) {
        // Relaxed: as in `place`.
        let own = self.place.load(Ordering::Relaxed);
        let Some(one) = self.subscriptions.get(&SHARED) else { return };
        if !self.ahead.is_free(purpose) {
            return;
        }
        let missing = one.backlog.missing(from, most.clamp(1, COUNT_MAX), BYTES_MAX);
        let wanted = missing.into_iter().map(|Missing { place: here, sequence, share }| {
            let place = share.map_or(own, |share| share.place());
            Wanted { here, sequence, place }
        });
        self.ahead.ask(purpose, wanted.collect());
    }

    /// How many messages its ready consumers have credit for.
    pub(super) fn credit_ahead(&self) -> usize {
        let Some(one) = self.subscriptions.get(&SHARED) else { return 0 };
        let ready = one.ready.iter().filter_map(|id| self.subscribers.get(id));
        let credit = ready.map(|one| one.consumer.takes_now()).fold(0, u64::saturating_add);
        usize::try_from(credit).unwrap_or(COUNT_MAX)
    }

    /// A message without its body died: it is counted out, and buried when the body is here.
    pub(super) fn die_away(&mut self, stub: Stub, reason: DeadReason, turn: &mut Turn<'_>) {
        self.count_gone(u64::from(stub.bytes));
        let is_missed = stub.has_will
            || self.attributes.use_dmq
            || turn.shared.live.read(|live| live.log_dead_messages);
        if !is_missed {
            self.ahead.expired += u64::from(reason == DeadReason::Expired);
            return self.forget_stub(&stub, turn);
        }
        self.ahead.dying.push_back((stub, reason));
    }

    fn ask_for_the_dying(&mut self) {
        if !self.ahead.is_free(Purpose::Dead) {
            return;
        }
        // Relaxed: as in `place`.
        let own = self.place.load(Ordering::Relaxed);
        let mut left = BYTES_MAX;
        let mut wanted = Vec::new();
        for (stub, _) in self.ahead.dying.iter().take(COUNT_MAX) {
            let bytes = u64::from(stub.bytes);
            if !wanted.is_empty() && left < bytes {
                break;
            }
            left = left.saturating_sub(bytes);
            let place = stub.share.as_ref().map_or(own, |share| share.place());
            wanted.push(Wanted { here: stub.place(), sequence: stub.sequence, place });
        }
        self.ahead.ask(Purpose::Dead, wanted);
    }

    /// Bodies that were asked for have come.
    fn fetched(
        &mut self,
        at: &Destination,
        purpose: Purpose,
        bodies: Vec<(Wanted, Body)>,
        turn: &mut Turn<'_>,
    ) {
        self.ahead.asked[purpose as usize] = false;
        for (wanted, body) in bodies {
            if purpose == Purpose::Dead {
                self.bury_fetched(at, &wanted, body, turn);
            } else {
                self.warm(at, &wanted, body, turn);
            }
        }
        if !self.destroyed {
            self.go_on();
        }
    }

    fn warm(&mut self, at: &Destination, wanted: &Wanted, body: Body, turn: &mut Turn<'_>) {
        let Some(one) = self.subscriptions.get_mut(&SHARED) else { return };
        match body {
            Ok(packet) => one.backlog.warm(wanted.here, wanted.sequence, packet),
            Err(why) => {
                // Meanwhile it may have been consumed, and is not there because of that.
                if let Some(stub) = one.backlog.take_cold(wanted.here, wanted.sequence) {
                    self.count_gone(u64::from(stub.bytes));
                    self.lose(at, &stub, &why, turn);
                }
            }
        }
    }

    fn bury_fetched(&mut self, at: &Destination, wanted: &Wanted, body: Body, turn: &mut Turn<'_>) {
        // Answers come in the order of requests; what was cleared meanwhile is not there.
        if self.ahead.dying.front().is_none_or(|(stub, _)| stub.sequence != wanted.sequence) {
            return;
        }
        let Some((stub, reason)) = self.ahead.dying.pop_front() else { return };
        match body {
            Ok(packet) => {
                self.let_go(stub.known(), turn);
                self.dead.push((stub.entry(packet), reason));
            }
            Err(why) => self.lose(at, &stub, &why, turn),
        }
    }

    /// What died and waits for its burial goes without one.
    pub(super) fn drop_dying(&mut self, turn: &mut Turn<'_>) {
        for (stub, _) in self.ahead.take_dying() {
            self.forget_stub(&stub, turn);
        }
    }

    /// What is stored of it goes.
    fn forget_stub(&mut self, stub: &Stub, turn: &mut Turn<'_>) {
        turn.remove_stored(self.key_for(stub.sequence.get(), stub.deliveries));
        self.let_go(stub.known(), turn);
    }

    /// A message is lost: the store has been altered from outside.
    fn lose(&mut self, at: &Destination, stub: &Stub, why: &Unreadable, turn: &mut Turn<'_>) {
        let (sequence, bytes, reason) = (stub.sequence, stub.bytes, &why.reason);
        tracing::error!(
            destination = %at.name, sequence, bytes, reason,
            "a message is lost: the store does not have it as it was written"
        );
        if let Some(persist) = &turn.shared.persist {
            // Relaxed: a statistic.
            persist.counts.unreadable.fetch_add(1, Ordering::Relaxed);
        }
        if !why.is_there {
            self.forget_stub(stub, turn);
        }
    }
}

impl Destination {
    /// Sends what this run wants to have fetched, and counts what is where.
    pub(super) fn look_ahead(self: &Arc<Self>, state: &mut State, turn: &Turn<'_>) {
        let Some(persist) = &turn.shared.persist else { return };
        for _ in 0..std::mem::take(&mut state.ahead.expired) {
            self.count_expired(turn.shared);
        }
        state.ask_for_the_dying();
        for (purpose, wanted) in state.ahead.asks.drain(..) {
            persist.fetch(Ask { at: Arc::clone(self), purpose, wanted });
        }
        state.account_bodies(&turn.shared.memory);
    }
}

impl State {
    /// Tells the broker's totals which bodies are where.
    pub(super) fn account_bodies(&mut self, memory: &Memory) {
        let own = self.subscriptions.get(&SHARED).map(|one| &one.backlog);
        let (here, away) = own.map_or((0, 0), |own| (own.here_bytes(), own.away_bytes()));
        let now = (here, away + self.ahead.away_bytes);
        let before = std::mem::replace(&mut self.ahead.accounted, now);
        if before != now {
            memory.add_bodies(now.0.cast_signed() - before.0.cast_signed(), now.1 - before.1);
        }
    }
}

/// Reads bodies for destinations.
#[derive(Debug)]
pub(super) struct Fetcher {
    reader: Box<dyn StoreReader>,
    waiting: VecDeque<Ask>,
    /// The store could not be read, which was told.
    is_lost: bool,
}

impl Fetcher {
    pub(super) fn new(reader: Box<dyn StoreReader>) -> Self {
        Self { reader, waiting: VecDeque::new(), is_lost: false }
    }

    /// Takes a request.
    pub(super) fn take(&mut self, ask: Ask) {
        self.waiting.push_back(ask);
    }

    /// Answers what it can; how long the rest waits, if there is any.
    pub(super) fn fetch(&mut self, turn: &mut Turn<'_>) -> Option<Duration> {
        while let Some(ask) = self.waiting.pop_front() {
            match self.read(&ask.wanted) {
                Ok(bodies) => {
                    self.is_lost = false;
                    let Ask { at, purpose, wanted } = ask;
                    let bodies = wanted.into_iter().zip(bodies).collect();
                    turn.send(&at, fetched(purpose, bodies));
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_lost, true) {
                        tracing::error!(%error, "messages cannot be read; they wait for the store");
                    }
                    self.waiting.push_front(ask);
                    return Some(RETRY_EVERY);
                }
            }
        }
        None
    }

    /// The bodies, or what is wrong with single ones.
    fn read(&mut self, wanted: &[Wanted]) -> Result<Vec<Body>, StoreError> {
        let key =
            |one: &Wanted| Bytes::copy_from_slice(&message_key(one.place, one.sequence.get()));
        let keys: Vec<Bytes> = wanted.iter().map(key).collect();
        match self.reader.get_all(Space::Messages, &keys) {
            Ok(values) => {
                Ok(keys.iter().zip(values).map(|(key, value)| body(key, value)).collect())
            }
            Err(StoreError::Corrupt { reason, .. }) if wanted.len() == 1 => {
                Ok(vec![Err(Unreadable { reason, is_there: true })])
            }
            // One of them spoils the others.
            Err(StoreError::Corrupt { .. }) => {
                let mut bodies = Vec::with_capacity(wanted.len());
                for one in wanted {
                    bodies.append(&mut self.read(std::slice::from_ref(one))?);
                }
                Ok(bodies)
            }
            Err(error) => Err(error),
        }
    }
}

fn body(key: &Bytes, value: Option<Bytes>) -> Body {
    let gone = || Unreadable { reason: "it is not there".into(), is_there: false };
    let value = value.ok_or_else(gone)?;
    let altered = |error: StoreError| Unreadable { reason: error.to_string(), is_there: true };
    read_message(key, &value).map(|record| record.packet).map_err(altered)
}

fn fetched(purpose: Purpose, bodies: Vec<(Wanted, Body)>) -> Command {
    Rare::command(move |at, state, turn| state.fetched(at, purpose, bodies, turn))
}

/// What a fetching thread is told.
#[derive(Debug)]
pub(super) enum FetchMail {
    /// To be fetched.
    Ask(Ask),
    /// The loops have ended.
    Close,
}

/// A fetcher on a thread of its own.
#[derive(Debug)]
pub(super) struct FetchLoop {
    side: Side,
    fetcher: Fetcher,
    closing: bool,
}

impl FetchLoop {
    pub(super) const fn new(side: Side, fetcher: Fetcher) -> Self {
        Self { side, fetcher, closing: false }
    }
}

impl Handler for FetchLoop {
    type Mail = FetchMail;

    fn mail(&mut self, _: &mut Io, mail: FetchMail) {
        match mail {
            FetchMail::Ask(ask) => self.fetcher.take(ask),
            FetchMail::Close => self.closing = true,
        }
    }

    fn ready(&mut self, _: &mut Io, _: Key, _: Readiness) {}

    fn deadline(&mut self, _: &mut Io, _: Key) {
        self.side.deadline();
    }

    fn begin_turn(&mut self, _: &mut Io) {}

    fn end_turn(&mut self, io: &mut Io) -> Next {
        let Self { side, fetcher, .. } = self;
        let mut turn = side.turn(io);
        let retry = fetcher.fetch(&mut turn);
        turn.finish();
        if self.side.has_work() {
            return Next::Again;
        }
        if self.closing {
            return Next::Stop;
        }
        self.side.set_clock(io, retry);
        Next::Wait { answer_due: true }
    }
}
