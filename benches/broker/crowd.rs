//! Many connections that are idle most of the time.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};
use tidegate::wire::{PacketBuilder, PacketType};

use crate::{
    duty::{self, Duty},
    lean::METERING,
    raw::Raw,
};

/// Connections from one address, so that ports do not run out.
const PER_ADDRESS: usize = 5_000;

/// Opens connections and logs in on each. At every order all of them are pinged and their replies
/// counted.
pub(crate) fn crowd(duty: &Duty) {
    let to = duty.address();
    let open = |number: usize| {
        let mut raw = Raw::over(connect(number / PER_ADDRESS, to));
        raw.hello(METERING);
        raw.authenticate("guest", "guest");
        raw
    };
    let mut all: Vec<Raw> = (0..duty.setting("connections")).map(open).collect();
    duty.ready();
    loop {
        let is_served = |raw: &mut Raw| {
            let reply = raw.request(PacketBuilder::new(PacketType::PING));
            reply.header().packet_type == PacketType::PING_REPLY
        };
        let served = all.iter_mut().map(is_served).filter(|&served| served).count();
        duty::say(&served.to_string());
        duty.order();
    }
}

/// Connects from one of several addresses of this machine.
fn connect(address: usize, to: SocketAddr) -> TcpStream {
    let from = Ipv4Addr::new(127, 0, 0, 2 + u8::try_from(address).expect("few addresses"));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}
