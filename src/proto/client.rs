//! The client's end of a connection: login, and the sorting of what arrives afterwards.
//!
//! Packets in, packets and events out; no socket, clock or thread. The caller sends what
//! [`ClientEnd::poll_transmit`] gives and hands every packet that arrives to
//! [`ClientEnd::handle_packet`].
//!
//! ```text
//!             HELLO_REPLY            AUTHENTICATE_REQUEST          AUTHENTICATE_REPLY
//!  [hello] ---------------> [greeted] ------------------> [answered] ----------------> [ready]
//!                                        ^                    |  |                       ^
//!                                        '--------------------'  '----> [naming] --------'
//!                                        AUTHENTICATE_REQUEST       SET_CLIENTID_REPLY
//!  any state --GOODBYE, refusal, nonsense--> the caller gets an error or event and closes
//! ```
//!
//! # Source
//! The wire protocol, login and delivery.

use std::{collections::VecDeque, io::ErrorKind, time::Duration};

use crate::{
    proto::auth::{authenticate_body, basic_response, digest_response, stored_hash},
    wire::{DecodeError, Flags, Packet, PacketBuilder, PacketType, PropertyError, Status},
};

/// The newest protocol level, spoken here.
pub const LEVEL: i32 = 500;
/// The oldest level with sessions and 64-bit ids, which everything here needs.
pub const LEVEL_LEAST: i32 = 350;
/// Reply ids below this one belong to the login.
pub const REPLY_ID_FIRST: i64 = 16;

const HELLO_ID: i64 = 1;
const AUTHENTICATE_ID: i64 = 2;
const CLIENT_ID_ID: i64 = 3;
/// Most rounds of authentication before a login is given up.
const ROUNDS_MAX: u32 = 8;

/// Why a connection does not work, or no longer does.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// This program closed the connection. Make a new one.
    #[error("the connection was closed by this program")]
    Closed,
    /// The broker said goodbye and why. Connect again later, unless an administrator ended it.
    #[error("the broker said goodbye: {text} (reason {reason})")]
    Goodbye {
        /// Number of the reason: 1 shutdown, 2 restart, 3 killed by an administrator, 4 protocol
        /// or login error, 5 closed by the client, others as in the wire protocol.
        reason: i32,
        /// The broker's words, or ours for the number.
        text: String,
        /// The broker wants this client to stay away: the connection is not restored.
        exit: bool,
    },
    /// The broker closed the connection without a goodbye. It may have been killed.
    #[error("the broker closed the connection without a goodbye")]
    EndOfStream,
    /// The socket failed.
    #[error("the connection's socket failed: {0}")]
    Socket(ErrorKind),
    /// The bytes from the other side are no packets. It is probably no broker.
    #[error("the broker sent bytes that are no packets")]
    Garbage(#[source] DecodeError),
    /// A packet is larger than this client takes.
    #[error("the broker sent a {packet} of {bytes} bytes; at most {most} are taken")]
    TooLarge {
        /// What it was.
        packet: PacketType,
        /// Its size.
        bytes: u32,
        /// The limit.
        most: u32,
    },
    /// A packet lacks something that the protocol demands.
    #[error("the broker sent a malformed {packet}")]
    Malformed {
        /// What it was.
        packet: PacketType,
        /// What is wrong with it.
        #[source]
        cause: PropertyError,
    },
    /// A packet came that has no place in the login.
    #[error("the broker sent a {packet} during the login")]
    OutOfTurn {
        /// What it was.
        packet: PacketType,
    },
    /// The broker refused a step of the login.
    #[error("the broker refused {step}: {status}{}", reason_text(.reason))]
    Refused {
        /// The step, in words.
        step: &'static str,
        /// The broker's status.
        status: Status,
        /// The broker's words, if any.
        reason: Option<String>,
    },
    /// The broker says that another one has what this client looks for.
    #[error("the broker sent this client on to {address}")]
    Redirected {
        /// The other broker's address, in its words.
        address: String,
    },
    /// The broker wants a kind of authentication that is not spoken here.
    #[error("the broker wants authentication by \"{kind}\"; this client knows digest and basic")]
    AuthenticationKind {
        /// The kind it wants.
        kind: String,
    },
    /// The broker speaks only an older level of the protocol.
    #[error("the broker speaks protocol level {level} at most, this client from {LEVEL_LEAST} on")]
    Level {
        /// The broker's newest level.
        level: i32,
    },
    /// User name or password do not fit into the login packet.
    #[error("user name or password is too long for the login")]
    Credentials,
    /// The connection was lost, and no broker of its address list could take it up again.
    #[error("the connection was lost and could not be restored in {attempts} attempts")]
    NotRestored {
        /// How many were made.
        attempts: u32,
        /// Why the last one failed.
        #[source]
        cause: Box<Self>,
    },
    /// Nothing came from the broker in time after a ping.
    #[error("the broker did not answer a ping within {millis} ms (imqPingAckTimeout)")]
    PingTimeout {
        /// The time waited.
        millis: u64,
    },
}

