//! One small production: three members of etcd, redis-servers of which one is about to join, two routers and
//! two rebalancers of the binary under test, and a proxy in front of every server.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use clockwise_cluster::Handoff;
use clockwise_testkit::{
    EtcdCluster, EtcdOptions, FaultProxy, RedisOptions, RedisServer, RunningProgram, Weather,
    free_ports,
};
use serde_json::Value;

use super::interrupt::wait_until;
use super::witness::Witness;
use crate::ended::{Ended, within};

/// Nodes that own from the beginning; one more joins.
const OWNERS: usize = 3;
const NODES_PASSWORD: &str = "of-the-nodes";
const TOKEN: &str = "a-token";
const READY_WITHIN: Duration = Duration::from_secs(20);
const VERB_WITHIN: Duration = Duration::from_secs(10);
const BENCH_ENDS_WITHIN: Duration = Duration::from_secs(30);

/// The load: more than twice the writes that a run needs to count, so that a slow machine is no void run.
pub(super) const KEY_PREFIX: &str = "m";
const KEYS: usize = 4_000;
const REQUESTS_PER_SECOND: u32 = 5_000;
const CONNECTIONS: u32 = 40;
/// So that copying lasts long enough to be met, about a third of a second for each source.
const KEYS_PER_SECOND: &str = "1500";

/// How late everything between a rebalancer and a node arrives, each way: two machines of one network. It makes
/// a handover last some forty milliseconds, so that faults can be aimed at it.
const USUAL_DELAY: Duration = Duration::from_millis(2);

/// Somebody to whom something happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    Rebalancer(usize),
    Router(usize),
    Node(usize),
    Etcd(usize),
}

/// Everything that runs. Ends with its value, in the order of the fields.
pub(super) struct World {
    bench: RunningProgram,
    routers: Vec<RunningProgram>,
    rebalancers: Vec<RunningProgram>,
    pub(super) witness: Witness,
    pub(super) node_proxies: Vec<FaultProxy>,
    pub(super) etcd_proxies: Vec<FaultProxy>,
    pub(super) nodes: Vec<RedisServer>,
    pub(super) etcd: EtcdCluster,
    /// Which rebalancer leads, as of when it was last asked for.
    leader: usize,
    admins: Vec<u16>,
    binary: PathBuf,
    folder: PathBuf,
}

impl World {
    /// Starts it all, with a load that runs; nothing is staged yet.
    pub(super) fn start(binary: &Path, folder: &Path, seed: u64) -> io::Result<Self> {
        let (etcd, nodes) = servers();
        let behind = |server: &RedisServer| FaultProxy::start(server.socket_addr());
        let node_proxies: Vec<FaultProxy> = nodes.iter().map(behind).collect();
        let behind = |addr: String| {
            addr.parse()
                .map(FaultProxy::start)
                .map_err(io::Error::other)
        };
        let members = etcd.members().iter().map(|member| behind(member.addr()));
        let etcd_proxies = members.collect::<io::Result<Vec<_>>>()?;
        let witness = Witness::start(etcd.endpoints())?;
        let ports = free_ports::<4>();
        let (listens, admins) = ports.split_at(2);
        secrets(folder)?;
        let endpoints: Vec<SocketAddr> = etcd_proxies.iter().map(FaultProxy::addr).collect();
        for (name, port) in ["router-0", "router-1"].iter().zip(listens) {
            let listen = format!("[router]\nlisten = \"127.0.0.1:{port}\"\nworkers = 1\n");
            configuration(folder, name, "router", &endpoints, &listen)?;
        }
        for (name, port) in ["rebalancer-0", "rebalancer-1"].iter().zip(admins) {
            let listen =
                format!("[admin]\nlisten = \"127.0.0.1:{port}\"\ntoken_file = \"token\"\n");
            configuration(folder, name, "rebalancer\", \"admin", &endpoints, &listen)?;
        }
        found(binary, folder, &node_proxies[..OWNERS])?;
        let serve = |name: &str| {
            let config = folder.join(format!("{name}.toml"));
            let config = config.to_string_lossy();
            RunningProgram::start(binary, &["serve", "--config", &config], &[], folder, name)
        };
        let rebalancers: Vec<_> = ["rebalancer-0", "rebalancer-1"].map(serve).into();
        let routers: Vec<_> = ["router-0", "router-1"].map(serve).into();
        ready(rebalancers.iter().chain(&routers))?;
        let bench = load(binary, folder, listens, seed);
        let world = Self {
            bench,
            routers,
            rebalancers,
            witness,
            node_proxies,
            etcd_proxies,
            nodes,
            etcd,
            leader: 0,
            admins: admins.to_vec(),
            binary: binary.to_owned(),
            folder: folder.to_owned(),
        };
        (0..2).for_each(|at| world.settle(Subject::Rebalancer(at)));
        let all_there = wait_until(READY_WITHIN, || world.keys_held() >= KEYS * 3 / 4);
        match all_there {
            true => Ok(world),
            false => Err(io::Error::other(format!(
                "the load has not begun: {}",
                world.bench.logged()
            ))),
        }
    }

