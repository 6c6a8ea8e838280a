//! What stands behind the calls: the record's operator, and looks at nodes, traffic and moves.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use clockwise_client::store::{ReadError, Registry, RoutesBy};
use clockwise_cluster::{
    Address, ApplyError, Edit, Epoch, Held, Node, Record, Unstage, View, ViewError,
};
use clockwise_placement::{Domain, NodeId};
use futures_util::future::join_all;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::answer::{LeaderStatus, Moves, NodeStatus, Plan, Route, Status};
use super::call::{AcceptCall, ApplyCall, StartCall};
use super::clients::{self, Bracket, ClientList};
use super::counts::Counts;
use super::elsewhere::{Elsewhere, Heard};
use super::operator::{Operator, applied, now_ms, unread};
use super::refusal::{Code, Refusal};
use super::{elsewhere, look, moves};
use crate::driver::{Driver, NodeAddress, NodeFacts};
use crate::rebalancer::{
    Door, NotLeading, Progress, RebalancerHandle, Trial, accept, preflight, preflight_of_cache,
};
use crate::router::{RouterHandle, RouterStats};
use crate::up::fleet::Fleet;
use crate::up::placing::Placing;

/// A look at a node is worth no longer wait: a status without its keys is better than none.
const INSPECT_WITHIN: Duration = Duration::from_secs(2);
/// What a plan may take to ask every server that takes part whether it could.
const PREFLIGHT_WITHIN: Duration = Duration::from_secs(5);
/// How long a server that was started for nothing may take to end.
const SERVER_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// All that the admin API needs.
pub struct Service {
    /// Changes the record.
    pub operator: Operator,
    /// Where those who route by the record say so.
    pub registry: Arc<dyn Registry>,
    /// Looks at nodes.
    pub driver: Arc<dyn Driver>,
    /// What nodes had when they last answered.
    pub counts: Counts,
    /// What the router counts, where this process has one; nothing once that is gone.
    pub router: Option<Weak<RouterHandle>>,
    /// Starts and ends servers of this process, where it has any.
    pub fleet: Option<Fleet>,
    /// The view that this process routes by.
    pub views: watch::Receiver<Arc<View>>,
    /// Why nobody may route by it, if nobody may.
    pub discord: watch::Receiver<Option<Arc<str>>>,
    /// What the store has to complain about.
    pub trouble: watch::Receiver<Option<ReadError>>,
    /// Moves data, and decides whom nodes let in, where this process may lead.
    pub rebalancer: Option<Arc<RebalancerHandle>>,
    /// Whoever else leads.
    pub(crate) elsewhere: Elsewhere,
    /// Set to end this process.
    pub ending: watch::Sender<bool>,
    /// Whether it ends already.
    pub draining: watch::Receiver<bool>,
    /// What is wrong with this process.
    pub notices: watch::Receiver<Vec<String>>,
    /// Held by the call that starts a server and stages its node.
    pub adding: Mutex<()>,
}

/// What a look at each node gave.
type Facts = BTreeMap<NodeId, Result<NodeFacts, String>>;

impl Service {
    /// What the router does.
    pub(super) fn traffic(&self) -> RouterStats {
        let router = self.router.as_ref().and_then(Weak::upgrade);
        router.map(|router| router.stats()).unwrap_or_default()
    }

    /// What the rebalancer of this process does; nothing where it has none.
    pub(super) fn own_progress(&self) -> Progress {
        let own = self.rebalancer.as_ref();
        own.map(|own| own.progress().borrow().clone())
            .unwrap_or_default()
    }

    /// What the leader does, here or elsewhere.
    async fn heard(&self) -> Heard {
        let own = self.own_progress();
        if let Some(term) = own.term {
            let leader = LeaderStatus {
                name: format!("process {}", std::process::id()),
                term: term.get(),
                admin: None,
                here: true,
                unheard: None,
            };
            return Heard {
                progress: own,
                leader: Some(leader),
                unsaid: None,
            };
        }
        self.elsewhere.heard(own).await
    }

    /// How the pool is.
    pub(super) async fn status(&self) -> Result<(Arc<Record>, Status), Refusal> {
        let record = self.operator.record().await?;
        let view = self.view_of(&record)?;
        let facts = self.inspect(&record).await;
        let traffic = self.traffic().nodes;
        let heard = self.heard().await;
        let progress = &heard.progress;
        let nodes = view.nodes().iter().zip(look::shares(&view));
        let nodes = nodes.map(|(node, share)| {
            let rate = traffic
                .get(&node.id)
                .map_or(0, |node| node.requests_per_second);
            let closed = look::closed(progress, &node.id).map(ToString::to_string);
            let before = self.counts.of(&node.id);
            node_status((node, share), rate, (facts.get(&node.id), before), closed)
        });
        let membership = record.membership();
        let status = Status {
            pool: record.pool().to_string(),
            protocol: record.protocol().to_string(),
            class: record.class().to_string(),
            revision: record.revision().get(),
            fingerprint: view.fingerprint().to_string(),
            scheme: membership.scheme.to_string(),
            generator: membership.generator.to_string(),
            placement: Placing::of(&membership.generator),
            replicas: membership.replicas,
            change: record.change().map(look::summary),
            staged: record.staged().len(),
            nodes: nodes.collect(),
            problems: self.problems(&facts, &heard),
            next: look::acceptable(progress),
            leader: heard.leader,
        };
        Ok((record, status))
    }

