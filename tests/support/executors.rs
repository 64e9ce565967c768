//! Several executors, to run one scenario under each: none of them is tidegate's.
#![allow(
    dead_code,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "each test uses its part, and may fail by panic"
)]

use std::{future::Future, pin::Pin, time::Duration};

use futures_lite::future;

/// Something that runs futures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// One future on this thread, which sleeps meanwhile.
    Pollster,
    /// A runtime on this thread.
    TokioOne,
    /// A runtime with two threads of its own.
    TokioTwo,
}

pub const ALL: [Executor; 3] = [Executor::Pollster, Executor::TokioOne, Executor::TokioTwo];

impl Executor {
    /// Runs a future to its end; in a task of its own if the executor has such.
    pub fn run<T: Send + 'static>(self, work: impl Future<Output = T> + Send + 'static) -> T {
        let mut builder = match self {
            Self::Pollster => return pollster::block_on(work),
            Self::TokioOne => tokio::runtime::Builder::new_current_thread(),
            Self::TokioTwo => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime = builder.worker_threads(2).enable_time().build().unwrap();
        runtime.block_on(async { tokio::spawn(work).await.unwrap() })
    }
}

/// What `work` gives, unless it takes longer than this; then it is dropped.
pub async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    let late = async {
        futures_timer::Delay::new(time).await;
        None
    };
    future::or(async { Some(work.await) }, late).await
}

/// Runs all of these at the same time, in one task.
pub async fn join_all<T>(work: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut open: Vec<Result<Pin<Box<_>>, T>> =
        work.into_iter().map(|future| Ok(Box::pin(future))).collect();
    future::poll_fn(move |context| {
        let mut left = false;
        for place in &mut open {
            if let Ok(future) = place {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(result) => *place = Err(result),
                    std::task::Poll::Pending => left = true,
                }
            }
        }
        if left {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(open.drain(..).filter_map(Result::err).collect())
    })
    .await
}
