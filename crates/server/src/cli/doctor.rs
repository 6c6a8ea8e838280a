//! `doctor`: what is not as it should be, the gravest first, each with the command that mends it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::exit::{Exit, Failure};
use super::given::Given;
use super::output::{self, Format};
use super::server::{Server, Target};
use crate::admin::answer::{Envelope, Moves, Status};
use crate::admin::clients::ClientList;
use crate::doctor::{self, Check, FindingText, Patient, Report, Severity, Told};
use crate::serve::error::ServeError;

#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    target: Target,
    /// The configuration of a `clockwise serve`: also etcd, the files of its secrets and its nodes are looked at.
    #[arg(long, env = "CLOCKWISE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// After this many seconds what is left is not looked at.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    within: u64,
}

impl DoctorArgs {
    /// What names the server in the commands that are suggested.
    pub(super) fn given(&self) -> Given {
        match &self.config {
            None => Given::of(&self.target),
            Some(_) => Given::admin(self.target.admin.as_deref()),
        }
    }
}

/// What programs read.
#[derive(Serialize, Deserialize)]
struct Doctor {
    findings: Vec<FindingText>,
    errors: usize,
    warnings: usize,
    notes: usize,
    /// How much was looked at.
    nodes: usize,
    etcd_endpoints: usize,
    processes: usize,
}

pub(super) fn doctor(args: &DoctorArgs, format: Format) -> Result<Exit, Failure> {
    let (patient, admin, given) = find(args)?;
    let told = match admin {
        Admin::At(server) => Some(ask(&server)),
        Admin::Nobody(why) => Some(Err(why)),
        Admin::Unknown => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("a runtime: {error}")))?;
    let within = Duration::from_secs(args.within);
    let report = runtime.block_on(doctor::examine(&patient, told, within));
    let shown = Doctor::of(&report, &given);
    match format {
        Format::Json => output::json("Doctor", report.epoch, &shown)?,
        Format::Table => shown.print()?,
    }
    Ok(match shown.errors + shown.warnings {
        0 => Exit::Done,
        _ => Exit::Unhealthy,
    })
}

/// Who answers for the patient.
enum Admin {
    At(Box<Server>),
    /// Nobody, and that is known.
    Nobody(String),
    /// Whoever it is, we do not know where.
    Unknown,
}

fn find(args: &DoctorArgs) -> Result<(Patient, Admin, Given), Failure> {
    let at = |address: &str| Admin::At(Box::new(Server::new(address, None)));
    if let Some(file) = &args.config {
        let patient = Patient::of_config(file).map_err(ServeError::from)?;
        let address = args.target.admin.as_deref().or(patient.admin());
        let admin = address.map_or(Admin::Unknown, at);
        let given = Given::admin(address);
        return Ok((patient, admin, given));
    }
    let given = Given::of(&args.target);
    if let Some(address) = &args.target.admin {
        return Ok((Patient::of_admin(address), at(address), given));
    }
    if let Some(patient) = Patient::of_folder(&args.target.dir) {
        let admin = match patient.admin() {
            Some(address) => at(address),
            None => Admin::Nobody("no clockwise up runs on the folder".to_owned()),
        };
        return Ok((patient, admin, given));
    }
    // Says which folder has nothing in it.
    let server = args.target.find()?;
    let address = server.address().to_owned();
    Ok((
        Patient::of_admin(&address),
        Admin::At(Box::new(server)),
        given,
    ))
}

fn ask(server: &Server) -> Result<Told, String> {
    let said = || {
        let status = server.get("status", &[])?.parse::<Envelope<Status>>()?;
        let moves = server.get("moves", &[])?.parse::<Envelope<Moves>>()?;
        let clients = server
            .get("clients", &[])?
            .parse::<Envelope<ClientList>>()?;
        Ok::<_, Failure>(Told {
            epoch: status.epoch.unwrap_or_default(),
            status: status.body,
            moves: moves.body,
            clients: clients.body,
        })
    };
    said().map_err(|failure| failure.message)
}

impl Doctor {
    fn of(report: &Report, given: &Given) -> Self {
        let count = |severity| {
            let found = report.findings.iter();
            found
                .filter(|finding| finding.severity() == severity)
                .count()
        };
        let text = |finding| {
            let text = FindingText::from(finding);
            FindingText {
                next: given.told(&text.next),
                ..text
            }
        };
        Self {
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            notes: count(Severity::Note),
            findings: report.findings.iter().map(text).collect(),
            nodes: report.nodes,
            etcd_endpoints: report.etcd_endpoints,
            processes: report.processes,
        }
    }

    fn print(&self) -> Result<(), Failure> {
        let checks = Check::ALL.iter().map(|check| check.about().name.len());
        let width = checks.max().unwrap_or(0);
        let indent = " ".repeat(9);
        for found in &self.findings {
            let FindingText {
                severity,
                check,
                place,
                what,
                why,
                next,
            } = found;
            output::line(&format!("{severity:<9}{check:<width$}  {place}"))?;
            output::line(&format!("{indent}{what}"))?;
            output::line(&format!("{indent}{why}"))?;
            output::line(&format!("{indent}mend:  {next}\n"))?;
        }
        let found = match self.findings.is_empty() {
            true => "nothing found".to_owned(),
            false => [
                counted(self.errors, "error"),
                counted(self.warnings, "warning"),
                counted(self.notes, "note"),
            ]
            .join(", "),
        };
        let looked_at = [
            counted(self.nodes, "node"),
            counted(self.etcd_endpoints, "etcd endpoint"),
            counted(self.processes, "registered process"),
        ];
        output::line(&format!("{found}   looked at {}", looked_at.join(", ")))
    }
}

/// How many there are of something.
fn counted(count: usize, of: &str) -> String {
    let end = match count {
        1 => "",
        _ if of.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {of}{end}")
}
