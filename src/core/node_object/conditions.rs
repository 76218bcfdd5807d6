//! The node's conditions in upstream's words: MemoryPressure, DiskPressure, PIDPressure and, always last, Ready.
//!
//! Layer L1, pure. Conditions of others stay as they are. A condition's transition time moves only with
//! its status.

use crate::api::meta::Time;
use crate::api::pressure::Pressures;
use crate::api::runtime::UnixNanos;
use crate::api::v1::NodeCondition;

/// A condition as it shall be: type, status, reason, message.
type Wanted = (&'static str, bool, &'static str, String);

/// Sets the node's own four conditions. `trouble` is why the node is not ready; empty when it is. Returns
/// the reasons of events that are due: `NodeReady`, `NodeHasDiskPressure`, …
pub fn set(
    conditions: &mut Vec<NodeCondition>,
    pressures: Pressures,
    trouble: &[String],
    wall: UnixNanos,
) -> Vec<&'static str> {
    let now = super::time(wall);
    let mut news = Vec::new();
    let pick = |holds: bool, yes: &'static str, no: &'static str| if holds { yes } else { no };
    let memory: Wanted = (
        "MemoryPressure",
        pressures.memory,
        pick(pressures.memory, "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"),
        format!("kubelet has {} memory available", pick(pressures.memory, "insufficient", "sufficient")),
    );
    let disk: Wanted = (
        "DiskPressure",
        pressures.disk,
        pick(pressures.disk, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure"),
        format!("kubelet has {}disk pressure", pick(pressures.disk, "", "no ")),
    );
    let pid: Wanted = (
        "PIDPressure",
        pressures.pid,
        pick(pressures.pid, "KubeletHasInsufficientPID", "KubeletHasSufficientPID"),
        format!("kubelet has {} PID available", pick(pressures.pid, "insufficient", "sufficient")),
    );
    for wanted in [memory, disk, pid] {
        let event = match wanted.2 {
            "KubeletHasInsufficientMemory" => "NodeHasInsufficientMemory",
            "KubeletHasSufficientMemory" => "NodeHasSufficientMemory",
            "KubeletHasDiskPressure" => "NodeHasDiskPressure",
            "KubeletHasNoDiskPressure" => "NodeHasNoDiskPressure",
            "KubeletHasInsufficientPID" => "NodeHasInsufficientPID",
            _ => "NodeHasSufficientPID",
        };
        if put(conditions, wanted, &now) != Transition::None {
            news.push(event);
        }
    }
    let ready = trouble.is_empty();
    let message = match trouble {
        [] => "kubelet is posting ready status".to_owned(),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let wanted = ("Ready", ready, pick(ready, "KubeletReady", "KubeletNotReady"), message);
    match put(conditions, wanted, &now) {
        Transition::None => {}
        // A node that starts is not ready for a moment; that is no news.
        Transition::First if !ready => {}
        Transition::First | Transition::Changed => news.push(pick(ready, "NodeReady", "NodeNotReady")),
    }
    news
}

/// What happened to a condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transition {
    None,
    First,
    Changed,
}

fn put(conditions: &mut Vec<NodeCondition>, (type_, holds, reason, message): Wanted, now: &Time) -> Transition {
    let mut new = NodeCondition {
        type_: type_.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    };
    let Some(old) = conditions.iter_mut().find(|condition| condition.type_ == type_) else {
        conditions.push(new);
        return Transition::First;
    };
    let same = old.status == new.status;
    if same && old.last_transition_time.is_some() {
        new.last_transition_time = old.last_transition_time.take();
    }
    *old = new;
    if same { Transition::None } else { Transition::Changed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: UnixNanos = 1_000_000_000;

    fn story(conditions: &[NodeCondition]) -> Vec<String> {
        let seconds = |time: &Option<Time>| time.as_ref().map_or(0, |time| time.0.as_second());
        let line = |c: &NodeCondition| {
            format!(
                "{}={} {} since {} at {}: {}",
                c.type_,
                c.status,
                c.reason.as_deref().unwrap_or(""),
                seconds(&c.last_transition_time),
                seconds(&c.last_heartbeat_time),
                c.message.as_deref().unwrap_or("")
            )
        };
        conditions.iter().map(line).collect()
    }

    #[test]
    fn a_new_node_tells_all_four_with_ready_last() {
        let mut conditions = Vec::new();
        let news = set(&mut conditions, Pressures::default(), &[], 5 * SECOND);
        assert_eq!(
            story(&conditions),
            [
                "MemoryPressure=False KubeletHasSufficientMemory since 5 at 5: kubelet has sufficient memory available",
                "DiskPressure=False KubeletHasNoDiskPressure since 5 at 5: kubelet has no disk pressure",
                "PIDPressure=False KubeletHasSufficientPID since 5 at 5: kubelet has sufficient PID available",
                "Ready=True KubeletReady since 5 at 5: kubelet is posting ready status",
            ]
        );
        assert_eq!(news, ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"]);
        let news = set(&mut Vec::new(), Pressures::default(), &["not yet".to_owned()], 5 * SECOND);
        assert_eq!(news.last(), Some(&"NodeHasSufficientPID"));
    }

    #[test]
    fn transition_times_move_with_the_status_only() {
        let mut conditions = Vec::new();
        set(&mut conditions, Pressures::default(), &[], 5 * SECOND);
        let other = NodeCondition { type_: "NetworkUnavailable".into(), status: "False".into(), ..Default::default() };
        conditions.insert(1, other.clone());
        assert_eq!(set(&mut conditions, Pressures::default(), &[], 6 * SECOND), [""; 0]);
        let pressed = Pressures { memory: true, disk: true, pid: true };
        let trouble = ["container runtime is down".to_owned(), "b".to_owned()];
        let news = set(&mut conditions, pressed, &trouble, 7 * SECOND);
        assert_eq!(
            news,
            ["NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasInsufficientPID", "NodeNotReady"]
        );
        assert_eq!(conditions[1], other, "others' conditions stay");
        conditions.remove(1);
        assert_eq!(
            story(&conditions),
            [
                "MemoryPressure=True KubeletHasInsufficientMemory since 7 at 7: kubelet has insufficient memory available",
                "DiskPressure=True KubeletHasDiskPressure since 7 at 7: kubelet has disk pressure",
                "PIDPressure=True KubeletHasInsufficientPID since 7 at 7: kubelet has insufficient PID available",
                "Ready=False KubeletNotReady since 7 at 7: [container runtime is down, b]",
            ]
        );
        let news = set(&mut conditions, Pressures::default(), &trouble[..1], 8 * SECOND);
        assert_eq!(news, ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]);
        assert_eq!(story(&conditions)[3], "Ready=False KubeletNotReady since 7 at 8: container runtime is down");
    }

    #[test]
    fn a_node_that_the_controller_gave_up_becomes_ready_again() {
        let unknown = NodeCondition { type_: "Ready".into(), status: "Unknown".into(), ..Default::default() };
        let mut conditions = vec![unknown];
        let news = set(&mut conditions, Pressures::default(), &[], 9 * SECOND);
        assert!(news.contains(&"NodeReady"), "{news:?}");
        assert_eq!(conditions[0].status, "True");
    }
}