/// Appended to a status: the broker's words after a colon, if there are any.
fn reason_text(reason: &Option<String>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// Who logs in, and how.
#[derive(Clone)]
pub struct Identity {
    /// User name.
    pub user: String,
    /// Password.
    pub password: String,
    /// Client id to set after the login.
    pub client_id: Option<String>,
    /// Several connections may use the client id.
    pub shares_client_id: bool,
    /// Messages of a metered batch; 0 is off.
    pub flow_count: u32,
    /// Protocol level to ask for.
    pub level: i32,
    /// The client comes back if the connection is lost: the broker keeps its temporary
    /// destinations for a while, the longer the longer the client rests between attempts.
    pub comes_back: Option<Duration>,
    /// Of a client that has come back: the id of the connection that it lost.
    pub lost_connection: Option<i64>,
}

/// What the broker told about itself and this connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// Id of the connection.
    pub connection_id: i64,
    /// Level in force.
    pub level: i32,
    /// The broker's version, as it says.
    pub version: String,
    /// Messages that may be sent on the connection before it must be resumed; negative or `None`
    /// for no limit.
    pub credit: Option<i32>,
    /// What tells this run of the broker from other brokers and runs, if it says so.
    pub broker_session: Option<i64>,
    /// The broker belongs to a group whose members take over from one another.
    pub takeover: bool,
    /// Addresses of the brokers it knows, separated by commas.
    pub brokers: String,
}

/// What a packet means to the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// Nothing to do, or an answer waits to be transmitted.
    Nothing,
    /// The login is complete.
    LoggedIn,
    /// It answers the request with the reply id in its header.
    Reply,
    /// It is a message for the consumer in its header.
    Delivery {
        /// The connection is paused until it is resumed.
        connection_paused: bool,
        /// The consumer is paused until it is resumed.
        consumer_paused: bool,
    },
    /// Credit for a producer, or for the connection if there is no id.
    Resume {
        /// The producer.
        producer: Option<i64>,
        /// Its credit in messages; negative or `None` for no limit.
        credit: Option<i32>,
    },
    /// The broker ends the connection.
    Goodbye {
        /// Number of the reason.
        reason: i32,
        /// What it says.
        text: String,
        /// It wants this client to stay away.
        exit: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Hello,
    Greeted,
    Answered { rounds: u32 },
    Naming,
    Ready,
}

/// The client's end of one connection.
pub struct ClientEnd {
    state: State,
    identity: Identity,
    welcome: Option<Welcome>,
    transmit: VecDeque<PacketBuilder>,
}

impl std::fmt::Debug for ClientEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the identity: it holds a password.
        f.debug_struct("ClientEnd")
            .field("state", &self.state)
            .field("welcome", &self.welcome)
            .field("transmit", &self.transmit.len())
            .finish_non_exhaustive()
    }
}

