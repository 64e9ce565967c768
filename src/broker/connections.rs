//! Who is connected, for administrators and for clients that come back.
//!
//! A connection stands here from its acceptance until the last trace of it has left its
//! destinations. So whoever waits for its end can rely on it: what is asked for afterwards comes
//! behind everything the connection had.
//!
//! # Ordering
//! Whether a connection has ended and who waits for that are one value behind one pointer, so a
//! waiter is either told at once or told by the end, never neither.

use std::collections::HashMap;

use crate::{
    reactor::Key,
    sync::{Arc, Snapshot},
};

use super::{
    arrival::PeerAddress,
    server::{LoopMailbox, Mail},
};

const PARTS: usize = 64;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// Applications.
    Jms,
    /// Administrators.
    Admin,
}

impl Service {
    /// Its type in the port table.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Jms => "NORMAL",
            Self::Admin => "ADMIN",
        }
    }

    /// Its name in the port table and in addresses.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Jms => "jms",
            Self::Admin => "admin",
        }
    }
}

/// Why a connection is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kill {
    /// An administrator said so. The client is told, and does not come back by itself.
    Administrator,
    /// Its client has come back on another connection.
    Replaced,
}

/// Where a connection is served.
#[derive(Debug, Clone)]
pub(super) struct Home {
    /// Its loop.
    pub mailbox: LoopMailbox,
    /// Its place there.
    pub key: Key,
}

/// What became known of a connection's client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Profile {
    /// Who logged in; empty before that.
    pub user: String,
    /// The client's own description.
    pub user_agent: String,
    /// The client id.
    pub client_id: Option<String>,
}

#[derive(Debug, Clone)]
enum End {
    /// Not yet. These connections wait for it.
    Open(Vec<(Home, i64)>),
    Ended,
}

/// One connection, as others see it.
#[derive(Debug)]
pub(super) struct ConnectionInfo {
    /// Its id.
    pub id: i64,
    /// Where its client is.
    pub peer: PeerAddress,
    /// What it is for.
    pub service: Service,
    /// Where it is served; `None` without loops.
    home: Option<Home>,
    profile: Snapshot<Profile>,
    end: Snapshot<End>,
}

impl ConnectionInfo {
    /// A connection nobody has spoken on.
    pub(super) fn new(id: i64, peer: PeerAddress, service: Service, home: Option<Home>) -> Self {
        Self {
            id,
            peer,
            service,
            home,
            profile: Snapshot::new(Profile::default()),
            end: Snapshot::new(End::Open(Vec::new())),
        }
    }

    /// What is known of the client.
    pub(super) fn profile(&self) -> Arc<Profile> {
        self.profile.load_full()
    }

    /// Something became known of the client. Called by the connection's owner alone.
    pub(super) fn set_profile(&self, profile: Profile) {
        self.profile.publish(profile);
    }

    /// Asks its loop to end it.
    pub(super) fn kill(&self, why: Kill) {
        if let Some(home) = &self.home {
            home.mailbox.send(Mail::Kill { key: home.key, connection: self.id, why });
        }
    }

    /// Ends this connection for `other`, whose loop is told once nothing of this one is left.
    /// `false` if that is so already.
    pub(super) fn make_way_for(&self, other: &Self) -> bool {
        let Some(waiter) = &other.home else { return false };
        let (_, waits) = self.end.update(|end| match end {
            End::Open(waiters) => {
                let mut waiters = waiters.clone();
                waiters.push((waiter.clone(), other.id));
                Some(End::Open(waiters))
            }
            End::Ended => None,
        });
        if waits.is_some() {
            self.kill(Kill::Replaced);
        }
        waits.is_some()
    }

    fn tell_waiters(&self) {
        let (before, _) = self.end.update(|end| match end {
            End::Open(_) => Some(End::Ended),
            End::Ended => None,
        });
        if let End::Open(waiters) = &*before {
            for (home, connection) in waiters {
                home.mailbox.send(Mail::GoOn { key: home.key, connection: *connection });
            }
        }
    }
}

type Part = HashMap<i64, Arc<ConnectionInfo>>;

/// The connections of a broker by id.
#[derive(Debug)]
pub(super) struct Connections {
    parts: Vec<Snapshot<Part>>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| Snapshot::new(Part::new())).collect() }
    }
}

impl Connections {
    /// A connection was accepted.
    pub(super) fn add(&self, info: &Arc<ConnectionInfo>) {
        let _added = self.part(info.id).update(|part| {
            let mut next = part.clone();
            next.insert(info.id, Arc::clone(info));
            Some(next)
        });
    }

    /// Nothing of the connection is left. Whoever waited for that is told.
    pub(super) fn remove(&self, info: &ConnectionInfo) {
        let _removed = self.part(info.id).update(|part| {
            part.contains_key(&info.id).then(|| {
                let mut next = part.clone();
                next.remove(&info.id);
                next
            })
        });
        info.tell_waiters();
    }

    /// The connection of this id.
    pub(super) fn find(&self, id: i64) -> Option<Arc<ConnectionInfo>> {
        self.part(id).read(|part| part.get(&id).cloned())
    }

    /// All of them, the oldest first.
    pub(super) fn all(&self) -> Vec<Arc<ConnectionInfo>> {
        let of_part = |part: &Part| part.values().cloned().collect::<Vec<_>>();
        let mut all: Vec<_> = self.parts.iter().flat_map(|part| part.read(of_part)).collect();
        all.sort_by_key(|info| info.id);
        all
    }

    fn part(&self, id: i64) -> &Snapshot<Part> {
        // Ids are counted up, so the low bits spread them.
        &self.parts[usize::try_from(id.unsigned_abs() % PARTS as u64).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionInfo, Connections, PeerAddress, Profile, Service};
    use crate::sync::Arc;

    fn info(id: i64) -> Arc<ConnectionInfo> {
        let peer = PeerAddress::InProcess(1);
        Arc::new(ConnectionInfo::new(id, peer, Service::Jms, None))
    }

    #[test]
    fn a_connection_is_found_until_it_is_removed() {
        let connections = Connections::default();
        for id in [300, 7, 71, 5] {
            connections.add(&info(id));
        }
        let ids = || connections.all().iter().map(|info| info.id).collect::<Vec<_>>();
        assert_eq!(ids(), [5, 7, 71, 300]);
        let found = connections.find(71).unwrap();
        found.set_profile(Profile { user: "ann".into(), ..Profile::default() });
        assert_eq!(connections.find(71).unwrap().profile().user, "ann");
        connections.remove(&found);
        connections.remove(&found);
        assert_eq!(ids(), [5, 7, 300]);
        assert!(connections.find(71).is_none());
    }
}
