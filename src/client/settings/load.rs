//! Attributes from a properties file and from the environment.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Read as _,
    path::Path,
};

use java_properties::{LineContent, PropertiesIter};

use super::{Settings, find};
use crate::{client::error::ConfigError, setting::SettingError};

/// Largest properties file, in bytes; far more than all attributes take.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Sets what stands in a file of Java properties, in its order; nothing if one is refused.
pub(in crate::client) fn from_properties(
    settings: &Settings,
    path: &Path,
) -> Result<Settings, ConfigError> {
    let name = || path.display().to_string();
    let unreadable = |reason: String| ConfigError::File { path: name(), reason };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(unreadable(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    let mut settings = settings.clone();
    // Some editors save such files in UTF-8, and put a mark before it.
    let (text, encoding) = match bytes.strip_prefix(b"\xEF\xBB\xBF") {
        Some(text) => (text, encoding_rs::UTF_8),
        None => (&*bytes, encoding_rs::WINDOWS_1252),
    };
    for line in PropertiesIter::new_with_encoding(text, encoding) {
        let line = line.map_err(|error| match error.line_number() {
            Some(line) => unreadable(format!("line {line}: {error}")),
            None => unreadable(error.to_string()),
        })?;
        let number = line.line_number();
        if let LineContent::KVPair(key, value) = line.consume_content() {
            settings.set(&key, &value).map_err(|cause| ConfigError::Line {
                path: name(),
                line: number,
                cause: Box::new(cause),
            })?;
        }
    }
    Ok(settings)
}

/// Sets what the variables with the names of attributes say; nothing if one is refused. A name
/// that begins as those of attributes do, and is none, is refused too.
pub(in crate::client) fn from_environment(
    settings: &Settings,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, ConfigError> {
    let mut settings = settings.clone();
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| is_like_an_attribute(name)) else { continue };
        set_variable(&mut settings, name, &value)
            .map_err(|cause| ConfigError::Environment { cause: Box::new(cause) })?;
    }
    Ok(settings)
}

fn set_variable(settings: &mut Settings, name: &str, value: &OsStr) -> Result<(), ConfigError> {
    let attribute = find(name)?;
    let Some(text) = value.to_str() else {
        let shown = if attribute.is_secret() { "***".into() } else { value.to_string_lossy() };
        let allowed = format!("{}, in UTF-8", attribute.allowed());
        return Err(SettingError::new(attribute.name(), shown, allowed).into());
    };
    Ok(attribute.set(settings, text)?)
}

/// `imq` and a capital letter.
fn is_like_an_attribute(name: &str) -> bool {
    let rest = name.strip_prefix("imq");
    rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, fs, os::unix::ffi::OsStringExt as _};

    use super::{Settings, from_environment, from_properties};

    fn loaded(text: &[u8]) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.properties");
        fs::write(&path, text).unwrap();
        let loaded = from_properties(&Settings::default(), &path);
        loaded.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", cause.unwrap_or_default())
        })
    }

    fn from_variables(variables: &[(&str, &[u8])]) -> Result<Settings, String> {
        let variables = variables
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from_vec(value.to_vec())));
        from_environment(&Settings::default(), variables).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", cause.unwrap_or_default())
        })
    }

    #[test]
    fn a_properties_file_is_read_as_java_reads_it() {
        let text = b"# a comment\n! another\n\nimqAddressList = mq://a,\\\n    mq://b\n\
                     imqAckTimeout:250\nimqDefaultUsername n\\u00e4me\nimqDefaultPassword=p\xe4ss\n\
                     imqAckTimeout=500\r\n";
        let settings = loaded(text).unwrap();
        let hosts: Vec<_> = settings.address_list().into_iter().map(|one| one.host).collect();
        assert_eq!(hosts, ["a", "b"]);
        assert_eq!((settings.user.as_str(), settings.password.as_str()), ("näme", "päss"));
        assert_eq!(settings.get("imqAckTimeout").unwrap(), "500");
    }

    #[test]
    fn blanks_line_ends_and_a_mark_at_the_beginning_do_not_matter() {
        let text = "\u{feff}imqReconnectEnabled = true \r\nimqAckTimeout=250\t\r\n\
                    imqAddressListBehavior= RANDOM \r\nimqDefaultUsername=näme 🌊\r\n";
        let settings = loaded(text.as_bytes()).unwrap();
        for (name, value) in [
            ("imqReconnectEnabled", "true"),
            ("imqAckTimeout", "250"),
            ("imqAddressListBehavior", "RANDOM"),
            ("imqDefaultUsername", "näme 🌊"),
        ] {
            assert_eq!(settings.get(name).unwrap(), value);
        }
        let error = loaded(b"imqReconnectEnabled=\n").unwrap_err();
        assert!(error.contains("line 1") && error.contains("true or false"), "{error}");
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let error = from_properties(&Settings::default(), "/dev/zero".as_ref()).unwrap_err();
        assert!(error.to_string().contains("more than 1048576 bytes"), "{error}");
    }

    #[test]
    fn a_refusal_tells_file_line_and_what_is_allowed() {
        let error = loaded(b"imqAckTimeout=1\n\nimqPingInterval=soon\n").unwrap_err();
        assert!(error.contains("client.properties, line 3"), "{error}");
        assert!(error.contains("imqPingInterval") && error.contains("-1 to"), "{error}");
        let error = loaded(b"imqAdressList=mq://h\n").unwrap_err();
        assert!(error.contains("line 1") && error.contains("imqAddressList"), "{error}");
        let error = loaded(b"imqAckTimeout=1\nimqDefaultUsername=\\u00zz\n").unwrap_err();
        assert!(error.contains("client.properties") && error.contains("line 2"), "{error}");
        let nowhere = from_properties(&Settings::default(), "/nowhere/at.all".as_ref());
        let error = nowhere.unwrap_err().to_string();
        assert!(error.contains("/nowhere/at.all"), "{error}");
    }

    #[test]
    fn variables_of_exactly_the_names_are_taken_and_others_left_alone() {
        let settings = from_variables(&[
            ("PATH", b"/bin"),
            ("IMQ_HOME", b"/opt"),
            ("imq", b"x"),
            ("imqlower", b"x"),
            ("imqConsumerFlowLimit", b"7"),
        ]);
        assert_eq!(settings.unwrap().get("imqConsumerFlowLimit").unwrap(), "7");
        let error = from_variables(&[("imqConsumerFlowLimits", b"7")]).unwrap_err();
        assert!(
            error.contains("environment") && error.contains("imqConsumerFlowLimit?"),
            "{error}"
        );
        let error = from_variables(&[("imqAckTimeout", b"\xff")]).unwrap_err();
        assert!(error.contains("imqAckTimeout") && error.contains("UTF-8"), "{error}");
        let error = from_variables(&[("imqDefaultPassword", b"secret\xff")]).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
}
