//! The broker's end of a connection, incoming half: login, and packets into requests.
//!
//! ```text
//!            HELLO, level ok                AUTHENTICATE, proof ok
//!  [Hello] ------------------> [Proof] ---------------------------> [Open]
//!     |                           |                                    |
//!     | HELLO, level too high     | AUTHENTICATE, proof wrong          | HELLO again, GOODBYE
//!     v                           v                                    v
//!  [Closed] <---------------------+------------------------------------'
//! ```
//!
//! PING and GOODBYE are served in every state; anything else before `Open` is answered with status
//! 500 and changes nothing. What the broker must carry out comes out as a [`Request`]; what can be
//! answered from the packet alone (malformed, unknown, not served here) is answered here.
//!
//! # Source
//! The wire protocol: connection life cycle, packet types, errors.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    auth,
    transaction::{self, TransactionRequest},
};
use crate::wire::{
    DecodeError, Flags, Header, MessageId, Packet, PacketBuilder, PacketType, PropertyError,
    PropertyTable, Status, Value,
};

/// Highest protocol level spoken.
pub const PROTOCOL_LEVEL: i32 = 500;

/// The product version a broker of this level has. Clients may compare it with their own needs, so
/// it names the reference's, not ours.
const PRODUCT_VERSION: &str = "6.10.0";

/// Level of a client that says none.
const LEVEL_UNSAID: i32 = 100;

/// Length of an acknowledgement block: consumer id and message id.
pub const BLOCK_LEN: usize = 8 + MessageId::LEN;

/// Why a broker says goodbye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Goodbye {
    /// The broker shuts down.
    Shutdown = 1,
    /// An administrator ended the connection.
    Killed = 3,
    /// A violation of the protocol, or a failed login.
    Fatal = 4,
    /// Something else.
    Other = 6,
}

/// What a connection is told about its broker.
#[derive(Debug, Clone)]
pub struct Greeting {
    /// Id of this connection.
    pub connection_id: i64,
    /// Id of this run of the broker.
    pub broker_session: i64,
    /// Name of the service, `jms` or `admin`.
    pub service: String,
    /// Addresses of the broker, as a client would write them.
    pub address_list: String,
    /// Authentication the broker asks for unless the client asks for another.
    pub authentication: Authentication,
    /// Messages a connection may send before it asks for more.
    pub producer_credit: i32,
    /// The same in bytes.
    pub producer_credit_bytes: i64,
    /// Largest message, in bytes.
    pub message_bytes_max: i64,
    /// 16 random bytes for the challenge.
    pub nonce: [u8; 16],
}

/// How a user proves who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Authentication {
    /// A hash over a nonce.
    #[default]
    Digest,
    /// The password itself.
    Basic,
}

impl Authentication {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Digest => "digest",
            Self::Basic => "basic",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Digest, Self::Basic].into_iter().find(|kind| kind.name() == name)
    }
}

/// Knows the users.
pub trait Accounts {
    /// The stored hash of a user who may log in to this service.
    fn stored_hash(&self, user: &str) -> Option<String>;
}

/// How a session acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckMode {
    /// Transacted, or decided elsewhere.
    Unset,
    /// Each message by itself.
    Auto,
    /// When the application says so.
    Client,
    /// In batches.
    DupsOk,
    /// Never: a message is forgotten as soon as it is sent.
    None,
}

impl AckMode {
    const fn from_wire(mode: i32) -> Option<Self> {
        Some(match mode {
            0 => Self::Unset,
            1 => Self::Auto,
            2 => Self::Client,
            3 => Self::DupsOk,
            32768 => Self::None,
            _ => return None,
        })
    }
}

/// Bits of `JMQDestType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestinationMask(pub i32);

impl DestinationMask {
    /// A queue.
    pub const QUEUE: i32 = 0x01;
    /// A topic.
    pub const TOPIC: i32 = 0x02;
    /// Lives as long as its connection.
    pub const TEMPORARY: i32 = 0x10;
    /// Made on first use.
    pub const AUTO_CREATED: i32 = 0x20;
    /// For dead messages.
    pub const DEAD: i32 = 0x1000;

