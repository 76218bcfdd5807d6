//! A runtime that lies: about ids, names, states, labels. What it says is believed, since nobody else knows, but never so
//! far that the agent falls over, leaves its own folders or hurts a pod that it does not lie about.

use ferrolet::api::labels::{POD_NAME, POD_NAMESPACE, POD_UID};
use ferrolet::cri::proto;
use protobuf::{EnumOrUnknown, MessageField};

use crate::{
    agent::{SOON, ground, lives, put, run, start, wait_healthy, wait_running, wait_says, wait_unwell, wait_well},
    fakes::cri::FakeCri,
    harness::{Agent, wait},
};

type Containers = proto::ListContainersResponse;
type Sandboxes = proto::ListPodSandboxResponse;

/// Two pods run, the runtime lies about the first, then it tells the truth again: one container runs of each in the end,
/// the second pod never noticed.
fn a_liar(lie: impl FnOnce(&FakeCri, &Agent<'_>)) {
    let (fake, place) = ground();
    let agent = start(&place);
    for name in ["slandered", "other"] {
        run(&agent, name);
    }
    let other = lives(&fake, "other");
    lie(&fake, &agent);
    // The agent has looked, and looked again, at what it was told.
    wait_looks(&fake);
    put(&agent, "meanwhile");
    fake.tell_the_truth();
    wait_running(&agent, "meanwhile");
    wait::until("one life of the pod that was lied about", SOON, || {
        let all = lives(&fake, "slandered");
        let running = all.iter().filter(|line| line.ends_with("Running")).count();
        if running == 1 { Ok(()) } else { Err(format!("{all:?}")) }
    });
    wait_running(&agent, "slandered");
    wait_well(&agent);
    assert_eq!(lives(&fake, "other"), other, "nobody lied about the other pod");
}

/// Waits until the agent has listed everything three more times.
fn wait_looks(fake: &FakeCri) {
    fake.forget_calls();
    fake.wait_for("three looks", |state| state.called.iter().filter(|call| *call == "ListContainers").count() >= 3);
}

fn about(labels: &std::collections::BTreeMap<String, String>) -> bool {
    labels.get(POD_NAME).is_some_and(|name| name == "slandered-node")
}

/// Changes what is listed of the pod that is lied about.
fn lie_about(
    fake: &FakeCri,
    sandbox: impl Fn(&mut proto::PodSandbox) + Send + 'static,
    container: impl Fn(&mut proto::Container) + Send + 'static,
) {
    fake.lie("ListPodSandbox", move |answer: &mut Sandboxes| {
        answer.items.iter_mut().filter(|it| about(&it.labels)).for_each(&sandbox);
    });
    fake.lie("ListContainers", move |answer: &mut Containers| {
        answer.containers.iter_mut().filter(|it| about(&it.labels)).for_each(&container);
    });
}

#[test]
fn everything_listed_twice_is_there_once() {
    a_liar(|fake, agent| {
        let before = lives(fake, "slandered");
        fake.lie("ListPodSandbox", |answer: &mut Sandboxes| answer.items.extend(answer.items.clone()));
        fake.lie("ListContainers", |answer: &mut Containers| answer.containers.extend(answer.containers.clone()));
        wait_looks(fake);
        put(agent, "beside");
        wait_running(agent, "beside");
        assert_eq!(lives(fake, "slandered"), before, "a second mention is no second container");
    });
}

#[test]
fn one_id_in_two_states_at_once_confuses_nobody_for_long() {
    a_liar(|fake, _| {
        fake.lie("ListContainers", |answer: &mut Containers| {
            let mut twins: Vec<_> = answer.containers.iter().filter(|it| about(&it.labels)).cloned().collect();
            for twin in &mut twins {
                twin.state = EnumOrUnknown::new(proto::ContainerState::CONTAINER_EXITED);
            }
            answer.containers.extend(twins);
        });
    });
}

#[test]
fn names_that_are_missing_are_borne() {
    a_liar(|fake, _| {
        let nameless = |status: &mut proto::ContainerStatusResponse| {
            let status = status.status.mut_or_insert_default();
            if about(&status.labels) {
                status.metadata = MessageField::none();
            }
        };
        fake.lie("ContainerStatus", nameless);
        lie_about(fake, |it| it.metadata = MessageField::none(), |it| it.metadata = MessageField::none());
    });
}

#[test]
fn states_of_the_future_are_unknown_states() {
    a_liar(|fake, _| {
        lie_about(fake, |it| it.state = EnumOrUnknown::from_i32(77), |it| it.state = EnumOrUnknown::from_i32(-3))
    });
}

#[test]
fn labels_that_are_missing_make_a_stranger() {
    a_liar(|fake, _| lie_about(fake, |it| it.labels.clear(), |it| it.labels.clear()));
}

#[test]
fn a_container_of_a_sandbox_that_is_nowhere_is_borne() {
    a_liar(|fake, _| lie_about(fake, |_| (), |it| it.pod_sandbox_id = "nowhere".to_owned()));
}

#[test]
fn times_and_counts_beyond_all_bounds_are_borne() {
    a_liar(|fake, _| {
        fake.lie("ContainerStatus", |answer: &mut proto::ContainerStatusResponse| {
            let status = answer.status.mut_or_insert_default();
            if about(&status.labels) {
                status.created_at = i64::MIN;
                status.started_at = i64::MAX;
                status.finished_at = -1;
                status.exit_code = i32::MIN;
                status.log_path = "/proc/self/mem".to_owned();
                status.metadata.mut_or_insert_default().attempt = u32::MAX;
                status.state = EnumOrUnknown::new(proto::ContainerState::CONTAINER_EXITED);
            }
        });
        lie_about(
            fake,
            |it| it.created_at = i64::MAX,
            |it| {
                it.created_at = i64::MIN;
                it.state = EnumOrUnknown::new(proto::ContainerState::CONTAINER_EXITED);
            },
        );
    });
}

#[test]
fn an_object_without_an_id_makes_the_list_worthless() {
    a_liar(|fake, agent| {
        lie_about(fake, |_| (), |it| it.id.clear());
        wait_unwell(agent, "an object without an id");
        wait_says(agent, &["why"], "the answer is not valid CRI v1: an object without an id");
    });
}

/// Labels become paths: of folders that are made, and of folders that are removed.
#[test]
fn labels_that_lead_out_of_the_agents_folders_lead_nowhere() {
    let (fake, place) = ground();
    let agent = start(&place);
    run(&agent, "other");
    let other = lives(&fake, "other");
    let victims = ["kubelet/victim", "victim", "pod-logs-victim"].map(|name| place.folder.path().join(name));
    for victim in &victims {
        std::fs::create_dir_all(victim.join("inner")).expect("make a folder");
        std::fs::write(victim.join("inner/file"), "precious").expect("write a file");
    }
    let long = "u".repeat(5000);
    let uids = ["../victim", "../../victim", "..", ".", "/", "a/b", "nul\0byte", "new\nline", "\u{202e}", &long];
    for (number, uid) in uids.iter().enumerate() {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let labels =
            [label(POD_UID, uid), label(POD_NAME, "../../pod-logs-victim"), label(POD_NAMESPACE, "../kubelet")];
        let metadata = proto::PodSandboxMetadata {
            name: format!("liar-{number}"),
            uid: (*uid).to_owned(),
            namespace: "default".to_owned(),
            ..Default::default()
        };
        let config = proto::PodSandboxConfig {
            metadata: MessageField::some(metadata),
            labels: labels.into_iter().collect(),
            ..Default::default()
        };
        fake.with(|state| state.run_sandbox(config, "")).expect("a sandbox");
    }
    // Nobody wants these pods: the agent ends them all, and tells what it cannot clean up.
    fake.wait_for("their end", |state| {
        state.sandboxes.values().all(|it| !it.ready || it.config.metadata.get_or_default().name == "other-node")
    });
    run(&agent, "after");
    wait_looks(&fake);
    for victim in &victims {
        let text = std::fs::read_to_string(victim.join("inner/file"));
        assert_eq!(text.expect("a folder of somebody else is there"), "precious", "{}", victim.display());
    }
    assert_eq!(lives(&fake, "other"), other);
    wait_healthy(&agent);
}
