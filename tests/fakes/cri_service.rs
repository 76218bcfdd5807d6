//! The wire side of the fake runtime: takes calls, applies the faults, answers.
//!
//! Handlers run on the gRPC server's one completion thread and never block. A call that can't be
//! answered yet waits in a list that the fake's clock thread works off whenever something changes.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll as TaskPoll};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use ferrolet::cri::proto::{self, runtime_service as rpc};
use ferrolet::util::cancel::unparker;
use futures_util::SinkExt;
use grpcio::{
    GrpcSlice, Marshaller, Method, RpcStatus, ServerStreamingSink, ServiceBuilder, UnarySink, UnarySinkResult,
    WriteFlags,
};
use protobuf::Message;

use super::cri_state::{Fault, State};

/// A call's outcome, now or when a condition holds.
pub(crate) enum Answer<T> {
    Now(Result<T, Fault>),
    /// Asked again whenever the state changes.
    Later(Later<T>),
}

/// Looks whether a call is done.
pub(crate) type Later<T> = Box<dyn FnMut(&mut State, Instant) -> Poll<T> + Send>;

/// Whether a call is done.
pub(crate) enum Poll<T> {
    Done(Result<T, Fault>),
    /// Not before this moment, or not before something changes.
    Until(Option<Instant>),
}

/// A call that waits: its answer, or when to look again.
type Waiting = Box<dyn FnMut(&mut State, Instant) -> Result<Parcel, Option<Instant>> + Send>;

/// An answer with its way back.
struct Parcel {
    sink: UnarySink<Vec<u8>>,
    reply: Reply,
}

/// What is sent back.
enum Reply {
    Bytes(Vec<u8>),
    Status(RpcStatus),
}

impl Parcel {
    fn post(self) -> UnarySinkResult {
        match self.reply {
            Reply::Bytes(bytes) => self.sink.success(bytes),
            Reply::Status(status) => self.sink.fail(status),
        }
    }
}

/// An item for the threads that feed event streams.
#[derive(Clone)]
enum Feed {
    Event(Vec<u8>),
    End,
    Fail(i32, String),
}

#[derive(Default)]
struct Inner {
    state: State,
    waiting: Vec<Waiting>,
    feeds: Vec<Sender<Feed>>,
    closed: bool,
}

