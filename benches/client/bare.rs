//! Processes with a socket and nothing else: what the client is measured against.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::{
    duty::{self, Duty},
    link::Link,
    times::{take_times, take_times_apart},
};

/// Bytes of a batch, about.
const BATCH_BYTES: usize = 64 * 1024;
/// Most bytes of one read.
const READ_BYTES: usize = 256 * 1024;

fn accept(duty: &Duty) -> Link {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    duty::say(&listener.local_addr().unwrap().to_string());
    Link::new(listener.accept().unwrap().0, duty.setting("wait"))
}

fn connect(duty: &Duty) -> Link {
    Link::new(TcpStream::connect(duty.address()).unwrap(), duty.setting("wait"))
}

/// Sends back what it gets.
pub(crate) fn echo(duty: &Duty) {
    let mut link = accept(duty);
    let mut message = vec![0; duty.setting("bytes")];
    while link.read_exact(&mut message) && link.write(&message) {}
    duty.order();
}

/// Copies both ways between the one that connects and an address.
pub(crate) fn relay(duty: &Duty) {
    let left = accept(duty);
    let right = connect(duty);
    let copy = |mut from: Link, mut to: Link| {
        let mut buffer = vec![0; BATCH_BYTES];
        loop {
            let read = from.read(&mut buffer);
            if read == 0 || !to.write(&buffer[..read]) {
                return;
            }
        }
    };
    let back = (right.share(), left.share());
    thread::spawn(move || copy(back.0, back.1));
    copy(left, right);
    duty.order();
}

/// Reads, and counts what it reads in bytes.
pub(crate) fn sink(duty: &Duty) {
    let mut link = accept(duty);
    drain(&mut link);
    duty.order();
}

/// Reads to the end, and counts the bytes.
pub(crate) fn drain(link: &mut Link) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = link.read(&mut buffer);
        if read == 0 {
            return;
        }
        duty::count(u64::try_from(read).unwrap());
    }
}

/// Makes round trips.
pub(crate) fn requester(duty: &Duty) {
    let (mut link, mut message) = (connect(duty), vec![7; duty.setting("bytes")]);
    take_times(duty, || {
        link.write(&message);
        link.read_exact(&mut message);
    });
}

/// Writes messages in batches, as the sender of a batching relay does.
pub(crate) fn sender(duty: &Duty) {
    let mut link = connect(duty);
    let bytes: usize = duty.setting("bytes");
    let batch = vec![7; BATCH_BYTES / bytes * bytes];
    duty.ready();
    while link.write(&batch) {}
    duty.order();
}

/// Writes a message now and then, and takes the time of that.
pub(crate) fn lone_sender(duty: &Duty) {
    let (mut link, message) = (connect(duty), vec![7; duty.setting("bytes")]);
    take_times_apart(duty, LONE, || {
        link.write(&message);
    });
}

/// From one lone message to the next.
pub(crate) const LONE: Duration = Duration::from_micros(100);
