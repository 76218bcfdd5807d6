//! What a pod asks for and this version does not do, though the pod runs: told to people, never left out in silence.
//!
//! Layer L1, pure. What a pod cannot do without is refused elsewhere ([`SpecError::Unsupported`](super::SpecError),
//! `volumes`); whoever builds one of these things takes its line out here.

use crate::api::pod;
use crate::api::v1::{Container, Pod, Volume};

/// One sentence for each thing in the pod's spec that is not kept to.
pub fn unkept(pod: &Pod) -> Vec<String> {
    let volumes = pod::spec(pod).and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut told: Vec<String> = volumes.iter().filter_map(of_volume).collect();
    for (_, container) in pod::all_containers(pod) {
        told.extend(of_container(&container));
    }
    told
}

fn of_volume(volume: &Volume) -> Option<String> {
    let source = volume.empty_dir.as_ref()?;
    let limit = source.size_limit.as_ref()?;
    let on_disk = source.medium.as_deref().unwrap_or_default().is_empty();
    on_disk.then(|| {
        let (name, limit) = (&volume.name, &limit.0);
        format!("emptyDir volume {name}: sizeLimit {limit} is not enforced on disk by this version, it may grow larger")
    })
}

fn of_container(container: &Container) -> Vec<String> {
    let name = &container.name;
    let mut told = Vec::new();
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    if let Some(limit) = limits.and_then(|limits| limits.get("ephemeral-storage")) {
        let limit = &limit.0;
        told.push(format!(
            "container {name}: its limit of ephemeral-storage, {limit}, is not enforced by this version"
        ));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    fn check(spec: Value, expect: Expect) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        expect.assert_eq(&unkept(&pod).join("\n"));
    }

    #[test]
    fn what_is_not_kept_is_told_and_nothing_else() {
        check(
            json!({
                "volumes": [
                    {"name": "disk", "emptyDir": {"sizeLimit": "1Gi"}},
                    {"name": "ram", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                    {"name": "free", "emptyDir": {}},
                    {"name": "host", "hostPath": {"path": "/"}},
                ],
                "initContainers": [{"name": "init", "resources": {"limits": {"ephemeral-storage": "2Gi"}}}],
                "containers": [
                    {"name": "app", "resources": {"limits": {"cpu": "1"}}},
                    {"name": "side", "resources": {"requests": {"ephemeral-storage": "1Gi"}}},
                ],
            }),
            expect![[r#"
                emptyDir volume disk: sizeLimit 1Gi is not enforced on disk by this version, it may grow larger
                container init: its limit of ephemeral-storage, 2Gi, is not enforced by this version"#]],
        );
        check(json!({"containers": [{"name": "app"}]}), expect![""]);
    }
}
