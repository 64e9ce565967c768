//! The numbers of packets and their names.

use std::fmt;

/// What a packet is: its number on the wire.
///
/// Shape: any `u16`; numbers without a name are unknown types, which are answered or ignored but
/// never close a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a number, as on the wire")]
pub struct PacketType(pub u16);

/// Number and name of every packet, ascending.
const NAMES: [(u16, &str); 71] = [
    (0, "NULL"),
    (1, "TEXT_MESSAGE"),
    (2, "BYTES_MESSAGE"),
    (3, "MAP_MESSAGE"),
    (4, "STREAM_MESSAGE"),
    (5, "OBJECT_MESSAGE"),
    (6, "MESSAGE"),
    (9, "SEND_REPLY"),
    (10, "HELLO"),
    (11, "HELLO_REPLY"),
    (12, "AUTHENTICATE"),
    (13, "AUTHENTICATE_REPLY"),
    (14, "ADD_CONSUMER"),
    (15, "ADD_CONSUMER_REPLY"),
    (16, "DELETE_CONSUMER"),
    (17, "DELETE_CONSUMER_REPLY"),
    (18, "ADD_PRODUCER"),
    (19, "ADD_PRODUCER_REPLY"),
    (20, "START"),
    (22, "STOP"),
    (23, "STOP_REPLY"),
    (24, "ACKNOWLEDGE"),
    (25, "ACKNOWLEDGE_REPLY"),
    (26, "BROWSE"),
    (27, "BROWSE_REPLY"),
    (28, "GOODBYE"),
    (29, "GOODBYE_REPLY"),
    (30, "ERROR"),
    (32, "REDELIVER"),
    (34, "CREATE_DESTINATION"),
    (35, "CREATE_DESTINATION_REPLY"),
    (36, "DESTROY_DESTINATION"),
    (37, "DESTROY_DESTINATION_REPLY"),
    (38, "AUTHENTICATE_REQUEST"),
    (40, "VERIFY_DESTINATION"),
    (41, "VERIFY_DESTINATION_REPLY"),
    (42, "DELIVER"),
    (43, "DELIVER_REPLY"),
    (44, "START_TRANSACTION"),
    (45, "START_TRANSACTION_REPLY"),
    (46, "COMMIT_TRANSACTION"),
    (47, "COMMIT_TRANSACTION_REPLY"),
    (48, "ROLLBACK_TRANSACTION"),
    (49, "ROLLBACK_TRANSACTION_REPLY"),
    (50, "SET_CLIENTID"),
    (51, "SET_CLIENTID_REPLY"),
    (52, "RESUME_FLOW"),
    (54, "PING"),
    (55, "PING_REPLY"),
    (56, "PREPARE_TRANSACTION"),
    (57, "PREPARE_TRANSACTION_REPLY"),
    (58, "END_TRANSACTION"),
    (59, "END_TRANSACTION_REPLY"),
    (60, "RECOVER_TRANSACTION"),
    (61, "RECOVER_TRANSACTION_REPLY"),
    (62, "GENERATE_UID"),
    (63, "GENERATE_UID_REPLY"),
    (64, "FLOW_PAUSED"),
    (66, "DELETE_PRODUCER"),
    (67, "DELETE_PRODUCER_REPLY"),
    (68, "CREATE_SESSION"),
    (69, "CREATE_SESSION_REPLY"),
    (70, "DESTROY_SESSION"),
    (71, "DESTROY_SESSION_REPLY"),
    (72, "INFO_REQUEST"),
    (73, "INFO"),
    (74, "DEBUG"),
    (76, "GET_LICENSE"),
    (77, "GET_LICENSE_REPLY"),
    (78, "VERIFY_TRANSACTION"),
    (79, "VERIFY_TRANSACTION_REPLY"),
];

