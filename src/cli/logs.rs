//! `ferrolet logs`: what a container printed. Runs on the main thread; asks the agent where the log lies
//! and reads the file itself, so that no byte of it passes through the agent.
//!
//! Following looks at the file a few times a second, and asks the agent for a restarted container only
//! while nothing comes. Nobody follows, nothing wakes up.

use super::client::{self, Agent, Refusal};
use crate::api::runtime::UnixNanos;
use crate::api::v1::{ContainerStatus, PodStatus};
use crate::config::GoDuration;
use crate::host::logs::{LogOptions, copy_log};
use crate::host::{HostError, explain};
use crate::server::wire::{Activity, ContainerDetails, PodDetails};
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::order;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "
  -c, --container NAME   which container (default: the pod's first, or the one marked as default)
  -f, --follow           go on until the container has ended for good; goes along with rotations and restarts
  -p, --previous         of the container before the last restart
      --tail N           only the last N lines (-1: all)
      --since SPAN       only what is newer than this: 30s, 5m, 1h30m
      --since-time TIME  only what is newer than this: 2026-11-30T09:00:00Z
      --limit-bytes N    stop after N bytes
      --timestamps       put the time before each line
";

/// How often a followed file is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How often the agent is asked for a new container, or whether there will be none.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// `ferrolet logs [-f] [-p] [--tail N] [--since D] [--timestamps] POD [-c C]`.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    client::end("logs", logs(args))
}

#[derive(Debug, Default)]
struct Wish {
    agent: Agent,
    pod: Option<String>,
    container: String,
    previous: bool,
    options: LogOptions,
}

fn logs(args: Vec<OsString>) -> Result<ExitCode, Refusal> {
    let Some(wish) = parse(args, clock::wall())? else { return Ok(client::show_help("logs", HELP)) };
    let pod = wish.pod.as_deref().ok_or_else(|| Refusal::usage("of which pod?"))?;
    let (_, details) = wish.agent.pod(pod)?;
    let name = choose(&details, &wish.container)?;
    let container = instance(&details, &name, wish.previous)?;
    let follower = Follower { agent: &wish.agent, uid: details.uid.clone(), name };
    let mut out = std::io::stdout().lock();
    match follower.copy(container, wish.options, &mut out) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Refusal::failed(explain(&error).to_string())),
    }
}

/// What the command line asks for; `None` for its help.
fn parse(args: Vec<OsString>, now: UnixNanos) -> Result<Option<Wish>, Refusal> {
    use lexopt::prelude::*;
    let mut wish = Wish::default();
    let mut words = lexopt::Parser::from_args(args);
    while let Some(word) = words.next()? {
        match word {
            Short('h') | Long("help") => return Ok(None),
            Short('f') | Long("follow") => wish.options.follow = true,
            Short('p') | Long("previous") => wish.previous = true,
            Short('c') | Long("container") => wish.container = client::text(words.value()?)?,
            Long("timestamps") => wish.options.timestamps = true,
            Long("tail") => {
                let lines: i64 = words.value()?.parse()?;
                wish.options.tail = u64::try_from(lines).ok();
            }
            Long("limit-bytes") => wish.options.limit_bytes = Some(words.value()?.parse()?),
            Long("since") => {
                let text = client::text(words.value()?)?;
                let span = GoDuration::parse(&text).map(GoDuration::nanos).filter(|nanos| *nanos >= 0);
                let span = span
                    .ok_or_else(|| Refusal::usage(format!("--since takes a span such as 30s or 1h30m, not {text}")))?;
                wish.options.since = Some(now.saturating_sub(span));
            }
            Long("since-time") => {
                let text = client::text(words.value()?)?;
                let time: Option<jiff::Timestamp> = text.parse().ok();
                let nanos = time.and_then(|time| UnixNanos::try_from(time.as_nanosecond()).ok());
                wish.options.since = Some(nanos.ok_or_else(|| {
                    Refusal::usage(format!("--since-time takes a time such as 2026-11-30T09:00:00Z, not {text}"))
                })?);
            }
            Long("socket") => wish.agent.socket = Some(words.value()?.into()),
            Value(word) if wish.pod.is_some() && wish.container.is_empty() => wish.container = client::text(word)?,
            Value(word) => client::take_pod(&mut wish.pod, word)?,
            other => return Err(other.unexpected().into()),
        }
    }
    if wish.previous && wish.options.follow {
        return Err(Refusal::usage("-p and -f exclude each other: what has ended prints no more"));
    }
    Ok(Some(wish))
}

/// The container that is meant.
fn choose(details: &PodDetails, word: &str) -> Result<String, Refusal> {
    crate::server::resolve::choose_container(
        details.pod.as_deref(),
        details.containers.iter().map(|container| container.name.as_str()),
        &details.name,
        word,
    )
    .map_err(Refusal::from)
}

