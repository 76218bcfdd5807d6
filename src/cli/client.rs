//! How the tools ask the running agent: one question over its local socket. Runs on the main thread.
//!
//! Owns the connection of one question. It never starts an agent and never needs an API server. Here
//! too are the exit codes of all tools and the flags that they share.

use super::{complain, help, print};
use crate::server::local::DEFAULT_PATH;
use crate::server::wire::{Answer, Failure, FailureKind, NodeDetails, PodDetails, Request};
use crate::util::json;
use crate::util::order;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Names the socket, unless `--socket` does.
pub(super) const SOCKET_VARIABLE: &str = "FERROLET_SOCKET";
/// What was asked for can't be had: no such pod, an ambiguous name, the runtime refused, ...
const FAILED: u8 = 1;
/// The command line makes no sense.
const USAGE: u8 = 2;
/// No agent answers on the socket.
const NO_AGENT: u8 = 3;
/// How long the agent may keep silent. A command that runs in a container is given its own time on top.
const SILENCE: Duration = Duration::from_secs(30);
/// Most bytes taken of one line of an answer.
const LINE_LIMIT: u64 = 64 << 20;

/// Why a tool ends without what it was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The tool's exit code.
    pub(super) code: u8,
    /// What the agent said of it, if it was the agent.
    pub(super) kind: Option<FailureKind>,
    /// For stderr; empty where nobody needs one.
    pub(super) message: String,
}

impl Refusal {
    /// The command line makes no sense.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, kind: None, message: message.into() }
    }

    /// It can't be had.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self { code: FAILED, kind: None, message: message.into() }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { code: FAILED, kind: Some(failure.kind), message: failure.message }
    }
}

impl From<lexopt::Error> for Refusal {
    fn from(error: lexopt::Error) -> Self {
        Self::usage(error.to_string())
    }
}

/// Ends a tool: tells what went wrong and gives the exit code.
pub(super) fn end(tool: &str, result: Result<ExitCode, Refusal>) -> ExitCode {
    result.unwrap_or_else(|refusal| {
        if !refusal.message.is_empty() {
            complain(&refusal.message);
        }
        if refusal.code == USAGE {
            complain(&format!("see ferrolet {tool} --help"));
        }
        ExitCode::from(refusal.code)
    })
}

/// The tool's help, and what all of them have in common.
pub(super) fn show_help(tool: &str, more: &str) -> ExitCode {
    print(&format!(
        "{}{more}\nAsks the running agent over its local socket; only root may, and no API server is needed.\n  \
         --socket PATH   the agent's socket (default: ${SOCKET_VARIABLE}, else {DEFAULT_PATH};\n                  \
         with another --root-dir it is <root-dir>/ferrolet/ferrolet.sock)\n\nExit codes: 0 done, {FAILED} it cannot be \
         had (no such pod, ...), {USAGE} wrong usage, {NO_AGENT} no agent answers.\n",
        help::tool(tool)
    ))
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Output {
    /// For people.
    #[default]
    Text,
    /// For people with wide screens.
    Wide,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

impl Output {
    /// Reads the value of `-o`.
    pub(super) fn parse(word: &OsStr, may_be_wide: bool) -> Result<Self, Refusal> {
        match word.to_str() {
            Some("json") => Ok(Self::Json),
            Some("yaml") => Ok(Self::Yaml),
            Some("wide") if may_be_wide => Ok(Self::Wide),
            _ => {
                let wide = if may_be_wide { "wide, " } else { "" };
                Err(Refusal::usage(format!("-o takes {wide}json or yaml, not {}", word.display())))
            }
        }
    }

    /// Prints a value for programs.
    pub(super) fn print(self, value: &impl serde::Serialize) -> Result<ExitCode, Refusal> {
        let text = match self {
            Self::Yaml => serde_yaml::to_string(value).map_err(|error| error.to_string()),
            Self::Json | Self::Text | Self::Wide => {
                serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|error| error.to_string())
            }
        };
        text.map(|text| print(&text)).map_err(|error| Refusal::failed(format!("cannot print this: {error}")))
    }
}

/// Which agent to ask.
#[derive(Clone, Debug, Default)]
pub(super) struct Agent {
    /// `--socket`.
    pub(super) socket: Option<PathBuf>,
}

impl Agent {
    fn path(&self) -> PathBuf {
        let variable = || std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        self.socket.clone().or_else(variable).unwrap_or_else(|| PathBuf::from(DEFAULT_PATH))
    }

    /// Asks; the answer may take `patience` longer than usual to begin.
    pub(super) fn ask(&self, request: &Request, patience: Duration) -> Result<Answers, Refusal> {
        let path = self.path();
        let mut stream = UnixStream::connect(&path).map_err(|error| no_agent(&path, &error))?;
        let lost = |error: std::io::Error| no_agent(&path, &error);
        stream.set_read_timeout(Some(SILENCE + patience)).map_err(lost)?;
        stream.set_write_timeout(Some(SILENCE)).map_err(lost)?;
        let mut line = serde_json::to_vec(request).map_err(|error| Refusal::failed(error.to_string()))?;
        line.push(b'\n');
        stream.write_all(&line).map_err(lost)?;
        Ok(Answers { path, lines: BufReader::new(stream) })
    }

    /// The node and all its pods, by namespace and name.
    pub(super) fn pods(&self) -> Result<(NodeDetails, Vec<PodDetails>), Refusal> {
        self.ask(&Request::Pods {}, Duration::ZERO)?.collect()
    }

    /// The node and one pod.
    pub(super) fn pod(&self, pod: &str) -> Result<(NodeDetails, PodDetails), Refusal> {
        let (node, mut pods) = self.ask(&Request::Pod { pod: pod.to_owned() }, Duration::ZERO)?.collect()?;
        let pod = pods.pop().ok_or_else(|| Refusal::failed("the agent told nothing of the pod"))?;
        Ok((node, pod))
    }
}

fn no_agent(path: &Path, error: &std::io::Error) -> Refusal {
    let path = path.display();
    let message = match error.kind() {
        ErrorKind::NotFound => format!(
            "the agent is not running: there is no {path}; start it (systemctl start ferrolet), or name its socket with \
             --socket"
        ),
        ErrorKind::ConnectionRefused => {
            format!("the agent is not running: nobody listens on {path}, which it left behind")
        }
        ErrorKind::PermissionDenied => format!("only root may ask the agent: {path}: {error}; try sudo"),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("the agent does not answer on {path}; http://127.0.0.1:10248/healthz tells how it is")
        }
        _ => format!("the agent cannot be asked on {path}: {error}"),
    };
    Refusal { code: NO_AGENT, kind: None, message }
}

