//! `/healthz` on plain HTTP (healthzBindAddress, healthzPort): is the agent alive, and if not, what is wrong.
//!
//! Thread `healthz` owns the listening socket, up to eight short-lived `healthz-conn` threads serve one
//! request each. Answers come from the checks it was given; it knows nothing of its own and changes
//! nothing. While the address is taken it tries again, as the agent's pods matter more than its probe.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

use super::accept::{Acceptor, Deadlined};
use crate::msg::NodeView;
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::heartbeat::Heartbeat;
use crate::util::snapshot::Snapshot;
use crate::util::thread::{OwnerThread, StackSize};

/// Connections at a time.
const CONNECTIONS: usize = 8;
/// Time for one request, its checks apart.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Most bytes of a request.
const REQUEST_LIMIT: usize = 8 << 10;
/// How soon a taken address is tried again.
const BIND_AGAIN: Duration = Duration::from_secs(5);
/// Age of PLEG's last success above which it counts as broken.
pub const PLEG_LIMIT: Duration = Duration::from_secs(180);
/// Time that the sync loop has for an answer.
pub const SYNC_LOOP_LIMIT: Duration = Duration::from_secs(2);

/// One named health check.
pub struct Check {
    name: &'static str,
    run: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

/// All checks, shared by the servers that tell of them.
pub type Checks = Arc<[Check]>;

impl Check {
    /// A check by this name; `run` says what is wrong and must end within seconds.
    pub fn new(name: &'static str, run: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { name, run: Box::new(run) }
    }

    /// `ping`: the health server answers.
    pub fn ping() -> Self {
        Self::new("ping", || Ok(()))
    }

    /// `log`: every line is written before whoever says it goes on, so that a log that blocks shows in the other checks; this one is
    /// there for those who ask for it.
    pub fn log() -> Self {
        Self::new("log", || Ok(()))
    }

    /// `syncloop`: it answers within two seconds. `ask` hands it the sender for its answer, without
    /// waiting, and says whether it was taken.
    pub fn sync_loop(ask: impl Fn(Sender<()>) -> bool + Send + Sync + 'static) -> Self {
        Self::sync_loop_within(SYNC_LOOP_LIMIT, ask)
    }

    fn sync_loop_within(limit: Duration, ask: impl Fn(Sender<()>) -> bool + Send + Sync + 'static) -> Self {
        Self::new("syncloop", move || {
            let (answer, answered) = bounded(1);
            if !ask(answer) {
                return Err("the sync loop does not take questions any more".to_owned());
            }
            answered
                .recv_timeout(limit)
                .map_err(|_| format!("the sync loop did not answer within {} s", limit.as_secs_f32()))
        })
    }

    /// `pleg`: the runtime was listed with success within three minutes, and answers.
    pub fn pleg(relisted: Arc<Heartbeat>, view: Arc<Snapshot<NodeView>>) -> Self {
        Self::new("pleg", move || {
            let view = view.get();
            if !view.runtime_down.is_empty() {
                return Err(format!("the container runtime does not answer: {}", view.runtime_down));
            }
            match relisted.age(clock::moment()) {
                None => Err("the runtime's containers were not listed yet".to_owned()),
                Some(age) if age > PLEG_LIMIT => Err(format!(
                    "the runtime's containers were last listed {} s ago, the limit is {} s",
                    age.as_secs(),
                    PLEG_LIMIT.as_secs()
                )),
                Some(_) => Ok(()),
            }
        })
    }

    /// The check's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the check.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn run(&self) -> Result<(), String> {
        (self.run)()
    }
}

/// The running server. Dropping it ends its threads.
#[derive(Debug)]
pub struct HealthServer {
    stop: Cancel,
    addr: Option<SocketAddr>,
    _thread: OwnerThread,
}

