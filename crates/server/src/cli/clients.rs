//! `clients`: who routes by the record, and who of them is behind or differs.

use std::time::{SystemTime, UNIX_EPOCH};

use super::exit::{Exit, Failure};
use super::output::{self, Format, count};
use super::server::Target;
use crate::admin::answer::Envelope;
use crate::admin::clients::{ClientList, ClientStatus};

#[derive(Debug, clap::Args)]
pub(super) struct ClientsArgs {
    #[command(flatten)]
    pub(super) target: Target,
    /// Answer 4 unless everybody routes by the record as it is.
    #[arg(long)]
    check: bool,
}

pub(super) fn clients(args: &ClientsArgs, format: Format) -> Result<Exit, Failure> {
    let answer = args.target.find()?.get("clients", &[])?;
    let Envelope {
        epoch, body: list, ..
    } = answer.parse::<Envelope<ClientList>>()?;
    match format {
        Format::Json => output::line(&answer.text())?,
        Format::Table => {
            let epoch = epoch.unwrap_or_default();
            output::line(&format!(
                "epoch {epoch}   fingerprint {}\n",
                list.fingerprint
            ))?;
            output::line(&clients_table(&list.clients))?;
            for problem in &list.problems {
                output::line(&format!("\nproblem  {problem}"))?;
            }
            answer.line_next("See how the pool is with:  clockwise status")?;
        }
    }
    Ok(if args.check && !list.problems.is_empty() {
        Exit::Unhealthy
    } else {
        Exit::Done
    })
}

fn clients_table(clients: &[ClientStatus]) -> String {
    let header = [
        "id",
        "kind",
        "place",
        "version",
        "epoch",
        "behind",
        "fingerprint",
        "since",
    ];
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let row = |client: &ClientStatus| {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let fingerprint = match (&client.fingerprint, client.differs) {
            (Some(fingerprint), true) => format!("{fingerprint} differs"),
            (fingerprint, _) => or_dash(fingerprint.clone()),
        };
        vec![
            client.id.clone(),
            client.kind.clone(),
            client.place.clone(),
            client.version.clone(),
            or_dash(client.epoch.map(|epoch| epoch.to_string())),
            or_dash(client.behind.map(count)),
            fingerprint,
            ago(now_ms.saturating_sub(client.since_ms)),
        ]
    };
    output::table(&header, &[4, 5], clients.iter().map(row).collect())
}

/// A time that has passed in the largest unit that keeps it above one.
fn ago(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let seconds = ms / 1_000;
    match UNITS.iter().find(|(unit, _)| seconds >= *unit) {
        Some((unit, name)) => format!("{} {name}", seconds / unit),
        None => "now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_has_passed_reads_well() {
        let read: Vec<_> = [0, 1_999, 59_999, 61_000, 7_200_000, 200_000_000]
            .into_iter()
            .map(ago)
            .collect();
        assert_eq!(read, ["now", "1 s", "59 s", "1 min", "2 h", "2 d"]);
    }
}
