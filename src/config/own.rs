//! ferrolet's own settings, which the kubelet does not have: the file of `--ferrolet-config`. Reads one file; runs on the
//! main thread at start. It is a file of its own, so that the kubelet's stays one that the kubelet reads as well.

use super::problem::Problem;
use super::yaml::{Limits, yaml_to_json};
use super::{GoDuration, file};
use crate::util::fs::read_bounded;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest time that the admission hook may be given.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(120);

/// All of ferrolet's own settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnConfig {
    /// The program that has the last word about pods; none by default.
    pub admission_hook: Option<HookConfig>,
}

/// A program that is asked about each pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookConfig {
    /// The program: an absolute path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
    /// What it means when it fails or takes longer.
    pub failure_policy: FailurePolicy,
}

/// What the failure of a hook means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailurePolicy {
    /// The pod starts all the same.
    Admit,
    /// The pod is refused.
    #[default]
    Reject,
}

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Written {
    admission_hook: Option<WrittenHook>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenHook {
    command: Vec<String>,
    #[serde(default)]
    timeout: Option<String>,
    #[serde(default)]
    failure_policy: FailurePolicy,
}

/// Reads the file; without one everything has its default.
///
/// # Errors
/// What is wrong with it.
pub fn load(path: Option<&Path>) -> Result<OwnConfig, Vec<Problem>> {
    let Some(path) = path else { return Ok(OwnConfig::default()) };
    let source = path.display().to_string();
    let wrong = |why: String| vec![Problem::new(source.clone(), "", why)];
    let text = read_bounded(path, file::MAX_FILE).map_err(|error| wrong(file::error_text(&error)))?;
    parse(&text).map_err(|problems| problems.into_iter().map(|p| p.from_source(&source)).collect())
}

fn parse(text: &[u8]) -> Result<OwnConfig, Vec<Problem>> {
    let whole = |why: String| vec![Problem::new("--ferrolet-config", "", why)];
    let document = yaml_to_json(text, &Limits::default()).map_err(|error| whole(error.to_string()))?;
    // A file of comments alone says nothing.
    let written = Option::<Written>::deserialize(document.value).map_err(|error| whole(error.to_string()))?;
    let Some(hook) = written.unwrap_or_default().admission_hook else { return Ok(OwnConfig::default()) };
    let mut problems = Vec::new();
    let mut command = hook.command.into_iter();
    let path = PathBuf::from(command.next().unwrap_or_default());
    if !path.is_absolute() {
        let found = format!("`{}`", path.display());
        let want = "must begin with the absolute path of a program";
        problems.push(Problem::new("admissionHook.command", found, want));
    }
    let text = hook.timeout.as_deref().unwrap_or("5s");
    let timeout = GoDuration::parse(text).map(GoDuration::to_std).unwrap_or_default();
    if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
        let want = "must be a duration such as 5s, above 0 and at most 2m";
        problems.push(Problem::new("admissionHook.timeout", format!("`{text}`"), want));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let (arguments, failure_policy) = (command.collect(), hook.failure_policy);
    Ok(OwnConfig { admission_hook: Some(HookConfig { path, arguments, timeout, failure_policy }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(path: &str, arguments: &[&str], seconds: u64, failure_policy: FailurePolicy) -> OwnConfig {
        let arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        let timeout = Duration::from_secs(seconds);
        OwnConfig { admission_hook: Some(HookConfig { path: path.into(), arguments, timeout, failure_policy }) }
    }

    #[test]
    fn what_the_file_says() {
        for (text, expect) in [
            ("", OwnConfig::default()),
            ("# nothing\n", OwnConfig::default()),
            ("admissionHook: null", OwnConfig::default()),
            ("admissionHook: {command: [/bin/ask]}", hook("/bin/ask", &[], 5, FailurePolicy::Reject)),
            (
                "admissionHook:\n  command: [/bin/ask, -x]\n  timeout: 1m\n  failurePolicy: admit\n",
                hook("/bin/ask", &["-x"], 60, FailurePolicy::Admit),
            ),
        ] {
            assert_eq!(parse(text.as_bytes()).expect(text), expect, "{text}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (text, expect) in [
            ("admissionHook: {command: []}", "admissionHook.command"),
            ("admissionHook: {command: [ask]}", "must begin with the absolute path of a program"),
            ("admissionHook: {command: [/a], timeout: soon}", "admissionHook.timeout"),
            ("admissionHook: {command: [/a], timeout: 0s}", "above 0 and at most 2m"),
            ("admissionHook: {command: [/a], timeout: 3m}", "above 0 and at most 2m"),
            ("admissionHook: {command: [/a], timeout: -1s}", "above 0 and at most 2m"),
            ("admissionHook: {command: [/a], failurePolicy: maybe}", "maybe"),
            ("admissionHook: {}", "command"),
            ("admisionHook: {command: [/a]}", "admisionHook"),
            ("[1]", "invalid type"),
            ("a: [", "line"),
        ] {
            let problems = parse(text.as_bytes()).expect_err(text);
            let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert!(told.concat().contains(expect), "{text}: {told:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_a_mistake_and_none_is_not() {
        assert_eq!(load(None).expect("the defaults"), OwnConfig::default());
        let problems = load(Some(Path::new("/no/such/file"))).expect_err("no file");
        assert!(problems[0].to_string().contains("/no/such/file"), "{problems:?}");
    }

    #[test]
    fn the_sample_names_every_setting_and_says_the_defaults() {
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("etc/ferrolet.yaml")).expect("it");
        assert_eq!(parse(text.as_bytes()).expect("the sample"), OwnConfig::default());
        let (_, example) = text.split_once("# With one:\n").expect("an example");
        let example: Vec<&str> = example.lines().filter_map(|line| line.strip_prefix("#  ")).collect();
        let example = example.join("\n");
        let expect = hook("/usr/local/libexec/admit-pod", &["--strict"], 5, FailurePolicy::Reject);
        assert_eq!(parse(example.as_bytes()).expect("the example"), expect);
    }
}
