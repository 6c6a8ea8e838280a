//! What is wrong with the etcd that keeps the record, from what its members say.

use super::check::Check;
use super::finding::{Finding, is_loopback, word};

/// Releases of each line from which on no bypass of access control is known to us: read and lease checks of
/// nested requests (announced with 3.4.44, 3.5.30 and 3.6.11), and before those lists of members and alarms.
const SOUND_SINCE: [(u32, u32, u32); 3] = [(3, 4, 44), (3, 5, 30), (3, 6, 11)];
/// More revisions than a pool makes in its first weeks.
const REVISIONS_UNCOMPACTED: u64 = 1_000;
/// Losing one of fewer loses the majority.
const VOTERS_MIN: usize = 3;

/// What was seen of an etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EtcdSeen {
    /// Each endpoint that the configuration names.
    pub(super) endpoints: Vec<EndpointSeen>,
    /// How `etcdctl` is told who it is, in words of a shell; ends in a blank.
    pub(super) access: String,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointSeen {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub(super) url: String,
    /// What it says, or why it says nothing.
    pub(super) said: Result<MemberSaid, String>,
    /// Whether it carries out what a page of another site may send without asking; `None` if that could not be tried.
    pub(super) browsers: Option<bool>,
}

/// What a member says of itself and of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberSaid {
    pub(super) version: String,
    pub(super) revision: u64,
    pub(super) compacted: Option<bool>,
    pub(super) no_space: Option<bool>,
    pub(super) corrupt: Option<bool>,
    /// Names of the members that vote.
    pub(super) voters: Vec<String>,
    pub(super) open: bool,
}

pub(super) fn findings(seen: &EtcdSeen) -> Vec<Finding> {
    let mut found = Vec::new();
    for endpoint in &seen.endpoints {
        of_endpoint(endpoint, &seen.access, &mut found);
    }
    let said = seen.endpoints.iter().find_map(|endpoint| {
        let said = endpoint.said.as_ref().ok()?;
        Some((endpoint, said))
    });
    if let Some((endpoint, said)) = said {
        of_cluster(seen, &ctl(&seen.access, &endpoint.url), said, &mut found);
    }
    found
}

fn ctl(access: &str, url: &str) -> String {
    format!("ETCDCTL_API=3 etcdctl {access}--endpoints={}", word(url))
}

fn of_endpoint(endpoint: &EndpointSeen, access: &str, found: &mut Vec<Finding>) {
    let EndpointSeen { url, said, .. } = endpoint;
    let ctl = ctl(access, url);
    let mut find = |check, what: String, next: String| {
        found.push(Finding::new(check, url, what, next));
    };
    if let Some(host) = url.strip_prefix("http://")
        && !is_loopback(super::finding::host_and_port(host).0)
    {
        find(
            Check::EtcdClearText,
            "it is spoken to over http".to_owned(),
            "start etcd with --cert-file, --key-file, --client-cert-auth and --trusted-ca-file, and name it by \
             https with store.ca_file, store.cert_file and store.key_file"
                .to_owned(),
        );
    }
    if endpoint.browsers == Some(true) {
        find(
            Check::EtcdBrowsers,
            "it answered a read that a page of another site may send, under a foreign host name".to_owned(),
            "start etcd with --enable-grpc-gateway=false, which neither clockwise nor etcdctl needs".to_owned(),
        );
    }
    match said {
        Err(why) => find(
            Check::EtcdAway,
            why.clone(),
            format!("{ctl} endpoint status --write-out=table"),
        ),
        Ok(said) => {
            if let Some(sound) = older_than(&said.version) {
                find(
                    Check::EtcdOld,
                    format!("version {}", said.version),
                    format!("install etcd {sound} or later, one member after the other"),
                );
            }
            if said.open {
                find(
                    Check::EtcdOpen,
                    "it shows the record's key to whoever asks".to_owned(),
                    format!(
                        "start etcd with --client-cert-auth; or make a user for clockwise first ({ctl} user add NAME), \
                         name it in store.user and store.password_file of every process and restart them, and last: \
                         {ctl} user add root && {ctl} auth enable"
                    ),
                );
            }
        }
    }
}