impl PacketType {
    /// `NULL`, number 0.
    pub const NULL: Self = Self(0);
    /// `TEXT_MESSAGE`, number 1.
    pub const TEXT_MESSAGE: Self = Self(1);
    /// `BYTES_MESSAGE`, number 2.
    pub const BYTES_MESSAGE: Self = Self(2);
    /// `MAP_MESSAGE`, number 3.
    pub const MAP_MESSAGE: Self = Self(3);
    /// `STREAM_MESSAGE`, number 4.
    pub const STREAM_MESSAGE: Self = Self(4);
    /// `OBJECT_MESSAGE`, number 5.
    pub const OBJECT_MESSAGE: Self = Self(5);
    /// `MESSAGE`, number 6.
    pub const MESSAGE: Self = Self(6);
    /// `SEND_REPLY`, number 9.
    pub const SEND_REPLY: Self = Self(9);
    /// `HELLO`, number 10.
    pub const HELLO: Self = Self(10);
    /// `HELLO_REPLY`, number 11.
    pub const HELLO_REPLY: Self = Self(11);
    /// `AUTHENTICATE`, number 12.
    pub const AUTHENTICATE: Self = Self(12);
    /// `AUTHENTICATE_REPLY`, number 13.
    pub const AUTHENTICATE_REPLY: Self = Self(13);
    /// `ADD_CONSUMER`, number 14.
    pub const ADD_CONSUMER: Self = Self(14);
    /// `ADD_CONSUMER_REPLY`, number 15.
    pub const ADD_CONSUMER_REPLY: Self = Self(15);
    /// `DELETE_CONSUMER`, number 16.
    pub const DELETE_CONSUMER: Self = Self(16);
    /// `DELETE_CONSUMER_REPLY`, number 17.
    pub const DELETE_CONSUMER_REPLY: Self = Self(17);
    /// `ADD_PRODUCER`, number 18.
    pub const ADD_PRODUCER: Self = Self(18);
    /// `ADD_PRODUCER_REPLY`, number 19.
    pub const ADD_PRODUCER_REPLY: Self = Self(19);
    /// `START`, number 20.
    pub const START: Self = Self(20);
    /// `STOP`, number 22.
    pub const STOP: Self = Self(22);
    /// `STOP_REPLY`, number 23.
    pub const STOP_REPLY: Self = Self(23);
    /// `ACKNOWLEDGE`, number 24.
    pub const ACKNOWLEDGE: Self = Self(24);
    /// `ACKNOWLEDGE_REPLY`, number 25.
    pub const ACKNOWLEDGE_REPLY: Self = Self(25);
    /// `BROWSE`, number 26.
    pub const BROWSE: Self = Self(26);
    /// `BROWSE_REPLY`, number 27.
    pub const BROWSE_REPLY: Self = Self(27);
    /// `GOODBYE`, number 28.
    pub const GOODBYE: Self = Self(28);
    /// `GOODBYE_REPLY`, number 29.
    pub const GOODBYE_REPLY: Self = Self(29);
    /// `ERROR`, number 30.
    pub const ERROR: Self = Self(30);
    /// `REDELIVER`, number 32.
    pub const REDELIVER: Self = Self(32);
    /// `CREATE_DESTINATION`, number 34.
    pub const CREATE_DESTINATION: Self = Self(34);
    /// `CREATE_DESTINATION_REPLY`, number 35.
    pub const CREATE_DESTINATION_REPLY: Self = Self(35);
    /// `DESTROY_DESTINATION`, number 36.
    pub const DESTROY_DESTINATION: Self = Self(36);
    /// `DESTROY_DESTINATION_REPLY`, number 37.
    pub const DESTROY_DESTINATION_REPLY: Self = Self(37);
    /// `AUTHENTICATE_REQUEST`, number 38.
    pub const AUTHENTICATE_REQUEST: Self = Self(38);
    /// `VERIFY_DESTINATION`, number 40.
    pub const VERIFY_DESTINATION: Self = Self(40);
    /// `VERIFY_DESTINATION_REPLY`, number 41.
    pub const VERIFY_DESTINATION_REPLY: Self = Self(41);
    /// `DELIVER`, number 42.
    pub const DELIVER: Self = Self(42);
    /// `DELIVER_REPLY`, number 43.
    pub const DELIVER_REPLY: Self = Self(43);
    /// `START_TRANSACTION`, number 44.
    pub const START_TRANSACTION: Self = Self(44);
    /// `START_TRANSACTION_REPLY`, number 45.
    pub const START_TRANSACTION_REPLY: Self = Self(45);
    /// `COMMIT_TRANSACTION`, number 46.
    pub const COMMIT_TRANSACTION: Self = Self(46);
    /// `COMMIT_TRANSACTION_REPLY`, number 47.
    pub const COMMIT_TRANSACTION_REPLY: Self = Self(47);
    /// `ROLLBACK_TRANSACTION`, number 48.
    pub const ROLLBACK_TRANSACTION: Self = Self(48);
    /// `ROLLBACK_TRANSACTION_REPLY`, number 49.
    pub const ROLLBACK_TRANSACTION_REPLY: Self = Self(49);
    /// `SET_CLIENTID`, number 50.
    pub const SET_CLIENTID: Self = Self(50);
    /// `SET_CLIENTID_REPLY`, number 51.
    pub const SET_CLIENTID_REPLY: Self = Self(51);
    /// `RESUME_FLOW`, number 52.
    pub const RESUME_FLOW: Self = Self(52);
    /// `PING`, number 54.
    pub const PING: Self = Self(54);
    /// `PING_REPLY`, number 55.
    pub const PING_REPLY: Self = Self(55);
    /// `PREPARE_TRANSACTION`, number 56.
    pub const PREPARE_TRANSACTION: Self = Self(56);
    /// `PREPARE_TRANSACTION_REPLY`, number 57.
    pub const PREPARE_TRANSACTION_REPLY: Self = Self(57);
    /// `END_TRANSACTION`, number 58.
    pub const END_TRANSACTION: Self = Self(58);
    /// `END_TRANSACTION_REPLY`, number 59.
    pub const END_TRANSACTION_REPLY: Self = Self(59);
    /// `RECOVER_TRANSACTION`, number 60.
    pub const RECOVER_TRANSACTION: Self = Self(60);
    /// `RECOVER_TRANSACTION_REPLY`, number 61.
    pub const RECOVER_TRANSACTION_REPLY: Self = Self(61);
    /// `GENERATE_UID`, number 62.
    pub const GENERATE_UID: Self = Self(62);
    /// `GENERATE_UID_REPLY`, number 63.
    pub const GENERATE_UID_REPLY: Self = Self(63);
    /// `FLOW_PAUSED`, number 64.
    pub const FLOW_PAUSED: Self = Self(64);
    /// `DELETE_PRODUCER`, number 66.
    pub const DELETE_PRODUCER: Self = Self(66);
    /// `DELETE_PRODUCER_REPLY`, number 67.
    pub const DELETE_PRODUCER_REPLY: Self = Self(67);
    /// `CREATE_SESSION`, number 68.
    pub const CREATE_SESSION: Self = Self(68);
    /// `CREATE_SESSION_REPLY`, number 69.
    pub const CREATE_SESSION_REPLY: Self = Self(69);
    /// `DESTROY_SESSION`, number 70.
    pub const DESTROY_SESSION: Self = Self(70);
    /// `DESTROY_SESSION_REPLY`, number 71.
    pub const DESTROY_SESSION_REPLY: Self = Self(71);
    /// `INFO_REQUEST`, number 72.
    pub const INFO_REQUEST: Self = Self(72);
    /// `INFO`, number 73.
    pub const INFO: Self = Self(73);
    /// `DEBUG`, number 74.
    pub const DEBUG: Self = Self(74);
    /// `GET_LICENSE`, number 76.
    pub const GET_LICENSE: Self = Self(76);
    /// `GET_LICENSE_REPLY`, number 77.
    pub const GET_LICENSE_REPLY: Self = Self(77);
    /// `VERIFY_TRANSACTION`, number 78.
    pub const VERIFY_TRANSACTION: Self = Self(78);
    /// `VERIFY_TRANSACTION_REPLY`, number 79.
    pub const VERIFY_TRANSACTION_REPLY: Self = Self(79);

