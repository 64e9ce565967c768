//! Branches of distributed transactions: what a transaction manager needs of a session.
//!
//! ```text
//!  start --> active --end(success)--> ended --prepare--> prepared --commit--> gone
//!             |  ^                      |                   |
//!     suspend |  | resume               '--commit at once---'----rollback----> gone
//!             v  |
//!          suspended (told to nobody: the session just works outside of it meanwhile)
//! ```
//!
//! What a branch received is noted here until the branch is settled: a rollback sends it back, as
//! for local transactions, unless the branch is prepared; then it is the broker's to redeliver.

use super::{
    acks::Block,
    connection::Connection,
    error::{SessionError, XaError},
    session::{AcknowledgeMode, Session, SessionOwner},
    session_state::{SessionShared, read_id},
};
use crate::{
    proto::transaction::{XaFlags, Xid},
    sync::Arc,
    wire::{Packet, PacketBuilder, PacketType, Status},
};

/// A session whose work a transaction manager puts into branches of distributed transactions.
///
/// Shape: a handle; clones are the same session. Outside of a branch it is an automatic session.
#[derive(Debug, Clone)]
pub struct XaSession {
    session: Session,
}

/// The transaction manager's side of an [`XaSession`].
///
/// Shape: a handle; clones are the same resource. It keeps its session open. One branch at a time
/// is active in a session; others may be ended, or suspended.
///
/// # Source
/// The XA interface, as Java's `XAResource` has it. There are no heuristic outcomes here, so there
/// is nothing to forget.
#[derive(Debug, Clone)]
pub struct XaResource {
    owner: Arc<SessionOwner>,
}

/// How work in a branch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum XaStart {
    /// The branch is new.
    New,
    /// The branch exists; the work joins it.
    Join,
    /// The branch was suspended in this session.
    Resume,
}

/// How work in a branch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum XaEnd {
    /// The work is done.
    Success,
    /// The work failed: the branch can only be rolled back.
    Fail,
    /// The work goes on later, in this session.
    Suspend,
}

/// How a branch is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum XaCommit {
    /// It was prepared.
    Prepared,
    /// At once, without preparing it: there is no other branch.
    OnePhase,
}

/// What a branch promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum XaVote {
    /// It can be committed, whatever happens.
    Ready,
    /// It did nothing and is gone: neither commit nor roll it back.
    ReadOnly,
}

/// What a session knows of a branch that is not settled.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    xid: Xid,
    /// The broker's number of it.
    id: i64,
    state: State,
    /// What it received, in order, but for what the active branch received since it was resumed.
    pub(super) seen: Vec<Block>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Suspended,
    Ended,
    Prepared,
}

impl Connection {
    /// Makes a session whose work belongs to distributed transactions.
    ///
    /// # Errors
    /// [`SessionError::Request`] if the broker refuses or the connection is lost.
    pub fn create_xa_session(&self) -> Result<XaSession, SessionError> {
        Ok(XaSession { session: self.create_session(AcknowledgeMode::Auto)? })
    }
}

impl XaSession {
    /// The session, to send and receive with.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// What the transaction manager needs.
    #[must_use]
    pub fn resource(&self) -> XaResource {
        XaResource { owner: Arc::clone(&self.session.owner) }
    }
}

impl XaResource {
    /// Begins work: what the session sends and receives from here on belongs to this branch.
    ///
    /// # Errors
    /// [`XaError::Protocol`] if another branch is active or this one cannot begin so,
    /// [`XaError::DuplicateBranch`] if a new one exists, [`XaError::UnknownBranch`] if one to join
    /// or resume does not, [`XaError::Request`].
    pub fn start(&self, xid: &Xid, how: XaStart) -> Result<(), XaError> {
        let shared = self.shared();
        shared.check_open()?;
        if shared.branches.read(|all| all.iter().any(|branch| branch.state == State::Active)) {
            return Err(protocol(xid, "another branch is active in the session"));
        }
        let flags = match how {
            XaStart::New => XaFlags::default(),
            XaStart::Join => XaFlags::JOIN,
            XaStart::Resume => {
                let branch = self.branch(xid, &[State::Suspended])?;
                shared.change_branch(xid, |branch| branch.state = State::Active);
                shared.set_transaction(Some(branch.id));
                return Ok(());
            }
        };
        let reply = self.request(PacketType::START_TRANSACTION, xid, |packet| {
            packet.int("JMQXAFlags", flags.0)
        })?;
        let id = read_id(&reply, "JMQTransactionID")?;
        shared.add_branch(xid, id);
        shared.set_transaction(Some(id));
        Ok(())
    }