    fn problems(&self, facts: &Facts, heard: &Heard) -> Vec<String> {
        let progress = &heard.progress;
        let mut problems: Vec<String> = facts
            .values()
            .filter_map(|facts| facts.as_ref().err().cloned())
            .collect();
        for (id, facts) in facts {
            if let Ok(NodeFacts {
                refuses_writes: Some(why),
                ..
            }) = facts
            {
                problems.push(format!("node {id} refuses writes: {why}"));
            }
        }
        problems.extend(
            self.trouble
                .borrow()
                .as_ref()
                .map(|error| format!("store: {error}")),
        );
        problems.extend(self.notices.borrow().iter().cloned());
        problems.extend(self.discord.borrow().as_deref().map(str::to_owned));
        if let Some(leader) = &heard.leader {
            problems.extend(elsewhere::unheard(leader));
        } else if let Some(error) = &heard.unsaid {
            problems.push(format!("who leads the pool is not known: {error}"));
        } else {
            let why = progress.cannot_lead.as_deref().unwrap_or("not yet");
            problems.push(format!(
                "nobody leads the pool, so that no key moves and no restarted node lets clients in: {why}"
            ));
        }
        for (node, door) in &progress.doors {
            match door {
                Door::Closed(closed) => {
                    problems.push(format!("node {node} lets no clients in: {closed}"));
                }
                // Where a look at it fails too, that has been told.
                Door::Away { why } if facts.get(node).is_some_and(Result::is_ok) => {
                    problems.push(format!("node {node} lets no clients in: {why}"));
                }
                _ => {}
            }
        }
        if let Some(why) = progress
            .change
            .as_ref()
            .and_then(|change| change.unwritable.as_ref())
        {
            problems.push(format!(
                "{why}; the change waits, and goes on by itself once that is mended"
            ));
        }
        for handoff in progress.change.iter().flat_map(|change| &change.handoffs) {
            if let Some(why) = &handoff.stopped {
                problems.push(format!(
                    "the move from {} stands still: {why}",
                    handoff.id.source
                ));
            }
        }
        problems
    }

    fn view_of(&self, record: &Record) -> Result<View, Refusal> {
        let view = self.views.borrow().renewed(record);
        view.map_err(|error| {
            Refusal::new(Code::Failed, format!("the record makes no view: {error}"))
        })
    }

