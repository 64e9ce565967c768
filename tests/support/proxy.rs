//! A proxy between a client and its broker that can do what networks do.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

/// Forwards connections until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    open: Mutex<Vec<(TcpStream, TcpStream)>>,
    accepted: AtomicUsize,
    refuses: AtomicBool,
    ended: AtomicBool,
}

impl Proxy {
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(super::local()).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target,
            open: Mutex::new(Vec::new()),
            accepted: AtomicUsize::new(0),
            refuses: AtomicBool::new(false),
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
        for (client, broker) in self.shared.open.lock().unwrap().drain(..) {
            let _gone = client.shutdown(Shutdown::Both);
            let _gone = broker.shutdown(Shutdown::Both);
        }
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Connections that came so far, refused ones too.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn accept(&self, client: TcpStream) {
        self.accepted.fetch_add(1, Ordering::SeqCst);
        if self.refuses.load(Ordering::SeqCst) {
            return;
        }
        let Ok(broker) = TcpStream::connect(self.target) else { return };
        for socket in [&client, &broker] {
            socket.set_nodelay(true).unwrap();
        }
        let pair = (client.try_clone().unwrap(), broker.try_clone().unwrap());
        self.open.lock().unwrap().push(pair);
        let back = (broker.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || forward(client, broker));
        thread::spawn(move || forward(back.0, back.1));
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

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let mut chunk = [0; 16 * 1024];
    loop {
        match from.read(&mut chunk) {
            Ok(len) if len > 0 && to.write_all(&chunk[..len]).is_ok() => {}
            _ => break,
        }
    }
    let _gone = from.shutdown(Shutdown::Both);
    let _gone = to.shutdown(Shutdown::Both);
}
