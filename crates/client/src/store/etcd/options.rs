//! How the store reaches etcd, and how long it waits.

use std::fmt;
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Uri};

use super::super::OpenError;
use crate::credentials::Password;

/// More members than any etcd cluster should have.
const ENDPOINTS_MAX: usize = 16;
const PREFIX_BYTES_MAX: usize = 256;
/// Of the holder, and of its contact.
const HOLDER_BYTES_MAX: usize = 256;
/// etcd answers pings that come more often than every 5 s by closing the connection.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// The shortest lease etcd grants with its default election timeout.
const LEASE_TTL_MIN: Duration = Duration::from_secs(2);
const LEASE_TTL_MAX: Duration = Duration::from_secs(3_600);

/// How an [`EtcdStore`](super::EtcdStore) is opened.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT` of each member, best all of them.
    pub endpoints: Vec<String>,
    /// What all keys begin with. Pools and other programs share an etcd under different ones.
    pub prefix: String,
    /// For `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// Where etcd asks for a password.
    pub user: Option<EtcdUser>,
    /// Who leads, as others are told when they want to.
    pub holder: String,
    /// Where whoever leads can be asked what it does: `HOST:PORT` of an admin API.
    pub contact: Option<String>,
    /// How long a leader that is gone is waited for, in whole seconds.
    pub lease_ttl: Duration,
    /// How long somebody who is registered and gone stays listed, in whole seconds. Each of them
    /// renews three times in it, which costs etcd a renewal and a read.
    pub registration_ttl: Duration,
    /// After this long without an answer the next endpoint is tried; a login may take four times as long.
    pub attempt_timeout: Duration,
    /// After this long a call fails.
    pub call_timeout: Duration,
    /// How often the record's revision in etcd is compared with the one known here.
    pub check_interval: Duration,
    /// How often the whole record is read again, whatever its revision.
    pub reread_interval: Duration,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        EtcdOptions {
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            prefix: "/clockwise".to_owned(),
            tls: None,
            user: None,
            holder: format!("process {}", std::process::id()),
            contact: None,
            lease_ttl: Duration::from_secs(5),
            registration_ttl: Duration::from_secs(10),
            attempt_timeout: Duration::from_millis(500),
            call_timeout: Duration::from_secs(5),
            check_interval: Duration::from_secs(1),
            reread_interval: Duration::from_secs(30),
        }
    }
}

/// Whom to trust, and what to show.
#[derive(Debug, Clone)]
pub struct EtcdTls {
    /// The certificates, in PEM, that an endpoint's own must be signed by. No others are trusted.
    pub authorities_pem: Vec<u8>,
    /// For an etcd that asks its clients for a certificate.
    pub identity: Option<EtcdIdentity>,
}

/// A client's certificate and its key.
#[derive(Clone)]
pub struct EtcdIdentity {
    /// The certificate in PEM, then those it was signed by.
    pub certificate_pem: Vec<u8>,
    /// The private key in PEM.
    pub key_pem: Vec<u8>,
}

/// A user of etcd.
#[derive(Debug, Clone)]
pub struct EtcdUser {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: Password,
}

impl fmt::Debug for EtcdIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EtcdIdentity(secret)")
    }
}

