//! Taking a target that came back as another run after it had become an owner as it is.

use std::sync::Arc;

use clockwise_client::store::{NextError, Store, commit_next};
use clockwise_cluster::{Incarnation, Record, StepError};
use clockwise_placement::NodeId;

use super::mandate::node_address;
use super::translate;
use crate::driver::{Driver, DriverError};

/// Why a target was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// It is no node of the pool.
    #[error("no node of this name is in the pool")]
    UnknownNode,
    /// The node cannot be looked at.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The server's names for its run and data cannot be stored.
    #[error("{0}")]
    Nameless(String),
    /// Nothing in flight has flipped to it.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// Commits that the handoffs which flipped to this node go on with what it has now.
///
/// # Errors
/// A node that cannot be looked at, none that anything in flight has flipped to, or a store that does not
/// commit.
pub async fn accept(
    store: &dyn Store,
    driver: &dyn Driver,
    target: &NodeId,
) -> Result<Arc<Record>, NextError<AcceptError>> {
    commit_next(store, None, |record| async move {
        let found = found(driver, &record, target).await?;
        Ok(record.accept_target(target, &found)?)
    })
    .await
}

async fn found(
    driver: &dyn Driver,
    record: &Record,
    target: &NodeId,
) -> Result<Incarnation, AcceptError> {
    let node = record.node(target).ok_or(AcceptError::UnknownNode)?;
    let facts = driver.inspect(&node_address(node)).await?;
    let identity = translate::identity(&facts.identity);
    let identity = identity.map_err(|error| AcceptError::Nameless(error.to_string()))?;
    Ok(identity.incarnation)
}