    /// Whether it is a queue; one of the two is always set.
    pub const fn is_queue(self) -> bool {
        self.0 & Self::QUEUE != 0
    }

    /// Whether it is temporary.
    pub const fn is_temporary(self) -> bool {
        self.0 & Self::TEMPORARY != 0
    }
}

/// Where and how a reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTo {
    /// The request's type, which decides the reply's.
    pub request: PacketType,
    /// Correlates request and reply.
    pub id: i64,
    /// Whether the client wants one.
    pub wanted: bool,
}

impl ReplyTo {
    /// Where the reply to the packet with this header goes.
    pub fn of(header: &Header) -> Self {
        // The number after NULL is that of a message, so nothing can be its reply.
        let can_be = header.packet_type != PacketType::NULL;
        Self {
            request: header.packet_type,
            id: header.consumer_id,
            wanted: can_be && header.flags.contains(Flags::ACKNOWLEDGE),
        }
    }

    /// A reply with this status.
    #[must_use]
    pub fn with(&self, status: Status) -> PacketBuilder {
        PacketBuilder::new(self.request.reply()).consumer_id(self.id).int("JMQStatus", status.0)
    }

    /// A reply that says why not.
    #[must_use]
    pub fn refuse(&self, status: Status, reason: &str) -> PacketBuilder {
        let reply = self.with(status).string("JMQReason", reason);
        // The C client reads the id before the status, and gives up if there is none.
        let id_first = self.request == PacketType::START_TRANSACTION;
        if id_first { reply.long("JMQTransactionID", 0) } else { reply }
    }
}

/// The wish for a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddConsumer {
    /// Destination's name.
    pub destination: String,
    /// Its kind.
    pub kind: DestinationMask,
    /// The session; absent means one as old as the connection.
    pub session: Option<i64>,
    /// Wanted prefetch, −1 unlimited.
    pub size: i32,
    /// A selector that is not blank.
    pub selector: Option<String>,
    /// Not what this connection sends itself.
    pub no_local: bool,
    /// Which subscription it comes to.
    pub subscription: SubscriptionWish,
    /// How it acknowledges, if its session does not say.
    pub ack_mode: AckMode,
    /// The client id, where its connection has none.
    pub client_id: Option<String>,
}

/// Which subscription a consumer wishes for. A name that is there and blank is an error of the
/// client, which the broker answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionWish {
    /// One of its own.
    Plain,
    /// A durable one.
    Durable {
        /// Its name.
        name: String,
        /// Shared by connections with the same client id.
        share: bool,
        /// Shared by whoever names it.
        jms_share: bool,
    },
    /// One that is shared by whoever names it, and lives with its consumers.
    Shared(String),
    /// One that is shared by connections with the same client id, and lives with its consumers.
    SharedByClientId,
}

/// The wish for a client id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdWish {
    /// The id.
    pub id: String,
    /// Whether other connections may have it too; absent means if there is a name space.
    pub share: Option<bool>,
    /// An application server's name space.
    pub namespace: Option<String>,
}

/// What an acknowledgement says of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckKind {
    /// Consumed.
    Consumed,
    /// Put it back for another consumer.
    Undeliverable,
    /// Only record that it was delivered so often.
    CountOnly(i32),
    /// Only say whether it could be acknowledged.
    Validate,
}

/// What a client says of a message it gives up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obituary {
    /// Its time was up; otherwise nobody could be given it.
    pub expired: bool,
    /// Why, for people.
    pub comment: Option<String>,
    /// A serialized exception.
    pub exception: Option<Vec<u8>>,
    /// How often the client has seen it.
    pub deliveries: Option<i32>,
}