    async fn inspect(&self, record: &Record) -> Facts {
        let look = async |node: &Node| {
            let at = NodeAddress {
                id: node.id.clone(),
                address: node.address.to_string(),
            };
            let facts = match timeout(INSPECT_WITHIN, self.driver.inspect(&at)).await {
                Ok(Ok(facts)) => Ok(facts),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!(
                    "node {} at {} does not answer in time",
                    node.id, node.address
                )),
            };
            (node.id.clone(), facts)
        };
        let looks = join_all(record.membership().nodes.iter().map(look)).await;
        let facts = looks.into_iter().collect();
        self.counts.note(&facts);
        facts
    }

    /// Where a key is.
    pub(super) async fn route(&self, key: &[u8]) -> Result<(Arc<Record>, Route), Refusal> {
        let record = self.operator.record().await?;
        let view = self.view_of(&record)?;
        let route = look::route(&record, &view, key);
        Ok((record, route))
    }

    /// Who routes by the record, and who of them is behind or differs.
    pub(super) async fn clients(&self) -> Result<(Arc<Record>, ClientList), Refusal> {
        let before = self.routes_by(&*self.operator.record().await?)?;
        let listing = self.registry.registered().await;
        let listing = listing.map_err(|error| unread(&error))?;
        let record = self.operator.record().await?;
        let after = self.routes_by(&record)?;
        let bracket = Bracket { before, after };
        Ok((record, clients::compare(listing, bracket)))
    }

    /// What whoever has this record routes by, or a later one that is here by now.
    fn routes_by(&self, record: &Record) -> Result<RoutesBy, Refusal> {
        let newest = Arc::clone(&self.views.borrow());
        if newest.epoch() >= record.epoch() {
            return Ok(RoutesBy::from(&*newest));
        }
        Ok(RoutesBy::from(&self.view_of(record)?))
    }

    /// What `apply` would do.
    pub(super) async fn plan(&self) -> Result<(Arc<Record>, Plan), Refusal> {
        let record = self.operator.record().await?;
        let facts = self.inspect(&record).await;
        let held = |(id, facts): (NodeId, Result<NodeFacts, String>)| {
            let facts = facts.ok()?;
            Some((
                id,
                Held {
                    keys: facts.keys,
                    bytes: facts.memory_used_bytes,
                },
            ))
        };
        let held = facts.into_iter().filter_map(held).collect();
        let plan = match record.plan(&held) {
            Ok(plan) => {
                let preflight = self.foresee(&record).await;
                look::plan(&plan, preflight)
                    .map_err(|error| Refusal::new(Code::Failed, error.to_string()))?
            }
            Err(ApplyError::NothingStaged) => look::empty_plan(),
            Err(error) => return Err(error.into()),
        };
        Ok((record, plan))
    }

    /// Why the servers, as they are now, would have `apply` refused. Nothing is written to them.
    async fn foresee(&self, record: &Record) -> Vec<String> {
        let Ok(next) = applied(record, None, &[]) else {
            // The plan has said why.
            return Vec::new();
        };
        let looked = self.reasons_against((record, &next), Trial::None);
        match timeout(PREFLIGHT_WITHIN, looked).await {
            Ok(Ok(words)) => words,
            Ok(Err(error)) => vec![error.to_string()],
            Err(_) => vec!["not every server answered in time".to_owned()],
        }
    }

    /// Makes what is staged a change, unless a look at the nodes says that it could not be carried out.
    pub(super) async fn apply(&self, call: &ApplyCall) -> Result<Arc<Record>, Refusal> {
        let expected = call.expect_epoch.map(Epoch::new);
        let check = |present, next| self.preflight(present, next);
        self.operator
            .apply(expected, &call.allow_writers, check)
            .await
    }

    async fn preflight(&self, present: Arc<Record>, next: Record) -> Result<Record, Refusal> {
        let words = self.reasons_against((&present, &next), Trial::Canary).await;
        let words = words.map_err(|error| Refusal::new(Code::Failed, error.to_string()))?;
        match words.is_empty() {
            true => Ok(next),
            false => {
                Err(Refusal::new(Code::Guard, words.join("; "))
                    .with_next("clockwise plan".to_owned()))
            }
        }
    }

    /// Why a record should not follow the present one, by a look at the servers.
    async fn reasons_against(
        &self,
        (present, next): (&Record, &Record),
        trial: Trial,
    ) -> Result<Vec<String>, ViewError> {
        if !next.protocol().can_fence() {
            return Ok(preflight_of_cache(&*self.driver, present, next).await);
        }
        let refusals = preflight(&*self.driver, next, trial).await?;
        Ok(refusals.iter().map(ToString::to_string).collect())
    }

    /// Takes a node as it is that is closed because it is another run than at its flip.
    pub(super) async fn accept(&self, call: &AcceptCall) -> Result<Arc<Record>, Refusal> {
        let invalid = |error| Refusal::new(Code::Invalid, format!("id: {error}"));
        let id: NodeId = call.id.parse().map_err(invalid)?;
        let record = self.operator.record().await?;
        let Heard {
            progress, leader, ..
        } = self.heard().await;
        // Where the leader cannot be heard the record decides alone.
        if record.node(&id).is_some() && leader.is_none_or(|leader| leader.unheard.is_none()) {
            look::check_acceptable(&progress, &id)?;
        }
        match &self.rebalancer {
            Some(rebalancer) => rebalancer.accept(&id).await?,
            // Whoever leads finds it in the record.
            None => {
                let store = self.operator.store();
                accept(store, &*self.driver, &id).await.map(drop)?;
            }
        }
        self.operator.record().await
    }

    /// Turns the change in flight round.
    pub(super) async fn abort(&self) -> Result<Arc<Record>, Refusal> {
        match self.leading() {
            Some(rebalancer) => rebalancer.abort().await?,
            None => self.elsewhere.order("abort").await?,
        }
        self.operator.record().await
    }

    /// The rebalancer of this process, if it leads or nobody else could.
    fn leading(&self) -> Option<&RebalancerHandle> {
        let own = self.rebalancer.as_deref()?;
        let leads = own.progress().borrow().term.is_some();
        (leads || self.fleet.is_some()).then_some(own)
    }

    /// Turns the change round if this process leads, and asks nobody else.
    pub(super) async fn abort_here(&self) -> Result<(), Refusal> {
        let own = self.rebalancer.as_deref().ok_or(NotLeading)?;
        Ok(own.abort().await?)
    }

    /// Begins handoffs again if this process leads, and asks nobody else.
    pub(super) async fn resume_here(&self) -> Result<(), Refusal> {
        let own = self.rebalancer.as_deref().ok_or(NotLeading)?;
        Ok(own.retry().await?)
    }

    /// Begins handoffs again that stopped.
    pub(super) async fn resume(&self) -> Result<Arc<Record>, Refusal> {
        match self.leading() {
            Some(rebalancer) => rebalancer.retry().await?,
            None => self.elsewhere.order("resume").await?,
        }
        self.operator.record().await
    }

    /// The moves of the change that was just applied; none where no key had to change its owner.
    pub(super) async fn applied(&self, record: &Record) -> Moves {
        match record.change() {
            Some(_) => self.moves(record).await,
            None => moves::settled_at_once(record),
        }
    }

    /// The moves of the change in flight or of the last one.
    pub(super) async fn moves(&self, record: &Record) -> Moves {
        self.moves_without(record, None).await
    }

    /// The moves once a node was accepted, of which its door may not have heard yet.
    pub(super) async fn accepted(&self, record: &Record, id: &str) -> Moves {
        self.moves_without(record, Some(id)).await
    }

    /// The moves, whatever is known of the door of one node.
    async fn moves_without(&self, record: &Record, id: Option<&str>) -> Moves {
        let Heard {
            mut progress,
            leader,
            ..
        } = self.heard().await;
        progress.doors.retain(|(node, _)| Some(node.as_str()) != id);
        Moves {
            unheard: leader.and_then(|leader| leader.unheard),
            ..moves::moves(record, &progress, now_ms())
        }
    }

    /// Starts one more server and stages the node that it is.
    pub(super) async fn start_node(&self, call: &StartCall) -> Result<Arc<Record>, Refusal> {
        let invalid =
            |field: &str, error: String| Refusal::new(Code::Invalid, format!("{field}: {error}"));
        let id: NodeId = call
            .id
            .parse()
            .map_err(|error| invalid("id", format!("{error}")))?;
        let weight = call
            .weight
            .parse()
            .map_err(|error| invalid("weight", format!("{error}")))?;
        let domain: Domain = call
            .domain
            .parse()
            .map_err(|error| invalid("domain", format!("{error}")))?;
        let Some(fleet) = &self.fleet else {
            let words = format!(
                "this process starts no servers: say where the one of {id} listens, with --addr HOST:PORT"
            );
            return Err(Refusal::new(Code::Invalid, words)
                .with_next(format!("clockwise node add {id} --addr HOST:PORT")));
        };
        // One after the other: a server is not started twice, nor ended while another call stages it.
        let _alone = self.adding.lock().await;
        let record = self.operator.record().await?;
        // Asked before a server is started: one that cannot join would only be ended again.
        let edit = |address: Address| Edit::Add {
            id: id.clone(),
            address,
            weight,
            domain: domain.clone(),
        };
        let placeholder = "127.0.0.1:1"
            .parse()
            .map_err(|error| invalid("address", format!("{error}")))?;
        record.stage(edit(placeholder))?;
        let failed = |error: String| Refusal::new(Code::Failed, error);
        let running = fleet
            .run(&id, None)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let staged = match running.address.parse() {
            Ok(address) => self.operator.stage(&[edit(address)]).await,
            Err(error) => Err(failed(format!("{}: {error}", running.address))),
        };
        if staged.is_err() && !running.adopted {
            // Nobody else would: whoever follows the record ends only what it once named.
            let ended = fleet
                .retire(&id, record.revision(), SERVER_ENDS_WITHIN)
                .await;
            if let Err(error) = ended {
                tracing::error!(node = %id, %error, "a server that was started for nothing does not end");
            }
        }
        staged
    }

    /// Takes staged edits back. Servers that were started for nodes which then do not join are ended by
    /// whoever follows the record.
    pub(super) async fn unstage(&self, which: &Unstage) -> Result<Arc<Record>, Refusal> {
        self.operator.unstage(which).await
    }

    /// Ends this process once the call is answered.
    pub(super) fn shut_down(&self) {
        self.ending.send_replace(true);
    }
}

fn node_status(
    (node, share): (&Node, f64),
    requests_per_second: u64,
    (facts, keys_before): (Option<&Result<NodeFacts, String>>, Option<u64>),
    closed: Option<String>,
) -> NodeStatus {
    let facts = facts.and_then(|facts| facts.as_ref().ok());
    NodeStatus {
        id: node.id.to_string(),
        state: node.state.name().to_owned(),
        address: node.address.to_string(),
        domain: node.domain.to_string(),
        weight: f64::from(node.weight.hundredths()) / 100.0,
        keys: facts.map(|facts| facts.keys),
        keys_before: keys_before.filter(|_| facts.is_none()),
        share,
        requests_per_second,
        memory_bytes: facts.map(|facts| facts.memory_used_bytes),
        server: facts.map(|facts| facts.server.clone()),
        closed,
    }
}
