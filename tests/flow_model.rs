//! Flow control against plain sequential models, and whole links of window, wire and buffer.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test program")]

use std::collections::VecDeque;

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use tidegate::flow::{Buffer, BufferSettings, Credit, FlowSettings, Meter, Resume, Taken, Window};

/// One consumer: the broker's queue and window, what is on the way, the client's buffer.
struct Link {
    limit: u32,
    queue: VecDeque<u32>,
    window: Window,
    /// Messages on the way, marked if they carry the mark.
    wire: VecDeque<(u32, bool)>,
    buffer: Buffer,
    held: VecDeque<u32>,
    marks: usize,
    resumes: Vec<u32>,
}

impl Link {
    fn new(settings: BufferSettings, limit: u32, messages: u32) -> Self {
        Self {
            limit,
            queue: (0..messages).collect(),
            window: Window::new(Credit::Limited(limit)),
            wire: VecDeque::new(),
            buffer: Buffer::new(settings),
            held: VecDeque::new(),
            marks: 0,
            resumes: Vec::new(),
        }
    }

    /// The broker sends one message, if there is one and there is credit.
    fn send(&mut self) -> bool {
        let Some(&message) = self.queue.front() else { return false };
        let Some(taken) = self.window.try_take() else { return false };
        self.queue.pop_front();
        self.wire.push_back((message, taken.last()));
        self.marks += usize::from(taken.last());
        let out = self.wire.len() + self.held.len();
        assert!(out <= self.limit as usize, "{out} messages out, {} allowed", self.limit);
        true
    }

    /// The network delivers one message.
    fn deliver(&mut self) -> bool {
        let Some((message, last)) = self.wire.pop_front() else { return false };
        self.held.push_back(message);
        let resume = self.buffer.delivered(last);
        self.resume(resume);
        true
    }

    /// The application takes one message.
    fn consume(&mut self) -> Option<u32> {
        let message = self.held.pop_front()?;
        let resume = self.buffer.consumed();
        self.resume(resume);
        Some(message)
    }

    /// Sends a RESUME on, as the broker reads it from the wire.
    fn resume(&mut self, resume: Option<Resume>) {
        assert_eq!(self.buffer.buffered() as usize, self.held.len(), "the metrics are wrong");
        let Some(resume) = resume else { return };
        let size = resume.to_wire();
        assert!(size >= 1, "{size} would be read as unlimited");
        assert_eq!(resume.size, self.limit - self.buffer.buffered());
        self.resumes.push(resume.size);
        let resumed = self.window.resume(Credit::from_wire(size));
        assert!(resumed.was_paused, "a resume that nobody waited for");
    }

    /// Everything that was delivered or is on the way goes back, as after STOP and REDELIVER.
    fn recover(&mut self, seen: &[u32]) {
        while self.deliver() {}
        for message in self.held.drain(..).rev() {
            self.queue.push_front(message);
        }
        for &message in seen.iter().rev() {
            self.queue.push_front(message);
        }
        let resume = self.buffer.reset();
        self.resume(resume);
    }
}

/// Settings of every combination of the table: their limit, threshold, and what to call them.
fn combinations() -> Vec<(String, u32, BufferSettings)> {
    let mut all = vec![("no prefetch".to_owned(), 1, BufferSettings::no_prefetch())];
    for limit in [1, 2, 3, 10, 1000] {
        for threshold in [0, 1, 50, 99, 100] {
            let settings = BufferSettings::consumer(Credit::Limited(limit), threshold).unwrap();
            all.push((format!("{limit} at {threshold} %"), limit, settings));
        }
    }
    all
}

const MESSAGES: u32 = 5000;

#[test]
fn no_limit_and_threshold_stalls_a_slow_application() {
    for (name, limit, settings) in combinations() {
        let mut link = Link::new(settings, limit, MESSAGES);
        let mut received = 0;
        while received < MESSAGES {
            // The network delivers all it can before the application takes one.
            while link.send() || link.deliver() {}
            assert_eq!(link.consume(), Some(received), "{name}: stalled");
            received += 1;
        }
        assert_eq!(link.resumes.len(), link.marks, "{name}: not one resume for each mark");
    }
}

