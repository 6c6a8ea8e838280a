//! What clients are told when something is not done.
//!
//! The first word says what a client can do. `TRYAGAIN`: nothing was executed (or it was a read),
//! send it again. `CROSSSLOT`: the keys must be on one node. `ERR`: this will not work, or nobody
//! knows whether it did, as the text says. Node and epoch are named wherever they matter.

use clockwise_client::commands::Reason;
use clockwise_client::resp::write_error;
use clockwise_client::routing::{Effect, Obstacle};
use clockwise_cluster::{Epoch, Protocol, View};

/// The line that tells a client, in the words of its protocol.
///
/// memcached's has its own first word; what a client can do is the second, where it is not just to give up.
pub(super) fn line(protocol: Protocol, text: &str) -> Vec<u8> {
    let mut line = Vec::new();
    match protocol {
        Protocol::Memcached => {
            line.extend_from_slice(b"SERVER_ERROR ");
            line.extend_from_slice(text.strip_prefix("ERR ").unwrap_or(text).as_bytes());
            line.extend_from_slice(b"\r\n");
        }
        _ => write_error(&mut line, text),
    }
    line
}

/// A request was not sent, or was a read whose answer was lost.
pub(super) fn not_sent(obstacle: Obstacle, node: &str, epoch: Epoch) -> String {
    let why = match obstacle {
        Obstacle::Down => format!("node {node} is down"),
        Obstacle::Connecting => format!("node {node} did not take a connection in time"),
        Obstacle::Denied => format!("node {node} does not let this epoch's clients in yet"),
        Obstacle::Draining => format!("node {node} did not finish earlier requests in time"),
        Obstacle::Handover => {
            format!("node {node} is handing the key over and takes too long")
        }
        Obstacle::QueueFull => format!("too many requests are waiting for node {node}"),
    };
    format!("TRYAGAIN clockwise: {why} (epoch {epoch}); not executed, send it again")
}

/// A read was on a connection that broke, and cannot be sent again in its order.
pub(super) fn lost_read(node: &str, epoch: Epoch) -> String {
    format!(
        "TRYAGAIN clockwise: the connection to node {node} broke (epoch {epoch}); nothing was changed, send it again"
    )
}

/// A write was on a connection that broke.
pub(super) fn unknown(node: &str, epoch: Epoch) -> String {
    format!(
        "ERR clockwise: outcome unknown: the connection to node {node} broke after this may have been executed \
         (epoch {epoch}); read before you write again"
    )
}

/// A node's reply to a part of a request is not of the form that the command's replies have.
pub(super) fn unexpected(name: &str, node: &str) -> String {
    format!(
        "ERR clockwise: node {node} answered {name} in a form that it should not have; is it the same version as the others?"
    )
}

/// An answer was not kept, since its client does not read those before it.
pub(super) fn not_kept(effect: Effect, bytes: usize, unread: usize, limit: usize) -> String {
    let (word, done) = match effect {
        Effect::Read => ("TRYAGAIN", "nothing was changed, read and send it again"),
        Effect::Write => ("ERR", "the request was executed"),
    };
    format!(
        "{word} clockwise: an answer of {bytes} bytes was not kept: {unread} bytes of answers before it are unread, \
         over the limit of {limit}; {done}"
    )
}

/// A node's answer was over the limit, and was not kept.
pub(super) fn answer_too_long(effect: Effect, bytes: u64, limit: usize) -> String {
    let done = match effect {
        Effect::Read => "nothing was changed",
        Effect::Write => "the request was executed",
    };
    format!(
        "ERR clockwise: an answer of {bytes} bytes is over the limit of {limit} and was not kept; {done}; \
         ask for fewer keys or elements at a time"
    )
}

/// The answers of several nodes are too large for one.
pub(super) fn too_large_together(bytes: usize, limit: usize) -> String {
    format!(
        "ERR clockwise: an answer of {bytes} bytes, put together from several nodes, is over the limit of {limit}; \
         ask for fewer keys at a time"
    )
}

/// A node has more unanswered than it may.
pub(super) fn overloaded(node: &str, epoch: Epoch) -> String {
    format!(
        "TRYAGAIN clockwise: node {node} does not keep up (epoch {epoch}); not executed, send it again later"
    )
}

/// Keys of one request are on different nodes.
pub(super) fn apart(first: (&[u8], &str), second: (&[u8], &str), epoch: Epoch) -> String {
    format!(
        "CROSSSLOT clockwise: keys '{}' on node {} and '{}' on node {} are apart (epoch {epoch}); \
         only MGET, MSET, DEL, UNLINK, EXISTS and TOUCH work across nodes",
        quoted(first.0),
        first.1,
        quoted(second.0),
        second.1
    )
}

