//! A connector that counts, fails, panics and takes its time as a test wants.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::disallowed_types, reason = "a test's own bookkeeping")]
#![allow(clippy::disallowed_methods, reason = "a test's deadlines are real time")]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tidegate::pool::{Connector, PoolSettings, SharedPool};

/// How the next attempt goes.
#[derive(Clone)]
pub enum Plan {
    /// A connection, at once.
    Open,
    /// `refused`, at once.
    Refuse,
    /// The connector panics when it is called.
    PanicInConnect,
    /// The attempt panics when it is polled.
    PanicInPoll,
    /// A connection, this much later.
    OpenAfter(Duration),
    /// `refused`, this much later.
    RefuseAfter(Duration),
    /// When the test says so, what the test says.
    Hold(Arc<Held>),
}

/// An attempt that waits for the test.
#[derive(Default)]
pub struct Held {
    result: Mutex<Option<Result<(), Refused>>>,
    wakers: Mutex<Vec<Waker>>,
}

impl Held {
    pub fn open(&self) {
        self.decide(Ok(()));
    }

    pub fn refuse(&self) {
        self.decide(Err(Refused));
    }

    fn decide(&self, result: Result<(), Refused>) {
        *self.result.lock().unwrap() = Some(result);
        for waker in self.wakers.lock().unwrap().drain(..) {
            waker.wake();
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connection refused")
    }
}

impl std::error::Error for Refused {}

/// What a test sees of its connector; the pool owns the other end.
#[derive(Default)]
pub struct Record {
    pub begun: AtomicUsize,
    pub opened: AtomicUsize,
    pub closed: AtomicUsize,
    /// Open now. A count of its own: two counts read one after the other belong to no one time.
    live: AtomicUsize,
    pub live_max: AtomicUsize,
    /// Rows of all committed transactions.
    pub table: Mutex<Vec<u64>>,
    plans: Mutex<VecDeque<Plan>>,
    usual: Mutex<Option<Plan>>,
    pub panic_in_close: AtomicUsize,
    pub panic_in_is_broken: AtomicUsize,
}

impl Record {
    pub fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    pub fn next(&self, plan: Plan) {
        self.plans.lock().unwrap().push_back(plan);
    }

    pub fn usually(&self, plan: Plan) {
        *self.usual.lock().unwrap() = Some(plan);
    }

    fn plan(&self) -> Plan {
        let next = self.plans.lock().unwrap().pop_front();
        next.or_else(|| self.usual.lock().unwrap().clone()).unwrap_or(Plan::Open)
    }

    fn count(&self, number: &AtomicUsize) -> usize {
        number.load(Ordering::SeqCst)
    }

    pub fn begun(&self) -> usize {
        self.count(&self.begun)
    }

    pub fn opened(&self) -> usize {
        self.count(&self.opened)
    }

    pub fn closed(&self) -> usize {
        self.count(&self.closed)
    }
}

pub struct Fake {
    pub record: Arc<Record>,
}

/// A connection with transactions.
pub struct Connection {
    pub number: usize,
    pub broken: bool,
    /// Sessions that are inside an operation: more than one is a failure of the pool.
    pub inside: usize,
    transaction: Option<Vec<u64>>,
    record: Arc<Record>,
}

impl Connection {
    pub fn new(record: &Arc<Record>) -> Self {
        let number = record.opened.fetch_add(1, Ordering::SeqCst) + 1;
        let live = record.live.fetch_add(1, Ordering::SeqCst) + 1;
        record.live_max.fetch_max(live, Ordering::SeqCst);
        Self { number, broken: false, inside: 0, transaction: None, record: Arc::clone(record) }
    }

    pub fn begin(&mut self) {
        assert!(self.transaction.is_none(), "a transaction was left open");
        self.transaction = Some(Vec::new());
    }

    pub fn insert(&mut self, row: u64) {
        self.transaction.as_mut().expect("in a transaction").push(row);
    }

    pub fn select(&self) -> Vec<u64> {
        let mut rows = self.record.table.lock().unwrap().clone();
        rows.extend(self.transaction.iter().flatten());
        rows
    }

