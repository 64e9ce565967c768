//! The store in a PostgreSQL database does what every store does, with a real server.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test's deadlines are real time")]

mod store_support;
mod support;

use std::time::Duration;

use store_support::Store;
use support::postgres::Server;
use tidegate::store::{PostgresSettings, PostgresStore, Wait};

fn settings(holder: &str, lease: Duration) -> PostgresSettings {
    let mut settings = PostgresSettings::default();
    settings.holder = holder.into();
    settings.lease = lease;
    settings
}

fn connected(url: &str, holder: &str, lease: Duration) -> PostgresStore {
    PostgresStore::connect(url, settings(holder, lease)).unwrap()
}

/// Long enough for whatever this machine is busy with.
const LONG: Duration = Duration::from_secs(30);

fn opened(url: &str) -> PostgresStore {
    let mut store = connected(url, "test", LONG);
    store.acquire(Wait::No).unwrap();
    store
}

#[test]
fn a_database_is_a_store() {
    let server = Server::start();
    let mut number = 0;
    store_support::run(|| {
        number += 1;
        let name = format!("place_{number}");
        server.create(&name);
        let url = server.url(&name);
        move || Box::new(opened(&url)) as Store
    });
}
