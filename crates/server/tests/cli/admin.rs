//! The admin API as others than our own command line meet it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::cluster::{Cluster, wait_until};

struct Api {
    cluster: Cluster,
    token: String,
}

impl Api {
    fn start() -> Self {
        let cluster = Cluster::start(&["--engine", "redis", "--nodes", "1"]);
        let token = std::fs::read_to_string(cluster.dir().join("admin.token")).unwrap();
        Self {
            cluster,
            token: token.trim().to_owned(),
        }
    }

    /// Sends a request as it stands; gives status and body.
    fn send(&self, line: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.cluster.admin).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut text = format!(
            "{line} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(body);
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, body.to_owned())
    }

    fn code(&self, line: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let (status, body) = self.send(line, headers, body);
        let value: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        (
            status,
            value["error"]["code"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    }
}

#[test]
fn strangers_are_refused_and_change_nothing() {
    let api = Api::start();
    let host = api.cluster.admin.to_string();
    let bearer = format!("Bearer {}", api.token);
    let own = ("Host", host.as_str());
    let json = ("Content-Type", "application/json");
    let token = ("Authorization", bearer.as_str());
    let throttle = r#"{"keys_per_second":7}"#;
    let post = "POST /v1/throttle";

    let refused = [
        (
            "GET /v1/status",
            vec![("Host", "evil.example")],
            421,
            "foreign_host",
        ),
        (
            "GET /v1/status",
            vec![own, ("Origin", "http://evil.example")],
            403,
            "foreign_origin",
        ),
        (post, vec![own, json], 401, "unauthorised"),
        (
            post,
            vec![own, json, ("Authorization", "Bearer 0")],
            401,
            "unauthorised",
        ),
        (
            post,
            vec![own, token, ("Content-Type", "text/plain")],
            415,
            "not_json",
        ),
        (post, vec![own, token], 415, "not_json"),
        (
            post,
            vec![("Host", "evil.example"), token, json],
            421,
            "foreign_host",
        ),
        (
            post,
            vec![own, token, json, ("Origin", "http://evil.example")],
            403,
            "foreign_origin",
        ),
        (
            "PUT /v1/throttle",
            vec![own, token, json],
            405,
            "method_not_allowed",
        ),
        (
            "OPTIONS /v1/throttle",
            vec![own, ("Origin", "http://evil.example")],
            403,
            "foreign_origin",
        ),
        ("GET /v1/apply", vec![own], 405, "method_not_allowed"),
        ("GET /v1/nothing", vec![own], 404, "not_found"),
    ];
    for (line, headers, status, code) in refused {
        assert_eq!(
            api.code(line, &headers, throttle),
            (status, code.to_owned()),
            "{line} {headers:?}"
        );
    }
    let large = format!("{{\"keys_per_second\":{}}}", " ".repeat(1024 * 1024));
    assert_eq!(
        api.code(post, &[own, token, json], &large),
        (413, "too_large".to_owned())
    );
    let (_, told) = api.send(post, &[own, token, json], &large);
    assert!(told.contains("more than 1048576 bytes"), "{told}");
    for wrong in [
        "",
        "7",
        "[]",
        " [7]",
        "{\"keys_per_second\":-1}",
        "{\"kes_per_second\":1}",
    ] {
        assert_eq!(
            api.code(post, &[own, token, json], wrong),
            (400, "invalid".to_owned()),
            "{wrong}"
        );
    }

    let looked = api
        .cluster
        .run(&["throttle", "-o", "json"])
        .json("Throttle");
    assert_eq!(
        looked["keys_per_second"], 0,
        "nothing was changed by any of them"
    );
    assert_eq!(api.send(post, &[own, token, json], throttle).0, 200);
    let looked = api
        .cluster
        .run(&["throttle", "-o", "json"])
        .json("Throttle");
    assert_eq!(looked["keys_per_second"], 7);
}

/// The numbers of a page of metrics, by what stands before them.
fn numbers(page: &str) -> BTreeMap<&str, f64> {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, number) = line.rsplit_once(' ').unwrap();
            (name, number.parse().unwrap())
        })
        .collect()
}

#[test]
fn monitoring_is_told_of_health_readiness_and_numbers_and_of_no_key() {
    let api = Api::start();
    let host = api.cluster.admin.to_string();
    let own = [("Host", host.as_str())];
    assert_eq!(api.send("GET /healthz", &own, ""), (200, "ok\n".to_owned()));
    let (status, body) = api.send("GET /readyz", &own, "");
    let ready: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &ready["ready"]),
        (200, &serde_json::json!(true)),
        "{body}"
    );

    let mut client = TcpStream::connect(api.cluster.listen).unwrap();
    let commands = "SET a-name-of-a-key 1\r\nGET a-name-of-a-key\r\nNONSENSE\r\n";
    client.write_all(commands.as_bytes()).unwrap();
    let mut replies = String::new();
    let mut reader = BufReader::new(&client);
    for _line in 0..4 {
        reader.read_line(&mut replies).unwrap();
    }
    assert!(replies.starts_with("+OK\r\n$1\r\n1\r\n-ERR"), "{replies}");
    let mut page = String::new();
    wait_until("the requests are counted", || {
        let (status, text) = api.send("GET /metrics", &own, "");
        assert_eq!(status, 200);
        page = text;
        numbers(&page)["clockwise_requests_total"] >= 3.0
    });
    let numbers = numbers(&page);
    for (name, number) in [
        ("clockwise_epoch", 1.0),
        ("clockwise_clients", 1.0),
        ("clockwise_requests_total", 3.0),
        ("clockwise_requests_refused_total", 1.0),
        ("clockwise_node_requests_total{node=\"node-1\"}", 2.0),
        ("clockwise_node_errors_total{node=\"node-1\"}", 0.0),
        ("clockwise_node_open{node=\"node-1\"}", 1.0),
        ("clockwise_hold_longest_seconds", 0.0),
        ("clockwise_leads", 1.0),
        ("clockwise_store_ready", 1.0),
        ("clockwise_change_running", 0.0),
    ] {
        assert_eq!(numbers.get(name), Some(&number), "{name} in\n{page}");
    }
    assert!(page.ends_with("# EOF\n"), "{page}");
    assert!(!page.contains("a-name-of-a-key"), "{page}");
    let foreign = [("Host", "evil.example")];
    assert_eq!(api.send("GET /metrics", &foreign, "").0, 421);
}

#[test]
fn address_and_token_belong_to_the_owner() {
    let api = Api::start();
    for name in [
        "admin.addr",
        "admin.token",
        "nodes.password",
        "pool.key",
        "record.json",
    ] {
        let mode = std::fs::metadata(api.cluster.dir().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let config = api.cluster.dir().join("nodes/node-1/redis.conf");
    assert_eq!(
        std::fs::metadata(&config).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let config = std::fs::read_to_string(config).unwrap();
    assert!(
        !config.contains("user "),
        "client users never stand in a file: {config}"
    );
}