    /// The name in the protocol's own spelling, if the number has one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let at = NAMES.binary_search_by_key(&self.0, |&(number, _)| number).ok()?;
        NAMES.get(at).map(|&(_, name)| name)
    }

    /// Whether this carries an application's message (types 1 to 6).
    #[must_use]
    pub const fn is_message(self) -> bool {
        self.0 >= 1 && self.0 <= 6
    }

    /// Whether this answers a request: odd numbers from 9 on, and `AUTHENTICATE_REQUEST`.
    #[must_use]
    pub const fn is_reply(self) -> bool {
        (self.0 >= 9 && self.0 % 2 == 1) || self.0 == Self::AUTHENTICATE_REQUEST.0
    }

    /// The type of the reply: `SEND_REPLY` for messages, the next number for everything else.
    #[must_use]
    pub const fn reply(self) -> Self {
        if self.is_message() { Self::SEND_REPLY } else { Self(self.0.saturating_add(1)) }
    }

    /// Every type that has a name.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|&(number, _)| Self(number))
    }
}

impl fmt::Display for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => f.pad(&format!("type {}", self.0)),
        }
    }
}

impl fmt::Debug for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::PacketType;

    #[test]
    fn names_are_sorted_and_replies_follow_their_requests() {
        assert!(super::NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(PacketType::TEXT_MESSAGE.reply(), PacketType::SEND_REPLY);
        assert_eq!(PacketType::ADD_CONSUMER.reply(), PacketType::ADD_CONSUMER_REPLY);
        assert_eq!(PacketType(1000).to_string(), "type 1000");
        assert!(PacketType::AUTHENTICATE_REQUEST.is_reply());
        assert!(!PacketType::RESUME_FLOW.is_reply());
    }
}
