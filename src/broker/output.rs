//! The outgoing half of a connection, entered by whichever loop has something to deliver.
//!
//! Whoever has something leaves it in one of two queues and flushes at the end of its turn. The
//! flush goes through a gate: who finds it open encodes and writes for everybody, on its own
//! thread; nobody waits for another.
//!
//! # Invariants
//! - A reply that was left before a message was dispatched is written before it: see
//!   [`Lanes`].
//! - Consumers leave through the lane, behind the last byte written to them, so what counts as sent
//!   is final when their destination learns of it.

use std::{
    fmt,
    io::{self, IoSlice},
};

use bytes::BytesMut;

use crate::{
    flow::{Meter, Taken},
    proto::broker_out::{Outbound, Payload, SLICES_MAX},
    reactor::Transport,
    sync::{Arc, AtomicBool, AtomicU64, Lanes, Ordering},
    wire::{
        DecodeError, Packet, PacketType, Status,
        delivery::{Delivery, encode_head},
    },
};

use super::{
    command::{Command, Leave, Rare},
    connections::ConnectionInfo,
    consumer::Consumer,
    limits::OUTPUT_BYTES_MAX,
    stored::Stored,
    turn::Turn,
};

/// A message on its way to a client.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The message.
    pub message: Arc<Stored>,
    /// To whom.
    pub to: Receiver,
}

/// Who gets a message.
#[derive(Debug)]
pub(super) enum Receiver {
    /// A consumer, which has to settle it.
    Consumer(Trip),
    /// A browser, which only looks.
    Browser {
        /// Its id.
        id: i64,
        /// Whether this is the last of what it asked for.
        last: bool,
    },
}

/// One delivery to a consumer.
#[derive(Debug)]
pub(super) struct Trip {
    /// To whom.
    pub consumer: Arc<Consumer>,
    /// Number of the delivery at its consumer.
    pub number: u64,
    /// How often the message has been delivered, this time included.
    pub count: i32,
    /// The credit it took.
    pub taken: Taken,
    /// The session's number at dispatch.
    pub epoch: u32,
    /// Whether it carries C.
    pub consumer_flow: bool,
}

impl Payload for Outgoing {
    fn is_current(&self) -> bool {
        match &self.to {
            Receiver::Consumer(trip) => {
                trip.consumer.session.is_current(trip.epoch) && !trip.consumer.is_closed()
            }
            Receiver::Browser { .. } => true,
        }
    }

    fn is_metered(&self) -> bool {
        matches!(self.to, Receiver::Consumer(_))
    }

    fn encode_head(&self, flow_paused: bool, out: &mut BytesMut) -> Result<(), DecodeError> {
        let delivery = match &self.to {
            Receiver::Consumer(trip) => Delivery {
                consumer_id: trip.consumer.id,
                count: Some(trip.count),
                consumer_flow: trip.consumer_flow,
                flow_paused,
                last: false,
            },
            Receiver::Browser { id, last } => Delivery {
                consumer_id: *id,
                count: None,
                consumer_flow: false,
                flow_paused,
                last: *last,
            },
        };
        encode_head(&self.message.packet, &delivery, out)
    }

    fn tail(&self) -> &[u8] {
        self.message.packet.tail_bytes()
    }
}

/// Work for the output lane that is not a message.
#[derive(Debug)]
enum Control {
    Status(PacketType, i64, Status),
    Packet(Packet),
    /// HELLO said how large a metered batch is.
    Meter(Meter),
    /// The client has room for another batch.
    Resume(Option<i32>),
    /// A session stopped: give back what was dispatched for it.
    Recall,
    /// A consumer leaves: give back what was dispatched for it, then tell its destination.
    Leave(Arc<Consumer>, Leave, Option<Box<Packet>>),
    /// Everything the connection had has left.
    Gone(Arc<ConnectionInfo>),
    /// Write what is there, then end the stream.
    Finish,
    /// Nothing more can be written.
    Abort,
}

/// The outgoing half of one connection.
pub(super) struct Output {
    /// The connection's id.
    pub connection_id: i64,
    lanes: Lanes<Control, Vec<Outgoing>, Lane>,
    writable: AtomicBool,
    /// The last turn that has this on its list; spares looking for it there.
    touched: AtomicU64,
    finished: AtomicBool,
    /// It waits for memory before it may send more.
    starving: AtomicBool,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("connection_id", &self.connection_id).finish_non_exhaustive()
    }
}

