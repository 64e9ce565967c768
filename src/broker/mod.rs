//! An embeddable broker that speaks the wire protocol.
//!
//! ```
//! use tidegate::broker::Broker;
//!
//! let broker = Broker::builder().listen(([127, 0, 0, 1], 0).into()).start()?;
//! println!("mq://{}/jms", broker.port_mapper_address());
//! broker.shutdown();
//! # Ok::<(), tidegate::broker::StartError>(())
//! ```
//!
//! Persistent messages are stored in the directory of [`BrokerBuilder::data`], or in the store of
//! [`BrokerBuilder::start_with`]; without either they live in memory as all others do, and a restart
//! loses them. A message that was delivered and not acknowledged comes back, flagged, when its
//! connection dies, or the broker does.

#![forbid(unsafe_code)]

mod accounts;
mod admin;
mod ahead;
mod arrival;
mod attributes;
mod backlog;
mod browse;
mod burial;
mod client_ids;
mod command;
mod config;
mod connection;
mod connections;
mod consumer;
mod coordinator;
mod database_url;
mod dead;
#[cfg(any(test, feature = "unstable-internals"))]
pub(crate) mod desk;
mod destination;
mod dispatch;
mod gather;
mod ids;
mod in_flight;
mod limits;
mod membership;
mod memory;
mod opening;
mod output;
mod persist;
mod port_mapper;
mod producers;
mod recent;
mod recovery;
mod registry;
mod room;
mod server;
mod settings;
mod settle;
mod shared;
mod side;
mod spare;
mod start;
mod stats;
mod stored;
mod subscription;
mod transaction;
mod turn;
mod value;
mod wildcard;

pub use accounts::AccountsError;
pub use attributes::{Attributes, LimitBehavior};
pub use config::{Administered, BrokerConfig, ConfigError, SyncMode};
pub use database_url::DatabaseUrl;
pub use recovery::RecoveryReport;
pub use start::{
    Broker, BrokerBuilder, BrokerEnd, BrokerSnapshot, ConsumerSnapshot, DestinationSnapshot,
    StartError,
};

pub use crate::{
    in_process::InProcess, message::DestinationKind, proto::broker_in::Authentication,
    reactor::Idle,
};
