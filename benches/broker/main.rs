//! The broker beside a bare relay, each of them and every client a process of its own.
//!
//! `cargo bench --bench broker` measures every row; one word filters by name, `--quick` takes a
//! first look, `--test` runs each row once. The program starts itself again for each part: what
//! follows the word `part` says which. A part ends when its standard input does, so nothing is left
//! behind if the program is stopped. `benches/README.md` says what each row measures.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench measures time, prints, and stops at the first surprise"
)]

mod crowd;
mod duty;
mod fan;
mod filler;
mod lean;
mod library;
mod link;
mod parts;
mod plan;
#[path = "../../tests/support/raw.rs"]
#[allow(dead_code, unreachable_pub, reason = "a bench uses its part of what tests have")]
mod raw;
mod relay;
mod report;
mod rows;
mod runs;
mod serve;
mod stencil;
mod stream;
#[allow(dead_code, reason = "the bench of the client uses the rest")]
mod times;
mod trip;

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
        "broker" => serve::broker(duty),
        "relay" => relay::pipe(duty),
        "answerer" => relay::answerer(duty),
        "spreader" => relay::spreader(duty),
        "producer" => stream::producer(duty),
        "consumer" => stream::consumer(duty),
        "pump" => stream::pump(duty),
        "acknowledger" => stream::acknowledger(duty),
        "bare producer" => stream::bare_producer(duty),
        "bare consumer" => stream::bare_consumer(duty),
        "asker" => stream::asker(duty),
        "requester" => trip::requester(duty),
        "responder" => trip::responder(duty),
        "bare requester" => trip::bare_requester(duty),
        "bare responder" => trip::bare_responder(duty),
        "subscribers" => fan::subscribers(duty),
        "crowd" => crowd::crowd(duty),
        "filler" => filler::filler(duty),
        "library producer" => library::producer(duty),
        "library consumer" => library::consumer(duty),
        "library requester" => library::requester(duty),
        "library responder" => library::responder(duty),
        other => panic!("there is no part `{other}`"),
    }
}
