//! Callers of every kind before an API server that knows them, does not know them, or is away.

use std::sync::Mutex;

use super::*;
use crate::server::node::http::head::parse;

/// An API server that counts what it is asked.
#[derive(Debug, Default)]
struct Server {
    away: bool,
    asked: Mutex<Vec<String>>,
}

impl Server {
    fn hear(&self, question: String) -> Result<(), String> {
        self.asked.lock().expect("lock").push(question);
        if self.away { Err("the API server is away".to_owned()) } else { Ok(()) }
    }
}

impl Reviewer for Server {
    fn token(&self, token: &str) -> Result<Option<Caller>, String> {
        self.hear(format!("token {token}"))?;
        Ok(token.strip_prefix("of-").map(|name| Caller { name: name.to_owned(), ..Caller::default() }))
    }

    fn access(&self, asks: &Asks<'_>) -> Result<bool, String> {
        let Asks { caller, node, verb, subresource } = asks;
        self.hear(format!("{} {verb} {node}/{subresource}", caller.name))?;
        Ok(caller.name == "admin" || (caller.name == "scraper" && *subresource == "metrics"))
    }
}

fn auth(anonymous: bool, mode: Mode, away: bool) -> (Auth, Arc<Server>) {
    let server = Arc::new(Server { away, ..Server::default() });
    let settings = AuthSettings {
        node: "n".to_owned(),
        authority: None,
        tokens: true,
        token_ttl: Duration::from_secs(60),
        anonymous,
        mode,
        allowed_ttl: Duration::from_secs(60),
        denied_ttl: Duration::from_secs(60),
    };
    (Auth::new(settings, Arc::clone(&server) as Arc<dyn Reviewer>), server)
}

fn head(line: &str, header: &str) -> Head {
    let header = if header.is_empty() { String::new() } else { format!("Authorization: {header}\r\n") };
    parse(format!("{line} HTTP/1.1\r\nHost: n\r\n{header}\r\n").as_bytes()).expect("no refusal").expect("whole").0
}

/// The caller's name, or status and text.
fn ask(auth: &Auth, line: &str, header: &str) -> String {
    let head = head(line, header);
    let refused = |reply: Reply| {
        let status = reply.status();
        format!("{status} {}", String::from_utf8_lossy(&reply.into_bytes().expect("a text")).trim_end())
    };
    match auth.authenticate(&[], &head) {
        Err(reply) => refused(reply),
        Ok(caller) => match auth.authorize(&caller, &head) {
            Ok(()) => format!("{} in {}", caller.name, caller.groups.join(" ")),
            Err(reply) => refused(reply),
        },
    }
}

#[test]
fn callers_are_let_in_by_what_they_show_and_may() {
    let (strict, _) = auth(false, Mode::Webhook, false);
    let check =
        |line: &str, header: &str, expect: &str| assert_eq!(ask(&strict, line, header), expect, "{line} {header}");
    check("GET /pods", "Bearer of-admin", "admin in system:authenticated");
    check("GET /pods", "bearer  of-admin", "401 Unauthorized");
    check("GET /pods", "", "401 Unauthorized");
    check("GET /pods", "Basic eDp5", "401 Unauthorized");
    check("GET /pods", "Bearer", "401 Unauthorized");
    check("GET /pods", "Bearer nobodys", "401 Unauthorized: the API server does not know the token");
    check("GET /metrics", "Bearer of-scraper", "scraper in system:authenticated");
    check(
        "GET /pods",
        "Bearer of-scraper",
        "403 Forbidden (user=scraper, verb=get, resource=nodes, subresource(s)=[pods proxy])",
    );
    check(
        "POST /run/a/b/c",
        "Bearer of-jane",
        "403 Forbidden (user=jane, verb=create, resource=nodes, subresource(s)=[proxy])",
    );
}

#[test]
fn strangers_are_anonymous_only_where_that_is_said() {
    let (open, server) = auth(true, Mode::Webhook, false);
    assert!(ask(&open, "GET /pods", "").starts_with("403 Forbidden (user=system:anonymous"));
    assert_eq!(
        ask(&open, "GET /pods", "Bearer nobodys"),
        "401 Unauthorized: the API server does not know the token",
        "a wrong credential is not no credential"
    );
    assert_eq!(server.asked.lock().expect("lock").len(), 3);
    let (all, server) = auth(true, Mode::AlwaysAllow, false);
    assert_eq!(ask(&all, "GET /exec/a/b/c", ""), "system:anonymous in system:unauthenticated");
    assert_eq!(server.asked.lock().expect("lock").len(), 0);
}

#[test]
fn answers_are_remembered_and_failures_are_not() {
    let (known, server) = auth(false, Mode::Webhook, false);
    for _ in 0..3 {
        ask(&known, "GET /metrics", "Bearer of-scraper");
        ask(&known, "GET /pods", "Bearer of-scraper");
        ask(&known, "GET /pods", "Bearer nobodys");
    }
    let expect =
        ["token of-scraper", "scraper get n/metrics", "scraper get n/pods", "scraper get n/proxy", "token nobodys"];
    assert_eq!(*server.asked.lock().expect("lock"), expect);
    let (away, server) = auth(true, Mode::Webhook, true);
    for _ in 0..2 {
        assert_eq!(ask(&away, "GET /pods", "Bearer of-admin"), "401 Unauthorized: the API server is away");
        assert_eq!(
            ask(&away, "GET /pods", ""),
            "500 Authorization error (user=system:anonymous, verb=get, resource=nodes, subresource=pods): \
             the API server is away"
        );
    }
    assert_eq!(server.asked.lock().expect("lock").len(), 4);
}