    fn keys_held(&self) -> usize {
        let sizes = self.nodes.iter().map(|node| node.cli(&["DBSIZE"]));
        sizes.filter_map(|size| size.parse::<usize>().ok()).sum()
    }

    /// Stages and applies the join, with a copy that takes its time.
    pub(super) fn join_fourth(&mut self) -> io::Result<()> {
        let joins = self.node_proxies[OWNERS].addr().to_string();
        self.verb(&["throttle", "--keys", KEYS_PER_SECOND])?;
        self.verb(&["node", "add", &node_name(OWNERS), "--addr", &joins])?;
        let led = wait_until(READY_WITHIN, || self.find_leader());
        if !led {
            return Err(io::Error::other("nobody leads"));
        }
        self.verb(&["apply"]).map(drop)
    }

    /// Asks etcd who leads.
    pub(super) fn find_leader(&mut self) -> bool {
        let Ok(Some(leader)) = self.witness.leader() else {
            return false;
        };
        let found = (0..self.rebalancers.len())
            .find(|at| leader.holder.contains(&format!("rebalancer-{at}")));
        self.leader = found.unwrap_or(self.leader);
        found.is_some()
    }

    pub(super) fn leader(&self) -> Subject {
        Subject::Rebalancer(self.leader)
    }

    /// Which nodes a handoff is from and to.
    pub(super) fn ends_of(&self, handoff: &Handoff, pick: usize) -> (usize, usize) {
        let at = |name: &str| (0..self.nodes.len()).find(|at| node_name(*at) == name);
        let target = &handoff.targets[pick % handoff.targets.len().max(1)];
        (
            at(handoff.source.as_str()).unwrap_or(0),
            at(target.as_str()).unwrap_or(OWNERS),
        )
    }

    /// Runs a verb at whichever rebalancer's admin API answers it, and returns what it printed.
    pub(super) fn verb(&self, args: &[&str]) -> io::Result<String> {
        let mut complaint = String::new();
        for port in &self.admins {
            let mut command = Command::new(&self.binary);
            command
                .args(args)
                .args(["--admin", &format!("127.0.0.1:{port}")])
                .env("CLOCKWISE_TOKEN", TOKEN);
            match within(VERB_WITHIN, &mut command)? {
                Ended::ByItself(output) if output.status.success() => {
                    return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
                }
                Ended::ByItself(output) => {
                    complaint = String::from_utf8_lossy(&output.stderr).into_owned();
                }
                Ended::Killed => complaint = "no answer".to_owned(),
            }
        }
        Err(io::Error::other(format!(
            "{}: {}",
            args.join(" "),
            complaint.trim()
        )))
    }

    /// A process of ours, to be started again or looked at.
    fn program(&mut self, subject: Subject) -> Option<&mut RunningProgram> {
        match subject {
            Subject::Rebalancer(at) => self.rebalancers.get_mut(at),
            Subject::Router(at) => self.routers.get_mut(at),
            Subject::Node(_) | Subject::Etcd(_) => None,
        }
    }

