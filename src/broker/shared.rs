//! What all loops of a broker share.

use std::net::SocketAddr;

use crate::proto::broker_in::Greeting;

use super::{
    accounts::Accounts,
    client_ids::ClientIds,
    config::{Administered, BrokerConfig},
    connection::CONNECTION_CREDIT,
    connections::{Connections, Service},
    ids::Ids,
    registry::Registry,
    stats::Stats,
};

/// Shared by all loops.
#[derive(Debug)]
pub(super) struct Shared {
    /// Settings, as they were at the start.
    pub config: BrokerConfig,
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
    broker_session: i64,
    address_list: String,
}

impl Shared {
    /// For a broker whose port mapper and service have these addresses.
    pub(super) fn new(
        config: BrokerConfig,
        accounts: Accounts,
        ids: Ids,
        port_mapper: SocketAddr,
    ) -> Self {
        let broker_session = ids.next_id();
        let registry = Registry::default();
        for Administered { kind, name, attributes } in &config.administered {
            if registry.ensure(*kind, name, None, attributes.clone()).is_none() {
                tracing::error!(%kind, name, "not made: there are too many destinations");
            }
        }
        Self {
            config,
            accounts,
            connections: Connections::default(),
            registry,
            ids,
            stats: Stats::default(),
            client_ids: ClientIds::default(),
            broker_session,
            address_list: format!("mq://{port_mapper}/"),
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
            producer_credit: CONNECTION_CREDIT,
            producer_credit_bytes: -1,
            message_bytes_max: i64::from(self.config.packet_bytes_max),
            nonce,
        }
    }
}
