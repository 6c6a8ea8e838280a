//! What each member of etcd says, and whether it listens to pages of other sites.

use std::time::Duration;

use clockwise_client::credentials::Password;
use clockwise_client::store::{EtcdOptions, survey_etcd};
use clockwise_cluster::PoolName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::super::check::Check;
use super::super::etcd::{EndpointSeen, EtcdSeen, MemberSaid};
use super::super::finding::{Finding, path_word, word};
use super::{ANSWER_WITHIN, each};
use crate::serve::config::EtcdConfig;
use crate::serve::stores;

/// How long one endpoint is tried before it counts as away.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(1);
/// Of an answer over HTTP, the head is of interest.
const HEAD_BYTES_MAX: usize = 4 << 10;

/// What is wrong with etcd, and how many endpoints were looked at.
pub(in super::super) async fn findings(
    config: &EtcdConfig,
    pool: &PoolName,
    password: Option<&Password>,
    deadline: Instant,
) -> (Vec<Finding>, usize) {
    let options = match stores::etcd_options(config, password) {
        Ok(options) => EtcdOptions {
            attempt_timeout: ATTEMPT_WITHIN,
            call_timeout: ANSWER_WITHIN,
            ..options
        },
        // Opening the record says it too.
        Err(_) => return (Vec::new(), 0),
    };
    let (endpoints, left) = each(&config.endpoints, deadline, |url| {
        endpoint(&options, pool, url)
    })
    .await;
    let looked = endpoints.len();
    let mut found = super::super::etcd::findings(&EtcdSeen {
        endpoints,
        access: access(config),
    });
    found.extend(left.into_iter().map(|url| {
        let next = "clockwise doctor --within 300";
        Finding::new(Check::NotLookedAt, url, "time was up", next)
    }));
    (found, looked)
}

async fn endpoint(options: &EtcdOptions, pool: &PoolName, url: &str) -> EndpointSeen {
    let alone = EtcdOptions {
        endpoints: vec![url.to_owned()],
        ..options.clone()
    };
    let (said, browsers) = tokio::join!(survey_etcd(&alone, pool), listens_to_pages(url));
    let said = match said {
        Ok(Ok(said)) => Ok(MemberSaid {
            version: said.version,
            revision: said.revision,
            compacted: said.compacted,
            no_space: said.no_space,
            corrupt: said.corrupt,
            voters: said.voters.into_iter().map(|member| member.name).collect(),
            open: said.open,
        }),
        Ok(Err(why)) => Err(why),
        Err(error) => Err(error.to_string()),
    };
    EndpointSeen {
        url: url.to_owned(),
        said,
        browsers,
    }
}

/// Sends what a page of any site may have its visitors' browsers send without asking first: a POST of plain text.
/// Under a foreign host name, as after the name's address was changed on the way. It reads one key that
/// nobody has. Over TLS this is not tried: browsers do not trust a private authority.
async fn listens_to_pages(url: &str) -> Option<bool> {
    const BODY: &str = "{\"key\":\"AA==\",\"limit\":\"1\",\"keys_only\":true}";
    let address = url.strip_prefix("http://")?.trim_end_matches('/');
    let request = format!(
        "POST /v3/kv/range HTTP/1.1\r\nHost: pages.example\r\nOrigin: http://pages.example\r\n\
         Content-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        let mut limited = stream.take(u64::try_from(HEAD_BYTES_MAX).unwrap_or(u64::MAX));
        limited.read_to_end(&mut head).await?;
        Ok::<_, std::io::Error>(head)
    };
    let head = timeout(ANSWER_WITHIN, asked).await.ok()?.ok()?;
    let status = head.split(|byte| *byte == b' ').nth(1)?;
    Some(status == b"200")
}

/// How `etcdctl` is told who we are. It asks for a password itself.
fn access(config: &EtcdConfig) -> String {
    let mut words = String::new();
    if let Some(authority) = &config.ca_file {
        words.push_str(&format!("--cacert={} ", path_word(authority)));
    }
    if let Some((certificate, key)) = &config.identity {
        words.push_str(&format!(
            "--cert={} --key={} ",
            path_word(certificate),
            path_word(key)
        ));
    }
    if let Some((user, _)) = &config.user {
        words.push_str(&format!("--user={} ", word(user)));
    }
    words
}
