//! Who is registered beside the record, who of them is behind, and who places keys differently.

use std::collections::{BTreeMap, BTreeSet};

use clockwise_client::store::{Listing, Registered, RoutesBy};
use clockwise_cluster::Epoch;
use clockwise_placement::Fingerprint;
use serde::{Deserialize, Serialize};

use super::answer::Answer;

/// Problems put into words. All that is wrong is in the entries themselves.
const PROBLEMS_MAX: usize = 20;

/// Who routes by the record or moves its keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientList {
    /// The fingerprint of the record's own view.
    pub fingerprint: String,
    /// Everybody, those who are most behind first.
    pub clients: Vec<ClientStatus>,
    /// How many more there are.
    pub left_out: usize,
    /// What is wrong, in words, the first twenty; empty when everybody routes by the record as it is.
    pub problems: Vec<String>,
}

/// Somebody who is registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Theirs alone; another one after each start.
    pub id: String,
    /// `router`, `client`, `rebalancer`; `other` of a later version.
    pub kind: String,
    /// The version of their program.
    pub version: String,
    /// The format of records that they write.
    pub record_format: u32,
    /// Where to look for them.
    pub place: String,
    /// The epoch that they route by; none before the first.
    pub epoch: Option<u64>,
    /// The fingerprint of their view.
    pub fingerprint: Option<String>,
    /// How many epochs they are behind the record; none without an epoch or ahead of it.
    pub behind: Option<u64>,
    /// Whether they place keys differently from the record or from others at the same epoch.
    pub differs: bool,
    /// When they registered, in milliseconds since 1970 by their own clock.
    pub since_ms: u64,
}

impl Answer for ClientList {
    const KIND: &'static str = "Clients";
}

/// The record's views right before and right after the listing was made. Nobody is behind for an
/// epoch that came meanwhile, and nobody ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bracket {
    pub(crate) before: RoutesBy,
    pub(crate) after: RoutesBy,
}

/// Compares everybody with the record and with each other.
pub(crate) fn compare(listing: Listing, bracket: Bracket) -> ClientList {
    let disputed = disputed(&listing.entries, bracket);
    let mut problems = Vec::new();
    let mut clients: Vec<ClientStatus> = listing
        .entries
        .into_iter()
        .map(|entry| status(entry, bracket, &disputed, &mut problems))
        .collect();
    clients.sort_by_key(|client| {
        let behind = client.behind.unwrap_or(u64::MAX);
        (!client.differs, std::cmp::Reverse(behind))
    });
    let unreadable = listing.unreadable.iter();
    problems.extend(unreadable.map(|named| format!("{named}; it is no registration")));
    if listing.left_out > 0 {
        problems.push(format!(
            "{} more are registered and not listed",
            listing.left_out
        ));
    }
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    if more > 0 {
        problems.truncate(PROBLEMS_MAX - 1);
        problems.push(format!("and {} more", more + 1));
    }
    ClientList {
        fingerprint: bracket.after.fingerprint.to_string(),
        clients,
        left_out: listing.left_out,
        problems,
    }
}

/// What the fingerprint should be at an epoch, where that is known.
fn rightful(epoch: Epoch, bracket: Bracket) -> Option<Fingerprint> {
    let known = [bracket.after, bracket.before];
    let known = known.into_iter().find(|known| known.epoch == epoch)?;
    Some(known.fingerprint)
}

/// Epochs that are not the record's and at which two of the registered place keys differently.
fn disputed(entries: &[Registered], bracket: Bracket) -> BTreeSet<Epoch> {
    let mut shown: BTreeMap<Epoch, Fingerprint> = BTreeMap::new();
    let mut disputed = BTreeSet::new();
    for by in entries.iter().filter_map(|entry| entry.routes_by) {
        let first = *shown.entry(by.epoch).or_insert(by.fingerprint);
        if first != by.fingerprint && rightful(by.epoch, bracket).is_none() {
            disputed.insert(by.epoch);
        }
    }
    disputed
}