/// An answer, line by line.
#[derive(Debug)]
pub(super) struct Answers {
    path: PathBuf,
    lines: BufReader<UnixStream>,
}

impl Answers {
    /// The next line, unless it is an error.
    pub(super) fn next(&mut self) -> Result<Answer, Refusal> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(LINE_LIMIT).read_until(b'\n', &mut line);
        read.map_err(|error| no_agent(&self.path, &error))?;
        if line.last() != Some(&b'\n') {
            return Err(Refusal { code: NO_AGENT, kind: None, message: "the agent broke its answer off".to_owned() });
        }
        match json::from_slice(&line) {
            Ok(Answer::Error(failure)) => Err(failure.into()),
            Ok(answer) => Ok(answer),
            Err(error) => Err(Refusal::failed(format!(
                "the agent's answer is not understood ({error}); agent and tool may be of different versions"
            ))),
        }
    }

    /// Copies raw output that was announced.
    pub(super) fn copy(&mut self, bytes: usize, out: &mut impl Write) -> Result<(), Refusal> {
        let mut rest = bytes;
        let mut block = [0; 8192];
        while rest > 0 {
            let room = rest.min(block.len());
            let read = self.lines.read_exact(&mut block[..room]);
            read.map_err(|error| no_agent(&self.path, &error))?;
            // Whoever read it may have gone (`| head`); the command's exit code still counts.
            let _gone = out.write_all(&block[..room]);
            rest -= room;
        }
        let _gone = out.flush();
        Ok(())
    }

    /// All pods up to the end.
    fn collect(mut self) -> Result<(NodeDetails, Vec<PodDetails>), Refusal> {
        let mut node = NodeDetails::default();
        let mut pods = Vec::new();
        loop {
            match self.next()? {
                Answer::Node(details) => node = details,
                Answer::Pod(details) => pods.push(*details),
                Answer::End {} => break,
                other => return Err(unexpected(&other)),
            }
        }
        order::sort_by(&mut pods, |a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
        Ok((node, pods))
    }
}

/// An answer to another question.
pub(super) fn unexpected(answer: &Answer) -> Refusal {
    let text = serde_json::to_string(answer).unwrap_or_default();
    Refusal::failed(format!("the agent answered something else: {}", text.chars().take(200).collect::<String>()))
}

/// What is wrong with the node as a whole, one sentence each.
pub(super) fn node_problems(node: &NodeDetails) -> Vec<String> {
    let mut told = Vec::new();
    if !node.runtime_down.is_empty() {
        told.push(format!("the container runtime does not answer: {}", node.runtime_down));
    }
    if !node.silent_sources.is_empty() {
        let sources = node.silent_sources.join(", ");
        told.push(format!("no word yet from these sources of pods, so nothing is removed: {sources}"));
    }
    told.extend(node.problems.iter().map(|problem| format!("{} cannot be used: {}", problem.origin, problem.message)));
    told
}

/// A word of the command line as text.
pub(super) fn text(word: OsString) -> Result<String, Refusal> {
    word.into_string().map_err(|word| Refusal::usage(format!("{} is no UTF-8", word.display())))
}

/// The one pod that a command line names.
pub(super) fn take_pod(pod: &mut Option<String>, word: OsString) -> Result<(), Refusal> {
    match pod.replace(text(word)?) {
        None => Ok(()),
        Some(first) => Err(Refusal::usage(format!("one pod at a time, {first} was named already"))),
    }
}
