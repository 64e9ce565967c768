//! The one thread that writes to the store.
//!
//! While a batch is being synced the next one gathers in the mail. What a batch brings about,
//! deliveries and replies included, is carried out here before the next one is taken, so nobody
//! has to be woken for it.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    reactor::{Handler, Io, Key, Next, Readiness},
    store::{
        Batch, Durability, MessageStore, Revival, StoreError,
        record::{
            self, CopyRecord, DeliveredRecord, DeliveriesRecord, EndedTransaction, MessageHead,
            RecentRecord, TransactionRecord,
        },
    },
    sync::{Ordering, Plain},
    throttle::{StressChange, StressMonitor},
    wire::{Flags, Packet},
};

use super::{
    super::{
        command::Command,
        config::{BrokerConfig, SyncMode},
        destination::Destination,
        shared::Shared,
        side::Side,
        turn::Turn,
    },
    Op, Ops, Places, Prepared, StoredKey, Then, Unit, Unstored,
};

/// Percentiles are counted anew after so many commits.
const PERCENTILES_EVERY: u64 = 64;

/// How soon a lost store is tried again.
const REVIVE_EVERY: Duration = Duration::from_millis(250);

/// Bounds of a batch.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Most changes.
    changes: usize,
    /// Most bytes of messages; a larger message is alone in its batch.
    bytes: u64,
}

/// Gathers units into batches and commits them.
#[derive(Debug)]
pub(in crate::broker) struct Committer {
    store: Box<dyn MessageStore>,
    sync: SyncMode,
    bounds: Bounds,
    monitor: StressMonitor,
    waiting: VecDeque<Unit>,
    /// What waits, and since when, if a batch is to wait for more.
    weight: (usize, u64),
    waiting_since: Option<Instant>,
    delay: Duration,
    batch: Batch,
    next_batch: u64,
    next_sequence: u64,
    places: Places,
    recent: RecentRecord,
    /// Units of the batch of which it is not known whether it is stored.
    in_doubt: Vec<Unit>,
    state: State,
    /// When something was written that was not synced.
    unsynced_since: Option<Instant>,
}

/// Whether the store takes anything.
#[derive(Debug)]
enum State {
    Working,
    /// It cannot be reached; the batch in doubt waits.
    Lost,
    /// Never again.
    Dead(Unstored),
}

/// Where a committer begins, as recovery found it.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::broker) struct Position {
    /// The number of the last batch.
    pub batch: u64,
    /// The greatest sequence.
    pub sequence: u64,
    /// The greatest place.
    pub place: u64,
}

impl Committer {
    /// For a recovered store.
    pub(in crate::broker) fn new(
        store: Box<dyn MessageStore>,
        config: &BrokerConfig,
        monitor: StressMonitor,
        position: Position,
    ) -> Self {
        let (changes, bytes) = (config.batch_changes_max, config.batch_bytes_max);
        Self {
            store,
            sync: config.sync,
            bounds: Bounds { changes, bytes },
            monitor,
            waiting: VecDeque::new(),
            weight: (0, 0),
            waiting_since: None,
            delay: config.batch_delay,
            batch: Batch::default(),
            next_batch: position.batch + 1,
            next_sequence: position.sequence + 1,
            places: Places { next: position.place + 1 },
            recent: RecentRecord::default(),
            in_doubt: Vec::new(),
            state: State::Working,
            unsynced_since: None,
        }
    }

    /// Takes units, to be committed behind those before.
    pub(in crate::broker) fn take(&mut self, units: Vec<Unit>) {
        if !self.delay.is_zero() {
            for unit in &units {
                let (changes, bytes) = unit.ops.weight();
                self.weight = (self.weight.0 + changes, self.weight.1 + bytes);
            }
        }
        self.waiting.extend(units);
    }

    /// How long what waits goes on waiting for more; `None`: no longer.
    fn waits_for_more(&mut self, now: Instant) -> Option<Duration> {
        if self.delay.is_zero() || self.waiting.is_empty() {
            return None;
        }
        let since = *self.waiting_since.get_or_insert(now);
        let left = self.delay.checked_sub(now.duration_since(since)).filter(|left| !left.is_zero());
        let (changes, bytes) = self.weight;
        left.filter(|_| changes < self.bounds.changes && bytes < self.bounds.bytes)
    }

    /// Whether anything waits that can be done now.
    pub(in crate::broker) fn has_work(&self) -> bool {
        !self.waiting.is_empty() && !matches!(self.state, State::Lost)
    }

