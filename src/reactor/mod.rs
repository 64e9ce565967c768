//! The event loop: readiness, deadlines, mail and idling, without a word of any protocol.
//!
//! A loop owns its poller, a heap of deadlines and a mailbox; its [`Handler`] owns everything
//! else. This is the only place that reads a clock for the broker.

mod calls;
mod event_loop;
mod idle;
mod read_buffer;
mod timer;
mod token;
mod transport;

#[cfg(feature = "unstable-internals")]
pub use calls::system_calls;
pub use event_loop::{EventLoop, Handler, Io, Next, PollWaker, Readiness, wall_ms};
pub use idle::Idle;
pub use read_buffer::ReadBuffer;
pub use token::{Key, Slots};
pub use transport::{Tcp, Transport};
