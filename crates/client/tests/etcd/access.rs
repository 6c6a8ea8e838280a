//! Users, passwords, certificates: what is refused, and whether the error says what to do.

use std::fs;
use std::path::{Path, PathBuf};

use clockwise_client::credentials::Password;
use clockwise_client::store::{
    CommitError, EtcdIdentity, EtcdOptions, EtcdStore, EtcdTls, EtcdUser, LeadError, OpenError,
    ReadError, Store,
};
use clockwise_cluster::Revision;
use clockwise_testkit::{EtcdOptions as ServerOptions, EtcdServer, EtcdTlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::{
    at_epoch, commit_epoch, make, new_pool, open, open_with, options, wait_for_epoch,
    wait_for_trouble,
};

fn user(server: &EtcdServer, name: &str, password: &str) -> EtcdUser {
    let file = server.dir().join(format!("{name}.password"));
    fs::write(&file, password).unwrap();
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&file, owner_only).unwrap();
    EtcdUser {
        name: name.to_owned(),
        password: Password::from_file(&file).unwrap(),
    }
}

fn open_as(server: &EtcdServer, user: EtcdUser) -> EtcdStore {
    open_with(EtcdOptions {
        user: Some(user),
        ..options(vec![server.endpoint()])
    })
}

/// A server with root, a user who may use the pool, and one who may only read it.
fn locked_server() -> EtcdServer {
    let server = EtcdServer::start(ServerOptions::default());
    for args in [
        "user add root:secret",
        "role add root",
        "user grant-role root root",
        "role add pool",
        "role grant-permission pool --prefix=true readwrite /clockwise/main/",
        "user add writer:writing",
        "user grant-role writer pool",
        "role add reading",
        "role grant-permission reading --prefix=true read /clockwise/main/",
        "user add reader:reading",
        "user grant-role reader reading",
        "auth enable",
    ] {
        server.ctl(&args.split(' ').collect::<Vec<_>>());
    }
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_may_what_etcd_lets_them_and_errors_say_what_is_missing() {
    let server = locked_server();
    let writer = open_as(&server, user(&server, "writer", "writing"));
    let made = make(&writer).await;
    let leadership = writer.lead("rebalancer").await.unwrap();
    let next = at_epoch(&made, 2);
    let guard = Some(leadership.term());
    let current = writer.commit(made.revision(), next, guard).await.unwrap();

    let reader = open_as(&server, user(&server, "reader", "reading"));
    assert_eq!(reader.read().await.unwrap().as_ref(), Some(&current));
    assert_eq!(reader.history().await.unwrap().len(), 2);
    let refused = reader
        .commit(current.revision(), at_epoch(&current, 3), None)
        .await;
    let Err(CommitError::Refused { why }) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        why.contains(&server.endpoint()) && why.contains("etcdctl role grant-permission"),
        "{why}"
    );
    let current = commit_epoch(&writer, &current, 3).await;
    assert_eq!(wait_for_epoch(&reader, 3).await, current);

    for (store, said) in [
        (open(vec![server.endpoint()]), "user and password"),
        (
            open_as(&server, user(&server, "reader", "wrong")),
            "check the user's name and password",
        ),
    ] {
        let ReadError::Refused { why } = store.read().await.unwrap_err() else {
            panic!("read without a password");
        };
        assert!(
            why.contains(said) && why.contains(&server.endpoint()),
            "{why}"
        );
        assert!(!why.contains("wrong") || !why.contains("password: wrong"));
        wait_for_trouble(&store, |trouble| {
            matches!(trouble, Some(ReadError::Refused { .. }))
        })
        .await;
        let refused = store.lead("rebalancer").await;
        assert!(
            matches!(refused, Err(LeadError::Refused { .. })),
            "{refused:?}"
        );
    }
}

/// etcd forgets its tokens when it is restarted, or five minutes after their last use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_token_is_replaced_unnoticed() {
    let mut server = locked_server();
    let writer = open_as(&server, user(&server, "writer", "writing"));
    let reader = open_as(&server, user(&server, "reader", "reading"));
    let mut current = make(&writer).await;
    wait_for_epoch(&reader, 1).await;
    for epoch in 2..=4 {
        server.restart();
        current = commit_epoch(&writer, &current, epoch).await;
        assert_eq!(wait_for_epoch(&reader, epoch).await, current);
    }
}

/// An authority and what it has signed.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Authority { pem, issuer }
    }

    fn sign(&self) -> (String, String) {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn tls(&self) -> EtcdTls {
        EtcdTls {
            authorities_pem: self.pem.clone().into_bytes(),
            identity: None,
        }
    }

    fn tls_with_identity(&self) -> EtcdTls {
        let (certificate, key) = self.sign();
        EtcdTls {
            identity: Some(EtcdIdentity {
                certificate_pem: certificate.into_bytes(),
                key_pem: key.into_bytes(),
            }),
            ..self.tls()
        }
    }
}

