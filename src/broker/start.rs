//! Starts, watches and ends a broker.

use std::{
    fs::File, io, net::SocketAddr, path::PathBuf, pin::Pin, sync::Arc as StdArc,
    thread::JoinHandle, time::Duration,
};

use mio::net::TcpListener;

use crate::{
    flow::Credit,
    in_process::InProcess,
    reactor::{EventLoop, Handler, Idle, PollWaker, wall_ms},
    store::{MessageStore, StoreError},
    sync::{Arc, AtomicUsize, Event, Mailbox, Ordering, Plain, block_on},
    throttle::{MonitorSettings, StressMonitor},
    wire::{
        VERSION,
        portmapper::{PortTable, PortTableError, Service as TableEntry},
    },
};

use super::{
    accounts::{Accounts, AccountsError},
    ahead::{FetchLoop, FetchMail, Fetcher},
    arrival,
    config::BrokerConfig,
    connections::Service,
    consumer::Consumer,
    destination::{Destination, Kind},
    ids::Ids,
    opening::{self, IfInUse, Opened},
    persist::{CommitLoop, CommitMail, Committer, Persist},
    recovery::{self, RecoveryReport},
    server::{Entrance, LoopMailbox, Mail, Server},
    shared::{Addresses, Shared},
    side::Side,
    turn::{Carry, Turn},
};

/// How the thread that commits waits: who was just served is likely to send again soon.
const COMMIT_IDLE: Idle = Idle::SpinThenPark(Duration::from_micros(50));

