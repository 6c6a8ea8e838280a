//! Verbs about nodes: `node add`, `node set`, `node remove` and `unstage` stage edits, and nothing moves before
//! `apply`; `node accept` decides about one that a change in flight waits for.

use std::io::{self, BufRead, IsTerminal, Write};

use clockwise_cluster::{Address, Edit};
use clockwise_placement::{Domain, NodeId, Weight};

use super::change::print_moves;
use super::exit::{Exit, Failure};
use super::look::print_staged;
use super::output::{Format, count};
use super::server::{Server, Target};
use crate::admin::answer::{Envelope, NodeStatus, Status};
use crate::admin::call::{AcceptCall, StageCall, StartCall, UnstageCall};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Node {
    /// Stages a node that joins; without an address one more server is started for it.
    Add(AddArgs),
    /// Stages another weight, domain or address of a node.
    Set(SetArgs),
    /// Stages a node that leaves and hands over what it has.
    Remove(RemoveArgs),
    /// Lets clients in again at a node that restarted after it had become an owner, as it is now.
    Accept(AcceptArgs),
    /// Lists the nodes.
    List {
        #[command(flatten)]
        target: Target,
    },
}

impl Node {
    pub(super) fn target(&self) -> &Target {
        match self {
            Self::Add(args) => &args.target,
            Self::Set(args) => &args.target,
            Self::Remove(args) => &args.target,
            Self::Accept(args) => &args.target,
            Self::List { target } => target,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct AddArgs {
    /// The node's stable name: 1 to 64 of A-Z a-z 0-9 . _ -
    id: NodeId,
    /// Where its server listens.
    #[arg(long, value_name = "HOST:PORT")]
    addr: Option<Address>,
    /// How much it takes beside the others, with up to two decimals.
    #[arg(long, default_value = "1", allow_negative_numbers = true)]
    weight: Weight,
    /// Where it stands, outermost first.
    #[arg(long, value_name = "REGION/ZONE/RACK/HOST", default_value = "")]
    domain: Domain,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
#[group(id = "what", required = true, multiple = true, args = ["addr", "weight", "domain"])]
pub(super) struct SetArgs {
    /// The node.
    id: NodeId,
    /// Where its server, with its data, is reached from now on.
    #[arg(long, value_name = "HOST:PORT")]
    addr: Option<Address>,
    /// How much it takes beside the others, with up to two decimals.
    #[arg(long, allow_negative_numbers = true)]
    weight: Option<Weight>,
    /// Where it stands, outermost first.
    #[arg(long, value_name = "REGION/ZONE/RACK/HOST")]
    domain: Option<Domain>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
pub(super) struct RemoveArgs {
    /// The node.
    id: NodeId,
    /// It is lost for good: its part gets new owners without its data.
    #[arg(long)]
    lost: bool,
    /// The node's name once more, where nobody can be asked.
    #[arg(long, value_name = "ID", requires = "lost")]
    confirm: Option<NodeId>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
pub(super) struct AcceptArgs {
    /// The node.
    id: NodeId,
    /// The node's name once more, where nobody can be asked.
    #[arg(long, value_name = "ID")]
    confirm: Option<NodeId>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
pub(super) struct UnstageArgs {
    /// The number of a staged edit, or a node's name; all edits without it.
    what: Option<String>,
    #[command(flatten)]
    pub(super) target: Target,
}

pub(super) fn add(args: AddArgs, format: Format) -> Result<Exit, Failure> {
    let server = args.target.find()?;
    let AddArgs {
        id, weight, domain, ..
    } = args;
    let answer = match args.addr {
        Some(address) => server.post(
            "stage",
            &StageCall::of(Edit::Add {
                id,
                address,
                weight,
                domain,
            }),
        ),
        None => server.post("nodes", &StartCall::new(&id, weight, &domain)),
    }?;
    print_staged(&answer, format)
}

pub(super) fn set(args: SetArgs, format: Format) -> Result<Exit, Failure> {
    let id = &args.id;
    let edits = [
        args.addr.map(|address| Edit::SetAddress {
            id: id.clone(),
            address,
        }),
        args.weight.map(|weight| Edit::SetWeight {
            id: id.clone(),
            weight,
        }),
        args.domain.map(|domain| Edit::SetDomain {
            id: id.clone(),
            domain,
        }),
    ];
    let call = StageCall {
        edits: edits.into_iter().flatten().collect(),
    };
    print_staged(&args.target.find()?.post("stage", &call)?, format)
}

pub(super) fn remove(args: RemoveArgs, format: Format) -> Result<Exit, Failure> {
    let server = args.target.find()?;
    let edit = match args.lost {
        false => Edit::Remove { id: args.id },
        true => {
            let keys_counted = confirm_loss(&server, &args)?;
            Edit::RemoveLost {
                id: args.id,
                keys_counted,
            }
        }
    };
    print_staged(&server.post("stage", &StageCall::of(edit))?, format)
}

/// Names what is lost and takes nothing but the node's name for a yes. Gives the keys last counted.
fn confirm_loss(server: &Server, args: &RemoveArgs) -> Result<Option<u64>, Failure> {
    let id = &args.id;
    let node = node_status(server, id)?;
    // One that is lost says nothing any more.
    let keys_counted = node.keys.or(node.keys_before);
    let keys = number_of(keys_counted);
    let confirmed = confirm(
        id,
        args.confirm.as_ref(),
        &format!("{keys} keys of node {id} will be lost."),
    )?;
    if confirmed {
        return Ok(keys_counted);
    }
    let words = format!("{keys} keys of node {id} would be lost; nothing was staged");
    let next = format!("clockwise node remove {id} --lost --confirm {id}");
    Err(Failure::new(Exit::Guard, words).with_next(next))
}

/// Says what there is to lose, and takes nothing but the node's name for a yes.
pub(super) fn accept(args: &AcceptArgs, format: Format) -> Result<Exit, Failure> {
    let server = args.target.find()?;
    let id = &args.id;
    let node = node_status(&server, id)?;
    if let Some(closed) = &node.closed {
        let keys = number_of(node.keys);
        let known = format!("node {id} lets no clients in: {closed}.");
        let risk = format!(
            "It has {keys} keys now; what it lost since is lost for good once it is accepted."
        );
        if !confirm(id, args.confirm.as_ref(), &format!("{known} {risk}"))? {
            let next = format!("clockwise node accept {id} --confirm {id}");
            let words = format!("{known} {risk} Nothing was done");
            return Err(Failure::new(Exit::Guard, words).with_next(next));
        }
    }
    let call = AcceptCall { id: id.to_string() };
    print_moves(&server.post("accept", &call)?, format)
}

fn node_status(server: &Server, id: &NodeId) -> Result<NodeStatus, Failure> {
    let Envelope { body: status, .. } = server.get("status", &[])?.parse::<Envelope<Status>>()?;
    let mut nodes = status.nodes.into_iter();
    nodes.find(|node| node.id == id.as_str()).ok_or_else(|| {
        let words = format!("there is no node {id}");
        Failure::new(Exit::Failed, words).with_next("clockwise node list")
    })
}

fn number_of(keys: Option<u64>) -> String {
    keys.map_or_else(|| "an unknown number of".to_owned(), count)
}

/// Whether the node's name was given as a yes, on the command line or by somebody at a terminal.
fn confirm(id: &NodeId, given: Option<&NodeId>, words: &str) -> Result<bool, Failure> {
    if given.is_some() || !io::stdin().is_terminal() {
        return Ok(given == Some(id));
    }
    let system = |error: io::Error| Failure::new(Exit::Failed, error);
    eprint!("{words} Type its name to go on: ");
    io::stderr().flush().map_err(system)?;
    let mut typed = String::new();
    io::stdin().lock().read_line(&mut typed).map_err(system)?;
    Ok(typed.trim() == id.as_str())
}

pub(super) fn unstage(args: &UnstageArgs, format: Format) -> Result<Exit, Failure> {
    let call = match args.what.as_deref() {
        None => UnstageCall::All,
        Some(what) => match what.parse() {
            Ok(number) => UnstageCall::Edit(number),
            Err(_) => UnstageCall::Node(what.to_owned()),
        },
    };
    print_staged(&args.target.find()?.post("unstage", &call)?, format)
}
