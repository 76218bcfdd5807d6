//! Questions to the API server: whose token is this (TokenReview), may they (SubjectAccessReview)?
//!
//! On the threads that serve requests, which wait for the answer; connections of their own, a bounded number, so that no question
//! waits for anything else. It remembers nothing.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::http::Caller;
use super::attributes::Asks;
use crate::kube::{ApiClient, Call, ContentType, Method};

/// Time for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Questions at a time.
const AT_ONCE: usize = 8;

/// Who knows about tokens and rights.
pub trait Reviewer: Send + Sync + fmt::Debug {
    /// Whose token this is; `None` if it is nobody's.
    ///
    /// # Errors
    /// Nobody can be asked: a sentence for people.
    fn token(&self, token: &str) -> Result<Option<Caller>, String>;

    /// Whether they may.
    ///
    /// # Errors
    /// As [`Reviewer::token`].
    fn access(&self, asks: &Asks<'_>) -> Result<bool, String>;
}

/// The API server; `None` where the node has none.
#[derive(Debug)]
pub struct ApiReviewer(Option<ApiClient>);

impl ApiReviewer {
    /// Asks the API server of this client, on connections of its own.
    pub fn new(client: Option<&ApiClient>) -> Self {
        Self(client.map(|client| client.separate_for(AT_ONCE)))
    }

    fn ask(&self, path: &str, review: &Value) -> Result<Value, String> {
        let Some(client) = &self.0 else {
            return Err("this node has no API server to ask".to_owned());
        };
        let mut call = Call::new(Method::Post, path).within(LIMIT);
        call.body = Some((ContentType::Json, review.to_string().into_bytes()));
        // The error names what was asked, and never holds what was sent.
        let answer = client.call(&call).map_err(|error| format!("the API server could not be asked: {error}"))?;
        let mut answer: Value =
            serde_json::from_slice(&answer.body).map_err(|_| "the API server's answer makes no sense".to_owned())?;
        Ok(answer.get_mut("status").map(Value::take).unwrap_or_default())
    }
}

impl Reviewer for ApiReviewer {
    fn token(&self, token: &str) -> Result<Option<Caller>, String> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        });
        read_token_status(&self.ask("/apis/authentication.k8s.io/v1/tokenreviews", &review)?)
    }

    fn access(&self, asks: &Asks<'_>) -> Result<bool, String> {
        let status = self.ask("/apis/authorization.k8s.io/v1/subjectaccessreviews", &access_review(asks))?;
        let says = |field: &str| status.get(field).and_then(Value::as_bool).unwrap_or(false);
        Ok(says("allowed") && !says("denied"))
    }
}

fn access_review(asks: &Asks<'_>) -> Value {
    let Caller { name, uid, groups, extra } = asks.caller;
    let mut spec = json!({
        "user": name,
        "groups": groups,
        "resourceAttributes": {
            "verb": asks.verb,
            "version": "v1",
            "resource": "nodes",
            "subresource": asks.subresource,
            "name": asks.node,
        },
    });
    if !uid.is_empty() {
        spec["uid"] = json!(uid);
    }
    if !extra.is_empty() {
        spec["extra"] = extra.iter().map(|(name, values)| (name.clone(), json!(values))).collect();
    }
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
}

fn read_token_status(status: &Value) -> Result<Option<Caller>, String> {
    if status.get("authenticated").and_then(Value::as_bool) != Some(true) {
        return match status.get("error").and_then(Value::as_str).filter(|error| !error.is_empty()) {
            // Upstream keeps no error in mind either; the words may hold what was asked.
            Some(error) => {
                log::debug!("a token was not taken: {error}");
                Err("the API server does not take the token".to_owned())
            }
            None => Ok(None),
        };
    }
    let user = &status["user"];
    let text = |field: &str| user.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let name = text("username");
    if name.is_empty() {
        return Err("the API server names nobody".to_owned());
    }
    let extra = user.get("extra").and_then(Value::as_object).into_iter().flatten();
    let extra = extra.map(|(name, values)| (name.clone(), texts(values))).collect();
    Ok(Some(Caller { name, uid: text("uid"), groups: texts(&user["groups"]), extra }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_about_tokens_are_read() {
        let check = |status: Value, expect: Result<Option<&str>, ()>| {
            let got = read_token_status(&status);
            let got = got.as_ref().map(|caller| caller.as_ref().map(|caller| caller.name.as_str())).map_err(|_| ());
            assert_eq!(got, expect, "{status}");
        };
        check(json!({"authenticated": true, "user": {"username": "jane"}}), Ok(Some("jane")));
        check(json!({"authenticated": false}), Ok(None));
        check(json!({}), Ok(None));
        check(Value::Null, Ok(None));
        check(json!({"authenticated": "yes", "user": {"username": "jane"}}), Ok(None));
        check(json!({"error": "bad token"}), Err(()));
        check(json!({"authenticated": true}), Err(()));
        let whole = json!({"authenticated": true, "user": {
            "username": "system:serviceaccount:a:b", "uid": "u", "groups": ["x", "y"],
            "extra": {"authentication.kubernetes.io/pod-name": ["p"]},
        }});
        let caller = read_token_status(&whole).expect("known").expect("named");
        assert_eq!((caller.uid.as_str(), caller.groups.len(), caller.extra[0].1[0].as_str()), ("u", 2, "p"));
    }

    #[test]
    fn questions_about_rights_name_the_node_and_the_caller() {
        let caller = Caller { name: "jane".to_owned(), groups: vec!["g".to_owned()], ..Caller::default() };
        let asks = Asks { caller: &caller, node: "n1", verb: "get", subresource: "metrics" };
        let expect = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": "jane", "groups": ["g"], "resourceAttributes": {
                "verb": "get", "version": "v1", "resource": "nodes", "subresource": "metrics", "name": "n1",
            }},
        });
        assert_eq!(access_review(&asks), expect);
        let caller =
            Caller { uid: "u".to_owned(), extra: vec![("k".to_owned(), vec!["v".to_owned()])], ..caller.clone() };
        let review = access_review(&Asks { caller: &caller, ..asks });
        assert_eq!((&review["spec"]["uid"], &review["spec"]["extra"]), (&json!("u"), &json!({"k": ["v"]})));
    }

    #[test]
    fn a_node_without_an_api_server_lets_nobody_in() {
        let reviewer = ApiReviewer::new(None);
        assert!(reviewer.token("t").is_err());
        let asks = Asks { caller: &Caller::anonymous(), node: "n", verb: "get", subresource: "pods" };
        assert!(reviewer.access(&asks).is_err());
    }
}
