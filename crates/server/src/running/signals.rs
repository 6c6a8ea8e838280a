//! The signals that a process that serves acts on.

use std::io;

use tokio::signal::unix::{self, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT: end in good order.
    End,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// SIGTERM and SIGINT, and SIGHUP where it is listened to.
pub(crate) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    reload: Option<unix::Signal>,
}

impl Signals {
    /// Those that end a process. SIGHUP stays what it is for processes at terminals: their end.
    pub(crate) fn to_end() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            reload: None,
        })
    }

    /// SIGHUP too.
    pub(crate) fn to_end_or_reload() -> io::Result<Self> {
        Ok(Self {
            reload: Some(signal(SignalKind::hangup())?),
            ..Self::to_end()?
        })
    }

    /// The next one. Cancel safe: one that came is not forgotten.
    pub(crate) async fn next(&mut self) -> Signal {
        let reload = async {
            match &mut self.reload {
                Some(reload) => drop(reload.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Signal::End,
            _ = self.interrupt.recv() => Signal::End,
            () = reload => Signal::Reload,
        }
    }

    /// Waits for the next that asks for the end.
    pub(crate) async fn end(&mut self) {
        while self.next().await != Signal::End {}
    }
}