    pub(super) fn pid(&self, subject: Subject) -> u32 {
        match subject {
            Subject::Rebalancer(at) => self.rebalancers[at].pid(),
            Subject::Router(at) => self.routers[at].pid(),
            Subject::Node(at) => self.nodes[at].pid(),
            Subject::Etcd(at) => self.etcd.members()[at].pid(),
        }
    }

    /// The processes of ours.
    pub(super) fn everybody(&self) -> Vec<u32> {
        let programs = self.rebalancers.iter().chain(&self.routers);
        programs.map(RunningProgram::pid).collect()
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self, subject: Subject) {
        match subject {
            Subject::Node(at) => self.nodes[at].kill9(),
            Subject::Etcd(at) => self.etcd.member(at).kill9(),
            ours => self
                .program(ours)
                .into_iter()
                .for_each(RunningProgram::kill9),
        }
    }

    pub(super) fn restart(&mut self, subject: Subject) {
        match subject {
            Subject::Node(at) => self.nodes[at].restart(),
            Subject::Etcd(at) => self.etcd.member(at).restart(),
            ours => {
                self.program(ours)
                    .into_iter()
                    .for_each(RunningProgram::restart);
                self.settle(ours);
            }
        }
    }

    /// Gives the connections of a process that has just begun their usual weather.
    fn settle(&self, subject: Subject) {
        for at in 0..self.nodes.len() {
            self.usual_weather(subject, Subject::Node(at));
        }
    }

    /// SIGSTOP.
    pub(super) fn freeze(&mut self, subject: Subject) {
        match subject {
            Subject::Node(at) => self.nodes[at].pause(),
            Subject::Etcd(at) => self.etcd.member(at).pause(),
            ours => self.program(ours).into_iter().for_each(|one| one.pause()),
        }
    }

    /// SIGCONT.
    pub(super) fn thaw(&mut self, subject: Subject) {
        match subject {
            Subject::Node(at) => self.nodes[at].resume(),
            Subject::Etcd(at) => self.etcd.member(at).resume(),
            ours => self.program(ours).into_iter().for_each(|one| one.resume()),
        }
    }

    /// How connections from one of ours to a node, or to all of etcd, behave.
    pub(super) fn weather(&self, from: Subject, to: Subject, weather: Weather) {
        let pid = self.pid(from);
        match to {
            Subject::Node(at) => self.node_proxies[at].set(pid, weather),
            _ => self
                .etcd_proxies
                .iter()
                .for_each(|proxy| proxy.set(pid, weather)),
        }
    }

    /// As it was before anything was wrong.
    pub(super) fn usual_weather(&self, from: Subject, to: Subject) {
        let usual = match (from, to) {
            (Subject::Rebalancer(_), Subject::Node(_)) => Weather::late(USUAL_DELAY),
            _ => Weather::default(),
        };
        self.weather(from, to, usual);
    }

    /// Ends the load and gives its report.
    pub(super) fn end_load(&mut self) -> Result<Value, String> {
        if !self.bench.interrupt(BENCH_ENDS_WITHIN) {
            return Err(format!("the load did not end: {}", self.bench.logged()));
        }
        let said = self.bench.said();
        serde_json::from_str(&said).map_err(|error| {
            format!(
                "no report of the load: {error}: {said} {}",
                self.bench.logged()
            )
        })
    }

    /// What went wrong with processes of ours that nobody ended.
    pub(super) fn ended_by_themselves(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let programs = self.rebalancers.iter_mut().chain(&mut self.routers);
        for (name, program) in ["rebalancer-0", "rebalancer-1", "router-0", "router-1"]
            .iter()
            .zip(programs)
        {
            if !program.is_running() {
                found.push(format!("{name} has ended"));
            }
            if program.logged().contains("panicked at") {
                found.push(format!("{name} has panicked"));
            }
        }
        found
    }

