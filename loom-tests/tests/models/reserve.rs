//! `sync/reserve.rs`: no more is kept than fits, and a place closes over nobody.
//!
//! There is no edge to break: one word decides. A version that looks first and takes then fails
//! both models.

use loom::{sync::Arc, thread};
use tidegate::internals::sync::{Kept, Reserve};

use crate::support::model;

fn keep(reserve: &Reserve, max: u64) -> Result<(), &'static str> {
    reserve.keep(10, || "closed", |kept| if kept.count < max { Ok(()) } else { Err("full") })
}

#[test]
fn no_more_is_kept_than_fits() {
    model("no_more_is_kept_than_fits", || {
        let reserve = Arc::new(Reserve::new());
        let other = {
            let reserve = Arc::clone(&reserve);
            thread::spawn(move || keep(&reserve, 2).is_ok())
        };
        let mine = [keep(&reserve, 2), keep(&reserve, 2)];
        let kept =
            mine.iter().filter(|kept| kept.is_ok()).count() + usize::from(other.join().unwrap());
        assert!(kept == 1 || kept == 2, "{kept} where two fit");
        let count = kept as u64;
        assert_eq!(reserve.kept(), Kept { count, bytes: 10 * count }, "the others gave back");
        for _ in 0..kept {
            reserve.give_back(10);
        }
        assert_eq!(reserve.kept(), Kept { count: 0, bytes: 0 });
        assert!(keep(&reserve, 1).is_ok());
    });
}

#[test]
fn a_place_closes_over_nobody() {
    model("a_place_closes_over_nobody", || {
        let reserve = Arc::new(Reserve::new());
        let keeper = {
            let reserve = Arc::clone(&reserve);
            thread::spawn(move || keep(&reserve, 1))
        };
        let closed = reserve.close_if_free();
        let kept = keeper.join().unwrap();
        assert_eq!(kept, if closed { Err("closed") } else { Ok(()) });
        assert_eq!(reserve.kept().count, u64::from(!closed));
        reserve.close();
        assert!(reserve.close_if_free(), "closed is closed");
        assert_eq!(keep(&reserve, 9), Err("closed"));
    });
}