    /// Commits one batch of what waits, and carries out what follows.
    pub(in crate::broker) fn commit(
        &mut self,
        now: &mut dyn FnMut() -> Instant,
        turn: &mut Turn<'_>,
    ) {
        if self.waiting.is_empty() {
            return;
        }
        match &self.state {
            State::Working => {}
            State::Lost => return self.refuse_what_can_be(turn),
            State::Dead(reason) => {
                let reason = Plain::clone(reason);
                return self.refuse_waiting(&reason, turn);
            }
        }
        self.weight = (0, 0);
        self.waiting_since = None;
        let units = self.gather(turn.wall_ms);
        if self.batch.is_empty() {
            return complete(units, &Ok(()), turn);
        }
        let began = now();
        let result = self.write();
        self.note(began, now(), turn.shared);
        self.conclude(units, result, turn);
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let durability = match self.sync {
            SyncMode::Always => Durability::Synced,
            SyncMode::Interval(_) | SyncMode::Os => Durability::Written,
        };
        self.store.commit(&self.batch, durability)
    }

    fn conclude(&mut self, units: Vec<Unit>, result: Result<(), StoreError>, turn: &mut Turn<'_>) {
        match result {
            Ok(()) => complete(units, &Ok(()), turn),
            Err(error @ StoreError::Lost { .. }) => {
                tracing::error!(%error, "the store is lost; whatever is persistent is refused until it is back");
                self.state = State::Lost;
                self.in_doubt = units;
                refuse(turn.shared, &error.to_string().into());
            }
            Err(error) => {
                let reason = self.die(&error, turn.shared);
                complete(units, &Err(reason), turn);
            }
        }
    }

    /// Nothing is stored any more.
    fn die(&mut self, error: &StoreError, shared: &Shared) -> Unstored {
        tracing::error!(%error, "the store has failed; whatever is persistent is refused until a new start");
        let reason: Unstored =
            format!("{error}; nothing is stored until the broker is started again").into();
        self.state = State::Dead(Plain::clone(&reason));
        refuse(shared, &reason);
        if matches!(error, StoreError::Fenced { .. }) {
            // What is in memory may be out of date from here on: nobody may be given any of it.
            tracing::error!("another broker serves this store; this one ends");
            if let Some(persist) = &shared.persist {
                persist.end(&reason);
            }
            shared.shut_down();
        }
        reason
    }

    /// While the store is lost, new messages and acknowledgements are refused. What has been begun
    /// elsewhere, or is a matter of the broker's own, waits for it: bounded, as none of it begins
    /// anew meanwhile.
    fn refuse_what_can_be(&mut self, turn: &mut Turn<'_>) {
        let reason: Unstored = "the store cannot be reached now; try again later".into();
        let is_refused =
            |unit: &Unit| matches!(unit.then, Then::Produced { .. } | Then::Acknowledged { .. });
        let (refused, kept): (Vec<Unit>, Vec<Unit>) =
            std::mem::take(&mut self.waiting).into_iter().partition(is_refused);
        self.waiting = kept.into();
        complete(refused, &Err(reason), turn);
    }

    fn refuse_waiting(&mut self, reason: &Unstored, turn: &mut Turn<'_>) {
        let units = std::mem::take(&mut self.waiting).into();
        complete(units, &Err(Plain::clone(reason)), turn);
    }

    /// Tries whether a lost store is back; `true` if another try is wanted later.
    pub(in crate::broker) fn revive(&mut self, turn: &mut Turn<'_>) -> bool {
        if !matches!(self.state, State::Lost) {
            return false;
        }
        let result = match self.store.revive() {
            Ok(Revival::Applied) => Ok(()),
            Ok(Revival::NotApplied) if self.in_doubt.is_empty() => Ok(()),
            // The same batch once more: it is still what the units made of it.
            Ok(Revival::NotApplied) => self.write(),
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => {
                tracing::warn!("the store is back");
                self.state = State::Working;
                if let Some(persist) = &turn.shared.persist {
                    persist.go_on();
                }
                complete(std::mem::take(&mut self.in_doubt), &Ok(()), turn);
            }
            Err(StoreError::Lost { .. }) => return true,
            Err(error) => {
                let reason = self.die(&error, turn.shared);
                complete(std::mem::take(&mut self.in_doubt), &Err(reason), turn);
            }
        }
        false
    }

    /// Syncs what is due, and does what the store wants done; how long that can wait the next time.
    pub(in crate::broker) fn tend(
        &mut self,
        now: Instant,
        turn: &mut Turn<'_>,
    ) -> Option<Duration> {
        if self.revive(turn) {
            return Some(REVIVE_EVERY);
        }
        if !matches!(self.state, State::Working) {
            return None;
        }
        let mut next = None;
        if let (SyncMode::Interval(interval), Some(since)) = (self.sync, self.unsynced_since) {
            let over = now.duration_since(since);
            if over < interval {
                next = Some(interval.saturating_sub(over));
            } else {
                self.unsynced_since = None;
                if let Err(error) = self.store.sync() {
                    self.conclude(Vec::new(), Err(error), turn);
                }
            }
        }
        match self.store.tend() {
            Ok(wanted) => [next, wanted].into_iter().flatten().min(),
            Err(error) => {
                self.conclude(Vec::new(), Err(error), turn);
                Some(REVIVE_EVERY)
            }
        }
    }

