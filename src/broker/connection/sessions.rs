//! Sessions of a connection, their starts and stops, and its client id.

use crate::{
    proto::broker_in::{AckMode, ClientIdWish, ReplyTo},
    sync::{Arc, Plain},
    wire::{PacketBuilder, Status},
};

use super::{
    super::{
        command::{Command, Leave},
        connections::Profile,
        consumer::{Consumer, SessionState},
        coordinator::Transact,
        turn::Turn,
    },
    Connection, Refusal, Session,
    producing::remove_producer,
    room,
};

impl Connection {
    pub(super) fn create_session(
        &mut self,
        to: &ReplyTo,
        ack_mode: AckMode,
        turn: &Turn<'_>,
    ) -> Result<PacketBuilder, Refusal> {
        room(self.sessions.len(), "sessions")?;
        let id = turn.next_id();
        self.insert_session(id, ack_mode);
        Ok(to.with(Status::OK).long("JMQSessionID", id))
    }

    pub(super) fn insert_session(&mut self, id: i64, ack_mode: AckMode) {
        let session = Session { state: Arc::new(SessionState::stopped()), ack_mode, pauses: 0 };
        session.state.set_running(self.started);
        self.sessions.insert(id, session);
    }

    pub(super) fn destroy_session(
        &mut self,
        to: &ReplyTo,
        id: i64,
        turn: &mut Turn<'_>,
    ) -> Result<(), Refusal> {
        if self.sessions.remove(&id).is_none() {
            return Err((Status::ERROR, format!("there is no session {id}")));
        }
        for (producer, gone) in self.producers.extract_if(|_, one| one.session == Some(id)) {
            remove_producer(producer, &gone, turn);
        }
        let gone: Vec<Arc<Consumer>> = self
            .consumers
            .extract_if(|_, (session, _)| *session == id)
            .map(|(_, (_, consumer))| consumer)
            .collect();
        gone.iter().for_each(|consumer| consumer.close());
        let (output, to) = (Arc::clone(&self.output), *to);
        let leave = move |turn: &mut Turn<'_>| {
            for consumer in gone {
                output.leave(consumer, Leave::Ended, None);
            }
            turn.touch_output(&output);
            // Behind them: what comes back must be in its place before the client asks for more.
            if to.wanted {
                turn.send_packet(&output, to.with(Status::OK));
            }
        };
        let ended = |connection, then| Transact::SessionEnded { connection, session: id, then };
        self.behind_transactions(leave, ended, turn);
        Ok(())
    }

    /// Resumes one session, or the connection with all that are not paused.
    pub(super) fn start(&mut self, session: Option<i64>, turn: &mut Turn<'_>) {
        match session {
            None => self.started = true,
            Some(id) => {
                let Some(session) = self.sessions.get_mut(&id) else { return };
                session.pauses = session.pauses.saturating_sub(1);
            }
        }
        self.update_sessions(turn);
    }

    pub(super) fn stop(&mut self, session: Option<i64>, turn: &mut Turn<'_>) {
        match session {
            None => self.started = false,
            Some(id) => {
                let Some(session) = self.sessions.get_mut(&id) else { return };
                session.pauses = session.pauses.saturating_add(1);
            }
        }
        self.update_sessions(turn);
    }

    /// Sets each session running or stopped. Behind a stop, the output first gives back what was
    /// dispatched under it; then the reply may go.
    pub(super) fn update_sessions(&self, turn: &mut Turn<'_>) {
        let mut stopped = false;
        for (id, session) in &self.sessions {
            let running = self.started && session.pauses == 0;
            if !session.state.set_running(running) {
                continue;
            }
            if running {
                let own = self.consumers.iter().filter(|(_, (session, _))| session == id);
                for (consumer_id, (_, consumer)) in own {
                    turn.send(&consumer.destination, Command::Ready(*consumer_id));
                }
            } else {
                stopped = true;
            }
        }
        if stopped {
            self.output.recall();
            turn.touch_output(&self.output);
        }
    }

    pub(super) fn set_client_id(
        &mut self,
        to: &ReplyTo,
        wish: Option<&ClientIdWish>,
        turn: &Turn<'_>,
    ) -> Result<PacketBuilder, Refusal> {
        let ids = &turn.shared.client_ids;
        let new = wish.map(|wish| ids.take(wish, &self.user, self.id)).transpose()?;
        let new = new.map(Plain::from);
        if let Some(old) = self.client_id.take().filter(|old| Some(old) != new.as_ref()) {
            ids.release(&old, self.id);
        }
        let profile = Profile {
            client_id: new.as_deref().map(str::to_owned),
            ..(*self.info.profile()).clone()
        };
        self.info.set_profile(profile);
        self.client_id = new;
        Ok(to.with(Status::OK))
    }
}