/// Something the broker must carry out.
#[derive(Debug, Clone)]
pub enum Request {
    /// A message to store and route.
    Message(Packet),
    /// Make a session.
    CreateSession(AckMode),
    /// End a session.
    DestroySession(i64),
    /// Make sure a destination exists.
    CreateDestination(String, DestinationMask),
    /// Remove a destination.
    DestroyDestination(String, DestinationMask),
    /// Say whether a destination exists, and whether it could be browsed with this selector.
    VerifyDestination(String, DestinationMask, Option<String>),
    /// Say which messages a queue holds that a selector takes.
    Browse(String, DestinationMask, Option<String>),
    /// Show a browser, whose id this is, messages; whole ids.
    Deliver(i64, Bytes),
    /// Something about a transaction.
    Transaction(Box<TransactionRequest>),
    /// Register a producer.
    AddProducer {
        /// Destination's name.
        destination: String,
        /// Its kind.
        kind: DestinationMask,
        /// Session it belongs to.
        session: Option<i64>,
    },
    /// Remove a producer.
    DeleteProducer(i64),
    /// Register a consumer.
    AddConsumer(Box<AddConsumer>),
    /// Remove a consumer.
    DeleteConsumer {
        /// The consumer.
        consumer: i64,
        /// The last message handed to the application.
        last: Option<MessageId>,
        /// The application has seen nothing.
        nothing_seen: bool,
        /// The last message was acknowledged in the open transaction.
        in_transaction: bool,
    },
    /// End a durable subscription; the client id, where the connection has none.
    Unsubscribe(String, Option<String>),
    /// Deliver, to one session or all.
    Start(Option<i64>),
    /// Stop delivering, to one session or all.
    Stop(Option<i64>),
    /// Settle deliveries; whole blocks, and the transaction, or 0.
    Acknowledge(Bytes, AckKind, i64),
    /// Give one delivery up; its block.
    DeclareDead(Bytes, Obituary),
    /// Take deliveries back; whole blocks, whether the application saw them, and the transaction
    /// that is about to be rolled back, or 0.
    Redeliver(Bytes, bool, i64),
    /// The client has room for another batch; a new size of batches, if given.
    ResumeConnection(Option<i32>),
    /// The consumer has room for so many.
    ResumeConsumer(i64, Option<i32>),
    /// The client asks for connection credit.
    FlowPaused,
    /// Take or clear a client id.
    SetClientId(Option<ClientIdWish>),
    /// Make unique numbers.
    GenerateIds(i32),
    /// The client leaves.
    Goodbye,
    /// Answers that the peer is alive.
    Pong,
}

/// What comes out of a packet.
#[derive(Debug)]
pub enum Step {
    /// Send this.
    Send(PacketBuilder),
    /// Carry this out, and reply there.
    Carry(ReplyTo, Request),
    /// The user has proved who they are. What follows, the reply among it, may be held back until
    /// an older connection of the same client is gone.
    LoggedIn(String),
    /// Say goodbye, if a reason is given, and close.
    Close(Option<(Goodbye, String)>),
}

/// How far the login is.
#[derive(Debug)]
enum Phase {
    Hello,
    Proof(Authentication),
    Open,
    Closed,
}

/// The incoming half of one connection.
#[derive(Debug)]
pub struct Inbound {
    greeting: Greeting,
    phase: Phase,
    hello: Hello,
}

impl Inbound {
    /// A connection nobody has spoken on.
    pub fn new(greeting: Greeting) -> Self {
        Self { greeting, phase: Phase::Hello, hello: Hello::default() }
    }

    /// Whether the login is done.
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// What HELLO said.
    pub const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Messages the client was told it may send before it asks for more.
    pub const fn producer_credit(&self) -> i32 {
        self.greeting.producer_credit
    }

    /// A stream that is none of packets: what to say before closing.
    pub fn handle_garbage(&mut self, error: DecodeError, steps: &mut Vec<Step>) {
        self.phase = Phase::Closed;
        // Whoever sends no packets cannot read one.
        if matches!(error, DecodeError::Magic { .. }) {
            return steps.push(Step::Close(None));
        }
        if matches!(error, DecodeError::Version { .. }) {
            let reply = PacketBuilder::new(PacketType::HELLO_REPLY)
                .int("JMQStatus", Status::BAD_VERSION.0)
                .string("JMQReason", &error.to_string());
            steps.push(Step::Send(reply));
        }
        steps.push(Step::Close(Some((Goodbye::Fatal, error.to_string()))));
    }

