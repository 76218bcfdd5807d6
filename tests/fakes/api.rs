//! An API server on loopback: lists, watches and changes objects, records every request, and fails on demand.
//!
//! One thread accepts and one serves each connection. Owns its objects. For what the real server will not do when
//! asked to; what a real one does is shown against a real one. It checks no permission, and ends with its value.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ServerConfig;
use serde_json::{Value, json};

use super::api_store::{ApiStore, failure};
use super::api_streams;
use super::api_wire::{Request, Wire};

/// Longest wait of a connection that a fault holds, and of a test for a request.
pub(super) const LONG: Duration = Duration::from_secs(120);

/// What goes wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiFault {
    /// It is answered with this code, and asked to wait so many seconds if any.
    Status(u16, Option<u64>),
    /// It is read and not answered; the connection stays.
    Hang,
    /// The connection is closed instead of an answer.
    Close,
    /// The answer's head promises a body that ends after so many bytes.
    Cut(usize),
    /// The body comes in so many pieces, each when the time has passed.
    Slow(usize, Duration),
    /// The answer is no JSON.
    NotJson,
    /// The answer is JSON of another kind.
    OtherJson,
    /// The answer is a list (for a watch: a line) with one object of so many bytes.
    Huge(usize),
}

/// A fault waiting for its request.
#[derive(Clone, Debug)]
struct Armed {
    /// Part of [`Request::short`].
    at: String,
    fault: ApiFault,
    /// How often it strikes.
    times: usize,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) store: ApiStore,
    faults: Vec<Armed>,
    requests: Vec<Request>,
    /// Nothing gets through, in either direction, and nobody is told.
    pub(super) partitioned: bool,
    /// Watches end their stream when this grows.
    pub(super) cuts: u64,
    connections: usize,
    /// Streams that one connection of HTTP/2 may have.
    pub(super) most_streams: usize,
    /// Watches of each open connection of HTTP/2, by a number of it.
    pub(super) streams: BTreeMap<usize, usize>,
    /// The connection that closes at its next look.
    pub(super) dropped: Option<usize>,
    tls: Option<Arc<ServerConfig>>,
    pub(super) stopping: bool,
}

pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait_while<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        time: Duration,
        held: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout_while(state, time, |state| held(state) && !state.stopping);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Notes a request; the fault that strikes it, and the number of cuts so far.
    pub(super) fn begin(&self, request: &Request) -> (Option<ApiFault>, u64) {
        let mut state = self.lock();
        state.requests.push(request.clone());
        let short = request.short();
        let armed = state.faults.iter_mut().find(|armed| armed.times > 0 && short.contains(&armed.at));
        let fault = armed.map(|armed| {
            armed.times -= 1;
            armed.fault.clone()
        });
        let cuts = state.cuts;
        drop(state);
        self.changed.notify_all();
        (fault, cuts)
    }
}

/// The running server.
pub(crate) struct FakeApi {
    address: SocketAddr,
    shared: Arc<Shared>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
    accepting: Option<JoinHandle<()>>,
}

impl FakeApi {
    /// Speaks plain HTTP on a free port.
    pub(crate) fn start() -> Self {
        Self::start_on("127.0.0.1:0".parse().expect("an address"), None)
    }

    /// Speaks TLS on a free port.
    pub(crate) fn start_tls(config: Arc<ServerConfig>) -> Self {
        Self::start_on("127.0.0.1:0".parse().expect("an address"), Some(config))
    }

