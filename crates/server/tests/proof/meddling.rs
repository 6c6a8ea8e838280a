//! A driver whose calls a test can watch, hold up, leave out or falsify on their way to the real one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clockwise::driver::{
    Digest, Dirty, DirtyStream, Driver, DriverError, Generation, Identity, Item, Key, NodeAddress,
    NodeFacts, OfKeys, Piece, PieceCursor, PieceRead, Read, Session, Term, Tracker, Untracked,
    WriteRefused,
};
use clockwise_placement::NodeId;
use tokio::time::{Instant, sleep_until};

/// A call of the driver that a test may care about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Inspect,
    Track,
    Scan,
    Read { keys: usize },
    Write { keys: usize },
    Remove { keys: usize },
    Users,
    MakeUser,
    Fence,
    KeepUsers,
    Barrier,
    Durable,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Pass,
    /// It is said to have been done. Only for calls that answer nothing.
    LeaveOut,
}

/// What a test does to the calls. Does nothing by itself.
#[async_trait]
pub(crate) trait Meddler: Send + Sync + fmt::Debug {
    /// Before a call at a node.
    async fn before(&self, _node: &NodeId, _call: Call) -> Verdict {
        Verdict::Pass
    }

    /// After a call at a node that went well.
    async fn after(&self, _node: &NodeId, _call: Call) {}

    /// What is written in place of an item.
    fn written(&self, item: Item) -> Item {
        item
    }

    /// How long news of touched keys is on its way to us.
    fn news_take(&self) -> Duration {
        Duration::ZERO
    }
}

/// Leaves everything as it is.
#[derive(Debug)]
pub(crate) struct NoMeddling;

impl Meddler for NoMeddling {}

/// The real driver with a meddler in front.
#[derive(Debug)]
pub(crate) struct Meddled {
    inner: Arc<dyn Driver>,
    meddler: Arc<dyn Meddler>,
}

impl Meddled {
    pub(crate) fn over(inner: Arc<dyn Driver>, meddler: Arc<dyn Meddler>) -> Arc<dyn Driver> {
        Arc::new(Self { inner, meddler })
    }
}

#[async_trait]
impl Driver for Meddled {
    async fn inspect(&self, node: &NodeAddress) -> Result<NodeFacts, DriverError> {
        self.meddler.before(&node.id, Call::Inspect).await;
        self.inner.inspect(node).await
    }

    async fn canary(&self, source: &NodeAddress, target: &NodeAddress) -> Result<(), DriverError> {
        self.inner.canary(source, target).await
    }

    async fn session(
        &self,
        node: &NodeAddress,
        term: Term,
    ) -> Result<Box<dyn Session>, DriverError> {
        Ok(Box::new(MeddledSession {
            node: node.id.clone(),
            inner: self.inner.session(node, term).await?,
            meddler: Arc::clone(&self.meddler),
        }))
    }
}

struct MeddledSession {
    node: NodeId,
    inner: Box<dyn Session>,
    meddler: Arc<dyn Meddler>,
}

impl MeddledSession {
    async fn around<T>(
        &self,
        call: Call,
        inner: impl Future<Output = Result<T, DriverError>> + Send,
    ) -> Result<T, DriverError> {
        self.meddler.before(&self.node, call).await;
        let answer = inner.await?;
        self.meddler.after(&self.node, call).await;
        Ok(answer)
    }

    async fn unless_left_out(
        &self,
        call: Call,
        inner: impl Future<Output = Result<(), DriverError>> + Send,
    ) -> Result<(), DriverError> {
        if self.meddler.before(&self.node, call).await == Verdict::Pass {
            inner.await?;
        }
        self.meddler.after(&self.node, call).await;
        Ok(())
    }
}

#[async_trait]
impl Session for MeddledSession {
    async fn identity(&self) -> Result<Identity, DriverError> {
        self.inner.identity().await
    }

    async fn track(&self) -> Result<Tracker, DriverError> {
        let inner = self.around(Call::Track, self.inner.track()).await?;
        Ok(Box::new(MeddledStream {
            node: self.node.clone(),
            inner,
            meddler: Arc::clone(&self.meddler),
            under_way: VecDeque::new(),
            lost: false,
        }))
    }

    async fn scan(&self, cursor: u64, count: u32) -> Result<(u64, Vec<Key>), DriverError> {
        self.around(Call::Scan, self.inner.scan(cursor, count))
            .await
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
        let call = Call::Read { keys: keys.len() };
        self.around(call, self.inner.read(keys)).await
    }

    async fn read_small(&self, keys: &[Key]) -> Result<Vec<Read>, DriverError> {
        let call = Call::Read { keys: keys.len() };
        self.around(call, self.inner.read_small(keys)).await
    }

    async fn write(
        &self,
        items: Vec<(Key, Item)>,
    ) -> Result<Vec<Result<(), WriteRefused>>, DriverError> {
        let call = Call::Write { keys: items.len() };
        let written = |(key, item)| (key, self.meddler.written(item));
        let items = items.into_iter().map(written).collect();
        self.around(call, self.inner.write(items)).await
    }

