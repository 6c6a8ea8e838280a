//! The operator: applies one change after the other, and mends what only a person may.

use std::sync::Arc;

use clockwise_cluster::{Apply, Edit, NodeState, Record, Revision};
use clockwise_placement::NodeId;

use super::Sim;
use super::executor::{MS, Micros};
use super::process::Request;
use super::settings::{SERVERS, Wish};
use super::truth::{name_of, rank_of};

/// How often it looks.
const LOOK_EVERY: Micros = 200 * MS;
/// How long nothing may have happened before it looks for a reason.
const PATIENCE: Micros = 3_000 * MS;

impl Sim {
    /// Commits what `next` makes of the record as it is, as an operator does.
    pub(super) fn operate(&self, next: impl Fn(&Record) -> Option<Record>) -> bool {
        let record = Arc::clone(&self.truth.borrow().record);
        let revision: Revision = record.revision();
        let Some(next) = next(&record) else {
            return false;
        };
        self.commit_there(usize::MAX, revision, next, None).is_ok()
    }

    /// One change after the other, each when the last has ended.
    pub(super) async fn operator(self) {
        let wishes = self.settings.wishes.clone();
        let mut last: Vec<Edit> = Vec::new();
        for (number, wish) in wishes.into_iter().enumerate() {
            let pause = self.random.borrow_mut().between(50 * MS, 400 * MS);
            self.sleep(pause).await;
            let edits = self.edits(wish, &last);
            self.apply(number, &edits);
            last = edits;
            self.until_at_rest().await;
        }
        self.script_over.set(true);
    }

    fn apply(&self, number: usize, edits: &[Edit]) {
        let now_ms = self.now_ms();
        let applied = self.operate(|record| {
            let mut staged = record.clone();
            for edit in edits {
                staged = staged.stage(edit.clone()).ok()?;
            }
            let apply = Apply {
                expected: staged.epoch(),
                id: format!("change-{number}").parse().ok()?,
                now_ms,
                nonces: &mut || self.nonce(),
            };
            staged.apply(apply).ok()
        });
        self.trace(|| format!("operator applies {edits:?}: {applied}"));
    }

    /// What a wish means in the pool as it is.
    fn edits(&self, wish: Wish, last: &[Edit]) -> Vec<Edit> {
        let truth = self.truth.borrow();
        let nodes = &truth.record.membership().nodes;
        let ids: Vec<NodeId> = nodes
            .iter()
            .filter(|node| node.state == NodeState::Active)
            .map(|node| node.id.clone())
            .collect();
        let free: Vec<usize> = (0..SERVERS)
            .filter(|rank| !ids.iter().any(|id| rank_of(id.as_str()) == *rank))
            .collect();
        let pick = self.random.borrow_mut().below(ids.len());
        let some = ids[pick].clone();
        let weight = |id: NodeId, hundredths: u64| Edit::SetWeight {
            id,
            weight: format!("{}.{:02}", hundredths / 100, hundredths % 100)
                .parse()
                .expect("a weight"),
        };
        let mut random = self.random.borrow_mut();
        match wish {
            Wish::Join if !free.is_empty() => vec![join(free[random.below(free.len())])],
            Wish::JoinTwo if free.len() > 1 => vec![join(free[0]), join(free[1])],
            Wish::Leave if ids.len() > 1 => vec![Edit::Remove { id: some }],
            Wish::Replace if !free.is_empty() => {
                let by = free[random.below(free.len())];
                vec![Edit::Replace {
                    id: some,
                    by: id_of(by),
                    address: address_of(by),
                }]
            }
            Wish::Back => back(last, &ids),
            Wish::Reweight if ids.len() > 1 => vec![weight(some, random.between(40, 260))],
            _ if !free.is_empty() => vec![join(free[0])],
            _ => vec![Edit::Remove { id: some }],
        }
    }

    async fn until_at_rest(&self) {
        let mut seen = (Revision::new(0), self.now());
        loop {
            self.sleep(LOOK_EVERY).await;
            let record = Arc::clone(&self.truth.borrow().record);
            if record.change().is_none() {
                self.coverage.borrow_mut().changes += 1;
                return;
            }
            if record.revision() != seen.0 {
                seen = (record.revision(), self.now());
            } else if self.now() - seen.1 > PATIENCE {
                self.mend(&record);
                seen.1 = self.now();
            }
        }
    }

    /// Accepts nodes that came back as other runs, then asks for another try.
    fn mend(&self, record: &Record) {
        let change = record.change().expect("something is in flight");
        let flips: Vec<(usize, String)> = change
            .handoffs
            .iter()
            .flat_map(|handoff| &handoff.flip)
            .map(|flip| {
                (
                    rank_of(flip.target.as_str()),
                    flip.incarnation.run_id.as_str().to_owned(),
                )
            })
            .collect();
        for (node, run) in flips {
            let identity = {
                let server = self.servers[node].borrow();
                if !server.up {
                    continue;
                }
                server.identity()
            };
            if identity.incarnation.run_id.as_str() == run {
                continue;
            }
            let accepted = self.operate(|record| {
                record
                    .accept_target(&id_of(node), &identity.incarnation)
                    .ok()
            });
            self.trace(|| {
                format!(
                    "operator accepts n{node} as {:?}: {accepted}",
                    identity.incarnation
                )
            });
            // As it is: what it lost of what it owns is gone.
            let mut truth = self.truth.borrow_mut();
            let server = self.servers[node].borrow();
            let lost: Vec<_> = truth
                .keys()
                .filter(|(key, value)| {
                    truth.owner(*key) == node && server.values.get(key) != Some(value)
                })
                .map(|(key, _)| key)
                .collect();
            let extra: Vec<_> = server.values.keys().copied().collect();
            for key in lost.into_iter().chain(extra) {
                if truth.owner(key) == node && server.values.get(&key).copied() != truth.value(key)
                {
                    truth.excuse(key);
                }
            }
        }
        self.ask_leader(Request::Retry);
    }
}

fn back(last: &[Edit], ids: &[NodeId]) -> Vec<Edit> {
    let reverse = |edit: &Edit| match edit {
        Edit::Add { id, .. } if ids.contains(id) => Some(Edit::Remove { id: id.clone() }),
        Edit::Remove { id } if !ids.contains(id) => Some(join(rank_of(id.as_str()))),
        Edit::Replace { id, by, .. } if ids.contains(by) => Some(Edit::Replace {
            id: by.clone(),
            by: id.clone(),
            address: address_of(rank_of(id.as_str())),
        }),
        _ => None,
    };
    last.iter().filter_map(reverse).collect()
}

pub(super) fn id_of(rank: usize) -> NodeId {
    name_of(rank).parse().expect("a plain name")
}

pub(super) fn address_of(rank: usize) -> clockwise_cluster::Address {
    format!("127.0.0.1:{}", 7_000 + rank)
        .parse()
        .expect("an address")
}

fn join(rank: usize) -> Edit {
    Edit::Add {
        id: id_of(rank),
        address: address_of(rank),
        weight: "1".parse().expect("a weight"),
        domain: "".parse().expect("no place"),
    }
}
