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
//! What a branch received is noted in each session that worked in it until the branch is settled: a
//! rollback sends it back, as for local transactions, unless the branch is prepared. The broker
//! redelivers the rest, which may be of other connections, by itself.

use std::time::Duration;

use super::{
    acks::Block,
    connection::Connection,
    core::Core,
    error::{SessionError, XaError},
    session::{AcknowledgeMode, Session, SessionOwner},
    session_state::{SessionShared, read_id},
};
use crate::{
    proto::transaction::{XaFlags, Xid},
    sync::{Arc, Ordering},
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
/// is active in a session; others may be ended, or suspended. Several sessions may work in one branch,
/// also of several connections to one broker ([`is_same_rm`](Self::is_same_rm)); any of their
/// resources settles it.
///
/// ```
/// # use tidegate::client::{AcknowledgeMode, ConnectionFactory, XaCommit, XaEnd, XaStart, XaVote, Xid};
/// # use tidegate::message::{Destination, Message};
/// # let broker = tidegate::broker::Broker::builder().listen("127.0.0.1:0".parse()?).start()?;
/// # let mut factory = ConnectionFactory::new();
/// # factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
/// # let connection = factory.create_connection()?;
/// let xa = connection.create_xa_session()?;
/// let producer = xa.session().create_producer(&Destination::queue("orders")?)?;
/// let resource = xa.resource();
/// let branch = Xid::new(4660, b"order 17", b"queue")?;
///
/// resource.start(&branch, XaStart::New)?;
/// producer.send(Message::text("three apples"))?;
/// resource.end(&branch, XaEnd::Success)?;
/// assert_eq!(resource.prepare(&branch)?, XaVote::Ready);
/// assert_eq!(resource.recover()?, [branch]); // After a crash, this finds it.
/// resource.commit(&branch, XaCommit::Prepared)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Source
/// The XA interface, as Java's `XAResource` has it.
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
    /// The branch was suspended, in this session or another.
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
    /// The work goes on later, in this session or another.
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

/// Which part of a scan for prepared branches is wanted. The broker tells all at once, so this is for
/// transaction managers that ask in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum XaScan {
    /// All, from beginning to end.
    Whole,
    /// The beginning, which has all.
    Start,
    /// What follows: nothing.
    Next,
    /// The end: nothing.
    End,
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

impl State {
    const fn describe(self) -> &'static str {
        match self {
            Self::Active => "the branch is active",
            Self::Suspended => "the branch is suspended",
            Self::Ended => "work in the branch has ended, and it is not settled",
            Self::Prepared => "the branch is prepared, and not settled",
        }
    }
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
                if let Some(id) = self.take_suspended(xid)? {
                    shared.add_branch(xid, id);
                    shared.set_transaction(Some(id));
                    return Ok(());
                }
                // Not on this connection: the broker knows whether there is such a branch.
                XaFlags::RESUME
            }
        };
        // Relaxed: a number by itself.
        let lifetime = shared.branch_lifetime.load(Ordering::Relaxed).cast_signed();
        let reply = self.request(PacketType::START_TRANSACTION, xid, |packet| {
            let packet = packet.int("JMQXAFlags", flags.0);
            match lifetime {
                0 => packet,
                lifetime => packet.long("JMQLifetime", lifetime),
            }
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
        if shared.admit_lost_work() {
            // The broker rolled back what was not prepared when the connection was lost.
            return Err(XaError::UnknownBranch { xid: Box::new(*xid), cause: None });
        }
        let before: &[State] = match how {
            XaEnd::Suspend => &[State::Active],
            XaEnd::Success | XaEnd::Fail => &[State::Active, State::Suspended],
        };
        let branch = self.branch(xid, before)?;
        shared.await_completions();
        let acknowledged = shared.await_answers();
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
        Ok(acknowledged?)
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
                self.remove_branch(xid);
                Ok(XaVote::ReadOnly)
            }
            prepared => {
                drop(prepared?);
                for session in self.sessions().iter() {
                    session.change_branch(xid, |branch| branch.state = State::Prepared);
                }
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
        self.remove_branch(xid);
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
        let epoch = self.shared().core.await_link(PacketType::ROLLBACK_TRANSACTION)?;
        for session in self.sessions().iter() {
            let ours = |branch: &Branch| branch.state != State::Prepared && !session.is_closing();
            if let Some(branch) = session.find_branch(xid).filter(ours) {
                session.while_handing_nothing_out(|| {
                    session.send_back(epoch, || branch.seen, Some(id))
                })?;
            }
        }
        // What else it received is no consumer's any more, or one's of another connection.
        self.remove_branch(xid);
        self.request(PacketType::ROLLBACK_TRANSACTION, xid, |packet| {
            packet.long("JMQTransactionID", id).boolean("JMQRedeliver", true)
        })?;
        Ok(())
    }

    /// Makes sure that nobody holds the branch any more. There are no heuristic outcomes here, so
    /// there is nothing that would have to be forgotten.
    ///
    /// # Errors
    /// [`XaError::Protocol`] if the branch is open in a session of this connection or prepared:
    /// commit it or roll it back. [`XaError::Request`].
    pub fn forget(&self, xid: &Xid) -> Result<(), XaError> {
        let known = self.sessions().iter().find_map(|session| session.find_branch(xid));
        if let Some(branch) = known {
            return Err(protocol(xid, branch.state.describe()));
        }
        let verified = self.request(PacketType::VERIFY_TRANSACTION, xid, |packet| {
            packet.long("JMQTransactionID", 0)
        });
        match verified {
            Ok(_) => Err(protocol(xid, State::Prepared.describe())),
            Err(XaError::UnknownBranch { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether `other` is of the same broker, so that one's branches can be joined, resumed and
    /// settled by the other.
    #[must_use]
    pub fn is_same_rm(&self, other: &Self) -> bool {
        let (own, its) = (&self.shared().core, &other.shared().core);
        let of = |core: &Core| core.welcome(|welcome| welcome.broker_session);
        let named = of(own);
        Arc::ptr_eq(own, its) || (named.is_some() && named == of(its))
    }

    /// Sets how long a branch that this session begins from now on may be open before it is
    /// prepared, in whole milliseconds; the broker rolls it back then. Default `None`, for ever.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        let most = i64::MAX.unsigned_abs();
        let millis = timeout
            .map_or(0, |timeout| u64::try_from(timeout.as_millis()).unwrap_or(most).clamp(1, most));
        // Relaxed: a number by itself.
        self.shared().branch_lifetime.store(millis, Ordering::Relaxed);
    }

    /// All branches at this broker that are prepared, whoever prepared them.
    ///
    /// # Errors
    /// [`XaError::Request`].
    pub fn recover(&self) -> Result<Vec<Xid>, XaError> {
        self.recover_part(XaScan::Whole)
    }

    /// As [`recover`](Self::recover), for those who scan in parts.
    ///
    /// # Errors
    /// [`XaError::Request`].
    pub fn recover_part(&self, part: XaScan) -> Result<Vec<Xid>, XaError> {
        let flags = match part {
            XaScan::Whole => XaFlags::START_SCAN.0 | XaFlags::END_SCAN.0,
            XaScan::Start => XaFlags::START_SCAN.0,
            XaScan::Next => 0,
            XaScan::End => XaFlags::END_SCAN.0,
        };
        let reply = self
            .shared()
            .core
            .request(PacketType::RECOVER_TRANSACTION, |packet| packet.int("JMQXAFlags", flags))?;
        Ok(reply.body_bytes().chunks(Xid::LEN).map(Xid::decode).collect::<Result<_, _>>()?)
    }

    fn shared(&self) -> &SessionShared {
        &self.owner.shared
    }

    /// All sessions of this connection: any of them may have worked in a branch.
    fn sessions(&self) -> Arc<Vec<Arc<SessionShared>>> {
        self.shared().core.sessions.load_full()
    }

    fn remove_branch(&self, xid: &Xid) {
        self.sessions().iter().for_each(|session| session.remove_branch(xid));
        // A session that is closed is not among them.
        self.shared().remove_branch(xid);
    }

    /// The branch, if the session knows it and it is in one of these states.
    fn branch(&self, xid: &Xid, wanted: &[State]) -> Result<Branch, XaError> {
        let branch = self.shared().find_branch(xid);
        let branch =
            branch.ok_or_else(|| XaError::UnknownBranch { xid: Box::new(*xid), cause: None })?;
        if !wanted.contains(&branch.state) {
            return Err(protocol(xid, branch.state.describe()));
        }
        Ok(branch)
    }

    /// The broker's number of a branch that is suspended in a session of this connection, which
    /// need not be this one; it is suspended there no longer. `None` if none of them knows it.
    fn take_suspended(&self, xid: &Xid) -> Result<Option<i64>, XaError> {
        let sessions = self.sessions();
        let mut known = None;
        for session in sessions.iter() {
            match session.find_branch(xid) {
                Some(branch) if branch.state == State::Suspended => {
                    session.change_branch(xid, |branch| branch.state = State::Ended);
                    return Ok(Some(branch.id));
                }
                Some(branch) => known = Some(branch.state),
                None => {}
            }
        }
        known.map_or(Ok(None), |state| Err(protocol(xid, state.describe())))
    }

    /// The broker's number of a branch in which no work goes on on this connection; 0 if it is not
    /// known, as it is of another one or of an earlier run of this program: the XID tells.
    fn settled_id(&self, xid: &Xid) -> Result<i64, XaError> {
        let mut id = 0;
        for session in self.sessions().iter() {
            let Some(branch) = session.find_branch(xid) else { continue };
            if !matches!(branch.state, State::Ended | State::Prepared) {
                return Err(protocol(xid, branch.state.describe()));
            }
            id = branch.id;
        }
        Ok(id)
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
    /// Forgets the branches that went with a link, as all do that are not prepared; whether work
    /// was going on in one.
    pub(super) fn lose_branches(&self) -> bool {
        let lost = |branch: &Branch| branch.state != State::Prepared;
        let (before, _) = self.branches.update(|all| {
            let kept = || all.iter().filter(|branch| !lost(branch)).cloned().collect();
            all.iter().any(lost).then(kept)
        });
        before.iter().any(|branch| branch.state == State::Active)
    }

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
