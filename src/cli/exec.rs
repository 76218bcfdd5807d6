//! `ferrolet exec`: runs a command in a container. Runs on the main thread; asks the agent, which has the
//! runtime run it. The command's exit code becomes that of the tool.

use super::client::{self, Agent, Refusal, unexpected};
use super::complain;
use crate::server::wire::{Answer, Exec, Request};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "
  -c, --container NAME   which container (default: the pod's first, or the one marked as default)
      --timeout SECONDS  when the runtime kills the command (default 60, at most 3600)

The exit code is that of the command. Its output comes when it has ended, at most 4 MiB of each stream.
";

/// How long a command may run unless told otherwise.
const TIMEOUT_SECONDS: u32 = 60;

/// `ferrolet exec POD [-c C] [--timeout SECONDS] -- COMMAND…`.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    client::end("exec", exec(args))
}

fn exec(args: Vec<OsString>) -> Result<ExitCode, Refusal> {
    let Some((agent, wish)) = parse(args)? else { return Ok(client::show_help("exec", HELP)) };
    let patience = Duration::from_secs(wish.timeout_seconds.into()) + Duration::from_secs(120);
    let mut answers = agent.ask(&Request::ExecSync(wish), patience)?;
    loop {
        match answers.next()? {
            Answer::Output { fd: 1, bytes } => answers.copy(bytes, &mut std::io::stdout().lock())?,
            Answer::Output { bytes, .. } => answers.copy(bytes, &mut std::io::stderr().lock())?,
            Answer::Exit { code, truncated } => {
                if truncated {
                    complain("the command printed more than is shown");
                }
                // What fits no exit code is a failure all the same.
                return Ok(ExitCode::from(u8::try_from(code).unwrap_or(255)));
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// What the command line asks for; `None` for its help.
fn parse(args: Vec<OsString>) -> Result<Option<(Agent, Exec)>, Refusal> {
    use lexopt::prelude::*;
    let (mut agent, mut pod, mut container) = (Agent::default(), None, String::new());
    let mut command: Vec<String> = Vec::new();
    let mut timeout_seconds = TIMEOUT_SECONDS;
    // Everything after `--` is the command, flags and all.
    let (ours, theirs) = match args.iter().position(|arg| arg == "--") {
        Some(at) => (args[..at].to_vec(), args[at + 1..].to_vec()),
        None => (args, Vec::new()),
    };
    let mut words = lexopt::Parser::from_args(ours);
    while let Some(word) = words.next()? {
        match word {
            Short('h') | Long("help") => return Ok(None),
            Short('c') | Long("container") => container = client::text(words.value()?)?,
            Long("timeout") => timeout_seconds = words.value()?.parse()?,
            Long("socket") => agent.socket = Some(words.value()?.into()),
            Value(word) if pod.is_none() => client::take_pod(&mut pod, word)?,
            Value(word) => {
                let word = word.display().to_string();
                return Err(Refusal::usage(format!("put -- before the command: ferrolet exec POD -- {word}")));
            }
            other => return Err(other.unexpected().into()),
        }
    }
    for word in theirs {
        command.push(client::text(word)?);
    }
    let pod = pod.ok_or_else(|| Refusal::usage("in which pod?"))?;
    if command.is_empty() {
        return Err(Refusal::usage("which command? It comes after --"));
    }
    Ok(Some((agent, Exec { pod, container, command, timeout_seconds, ..Exec::default() })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: Result<(&str, &str, &[&str], u32), &str>) {
        let args = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
        let got = parse(args).map(|wish| wish.expect("no help").1);
        match (&got, expect) {
            (Ok(wish), Ok((pod, container, command, timeout))) => {
                assert_eq!(
                    (wish.pod.as_str(), wish.container.as_str(), wish.timeout_seconds),
                    (pod, container, timeout)
                );
                assert_eq!(wish.command, command);
            }
            (Err(refusal), Err(message)) => assert_eq!(refusal.message, message),
            _ => panic!("{line}: {got:?}"),
        }
    }

    #[test]
    fn command_lines() {
        check("web -- ls -l", Ok(("web", "", &["ls", "-l"], 60)));
        check("ns/web -c app --timeout 5 -- sh -c -- x", Ok(("ns/web", "app", &["sh", "-c", "--", "x"], 5)));
        check("web ls", Err("put -- before the command: ferrolet exec POD -- ls"));
        check("web", Err("which command? It comes after --"));
        check("-- ls", Err("in which pod?"));
        check("web -x -- ls", Err("invalid option '-x'"));
    }
}
