//! Four workers share a queue of jobs. One of them fails at a job once: the job is not lost, another
//! worker or the same one gets it again.
//!
//! `cargo run --example work_queue`, or with the address of a running broker:
//! `cargo run --example work_queue -- mq://localhost:7676/jms`.

mod support;

use std::{collections::BTreeMap, error::Error, sync::mpsc::channel, time::Duration};

use tidegate::{
    client::{AcknowledgeMode, ConsumerOptions, ServerSessions},
    message::{Destination, Message},
};

const WORKERS: usize = 4;
const JOBS: usize = 200;

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn Error>> {
    let (factory, broker) = support::broker()?;
    let connection = factory.create_connection()?;
    let jobs = Destination::queue("jobs")?;

    let (done, results) = channel();
    let mut workers = 1..;
    // A transacted session for each worker: a job is gone when its work is committed.
    let pool =
        ServerSessions::start(&connection, AcknowledgeMode::Transacted, WORKERS, |session| {
            let (done, session) = (done.clone(), session.clone());
            let worker = workers.next().unwrap_or_default();
            let mut has_failed = worker != 1;
            Ok(move |job: Message| {
                if !std::mem::replace(&mut has_failed, true) {
                    println!("worker {worker} gives up on {}", name(&job));
                    return session.rollback().unwrap_or_default();
                }
                // The harder the job, the longer it takes; whoever is free gets the next one.
                std::thread::park_timeout(Duration::from_micros(200 * u64::from(job.priority())));
                if session.commit().is_ok() {
                    // The receiver is gone only when the program ends.
                    let _sent = done.send((worker, name(&job), job.is_redelivered()));
                }
            })
        })?;
    // One job at a time for each worker.
    let options = ConsumerOptions::new();
    let consumer = connection.create_connection_consumer(&jobs, &options, pool, 1)?;

    let session = connection.create_session(AcknowledgeMode::Auto)?;
    let mut producer = session.create_producer(&jobs)?;
    for n in 0..JOBS {
        producer.set_priority(u8::try_from(n % 10)?)?;
        producer.send(Message::text(format!("job {n}")))?;
    }
    connection.start()?;

    let mut shares = BTreeMap::new();
    for (worker, job, came_again) in results.iter().take(JOBS) {
        if came_again {
            println!("worker {worker} does {job}, which has come again");
        }
        *shares.entry(worker).or_insert(0) += 1;
    }
    for (worker, share) in shares {
        println!("worker {worker} did {share} jobs");
    }
    consumer.close()?;
    connection.close()?;
    drop(broker);
    Ok(())
}

fn name(job: &Message) -> String {
    job.body_text().ok().flatten().unwrap_or_default().into_owned()
}
