//! Service account tokens: got for a pod, kept while they are good, renewed in time.
//!
//! Got on the worker's thread; due times are looked at by the thread `objects`. Age is counted by the
//! clock that runs on in suspend and that nobody sets, from the lifetime that the server gave: no
//! wall clock decides. Nothing here shows a token.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};

use crate::api::PodUid;
use crate::api::moment::Moment;
use crate::kube::{ApiClient, Call, Method, paths};
use crate::util::clock;
use crate::util::jitter::up_to;
use crate::util::json;
use crate::volumes::objects::{Token, TokenWanted};

/// No token is used longer, however long it would be good.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Renewals are spread over this time.
const SPREAD: Duration = Duration::from_secs(10);
/// After a renewal that failed.
const TRY_AGAIN: Duration = Duration::from_secs(30);

struct Held {
    token: Token,
    /// From when on it is renewed for whoever asks.
    renew_at: Moment,
    /// When the pod has to be told to ask.
    tell_at: Moment,
    /// When it is good no longer.
    ends_at: Moment,
}

/// The tokens of all pods.
#[derive(Default)]
pub(super) struct Tokens {
    held: BTreeMap<TokenWanted, Held>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("held", &self.held.len()).finish()
    }
}

impl Tokens {
    /// A token that needs no renewal yet.
    fn fresh(&self, wanted: &TokenWanted, now: Moment) -> Option<Token> {
        self.held.get(wanted).filter(|held| now < held.renew_at).map(|held| held.token.clone())
    }

    fn put(&mut self, wanted: &TokenWanted, token: Token, life: Duration, now: Moment, spread: Duration) {
        let renew_at = now + renew_after(life, spread);
        self.held.insert(wanted.clone(), Held { token, renew_at, tell_at: renew_at, ends_at: now + life });
    }

    /// After a renewal that failed: the token at hand if it is still good.
    fn keep(&mut self, wanted: &TokenWanted, now: Moment) -> Option<Token> {
        let held = self.held.get_mut(wanted)?;
        (held.renew_at, held.tell_at) = (now + TRY_AGAIN, now + TRY_AGAIN);
        (now < held.ends_at).then(|| held.token.clone())
    }

    /// Drops the tokens of a pod.
    pub(super) fn forget(&mut self, pod: &PodUid) {
        self.held.retain(|wanted, _| wanted.pod != *pod);
    }

    /// When the next pod has to be told.
    pub(super) fn next(&self) -> Option<Moment> {
        self.held.values().map(|held| held.tell_at).min()
    }

    /// The pods whose tokens have to be renewed now; named again a little later, should nobody have done it.
    pub(super) fn due(&mut self, now: Moment) -> Vec<PodUid> {
        let mut pods = Vec::new();
        for (wanted, held) in self.held.iter_mut().filter(|(_, held)| held.tell_at <= now) {
            held.tell_at = now + TRY_AGAIN;
            if !pods.contains(&wanted.pod) {
                pods.push(wanted.pod.clone());
            }
        }
        pods
    }
}

/// After how much of its life a token is renewed: four fifths, a little earlier by chance, and a day at most.
fn renew_after(life: Duration, spread: Duration) -> Duration {
    (life * 4 / 5).min(LONGEST).saturating_sub(spread.min(life / 10))
}

/// A token, from those at hand or from the API server.
///
/// # Errors
/// In plain words.
pub(super) fn get(
    client: &ApiClient,
    tokens: &Mutex<Tokens>,
    wanted: &TokenWanted,
    limit: Duration,
) -> Result<Token, String> {
    let lock = || tokens.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(token) = lock().fresh(wanted, clock::moment()) {
        return Ok(token);
    }
    // Counted from before the question, so that the token is never taken for younger than it is.
    let asked_at = clock::moment();
    match request(client, wanted, limit) {
        Ok((token, life)) => {
            lock().put(wanted, token.clone(), life, asked_at, up_to(SPREAD));
            Ok(token)
        }
        Err(why) => match lock().keep(wanted, clock::moment()) {
            Some(token) => {
                log::warn!("the token of service account {}/{} stays in use: {why}", wanted.namespace, wanted.account);
                Ok(token)
            }
            None => Err(format!("failed to fetch token: {why}")),
        },
    }
}

fn request(client: &ApiClient, wanted: &TokenWanted, limit: Duration) -> Result<(Token, Duration), String> {
    let ask = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: (!wanted.audience.is_empty()).then(|| vec![wanted.audience.clone()]),
            expiration_seconds: wanted.seconds,
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(wanted.pod_name.clone()),
                uid: Some(wanted.pod.to_string()),
            }),
        }),
        ..TokenRequest::default()
    };
    let path = paths::service_account_token(&wanted.namespace, &wanted.account);
    let call = Call::new(Method::Post, path).within(limit).with_json(&ask).map_err(|e| e.to_string())?;
    let answer = client.call(&call).map_err(|e| e.to_string())?;
    // The parser's words may hold a piece of the token.
    let answer: TokenRequest =
        json::from_slice(&answer.body).map_err(|_| "the API server's answer is no TokenRequest".to_owned())?;
    let token = answer.status.and_then(|status| status.token).filter(|token| !token.is_empty());
    let token = token.ok_or("the API server's answer holds no token")?;
    // The server may give another lifetime than was asked for.
    let life = answer.spec.and_then(|spec| spec.expiration_seconds);
    let life = life.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(3600);
    Ok((Token(token), Duration::from_secs(life)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn wanted(pod: &str, audience: &str) -> TokenWanted {
        TokenWanted {
            pod: pod.into(),
            namespace: "n".into(),
            pod_name: "p".into(),
            account: "default".into(),
            audience: audience.into(),
            seconds: Some(3600),
        }
    }

    #[test]
    fn tokens_are_renewed_after_four_fifths_of_their_life() {
        for (life, spread, expect) in [
            (3600, 0, 2880),
            (3600, 10, 2870),
            (600, 10, 470),
            (60, 10, 42),
            (0, 10, 0),
            (7 * 24 * 3600, 10, 24 * 3600 - 10),
        ] {
            let got = renew_after(Duration::from_secs(life), Duration::from_secs(spread));
            assert_eq!(got.as_secs(), expect, "{life} {spread}");
        }
    }

    #[test]
    fn a_token_is_kept_until_it_ends_if_none_newer_can_be_had() {
        let mut tokens = Tokens::default();
        let (a, b) = (wanted("a", ""), wanted("b", "x"));
        tokens.put(&a, Token("1".into()), Duration::from_secs(1000), at(0), Duration::ZERO);
        tokens.put(&b, Token("2".into()), Duration::from_secs(2000), at(0), Duration::ZERO);
        assert_eq!(tokens.fresh(&a, at(799)), Some(Token("1".into())));
        assert_eq!(tokens.next(), Some(at(800)));
        assert_eq!((tokens.fresh(&a, at(800)), tokens.due(at(800))), (None, vec!["a".into()]));
        assert_eq!((tokens.due(at(829)), tokens.due(at(830))), (vec![], vec!["a".into()]));
        assert_eq!(tokens.keep(&a, at(800)), Some(Token("1".into())));
        assert_eq!(tokens.next(), Some(at(830)), "tried again a little later");
        assert_eq!(tokens.keep(&a, at(1000)), None);
        assert_eq!(tokens.keep(&wanted("a", "other"), at(0)), None);
        tokens.forget(&"a".into());
        assert_eq!(tokens.next(), Some(at(1600)));
        assert!(!format!("{tokens:?}").contains('2'));
    }
}