#[test]
fn no_limit_and_threshold_stalls_a_fast_application() {
    for (name, limit, settings) in combinations() {
        let mut link = Link::new(settings, limit, MESSAGES);
        for message in 0..MESSAGES {
            // The application takes each message as it arrives.
            assert!(link.send() && link.deliver(), "{name}: stalled");
            assert_eq!(link.consume(), Some(message), "{name}");
        }
        assert_eq!(link.resumes.len(), link.marks, "{name}: not one resume for each mark");
    }
}

#[test]
fn no_limit_and_threshold_stalls_an_application_in_bursts() {
    for (name, limit, settings) in combinations() {
        let mut link = Link::new(settings, limit, MESSAGES);
        let (mut received, mut turn) = (0, 0_usize);
        while received < MESSAGES {
            // Bursts of changing length on both sides, a few messages always on the way.
            turn += 1;
            let mut moved = false;
            for _ in 0..turn * 7 % 13 {
                moved |= link.send();
            }
            for _ in 0..turn * 5 % 11 {
                moved |= link.deliver();
            }
            for _ in 0..turn * 3 % 7 {
                if let Some(message) = link.consume() {
                    assert_eq!(message, received, "{name}");
                    received += 1;
                    moved = true;
                }
            }
            let idle = turn * 7 % 13 == 0 || turn * 5 % 11 == 0 || turn * 3 % 7 == 0;
            assert!(moved || idle, "{name}: stalled at {received}");
        }
        assert_eq!(link.resumes.len(), link.marks, "{name}: not one resume for each mark");
    }
}

#[test]
fn at_50_percent_of_1000_more_is_asked_for_after_500() {
    let settings = FlowSettings::later();
    assert_eq!(settings.consumer_wish(), Credit::Limited(1000));
    let mut link = Link::new(settings.consumer_buffer(Credit::Limited(1000)), 1000, 10_000);
    let mut batch = 0;
    while link.send() {
        batch += 1;
    }
    assert_eq!(batch, 1000, "the first batch is sent without a pause");
    while link.deliver() {}
    for _ in 0..499 {
        link.consume();
    }
    assert!(link.resumes.is_empty(), "{:?}", link.resumes);
    link.consume();
    assert_eq!(link.resumes, [500]);
}

#[test]
fn at_10_percent_of_1000_more_is_asked_for_after_900() {
    let settings = BufferSettings::consumer(Credit::Limited(1000), 10).unwrap();
    let mut link = Link::new(settings, 1000, 10_000);
    while link.send() || link.deliver() {}
    for _ in 0..899 {
        link.consume();
    }
    assert!(link.resumes.is_empty(), "{:?}", link.resumes);
    link.consume();
    assert_eq!(link.resumes, [900]);
}

#[test]
fn the_next_batch_lies_between_threshold_and_limit() {
    // However fast the application is: limit − pending, which is 500 to 1000 at 50 % of 1000.
    for consumed_before_the_mark in [0, 1, 400, 500, 600, 999] {
        let settings = BufferSettings::consumer(Credit::Limited(1000), 50).unwrap();
        let mut link = Link::new(settings, 1000, 10_000);
        while link.send() {}
        for _ in 0..999 {
            link.deliver();
        }
        for _ in 0..consumed_before_the_mark {
            link.consume();
        }
        assert!(link.resumes.is_empty(), "{:?}", link.resumes);
        link.deliver();
        while link.resumes.is_empty() {
            link.consume().expect("half of the window must be enough");
        }
        let expected = consumed_before_the_mark.max(500);
        assert_eq!(link.resumes, [expected]);
    }
}

#[test]
fn redelivery_neither_loses_credit_nor_doubles_it() {
    let settings = BufferSettings::consumer(Credit::Limited(4), 50).unwrap();
    let mut link = Link::new(settings, 4, 100);
    while link.send() || link.deliver() {}
    let seen = [link.consume().unwrap(), link.consume().unwrap()];
    link.recover(&seen);
    let mut acknowledged = 0;
    let mut since_recover = 0;
    while acknowledged < 100 {
        while link.send() || link.deliver() {}
        let message = link.consume().expect("stalled");
        assert_eq!(message, acknowledged, "out of order");
        since_recover += 1;
        if acknowledged < 50 && since_recover == 2 {
            // The second of two is seen and not acknowledged.
            link.recover(&[message]);
            since_recover = 0;
        } else {
            acknowledged += 1;
        }
    }
    assert_eq!((link.buffer.buffered(), link.queue.len()), (0, 0));
}

