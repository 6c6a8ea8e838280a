//! The record as its store has it, and who is registered beside it.

use std::time::Duration;

use clockwise_client::credentials::Password;
use clockwise_client::store::RoutesBy;
use clockwise_cluster::{PoolName, View};
use tokio::time::timeout;

use super::super::pool::PoolSeen;
use crate::admin::clients::{Bracket, ClientList, compare};
use crate::serve::config::StoreConfig;
use crate::serve::stores::{self, Access, Holder};

/// A little more than a store allows itself for one call.
const STORE_WITHIN: Duration = Duration::from_secs(6);

/// The pool as its record has it, and those who route by it.
pub(in super::super) struct RecordSeen {
    pub(in super::super) pool: PoolSeen,
    /// Or why they cannot be listed.
    pub(in super::super) clients: Result<ClientList, String>,
}

/// Reads a record. Must be called within a runtime.
pub(in super::super) async fn look(
    store: &StoreConfig,
    pool: &PoolName,
    password: Option<&Password>,
) -> Result<RecordSeen, String> {
    if let StoreConfig::File { dir } = store
        && !stores::is_there(dir)
    {
        return Err(format!("{} is no folder", dir.display()));
    }
    let holder = Holder {
        name: format!("clockwise doctor, process {}", std::process::id()),
        contact: None,
    };
    let opened = stores::open(store, pool, password, holder, Access::Read);
    let opened = opened.map_err(|error| error.to_string())?;
    let late = |_| format!("no answer within {STORE_WITHIN:?}");
    let read = async || match timeout(STORE_WITHIN, opened.store.read())
        .await
        .map_err(late)?
    {
        Ok(Some(record)) => Ok(record),
        Ok(None) => Err(format!("{store} holds no pool {pool}")),
        Err(error) => Err(error.to_string()),
    };
    let before = read().await?;
    let listed = timeout(STORE_WITHIN, opened.registry.registered()).await;
    let listed = listed
        .map_err(late)
        .and_then(|listed| listed.map_err(|error| error.to_string()));
    // An epoch that came meanwhile puts nobody in the wrong.
    let after = read().await?;
    let routes_by = |record| {
        let view = View::from_record(record).map_err(|error| error.to_string())?;
        Ok::<_, String>(RoutesBy::from(&view))
    };
    let bracket = Bracket {
        before: routes_by(&before)?,
        after: routes_by(&after)?,
    };
    Ok(RecordSeen {
        pool: PoolSeen::of_record(&after)?,
        clients: listed.map(|listing| compare(listing, bracket)),
    })
}
