//! A proxy between a client and its broker that can do what networks do: take its time, deliver a
//! byte at a time, stop in the middle, end one direction or both, with or without a reset.
//!
//! What happens is said beforehand, at which byte of which direction of which connection, by a
//! [`Plan`]; or at once, for all connections, by [`Proxy::cut`]. Time that passes here is the
//! subject of the tests that ask for it; it is waited for at a condition that the connection's end
//! interrupts.

use std::{
    collections::VecDeque,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// What happens at some byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing goes on in this direction for so long.
    Delay(Duration),
    /// Nothing goes on in this direction any more, and nobody is told.
    Stall,
    /// Both directions end.
    Cut,
    /// This direction ends; what comes is thrown away.
    HalfClose,
    /// Both directions end with a reset.
    Reset,
}

/// What happens to one direction.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// Bytes that are written at one time at most; `None` for as many as came.
    pub chunk: Option<usize>,
    /// Faults, each behind so many bytes since the start, in order.
    pub faults: VecDeque<(u64, Fault)>,
}

impl Script {
    pub fn at(byte: u64, fault: Fault) -> Self {
        Self { chunk: None, faults: [(byte, fault)].into() }
    }
}

/// What happens to one connection.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub to_broker: Script,
    pub to_client: Script,
}

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub struct Seed(pub u64);

impl Seed {
    pub fn next(&mut self) -> u64 {
        // SplitMix64, by Steele, Lea and Flood.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Whether something happens that does `percent` of the time.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }

    /// What happens to one direction, within its first `bytes` bytes mostly.
    pub fn script(&mut self, bytes: u64) -> Script {
        let mut script = Script {
            chunk: self.pick(&[None, None, Some(1), Some(7), Some(1000)]),
            ..Script::default()
        };
        let mut at = 0;
        while self.chance(60) {
            at += self.below(bytes);
            let fault = match self.below(10) {
                0..=3 => Fault::Cut,
                4 => Fault::HalfClose,
                5 | 6 => Fault::Reset,
                7 => Fault::Stall,
                _ => Fault::Delay(Duration::from_micros(self.below(5000))),
            };
            script.faults.push_back((at, fault));
            if !matches!(fault, Fault::Delay(_)) {
                break;
            }
        }
        script
    }
}

/// Forwards connections until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    open: Mutex<Vec<Arc<Pair>>>,
    plan: Box<dyn Fn(usize) -> Plan + Send + Sync>,
    accepted: AtomicUsize,
    refuses: AtomicBool,
    calm: AtomicBool,
    ended: AtomicBool,
}

/// Both sides of one connection.
struct Pair {
    client: TcpStream,
    broker: TcpStream,
    ended: Mutex<bool>,
    end: Condvar,
    /// Something of it is lost for good.
    spoilt: AtomicBool,
}

impl Proxy {
    pub fn start(target: SocketAddr) -> Self {
        Self::start_with(target, |_| Plan::default())
    }