/// Keys of one transaction are on different nodes.
pub(super) fn transaction_apart(
    first: (&[u8], &str),
    second: (&[u8], &str),
    epoch: Epoch,
) -> String {
    format!(
        "CROSSSLOT clockwise: keys '{}' on node {} and '{}' on node {} are apart (epoch {epoch}); \
         a transaction is one node's: hash tags keep keys together",
        quoted(first.0),
        first.1,
        quoted(second.0),
        second.1
    )
}

/// What one connection watches is one node's, and so is what is done over it meanwhile.
pub(super) fn watches_elsewhere(watched: &str, other: &str, epoch: Epoch) -> String {
    format!(
        "CROSSSLOT clockwise: keys are watched on node {watched} and this is for node {other} (epoch {epoch}); \
         EXEC or UNWATCH first: hash tags keep keys together"
    )
}

/// Clients have as many connections of their own as they may.
pub(super) fn no_own_link(limit: usize) -> String {
    format!(
        "TRYAGAIN clockwise: {limit} clients watch keys or block, which takes a connection for each, and that is the \
         limit; not executed, send it again later"
    )
}

/// A command of the transaction was refused.
pub(super) const SPOILED: &str = "EXECABORT Transaction discarded because of previous errors.";

/// A transaction is not kept any further.
pub(super) fn transaction_too_large(limit: usize) -> String {
    format!("ERR clockwise: a transaction of more than {limit} bytes is over the limit")
}

/// A transaction cannot be executed.
pub(super) fn aborted(text: &str) -> String {
    format!("EXECABORT Transaction discarded because of: {text}")
}

/// A command that is not available.
pub(super) fn refused(name: &str, reason: Reason) -> String {
    format!(
        "ERR clockwise: '{}' is not available here: {}",
        name.replace('|', " "),
        reason.text()
    )
}

/// `SORT` that looks beyond its key.
pub(super) fn sort_with_patterns(name: &str) -> String {
    format!(
        "ERR clockwise: '{name}' with GET, or with a pattern behind BY, is not available here: \
         it reads keys that may be on other nodes"
    )
}

/// No node has said yet which commands there are.
pub(super) fn no_table(view: &View) -> String {
    const NAMED_MAX: usize = 3;
    let names: Vec<&str> = view.nodes().iter().map(|node| node.id.as_str()).collect();
    let more = names.len().saturating_sub(NAMED_MAX);
    let mut named = names[..names.len() - more].join(", ");
    if more > 0 {
        named.push_str(&format!(" and {more} more"));
    }
    format!(
        "TRYAGAIN clockwise: no node has answered yet which commands there are, asked were: {named} (epoch {}); \
         not executed, send it again",
        view.epoch()
    )
}

/// Nobody owns anything.
pub(super) fn no_nodes() -> String {
    "ERR clockwise: the pool has no node".to_owned()
}

/// A key is too long.
pub(super) fn key_too_long(bytes: usize, limit: usize) -> String {
    format!("ERR clockwise: a key of {bytes} bytes is over the limit of {limit}")
}

/// The words of servers for a name they do not know.
pub(super) fn unknown_command<'a>(
    name: &[u8],
    arguments: impl Iterator<Item = &'a [u8]>,
) -> String {
    const QUOTED_MAX: usize = 128;
    let mut shown = String::new();
    for argument in arguments {
        if shown.len() >= QUOTED_MAX {
            break;
        }
        let room = QUOTED_MAX - shown.len();
        shown.push_str(&format!(
            "'{}' ",
            String::from_utf8_lossy(&argument[..argument.len().min(room)])
        ));
    }
    format!(
        "ERR unknown command '{}', with args beginning with: {shown}",
        quoted(name)
    )
}

/// The words of servers for a subcommand they do not know.
pub(super) fn unknown_subcommand(container: &str, name: &[u8]) -> String {
    format!(
        "ERR unknown subcommand '{}'. Try {} HELP.",
        quoted(name),
        container.to_ascii_uppercase()
    )
}

/// The words of servers for too few or too many arguments.
pub(super) fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Text of a client, cut to what fits an error line.
fn quoted(bytes: &[u8]) -> String {
    const QUOTED_MAX: usize = 128;
    String::from_utf8_lossy(&bytes[..bytes.len().min(QUOTED_MAX)]).into_owned()
}
