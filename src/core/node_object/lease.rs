//! The node's lease: by its renewal the cluster knows that the node lives.
//!
//! Layer L1, pure. The controller that watches leases only looks whether `renewTime` has moved forward. So it
//! never goes back, even where the wall clock does: a node whose clock was a year ahead and is put right
//! would else count as dead for a year.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::meta::{MicroTime, ObjectMeta, OwnerReference};
use crate::api::runtime::UnixNanos;

/// Where the leases of nodes are.
pub const NAMESPACE: &str = "kube-node-lease";

/// A lease as it shall be sent: `base` renewed, or a new one.
pub fn renewed(base: Option<&Lease>, node: &str, uid: Option<&str>, lasts_seconds: i32, wall: UnixNanos) -> Lease {
    let mut lease = base.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec { holder_identity: Some(node.to_owned()), ..LeaseSpec::default() }),
    });
    // What the server noted about writers is its own, and only lengthens the request.
    lease.metadata.managed_fields = None;
    let spec = lease.spec.get_or_insert_default();
    spec.lease_duration_seconds = Some(lasts_seconds);
    let now = Timestamp::from_nanosecond(i128::from(wall)).unwrap_or(Timestamp::UNIX_EPOCH);
    let after_the_last = spec.renew_time.as_ref().and_then(|last| {
        let step = SignedDuration::from_micros(1);
        last.0.checked_add(step).ok()
    });
    spec.renew_time = Some(MicroTime(after_the_last.map_or(now, |least| least.max(now))));
    if let Some(uid) = uid {
        let owned = lease.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
        if !owned {
            lease.metadata.owner_references = Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node.to_owned(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }]);
        }
    }
    lease
}

/// How often a lease of this length is renewed: four times in its life.
pub fn renew_interval(lasts_seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(lasts_seconds).unwrap_or(0)).max(Duration::from_secs(1)) / 4
}

/// How long to wait after so many failures in a row, at most seven seconds.
pub fn retry_after(failures: u32) -> Duration {
    let millis = 200_u64.saturating_mul(1 << failures.saturating_sub(1).min(10));
    Duration::from_millis(millis.min(7000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: UnixNanos = 1_000_000_000;

    fn micros(lease: &Lease) -> i64 {
        let spec = lease.spec.as_ref().unwrap();
        spec.renew_time.as_ref().unwrap().0.as_microsecond()
    }

    #[test]
    fn a_new_lease_names_holder_length_and_owner() {
        let lease = renewed(None, "n1", Some("u"), 40, 5 * SECOND + 1500);
        let json = serde_json::to_value(&lease).unwrap();
        let expect = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": "n1", "namespace": "kube-node-lease",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}],
            },
            "spec": {
                "holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "1970-01-01T00:00:05.000001Z",
            },
        });
        assert_eq!(json, expect);
    }

    #[test]
    fn the_renewal_time_never_goes_back() {
        let year = 365 * 24 * 3600 * SECOND;
        let first = renewed(None, "n1", None, 40, 2 * year);
        let back = renewed(Some(&first), "n1", Some("u"), 20, year);
        assert_eq!(micros(&back), micros(&first) + 1);
        assert_eq!(back.spec.as_ref().unwrap().lease_duration_seconds, Some(20));
        let again = renewed(Some(&back), "n1", Some("u"), 20, year + SECOND);
        assert_eq!(micros(&again), micros(&first) + 2);
        let forward = renewed(Some(&again), "n1", Some("u"), 20, 3 * year);
        assert_eq!(micros(&forward), 3 * year / 1000);
        assert_eq!(forward.metadata.owner_references.map(|owners| owners.len()), Some(1));
    }

    #[test]
    fn retries_are_quick_and_bounded() {
        let waits: Vec<u64> = [1, 2, 3, 5, 6, 7, 99].map(|n| u64::try_from(retry_after(n).as_millis()).unwrap()).into();
        assert_eq!(waits, [200, 400, 800, 3200, 6400, 7000, 7000]);
        assert_eq!(renew_interval(40), Duration::from_secs(10));
        assert_eq!(renew_interval(1), Duration::from_millis(250));
        assert_eq!(renew_interval(-5), Duration::from_millis(250));
    }
}
