//! `sync/holders.rs`: of all that let go, exactly one is the last (H1).

use loom::{sync::Arc, thread};
use tidegate::internals::sync::Holders;

use crate::support::{Canary, canary, model};

pub const CANARIES: &[Canary] = &[canary("holders.release", "holders::the_last_one_knows")];

#[test]
fn the_last_one_knows() {
    model("the_last_one_knows", || {
        let holders = Arc::new(Holders::default());
        holders.set(3);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let holders = Arc::clone(&holders);
                thread::spawn(move || holders.release())
            })
            .collect();
        let own = holders.release();
        let last: usize = others.into_iter().map(|one| usize::from(one.join().unwrap())).sum();
        assert_eq!(last + usize::from(own), 1, "one of them, and only one");
        assert!(!holders.any());
    });
}
