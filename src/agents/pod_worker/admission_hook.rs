//! The admission hook: a program of the node's owner that has the last word about each pod that may start.
//!
//! On the pod's worker thread, so that a hook that hangs holds up its own pod and no other. The program gets the pod as
//! JSON on stdin and answers `{"admit": true}` or `{"admit": false, "reason": "CamelCase", "message": "…"}` on stdout.
//! Whatever else it does is a failure, and what that means the configuration says. It never sees a pod that this
//! node refuses by itself, nor one that it was asked about in an earlier life of the agent and that started.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::run::{Run, reason};
use crate::host::error::explain;
use crate::host::program;
use crate::msg::{EventType, Reason, StepResult};

/// `status.reason` of a pod that was refused without one, and reason of the events.
const REFUSED: &str = "AdmissionHookRefused";
/// `status.reason` of a pod that was refused because the hook failed.
const FAILED: &str = "AdmissionHookFailed";
/// Longest `status.reason` that is taken from a hook, in bytes.
const LONGEST_REASON: usize = 128;
/// Longest `status.message` that is taken from a hook, in characters.
const LONGEST_MESSAGE: usize = 1024;

/// What a hook that fails means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookFailure {
    /// The pod starts all the same, and an event tells.
    Admit,
    /// The pod is refused.
    Reject,
}

/// The hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionHook {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
    /// What its failure means.
    pub on_failure: HookFailure,
}

#[derive(Debug, Deserialize)]
struct Answer {
    admit: bool,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// Asks the hook about the work's pod.
pub(super) fn ask(run: &Run<'_>) -> StepResult {
    let Some(hook) = &run.tools.admission_hook else { return StepResult::Done };
    let answer = answer(run, hook);
    if run.work.cancel.is_cancelled() {
        return StepResult::Skipped;
    }
    match (answer, hook.on_failure) {
        (Ok(answer), _) => verdict(answer),
        (Err(why), HookFailure::Reject) => StepResult::Refused(reason(FAILED, format!("admission hook: {why}"))),
        (Err(why), HookFailure::Admit) => {
            run.event("", EventType::Warning, FAILED, format!("admitted without the admission hook: {why}"));
            StepResult::Done
        }
    }
}

fn answer(run: &Run<'_>, hook: &AdmissionHook) -> Result<Answer, String> {
    let pod = serde_json::to_vec(&*run.work.pod).map_err(|error| format!("the pod cannot be written: {error}"))?;
    let output = program::run(&hook.path, &hook.arguments, &pod, hook.timeout, &run.work.cancel)
        .map_err(|error| explain(&error))?;
    parse(&output)
}

fn parse(output: &[u8]) -> Result<Answer, String> {
    let want = r#"it has to answer {"admit": true} or {"admit": false, "reason": "…", "message": "…"}"#;
    serde_json::from_slice(output).map_err(|error| format!("{want}, and its answer cannot be read: {error}"))
}

fn verdict(answer: Answer) -> StepResult {
    let Answer { admit: false, reason: word, message } = answer else { return StepResult::Done };
    let is_word = !word.is_empty() && word.len() <= LONGEST_REASON && word.chars().all(|c| c.is_ascii_alphanumeric());
    let message: String = message.chars().take(LONGEST_MESSAGE).collect();
    StepResult::Refused(Reason {
        reason: if is_word { word } else { REFUSED.to_owned() },
        message: if message.is_empty() { "the admission hook refused the pod".to_owned() } else { message },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, expect: &str) {
        let told = match parse(output.as_bytes()).map(verdict) {
            Ok(StepResult::Refused(why)) => format!("{}: {}", why.reason, why.message),
            Ok(other) => format!("{other:?}"),
            Err(why) => why.rsplit(", and").next().unwrap_or_default().trim().to_owned(),
        };
        assert!(told.starts_with(expect), "{output}: {told}");
    }

    #[test]
    fn answers() {
        check(r#"{"admit": true}"#, "Done");
        check(r#"{"admit": true, "reason": "Whatever", "more": 1}"#, "Done");
        check(r#"{"admit": false, "reason": "NoGpu", "message": "no GPU here"}"#, "NoGpu: no GPU here");
        check(r#"{"admit": false}"#, "AdmissionHookRefused: the admission hook refused the pod");
        check(r#"{"admit": false, "reason": "two words"}"#, "AdmissionHookRefused: the admission");
        check(&format!(r#"{{"admit": false, "reason": "{}"}}"#, "x".repeat(129)), "AdmissionHookRefused");
        check("", "its answer cannot be read");
        check("yes", "its answer cannot be read");
        check("{}", "its answer cannot be read: missing field `admit`");
        check(r#"{"admit": true} and more"#, "its answer cannot be read: trailing");
    }

    #[test]
    fn long_messages_are_cut() {
        let answer = Answer { admit: false, reason: String::new(), message: "ä".repeat(5000) };
        let StepResult::Refused(why) = verdict(answer) else { panic!("it was refused") };
        assert_eq!(why.message.chars().count(), LONGEST_MESSAGE);
    }
}
