//! One gRPC channel to one unix socket, used blockingly.
//!
//! Calls run on the caller's thread: it starts the call, parks, and is unparked by the answer, by its
//! deadline or by its cancel token. All channels share one completion queue thread (`grpc-0`), which
//! only wakes callers; messages are parsed on the caller's thread. Owns the channel. Never retries a
//! call: whether that is safe is the caller's knowledge. gRPC reconnects by itself.

use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use grpcio::{CallOption, ChannelBuilder, ClientSStreamReceiver, EnvBuilder, Environment, Method};

use super::endpoint::Endpoint;
use super::error::{Code, CriError, CriFailure};
use super::proto;
use crate::util::cancel::{Cancel, unparker};
use crate::util::metrics::kubelet;

/// Largest answer taken. Some 40,000 containers fit; whatever is larger is refused by gRPC.
const MAX_ANSWER: i32 = 64 << 20;
/// Bytes a stream may hold in flight: lists of a full node come without waiting for window updates.
const STREAM_WINDOW: i32 = 1 << 20;
/// After a lost connection gRPC tries again this soon …
const FIRST_RECONNECT: Duration = Duration::from_millis(100);
/// … and at least this often.
const LAST_RECONNECT: Duration = Duration::from_millis(500);
/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// gRPC ends a call at its deadline. If it ever did not, the caller leaves this much later.
const BACKSTOP: Duration = Duration::from_secs(2);
/// Time for the question whether a runtime speaks the old version.
const OLD_API_TIMEOUT: Duration = Duration::from_secs(2);

/// Calls that every runtime with CRI v1 has: where one is unknown, there is no CRI v1.
const EVERYBODY_HAS: &[&str] = &["Version", "ListPodSandbox", "ListContainers"];

/// The process's one gRPC environment. It lives until the process ends: the C core does not end cleanly.
fn environment() -> Arc<Environment> {
    static ENVIRONMENT: OnceLock<Arc<Environment>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| Arc::new(EnvBuilder::new().cq_count(1).name_prefix("grpc").build())).clone()
}

/// What every call needs beside its request.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// What the call is about, for errors.
    pub(crate) object: &'a str,
    /// When it has failed.
    pub(crate) timeout: Duration,
    /// When it is not wanted any more.
    pub(crate) cancel: &'a Cancel,
}

/// A channel to one endpoint.
#[derive(Clone)]
pub(crate) struct Transport {
    client: grpcio::Client,
    endpoint: Endpoint,
}