impl ClientEnd {
    /// A client that is about to say HELLO.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        let count = i32::try_from(identity.flow_count).unwrap_or(i32::MAX);
        let hello = request(PacketType::HELLO, HELLO_ID)
            .int("JMQProtocolLevel", identity.level)
            .string("JMQVersion", env!("CARGO_PKG_VERSION"))
            .string("JMQUserAgent", concat!("tidegate/", env!("CARGO_PKG_VERSION"), " (Rust)"))
            .int("JMQRBufferSize", count)
            .boolean("JMQReconnectable", identity.comes_back.is_some())
            .boolean("JMQHAClient", true);
        let hello = match identity.comes_back.map(|rest| i64::try_from(rest.as_millis())) {
            Some(Ok(millis)) if millis > 0 => hello.long("JMQInterval", millis),
            _ => hello,
        };
        let hello = match identity.lost_connection {
            Some(id) => hello.long("JMQConnectionID", id),
            None => hello,
        };
        Self { state: State::Hello, identity, welcome: None, transmit: VecDeque::from([hello]) }
    }

    /// The next packet to send; the caller adds its id. At most two wait at any time.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<PacketBuilder> {
        self.transmit.pop_front()
    }

    /// What the broker told at login; `None` before its reply to HELLO.
    #[must_use]
    pub fn welcome(&self) -> Option<&Welcome> {
        self.welcome.as_ref()
    }

    /// Takes in one packet.
    ///
    /// # Errors
    /// [`ConnectionError`] if the connection cannot go on; it must be closed.
    pub fn handle_packet(&mut self, packet: &Packet) -> Result<ClientEvent, ConnectionError> {
        let header = packet.header();
        match header.packet_type {
            PacketType::PING => {
                if header.flags.contains(Flags::ACKNOWLEDGE) && self.transmit.len() < PONGS_MAX {
                    self.transmit.push_back(PacketBuilder::reply(header, Status::OK));
                }
                Ok(ClientEvent::Nothing)
            }
            PacketType::GOODBYE => Ok(goodbye(packet)),
            _ if self.state != State::Ready => self.handle_login(packet),
            PacketType::RESUME_FLOW => resume(packet),
            message if message.is_message() => Ok(ClientEvent::Delivery {
                connection_paused: header.flags.contains(Flags::FLOW_PAUSED),
                consumer_paused: header.flags.contains(Flags::CONSUMER_FLOW),
            }),
            reply if reply.is_reply() => Ok(ClientEvent::Reply),
            // INFO, DEBUG and what later brokers may send: nothing this client asked for.
            _ => Ok(ClientEvent::Nothing),
        }
    }

    fn handle_login(&mut self, packet: &Packet) -> Result<ClientEvent, ConnectionError> {
        let kind = packet.header().packet_type;
        match (self.state, kind) {
            (State::Hello, PacketType::HELLO_REPLY) => {
                self.welcome = Some(read_welcome(packet)?);
                self.state = State::Greeted;
            }
            (State::Greeted, PacketType::AUTHENTICATE_REQUEST) => self.answer(packet, 1)?,
            (State::Answered { rounds }, PacketType::AUTHENTICATE_REQUEST) => {
                self.answer(packet, rounds + 1)?;
            }
            (State::Answered { .. }, PacketType::AUTHENTICATE_REPLY) => {
                accept(packet, "user name and password")?;
                let Some(id) = self.identity.client_id.as_deref() else {
                    self.state = State::Ready;
                    return Ok(ClientEvent::LoggedIn);
                };
                let naming = request(PacketType::SET_CLIENTID, CLIENT_ID_ID);
                let share = self.identity.shares_client_id;
                self.transmit
                    .push_back(naming.string("JMQClientID", id).boolean("JMQShare", share));
                self.state = State::Naming;
            }
            (State::Naming, PacketType::SET_CLIENTID_REPLY) => {
                accept(packet, "the client id (imqConfiguredClientID)")?;
                self.state = State::Ready;
                return Ok(ClientEvent::LoggedIn);
            }
            // The broker may grant credit at any time; producers there are none yet.
            (_, PacketType::RESUME_FLOW) => {
                let event = resume(packet)?;
                if let (Some(welcome), ClientEvent::Resume { producer: None, credit }) =
                    (&mut self.welcome, event)
                {
                    welcome.credit = credit;
                }
            }
            _ => return Err(ConnectionError::OutOfTurn { packet: kind }),
        }
        Ok(ClientEvent::Nothing)
    }

    fn answer(&mut self, packet: &Packet, round: u32) -> Result<(), ConnectionError> {
        accept(packet, "the kind of authentication")?;
        if round > ROUNDS_MAX {
            return Err(ConnectionError::OutOfTurn { packet: packet.header().packet_type });
        }
        let malformed = malformed(packet);
        let table = packet.properties().map_err(&malformed)?;
        let kind = table.string("JMQAuthType").map_err(&malformed)?;
        let kind = kind.ok_or_else(|| malformed(PropertyError::Missing { name: "JMQAuthType" }))?;
        let Identity { user, password, .. } = &self.identity;
        let response = match &*kind {
            "digest" => {
                let nonce = String::from_utf8_lossy(packet.body_bytes());
                digest_response(&stored_hash(user, password), &nonce)
            }
            "basic" => basic_response(password),
            other => {
                return Err(ConnectionError::AuthenticationKind { kind: other.to_owned() });
            }
        };
        let body = authenticate_body(user, &response).ok_or(ConnectionError::Credentials)?;
        let answer = request(PacketType::AUTHENTICATE, AUTHENTICATE_ID);
        self.transmit.push_back(answer.string("JMQAuthType", &kind).body(body));
        self.state = State::Answered { rounds: round };
        Ok(())
    }
}

/// Answers to pings that may wait to be sent at one time; a broker that pings faster than its
/// answers are taken gets fewer of them.
const PONGS_MAX: usize = 16;

/// A request that wants a reply with this id.
#[must_use]
pub fn request(packet_type: PacketType, reply_id: i64) -> PacketBuilder {
    PacketBuilder::new(packet_type).flags(Flags::ACKNOWLEDGE).consumer_id(reply_id)
}

