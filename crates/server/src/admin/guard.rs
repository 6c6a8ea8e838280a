//! Who may call the admin API: not a page of another site, not a name that resolves to us by chance,
//! and nobody without the token where something changes.
//!
//! A browser sends a page's `Origin`, and the `Host` it was told; a page of another site can choose
//! neither. It can send a form, but no JSON, without asking first, and we never answer such a question.

use std::net::{IpAddr, SocketAddr};

use super::refusal::{Code, Refusal};
use super::token::Token;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The largest request body, in bytes.
pub(super) const BODY_BYTES_MAX: usize = 1024 * 1024;

/// What a request is checked against.
#[derive(Clone)]
pub(super) struct Guard {
    bound: SocketAddr,
    known_as: Option<String>,
    token: Token,
}

impl Guard {
    /// Guards an API bound to this address, and known by another one, with this token.
    pub(super) fn new(bound: SocketAddr, known_as: Option<String>, token: Token) -> Self {
        Self {
            bound,
            known_as,
            token,
        }
    }

    fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        self.check_host(headers)?;
        self.check_origin(headers)?;
        match *method {
            Method::GET | Method::HEAD => Ok(()),
            Method::POST => {
                self.check_token(headers)?;
                check_json(headers)
            }
            _ => Err(Refusal::new(
                Code::MethodNotAllowed,
                format!("{method} is not used here"),
            )),
        }
    }

    fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts
            .next()
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if hosts.next().is_some() || !self.is_own_authority(host) {
            let words = format!("Host {host:?} is not an address of this server");
            return Err(Refusal::new(Code::ForeignHost, words));
        }
        Ok(())
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            if !origin
                .strip_prefix("http://")
                .is_some_and(|authority| self.is_own_authority(authority))
            {
                let words = format!("Origin {origin:?} is another site");
                return Err(Refusal::new(Code::ForeignOrigin, words));
            }
        }
        let site = headers.get(HeaderName::from_static("sec-fetch-site"));
        match site.map(|site| site.as_bytes()) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => Err(Refusal::new(
                Code::ForeignOrigin,
                "a page of another site asks".to_owned(),
            )),
        }
    }

    /// `host:port` as a client of ours writes it: the bound address, a loopback name for a loopback address, or
    /// the name that the configuration gives it.
    fn is_own_authority(&self, authority: &str) -> bool {
        let known_as = self.known_as.as_deref();
        if known_as.is_some_and(|known| known.eq_ignore_ascii_case(authority)) {
            return true;
        }
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                if port.parse() != Ok(self.bound.port()) {
                    return false;
                }
                host
            }
            // Without a port it is the scheme's.
            _ if self.bound.port() == 80 => authority,
            _ => return false,
        };
        let bound = self.bound.ip();
        if host.eq_ignore_ascii_case("localhost") {
            return bound.is_loopback() || bound.is_unspecified();
        }
        let literal = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        // A name can be made to resolve to us; a literal address cannot.
        literal
            .parse()
            .is_ok_and(|ip: IpAddr| ip == bound || bound.is_unspecified())
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let shown = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|shown| shown.strip_prefix("Bearer "));
        let words = match shown {
            Some(shown) if self.token.matches(shown) => return Ok(()),
            Some(_) => "the token is not the one of this server",
            None => "this call changes something and needs the token",
        };
        let next =
            "pass --dir DIR of the running `clockwise up`, or set CLOCKWISE_TOKEN".to_owned();
        Err(Refusal::new(Code::Unauthorised, words.to_owned()).with_next(next))
    }
}

/// Applies the guard before anything reads the request's body.
pub(super) async fn apply(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.check(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn check_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Refusal::new(
        Code::NotJson,
        format!("Content-Type {kind:?}: only application/json is read"),
    ))
}

#[cfg(test)]
mod tests {
    use clockwise_client::credentials::Password;

    use super::*;

