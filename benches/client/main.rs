//! The client beside a bare socket, against a peer that speaks just enough of the protocol.
//!
//! `cargo bench --bench client` measures every row; one word filters by name, `--quick` takes a
//! first look, `--test` runs each row once. The program starts itself again for each part, as the
//! bench `broker` does, and shares with it what starts, tells and ends the parts.
//! `benches/README.md` says what each row measures.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures time, prints, and stops at the first surprise"
)]

mod bare;
#[path = "../broker/duty.rs"]
mod duty;
mod library;
#[path = "../broker/link.rs"]
#[allow(dead_code, reason = "the bench of the broker uses the rest")]
mod link;
#[path = "../broker/parts.rs"]
#[allow(dead_code, reason = "as above")]
mod parts;
mod peer;
mod plan;
#[path = "../broker/report.rs"]
mod report;
mod rows;
mod runs;
#[path = "../../tests/support/scripted.rs"]
mod scripted;
#[path = "../broker/times.rs"]
mod times;

use duty::Duty;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("part") {
        let name = arguments.next().expect("which part");
        return play(&name, &Duty::begin(arguments));
    }
    rows::run(&plan::Plan::from_arguments(std::env::args().skip(1)));
}

/// What a process does that was started for one part.
fn play(name: &str, duty: &Duty) {
    match name {
        "echo" => peer::echo(duty),
        "sink" => peer::sink(duty),
        "source" => peer::source(duty),
        "bare echo" => bare::echo(duty),
        "bare sink" => bare::sink(duty),
        "relay" => bare::relay(duty),
        "requester" => library::requester(duty),
        "listening requester" => library::listening_requester(duty),
        "in-process requester" => library::in_process_requester(duty),
        "sender" => library::sender(duty),
        "lone sender" => library::lone_sender(duty),
        "taker" => library::taker(duty),
        "bare requester" => bare::requester(duty),
        "bare sender" => bare::sender(duty),
        "bare lone sender" => bare::lone_sender(duty),
        other => panic!("there is no part `{other}`"),
    }
}
