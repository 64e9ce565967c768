//! What one turn of a loop collects: destinations to run, outputs to flush.
//!
//! A turn hands what arrived to each destination as one burst, then flushes each output that got
//! something, until nothing is left to do. Work given back by an output goes round again.

use std::collections::BTreeMap;

use crate::{
    store::Batch,
    sync::{Arc, Entered},
    wire::{MessageId, PacketBuilder, PacketType},
};

use super::{
    command::Command,
    coordinator::Transact,
    destination::Destination,
    output::{Outgoing, Output},
    persist::{Op, Ops, Places, StoredKey, Then, Unit, Unstored},
    shared::Shared,
    spare::Spare,
    stored::Stored,
};

/// A loop's memory from one turn to the next.
#[derive(Debug, Default)]
pub(super) struct Carry {
    destinations: Vec<Arc<Destination>>,
    outputs: Vec<Arc<Output>>,
    /// Destinations whose run stopped at its bound; this loop owns their gates until it goes on.
    run_list: Vec<Arc<Destination>>,
    spare: Spare,
    bursts: Vec<(Arc<Destination>, Vec<Command>)>,
    /// What the topic that is being run leaves with its subscriptions.
    forwards: Vec<(Arc<Destination>, Vec<Command>)>,
    /// Behind the place where the last of them was found.
    forward_at: usize,
    /// What is to be stored, in order.
    units: Vec<Unit>,
    /// What concerns transactions; whether the coordinator is to be entered.
    transactions: Vec<Transact>,
    coordinate: bool,
    /// The coordinator stopped at its bound; this loop owns its gate until it goes on.
    coordinates: bool,
    /// Who wants a tick, by time and a number of its own.
    ticks: BTreeMap<(i64, u64), Wanted>,
    ticks_wanted: u64,
    answer_due: bool,
    /// Whether what must wait is to move out of the buffer it was read into.
    is_crowded: bool,
    turn: u64,
}

/// Messages that go to one output.
#[derive(Debug)]
pub(super) struct Burst {
    output: Arc<Output>,
    messages: Vec<Outgoing>,
}

/// Who wants a tick.
#[derive(Debug)]
enum Wanted {
    Destination(Arc<Destination>),
    Transactions,
}

impl Carry {
    /// `number` sets the turns of one loop apart from those of another.
    pub(super) fn new(number: u16) -> Self {
        Self { turn: u64::from(number) << 48 | 1, ..Self::default() }
    }

    /// Whether there is work left for the next turn.
    pub(super) const fn has_work(&self) -> bool {
        !self.run_list.is_empty() || self.coordinates
    }

    /// When the next tick is wanted, in milliseconds since 1970.
    pub(super) fn next_tick(&self) -> Option<i64> {
        self.ticks.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Whether a peer owes the answer to a packet that paused a lane.
    pub(super) const fn answer_due(&self) -> bool {
        self.answer_due
    }
}

/// One turn.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    /// The wall clock, in milliseconds since 1970.
    pub wall_ms: i64,
    /// What all loops share.
    pub shared: &'a Shared,
    carry: &'a mut Carry,
}

impl<'a> Turn<'a> {
    /// A view of the turn that is going on; the last one of a turn calls [`finish`](Self::finish).
    pub(super) const fn new(wall_ms: i64, shared: &'a Shared, carry: &'a mut Carry) -> Self {
        Self { wall_ms, shared, carry }
    }

    /// Adds a command to this turn's burst for a destination.
    pub(super) fn send(&mut self, destination: &Arc<Destination>, command: Command) {
        let bursts = &mut self.carry.bursts;
        // The destination a connection talks to is nearly always the one it talked to last.
        let known = bursts.iter().rposition(|(known, _)| Arc::ptr_eq(known, destination));
        match known {
            Some(at) => bursts[at].1.push(command),
            None => {
                let mut commands = self.carry.spare.commands();
                commands.push(command);
                bursts.push((Arc::clone(destination), commands));
            }
        }
    }

    /// Leaves a command at once, so that nothing that follows can come before it.
    pub(super) fn send_now(&mut self, destination: &Arc<Destination>, command: Command) {
        let mut commands = self.carry.spare.commands();
        commands.push(command);
        destination.push(commands);
        self.touch_destination(destination);
    }

    /// Leaves several commands at once.
    pub(super) fn send_all_now(&mut self, destination: &Arc<Destination>, commands: Vec<Command>) {
        destination.push(commands);
        self.touch_destination(destination);
    }