impl Transport {
    /// Makes the channel; it connects with the first call.
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        let number = |name: &str, value: i32| (CString::new(name).unwrap_or_default(), value);
        let mut builder = ChannelBuilder::new(environment())
            .default_authority("localhost")
            .max_receive_message_len(MAX_ANSWER)
            .stream_initial_window_size(STREAM_WINDOW)
            .initial_reconnect_backoff(FIRST_RECONNECT)
            .max_reconnect_backoff(LAST_RECONNECT)
            // What a local socket does not need: bandwidth probes, proxies, transparent retries.
            .http2_bdp_probe(false)
            .enable_http_proxy(false)
            .enable_retry(false)
            .use_local_subchannel_pool(true);
        for (name, value) in [
            number("grpc.min_reconnect_backoff_ms", i32::try_from(CONNECT_TIMEOUT.as_millis()).unwrap_or(i32::MAX)),
            number("grpc.service_config_disable_resolution", 1),
            number("grpc.enable_channelz", 0),
            number("grpc.max_channel_trace_event_memory_per_node", 0),
        ] {
            builder = builder.raw_cfg_int(name, value);
        }
        Self { client: grpcio::Client::new(builder.connect(&endpoint.grpc_address())), endpoint }
    }

    /// Makes one call and waits for its answer.
    pub(crate) fn unary<Req, Resp: Unpin>(
        &self,
        method: &Method<Req, Resp>,
        request: &Req,
        ask: Ask<'_>,
    ) -> Result<Resp, CriError> {
        let began = Instant::now();
        let answered = self.wait(method, request, ask);
        count(short_name(method.name), began.elapsed(), answered.as_ref().err());
        answered.map_err(|failure| {
            let failure = self.explain(short_name(method.name), failure, ask);
            self.error(method.name, ask.object, failure)
        })
    }

    fn wait<Req, Resp: Unpin>(
        &self,
        method: &Method<Req, Resp>,
        request: &Req,
        ask: Ask<'_>,
    ) -> Result<Resp, CriFailure> {
        if ask.cancel.is_cancelled() {
            return Err(CriFailure::Cancelled);
        }
        let started = Instant::now();
        let late = |failure| match failure {
            CriFailure::Status { code: Code::DeadlineExceeded, .. } if started.elapsed() >= ask.timeout => {
                CriFailure::Deadline(ask.timeout)
            }
            other => other,
        };
        let option = CallOption::default().timeout(ask.timeout);
        let mut receiver = self.client.unary_call_async(method, request, option).map_err(failure)?;
        let waker = unparker();
        let _registration = ask.cancel.register(waker.clone());
        let mut context = Context::from_waker(&waker);
        let backstop = started.checked_add(ask.timeout.saturating_add(BACKSTOP));
        loop {
            // grpcio panics on an answer that says OK and holds no message: the runtime's fault, not ours.
            let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut receiver).poll_answer(&mut context)))
                .unwrap_or_else(|_| Poll::Ready(Err(CriFailure::Garbage("it holds no message".into()))));
            if let Poll::Ready(answer) = polled {
                return answer.map_err(late);
            }
            if ask.cancel.is_cancelled() {
                receiver.cancel();
                return Err(CriFailure::Cancelled);
            }
            if backstop.is_some_and(|backstop| Instant::now() >= backstop) {
                receiver.cancel();
                return Err(CriFailure::Deadline(ask.timeout));
            }
            ask.cancel.park_until(backstop);
        }
    }

    /// Starts a call that is answered by a stream without end. Whether the runtime has the call is
    /// told by the first read.
    pub(crate) fn stream<Req, Resp>(
        &self,
        method: &Method<Req, Resp>,
        request: &Req,
    ) -> Result<AnswerStream<Resp>, CriError> {
        let receiver = self
            .client
            .server_streaming(method, request, CallOption::default())
            .map_err(|error| self.error(method.name, "", failure(error)))?;
        Ok(AnswerStream { receiver, transport: self.clone(), method: method.name })
    }

    /// An error about a call on this channel.
    pub(crate) fn error(&self, method: &'static str, object: &str, failure: CriFailure) -> CriError {
        CriError { method: short_name(method), object: object.into(), endpoint: self.endpoint.text.clone(), failure }
    }

    /// Finds plain words for failures whose gRPC text says little.
    fn explain(&self, method: &'static str, failure: CriFailure, ask: Ask<'_>) -> CriFailure {
        match failure {
            CriFailure::Status { code: Code::Unavailable, message } => self.explain_unavailable(message),
            CriFailure::Status { code: Code::Unimplemented, message }
                if EVERYBODY_HAS.contains(&method) || message.contains("unknown service runtime.v1.") =>
            {
                if self.speaks_old_api(ask.cancel) { CriFailure::OnlyOldApi } else { CriFailure::NoCri(message) }
            }
            other => other,
        }
    }

    /// Says what keeps the socket from being used, or that it is whoever listens on it.
    fn explain_unavailable(&self, message: String) -> CriFailure {
        self.endpoint.diagnose().unwrap_or_else(|| {
            let message = match message.contains("failed to connect") {
                true => format!("whoever listens on the socket speaks no gRPC, or hangs up: {message}"),
                false => message,
            };
            CriFailure::Status { code: Code::Unavailable, message }
        })
    }

    fn speaks_old_api(&self, cancel: &Cancel) -> bool {
        let old = Method { name: "/runtime.v1alpha2.RuntimeService/Version", ..proto::runtime_service::VERSION };
        self.wait(&old, &proto::VersionRequest::new(), Ask { object: "", timeout: OLD_API_TIMEOUT, cancel }).is_ok()
    }
}

