//! The text and the meta protocol of memcached, as functions over bytes.
//!
//! As with [`resp`](crate::resp), nothing here owns a socket or waits, and requests and replies have
//! scanners of their own. One thing is harder than in RESP: a server that does not like a header may
//! read the value behind it as commands. So a request is accepted only when its header is in the
//! one form of which no server doubts where the value ends; a value whose header is refused is passed over,
//! and where nobody can say how long it is the connection ends.
//!
//! *Silence.* `noreply` and the meta flag `q` are taken out of what goes to a server: over a
//! connection that many share, every request must have its answer. What the client does not
//! want to read is said by [`Quiet`].
//!
//! ```
//! use clockwise_client::memcached::{Quiet, RequestLimits, RequestScanner, Scan, Verb};
//!
//! let mut scanner = RequestScanner::default();
//! let input = b"set  user:1 0 60 5 noreply\r\nhello\r\nget user:1\r\n";
//! let Ok(Scan::Request { consumed, request }) = scanner.scan(&RequestLimits::default(), input) else {
//!     panic!("a whole request has arrived");
//! };
//! assert_eq!((request.verb(), request.quiet()), (Verb::Set, Quiet::Everything));
//! assert_eq!(request.frame(), b"set user:1 0 60 5\r\nhello\r\n");
//! assert_eq!(request.key(0), b"user:1");
//! assert_eq!(&input[consumed..], b"get user:1\r\n");
//! ```

mod answer;
mod base64;
mod header;
mod line;
mod reply;
mod request;
mod verb;

pub use answer::{Item, Items, Quiet, answers, is_error};
pub use reply::{Reply, ReplyError, ReplyScan, ReplyScanner};
pub use request::{ProtocolError, Refusal, Request, RequestLimits, RequestScanner, Scan};
pub use verb::Verb;

/// Bytes of the longest key, as it stands in a line.
pub const KEY_BYTES_MAX: usize = 250;

/// What the version in a clockwise router's reply to `version` has in it, by which it gives itself away.
pub const ROUTER_VERSION: &str = " clockwise ";
