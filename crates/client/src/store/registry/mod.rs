//! Who routes by a pool's record or moves its keys, and by which epoch they do.
//!
//! Everybody who acts on the record says so beside it, under an id of their own: routers, embedded
//! clients, rebalancers. A registration shows that somebody lives and what they act on; it decides
//! nothing about keys: losing it moves none, and a fence never waits for it. Only where nodes cannot be fenced,
//! in pools of memcached, a change waits with its last cleaning until everybody who is registered routes by
//! its epoch.
//!
//! An entry goes with its owner, however that ends: in etcd with a lease, in a folder with the lock
//! that its owner's process holds on the entry's file, in memory with the value that
//! [`register`](Registry::register) returned.
//! What is shown follows the owner within a second or so.

#[cfg(test)]
mod suite;

use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use clockwise_cluster::{Epoch, FORMAT, View};
use clockwise_placement::Fingerprint;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ReadError;

/// Entries listed at a time. More are counted and left out.
pub const REGISTERED_MAX: usize = 10_000;

/// The stored form of entries.
const ENTRY_FORMAT: u32 = 1;
/// One entry as it is stored. What a process says of itself is cut to fit.
pub(super) const ENTRY_BYTES_MAX: usize = 1_024;
const VERSION_BYTES_MAX: usize = 64;
const PLACE_BYTES_MAX: usize = 256;
/// Entries named that cannot be read.
const UNREADABLE_NAMED_MAX: usize = 8;
/// After the store did not take an entry, before it is tried again.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Where those who act on a pool's record say so. A store is one for its pool.
///
/// ```
/// use clockwise_client::store::{MemoryStore, Registrant, RegistrantKind, Registry};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let registration = store.register(Registrant::here(RegistrantKind::Client));
/// # while store.registered().await?.entries.is_empty() { tokio::task::yield_now().await; }
/// let all = store.registered().await?;
/// assert_eq!(all.entries[0].id, registration.id());
/// registration.end().await;
/// assert!(store.registered().await?.entries.is_empty());
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Registry: Send + Sync + fmt::Debug {
    /// Registers somebody, and keeps them registered until the registration ends. Returns at once;
    /// a store that is away is tried again each second, and an entry that is lost is written anew.
    ///
    /// Must be called within a tokio runtime with a timer.
    fn register(&self, who: Registrant) -> Registration;

    /// Everybody who is registered now, sorted by id, at most [`REGISTERED_MAX`].
    async fn registered(&self) -> Result<Listing, ReadError>;
}

/// What somebody does with the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RegistrantKind {
    /// Routes requests of others.
    Router,
    /// Routes its own requests: an application with the library.
    Client,
    /// Moves keys.
    Rebalancer,
    /// Something of a later version.
    #[serde(other)]
    Other,
}

impl fmt::Display for RegistrantKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Router => "router",
            Self::Client => "client",
            Self::Rebalancer => "rebalancer",
            Self::Other => "other",
        })
    }
}

/// What somebody says of themselves once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// What they do.
    pub kind: RegistrantKind,
    /// The version of their program; 64 bytes of it are kept.
    pub version: String,
    /// Where to look for them, for people: `10.0.0.7:7379`, `HOST:PID`; 256 bytes of it are kept.
    pub place: String,
}

impl Registrant {
    /// This process with this version of the library.
    #[must_use]
    pub fn here(kind: RegistrantKind) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
        let host = host.as_deref().map(str::trim).unwrap_or("localhost");
        Self {
            kind,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            place: format!("{host}:{}", std::process::id()),
        }
    }
}

/// The view that somebody acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutesBy {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its fingerprint. Two that differ at one epoch place keys differently.
    #[serde(with = "fingerprint_text")]
    pub fingerprint: Fingerprint,
}

impl From<&View> for RoutesBy {
    fn from(view: &View) -> Self {
        Self {
            epoch: view.epoch(),
            fingerprint: view.fingerprint(),
        }
    }
}

/// Somebody who is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Theirs alone; another one after each start.
    pub id: String,
    /// What they do.
    pub kind: RegistrantKind,
    /// The version of their program.
    pub version: String,
    /// The format of records that they write and, with the one before, read.
    pub record_format: u32,
    /// Where to look for them.
    pub place: String,
    /// The view they act on; none before the first.
    pub routes_by: Option<RoutesBy>,
    /// When they registered, in milliseconds since 1970 by their own clock.
    pub since_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Stored<R> {
    format: u32,
    #[serde(flatten)]
    entry: R,
}

