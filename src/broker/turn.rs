//! What one turn of a loop collects: destinations to run, outputs to flush.
//!
//! A turn hands what arrived to each destination as one burst, then flushes each output that got
//! something, until nothing is left to do. Work given back by an output goes round again.

use crate::{
    sync::{Arc, Entered},
    wire::{MessageId, PacketBuilder},
};

use super::{command::Command, destination::Destination, output::Output, shared::Shared};

/// Empty vectors kept for the next bursts.
const SPARE_MAX: usize = 64;

/// A loop's memory from one turn to the next.
#[derive(Debug, Default)]
pub(super) struct Carry {
    destinations: Vec<Arc<Destination>>,
    outputs: Vec<Arc<Output>>,
    /// Destinations whose run stopped at its bound; this loop owns their gates until it goes on.
    run_list: Vec<Arc<Destination>>,
    spare: Vec<Vec<Command>>,
    bursts: Vec<(Arc<Destination>, Vec<Command>)>,
    answer_due: bool,
    turn: u64,
}

impl Carry {
    /// `number` sets the turns of one loop apart from those of another.
    pub(super) fn new(number: u16) -> Self {
        Self { turn: u64::from(number) << 48 | 1, ..Self::default() }
    }

    /// Whether there is work left for the next turn.
    pub(super) const fn has_work(&self) -> bool {
        !self.run_list.is_empty()
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
                let mut commands = self.carry.spare.pop().unwrap_or_default();
                commands.push(command);
                bursts.push((Arc::clone(destination), commands));
            }
        }
    }

    /// Leaves a command at once, so that nothing that follows can come before it.
    pub(super) fn send_now(&mut self, destination: &Arc<Destination>, command: Command) {
        let mut commands = self.carry.spare.pop().unwrap_or_default();
        commands.push(command);
        destination.push(commands);
        self.touch_destination(destination);
    }

    /// Hands the bursts in. Called after each connection's input.
    pub(super) fn hand_in(&mut self) {
        while let Some((destination, commands)) = self.carry.bursts.pop() {
            destination.push(commands);
            self.touch_destination(&destination);
        }
    }

    fn touch_destination(&mut self, destination: &Arc<Destination>) {
        let known = |other: &Arc<Destination>| Arc::ptr_eq(other, destination);
        if !self.carry.destinations.last().is_some_and(known) {
            self.carry.destinations.push(Arc::clone(destination));
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

    /// Keeps an emptied vector for the next burst.
    pub(super) fn recycle(&mut self, commands: Vec<Command>) {
        debug_assert!(commands.is_empty());
        if self.carry.spare.len() < SPARE_MAX {
            self.carry.spare.push(commands);
        }
    }

    /// A peer owes an answer.
    pub(super) fn expect_answer(&mut self) {
        self.carry.answer_due = true;
    }

    /// A message has expired and was dropped.
    pub(super) fn count_expired(&self) {
        self.shared.stats.expired();
    }

    /// Runs and flushes until nothing is left but what is bounded away to the next turn.
    pub(super) fn finish(mut self) {
        self.carry.answer_due = false;
        self.hand_in();
        for destination in std::mem::take(&mut self.carry.run_list) {
            let entered = destination.resume(&mut self);
            self.note(destination, entered);
        }
        while !(self.carry.destinations.is_empty() && self.carry.outputs.is_empty()) {
            while let Some(destination) = self.carry.destinations.pop() {
                let entered = destination.enter(&mut self);
                self.note(destination, entered);
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
