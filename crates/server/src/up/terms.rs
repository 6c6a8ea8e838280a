//! The last term of leadership, where the file that says it was lost.
//!
//! Nobody may lead under a term that was used before: what its leader left under way could land late. Which
//! terms were used is known to the nodes too, by the users of their leaders; and whoever holds the folder's
//! lock is the only one who can lead. So a start that has asked every node goes on above the highest of them.

use clockwise_client::store::{FileStore, LeadError};
use clockwise_cluster::{Record, Term};
use futures_util::future::try_join_all;

use crate::driver::{Driver, DriverError, NodeAddress};

/// Puts a lost term back if every node says what it knows; if not, nobody leads, and it is said why.
pub(super) async fn restore(store: &FileStore, driver: &dyn Driver, record: &Record) {
    match store.term_lost().await {
        Ok(None) => {}
        Ok(Some(why)) => match highest(driver, record).await {
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

async fn highest(driver: &dyn Driver, record: &Record) -> Result<Term, DriverError> {
    let asked = record.membership().nodes.iter().map(|node| async move {
        let at = NodeAddress {
            id: node.id.clone(),
            address: node.address.to_string(),
        };
        let facts = driver.inspect(&at).await?;
        Ok::<_, DriverError>(facts.highest_term.map_or(0, |term| term.0))
    });
    let known = try_join_all(asked).await?;
    Ok(Term::new(known.into_iter().max().unwrap_or(0)))
}
