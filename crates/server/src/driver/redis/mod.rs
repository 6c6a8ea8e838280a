//! Redis and Valkey nodes, version 7 and later.
//!
//! In reading order: `link` is a connection, `greeting` its beginning, `frame` what travels on it; `acl` says who may do
//! what, `server` applies it to one server, `inspect` looks before a change; `survey`, `expiries` and
//! `copy` move values, `pieces` and `streams` those that are too large, `stream_groups` what of those is
//! not tracked, `digest` compares;
//! `track` is the stream of dirty keys, `durable` waits for the disk, and `session` puts
//! together what one term may do to one node.

mod acl;
mod copy;
mod digest;
mod durable;
mod elements;
mod expiries;
mod frame;
mod greeting;
mod info;
mod inspect;
mod link;
mod pieces;
mod server;
mod session;
mod stream_groups;
mod stream_pieces;
mod streams;
mod survey;
mod track;

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;

pub use acl::RESERVED_PREFIX;
pub(crate) use info::Info;
pub use link::{Login, Patience};

use self::link::Link;
use self::session::RedisSession;
use super::{Driver, DriverError, NodeAddress, NodeFacts, Session, Term};

/// How this driver works with the nodes of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisOptions {
    /// Who makes the users of terms, on every node.
    pub administrator: Login,
    /// Whether client users may run scripts and functions.
    pub scripts: bool,
    /// How long to wait for what.
    pub patience: Patience,
}

/// [`Driver`] of Redis and Valkey servers. Clones are one driver.
#[derive(Clone, Debug)]
pub struct RedisDriver {
    options: Arc<RwLock<RedisOptions>>,
}

impl RedisDriver {
    /// A driver; connects to nothing yet.
    #[must_use]
    pub fn new(options: RedisOptions) -> Self {
        let options = Arc::new(RwLock::new(options));
        Self { options }
    }

    /// Logs in as this administrator from now on. Sessions that are open stay.
    pub fn change_administrator(&self, to: Login) {
        let mut options = self.options.write().unwrap_or_else(PoisonError::into_inner);
        options.administrator = to;
    }

    fn options(&self) -> RedisOptions {
        // One assignment each, so a panic elsewhere leaves them whole.
        let options = self.options.read().unwrap_or_else(PoisonError::into_inner);
        options.clone()
    }
}

#[async_trait]
impl Driver for RedisDriver {
    async fn inspect(&self, node: &NodeAddress) -> Result<NodeFacts, DriverError> {
        inspect::inspect(node, &self.options()).await
    }

    async fn canary(&self, source: &NodeAddress, target: &NodeAddress) -> Result<(), DriverError> {
        let RedisOptions {
            administrator,
            patience,
            ..
        } = self.options();
        let source = Link::open(&source.id, &source.address, &administrator, patience).await?;
        let target = Link::open(&target.id, &target.address, &administrator, patience).await?;
        copy::canary(&source, &target).await
    }

    async fn session(
        &self,
        node: &NodeAddress,
        term: Term,
    ) -> Result<Box<dyn Session>, DriverError> {
        Ok(Box::new(
            RedisSession::enter(node, term, &self.options()).await?,
        ))
    }
}