    fn start_on(address: SocketAddr, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            state: Mutex::new(State { tls, most_streams: 100, ..State::default() }),
            changed: Condvar::new(),
        });
        let sockets = Arc::new(Mutex::new(Vec::new()));
        let (theirs, open) = (Arc::clone(&shared), Arc::clone(&sockets));
        let accepting = std::thread::spawn(move || accept(&listener, &theirs, &open));
        Self { address, shared, sockets, accepting: Some(accepting) }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// New connections of HTTP/2 may have so many streams.
    pub(crate) fn set_most_streams(&self, most: usize) {
        self.shared.lock().most_streams = most;
    }

    /// Tokens live so long, whatever is asked for.
    pub(crate) fn set_token_life(&self, seconds: i64) {
        self.shared.lock().store.token_seconds = Some(seconds);
    }

    /// From now on handshakes are made with these settings.
    pub(crate) fn set_tls(&self, config: Arc<ServerConfig>) {
        self.shared.lock().tls = Some(config);
    }

    /// Puts an object at a path, new or changed.
    pub(crate) fn put(&self, path: &str, object: Value) -> Value {
        let object = self.shared.lock().store.put(path, object);
        self.shared.changed.notify_all();
        object
    }

    /// Takes an object away at once.
    pub(crate) fn remove(&self, path: &str) {
        self.shared.lock().store.remove(path);
        self.shared.changed.notify_all();
    }

    /// The object at a path.
    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.shared.lock().store.object(path).cloned()
    }

    /// Forgets what changed before: a watch from an older version is told 410.
    pub(crate) fn compact(&self) {
        self.shared.lock().store.compact();
    }

    /// The next `times` requests that contain `at` (`GET /api/v1/pods?watch`) go wrong like this.
    pub(crate) fn fail(&self, at: &str, fault: ApiFault, times: usize) {
        self.shared.lock().faults.push(Armed { at: at.to_owned(), fault, times });
    }

    /// No fault is armed any more; requests that hang are let go unanswered.
    pub(crate) fn mend(&self) {
        let mut state = self.shared.lock();
        state.faults.clear();
        state.cuts += 1;
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Whether packets get through. While they do not, connections stay as they are and nothing moves.
    pub(crate) fn partition(&self, on: bool) {
        self.shared.lock().partitioned = on;
        self.shared.changed.notify_all();
    }

    /// Ends every watch in the middle of its stream.
    pub(crate) fn cut_watches(&self) {
        self.shared.lock().cuts += 1;
        self.shared.changed.notify_all();
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.lock().requests.clone()
    }

    /// The requests so far, in short.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.shared.lock().requests.iter().map(Request::short).collect()
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// How many watches each open connection of HTTP/2 has, those without any left out.
    pub(crate) fn streams(&self) -> Vec<usize> {
        let state = self.shared.lock();
        state.streams.values().copied().filter(|count| *count > 0).collect()
    }

    /// Closes one connection of HTTP/2 that has watches.
    pub(crate) fn drop_connection_with_streams(&self) {
        let mut state = self.shared.lock();
        let with_streams = state.streams.iter().find(|(_, count)| **count > 0).map(|(number, _)| *number);
        state.dropped = Some(with_streams.expect("a connection with watches"));
    }

    /// Waits until so many requests contain `part`.
    #[track_caller]
    pub(crate) fn wait_for(&self, part: &str, times: usize) {
        let count = |state: &State| state.requests.iter().filter(|request| request.short().contains(part)).count();
        let state = self.shared.wait_while(self.shared.lock(), LONG, |state| count(state) < times);
        let (got, asked) = (count(&state), state.requests.iter().map(Request::short).collect::<Vec<_>>());
        drop(state);
        assert!(got >= times, "{got} of {times} requests with {part:?}: {asked:?}");
    }

    /// A kubeconfig for this server: `cluster` and `user` add to what it says.
    pub(crate) fn kubeconfig(&self, scheme: &str, cluster: &Value, user: &Value) -> Value {
        let mut own = json!({"server": format!("{scheme}://{}", self.address)});
        if let (Some(own), Some(more)) = (own.as_object_mut(), cluster.as_object()) {
            own.extend(more.clone());
        }
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": own}], "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        })
    }
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_all();
        for socket in self.sockets.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _closed = socket.shutdown(Shutdown::Both);
        }
        // Wakes the accept.
        let _woken = TcpStream::connect(self.address);
        if let Some(thread) = self.accepting.take() {
            let _panic = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, sockets: &Mutex<Vec<TcpStream>>) {
    let mut serving = Vec::new();
    for socket in listener.incoming() {
        let Ok(socket) = socket else { continue };
        if shared.lock().stopping {
            break;
        }
        if let Ok(twin) = socket.try_clone() {
            sockets.lock().unwrap_or_else(PoisonError::into_inner).push(twin);
        }
        let theirs = Arc::clone(shared);
        serving.push(std::thread::spawn(move || {
            theirs.lock().connections += 1;
            // A client that goes away in the middle is no concern of the server.
            let _client_left = serve(socket, &theirs);
            theirs.lock().connections -= 1;
            theirs.changed.notify_all();
        }));
    }
    for thread in serving {
        let _panic = thread.join();
    }
}

fn serve(socket: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let tls = {
        let state = shared.wait_while(shared.lock(), LONG, |state| state.partitioned);
        state.tls.clone()
    };
    let end = socket.try_clone()?;
    let mut wire = Wire::new(socket, tls.as_ref())?;
    if let Wire::Tls(stream) = &mut wire {
        stream.conn.complete_io(&mut stream.sock)?;
        if stream.conn.alpn_protocol() == Some(b"h2") {
            let served = api_streams::serve(stream, shared);
            let _closed = end.shutdown(Shutdown::Both);
            return served;
        }
    }
    while let Some(request) = wire.request()? {
        if shared.wait_while(shared.lock(), LONG, |state| state.partitioned).stopping {
            break;
        }
        let (fault, cuts) = shared.begin(&request);
        let goes_on = match fault {
            Some(fault) => go_wrong(&mut wire, &request, &fault, shared, cuts)?,
            None if request.query.contains_key("watch") => watch(&mut wire, &request, shared, cuts)?,
            None => {
                let (code, body) = handle(&request, &mut shared.lock().store);
                shared.changed.notify_all();
                wire.answer(code, "", body.to_string().as_bytes())?;
                true
            }
        };
        if !goes_on {
            break;
        }
    }
    let _closed = end.shutdown(Shutdown::Both);
    Ok(())
}

