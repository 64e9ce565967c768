//! What an application sends and receives, whatever the wire: a body, headers, typed properties.
//!
//! | body | made by | read by |
//! | --- | --- | --- |
//! | text | [`Message::text`] | [`Message::body_text`] |
//! | bytes | [`Message::bytes`] | [`Message::body_bytes`] |
//! | map of named values | [`Message::map`] | [`Message::body`], [`MapBody::value_as`] |
//! | stream of values | [`Message::stream`] | [`Message::body`], [`StreamReader`] |
//! | serialized Java object, not looked into | [`Message::object`] | [`Message::body_bytes`] |
//! | none | [`Message::plain`] | – |
//!
//! # Invariants
//! - A received message shares the bytes it came in: nothing is copied or decoded before it is
//!   asked for, and what cannot be decoded is an error of that part alone.
//! - What cannot be said on the wire is an error where it is set, so that sending loses nothing.
#![forbid(unsafe_code)]

mod body;
mod compress;
mod convert;
mod destination;
pub mod dump;
mod error;
pub(crate) mod identifier;
mod items;
#[expect(clippy::module_inception, reason = "the file of the type the module is about")]
mod message;
mod number;
mod outgoing;

pub use body::{Body, BodyKind, MapBody, StreamItem};
pub use convert::FromProperty;
pub use destination::{Destination, DestinationError, DestinationKind};
pub use error::{BodyError, MessageError, ReadPropertyError};
pub use items::{FromItem, ReadItemError, StreamReader};
pub use message::{DeliveryMode, Message};
pub use outgoing::Origin;
pub(crate) use outgoing::Outgoing;
