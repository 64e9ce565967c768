//! The wire protocol: bytes to packets and back, without a socket, a clock or a lock.
//!
//! A connection carries back-to-back packets, each a fixed header of 72 bytes, a variable header,
//! a property table and a body. [`Decoder`] cuts a byte stream into [`Packet`]s at any split;
//! [`PacketBuilder`] writes new ones; [`delivery`] rewrites a message for its consumer without
//! touching its body.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod builder;
#[cfg(feature = "cli")]
pub mod capture;
mod codec;
pub mod delivery;
mod error;
mod flags;
mod header;
pub mod java;
pub mod limits;
mod packet;
mod packet_type;
pub mod portmapper;
mod property;
mod status;
mod text;
mod variable;

pub(crate) use builder::put_head;
pub use builder::{PacketBuilder, put_status_reply};
pub use codec::{Decoder, Frame};
pub use error::DecodeError;
pub use flags::Flags;
pub use header::{HEADER_LEN, Header, MAGIC, MessageId, VERSION};
pub use packet::Packet;
pub use packet_type::PacketType;
pub use property::{Properties, PropertyError, PropertyTable, RawProperty, Value};
pub use status::Status;
#[cfg(feature = "broker")]
pub(crate) use text::RawText;
pub(crate) use text::encoded_len;
pub use text::{decode_text, encode_text};
pub use variable::{Padding, VariableHeader};
