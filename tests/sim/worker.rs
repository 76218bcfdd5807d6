//! A model of the pod workers: works carried out step by step, which fail before or after their effect,
//! hang, and are cut short by their cancel token.

use std::time::Duration;

use ferrolet::api::SandboxId;
use ferrolet::api::moment::Moment;
use ferrolet::msg::{OnFailure, PodWork, Reason, Step, StepResult, WorkReport};

use super::rng::Rng;
use super::runtime::Runtime;

/// One work under way.
pub(super) struct Job {
    pub(super) work: PodWork,
    results: Vec<(Step, StepResult)>,
    go_on: bool,
    sandbox: Option<SandboxId>,
    /// When the present step ends.
    due: Moment,
}

/// How a step goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Luck {
    Good,
    /// It fails and did nothing.
    Fails,
    /// It is reported as failed though it took effect, or a part of it.
    FailsLate,
}

impl Job {
    pub(super) fn new(work: PodWork, rng: &mut Rng, calm: bool, now: Moment) -> Self {
        let sandbox = work.sandbox.as_ref().map(|s| s.id.clone());
        let due = now + duration(rng, calm);
        Self { work, results: Vec::new(), go_on: true, sandbox, due }
    }

    /// When it can be worked on: at once if it is cancelled, which wakes whatever hangs.
    pub(super) fn due(&self) -> Moment {
        if self.work.cancel.is_cancelled() { Moment::default() } else { self.due }
    }

    /// Ends the present step; a report once all are done.
    pub(super) fn turn(
        &mut self,
        runtime: &mut Runtime,
        rng: &mut Rng,
        calm: bool,
        up: bool,
        now: Moment,
        wall: i64,
    ) -> Option<WorkReport> {
        let planned = self.work.steps.get(self.results.len()).cloned();
        if let Some(planned) = planned {
            let luck = match rng.below(100) {
                _ if !up => Luck::Fails,
                _ if calm => Luck::Good,
                0..6 => Luck::Fails,
                6..10 => Luck::FailsLate,
                _ => Luck::Good,
            };
            let result = if !self.go_on || self.work.cancel.is_cancelled() {
                StepResult::Skipped
            } else {
                match self.step(runtime, &planned.step, luck, rng, wall) {
                    Ok(()) => StepResult::Done,
                    Err(reason) => {
                        self.go_on = planned.on_failure == OnFailure::Continue;
                        StepResult::Failed(reason)
                    }
                }
            };
            self.results.push((planned.step, result));
        }
        self.due = now + duration(rng, calm);
        (self.results.len() == self.work.steps.len()).then(|| WorkReport {
            id: self.work.id,
            uid: self.work.uid.clone(),
            finished_at: now,
            results: std::mem::take(&mut self.results),
            image_waits: Default::default(),
            pulled: Default::default(),
            cancelled: self.work.cancel.is_cancelled(),
        })
    }

    /// The agent ends: the call that is under way may still take effect.
    pub(super) fn abandon(mut self, runtime: &mut Runtime, rng: &mut Rng, wall: i64) {
        let planned = self.work.steps.get(self.results.len()).cloned();
        if let Some(planned) = planned
            && self.go_on
            && !self.work.cancel.is_cancelled()
            && rng.chance(500)
        {
            let _nobody_hears = self.step(runtime, &planned.step, Luck::FailsLate, rng, wall);
        }
    }

    fn step(&mut self, runtime: &mut Runtime, step: &Step, luck: Luck, rng: &mut Rng, wall: i64) -> Result<(), Reason> {
        let bad = Reason { reason: "Unlucky".to_owned(), message: "the dice say so".to_owned() };
        if luck == Luck::Fails {
            return Err(bad);
        }
        let uid = &self.work.uid;
        match step {
            Step::AskAdmissionHook => {}
            Step::PreparePod => {
                runtime.folders.insert(uid.clone());
            }
            Step::StopContainers { containers, .. } => {
                for stop in containers {
                    if luck == Luck::Good || rng.chance(500) {
                        runtime.exit(&stop.id, 143, wall);
                    }
                }
            }
            Step::StopSandbox(id) => runtime.stop_sandbox(id, wall),
            Step::RunSandbox { attempt } => {
                let (id, _) = runtime.run_sandbox(&self.work.pod, *attempt, wall)?;
                self.sandbox = Some(id);
            }
            Step::StartContainer { name, attempt, .. } => {
                let none = Reason { reason: "CreateContainerError".to_owned(), message: "no sandbox".to_owned() };
                let sandbox = self.sandbox.clone().ok_or(none)?;
                let id = runtime.create(&self.work.pod, name, *attempt, &sandbox, wall)?;
                if luck == Luck::Good || rng.chance(500) {
                    runtime.start(&id, wall)?;
                }
            }
            Step::ResizeContainers(_) => {}
            Step::RemoveContainer { id, .. } => runtime.remove(uid, id),
            Step::RemoveSandbox(id) => runtime.remove_sandbox(uid, id),
            Step::ReleasePod => runtime.release(uid),
            Step::ForgetPod => runtime.forget(uid),
        }
        if luck == Luck::FailsLate { Err(bad) } else { Ok(()) }
    }
}

/// How long a step takes; a few hang.
fn duration(rng: &mut Rng, calm: bool) -> Duration {
    match rng.below(100) {
        _ if calm => Duration::from_millis(100),
        0..3 => Duration::from_secs(120),
        3..20 => Duration::from_millis(rng.below(5000)),
        _ => Duration::from_millis(rng.below(200)),
    }
}