/// Its newest instance that has a log, or the last one that has ended: while a container waits to be
/// started again both are the same, as in kubectl.
fn instance<'a>(details: &'a PodDetails, name: &str, previous: bool) -> Result<&'a ContainerDetails, Refusal> {
    let mut all: Vec<&ContainerDetails> = details.containers.iter().filter(|one| one.name == name).collect();
    order::sort_by_key(&mut all, |one| std::cmp::Reverse(one.attempt));
    let mut with_log = all.into_iter().filter(|one| !one.log_path.is_empty());
    let newest = with_log.next();
    let chosen = match newest {
        Some(newest) if previous && !(newest.activity == Activity::Exited && is_waiting(details, name)) => {
            with_log.next()
        }
        newest => newest,
    };
    chosen.ok_or_else(|| {
        let what = if previous { "no earlier container that is still there" } else { "no log yet" };
        Refusal::failed(format!("container {name} of pod {} has {what}; pod: {}", details.name, details.waits_for))
    })
}

/// Whether a container waits to be started, for the first time or again.
fn is_waiting(details: &PodDetails, name: &str) -> bool {
    let state = status(details, name).and_then(|status| status.state.as_ref());
    state.is_some_and(|state| state.waiting.is_some())
}

fn status<'a>(details: &'a PodDetails, name: &str) -> Option<&'a ContainerStatus> {
    let PodStatus { init_container_statuses, container_statuses, ephemeral_container_statuses, .. } = &*details.status;
    let all = [init_container_statuses, container_statuses, ephemeral_container_statuses];
    all.into_iter().flatten().flatten().find(|status| status.name == name)
}

/// Goes from one instance of a container to the next.
struct Follower<'a> {
    agent: &'a Agent,
    /// Of the very pod that was found first: a successor of the same name is another one.
    uid: String,
    name: String,
}

/// What a follower does when its file is at its end.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It may grow.
    Stay,
    /// The container was restarted, and logs here.
    Go(u32, PathBuf),
    /// Nothing will come.
    End,
}

impl Follower<'_> {
    fn copy(&self, first: &ContainerDetails, mut options: LogOptions, out: &mut dyn Write) -> Result<(), HostError> {
        let (mut attempt, mut path) = (first.attempt, PathBuf::from(&first.log_path));
        // One that has ended prints no more unless it is restarted; the first question tells.
        loop {
            let mut next = Next::Stay;
            let mut asked_at = Instant::now();
            let mut asked = false;
            copy_log(&path, &options, out, &mut || {
                if !asked || asked_at.elapsed() >= ASK_AGAIN {
                    asked = true;
                    asked_at = Instant::now();
                    next = self.next(attempt);
                }
                // The last look at the old file comes after this: nothing of its end is lost.
                next == Next::Stay && !Cancel::never().wait(LOOK_AGAIN)
            })?;
            match next {
                Next::Go(newer, newer_path) if options.follow => (attempt, path) = (newer, newer_path),
                Next::Go(..) | Next::Stay | Next::End => return Ok(()),
            }
            // What is left of the wish holds for the first file only.
            options = LogOptions { tail: None, ..options };
        }
    }

    /// Asks the agent. If it does not answer the file is followed all the same.
    fn next(&self, attempt: u32) -> Next {
        match self.agent.pod(&self.uid) {
            Ok((_, details)) => next_of(&details, &self.name, attempt),
            Err(refusal) if refusal.kind.is_some() => Next::End,
            Err(_) => Next::Stay,
        }
    }
}

fn next_of(details: &PodDetails, name: &str, attempt: u32) -> Next {
    let newer = details.containers.iter().filter(|one| one.name == name && one.attempt > attempt);
    if let Some(newer) = newer.filter(|one| !one.log_path.is_empty()).min_by_key(|one| one.attempt) {
        return Next::Go(newer.attempt, PathBuf::from(&newer.log_path));
    }
    let own = details.containers.iter().find(|one| one.name == name && one.attempt == attempt);
    let ended = own.is_none_or(|own| own.activity == Activity::Exited);
    let phase = details.status.phase.as_deref().unwrap_or_default();
    let comes_back =
        details.stage == "Active" && !matches!(phase, "Succeeded" | "Failed") && may_restart(details, name);
    if ended && !comes_back { Next::End } else { Next::Stay }
}

/// Whether a container that has ended is started again.
fn may_restart(details: &PodDetails, name: &str) -> bool {
    use crate::api::pod::{RestartPolicy, container_restart_policy, find_container};
    let Some(pod) = details.pod.as_deref() else { return false };
    let Some((kind, container)) = find_container(pod, name) else { return false };
    let state = status(details, name).and_then(|status| status.state.as_ref());
    let end = state.and_then(|state| state.terminated.as_ref());
    match container_restart_policy(pod, kind, &container) {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => end.is_none_or(|end| end.exit_code != 0),
        RestartPolicy::Never => false,
    }
}

/// Whether the reader of our output has gone (`| head`): no failure.
fn is_closed_pipe(error: &HostError) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if kind == Some(std::io::ErrorKind::BrokenPipe) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests;
