//! One client of the broker that is fuzzed: what it has learned, and what it may be sent.

use std::collections::BTreeMap;

use crate::wire::{Decoder, Flags, MessageId, Packet, PacketType};

/// The destination's limit of a consumer's window.
pub(super) const WINDOW_MAX: i32 = 1000;

/// The same for each consumer of a shared subscription.
pub(super) const SHARED_WINDOW_MAX: i32 = 5;

#[derive(Default)]
pub(super) struct Client {
    pub number: usize,
    pub decoder: Option<Decoder>,
    pub sessions: Vec<i64>,
    pub consumers: BTreeMap<i64, Window>,
    pub producers: Vec<i64>,
    /// Browsers, and the ids each was told.
    pub browsers: BTreeMap<i64, Vec<u8>>,
    /// Deliveries as acknowledgement blocks.
    pub delivered: Vec<(i64, MessageId)>,
    /// What each outstanding request was about.
    pub asked: BTreeMap<i64, (PacketType, Asked)>,
    pub next_id: i64,
    /// A limited socket holds packets back, so windows cannot be counted from here.
    pub limited: bool,
    pub open: bool,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Window {
    /// What it may get before it must resume; `None` without limit.
    pub size: Option<i32>,
    pub got: i32,
    /// The most it may be given.
    pub max: i32,
}

pub(super) enum Asked {
    Send(MessageId, bool),
    Acknowledge(Vec<MessageId>),
    /// The window it wished for, and the most it is given.
    Consumer(i32, i32),
    Browse,
    Other,
}

impl Window {
    /// The window that comes of a client's wish; no wish is without limit.
    pub(super) fn of(size: i32, max: i32) -> Self {
        Self { size: Some(size.min(max)).filter(|&size| size > 0), got: 0, max }
    }
}

impl Client {
    /// A message came.
    pub(super) fn delivery(&mut self, packet: &Packet) {
        let header = packet.header();
        let variable = packet.variable().expect("the broker writes variable headers");
        if self.browsers.contains_key(&header.consumer_id) {
            assert_eq!(variable.delivery_count, None, "a browser only looks");
            return;
        }
        let count = variable.delivery_count.expect("a delivery has a count");
        assert!(count >= 1);
        assert_eq!(header.flags.contains(Flags::REDELIVERED), count >= 2, "R from the second on");
        let window =
            self.consumers.get_mut(&header.consumer_id).expect("a consumer of this client");
        window.got += 1;
        let marked = header.flags.contains(Flags::CONSUMER_FLOW);
        if !self.limited {
            match window.size {
                Some(size) => {
                    assert!(window.got <= size, "never more than the window");
                    assert_eq!(marked, window.got == size, "C on the last of it");
                }
                None => assert!(!marked, "no end, no mark"),
            }
        }
        self.delivered.push((header.consumer_id, header.id));
    }
}
