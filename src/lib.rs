//! Low-latency messaging runtime for servers.
//!
//! Four parts that work alone and together. Three are lock-free cores without sockets, threads or
//! a clock of their own, and all there is with `default-features = false`:
//!
//! - [`flow`]: credit for consumers and metering for connections;
//! - [`pool`]: one set of connections shared by many sessions, assigned by lowest usage count;
//! - [`throttle`]: concurrency of a channel that backs off while a store reports stress.
//!
//! The fourth is messaging over the Open Message Queue wire protocol: `client` and `broker`, on
//! `message` and `wire`. Both ends are features, on by default.
//!
//! # Tour
//!
//! **Connect.** A factory knows addresses and settings; a connection has sessions, a session is
//! the scope of order and acknowledgement. Here the broker is in the same process.
//!
#![cfg_attr(all(feature = "client", feature = "broker"), doc = "```")]
#![cfg_attr(not(all(feature = "client", feature = "broker")), doc = "```ignore")]
//! use std::time::Duration;
//!
//! use tidegate::{
//!     broker::Broker,
//!     client::{AcknowledgeMode, ConnectionFactory},
//!     message::{DeliveryMode, Destination, Message},
//! };
//!
//! let broker = Broker::builder().listen(([127, 0, 0, 1], 0).into()).start()?;
//! let mut factory = ConnectionFactory::new();
//! factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;
//! let connection = factory.create_connection()?;
//! let session = connection.create_session(AcknowledgeMode::Client)?;
//! let queue = Destination::queue("orders")?;
//!
//! // Send. A persistent message is answered before `send` returns; a refused one comes back.
//! let mut producer = session.create_producer(&queue)?;
//! producer.set_delivery_mode(DeliveryMode::Persistent);
//! producer.send(Message::text("three apples"))?;
//!
//! // Receive. Nothing is delivered before the connection is started.
//! let consumer = session.create_consumer(&queue)?;
//! connection.start()?;
//! let message = consumer.receive_timeout(Duration::from_secs(5))?.expect("it was sent");
//! assert_eq!(message.body_text()?.as_deref(), Some("three apples"));
//!
//! // Acknowledge: all that this session has been given so far. What is not acknowledged when its
//! // connection ends is delivered again, flagged.
//! session.acknowledge()?;
//! connection.close()?;
//! broker.shutdown();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Flow control.** A consumer has a window: the broker sends so many messages ahead, marks the
//! last one, and sends no more until the client says that there is room. A connection is metered in
//! batches in the same way, so that control packets get through. A producer has credit from its
//! destination. A slow consumer therefore holds its window and nothing else.
//!
//! **Failure.** An error says what happened, to what, and whether trying again makes sense. A lost
//! connection ends every wait on it with its reason; the broker puts what it had been given and had
//! not acknowledged back in its place.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(feature = "client", not(loom)))]
pub mod client;
pub mod flow;
#[cfg(all(feature = "wire", not(loom), any(test, feature = "unstable-internals")))]
#[doc(hidden)]
pub mod fuzzing;
pub mod pool;
mod setting;
pub mod throttle;

pub use setting::SettingError;

#[allow(
    unreachable_pub,
    dead_code,
    unused_imports,
    reason = "models, fuzzers and benches see more than users do"
)]
mod sync;

#[cfg(all(feature = "broker", not(loom)))]
pub mod broker;
#[cfg(all(any(feature = "client", feature = "broker"), not(loom)))]
#[allow(dead_code, reason = "each side of a connection uses its half")]
mod in_process;
#[cfg(all(feature = "wire", not(loom)))]
pub mod message;
#[cfg(all(feature = "wire", not(loom)))]
#[allow(unreachable_pub, dead_code, reason = "each side of a connection uses its half")]
mod proto;
#[cfg(all(feature = "broker", not(loom)))]
#[allow(unreachable_pub, dead_code, reason = "models, fuzzers and benches see more than users do")]
mod reactor;
#[cfg(all(feature = "broker", not(loom)))]
pub mod selector;
#[cfg(all(feature = "broker", not(loom)))]
pub mod store;
#[cfg(all(feature = "wire", not(loom)))]
pub mod wire;

#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub mod internals {
    //! What models, fuzzers and benches need and users don't. No promise about any of it.
    #[cfg(all(feature = "broker", not(loom)))]
    pub use crate::broker::desk::Desk;
    #[cfg(all(feature = "wire", not(loom)))]
    pub use crate::proto::auth;
    #[cfg(all(feature = "broker", not(loom)))]
    pub use crate::reactor::system_calls;
    pub mod pool {
        //! The steps of a pool without its connections.
        pub use crate::pool::parts::{
            Assigned, Granted, Left, Place, Released, Settled, Slot, State, Surplus, Table,
            TurnQueue, Waiting, Word,
        };
    }
    pub mod sync {
        //! The facade over what threads share, and what is built from it alone.
        pub use crate::sync::{
            Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Back, Closed, Demand, Entered,
            Front, Gate, Helm, Holders, Inbox, Kept, Lanes, Mailbox, Ordering, Outlet, Pipe, Queue,
            ReplyTable, Reserve, Signal, Snapshot, Ticket, UnsafeCell, Waiting, Wake, Watch,
            block_on, broken, edge, fence, fence_edge, sized, spin,
        };
    }
}

#[cfg(all(doctest, feature = "client", feature = "broker"))]
#[doc = include_str!("../README.md")]
mod readme {}
