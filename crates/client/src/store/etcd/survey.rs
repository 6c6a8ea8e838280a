//! What one member of etcd says of itself and of its cluster, for whoever looks after it.
//!
//! Nothing is written, and no store is opened. Each answer is waited for on its own: a member that keeps
//! back one thing still tells the others.

use clockwise_cluster::PoolName;
use tokio::time::Instant;

use super::super::OpenError;
use super::connection::Connection;
use super::failure::{Effect, Failure};
use super::keys::Keys;
use super::options::{EtcdOptions, EtcdTls};
use super::proto::{
    AlarmKind, AlarmResponse, Empty, MemberListResponse, RangeRequest, StatusResponse,
};

const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const ALARM: &str = "/etcdserverpb.Maintenance/Alarm";
const MEMBERS: &str = "/etcdserverpb.Cluster/MemberList";

/// One member, as it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSurvey {
    /// Its version, such as `3.4.23`.
    pub version: String,
    /// Bytes that its data takes on disk.
    pub disk_bytes: u64,
    /// How many revisions there have been.
    pub revision: u64,
    /// Whether any of them were ever removed; `None` where it would not say.
    pub compacted: Option<bool>,
    /// It is out of space and takes no writes; `None` where it would not say.
    pub no_space: Option<bool>,
    /// Members found that their data differ; `None` where it would not say.
    pub corrupt: Option<bool>,
    /// Names and addresses for clients of all members that vote; empty where it would not say.
    pub voters: Vec<EtcdMember>,
    /// Whether the record's key is shown to somebody who gives neither a user nor a certificate.
    pub open: bool,
}

/// A member of etcd's cluster, as the cluster lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdMember {
    /// Its name; empty until it has started once.
    pub name: String,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
}

/// Asks one member, the first endpoint of the options, about itself and whether the pool's record can be
/// read there. Takes at most twice `call_timeout`.
///
/// Must be called within a tokio runtime with a timer.
///
/// # Errors
/// The outer one if an option cannot be used; the inner one, in words, if the member does not answer or
/// lets this user read nothing.
pub async fn survey_etcd(
    options: &EtcdOptions,
    pool: &PoolName,
) -> Result<Result<EtcdSurvey, String>, OpenError> {
    let alone = EtcdOptions {
        endpoints: options.endpoints.iter().take(1).cloned().collect(),
        ..options.clone()
    };
    let stranger = EtcdOptions {
        user: None,
        tls: alone.tls.clone().map(|tls| EtcdTls {
            identity: None,
            ..tls
        }),
        ..alone.clone()
    };
    let (known, stranger) = (Connection::new(&alone)?, Connection::new(&stranger)?);
    let deadline = || Instant::now() + options.call_timeout;
    // Never the value: whether it is answered is all that counts.
    let probe = RangeRequest {
        keys_only: true,
        ..RangeRequest::one(Keys::new(&options.prefix, pool).record())
    };
    let first = RangeRequest {
        revision: 1,
        ..probe.clone()
    };
    let (status, reads, members, alarms, open) = tokio::join!(
        known.call::<_, StatusResponse>(STATUS, Empty {}, deadline()),
        known.range(probe.clone(), deadline()),
        known.call::<_, MemberListResponse>(MEMBERS, Empty {}, deadline()),
        known.call::<_, AlarmResponse>(ALARM, Empty {}, deadline()),
        stranger.range(probe, deadline()),
    );
    let status = match status {
        Ok(status) => status.message,
        Err(failure) => return Ok(Err(failure.why)),
    };
    // A member without a leader answers what it knows of itself, and no reads.
    let revision = match reads {
        Ok(reads) => reads.revision(),
        Err(failure) => return Ok(Err(failure.why)),
    };
    let compacted = is_compacted(known.range(first, deadline()).await.map(drop));
    let alarms = alarms.ok().map(|answer| answer.message);
    let raised = |kind| alarms.as_ref().map(|alarms| alarms.raised(kind));
    Ok(Ok(EtcdSurvey {
        version: status.version,
        disk_bytes: u64::try_from(status.disk_bytes).unwrap_or(0),
        revision: u64::try_from(revision).unwrap_or(0),
        compacted,
        no_space: raised(AlarmKind::NoSpace),
        corrupt: raised(AlarmKind::Corrupt),
        voters: members.map_or_else(|_| Vec::new(), |members| members.message.voters()),
        open: open.is_ok(),
    }))
}

/// Whether the first revision is gone. No etcd says whether it compacts by itself; its oldest revision does.
fn is_compacted(first: Result<(), Failure>) -> Option<bool> {
    match first {
        Ok(()) => Some(false),
        Err(Failure {
            effect: Effect::Refused,
            why,
        }) if why.contains("compacted") => Some(true),
        Err(_) => None,
    }
}

impl MemberListResponse {
    fn voters(self) -> Vec<EtcdMember> {
        let voters = self.members.into_iter().filter(|member| !member.learner);
        voters
            .map(|member| EtcdMember {
                name: member.name,
                client_urls: member.client_urls,
            })
            .collect()
    }
}

impl AlarmResponse {
    fn raised(&self, kind: AlarmKind) -> bool {
        self.alarms
            .iter()
            .any(|alarm| alarm.alarm == i32::from(kind))
    }
}
