//! Models of everything tidegate's threads share. See `README.md` of this package.
#![cfg(loom)]

mod buffer;
mod canaries;
mod gate;
mod mailbox;
mod snapshot;
mod support;
mod throttle;
mod window;