    /// Leaves a message for a subscription when its topic's run ends.
    pub(super) fn forward(&mut self, to: &Arc<Destination>, message: Arc<Stored>, marked: bool) {
        let command = Command::Forward { message, marked };
        let Carry { forwards, forward_at, spare, .. } = &mut *self.carry;
        // A topic goes through its subscriptions in the same order for each message.
        let behind = *forward_at..forwards.len();
        let before = 0..behind.start.min(forwards.len());
        let is_it = |&at: &usize| Arc::ptr_eq(&forwards[at].0, to);
        let at = match behind.chain(before).find(is_it) {
            Some(at) => {
                forwards[at].1.push(command);
                at
            }
            None => {
                let mut commands = spare.commands();
                commands.push(command);
                forwards.push((Arc::clone(to), commands));
                forwards.len() - 1
            }
        };
        *forward_at = at + 1;
    }

    /// Leaves what was forwarded. Called behind the topic's gate, so that order holds.
    pub(super) fn push_forwards(&mut self) {
        self.carry.forward_at = 0;
        for (to, commands) in std::mem::take(&mut self.carry.forwards) {
            self.send_all_now(&to, commands);
        }
    }

    /// Has a unit committed, behind those before it.
    pub(super) fn persist(&mut self, unit: Unit) {
        self.carry.units.push(unit);
    }

    /// Has a stored message removed; nobody waits for that.
    pub(super) fn remove_stored(&mut self, key: Option<StoredKey>) {
        let Some(key) = key else { return };
        if let Some(Unit { ops: Ops::Many(ops), then: Then::Nothing }) = self.carry.units.last_mut()
        {
            return ops.push(Op::Remove(key));
        }
        self.persist(Unit { ops: Ops::Many(vec![Op::Remove(key)]), then: Then::Nothing });
    }

    /// Has it stored how often a message was delivered; nobody waits for that.
    pub(super) fn count_stored(&mut self, key: StoredKey, deliveries: u32) {
        let op = Op::Count(key, deliveries);
        self.persist(Unit { ops: Ops::One(op), then: Then::Nothing });
    }

    /// Whether the store takes nothing now.
    pub(super) fn stores_nothing(&self) -> bool {
        self.shared.persist.as_ref().is_some_and(|persist| persist.check().is_err())
    }

    /// Has something rare written to the store, if there is one; nobody waits for that.
    pub(super) fn record(
        &mut self,
        write: impl FnOnce(&mut Batch, &mut Places) + Send + Sync + 'static,
    ) {
        if self.shared.persist.is_some() {
            let op = Op::Rare(Box::new(write));
            self.persist(Unit { ops: Ops::One(op), then: Then::Nothing });
        }
    }

