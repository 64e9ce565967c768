//! Lists of addresses: which are tried, and what is told when none works.
#![cfg(all(feature = "client", feature = "broker"))]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]
#![allow(clippy::disallowed_methods, reason = "a test reads the clock; cores and protocol do not")]

mod support;

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use support::broker;
use tidegate::client::{AttemptError, ConnectError, ConnectionFactory};

/// One of every kind that needs a transport of its own.
const FOREIGN: &str = "mqssl://127.0.0.1:1/ssljms,mq+ssl://127.0.0.1,mq://127.0.0.1/ssljms,\
                       mqws://127.0.0.1,mqwss://127.0.0.1,http://127.0.0.1:1/imq/tunnel,\
                       https://127.0.0.1:1/imq/tunnel,mq://127.0.0.1/httpjms";

/// A factory that would rest for an hour between two attempts.
fn factory(list: &str) -> ConnectionFactory {
    let mut factory = ConnectionFactory::new();
    factory.address_list(list).unwrap().reconnect_interval(Duration::from_secs(3600));
    factory
}

/// A port where nobody listens.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn addresses_of_transports_that_are_not_included_fail_at_once_and_tell_what_is_missing() {
    let mut factory = factory(FOREIGN);
    factory.address_list_iterations(None).reconnect_attempts(None);
    let error = factory.create_connection().unwrap_err();
    let ConnectError::Unreachable { addresses, attempts: 8, last } = &error else {
        panic!("{error:?}")
    };
    assert!(addresses.starts_with("mqssl://127.0.0.1:1/ssljms, mq+ssl://"), "{addresses}");
    assert!(matches!(last, AttemptError::NotIncluded { missing: "the HTTP tunnel", .. }));
    let text = last.to_string();
    assert!(text.starts_with("mq://127.0.0.1:7676/httpjms needs the HTTP tunnel"), "{text}");
}

#[test]
fn a_list_may_mix_them_with_others_and_the_walk_goes_on() {
    let broker = broker(1);
    let port_mapper = broker.port_mapper_address();
    for mixed in [
        format!("{FOREIGN},mq://{port_mapper}/jms"),
        format!("{FOREIGN},mqtcp://{}/jms,{FOREIGN}", broker.jms_address()),
        format!("mqws://h,mqtcp://{}/admin", broker.jms_address()),
    ] {
        factory(&mixed).create_connection().unwrap().close().unwrap();
    }
}

#[test]
fn the_next_address_is_tried_after_the_interval() {
    let broker = broker(1);
    let good = format!("mqtcp://{}/jms", broker.jms_address());
    let list = format!("mqtcp://127.0.0.1:{}/jms,{good}", closed_port());
    let mut factory = factory(&list);
    let interval = Duration::from_millis(150);
    factory.reconnect_interval(interval).address_list_iterations(Some(1));
    let began = Instant::now();
    let connection = factory.create_connection().unwrap();
    assert!(began.elapsed() >= interval, "{:?}", began.elapsed());
    connection.close().unwrap();
}

#[test]
fn every_address_is_tried_as_often_as_the_settings_say() {
    let list =
        format!("mqtcp://127.0.0.1:{0}/jms,mqtcp://127.0.0.1:{0}/jms,mqws://h", closed_port());
    let mut factory = factory(&list);
    factory.reconnect_interval(Duration::ZERO).address_list_iterations(Some(3));
    factory.reconnect_attempts(Some(1));
    let error = factory.create_connection().unwrap_err();
    // Two attempts at each of two addresses in each of three passes, and one in vain.
    assert!(matches!(error, ConnectError::Unreachable { attempts: 13, .. }), "{error:?}");
}
