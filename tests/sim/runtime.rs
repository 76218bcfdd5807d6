//! The model runtime: sandboxes and containers as plain state, and the rules that nobody may ever break.
//!
//! It does what containerd does, one call at a time, and writes a broken rule down instead of refusing
//! it, so that the run that led to it can be told.

use std::collections::{BTreeMap, BTreeSet};

use ferrolet::api::labels::{HASH, Marks, RESTART_COUNT, container_hash};
use ferrolet::api::pod::{
    ContainerKind, RestartPolicy, container_restart_policy, find_container, init_containers, is_host_network,
    is_sidecar, pod_name, pod_uid,
};
use ferrolet::api::runtime::{ContainerState, Exit, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxState};
use ferrolet::api::v1::Pod;
use ferrolet::api::{ContainerId, PodUid, SandboxId};
use ferrolet::core::status::{RestartAll, restarts_all};
use ferrolet::msg::Reason;

/// The runtime and the folders of pods.
#[derive(Default)]
pub(super) struct Runtime {
    pub(super) pods: BTreeMap<PodUid, RuntimePod>,
    /// Pods that have folders, volumes or a cgroup.
    pub(super) folders: BTreeSet<PodUid>,
    /// Rules that were broken.
    pub(super) broken: Vec<String>,
    /// Attempts used by the containers of a pod since it was last forgotten.
    used: BTreeMap<(PodUid, String), u32>,
    /// Highest sandbox attempt likewise.
    used_sandboxes: BTreeMap<PodUid, u32>,
    /// Containers that ended and by their policy never start again.
    over: BTreeSet<(PodUid, String)>,
    /// Sandboxes in which an app container was made, so that their init containers are past.
    began: BTreeSet<SandboxId>,
    /// Init containers that were seen to end well in a sandbox, whatever was removed since.
    passed: BTreeSet<(SandboxId, String)>,
    /// Containers that were there and were removed by hand, maybe after the agent saw them run.
    had: BTreeSet<(SandboxId, String)>,
    /// Pods of which a container ended upon which all restart, with the attempts that are past then.
    pub(super) asked: BTreeMap<PodUid, BTreeMap<String, u32>>,
    /// How containers ended, whatever was removed since.
    pub(super) codes: BTreeMap<ContainerId, i32>,
    next_id: u64,
}

fn failed(word: &str, message: &str) -> Reason {
    Reason { reason: word.to_owned(), message: message.to_owned() }
}

pub(super) fn lives(container: &RuntimeContainer) -> bool {
    container.state.may_run()
}

impl Runtime {
    fn break_rule(&mut self, what: String) {
        self.broken.push(what);
    }

    fn id(&mut self, prefix: &str) -> String {
        self.next_id += 1;
        format!("{prefix}-{}", self.next_id)
    }

    /// Whatever a pod of this uid has; gone when it has nothing.
    fn tidy(&mut self, uid: &PodUid) {
        if self.pods.get(uid).is_some_and(|p| p.sandboxes.is_empty() && p.containers.is_empty()) {
            self.pods.remove(uid);
        }
    }

    pub(super) fn run_sandbox(
        &mut self,
        pod: &Pod,
        attempt: u32,
        now: i64,
    ) -> Result<(SandboxId, Vec<String>), Reason> {
        let (uid, name) = (pod_uid(pod), pod_name(pod));
        let mine = self.pods.get(&uid);
        if mine.is_some_and(|p| p.sandboxes.iter().any(|s| s.attempt == attempt)) {
            return Err(failed("CreatePodSandboxError", "the name is reserved for another sandbox"));
        }
        if mine.is_some_and(|p| p.sandboxes.iter().any(|s| s.state == SandboxState::Ready)) {
            self.break_rule(format!("{uid}: a second ready sandbox"));
        }
        if self.used_sandboxes.get(&uid).is_some_and(|used| *used >= attempt) {
            self.break_rule(format!("{uid}: sandbox attempt {attempt} for the second time"));
        }
        self.used_sandboxes.insert(uid.clone(), attempt);
        let elder = self
            .pods
            .iter()
            .find(|(other, p)| **other != uid && p.name == name.name && p.namespace == name.namespace && !at_rest(p));
        if let Some((elder, _)) = elder {
            let what = format!("{uid}: runs beside {elder}, which has the same name");
            self.break_rule(what);
        }
        if !self.folders.contains(&uid) {
            self.break_rule(format!("{uid}: a sandbox before the pod was prepared"));
        }
        let id = SandboxId::from(self.id("sandbox").as_str());
        let host_network = is_host_network(pod);
        let ips = if host_network { Vec::new() } else { vec![format!("10.0.0.{}", self.next_id % 250)] };
        let entry = self.pods.entry(uid.clone()).or_default();
        (entry.uid, entry.name, entry.namespace) = (Some(uid), name.name, name.namespace);
        entry.sandboxes.insert(
            0,
            RuntimeSandbox {
                id: id.clone(),
                attempt,
                state: SandboxState::Ready,
                created_at: now,
                ips: ips.clone(),
                host_network,
                runtime_handler: String::new(),
            },
        );
        Ok((id, ips))
    }

