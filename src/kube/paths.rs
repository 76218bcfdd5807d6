//! Paths of API objects, and what of a text may stand in a URL.
//!
//! Called on every thread that speaks to the API server; pure. A name is escaped, so that no object's
//! name leads to another path.

use std::fmt::Write;

/// Escapes a text for one segment of a path or a value of a query: everything but letters, digits, `-`, `.`, `_`, `~`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ok = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// `?a=b&c=d`, or nothing.
pub(super) fn query<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        out.push(if out.is_empty() { '?' } else { '&' });
        out.push_str(&escape(name));
        out.push('=');
        out.push_str(&escape(value));
    }
    out
}

/// An object of the core group in a namespace: `plural` is `pods`, `configmaps` …
pub fn core(namespace: &str, plural: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{}/{plural}/{}", escape(namespace), escape(name))
}

/// All objects of a kind of the core group in a namespace; also where one is created.
pub fn core_list(namespace: &str, plural: &str) -> String {
    format!("/api/v1/namespaces/{}/{plural}", escape(namespace))
}

/// All pods of the cluster; choose with `fieldSelector`.
pub const ALL_PODS: &str = "/api/v1/pods";

/// All services of the cluster.
pub const ALL_SERVICES: &str = "/api/v1/services";

/// All nodes; also where one is created.
pub const NODES: &str = "/api/v1/nodes";

/// All certificate signing requests; also where one is created.
pub const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// All runtime classes.
pub const RUNTIME_CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

/// Where tokens are reviewed.
pub const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Where it is asked whether somebody may do something.
pub const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The pods of a namespace; where a mirror pod is created.
pub fn pods(namespace: &str) -> String {
    core_list(namespace, "pods")
}

/// One pod.
pub fn pod(namespace: &str, name: &str) -> String {
    core(namespace, "pods", name)
}

/// The status of one pod.
pub fn pod_status(namespace: &str, name: &str) -> String {
    format!("{}/status", pod(namespace, name))
}

/// One node.
pub fn node(name: &str) -> String {
    format!("{NODES}/{}", escape(name))
}

/// The status of one node.
pub fn node_status(name: &str) -> String {
    format!("{NODES}/{}/status", escape(name))
}

/// All leases of a namespace; where one is created.
pub fn leases(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", escape(namespace))
}

/// One lease.
pub fn lease(namespace: &str, name: &str) -> String {
    format!("{}/{}", leases(namespace), escape(name))
}

/// The events of a namespace; where one is created.
pub fn events(namespace: &str) -> String {
    core_list(namespace, "events")
}

/// One event.
pub fn event(namespace: &str, name: &str) -> String {
    core(namespace, "events", name)
}

/// One secret.
pub fn secret(namespace: &str, name: &str) -> String {
    core(namespace, "secrets", name)
}

/// One configMap.
pub fn config_map(namespace: &str, name: &str) -> String {
    core(namespace, "configmaps", name)
}

/// Where a token of a service account is asked for.
pub fn service_account_token(namespace: &str, name: &str) -> String {
    format!("{}/token", core(namespace, "serviceaccounts", name))
}

/// One certificate signing request.
pub fn csr(name: &str) -> String {
    format!("{CSRS}/{}", escape(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        for (path, expect) in [
            (pod("default", "web-1"), "/api/v1/namespaces/default/pods/web-1"),
            (pod("a/b", "../x?y#z"), "/api/v1/namespaces/a%2Fb/pods/..%2Fx%3Fy%23z"),
            (pod_status("n", "p"), "/api/v1/namespaces/n/pods/p/status"),
            (node_status("node.1"), "/api/v1/nodes/node.1/status"),
            (lease("kube-node-lease", "n"), "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n"),
            (service_account_token("n", "default"), "/api/v1/namespaces/n/serviceaccounts/default/token"),
            (csr("node-csr-ab_C"), "/apis/certificates.k8s.io/v1/certificatesigningrequests/node-csr-ab_C"),
        ] {
            assert_eq!(path, expect);
        }
        let pairs = [("fieldSelector", "spec.nodeName=a b"), ("watch", "true")];
        assert_eq!(query(pairs.into_iter()), "?fieldSelector=spec.nodeName%3Da%20b&watch=true");
        assert_eq!(query([].into_iter()), "");
    }
}
