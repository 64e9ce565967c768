//! Models of everything tidegate's threads share. See `README.md` of this package.
#![cfg(loom)]

mod buffer;
mod canaries;
mod commit;
mod demand;
mod gate;
mod helm;
mod holders;
mod lanes;
mod mailbox;
mod outlet;
mod pipe;
mod pool_shared;
mod pool_slot;
mod pool_turn;
mod replies;
mod reserve;
mod snapshot;
mod support;
mod throttle;
mod waiting;
mod watch;
mod window;
