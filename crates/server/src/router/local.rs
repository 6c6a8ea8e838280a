//! Commands that concern the connection or the router itself, answered without a node.
//!
//! The answers are those of a single server without cluster mode, as far as clients look at them.

use std::time::{SystemTime, UNIX_EPOCH};

use clockwise_client::commands::{Local, Reason};
use clockwise_client::resp::{
    Protocol, Request, write_array, write_bulk, write_integer, write_map, write_null, write_simple,
};
use clockwise_client::routing::ROUTER_FIELD;

use super::client::{Pause, Phase};
use super::limits::REFUSED_MULTI_MS;
use super::refusal;
use super::serve::Flow;
use super::worker::{Turn, Worker};

const NOT_PLAIN_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

impl Worker {
    /// Answers a command of our own.
    pub(super) fn local(
        &mut self,
        turn: &Turn,
        place: usize,
        local: Local,
        request: &Request<'_>,
    ) -> Flow {
        match local {
            Local::Ping => self.ping(place, request),
            Local::Echo => match request.get(1) {
                Some(text) if request.count() == 2 => {
                    self.answer(place, |out| write_bulk(out, text))
                }
                _ => self.refuse_now(place, &refusal::wrong_arity("echo")),
            },
            Local::Hello => return self.hello(turn, place, request),
            Local::Auth => self.auth(place, request),
            Local::Select => self.select(place, request),
            Local::Quit => {
                self.answer(place, |out| write_simple(out, "OK"));
                if let Some(client) = self.clients.get(place) {
                    client.phase = Phase::Leaving;
                }
            }
            Local::Reset => return self.reset(place),
            Local::ClientId => {
                let id = self.client_id(place);
                self.answer(place, |out| write_integer(out, id));
            }
            Local::ClientGetName => self.client_name(place),
            Local::ClientSetName => self.name_client(place, request),
            Local::ClientSetInfo => self.client_set_info(place, request),
            Local::ClientSwitch => self.client_switch(place, request),
            Local::ClientInfo => self.client_info(turn, place),
            Local::ConfigGet => self.config_get(place, request),
            Local::Info => self.info(turn, place),
            Local::Time => self.time(place),
            Local::Cluster => {
                self.refuse_now(place, "ERR This instance has cluster support disabled")
            }
            Local::Multi | Local::Exec | Local::Discard if turn.table.has_transactions() => {
                match local {
                    Local::Multi => self.multi(place),
                    Local::Exec => return self.exec(turn, place),
                    _ => self.discard(place),
                }
            }
            Local::Unwatch => self.unwatch_all(place),
            Local::Multi if !turn.table.is_complete() && !self.table_is_late(turn) => {
                return Flow::Later(Pause::Table);
            }
            Local::Multi => {
                if let Some(client) = self.clients.get(place) {
                    client.refused_multi = Some(turn.now.after(REFUSED_MULTI_MS));
                }
                self.refuse_now(place, &refusal::refused("multi", Reason::NoTransactions));
            }
            Local::Exec | Local::Discard => self.end_multi(place, local),
            Local::Clockwise => self.clockwise(turn, place, request),
            Local::Http => {
                if let Some(client) = self.clients.get(place) {
                    tracing::warn!(client = %client.addr(), "closed: it speaks HTTP, perhaps on behalf of a web page");
                    client.phase = Phase::Leaving;
                    self.counters.clients_dropped += 1;
                    self.list_client(place);
                }
            }
        }
        Flow::Next
    }

    fn ping(&mut self, place: usize, request: &Request<'_>) {
        match (request.count(), request.get(1)) {
            (1, _) => self.answer(place, |out| write_simple(out, "PONG")),
            (2, Some(message)) => self.answer(place, |out| write_bulk(out, message)),
            _ => self.refuse_now(place, &refusal::wrong_arity("ping")),
        }
    }

    /// `EXEC` and `DISCARD` end a transaction that was refused; where nodes know none there is no other.
    fn end_multi(&mut self, place: usize, local: Local) {
        let refused = self
            .clients
            .get(place)
            .and_then(|client| client.refused_multi.take())
            .is_some();
        match (local, refused) {
            (Local::Exec, true) => {
                self.refuse_now(
                    place,
                    "EXECABORT Transaction discarded because of previous errors.",
                );
            }
            (Local::Exec, false) => self.refuse_now(place, "ERR EXEC without MULTI"),
            (_, true) => self.answer(place, |out| write_simple(out, "OK")),
            (_, false) => self.refuse_now(place, "ERR DISCARD without MULTI"),
        }
    }