    pub(super) fn create(
        &mut self,
        pod: &Pod,
        name: &str,
        attempt: u32,
        sandbox: &SandboxId,
        now: i64,
    ) -> Result<ContainerId, Reason> {
        let uid = pod_uid(pod);
        let Some((kind, container)) = find_container(pod, name) else {
            self.break_rule(format!("{uid}: starts {name}, which the pod does not have"));
            return Err(failed("CreateContainerError", "no such container"));
        };
        let Some(mine) = self.pods.get(&uid).filter(|p| p.sandboxes.iter().any(|s| s.id == *sandbox)) else {
            return Err(failed("CreateContainerError", "no such sandbox"));
        };
        if mine.containers.iter().any(|c| c.name == name && c.attempt == attempt) {
            return Err(failed("CreateContainerError", "the name is reserved for another container"));
        }
        let broken = self.rules_of_start(pod, kind, name, attempt, sandbox);
        self.broken.extend(broken);
        self.used.insert((uid.clone(), name.to_owned()), attempt);
        if kind == ContainerKind::App {
            self.began.insert(sandbox.clone());
        }
        let image = container.image.clone().unwrap_or_default();
        let annotations = BTreeMap::from([
            (HASH.to_owned(), container_hash(name, &image)),
            (RESTART_COUNT.to_owned(), attempt.to_string()),
        ]);
        let id = ContainerId::from(self.id(name).as_str());
        let entry = self.pods.entry(uid).or_default();
        entry.containers.insert(
            0,
            RuntimeContainer {
                id: id.clone(),
                sandbox_id: sandbox.clone(),
                name: name.to_owned(),
                attempt,
                state: ContainerState::Created,
                created_at: now,
                image: image.clone(),
                image_id: image.clone(),
                image_ref: image,
                log_path: String::new(),
                marks: Marks::read(&annotations),
                mounts: Vec::new(),
                user: None,
                resources: None,
                stop_signal: String::new(),
            },
        );
        Ok(id)
    }

    /// The rules that a start has to keep.
    fn rules_of_start(
        &self,
        pod: &Pod,
        kind: ContainerKind,
        name: &str,
        attempt: u32,
        sandbox: &SandboxId,
    ) -> Vec<String> {
        let uid = pod_uid(pod);
        let key = (uid.clone(), name.to_owned());
        let mut broken = Vec::new();
        let Some(mine) = self.pods.get(&uid) else { return broken };
        if let Some(other) = mine.containers.iter().find(|c| c.name == name && lives(c)) {
            broken.push(format!("{uid}: starts {name} while {} may run", other.id));
        }
        if self.used.get(&key).is_some_and(|used| *used >= attempt) {
            broken.push(format!("{uid}: attempt {attempt} of {name} for the second time"));
        }
        if self.over.contains(&key) {
            broken.push(format!("{uid}: starts {name} again against its restart policy"));
        }
        let here = |name: &str| {
            let found = mine.containers.iter().filter(|c| c.name == name && c.sandbox_id == *sandbox);
            found.collect::<Vec<_>>()
        };
        if self.began.contains(sandbox) {
            return broken;
        }
        for earlier in init_containers(pod).iter().take_while(|c| c.name != name) {
            let passed = self.passed.contains(&(sandbox.clone(), earlier.name.clone()));
            let passed = passed
                || match is_sidecar(earlier) {
                    true => {
                        !here(&earlier.name).is_empty() || self.had.contains(&(sandbox.clone(), earlier.name.clone()))
                    }
                    false => {
                        here(&earlier.name).iter().any(|c| matches!(&c.state, ContainerState::Exited(e) if e.code == 0))
                    }
                };
            if !passed && kind != ContainerKind::Sidecar {
                broken.push(format!("{uid}: starts {name} before {} has done its part", earlier.name));
            }
        }
        broken
    }