    /// Asks `plan` for each connection, counted from 0.
    pub fn start_with(
        target: SocketAddr,
        plan: impl Fn(usize) -> Plan + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            open: Mutex::new(Vec::new()),
            plan: Box::new(plan),
            accepted: AtomicUsize::new(0),
            refuses: AtomicBool::new(false),
            calm: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.ended.load(Ordering::SeqCst) {
                    return;
                }
                accepting.accept(client.unwrap());
            }
        });
        Self { address, shared }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection in both directions, without a word.
    pub fn cut(&self) {
        for pair in self.shared.open.lock().unwrap().drain(..) {
            pair.end(Shutdown::Both);
        }
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Connections that come from now on go there.
    pub fn retarget(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap() = target;
    }

    /// From here on nothing happens any more; connections that something has happened to are cut.
    pub fn calm(&self) {
        self.shared.calm.store(true, Ordering::SeqCst);
        self.shared.open.lock().unwrap().retain(|pair| {
            let spoilt = pair.spoilt.load(Ordering::SeqCst);
            if spoilt {
                pair.end(Shutdown::Both);
            }
            !spoilt
        });
    }

    /// Connections that came so far, refused ones too.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, client: TcpStream) {
        let number = self.accepted.fetch_add(1, Ordering::SeqCst);
        if self.refuses.load(Ordering::SeqCst) {
            return;
        }
        let target = *self.target.lock().unwrap();
        let Ok(broker) = TcpStream::connect(target) else { return };
        for socket in [&client, &broker] {
            socket.set_nodelay(true).unwrap();
        }
        let plan = if self.is_calm() { Plan::default() } else { (self.plan)(number) };
        let pair = Arc::new(Pair {
            client,
            broker,
            ended: Mutex::new(false),
            end: Condvar::new(),
            spoilt: AtomicBool::new(false),
        });
        self.open.lock().unwrap().push(Arc::clone(&pair));
        for (script, to_broker) in [(plan.to_broker, true), (plan.to_client, false)] {
            let (shared, pair) = (Arc::clone(self), Arc::clone(&pair));
            thread::spawn(move || {
                let (from, to) = (&pair.client, &pair.broker);
                let (from, to) = if to_broker { (from, to) } else { (to, from) };
                shared.forward(&pair, from, to, script);
                shared.open.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &pair));
            });
        }
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    /// Forwards one direction to its end.
    fn forward(&self, pair: &Pair, mut from: &TcpStream, mut to: &TcpStream, mut script: Script) {
        let mut chunk = vec![0; 16 * 1024];
        let (mut passed, mut dropping) = (0, false);
        loop {
            while let Some(&(at, fault)) = script.faults.front()
                && at <= passed
                && !self.is_calm()
            {
                script.faults.pop_front();
                if !pair.suffer(fault, to, &mut dropping, self) {
                    return;
                }
            }
            let left = script.faults.front().filter(|_| !self.is_calm()).map(|(at, _)| at - passed);
            let most = left.map_or(chunk.len(), |left| {
                usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()))
            });
            let Ok(len @ 1..) = from.read(&mut chunk[..most]) else { break };
            passed += len as u64;
            if dropping {
                continue;
            }
            let pieces = chunk[..len].chunks(script.chunk.unwrap_or(len));
            for piece in pieces {
                if to.write_all(piece).is_err() {
                    return pair.end(Shutdown::Both);
                }
            }
        }
        pair.end(Shutdown::Both);
    }
}

impl Pair {
    /// Lets a fault happen; whether this direction goes on.
    fn suffer(&self, fault: Fault, to: &TcpStream, dropping: &mut bool, shared: &Shared) -> bool {
        match fault {
            Fault::Delay(time) => return !self.is_over(Some(time)),
            Fault::Cut => self.end(Shutdown::Both),
            Fault::Reset => {
                for socket in [&self.client, &self.broker] {
                    let socket = socket2::SockRef::from(socket);
                    let _set = socket.set_linger(Some(Duration::ZERO));
                }
                // Tells nobody; the last one to close does, with a reset.
                self.end(Shutdown::Read);
            }
            Fault::HalfClose => {
                self.spoilt.store(true, Ordering::SeqCst);
                *dropping = true;
                let _ended = to.shutdown(Shutdown::Write);
                return true;
            }
            Fault::Stall => {
                self.spoilt.store(true, Ordering::SeqCst);
                // Who calms everything looks before or behind that.
                if shared.is_calm() {
                    self.end(Shutdown::Both);
                }
                self.is_over(None);
            }
        }
        false
    }

    /// Waits for the connection's end, for so long at most; whether it has come.
    fn is_over(&self, longest: Option<Duration>) -> bool {
        let mut ended = self.ended.lock().unwrap();
        let until = longest.map(|longest| Instant::now() + longest);
        while !*ended {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => ended = self.end.wait(ended).unwrap(),
                Some(Duration::ZERO) => return false,
                Some(left) => ended = self.end.wait_timeout(ended, left).unwrap().0,
            }
        }
        true
    }

    /// Ends it, unless it has ended.
    fn end(&self, how: Shutdown) {
        if std::mem::replace(&mut *self.ended.lock().unwrap(), true) {
            return;
        }
        self.end.notify_all();
        for socket in [&self.client, &self.broker] {
            let _gone = socket.shutdown(how);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
    }
}
