use std::{collections::BTreeSet, time::Duration};

use super::{ATTRIBUTES, Attribute, AttributeKind, Profile, Settings, nearest};

/// Another value than the default, as `get` gives it back.
fn other_value(attribute: &Attribute) -> &'static str {
    match attribute.name() {
        "imqAddressList" => "mq://a:7676/jms,mqtcp://b:1/jms",
        "imqAddressListBehavior" => "RANDOM",
        "imqConnectionType" => "HTTP",
        "imqConnectionHandler" => "com.sun.messaging.jmq.jmsclient.protocol.ssl.SSLStreamHandler",
        "imqConnectionURL" => "https://w/c/tunnel",
        "imqJMSDeliveryMode" => "NON_PERSISTENT",
        name if name.contains("AckOn") => "false",
        _ if attribute.kind() == AttributeKind::Boolean => {
            if attribute.default_in(Profile::V35) == "true" { "false" } else { "true" }
        }
        _ if attribute.kind() == AttributeKind::String => "other",
        _ => "7",
    }
}

#[test]
fn the_table_has_the_defaults_that_the_settings_have() {
    for profile in [Profile::V35, Profile::Current] {
        let settings = Settings::new(profile);
        for attribute in &ATTRIBUTES {
            let name = attribute.name();
            let expected = attribute.default_in(profile);
            if !attribute.is_secret() {
                assert_eq!(settings.get(name).unwrap(), expected, "{name}");
            }
            assert!(!attribute.is_changed(&settings), "{name}");
            let mut set = settings.clone();
            set.set(name, expected).unwrap();
            assert!(!attribute.is_changed(&set), "{name}");
        }
        assert_eq!(format!("{settings:?}"), "{}");
    }
    let (old, new) = (Settings::default(), Settings::new(Profile::Current));
    assert_eq!(old.get("imqConsumerFlowLimit").unwrap(), "100");
    assert_eq!(new.get("imqConsumerFlowLimit").unwrap(), "1000");
    assert_eq!((old.iterations, new.iterations), (Some(5), Some(1)));
}

#[test]
fn every_attribute_can_be_set_and_read_back_and_changes_no_other() {
    for attribute in &ATTRIBUTES {
        let (name, value) = (attribute.name(), other_value(attribute));
        let mut settings = Settings::default();
        settings.set(name, &format!("  {value} ")).unwrap();
        let changed: Vec<_> = ATTRIBUTES
            .iter()
            .filter(|one| one.is_changed(&settings))
            .map(Attribute::name)
            .collect();
        assert_eq!(changed, [name]);
        let shown = if attribute.is_secret() { "***" } else { value };
        assert_eq!(settings.get(name).unwrap(), shown, "{name}");
        let debug = format!("{settings:?}");
        assert!(debug.contains(name) && debug.contains(shown), "{debug}");
    }
}

#[test]
fn every_attribute_refuses_bad_values_with_the_words_of_the_table() {
    let long = "x".repeat(2000);
    for attribute in &ATTRIBUTES {
        let name = attribute.name();
        let bad = match attribute.allowed().as_ref() {
            "up to 1024 bytes" => &long,
            _ if name == "imqConfiguredClientID" => "${x}y",
            _ => "no such thing/",
        };
        let mut settings = Settings::default();
        let error = settings.set(name, bad).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        assert!(error.contains(attribute.allowed().as_ref()), "{error}");
        assert_eq!(format!("{settings:?}"), "{}", "{name}");
        assert!(!attribute.is_secret() || !error.contains("xxx"), "{error}");
    }
}

#[test]
fn names_are_unique_and_grouped_and_the_nearest_is_found() {
    let names: BTreeSet<_> = ATTRIBUTES.iter().map(Attribute::name).collect();
    assert_eq!(names.len(), ATTRIBUTES.len());
    let mut groups: Vec<_> = ATTRIBUTES.iter().map(Attribute::group).collect();
    groups.dedup();
    assert_eq!(groups.len(), 7, "{groups:?}");
    for (wrong, right) in [
        ("imqAdressList", "imqAddressList"),
        ("IMQACKTIMEOUT", "imqAckTimeout"),
        ("consumerFlowLimit", "imqConsumerFlowLimit"),
        ("imqPingIntervall", "imqPingInterval"),
        ("imqSetJMSXAppId", "imqSetJMSXAppID"),
    ] {
        assert_eq!(nearest(wrong, names.iter().copied()), right);
        let error = Settings::default().set(wrong, "1").unwrap_err().to_string();
        assert!(error.contains(&format!("did you mean {right}?")), "{error}");
    }
}

#[test]
fn bounds_are_those_of_the_type() {
    for (name, least, most) in [
        ("imqAddressListIterations", "-2147483648", "2147483647"),
        ("imqReconnectAttempts", "-1", "2147483647"),
        ("imqReconnectInterval", "0", "9223372036854775807"),
        ("imqAckTimeout", "0", "2147483647"),
        ("imqPingInterval", "-1", "2147483647"),
        ("imqConsumerFlowThreshold", "0", "100"),
        ("imqJMSPriority", "0", "9"),
        ("imqBrokerHostPort", "1", "65535"),
        ("imqBrokerServicePort", "0", "65535"),
        ("imqQueueBrowserMaxMessagesPerRetrieve", "1", "100000"),
    ] {
        let beyond = |text: &str, step: i128| (text.parse::<i128>().unwrap() + step).to_string();
        let mut settings = Settings::default();
        settings.set(name, least).unwrap();
        settings.set(name, most).unwrap();
        for bad in [beyond(least, -1), beyond(most, 1), "1.5".to_owned(), String::new()] {
            let error = settings.set(name, &bad).unwrap_err().to_string();
            assert!(error.contains(&format!("{least} to {most}")), "{error}");
        }
    }
}

