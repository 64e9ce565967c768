//! To an embedded broker without sockets: the same login, the same packets, over pipes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{
    connect::{Caller, is_final, login},
    core::LoggedIn,
    error::{AttemptError, ConnectError},
    settings::Settings,
    socket::Wire,
};
use crate::{in_process::InProcess, proto::client::LEVEL};

/// What stands for the broker's address.
const PLACE: &str = "in-process";

/// Connects through `broker` and logs in, once: a broker that has ended does not come back there.
pub(super) fn connect(
    broker: &InProcess,
    settings: &Settings,
    caller: &Caller,
) -> Result<LoggedIn, ConnectError> {
    let (wire, timeout) = Wire::in_process(broker.connect());
    login(wire, timeout, settings, caller, LEVEL).map_err(|cause| {
        let address = PLACE.to_owned();
        if is_final(&cause) {
            return ConnectError::Refused { address, cause };
        }
        let last = AttemptError::Login { place: address.clone(), cause };
        ConnectError::Unreachable { addresses: address, attempts: 1, last }
    })
}

/// The address that connection `number` of this process would have: ids and the names of temporary
/// destinations are made of it. It is this machine's, and nobody who comes through a socket has it.
pub(super) fn local_address(number: u32) -> SocketAddr {
    let [high, low, port @ ..] = number.to_be_bytes();
    let ip = Ipv4Addr::new(127, 255, high, low);
    SocketAddr::new(IpAddr::V4(ip), u16::from_be_bytes(port))
}

#[cfg(test)]
mod tests {
    use super::local_address;

    #[test]
    fn connections_have_addresses_of_their_own_on_this_machine() {
        assert_eq!(local_address(5).to_string(), "127.255.0.0:5");
        assert_eq!(local_address(0x0102_0304).to_string(), "127.255.1.2:772");
        assert!(local_address(u32::MAX).ip().is_loopback());
    }
}