impl HealthServer {
    /// Listens on `addr`. If that is not possible now it is told in the log and tried again every five
    /// seconds. Whether port 0 means "off" is the caller's business; here it means "any port".
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(addr: SocketAddr, checks: Checks) -> io::Result<Self> {
        let stop = Cancel::new();
        let listener = TcpListener::bind(addr).inspect_err(|error| {
            log::error!("cannot listen for /healthz on {addr}, trying again every {} s: {error}", BIND_AGAIN.as_secs());
        });
        let bound = listener.as_ref().ok().and_then(|listener| listener.local_addr().ok());
        let token = stop.clone();
        let thread = OwnerThread::spawn("healthz", StackSize::Small, move || {
            let Some(listener) = listener.ok().or_else(|| bind_again(addr, &token)) else { return };
            let serve = move |stream: &TcpStream, _: &Cancel| answer(stream, &checks);
            let acceptor = Acceptor {
                listener,
                thread_name: "healthz-conn",
                limit: CONNECTIONS,
                stop: token,
                serve: Arc::new(serve),
            };
            if let Err(error) = acceptor.run() {
                log::error!("/healthz on {addr} is not served: {error}");
            }
        })?;
        Ok(Self { stop, addr: bound, _thread: thread })
    }

    /// Where it listens; `None` if the address was taken at the start.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.addr
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Tries until the address is free; `None` when told to stop.
fn bind_again(addr: SocketAddr, stop: &Cancel) -> Option<TcpListener> {
    while !stop.wait(BIND_AGAIN) {
        if let Ok(listener) = TcpListener::bind(addr) {
            log::info!("/healthz listens on {addr} now");
            return Some(listener);
        }
    }
    None
}

/// Serves one request.
fn answer(stream: &TcpStream, checks: &[Check]) {
    let mut reading = Deadlined::new(stream, REQUEST_TIME);
    let request = match reading.read_until(b"\r\n\r\n", REQUEST_LIMIT) {
        Ok(Some(request)) => request,
        Ok(None) => Vec::new(),
        // Too slow or gone: nobody waits for an answer.
        Err(_) => return,
    };
    let reply = reply(&request, checks);
    // A client that went away has no use for an error.
    let _sent = Deadlined::new(stream, REQUEST_TIME).write_all(&reply);
}

/// The whole answer to a request: status line, headers, text.
fn reply(request: &[u8], checks: &[Check]) -> Vec<u8> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let parts: Vec<&str> = line.split(' ').collect();
    let (head_only, (status, text)) = match parts[..] {
        [method @ ("GET" | "HEAD"), target, version] if version.starts_with("HTTP/1.") => {
            (method == "HEAD", route(target, checks))
        }
        [_, _, version] if version.starts_with("HTTP/1.") => {
            (false, ("405 Method Not Allowed", "only GET and HEAD are served here\n".to_owned()))
        }
        _ => (false, ("400 Bad Request", "this is no HTTP/1.1 request\n".to_owned())),
    };
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
         Cache-Control: no-cache, private\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    if !head_only {
        reply.push_str(&text);
    }
    reply.into_bytes()
}

/// Status and text for a path with its query.
fn route(target: &str, checks: &[Check]) -> (&'static str, String) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let words: Vec<&str> = query.split('&').filter(|word| !word.is_empty()).collect();
    let verbose = words.iter().any(|word| *word == "verbose" || word.starts_with("verbose="));
    let is_excluded = |check: &Check| words.iter().any(|word| word.strip_prefix("exclude=") == Some(check.name));
    if path == "/healthz" || path == "/healthz/" {
        return summary(checks.iter().filter(|check| !is_excluded(check)), verbose);
    }
    match path.strip_prefix("/healthz/").and_then(|name| checks.iter().find(|check| check.name == name)) {
        Some(check) => match check.run() {
            Ok(()) => ("200 OK", "ok".to_owned()),
            Err(why) => ("500 Internal Server Error", format!("internal server error: {why}\n")),
        },
        None => ("404 Not Found", "404 page not found\n".to_owned()),
    }
}

fn summary<'a>(checks: impl Iterator<Item = &'a Check>, verbose: bool) -> (&'static str, String) {
    let mut text = String::new();
    let mut failed = false;
    for check in checks {
        // Writing to a String cannot fail.
        let _written = match check.run() {
            Ok(()) => writeln!(text, "[+]{} ok", check.name),
            Err(why) => {
                failed = true;
                writeln!(text, "[-]{} failed: {why}", check.name)
            }
        };
    }
    match (failed, verbose) {
        (true, _) => ("500 Internal Server Error", text + "healthz check failed\n"),
        (false, true) => ("200 OK", text + "healthz check passed\n"),
        (false, false) => ("200 OK", "ok".to_owned()),
    }
}

#[cfg(test)]
mod tests;