/// Status and words of a reply.
///
/// # Errors
/// [`ConnectionError::Malformed`] if it has no status.
pub fn read_status(packet: &Packet) -> Result<(Status, Option<String>), ConnectionError> {
    let malformed = malformed(packet);
    let table = packet.properties().map_err(&malformed)?;
    let status = table.int("JMQStatus").map_err(&malformed)?;
    let status = status.ok_or_else(|| malformed(PropertyError::Missing { name: "JMQStatus" }))?;
    // Words that are no text are no reason to give up.
    let reason = table.string("JMQReason").ok().flatten().map(std::borrow::Cow::into_owned);
    Ok((Status(status), reason))
}

fn accept(packet: &Packet, step: &'static str) -> Result<(), ConnectionError> {
    match read_status(packet)? {
        (Status::OK, _) => Ok(()),
        (status, reason) => Err(ConnectionError::Refused { step, status, reason }),
    }
}

fn malformed(packet: &Packet) -> impl Fn(PropertyError) -> ConnectionError + use<> {
    let packet = packet.header().packet_type;
    move |cause| ConnectionError::Malformed { packet, cause }
}

fn read_welcome(packet: &Packet) -> Result<Welcome, ConnectionError> {
    let malformed = malformed(packet);
    let table = packet.properties().map_err(&malformed)?;
    let level = table.int("JMQProtocolLevel").map_err(&malformed)?.unwrap_or(LEVEL);
    match read_status(packet)? {
        (Status::OK, _) if level < LEVEL_LEAST => return Err(ConnectionError::Level { level }),
        (Status::OK, _) => {}
        (Status::BAD_VERSION, _) => return Err(ConnectionError::Level { level }),
        (Status::MOVED, _) => {
            let owner = table.string("JMQStoreOwner").map_err(&malformed)?;
            let missing = || malformed(PropertyError::Missing { name: "JMQStoreOwner" });
            let address = owner.ok_or_else(missing)?.into_owned();
            return Err(ConnectionError::Redirected { address });
        }
        (status, reason) => {
            return Err(ConnectionError::Refused { step: "HELLO", status, reason });
        }
    }
    let id = table.long("JMQConnectionID").map_err(&malformed)?;
    let version = table.string("JMQVersion").ok().flatten();
    let credit = table.int("JMQSize").map_err(&malformed)?;
    let broker_session = table.long("JMQBrokerSessionID").map_err(&malformed)?;
    let takeover = table.boolean("JMQHA").ok().flatten().unwrap_or(false);
    let brokers = table.string("JMQBrokerList").ok().flatten().unwrap_or_default().into_owned();
    Ok(Welcome {
        takeover,
        brokers,
        connection_id: id
            .ok_or_else(|| malformed(PropertyError::Missing { name: "JMQConnectionID" }))?,
        level,
        version: version.unwrap_or_default().into_owned(),
        credit,
        broker_session,
    })
}

fn resume(packet: &Packet) -> Result<ClientEvent, ConnectionError> {
    let malformed = malformed(packet);
    let table = packet.properties().map_err(&malformed)?;
    let producer = table.long("JMQProducerID").map_err(&malformed)?;
    let credit = table.int("JMQSize").map_err(&malformed)?;
    Ok(ClientEvent::Resume { producer, credit })
}

fn goodbye(packet: &Packet) -> ClientEvent {
    // Whatever is in it, it ends the connection.
    let table = packet.properties().ok();
    let reason = table.and_then(|table| table.int("JMQGoodbyeReason").ok().flatten());
    let text = table.and_then(|table| table.string("JMQGoodbyeReasonString").ok().flatten());
    let reason = reason.unwrap_or(0);
    let words = || GOODBYES.iter().find(|&&(number, _)| number == reason).map(|&(_, text)| text);
    let text = text.map(std::borrow::Cow::into_owned).filter(|text| !text.trim().is_empty());
    let text = text.unwrap_or_else(|| words().unwrap_or("no reason given").to_owned());
    let exit = table.and_then(|table| table.boolean("JMQExit").ok().flatten()).unwrap_or(false);
    ClientEvent::Goodbye { reason, text, exit }
}

const GOODBYES: [(i32, &str); 10] = [
    (1, "broker shutdown"),
    (2, "broker restart"),
    (3, "killed by an administrator"),
    (4, "fatal protocol or login error"),
    (5, "closed by the client"),
    (6, "other"),
    (7, "broker being taken over"),
    (8, "restart of a remote broker"),
    (9, "message home changed"),
    (10, "partition migration"),
];