pub(super) fn handle(request: &Request, store: &mut ApiStore) -> (u16, Value) {
    let body = || serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    match request.method.as_str() {
        "GET" => store.get(&request.path, &request.query),
        "POST" => store.create(&request.path, body()),
        "PUT" => store.update(&request.path, body()),
        "PATCH" => store.patch(&request.path, &body()),
        "DELETE" => store.delete(&request.path, &body()),
        other => failure(405, "MethodNotAllowed", other),
    }
}

/// Tells changes until the connection, the watch's time or the server ends; whether the connection goes on.
fn watch(wire: &mut Wire, request: &Request, shared: &Shared, cuts: u64) -> io::Result<bool> {
    let mut from: u64 = request.query.get("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or(0);
    wire.begin_chunks()?;
    loop {
        let mut lines;
        {
            let idle = |state: &State| {
                state.partitioned
                    || (state.cuts == cuts && state.store.version <= from && state.store.compacted <= from)
            };
            let state = shared.wait_while(shared.lock(), LONG, idle);
            if state.stopping || state.cuts != cuts {
                return Ok(false);
            }
            match state.store.news(request, Some(from)) {
                None => {
                    let (_, status) = failure(410, "Expired", "too old resource version");
                    lines = format!("{}\n", json!({"type": "ERROR", "object": status}));
                    from = u64::MAX;
                }
                Some(news) => {
                    lines = news;
                    from = state.store.version;
                }
            }
            if lines.is_empty() {
                let metadata = json!({"resourceVersion": from.to_string()});
                lines = format!("{}\n", json!({"type": "BOOKMARK", "object": {"metadata": metadata}}));
            }
        }
        wire.chunk(lines.as_bytes())?;
        if from == u64::MAX {
            wire.chunk(b"")?;
            return Ok(true);
        }
    }
}

/// Makes a fault happen; whether the connection goes on.
fn go_wrong(wire: &mut Wire, request: &Request, fault: &ApiFault, shared: &Shared, cuts: u64) -> io::Result<bool> {
    use std::io::Write;
    let good = |shared: &Shared| handle(request, &mut shared.lock().store);
    match fault {
        ApiFault::Status(code, wait) => {
            let header = wait.map(|seconds| format!("Retry-After: {seconds}\r\n")).unwrap_or_default();
            let (_, body) = failure(*code, "", "made to fail");
            wire.answer(*code, &header, body.to_string().as_bytes())?;
            Ok(true)
        }
        ApiFault::Hang => {
            drop(shared.wait_while(shared.lock(), LONG, |state| state.cuts == cuts));
            Ok(false)
        }
        ApiFault::Close => Ok(false),
        ApiFault::Cut(bytes) => {
            let (code, body) = good(shared);
            let body = body.to_string();
            write!(wire, "HTTP/1.1 {code} X\r\nContent-Length: {}\r\n\r\n", body.len())?;
            wire.write_all(body.as_bytes().get(..*bytes).unwrap_or(body.as_bytes()))?;
            wire.flush()?;
            Ok(false)
        }
        ApiFault::Slow(pieces, pause) => {
            let (code, body) = good(shared);
            let body = body.to_string();
            write!(wire, "HTTP/1.1 {code} X\r\nContent-Length: {}\r\n\r\n", body.len())?;
            for piece in body.as_bytes().chunks(body.len().div_ceil((*pieces).max(1)).max(1)) {
                drop(shared.wait_while(shared.lock(), *pause, |state| state.cuts == cuts));
                wire.write_all(piece)?;
                wire.flush()?;
            }
            Ok(true)
        }
        ApiFault::NotJson => {
            wire.answer(200, "", b"<html>a proxy's login page</html>")?;
            Ok(true)
        }
        ApiFault::OtherJson => {
            wire.answer(200, "", br#"{"kind": "APIVersions", "versions": ["v1"]}"#)?;
            Ok(true)
        }
        ApiFault::Huge(bytes) => {
            wire.begin_chunks()?;
            let is_watch = request.query.contains_key("watch");
            let start: &[u8] = if is_watch {
                br#"{"type": "ADDED", "object": {"metadata": {"name": ""#
            } else {
                br#"{"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": ""#
            };
            wire.chunk(start)?;
            let piece = vec![b'x'; 64 * 1024];
            for _ in 0..bytes / piece.len() {
                wire.chunk(&piece)?;
            }
            wire.chunk(if is_watch { b"\"}}}\n" } else { b"\"}}]}" })?;
            wire.chunk(b"")?;
            Ok(true)
        }
    }
}