    /// Ends work in a branch. Waits for asynchronous sends of the session first. Afterwards the
    /// session works outside of any branch, even if this fails.
    ///
    /// # Errors
    /// [`XaError::UnknownBranch`] or [`XaError::Protocol`] if no work was begun in it here,
    /// [`XaError::Request`].
    pub fn end(&self, xid: &Xid, how: XaEnd) -> Result<(), XaError> {
        let shared = self.shared();
        let before: &[State] = match how {
            XaEnd::Suspend => &[State::Active],
            XaEnd::Success | XaEnd::Fail => &[State::Active, State::Suspended],
        };
        let branch = self.branch(xid, before)?;
        shared.await_completions();
        if branch.state == State::Active {
            shared.set_transaction(None);
            let seen = shared.link.acks.take_all();
            shared.change_branch(xid, |branch| branch.seen.extend_from_slice(&seen));
        }
        let (state, flags) = match how {
            XaEnd::Suspend => (State::Suspended, None),
            XaEnd::Success => (State::Ended, Some(XaFlags::SUCCESS)),
            XaEnd::Fail => (State::Ended, Some(XaFlags::FAIL)),
        };
        shared.change_branch(xid, |branch| branch.state = state);
        if let Some(flags) = flags {
            self.request(PacketType::END_TRANSACTION, xid, |packet| {
                packet.int("JMQXAFlags", flags.0)
            })?;
        }
        Ok(())
    }

    /// Makes the branch ready to be committed, come what may. It need not have been of this
    /// session.
    ///
    /// # Errors
    /// [`XaError::UnknownBranch`], [`XaError::Protocol`] if work in it has not ended, or it can only
    /// be rolled back, [`XaError::Request`].
    pub fn prepare(&self, xid: &Xid) -> Result<XaVote, XaError> {
        let id = self.settled_id(xid)?;
        let prepared = self.request(PacketType::PREPARE_TRANSACTION, xid, |packet| {
            packet.long("JMQTransactionID", id)
        });
        match prepared {
            Err(XaError::Request(error)) if error.status() == Some(Status::NOT_MODIFIED) => {
                self.shared().remove_branch(xid);
                Ok(XaVote::ReadOnly)
            }
            prepared => {
                drop(prepared?);
                self.shared().change_branch(xid, |branch| branch.state = State::Prepared);
                Ok(XaVote::Ready)
            }
        }
    }

    /// Commits the branch. It need not have been of this session.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare). After a lost connection, ask [`recover`](Self::recover)
    /// whether it is still prepared.
    pub fn commit(&self, xid: &Xid, how: XaCommit) -> Result<(), XaError> {
        let id = self.settled_id(xid)?;
        let flags = match how {
            XaCommit::Prepared => XaFlags::default(),
            XaCommit::OnePhase => XaFlags::ONE_PHASE,
        };
        self.request(PacketType::COMMIT_TRANSACTION, xid, |packet| {
            packet.long("JMQTransactionID", id).int("JMQXAFlags", flags.0)
        })?;
        self.shared().remove_branch(xid);
        Ok(())
    }

    /// Rolls the branch back: what was sent in it is gone, what was received comes again. It need
    /// not have been of this session.
    ///
    /// # Errors
    /// [`XaError::UnknownBranch`], [`XaError::Protocol`] if work in it has not ended,
    /// [`XaError::Request`].
    pub fn rollback(&self, xid: &Xid) -> Result<(), XaError> {
        let id = self.settled_id(xid)?;
        let shared = self.shared();
        let ours = |branch: &Branch| branch.state != State::Prepared && !shared.is_closing();
        let Some(branch) = shared.find_branch(xid).filter(ours) else {
            // What it received is no consumer's any more, so the broker redelivers it by itself.
            self.request(PacketType::ROLLBACK_TRANSACTION, xid, |packet| {
                packet.long("JMQTransactionID", id).boolean("JMQRedeliver", true)
            })?;
            shared.remove_branch(xid);
            return Ok(());
        };
        let mut outcome = Ok(());
        shared.while_handing_nothing_out(|| {
            shared.send_back(|| branch.seen, Some(id))?;
            outcome = self
                .request(PacketType::ROLLBACK_TRANSACTION, xid, |packet| {
                    packet.long("JMQTransactionID", id)
                })
                .map(drop);
            Ok(())
        })?;
        outcome?;
        shared.remove_branch(xid);
        Ok(())
    }

