//! One work from its first step to its report, on a `pod-N` thread.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::prepare::Prepared;
use super::{Tools, admission_hook, network, prepare, resize, start, stop, user_namespace};
use crate::api::moment::Moment;
use crate::api::pod::has_user_namespace;
use crate::api::runtime::SandboxSpec;
use crate::core::node_object::runtime::NETWORK_NOT_READY;
use crate::core::spec::{SANDBOX_CONFIG_ERROR, SandboxInputs, UserNamespace, sandbox_spec, unkept};
use crate::cri::CriError;
use crate::msg::{
    EventType, FromWorker, OnFailure, PodEvent, PodWork, Reason, SandboxRef, Step, StepResult, WorkReport,
};
use crate::util::clock;
use crate::util::metrics::kubelet;

/// Carries out a plan, step by step.
pub(super) fn carry_out(tools: &Tools, work: &PodWork, to_loop: &Sender<FromWorker>) -> WorkReport {
    let mut run = Run {
        tools,
        work,
        to_loop,
        sandbox: work.sandbox.clone(),
        sandbox_spec: None,
        prepared: None,
        image_waits: BTreeMap::new(),
        pulled: Duration::ZERO,
    };
    let mut results = Vec::with_capacity(work.steps.len());
    let mut go_on = true;
    for planned in &work.steps {
        // What stops something is given up half-way only when it shall be stopped sooner.
        let is_overtaken = work.cancel.is_cancelled();
        let result = if !go_on || is_overtaken { StepResult::Skipped } else { run.step(&planned.step) };
        if let StepResult::Failed(reason) = &result {
            go_on = planned.on_failure == OnFailure::Continue;
            if !work.cancel.is_cancelled() {
                // A network that is missing is told of once, and every pod is tried again each second.
                let level = if reason.reason == NETWORK_NOT_READY { log::Level::Debug } else { log::Level::Warn };
                log::log!(level, "pod {}: {}: {}", work.name, reason.reason, reason.message);
            }
        }
        results.push((planned.step.clone(), result));
    }
    WorkReport { image_waits: run.image_waits, pulled: run.pulled, ..report(work, results) }
}

/// The report of a work that ends now.
pub(super) fn report(work: &PodWork, results: Vec<(Step, StepResult)>) -> WorkReport {
    WorkReport {
        id: work.id,
        uid: work.uid.clone(),
        finished_at: clock::moment(),
        results,
        image_waits: BTreeMap::new(),
        pulled: Duration::ZERO,
        cancelled: work.cancel.is_cancelled(),
    }
}