fn of_cluster(seen: &EtcdSeen, ctl: &str, said: &MemberSaid, found: &mut Vec<Finding>) {
    let mut find = |check, what: String, next: String| {
        found.push(Finding::new(check, "etcd", what, next));
    };
    let some_says = |says: fn(&MemberSaid) -> Option<bool>| {
        let said = seen
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.said.as_ref().ok());
        said.filter_map(says).any(|said| said)
    };
    if some_says(|said| said.no_space) {
        find(
            Check::EtcdNoSpace,
            "the alarm NOSPACE is raised".to_owned(),
            format!(
                "{ctl} compact {} && {ctl} defrag --cluster && {ctl} alarm disarm",
                said.revision
            ),
        );
    }
    if some_says(|said| said.corrupt) {
        find(
            Check::EtcdCorrupt,
            "the alarm CORRUPT is raised".to_owned(),
            format!("{ctl} endpoint hashkv --cluster, then replace the member that differs"),
        );
    }
    if said.no_space.is_none() || said.corrupt.is_none() {
        find(
            Check::NotLookedAt,
            "it does not tell this user of its alarms".to_owned(),
            format!("{ctl} alarm list, as root"),
        );
    }
    if said.compacted == Some(false) && said.revision > REVISIONS_UNCOMPACTED {
        find(
            Check::EtcdUncompacted,
            format!("{} revisions, none of them removed", said.revision),
            format!(
                "{ctl} compact {}, and start etcd with --auto-compaction-retention=1",
                said.revision
            ),
        );
    }
    let voters = said.voters.len();
    if (1..VOTERS_MIN).contains(&voters) {
        find(
            Check::EtcdFewMembers,
            format!("members that vote: {}", said.voters.join(", ")),
            format!("{ctl} member add NAME --peer-urls=http://HOST:2380, until there are three"),
        );
    } else if voters.is_multiple_of(2) && voters > 0 {
        find(
            Check::EtcdEvenMembers,
            format!("members that vote: {}", said.voters.join(", ")),
            format!("{ctl} member add NAME --peer-urls=http://HOST:2380, or take one away"),
        );
    }
    if seen.endpoints.len() < voters {
        find(
            Check::EtcdUnnamed,
            format!("{} of {voters} members are named", seen.endpoints.len()),
            "name all of them in store.endpoints".to_owned(),
        );
    }
}

/// The release that this version is older than; `None` of one that is not, or is no version.
fn older_than(version: &str) -> Option<String> {
    let mut parts = version.split(['.', '-', '+']);
    let mut number = || parts.next()?.parse::<u32>().ok();
    let (major, minor, patch) = (number()?, number()?, number()?);
    let line = SOUND_SINCE
        .iter()
        .find(|(of_major, of_minor, _)| (*of_major, *of_minor) >= (major, minor));
    let sound = line.filter(|sound| (major, minor, patch) < **sound)?;
    Some(format!("{}.{}.{}", sound.0, sound.1, sound.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> MemberSaid {
        MemberSaid {
            version: "3.6.11".to_owned(),
            revision: 50_000,
            compacted: Some(true),
            no_space: Some(false),
            corrupt: Some(false),
            voters: ["a", "b", "c"].map(str::to_owned).into(),
            open: false,
        }
    }

    fn cluster(said: &MemberSaid) -> EtcdSeen {
        let endpoint = |host: &str| EndpointSeen {
            url: format!("https://{host}:2379"),
            said: Ok(said.clone()),
            browsers: None,
        };
        EtcdSeen {
            endpoints: ["a", "b", "c"].map(endpoint).into(),
            access: String::new(),
        }
    }

    #[track_caller]
    fn check(seen: &EtcdSeen, expected: &[Check]) {
        let mut found: Vec<_> = findings(seen).iter().map(|finding| finding.check).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, expected, "{seen:#?}");
    }

    #[test]
    fn what_each_member_says_is_judged() {
        let with = |change: fn(&mut MemberSaid)| {
            let mut said = sound();
            change(&mut said);
            cluster(&said)
        };
        check(&cluster(&sound()), &[]);
        check(&with(|said| said.open = true), &[Check::EtcdOpen]);
        check(
            &with(|said| said.no_space = Some(true)),
            &[Check::EtcdNoSpace],
        );
        check(
            &with(|said| said.corrupt = Some(true)),
            &[Check::EtcdCorrupt],
        );
        check(
            &with(|said| said.compacted = Some(false)),
            &[Check::EtcdUncompacted],
        );
        check(&with(|said| said.compacted = None), &[]);
        check(
            &with(|said| said.version = "3.4.23".to_owned()),
            &[Check::EtcdOld],
        );
        check(
            &with(|said| said.voters = vec!["a".to_owned()]),
            &[Check::EtcdFewMembers],
        );
        let four = |said: &mut MemberSaid| said.voters.push("d".to_owned());
        check(&with(four), &[Check::EtcdEvenMembers, Check::EtcdUnnamed]);
    }

    #[test]
    fn one_member_that_knows_of_an_alarm_is_enough() {
        let mut seen = cluster(&sound());
        seen.endpoints[0].said = Err("no answer".to_owned());
        let Ok(second) = &mut seen.endpoints[1].said else {
            unreachable!("all answer")
        };
        second.no_space = Some(true);
        check(&seen, &[Check::EtcdAway, Check::EtcdNoSpace]);
    }

    #[test]
    fn in_the_clear_is_a_matter_of_where() {
        let mut seen = cluster(&sound());
        seen.endpoints[0].url = "http://127.0.0.1:2379".to_owned();
        seen.endpoints[1].url = "http://[::1]:2379".to_owned();
        check(&seen, &[]);
        seen.endpoints[1].url = "http://10.0.0.2:2379".to_owned();
        seen.endpoints[2].browsers = Some(true);
        check(&seen, &[Check::EtcdBrowsers, Check::EtcdClearText]);
    }

    #[test]
    fn versions_are_compared_within_their_line() {
        for old in [
            "2.3.8",
            "3.3.27",
            "3.4.23",
            "3.4.43",
            "3.5.29",
            "3.6.10",
            "3.5.0-rc.1",
        ] {
            assert!(older_than(old).is_some(), "{old}");
        }
        for sound in [
            "3.4.44", "3.5.30", "3.6.11", "3.7.0", "4.0.0", "unknown", "",
        ] {
            assert_eq!(older_than(sound), None, "{sound}");
        }
    }
}
