//! A thread that looks again and again, so that no runtime is needed to hear of a change.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Ends, and is waited for, when dropped.
#[derive(Debug)]
pub(super) struct Poller {
    /// Closed to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    pub(super) fn start(interval: Duration, look: impl Fn() + Send + 'static) -> Poller {
        let (stop, stopped) = channel::<()>();
        let thread = thread::spawn(move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                look();
            }
            // Once more, so that nothing is left undone.
            look();
        });
        Poller {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _panicked = thread.join();
        }
    }
}
