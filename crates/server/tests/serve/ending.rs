//! The end: under load, with the service manager listening.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::pool::{ALL, Pool};
use crate::process::{Starting, wait_until};

const CLIENTS: usize = 8;

/// Every increment that was carried out was answered, and none that was answered is missing.
#[test]
fn no_request_is_carried_out_without_an_answer() {
    let pool = Pool::over_etcd(2);
    let mut serve = pool.serve("a", ALL);
    let answered: Vec<Arc<AtomicU64>> = (0..CLIENTS).map(|_| Arc::default()).collect();
    let clients: Vec<_> = answered
        .iter()
        .enumerate()
        .map(|(number, answered)| {
            let (answered, mut client) = (Arc::clone(answered), serve.client());
            thread::spawn(move || {
                let key = format!("count:{number}");
                loop {
                    let count: redis::RedisResult<u64> =
                        redis::cmd("INCR").arg(&key).query(&mut client);
                    match count {
                        Ok(count) => answered.store(count, Ordering::SeqCst),
                        Err(error) => return error.to_string(),
                    }
                }
            })
        })
        .collect();
    wait_until("all of them are at it", || {
        answered
            .iter()
            .all(|count| count.load(Ordering::SeqCst) > 100)
    });
    let ended_at = Instant::now();
    let status = serve.end(Signal::TERM);
    assert!(status.success(), "{status}");
    assert!(
        ended_at.elapsed() < Duration::from_secs(10),
        "{:?}",
        ended_at.elapsed()
    );
    for client in clients {
        let error = client.join().unwrap();
        assert!(
            !error.contains("clockwise"),
            "cut off, not refused: {error}"
        );
    }
    let again = pool.serve("b", ALL);
    for (number, answered) in answered.iter().enumerate() {
        let key = format!("count:{number}");
        let count: u64 = redis::cmd("GET")
            .arg(key)
            .query(&mut again.client())
            .unwrap();
        assert_eq!(count, answered.load(Ordering::SeqCst), "client {number}");
    }
}

#[test]
fn the_service_manager_is_told_of_the_start_of_reloads_and_of_the_end() {
    let pool = Pool::over_a_file(1);
    let path = pool.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let heard = || {
        let mut bytes = [0; 512];
        let count = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    };
    let config = pool.config("a", ALL, "");
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let mut serve = Starting::new(&config, &environment).ready();
    let ready = heard();
    assert!(
        ready.starts_with("READY=1\nSTATUS=ready listen="),
        "{ready}"
    );
    serve.signal(Signal::HUP);
    let reloading = heard();
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert!(heard().starts_with("READY=1\n"));
    assert!(serve.end(Signal::TERM).success());
    assert!(heard().starts_with("STOPPING=1\n"));
}

#[test]
fn a_signal_while_it_waits_for_etcd_ends_it() {
    let mut pool = Pool::over_etcd(1);
    pool.etcd.as_mut().unwrap().kill9();
    let mut starting = pool.starting("a", ALL);
    assert!(starting.waits_and_says("does not answer; waiting for it"));
    starting.signal(Signal::TERM);
    let (exit, said) = starting.ended();
    assert_eq!(exit, 0, "{said}");
}
