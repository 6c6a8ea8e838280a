//! A driver that is real but for one thing.

use std::sync::Arc;

use async_trait::async_trait;
use clockwise::driver::{
    Digest, Dirty, DirtyStream, Driver, DriverError, Generation, Identity, Item, Key, NodeAddress,
    NodeFacts, OfKeys, Piece, PieceCursor, PieceRead, Read, Session, Term, Tracker, Untracked,
    WriteRefused,
};

/// What is otherwise than it should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meddling {
    /// The fence only says that it stands.
    Unfenced,
    /// One key is told to be touched again as soon as it was told.
    Flooded,
}

pub(crate) fn meddled(driver: Arc<dyn Driver>, how: Meddling) -> Arc<dyn Driver> {
    Arc::new(MeddledDriver(driver, how))
}

#[derive(Debug)]
struct MeddledDriver(Arc<dyn Driver>, Meddling);

struct MeddledSession(Box<dyn Session>, Meddling);

#[async_trait]
impl Driver for MeddledDriver {
    async fn inspect(&self, node: &NodeAddress) -> Result<NodeFacts, DriverError> {
        self.0.inspect(node).await
    }

    async fn canary(&self, source: &NodeAddress, target: &NodeAddress) -> Result<(), DriverError> {
        self.0.canary(source, target).await
    }

    async fn session(
        &self,
        node: &NodeAddress,
        term: Term,
    ) -> Result<Box<dyn Session>, DriverError> {
        let session = self.0.session(node, term).await?;
        Ok(Box::new(MeddledSession(session, self.1)))
    }
}

#[async_trait]
impl Session for MeddledSession {
    async fn fence(&self, generation: Generation) -> Result<(), DriverError> {
        match self.1 {
            Meddling::Unfenced => Ok(()),
            Meddling::Flooded => self.0.fence(generation).await,
        }
    }

    async fn keep_client_users(&self, _keep: &[Generation]) -> Result<(), DriverError> {
        Ok(())
    }

    async fn identity(&self) -> Result<Identity, DriverError> {
        self.0.identity().await
    }

    async fn track(&self) -> Result<Tracker, DriverError> {
        let tracker = self.0.track().await?;
        match self.1 {
            Meddling::Unfenced => Ok(tracker),
            Meddling::Flooded => Ok(Box::new(Flood(tracker))),
        }
    }

    async fn scan(&self, cursor: u64, count: u32) -> Result<(u64, Vec<Key>), DriverError> {
        self.0.scan(cursor, count).await
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
        self.0.read(keys).await
    }

    async fn read_small(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
        self.0.read_small(keys).await
    }

    async fn write(
        &self,
        items: Vec<(Key, Item)>,
    ) -> Result<Vec<Result<(), WriteRefused>>, DriverError> {
        self.0.write(items).await
    }

    async fn remove(&self, keys: &[Key]) -> Result<u64, DriverError> {
        self.0.remove(keys).await
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, DriverError> {
        self.0.exists(keys).await
    }

    async fn digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError> {
        self.0.digests(keys).await
    }

    async fn tracked_digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError> {
        self.0.tracked_digests(keys).await
    }

    async fn read_untracked(&self, key: &Key) -> Result<Option<Untracked>, DriverError> {
        self.0.read_untracked(key).await
    }

    async fn write_untracked(
        &self,
        key: &Key,
        here: &Untracked,
        new: &Untracked,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        self.0.write_untracked(key, here, new).await
    }

    async fn read_piece(
        &self,
        key: &Key,
        cursor: Option<PieceCursor>,
    ) -> Result<PieceRead, DriverError> {
        self.0.read_piece(key, cursor).await
    }

    async fn write_piece(
        &self,
        key: &Key,
        piece: Piece,
        first: bool,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        self.0.write_piece(key, piece, first).await
    }

    async fn finish_pieces(&self, key: &Key) -> Result<Result<(), WriteRefused>, DriverError> {
        self.0.finish_pieces(key).await
    }

    async fn purge_staging(&self, of: &OfKeys) -> Result<u64, DriverError> {
        self.0.purge_staging(of).await
    }

    async fn client_users(&self) -> Result<Vec<Generation>, DriverError> {
        self.0.client_users().await
    }

    async fn make_client_user(
        &self,
        generation: Generation,
        password: &str,
    ) -> Result<(), DriverError> {
        self.0.make_client_user(generation, password).await
    }

    async fn connections_below(&self, generation: Generation) -> Result<usize, DriverError> {
        self.0.connections_below(generation).await
    }

    async fn durable(&self) -> Result<(), DriverError> {
        self.0.durable().await
    }

    async fn size(&self) -> Result<(u64, u64), DriverError> {
        self.0.size().await
    }
}

/// A stream of dirty keys that has something to say whenever it is asked.
struct Flood(Tracker);

#[async_trait]
impl DirtyStream for Flood {
    async fn next(&mut self) -> Dirty {
        let told = self.0.try_next();
        told.unwrap_or_else(|| Dirty::Keys(vec![Key::from_static(b"touched-all-the-time")]))
    }

    fn try_next(&mut self) -> Option<Dirty> {
        self.0.try_next()
    }

    async fn barrier(&mut self) -> Result<(), DriverError> {
        self.0.barrier().await
    }

    async fn backlog_bytes(&mut self) -> Result<u64, DriverError> {
        self.0.backlog_bytes().await
    }
}