/// A work in progress.
pub(super) struct Run<'a> {
    pub(super) tools: &'a Tools,
    pub(super) work: &'a PodWork,
    pub(super) to_loop: &'a Sender<FromWorker>,
    /// The sandbox that containers go into.
    pub(super) sandbox: Option<SandboxRef>,
    /// What that sandbox was, or would be, made from.
    pub(super) sandbox_spec: Option<SandboxSpec>,
    /// Folders, cgroup and volumes, once they are known to be there.
    pub(super) prepared: Option<Prepared>,
    /// Containers whose image could not be had, with the moment when another try may pull it.
    pub(super) image_waits: BTreeMap<String, Moment>,
    /// Time that went into getting images.
    pub(super) pulled: Duration,
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> StepResult {
        let done = match step {
            Step::AskAdmissionHook => return admission_hook::ask(self),
            Step::PreparePod => {
                for sentence in unkept(&self.work.pod) {
                    self.event("", EventType::Warning, "NotEnforced", sentence);
                }
                self.prepare().map(drop)
            }
            Step::StopContainers { containers, grace } => stop::containers(self, containers, *grace),
            Step::StopSandbox(id) => {
                self.gone_is_fine(self.tools.client.stop_pod_sandbox(id, &self.work.cancel), "FailedKillPod")
            }
            Step::RunSandbox { attempt } => network::check(self).and_then(|()| self.run_sandbox(*attempt)),
            Step::StartContainer { kind, name, attempt, target } => {
                start::container(self, *kind, name, *attempt, target.as_ref())
            }
            Step::ResizeContainers(all) => resize::containers(self, all),
            Step::RemoveContainer { id, name, attempt } => self
                .gone_is_fine(self.tools.client.remove_container(id, &self.work.cancel), "FailedRemoveContainer")
                .map(|()| start::remove_logs(self, name, id, *attempt)),
            Step::RemoveSandbox(id) => {
                self.gone_is_fine(self.tools.client.remove_pod_sandbox(id, &self.work.cancel), "FailedRemovePodSandBox")
            }
            Step::ReleasePod => prepare::release(self),
            Step::ForgetPod => {
                self.tools.images.forget(&self.work.uid);
                prepare::forget(self)
            }
        };
        match done {
            Ok(()) => StepResult::Done,
            Err(reason) => StepResult::Failed(reason),
        }
    }

    /// Makes sure that folders, cgroup and volumes are there.
    pub(super) fn prepare(&mut self) -> Result<&Prepared, Reason> {
        if self.prepared.is_none() {
            let prepared = prepare::prepare(self)?;
            return Ok(self.prepared.insert(prepared));
        }
        self.prepared.as_ref().ok_or_else(|| reason("InternalError", "nothing was prepared"))
    }

    /// The config of the sandbox, as it was or will be made.
    pub(super) fn sandbox_spec(&mut self, attempt: u32) -> Result<SandboxSpec, Reason> {
        if let Some(spec) = &self.sandbox_spec {
            return Ok(spec.clone());
        }
        let resolv_conf = prepare::resolv_conf(self.tools)?;
        let user_namespace = self.user_namespace()?;
        let inputs = SandboxInputs {
            attempt,
            runtime_handler: runtime_handler(self.work),
            resolv_conf: resolv_conf.as_deref(),
            user_namespace: user_namespace.as_ref(),
        };
        let (spec, warnings) = sandbox_spec(&self.work.pod, &self.tools.facts, &inputs)
            .map_err(|error| reason(SANDBOX_CONFIG_ERROR, error.to_string()))?;
        for warning in warnings {
            self.event("", EventType::Warning, warning.reason, warning.message);
        }
        self.sandbox_spec = Some(spec.clone());
        Ok(spec)
    }

    /// The pod's own id ranges, if it asks for a user namespace.
    pub(super) fn user_namespace(&self) -> Result<Option<UserNamespace>, Reason> {
        if !has_user_namespace(&self.work.pod) {
            return Ok(None);
        }
        user_namespace::range_of(&self.tools.dirs, self.tools.id_ranges, &self.work.uid)
            .map(Some)
            .map_err(|text| reason(SANDBOX_CONFIG_ERROR, text))
    }

    fn run_sandbox(&mut self, attempt: u32) -> Result<(), Reason> {
        self.sandbox_spec = None;
        let has_users = has_user_namespace(&self.work.pod);
        let handler = runtime_handler(self.work);
        kubelet::STARTED_PODS.inc();
        kubelet::STARTED_USERNS_PODS.add(u64::from(has_users));
        let began = Instant::now();
        let made = self.sandbox_spec(attempt).and_then(|spec| {
            let client = &self.tools.client;
            let id = client.run_pod_sandbox(&spec, &self.work.cancel).map_err(|e| cri("CreatePodSandboxError", &e))?;
            let status = client.sandbox_status(&id, &self.work.cancel).map_err(|e| cri("CreatePodSandboxError", &e))?;
            Ok(SandboxRef { id, attempt, ips: status.sandbox.ips })
        });
        match made {
            Ok(sandbox) => {
                kubelet::RUN_SANDBOX.observe(&[handler], began.elapsed());
                self.sandbox = Some(sandbox);
                Ok(())
            }
            Err(why) => {
                kubelet::STARTED_PODS_ERRORS.inc();
                kubelet::STARTED_USERNS_PODS_ERRORS.add(u64::from(has_users));
                kubelet::RUN_SANDBOX_ERRORS.inc(&[handler]);
                if !self.work.cancel.is_cancelled() {
                    let text = format!("Failed to create pod sandbox: {}", why.message);
                    self.event("", EventType::Warning, "FailedCreatePodSandBox", text);
                }
                Err(why)
            }
        }
    }

    /// What is gone already needs no stopping or removing.
    fn gone_is_fine(&self, result: Result<(), CriError>, word: &str) -> Result<(), Reason> {
        match result {
            Err(error) if !error.is_not_found() => Err(cri(word, &error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// News for people.
    pub(super) fn event(&self, field_path: &str, event_type: EventType, reason: &str, message: String) {
        let event = PodEvent {
            uid: self.work.uid.clone(),
            field_path: field_path.to_owned(),
            event_type,
            reason: reason.to_owned(),
            message,
            at: clock::wall(),
        };
        let _ended = self.to_loop.send(FromWorker::Event(event));
    }
}

/// The RuntimeClass of a pod stands for a handler of the same name while there is no API server to ask.
pub(super) fn runtime_handler(work: &PodWork) -> &str {
    work.pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_deref()).unwrap_or_default()
}

pub(super) fn reason(word: &str, message: impl Into<String>) -> Reason {
    Reason { reason: word.to_owned(), message: message.into() }
}

/// A failed runtime call as a reason, in the words that users know.
pub(super) fn cri(word: &str, error: &CriError) -> Reason {
    reason(word, error.rpc_text())
}
