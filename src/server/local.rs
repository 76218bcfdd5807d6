//! The local socket behind `ferrolet ps`, `describe`, `why`, `logs` and `exec`, for root alone.
//!
//! Thread `local` owns the listening socket and its file, up to 16 short-lived `local-conn` threads
//! answer one question each (see [`super::wire`]). Nothing happens while nobody asks. It reads snapshots
//! and asks the runtime for exec sessions; it never changes what the agent wants, and it must work
//! without an API server.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::accept::{Acceptor, Deadlined};
use super::health::Checks;
use super::resolve;
use super::stats::Stats;
use super::wire::{Answer, CheckResult, Exec, Failure, FailureKind, NodeDetails, PodDetails, REQUEST_LIMIT, Request};
use crate::api::runtime_info::StreamOptions;
use crate::cri::{Client, CriError};
use crate::msg::{NodeView, PodView};
use crate::util::cancel::Cancel;
use crate::util::snapshot::Snapshot;
use crate::util::thread::{OwnerThread, StackSize};

/// Where the socket lies with the default root folder; with another it is in `<root-dir>/ferrolet`.
pub const DEFAULT_PATH: &str = "/run/ferrolet/ferrolet.sock";
/// The socket's name in `<root-dir>/ferrolet`.
pub const FILE_NAME: &str = "ferrolet.sock";

/// Connections at a time.
const CONNECTIONS: usize = 16;
/// Time to hand in a question.
const ASK_TIME: Duration = Duration::from_secs(5);
/// Time to take an answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Longest command run without a stream.
const EXEC_LIMIT: u32 = 3600;
/// For commands that name no limit.
const EXEC_DEFAULT: u32 = 60;

/// What the socket answers from.
#[derive(Clone, Debug)]
pub struct LocalTools {
    /// The newest view of the node.
    pub view: Arc<Snapshot<NodeView>>,
    /// The container runtime, for exec.
    pub client: Client,
    /// The health checks, those of `/healthz`.
    pub checks: Checks,
    /// Numbers about the node and its pods.
    pub stats: Arc<Stats>,
}

/// The running server. Dropping it ends its threads and removes the socket's file.
#[derive(Debug)]
pub struct LocalServer {
    stop: Cancel,
    path: PathBuf,
    /// Device and inode of our file, so that the file of a successor stays.
    file: (u64, u64),
    _thread: OwnerThread,
}

impl LocalServer {
    /// Listens on the socket `path`, with a mode of 0600 from its first moment on. What a dead agent left
    /// there is replaced; a socket on which somebody listens, or a file that is no socket, stays.
    ///
    /// # Errors
    /// Another agent listens there, something else lies there, the folder cannot be made, the path is
    /// too long for a socket, or the kernel has no thread left.
    pub fn start(path: &Path, tools: LocalTools) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("socket {}: {error}", path.display()));
        let listener = bind(path).map_err(named)?;
        let made = fs::symlink_metadata(path).map_err(named)?;
        let stop = Cancel::new();
        let token = stop.clone();
        let thread = OwnerThread::spawn("local", StackSize::Small, move || {
            let serve = move |stream: &UnixStream, stop: &Cancel| answer(stream, &tools, stop);
            let acceptor = Acceptor {
                listener,
                thread_name: "local-conn",
                limit: CONNECTIONS,
                stop: token,
                serve: Arc::new(serve),
            };
            if let Err(error) = acceptor.run() {
                log::error!("the local socket is not served: {error}");
            }
        })?;
        Ok(Self { stop, path: path.to_path_buf(), file: (made.dev(), made.ino()), _thread: thread })
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            let _gone_already = fs::remove_file(&self.path);
        }
    }
}

/// Makes the listening socket under another name and renames it, so that nobody ever meets it with a
/// wider mode, and a client finds the old one or the new one.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path is taken by what is no socket"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another ferrolet listens there"));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let fresh = path.with_extension("new");
    match fs::symlink_metadata(&fresh) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(&fresh)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} is taken", fresh.display()))),
        Err(_) => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    let placed = fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).and_then(|()| fs::rename(&fresh, path));
    if placed.is_err() {
        let _cleaned_up = fs::remove_file(&fresh);
    }
    placed.map(|()| listener)
}

/// Answers one connection.
fn answer(stream: &UnixStream, tools: &LocalTools, stop: &Cancel) {
    // A client that went away or is too slow has no use for an error.
    let _sent = match read_request(stream) {
        Ok(Some(request)) => respond(stream, tools, request, stop),
        Ok(None) => Ok(()),
        Err(failure) => send(stream, [Ok(Answer::Error(failure))]),
    };
}

