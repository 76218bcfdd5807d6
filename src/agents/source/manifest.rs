//! From a decoded manifest to a pod of this node: defaults, identity, checks.
//!
//! Runs on the threads `src-file` and `src-http`; owns nothing, does no I/O. The order is fixed: the
//! uid comes from what the author wrote, so that a new default of a later version restarts nothing;
//! the checks see the pod as it will run. Never lets a pod through that the API would refuse.

use crate::api::labels;
use crate::api::v1::Pod;
use crate::core::{defaults, validate};
use crate::util::thread;

use super::elders::Known;
use super::identity::{self, Origin};

/// Makes a decoded pod one of this node. `previous` is the pod that the same place gave before: with
/// the same uid it keeps its time of first sight, else that is `now` (RFC 3339 text). `elder` answers, for
/// namespace, name and uid, under which other uid the node has this pod already.
///
/// # Errors
/// All that is wrong with it, each with the path of its field.
pub fn admit(
    mut pod: Pod,
    origin: &Origin<'_>,
    previous: Option<&Pod>,
    now: &str,
    elder: impl FnOnce(&str, &str, &str) -> Option<Known>,
) -> Result<Pod, Vec<String>> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    if name.is_empty() {
        let how = match pod.metadata.generate_name {
            Some(_) => "write one: there is no API server to make one from generateName",
            None => "a pod needs one",
        };
        return Err(vec![format!("metadata.name: {how}")]);
    }
    let own = identity::uid(&pod, origin).map_err(|error| vec![error])?;
    let is_given = pod.metadata.uid.as_ref().is_some_and(|uid| !uid.is_empty());
    let namespace = pod.metadata.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
    let full_name = identity::full_name(name, origin.node_name);
    let elder = if is_given { None } else { elder(namespace, &full_name, &own) };
    let (uid, now) = elder.as_ref().map_or((own.as_str(), now), |elder| (&elder.uid, &elder.seen));
    let seen = previous.filter(|previous| previous.metadata.uid.as_deref() == Some(uid)).and_then(first_seen);
    defaults::fill_defaults(&mut pod);
    identity::apply(&mut pod, origin, uid, seen.unwrap_or(now));
    let problems = validate::validate(&pod).into_iter().chain(validate::api_references(&pod));
    let problems: Vec<String> = problems.map(|problem| problem.to_string()).collect();
    if problems.is_empty() { Ok(pod) } else { Err(problems) }
}

fn first_seen(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(labels::CONFIG_SEEN).map(String::as_str)
}

/// Runs `read` so that a panic over one manifest costs that manifest only.
///
/// # Errors
/// What `read` says, or that it panicked.
pub fn guarded<T>(read: impl FnOnce() -> Result<T, Vec<String>>) -> Result<T, Vec<String>> {
    thread::catch(read)
        .unwrap_or_else(|panic| Err(vec![format!("ferrolet stumbled over this manifest, please report it: {panic}")]))
}

/// The present time as the mark of first sight has it.
pub fn now_text() -> String {
    jiff::Timestamp::now().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg::SourceKind;
    use serde_json::{Value, json};

    const ORIGIN: Origin<'static> = Origin { kind: SourceKind::File, place: "/m/a.yaml", node_name: "node" };

    fn admitted(value: Value, previous: Option<&Pod>, now: &str) -> Result<Pod, Vec<String>> {
        admit(serde_json::from_value(value).expect("a pod"), &ORIGIN, previous, now, |_, _, _| None)
    }

    #[test]
    fn a_pod_that_runs_under_another_uid_keeps_it_with_its_first_sight() {
        let elder = |namespace: &str, name: &str, own: &str| {
            assert_eq!((namespace, name, own.len()), ("default", "web-node", 32));
            Some(Known { uid: "elder".to_owned(), seen: "2025-01-01T00:00:00Z".to_owned() })
        };
        let pod = |value| serde_json::from_value(value).expect("a pod");
        let kept = admit(pod(web("a")), &ORIGIN, None, "2026-01-01T00:00:00Z", elder).expect("a pod");
        assert_eq!((kept.metadata.uid.as_deref(), first_seen(&kept)), (Some("elder"), Some("2025-01-01T00:00:00Z")));
        let annotations = kept.metadata.annotations.as_ref().expect("annotations");
        assert_eq!(annotations[labels::CONFIG_HASH], "elder");
        let mut given = web("a");
        given["metadata"]["uid"] = "mine".into();
        let given = admit(pod(given), &ORIGIN, None, "t", elder).expect("a pod");
        assert_eq!(given.metadata.uid.as_deref(), Some("mine"), "its author's word counts");
    }

    fn web(image: &str) -> Value {
        json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": image}]}})
    }

    #[test]
    fn an_unchanged_pod_keeps_its_first_sight() {
        let first = admitted(web("a"), None, "2026-01-01T00:00:00Z").expect("a pod");
        let again = admitted(web("a"), Some(&first), "2027-01-01T00:00:00Z").expect("a pod");
        assert_eq!(first, again);
        let edited = admitted(web("b"), Some(&first), "2027-01-01T00:00:00Z").expect("a pod");
        assert_ne!(edited.metadata.uid, first.metadata.uid);
        assert_eq!(first_seen(&edited), Some("2027-01-01T00:00:00Z"));
    }

    #[test]
    fn a_nameless_pod_is_refused() {
        for (metadata, expect) in [
            (json!({}), "metadata.name: a pod needs one"),
            (
                json!({"generateName": "web-"}),
                "metadata.name: write one: there is no API server to make one from generateName",
            ),
        ] {
            let result = admitted(json!({"metadata": metadata, "spec": {"containers": []}}), None, "t");
            assert_eq!(result, Err(vec![expect.to_owned()]));
        }
    }

    #[test]
    fn a_panic_costs_one_manifest() {
        let result = guarded(|| -> Result<(), Vec<String>> { panic!("oh") });
        assert!(result.expect_err("a panic")[0].starts_with("ferrolet stumbled over this manifest"));
    }
}