    /// Leaves what servers and records say beside the logs of our processes.
    pub(super) fn leave_traces(&self) -> io::Result<()> {
        for (at, node) in self.nodes.iter().enumerate() {
            fs::write(
                self.folder.join(format!("{}.log", node_name(at))),
                node.log(),
            )?;
        }
        for (at, member) in self.etcd.members().iter().enumerate() {
            fs::write(self.folder.join(format!("etcd-{at}.log")), member.log())?;
        }
        fs::write(self.folder.join("records.txt"), self.witness.story())?;
        fs::write(self.folder.join("bench.json"), self.bench.said())
    }
}

pub(super) fn node_name(at: usize) -> String {
    format!("node-{}", at + 1)
}

fn servers() -> (EtcdCluster, Vec<RedisServer>) {
    let node = || {
        RedisServer::start(RedisOptions {
            password: Some(NODES_PASSWORD.to_owned()),
            append_only: true,
            ..RedisOptions::default()
        })
    };
    thread::scope(|scope| {
        let etcd = scope.spawn(|| EtcdCluster::start::<3>(&EtcdOptions::default()));
        let nodes = (0..=OWNERS).map(|_| node()).collect();
        match etcd.join() {
            Ok(etcd) => (etcd, nodes),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn secrets(folder: &Path) -> io::Result<()> {
    let pool_key = "5".repeat(64);
    for (name, text) in [
        ("pool.key", pool_key.as_str()),
        ("nodes.password", NODES_PASSWORD),
        ("token", TOKEN),
    ] {
        let path = folder.join(name);
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
    }
    Ok(())
}

/// Leases of two seconds, the shortest that etcd grants.
fn configuration(
    folder: &Path,
    name: &str,
    roles: &str,
    endpoints: &[SocketAddr],
    listen: &str,
) -> io::Result<()> {
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|addr| format!("\"http://{addr}\""))
        .collect();
    let text = format!(
        "name = \"{name}\"\nroles = [\"{roles}\"]\n\
         [store]\nkind = \"etcd\"\nendpoints = [{}]\nlease_seconds = 2\n\
         [nodes]\nadmin_password_file = \"nodes.password\"\npool_key_file = \"pool.key\"\n{listen}",
        endpoints.join(", ")
    );
    fs::write(folder.join(format!("{name}.toml")), text)
}

/// Makes the record.
fn found(binary: &Path, folder: &Path, owners: &[FaultProxy]) -> io::Result<()> {
    let mut command = Command::new(binary);
    command
        .args(["record", "init", "--config"])
        .arg(folder.join("rebalancer-0.toml"));
    for (at, proxy) in owners.iter().enumerate() {
        command.args(["--node", &format!("{}={}", node_name(at), proxy.addr())]);
    }
    match within(VERB_WITHIN, &mut command)? {
        Ended::ByItself(output) if output.status.success() => Ok(()),
        Ended::ByItself(output) => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
        Ended::Killed => Err(io::Error::other("record init does not end")),
    }
}

fn ready<'a>(programs: impl Iterator<Item = &'a RunningProgram>) -> io::Result<()> {
    for program in programs {
        if !wait_until(READY_WITHIN, || program.said().contains("ready ")) {
            return Err(io::Error::other(format!("not ready: {}", program.logged())));
        }
    }
    Ok(())
}

fn load(binary: &Path, folder: &Path, routers: &[u16], seed: u64) -> RunningProgram {
    let routers: Vec<String> = routers
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    let (rate, connections) = (REQUESTS_PER_SECOND.to_string(), CONNECTIONS.to_string());
    let (keys, seed) = (KEYS.to_string(), seed.to_string());
    let args = [
        "bench",
        "--router",
        &routers.join(","),
        "--rate",
        &rate,
        "--connections",
        &connections,
        "--pipeline",
        "4",
        "--keys",
        &keys,
        "--key-prefix",
        KEY_PREFIX,
        "--seed",
        &seed,
        "--seconds",
        "120",
        "-o",
        "json",
    ];
    RunningProgram::start(binary, &args, &[], folder, "bench")
}