    /// A packet over the size limit, whose bytes are being skipped.
    pub fn handle_oversized(&mut self, header: &Header, limit: u32, steps: &mut Vec<Step>) {
        let reason = format!("packet of {} bytes is over the limit of {limit}", header.size);
        if !self.is_open() {
            return self.close(reason, steps);
        }
        if header.flags.contains(Flags::ACKNOWLEDGE) {
            let reply = PacketBuilder::new(PacketType::SEND_REPLY)
                .consumer_id(header.consumer_id)
                .int("JMQStatus", Status::ENTITY_TOO_LARGE.0)
                .string("JMQReason", &reason);
            steps.push(Step::Send(reply));
        }
    }

    /// A packet.
    pub fn handle_packet(
        &mut self,
        packet: Packet,
        accounts: &dyn Accounts,
        steps: &mut Vec<Step>,
    ) {
        let reply = ReplyTo::of(packet.header());
        let kind = packet.header().packet_type;
        match (&self.phase, kind) {
            (Phase::Closed, _) => {}
            (_, PacketType::PING) => steps.push(if reply.wanted {
                Step::Send(reply.with(Status::OK))
            } else {
                Step::Carry(reply, Request::Pong)
            }),
            (_, PacketType::PING_REPLY) => steps.push(Step::Carry(reply, Request::Pong)),
            (_, PacketType::GOODBYE) => {
                self.phase = Phase::Closed;
                steps.push(Step::Carry(reply, Request::Goodbye));
            }
            (Phase::Hello, PacketType::HELLO) => self.greet(&packet, &reply, steps),
            (_, PacketType::HELLO) => {
                steps.push(Step::Send(reply.refuse(Status::ERROR, "HELLO was said before")));
                self.close("HELLO was said before".into(), steps);
            }
            (Phase::Proof(wanted), PacketType::AUTHENTICATE) => {
                let wanted = *wanted;
                self.authenticate(wanted, &packet, &reply, accounts, steps);
            }
            (Phase::Open, _) => match request(packet) {
                Ok(Some(request)) => steps.push(Step::Carry(reply, request)),
                Ok(None) => {}
                Err(refused) if reply.wanted => {
                    steps.push(Step::Send(reply.refuse(refused.status, &refused.reason)));
                }
                Err(_) => {}
            },
            _ if reply.wanted => {
                let refusal = reply.refuse(Status::ERROR, "log in first");
                steps.push(Step::Send(refusal));
            }
            _ => {}
        }
    }

    fn greet(&mut self, packet: &Packet, reply: &ReplyTo, steps: &mut Vec<Step>) {
        let read = packet.properties().and_then(|table| {
            Ok((Hello::read(&table)?, table.string("JMQAuthType")?.map(Cow::into_owned)))
        });
        let (hello, authentication) = match read {
            Ok(read) => read,
            Err(error) => {
                steps.push(Step::Send(reply.refuse(Status::ERROR, &error.to_string())));
                return self.close(error.to_string(), steps);
            }
        };
        if hello.level > PROTOCOL_LEVEL {
            let refusal = format!("protocol level {} is above {PROTOCOL_LEVEL}", hello.level);
            let answer =
                reply.refuse(Status::BAD_VERSION, &refusal).int("JMQProtocolLevel", PROTOCOL_LEVEL);
            steps.push(Step::Send(answer));
            return self.close(refusal, steps);
        }
        let greeting = &self.greeting;
        let answer = reply
            .with(Status::OK)
            .long("JMQConnectionID", greeting.connection_id)
            .int("JMQProtocolLevel", hello.level)
            .string("JMQVersion", PRODUCT_VERSION)
            .string("JMQService", &greeting.service)
            .long("JMQBrokerSessionID", greeting.broker_session)
            .boolean("JMQHA", false)
            .string("JMQBrokerList", &greeting.address_list)
            .int("JMQSize", greeting.producer_credit)
            .long("JMQBytes", greeting.producer_credit_bytes)
            .long("JMQMaxMsgBytes", greeting.message_bytes_max);
        steps.push(Step::Send(answer));
        self.hello = hello;
        let Some(kind) =
            authentication.as_deref().map_or(Some(greeting.authentication), Authentication::named)
        else {
            let refusal = PacketBuilder::new(PacketType::AUTHENTICATE_REQUEST)
                .consumer_id(reply.id)
                .int("JMQStatus", Status::FORBIDDEN.0);
            steps.push(Step::Send(refusal));
            return self.close("this kind of authentication is not served".into(), steps);
        };
        let challenge = PacketBuilder::new(PacketType::AUTHENTICATE_REQUEST)
            .consumer_id(reply.id)
            .string("JMQAuthType", kind.name())
            .boolean("JMQChallenge", true)
            .int("JMQSequence", packet.header().id.sequence)
            .int("JMQStatus", Status::OK.0);
        steps.push(Step::Send(match kind {
            Authentication::Digest => challenge.body(auth::nonce(greeting.nonce)),
            Authentication::Basic => challenge,
        }));
        self.phase = Phase::Proof(kind);
    }

