//! `ferrolet exec`: runs a command in a container. Runs on the main thread; asks the agent where the
//! runtime serves the session and joins it there, so that no byte of it passes through the agent. The
//! command's exit code becomes that of the tool.

use super::client::{self, Agent, Refusal, unexpected};
use super::complain;
use super::spdy::{self, Ends, Trouble};
use crate::server::wire::{Answer, Exec, Request};
use crate::util::terminal::{self, RawMode};
use std::ffi::OsString;
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "
  -c, --container NAME   which container (default: the pod's first, or the one marked as default)
  -i, --stdin            pass standard input on, to its end
  -t, --tty              with a terminal, for shells: -it
      --timeout SECONDS  have the runtime kill the command after this time, at most 3600; its output then
                         comes when it has ended, at most 4 MiB of each stream

The exit code is that of the command.
";

/// How long a command may run where the runtime serves no session.
const TIMEOUT_SECONDS: u32 = 60;

/// `ferrolet exec POD [-c C] [-it] [--timeout SECONDS] -- COMMAND…`.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    client::end("exec", exec(args))
}

fn exec(args: Vec<OsString>) -> Result<ExitCode, Refusal> {
    let Some((agent, mut wish)) = parse(args)? else { return Ok(client::show_help("exec", HELP)) };
    if wish.timeout_seconds > 0 {
        return run_to_end(&agent, wish);
    }
    if wish.tty && !(wish.stdin && terminal::is_input()) {
        complain("warning: standard input is no terminal, going on without one");
        wish.tty = false;
    }
    match join(&agent, &wish) {
        Ok(code) => Ok(exit_code(code)),
        Err(Stopped::Refused(refusal)) => Err(refusal),
        Err(Stopped::Trouble(Trouble::Broken(why))) => Err(Refusal::failed(why)),
        // Nothing was run yet: where nothing has to be passed on there is another way.
        Err(Stopped::Trouble(Trouble::NoSession(_))) if !wish.stdin && !wish.tty => {
            run_to_end(&agent, Exec { timeout_seconds: TIMEOUT_SECONDS, ..wish })
        }
        Err(Stopped::Trouble(Trouble::NoSession(why))) => Err(Refusal::failed(why)),
    }
}

/// Why a session gave no exit code.
enum Stopped {
    Refused(Refusal),
    Trouble(Trouble),
}

/// Joins a session that the runtime serves.
fn join(agent: &Agent, wish: &Exec) -> Result<i32, Stopped> {
    let request = Request::ExecStream(wish.clone());
    let mut answers = agent.ask(&request, Duration::from_secs(120)).map_err(Stopped::Refused)?;
    let url = match answers.next().map_err(Stopped::Refused)? {
        Answer::Stream { url } => url,
        other => return Err(Stopped::Refused(unexpected(&other))),
    };
    drop(answers);
    let raw = wish.tty.then(RawMode::begin).transpose();
    let _raw = raw.map_err(|error| Stopped::Refused(Refusal::failed(format!("no raw mode: {error}"))))?;
    let ends = Ends {
        stdin: wish.stdin.then(|| Box::new(std::io::stdin()) as Box<dyn Read + Send>),
        tty: wish.tty,
        size: terminal::size,
        stdout: &mut std::io::stdout().lock(),
        stderr: &mut std::io::stderr().lock(),
    };
    spdy::run(&url, ends).map_err(Stopped::Trouble)
}

/// Has the agent run it to its end.
fn run_to_end(agent: &Agent, wish: Exec) -> Result<ExitCode, Refusal> {
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
                return Ok(exit_code(code));
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// What fits no exit code is a failure all the same.
fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(255))
}

/// What the command line asks for; `None` for its help.
fn parse(args: Vec<OsString>) -> Result<Option<(Agent, Exec)>, Refusal> {
    use lexopt::prelude::*;
    let (mut agent, mut pod, mut container) = (Agent::default(), None, String::new());
    let mut command: Vec<String> = Vec::new();
    let (mut timeout_seconds, mut stdin, mut tty) = (0, false, false);
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
            Short('i') | Long("stdin") => stdin = true,
            Short('t') | Long("tty") => tty = true,
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
    if timeout_seconds > 0 && (stdin || tty) {
        return Err(Refusal::usage("--timeout goes without -i and -t"));
    }
    Ok(Some((agent, Exec { pod, container, command, timeout_seconds, stdin, tty })))
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
        check("web -- ls -l", Ok(("web", "", &["ls", "-l"], 0)));
        check("ns/web -c app --timeout 5 -- sh -c -- x", Ok(("ns/web", "app", &["sh", "-c", "--", "x"], 5)));
        check("-it web -- sh", Ok(("web", "", &["sh"], 0)));
        check("-i --timeout 5 web -- sh", Err("--timeout goes without -i and -t"));
        check("web ls", Err("put -- before the command: ferrolet exec POD -- ls"));
        check("web", Err("which command? It comes after --"));
        check("-- ls", Err("in which pod?"));
        check("web -x -- ls", Err("invalid option '-x'"));
    }
}
