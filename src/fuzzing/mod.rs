//! What the fuzz targets do, so that plain tests replay their seeds.
//!
//! A body takes any bytes, never panics by itself, and asserts what must hold for all of them. Its
//! target in `fuzz/` is one line; its seeds are a directory of `tests/seeds` with its name.

#[cfg(feature = "broker")]
mod admin_ops;
#[cfg(feature = "broker")]
mod broker_ops;
#[cfg(feature = "client")]
mod client_ops;
mod decode_packet;
#[cfg(feature = "broker")]
mod selector;
#[cfg(feature = "store-json")]
mod store_recovery;

#[cfg(feature = "broker")]
pub use admin_ops::admin_ops;
#[cfg(feature = "broker")]
pub use broker_ops::{Reached, Times, broker_ops, broker_ops_reached};
#[cfg(feature = "client")]
pub use client_ops::{ClientReached, Outcomes, client_ops, client_ops_missed, client_ops_reached};
pub use decode_packet::decode_packet;
#[cfg(feature = "broker")]
pub use selector::selector;
#[cfg(feature = "store-json")]
pub use store_recovery::store_recovery;

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    /// Runs a body on its seeds, and on every seed with one byte changed or the end cut off.
    fn replay(target: &str, body: fn(&[u8])) {
        replay_at(target, 128, body);
    }

    /// As [`replay`], with so many places of each seed changed or cut at most.
    fn replay_at(target: &str, places: usize, body: fn(&[u8])) {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds").join(target);
        let mut seeds = 0;
        for entry in fs::read_dir(&directory).unwrap() {
            let seed = fs::read(entry.unwrap().path()).unwrap();
            body(&seed);
            // A changed byte in the middle of a long text says nothing new.
            for at in (0..seed.len()).step_by(1 + seed.len() / places) {
                let mut changed = seed.clone();
                changed[at] ^= 0x81;
                body(&changed);
                body(&seed[..at]);
            }
            seeds += 1;
        }
        assert!(seeds > 0, "{} has no seeds", directory.display());
    }

    #[test]
    #[cfg(feature = "broker")]
    fn admin_ops_holds_for_its_seeds() {
        replay("admin_ops", super::admin_ops);
    }

    #[test]
    #[cfg(feature = "broker")]
    fn broker_ops_holds_for_its_seeds() {
        replay("broker_ops", super::broker_ops);
    }

    /// Prints how far the seeds come, or the inputs in the directory `TIDEGATE_CORPUS`.
    #[test]
    #[cfg(feature = "broker")]
    #[allow(clippy::print_stdout, reason = "the table is for people")]
    fn the_seeds_of_broker_ops_reach_every_packet_a_client_may_send() {
        use crate::wire::PacketType;

        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds/broker_ops");
        let corpus = std::env::var_os("TIDEGATE_CORPUS").map_or(seeds, Into::into);
        let mut reached = super::Reached::default();
        for entry in fs::read_dir(&corpus).unwrap() {
            reached.add(&super::broker_ops_reached(&fs::read(entry.unwrap().path()).unwrap()));
        }
        println!("{reached}");
        let requests = (0..80).map(PacketType).filter(|kind| {
            let ignored = [
                PacketType::NULL,
                PacketType::ERROR,
                PacketType::INFO,
                // Never answered, or only by what comes later.
                PacketType::START,
                PacketType::REDELIVER,
                PacketType::RESUME_FLOW,
                PacketType::FLOW_PAUSED,
                PacketType::INFO_REQUEST,
                PacketType::DEBUG,
            ];
            kind.name().is_some() && !kind.is_reply() && !ignored.contains(kind)
        });
        let missed: Vec<_> = requests.filter(|kind| reached.times(*kind).done == 0).collect();
        assert!(missed.is_empty(), "nothing in {} carries out {missed:?}", corpus.display());
        for kind in [PacketType::START, PacketType::REDELIVER, PacketType::RESUME_FLOW] {
            assert!(reached.times(kind).sent > 0, "{kind}");
        }
        let received = [PacketType::TEXT_MESSAGE, PacketType::RESUME_FLOW];
        assert!(received.iter().all(|kind| reached.times(*kind).received > 0));
    }

    #[test]
    #[cfg(feature = "client")]
    fn client_ops_holds_for_its_seeds() {
        // Each run starts a thread, and waits in vain at times.
        replay_at("client_ops", 24, super::client_ops);
    }

    /// Prints how far the seeds come, or the inputs in the directory `TIDEGATE_CORPUS`.
    #[test]
    #[cfg(feature = "client")]
    #[allow(clippy::print_stdout, reason = "the table is for people")]
    fn the_seeds_of_client_ops_reach_every_operation_and_packet() {
        use crate::wire::PacketType;

        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds/client_ops");
        let corpus = std::env::var_os("TIDEGATE_CORPUS").map_or(seeds, Into::into);
        let mut reached = super::ClientReached::default();
        for entry in fs::read_dir(&corpus).unwrap() {
            reached.add(&super::client_ops_reached(&fs::read(entry.unwrap().path()).unwrap()));
        }
        println!("{reached}");
        let missed = super::client_ops_missed(&reached);
        assert!(missed.is_empty(), "nothing in {} reaches {missed:?}", corpus.display());
        // Nobody asks for these, or needs an answer.
        let ignored = [
            PacketType::NULL,
            PacketType::GET_LICENSE,
            PacketType::GET_LICENSE_REPLY,
            PacketType::GENERATE_UID,
            PacketType::GENERATE_UID_REPLY,
            PacketType::VERIFY_TRANSACTION,
            PacketType::INFO_REQUEST,
            PacketType::FLOW_PAUSED,
        ];
        for kind in PacketType::all().filter(|kind| !ignored.contains(kind)) {
            let of_broker = kind.is_reply() || kind.is_message();
            let (said, heard) = (reached.times_said(kind), reached.times_heard(kind));
            assert!(!of_broker || said > 0, "the client was never told {kind}");
            assert!(said + heard > 0, "nobody ever said {kind}");
        }
    }

    #[test]
    fn decode_packet_holds_for_its_seeds() {
        replay("decode_packet", super::decode_packet);
    }
    #[test]
    #[cfg(feature = "broker")]
    fn selector_holds_for_its_seeds() {
        replay("selector", super::selector);
    }

    #[test]
    #[cfg(feature = "store-json")]
    fn store_recovery_holds_for_its_seeds() {
        replay("store_recovery", super::store_recovery);
    }
}