#[test]
fn zero_and_negative_mean_no_end_where_the_attribute_says_so() {
    let mut settings = Settings::default();
    assert_eq!((settings.iterations, settings.attempts), (Some(5), Some(0)));
    settings.set("imqAddressListIterations", "0").unwrap();
    settings.set("imqReconnectAttempts", "-1").unwrap();
    settings.set("imqPingInterval", "-1").unwrap();
    settings.set("imqPortMapperSoTimeout", "0").unwrap();
    assert_eq!((settings.iterations, settings.attempts), (None, None));
    assert_eq!((settings.ping_interval, settings.port_mapper_timeout), (None, None));
    settings.set("imqAckTimeout", "1500").unwrap();
    assert_eq!(settings.ack_timeout, Some(Duration::from_millis(1500)));
}

#[test]
fn words_have_their_other_forms() {
    for (name, value, shown) in [
        ("imqAddressListBehavior", "random", "RANDOM"),
        ("imqConnectionType", "ssl", "TLS"),
        ("imqJMSDeliveryMode", "1", "NON_PERSISTENT"),
        ("imqJMSDeliveryMode", "2", "PERSISTENT"),
        ("imqJMSDeliveryMode", "non_persistent", "NON_PERSISTENT"),
        ("imqAckOnProduce", "TRUE", "true"),
        ("imqAckOnProduce", " ", ""),
        ("imqConfiguredClientID", "${u}x", "${u}x"),
        ("imqConfiguredClientID", "x${y}", "x${y}"),
    ] {
        let mut settings = Settings::default();
        settings.set(name, value).unwrap();
        assert_eq!(settings.get(name).unwrap(), shown, "{name}");
    }
}

#[test]
fn what_has_no_effect_is_told_with_the_reason() {
    let mut settings = Settings::default();
    let told = |settings: &Settings| -> Vec<_> {
        let all = settings.without_effect();
        all.into_iter().map(|(one, why)| format!("{}: {why}", one.name())).collect()
    };
    settings.set("imqBrokerHostName", "h").unwrap();
    assert_eq!(told(&settings), [""; 0]);
    settings.set("imqKeyStore", "/k").unwrap();
    assert_eq!(told(&settings), ["imqKeyStore: no address needs TLS"]);
    settings.set("imqAddressList", "mq://a").unwrap();
    assert_eq!(
        told(&settings),
        [
            "imqKeyStore: no address needs TLS",
            "imqBrokerHostName: imqAddressList says where to connect",
        ]
    );
    settings.set("imqAddressList", "mq://a,mqssl://b:1").unwrap();
    assert!(told(&settings)[0].contains("this build does not include TLS"));
}

#[test]
fn overrides_count_only_while_their_switch_is_on() {
    let mut settings = Settings::default();
    for (name, value) in
        [("imqJMSPriority", "9"), ("imqJMSExpiration", "5"), ("imqJMSDeliveryMode", "1")]
    {
        settings.set(name, value).unwrap();
    }
    let overrides = |settings: &Settings| {
        let all = &settings.overrides;
        (all.priority(), all.time_to_live(), all.delivery_mode().is_some(), all.any())
    };
    assert_eq!(overrides(&settings), (None, None, false, false));
    settings.set("imqOverrideJMSPriority", "true").unwrap();
    assert_eq!(overrides(&settings), (Some(9), None, false, true));
    settings.set("imqOverrideJMSExpiration", "true").unwrap();
    settings.set("imqOverrideJMSDeliveryMode", "true").unwrap();
    let five = Duration::from_millis(5);
    assert_eq!(overrides(&settings), (Some(9), Some(five), true, true));
}

/// Text in which names and addresses are marked as such.
fn with_code(text: &str) -> String {
    let marked = |word: &str| {
        let bare = word.trim_end_matches([',', ';']);
        let is_code = ["://", "imq", "JMSX", ".", "_", "${"].iter().any(|part| bare.contains(part));
        if is_code && !bare.starts_with("3.0") {
            format!("`{bare}`{}", &word[bare.len()..])
        } else {
            word.to_owned()
        }
    };
    text.split(' ').map(marked).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_documented_table_is_the_real_one() {
    let code = |text: &str| match text {
        "" => String::new(),
        text => format!("`{text}`"),
    };
    let mut table = String::new();
    let mut group = "";
    for attribute in &ATTRIBUTES {
        if attribute.group() != group {
            group = attribute.group();
            let title = format!("{}{}", group[..1].to_uppercase(), &group[1..]);
            let gap = if table.is_empty() { "" } else { "\n" };
            table += &format!("{gap}{title}:\n\n| name | default | takes | what it is for |\n");
            table += "| --- | --- | --- | --- |\n";
        }
        let (name, meaning) = (code(attribute.name()), with_code(attribute.meaning()));
        let mut default = code(attribute.default_in(Profile::V35));
        let current = code(attribute.default_in(Profile::Current));
        if current != default {
            default += &format!("; current {current}");
        }
        let allowed = with_code(&attribute.allowed());
        table += &format!("| {name} | {default} | {allowed} | {meaning} |\n");
    }
    let documented = include_str!("attributes.md");
    assert!(documented == table, "settings/attributes.md should be:\n{table}END");
}
