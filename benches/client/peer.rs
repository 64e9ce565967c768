//! A peer of the client's that logs it in, gives it what it asks for, and then speaks just enough.

use tidegate::wire::Flags;

use crate::{
    bare,
    duty::{self, Duty},
    link::{Incoming, Link, View},
    scripted::{Scripted, Style},
};

/// Messages of one load, for a consumer to take from its buffer: the window of today's clients.
pub(crate) const LOAD: usize = 1000;

/// Room for what has been read and not sent back.
const BUFFER_BYTES: usize = 256 * 1024;

/// Lets one client in, sets up as many consumers and producers as it asks for, and goes on with
/// `then`: the socket and the first consumer's id.
fn serve(duty: &Duty, then: impl FnOnce(Link, i64) + Send + 'static) {
    let (consumers, producers) = (duty.setting("consumers"), duty.setting("producers"));
    let wait = duty.setting("wait");
    let style = Style { producer_credit: Some(-1), ..Style::default() };
    let scripted = Scripted::start_with(style, move |peer| {
        peer.login();
        // The last of them is asked for last, and nothing follows before it is there.
        while peer.consumers.len() < consumers || peer.producers.len() < producers {
            let packet = peer.packet();
            peer.answer(&packet);
        }
        then(Link::new(peer.stream(), wait), peer.consumers.first().copied().unwrap_or_default());
    });
    duty::say(&scripted.address().to_string());
    scripted.join();
    duty.order();
}

/// Sends each message back as a delivery, out of the buffer it came in. Acknowledgements need no
/// answer.
pub(crate) fn echo(duty: &Duty) {
    serve(duty, |mut link, consumer| {
        let (mut buffer, mut end) = (vec![0; BUFFER_BYTES], 0);
        loop {
            let read = link.read(&mut buffer[end..]);
            if read == 0 {
                return;
            }
            end += read;
            let mut at = 0;
            while let Some(size) = whole_packet(&buffer[at..end]) {
                let packet = &mut buffer[at..at + size];
                if View(packet).kind().is_message() {
                    address(packet, consumer);
                    if !link.write(packet) {
                        return;
                    }
                }
                at += size;
            }
            buffer.copy_within(at..end, 0);
            end -= at;
        }
    });
}

/// The size of the packet that begins here, if it is here whole.
fn whole_packet(bytes: &[u8]) -> Option<usize> {
    let size = u32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
    (size <= bytes.len()).then_some(size)
}

/// Reads what the client sends, and counts it in bytes.
pub(crate) fn sink(duty: &Duty) {
    serve(duty, |mut link, _none| bare::drain(&mut link));
}

/// Answers each message with a load of deliveries.
pub(crate) fn source(duty: &Duty) {
    serve(duty, |mut link, consumer| {
        let (mut incoming, mut load) = (Incoming::new(), Vec::new());
        while incoming.fill(&mut link) {
            for packet in incoming.packets().filter(|packet| packet.kind().is_message()) {
                load.clear();
                (0..LOAD).for_each(|_| deliver(packet.0, consumer, &mut load));
                if !link.write(&load) {
                    return;
                }
            }
        }
    });
}

/// Adds a message as it is delivered to a consumer.
fn deliver(message: &[u8], consumer: i64, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(message);
    address(&mut out[at..], consumer);
}

/// Makes a delivery to a consumer out of a message that was sent.
fn address(message: &mut [u8], consumer: i64) {
    message[62..64].copy_from_slice(&Flags::QUEUE.bits().to_be_bytes());
    message[64..72].copy_from_slice(&consumer.to_be_bytes());
}
