//! The forms of names and values: labels, sysctls, CPU lists, networks, images. Pure; runs on the main thread. An error says what
//! would be right.

use crate::api::quantity::Amount;
use std::net::IpAddr;

const QUALIFIED: &str = "must be a name of at most 63 letters, digits, `-`, `_` and `.` that starts and ends with a letter or \
                         digit; a DNS name and a slash may stand in front";
const LABEL: &str =
    "must be empty, or at most 63 letters, digits, `-`, `_` and `.`, the first and last a letter or digit";

/// What a node may call its labels in the namespaces of Kubernetes.
pub(super) const NODE_LABEL_ADVICE: &str = "labels of kubernetes.io and k8s.io must start with kubelet.kubernetes.io/ or node.kubernetes.io/ (or a name that ends so), \
     or be one of the well-known ones such as topology.kubernetes.io/zone";

/// Labels of Kubernetes that a node may set on itself.
const NODE_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Sysctls that belong to a namespace of their own, without those below net. and fs.mqueue.
const IPC_SYSCTLS: [&str; 8] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
];

fn is_part(text: &str, max: usize, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= max
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || inner.contains(byte))
}

/// DNS labels in lower case with dots between, at most 253 letters.
pub(super) fn is_dns_subdomain(text: &str) -> bool {
    let label = |label: &str| is_part(label, 253, b"-") && !label.bytes().any(|byte| byte.is_ascii_uppercase());
    text.len() <= 253 && text.split('.').all(label)
}

/// A label or taint key.
pub(super) fn qualified_name(text: &str) -> Result<(), &'static str> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let right = prefix.is_none_or(is_dns_subdomain) && is_part(name, 63, b"-_.");
    if right { Ok(()) } else { Err(QUALIFIED) }
}

/// A label or taint value.
pub(super) fn label_value(text: &str) -> Result<(), &'static str> {
    if text.is_empty() || is_part(text, 63, b"-_.") { Ok(()) } else { Err(LABEL) }
}

/// Whether a node may set this label on itself.
pub(super) fn node_label_allowed(key: &str) -> bool {
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    let within =
        |domain: &str| namespace == domain || namespace.strip_suffix(domain).is_some_and(|front| front.ends_with('.'));
    let reserved = within("kubernetes.io") || within("k8s.io");
    !reserved || NODE_LABELS.contains(&key) || within("kubelet.kubernetes.io") || within("node.kubernetes.io")
}

/// A resource amount.
pub(super) fn amount(text: &str) -> Option<Amount> {
    Amount::parse(text).ok()
}

/// A name of an HTTP header.
pub(super) fn is_header_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A network as address/bits.
pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let (Ok(address), Ok(bits)) = (address.parse::<IpAddr>(), bits.parse::<u8>()) else { return false };
    bits <= if address.is_ipv4() { 32 } else { 128 }
}

/// A list of CPUs as the kernel writes it: `0-1,4`.
pub(super) fn is_cpu_set(text: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    text.split(',').all(|part| match part.split_once('-') {
        Some((first, last)) => matches!((number(first), number(last)), (Some(first), Some(last)) if first <= last),
        None => number(part).is_some(),
    })
}

/// A sysctl, or a group of them with a trailing `*`, that belongs to a namespace of its own.
pub(super) fn sysctl_pattern(text: &str) -> Result<(), &'static str> {
    let plain = text.replace('/', ".");
    let stem = plain.strip_suffix('*').unwrap_or(&plain);
    let segment = |part: &str| is_part(part, 253, b"-_") && !part.bytes().any(|byte| byte.is_ascii_uppercase());
    let body = if stem.len() < plain.len() { stem.trim_end_matches(['.', '-', '_']) } else { stem };
    let formed = text.len() <= 253 && (body.is_empty() && stem.len() < plain.len() || body.split('.').all(segment));
    if !formed {
        return Err("must be a sysctl such as net.core.somaxconn, or a group of them such as net.ipv4.*");
    }
    let namespaced = IPC_SYSCTLS.contains(&plain.as_str())
        || stem.len() < plain.len() && ["kernel.shm", "kernel.msg"].contains(&body)
        || ["net", "fs.mqueue"].iter().any(|group| body == *group || body.starts_with(&format!("{group}.")));
    let want =
        "is not known to belong to a pod alone: only net.*, fs.mqueue.*, kernel.shm*, kernel.msg* and kernel.sem do";
    if namespaced { Ok(()) } else { Err(want) }
}

/// An image without tag and digest, or all images below a path with a trailing `/*`.
pub(super) fn image_pattern(text: &str) -> Result<(), &'static str> {
    let want = "must be an image name without tag and digest, such as registry.example/team/app, or end with /*";
    let (stem, group) = match text.strip_suffix("/*") {
        Some(stem) => (stem, true),
        None => (text, false),
    };
    let odd = stem.is_empty() || stem.contains(|c: char| c.is_whitespace() || c == '*' || c == '@');
    let tagged = !group && stem.rsplit('/').next().is_some_and(|last| last.contains(':'));
    if odd || tagged { Err(want) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, test: impl Fn(&str) -> bool, right: &[&str], wrong: &[&str]) {
        for text in right {
            assert!(test(text), "{name}: {text:?} is right");
        }
        for text in wrong {
            assert!(!test(text), "{name}: {text:?} is wrong");
        }
    }

    #[test]
    fn forms_of_names() {
        check(
            "key",
            |text| qualified_name(text).is_ok(),
            &["a", "a-b_c.d", "example.com/x", "A/b".to_lowercase().as_str()],
            &["", "-a", "a-", "/a", "a/", "a/b/c", "A.b/c", "a b", &"x".repeat(64)],
        );
        check("label", |text| label_value(text).is_ok(), &["", "a", "A.b"], &["-", "a/b", &"x".repeat(64)]);
        check("dns", is_dns_subdomain, &["a", "a.b-c", "1"], &["", "a..b", "A", "a_b", "-a"]);
        check(
            "node label",
            node_label_allowed,
            &[
                "a",
                "example.com/b",
                "kubernetes.io/hostname",
                "node.kubernetes.io/x",
                "a.kubelet.kubernetes.io/x",
                "mykubernetes.io/a",
            ],
            &["kubernetes.io/x", "a.k8s.io/x", "node-role.kubernetes.io/x"],
        );
        check("header", is_header_name, &["Authorization", "X-A_b"], &["", "a b", "a:b", "ä"]);
        check("cidr", is_cidr, &["10.0.0.0/8", "fd00::/64"], &["10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/129", "/8"]);
        check("cpus", is_cpu_set, &["0", "0-1,4", "7-7"], &["", "1-0", "a", "1,", "-1", "0-", "+1"]);
        check(
            "sysctl",
            |text| sysctl_pattern(text).is_ok(),
            &[
                "net.core.somaxconn",
                "net.*",
                "net/ipv4/ip_forward",
                "kernel.shm*",
                "kernel.msg*",
                "kernel.sem",
                "fs.mqueue.*",
                "net.ipv4.conf.a-b.c",
            ],
            &[
                "",
                "*",
                "kernel.*",
                "kernel.pid_max",
                "Net.core",
                "net..x",
                "fs.file-max",
                "network.x",
                "kernel.shm",
                "net.*.x",
            ],
        );
        check(
            "image",
            |text| image_pattern(text).is_ok(),
            &["busybox", "registry:5000/a", "registry:5000/*", "a/b/*"],
            &["", "*", "/*", "a:1", "a@sha256:0", "a*", " a", "a/*/b"],
        );
    }
}