fn write(dir: &Path, name: &str, pem: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, pem).unwrap();
    path
}

fn start_with_tls(authority: &Authority, dir: &Path, asks_clients: bool) -> EtcdServer {
    let (certificate, key) = authority.sign();
    let client_authority = asks_clients.then(|| write(dir, "authority.pem", &authority.pem));
    EtcdServer::start(ServerOptions {
        tls: Some(EtcdTlsFiles {
            certificate: write(dir, "server.pem", &certificate),
            key: write(dir, "server.key", &key),
            client_authority,
        }),
        ..ServerOptions::default()
    })
}

fn open_in_tls(server: &EtcdServer, tls: EtcdTls) -> EtcdStore {
    open_with(EtcdOptions {
        tls: Some(tls),
        call_timeout: std::time::Duration::from_secs(2),
        ..options(vec![server.endpoint()])
    })
}

async fn refusal(store: &EtcdStore) -> String {
    match store.read().await {
        Err(ReadError::Unreachable { why }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_servers_that_a_trusted_authority_signed_are_spoken_to() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let server = start_with_tls(&authority, dir.path(), false);
    let store = open_in_tls(&server, authority.tls());
    let made = make(&store).await;
    assert_eq!(store.read().await.unwrap(), Some(made));
    let why = refusal(&open_in_tls(&server, Authority::new().tls())).await;
    assert!(
        why.contains(&server.endpoint()) && why.contains("invalid peer certificate"),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_show_the_certificate_that_etcd_asks_for() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let server = start_with_tls(&authority, dir.path(), true);
    let store = open_in_tls(&server, authority.tls_with_identity());
    let made = make(&store).await;
    let watcher = open_in_tls(&server, authority.tls_with_identity());
    assert_eq!(wait_for_epoch(&watcher, 1).await, made);
    for tls in [
        authority.tls(),
        EtcdTls {
            identity: Authority::new().tls_with_identity().identity,
            ..authority.tls()
        },
    ] {
        let why = refusal(&open_in_tls(&server, tls)).await;
        assert!(why.contains(&server.endpoint()), "{why}");
    }
}

#[tokio::test]
async fn options_that_cannot_be_used_are_named() {
    let tls = || Some(Authority::new().tls());
    let no_pem = EtcdTls {
        authorities_pem: b"no certificate".to_vec(),
        identity: None,
    };
    let base = || options(vec!["http://127.0.0.1:2379".to_owned()]);
    let at = |url: &str| options(vec![url.to_owned()]);
    for (options, what, said) in [
        (options(Vec::new()), "endpoints", "0 given"),
        (at("127.0.0.1:2379"), "endpoints", "http://"),
        (at("http://127.0.0.1"), "endpoints", "http://HOST:PORT"),
        (at("http://127.0.0.1:2379/v3"), "endpoints", "no path"),
        (at("ftp://127.0.0.1:2379"), "endpoints", "http://"),
        (at("https://127.0.0.1:2379"), "endpoints", "needs `tls`"),
        (at("http://root:pw@127.0.0.1:2379"), "endpoints", "`user`"),
        (
            EtcdOptions {
                tls: tls(),
                ..base()
            },
            "endpoints",
            "https",
        ),
        (
            EtcdOptions {
                tls: Some(no_pem),
                ..at("https://127.0.0.1:2379")
            },
            "tls",
            "no certificate",
        ),
        (
            EtcdOptions {
                prefix: "clockwise".to_owned(),
                ..base()
            },
            "prefix",
            "begin with `/`",
        ),
        (
            EtcdOptions {
                lease_ttl: std::time::Duration::from_secs(1),
                ..base()
            },
            "lease_ttl",
            "between",
        ),
        (
            EtcdOptions {
                call_timeout: std::time::Duration::ZERO,
                ..base()
            },
            "call_timeout",
            "above zero",
        ),
    ] {
        let error = EtcdStore::open(&"main".parse().unwrap(), options).unwrap_err();
        let OpenError::Options { what: named, why } = &error else {
            panic!("{error}");
        };
        assert!(*named == what && why.contains(said), "{error}");
        assert!(!error.to_string().contains("pw"), "{error}");
    }
    let nobody = open(vec!["http://127.0.0.1:1".to_owned()]);
    let refused = nobody.commit(Revision::new(0), new_pool(), None).await;
    assert!(
        matches!(
            refused,
            Err(CommitError::Read(ReadError::Unreachable { .. }))
        ),
        "{refused:?}"
    );
}
