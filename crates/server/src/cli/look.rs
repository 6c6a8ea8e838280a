//! Verbs that only look: `status`, `owner`, `route`, `node list`, `staged`.

use super::exit::{Exit, Failure};
use super::output::{self, Format, bytes, count, percent};
use super::server::{Answer, Target};
use crate::admin::answer::{Envelope, NodeStatus, Route, StagedList, Status};

/// What leads to a command that decides about a node.
pub(super) const ACCEPT: &str = "Take the node as it is, and let its clients in, with:";

/// What leads to a change, where nothing is staged.
pub(super) const STAGE: &str = "Stage a change with:  clockwise node add|set|remove ID      or:  clockwise pool set --placement ring|slots";

#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// Answer 4 unless all is well.
    #[arg(long)]
    check: bool,
}

/// What a question to the admin API has room for, however the bytes have to be written.
const KEY_BYTES_MAX: usize = 4 << 10;

#[derive(Debug, clap::Args)]
pub(super) struct KeyArgs {
    /// The key, as text.
    #[arg(required_unless_present = "hex")]
    key: Option<String>,
    /// The key's bytes in hexadecimal digits.
    #[arg(long, value_name = "DIGITS", conflicts_with = "key", value_parser = hexadecimal)]
    hex: Option<String>,
    #[command(flatten)]
    pub(super) target: Target,
}

/// The digits of whole bytes.
fn hexadecimal(text: &str) -> Result<String, String> {
    match text.len().is_multiple_of(2) && text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        true => Ok(text.to_owned()),
        false => Err(
            "it takes two hexadecimal digits for each byte of the key, such as 757365723a3432"
                .to_owned(),
        ),
    }
}

impl KeyArgs {
    fn ask(&self) -> Result<Answer, Failure> {
        let text = self.key.as_ref().map(String::len);
        let bytes = text.or_else(|| Some(self.hex.as_ref()?.len() / 2));
        if let Some(bytes) = bytes.filter(|&bytes| bytes > KEY_BYTES_MAX) {
            return Err(Failure::new(
                Exit::Usage,
                format!(
                    "the key has {bytes} bytes, and may have {KEY_BYTES_MAX} here; a client of the router can ask for longer ones"
                ),
            )
            .with_next("CLOCKWISE ROUTE KEY, sent to the router"));
        }
        let server = self.target.find()?;
        match (&self.key, &self.hex) {
            (Some(key), _) => server.get("route", &[("key", key)]),
            (None, hex) => server.get("route", &[("key_hex", hex.as_deref().unwrap_or_default())]),
        }
    }
}

pub(super) fn status(args: &StatusArgs, format: Format) -> Result<Exit, Failure> {
    let answer = args.target.find()?.get("status", &[])?;
    let Envelope {
        epoch,
        body: status,
        ..
    } = answer.parse::<Envelope<Status>>()?;
    match format {
        Format::Json => output::line(&answer.text())?,
        Format::Table => {
            print_status(epoch, &status)?;
            answer.line_next(&next_of(&status))?;
        }
    }
    Ok(if args.check && !status.problems.is_empty() {
        Exit::Unhealthy
    } else {
        Exit::Done
    })
}

fn print_status(epoch: Option<u64>, status: &Status) -> Result<(), Failure> {
    output::line(&format!(
        "pool {}   epoch {}   {} of class {}   {}, {}   fingerprint {}\n",
        status.pool,
        epoch.unwrap_or_default(),
        status.protocol,
        status.class,
        status.scheme,
        status.generator,
        status.fingerprint,
    ))?;
    output::line(&nodes_table(&status.nodes))?;
    for problem in &status.problems {
        output::line(&format!("\nproblem  {problem}"))?;
    }
    if let Some(change) = &status.change {
        let words = format!(
            "\nchange {} goes {}: {} of {} handoffs are over",
            change.id, change.direction, change.over, change.handoffs,
        );
        output::line(&words)?;
    }
    Ok(())
}

fn next_of(status: &Status) -> String {
    if let Some(next) = &status.next {
        return format!("{ACCEPT}  {next}");
    }
    let next = match (&status.change, status.staged) {
        (Some(_), _) => "Follow it with:  clockwise moves --watch",
        (None, 0) => "Add a node with:  clockwise node add ID",
        (None, _) => "Edits are staged. See what they do with:  clockwise plan",
    };
    next.to_owned()
}