    /// Ends in order.
    pub(in crate::broker) fn close(&mut self) {
        if let (State::Working, Err(error)) = (&self.state, self.store.close()) {
            tracing::error!(%error, "the store did not close in order");
        }
    }

    /// Puts as many waiting units into the batch as its bounds allow.
    fn gather(&mut self, wall_ms: i64) -> Vec<Unit> {
        let number = self.next_batch;
        self.next_batch += 1;
        self.batch.reset(number);
        self.recent.batch = number;
        self.recent.messages.clear();
        self.recent.transactions.clear();
        let (mut changes, mut bytes, mut count) = (0, 0, 0);
        for unit in &self.waiting {
            let (its_changes, its_bytes) = unit.ops.weight();
            (changes, bytes) = (changes + its_changes, bytes + its_bytes);
            if count > 0 && (changes > self.bounds.changes || bytes > self.bounds.bytes) {
                break;
            }
            count += 1;
        }
        let mut units: Vec<Unit> = self.waiting.drain(..count).collect();
        for unit in &mut units {
            match std::mem::replace(&mut unit.ops, Ops::Many(Vec::new())) {
                Ops::One(op) => self.write_op(op, wall_ms),
                Ops::Many(ops) => ops.into_iter().for_each(|op| self.write_op(op, wall_ms)),
            }
        }
        if !self.batch.is_empty() {
            self.recent.sequence = self.next_sequence - 1;
            self.recent.place = self.places.next - 1;
            let slot = u32::try_from(number % record::RECENT_SLOTS).unwrap_or(0);
            record::put_recent(&mut self.batch, slot, &self.recent);
        }
        units
    }

    fn write_op(&mut self, op: Op, wall_ms: i64) {
        match op {
            Op::Put { at, message, delivered, copies } => {
                let place = self.place_of(&at);
                let sequence = self.next_sequence;
                self.next_sequence += 1;
                message.set_sequence(sequence);
                let head = MessageHead { received_ms: wall_ms, delivered };
                record::put_message(&mut self.batch, place, sequence, head, &message.packet);
                for copy in copies {
                    let record = CopyRecord {
                        subscription: copy.to.place(),
                        sequence,
                        topic: place,
                        delivered: copy.delivered,
                    };
                    record::put_copy(&mut self.batch, &record);
                }
                let header = message.packet.header();
                if header.flags.contains(Flags::ACKNOWLEDGE) {
                    self.recent.messages.push((place, header.id));
                }
            }
            Op::Remove(StoredKey { place, sequence, is_copy, is_counted }) => {
                if is_counted {
                    record::remove_deliveries(&mut self.batch, place, sequence);
                }
                if is_copy {
                    record::remove_copy(&mut self.batch, place, sequence);
                } else {
                    record::remove_message(&mut self.batch, place, sequence);
                }
            }
            Op::Count(StoredKey { place, sequence, .. }, count) => {
                let record = DeliveriesRecord { place, sequence, count };
                record::put_deliveries(&mut self.batch, &record);
            }
            Op::Deliver { place, priority, through } => {
                let record = DeliveredRecord { place, priority, through };
                record::put_delivered(&mut self.batch, &record);
            }
            Op::Prepare(prepared) => self.write_prepared(*prepared),
            Op::Ended { id, xid, was_prepared, committed } => {
                if was_prepared {
                    record::remove_transaction(&mut self.batch, id.cast_unsigned());
                }
                let xid = xid.map(|xid| xid.encode().to_vec().into());
                let ended = EndedTransaction { id: id.cast_unsigned(), xid, committed };
                self.recent.transactions.push(ended);
            }
            Op::Rare(write) => write(&mut self.batch, &mut self.places),
        }
    }

    fn write_prepared(&mut self, prepared: Prepared) {
        let messages: Vec<(u64, Packet)> = prepared
            .messages
            .iter()
            .map(|(at, message)| (self.place_of(at), message.packet.clone()))
            .collect();
        let consumed = prepared.consumed.iter().map(|key| (key.place, key.sequence)).collect();
        let record = TransactionRecord {
            id: prepared.id.cast_unsigned(),
            xid: prepared.xid.map(|xid| xid.encode().to_vec().into()),
            created_ms: prepared.created_ms,
            user: prepared.user.as_deref().map(str::to_owned),
            one_phase: prepared.one_phase,
            lifetime_ms: prepared.lifetime_ms,
            auto_rollback: prepared.auto_rollback,
            session_less: prepared.session_less,
            messages,
            consumed,
        };
        record::put_transaction(&mut self.batch, &record);
    }

