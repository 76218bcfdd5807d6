//! Which instance of a container a request for its log means, and why there is none.
//!
//! Pure; on the threads of the connections. It goes by the pod's status, as the kubelet does, and uses its words.

use crate::api::v1::{ContainerStatus, PodStatus};
use crate::server::words::Refused;

/// The id of the instance, as the status has it (`containerd://…`).
///
/// # Errors
/// 400: none has a log yet, or there was none before; says what the container does instead.
pub fn container_id<'a>(status: &'a PodStatus, pod: &str, container: &str, previous: bool) -> Result<&'a str, Refused> {
    let refused = |text: String| Err(Refused::new(400, text));
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let Some(found) = lists.into_iter().flatten().flatten().find(|status| status.name == container) else {
        return refused(format!("container {container:?} in pod {pod:?} is not available"));
    };
    let before = ended(found.last_state.as_ref());
    if previous {
        return match before {
            Some(Some(id)) => Ok(id),
            _ => refused(format!("previous terminated container {container:?} in pod {pod:?} not found")),
        };
    }
    let state = found.state.as_ref();
    if state.is_some_and(|state| state.running.is_some()) {
        return match id_of(found) {
            Some(id) => Ok(id),
            None => refused(format!("container {container:?} in pod {pod:?} is waiting to start - no logs yet")),
        };
    }
    let now = ended(state);
    // One that could not be started again: the log of the one before is the newest there is.
    if let Some(id) = now.flatten().or(before.flatten()) {
        return Ok(id);
    }
    if now.is_some() || before.is_some() {
        return refused(format!("container {container:?} in pod {pod:?} is terminated"));
    }
    let reason = state.and_then(|state| state.waiting.as_ref()).map(|waiting| waiting.reason.as_deref());
    let why = match reason {
        Some(Some("ErrImagePull")) => ": image can't be pulled",
        Some(Some("ImagePullBackOff")) => ": trying and failing to pull image",
        Some(reason) => &format!(": {}", reason.unwrap_or_default()),
        None => " - no logs yet",
    };
    refused(format!("container {container:?} in pod {pod:?} is waiting to start{why}"))
}

fn id_of(status: &ContainerStatus) -> Option<&str> {
    status.container_id.as_deref().filter(|id| !id.is_empty())
}

/// The id of the instance whose end a state tells; the inner `None` is for one without an id.
fn ended(state: Option<&crate::api::v1::ContainerState>) -> Option<Option<&str>> {
    let end = state?.terminated.as_ref()?;
    Some(end.container_id.as_deref().filter(|id| !id.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(status: Value, previous: bool, expect: Result<&str, &str>) {
        let status: PodStatus = serde_json::from_value(status).unwrap();
        let got = container_id(&status, "p", "c", previous).map_err(|refused| {
            assert_eq!(refused.status, 400);
            refused.text
        });
        assert_eq!(got, expect.map_err(str::to_owned));
    }

    fn of(state: Value, last: Value) -> Value {
        let status = json!({"name": "c", "containerID": "x://now", "state": state, "lastState": last, "image": "",
            "imageID": "", "ready": false, "restartCount": 0});
        json!({"containerStatuses": [status]})
    }

    fn end(id: &str) -> Value {
        json!({"terminated": {"exitCode": 0, "containerID": id}})
    }

    #[test]
    fn the_instance_is_the_kubelets_choice() {
        check(of(json!({"running": {}}), end("x://old")), false, Ok("x://now"));
        check(of(json!({"running": {}}), end("x://old")), true, Ok("x://old"));
        check(of(end("x://now"), json!({})), false, Ok("x://now"));
        check(of(end(""), end("x://old")), false, Ok("x://old"));
        check(of(json!({"waiting": {"reason": "CrashLoopBackOff"}}), end("x://old")), false, Ok("x://old"));
        check(of(json!({"waiting": {"reason": "CrashLoopBackOff"}}), end("x://old")), true, Ok("x://old"));
        let init = json!({"initContainerStatuses": of(json!({"running": {}}), json!({}))["containerStatuses"]});
        check(init, false, Ok("x://now"));
    }

    #[test]
    fn there_is_a_word_for_each_reason_why_not() {
        let waits = |reason: &str| of(json!({"waiting": {"reason": reason}}), json!({}));
        let starts = r#"container "c" in pod "p" is waiting to start"#;
        check(json!({}), false, Err(r#"container "c" in pod "p" is not available"#));
        check(waits("ContainerCreating"), false, Err(&format!("{starts}: ContainerCreating")));
        check(waits("ErrImagePull"), false, Err(&format!("{starts}: image can't be pulled")));
        check(waits("ImagePullBackOff"), false, Err(&format!("{starts}: trying and failing to pull image")));
        check(of(json!({}), json!({})), false, Err(&format!("{starts} - no logs yet")));
        check(of(end(""), json!({})), false, Err(r#"container "c" in pod "p" is terminated"#));
        check(
            of(json!({"running": {}}), json!({})),
            true,
            Err(r#"previous terminated container "c" in pod "p" not found"#),
        );
    }
}
