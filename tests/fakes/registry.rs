//! An image registry on loopback: serves pulls by the distribution protocol, records them, fails on demand.
//!
//! One thread accepts, one a connection serves a single request each. Owns the images it was given.
//! Read only; a runtime finds it through [`Registry::write_hosts`]. It never answers for images that
//! nobody added.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::registry_image::{MANIFEST_TYPE, RegistryImage};

/// Longest wait for a request's bytes or for the other side to take the answer.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(60);

/// What goes wrong until the next call of [`Registry::set_fault`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// Every request is answered with this status; 404 and 429 and 401 with the codes of the protocol.
    Status(u16),
    /// No request is answered.
    Hang,
    /// Manifests are served; blobs stop after so many bytes and the connection stays.
    HangBlobs(usize),
    /// Blobs trickle: so many bytes at a time, with a pause between.
    SlowBlobs(usize, Duration),
    /// Blobs end after so many bytes.
    CutBlobs(usize),
    /// Blobs have their right length and other bytes.
    WrongBlobs,
    /// Every manifest is there, and no JSON.
    WrongManifests,
    /// Every request needs this user and password.
    Login(&'static str, &'static str),
}

#[derive(Debug)]
struct State {
    /// Manifest by repository and reference (tag or digest).
    manifests: BTreeMap<(String, String), Vec<u8>>,
    blobs: BTreeMap<String, Vec<u8>>,
    fault: Fault,
    requests: Vec<String>,
    stopping: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The fault or `stopping` changed, or a request came.
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `fault` holds, at most `pause` if there is one; whether to go on serving.
    fn wait_while(&self, fault: &Fault, pause: Option<Duration>) -> bool {
        let state = self.lock();
        let held = |state: &mut State| state.fault == *fault && !state.stopping;
        let state = match pause {
            None => self.changed.wait_while(state, held).unwrap_or_else(PoisonError::into_inner),
            Some(pause) => {
                self.changed.wait_timeout_while(state, pause, held).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        !state.stopping
    }
}

/// The running registry; ends with its value.
#[derive(Debug)]
pub(crate) struct Registry {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Registry {
    /// Starts an empty one on a free port.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let state = State {
            manifests: BTreeMap::new(),
            blobs: BTreeMap::new(),
            fault: Fault::None,
            requests: Vec::new(),
            stopping: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || accept(&listener, &theirs));
        Self { address, shared, accepting: Some(accepting) }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// The full name of an image here: `127.0.0.1:PORT/NAME`.
    pub(crate) fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Serves an image as `repository:tag` and under its digest.
    pub(crate) fn add(&self, repository: &str, tag: &str, image: &RegistryImage) {
        let mut state = self.shared.lock();
        for reference in [tag, &image.digest()] {
            state.manifests.insert((repository.to_owned(), reference.to_owned()), image.manifest.clone());
        }
        state.blobs.extend(image.blobs.iter().cloned());
    }

    /// From now on this goes wrong; requests that hang over the fault before go on.
    pub(crate) fn set_fault(&self, fault: Fault) {
        self.shared.lock().fault = fault;
        self.shared.changed.notify_all();
    }

    /// The requests so far: `GET /v2/me/tool/manifests/latest`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.lock().requests.clone()
    }

    /// Waits for a request that contains `part`; whether it came in time.
    pub(crate) fn saw(&self, part: &str, within: Duration) -> bool {
        let missing = |state: &mut State| !state.requests.iter().any(|request| request.contains(part));
        let state = self.shared.lock();
        let outcome = self.shared.changed.wait_timeout_while(state, within, missing);
        !outcome.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Makes containerd get images of `registry` (`docker.io`, or our own address) from here: writes
    /// `CERTS_D/REGISTRY/hosts.toml`, where `CERTS_D` is the CRI plugin's `registry.config_path`.
    pub(crate) fn write_hosts(&self, certs_d: &Path, registry: &str) -> io::Result<()> {
        let folder = certs_d.join(registry);
        std::fs::create_dir_all(&folder)?;
        let url = format!("http://{}", self.address);
        std::fs::write(
            folder.join("hosts.toml"),
            format!("server = \"{url}\"\n\n[host.\"{url}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"),
        )
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_all();
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            let _a_failed_test_tells_itself = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut serving: Vec<JoinHandle<()>> = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        if shared.lock().stopping {
            break;
        }
        serving.retain(|thread| !thread.is_finished());
        let theirs = Arc::clone(shared);
        // A peer that goes away in the middle is what some tests want.
        serving.push(std::thread::spawn(move || drop(serve(&stream, &theirs))));
    }
    for thread in serving {
        let _its_panic_was_printed = thread.join();
    }
}

/// A request's head.
struct Request {
    method: String,
    path: String,
    /// Lower-case names.
    headers: BTreeMap<String, String>,
}

fn read_request(stream: &TcpStream) -> io::Result<Request> {
    let mut reader = BufReader::new(stream.take(64 * 1024));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no request line"));
    };
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(Request { method, path, headers });
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }
}

