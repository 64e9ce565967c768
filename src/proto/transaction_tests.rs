//! What packets ask for, and what is refused.

use proptest::prelude::*;

use super::{
    Association, AutoRollback, Ending, Rollback, Start, Target, TransactionRequest, XaFlags, Xid,
    XidError, read,
};
use crate::wire::{PacketBuilder, PacketType, Status};

fn xid() -> Xid {
    Xid::new(0x1234, b"gtx\0\0\0\0\x01", b"b-1").unwrap()
}

fn packet(kind: PacketType) -> PacketBuilder {
    PacketBuilder::new(kind)
}

fn ask(builder: PacketBuilder) -> Result<TransactionRequest, (Status, String)> {
    let packet = builder.finish();
    let table = packet.properties().unwrap();
    read(&packet, &table)
}

fn refused(builder: PacketBuilder) -> (i32, String) {
    let (status, reason) = ask(builder).expect_err("refused");
    (status.0, reason)
}

#[test]
fn an_xid_reads_back_and_says_its_parts() {
    let xid = xid();
    let bytes = xid.encode();
    assert_eq!(bytes[..10], [0, 0, 0x12, 0x34, 0, 8, 0, 3, b'g', b't']);
    assert_eq!(bytes[72..76], *b"b-1\0");
    assert_eq!(Xid::decode(&bytes), Ok(xid));
    assert_eq!((xid.global(), xid.branch()), (&b"gtx\0\0\0\0\x01"[..], &b"b-1"[..]));
    assert_eq!(xid.to_string(), "1234:6774780000000001:622d31");
}

#[test]
fn what_stands_behind_the_names_of_an_xid_does_not_count() {
    let mut bytes = xid().encode();
    bytes[8 + 8] = 9;
    bytes[135] = 9;
    assert_eq!(Xid::decode(&bytes), Ok(xid()));
    assert_eq!(Xid::decode(&bytes).unwrap().encode(), xid().encode());
    // A zero within the name does.
    assert_ne!(Xid::new(1, b"a", b""), Xid::new(1, b"a\0", b""));
    assert_ne!(Xid::new(1, b"a", b""), Xid::new(2, b"a", b""));
    assert_ne!(Xid::new(1, b"a", b""), Xid::new(1, b"", b"a"));
}

#[test]
fn names_of_an_xid_have_at_most_64_bytes() {
    for len in [0, 1, 63, 64] {
        let name = vec![b'x'; len];
        let xid = Xid::new(7, &name, &name).unwrap();
        assert_eq!(Xid::decode(&xid.encode()), Ok(xid));
    }
    assert_eq!(Xid::new(7, &[0; 65], b""), Err(XidError::Part { what: "global", len: 65 }));
    assert_eq!(Xid::new(7, b"", &[0; 65]), Err(XidError::Part { what: "branch", len: 65 }));
    let mut bytes = xid().encode();
    bytes[5] = 65;
    assert_eq!(Xid::decode(&bytes), Err(XidError::Part { what: "global", len: 65 }));
    bytes = xid().encode();
    bytes[6..8].copy_from_slice(&(-1_i16).to_be_bytes());
    assert_eq!(Xid::decode(&bytes), Err(XidError::Part { what: "branch", len: -1 }));
}

#[test]
fn no_other_length_than_136_and_no_empty_xid_is_one() {
    let bytes = xid().encode();
    for len in 0..Xid::LEN {
        assert_eq!(Xid::decode(&bytes[..len]), Err(XidError::Length { found: len }));
    }
    assert_eq!(Xid::decode(&[&bytes[..], &[0]].concat()), Err(XidError::Length { found: 137 }));
    let mut none = bytes;
    none[..4].copy_from_slice(&(-1_i32).to_be_bytes());
    assert_eq!(Xid::decode(&none), Err(XidError::None));
    assert_eq!(Xid::new(-1, b"a", b"b"), Err(XidError::None));
}

#[test]
fn a_session_starts_local_transactions() {
    let request = ask(packet(PacketType::START_TRANSACTION).long("JMQSessionID", 5));
    let expected = Start {
        session: Some(5),
        xid: None,
        association: Association::New,
        auto_rollback: AutoRollback::NotPrepared,
        lifetime_ms: None,
        session_less: false,
    };
    assert_eq!(request, Ok(TransactionRequest::Start(expected)));
    let request = ask(packet(PacketType::START_TRANSACTION)
        .int("JMQAutoRollback", 3)
        .long("JMQLifetime", 250)
        .boolean("JMQSessionLess", true));
    let expected = Start {
        session: None,
        xid: None,
        association: Association::New,
        auto_rollback: AutoRollback::Never,
        lifetime_ms: Some(250),
        session_less: true,
    };
    assert_eq!(request, Ok(TransactionRequest::Start(expected)));
}

