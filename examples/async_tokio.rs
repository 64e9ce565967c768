//! A service and its callers as tasks of a tokio runtime, over a broker inside this program. tokio
//! is this example's choice: the futures run under any executor.
//!
//! `cargo run --release --example async_tokio`

use std::{error::Error, time::Duration};

use futures_lite::StreamExt as _;
use tidegate::{
    broker::Broker,
    client::{AcknowledgeMode, Connection, ConnectionFactory, Requestor},
    message::{Destination, Message},
};

const CALLERS: usize = 20;
const CALLS: usize = 50;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let mut builder = Broker::builder();
    builder.listen(([127, 0, 0, 1], 0).into());
    let broker = builder.start()?;
    let mut factory = ConnectionFactory::new();
    factory.address_list(&format!("mq://{}/jms", broker.port_mapper_address()))?;

    // One thread is enough: nothing here blocks it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(all(factory))?;
    broker.shutdown();
    Ok(())
}

#[allow(clippy::print_stdout, reason = "an example tells what it does")]
async fn all(factory: ConnectionFactory) -> Outcome<()> {
    let service = factory.create_connection_future().await?;
    let serving = tokio::spawn(serve(service.clone()));

    let connection = factory.create_connection_future().await?;
    connection.start_future().await?;
    let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(call(connection.clone()))).collect();
    for caller in callers {
        caller.await??;
    }
    connection.close_future().await?;
    // Ends the service's stream, and with it its task.
    service.close_future().await?;
    println!("{} requests of {CALLERS} callers were answered", serving.await??);
    Ok(())
}

/// Answers requests until the connection is closed; says how many there were.
async fn serve(connection: Connection) -> Outcome<usize> {
    let session = connection.create_session_future(AcknowledgeMode::Auto).await?;
    let consumer = session.create_consumer_future(&Destination::queue("double")?).await?;
    let replies = session.create_anonymous_producer()?;
    connection.start_future().await?;
    let (mut requests, mut count) = (consumer.messages(), 0);
    while let Some(request) = requests.next().await {
        let request = request?;
        let Some(to) = request.reply_to() else { continue };
        let number: i64 = request.body_text()?.unwrap_or_default().parse()?;
        let mut reply = Message::text((number * 2).to_string());
        reply.set_correlation_id(request.id().map(|id| format!("ID:{id}")).as_deref())?;
        replies.send_to_future(to, reply).await?;
        count += 1;
    }
    Ok(count)
}

async fn call(connection: Connection) -> Outcome<()> {
    let session = connection.create_session_future(AcknowledgeMode::Auto).await?;
    let mut requestor = Requestor::new_future(&session, &Destination::queue("double")?).await?;
    for number in 0..CALLS {
        let asked = requestor.request_future(Message::text(number.to_string()));
        // Whoever gives up waiting loses nothing: the future is dropped, no more.
        let reply = tokio::time::timeout(Duration::from_secs(10), asked).await??;
        assert_eq!(reply.body_text()?.as_deref(), Some((number * 2).to_string().as_str()));
    }
    Ok(requestor.close_future().await?)
}