    /// The container of that id with its pod.
    fn find(&mut self, id: &ContainerId) -> Option<(PodUid, &mut RuntimeContainer)> {
        self.pods
            .iter_mut()
            .find_map(|(uid, pod)| Some((uid.clone(), pod.containers.iter_mut().find(|c| c.id == *id)?)))
    }

    pub(super) fn start(&mut self, id: &ContainerId, now: i64) -> Result<(), Reason> {
        match self.find(id) {
            Some((_, c)) if c.state == ContainerState::Created => {
                c.state = ContainerState::Running { started_at: now };
                Ok(())
            }
            _ => Err(failed("RunContainerError", "it is not there to be started")),
        }
    }

    /// A container ends, by itself or because it is stopped.
    pub(super) fn exit(&mut self, id: &ContainerId, code: i32, now: i64) {
        if let Some((_, container)) = self.find(id)
            && lives(container)
        {
            let started_at = match container.state {
                ContainerState::Running { started_at } => started_at,
                _ => 0,
            };
            container.state = ContainerState::Exited(Exit { code, started_at, finished_at: now, ..Exit::default() });
            self.codes.insert(id.clone(), code);
        }
    }

    /// A container ends by itself; what its policy makes of that is written down.
    pub(super) fn exit_alone(&mut self, pod: &Pod, id: &ContainerId, code: i32, now: i64) {
        let uid = pod_uid(pod);
        let running = self.find(id).filter(|(_, c)| matches!(c.state, ContainerState::Running { .. }));
        let Some(name) = running.map(|(_, c)| c.name.clone()) else { return };
        let spec = find_container(pod, &name);
        if spec.as_ref().is_some_and(|(_, container)| restarts_all(container, code, RestartAll::InForce)) {
            let used = self.used.iter().filter(|((of, _), _)| *of == uid);
            let past = used.map(|((_, name), attempt)| (name.clone(), *attempt)).collect();
            self.asked.insert(uid.clone(), past);
            self.over.retain(|(of, _)| *of != uid);
        } else if let Some((kind, container)) = spec
            && kind == ContainerKind::App
            && match container_restart_policy(pod, kind, &container) {
                RestartPolicy::Always => false,
                RestartPolicy::OnFailure => code == 0,
                RestartPolicy::Never => true,
            }
        {
            self.over.insert((uid, name));
        }
        self.exit(id, code, now);
    }

    pub(super) fn lose_track(&mut self, id: &ContainerId) {
        if let Some((_, container)) = self.find(id)
            && matches!(container.state, ContainerState::Running { .. })
        {
            container.state = ContainerState::Unknown;
        }
    }

    /// A sandbox stops, and everything in it.
    pub(super) fn stop_sandbox(&mut self, id: &SandboxId, now: i64) {
        let mut inside = Vec::new();
        for pod in self.pods.values_mut() {
            if let Some(sandbox) = pod.sandboxes.iter_mut().find(|s| s.id == *id) {
                sandbox.state = SandboxState::NotReady;
                inside.extend(pod.containers.iter().filter(|c| c.sandbox_id == *id).map(|c| c.id.clone()));
            }
        }
        for container in inside {
            self.exit(&container, 137, now);
        }
    }

    /// A sandbox dies by itself; its containers live on for now.
    pub(super) fn kill_sandbox(&mut self, id: &SandboxId) {
        for sandbox in self.pods.values_mut().flat_map(|p| &mut p.sandboxes).filter(|s| s.id == *id) {
            sandbox.state = SandboxState::NotReady;
        }
    }

