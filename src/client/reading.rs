//! Reading: one burst from the socket to everybody it concerns.
//!
//! The bytes are cut into packets, F is answered, then each packet goes where it belongs: a message
//! into its consumer's inbox, a reply into its slot, credit to its producer. Who waits for any of
//! it is woken, once per burst.

use std::collections::HashMap;

use bytes::BytesMut;

use super::{
    core::Core,
    epoch::Epoch,
    links::{Arrived, Awaited, Command, ConsumerLink, ProducerLink},
    output::Push,
    replies::Replies,
    routes::Routes,
    socket::{ReadTimeout, Wait, Wire},
};
use crate::{
    flow::{Credit, Resume},
    proto::client::{ClientEnd, ClientEvent, ConnectionError},
    sync::Arc,
    wire::{Decoder, Flags, Frame, Packet, PacketType, Status, limits::PACKET_BYTES_MAX},
};

/// What is read from the socket at one time, at most.
const READ_BYTES: usize = 256 * 1024;
/// A read is not begun with less room than this.
const READ_BYTES_LEAST: usize = 64 * 1024;
/// Replies that may make a consumer, a producer or a browser.
const ADDS: [PacketType; 3] =
    [PacketType::ADD_CONSUMER_REPLY, PacketType::ADD_PRODUCER_REPLY, PacketType::BROWSE_REPLY];
/// Consumers and producers that may be waiting for the broker's word at one time.
const ADDING_MAX: usize = 1024;

/// The input half of a connection, owned by whoever has the helm.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) epoch: Epoch,
    wire: Arc<Wire>,
    end: ClientEnd,
    decoder: Decoder,
    buffer: BytesMut,
    timeout: ReadTimeout,
    routes: Routes,
    adding: Vec<Command>,
    /// Replies that go elsewhere than into a slot, by their ids.
    awaited: HashMap<i64, Arc<Awaited>>,
    burst: Vec<Packet>,
    /// Until it is taken over: consumers that were made again on this link, and the prefetch that
    /// was agreed.
    renewed: Option<Vec<(Arc<ConsumerLink>, Credit)>>,
}

impl Core {
    /// Takes in what came right behind the login.
    pub(super) fn take_leftovers(&self) {
        self.helm.try_take(|input| self.take_or_lose(input));
    }

    /// Takes in what was fed; loses the link if that is no good. Whether it is.
    fn take_or_lose(&self, input: &mut Input) -> bool {
        let outcome = self.take_burst(input);
        outcome.map_err(|reason| self.lose(input.epoch, reason)).is_ok()
    }

    /// Takes over the newest link; whether there is one. What waits of the last one is forgotten:
    /// here, where nothing of it can come any more.
    fn renew(&self, input: &mut Input) -> bool {
        let epoch = self.epoch();
        if input.epoch != epoch {
            // It may be there before its epoch has begun, or be of a later one by now.
            while let Some(mut fresh) = self.fresh.pop() {
                // A reader that was slow to leave the last link may have taken in what is meant for
                // this one. Reply ids are never used twice, so what is of the last one finds nothing.
                fresh.adding.append(&mut input.adding);
                fresh.awaited.extend(input.awaited.drain());
                *input = fresh;
            }
            if input.epoch != epoch {
                return false;
            }
        }
        let Some(renewed) = input.renewed.take() else { return true };
        for (link, agreed) in renewed {
            link.begin_again(agreed);
        }
        if let Some(all) = &self.buffered {
            // The sender that was paused is gone.
            let _paused = all.reset();
        }
        // What came right behind the last reply.
        self.take_or_lose(input)
    }