    /// Does something once all that was left before is stored; at once if nothing is stored here.
    pub(super) fn after_stored(
        &mut self,
        then: impl FnOnce(Result<(), Unstored>, &mut Turn<'_>) + Send + Sync + 'static,
    ) {
        if self.shared.persist.is_none() {
            return then(Ok(()), self);
        }
        self.persist(Unit { ops: Ops::Many(Vec::new()), then: Then::Rare(Box::new(then)) });
    }

    /// Leaves what is to be stored. Called behind the gate it comes from, so that order holds, and
    /// before anybody can act on it.
    pub(super) fn push_units(&mut self) {
        if let Some(persist) = self.shared.persist.as_ref().filter(|_| !self.carry.units.is_empty())
        {
            persist.send(std::mem::take(&mut self.carry.units));
        }
    }

    /// Tells the coordinator, behind what this turn has left with destinations.
    pub(super) fn transact(&mut self, command: Transact) {
        self.carry.transactions.push(command);
    }

    /// Hands the bursts in. Called after each connection's input.
    pub(super) fn hand_in(&mut self) {
        self.push_units();
        while let Some((destination, commands)) = self.carry.bursts.pop() {
            destination.push(commands);
            self.touch_destination(&destination);
        }
        if !self.carry.transactions.is_empty() {
            self.shared.coordinator.push(std::mem::take(&mut self.carry.transactions));
            self.carry.coordinate = true;
        }
    }

    /// Has a destination get a tick at this time, in milliseconds since 1970.
    pub(super) fn wake_at(&mut self, destination: &Arc<Destination>, at: i64) {
        self.want_tick(at, Wanted::Destination(Arc::clone(destination)));
    }

    /// Has the coordinator get a tick at this time, in milliseconds since 1970.
    pub(super) fn wake_transactions_at(&mut self, at: i64) {
        self.want_tick(at, Wanted::Transactions);
    }

    fn want_tick(&mut self, at: i64, wanted: Wanted) {
        self.carry.ticks_wanted += 1;
        self.carry.ticks.insert((at, self.carry.ticks_wanted), wanted);
    }

    /// Sends the ticks whose time has come.
    pub(super) fn tick(&mut self) {
        while let Some(first) = self.carry.ticks.first_entry() {
            if first.key().0 > self.wall_ms {
                return;
            }
            let at = first.key().0;
            match first.remove() {
                Wanted::Destination(destination) => self.send(&destination, Command::Tick(at)),
                Wanted::Transactions => self.transact(Transact::Tick { at }),
            }
        }
    }

    fn touch_destination(&mut self, destination: &Arc<Destination>) {
        let known = |other: &Arc<Destination>| Arc::ptr_eq(other, destination);
        if !self.carry.destinations.last().is_some_and(known) {
            self.carry.destinations.push(Arc::clone(destination));
        }
    }

    /// Adds a message to those that go to an output together, or leaves those first if they go to
    /// another one.
    pub(super) fn add_to_burst(
        &mut self,
        burst: Option<Burst>,
        output: Arc<Output>,
        outgoing: Outgoing,
    ) -> Option<Burst> {
        let mut burst = match burst {
            Some(burst) if Arc::ptr_eq(&burst.output, &output) => burst,
            other => {
                self.leave_burst(other);
                Burst { output, messages: self.carry.spare.burst() }
            }
        };
        burst.messages.push(outgoing);
        Some(burst)
    }

    /// Leaves messages with their output.
    pub(super) fn leave_burst(&mut self, burst: Option<Burst>) {
        if let Some(Burst { output, messages }) = burst {
            output.push(messages);
            self.touch_output(&output);
        }
    }

    /// Flushes an output at the end of this turn.
    pub(super) fn touch_output(&mut self, output: &Arc<Output>) {
        if output.is_first_touch(self.carry.turn) {
            self.carry.outputs.push(Arc::clone(output));
        }
    }

    /// A new id.
    pub(super) fn next_id(&self) -> i64 {
        self.shared.ids.next_id()
    }

    /// The id of a packet that is written now.
    pub(super) fn stamp(&self) -> MessageId {
        self.shared.ids.stamp(self.wall_ms)
    }

    /// Sends a control packet.
    pub(super) fn send_packet(&mut self, output: &Arc<Output>, packet: PacketBuilder) {
        let packet = packet.id(self.stamp()).finish();
        output.put_packet(packet);
        self.touch_output(output);
    }

    /// Says whether too many read buffers are held by what waits.
    pub(super) const fn set_crowded(&mut self, is_crowded: bool) {
        self.carry.is_crowded = is_crowded;
    }

    /// Whether what must wait is to move out of the buffer it was read into.
    pub(super) const fn is_crowded(&self) -> bool {
        self.carry.is_crowded
    }

    /// Memory that can be used again.
    pub(super) const fn spare(&mut self) -> &mut Spare {
        &mut self.carry.spare
    }

    /// A peer owes an answer.
    pub(super) fn expect_answer(&mut self) {
        self.carry.answer_due = true;
    }

    /// Gives a connection its next credit as a producer, at once or when there is memory for it.
    pub(super) fn credit_connection(&mut self, output: &Arc<Output>) {
        let shared = self.shared;
        let credit = shared.memory.credit();
        if credit == 0 {
            // However often it asks, it waits once.
            if !output.set_starving(true) {
                shared.starved.wait(Arc::clone(output));
            }
            return;
        }
        let packet = PacketBuilder::new(PacketType::RESUME_FLOW)
            .int("JMQSize", credit)
            .long("JMQBytes", -1)
            .long("JMQMaxMsgBytes", i64::from(shared.config.packet_bytes_max));
        self.send_packet(output, packet);
    }

    /// Runs and flushes until nothing is left but what is bounded away to the next turn.
    pub(super) fn finish(mut self) {
        self.carry.answer_due = false;
        self.tick();
        self.hand_in();
        for destination in std::mem::take(&mut self.carry.run_list) {
            let entered = destination.resume(&mut self);
            self.note(destination, entered);
        }
        if std::mem::take(&mut self.carry.coordinates) {
            let entered = self.shared.coordinator.resume(&mut self);
            self.carry.coordinates |= entered == Entered::More;
        }
        loop {
            while let Some(destination) = self.carry.destinations.pop() {
                let entered = destination.enter(&mut self);
                self.note(destination, entered);
            }
            self.hand_in();
            if std::mem::take(&mut self.carry.coordinate) {
                let entered = self.shared.coordinator.enter(&mut self);
                self.carry.coordinates |= entered == Entered::More;
            }
            let shared = self.shared;
            let fed = shared.starved.take_if(|| shared.memory.credit() > 0);
            for output in &fed {
                output.set_starving(false);
                self.credit_connection(output);
            }
            if self.carry.destinations.is_empty() && self.carry.outputs.is_empty() && fed.is_empty()
            {
                break;
            }
            // Outputs touched while these are flushed are flushed in the next round.
            let outputs = std::mem::take(&mut self.carry.outputs);
            self.carry.turn += 1;
            for output in outputs {
                output.flush(&mut self);
            }
            self.hand_in();
        }
    }

    fn note(&mut self, destination: Arc<Destination>, entered: Entered) {
        match entered {
            Entered::Done | Entered::Elsewhere => {}
            Entered::More => self.carry.run_list.push(destination),
        }
    }
}
