//! The line that `kubectl get pods` shows.

use super::*;

/// `ready | status | restarts | last restart`.
fn line(scene: &Scene) -> String {
    let s = summary(&scene.outcome().status, &scene.pod);
    let last = s.last_restart.map_or("never".to_owned(), |t| t.0.as_second().to_string());
    format!("{} {} {} {last}", s.ready, s.status, s.restarts)
}

const READY: &str = "sandbox 0 ready 10.0.0.1\n";

#[test]
fn app_containers_in_a_line() {
    for (policy, seen, waits, expect) in [
        ("Always", "", "", "0/2 ContainerCreating 0 never"),
        ("Always", "a 0 running\nb 0 running", "", "2/2 Running 0 never"),
        ("Always", "a 0 running", "", "1/2 ContainerCreating 0 never"),
        ("Always", "a 0 running", "b", "1/2 ErrImagePull 0 never"),
        ("Always", "a 0 exit 0\na 1 running\nb 0 running", "", "2/2 Running 1 102"),
        ("Always", "a 0 exit 0\na 1 exit 0\nb 0 exit 1\nb 1 running", "", "1/2 NotReady 2 102"),
        ("Never", "a 0 exit 0\nb 0 running", "", "1/2 NotReady 0 never"),
        ("Never", "a 0 exit 0\nb 0 exit 0", "", "0/2 Completed 0 never"),
        ("Never", "a 0 exit 0\nb 0 exit 3", "", "0/2 Error 0 never"),
        ("Never", "a 0 exit 3\nb 0 exit 0", "", "0/2 Error 0 never"),
        ("Always", "a 0 exit 1\nb 0 running", "a", "1/2 ErrImagePull 0 never"),
    ] {
        let s = scene(json!({"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]}));
        let mut s = s.see(&(READY.to_owned() + seen));
        if !waits.is_empty() {
            s = s.waits(waits, "ErrImagePull");
        }
        assert_eq!(line(&s), expect, "{policy} {seen} {waits}");
    }
}

#[test]
fn init_containers_in_a_line() {
    for (policy, seen, waits, expect) in [
        ("Always", "", "", "0/2 Init:0/3 0 never"),
        ("Always", "i 0 running", "", "0/2 Init:0/3 0 never"),
        ("Always", "", "i", "0/2 Init:ErrImagePull 0 never"),
        ("Always", "i 0 exit 1", "", "0/2 Init:Error 0 never"),
        ("Always", "i 0 exit 1\ni 1 running", "", "0/2 Init:0/3 1 102"),
        ("Always", "i 0 exit 0\ns 0 running", "", "1/2 Init:2/3 0 never"),
        ("Always", "i 0 exit 0\ns 0 running\nj 0 exit 0", "", "1/2 PodInitializing 0 never"),
        ("Always", "i 0 exit 0\ns 0 running\nj 0 exit 0\nc 0 running", "", "2/2 Running 0 never"),
        ("Always", "i 0 exit 0\ns 0 exit 1\ns 1 running\nj 0 exit 0\nc 0 running", "", "2/2 Running 1 102"),
        ("Always", "i 0 exit 1\ni 1 exit 0\ns 0 running\nj 0 exit 0\nc 0 running", "", "2/2 Running 0 never"),
        ("Never", "i 0 exit 7", "", "0/2 Init:Error 0 never"),
    ] {
        let s = scene(json!({"restartPolicy": policy, "containers": [{"name": "c"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}, {"name": "j"}]}));
        let mut s = s.see(&(READY.to_owned() + seen));
        if !waits.is_empty() {
            s = s.waits(waits, "ErrImagePull");
        }
        assert_eq!(line(&s), expect, "{policy} {seen} {waits}");
    }
}

#[test]
fn a_pod_on_its_way_out() {
    let mut s = scene(json!({"containers": [{"name": "c"}]})).see("sandbox 0 ready 10.0.0.1\nc 0 running").told();
    s.pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert_eq!(line(&s), "1/1 Terminating 0 never");
    assert_eq!(line(&s.clone().see("c 0 exit 0").stage(Stage::Terminated)), "0/1 Completed 0 never");
    s.pod.metadata.deletion_timestamp = None;
    s.ending = Some(Ending::deadline_exceeded());
    assert_eq!(line(&s.see("c 0 exit 0").stage(Stage::Terminated)), "0/1 Completed 0 never");
    let mut rejected = scene(json!({"containers": [{"name": "c"}]}));
    rejected.rejection = Some(Reason { reason: "OutOfcpu".into(), message: String::new() });
    assert_eq!(line(&rejected), "0/1 OutOfcpu 0 never");
}

#[test]
fn an_empty_status_has_a_line_too() {
    let s = summary(&PodStatus::default(), &Pod::default());
    assert_eq!((s.ready.as_str(), s.status.as_str(), s.restarts), ("0/0", "Unknown", 0));
}
