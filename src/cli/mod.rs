//! What the program's name and first argument choose: the agent, or one of the tools. Layer L4; runs on the main thread, which ends
//! with the exit code that comes back. The tools talk to a running agent or to nobody; none of them starts one.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

mod agent;
mod check;
mod client;
mod config;
mod describe;
mod exec;
mod help;
mod logs;
mod ps;
#[cfg(test)]
mod samples;
mod spdy;
mod table;
#[cfg(test)]
mod tests;
mod top;
mod version;
mod why;

/// A subcommand. To add one, write `src/cli/NAME.rs` with `pub(super) fn run(args: Vec<OsString>) -> ExitCode` and add a row.
pub struct Tool {
    /// What one types after `ferrolet`.
    pub name: &'static str,
    /// Its arguments, for the help.
    pub arguments: &'static str,
    /// What it is for, for the help.
    pub about: &'static str,
    /// Runs it with the arguments after its name.
    pub run: fn(Vec<OsString>) -> ExitCode,
}

/// Every subcommand, in the order of the help.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "ps",
        arguments: "[-n NAMESPACE] [-o wide|json|yaml]",
        about: "List the pods of this node.",
        run: ps::run,
    },
    Tool {
        name: "describe",
        arguments: "POD [-o json|yaml]",
        about: "Tell all that is known of a pod.",
        run: describe::run,
    },
    Tool {
        name: "top",
        arguments: "[-n NAMESPACE] [--containers] [--sort cpu|memory] [--once] [-o json|yaml]",
        about: "Show what the node and its pods use.",
        run: top::run,
    },
    Tool {
        name: "why",
        arguments: "[POD] [-o json|yaml]",
        about: "Say in plain words what a pod waits for.",
        run: why::run,
    },
    Tool {
        name: "logs",
        arguments: "[-f] [-p] [--tail N] [--since SPAN] [--timestamps] POD [-c CONTAINER]",
        about: "Print what a container printed.",
        run: logs::run,
    },
    Tool {
        name: "exec",
        arguments: "[-it] POD [-c CONTAINER] -- COMMAND...",
        about: "Run a command in a container and pass its exit code on.",
        run: exec::run,
    },
    Tool {
        name: "config",
        arguments: "[agent flags]",
        about: "Check the configuration and print what is in effect, as YAML.",
        run: config::run,
    },
    Tool {
        name: "check",
        arguments: "[-o json] [agent flags]",
        about: "Look whether this machine can be a node, and say what to do where it cannot.",
        run: check::run,
    },
    Tool {
        name: "version",
        arguments: "[-o json]",
        about: "Print the versions of ferrolet and of its kubelet.",
        run: version::run,
    },
    Tool { name: "help", arguments: "[COMMAND]", about: "Print this help.", run: help::run },
];

/// The program: `args` are all arguments with the program's name.
///
/// A link named `kubelet` is always the agent. Otherwise the first argument may name a tool; without one, or with a flag
/// there, it is the agent too.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let program = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    let (run, rest) = match choose(&program, &args) {
        Choice::Agent { as_kubelet } => return agent::run(args, as_kubelet),
        Choice::Tool(tool) => (tool.run, args.into_iter().skip(1).collect()),
        Choice::Unknown(word) => {
            let near = crate::config::problem::nearest(&word, TOOLS.iter().map(|tool| tool.name));
            let hint = near.map_or_else(|| "see ferrolet help".to_owned(), |near| format!("did you mean {near}?"));
            complain(&format!("there is no command `{word}`, {hint}"));
            return ExitCode::from(2);
        }
    };
    run(rest)
}

/// What a command line starts.
enum Choice {
    Agent { as_kubelet: bool },
    Tool(&'static Tool),
    Unknown(String),
}

fn choose(program: &OsStr, args: &[OsString]) -> Choice {
    let as_kubelet = Path::new(program).file_name().is_some_and(|name| name == "kubelet");
    let Some(first) = args.first().filter(|_| !as_kubelet) else { return Choice::Agent { as_kubelet } };
    let first = first.to_string_lossy();
    if let Some(tool) = TOOLS.iter().find(|tool| tool.name == first) {
        return Choice::Tool(tool);
    }
    if first.starts_with('-') { Choice::Agent { as_kubelet } } else { Choice::Unknown(first.into_owned()) }
}

/// Writes to stdout; a reader that has gone (`| head`) is no failure.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            complain(&format!("stdout cannot be written: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes one message to stderr; where that is closed, nobody wants to know.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "ferrolet: {message}");
}