    fn outcome(bound: &str, method: Method, headers: &[(&'static str, &str)]) -> Option<Code> {
        let token = Password::generate().unwrap().into();
        let guard = Guard::new(bound.parse().unwrap(), None, token);
        check(&guard, method, headers)
    }

    fn check(guard: &Guard, method: Method, headers: &[(&'static str, &str)]) -> Option<Code> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        guard.check(&method, &map).err().map(|refusal| refusal.code)
    }

    #[test]
    fn only_our_own_host_is_answered() {
        let cases = [
            ("127.0.0.1:7380", "127.0.0.1:7380", true),
            ("127.0.0.1:7380", "localhost:7380", true),
            ("127.0.0.1:7380", "LocalHost:7380", true),
            ("[::1]:7380", "[::1]:7380", true),
            ("0.0.0.0:7380", "10.1.2.3:7380", true),
            ("127.0.0.1:80", "127.0.0.1", true),
            ("127.0.0.1:7380", "127.0.0.1", false),
            ("127.0.0.1:7380", "127.0.0.1:80", false),
            ("127.0.0.1:7380", "evil.example:7380", false),
            ("127.0.0.1:7380", "127.0.0.1.evil.example:7380", false),
            ("127.0.0.1:7380", "10.1.2.3:7380", false),
            ("0.0.0.0:7380", "evil.example:7380", false),
            ("10.1.2.3:7380", "localhost:7380", false),
            ("127.0.0.1:7380", "", false),
        ];
        for (bound, host, answered) in cases {
            let refused = outcome(bound, Method::GET, &[("host", host)]);
            assert_eq!(
                refused,
                (!answered).then_some(Code::ForeignHost),
                "{bound} asked as {host}"
            );
        }
        let twice = [("host", "127.0.0.1:7380"), ("host", "evil.example")];
        assert_eq!(
            outcome("127.0.0.1:7380", Method::GET, &twice),
            Some(Code::ForeignHost)
        );
    }

    #[test]
    fn a_name_that_the_configuration_gives_is_answered_and_no_other() {
        let token = Password::generate().unwrap().into();
        let known_as = Some("admin-a.example:7380".to_owned());
        let guard = Guard::new("10.0.0.1:7380".parse().unwrap(), known_as, token);
        for (host, refused) in [
            ("admin-a.example:7380", None),
            ("10.0.0.1:7380", None),
            ("admin-a.example", Some(Code::ForeignHost)),
            ("admin-b.example:7380", Some(Code::ForeignHost)),
        ] {
            assert_eq!(
                check(&guard, Method::GET, &[("host", host)]),
                refused,
                "{host}"
            );
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        for origin in [
            "http://evil.example",
            "https://127.0.0.1:7380",
            "http://127.0.0.1:9999",
            "null",
        ] {
            let headers = [("host", "127.0.0.1:7380"), ("origin", origin)];
            let refused = outcome("127.0.0.1:7380", Method::GET, &headers);
            assert_eq!(refused, Some(Code::ForeignOrigin), "{origin}");
        }
        let own = [
            ("host", "127.0.0.1:7380"),
            ("origin", "http://127.0.0.1:7380"),
        ];
        assert_eq!(outcome("127.0.0.1:7380", Method::GET, &own), None);
        let site = [("host", "127.0.0.1:7380"), ("sec-fetch-site", "cross-site")];
        assert_eq!(
            outcome("127.0.0.1:7380", Method::GET, &site),
            Some(Code::ForeignOrigin)
        );
    }

    #[test]
    fn a_change_needs_the_token_and_json() {
        let token = Password::generate().unwrap();
        let guard = Guard::new(
            "127.0.0.1:7380".parse().unwrap(),
            None,
            token.clone().into(),
        );
        let host = ("host", "127.0.0.1:7380");
        let json = ("content-type", "application/json; charset=utf-8");
        let text = ("content-type", "text/plain");
        let (good, short, long) = (
            format!("Bearer {}", token.reveal()),
            format!("Bearer {}", &token.reveal()[1..]),
            format!("Bearer {}0", token.reveal()),
        );
        let shown = |value| ("authorization", value);
        let post = |headers: &[_]| check(&guard, Method::POST, headers);
        assert_eq!(post(&[host, json]), Some(Code::Unauthorised));
        for wrong in [short.as_str(), long.as_str(), token.reveal(), "Bearer ", ""] {
            assert_eq!(
                post(&[host, json, shown(wrong)]),
                Some(Code::Unauthorised),
                "{wrong}"
            );
        }
        assert_eq!(post(&[host, text, shown(&good)]), Some(Code::NotJson));
        assert_eq!(post(&[host, shown(&good)]), Some(Code::NotJson));
        assert_eq!(post(&[host, json, shown(&good)]), None);
        let put = check(&guard, Method::PUT, &[host, json, shown(&good)]);
        assert_eq!(put, Some(Code::MethodNotAllowed));
    }
}
