//! What is spoken on the local socket: one JSON line as the question, JSON lines as the answer.
//!
//! Plain data, used on the socket's connection threads and by the tools. Versions of agent and tool may
//! differ for the time of an upgrade: unknown fields are passed over, unknown questions answered with an
//! error. Pods travel as in the Kubernetes API.
//!
//! ```text
//! -> {"pods":{}}
//! <- {"node":{"name":"edge-1","runtimeDown":"",…}}
//! <- {"pod":{"namespace":"default","name":"web-edge-1",…}}
//! <- {"end":{}}
//! ```

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::api::runtime::{ContainerState, UnixNanos};
use crate::api::v1::{Pod, PodStatus};
use crate::msg::{CountedEvent, EventType, NodeView, PodView};
use crate::server::stats::NodeUse;

/// Most bytes of a question, its newline included.
pub const REQUEST_LIMIT: usize = 256 << 10;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// The node and all its pods: answered by `node`, `pod`s and `end`.
    Pods {},
    /// The node and one pod, by name, `namespace/name`, unique prefix or uid: `node`, `pod`, `end`.
    Pod {
        /// Which.
        pod: String,
    },
    /// The health checks: answered by `health`.
    Health {},
    /// What the node and its pods use: answered by `top`.
    Top {},
    /// Runs a command to its end and tells its output then: `output`s and `exit`.
    ExecSync(Exec),
    /// Where the runtime serves an interactive session: `stream`.
    ExecStream(Exec),
}

/// A command to run in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Exec {
    /// Which pod, as in [`Request::Pod`].
    pub pod: String,
    /// Which container; empty for the pod's default one.
    pub container: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// For `execSync`: after how many seconds the runtime kills it; at most an hour.
    pub timeout_seconds: u32,
    /// For `execStream`: with standard input.
    pub stdin: bool,
    /// For `execStream`: with a terminal; there is no standard error then.
    pub tty: bool,
}

/// One line of an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The node itself.
    Node(NodeDetails),
    /// One pod.
    Pod(Box<PodDetails>),
    /// Nothing follows; without it an answer was cut off.
    End {},
    /// The health checks.
    Health(Vec<CheckResult>),
    /// What the node and its pods use.
    Top(Box<NodeUse>),
    /// So many bytes of raw output follow the newline.
    Output {
        /// 1 for standard output, 2 for standard error.
        fd: u8,
        /// How many.
        bytes: usize,
    },
    /// The command has ended.
    Exit {
        /// Its exit code.
        code: i32,
        /// Whether some output was left out because it was too much.
        truncated: bool,
    },
    /// Where the runtime serves the session.
    Stream {
        /// An `http:` URL, good for one connection that has to be made soon.
        url: String,
    },
    /// It did not work; nothing follows.
    Error(Failure),
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// A sentence for people.
    pub message: String,
}

/// Kinds of failures that tools treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureKind {
    /// The question makes no sense.
    BadRequest,
    /// There is no such pod or container.
    NotFound,
    /// The name fits several.
    Ambiguous,
    /// The container does not run.
    NotRunning,
    /// The runtime did not do it.
    Runtime,
    /// Who asks may not.
    Forbidden,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

/// One health check and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Its name.
    pub name: String,
    /// What is wrong; empty if nothing is.
    pub problem: String,
}

/// The node as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeDetails {
    /// Its name.
    pub name: String,
    /// Why the container runtime does not answer; empty if it does.
    pub runtime_down: String,
    /// Sources of pods that have not spoken yet.
    pub silent_sources: Vec<String>,
    /// What the sources could not use.
    pub problems: Vec<Problem>,
}

/// Something that a source could not use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// File or URL.
    pub origin: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// One pod with all that the agent knows of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDetails {
    /// Its uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its place in life: `Active`, `Terminating`, …
    pub stage: String,
    /// What it waits for, in one sentence.
    pub waits_for: String,
    /// The last plan, one line a step.
    pub plan: Vec<String>,
    /// Its newest events, oldest first.
    pub events: Vec<EventDetails>,
    /// Its containers in the runtime, newest first, dead ones included.
    pub containers: Vec<ContainerDetails>,
    /// What should run.
    pub pod: Option<Arc<Pod>>,
    /// Its status as the API would tell it; the one within `pod` means nothing.
    pub status: Arc<PodStatus>,
}

/// An event and how often it came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventDetails {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// `spec.containers{web}` and the like; empty for the pod.
    pub field_path: String,
    /// How often.
    pub count: u32,
    /// First time, nanoseconds since 1970.
    pub first_at: UnixNanos,
    /// Last time.
    pub last_at: UnixNanos,
}

/// What a container does now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Activity {
    /// Made, not started.
    Created,
    /// It runs.
    Running,
    /// It has ended.
    Exited,
    /// The runtime lost track of it.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A container of the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerDetails {
    /// Its name in the pod.
    pub name: String,
    /// The runtime's id.
    pub id: String,
    /// Its restart count.
    pub attempt: u32,
    /// What it does now.
    pub activity: Activity,
    /// Its log file; empty if not known yet.
    pub log_path: String,
}

impl From<&NodeView> for NodeDetails {
    fn from(view: &NodeView) -> Self {
        let problem = |p: &crate::msg::SourceProblem| Problem { origin: p.origin.clone(), message: p.message.clone() };
        Self {
            name: view.node.clone(),
            runtime_down: view.runtime_down.clone(),
            silent_sources: view.silent_sources.iter().map(ToString::to_string).collect(),
            problems: view.problems.iter().map(problem).collect(),
        }
    }
}

impl From<&PodView> for PodDetails {
    fn from(view: &PodView) -> Self {
        let containers = view.runtime.iter().flat_map(|runtime| &runtime.containers);
        Self {
            uid: view.uid.to_string(),
            namespace: view.name.namespace.clone(),
            name: view.name.name.clone(),
            stage: view.stage.clone(),
            waits_for: view.waits_for.clone(),
            plan: view.plan.clone(),
            events: view.events.iter().map(|event| EventDetails::from(&**event)).collect(),
            containers: containers
                .map(|container| ContainerDetails {
                    name: container.name.clone(),
                    id: container.id.to_string(),
                    attempt: container.attempt,
                    activity: Activity::from(&container.state),
                    log_path: container.log_path.clone(),
                })
                .collect(),
            pod: view.pod.clone(),
            status: Arc::clone(&view.status),
        }
    }
}

impl From<&ContainerState> for Activity {
    fn from(state: &ContainerState) -> Self {
        match state {
            ContainerState::Created => Self::Created,
            ContainerState::Running { .. } => Self::Running,
            ContainerState::Exited(_) => Self::Exited,
            ContainerState::Unknown => Self::Unknown,
        }
    }
}

impl From<&CountedEvent> for EventDetails {
    fn from(counted: &CountedEvent) -> Self {
        let event = &counted.event;
        let type_ = match event.event_type {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        Self {
            type_: type_.to_owned(),
            reason: event.reason.clone(),
            message: event.message.clone(),
            field_path: event.field_path.clone(),
            count: counted.count,
            first_at: counted.first_at,
            last_at: event.at,
        }
    }
}