/// The fake's state with its lock, shared by handlers, clock and test.
#[derive(Default)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, mut inner: MutexGuard<'_, Inner>) {
        let events = std::mem::take(&mut inner.state.outbox);
        for event in events {
            let bytes = event.write_to_bytes().expect("an event");
            inner.feeds.retain(|feed| feed.send(Feed::Event(bytes.clone())).is_ok());
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// Looks at or changes the state.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let mut inner = self.lock();
        let result = look(&mut inner.state);
        self.announce(inner);
        result
    }

    /// Waits until the state is as wanted; false if it is not at `until`.
    pub(crate) fn wait(&self, until: Instant, mut wanted: impl FnMut(&State) -> bool) -> bool {
        let mut inner = self.lock();
        loop {
            if wanted(&inner.state) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How many event streams are open.
    pub(crate) fn subscribers(&self) -> usize {
        self.lock().feeds.len()
    }

    /// Ends all event streams, with an error or without.
    pub(crate) fn end_streams(&self, error: Option<(i32, &str)>) {
        let last = error.map_or(Feed::End, |(code, message)| Feed::Fail(code, message.to_owned()));
        for feed in self.lock().feeds.drain(..) {
            let _ = feed.send(last.clone());
        }
    }

    /// Forgets the calls that wait: their clients see the connection break.
    pub(crate) fn drop_waiting(&self) {
        let mut inner = self.lock();
        let waiting = std::mem::take(&mut inner.waiting);
        inner.feeds.clear();
        drop(inner);
        drop(waiting);
    }

    /// Ends the clock thread.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        self.announce(inner);
    }

    /// The clock thread: ends containers at their time and answers calls that had to wait.
    pub(crate) fn run_clock(&self) {
        let mut inner = self.lock();
        while !inner.closed {
            let now = Instant::now();
            let ended = inner.state.tick(now);
            let mut next = inner.state.next_exit();
            let mut parcels = Vec::new();
            for mut waiting in std::mem::take(&mut inner.waiting) {
                match waiting(&mut inner.state, now) {
                    Ok(parcel) => parcels.push(parcel),
                    Err(until) => {
                        next = [next, until].into_iter().flatten().min();
                        inner.waiting.push(waiting);
                    }
                }
            }
            if ended || !parcels.is_empty() {
                self.announce(inner);
                for parcel in parcels {
                    // Nobody minds if the client has gone.
                    let _ = block_on(parcel.post());
                }
                inner = self.lock();
                continue;
            }
            inner = match next {
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(next) => {
                    let left = next.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Runs a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = unparker();
    let mut context = Context::from_waker(&waker);
    loop {
        if let TaskPoll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

// grpcio's serializers take a reference to the message type, which here is `Vec<u8>`.
#[allow(clippy::ptr_arg)]
fn raw_ser(bytes: &Vec<u8>, slice: &mut GrpcSlice) -> grpcio::Result<()> {
    *slice = GrpcSlice::from(bytes.clone());
    Ok(())
}

fn raw_de(_: grpcio::MessageReader) -> grpcio::Result<Vec<u8>> {
    Ok(Vec::new())
}

fn raw<Req, Resp>(method: &Method<Req, Resp>) -> Method<Req, Vec<u8>> {
    Method {
        ty: method.ty,
        name: method.name,
        req_mar: Marshaller { ser: method.req_ser(), de: method.req_de() },
        resp_mar: Marshaller { ser: raw_ser, de: raw_de },
    }
}

fn count_down(left: Option<&mut usize>) -> bool {
    match left {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    }
}

/// Registers calls on a shared state.
pub(crate) struct Calls(pub(crate) Arc<Shared>);

impl Calls {
    /// Registers one call: how the log shows it and what it does.
    pub(crate) fn unary<Req, Resp>(
        &self,
        builder: ServiceBuilder,
        method: Method<Req, Resp>,
        describe: fn(&State, &Req) -> String,
        act: fn(&mut State, &Req, Instant) -> Answer<Resp>,
    ) -> ServiceBuilder
    where
        Req: Send + 'static,
        Resp: Message,
    {
        let shared = self.0.clone();
        let name = method.name.rsplit('/').next().unwrap_or_default();
        builder.add_unary_handler(&raw(&method), move |context, request, sink: UnarySink<Vec<u8>>| {
            let mut inner = shared.lock();
            let line = format!("{name} {}", describe(&inner.state, &request));
            inner.state.called.push(line.trim_end().to_owned());
            let mut sink = Some(sink);
            let mut step = stepper(name, request, act);
            let mut waiting: Waiting = Box::new(move |state, now| {
                let reply = step(state, now)?;
                Ok(Parcel { sink: sink.take().expect("one answer a call"), reply })
            });
            match waiting(&mut inner.state, Instant::now()) {
                Err(_) => {
                    inner.waiting.push(waiting);
                    shared.announce(inner);
                }
                Ok(parcel) => {
                    shared.announce(inner);
                    let sent = parcel.post();
                    context.spawn(async move {
                        let _ = sent.await;
                    });
                }
            }
        })
    }

    /// Registers the event stream.
    pub(crate) fn events(&self, builder: ServiceBuilder) -> ServiceBuilder {
        let shared = self.0.clone();
        let method = raw(&rpc::GET_CONTAINER_EVENTS);
        builder.add_server_streaming_handler(
            &method,
            move |context, _: proto::GetEventsRequest, sink: ServerStreamingSink<Vec<u8>>| {
                let mut inner = shared.lock();
                inner.state.called.push("GetContainerEvents".to_owned());
                if inner.state.events.is_none() {
                    let status = RpcStatus::with_message(12, "method GetContainerEvents not implemented".to_owned());
                    context.spawn(async move {
                        let _ = sink.fail(status).await;
                    });
                } else {
                    let (sender, receiver) = unbounded();
                    inner.feeds.push(sender);
                    std::thread::spawn(move || feed(sink, &receiver));
                }
                shared.announce(inner);
            },
        )
    }
}

/// The life of one call: hung, slow, failed, garbled, or done; `Err` says when to look again.
fn stepper<Req, Resp: Message>(
    name: &'static str,
    request: Req,
    act: fn(&mut State, &Req, Instant) -> Answer<Resp>,
) -> impl FnMut(&mut State, Instant) -> Result<Reply, Option<Instant>> {
    let mut due = None;
    let mut later: Option<Later<Resp>> = None;
    move |state, now| {
        let outcome = match &mut later {
            Some(later) => later(state, now),
            None => {
                if state.hung.contains(name) {
                    return Err(None);
                }
                let due = *due.get_or_insert_with(|| now + state.slow.get(name).copied().unwrap_or_default());
                if now < due {
                    return Err(Some(due));
                }
                if let Some(fault) = state.faults.get_mut(name).and_then(VecDeque::pop_front) {
                    return Ok(Reply::Status(RpcStatus::with_message(fault.code, fault.message)));
                }
                if count_down(state.garbage.get_mut(name)) {
                    return Ok(Reply::Bytes(vec![0xff; 64]));
                }
                if count_down(state.empty.get_mut(name)) {
                    return Ok(Reply::Status(RpcStatus::ok()));
                }
                match act(state, &request, now) {
                    Answer::Now(outcome) => Poll::Done(outcome),
                    Answer::Later(mut first) => {
                        let outcome = first(state, now);
                        later = Some(first);
                        outcome
                    }
                }
            }
        };
        match outcome {
            Poll::Until(until) => Err(until),
            Poll::Done(Ok(answer)) => {
                let truth = answer.write_to_bytes().expect("an answer");
                Ok(Reply::Bytes(match state.lies.get_mut(name) {
                    Some(lie) => lie(truth),
                    None => truth,
                }))
            }
            Poll::Done(Err(fault)) => Ok(Reply::Status(RpcStatus::with_message(fault.code, fault.message))),
        }
    }
}

/// One thread per event stream: sends what it is given until it is told to end.
fn feed(mut sink: ServerStreamingSink<Vec<u8>>, receiver: &Receiver<Feed>) {
    loop {
        match receiver.recv() {
            Ok(Feed::Event(bytes)) => {
                if block_on(sink.send((bytes, WriteFlags::default()))).is_err() {
                    return;
                }
            }
            Ok(Feed::Fail(code, message)) => {
                let _ = block_on(sink.fail(RpcStatus::with_message(code, message)));
                return;
            }
            Ok(Feed::End) | Err(_) => {
                let _ = block_on(sink.close());
                return;
            }
        }
    }
}