    fn authenticate(
        &mut self,
        wanted: Authentication,
        packet: &Packet,
        reply: &ReplyTo,
        accounts: &dyn Accounts,
        steps: &mut Vec<Step>,
    ) {
        match self.proof(wanted, packet, accounts) {
            Ok(user) => {
                self.phase = Phase::Open;
                steps.push(Step::LoggedIn(user));
                steps.push(Step::Send(reply.with(Status::OK)));
            }
            Err(reason) => {
                steps.push(Step::Send(reply.refuse(Status::INVALID_LOGIN, &reason)));
                self.close(reason, steps);
            }
        }
    }

    fn proof(
        &self,
        wanted: Authentication,
        packet: &Packet,
        accounts: &dyn Accounts,
    ) -> Result<String, String> {
        let table = packet.properties().map_err(|error| error.to_string())?;
        let said = table.string("JMQAuthType").map_err(|error| error.to_string())?;
        if said.as_deref() != Some(wanted.name()) {
            return Err(format!("this login must be of type {}", wanted.name()));
        }
        let (user, response) = auth::read_authenticate_body(packet.body_bytes())
            .ok_or("the login is cut off or malformed")?;
        // One text for an unknown user and for a wrong password: which of the two is nobody's
        // business.
        let forbidden = || format!("forbidden: {user}");
        let stored = accounts.stored_hash(&user).ok_or_else(forbidden)?;
        let good = match wanted {
            Authentication::Digest => {
                let nonce = auth::nonce(self.greeting.nonce);
                auth::same(&response, &auth::digest_response(&stored, &nonce))
            }
            Authentication::Basic => auth::read_basic_response(&response)
                .is_some_and(|password| auth::same(&auth::stored_hash(&user, &password), &stored)),
        };
        if good { Ok(user) } else { Err(forbidden()) }
    }

    fn close(&mut self, reason: String, steps: &mut Vec<Step>) {
        self.phase = Phase::Closed;
        steps.push(Step::Close(Some((Goodbye::Fatal, reason))));
    }
}

/// What a client says about itself in HELLO.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// Its protocol level.
    pub level: i32,
    /// Wanted size of a metered batch.
    pub metering: Option<i32>,
    /// Whether it may come back after a lost connection.
    pub reconnectable: bool,
    /// Milliseconds between its tries to come back.
    pub reconnect_interval: Option<i64>,
    /// The connection it lost.
    pub previous: Option<i64>,
    /// Its own description.
    pub user_agent: String,
}

impl Hello {
    fn read(table: &PropertyTable<'_>) -> Result<Self, PropertyError> {
        Ok(Self {
            level: table.int("JMQProtocolLevel")?.unwrap_or(LEVEL_UNSAID),
            // Two names for one thing; a client that sends both means the first.
            metering: table.int("JMQSize")?.or(table.int("JMQRBufferSize")?),
            reconnectable: table.boolean("JMQReconnectable")?.unwrap_or(false),
            reconnect_interval: table.long("JMQInterval")?.filter(|&interval| interval > 0),
            previous: table.long("JMQConnectionID")?,
            user_agent: table.string("JMQUserAgent")?.map(Cow::into_owned).unwrap_or_default(),
        })
    }
}

