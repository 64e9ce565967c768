//! What all loops of a broker share.

use std::{collections::HashMap, net::SocketAddr};

use crate::{proto::broker_in::Greeting, sync::Snapshot};

use super::{
    accounts::Accounts, config::BrokerConfig, connection::CONNECTION_CREDIT, ids::Ids,
    registry::Registry, stats::Stats,
};

/// Name of the service for applications.
pub(super) const SERVICE: &str = "jms";

/// Shared by all loops.
#[derive(Debug)]
pub(super) struct Shared {
    /// Settings, as they were at the start.
    pub config: BrokerConfig,
    /// Who may log in.
    pub accounts: Accounts,
    /// All destinations.
    pub registry: Registry,
    /// Makes ids.
    pub ids: Ids,
    /// Counts.
    pub stats: Stats,
    /// Client ids in use, each with its connection. Changed once a connection at most.
    client_ids: Snapshot<HashMap<String, i64>>,
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
        Self {
            config,
            accounts,
            registry: Registry::default(),
            ids,
            stats: Stats::default(),
            client_ids: Snapshot::new(HashMap::new()),
            broker_session,
            address_list: format!("mq://{port_mapper}/"),
        }
    }

    /// What a new connection is told.
    pub(super) fn greeting(&self, connection_id: i64, nonce: [u8; 16]) -> Greeting {
        Greeting {
            connection_id,
            broker_session: self.broker_session,
            service: SERVICE.into(),
            address_list: self.address_list.clone(),
            authentication: self.config.authentication,
            producer_credit: CONNECTION_CREDIT,
            producer_credit_bytes: -1,
            message_bytes_max: i64::from(self.config.packet_bytes_max),
            nonce,
        }
    }

    /// Takes a client id for a connection; `false` if another one has it.
    pub(super) fn take_client_id(&self, id: &str, connection_id: i64) -> bool {
        let (_, taken) = self.client_ids.update(|ids| {
            if ids.contains_key(id) {
                return None;
            }
            let mut next = ids.clone();
            next.insert(id.to_owned(), connection_id);
            Some(next)
        });
        taken.is_some()
    }

    /// Frees a client id, if this connection has it.
    pub(super) fn release_client_id(&self, id: &str, connection_id: i64) {
        let _released = self.client_ids.update(|ids| {
            (ids.get(id) == Some(&connection_id)).then(|| {
                let mut next = ids.clone();
                next.remove(id);
                next
            })
        });
    }
}