#[test]
fn a_consumer_closed_while_paused_leaves_a_whole_window_to_the_next() {
    let settings = BufferSettings::consumer(Credit::Limited(4), 50).unwrap();
    let mut link = Link::new(settings, 4, 100);
    while link.send() || link.deliver() {}
    assert!(link.window.is_paused() && link.buffer.is_paused());
    let mut next = Link::new(settings, 4, 100);
    let mut received = 0;
    while next.send() || next.deliver() {}
    while let Some(message) = next.consume() {
        assert_eq!(message, received);
        received += 1;
        while next.send() || next.deliver() {}
    }
    assert_eq!(received, 100);
    assert!(link.buffer.is_paused(), "the closed one owes nothing to anybody");
}

#[test]
fn a_stalled_consumer_takes_no_credit_of_another() {
    // Two consumers on one connection, metered by three, with a limit that is not in the way.
    let settings = BufferSettings::consumer(Credit::Limited(4), 50).unwrap();
    let mut stalled = Link::new(settings, 4, 1000);
    let mut busy = Link::new(settings, 4, 1000);
    let mut meter = Meter::new(3);
    let connection = Buffer::new(FlowSettings::default().connection_buffer());
    let mut received = 0;
    while received < 1000 {
        let mut moved = false;
        for consumer in [&mut stalled, &mut busy] {
            if meter.is_paused() || !consumer.send() {
                continue;
            }
            moved = true;
            let admitted = meter.admit().unwrap();
            assert!(consumer.deliver());
            if connection.delivered(admitted.last).is_some() {
                meter.resume(None);
            }
        }
        while busy.consume().is_some() {
            assert_eq!(connection.consumed(), None);
            received += 1;
            moved = true;
        }
        assert!(moved, "stalled at {received}");
    }
    assert_eq!(stalled.held.len(), 4);
}

#[test]
fn a_connection_over_its_limit_rests_until_it_is_below() {
    let mut settings = FlowSettings::default();
    for (name, value) in [
        ("imqConnectionFlowLimitEnabled", "true"),
        ("imqConnectionFlowLimit", "10"),
        ("imqConnectionFlowCount", "5"),
    ] {
        assert_eq!(settings.set(name, value), Ok(true));
    }
    let mut meter = Meter::new(settings.connection_count());
    let buffer = Buffer::new(settings.connection_buffer());
    let (mut held, mut most, mut sent) = (0, 0, 0);
    while sent < 40 {
        while let Some(admitted) = meter.admit() {
            held += 1;
            sent += 1;
            if buffer.delivered(admitted.last).is_some() {
                meter.resume(None);
            }
        }
        most = most.max(held);
        assert!(held >= 10, "paused below the limit");
        while meter.is_paused() {
            held -= 1;
            if buffer.consumed().is_some() {
                assert_eq!(held, 9);
                meter.resume(None);
            }
        }
    }
    // The limit is soft: a batch that began below it is delivered whole.
    assert_eq!(most, 14);
}

// Plain models. Each says the rule in the most obvious way.

#[derive(Debug, Clone)]
enum WindowStep {
    Take(u64),
    /// Gives back the n-th of what is still held, the newest first.
    GiveBack(usize),
    Resume(Option<u32>),
    Lower(Option<u32>),
    Budget(Option<u64>),
}

fn window_steps() -> impl Strategy<Value = Vec<WindowStep>> {
    let size = prop_oneof![3 => (0_u32..6).prop_map(Some), 1 => Just(None)];
    let bytes = prop_oneof![2 => (0_u64..1500).prop_map(Some), 1 => Just(None)];
    let step = prop_oneof![
        6 => prop_oneof![Just(0), 0_u64..400].prop_map(WindowStep::Take),
        3 => (0_usize..4).prop_map(WindowStep::GiveBack),
        2 => size.clone().prop_map(WindowStep::Resume),
        1 => size.prop_map(WindowStep::Lower),
        1 => bytes.prop_map(WindowStep::Budget),
    ];
    proptest::collection::vec(step, 0..60)
}

