//! The last term of leadership, where the file that says it was lost or is older than what the nodes have seen.
//!
//! Nobody may lead under a term that was used before: what its leader left under way could land late. Which
//! terms were used is known to the nodes too, by the users of their leaders; and whoever holds the folder's
//! lock is the only one who can lead. So a start goes on above the highest term that the nodes know: where the
//! last one was lost, after every one of them has said what it knows; where a file says one, as far as they
//! answer.

use std::time::Duration;

use clockwise_client::store::{FileStore, LeadError};
use clockwise_cluster::{COUNTER_MAX, Node, Record, Term};
use futures_util::future::{join_all, try_join_all};
use tokio::time::timeout;

use crate::driver::{Driver, DriverError, NodeAddress};

/// How long a node may take to say what it knows, where the file says a term as well.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Puts a lost term back if every node says what it knows; if not, nobody leads, and it is said why. One that
/// is lower than what the nodes know is raised.
pub(crate) async fn restore(store: &FileStore, driver: &dyn Driver, record: &Record) {
    match store.last_term().await {
        Ok(last) => raise(store, driver, record, last).await,
        Err(why @ LeadError::TermUnknown { .. }) => match highest(driver, record).await {
            Ok(last) => match store.restore_term(last).await {
                Ok(()) => {
                    tracing::warn!(
                        %why,
                        last = last.get(),
                        "the last term was lost; it goes on above the highest one that the nodes know"
                    );
                }
                Err(error) => unrestored(&error),
            },
            Err(error) => tracing::error!(
                %why,
                %error,
                "the last term was lost, and not every node says which ones it knows: nobody leads"
            ),
        },
        Err(error) => unrestored(&error),
    }
}

fn unrestored(error: &LeadError) {
    tracing::error!(%error, "the last term of leadership is not known");
}

/// Goes on above the nodes where the file is behind them: an older copy of it was put back.
async fn raise(store: &FileStore, driver: &dyn Driver, record: &Record, last: Term) {
    let asked = record.membership().nodes.iter().map(|node| async {
        // One that does not answer now is no worse than one that has forgotten.
        timeout(ANSWER_WITHIN, known_at(driver, node))
            .await
            .ok()?
            .ok()
    });
    let known = join_all(asked).await.into_iter().flatten().max();
    // A number after which none can come was never begun by a leader.
    let Some(known) = known.filter(|known| *known > last && known.get() < COUNTER_MAX) else {
        return;
    };
    match store.restore_term(known).await {
        Ok(()) => tracing::warn!(
            file = last.get(),
            nodes = known.get(),
            "term.json was behind the nodes, as an older copy of it is; it goes on above the highest term that they know"
        ),
        Err(error) => unrestored(&error),
    }
}

async fn highest(driver: &dyn Driver, record: &Record) -> Result<Term, DriverError> {
    let nodes = record.membership().nodes.iter();
    let known = try_join_all(nodes.map(|node| known_at(driver, node))).await?;
    Ok(known.into_iter().max().unwrap_or(Term::new(0)))
}

/// The highest term whose user is at a node.
async fn known_at(driver: &dyn Driver, node: &Node) -> Result<Term, DriverError> {
    let at = NodeAddress {
        id: node.id.clone(),
        address: node.address.to_string(),
    };
    let facts = driver.inspect(&at).await?;
    Ok(Term::new(facts.highest_term.map_or(0, |term| term.0)))
}
