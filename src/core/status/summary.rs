//! A pod in one line, as `kubectl get pods` shows it: READY, STATUS, RESTARTS and what AGE needs.
//!
//! Layer L1, pure. It reads a status and a spec and never fails; ages are left to the caller, who has
//! a clock.

use super::Phase;
use super::containers::terminated;
use crate::api::meta::Time;
use crate::api::pod;
use crate::api::v1::{ContainerStatus, Pod, PodStatus};

/// One line about a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSummary {
    /// Ready containers of all that count, sidecars included: `1/2`.
    pub ready: String,
    /// `Running`, `CrashLoopBackOff`, `Init:0/2`, `Completed`, `Terminating`, …
    pub status: String,
    /// Restarts of app containers and sidecars, or of init containers while they run.
    pub restarts: i64,
    /// When the last restarted container had ended; `None` without restarts.
    pub last_restart: Option<Time>,
    /// Since when the pod exists: its creation, or when this node began with it.
    pub since: Option<Time>,
}

/// Restarts and the newest end that led to one.
#[derive(Default)]
struct Restarts {
    count: i64,
    newest: Option<Time>,
}

impl Restarts {
    fn add(&mut self, status: &ContainerStatus) {
        self.count += i64::from(status.restart_count);
        let end = status.last_state.as_ref().and_then(|s| s.terminated.as_ref());
        self.newest = self.newest.take().max(end.and_then(|t| t.finished_at.clone()));
    }
}

/// Sums up a pod. `status` is the pod's status; the one within `pod` is not looked at.
pub fn summary(status: &PodStatus, pod: &Pod) -> PodSummary {
    let app = status.container_statuses.as_deref().unwrap_or_default();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let holds = |type_: &str| conditions.iter().any(|c| c.type_ == type_ && c.status == "True");
    let told = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());

    let mut word = told(&status.reason).or_else(|| told(&status.phase)).unwrap_or_else(|| "Unknown".to_owned());
    if conditions.iter().any(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("SchedulingGated")) {
        word = "SchedulingGated".to_owned();
    }
    let init = read_init(status, pod);
    let mut ready = init.ready;
    let mut restarts = init.all;
    if let Some(stuck) = &init.stuck {
        word.clone_from(stuck);
    }
    if init.stuck.is_none() || holds("Initialized") {
        restarts = init.sidecars;
        let mut running = false;
        let mut error = None;
        // The first container of the list has the last word.
        for container in app.iter().rev() {
            restarts.add(container);
            let state = container.state.as_ref();
            if let Some(reason) = state.and_then(|s| s.waiting.as_ref()).and_then(|w| told(&w.reason)) {
                word = reason;
            } else if let Some(end) = terminated(container) {
                word = told(&end.reason).unwrap_or_else(|| exit_word(end.signal, end.exit_code));
                if end.exit_code != 0 {
                    error = Some(word.clone());
                }
            } else if container.ready && state.is_some_and(|s| s.running.is_some()) {
                running = true;
                ready += 1;
            }
        }
        if word == "Completed" {
            word = match (running, error) {
                (true, _) if holds("Ready") => "Running".to_owned(),
                (_, Some(error)) => error,
                (true, None) => "NotReady".to_owned(),
                (false, None) => word,
            };
        }
    }
    if pod.metadata.deletion_timestamp.is_some() {
        if status.reason.as_deref() == Some("NodeLost") {
            word = "Unknown".to_owned();
        } else if !Phase::of(status).is_some_and(Phase::is_terminal) {
            word = "Terminating".to_owned();
        }
    }

    let sidecars = pod::init_containers(pod).iter().filter(|c| pod::is_sidecar(c)).count();
    PodSummary {
        ready: format!("{ready}/{}", pod::app_containers(pod).len() + sidecars),
        status: word,
        restarts: restarts.count,
        last_restart: restarts.newest.filter(|_| restarts.count != 0),
        since: pod.metadata.creation_timestamp.clone().or_else(|| status.start_time.clone()),
    }
}

struct Init {
    /// The word for the first init container that is not done; `None` when all are.
    stuck: Option<String>,
    ready: usize,
    all: Restarts,
    sidecars: Restarts,
}

fn read_init(status: &PodStatus, pod: &Pod) -> Init {
    let specs = pod::init_containers(pod);
    let mut init = Init { stuck: None, ready: 0, all: Restarts::default(), sidecars: Restarts::default() };
    for (index, container) in status.init_container_statuses.as_deref().unwrap_or_default().iter().enumerate() {
        let sidecar = specs.iter().any(|c| c.name == container.name && pod::is_sidecar(c));
        init.all.add(container);
        if sidecar {
            init.sidecars.add(container);
        }
        let end = terminated(container);
        if end.is_some_and(|t| t.exit_code == 0) {
            continue;
        }
        if sidecar && container.started == Some(true) {
            init.ready += usize::from(container.ready);
            continue;
        }
        let waiting = container.state.as_ref().and_then(|s| s.waiting.as_ref()).and_then(|w| w.reason.as_deref());
        init.stuck = Some(match (end, waiting) {
            (Some(end), _) => {
                let reason = end.reason.clone().filter(|r| !r.is_empty());
                format!("Init:{}", reason.unwrap_or_else(|| exit_word(end.signal, end.exit_code)))
            }
            (None, Some(reason)) if !reason.is_empty() && reason != "PodInitializing" => format!("Init:{reason}"),
            _ => format!("Init:{index}/{}", specs.len()),
        });
        break;
    }
    init
}

fn exit_word(signal: Option<i32>, exit_code: i32) -> String {
    match signal {
        Some(signal) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{exit_code}"),
    }
}