fn status(
    entry: Registered,
    bracket: Bracket,
    disputed: &BTreeSet<Epoch>,
    problems: &mut Vec<String>,
) -> ClientStatus {
    let who = format!("{} {} at {}", entry.kind, entry.id, entry.place);
    let Bracket { before, after } = bracket;
    let (mut behind, mut differs) = (None, false);
    match entry.routes_by {
        None => problems.push(format!("{who} has no view yet")),
        Some(by) => {
            differs = match rightful(by.epoch, bracket) {
                Some(fingerprint) => fingerprint != by.fingerprint,
                None => disputed.contains(&by.epoch),
            };
            if differs {
                problems.push(format!(
                    "{who} places keys differently at epoch {}: its fingerprint is {}; end it, and see that its \
                     version is the one of the others",
                    by.epoch, by.fingerprint
                ));
            }
            if by.epoch > after.epoch {
                problems.push(format!(
                    "{who} routes by epoch {}, and the record is at {}: the record went back",
                    by.epoch, after.epoch
                ));
            } else {
                behind = Some(before.epoch.get().saturating_sub(by.epoch.get()));
            }
            if let Some(behind) = behind.filter(|behind| *behind > 0) {
                problems.push(format!(
                    "{who} routes by epoch {}, {behind} behind",
                    by.epoch
                ));
            }
        }
    }
    ClientStatus {
        id: entry.id,
        kind: entry.kind.to_string(),
        version: entry.version,
        record_format: entry.record_format,
        place: entry.place,
        epoch: entry.routes_by.map(|by| by.epoch.get()),
        fingerprint: entry.routes_by.map(|by| by.fingerprint.to_string()),
        behind,
        differs,
        since_ms: entry.since_ms,
    }
}

#[cfg(test)]
mod tests {
    use clockwise_client::store::RegistrantKind;

    use super::*;

    fn by(epoch: u64, fingerprint: u64) -> RoutesBy {
        RoutesBy {
            epoch: Epoch::new(epoch),
            fingerprint: Fingerprint(fingerprint),
        }
    }

    fn listing(shown: &[Option<RoutesBy>]) -> Listing {
        let entry = |(number, routes_by): (usize, &Option<RoutesBy>)| Registered {
            id: format!("id-{number}"),
            kind: RegistrantKind::Client,
            version: "1".to_owned(),
            record_format: 1,
            place: "app:17".to_owned(),
            routes_by: *routes_by,
            since_ms: 5,
        };
        Listing {
            entries: shown.iter().enumerate().map(entry).collect(),
            ..Listing::default()
        }
    }

    /// Of each entry in its old order: how far it is behind, and whether it differs.
    fn check(bracket: [RoutesBy; 2], shown: &[Option<RoutesBy>], problems: usize) -> String {
        let [before, after] = bracket;
        let mut list = compare(listing(shown), Bracket { before, after });
        assert_eq!(list.problems.len(), problems, "{:#?}", list.problems);
        list.clients.sort_by(|one, two| one.id.cmp(&two.id));
        let line = |client: &ClientStatus| {
            let behind = client.behind.map_or("-".to_owned(), |n| n.to_string());
            format!("{behind}{}", if client.differs { "!" } else { "" })
        };
        list.clients.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn who_is_behind_and_who_differs_is_said() {
        let now = [by(9, 90); 2];
        assert_eq!(check(now, &[Some(by(9, 90)), Some(by(9, 90))], 0), "0 0");
        assert_eq!(check(now, &[Some(by(7, 70)), None], 2), "2 -");
        assert_eq!(check(now, &[Some(by(9, 91)), Some(by(9, 90))], 1), "0! 0");
        let apart = [Some(by(7, 70)), Some(by(7, 71)), Some(by(8, 70))];
        assert_eq!(check(now, &apart, 5), "2! 2! 1");
        assert_eq!(check(now, &[Some(by(10, 1))], 1), "-");
    }

    #[test]
    fn an_epoch_that_comes_meanwhile_puts_nobody_in_the_wrong() {
        let meanwhile = [by(8, 80), by(9, 90)];
        assert_eq!(
            check(meanwhile, &[Some(by(8, 80)), Some(by(9, 90))], 0),
            "0 0"
        );
        assert_eq!(
            check(meanwhile, &[Some(by(8, 90)), Some(by(9, 80))], 2),
            "0! 0!"
        );
    }

    #[test]
    fn words_are_bounded_and_entries_are_not_dropped() {
        let many = vec![Some(by(1, 1)); 500];
        let (before, after) = (by(3, 3), by(3, 3));
        let list = compare(listing(&many), Bracket { before, after });
        assert_eq!(
            (list.clients.len(), list.problems.len()),
            (500, PROBLEMS_MAX)
        );
        assert_eq!(
            list.problems.last().map(String::as_str),
            Some("and 481 more")
        );
    }
}