    /// Reads once and hands out what came; whether something came.
    pub(super) fn read(&self, input: &mut Input, wait: Wait) -> bool {
        if !self.renew(input) {
            return false;
        }
        // From the start again if nobody holds on to what was read before: that memory is warm.
        let begins_anew = input.buffer.try_reclaim(READ_BYTES);
        if !begins_anew && input.buffer.capacity() - input.buffer.len() < READ_BYTES_LEAST {
            input.buffer.reserve(READ_BYTES);
        }
        match input.wire.receive(&mut input.buffer, wait, &mut input.timeout) {
            Ok(None) => false,
            Ok(Some(0)) => {
                self.lose(input.epoch, ConnectionError::EndOfStream);
                false
            }
            Ok(Some(_)) => {
                self.output.count_read();
                let bytes = input.buffer.split().freeze();
                input.decoder.feed(bytes);
                self.take_or_lose(input)
            }
            Err(error) => {
                self.lose(input.epoch, ConnectionError::Socket(error.kind()));
                false
            }
        }
    }

    /// Cuts what was read into packets, answers F, then hands the packets on.
    fn take_burst(&self, input: &mut Input) -> Result<(), ConnectionError> {
        loop {
            let frame = match input.decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    // What came before the nonsense is still good.
                    self.hand_out(input)?;
                    return Err(ConnectionError::Garbage(error));
                }
            };
            match frame {
                Frame::Packet(packet) => {
                    let header = packet.header();
                    if header.packet_type.is_message() {
                        self.count_in(header.flags.contains(Flags::FLOW_PAUSED));
                    }
                    input.burst.push(packet);
                }
                Frame::Oversized(header) => {
                    return Err(ConnectionError::TooLarge {
                        packet: header.packet_type,
                        bytes: header.size,
                        most: PACKET_BYTES_MAX,
                    });
                }
            }
        }
        self.hand_out(input)
    }

    /// Counts a message into the connection's buffer; a paused connection is resumed at once
    /// unless too much waits for the application.
    fn count_in(&self, paused: bool) {
        match &self.buffered {
            Some(buffered) => {
                if let Some(resume) = buffered.delivered(paused) {
                    self.resume_connection(resume);
                }
            }
            None if paused => self.resume_connection(Resume { size: Resume::UNLIMITED }),
            None => {}
        }
    }

    fn hand_out(&self, input: &mut Input) -> Result<(), ConnectionError> {
        let mut burst = std::mem::take(&mut input.burst);
        let mut outcome = Ok(());
        for packet in burst.drain(..) {
            outcome = self.handle(input, packet);
            if outcome.is_err() {
                break;
            }
        }
        input.burst = burst;
        input.routes.wake_touched();
        while let Some(answer) = input.end.poll_transmit() {
            self.submit(input.epoch, answer, Push::Now);
        }
        outcome
    }

    fn handle(&self, input: &mut Input, packet: Packet) -> Result<(), ConnectionError> {
        match input.end.handle_packet(&packet)? {
            ClientEvent::Nothing | ClientEvent::LoggedIn => {}
            ClientEvent::Delivery { consumer_paused, .. } => {
                self.deliver(input, packet, consumer_paused);
            }
            ClientEvent::Reply => {
                let header = packet.header();
                if Replies::is_elsewhere(header.consumer_id) {
                    self.take_commands(input);
                    if let Some(awaited) = input.awaited.remove(&packet.header().consumer_id) {
                        awaited.put(packet);
                    }
                    return Ok(());
                }
                let kind = header.packet_type;
                if ADDS.contains(&kind) {
                    self.take_commands(input);
                    input.add(&packet);
                }
                self.replies.deliver(packet);
            }
            ClientEvent::Resume { producer: None, credit } => {
                // Everybody who waits for credit is woken, whether it was paused or not.
                let _was_paused = self.credit.resume(credit_of(credit));
                self.wake_sessions();
            }
            ClientEvent::Resume { producer: Some(id), credit } => {
                self.take_commands(input);
                if let Some(link) = input.routes.producer(id) {
                    let _was_paused = link.credit.resume(credit_of(credit));
                    link.signal.wake_all();
                }
            }
            ClientEvent::Goodbye { reason, text, exit } => {
                return Err(ConnectionError::Goodbye { reason, text, exit });
            }
        }
        Ok(())
    }

    fn deliver(&self, input: &mut Input, packet: Packet, paused: bool) {
        let id = packet.header().consumer_id;
        let epoch = input.epoch;
        let Some(link) = input.routes.consumer(id) else {
            // Of a consumer that is closed: the broker takes it back when it hears of that.
            self.discarded(1);
            return;
        };
        let resume = link.buffer.delivered(paused);
        link.inbox.push(Arrived { packet, epoch });
        if let Some(resume) = resume {
            self.resume_consumer(link, resume);
        }
    }

    fn take_commands(&self, input: &mut Input) {
        while let Some(command) = self.commands.pop() {
            match command {
                Command::RemoveConsumer(link) => input.routes.remove_consumer(&link),
                Command::RemoveProducer(link) => input.routes.remove_producer(&link),
                Command::AwaitReply { reply_id, awaited } => {
                    input.awaited.insert(reply_id, awaited);
                }
                Command::ForgetReply(reply_id) => drop(input.awaited.remove(&reply_id)),
                adding @ (Command::AddConsumer { .. } | Command::AddProducer { .. }) => {
                    // One whose reply never came is forgotten when many others have.
                    if input.adding.len() >= ADDING_MAX {
                        input.adding.remove(0);
                    }
                    input.adding.push(adding);
                }
            }
        }
    }
}

