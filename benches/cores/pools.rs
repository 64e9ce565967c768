//! Shared and exclusive use of pooled connections: r2d2, deadpool and bb8 with managers that do
//! nothing and every check they can leave out left out.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;

use tidegate::pool::{Connector, PoolSettings, SharedPool};

use crate::harness::{Goal, Harness};

/// Connections of every pool, all open.
const CONNECTIONS: u32 = 50;

/// A connection that only counts its uses.
type Connection = u64;

struct Nothing;

impl Connector for Nothing {
    type Connection = Connection;
    type Error = Infallible;
    type Connecting = Ready<Result<Connection, Infallible>>;

    fn connect(&self) -> Self::Connecting {
        ready(Ok(0))
    }

    fn close(&self, _connection: Connection) {}
}

fn tidegate() -> SharedPool<Nothing> {
    let mut settings = PoolSettings::builder();
    settings.max_shared(CONNECTIONS.into()).min_shared(CONNECTIONS.into());
    let pool = SharedPool::new(Nothing, settings.build().unwrap());
    let all: Vec<_> = (0..CONNECTIONS).map(|_| pool.acquire().unwrap()).collect();
    drop(all);
    pool
}

impl r2d2::ManageConnection for Nothing {
    type Connection = Connection;
    type Error = std::io::Error;

    fn connect(&self) -> Result<Connection, std::io::Error> {
        Ok(0)
    }

    fn is_valid(&self, _connection: &mut Connection) -> Result<(), std::io::Error> {
        Ok(())
    }

    fn has_broken(&self, _connection: &mut Connection) -> bool {
        false
    }
}

fn r2d2() -> r2d2::Pool<Nothing> {
    r2d2::Pool::builder()
        .max_size(CONNECTIONS)
        .test_on_check_out(false)
        .idle_timeout(None)
        .max_lifetime(None)
        .build(Nothing)
        .unwrap()
}

impl deadpool::managed::Manager for Nothing {
    type Type = Connection;
    type Error = Infallible;

    async fn create(&self) -> Result<Connection, Infallible> {
        Ok(0)
    }

    async fn recycle(
        &self,
        _connection: &mut Connection,
        _metrics: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

fn deadpool() -> deadpool::managed::Pool<Nothing> {
    let pool = deadpool::managed::Pool::builder(Nothing)
        .max_size(usize::try_from(CONNECTIONS).unwrap())
        .build()
        .unwrap();
    in_runtime(async {
        let mut all = Vec::new();
        for _ in 0..CONNECTIONS {
            all.push(pool.get().await.unwrap());
        }
    });
    pool
}

impl bb8::ManageConnection for Nothing {
    type Connection = Connection;
    type Error = Infallible;

    async fn connect(&self) -> Result<Connection, Infallible> {
        Ok(0)
    }

    async fn is_valid(&self, _connection: &mut Connection) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _connection: &mut Connection) -> bool {
        false
    }
}

fn bb8() -> bb8::Pool<Nothing> {
    in_runtime(async {
        let pool = bb8::Pool::builder()
            .max_size(CONNECTIONS)
            .test_on_check_out(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .build(Nothing)
            .await
            .unwrap();
        let mut all = Vec::new();
        for _ in 0..CONNECTIONS {
            all.push(pool.get_owned().await.unwrap());
        }
        drop(all);
        pool
    })
}

fn in_runtime<R>(future: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(future)
}

/// A session comes and goes; every connection is unused.
pub(crate) fn shared(harness: &mut Harness) {
    harness.row("shared", Goal { ratio: 5.0, peers: &[], most_ns: Some(40.0) });
    let pool = tidegate();
    harness.contender("tidegate", |start| start.run(|| drop(black_box(pool.acquire().unwrap()))));
    peers(harness);
}

/// A session comes and goes; every connection has nine sessions already, so it gets the one with
/// the fewest. The peers do not share: they hand out what is unused, as above.
pub(crate) fn crowded(harness: &mut Harness) {
    harness.row("crowded", Goal { ratio: 5.0, peers: &[], most_ns: Some(40.0) });
    let pool = tidegate();
    let sessions: Vec<_> = (0..CONNECTIONS * 9).map(|_| pool.acquire().unwrap()).collect();
    harness.contender("tidegate", |start| start.run(|| drop(black_box(pool.acquire().unwrap()))));
    drop(sessions);
    peers(harness);
}

fn peers(harness: &mut Harness) {
    let pool = r2d2();
    harness.contender("r2d2", |start| start.run(|| drop(black_box(pool.get().unwrap()))));
    let pool = deadpool();
    harness.contender("deadpool", |start| {
        start.run_async(async || drop(black_box(pool.get().await.unwrap())))
    });
    let pool = bb8();
    harness.contender("bb8", |start| {
        start.run_async(async || drop(black_box(pool.get().await.unwrap())))
    });
}

/// A session comes, uses its connection as the only one, and goes.
pub(crate) fn exclusive(harness: &mut Harness) {
    harness.row("exclusive", Goal { ratio: 2.0, peers: &[], most_ns: None });
    let pool = tidegate();
    harness.contender("tidegate", |start| {
        start.run(|| {
            let mut session = pool.acquire().unwrap();
            *black_box(session.begin().unwrap()) += 1;
        })
    });
    let pool = r2d2();
    harness.contender("r2d2", |start| {
        start.run(|| {
            let mut connection = pool.get().unwrap();
            *black_box(&mut *connection) += 1;
        })
    });
    let pool = deadpool();
    harness.contender("deadpool", |start| {
        start.run_async(async || {
            let mut connection = pool.get().await.unwrap();
            *black_box(&mut *connection) += 1;
        })
    });
    let pool = bb8();
    harness.contender("bb8", |start| {
        start.run_async(async || {
            let mut connection = pool.get().await.unwrap();
            *black_box(&mut *connection) += 1;
        })
    });
}
