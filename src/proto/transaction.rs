//! Requests about transactions: what a packet asks for, checked.
//!
//! A transaction is named by the id the broker gave it, by the [`Xid`] a transaction manager gave
//! it, or by both. One without an XID is *local*: it belongs to a session of its connection.
//!
//! # Source
//! The wire protocol: transactions. Meaning of flags and XIDs: X/Open XA.

use std::fmt;

use crate::wire::{Packet, PacketType, PropertyError, PropertyTable, Status};

/// The name a transaction manager gave a branch of a transaction.
///
/// Shape: a format number that is not −1, and two names of at most [`Xid::PART_BYTES_MAX`] bytes
/// each. Two are equal if these three are; what a packet has behind the names does not count.
///
/// On the wire, 136 bytes, big-endian:
///
/// | offset | size | field |
/// | ---: | ---: | --- |
/// | 0 | 4 | format, −1 = no XID |
/// | 4 | 2 | length of the global name |
/// | 6 | 2 | length of the branch name |
/// | 8 | 64 | global name, then zeros |
/// | 72 | 64 | branch name, then zeros |
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Xid {
    format: i32,
    /// Zero behind the name, so that equality is that of meaning.
    global: [u8; Self::PART_BYTES_MAX],
    global_len: u8,
    branch: [u8; Self::PART_BYTES_MAX],
    branch_len: u8,
}

impl Xid {
    /// Bytes on the wire.
    pub const LEN: usize = 136;
    /// Longest global or branch name, in bytes.
    pub const PART_BYTES_MAX: usize = 64;
    /// The format that says that there is no XID.
    const FORMAT_NONE: i32 = -1;

    /// An XID of its three parts.
    ///
    /// # Errors
    /// [`XidError`] if the format is −1 or a name is too long.
    pub fn new(format: i32, global: &[u8], branch: &[u8]) -> Result<Self, XidError> {
        if format == Self::FORMAT_NONE {
            return Err(XidError::None);
        }
        let (global, global_len) = part("global", global)?;
        let (branch, branch_len) = part("branch", branch)?;
        Ok(Self { format, global, global_len, branch, branch_len })
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`XidError`] if it is not 136 bytes long, says that it is none, or has a length outside of
    /// its field.
    pub fn decode(bytes: &[u8]) -> Result<Self, XidError> {
        let wrong = || XidError::Length { found: bytes.len() };
        let bytes: &[u8; Self::LEN] = bytes.try_into().map_err(|_| wrong())?;
        let (&format, rest) = bytes.split_first_chunk::<4>().ok_or_else(wrong)?;
        let (&global_len, rest) = rest.split_first_chunk::<2>().ok_or_else(wrong)?;
        let (&branch_len, rest) = rest.split_first_chunk::<2>().ok_or_else(wrong)?;
        let (global, branch) = rest.split_at(Self::PART_BYTES_MAX);
        let format = i32::from_be_bytes(format);
        if format == Self::FORMAT_NONE {
            return Err(XidError::None);
        }
        let global = name("global", global, global_len)?;
        let branch = name("branch", branch, branch_len)?;
        Self::new(format, global, branch)
    }

    /// Writes it.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let parts: [&[u8]; 5] = [
            &self.format.to_be_bytes(),
            &u16::from(self.global_len).to_be_bytes(),
            &u16::from(self.branch_len).to_be_bytes(),
            &self.global,
            &self.branch,
        ];
        for (byte, value) in out.iter_mut().zip(parts.into_iter().flatten()) {
            *byte = *value;
        }
        out
    }

    /// The format.
    #[must_use]
    pub const fn format(&self) -> i32 {
        self.format
    }

    /// The global name.
    #[must_use]
    pub fn global(&self) -> &[u8] {
        self.global.get(..usize::from(self.global_len)).unwrap_or_default()
    }

    /// The branch name.
    #[must_use]
    pub fn branch(&self) -> &[u8] {
        self.branch.get(..usize::from(self.branch_len)).unwrap_or_default()
    }
}