/// Polls a unary call with its errors in our words.
trait PollAnswer<T> {
    fn poll_answer(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, CriFailure>>;
}

impl<T: Unpin> PollAnswer<T> for grpcio::ClientUnaryReceiver<T> {
    fn poll_answer(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, CriFailure>> {
        self.poll(context).map_err(failure)
    }
}

/// The answers of a streaming call.
pub(crate) struct AnswerStream<T> {
    receiver: ClientSStreamReceiver<T>,
    transport: Transport,
    method: &'static str,
}

impl<T> AnswerStream<T> {
    /// Waits for the next answer; `None` if none came within `timeout`. After an error the stream is dead.
    pub(crate) fn next(&mut self, timeout: Duration, cancel: &Cancel) -> Result<Option<T>, CriError> {
        let until = Instant::now().checked_add(timeout);
        let waker = unparker();
        let _registration = cancel.register(waker.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            if cancel.is_cancelled() {
                return Err(self.fail(CriFailure::Cancelled));
            }
            match Pin::new(&mut self.receiver).poll_next(&mut context) {
                Poll::Ready(Some(Ok(answer))) => return Ok(Some(answer)),
                Poll::Ready(Some(Err(error))) => return Err(self.fail(failure(error))),
                Poll::Ready(None) => return Err(self.fail(CriFailure::StreamEnded)),
                Poll::Pending => {}
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
            cancel.park_until(until);
        }
    }

    /// An error about this stream.
    pub(crate) fn fail(&self, failure: CriFailure) -> CriError {
        let failure = match failure {
            CriFailure::Status { code: Code::Unavailable, message } => self.transport.explain_unavailable(message),
            other => other,
        };
        self.transport.error(self.method, "", failure)
    }
}

/// Counts a call. One that nobody wants any more, and one that the runtime does not have, is not an error of its.
fn count(method: &'static str, took: Duration, failure: Option<&CriFailure>) {
    let operation = [operation(method)];
    kubelet::RUNTIME_OPERATIONS.inc(&operation);
    kubelet::RUNTIME_DURATION.observe(&operation, took);
    let is_error = match failure {
        None | Some(CriFailure::Cancelled | CriFailure::Status { code: Code::Unimplemented, .. }) => false,
        Some(_) => true,
    };
    if is_error {
        kubelet::RUNTIME_ERRORS.inc(&operation);
    }
}

/// A call as metrics name it.
fn operation(method: &'static str) -> &'static str {
    match method {
        "Version" => "version",
        "Status" => "status",
        "RunPodSandbox" => "run_podsandbox",
        "StopPodSandbox" => "stop_podsandbox",
        "RemovePodSandbox" => "remove_podsandbox",
        "PodSandboxStatus" => "podsandbox_status",
        "ListPodSandbox" => "list_podsandbox",
        "CreateContainer" => "create_container",
        "StartContainer" => "start_container",
        "StopContainer" => "stop_container",
        "RemoveContainer" => "remove_container",
        "ListContainers" => "list_containers",
        "ContainerStatus" => "container_status",
        "UpdateContainerResources" => "update_container",
        "UpdatePodSandboxResources" => "update_podsandbox_resources",
        "ReopenContainerLog" => "reopen_container_log",
        "ExecSync" => "exec_sync",
        "Exec" => "exec",
        "Attach" => "attach",
        "PortForward" => "port_forward",
        "ContainerStats" => "container_stats",
        "ListContainerStats" => "list_container_stats",
        "PodSandboxStats" => "podsandbox_stats",
        "ListPodSandboxStats" => "list_podsandbox_stats",
        "UpdateRuntimeConfig" => "update_runtime_config",
        "CheckpointContainer" => "checkpoint_container",
        "RuntimeConfig" => "runtime_config",
        "ListImages" => "list_images",
        "ImageStatus" => "image_status",
        "PullImage" => "pull_image",
        "RemoveImage" => "remove_image",
        "ImageFsInfo" => "image_fs_info",
        other => other,
    }
}

fn short_name(method: &'static str) -> &'static str {
    method.rsplit('/').next().unwrap_or(method)
}

fn failure(error: grpcio::Error) -> CriFailure {
    match error {
        grpcio::Error::RpcFailure(status) => {
            CriFailure::Status { code: Code::from(i32::from(status.code())), message: status.message().to_owned() }
        }
        grpcio::Error::Codec(cause) => CriFailure::Garbage(cause.to_string()),
        other => CriFailure::Broken(other.to_string()),
    }
}