/// Messages and 64-byte units left, `None` for no limit; whether the mark is out.
#[derive(Debug, Default)]
struct PlainWindow {
    number: u32,
    messages: Option<u32>,
    units: Option<u64>,
    mark_out: bool,
    budget: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct PlainTaken {
    number: u32,
    units: u64,
    last: bool,
}

impl PlainWindow {
    fn replace(&mut self, size: Option<u32>) {
        self.number += 1;
        self.messages = size;
        self.units = self.budget;
        self.mark_out = size == Some(0);
    }

    fn take(&mut self, bytes: u64) -> Option<PlainTaken> {
        if self.mark_out {
            return None;
        }
        if let Some(messages) = &mut self.messages {
            *messages -= 1;
        }
        let mut units = 0;
        if let Some(left) = &mut self.units {
            units = bytes.div_ceil(64).min(*left);
            *left -= units;
        }
        self.mark_out = self.messages == Some(0) || self.units == Some(0);
        Some(PlainTaken { number: self.number, units, last: self.mark_out })
    }

    fn give_back(&mut self, taken: PlainTaken) -> bool {
        if taken.number != self.number {
            return false;
        }
        self.messages = self.messages.map(|messages| messages + 1);
        self.units = self.units.map(|units| units + taken.units);
        let opened = self.mark_out && taken.last;
        self.mark_out &= !taken.last;
        opened
    }