#[test]
fn a_transaction_manager_starts_joins_and_resumes_branches() {
    let flagged = |flags: i32| {
        packet(PacketType::START_TRANSACTION).int("JMQXAFlags", flags).body(xid().encode().to_vec())
    };
    let cases = [
        (0, Association::New),
        (XaFlags::JOIN.0, Association::Join),
        (XaFlags::RESUME.0, Association::Resume),
    ];
    for (flags, association) in cases {
        let Ok(TransactionRequest::Start(start)) = ask(flagged(flags)) else { panic!("{flags}") };
        assert_eq!((start.association, start.xid), (association, Some(xid())));
    }
    for flags in [XaFlags::JOIN.0 | XaFlags::RESUME.0, XaFlags::FAIL.0, 1] {
        assert_eq!(refused(flagged(flags)).0, 400, "{flags:#x}");
    }
    // Without flags an XID is still one.
    let bare = packet(PacketType::START_TRANSACTION).body(xid().encode().to_vec());
    let Ok(TransactionRequest::Start(start)) = ask(bare) else { panic!() };
    assert_eq!(start.xid, Some(xid()));
    // Flags without one are not.
    let (status, reason) = refused(packet(PacketType::START_TRANSACTION).int("JMQXAFlags", 0));
    assert_eq!(status, 400);
    assert!(reason.starts_with("malformed XID: 0 bytes"), "{reason}");
}

#[test]
fn work_ends_in_exactly_one_way() {
    let end = |flags: i32| {
        packet(PacketType::END_TRANSACTION).int("JMQXAFlags", flags).body(xid().encode().to_vec())
    };
    let cases = [
        (XaFlags::SUCCESS.0, Ending::Success),
        (XaFlags::ONE_PHASE.0, Ending::Success),
        (XaFlags::SUCCESS.0 | XaFlags::ONE_PHASE.0, Ending::Success),
        (XaFlags::FAIL.0, Ending::Fail),
        (XaFlags::SUSPEND.0, Ending::Suspend),
    ];
    for (flags, ending) in cases {
        let target = Target::xid(xid(), None);
        let expected = TransactionRequest::End { target, ending, no_op: false };
        assert_eq!(ask(end(flags)), Ok(expected), "{flags:#x}");
    }
    for flags in [0, XaFlags::SUCCESS.0 | XaFlags::FAIL.0, XaFlags::JOIN.0] {
        assert_eq!(refused(end(flags)).0, 400, "{flags:#x}");
    }
    let asks =
        packet(PacketType::END_TRANSACTION).long("JMQTransactionID", 9).boolean("JMQNoOp", true);
    let expected =
        TransactionRequest::End { target: Target::id(9), ending: Ending::Success, no_op: true };
    assert_eq!(ask(asks), Ok(expected));
}

#[test]
fn either_sign_of_one_phase_is_enough() {
    let commit = || packet(PacketType::COMMIT_TRANSACTION).long("JMQTransactionID", 9);
    let one_phase = |builder| match ask(builder) {
        Ok(TransactionRequest::Commit { one_phase, .. }) => one_phase,
        other => panic!("{other:?}"),
    };
    assert!(!one_phase(commit()));
    assert!(!one_phase(commit().int("JMQXAFlags", 0)));
    assert!(one_phase(commit().int("JMQXAFlags", XaFlags::ONE_PHASE.0)));
    assert!(one_phase(commit().boolean("JMQXAOnePhase", true)));
    let expected =
        TransactionRequest::Commit { target: Target::id(9), one_phase: false, start_next: true };
    assert_eq!(ask(commit().boolean("JMQStartNextTransaction", true)), Ok(expected));
}

#[test]
fn a_rollback_says_what_the_application_has_seen() {
    let rollback = || packet(PacketType::ROLLBACK_TRANSACTION).long("JMQTransactionID", 9);
    let wish = |redeliver, seen, max_rollbacks, dead_on_max| {
        let target = Target::id(9);
        let wish = Rollback { target, redeliver, seen, max_rollbacks, dead_on_max };
        Ok(TransactionRequest::Rollback(wish))
    };
    assert_eq!(ask(rollback()), wish(false, true, None, false));
    let full = rollback()
        .boolean("JMQRedeliver", true)
        .boolean("JMQSetRedelivered", false)
        .int("JMQMaxRollbacks", 3)
        .boolean("JMQDMQOnMaxRollbacks", true);
    assert_eq!(ask(full), wish(true, false, Some(3), true));
    let updates = rollback()
        .boolean("JMQSetRedelivered", false)
        .boolean("JMQUpdateConsumed", true)
        .int("JMQMaxRollbacks", -1);
    assert_eq!(ask(updates), wish(false, true, None, false));
}

