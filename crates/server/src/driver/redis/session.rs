//! What one term may do to one node: the connections, and the order of things across the node's
//! replicas.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use futures_util::future::{try_join, try_join_all};
use tokio::sync::Mutex;

use super::copy;
use super::digest::{self, Content};
use super::durable;
use super::pieces::{self, Staging};
use super::server::{self, Server};
use super::stream_groups;
use super::track;
use super::{RedisOptions, acl};
use crate::driver::{
    Digest, DriverError, Generation, Identity, Item, Key, NodeAddress, OfKeys, Piece, PieceCursor,
    PieceRead, Read, Session, Term, Tracker, Untracked, WriteRefused,
};

/// A [`Session`] on a Redis or Valkey node.
pub(super) struct RedisSession {
    node: NodeAddress,
    term: Term,
    options: RedisOptions,
    primary: Server,
    /// Replicas entered so far, by address. One that is not listed any more stays: while it cannot
    /// be reached, nobody knows that it is fenced. Held over awaits on purpose: what is done to users
    /// is done by one task at a time.
    replicas: Mutex<BTreeMap<String, Server>>,
    staging: Staging,
}

impl RedisSession {
    pub(super) async fn enter(
        node: &NodeAddress,
        term: Term,
        options: &RedisOptions,
    ) -> Result<Self, DriverError> {
        let primary = Server::enter(node, term, options).await?;
        let session = Self {
            node: node.clone(),
            term,
            options: options.clone(),
            primary,
            replicas: Mutex::new(BTreeMap::new()),
            staging: Staging::default(),
        };
        session
            .enter_replicas(&mut *session.replicas.lock().await)
            .await?;
        Ok(session)
    }

    /// Enters replicas that have appeared, and replicas of theirs.
    async fn enter_replicas(
        &self,
        entered: &mut BTreeMap<String, Server>,
    ) -> Result<(), DriverError> {
        let mut seen = BTreeSet::new();
        let mut listed = self.primary.replicas().await?;
        while let Some(address) = listed.pop() {
            if !seen.insert(address.clone()) {
                continue;
            }
            if !entered.contains_key(&address) {
                let replica = NodeAddress {
                    id: self.node.id.clone(),
                    address: address.clone(),
                };
                let server = Server::enter(&replica, self.term, &self.options).await?;
                // A later term enters the primary first. If we are still in there, it has not been
                // here yet, and will remove what we have just made.
                self.primary.link.ask("PING", &[b"PING"]).await?;
                entered.insert(address.clone(), server);
            }
            if let Some(server) = entered.get(&address) {
                listed.extend(server.replicas().await?);
            }
        }
        Ok(())
    }

    /// Deletes client users on the primary and on every replica.
    async fn delete_client_users(
        &self,
        goes: impl Fn(Generation) -> bool + Copy,
    ) -> Result<(), DriverError> {
        let mut replicas = self.replicas.lock().await;
        let on_replicas = async {
            self.enter_replicas(&mut replicas).await?;
            try_join_all(
                replicas
                    .values()
                    .map(|server| server.delete_client_users(goes)),
            )
            .await
        };
        try_join(self.primary.delete_client_users(goes), on_replicas)
            .await
            .map(|_| ())
    }
}

#[async_trait]
impl Session for RedisSession {
    async fn identity(&self) -> Result<Identity, DriverError> {
        let link = &self.primary.link;
        let info = server::info(link, &["server", "replication"]).await?;
        info.identity().ok_or_else(|| {
            link.peer()
                .wrong_server("INFO shows no run_id, role or master_replid")
        })
    }

    async fn track(&self) -> Result<Tracker, DriverError> {
        track::start(&self.node, &self.primary, self.options.patience).await
    }

    async fn scan(&self, cursor: u64, count: u32) -> Result<(u64, Vec<Key>), DriverError> {
        copy::scan(&self.primary.link, cursor, count).await
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
        copy::read(&self.primary.link, keys).await
    }