    fn hello(&mut self, turn: &Turn, place: usize, request: &Request<'_>) -> Flow {
        let Some(client) = self.clients.get(place) else {
            return Flow::Next;
        };
        let hello = match Hello::read(request, client.protocol) {
            Ok(hello) => hello,
            Err(text) => {
                self.refuse_now(place, &text);
                return Flow::Next;
            }
        };
        if hello.protocol != client.protocol && client.replies.waiting() > 0 {
            return Flow::Later(Pause::Barrier);
        }
        if let Some((user, password)) = hello.login {
            if !self.knows(user, password) {
                self.refuse_now(place, WRONG_PASSWORD);
                return Flow::Next;
            }
        } else if self
            .clients
            .get(place)
            .is_some_and(|client| client.phase == Phase::LoggingIn)
        {
            self.refuse_now(
                place,
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                 <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                 the same time",
            );
            return Flow::Next;
        }
        let id = self.client_id(place);
        let Some(client) = self.clients.get(place) else {
            return Flow::Next;
        };
        client.phase = Phase::Serving;
        let changes = client.protocol != hello.protocol;
        client.protocol = hello.protocol;
        if let Some(name) = hello.name {
            client.name = name.into();
        }
        if changes {
            self.close_own_link(place);
        }
        self.answer(place, |out| {
            write_hello(out, hello.protocol, id, turn.table.server_version())
        });
        Flow::Next
    }

    fn knows(&self, user: &[u8], password: &[u8]) -> bool {
        self.knows_password(password) && user == b"default"
    }

    /// Whether this is the password, or none is needed.
    pub(super) fn knows_password(&self, password: &[u8]) -> bool {
        match &self.settings.secrets.password {
            None => true,
            Some(expected) => {
                std::str::from_utf8(password).is_ok_and(|password| expected.matches(password))
            }
        }
    }

    fn auth(&mut self, place: usize, request: &Request<'_>) {
        let (user, password) = match (request.count(), request.get(1), request.get(2)) {
            (2, Some(password), _) => (&b"default"[..], password),
            (3, Some(user), Some(password)) => (user, password),
            _ => return self.refuse_now(place, "ERR syntax error"),
        };
        if self.settings.secrets.password.is_none() && request.count() == 2 {
            return self.refuse_now(
                place,
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            );
        }
        if !self.knows(user, password) {
            return self.refuse_now(place, WRONG_PASSWORD);
        }
        if let Some(client) = self.clients.get(place) {
            client.phase = Phase::Serving;
        }
        self.answer(place, |out| write_simple(out, "OK"));
    }

    fn select(&mut self, place: usize, request: &Request<'_>) {
        let index = request
            .get(1)
            .and_then(|text| std::str::from_utf8(text).ok()?.parse::<i64>().ok());
        match index {
            Some(0) if request.count() == 2 => self.answer(place, |out| write_simple(out, "OK")),
            Some(_) if request.count() == 2 => {
                self.refuse_now(
                    place,
                    "ERR DB index is out of range (clockwise: only database 0 exists)",
                );
            }
            None if request.count() == 2 => {
                self.refuse_now(place, "ERR value is not an integer or out of range")
            }
            _ => self.refuse_now(place, &refusal::wrong_arity("select")),
        }
    }

    fn reset(&mut self, place: usize) -> Flow {
        let login = self.settings.secrets.password.is_some();
        let Some(client) = self.clients.get(place) else {
            return Flow::Next;
        };
        if client.protocol != Protocol::Resp2 && client.replies.waiting() > 0 {
            return Flow::Later(Pause::Barrier);
        }
        client.protocol = Protocol::Resp2;
        client.name = Box::default();
        client.transaction = None;
        client.refused_multi = None;
        if login {
            client.phase = Phase::LoggingIn;
        }
        self.close_own_link(place);
        self.unwatch(place);
        self.answer(place, |out| write_simple(out, "RESET"));
        Flow::Next
    }

    /// Unique among all workers' clients.
    fn client_id(&mut self, place: usize) -> i64 {
        let serial = self.clients.get(place).map_or(0, |client| client.serial);
        i64::from(serial) * self.shared.workers as i64 + self.number as i64 + 1
    }

    fn client_name(&mut self, place: usize) {
        let Some(client) = self.clients.get(place) else {
            return;
        };
        let (name, protocol) = (client.name.clone(), client.protocol);
        self.answer(place, |out| {
            if name.is_empty() {
                write_null(out, protocol)
            } else {
                write_bulk(out, &name)
            }
        });
    }