impl Registered {
    fn new(who: Registrant) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id: new_id(),
            kind: who.kind,
            version: printable(&who.version, VERSION_BYTES_MAX),
            record_format: FORMAT,
            place: printable(&who.place, PLACE_BYTES_MAX),
            routes_by: None,
            since_ms: now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let stored = Stored {
            format: ENTRY_FORMAT,
            entry: self,
        };
        let bytes = serde_json::to_vec(&stored).expect("numbers and text have a stored form");
        assert!(
            bytes.len() <= ENTRY_BYTES_MAX,
            "what is said was cut to fit"
        );
        bytes
    }

    /// What is stored may come from anybody who may write there.
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > ENTRY_BYTES_MAX {
            return Err(format!("more than {ENTRY_BYTES_MAX} bytes"));
        }
        let stored: Stored<Self> =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if stored.format != ENTRY_FORMAT {
            let format = stored.format;
            return Err(format!(
                "format {format}, this version knows {ENTRY_FORMAT}"
            ));
        }
        let Self {
            id, version, place, ..
        } = &stored.entry;
        let visible = |text: &&String| !text.chars().any(char::is_control);
        if ![id, version, place].iter().all(visible) {
            return Err("control characters".to_owned());
        }
        Ok(stored.entry)
    }
}

/// Eight random bytes; where the system gives none, what differs between processes.
fn new_id() -> String {
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = now.map_or(0, |now| now.subsec_nanos());
        return format!("{:08x}{nanos:08x}", std::process::id());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The beginning of a text, in characters that people can see and that JSON keeps as they are.
fn printable(text: &str, bytes_max: usize) -> String {
    let shown = |character: char| match character {
        '"' | '\\' => '\'',
        character if character.is_control() => '?',
        character => character,
    };
    let mut kept = String::new();
    for character in text.chars().map(shown) {
        if kept.len() + character.len_utf8() > bytes_max {
            break;
        }
        kept.push(character);
    }
    kept
}

/// Everybody who is registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by id.
    pub entries: Vec<Registered>,
    /// How many more there are than are listed.
    pub left_out: usize,
    /// What stands among them and is no entry that this version can read, named, the first eight.
    pub unreadable: Vec<String>,
}

impl Listing {
    /// Takes one more entry, stored at `place`.
    pub(super) fn take(&mut self, place: impl FnOnce() -> String, bytes: &[u8]) {
        match Registered::decode(bytes) {
            Ok(_) if self.entries.len() >= REGISTERED_MAX => self.left_out += 1,
            Ok(entry) => self.entries.push(entry),
            Err(why) if self.unreadable.len() < UNREADABLE_NAMED_MAX => {
                self.unreadable.push(format!("{}: {why}", place()));
            }
            Err(_) => {}
        }
    }

    pub(super) fn sorted(mut self) -> Self {
        self.entries.sort_by(|one, two| one.id.cmp(&two.id));
        self
    }
}

/// Somebody's entry, for as long as this lives. Dropped, the entry is removed in the background.
#[derive(Debug)]
pub struct Registration {
    id: String,
    shown: watch::Sender<Option<RoutesBy>>,
    trouble: watch::Receiver<Option<ReadError>>,
    keeper: JoinHandle<()>,
}

impl Registration {
    /// `keep` writes the entry and what follows, and returns when the registration has ended.
    pub(super) fn start<F>(who: Registrant, keep: impl FnOnce(Keeping) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (shown, news) = watch::channel(None);
        let (told, trouble) = watch::channel(None);
        let entry = Registered::new(who);
        let id = entry.id.clone();
        let keeping = Keeping { entry, news, told };
        Self {
            id,
            shown,
            trouble,
            keeper: tokio::spawn(keep(keeping)),
        }
    }

    /// The id that the entry stands under.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Shows another view from now on.
    pub fn show(&self, routes_by: RoutesBy) {
        self.shown.send_if_modified(|shown| {
            let changed = *shown != Some(routes_by);
            *shown = Some(routes_by);
            changed
        });
    }

