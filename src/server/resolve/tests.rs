//! Tests of how pods and containers are found.

use super::samples::{container, pod};
use super::*;
use crate::api::runtime::{Exit, RuntimePod};
use crate::api::v1::{Container, Pod, PodSpec};
use expect_test::{Expect, expect};

fn node(pods: Vec<PodView>) -> NodeView {
    let pods = pods.into_iter().map(|pod| (pod.uid.clone(), Arc::new(pod))).collect();
    NodeView { pods, ..NodeView::default() }
}

fn check(word: &str, expect: Expect) {
    let view = node(vec![
        pod("aa11", "default", "web-edge", "Active"),
        pod("aa22", "default", "web2-edge", "Active"),
        pod("bb33", "kube-system", "proxy-edge", "Active"),
        pod("cc44", "monitoring", "proxy-edge", "Active"),
        pod("dd55", "default", "db-edge", "Terminating"),
        pod("dd66", "default", "db-edge", "Queued"),
        pod("ee77", "default", "old-edge", "Terminating"),
        pod("ee88", "default", "old-edge", "Ended"),
    ]);
    let found = match find_pod(&view, word) {
        Ok(pod) => pod.uid.to_string(),
        Err(failure) => format!("{:?}: {}", failure.kind, failure.message),
    };
    expect.assert_eq(&found);
}

#[test]
fn pods() {
    check("web-edge", expect!["aa11"]);
    check("pod/web-edge", expect!["aa11"]);
    check("default/web-edge", expect!["aa11"]);
    check("aa22", expect!["aa22"]);
    check("bb", expect!["bb33"]);
    check("web2", expect!["aa22"]);
    check("kube-system/pro", expect!["bb33"]);
    check(
        "web",
        expect![[r#"Ambiguous: "web" may be any of: default/web-edge (uid aa11), default/web2-edge (uid aa22)"#]],
    );
    check(
        "proxy-edge",
        expect![[
            r#"Ambiguous: "proxy-edge" may be any of: kube-system/proxy-edge (uid bb33), monitoring/proxy-edge (uid cc44)"#
        ]],
    );
    check("db-edge", expect!["dd66"]);
    check("db", expect!["dd66"]);
    check(
        "old",
        expect![[r#"Ambiguous: "old" may be any of: default/old-edge (uid ee77), default/old-edge (uid ee88)"#]],
    );
    check(
        "nope",
        expect![[r#"NotFound: no pod is called "nope" or starts like it; `ferrolet ps` lists the 8 there are"#]],
    );
    check("", expect!["BadRequest: no pod was named"]);
}

#[test]
fn many_candidates_are_cut() {
    let view = node((0..40).map(|n| pod(&format!("u{n}"), "default", &format!("web-{n}"), "Active")).collect());
    let failure = find_pod(&view, "web").expect_err("many");
    assert!(failure.message.ends_with("and 30 more"), "{}", failure.message);
}

fn check_container(word: &str, annotation: Option<&str>, expect: Expect) {
    let spec = |name: &str| Container { name: name.to_owned(), ..Container::default() };
    let mut desired = Pod {
        spec: Some(PodSpec { containers: vec![spec("app"), spec("side")], ..PodSpec::default() }),
        ..Pod::default()
    };
    desired.metadata.annotations =
        annotation.map(|name| [(DEFAULT_CONTAINER.to_owned(), name.to_owned())].into_iter().collect());
    let running = ContainerState::Running { started_at: 1 };
    let exited = ContainerState::Exited(Exit { code: 3, ..Exit::default() });
    let view = PodView {
        pod: Some(Arc::new(desired)),
        runtime: Some(Arc::new(RuntimePod {
            containers: vec![
                container("app", 0, exited.clone()),
                container("app", 1, running.clone()),
                container("side", 0, running),
                container("side", 1, exited),
                container("left-over", 0, ContainerState::Created),
            ],
            ..RuntimePod::default()
        })),
        ..pod("aa11", "default", "web", "Active")
    };
    let found = container_name(&view, word).and_then(|name| running_container(&view, &name));
    expect.assert_eq(&match found {
        Ok(id) => id.to_string(),
        Err(failure) => format!("{:?}: {}", failure.kind, failure.message),
    });
}

#[test]
fn containers() {
    check_container("", None, expect!["app-1"]);
    check_container("app", Some("side"), expect!["app-1"]);
    check_container("", Some("nope"), expect!["app-1"]);
    check_container(
        "",
        Some("side"),
        expect!["NotRunning: container side of pod web has ended with exit code 3; pod: waits for the image"],
    );
    check_container(
        "left-over",
        None,
        expect!["NotRunning: container left-over of pod web was made and not started yet; pod: waits for the image"],
    );
    check_container("db", None, expect![[r#"NotFound: pod web has no container "db"; it has app, side, left-over"#]]);
}
