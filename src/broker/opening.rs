//! Opens what the settings name: the store of persistent messages, and the directory.

use std::{
    fs::{File, TryLockError},
    path::Path,
    pin::Pin,
};

#[cfg(feature = "fjall")]
use crate::store::{FjallSettings, FjallStore};
use crate::store::{MessageStore, StoreError};
#[cfg(feature = "postgres")]
use crate::store::{PostgresSettings, PostgresStore, Wait};

use super::{config::BrokerConfig, database_url::DatabaseUrl, start::StartError};

/// What a broker does whose store another one has.
pub(super) enum IfInUse<'a> {
    /// It does not start.
    Refuse,
    /// It waits until that one is gone, or `stop` is done.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "no store can be waited for"))]
    Wait {
        /// Is told once why it waits.
        tell: &'a mut dyn FnMut(&StoreError),
        /// Ends the wait.
        stop: Pin<&'a mut (dyn Future<Output = ()> + 'a)>,
    },
}

/// What was opened.
pub(super) struct Opened {
    /// The store, if there is one.
    pub(super) store: Option<Box<dyn MessageStore>>,
    /// Of the directory, if the store does not lock it.
    pub(super) lock: Option<File>,
}

/// Opens what the settings name.
pub(super) fn open(config: &BrokerConfig, if_in_use: IfInUse<'_>) -> Result<Opened, StartError> {
    let Some(url) = &config.postgres else {
        let store = config.data.as_deref().map(open_own).transpose()?.flatten();
        let lock = match &store {
            None => config.data.as_deref().map(lock).transpose()?,
            Some(_) => None,
        };
        return Ok(Opened { store, lock });
    };
    let lock = config.data.as_deref().map(lock_without_messages).transpose()?;
    Ok(Opened { store: Some(open_shared(url, config, if_in_use)?), lock })
}

/// The store in a directory.
#[cfg(feature = "fjall")]
fn open_own(directory: &Path) -> Result<Option<Box<dyn MessageStore>>, StartError> {
    Ok(Some(Box::new(FjallStore::open(directory, FjallSettings::default())?)))
}

/// Without an engine, none.
#[cfg(not(feature = "fjall"))]
fn open_own(_: &Path) -> Result<Option<Box<dyn MessageStore>>, StartError> {
    Ok(None)
}

/// The store in a database that several brokers share.
#[cfg(feature = "postgres")]
fn open_shared(
    url: &DatabaseUrl,
    config: &BrokerConfig,
    if_in_use: IfInUse<'_>,
) -> Result<Box<dyn MessageStore>, StartError> {
    // What helps to find it: more than one may have the name.
    let holder = format!("{} at {}, process {}", config.name, config.listen, std::process::id());
    let settings = PostgresSettings { lease: config.lease, holder };
    let mut store = PostgresStore::connect(url.reveal(), settings)?;
    match (store.acquire(Wait::No), if_in_use) {
        (Err(error @ StoreError::InUse { .. }), IfInUse::Wait { tell, stop }) => {
            tell(&error);
            store.acquire(Wait::Until(stop))?;
        }
        (taken, _) => {
            let _fence = taken?;
        }
    }
    Ok(Box::new(store))
}

/// Without a driver, an error.
#[cfg(not(feature = "postgres"))]
fn open_shared(
    url: &DatabaseUrl,
    _: &BrokerConfig,
    _: IfInUse<'_>,
) -> Result<Box<dyn MessageStore>, StartError> {
    let reason = "this program was built without the feature `postgres`; build it with that";
    Err(StoreError::failed(format!("opening the store in {url}"), reason).into())
}

/// The lock of a directory for the user file alone, so that nobody believes to have the messages in it.
fn lock_without_messages(directory: &Path) -> Result<File, StartError> {
    if directory.join("messages").is_dir() {
        let reason = "it holds messages, and the setting store.postgres names another place for \
                      them; serve them without that setting first, or name another directory";
        return Err(StartError::Data { directory: directory.into(), reason: reason.into() });
    }
    lock(directory)
}

/// Makes the directory if need be and locks it against another broker. The lock is the kernel's,
/// so it ends with the process, however that ends.
fn lock(directory: &Path) -> Result<File, StartError> {
    let failed = |reason: String| StartError::Data { directory: directory.into(), reason };
    std::fs::create_dir_all(directory).map_err(|error| failed(error.to_string()))?;
    let path = directory.join("lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| failed(error.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(failed("in use by another broker".into())),
        Err(TryLockError::Error(error)) => Err(failed(error.to_string())),
    }
}
