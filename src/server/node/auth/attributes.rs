//! What a request asks a right for: verb and subresource of the node, by its method and path.
//!
//! Pure. The path is the decoded one that the endpoint is found by.

use sha2::{Digest as _, Sha256};

use super::super::http::Caller;
use super::super::http::head::Method;

/// The paths with a subresource of their own; the second word tells whether `nodes/proxy` is good for it as well.
const FINE: &[(&str, &str, bool)] = &[
    ("/pods", "pods", true),
    ("/healthz", "healthz", true),
    ("/configz", "configz", true),
    ("/runningpods", "pods", true),
    ("/stats", "stats", false),
    ("/metrics", "metrics", false),
    ("/logs", "log", false),
    ("/checkpoint", "checkpoint", false),
    ("/statusz", "statusz", false),
    ("/flagz", "configz", false),
];

/// The subresources of `nodes` of which one is enough, in the order in which they are asked for.
pub(super) fn subresources(path: &str) -> Vec<&'static str> {
    let is_below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match FINE.iter().find(|(root, _, _)| is_below(root)) {
        Some((_, name, true)) => vec![name, "proxy"],
        Some((_, name, false)) => vec![name],
        None => vec!["proxy"],
    }
}

/// The verb; empty for methods that have none.
pub fn verb(method: Method) -> &'static str {
    match method {
        Method::Post => "create",
        Method::Get => "get",
        Method::Put => "update",
        Method::Patch => "patch",
        Method::Delete => "delete",
        Method::Head | Method::Options | Method::Other => "",
    }
}

/// A question about a right.
#[derive(Clone, Copy, Debug)]
pub struct Asks<'a> {
    /// Who.
    pub caller: &'a Caller,
    /// Which node.
    pub node: &'a str,
    /// What.
    pub verb: &'a str,
    /// On which part of it.
    pub subresource: &'a str,
}

impl Asks<'_> {
    /// Two questions with the same key are the same.
    pub(super) fn key(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update(text.len().to_le_bytes());
            digest.update(text.as_bytes());
        };
        let Caller { name, uid, groups, extra } = self.caller;
        for text in [name, uid, self.node, self.verb, self.subresource] {
            add(text);
        }
        add(&groups.len().to_string());
        groups.iter().for_each(|group| add(group));
        for (name, values) in extra {
            add(name);
            add(&values.len().to_string());
            values.iter().for_each(|value| add(value));
        }
        digest.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_their_subresources() {
        for (path, expect) in [
            ("/pods", "pods proxy"),
            ("/pods/", "pods proxy"),
            ("/podsx", "proxy"),
            ("/runningpods/", "pods proxy"),
            ("/runningpods", "pods proxy"),
            ("/healthz", "healthz proxy"),
            ("/healthz/ping", "healthz proxy"),
            ("/configz", "configz proxy"),
            ("/flagz", "configz"),
            ("/statusz", "statusz"),
            ("/stats/summary", "stats"),
            ("/stats", "stats"),
            ("/metrics", "metrics"),
            ("/metrics/cadvisor", "metrics"),
            ("/metricsx", "proxy"),
            ("/logs/", "log"),
            ("/logs/a/b", "log"),
            ("/checkpoint/a/b/c", "checkpoint"),
            ("/exec/a/b/c", "proxy"),
            ("/containerLogs/a/b/c", "proxy"),
            ("/debug/flags/v", "proxy"),
            ("/", "proxy"),
        ] {
            assert_eq!(subresources(path).join(" "), expect, "{path}");
        }
    }

    #[test]
    fn different_questions_have_different_keys() {
        let caller = |name: &str, groups: &[&str]| Caller {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Caller::default()
        };
        let key = |caller: &Caller, verb: &str, subresource: &str| Asks { caller, node: "n", verb, subresource }.key();
        let (a, b) = (caller("a", &["x", "y"]), caller("a", &["xy"]));
        assert_eq!(key(&a, "get", "pods"), key(&a.clone(), "get", "pods"));
        assert_ne!(key(&a, "get", "pods"), key(&b, "get", "pods"));
        assert_ne!(key(&a, "get", "pods"), key(&a, "get", "proxy"));
        assert_ne!(key(&a, "get", "pods"), key(&a, "", "getpods"));
    }
}