    fn name_client(&mut self, place: usize, request: &Request<'_>) {
        let (Some(name), 3) = (request.get(2), request.count()) else {
            return self.refuse_now(place, &refusal::wrong_arity("client|setname"));
        };
        if !is_plain(name) {
            return self.refuse_now(place, NOT_PLAIN_NAME);
        }
        if let Some(client) = self.clients.get(place) {
            client.name = name.into();
        }
        self.answer(place, |out| write_simple(out, "OK"));
    }

    /// What a client library says of itself. Nobody asks for it later; it is judged as servers judge it.
    fn client_set_info(&mut self, place: usize, request: &Request<'_>) {
        let (Some(attribute), Some(value)) = (request.get(2), request.get(3)) else {
            return self.refuse_now(place, &refusal::wrong_arity("client|setinfo"));
        };
        let known = [&b"lib-name"[..], b"lib-ver"]
            .into_iter()
            .find(|known| attribute.eq_ignore_ascii_case(known));
        match known.map(String::from_utf8_lossy) {
            Some(_) if is_plain(value) => self.answer(place, |out| write_simple(out, "OK")),
            Some(known) => {
                let text =
                    format!("ERR {known} cannot contain spaces, newlines or special characters.");
                self.refuse_now(place, &text);
            }
            None => {
                let attribute = String::from_utf8_lossy(attribute);
                self.refuse_now(place, &format!("ERR Unrecognized option '{attribute}'"));
            }
        }
    }

    /// What would change a connection that others share is off; some clients make sure of it.
    fn client_switch(&mut self, place: usize, request: &Request<'_>) {
        let is = |at: usize, word: &[u8]| {
            request
                .get(at)
                .is_some_and(|argument| argument.eq_ignore_ascii_case(word))
        };
        let usual: &[u8] = if is(1, b"REPLY") { b"ON" } else { b"OFF" };
        if is(2, usual) && request.count() == 3 {
            return self.answer(place, |out| write_simple(out, "OK"));
        }
        let subcommand = request.get(1).unwrap_or_default().to_ascii_lowercase();
        let name = format!("client|{}", String::from_utf8_lossy(&subcommand));
        self.refuse_now(place, &refusal::refused(&name, Reason::SharedConnection));
    }

    fn client_info(&mut self, turn: &Turn, place: usize) {
        let id = self.client_id(place);
        let Some(client) = self.clients.get(place) else {
            return;
        };
        let line = client.line(id, turn.now);
        self.answer(place, |out| write_bulk(out, line.as_bytes()));
    }

    /// `CONFIG GET` of what load generators and clients ask for; everything else is a node's.
    fn config_get(&mut self, place: usize, request: &Request<'_>) {
        if request.count() < 3 {
            return self.refuse_now(place, &refusal::wrong_arity("config|get"));
        }
        let limits = &self.settings.limits;
        let values = [
            ("appendonly", "no".to_owned()),
            ("databases", "1".to_owned()),
            ("maxclients", limits.clients_max.to_string()),
            (
                "proto-max-bulk-len",
                limits.request.bulk_bytes_max.to_string(),
            ),
            ("save", String::new()),
            ("timeout", (limits.idle_ms_max / 1_000).to_string()),
        ];
        let asked = |name: &str| {
            request
                .args()
                .skip(2)
                .any(|pattern| pattern == b"*" || pattern.eq_ignore_ascii_case(name.as_bytes()))
        };
        let found: Vec<_> = values.iter().filter(|(name, _)| asked(name)).collect();
        let Some(client) = self.clients.get(place) else {
            return;
        };
        let protocol = client.protocol;
        self.answer(place, |out| {
            write_map(out, protocol, found.len());
            for (name, value) in found {
                write_bulk(out, name.as_bytes());
                write_bulk(out, value.as_bytes());
            }
        });
    }

    fn info(&mut self, turn: &Turn, place: usize) {
        let view = &turn.view;
        let text = format!(
            "# Server\r\nredis_version:{}\r\nredis_mode:standalone\r\nclockwise_version:{}\r\nprocess_id:{}\r\n\
             tcp_port:{}\r\nuptime_in_seconds:{}\r\n\r\n# Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n\r\n\
             # Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n# Persistence\r\nloading:0\r\n\r\n\
             # Cluster\r\ncluster_enabled:0\r\n\r\n\
             # Clockwise\r\nclockwise_epoch:{}\r\nclockwise_fingerprint:{}\r\nclockwise_nodes:{}\r\n",
            turn.table.server_version(),
            env!("CARGO_PKG_VERSION"),
            std::process::id(),
            self.clients
                .get(place)
                .map_or(0, |client| client.local_port()),
            turn.now.0 / 1_000,
            self.shared
                .clients
                .load(std::sync::atomic::Ordering::Relaxed),
            self.settings.limits.clients_max,
            view.epoch(),
            view.fingerprint(),
            view.nodes().len(),
        );
        self.answer(place, |out| write_bulk(out, text.as_bytes()));
    }