/// A packet that is well framed and makes no sense.
#[derive(Debug)]
struct Refused {
    status: Status,
    reason: String,
}

impl Refused {
    fn error(reason: impl Into<String>) -> Self {
        Self { status: Status::ERROR, reason: reason.into() }
    }
}

impl From<PropertyError> for Refused {
    fn from(error: PropertyError) -> Self {
        Self::error(error.to_string())
    }
}

/// Reads the request out of a packet; `None` for what is to be ignored.
fn request(packet: Packet) -> Result<Option<Request>, Refused> {
    let header = *packet.header();
    if header.packet_type.is_message() {
        return Ok(Some(Request::Message(packet)));
    }
    let table = packet.properties()?;
    let long =
        |name| table.long(name)?.ok_or(PropertyError::Missing { name }).map_err(Refused::from);
    let string = |name| table.string(name).map(|text| text.map(|text| text.into_owned()));
    Ok(Some(match header.packet_type {
        PacketType::CREATE_SESSION => {
            let mode = table.int("JMQAckMode")?.unwrap_or(0);
            Request::CreateSession(AckMode::from_wire(mode).ok_or_else(|| bad_ack_mode(mode))?)
        }
        PacketType::DESTROY_SESSION => Request::DestroySession(long("JMQSessionID")?),
        PacketType::CREATE_DESTINATION => {
            let (name, kind) = destination(&table)?;
            Request::CreateDestination(name, kind)
        }
        PacketType::DESTROY_DESTINATION => {
            let (name, kind) = destination(&table)?;
            Request::DestroyDestination(name, kind)
        }
        PacketType::VERIFY_DESTINATION => {
            let (name, kind) = destination(&table)?;
            Request::VerifyDestination(name, kind, not_blank(&table, "JMQSelector")?)
        }
        PacketType::BROWSE => {
            let (name, kind) = destination(&table)?;
            Request::Browse(name, kind, not_blank(&table, "JMQSelector")?)
        }
        PacketType::DELIVER => {
            let ids = packet.body();
            if ids.is_empty() || !ids.len().is_multiple_of(MessageId::LEN) {
                return Err(Refused::error(format!("{} bytes are no message ids", ids.len())));
            }
            Request::Deliver(long("JMQConsumerID")?, ids)
        }
        PacketType::START_TRANSACTION
        | PacketType::END_TRANSACTION
        | PacketType::PREPARE_TRANSACTION
        | PacketType::COMMIT_TRANSACTION
        | PacketType::ROLLBACK_TRANSACTION
        | PacketType::RECOVER_TRANSACTION
        | PacketType::VERIFY_TRANSACTION => {
            let read = transaction::read(&packet, &table);
            let read = read.map_err(|(status, reason)| Refused { status, reason })?;
            Request::Transaction(Box::new(read))
        }
        PacketType::ADD_PRODUCER => {
            let (name, kind) = destination(&table)?;
            let session = table.long("JMQSessionID")?;
            Request::AddProducer { destination: name, kind, session }
        }
        PacketType::DELETE_PRODUCER => Request::DeleteProducer(long("JMQProducerID")?),
        PacketType::ADD_CONSUMER => Request::AddConsumer(Box::new(add_consumer(&table)?)),
        PacketType::DELETE_CONSUMER => match table.long("JMQConsumerID")? {
            Some(consumer) => Request::DeleteConsumer {
                consumer,
                last: last_seen(&table, packet.body_bytes())?,
                nothing_seen: table.boolean("JMQRedeliverAll")?.unwrap_or(false),
                in_transaction: table.boolean("JMQLastDeliveredIDInTransaction")?.unwrap_or(false),
            },
            None => Request::Unsubscribe(
                string("JMQDurableName")?
                    .ok_or(PropertyError::Missing { name: "JMQConsumerID" })?,
                not_blank(&table, "JMQClientID")?,
            ),
        },
        PacketType::START => Request::Start(table.long("JMQSessionID")?),
        PacketType::STOP => Request::Stop(table.long("JMQSessionID")?),
        PacketType::ACKNOWLEDGE => acknowledge(&packet, &table)?,
        PacketType::REDELIVER => {
            let seen = table.boolean("JMQSetRedelivered")?.unwrap_or(false);
            Request::Redeliver(blocks(&packet)?, seen, transaction_of(&packet)?)
        }
        PacketType::RESUME_FLOW => match table.long("JMQConsumerID")? {
            Some(consumer) => Request::ResumeConsumer(consumer, table.int("JMQSize")?),
            None => Request::ResumeConnection(table.int("JMQSize")?),
        },
        PacketType::FLOW_PAUSED => Request::FlowPaused,
        PacketType::SET_CLIENTID => {
            let share = table.boolean("JMQShare")?;
            let namespace = string("JMQNamespace")?;
            let wish = |id| ClientIdWish { id, share, namespace };
            Request::SetClientId(string("JMQClientID")?.map(wish))
        }
        PacketType::GENERATE_UID => Request::GenerateIds(table.int("JMQQuantity")?.unwrap_or(1)),
        // A client asks for its licence out of habit; the plain success says that it has one.
        PacketType::GET_LICENSE => Request::GenerateIds(0),
        PacketType::INFO_REQUEST | PacketType::DEBUG => return Ok(None),
        kind if kind.is_reply() => return Ok(None),
        kind => {
            return Err(Refused {
                status: Status::NOT_IMPLEMENTED,
                reason: format!("{kind} is not served"),
            });
        }
    }))
}

