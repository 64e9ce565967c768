//! A connection to the database, and the deadline of everything that is asked there.

use std::{
    fmt, io,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use tokio::{runtime::Runtime, time::timeout};
use tokio_postgres::{Client, Config, Error, NoTls};

use super::fault::{Fault, UNDEFINED_OBJECT};

/// The half of a connection that reads and writes the socket.
type Driver =
    Pin<Box<tokio_postgres::Connection<tokio_postgres::Socket, tokio_postgres::tls::NoTlsStream>>>;

/// What a session is told at its start. Each of these is known to every database of this kind.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// How long one statement may take; zero for as long as it likes.
    pub(super) statement: Duration,
    /// How long it may wait for the next statement of a transaction: as long as its client may
    /// stand still and keep others from the rows it has locked.
    pub(super) idle_in_transaction: Duration,
}

impl Session {
    fn sql(&self) -> String {
        // Whatever the server's defaults are: a commit returns after the sync.
        format!(
            "SET synchronous_commit = on; SET timezone = 'UTC'; \
             SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}",
            self.statement.as_millis(),
            self.idle_in_transaction.as_millis(),
        )
    }
}

/// Everything is found by its key. A plan that was made while a table was empty reads all of it,
/// and is kept after it has grown.
const BY_KEY_ONLY: &str = "SET enable_seqscan = off";

/// Opens connections, one at a time, and asks on them.
pub(super) struct Database {
    config: Config,
    session: Session,
    runtime: Runtime,
    link: Option<Link>,
}

struct Link {
    client: Client,
    driver: Driver,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("connected", &self.link.is_some()).finish_non_exhaustive()
    }
}

impl Database {
    pub(super) fn new(config: Config, session: Session) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { config, session, runtime, link: None })
    }

    /// Another one to the same place, not connected yet.
    pub(super) fn another(&self, session: Session) -> io::Result<Self> {
        Self::new(self.config.clone(), session)
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Gives up the connection, whatever is under way on it.
    pub(super) fn disconnect(&mut self) {
        self.link = None;
    }

    /// Connects anew.
    pub(super) fn connect(&mut self, within: Duration) -> Result<(), Fault> {
        self.link = None;
        let connecting = timeout_of(within, self.config.connect(NoTls));
        let (client, connection) = self.runtime.block_on(connecting)?;
        self.link = Some(Link { client, driver: Box::pin(connection) });
        let session = self.session.sql();
        self.run(within, async |client| client.batch_execute(&session).await)?;
        match self.run(within, async |client| client.batch_execute(BY_KEY_ONLY).await) {
            Err(fault) if !fault.has_code(UNDEFINED_OBJECT) => Err(fault),
            _ => Ok(()),
        }
    }

    /// Asks something, and waits for the answer for so long. A connection that is lost over it is
    /// given up, so that nothing that was asked there can be mistaken for the answer to another.
    pub(super) fn run<T>(
        &mut self,
        within: Duration,
        work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, Fault> {
        let Some(Link { client, driver }) = &mut self.link else {
            return Err(Fault::lost("there is no connection"));
        };
        let driven = async {
            let mut work = pin!(work(client));
            std::future::poll_fn(|context| {
                if let Poll::Ready(result) = work.as_mut().poll(context) {
                    return Poll::Ready(result.map_err(Fault::from));
                }
                loop {
                    match driver.as_mut().get_mut().poll_message(context) {
                        Poll::Ready(Some(Ok(_notice))) => {}
                        // What the connection says tells more than that it has ended.
                        Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error.into())),
                        Poll::Ready(None) => {
                            return Poll::Ready(Err(Fault::lost("the connection has ended")));
                        }
                        Poll::Pending => break,
                    }
                }
                work.as_mut().poll(context).map_err(Fault::from)
            })
            .await
        };
        let result = self.runtime.block_on(async {
            match timeout(within, driven).await {
                Ok(result) => result,
                Err(_) => Err(no_answer(within)),
            }
        });
        if result.as_ref().is_err_and(|fault| fault.kind == super::fault::Kind::Lost) {
            self.link = None;
        }
        result
    }

    /// Waits for a future of somebody else's; `None` if it has not come so long.
    pub(super) fn wait<T>(&self, longest: Duration, future: impl Future<Output = T>) -> Option<T> {
        self.runtime.block_on(async { timeout(longest, future).await.ok() })
    }
}

async fn timeout_of<T>(
    within: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Fault> {
    match timeout(within, work).await {
        Ok(result) => result.map_err(Fault::from),
        Err(_) => Err(no_answer(within)),
    }
}

fn no_answer(within: Duration) -> Fault {
    Fault::lost(format!("no answer within {} ms", within.as_millis()))
}
