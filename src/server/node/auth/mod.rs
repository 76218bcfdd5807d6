//! Who asks, and whether they may: client certificates, tokens, and what the API server says about both.
//!
//! On the threads that serve requests. It owns two bounded memories of answers. Nobody is let in by default: what can't be decided,
//! because the API server can't be asked or a file can't be read, is a no that says so.

mod attributes;
mod authority;
mod cache;
mod reviews;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

pub use attributes::{Asks, verb};
pub use authority::ClientAuthority;
use cache::Cache;
pub use reviews::{ApiReviewer, Reviewer};

use super::http::head::Head;
use super::http::{Caller, Reply};
use crate::util::clock;

/// Tokens and rights that are remembered at most, each.
const REMEMBERED: usize = 1024;
/// Questions that callers wait for at a time: so many threads at most wait for the API server.
const WAITING: usize = 64;
/// Longest token.
const MAX_TOKEN: usize = 16 << 10;

/// What decides whether a caller may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everybody who is somebody may do everything.
    AlwaysAllow,
    /// The API server is asked.
    Webhook,
}

/// How callers are recognized.
#[derive(Debug)]
pub struct AuthSettings {
    /// The node's name.
    pub node: String,
    /// Whose certificates count; `None` if none do.
    pub authority: Option<ClientAuthority>,
    /// Whether the API server is asked about tokens.
    pub tokens: bool,
    /// How long its answer about a token is remembered.
    pub token_ttl: Duration,
    /// Whether callers without credentials are let in as `system:anonymous`.
    pub anonymous: bool,
    /// What decides about rights.
    pub mode: Mode,
    /// How long a yes is remembered.
    pub allowed_ttl: Duration,
    /// How long a no is remembered.
    pub denied_ttl: Duration,
}

/// Recognizes callers, and knows what they may do.
#[derive(Debug)]
pub struct Auth {
    settings: AuthSettings,
    reviewer: Arc<dyn Reviewer>,
    tokens: Cache<Option<Caller>>,
    rights: Cache<bool>,
    waiting: AtomicUsize,
}

impl Auth {
    /// Asks `reviewer` about tokens and rights.
    pub fn new(settings: AuthSettings, reviewer: Arc<dyn Reviewer>) -> Self {
        Self {
            settings,
            reviewer,
            tokens: Cache::new(REMEMBERED),
            rights: Cache::new(REMEMBERED),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Who asks.
    ///
    /// # Errors
    /// The answer to give: nobody is known by what was shown.
    pub fn authenticate(&self, certificates: &[CertificateDer<'_>], head: &Head) -> Result<Caller, Reply> {
        let mut problems = Vec::new();
        if let Some(authority) = self.settings.authority.as_ref().filter(|_| !certificates.is_empty()) {
            match authority.caller(certificates) {
                Ok(Some(caller)) => return Ok(with_group(caller)),
                Ok(None) => {}
                Err(why) => problems.push(format!("the client certificate does not count: {why}")),
            }
        }
        if self.settings.tokens
            && let Some(token) = bearer(head)
        {
            match self.by_token(token) {
                Ok(Some(caller)) => return Ok(with_group(caller)),
                Ok(None) => problems.push("the API server does not know the token".to_owned()),
                Err(why) => problems.push(why),
            }
        }
        if problems.is_empty() && self.settings.anonymous {
            return Ok(Caller::anonymous());
        }
        log::debug!("{} {} by nobody who is known: {}", head.method.as_str(), head.path, problems.join("; "));
        let why = if problems.is_empty() { String::new() } else { format!(": {}", problems.join("; ")) };
        Err(Reply::text(401, &format!("Unauthorized{why}")))
    }

    /// Whether the caller may make this request.
    ///
    /// # Errors
    /// The answer to give: it may not, or nobody can be asked.
    pub fn authorize(&self, caller: &Caller, head: &Head) -> Result<(), Reply> {
        if self.settings.mode == Mode::AlwaysAllow {
            return Ok(());
        }
        let subresources = attributes::subresources(&head.path);
        let verb = verb(head.method);
        for subresource in &subresources {
            let asks = Asks { caller, node: &self.settings.node, verb, subresource };
            match self.may(&asks) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(why) => {
                    log::warn!("nobody can say whether {} may {verb} nodes/{subresource}: {why}", caller.name);
                    let text = format!(
                        "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource}): {why}",
                        caller.name
                    );
                    return Err(Reply::text(500, &text));
                }
            }
        }
        log::debug!("{} may not {verb} nodes/{}", caller.name, subresources.join(" or "));
        let text = format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            caller.name,
            subresources.join(" ")
        );
        Err(Reply::text(403, &text))
    }

    fn by_token(&self, token: &str) -> Result<Option<Caller>, String> {
        if token.len() > MAX_TOKEN {
            return Err("the token is longer than any that counts".to_owned());
        }
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.tokens.get(&key, clock::moment()) {
            return Ok(known);
        }
        let answer = self.ask(|reviewer| reviewer.token(token))?;
        self.tokens.put(key, answer.clone(), self.settings.token_ttl, clock::moment());
        Ok(answer)
    }

    /// Asks, unless too many wait for an answer already.
    fn ask<T>(&self, question: impl FnOnce(&dyn Reviewer) -> Result<T, String>) -> Result<T, String> {
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let answer = if before < WAITING {
            question(&*self.reviewer)
        } else {
            Err(format!("{WAITING} callers wait for the API server's word already"))
        };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        answer
    }

    fn may(&self, asks: &Asks<'_>) -> Result<bool, String> {
        let key = asks.key();
        if let Some(known) = self.rights.get(&key, clock::moment()) {
            return Ok(known);
        }
        let answer = self.ask(|reviewer| reviewer.access(asks))?;
        let ttl = if answer { self.settings.allowed_ttl } else { self.settings.denied_ttl };
        self.rights.put(key, answer, ttl, clock::moment());
        Ok(answer)
    }
}

/// Whoever is somebody belongs to all who are.
fn with_group(mut caller: Caller) -> Caller {
    const ALL: &str = "system:authenticated";
    let is_nobody = caller.name == "system:anonymous";
    if !is_nobody && !caller.groups.iter().any(|group| group == ALL || group == "system:unauthenticated") {
        caller.groups.push(ALL.to_owned());
    }
    caller
}

/// The token of an Authorization header.
fn bearer(head: &Head) -> Option<&str> {
    let mut words = head.header("authorization")?.trim().split(' ');
    let scheme = words.next()?;
    words.next().filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}