fn destination(table: &PropertyTable<'_>) -> Result<(String, DestinationMask), Refused> {
    let name =
        table.string("JMQDestination")?.ok_or(PropertyError::Missing { name: "JMQDestination" })?;
    let mask = table.int("JMQDestType")?.ok_or(PropertyError::Missing { name: "JMQDestType" })?;
    let kinds = mask & (DestinationMask::QUEUE | DestinationMask::TOPIC);
    if kinds != DestinationMask::QUEUE && kinds != DestinationMask::TOPIC {
        return Err(Refused::error(format!("JMQDestType {mask} is neither a queue nor a topic")));
    }
    if name.trim().is_empty() {
        return Err(Refused::error("JMQDestination is blank"));
    }
    Ok((name.into_owned(), DestinationMask(mask)))
}

/// A string that is there and says something.
fn not_blank(table: &PropertyTable<'_>, name: &'static str) -> Result<Option<String>, Refused> {
    let text = table.string(name)?;
    Ok(text.filter(|text| !text.trim().is_empty()).map(|text| text.into_owned()))
}

fn add_consumer(table: &PropertyTable<'_>) -> Result<AddConsumer, Refused> {
    let (name, kind) = destination(table)?;
    let is = |name| table.boolean(name).map(|value| value.unwrap_or(false));
    let mode = table.int("JMQAckMode")?.unwrap_or(0);
    let wish = AddConsumer {
        destination: name,
        kind,
        session: table.long("JMQSessionID")?,
        size: table.int("JMQSize")?.unwrap_or(-1),
        selector: not_blank(table, "JMQSelector")?,
        no_local: is("JMQNoLocal")?,
        subscription: subscription(table, kind)?,
        ack_mode: AckMode::from_wire(mode).ok_or_else(|| bad_ack_mode(mode))?,
        client_id: not_blank(table, "JMQClientID")?,
    };
    if kind.is_queue() && wish.no_local {
        return Err(Refused::error("no-local is for topics"));
    }
    Ok(wish)
}

fn bad_ack_mode(mode: i32) -> Refused {
    Refused {
        status: Status::BAD_REQUEST,
        reason: format!("acknowledge mode {mode} is none of 0, 1, 2, 3 and 32768"),
    }
}

