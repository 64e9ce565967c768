//! Encoding, decoding and delivering a text message of 1 KiB, and reading what is in it.

use std::{hint::black_box, time::Duration};

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tidegate::{
    message::{Destination, Message, Origin},
    wire::{Decoder, Frame, Packet, delivery, delivery::Delivery},
};

const BODY_BYTES: usize = 1024;
/// Packets in one read.
const BATCH: usize = 64;

fn message() -> Message {
    let mut message = Message::text("x".repeat(BODY_BYTES));
    message.set_destination(Destination::queue("bench.queue").expect("a valid name"));
    message.set_property("n", 7_i32).expect("a valid property");
    message
}

fn packet() -> Packet {
    message().encode(&origin()).expect("a message with destination").finish()
}

const fn origin() -> Origin {
    Origin { producer_id: Some(1), transaction_id: None }
}

fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("codec/encode");
    group.throughput(Throughput::Elements(1));
    let message = message();
    group.bench_function("message_1KiB", |b| {
        b.iter(|| black_box(&message).encode(&origin()).map(|packet| packet.finish_parts()));
    });
    let packet = packet();
    let delivery = Delivery {
        consumer_id: 1,
        count: Some(1),
        consumer_flow: false,
        flow_paused: false,
        last: false,
    };
    let mut out = BytesMut::with_capacity(4096);
    group.bench_function("delivery_1KiB", |b| {
        b.iter(|| {
            out.clear();
            delivery::encode_head(black_box(&packet), &delivery, &mut out).map(|()| packet.tail())
        });
    });
    group.finish();
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("codec/decode");
    group.throughput(Throughput::Elements(BATCH as u64));
    let stream = packet().raw().repeat(BATCH);
    // What one read from a socket gives, and reads that cut packets.
    for (name, read_bytes) in [("whole_reads", stream.len()), ("reads_of_4096", 4096)] {
        group.bench_function(format!("64_packets_of_1KiB/{name}"), |b| {
            b.iter_batched(
                || stream.chunks(read_bytes).map(Bytes::copy_from_slice).collect::<Vec<_>>(),
                |chunks| drain(&mut Decoder::new(1 << 20), chunks),
                BatchSize::SmallInput,
            );
        });
    }
    let packet = packet();
    group.throughput(Throughput::Elements(1));
    group.bench_function("message_from_packet_1KiB", |b| {
        b.iter(|| {
            let message = Message::from_packet(black_box(&packet)).expect("a message");
            let n = message.property_as::<i32>("n").expect("readable properties");
            (message.body_text().expect("text").map(|text| text.len()), n)
        });
    });
    group.finish();
}

fn drain(decoder: &mut Decoder, chunks: Vec<Bytes>) -> usize {
    let mut packets = 0;
    for chunk in chunks {
        decoder.feed(chunk);
        while let Some(Frame::Packet(packet)) = decoder.next_frame().expect("whole packets") {
            black_box(packet);
            packets += 1;
        }
    }
    assert_eq!(packets, BATCH);
    packets
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = encode, decode
}
criterion_main!(benches);