impl Output {
    /// The output of a connection over this transport.
    pub(super) fn new(connection_id: i64, transport: Arc<dyn Transport>) -> Self {
        Self {
            connection_id,
            lanes: Lanes::new(Lane {
                transport: Some(transport),
                outbound: Outbound::new(Meter::new(0)),
                emptied: Vec::new(),
                blocked: false,
                finish: false,
            }),
            writable: AtomicBool::new(false),
            touched: AtomicU64::new(0),
            finished: AtomicBool::new(false),
            starving: AtomicBool::new(false),
        }
    }

    /// Leaves messages. Bounded by the consumers' credit, and by what browsers ask for.
    pub(super) fn push(&self, outgoing: Vec<Outgoing>) {
        self.lanes.push_slow(outgoing);
    }

    /// Leaves a reply that has only a status.
    pub(super) fn put_status(&self, reply: PacketType, consumer_id: i64, status: Status) {
        self.lanes.push_fast(Control::Status(reply, consumer_id, status));
    }

    /// Leaves a control packet.
    pub(super) fn put_packet(&self, packet: Packet) {
        self.lanes.push_fast(Control::Packet(packet));
    }

    /// Sets the size of metered batches.
    pub(super) fn set_meter(&self, meter: Meter) {
        self.lanes.push_fast(Control::Meter(meter));
    }

    /// The client has room for another batch.
    pub(super) fn resume(&self, size: Option<i32>) {
        self.lanes.push_fast(Control::Resume(size));
    }

    /// Gives back what was dispatched for stopped sessions. What is left afterwards, a reply, is
    /// written behind it.
    pub(super) fn recall(&self) {
        self.lanes.push_fast(Control::Recall);
    }

    /// Takes a consumer away. It must be closed already.
    pub(super) fn leave(&self, consumer: Arc<Consumer>, how: Leave, reply: Option<Packet>) {
        debug_assert!(consumer.is_closed());
        self.lanes.push_fast(Control::Leave(consumer, how, reply.map(Box::new)));
    }

    /// Nothing of the connection is left behind this.
    pub(super) fn gone(&self, info: Arc<ConnectionInfo>) {
        self.lanes.push_fast(Control::Gone(info));
    }

    /// Ends the stream behind what has been left so far.
    pub(super) fn finish(&self) {
        self.lanes.push_fast(Control::Finish);
    }

    /// Nothing more can be written. Its consumers leave behind this.
    pub(super) fn abort(&self) {
        self.lanes.push_fast(Control::Abort);
    }

    /// The transport has room again.
    pub(super) fn set_writable(&self) {
        // Release: pairs with the swap in the lane; it carries nothing but itself, and the gate
        // that is entered next makes the runner look again.
        self.writable.store(true, Ordering::Release);
    }

    /// Whether everything was written and the stream ended.
    pub(super) fn is_finished(&self) -> bool {
        // Relaxed: a hint for the owner, who looks again until it is so.
        self.finished.load(Ordering::Relaxed)
    }

    /// It waits for memory from now on, or no longer; what it did before.
    pub(super) fn set_starving(&self, starving: bool) -> bool {
        // Relaxed: the exchange alone decides who has it wait.
        self.starving.swap(starving, Ordering::Relaxed)
    }

    /// Whether this is the first touch in this turn.
    pub(super) fn is_first_touch(&self, turn: u64) -> bool {
        // Relaxed: only this loop's own mark counts for it; another loop's mark in between costs a
        // second flush that finds nothing.
        if self.touched.load(Ordering::Relaxed) == turn {
            return false;
        }
        self.touched.store(turn, Ordering::Relaxed);
        true
    }

    /// Encodes and writes what has been left.
    pub(super) fn flush(self: &Arc<Self>, turn: &mut Turn<'_>) {
        self.lanes.enter(
            turn,
            |lane, mut outgoing| {
                outgoing.drain(..).for_each(|one| lane.outbound.stage(one));
                lane.emptied.push(outgoing);
            },
            |lane, control, turn| lane.control(control, turn),
            |lane, turn| {
                lane.emptied.drain(..).for_each(|burst| turn.spare().keep_burst(burst));
                self.write(lane, turn);
            },
        );
    }

    fn write(&self, lane: &mut Lane, turn: &mut Turn<'_>) {
        // Acquire: pairs with `set_writable`.
        if lane.blocked && self.writable.swap(false, Ordering::Acquire) {
            lane.blocked = false;
        }
        if let Err(error) = lane.write(turn) {
            tracing::debug!(connection = self.connection_id, %error, "writing failed");
            lane.give_up();
        }
        if lane.outbound.pending_own() > OUTPUT_BYTES_MAX && lane.blocked {
            tracing::warn!(connection = self.connection_id, "the peer does not read; closing");
            lane.give_up();
        }
        if lane.finish && lane.outbound.pending() == 0 {
            if let Some(transport) = lane.transport.take() {
                transport.finish();
            }
            // Relaxed: see `is_finished`.
            self.finished.store(true, Ordering::Relaxed);
        }
        if lane.outbound.is_answer_due() {
            turn.expect_answer();
        }
    }
}