impl EtcdOptions {
    /// What is wrong with them, before anything is tried.
    ///
    /// # Errors
    /// The first option that cannot be used.
    pub fn check(&self) -> Result<(), OpenError> {
        if self.endpoints.is_empty() || self.endpoints.len() > ENDPOINTS_MAX {
            return Err(refused(
                "endpoints",
                format!(
                    "{} given; 1 to {ENDPOINTS_MAX} are needed",
                    self.endpoints.len()
                ),
            ));
        }
        if !self.prefix.starts_with('/')
            || self.prefix.len() > PREFIX_BYTES_MAX
            || !self.prefix.bytes().all(|byte| byte.is_ascii_graphic())
        {
            let why = format!(
                "`{}` must begin with `/` and have at most {PREFIX_BYTES_MAX} visible characters",
                self.prefix.escape_debug()
            );
            return Err(refused("prefix", why));
        }
        if self.holder.len() > HOLDER_BYTES_MAX {
            let why = format!("more than {HOLDER_BYTES_MAX} bytes");
            return Err(refused("holder", why));
        }
        if let Some(contact) = &self.contact
            && (contact.is_empty()
                || contact.len() > HOLDER_BYTES_MAX
                || !contact.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            let why = format!("`{}` is no HOST:PORT", contact.escape_debug());
            return Err(refused("contact", why));
        }
        for (what, ttl) in [
            ("lease_ttl", self.lease_ttl),
            ("registration_ttl", self.registration_ttl),
        ] {
            if !(LEASE_TTL_MIN..=LEASE_TTL_MAX).contains(&ttl) {
                let why = format!("{ttl:?} is not between {LEASE_TTL_MIN:?} and {LEASE_TTL_MAX:?}");
                return Err(refused(what, why));
            }
        }
        for (what, duration) in [
            ("attempt_timeout", self.attempt_timeout),
            ("call_timeout", self.call_timeout),
            ("check_interval", self.check_interval),
            ("reread_interval", self.reread_interval),
        ] {
            if duration.is_zero() {
                return Err(refused(what, "must be above zero".to_owned()));
            }
        }
        for endpoint in &self.endpoints {
            self.endpoint(endpoint)?;
        }
        Ok(())
    }

    pub(super) fn lease_ttl_s(&self) -> i64 {
        whole_seconds(self.lease_ttl)
    }

    pub(super) fn registration_ttl_s(&self) -> i64 {
        whole_seconds(self.registration_ttl)
    }

    /// One endpoint as it is connected to.
    pub(super) fn endpoint(&self, url: &str) -> Result<Endpoint, OpenError> {
        let refused =
            |why: String| refused("endpoints", format!("`{}`: {why}", url.escape_debug()));
        let uri: Uri = url
            .parse()
            .map_err(|_| refused("is no URL; write http://HOST:PORT".to_owned()))?;
        let plain_path = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let Some(authority) = uri.authority() else {
            return Err(refused("is no URL; write http://HOST:PORT".to_owned()));
        };
        if authority.as_str().contains('@') {
            // Not repeated: what stands before it may be a password.
            let why =
                "an endpoint must not hold a user or password; give them as `user`".to_owned();
            return Err(super::options::refused("endpoints", why));
        }
        if authority.port_u16().is_none() || !plain_path {
            return Err(refused("write http://HOST:PORT and no path".to_owned()));
        }
        let endpoint = Endpoint::from(uri.clone())
            .connect_timeout(self.attempt_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        match (uri.scheme_str(), &self.tls) {
            (Some("http"), None) => Ok(endpoint),
            (Some("https"), Some(tls)) => endpoint
                .tls_config(tls.config()?)
                .map_err(|error| tls_refused(&error)),
            (Some("https"), None) => Err(refused(
                "https needs `tls` with the certificates to trust".to_owned(),
            )),
            (Some("http"), Some(_)) => Err(refused(
                "`tls` is set, and this endpoint would be spoken to in the clear; write https"
                    .to_owned(),
            )),
            _ => Err(refused("write http:// or https://".to_owned())),
        }
    }
}

fn whole_seconds(ttl: Duration) -> i64 {
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(whole).expect("checked: at most an hour")
}

impl EtcdTls {
    fn config(&self) -> Result<ClientTlsConfig, OpenError> {
        let marks_certificate = b"-----BEGIN CERTIFICATE-----";
        let has_certificate = |pem: &[u8]| {
            pem.windows(marks_certificate.len())
                .any(|window| window == marks_certificate)
        };
        if !has_certificate(&self.authorities_pem) {
            let why = "no certificate in PEM among the authorities".to_owned();
            return Err(refused("tls", why));
        }
        let config =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.authorities_pem));
        Ok(match &self.identity {
            None => config,
            Some(EtcdIdentity {
                certificate_pem,
                key_pem,
            }) => config.identity(Identity::from_pem(certificate_pem, key_pem)),
        })
    }
}

fn tls_refused(error: &tonic::transport::Error) -> OpenError {
    refused("tls", super::failure::in_full(error))
}

fn refused(what: &'static str, why: String) -> OpenError {
    OpenError::Options { what, why }
}