    pub fn commit(&mut self) {
        let rows = self.transaction.take().into_iter().flatten();
        self.record.table.lock().unwrap().extend(rows);
    }
}

pub type Attempt = Pin<Box<dyn Future<Output = Result<Connection, Refused>> + Send>>;

impl Connector for Fake {
    type Connection = Connection;
    type Error = Refused;
    type Connecting = Attempt;

    fn connect(&self) -> Attempt {
        self.record.begun.fetch_add(1, Ordering::SeqCst);
        let record = Arc::clone(&self.record);
        let plan = record.plan();
        if let Plan::PanicInConnect = plan {
            panic!("planned");
        }
        Box::pin(async move {
            match plan {
                Plan::Open => {}
                Plan::Refuse => return Err(Refused),
                Plan::PanicInConnect | Plan::PanicInPoll => panic!("planned"),
                Plan::OpenAfter(time) => After(Instant::now() + time).await,
                Plan::RefuseAfter(time) => {
                    After(Instant::now() + time).await;
                    return Err(Refused);
                }
                Plan::Hold(held) => {
                    std::future::poll_fn(|context| {
                        // The waker first: a decision that comes in between wakes it.
                        held.wakers.lock().unwrap().push(context.waker().clone());
                        let result = held.result.lock().unwrap().clone();
                        result.map_or(Poll::Pending, Poll::Ready)
                    })
                    .await?;
                }
            }
            Ok(Connection::new(&record))
        })
    }

    fn close(&self, connection: Connection) {
        drop(connection);
        self.record.live.fetch_sub(1, Ordering::SeqCst);
        self.record.closed.fetch_add(1, Ordering::SeqCst);
        if take_one(&self.record.panic_in_close) {
            panic!("planned");
        }
    }

    fn is_broken(&self, connection: &mut Connection) -> bool {
        if take_one(&self.record.panic_in_is_broken) {
            panic!("planned");
        }
        connection.broken
    }
}

fn take_one(number: &AtomicUsize) -> bool {
    number.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
}

/// A pool over a fake, and the test's end of the fake.
pub fn pool(max: i64, min: i64) -> (Arc<SharedPool<Fake>>, Arc<Record>) {
    pool_with(PoolSettings::builder().max_shared(max).min_shared(min).build().unwrap())
}

pub fn pool_with(settings: PoolSettings) -> (Arc<SharedPool<Fake>>, Arc<Record>) {
    let record = Arc::new(Record::default());
    let fake = Fake { record: Arc::clone(&record) };
    (Arc::new(SharedPool::new(fake, settings)), record)
}

/// Polls once, with a waker that does nothing.
pub fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// What an async call gives when it need not wait.
pub fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    match poll_once(std::pin::pin!(future)) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Runs a future on this thread, for at most a minute.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "a future was not woken for a minute");
        std::thread::park_timeout(left);
    }
}

/// Gives way until a condition holds, for at most a minute.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited a minute until {what}");
        std::thread::yield_now();
    }
}

/// Keeps planned panics from filling the output.
pub fn hide_planned_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&"planned") {
                usual(info);
            }
        }));
    });
}

/// Resolves at a time; one thread serves all of them.
struct After(Instant);

impl Future for After {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.0 {
            return Poll::Ready(());
        }
        timers().add(self.0, context.waker().clone());
        Poll::Pending
    }
}

#[derive(Default)]
struct Timers {
    waiting: Mutex<Vec<(Instant, Waker)>>,
    changed: Condvar,
}

impl Timers {
    fn add(&self, time: Instant, waker: Waker) {
        self.waiting.lock().unwrap().push((time, waker));
        self.changed.notify_one();
    }

    fn run(&self) {
        let mut waiting = self.waiting.lock().unwrap();
        loop {
            let now = Instant::now();
            waiting.retain(|(time, waker)| {
                if *time <= now {
                    waker.wake_by_ref();
                }
                *time > now
            });
            let next = waiting.iter().map(|(time, _)| *time).min();
            let sleep = next.map_or(Duration::from_secs(60), |next| next - now);
            waiting = self.changed.wait_timeout(waiting, sleep).unwrap().0;
        }
    }
}

fn timers() -> &'static Timers {
    static TIMERS: std::sync::OnceLock<&'static Timers> = std::sync::OnceLock::new();
    TIMERS.get_or_init(|| {
        let timers: &'static Timers = Box::leak(Box::default());
        std::thread::spawn(|| timers.run());
        timers
    })
}