    fn time(&mut self, place: usize) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.answer(place, |out| {
            write_array(out, 2);
            write_bulk(out, now.as_secs().to_string().as_bytes());
            write_bulk(out, now.subsec_micros().to_string().as_bytes());
        });
    }

    /// `CLOCKWISE EPOCH` and `CLOCKWISE ROUTE key`: what this very connection routes by.
    fn clockwise(&mut self, turn: &Turn, place: usize, request: &Request<'_>) {
        let subcommand = request
            .get(1)
            .map(<[u8]>::to_ascii_lowercase)
            .unwrap_or_default();
        match (subcommand.as_slice(), request.get(2), request.count()) {
            (b"epoch", None, 2) => {
                let epoch = i64::try_from(turn.view.epoch().get()).unwrap_or(i64::MAX);
                self.answer(place, |out| write_integer(out, epoch));
            }
            (b"route", Some(key), 3) => {
                let Some(client) = self.clients.get(place) else {
                    return;
                };
                let protocol = client.protocol;
                self.answer(place, |out| write_route(out, protocol, turn, key));
            }
            _ => self.refuse_now(
                place,
                "ERR clockwise: CLOCKWISE EPOCH, or CLOCKWISE ROUTE key",
            ),
        }
    }
}

/// Whether a name is of the characters that servers take for one: no blanks, no line ends.
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn write_route(out: &mut Vec<u8>, protocol: Protocol, turn: &Turn, key: &[u8]) {
    let view = &turn.view;
    let position = view.position(key);
    let route = view.route(position);
    let node = view.node(route.node);
    let epoch = i64::try_from(view.epoch().get()).unwrap_or(i64::MAX);
    write_map(out, protocol, 7);
    write_bulk(out, b"key");
    write_bulk(out, key);
    for (field, text) in [
        ("position", view.side(position).1.to_string()),
        ("node", node.id.to_string()),
        ("address", node.address.to_string()),
        ("fingerprint", view.fingerprint().to_string()),
    ] {
        write_bulk(out, field.as_bytes());
        write_bulk(out, text.as_bytes());
    }
    write_bulk(out, b"held");
    write_integer(out, i64::from(route.hold));
    write_bulk(out, b"epoch");
    write_integer(out, epoch);
}

fn write_hello(out: &mut Vec<u8>, protocol: Protocol, id: i64, version: &str) {
    write_map(out, protocol, 8);
    for (field, text) in [
        ("server", "redis"),
        ("version", version),
        ("mode", "standalone"),
        ("role", "master"),
        (ROUTER_FIELD, env!("CARGO_PKG_VERSION")),
    ] {
        write_bulk(out, field.as_bytes());
        write_bulk(out, text.as_bytes());
    }
    write_bulk(out, b"proto");
    write_integer(out, if protocol == Protocol::Resp3 { 3 } else { 2 });
    write_bulk(out, b"id");
    write_integer(out, id);
    write_bulk(out, b"modules");
    write_array(out, 0);
}

/// What a client asks for with `HELLO`.
struct Hello<'a> {
    protocol: Protocol,
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Hello<'a> {
    fn read(request: &Request<'a>, current: Protocol) -> Result<Self, String> {
        let mut hello = Self {
            protocol: current,
            login: None,
            name: None,
        };
        if let Some(version) = request.get(1) {
            let version = std::str::from_utf8(version)
                .ok()
                .and_then(|text| text.parse::<i64>().ok());
            hello.protocol = match version {
                Some(2) => Protocol::Resp2,
                Some(3) => Protocol::Resp3,
                Some(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
                None => {
                    return Err("ERR Protocol version is not an integer or out of range".to_owned());
                }
            };
        }
        let mut at = 2;
        while let Some(option) = request.get(at) {
            match (
                option.to_ascii_lowercase().as_slice(),
                request.get(at + 1),
                request.get(at + 2),
            ) {
                (b"auth", Some(user), Some(password)) => {
                    hello.login = Some((user, password));
                    at += 3;
                }
                (b"setname", Some(name), _) if !is_plain(name) => {
                    return Err(NOT_PLAIN_NAME.to_owned());
                }
                (b"setname", Some(name), _) => {
                    hello.name = Some(name);
                    at += 2;
                }
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(format!("ERR Syntax error in HELLO option '{option}'"));
                }
            }
        }
        Ok(hello)
    }
}
