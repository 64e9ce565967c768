//! What all loops of a broker share.

use std::net::SocketAddr;

use crate::{
    proto::broker_in::Greeting,
    sync::{Arc, Snapshot, Waiting},
    wire::Status,
};

use super::{
    accounts::Accounts,
    admin,
    client_ids::ClientIds,
    config::{Administered, BrokerConfig},
    connections::{Connections, Service},
    coordinator::Coordinator,
    destination::{Destination, Kind, Origin},
    ids::Ids,
    memory::Memory,
    output::Output,
    persist::Persist,
    registry::Registry,
    room::Refused,
    server::{LoopMailbox, Mail},
    stats::Stats,
    subscription::Subscriptions,
    transaction::Limits,
};

/// Name of the queue of dead messages.
pub(super) const DEAD_MESSAGE_QUEUE: &str = "mq.sys.dmq";

/// Where a broker is reached.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    /// The port mapper.
    pub port_mapper: SocketAddr,
    /// The service for applications.
    pub jms: SocketAddr,
    /// The service for administrators.
    pub admin: SocketAddr,
}

/// Shared by all loops.
#[derive(Debug)]
pub(super) struct Shared {
    /// Settings, as they were at the start.
    pub config: BrokerConfig,
    /// Settings, as administrators have changed them meanwhile; for those that may be changed.
    pub live: Snapshot<BrokerConfig>,
    /// Who may log in.
    pub accounts: Accounts,
    /// Who is connected.
    pub connections: Connections,
    /// All destinations.
    pub registry: Registry,
    /// Makes ids.
    pub ids: Ids,
    /// Counts.
    pub stats: Stats,
    /// Client ids in use.
    pub client_ids: ClientIds,
    /// Subscriptions that stand for themselves.
    pub subscriptions: Subscriptions,
    /// Transactions.
    pub coordinator: Coordinator,
    /// Where persistent messages are stored; nowhere if this broker has no store.
    pub persist: Option<Persist>,
    /// Messages and bytes of all destinations.
    pub memory: Memory,
    /// The queue of dead messages.
    pub dmq: Arc<Destination>,
    /// Where administrators leave their requests. It is not among the others.
    pub entrance: Arc<Destination>,
    /// The loops, once there are any.
    loops: Snapshot<Vec<LoopMailbox>>,
    addresses: Addresses,
    /// Connections that wait for credit until there is memory for it, each at most once: they send
    /// nothing meanwhile.
    pub starved: Waiting<Arc<Output>>,
    broker_session: i64,
    address_list: String,
}

impl Shared {
    /// For a broker that is reached at these addresses.
    pub(super) fn new(
        config: BrokerConfig,
        accounts: Accounts,
        ids: Ids,
        addresses: Addresses,
        persist: Option<Persist>,
    ) -> Self {
        let broker_session = ids.next_id();
        let registry = Registry::default();
        for Administered { kind, name, attributes } in &config.administered {
            let made = registry.ensure(*kind, name, Origin::Administered, || attributes.clone());
            if made.is_none() {
                tracing::error!(%kind, name, "not made: there are too many destinations");
            }
        }
        let dmq =
            Destination::new(DEAD_MESSAGE_QUEUE, Kind::Queue, Origin::Dead, config.dmq.clone());
        let dmq = Arc::new(dmq);
        registry.insert(&dmq);
        let (messages, acks) = (config.transaction_messages_max, config.transaction_acks_max);
        Self {
            subscriptions: Subscriptions::default(),
            coordinator: Coordinator::new(Limits::new(messages, acks)),
            persist,
            memory: Memory::new(config.memory_max, config.messages_max, config.total_bytes_max)
                .with_bodies_max(config.store_memory_max),
            dmq,
            entrance: admin::entrance(),
            loops: Snapshot::new(Vec::new()),
            address_list: format!("mq://{}/", addresses.port_mapper),
            addresses,
            live: Snapshot::new(config.clone()),
            starved: Waiting::default(),
            config,
            accounts,
            connections: Connections::default(),
            registry,
            ids,
            stats: Stats::default(),
            client_ids: ClientIds::default(),
            broker_session,
        }
    }

    /// The loops are these from now on.
    pub(super) fn set_loops(&self, loops: Vec<LoopMailbox>) {
        self.loops.publish(loops);
    }

    /// The loops; none where a broker is run by hand.
    pub(super) fn loops(&self) -> Arc<Vec<LoopMailbox>> {
        self.loops.load_full()
    }

    /// Has all loops end in order.
    pub(super) fn shut_down(&self) {
        self.loops().iter().for_each(|mailbox| mailbox.send(Mail::Shutdown));
    }

    /// Where a service is reached.
    pub(super) const fn address(&self, service: Service) -> SocketAddr {
        match service {
            Service::Jms => self.addresses.jms,
            Service::Admin => self.addresses.admin,
        }
    }

    /// What a new connection is told.
    pub(super) fn greeting(
        &self,
        connection_id: i64,
        service: Service,
        nonce: [u8; 16],
    ) -> Greeting {
        Greeting {
            connection_id,
            broker_session: self.broker_session,
            service: service.name().into(),
            address_list: self.address_list.clone(),
            authentication: self.config.authentication,
            producer_credit: self.memory.credit(),
            producer_credit_bytes: -1,
            message_bytes_max: i64::from(self.config.packet_bytes_max),
            nonce,
        }
    }

    /// Whether the broker takes another message of so many bytes.
    ///
    /// # Errors
    /// What its producer is told.
    pub(super) fn has_room_for(&self, bytes: u64) -> Result<(), Refused> {
        self.memory.refusal(bytes).map_or(Ok(()), |why| Err((Status::RESOURCE_FULL, why)))
    }

    /// How long an auto-created destination stays that nobody uses, in milliseconds.
    pub(super) fn reap_time_ms(&self) -> i64 {
        let time = self.live.read(|live| live.autocreate_reap_time);
        i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Topics and their subscriptions know each other, and so do messages and their topics.
        let subscriptions = self.subscriptions.clear();
        for destination in self.registry.all().into_iter().chain(subscriptions) {
            destination.dissolve();
        }
    }
}
