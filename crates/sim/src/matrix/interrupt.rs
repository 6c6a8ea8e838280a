//! SIGINT and SIGTERM: the run that goes on is given up, its processes are ended, the table is printed.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

static CAME: AtomicBool = AtomicBool::new(false);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether somebody wants an end.
pub(super) fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}

/// From now on an interrupt is noted, and a second one ends the process; the kernel then ends its children.
pub(super) fn listen() -> io::Result<()> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let (mut int, mut term) = {
        let _entered = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                std::future::poll_fn(|context| {
                    let (int, term) = (int.poll_recv(context), term.poll_recv(context));
                    if int.is_ready() { int } else { term }
                })
                .await;
                if CAME.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
            }
        });
    });
    Ok(())
}

/// Waits for a time, or for an interrupt.
pub(super) fn pause(time: Duration) {
    let until = Instant::now() + time;
    while !came() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(LOOK_EVERY));
    }
}

/// Asks again and again until something holds; whether it did in time.
pub(super) fn wait_until(within: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + within;
    loop {
        if holds() {
            return true;
        }
        if came() || Instant::now() > until {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
}
