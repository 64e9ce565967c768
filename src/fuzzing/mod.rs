//! What the fuzz targets do, so that plain tests replay their seeds.
//!
//! A body takes any bytes, never panics by itself, and asserts what must hold for all of them. Its
//! target in `fuzz/` is one line; its seeds are a directory of `tests/seeds` with its name.

#[cfg(feature = "broker")]
mod admin_ops;
#[cfg(feature = "broker")]
mod broker_ops;
mod decode_packet;
#[cfg(feature = "broker")]
mod selector;

#[cfg(feature = "broker")]
pub use admin_ops::admin_ops;
#[cfg(feature = "broker")]
pub use broker_ops::broker_ops;
pub use decode_packet::decode_packet;
#[cfg(feature = "broker")]
pub use selector::selector;

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    /// Runs a body on its seeds, and on every seed with one byte changed or the end cut off.
    fn replay(target: &str, body: fn(&[u8])) {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds").join(target);
        let mut seeds = 0;
        for entry in fs::read_dir(&directory).unwrap() {
            let seed = fs::read(entry.unwrap().path()).unwrap();
            body(&seed);
            // A changed byte in the middle of a long text says nothing new.
            for at in (0..seed.len()).step_by(1 + seed.len() / 128) {
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

    #[test]
    fn decode_packet_holds_for_its_seeds() {
        replay("decode_packet", super::decode_packet);
    }
    #[test]
    #[cfg(feature = "broker")]
    fn selector_holds_for_its_seeds() {
        replay("selector", super::selector);
    }
}
