//! RESP, the protocol of Redis and Valkey, as functions over bytes.
//!
//! Nothing here owns a socket or waits. A scanner is given what has arrived so far and says where a
//! request or a reply ends, so that the bytes themselves can be passed on; only who needs the
//! content builds a [`Value`]. Requests (a client speaks to us) and replies (a server answers us)
//! have scanners of their own, since their grammars and the trust in the other side differ.
//!
//! Both scanners keep their place between calls: bytes arriving one at a time cost linear work.
//! No memory is taken on the word of a declared length, only for bytes and elements that arrived.
//!
//! ```
//! use clockwise_client::resp::{RequestLimits, RequestScanner, Scan};
//!
//! let mut scanner = RequestScanner::default();
//! let input = b"*2\r\n$3\r\nGET\r\n$5\r\nuser1\r\nPING\r\n";
//! let Ok(Scan::Request { consumed, request }) = scanner.scan(&RequestLimits::default(), input) else {
//!     panic!("a whole request has arrived");
//! };
//! assert_eq!((request.arg(0), request.arg(1)), (&b"GET"[..], &b"user1"[..]));
//! assert_eq!(&input[consumed..], b"PING\r\n");
//! ```

mod code_word;
mod inline;
mod length;
mod reply;
mod request;
mod value;
mod write;

pub use code_word::{code_word, is_not_executed, is_passing};
pub use reply::{REPLY_DEPTH_MAX, Reply, ReplyError, ReplyScan, ReplyScanner};
pub use request::{ArgSpan, ProtocolError, Refusal, Request, RequestLimits, RequestScanner, Scan};
pub use value::Value;
pub use write::{
    Protocol, write_array, write_bulk, write_command, write_error, write_integer, write_map,
    write_null, write_simple,
};