/// The question; `None` if the client said nothing or is too slow.
fn read_request(stream: &UnixStream) -> Result<Option<Request>, Failure> {
    let refuse = |kind, message: String| Failure { kind, message };
    let peer = getsockopt(stream, PeerCredentials)
        .map_err(|errno| refuse(FailureKind::Forbidden, format!("the kernel does not say who asks: {errno}")))?;
    if !is_allowed(peer.uid()) {
        return Err(refuse(FailureKind::Forbidden, "only root may ask the agent".to_owned()));
    }
    let line = match Deadlined::new(stream, ASK_TIME).read_until(b"\n", REQUEST_LIMIT) {
        Ok(Some(line)) => line,
        Ok(None) => {
            let message = format!("a question is one line of JSON, at most {REQUEST_LIMIT} bytes");
            return Err(refuse(FailureKind::BadRequest, message));
        }
        Err(_) => return Ok(None),
    };
    serde_json::from_slice(&line)
        .map(Some)
        .map_err(|error| refuse(FailureKind::BadRequest, format!("not a question that is understood: {error}")))
}

/// Root, and whoever the agent itself runs as.
fn is_allowed(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

fn respond(stream: &UnixStream, tools: &LocalTools, request: Request, stop: &Cancel) -> io::Result<()> {
    match request {
        Request::Pods {} => {
            let view = tools.view.get();
            let pods = view.pods.values().map(|pod| Ok(pod_answer(pod)));
            send(stream, std::iter::once(Ok(node_answer(&view))).chain(pods).chain([Ok(Answer::End {})]))
        }
        Request::Pod { pod } => {
            let view = tools.view.get();
            match resolve::find_pod(&view, &pod) {
                Ok(pod) => send(stream, [Ok(node_answer(&view)), Ok(pod_answer(&pod)), Ok(Answer::End {})]),
                Err(failure) => send(stream, [Err(failure)]),
            }
        }
        Request::Health {} => {
            let result = |check: &super::Check| CheckResult {
                name: check.name().to_owned(),
                problem: check.run().err().unwrap_or_default(),
            };
            send(stream, [Ok(Answer::Health(tools.checks.iter().map(result).collect()))])
        }
        Request::Top {} => send(stream, [Ok(Answer::Top(Box::new(tools.stats.top())))]),
        Request::ExecSync(exec) => exec_sync(stream, tools, &exec, stop),
        Request::ExecStream(exec) => send(stream, [exec_stream(tools, &exec, stop).map(|url| Answer::Stream { url })]),
    }
}

fn node_answer(view: &NodeView) -> Answer {
    Answer::Node(NodeDetails::from(view))
}

fn pod_answer(pod: &Arc<PodView>) -> Answer {
    Answer::Pod(Box::new(PodDetails::from(&**pod)))
}

/// Writes an answer, one line each, made when its turn comes.
fn send(stream: &UnixStream, answers: impl IntoIterator<Item = Result<Answer, Failure>>) -> io::Result<()> {
    let mut out = BufWriter::new(Deadlined::new(stream, ANSWER_TIME));
    for answer in answers {
        write_line(&mut out, &answer.unwrap_or_else(Answer::Error))?;
    }
    out.flush()
}

fn write_line(out: &mut impl Write, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    out.write_all(&line)
}

fn exec_sync(stream: &UnixStream, tools: &LocalTools, exec: &Exec, stop: &Cancel) -> io::Result<()> {
    let seconds = if exec.timeout_seconds == 0 { EXEC_DEFAULT } else { exec.timeout_seconds.min(EXEC_LIMIT) };
    let output = find_container(tools, exec).and_then(|id| {
        let limit = Duration::from_secs(seconds.into());
        tools.client.exec_sync(&id, &exec.command, limit, stop).map_err(|error| runtime_failure(&error))
    });
    let output = match output {
        Ok(output) => output,
        Err(failure) => return send(stream, [Err(failure)]),
    };
    let mut out = BufWriter::new(Deadlined::new(stream, ANSWER_TIME));
    for (fd, bytes) in [(1, &output.stdout), (2, &output.stderr)] {
        if !bytes.is_empty() {
            write_line(&mut out, &Answer::Output { fd, bytes: bytes.len() })?;
            out.write_all(bytes)?;
        }
    }
    write_line(&mut out, &Answer::Exit { code: output.exit_code, truncated: output.truncated })?;
    out.flush()
}

/// The tool connects to the runtime by itself, so that no byte of a session passes through the agent.
fn exec_stream(tools: &LocalTools, exec: &Exec, stop: &Cancel) -> Result<String, Failure> {
    let id = find_container(tools, exec)?;
    let streams = StreamOptions { tty: exec.tty, stdin: exec.stdin, stdout: true, stderr: !exec.tty };
    tools.client.exec_url(&id, &exec.command, streams, stop).map_err(|error| runtime_failure(&error))
}

fn find_container(tools: &LocalTools, exec: &Exec) -> Result<crate::api::ContainerId, Failure> {
    if exec.command.is_empty() {
        return Err(Failure { kind: FailureKind::BadRequest, message: "no command was given".to_owned() });
    }
    let pod = resolve::find_pod(&tools.view.get(), &exec.pod)?;
    let name = resolve::container_name(&pod, &exec.container)?;
    resolve::running_container(&pod, &name)
}

fn runtime_failure(error: &CriError) -> Failure {
    Failure { kind: FailureKind::Runtime, message: error.to_string() }
}

#[cfg(test)]
mod tests;