/// Why a broker did not start. Nothing of it runs then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {service}; is another broker running there?")]
    Listen {
        /// What for.
        service: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The data directory cannot be used.
    #[error("data directory {} cannot be used: {reason}", directory.display())]
    Data {
        /// The directory.
        directory: PathBuf,
        /// Why.
        reason: String,
    },
    /// The store of messages cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The user file cannot be used.
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    /// The name cannot stand in a port table.
    #[error("the port table cannot be written")]
    PortTable(#[from] PortTableError),
    /// The system refuses a poller, a thread or random bytes.
    #[error("an event loop cannot be started")]
    Loop(#[source] io::Error),
}

/// Settings of a broker to be started.
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before `start`"]
pub struct BrokerBuilder {
    config: BrokerConfig,
}

impl BrokerBuilder {
    /// Address of the port mapper; default 127.0.0.1:7676. Port 0 takes a free one.
    pub fn listen(&mut self, address: SocketAddr) -> &mut Self {
        self.config.listen = address;
        self
    }

    /// Address of the `jms` service; default a free port of 127.0.0.1.
    pub fn jms(&mut self, address: SocketAddr) -> &mut Self {
        self.config.jms = address;
        self
    }

    /// Address of the `admin` service; default a free port of 127.0.0.1.
    pub fn admin(&mut self, address: SocketAddr) -> &mut Self {
        self.config.admin = address;
        self
    }

    /// Directory for the broker's files, made if it does not exist; default none. It holds the
    /// user file and, with feature `fjall`, the store of persistent messages, and is locked against
    /// a second broker.
    pub fn data(&mut self, directory: impl Into<PathBuf>) -> &mut Self {
        self.config.data = Some(directory.into());
        self
    }

    /// Event loops, each a thread; at least 1, default 2 (1 on a single core).
    pub fn loops(&mut self, count: usize) -> &mut Self {
        self.config.loops = count.max(1);
        self
    }

    /// All settings at once.
    pub fn config(&mut self, config: BrokerConfig) -> &mut Self {
        self.config = config;
        self
    }

    /// Starts the broker; when this returns, it listens.
    ///
    /// # Errors
    /// Any [`StartError`].
    pub fn start(&self) -> Result<Broker, StartError> {
        Broker::start(self.config.clone())
    }

    /// Starts the broker with a store of its own for persistent messages, in place of the one in
    /// its directory.
    ///
    /// # Errors
    /// Any [`StartError`].
    pub fn start_with(&self, store: impl MessageStore + 'static) -> Result<Broker, StartError> {
        // The store may be in the directory, and hold its lock.
        let opened = Opened { store: Some(Box::new(store)), lock: None };
        Broker::start_on(self.config.clone(), opened, &mut |_, _| {})
    }
}

/// A running broker.
///
/// Dropping it is [`shutdown`](Self::shutdown).
#[derive(Debug)]
pub struct Broker {
    shared: Arc<Shared>,
    running: Plain<Running>,
    port_mapper: SocketAddr,
    jms: SocketAddr,
    admin: SocketAddr,
    mailboxes: Vec<LoopMailbox>,
    threads: Vec<JoinHandle<()>>,
    /// The thread that commits, and where it gets its mail.
    committer: Option<Beside<CommitMail>>,
    /// The thread that reads from the store, likewise.
    fetcher: Option<Beside<FetchMail>>,
    recovery: Option<RecoveryReport>,
    /// Held for its lock, if no store holds one.
    _lock: Option<File>,
}

/// A thread beside the loops, and its mailbox.
type Beside<M> = (JoinHandle<()>, StdArc<Mailbox<M, PollWaker>>);

impl Broker {
    /// Settings to start with.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }

    /// Starts a broker.
    ///
    /// # Errors
    /// Any [`StartError`].
    pub fn start(config: BrokerConfig) -> Result<Self, StartError> {
        Self::start_showing(config, &mut |_, _| {})
    }

    /// As [`start`](Self::start); `progress` is called from time to time while a store is read, with
    /// the entries that were read and, if known, about how many there are.
    ///
    /// # Errors
    /// Any [`StartError`].
    pub fn start_showing(
        config: BrokerConfig,
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Self, StartError> {
        let opened = opening::open(&config, IfInUse::Refuse)?;
        Self::start_on(config, opened, progress)
    }

    /// As [`start`](Self::start); but if another broker has the database of the setting
    /// `store.postgres`, calls `waiting` with who that is, and waits until it is gone. Until then
    /// it does not listen, and a database that is lost meanwhile is waited for. `progress` is as in
    /// [`start_showing`](Self::start_showing). Blocks; not for a thread that runs futures of tokio.
    ///
    /// # Errors
    /// [`StoreError::InUse`] as [`StartError::Store`] if `stop` was done before; any other
    /// [`StartError`].
    pub fn start_standby(
        config: BrokerConfig,
        mut stop: Pin<&mut (dyn Future<Output = ()> + '_)>,
        waiting: &mut dyn FnMut(&StoreError),
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Self, StartError> {
        loop {
            let wait = IfInUse::Wait { tell: &mut *waiting, stop: stop.as_mut() };
            let opened = opening::open(&config, wait)?;
            match Self::start_on(config.clone(), opened, &mut *progress) {
                Err(StartError::Store(error @ StoreError::Lost { .. })) => {
                    tracing::warn!(%error, "the store was lost at the start; it is tried once more");
                }
                started => return started,
            }
        }
    }

    fn start_on(
        config: BrokerConfig,
        Opened { store, lock }: Opened,
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Self, StartError> {
        let accounts = match &config.data {
            Some(directory) => Accounts::open(directory)?,
            None => Accounts::default(),
        };
        let (mapper, port_mapper) = bind(config.listen, "the port mapper")?;
        let (for_applications, jms) = bind(config.jms, "the service jms")?;
        let (for_administrators, admin) = bind(config.admin, "the service admin")?;
        let mut random = [0; 2];
        getrandom::fill(&mut random).map_err(|error| StartError::Loop(io::Error::other(error)))?;
        let ids = Ids::new(u16::from_be_bytes(random), wall_ms(), jms);
        let table = port_table(&config.name, port_mapper, jms, admin)?;
        let loops = config.loops.max(1);
        let idle = config.idle;
        let addresses = Addresses { port_mapper, jms, admin };
        let mut monitor = MonitorSettings::default();
        // In range: the settings have checked it.
        let _in_range = monitor.limit(config.checkpoint_limit);
        let monitor = StressMonitor::new(monitor);
        let commit_loop = match &store {
            Some(_) => Some(EventLoop::new(COMMIT_IDLE).map_err(StartError::Loop)?),
            None => None,
        };
        let fetch_loop = match &store {
            Some(_) => Some(EventLoop::new(Idle::Park).map_err(StartError::Loop)?),
            None => None,
        };
        let threads = commit_loop.as_ref().zip(fetch_loop.as_ref());
        let persist = store.as_ref().zip(threads).map(|(store, (commit_loop, fetch_loop))| {
            let (commits, fetches) = (commit_loop.mailbox(), fetch_loop.mailbox());
            let send = move |units| commits.send(CommitMail::Units(units));
            let fetch = move |ask| fetches.send(FetchMail::Ask(ask));
            Persist::new(store.describe(), monitor.signal(), send, fetch)
        });
        let shared = Arc::new(Shared::new(config, accounts, ids, addresses, persist));
        let mut recovery = None;
        let mut committing = None;
        if let (Some(mut store), Some(commit_loop), Some(fetch_loop)) =
            (store, commit_loop, fetch_loop)
        {
            let number = u16::try_from(loops + 1).unwrap_or(u16::MAX);
            let mut carry = Carry::new(number);
            let mut turn = Turn::new(wall_ms(), &shared, &mut carry);
            let (report, position) = recovery::recover(store.as_mut(), &mut turn, progress)?;
            turn.finish();
            recovery = Some(report);
            let fetcher = Fetcher::new(store.reader()?);
            let committer = Committer::new(store, &shared.config, monitor, position);
            let commits = CommitLoop::new(Side::new(Arc::clone(&shared), carry), committer);
            let side = Side::new(Arc::clone(&shared), Carry::new(number.saturating_add(1)));
            let fetches = FetchLoop::new(side, fetcher);
            committing = Some(((commit_loop, commits), (fetch_loop, fetches)));
        }

        let made: io::Result<Vec<_>> = (0..loops).map(|_| EventLoop::new(idle)).collect();
        let made = made.map_err(StartError::Loop)?;
        let mailboxes: Vec<LoopMailbox> = made.iter().map(EventLoop::mailbox).collect();
        shared.set_loops(mailboxes.clone());
        let mut broker = Self {
            shared,
            running: Plain::new(Running::default()),
            port_mapper,
            jms,
            admin,
            mailboxes,
            threads: Vec::with_capacity(loops),
            committer: None,
            fetcher: None,
            recovery,
            _lock: lock,
        };
        if let Some(((commit_loop, commits), (fetch_loop, fetches))) = committing {
            let committer = beside("tidegate-commit", commit_loop, commits);
            broker.committer = Some(committer.map_err(StartError::Loop)?);
            let fetcher = beside("tidegate-fetch", fetch_loop, fetches);
            broker.fetcher = Some(fetcher.map_err(StartError::Loop)?);
        }
        let mut listeners = vec![
            (mapper, Entrance::PortMapper),
            (for_applications, Entrance::Service(Service::Jms)),
            (for_administrators, Entrance::Service(Service::Admin)),
        ];
        for (event_loop, number) in made.into_iter().zip(1_u16..) {
            // The first loop accepts for all. If one fails, dropping the broker ends the others.
            broker
                .spawn(event_loop, number, std::mem::take(&mut listeners), table.clone())
                .map_err(StartError::Loop)?;
        }
        Ok(broker)
    }

    fn spawn(
        &mut self,
        mut event_loop: EventLoop<Mail>,
        number: u16,
        listeners: Vec<(TcpListener, Entrance)>,
        table: Vec<u8>,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut server = Server::new(shared, number, self.mailboxes.clone(), table);
        for (listener, entrance) in listeners {
            server.listen(event_loop.io(), listener, entrance)?;
        }
        let alive = Running::one_more(&self.running);
        let run = move || {
            let _until_it_ends = alive;
            if let Err(error) = event_loop.run(&mut server) {
                tracing::error!(%error, "an event loop failed; its connections are gone");
            }
        };
        let name = format!("tidegate-{number}");
        self.threads.push(std::thread::Builder::new().name(name).spawn(run)?);
        Ok(())
    }

    /// What was found in the store of persistent messages; `None` without a store.
    #[must_use]
    pub const fn recovery(&self) -> Option<&RecoveryReport> {
        self.recovery.as_ref()
    }

    /// What and where the store of persistent messages is, for people; `None` without a store.
    #[must_use]
    pub fn store(&self) -> Option<&str> {
        self.shared.persist.as_ref().map(|persist| persist.description.as_str())
    }

    /// Why it has ended by itself, if another broker has taken over its store.
    #[must_use]
    pub fn taken_over(&self) -> Option<String> {
        self.shared.persist.as_ref().and_then(Persist::taken_over)
    }

    /// Where the port mapper listens.
    #[must_use]
    pub const fn port_mapper_address(&self) -> SocketAddr {
        self.port_mapper
    }

    /// Where the `jms` service listens.
    #[must_use]
    pub const fn jms_address(&self) -> SocketAddr {
        self.jms
    }

    /// Where the `admin` service listens.
    #[must_use]
    pub const fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// The way in for clients in this process: no sockets, no threads of their own. They log in as
    /// others do, and find the same destinations.
    #[must_use]
    pub fn in_process(&self) -> InProcess {
        // The first loop accepts for all.
        arrival::in_process(LoopMailbox::clone(&self.mailboxes[0]))
    }

    /// What is going on now. Takes no lock; the numbers are each true for some instant of the call.
    #[must_use]
    pub fn snapshot(&self) -> BrokerSnapshot {
        let stats = &self.shared.stats;
        let mut destinations: Vec<_> =
            self.shared.registry.all().iter().map(|one| DestinationSnapshot::of(one)).collect();
        destinations.sort_by(|a, b| a.name.cmp(&b.name));
        BrokerSnapshot {
            connections: stats.connections(),
            expired: stats.expired_count(),
            violations: stats.violations(),
            destinations,
        }
    }

    /// Ends in order: listens no more, says goodbye to every client, and returns when all loops
    /// have ended, after two seconds at the latest for clients that do not go.
    pub fn shutdown(mut self) {
        self.stop();
    }

    /// Tells when it has ended, also by itself: when an administrator has shut it down, or another
    /// broker has [taken over](Self::taken_over) its store.
    pub fn end(&self) -> BrokerEnd {
        BrokerEnd { running: Plain::clone(&self.running) }
    }

    fn stop(&mut self) {
        self.shared.shut_down();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("an event loop panicked");
            }
        }
        // What it would find is of use to nobody any more.
        if let Some((thread, mailbox)) = self.fetcher.take() {
            mailbox.send(FetchMail::Close);
            if thread.join().is_err() {
                tracing::error!("the thread that reads from the store panicked");
            }
        }
        // Behind everything the others have left.
        if let Some((thread, mailbox)) = self.committer.take() {
            mailbox.send(CommitMail::Close);
            if thread.join().is_err() {
                tracing::error!("the thread that commits panicked");
            }
        }
    }
}

/// Starts a thread beside the loops.
fn beside<M: Send + 'static>(
    name: &'static str,
    event_loop: EventLoop<M>,
    mut handler: impl Handler<Mail = M> + Send + 'static,
) -> io::Result<Beside<M>> {
    let mailbox = event_loop.mailbox();
    let run = move || {
        if let Err(error) = event_loop.run(&mut handler) {
            tracing::error!(%error, thread = name, "the store is served no more");
        }
    };
    let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
    Ok((thread, mailbox))
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The loops of a broker that have not ended.
///
/// # Ordering
/// `SeqCst`: the count and the event's list of listeners are two places; whoever listens first and
/// counts then, or counts down first and notifies then, meets the other in one of them.
#[derive(Debug, Default)]
struct Running {
    loops: AtomicUsize,
    none_left: Event,
}

impl Running {
    fn one_more(this: &Plain<Self>) -> Alive {
        this.loops.fetch_add(1, Ordering::SeqCst);
        Alive(Plain::clone(this))
    }
}

/// One loop that has not ended, however it may end.
#[derive(Debug)]
struct Alive(Plain<Running>);

impl Drop for Alive {
    fn drop(&mut self) {
        if self.0.loops.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none_left.notify(usize::MAX);
        }
    }
}

/// Waits for the end of a broker. Keeps nothing of it running.
#[derive(Debug, Clone)]
#[must_use = "it waits when it is told to"]
pub struct BrokerEnd {
    running: Plain<Running>,
}

impl BrokerEnd {
    /// Returns when all loops of the broker have ended: it serves nobody any more.
    pub fn wait(&self) {
        loop {
            let listener = self.running.none_left.listen();
            if self.running.loops.load(Ordering::SeqCst) == 0 {
                return;
            }
            block_on(listener, None);
        }
    }
}

/// A broker at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerSnapshot {
    /// Connections of applications and administrators.
    pub connections: u64,
    /// Messages that expired since the start.
    pub expired: u64,
    /// Connections that were closed because what they sent is no packet.
    pub violations: u64,
    /// Destinations, by name.
    pub destinations: Vec<DestinationSnapshot>,
}

/// A destination at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DestinationSnapshot {
    /// Its name.
    pub name: String,
    /// Queue or topic.
    pub kind: Kind,
    /// Messages in it, waiting or not yet acknowledged. A topic counts one once, however many
    /// subscriptions have it.
    pub messages: u64,
    /// Waiting messages that the selectors of a queue's consumers have looked at since the start: a
    /// message is looked at once by each of them, and again only if it comes back.
    pub searched: u64,
    /// Its consumers, in the order they came.
    pub consumers: Vec<ConsumerSnapshot>,
}

/// A consumer at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerSnapshot {
    /// Its id.
    pub id: i64,
    /// Its connection's id.
    pub connection_id: i64,
    /// Its window: messages it may be sent ahead; `None` without limit.
    pub window: Option<u32>,
    /// Credit left of it; `None` without limit.
    pub credit: Option<u32>,
    /// Deliveries it has not acknowledged.
    pub unacknowledged: u64,
    /// Deliveries to it since it came.
    pub delivered: u64,
}

