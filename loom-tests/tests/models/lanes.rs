//! `sync/lanes.rs`: what was left in the fast lane before the slow one is seen before it (L1).

use loom::{sync::Arc, thread};
use tidegate::internals::sync::{Inbox, Lanes};

use crate::support::{Canary, canary, model};

pub const CANARIES: &[Canary] = &[canary("lanes.order", "lanes::fast_lane_overtakes")];

/// What the runner does with the two lanes: keeps the slow one back, writes it last.
#[derive(Default)]
struct Written {
    held: Vec<&'static str>,
    out: Vec<&'static str>,
}

type Line = Lanes<&'static str, &'static str, Written>;

fn enter(line: &Line) {
    line.enter(
        &mut (),
        |written, item| written.held.push(item),
        |written, item, ()| written.out.push(item),
        |written, ()| {
            let held = std::mem::take(&mut written.held);
            written.out.extend(held);
        },
    );
}

#[test]
fn fast_lane_overtakes() {
    model("fast_lane_overtakes", || {
        let line: Arc<Line> = Arc::new(Lanes::new(Written::default()));
        let destination = Arc::new(Inbox::new());
        // Somebody is inside for a reason of its own.
        let writer = {
            let line = Arc::clone(&line);
            thread::spawn(move || enter(&line))
        };
        // The destination's runner, which the request reaches behind its reply.
        let dispatcher = {
            let (line, destination) = (Arc::clone(&line), Arc::clone(&destination));
            thread::spawn(move || {
                if destination.pop().is_some() {
                    line.push_slow("message");
                    enter(&line);
                }
            })
        };
        line.push_fast("reply");
        destination.push(());
        enter(&line);
        writer.join().unwrap();
        dispatcher.join().unwrap();
        line.enter(
            &mut (),
            |_, _| {},
            |_, _, ()| {},
            |written, ()| {
                let dispatched = written.out.len() == 2;
                assert!(
                    written.out == ["reply"] || dispatched && written.out == ["reply", "message"],
                    "{:?}",
                    written.out
                );
            },
        );
    });
}