    /// The place of a queue or topic, which is recorded with its first message.
    fn place_of(&mut self, at: &Destination) -> u64 {
        if at.place() == 0 {
            at.set_place(self.places.take());
            record::put_destination(&mut self.batch, &at.record());
        }
        at.place()
    }

    /// Times a commit.
    fn note(&mut self, began: Instant, ended: Instant, shared: &Shared) {
        if self.unsynced_since.is_none() && self.sync != SyncMode::Always {
            self.unsynced_since = Some(ended);
        }
        let took = ended.duration_since(began);
        let change = self.monitor.observe(took);
        let Some(persist) = &shared.persist else { return };
        // Relaxed: statistics with one writer.
        let counts = &persist.counts;
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        counts.commits.fetch_add(1, Ordering::Relaxed);
        counts.changes.fetch_add(self.batch.len() as u64, Ordering::Relaxed);
        counts.bytes.fetch_add(self.batch.size() as u64, Ordering::Relaxed);
        match change {
            Some(StressChange::Stressed { duration, limit, .. }) => {
                counts.alarms.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    ?duration,
                    ?limit,
                    "the store is stressed: a checkpoint took too long"
                );
            }
            Some(_) => tracing::info!("the store is calm again"),
            None => {}
        }
        // Sorting the latest ones costs as much as some messages do.
        if counts.commits.load(Ordering::Relaxed) % PERCENTILES_EVERY == 0 {
            for (percent, into) in [(50, &counts.median_us), (99, &counts.p99_us)] {
                let time = self.monitor.percentile(percent).unwrap_or_default();
                let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                into.store(us, Ordering::Relaxed);
            }
        }
        counts.last_us.store(us, Ordering::Relaxed);
        counts.longest_us.fetch_max(us, Ordering::Relaxed);
    }
}

fn refuse(shared: &Shared, reason: &Unstored) {
    if let Some(persist) = &shared.persist {
        persist.refuse(reason);
    }
}

/// Has units go on.
fn complete(units: Vec<Unit>, result: &Result<(), Unstored>, turn: &mut Turn<'_>) {
    for unit in units {
        match unit.then {
            Then::Nothing => {}
            Then::Produced { at, message, reply, copies, marked } => {
                let outcome = result.clone();
                turn.send(&at, Command::Stored { message, reply, copies, marked, outcome });
            }
            Then::Acknowledged { at, ticket, reply, status } => {
                let outcome = result.clone();
                turn.send(&at, Command::Removed { ticket, reply, status, outcome });
            }
            Then::Rare(then) => then(result.clone(), turn),
        }
    }
}

/// What a committer's thread is told.
#[derive(Debug)]
pub(in crate::broker) enum CommitMail {
    /// To be committed.
    Units(Vec<Unit>),
    /// The loops have ended: commit what is here, then end.
    Close,
}

/// A committer on a thread of its own.
#[derive(Debug)]
pub(in crate::broker) struct CommitLoop {
    side: Side,
    committer: Committer,
    closing: bool,
}

impl CommitLoop {
    /// Goes on with the turns of the recovery.
    pub(in crate::broker) const fn new(side: Side, committer: Committer) -> Self {
        Self { side, committer, closing: false }
    }
}

impl Handler for CommitLoop {
    type Mail = CommitMail;

    fn mail(&mut self, _: &mut Io, mail: CommitMail) {
        match mail {
            CommitMail::Units(units) => self.committer.take(units),
            CommitMail::Close => self.closing = true,
        }
    }

    fn ready(&mut self, _: &mut Io, _: Key, _: Readiness) {}

    fn deadline(&mut self, _: &mut Io, _: Key) {
        self.side.deadline();
    }

    fn begin_turn(&mut self, _: &mut Io) {}

    fn end_turn(&mut self, io: &mut Io) -> Next {
        let Self { side, committer, closing, .. } = self;
        let mut turn = side.turn(io);
        let more = committer.waits_for_more(io.now()).filter(|_| !*closing);
        if more.is_none() {
            committer.commit(&mut || io.clock(), &mut turn);
        }
        let tend = committer.tend(io.now(), &mut turn);
        turn.finish();
        if more.is_none() && self.committer.has_work() || self.side.has_work() {
            return Next::Again;
        }
        if self.closing {
            self.committer.close();
            return Next::Stop;
        }
        self.side.set_clock(io, [tend, more].into_iter().flatten().min());
        // Whoever is served now is likely to send the next message soon.
        Next::Wait { answer_due: true }
    }
}