impl Input {
    pub(super) fn new(
        epoch: Epoch,
        wire: Arc<Wire>,
        end: ClientEnd,
        decoder: Decoder,
        timeout: ReadTimeout,
    ) -> Self {
        Self {
            epoch,
            wire,
            end,
            decoder,
            buffer: BytesMut::new(),
            timeout,
            routes: Routes::default(),
            adding: Vec::new(),
            awaited: HashMap::new(),
            burst: Vec::new(),
            renewed: None,
        }
    }

    /// Marks it as another link's, which whoever reads has to take over.
    pub(super) fn renew(&mut self) {
        self.renewed = Some(Vec::new());
    }

    /// Enters a consumer that was made again on this link, before anybody reads from it.
    pub(super) fn renew_consumer(&mut self, id: i64, link: &Arc<ConsumerLink>, agreed: Credit) {
        link.remote.set(id, self.epoch);
        self.routes.add_consumer(id, Arc::clone(link));
        self.renewed.get_or_insert_default().push((Arc::clone(link), agreed));
    }

    /// Enters a producer that was made again on this link, before anybody reads from it.
    pub(super) fn renew_producer(&mut self, id: i64, link: &Arc<ProducerLink>, size: Option<i32>) {
        // Who waits for its credit is woken when the link is there.
        let _was_paused = link.credit.resume(credit_of(size));
        link.remote.set(id, self.epoch);
        self.routes.add_producer(id, Arc::clone(link));
    }

    /// Enters a consumer or producer that the broker has just accepted: before the requester sees
    /// the reply, as messages or credit may stand right behind it.
    fn add(&mut self, reply: &Packet) {
        let reply_id = reply.header().consumer_id;
        let Some(at) = self.adding.iter().position(|command| command.reply_id() == Some(reply_id))
        else {
            return;
        };
        let command = self.adding.swap_remove(at);
        // What is malformed here is reported to the requester, who reads the reply as well.
        let Ok(table) = reply.properties() else { return };
        if table.int("JMQStatus").ok().flatten() != Some(Status::OK.0) {
            return;
        }
        let size = table.int("JMQSize").ok().flatten();
        match command {
            Command::AddConsumer { link, .. } => {
                let Ok(Some(id)) = table.long("JMQConsumerID") else { return };
                // Something may have come before an earlier link was lost.
                link.begin_again(size.map_or(Credit::Unlimited, Credit::from_wire));
                link.remote.set(id, self.epoch);
                self.routes.add_consumer(id, link);
            }
            Command::AddProducer { link, .. } => {
                let Ok(Some(id)) = table.long("JMQProducerID") else { return };
                let _was_paused = link.credit.resume(credit_of(size));
                link.remote.set(id, self.epoch);
                self.routes.add_producer(id, link);
            }
            _ => {}
        }
    }
}

/// What the size of a producer's or connection's credit means; none is no limit.
pub(super) fn credit_of(size: Option<i32>) -> Credit {
    size.map_or(Credit::Unlimited, Credit::from_wire_producer)
}