/// The name at the front of its field.
fn name<'a>(what: &'static str, field: &'a [u8], len: [u8; 2]) -> Result<&'a [u8], XidError> {
    let len = i16::from_be_bytes(len);
    let name = usize::try_from(len).ok().and_then(|len| field.get(..len));
    name.ok_or_else(|| XidError::Part { what, len: i64::from(len) })
}

/// A name in a field of its own, and its length.
fn part(what: &'static str, name: &[u8]) -> Result<([u8; Xid::PART_BYTES_MAX], u8), XidError> {
    let wrong = || XidError::Part { what, len: i64::try_from(name.len()).unwrap_or(i64::MAX) };
    let mut field = [0; Xid::PART_BYTES_MAX];
    field.get_mut(..name.len()).ok_or_else(wrong)?.copy_from_slice(name);
    Ok((field, u8::try_from(name.len()).map_err(|_| wrong())?))
}

impl fmt::Display for Xid {
    /// Format, global and branch name, in hexadecimal: `1234:0a0b:01`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.format)?;
        for name in [self.global(), self.branch()] {
            f.write_str(":")?;
            name.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xid({self})")
    }
}

/// Why bytes are no XID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum XidError {
    /// Too few or too many bytes.
    #[error("malformed XID: {found} bytes where an XID has {len}", len = Xid::LEN)]
    Length {
        /// How many there were.
        found: usize,
    },
    /// The format −1 says that there is none.
    #[error("malformed XID: its format is -1, which says that there is none")]
    None,
    /// A name does not fit into its field.
    #[error("malformed XID: a {what} name of {len} bytes; it has 0 to {max}", max = Xid::PART_BYTES_MAX)]
    Part {
        /// "global" or "branch".
        what: &'static str,
        /// The length found.
        len: i64,
    },
}

/// The flags of a request about a branch, as the transaction manager gave them.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct XaFlags(pub i32);

impl XaFlags {
    /// Work joins a branch that exists.
    pub const JOIN: Self = Self(0x0020_0000);
    /// A scan for prepared branches ends.
    pub const END_SCAN: Self = Self(0x0080_0000);
    /// A scan for prepared branches begins.
    pub const START_SCAN: Self = Self(0x0100_0000);
    /// Work pauses.
    pub const SUSPEND: Self = Self(0x0200_0000);
    /// Work ended well.
    pub const SUCCESS: Self = Self(0x0400_0000);
    /// Paused work goes on.
    pub const RESUME: Self = Self(0x0800_0000);
    /// Work failed: the branch can only be rolled back.
    pub const FAIL: Self = Self(0x2000_0000);
    /// Commit without preparing first.
    pub const ONE_PHASE: Self = Self(0x4000_0000);

    /// Whether all of these are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// What is set besides these.
    const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

impl fmt::Debug for XaFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XaFlags({:#x})", self.0)
    }
}

/// Which transaction a request is about: an id, an XID, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    id: Option<i64>,
    xid: Option<Xid>,
}

impl Target {
    /// By the broker's id.
    #[must_use]
    pub const fn id(id: i64) -> Self {
        Self { id: Some(id), xid: None }
    }

    /// By the transaction manager's name, and the id if it is known.
    #[must_use]
    pub const fn xid(xid: Xid, id: Option<i64>) -> Self {
        Self { id, xid: Some(xid) }
    }

    /// The id, if one was given.
    #[must_use]
    pub const fn said_id(&self) -> Option<i64> {
        self.id
    }

    /// The XID, if one was given.
    #[must_use]
    pub const fn said_xid(&self) -> Option<&Xid> {
        self.xid.as_ref()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.id, &self.xid) {
            (Some(id), Some(xid)) => write!(f, "{id}({xid})"),
            (Some(id), None) => write!(f, "{id}"),
            (None, Some(xid)) => write!(f, "{xid}"),
            (None, None) => f.write_str("without a name"),
        }
    }
}

/// How work begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Association {
    /// With a new transaction.
    New,
    /// It joins one that exists.
    Join,
    /// It goes on with one that was suspended.
    Resume,
}