    /// All branches at this broker that are prepared, whoever prepared them.
    ///
    /// # Errors
    /// [`XaError::Request`].
    pub fn recover(&self) -> Result<Vec<Xid>, XaError> {
        // The whole scan at once.
        let flags = XaFlags::START_SCAN.0 | XaFlags::END_SCAN.0;
        let reply = self
            .shared()
            .core
            .request(PacketType::RECOVER_TRANSACTION, |packet| packet.int("JMQXAFlags", flags))?;
        Ok(reply.body_bytes().chunks(Xid::LEN).map(Xid::decode).collect::<Result<_, _>>()?)
    }

    fn shared(&self) -> &SessionShared {
        &self.owner.shared
    }

    /// The branch, if the session knows it and it is in one of these states.
    fn branch(&self, xid: &Xid, wanted: &[State]) -> Result<Branch, XaError> {
        let branch = self.shared().find_branch(xid);
        let branch =
            branch.ok_or_else(|| XaError::UnknownBranch { xid: Box::new(*xid), cause: None })?;
        if !wanted.contains(&branch.state) {
            return Err(protocol(
                xid,
                match branch.state {
                    State::Active => "the branch is active",
                    State::Suspended => "the branch is suspended",
                    State::Ended | State::Prepared => "work in the branch has ended",
                },
            ));
        }
        Ok(branch)
    }

    /// The broker's number of a branch in which no work goes on here; 0 if it is not known.
    fn settled_id(&self, xid: &Xid) -> Result<i64, XaError> {
        match self.branch(xid, &[State::Ended, State::Prepared]) {
            // Of another session, or of an earlier run of this program: the XID tells.
            Err(XaError::UnknownBranch { .. }) => Ok(0),
            branch => Ok(branch?.id),
        }
    }

    fn request(
        &self,
        kind: PacketType,
        xid: &Xid,
        build: impl Fn(PacketBuilder) -> PacketBuilder,
    ) -> Result<Packet, XaError> {
        let body = xid.encode().to_vec();
        let reply = self.shared().core.request(kind, |packet| build(packet).body(body.clone()));
        reply.map_err(|cause| match cause.status() {
            Some(Status::NOT_FOUND) => {
                XaError::UnknownBranch { xid: Box::new(*xid), cause: Some(cause) }
            }
            Some(Status::CONFLICT) => XaError::DuplicateBranch { xid: Box::new(*xid), cause },
            Some(Status::PRECONDITION_FAILED) => protocol(xid, &cause.to_string()),
            _ => cause.into(),
        })
    }
}

impl SessionShared {
    fn find_branch(&self, xid: &Xid) -> Option<Branch> {
        self.branches.read(|all| all.iter().find(|branch| branch.xid == *xid).cloned())
    }

    fn add_branch(&self, xid: &Xid, id: i64) {
        self.branches.update(|all| {
            let mut all = all.clone();
            // One that is joined again keeps what it has received.
            match all.iter_mut().find(|branch| branch.xid == *xid) {
                Some(known) => (known.id, known.state) = (id, State::Active),
                None => all.push(Branch { xid: *xid, id, state: State::Active, seen: Vec::new() }),
            }
            Some(all)
        });
    }

    fn change_branch(&self, xid: &Xid, change: impl Fn(&mut Branch)) {
        self.branches.update(|all| {
            let mut all = all.clone();
            all.iter_mut().filter(|branch| branch.xid == *xid).for_each(&change);
            Some(all)
        });
    }

    fn remove_branch(&self, xid: &Xid) {
        self.branches
            .update(|all| Some(all.iter().filter(|branch| branch.xid != *xid).cloned().collect()));
    }
}

fn protocol(xid: &Xid, problem: &str) -> XaError {
    XaError::Protocol { xid: Box::new(*xid), problem: problem.to_owned() }
}