fn subscription(
    table: &PropertyTable<'_>,
    kind: DestinationMask,
) -> Result<SubscriptionWish, Refused> {
    let is = |name| table.boolean(name).map(|value| value.unwrap_or(false));
    let (share, jms_share) = (is("JMQShare")?, is("JMQJMSShare")?);
    if share && jms_share {
        return Err(Refused::error("JMQShare and JMQJMSShare exclude each other"));
    }
    let text = |name| table.string(name).map(|text| text.map(|text| text.into_owned()));
    let durable = text("JMQDurableName")?;
    let shared = text("JMQSharedSubscriptionName")?;
    if kind.is_queue() {
        // A queue's consumers share it anyway, so the flag alone says nothing new.
        return match durable.or(shared) {
            None => Ok(SubscriptionWish::Plain),
            Some(name) => Err(Refused::error(format!("a queue has no subscription {name:?}"))),
        };
    }
    Ok(match (durable, shared) {
        (Some(name), _) => SubscriptionWish::Durable { name, share, jms_share },
        (None, Some(name)) if jms_share => SubscriptionWish::Shared(name),
        (None, _) if share => SubscriptionWish::SharedByClientId,
        (None, _) if jms_share => {
            return Err(Refused {
                status: Status::PRECONDITION_FAILED,
                reason: "a shared subscription needs a name".into(),
            });
        }
        (None, _) => SubscriptionWish::Plain,
    })
}

fn last_seen(table: &PropertyTable<'_>, body: &[u8]) -> Result<Option<MessageId>, Refused> {
    match (table.int("JMQBodyType")?.unwrap_or(0), body) {
        (0, _) | (_, []) => Ok(None),
        (3, body) => body
            .first_chunk()
            .filter(|_| body.len() == MessageId::LEN)
            .map(|id| Some(MessageId::decode(id)))
            .ok_or_else(|| Refused::error(format!("{} bytes are no message id", body.len()))),
        (kind, _) => Err(Refused::error(format!("JMQBodyType {kind} is not served here"))),
    }
}

/// Which of the things an acknowledgement may say it says.
fn acknowledge(packet: &Packet, table: &PropertyTable<'_>) -> Result<Request, Refused> {
    let blocks = blocks(packet)?;
    let is = |name| table.boolean(name).map(|value| value.unwrap_or(false));
    let deliveries = table.int("JMSXDeliveryCount")?;
    let kind = match table.int("JMQAckType")?.unwrap_or(0) {
        _ if is("JMQValidate")? => AckKind::Validate,
        _ if is("JMSXDeliveryCountUpdateOnly")? => AckKind::CountOnly(deliveries.unwrap_or(0)),
        0 => AckKind::Consumed,
        1 => AckKind::Undeliverable,
        2 if blocks.len() == BLOCK_LEN => {
            let obituary = Obituary {
                expired: table.int("JMQDeadReason")? == Some(1),
                comment: not_blank(table, "JMQComment")?,
                exception: match table.value("JMQException") {
                    Some(Value::Object(bytes)) => Some(bytes.to_vec()),
                    _ => None,
                },
                deliveries,
            };
            return Ok(Request::DeclareDead(blocks, obituary));
        }
        2 => return Err(Refused::error("one message at a time is declared dead")),
        kind => return Err(Refused::error(format!("JMQAckType {kind} is none of 0, 1 and 2"))),
    };
    Ok(Request::Acknowledge(blocks, kind, transaction_of(packet)?))
}

/// The transaction a packet belongs to, or 0.
fn transaction_of(packet: &Packet) -> Result<i64, Refused> {
    let variable = packet.variable().map_err(|error| Refused::error(error.to_string()))?;
    Ok(variable.transaction_id.unwrap_or(0))
}

/// Consumer and message of the first block.
pub fn first_block(blocks: &[u8]) -> Option<(i64, MessageId)> {
    let (consumer, id) = blocks.split_first_chunk()?;
    Some((i64::from_be_bytes(*consumer), MessageId::decode(id.first_chunk()?)))
}

fn blocks(packet: &Packet) -> Result<Bytes, Refused> {
    let body = packet.body();
    if body.is_empty() {
        return Err(Refused::error("Empty ack message"));
    }
    if !body.len().is_multiple_of(BLOCK_LEN) {
        return Err(Refused::error(format!(
            "corrupted ack message: {} bytes are no blocks of {BLOCK_LEN}",
            body.len()
        )));
    }
    Ok(body)
}
