//! Processes that do nothing but copy bytes: what the broker is measured against.

use std::{
    net::{SocketAddr, TcpListener},
    thread,
    time::Instant,
};

use crate::{
    duty::{Duty, say},
    link::{Link, Wait},
    report::median,
    stencil::MESSAGE_BYTES,
};

/// Most bytes of one read, and so of one write.
const COPY_BYTES: usize = 64 * 1024;

fn listen() -> TcpListener {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    say(&listener.local_addr().unwrap().to_string());
    listener
}

fn accept(listener: &TcpListener, wait: Wait) -> Link {
    Link::new(listener.accept().unwrap().0, wait)
}

/// Copies both ways between pairs of sockets: the first half of those that connect are the right
/// ends, the second half the left ones. If it blocks, each way has a thread; if it spins, one
/// thread turns from socket to socket.
pub(crate) fn pipe(duty: &Duty) {
    let (pairs, wait) = (duty.setting::<usize>("pairs"), duty.setting("wait"));
    let listener = listen();
    let right: Vec<Link> = (0..pairs).map(|_| accept(&listener, wait)).collect();
    let left = (0..pairs).map(|_| accept(&listener, wait));
    let mut ways = Vec::new();
    for (left, right) in left.zip(right) {
        ways.push((left.share(), right.share()));
        ways.push((right, left));
    }
    match wait {
        Wait::Block => {
            for (from, to) in ways {
                thread::spawn(move || copy(from, to));
            }
            duty.order();
        }
        Wait::Spin => spin(ways),
    }
}

fn copy(mut from: Link, mut to: Link) {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let count = from.read(&mut buffer);
        if count == 0 || !to.write(&buffer[..count]) {
            return;
        }
    }
}

fn spin(mut ways: Vec<(Link, Link)>) {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        for (from, to) in &mut ways {
            if let Some(count) = from.try_read(&mut buffer) {
                to.write(&buffer[..count]);
            }
        }
        thread::yield_now();
    }
}

/// Answers requests of one length with replies of another, on one socket.
pub(crate) fn answerer(duty: &Duty) {
    let mut link = accept(&listen(), Wait::Block);
    let mut request = vec![0; duty.setting("request_bytes")];
    let reply = vec![0; duty.setting("reply_bytes")];
    while link.read_exact(&mut request) && link.write(&reply) {}
    duty.order();
}

/// Writes each message from one socket to all of many, and says on demand how long that takes:
/// the median in nanoseconds.
pub(crate) fn spreader(duty: &Duty) {
    let listener = listen();
    let count: usize = duty.setting("sockets");
    let mut many: Vec<Link> = (0..count).map(|_| accept(&listener, Wait::Block)).collect();
    let mut one = accept(&listener, Wait::Block);
    let mut message = vec![0; MESSAGE_BYTES];
    let mut times = Vec::new();
    while one.read_exact(&mut message) {
        let begun = Instant::now();
        for link in &mut many {
            link.write(&message);
        }
        times.push(begun.elapsed().as_nanos() as f64);
    }
    // The publisher has ended its half, which is when the program asks.
    duty.order();
    say(&format!("{:.0}", median(&times)));
    duty.order();
}