/// An answer: status, headers and body.
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn error(status: u16, code: &str, message: &str) -> Self {
        let body = serde_json::json!({"errors": [{"code": code, "message": message}]}).to_string().into_bytes();
        Self { status, headers: vec![("Content-Type", "application/json".to_owned())], body }
    }
}

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    let request = read_request(stream)?;
    let fault = {
        let mut state = shared.lock();
        state.requests.push(format!("{} {}", request.method, request.path));
        shared.changed.notify_all();
        state.fault.clone()
    };
    if fault == Fault::Hang && !shared.wait_while(&fault, None) {
        return Ok(());
    }
    let answer = refusal(&fault, &request).unwrap_or_else(|| answer(&request, &fault, &shared.lock()));
    write_head(stream, &answer)?;
    if request.method == "HEAD" {
        return Ok(());
    }
    let is_blob = request.path.contains("/blobs/") && answer.status < 300;
    write_body(stream, &answer.body, if is_blob { &fault } else { &Fault::None }, shared)
}

/// The answer of a registry that does not serve.
fn refusal(fault: &Fault, request: &Request) -> Option<Answer> {
    match fault {
        Fault::Status(401) => Some(unauthorized()),
        Fault::Status(404) => Some(Answer::error(404, "MANIFEST_UNKNOWN", "manifest unknown")),
        Fault::Status(429) => {
            let mut answer = Answer::error(429, "TOOMANYREQUESTS", "you have reached your pull rate limit");
            answer.headers.push(("Retry-After", "1".to_owned()));
            Some(answer)
        }
        Fault::Status(status) => Some(Answer::error(*status, "UNKNOWN", "something broke")),
        Fault::Login(user, password) => {
            let expected = format!("Basic {}", base64(format!("{user}:{password}").as_bytes()));
            (request.headers.get("authorization") != Some(&expected)).then(unauthorized)
        }
        _ => None,
    }
}

fn unauthorized() -> Answer {
    let mut answer = Answer::error(401, "UNAUTHORIZED", "authentication required");
    answer.headers.push(("WWW-Authenticate", "Basic realm=\"registry\"".to_owned()));
    answer
}

fn answer(request: &Request, fault: &Fault, state: &State) -> Answer {
    // `?ns=` tells a mirror which registry it stands for.
    let path = request.path.split('?').next().unwrap_or_default();
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Answer::error(405, "UNSUPPORTED", "this registry is read only");
    }
    let Some(rest) = path.strip_prefix("/v2/") else { return Answer::error(404, "UNKNOWN", "no such path") };
    if rest.is_empty() {
        return Answer { status: 200, headers: Vec::new(), body: Vec::new() };
    }
    if let Some((repository, reference)) = rest.split_once("/manifests/") {
        let key = (repository.to_owned(), reference.to_owned());
        let wrong = (*fault == Fault::WrongManifests).then(|| b"no json".to_vec());
        let Some(body) = wrong.or_else(|| state.manifests.get(&key).cloned()) else {
            return Answer::error(404, "MANIFEST_UNKNOWN", "manifest unknown");
        };
        let digest = super::registry_image::digest(&body);
        let headers = vec![("Content-Type", MANIFEST_TYPE.to_owned()), ("Docker-Content-Digest", digest)];
        return Answer { status: 200, headers, body };
    }
    let Some(blob) = rest.split_once("/blobs/").and_then(|(_, digest)| state.blobs.get(digest)) else {
        return Answer::error(404, "BLOB_UNKNOWN", "blob unknown");
    };
    let mut headers = vec![("Content-Type", "application/octet-stream".to_owned())];
    // A cut pull is taken up where it ended: `bytes=N-`.
    let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split('-').next());
    let from = range.and_then(|from| from.parse::<usize>().ok()).filter(|from| *from < blob.len());
    let mut body = blob[from.unwrap_or(0)..].to_vec();
    if let Some(from) = from {
        headers.push(("Content-Range", format!("bytes {from}-{}/{}", blob.len() - 1, blob.len())));
    }
    if *fault == Fault::WrongBlobs {
        body.iter_mut().for_each(|byte| *byte ^= 0x55);
    }
    Answer { status: if from.is_some() { 206 } else { 200 }, headers, body }
}

fn write_head(mut stream: &TcpStream, answer: &Answer) -> io::Result<()> {
    let mut head = format!(
        "HTTP/1.1 {} {}\r\nContent-Length: {}\r\nConnection: close\r\nDocker-Distribution-Api-Version: registry/2.0\r\n",
        answer.status,
        reason_phrase(answer.status),
        answer.body.len()
    );
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())
}

fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        _ => "Status",
    }
}

fn write_body(mut stream: &TcpStream, body: &[u8], fault: &Fault, shared: &Shared) -> io::Result<()> {
    match fault {
        Fault::CutBlobs(after) => stream.write_all(&body[..(*after).min(body.len())]),
        Fault::HangBlobs(after) => {
            let (first, rest) = body.split_at((*after).min(body.len()));
            stream.write_all(first)?;
            if shared.wait_while(fault, None) { stream.write_all(rest) } else { Ok(()) }
        }
        Fault::SlowBlobs(bytes, pause) => {
            for part in body.chunks((*bytes).max(1)) {
                stream.write_all(part)?;
                if !shared.wait_while(fault, Some(*pause)) {
                    break;
                }
            }
            Ok(())
        }
        _ => stream.write_all(body),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let bits = part.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for digit in 0..4 {
            let at = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= part.len() { char::from(DIGITS[at as usize]) } else { '=' });
        }
    }
    text
}
