//! Flow control: credit for consumers and producers, and metered batches of a connection.
//!
//! Four meters, each independent of the others, keep a fast sender from drowning a slow receiver
//! and keep control packets from waiting behind messages:
//!
//! - [`Window`] counts on the side that **sends**: what one consumer (or producer) may still get.
//!   Its last packet is marked, then it is paused until the receiver asks for more.
//! - [`Buffer`] counts on the side that **receives**: what waits for the application, and the one
//!   moment at which to ask for more. One type serves the limit of a consumer and of a connection.
//! - [`Meter`] cuts the messages of one connection into batches, whoever they are for.
//! - [`FlowSettings`] are the settings of a connection under their usual names.
//!
//! Nothing here knows a socket, a clock or a packet. A window and its buffer, end to end:
//!
//! ```
//! use tidegate::flow::{Buffer, BufferSettings, Credit, Window};
//!
//! let window = Window::new(Credit::Limited(4));
//! let buffer = Buffer::new(BufferSettings::consumer(Credit::Limited(4), 50)?);
//! // The sender fills the window; the fourth message is the last and carries the mark.
//! for _ in 0..4 {
//!     let taken = window.try_take().expect("four were granted");
//!     assert!(buffer.delivered(taken.last()).is_none());
//! }
//! assert!(window.try_take().is_none());
//! // Half of them consumed: the receiver asks once, for what fits.
//! assert!(buffer.consumed().is_none());
//! let resume = buffer.consumed().expect("two of four are left, that is half");
//! assert_eq!(resume.size, 2);
//! assert!(window.resume(Credit::Limited(resume.size)).was_paused);
//! # Ok::<(), tidegate::SettingError>(())
//! ```

mod buffer;
mod credit;
mod meter;
mod settings;
mod window;

pub use buffer::{Buffer, BufferSettings, Resume};
pub use credit::Credit;
pub use meter::{Admitted, Meter};
pub use settings::FlowSettings;
pub use window::{Resumed, Taken, Window};