    pub(super) fn remove(&mut self, uid: &PodUid, id: &ContainerId) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let alive = pod.containers.iter().any(|c| c.id == *id && lives(c));
        let name = pod.containers.iter().find(|c| c.id == *id).map(|c| c.name.clone()).unwrap_or_default();
        pod.containers.retain(|c| c.id != *id);
        if self.asked.contains_key(uid) {
            // It runs again whatever it did, and so do the init containers once nothing is left.
            self.over.remove(&(uid.clone(), name));
            if pod.containers.is_empty() {
                for sandbox in &pod.sandboxes {
                    self.began.remove(&sandbox.id);
                    self.passed.retain(|(of, _)| *of != sandbox.id);
                }
            }
        }
        if alive {
            self.break_rule(format!("{uid}: removes {id}, which may run"));
        }
        self.tidy(uid);
    }

    /// Somebody removes a dead container by hand. What the agent's records don't know can't be held
    /// against it: `recorded` is the lowest attempt that they call unused, `ended` whether they know of its end.
    pub(super) fn remove_by_hand(&mut self, uid: &PodUid, id: &ContainerId, recorded: u32, ended: bool) {
        let Some((_, container)) = self.find(id) else { return };
        let ended_well = matches!(&container.state, ContainerState::Exited(exit) if exit.code == 0);
        let passed = (container.sandbox_id.clone(), container.name.clone());
        let key = (uid.clone(), container.name.clone());
        if container.attempt >= recorded {
            self.used.remove(&key);
        }
        if !ended {
            self.over.remove(&key);
        }
        self.had.insert(passed.clone());
        if ended_well {
            self.passed.insert(passed);
        }
        self.remove(uid, id);
    }

    pub(super) fn remove_sandbox(&mut self, uid: &PodUid, id: &SandboxId) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let ready = pod.sandboxes.iter().any(|s| s.id == *id && s.state == SandboxState::Ready);
        let alive = pod.containers.iter().any(|c| c.sandbox_id == *id && lives(c));
        pod.sandboxes.retain(|s| s.id != *id);
        pod.containers.retain(|c| c.sandbox_id != *id);
        if ready || alive {
            self.break_rule(format!("{uid}: removes {id}, which is in use"));
        }
        self.tidy(uid);
    }

    pub(super) fn release(&mut self, uid: &PodUid) {
        if self.pods.get(uid).is_some_and(|p| !at_rest(p)) {
            self.break_rule(format!("{uid}: takes volumes away from a pod that runs"));
        }
    }

    pub(super) fn forget(&mut self, uid: &PodUid) {
        if self.pods.contains_key(uid) {
            self.break_rule(format!("{uid}: forgets a pod that the runtime still has"));
        }
        self.folders.remove(uid);
        self.used.retain(|(of, _), _| of != uid);
        self.over.retain(|(of, _)| of != uid);
        self.used_sandboxes.remove(uid);
        self.asked.remove(uid);
    }

    /// The power went: nothing runs any more.
    pub(super) fn power_cut(&mut self, now: i64) {
        let sandboxes: Vec<SandboxId> = self.pods.values().flat_map(|p| &p.sandboxes).map(|s| s.id.clone()).collect();
        for id in sandboxes {
            self.stop_sandbox(&id, now);
        }
        let orphans: Vec<ContainerId> = self.pods.values().flat_map(|p| &p.containers).map(|c| c.id.clone()).collect();
        for id in orphans {
            self.exit(&id, 255, now);
        }
    }

    /// Everything, for the end of a transcript.
    pub(super) fn dump(&self) -> String {
        let mut out = String::new();
        for (uid, pod) in &self.pods {
            out.push_str(&format!("{uid}:"));
            for s in &pod.sandboxes {
                out.push_str(&format!(" [{} #{} {:?}]", s.id, s.attempt, s.state));
            }
            for c in &pod.containers {
                let state = match &c.state {
                    ContainerState::Created => "created".to_owned(),
                    ContainerState::Running { .. } => "running".to_owned(),
                    ContainerState::Exited(e) => format!("exited {}", e.code),
                    ContainerState::Unknown => "unknown".to_owned(),
                };
                out.push_str(&format!(" {} #{} in {} {state};", c.id, c.attempt, c.sandbox_id));
            }
            out.push('\n');
        }
        out
    }
}

/// Whether nothing of a pod runs.
pub(super) fn at_rest(pod: &RuntimePod) -> bool {
    pod.containers.iter().all(|c| !lives(c)) && pod.sandboxes.iter().all(|s| s.state == SandboxState::NotReady)
}
