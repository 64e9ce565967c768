//! From a list of addresses to a connection that is logged in.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use bytes::BytesMut;

use super::{
    address::{self, Address, Way},
    clock,
    core::LoggedIn,
    error::{AttemptError, ConnectError},
    in_process,
    reconnect::Whereabouts,
    settings::Settings,
    socket::{HEARTBEAT, ReadTimeout, Wait, Wire},
    stamp::Stamp,
    walk::{Step, Walk},
};
use crate::{
    proto::client::{ClientEnd, ClientEvent, ConnectionError, Identity, LEVEL, LEVEL_LEAST},
    sync::Signal,
    wire::{
        Decoder, Frame, Status,
        limits::PACKET_BEFORE_LOGIN_BYTES_MAX,
        portmapper::{self, PortTable, TABLE_READ_BYTES_MAX},
    },
};

/// The longest a login may take, as long as a broker waits for its part of one.
pub(super) const LOGIN_LONGEST: Duration = Duration::from_secs(180);

/// How often brokers may send a client on to another one in one attempt.
const REDIRECTS_MAX: u32 = 4;

/// Tries the addresses as the settings say, until one takes the login.
pub(super) fn connect(settings: &Settings) -> Result<(LoggedIn, Whereabouts), ConnectError> {
    let caller = Caller { client_id: settings.client_id.clone(), lost_connection: None };
    if let Some(broker) = &settings.in_process {
        let login = in_process::connect(broker, settings, &caller)?;
        return Ok((login, Whereabouts { address: 0 }));
    }
    let addresses = settings.address_list();
    let (mut attempts, mut last) = (0_u32, None);
    for step in Walk::new(settings, u64::from_ne_bytes(random())) {
        let place = match step {
            Step::Rest(time) => {
                rest(time);
                continue;
            }
            Step::Try { address, .. } => address,
        };
        let address = &addresses[place];
        attempts = attempts.saturating_add(1);
        let error = match attempt(address, settings, &caller) {
            Ok(login) => return Ok((login, Whereabouts { address: place })),
            Err(AttemptError::Login { cause, .. }) if is_final(&cause) => {
                return Err(ConnectError::Refused { address: address.to_string(), cause });
            }
            Err(error) => error,
        };
        tracing::debug!(%address, %error, "no connection");
        last = Some(error);
    }
    let last = last.expect("a walk tries every address once at least");
    let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Err(ConnectError::Unreachable { addresses, attempts, last })
}

/// Whether another attempt would get the same answer.
pub(super) fn is_final(cause: &ConnectionError) -> bool {
    match cause {
        ConnectionError::Refused { status, .. } => {
            !matches!(*status, Status::UNAVAILABLE | Status::TIMEOUT)
        }
        ConnectionError::AuthenticationKind { .. }
        | ConnectionError::Level { .. }
        | ConnectionError::Credentials => true,
        _ => false,
    }
}

fn rest(time: Duration) {
    Signal::new().sleep_unless(|| false, clock::deadline_after(Some(time)));
}

/// What a login says beside the settings.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) client_id: Option<String>,
    /// The id of the connection that is to be restored.
    pub(super) lost_connection: Option<i64>,
}

/// Connects and logs in at one address.
pub(super) fn attempt(
    address: &Address,
    settings: &Settings,
    caller: &Caller,
) -> Result<LoggedIn, AttemptError> {
    follow(address, settings, caller, REDIRECTS_MAX)
}