/// When the broker rolls a transaction back by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(i32)]
pub enum AutoRollback {
    /// When its connection ends, prepared or not.
    All = 1,
    /// When its connection ends before it is prepared.
    #[default]
    NotPrepared = 2,
    /// Never.
    Never = 3,
}

/// How work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Success,
    /// It failed.
    Fail,
    /// Only for now.
    Suspend,
}

/// Work begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The session of a local transaction.
    pub session: Option<i64>,
    /// The name of a branch; a local transaction has none.
    pub xid: Option<Xid>,
    /// How it begins.
    pub association: Association,
    /// When the broker rolls it back by itself.
    pub auto_rollback: AutoRollback,
    /// Milliseconds it may take before it is prepared; more than 0.
    pub lifetime_ms: Option<u64>,
    /// It does not end with its session.
    pub session_less: bool,
}

/// How a transaction is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollback {
    /// Which one.
    pub target: Target,
    /// The broker puts the messages back by itself; otherwise the client redelivers them.
    pub redeliver: bool,
    /// Whether the application has seen them: if so, the delivery counts.
    pub seen: bool,
    /// After so many rollbacks a message is given up, if it may go to the dead message queue; more
    /// than 0.
    pub max_rollbacks: Option<u32>,
    /// A message may be given up, and goes to the dead message queue then. Otherwise none is: a
    /// rollback loses nothing.
    pub dead_on_max: bool,
}

/// What a client asks for about a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionRequest {
    /// Work begins.
    Start(Start),
    /// Work ends.
    End {
        /// Which one.
        target: Target,
        /// How.
        ending: Ending,
        /// Only ask whether it is there; change nothing.
        no_op: bool,
    },
    /// Promise to be able to commit.
    Prepare {
        /// Which one.
        target: Target,
        /// The first half of a one-phase commit.
        one_phase: bool,
    },
    /// Carry out.
    Commit {
        /// Which one.
        target: Target,
        /// Without preparing first.
        one_phase: bool,
        /// Begin the next local transaction of the session with the same request.
        start_next: bool,
    },
    /// Undo.
    Rollback(Rollback),
    /// Name all that are prepared.
    Recover(XaFlags),
    /// Say whether it is prepared.
    Verify(Target),
}

/// Reads what a packet asks for.
///
/// # Errors
/// The status and reason of the refusal: 400 for a malformed XID, for flags that exclude each other
/// and for a number that is none of those allowed; 500 for a missing id, for a property of another
/// type, and for a packet that is no such request.
pub fn read(
    packet: &Packet,
    table: &PropertyTable<'_>,
) -> Result<TransactionRequest, (Status, String)> {
    let body = packet.body_bytes();
    let request = match packet.header().packet_type {
        PacketType::START_TRANSACTION => TransactionRequest::Start(start(table, body)?),
        PacketType::END_TRANSACTION => TransactionRequest::End {
            target: target(table, body)?,
            ending: ending(flags(table)?.unwrap_or(XaFlags::SUCCESS))?,
            no_op: is(table, "JMQNoOp")?,
        },
        PacketType::PREPARE_TRANSACTION => TransactionRequest::Prepare {
            target: target(table, body)?,
            one_phase: is(table, "JMQXAOnePhase")?,
        },
        PacketType::COMMIT_TRANSACTION => TransactionRequest::Commit {
            target: target(table, body)?,
            one_phase: is(table, "JMQXAOnePhase")?
                || flags(table)?.is_some_and(|flags| flags.contains(XaFlags::ONE_PHASE)),
            start_next: is(table, "JMQStartNextTransaction")?,
        },
        PacketType::ROLLBACK_TRANSACTION => TransactionRequest::Rollback(Rollback {
            target: target(table, body)?,
            redeliver: is(table, "JMQRedeliver")?,
            // What a transaction has acknowledged, the application has seen, unless the client
            // knows better.
            seen: is(table, "JMQUpdateConsumed")?
                || table.boolean("JMQSetRedelivered").map_err(wrong)?.unwrap_or(true),
            max_rollbacks: table
                .int("JMQMaxRollbacks")
                .map_err(wrong)?
                .and_then(|count| u32::try_from(count).ok())
                .filter(|&count| count > 0),
            dead_on_max: is(table, "JMQDMQOnMaxRollbacks")?,
        }),
        PacketType::RECOVER_TRANSACTION => {
            TransactionRequest::Recover(flags(table)?.unwrap_or_default())
        }
        PacketType::VERIFY_TRANSACTION => TransactionRequest::Verify(target(table, body)?),
        kind => return Err((Status::ERROR, format!("{kind} is no request about a transaction"))),
    };
    Ok(request)
}

