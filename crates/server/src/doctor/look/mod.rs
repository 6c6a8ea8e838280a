//! The looks: what is asked of servers and of the record. Nothing here judges, and nothing stays changed.
//!
//! Every look has a deadline of its own, and all of them together have one too.

#[cfg(feature = "etcd")]
pub(super) mod etcd;
#[cfg(not(feature = "etcd"))]
#[path = "no_etcd.rs"]
pub(super) mod etcd;
pub(super) mod memcached;
pub(super) mod record;
pub(super) mod redis;

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::iter;
use tokio::time::{Instant, timeout_at};

/// Servers that are looked at side by side.
const AT_ONCE: usize = 32;
/// For taking a connection, and for each answer of a server.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Looks at each of them, as many at once as is good, until the deadline; those that are left come back.
pub(super) async fn each<'a, T, S, F>(
    things: &'a [T],
    deadline: Instant,
    look: impl Fn(&'a T) -> F,
) -> (Vec<S>, Vec<&'a T>)
where
    F: Future<Output = S>,
{
    let mut seen = Vec::with_capacity(things.len());
    let mut left: Vec<bool> = vec![true; things.len()];
    let looks = things.iter().enumerate().map(|(at, thing)| {
        let looking = look(thing);
        async move { (at, looking.await) }
    });
    let mut looks = std::pin::pin!(iter(looks).buffer_unordered(AT_ONCE));
    while let Ok(Some((at, one))) = timeout_at(deadline, looks.next()).await {
        left[at] = false;
        seen.push((at, one));
    }
    seen.sort_by_key(|(at, _)| *at);
    let left = things.iter().zip(left).filter(|(_, left)| *left);
    let left = left.map(|(thing, _)| thing).collect();
    (seen.into_iter().map(|(_, one)| one).collect(), left)
}