    async fn read_small(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
        copy::read_small(&self.primary.link, keys).await
    }

    async fn write(
        &self,
        items: Vec<(Key, Item)>,
    ) -> Result<Vec<Result<(), WriteRefused>>, DriverError> {
        copy::write(&self.primary.link, &items).await
    }

    async fn remove(&self, keys: &[Key]) -> Result<u64, DriverError> {
        copy::remove(&self.primary.link, keys).await
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, DriverError> {
        copy::exists(&self.primary.link, keys).await
    }

    async fn digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError> {
        digest::digests(&self.primary.link, keys, Content::All).await
    }

    async fn tracked_digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError> {
        digest::digests(&self.primary.link, keys, Content::Tracked).await
    }

    async fn read_untracked(&self, key: &Key) -> Result<Option<Untracked>, DriverError> {
        stream_groups::read(&self.primary.link, key).await
    }

    async fn write_untracked(
        &self,
        key: &Key,
        here: &Untracked,
        new: &Untracked,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        stream_groups::write(&self.primary.link, key, here, new).await
    }

    async fn read_piece(
        &self,
        key: &Key,
        cursor: Option<PieceCursor>,
    ) -> Result<PieceRead, DriverError> {
        pieces::read(&self.primary.link, key, cursor).await
    }

    async fn write_piece(
        &self,
        key: &Key,
        piece: Piece,
        first: bool,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        self.staging
            .write(&self.primary.link, key, &piece, first)
            .await
    }

    async fn finish_pieces(&self, key: &Key) -> Result<Result<(), WriteRefused>, DriverError> {
        self.staging.finish(&self.primary.link, key).await
    }

    async fn purge_staging(&self, of: &OfKeys) -> Result<u64, DriverError> {
        self.staging.purge(&self.primary.link, of).await
    }

    async fn client_users(&self) -> Result<Vec<Generation>, DriverError> {
        let mut replicas = self.replicas.lock().await;
        self.enter_replicas(&mut replicas).await?;
        let mut generations: BTreeSet<_> = self.primary.client_users().await?.into_iter().collect();
        for server in replicas.values() {
            generations.extend(server.client_users().await?);
        }
        Ok(generations.into_iter().collect())
    }

    async fn make_client_user(
        &self,
        generation: Generation,
        password: &str,
    ) -> Result<(), DriverError> {
        let mut replicas = self.replicas.lock().await;
        self.enter_replicas(&mut replicas).await?;
        for server in std::iter::once(&self.primary).chain(replicas.values()) {
            server
                .make_client_user(generation, password, &self.options)
                .await?;
        }
        Ok(())
    }

    async fn fence(&self, generation: Generation) -> Result<(), DriverError> {
        self.delete_client_users(|other| other < generation).await
    }

    async fn keep_client_users(&self, keep: &[Generation]) -> Result<(), DriverError> {
        self.delete_client_users(|other| !keep.contains(&other))
            .await
    }

    async fn connections_below(&self, generation: Generation) -> Result<usize, DriverError> {
        let frame = self
            .primary
            .link
            .ask("CLIENT LIST", &[b"CLIENT", b"LIST"])
            .await?;
        let value = frame.value();
        let list = value
            .as_bytes()
            .ok_or_else(|| self.primary.link.odd("CLIENT LIST", &frame))?;
        let list = String::from_utf8_lossy(list);
        let is_below = |line: &&str| {
            let user = line
                .split(' ')
                .find_map(|field| field.strip_prefix("user="));
            user.and_then(acl::generation_of)
                .is_some_and(|other| other < generation)
        };
        Ok(list.lines().filter(is_below).count())
    }

    async fn durable(&self) -> Result<(), DriverError> {
        durable::wait(&self.primary.link).await
    }

    async fn size(&self) -> Result<(u64, u64), DriverError> {
        let info = server::info(&self.primary.link, &["memory", "keyspace"]).await?;
        Ok((info.keys(), info.number("used_memory").unwrap_or(0)))
    }
}