fn nodes_table(nodes: &[NodeStatus]) -> String {
    let header = [
        "node",
        "state",
        "address",
        "domain",
        "weight",
        "keys",
        "memory",
        "share",
        "requests/s",
    ];
    let row = |node: &NodeStatus| {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let domain = Some(node.domain.clone()).filter(|domain| !domain.is_empty());
        vec![
            node.id.clone(),
            node.state.clone(),
            node.address.clone(),
            or_dash(domain),
            node.weight.to_string(),
            or_dash(node.keys.map(count)),
            or_dash(node.memory_bytes.map(bytes)),
            percent(node.share),
            count(node.requests_per_second),
        ]
    };
    output::table(&header, &[4, 5, 6, 7, 8], nodes.iter().map(row).collect())
}

pub(super) fn nodes(target: &Target, format: Format) -> Result<Exit, Failure> {
    let answer = target.find()?.get("nodes", &[])?;
    match format {
        Format::Json => output::line(&answer.text())?,
        Format::Table => {
            #[derive(serde::Deserialize)]
            struct Nodes {
                nodes: Vec<NodeStatus>,
            }
            let Nodes { nodes } = answer.parse()?;
            output::line(&nodes_table(&nodes))?;
            answer.line_next(STAGE)?;
        }
    }
    Ok(Exit::Done)
}

pub(super) fn owner(args: &KeyArgs, format: Format) -> Result<Exit, Failure> {
    #[derive(serde::Serialize)]
    struct Owner<'a> {
        key: &'a str,
        key_hex: &'a str,
        node: &'a str,
        address: &'a str,
    }
    let Envelope {
        epoch, body: route, ..
    } = args.ask()?.parse::<Envelope<Route>>()?;
    let Route {
        key,
        key_hex,
        node,
        address,
        ..
    } = &route;
    match format {
        Format::Json => output::json(
            "Owner",
            epoch,
            &Owner {
                key,
                key_hex,
                node,
                address,
            },
        )?,
        Format::Table => output::line(node)?,
    }
    Ok(Exit::Done)
}

pub(super) fn route(args: &KeyArgs, format: Format) -> Result<Exit, Failure> {
    let answer = args.ask()?;
    let Envelope {
        epoch, body: route, ..
    } = answer.parse::<Envelope<Route>>()?;
    if format == Format::Json {
        output::line(&answer.text())?;
        return Ok(Exit::Done);
    }
    let lines = [
        ("key", route.key),
        ("position", route.position),
        (
            "point",
            format!(
                "{}   owns ({}, {}]",
                route.point, route.interval.after, route.interval.through
            ),
        ),
        ("node", format!("{} at {}", route.node, route.address)),
        ("replicas", route.replicas.join(", ")),
        ("epoch", epoch.unwrap_or_default().to_string()),
        ("why", route.why),
    ];
    for (name, value) in lines {
        output::line(&format!("{name:<9} {value}"))?;
    }
    Ok(Exit::Done)
}

pub(super) fn staged(target: &Target, format: Format) -> Result<Exit, Failure> {
    let answer = target.find()?.get("staged", &[])?;
    print_staged(&answer, format)
}

/// What is staged, after a look or an edit.
pub(super) fn print_staged(answer: &Answer, format: Format) -> Result<Exit, Failure> {
    if format == Format::Json {
        output::line(&answer.text())?;
        return Ok(Exit::Done);
    }
    let Envelope { body: list, .. } = answer.parse::<Envelope<StagedList>>()?;
    if list.staged.is_empty() {
        output::line("nothing is staged")?;
        answer.line_next(STAGE)?;
        return Ok(Exit::Done);
    }
    let rows = list
        .staged
        .into_iter()
        .map(|edit| vec![edit.id.to_string(), edit.text]);
    output::line(&output::table(&["#", "edit"], &[0], rows.collect()))?;
    if let Some(refused) = &list.refused {
        output::line(&format!("\nrefused as it stands: {refused}"))?;
    }
    answer.line_next(
        "See what it does with:  clockwise plan      Take it back with:  clockwise unstage #",
    )?;
    Ok(Exit::Done)
}