impl DestinationSnapshot {
    fn of(destination: &Destination) -> Self {
        let consumers = destination.consumers();
        Self {
            name: destination.name.to_string(),
            kind: destination.kind,
            messages: destination.messages(),
            // Relaxed: a statistic.
            searched: destination.counts().searched.load(Ordering::Relaxed),
            consumers: consumers.iter().map(|one| ConsumerSnapshot::of(one)).collect(),
        }
    }
}

impl ConsumerSnapshot {
    fn of(consumer: &Consumer) -> Self {
        let (delivered, unacknowledged) = consumer.counts();
        let window = match consumer.prefetch {
            Credit::Limited(limit) => Some(limit),
            _ => None,
        };
        Self {
            id: consumer.id,
            connection_id: consumer.connection_id,
            window,
            credit: consumer.credit_left(),
            unacknowledged,
            delivered,
        }
    }
}

fn bind(
    address: SocketAddr,
    service: &'static str,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    listen().map_err(|source| StartError::Listen { service, address, source })
}

fn port_table(
    instance: &str,
    port_mapper: SocketAddr,
    jms: SocketAddr,
    admin: SocketAddr,
) -> Result<Vec<u8>, StartError> {
    let entry = |name: &str, kind: &str, address: SocketAddr| TableEntry {
        name: name.into(),
        protocol: "tcp".into(),
        kind: kind.into(),
        port: address.port(),
        properties: vec![("hostname".into(), address.ip().to_string())],
    };
    let table = PortTable {
        instance: instance.into(),
        packet_version: VERSION.to_string(),
        services: vec![
            entry("portmapper", "PORTMAPPER", port_mapper),
            entry(Service::Admin.name(), Service::Admin.kind(), admin),
            entry(Service::Jms.name(), Service::Jms.kind(), jms),
        ],
    };
    Ok(table.encode()?)
}
