//! What tests share: real servers, a bad network between them, and random input that can be repeated.
//!
//! A server is a redis-server, memcached or etcd on a free port of the loopback interface, with a
//! directory of its own that is removed with it. Every call blocks and panics with the server's own log when something is wrong: a test can do
//! nothing useful without its server, and a missing binary must fail, not skip. Inside tokio, the
//! calls take some 50 ms each; where that matters, wrap them in `spawn_blocking`.
//!
//! A server ends with its value (killed by pid and waited for). It also ends with the test
//! process, however that ends, because the kernel delivers the signal asked for through
//! `setpriv --pdeathsig`.
//!
//! ```no_run
//! use clockwise_testkit::{RedisOptions, RedisServer};
//!
//! let mut server = RedisServer::start(RedisOptions { append_only: true, ..RedisOptions::default() });
//! assert_eq!(server.cli(&["SET", "key", "value"]), "OK");
//! server.kill9();
//! server.restart();
//! ```

mod etcd;
mod memcached;
mod port;
mod process;
mod program;
mod proxy;
mod random;
mod redis;

pub use etcd::{EtcdCluster, EtcdOptions, EtcdServer, EtcdTlsFiles};
pub use memcached::{MemcachedOptions, MemcachedServer};
pub use port::free_ports;
pub use program::RunningProgram;
pub use proxy::{FaultProxy, Flow, Way, Weather};
pub use random::{Random, for_seeds};
pub use redis::{RedisOptions, RedisServer};
