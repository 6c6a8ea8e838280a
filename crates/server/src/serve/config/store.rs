//! Section `[store]`: where the record is.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::super::fault::Finder;
use super::super::secrets::Source;
use super::{EtcdConfig, StoreConfig};

/// The shortest that etcd grants, and the longest that anybody should wait for a leader that is gone.
const LEASE_SECONDS: RangeInclusive<u64> = 2..=60;
const LEASE_SECONDS_USUAL: u64 = 5;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreText {
    kind: Option<Spanned<String>>,
    dir: Option<Spanned<PathBuf>>,
    endpoints: Option<Spanned<Vec<String>>>,
    prefix: Option<Spanned<String>>,
    user: Option<Spanned<String>>,
    password_file: Option<Spanned<PathBuf>>,
    ca_file: Option<Spanned<PathBuf>>,
    cert_file: Option<Spanned<PathBuf>>,
    key_file: Option<Spanned<PathBuf>>,
    lease_seconds: Option<Spanned<u64>>,
}

impl StoreText {
    pub(super) fn make(self, folder: &Path, finder: &mut Finder<'_>) -> Option<StoreConfig> {
        let Some(kind) = &self.kind else {
            finder.missing("store.kind", "say which: \"etcd\" or \"file\"");
            return None;
        };
        match kind.get_ref().as_str() {
            "file" => {
                self.refuse_of_etcd(finder);
                match &self.dir {
                    Some(dir) => Some(StoreConfig::File {
                        dir: folder.join(dir.get_ref()),
                    }),
                    None => {
                        finder.missing("store.dir", "say in which folder the record is");
                        None
                    }
                }
            }
            "etcd" => {
                if let Some(dir) = &self.dir {
                    finder.at(dir.span(), "is of a store in a file; this one is in etcd");
                }
                self.etcd(folder, finder).map(StoreConfig::Etcd)
            }
            other => {
                let why = format!("{other:?} is no store; \"etcd\" or \"file\"");
                finder.at(kind.span(), why);
                None
            }
        }
    }

    fn refuse_of_etcd(&self, finder: &mut Finder<'_>) {
        let paths = [
            &self.password_file,
            &self.ca_file,
            &self.cert_file,
            &self.key_file,
        ];
        let spans = [
            self.endpoints.as_ref().map(Spanned::span),
            self.prefix.as_ref().map(Spanned::span),
            self.user.as_ref().map(Spanned::span),
            self.lease_seconds.as_ref().map(Spanned::span),
        ];
        let paths = paths
            .into_iter()
            .map(|path| path.as_ref().map(Spanned::span));
        for span in paths.chain(spans).flatten() {
            finder.at(span, "is of a store in etcd; this one is in a file");
        }
    }

    fn etcd(self, folder: &Path, finder: &mut Finder<'_>) -> Option<EtcdConfig> {
        let Some(endpoints) = self.endpoints else {
            finder.missing(
                "store.endpoints",
                "say where etcd is: [\"http://HOST:2379\", …]",
            );
            return None;
        };
        let path = |text: Option<Spanned<PathBuf>>| text.map(|text| folder.join(text.into_inner()));
        let user = match (self.user, self.password_file) {
            (Some(user), file) => {
                let file = file.map(Spanned::into_inner);
                Some((
                    user.into_inner(),
                    Source::of(folder, file, "CLOCKWISE_ETCD_PASSWORD"),
                ))
            }
            (None, Some(file)) => {
                finder.at(file.span(), "is a password without store.user");
                None
            }
            (None, None) => None,
        };
        let identity = match (self.cert_file, self.key_file) {
            (Some(cert), Some(key)) => Some((
                folder.join(cert.into_inner()),
                folder.join(key.into_inner()),
            )),
            (None, None) => None,
            (Some(alone), None) => {
                finder.at(alone.span(), "is a certificate without store.key_file");
                None
            }
            (None, Some(alone)) => {
                finder.at(alone.span(), "is a key without store.cert_file");
                None
            }
        };
        let ca_file = path(self.ca_file);
        let secure = |endpoint: &String| endpoint.starts_with("https://");
        if ca_file.is_none() && endpoints.get_ref().iter().any(secure) {
            let why = "https needs store.ca_file, the certificates to trust";
            finder.at(endpoints.span(), why);
        }
        let lease = match &self.lease_seconds {
            Some(text) if !LEASE_SECONDS.contains(text.get_ref()) => {
                let (least, most) = (LEASE_SECONDS.start(), LEASE_SECONDS.end());
                let why = format!("{} is not between {least} and {most}", text.get_ref());
                finder.at(text.span(), why);
                LEASE_SECONDS_USUAL
            }
            Some(text) => *text.get_ref(),
            None => LEASE_SECONDS_USUAL,
        };
        Some(EtcdConfig {
            endpoints: endpoints.into_inner(),
            prefix: self
                .prefix
                .map_or_else(|| "/clockwise".to_owned(), Spanned::into_inner),
            user,
            ca_file,
            identity,
            lease: Duration::from_secs(lease),
        })
    }
}