#[test]
fn every_request_about_one_needs_its_id_or_its_xid() {
    let kinds = [
        PacketType::END_TRANSACTION,
        PacketType::PREPARE_TRANSACTION,
        PacketType::COMMIT_TRANSACTION,
        PacketType::ROLLBACK_TRANSACTION,
        PacketType::VERIFY_TRANSACTION,
    ];
    for kind in kinds {
        let missing = (500, "missing TransactionID".to_owned());
        assert_eq!(refused(packet(kind)), missing, "{kind}");
        assert_eq!(refused(packet(kind).long("JMQTransactionID", 0)), missing, "{kind}");
        assert_eq!(refused(packet(kind).body(vec![0; 135])).0, 400, "{kind}");
        assert!(ask(packet(kind).long("JMQTransactionID", 4)).is_ok(), "{kind}");
        assert!(ask(packet(kind).body(xid().encode().to_vec())).is_ok(), "{kind}");
        let (status, reason) = refused(packet(kind).int("JMQTransactionID", 4));
        assert_eq!(status, 500, "{kind}: {reason}");
    }
    let both = packet(PacketType::VERIFY_TRANSACTION)
        .long("JMQTransactionID", 0)
        .body(xid().encode().to_vec());
    assert_eq!(ask(both), Ok(TransactionRequest::Verify(Target::xid(xid(), None))));
}

#[test]
fn a_scan_has_flags_and_other_packets_are_no_requests() {
    let flags = XaFlags::START_SCAN.0 | XaFlags::END_SCAN.0;
    let scan = packet(PacketType::RECOVER_TRANSACTION).int("JMQXAFlags", flags);
    assert_eq!(ask(scan), Ok(TransactionRequest::Recover(XaFlags(0x0180_0000))));
    assert_eq!(
        ask(packet(PacketType::RECOVER_TRANSACTION)),
        Ok(TransactionRequest::Recover(XaFlags(0)))
    );
    let (status, reason) = refused(packet(PacketType::PING));
    assert_eq!((status, reason.as_str()), (500, "PING is no request about a transaction"));
}

proptest! {
    #[test]
    fn any_packet_is_read_or_refused_with_a_reason(
        kind in prop_oneof![4 => 44..80_u16, 1 => any::<u16>()],
        section in prop::collection::vec(any::<u8>(), 0..120),
        named in prop::collection::vec((0..10_usize, any::<i64>(), 0..4_u8), 0..6),
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..140),
            prop::collection::vec(any::<u8>(), 136..137),
        ],
    ) {
        const NAMES: [&str; 10] = [
            "JMQTransactionID", "JMQXAFlags", "JMQSessionID", "JMQAutoRollback", "JMQLifetime",
            "JMQXAOnePhase", "JMQNoOp", "JMQRedeliver", "JMQMaxRollbacks", "JMQSessionLess",
        ];
        let mut builder = packet(PacketType(kind)).body(body);
        if named.is_empty() {
            builder = builder.property_section(section);
        }
        for (name, value, kind) in named {
            let int = i32::try_from(value & 0xFFFF_FFFF).unwrap_or(-1);
            builder = match kind {
                0 => builder.long(NAMES[name], value),
                1 => builder.int(NAMES[name], int),
                2 => builder.boolean(NAMES[name], value & 1 == 1),
                _ => builder.string(NAMES[name], "x"),
            };
        }
        let packet = builder.finish();
        if let Ok(table) = packet.properties()
            && let Err((status, reason)) = read(&packet, &table)
        {
            prop_assert!([400, 500].contains(&status.0));
            prop_assert!(!reason.is_empty());
        }
    }

    #[test]
    fn any_xid_that_is_read_reads_back(bytes in prop::collection::vec(any::<u8>(), 136..137), lens in (0..70_u8, 0..70_u8)) {
        let mut bytes = bytes;
        bytes[4..8].copy_from_slice(&[0, lens.0, 0, lens.1]);
        if let Ok(xid) = Xid::decode(&bytes) {
            prop_assert_eq!(Xid::decode(&xid.encode()), Ok(xid));
            prop_assert_eq!(xid.global().len(), usize::from(lens.0));
            prop_assert_eq!(Xid::new(i32::from_be_bytes(bytes[..4].try_into().unwrap()), xid.global(), xid.branch()), Ok(xid));
        } else {
            prop_assert!(lens.0 > 64 || lens.1 > 64 || bytes[..4] == [0xFF; 4]);
        }
    }
}