fn start(table: &PropertyTable<'_>, body: &[u8]) -> Result<Start, (Status, String)> {
    let flags = flags(table)?;
    // Flags say that a transaction manager speaks, and that one names its branches.
    let xid = match (flags, body) {
        (None, []) => None,
        (_, body) => Some(Xid::decode(body).map_err(malformed)?),
    };
    let association = match flags.unwrap_or_default() {
        XaFlags(0) => Association::New,
        XaFlags::JOIN => Association::Join,
        XaFlags::RESUME => Association::Resume,
        other => {
            let reason = format!("JMQXAFlags {:#x} cannot start a transaction", other.0);
            return Err((Status::BAD_REQUEST, reason));
        }
    };
    let auto_rollback = match table.int("JMQAutoRollback").map_err(wrong)? {
        None => AutoRollback::default(),
        Some(1) => AutoRollback::All,
        Some(2) => AutoRollback::NotPrepared,
        Some(3) => AutoRollback::Never,
        Some(other) => {
            let reason = format!("JMQAutoRollback {other} is none of 1, 2 and 3");
            return Err((Status::BAD_REQUEST, reason));
        }
    };
    let lifetime = table.long("JMQLifetime").map_err(wrong)?;
    Ok(Start {
        session: table.long("JMQSessionID").map_err(wrong)?,
        xid,
        association,
        auto_rollback,
        lifetime_ms: lifetime.and_then(|ms| u64::try_from(ms).ok()).filter(|&ms| ms > 0),
        session_less: is(table, "JMQSessionLess")?,
    })
}

fn ending(flags: XaFlags) -> Result<Ending, (Status, String)> {
    // One-phase says how the commit will be; for the end of the work it is a success.
    let how = flags.without(XaFlags::ONE_PHASE);
    match how {
        XaFlags::SUCCESS => Ok(Ending::Success),
        XaFlags(0) if flags != how => Ok(Ending::Success),
        XaFlags::FAIL => Ok(Ending::Fail),
        XaFlags::SUSPEND => Ok(Ending::Suspend),
        _ => Err((
            Status::BAD_REQUEST,
            format!("JMQXAFlags {:#x} say not how the transaction ends", flags.0),
        )),
    }
}

fn target(table: &PropertyTable<'_>, body: &[u8]) -> Result<Target, (Status, String)> {
    // Clients say 0 where only the XID counts, and whatever is not positive was never given.
    let id = table.long("JMQTransactionID").map_err(wrong)?.filter(|&id| id != 0);
    match (id, body) {
        (Some(id), []) => Ok(Target::id(id)),
        (None, []) => Err((Status::ERROR, "missing TransactionID".into())),
        (id, body) => {
            let xid = Xid::decode(body).map_err(malformed)?;
            Ok(Target::xid(xid, id.filter(|&id| id > 0)))
        }
    }
}

fn flags(table: &PropertyTable<'_>) -> Result<Option<XaFlags>, (Status, String)> {
    Ok(table.int("JMQXAFlags").map_err(wrong)?.map(XaFlags))
}

fn is(table: &PropertyTable<'_>, name: &'static str) -> Result<bool, (Status, String)> {
    Ok(table.boolean(name).map_err(wrong)?.unwrap_or(false))
}

fn wrong(error: PropertyError) -> (Status, String) {
    (Status::ERROR, error.to_string())
}

fn malformed(error: XidError) -> (Status, String) {
    (Status::BAD_REQUEST, error.to_string())
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