    /// Why the entry may not stand as it should, or `None` if it does as far as is known.
    #[must_use]
    pub fn trouble(&self) -> watch::Receiver<Option<ReadError>> {
        self.trouble.clone()
    }

    /// Removes the entry, and returns when it is gone or the store did not answer.
    pub async fn end(self) {
        let Self { shown, keeper, .. } = self;
        drop(shown);
        // Its panic was reported when it happened.
        let _ended = keeper.await;
    }
}

/// A registration as its store keeps it.
#[derive(Debug)]
pub(super) struct Keeping {
    entry: Registered,
    news: watch::Receiver<Option<RoutesBy>>,
    told: watch::Sender<Option<ReadError>>,
}

impl Keeping {
    pub(super) fn id(&self) -> &str {
        &self.entry.id
    }

    /// The entry as it should stand now.
    pub(super) fn bytes(&mut self) -> Vec<u8> {
        self.entry.routes_by = *self.news.borrow_and_update();
        self.entry.encode()
    }

    /// Returns when the entry should say something else: `true`. Or be removed: `false`. May be
    /// given up and asked again.
    pub(super) async fn changed(&mut self) -> bool {
        self.news.changed().await.is_ok()
    }

    /// Notes how the last look or write went.
    pub(super) fn settle(&self, outcome: Result<(), ReadError>) {
        let trouble = outcome.err();
        self.told.send_if_modified(|shown| {
            let changed = *shown != trouble;
            if changed {
                if let Some(error) = &trouble {
                    tracing::warn!(id = self.entry.id, %error, "not registered for now");
                }
                *shown = trouble;
            }
            changed
        });
    }
}

mod fingerprint_text {
    //! A fingerprint as its 16 digits.

    use clockwise_placement::Fingerprint;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(
        fingerprint: &Fingerprint,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(fingerprint)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Fingerprint, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: &str, place: &str) -> Registered {
        Registered::new(Registrant {
            kind: RegistrantKind::Router,
            version: version.to_owned(),
            place: place.to_owned(),
        })
    }

    #[test]
    fn whatever_somebody_says_of_themselves_fits_and_is_read_back() {
        for text in [
            "1.2.3",
            "",
            &"é".repeat(10_000),
            &"\"\\\u{1b}[2J\n".repeat(1_000),
            &"\u{fffd}".repeat(300),
        ] {
            let mut entry = entry(text, text);
            entry.routes_by = Some(RoutesBy {
                epoch: Epoch::new(clockwise_cluster::COUNTER_MAX),
                fingerprint: Fingerprint(u64::MAX),
            });
            assert_eq!(Registered::decode(&entry.encode()), Ok(entry));
        }
    }

    #[test]
    fn what_is_no_entry_is_named_and_a_few_of_it_only() {
        let good = entry("1", "here").encode();
        let text = String::from_utf8(good.clone()).unwrap();
        let mut listing = Listing::default();
        for (place, bytes) in [
            ("garbage", &b"{"[..]),
            (
                "later",
                text.replace("\"format\":1", "\"format\":2").as_bytes(),
            ),
            ("long", &[b' '; ENTRY_BYTES_MAX + 1]),
            ("escapes", text.replace("here", "\\u001b[2J").as_bytes()),
            ("good", &good),
            ("newer kind", text.replace("router", "oracle").as_bytes()),
        ] {
            listing.take(|| place.to_owned(), bytes);
        }
        let names: Vec<_> = listing
            .unreadable
            .iter()
            .filter_map(|named| Some(named.split_once(':')?.0))
            .collect();
        assert_eq!(names, ["garbage", "later", "long", "escapes"]);
        let kinds: Vec<_> = listing.entries.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [RegistrantKind::Router, RegistrantKind::Other]);
        (0..100).for_each(|_| listing.take(|| "again".to_owned(), b""));
        assert_eq!(listing.unreadable.len(), UNREADABLE_NAMED_MAX);
    }

    #[test]
    fn a_listing_is_bounded_and_counts_what_it_leaves_out() {
        let bytes = entry("1", "here").encode();
        let mut listing = Listing::default();
        (0..REGISTERED_MAX + 3).for_each(|_| listing.take(String::new, &bytes));
        assert_eq!(
            (listing.entries.len(), listing.left_out),
            (REGISTERED_MAX, 3)
        );
    }
}
