//! Who leads, for stores that only one process can write: the table lives in that process.

use std::collections::BTreeMap;

use clockwise_cluster::Term;
use tokio::sync::watch;

use super::{Leader, Leadership};

#[derive(Debug, Default)]
pub(super) struct Leaders {
    // Invariant: no two names have the same term.
    by_name: BTreeMap<String, Led>,
}

#[derive(Debug)]
struct Led {
    term: Term,
    lost: watch::Sender<bool>,
}

impl Leaders {
    /// Hands `name` to `term`, which no leader had before.
    pub(super) fn begin(&mut self, name: &str, term: Term) -> Leadership {
        assert!(!self.leads(term), "a term is used once");
        let (lost, subscription) = watch::channel(false);
        if let Some(former) = self.by_name.insert(name.to_owned(), Led { term, lost }) {
            former.lost.send_replace(true);
        }
        Leadership {
            term,
            lost: subscription,
        }
    }

    pub(super) fn leads(&self, term: Term) -> bool {
        self.by_name.values().any(|leader| leader.term == term)
    }

    /// Who leads under this name: always this process, which is told so.
    pub(super) fn leader(&self, name: &str) -> Option<Leader> {
        let led = self.by_name.get(name)?;
        Some(Leader {
            term: led.term,
            holder: format!("process {}", std::process::id()),
            contact: None,
        })
    }

    pub(super) fn resign(&mut self, term: Term) {
        let name = self.by_name.iter().find(|(_, leader)| leader.term == term);
        if let Some(name) = name.map(|(name, _)| name.clone())
            && let Some(leader) = self.by_name.remove(&name)
        {
            leader.lost.send_replace(true);
        }
    }
}
