//! Which nodes a start begins with: those of the record, or the first ones of a new pool.

use std::sync::Arc;

use clockwise_client::store::{CommitError, ReadError, Store};
use clockwise_cluster::{
    AddressError, Edit, InvalidRecord, NewNode, NewPool, Protocol, Record, Revision, ServiceClass,
};
use clockwise_placement::NodeId;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::data_dir::{DataDir, DataDirError, make_private_folder};
use super::fleet::{Fleet, FleetError, Past};
use super::placing::{Kind, Placing};
use crate::random::with_nonces;

/// Nodes of a new pool unless another number is asked for.
const NODES: u16 = 3;
const POOL: &str = "default";
/// Servers that are started at a time: each reads all its data from the disk.
const STARTS_AT_ONCE: usize = 16;

/// What a new pool is made with; one that exists keeps what it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    /// How many nodes; three without it.
    pub nodes: Option<u16>,
    /// How keys find their nodes; without it by slots, or by a ring in a cache.
    pub placement: Option<Kind>,
    /// Whether only the part of a key in braces is hashed.
    pub hash_tags: bool,
    /// Whether clients may run scripts.
    pub scripts: bool,
    /// Whether clients may empty all nodes at once.
    pub flush_all: bool,
}

/// Why there is no pool to serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FirstError {
    /// The record cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The first record was not committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A server does not come up.
    #[error(transparent)]
    Server(#[from] FleetError),
    /// Something about the data folder.
    #[error(transparent)]
    Folder(#[from] DataDirError),
    /// The first record contradicts itself.
    #[error("the first record cannot be made: {0}")]
    Record(#[from] InvalidRecord),
    /// A server came up at an address that no record can have.
    #[error("a server's address cannot be recorded: {0}")]
    Address(#[from] AddressError),
    /// The pool on this folder was made without what is asked for.
    #[error(
        "the pool on this folder was made without {option}, and keeps it so: leave it out, or use another folder"
    )]
    Settled {
        /// The option.
        option: &'static str,
    },
    /// The system's random source failed.
    #[error("no random bytes: {0}")]
    Random(getrandom::Error),
}

/// Nodes and placement change while a pool lives, and whoever starts it says the same each time.
fn say_what_has_changed_since(record: &Record, wish: Wish) {
    let nodes = record.membership().nodes.len();
    if let Some(asked) = wish.nodes.filter(|asked| usize::from(*asked) != nodes) {
        tracing::warn!(
            "the pool on this folder has {}, not {asked}: --nodes is for a new folder; add or remove one with: clockwise node add|remove ID",
            counted(nodes)
        );
    }
    let placement = &record.membership().generator;
    let kind = Placing::of(placement).map(Placing::kind);
    if let Some(asked) = wish.placement.filter(|asked| kind != Some(*asked)) {
        tracing::warn!(
            "the pool on this folder is placed by {placement}: --placement is for a new folder; change it with: clockwise pool set --placement {asked}"
        );
    }
}

fn counted(nodes: usize) -> String {
    match nodes {
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes"),
    }
}

/// What a start begins with.
pub(super) struct First {
    pub(super) record: Arc<Record>,
    /// What became of what the nodes had before; none of a new pool.
    pub(super) pasts: Vec<(NodeId, Past)>,
}

/// Brings up the servers of this folder and gives the record they serve, made if there is none yet.
pub(super) async fn settle(
    store: &dyn Store,
    dir: &DataDir,
    fleet: &Fleet,
    wish: Wish,
    protocol: Protocol,
) -> Result<First, FirstError> {
    match store.read().await? {
        Some(record) => {
            if wish.hash_tags && !record.membership().scheme.hash_tags {
                return Err(FirstError::Settled {
                    option: "--hash-tags",
                });
            }
            if wish.scripts && !record.options().scripts {
                return Err(FirstError::Settled {
                    option: "--scripts",
                });
            }
            if wish.flush_all && !record.options().flush_all {
                return Err(FirstError::Settled {
                    option: "--flush-all",
                });
            }
            say_what_has_changed_since(&record, wish);
            let pasts = resume(&record, dir, fleet).await?;
            Ok(First { record, pasts })
        }
        None => Ok(First {
            record: create(store, dir, fleet, wish, protocol).await?,
            pasts: Vec::new(),
        }),
    }
}

/// Servers that were started on this folder, under the addresses that the record gives them.
async fn resume(
    record: &Record,
    dir: &DataDir,
    fleet: &Fleet,
) -> Result<Vec<(NodeId, Past)>, FirstError> {
    let own = dir.nodes()?;
    let in_pool = record
        .membership()
        .nodes
        .iter()
        .map(|node| (&node.id, &node.address));
    let joining = record
        .staged()
        .iter()
        .filter_map(|staged| match &staged.edit {
            Edit::Add { id, address, .. } => Some((id, address)),
            _ => None,
        });
    let ours = in_pool
        .chain(joining)
        .filter(|(id, _)| own.binary_search(id).is_ok());
    // One that takes long to load its data keeps nobody else waiting.
    let starts = ours.map(|(id, address)| async move {
        let running = fleet.run(id, Some(address.port())).await?;
        tracing::info!(node = %id, address = %running.address, adopted = running.adopted, "node runs");
        Ok((id.clone(), running.past))
    });
    let starts: Vec<_> = starts.collect();
    stream::iter(starts)
        .buffered(STARTS_AT_ONCE)
        .try_collect()
        .await
}

async fn create(
    store: &dyn Store,
    dir: &DataDir,
    fleet: &Fleet,
    wish: Wish,
    protocol: Protocol,
) -> Result<Arc<Record>, FirstError> {
    let mut first = Vec::new();
    for number in 1..=wish.nodes.unwrap_or(NODES) {
        let id: NodeId = format!("node-{number}")
            .parse()
            .expect("letters, a hyphen and digits name a node");
        make_private_folder(&dir.node(&id)?)?;
        let running = fleet.run(&id, None).await?;
        tracing::info!(node = %id, address = %running.address, "node started");
        first.push(NewNode::new(id, running.address.parse()?));
    }
    let mut pool = NewPool::new(POOL.parse().expect("a word names a pool"), first);
    pool.scheme = pool.scheme.with_hash_tags(wish.hash_tags);
    pool.protocol = protocol;
    // What is stored should lie evenly, and move no more than it must; a cache's clients may be many, and
    // know their nodes without a table.
    let (class, usual) = match protocol {
        Protocol::Memcached => (ServiceClass::Cache, Kind::Ring),
        _ => (ServiceClass::Store, Kind::Slots),
    };
    pool.class = class;
    pool.generator = Placing::usual(wish.placement.unwrap_or(usual)).generator();
    pool.options.scripts = wish.scripts;
    pool.options.flush_all = wish.flush_all;
    let record =
        with_nonces(|nonces| Record::create(pool, nonces)).map_err(FirstError::Random)??;
    Ok(store.commit(Revision::new(0), record, None).await?)
}
