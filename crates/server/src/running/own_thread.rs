//! A thread with a runtime of its own: what runs there neither waits for what else this process computes
//! nor pays for being handed from one thread to another.

use std::io;
use std::thread;

use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::sync::oneshot;

/// The thread. It ends when this is dropped, with everything that runs on it.
#[derive(Debug)]
pub(super) struct OwnThread {
    handle: Handle,
    _stays: oneshot::Sender<()>,
}

impl OwnThread {
    pub(super) fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stays, leaves) = oneshot::channel::<()>();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // Nothing is ever sent: the sender's end is the message.
                let _left = runtime.block_on(leaves);
            })?;
        Ok(Self {
            handle,
            _stays: stays,
        })
    }

    /// While the guard lives, what this thread spawns runs there.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::OwnThread;

    #[tokio::test]
    async fn what_is_spawned_there_runs_there_until_it_is_dropped() {
        let own = OwnThread::start("own").unwrap();
        let (tell, told) = tokio::sync::oneshot::channel();
        let spawned = {
            let _there = own.enter();
            tokio::spawn(async move {
                tell.send(thread::current().name().map(str::to_owned))
                    .unwrap();
                std::future::pending::<()>().await;
            })
        };
        assert_eq!(told.await.unwrap().as_deref(), Some("own"));
        drop(own);
        assert!(spawned.await.unwrap_err().is_cancelled());
    }
}