    fn lower(&mut self, limit: Option<u32>) {
        let Some(limit) = limit.map(|limit| limit.max(1)) else { return };
        if !self.mark_out && self.messages.is_none_or(|messages| messages > limit) {
            self.messages = Some(limit);
            self.number += 1;
        }
    }
}

fn credit(size: Option<u32>) -> Credit {
    size.map_or(Credit::Unlimited, Credit::Limited)
}

proptest! {
    #[test]
    fn a_window_does_what_its_plain_model_does(
        size in proptest::option::of(0_u32..6),
        steps in window_steps(),
    ) {
        let window = Window::new(credit(size));
        let mut plain = PlainWindow::default();
        plain.replace(size);
        let mut held: Vec<(Taken, PlainTaken)> = Vec::new();
        for step in steps {
            match step {
                WindowStep::Take(bytes) => {
                    let (taken, expected) = (window.try_take_sized(bytes), plain.take(bytes));
                    prop_assert_eq!(taken.map(|taken| taken.last()), expected.map(|taken| taken.last));
                    held.extend(taken.zip(expected));
                }
                WindowStep::GiveBack(back) if back < held.len() => {
                    let (taken, expected) = held.remove(held.len() - 1 - back);
                    prop_assert_eq!(window.give_back(taken).was_paused, plain.give_back(expected));
                }
                WindowStep::GiveBack(_) => {}
                WindowStep::Resume(size) => {
                    let was_paused = plain.mark_out;
                    plain.replace(size);
                    let opened = was_paused && !plain.mark_out;
                    prop_assert_eq!(window.resume(credit(size)).was_paused, opened);
                }
                WindowStep::Lower(limit) => {
                    plain.lower(limit);
                    window.lower(credit(limit));
                }
                WindowStep::Budget(bytes) => {
                    plain.budget = bytes.map(|bytes| bytes.div_ceil(64).max(1));
                    window.set_bytes(bytes);
                }
            }
            prop_assert_eq!(window.is_paused(), plain.mark_out);
            prop_assert_eq!(window.left(), if plain.mark_out { Some(0) } else { plain.messages });
            prop_assert_eq!(window.left_bytes(), plain.units.map(|units| units * 64));
        }
    }

    #[test]
    fn a_buffer_does_what_its_plain_model_does(
        first in buffer_settings(),
        steps in proptest::collection::vec(buffer_step(), 0..80),
    ) {
        let buffer = Buffer::new(first.real());
        let mut plain = PlainBuffer { settings: first, messages: 0, bytes: 0, paused: false };
        for step in steps {
            let resume = match step {
                BufferStep::Deliver(last, bytes) => buffer.delivered_sized(last, bytes),
                BufferStep::Discard(count, bytes) => buffer.discarded_sized(count, bytes),
                BufferStep::Reset => buffer.reset(),
                BufferStep::Set(settings) => buffer.set(settings.real()),
            };
            prop_assert_eq!(resume.map(|resume| resume.size), plain.step(step));
            prop_assert_eq!(buffer.buffered(), plain.messages);
            prop_assert_eq!(buffer.buffered_bytes(), plain.bytes);
            prop_assert_eq!(buffer.is_paused(), plain.paused);
            if let Some(resume) = resume {
                prop_assert!(resume.to_wire() != 0);
            }
        }
    }

    #[test]
    fn a_meter_pauses_after_every_nth_message(
        first in 0_u32..5,
        steps in proptest::collection::vec(meter_step(), 0..80),
    ) {
        let mut meter = Meter::new(first);
        // The model: the size of the batch and the messages of it so far.
        let (mut size, mut batch) = (first, 0);
        let mut paused = false;
        for step in steps {
            match step {
                None => {
                    let expected = (!paused).then(|| {
                        batch += 1;
                        paused = size != 0 && batch == size;
                        paused
                    });
                    prop_assert_eq!(meter.admit().map(|admitted| admitted.last), expected);
                }
                Some(new) => {
                    meter.resume(new);
                    size = new.unwrap_or(size);
                    (batch, paused) = (0, false);
                }
            }
            prop_assert_eq!(meter.is_paused(), paused);
            let left = if size == 0 { None } else { Some(size - batch) };
            prop_assert_eq!(meter.left(), left);
        }
    }
}

/// Nothing: admit. Something: resume, perhaps with another size.
fn meter_step() -> impl Strategy<Value = Option<Option<u32>>> {
    prop_oneof![
        4 => Just(None),
        1 => prop_oneof![Just(None), (0_u32..5).prop_map(Some)].prop_map(Some),
    ]
}

#[derive(Debug, Clone, Copy)]
struct PlainSettings {
    limit: Option<u32>,
    threshold: u8,
    bytes: Option<u64>,
}

impl PlainSettings {
    fn real(self) -> BufferSettings {
        let settings = BufferSettings::consumer(credit(self.limit), self.threshold).unwrap();
        self.bytes.map_or(settings, |bytes| settings.with_bytes(bytes))
    }
}

fn buffer_settings() -> impl Strategy<Value = PlainSettings> {
    (
        prop_oneof![4 => (0_u32..12).prop_map(Some), 1 => Just(None)],
        0_u8..=100,
        prop_oneof![2 => Just(None), 1 => (0_u64..500).prop_map(Some)],
    )
        .prop_map(|(limit, threshold, bytes)| PlainSettings { limit, threshold, bytes })
}

#[derive(Debug, Clone, Copy)]
enum BufferStep {
    Deliver(bool, u64),
    Discard(u32, u64),
    Reset,
    Set(PlainSettings),
}

fn buffer_step() -> impl Strategy<Value = BufferStep> {
    prop_oneof![
        6 => (any::<bool>(), 0_u64..100).prop_map(|(last, bytes)| BufferStep::Deliver(last, bytes)),
        6 => (1_u32..3, 0_u64..100).prop_map(|(count, bytes)| BufferStep::Discard(count, bytes)),
        1 => Just(BufferStep::Reset),
        1 => buffer_settings().prop_map(BufferStep::Set),
    ]
}

#[derive(Debug)]
struct PlainBuffer {
    settings: PlainSettings,
    messages: u32,
    bytes: u64,
    paused: bool,
}

impl PlainBuffer {
    fn step(&mut self, step: BufferStep) -> Option<u32> {
        match step {
            BufferStep::Deliver(last, bytes) => {
                self.messages += 1;
                self.bytes += bytes;
                self.paused |= last;
            }
            BufferStep::Discard(count, bytes) => {
                self.messages = self.messages.saturating_sub(count);
                self.bytes = self.bytes.saturating_sub(bytes);
            }
            BufferStep::Reset => (self.messages, self.bytes) = (0, 0),
            BufferStep::Set(settings) => self.settings = settings,
        }
        let threshold = u64::from(self.settings.threshold);
        let few = match self.settings.limit {
            None | Some(0) => true,
            Some(limit) => {
                let of_limit = u64::from(limit) * threshold / 100;
                u64::from(self.messages) <= of_limit.min(u64::from(limit) - 1)
            }
        };
        let small = self.settings.bytes.is_none_or(|most| self.bytes <= most * threshold / 100);
        if !self.paused || !(few && small || self.messages == 0) {
            return None;
        }
        self.paused = false;
        Some(match self.settings.limit {
            None | Some(0) => Resume::UNLIMITED,
            Some(limit) => limit - self.messages,
        })
    }
}