/// What is behind the gate.
#[derive(Debug)]
struct Lane {
    /// `None` once the connection is gone.
    transport: Option<Arc<dyn Transport>>,
    outbound: Outbound<Outgoing>,
    /// Vectors that messages came in, until they are given to the loop that is inside.
    emptied: Vec<Vec<Outgoing>>,
    blocked: bool,
    finish: bool,
}

impl Lane {
    fn control(&mut self, control: Control, turn: &mut Turn<'_>) {
        match control {
            Control::Status(reply, consumer_id, status) => {
                let stamp = turn.stamp();
                self.outbound.put_status(reply, consumer_id, status, stamp);
            }
            Control::Packet(packet) => self.outbound.put_control(packet.raw()),
            Control::Meter(meter) => self.outbound.set_meter(meter),
            Control::Resume(size) => self.outbound.resume(size),
            Control::Recall => self.outbound.take_stale(|stale| take_back(stale, turn)),
            Control::Leave(consumer, how, reply) => {
                self.outbound.take_stale(|stale| take_back(stale, turn));
                let destination = Arc::clone(&consumer.destination);
                turn.send_now(&destination, Command::Leave { consumer, how });
                if let Some(reply) = reply {
                    self.outbound.put_control(reply.raw());
                }
            }
            Control::Gone(info) => turn.shared.connections.remove(&info),
            Control::Finish => self.finish = true,
            Control::Abort => self.transport = None,
        }
    }

    /// Breaks the connection. Its owner reads the end of it, and takes it down.
    fn give_up(&mut self) {
        if let Some(transport) = self.transport.take() {
            transport.abort();
        }
    }

    fn write(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        let Some(transport) = &self.transport else {
            // Deliveries know their consumer, which knows this output: kept, they would keep each
            // other. What is staged goes back once its consumer is closed.
            self.outbound.drop_encoded();
            self.outbound.take_stale(|stale| take_back(stale, turn));
            return Ok(());
        };
        let mut forgotten: Option<(Arc<Consumer>, u64)> = None;
        while !self.blocked {
            self.outbound.encode_staged(|refused, error| match error {
                None => take_back(refused, turn),
                Some(error) => {
                    tracing::error!(%error, "a stored message cannot be written");
                    if let Receiver::Consumer(trip) = refused.to {
                        let Trip { consumer, number, taken, .. } = trip;
                        let destination = Arc::clone(&consumer.destination);
                        let died = Rare::command(move |_, state, turn| {
                            state.cannot_be_written(consumer.id, number, taken, turn);
                        });
                        turn.send_now(&destination, died);
                    }
                }
            });
            let result = {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = self.outbound.transmit(&mut slices);
                if count == 0 {
                    break;
                }
                transport.write_vectored(&slices[..count])
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.outbound.transmitted(count, |sent| {
                    if let Receiver::Consumer(trip) = sent.to {
                        trip.consumer.set_sent(trip.number);
                        after_sending(trip, &mut forgotten, turn);
                    }
                }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.blocked = true,
                Err(error) => return Err(error),
            }
        }
        if let Some((consumer, through)) = forgotten {
            forget(&consumer, through, turn);
        }
        Ok(())
    }
}

/// Gives back the credit of an unlimited consumer, and settles for one that forgets, a run of its
/// messages at a time.
fn after_sending(sent: Trip, forgotten: &mut Option<(Arc<Consumer>, u64)>, turn: &mut Turn<'_>) {
    let Trip { consumer, number, taken, .. } = sent;
    if consumer.is_unlimited() && consumer.give_back(taken) {
        turn.send_now(&consumer.destination, Command::Ready(consumer.id));
    }
    if consumer.forgets {
        match forgotten {
            Some((known, through)) if known.id == consumer.id => *through = number,
            _ => {
                if let Some((other, through)) = forgotten.replace((consumer, number)) {
                    forget(&other, through, turn);
                }
            }
        }
    }
}

fn take_back(stale: Outgoing, turn: &mut Turn<'_>) {
    // What a browser was to be shown is still where it was.
    let Receiver::Consumer(Trip { consumer, number, taken, .. }) = stale.to else { return };
    let command = Command::TakeBack { consumer: consumer.id, number, taken };
    turn.send_now(&consumer.destination, command);
}

fn forget(consumer: &Arc<Consumer>, through: u64, turn: &mut Turn<'_>) {
    turn.send_now(&consumer.destination, Command::Forget { consumer: consumer.id, through });
}