    async fn remove(&self, keys: &[Key]) -> Result<u64, DriverError> {
        let call = Call::Remove { keys: keys.len() };
        self.around(call, self.inner.remove(keys)).await
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, DriverError> {
        self.inner.exists(keys).await
    }

    async fn digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError> {
        self.inner.digests(keys).await
    }

    async fn tracked_digests(&self, keys: &[Key]) -> Result<Vec<Option<Digest>>, DriverError> {
        self.inner.tracked_digests(keys).await
    }

    async fn read_untracked(&self, key: &Key) -> Result<Option<Untracked>, DriverError> {
        self.inner.read_untracked(key).await
    }

    async fn write_untracked(
        &self,
        key: &Key,
        here: &Untracked,
        new: &Untracked,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        self.inner.write_untracked(key, here, new).await
    }

    async fn read_piece(
        &self,
        key: &Key,
        cursor: Option<PieceCursor>,
    ) -> Result<PieceRead, DriverError> {
        self.inner.read_piece(key, cursor).await
    }

    async fn write_piece(
        &self,
        key: &Key,
        piece: Piece,
        first: bool,
    ) -> Result<Result<(), WriteRefused>, DriverError> {
        self.inner.write_piece(key, piece, first).await
    }

    async fn finish_pieces(&self, key: &Key) -> Result<Result<(), WriteRefused>, DriverError> {
        self.inner.finish_pieces(key).await
    }

    async fn purge_staging(&self, of: &OfKeys) -> Result<u64, DriverError> {
        self.inner.purge_staging(of).await
    }

    async fn client_users(&self) -> Result<Vec<Generation>, DriverError> {
        self.around(Call::Users, self.inner.client_users()).await
    }

    async fn make_client_user(
        &self,
        generation: Generation,
        password: &str,
    ) -> Result<(), DriverError> {
        let made = self.inner.make_client_user(generation, password);
        self.unless_left_out(Call::MakeUser, made).await
    }

    async fn fence(&self, generation: Generation) -> Result<(), DriverError> {
        self.unless_left_out(Call::Fence, self.inner.fence(generation))
            .await
    }

    async fn keep_client_users(&self, keep: &[Generation]) -> Result<(), DriverError> {
        self.unless_left_out(Call::KeepUsers, self.inner.keep_client_users(keep))
            .await
    }

    async fn connections_below(&self, generation: Generation) -> Result<usize, DriverError> {
        self.inner.connections_below(generation).await
    }

    async fn durable(&self) -> Result<(), DriverError> {
        self.unless_left_out(Call::Durable, self.inner.durable())
            .await
    }

    async fn size(&self) -> Result<(u64, u64), DriverError> {
        self.inner.size().await
    }
}

struct MeddledStream {
    node: NodeId,
    inner: Tracker,
    meddler: Arc<dyn Meddler>,
    // What the server has said and when we hear of it.
    under_way: VecDeque<(Instant, Dirty)>,
    // A lost stream says so for ever: it is heard once.
    lost: bool,
}

impl MeddledStream {
    fn send_off(&mut self, dirty: Dirty) {
        self.lost |= dirty == Dirty::Lost;
        let arrives = Instant::now() + self.meddler.news_take();
        self.under_way.push_back((arrives, dirty));
    }

    fn send_off_what_is_there(&mut self) {
        while !self.lost
            && let Some(dirty) = self.inner.try_next()
        {
            self.send_off(dirty);
        }
    }

    fn take(&mut self) -> Option<Dirty> {
        let (_, dirty) = self.under_way.pop_front()?;
        Some(dirty)
    }
}

#[async_trait]
impl DirtyStream for MeddledStream {
    async fn next(&mut self) -> Dirty {
        loop {
            let first = self.under_way.front().map(|(arrives, _)| *arrives);
            tokio::select! {
                biased;
                () = sleep_until(first.unwrap_or_else(Instant::now)), if first.is_some() => {
                    if let Some(dirty) = self.take() {
                        return dirty;
                    }
                }
                dirty = self.inner.next(), if !self.lost => self.send_off(dirty),
                else => return Dirty::Lost,
            }
        }
    }

    fn try_next(&mut self) -> Option<Dirty> {
        self.send_off_what_is_there();
        match self.under_way.front() {
            Some((arrives, _)) if *arrives > Instant::now() => None,
            Some(_) => self.take(),
            None => self.lost.then_some(Dirty::Lost),
        }
    }

    async fn barrier(&mut self) -> Result<(), DriverError> {
        if self.meddler.before(&self.node, Call::Barrier).await == Verdict::LeaveOut {
            return Ok(());
        }
        self.inner.barrier().await?;
        self.send_off_what_is_there();
        if let Some((arrives, _)) = self.under_way.back() {
            sleep_until(*arrives).await;
        }
        Ok(())
    }

    async fn backlog_bytes(&mut self) -> Result<u64, DriverError> {
        self.inner.backlog_bytes().await
    }
}