/// As [`attempt`]; a broker may send this client on to another one so many times.
fn follow(
    address: &Address,
    settings: &Settings,
    caller: &Caller,
    hops: u32,
) -> Result<LoggedIn, AttemptError> {
    if address.way == Way::SameProcess {
        return Err(AttemptError::SameProcess);
    }
    if let Some(missing) = address.missing() {
        return Err(AttemptError::NotIncluded { address: address.to_string(), missing });
    }
    let place = format!("{}:{}", address.host, address.port);
    let targets = resolve(address)?;
    let mut last = None;
    for target in targets {
        match reach(target, address, settings) {
            Ok((target, wire, timeout)) => {
                return match login_at_some_level(target, wire, timeout, settings, caller) {
                    Err(ConnectionError::Redirected { address }) if hops > 0 => {
                        let next = address::parse(&address).map_err(|error| {
                            AttemptError::Redirect { place, reason: error.to_string() }
                        })?;
                        follow(&next, settings, caller, hops - 1)
                    }
                    login => login.map_err(|cause| AttemptError::Login { place, cause }),
                };
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| AttemptError::Host {
        host: address.host.clone(),
        reason: "it has no address".to_owned(),
    }))
}

fn resolve(address: &Address) -> Result<Vec<SocketAddr>, AttemptError> {
    let found = (address.host.as_str(), address.port).to_socket_addrs();
    found.map(Iterator::collect).map_err(|error| AttemptError::Host {
        host: address.host.clone(),
        reason: error.to_string(),
    })
}

/// Connects to the service, asking the port mapper first if the address says so.
fn reach(
    target: SocketAddr,
    address: &Address,
    settings: &Settings,
) -> Result<(SocketAddr, Wire, ReadTimeout), AttemptError> {
    let target = match &address.way {
        Way::PortMapper { service } => {
            let port = ask_port_mapper(target, service, settings)?;
            SocketAddr::new(target.ip(), port)
        }
        _ => target,
    };
    let (wire, timeout) = Wire::connect(target, settings.connect_timeout)
        .map_err(|error| connect_error(target, &error))?;
    Ok((target, wire, timeout))
}

fn connect_error(target: SocketAddr, error: &std::io::Error) -> AttemptError {
    AttemptError::Connect { place: target.to_string(), reason: error.to_string() }
}

fn ask_port_mapper(
    mapper: SocketAddr,
    service: &str,
    settings: &Settings,
) -> Result<u16, AttemptError> {
    let stream = match settings.connect_timeout {
        Some(timeout) => TcpStream::connect_timeout(&mapper, timeout),
        None => TcpStream::connect(mapper),
    };
    let mut stream = stream.map_err(|error| connect_error(mapper, &error))?;
    let trouble = |reason: String| AttemptError::PortMapper { place: mapper.to_string(), reason };
    let failed = |error: std::io::Error| trouble(error.to_string());
    stream.set_read_timeout(settings.port_mapper_timeout).map_err(failed)?;
    stream.write_all(portmapper::REQUEST).map_err(failed)?;
    let mut table = Vec::new();
    let mut chunk = [0; 2048];
    // Who waits for the end of the stream instead waits longer.
    while !PortTable::is_complete(&table) && table.len() < TABLE_READ_BYTES_MAX {
        match stream.read(&mut chunk).map_err(failed)? {
            0 => break,
            len => table.extend_from_slice(chunk.get(..len).unwrap_or_default()),
        }
    }
    let table = PortTable::decode(&table).map_err(|error| trouble(error.to_string()))?;
    // A service has one name, whatever it is for.
    let found = ["NORMAL", "ADMIN"].iter().find_map(|kind| table.find("tcp", kind, Some(service)));
    match found {
        Some(found) if found.port > 0 => Ok(found.port),
        Some(_) => Err(trouble(format!("service {service} is paused"))),
        None => Err(trouble(format!("it has no service {service} over TCP"))),
    }
}

/// Logs in; a broker that knows only an older level is asked again at that one.
fn login_at_some_level(
    target: SocketAddr,
    wire: Wire,
    timeout: ReadTimeout,
    settings: &Settings,
    caller: &Caller,
) -> Result<LoggedIn, ConnectionError> {
    match login(wire, timeout, settings, caller, LEVEL) {
        Err(ConnectionError::Level { level }) if (LEVEL_LEAST..LEVEL).contains(&level) => {
            let (wire, timeout) = Wire::connect(target, settings.connect_timeout)
                .map_err(|error| ConnectionError::Socket(error.kind()))?;
            login(wire, timeout, settings, caller, level)
        }
        outcome => outcome,
    }
}

pub(super) fn login(
    wire: Wire,
    mut timeout: ReadTimeout,
    settings: &Settings,
    caller: &Caller,
    level: i32,
) -> Result<LoggedIn, ConnectionError> {
    let socket = |error: std::io::Error| ConnectionError::Socket(error.kind());
    let local = wire.local_address().map_err(socket)?;
    let local = local.ok_or(ConnectionError::Socket(std::io::ErrorKind::Unsupported))?;
    let stamp = Stamp::new(local, random());
    let mut end = ClientEnd::new(Identity {
        user: settings.user.clone(),
        password: settings.password.clone(),
        client_id: caller.client_id.clone(),
        shares_client_id: settings.shares_client_id,
        flow_count: settings.flow.connection_count(),
        level,
        comes_back: settings.reconnect_enabled.then_some(settings.interval),
        lost_connection: caller.lost_connection,
    });
    let mut decoder = Decoder::new(PACKET_BEFORE_LOGIN_BYTES_MAX);
    let deadline = clock::now() + settings.ack_timeout.unwrap_or(LOGIN_LONGEST).min(LOGIN_LONGEST);
    loop {
        while let Some(packet) = end.poll_transmit() {
            send_all(&wire, packet.id(stamp.next()).finish().raw(), deadline)?;
        }
        match next_packet(&wire, &mut timeout, &mut decoder, deadline)? {
            Frame::Oversized(header) => {
                return Err(ConnectionError::TooLarge {
                    packet: header.packet_type,
                    bytes: header.size,
                    most: PACKET_BEFORE_LOGIN_BYTES_MAX,
                });
            }
            Frame::Packet(packet) => match end.handle_packet(&packet)? {
                ClientEvent::LoggedIn => break,
                ClientEvent::Goodbye { reason, text, exit } => {
                    return Err(ConnectionError::Goodbye { reason, text, exit });
                }
                _ => {}
            },
        }
    }
    let welcome = end.welcome().cloned();
    let welcome = welcome.expect("a client that is logged in was welcomed");
    Ok(LoggedIn { end, decoder, wire, timeout, welcome, stamp })
}

pub(super) fn next_packet(
    wire: &Wire,
    timeout: &mut ReadTimeout,
    decoder: &mut Decoder,
    deadline: Instant,
) -> Result<Frame, ConnectionError> {
    loop {
        if let Some(frame) = decoder.next_frame().map_err(ConnectionError::Garbage)? {
            return Ok(frame);
        }
        let left = deadline.saturating_duration_since(clock::now());
        if left.is_zero() {
            return Err(ConnectionError::Socket(std::io::ErrorKind::TimedOut));
        }
        let mut buffer = BytesMut::with_capacity(4096);
        match wire.receive(&mut buffer, Wait::For(left.min(HEARTBEAT)), timeout) {
            Ok(None) => {}
            Ok(Some(0)) => return Err(ConnectionError::EndOfStream),
            Ok(Some(_)) => decoder.feed(buffer.freeze()),
            Err(error) => return Err(ConnectionError::Socket(error.kind())),
        }
    }
}

pub(super) fn send_all(
    wire: &Wire,
    mut bytes: &[u8],
    deadline: Instant,
) -> Result<(), ConnectionError> {
    let socket = |error: std::io::Error| ConnectionError::Socket(error.kind());
    while !bytes.is_empty() {
        let sent = wire.send(bytes, &[]).map_err(socket)?;
        bytes = bytes.get(sent..).unwrap_or_default();
        if sent == 0 {
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                return Err(ConnectionError::Socket(std::io::ErrorKind::TimedOut));
            }
            wire.wait_ready(false, left.min(HEARTBEAT)).map_err(socket)?;
        }
    }
    Ok(())
}

/// Random bytes; zeros if the system has none, which only makes ids less distinct.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if getrandom::fill(&mut bytes).is_err() {
        bytes = [0; N];
    }
    bytes
}
