//! `sync/demand.rs`: whoever comes is served, whoever else comes or goes (D1).

use loom::{sync::Arc, thread};
use tidegate::internals::sync::Demand;

use crate::support::{Canary, canary, model};

pub const CANARIES: &[Canary] = &[canary("demand.come", "demand::demand_is_served")];

#[test]
fn demand_is_served() {
    model("demand_is_served", || {
        let demand = Arc::new(Demand::new());
        let other = Arc::clone(&demand);
        let thread = thread::spawn(move || other.come());
        // One that is missed sleeps for ever, which ends the model.
        demand.await_somebody(|| false, None);
        assert!(demand.is_there());
        thread.join().unwrap();
    });
}

#[test]
fn demand_is_served_while_others_come_and_go() {
    model("demand_is_served_while_others_come_and_go", || {
        let demand = Arc::new(Demand::new());
        let passing = {
            let demand = Arc::clone(&demand);
            thread::spawn(move || {
                demand.come();
                demand.leave();
            })
        };
        let staying = {
            let demand = Arc::clone(&demand);
            thread::spawn(move || demand.come())
        };
        // Woken for one that has gone again, it looks once more.
        while !demand.is_there() {
            demand.await_somebody(|| false, None);
        }
        passing.join().unwrap();
        staying.join().unwrap();
        assert!(demand.is_there());
    });
}
