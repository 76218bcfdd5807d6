//! How every thread of the process is made: named, with a stack size, joined, its panics accounted for.
//!
//! Used on every thread; owns nothing but the panic hook. It is the only place that calls
//! `std::thread`'s builder. Two ways to treat a panic: an owner thread (one that owns state, such as
//! `sync`, `pleg`, `store`) ends the process, so that the service manager starts it anew and state is
//! read again; a job (one pod's work, one probe, one request) is run inside [`catch`], so that one bad
//! pod does not take the node down. It never detaches a thread by accident: handles join on drop.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

/// Exit code after a panic of an owner thread: EX_SOFTWARE of sysexits.h, "internal software error".
pub const EXIT_OWNER_PANICKED: i32 = 70;

/// The kernel keeps 15 bytes of a thread's name (TASK_COMM_LEN without its zero); longer ones would be
/// cut and could not be told apart in `ps -L`.
pub const MAX_NAME_BYTES: usize = 15;

/// How much stack a thread reserves. Only pages that were touched cost memory, so the sizes bound
/// runaway recursion and the address space (110 pod workers), not the footprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackSize {
    /// 256 KiB: jobs that make runtime calls and small file operations. A blocking gRPC call takes
    /// under 64 KiB of it; the C core's own threads do the rest.
    Small,
    /// 512 KiB: owner threads.
    Normal,
    /// 2 MiB: whoever parses documents from outside (manifests, API objects), where an unoptimised
    /// deserialiser of a pod takes some hundred KiB.
    Large,
}

impl StackSize {
    /// Size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small => 256 * 1024,
            Self::Normal => 512 * 1024,
            Self::Large => 2 * 1024 * 1024,
        }
    }
}

/// What a panic said, and where, if [`log_panics`] was called before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanicText {
    message: String,
    location: Option<String>,
}

impl PanicText {
    fn from_payload(payload: &(dyn Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a text".to_owned());
        Self { message, location: None }
    }

    /// The panic's message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for PanicText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some(location) => write!(f, "panicked at {location}: {}", self.message),
            None => write!(f, "panicked: {}", self.message),
        }
    }
}

impl std::error::Error for PanicText {}

thread_local! {
    /// Where this thread's newest panic happened; only the hook is told.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes panics go to the log (with thread and place) instead of bare text on stderr. Called once, by `app`.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let location = info.location().map(ToString::to_string);
        let thread = std::thread::current();
        let text = PanicText { location: location.clone(), ..PanicText::from_payload(info.payload()) };
        log::error!("thread {} {text}", thread.name().unwrap_or("unnamed"));
        PANICKED_AT.with(|place| *place.borrow_mut() = location);
    }));
}

/// Runs a job and turns its panic into a value.
///
/// The caller answers for what the job left half done: jobs own their state or hand it over in
/// messages, so there is none.
pub fn catch<T>(job: impl FnOnce() -> T) -> Result<T, PanicText> {
    PANICKED_AT.with(|place| place.borrow_mut().take());
    catch_unwind(AssertUnwindSafe(job)).map_err(|payload| {
        let location = PANICKED_AT.with(|place| place.borrow_mut().take());
        PanicText { location, ..PanicText::from_payload(&*payload) }
    })
}

/// A running thread. Dropping it waits for the thread's end: tell it to stop first, and mind the order
/// of fields where the stop signal is a channel that is dropped with its neighbour.
#[derive(Debug)]
pub struct JoinHandle<T> {
    /// `None` once joined or abandoned.
    thread: Option<std::thread::JoinHandle<Result<T, PanicText>>>,
    /// Disconnected when the thread's function has returned.
    ended: Receiver<()>,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread's end and takes its result.
    pub fn join(mut self) -> Result<T, PanicText> {
        let Some(thread) = self.thread.take() else {
            return Err(PanicText { message: "joined twice".to_owned(), location: None });
        };
        match thread.join() {
            Ok(result) => result,
            Err(payload) => Err(PanicText::from_payload(&*payload)),
        }
    }

    /// Whether the thread's function has returned; waits up to `timeout` for it.
    pub fn ended_within(&self, timeout: Duration) -> bool {
        self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }

    /// Whether the thread's function has returned.
    pub fn has_ended(&self) -> bool {
        self.ended_within(Duration::ZERO)
    }

    /// Lets a thread go that hangs in the kernel or in a call that cannot be cut short, at the end of
    /// the process, when waiting for it would keep the agent from stopping.
    pub fn abandon(mut self) {
        self.thread = None;
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // A thread that drops its own handle cannot wait for itself.
        if thread.thread().id() != std::thread::current().id() {
            let _told_by_the_hook = thread.join();
        }
    }
}

fn builder(name: &str, stack: StackSize) -> io::Result<Builder> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains('\0') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("thread name {name:?} must have 1 to {MAX_NAME_BYTES} bytes and no zero byte"),
        ));
    }
    Ok(Builder::new().name(name.to_owned()).stack_size(stack.bytes()))
}

/// Starts a thread. `name` has at most [`MAX_NAME_BYTES`] bytes; a panic of `body` is in the result of
/// [`JoinHandle::join`].
///
/// # Errors
/// The name does not fit, or the kernel has no thread left.
pub fn spawn<T: Send + 'static>(
    name: &str,
    stack: StackSize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (alive, ended) = bounded(0);
    let thread = builder(name, stack)?.spawn(move || {
        let _alive: crossbeam_channel::Sender<()> = alive;
        catch(body)
    })?;
    Ok(JoinHandle { thread: Some(thread), ended })
}

/// Starts a thread that cannot outlive `scope` (from [`std::thread::scope`]): for work done side by
/// side by one job.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    stack: StackSize,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, Result<T, PanicText>>> {
    builder(name, stack)?.spawn_scoped(scope, move || catch(body))
}

/// A thread that owns state of the agent. If it panics the process exits with [`EXIT_OWNER_PANICKED`]:
/// nobody could say what its state is worth, while containers go on without us and a fresh start reads
/// everything again. Joined on drop.
#[derive(Debug)]
pub struct OwnerThread {
    handle: JoinHandle<()>,
}

impl OwnerThread {
    /// Starts an owner thread.
    ///
    /// # Errors
    /// As [`spawn`].
    pub fn spawn(name: &str, stack: StackSize, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let thread = name.to_owned();
        let handle = spawn(name, stack, move || {
            if let Err(panic) = catch(body) {
                log::error!("owner thread {thread} {panic}; ending the process, a restart reads its state again");
                log::logger().flush();
                exit_at_once(EXIT_OWNER_PANICKED);
            }
        })?;
        Ok(Self { handle })
    }

    /// Waits for the thread's end.
    pub fn join(self) {
        // The body's panic does not come back here, it ended the process.
        let _nothing = self.handle.join();
    }

    /// Whether the thread has ended; waits up to `timeout` for it.
    pub fn ended_within(&self, timeout: Duration) -> bool {
        self.handle.ended_within(timeout)
    }

    /// See [`JoinHandle::abandon`].
    pub fn abandon(self) {
        self.handle.abandon();
    }
}

/// Ends the process without running exit handlers: those of the C libraries may wait for threads that
/// wait for the one that just died.
fn exit_at_once(code: i32) -> ! {
    // SAFETY: _exit takes no pointers and never returns; skipping atexit handlers and destructors loses
    // no data, because every file we write is complete once its write returned.
    unsafe { nix::libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_name_must_fit_the_kernel() {
        fn check(name: &str, fits: bool) {
            let spawned = spawn(name, StackSize::Small, || {
                // What the kernel kept, not what we asked for.
                std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default()
            });
            match spawned {
                Ok(handle) => {
                    assert!(fits, "{name:?} was taken");
                    assert_eq!(handle.join().expect("no panic").trim_end(), name);
                }
                Err(err) => {
                    assert!(!fits, "{name:?} was refused: {err}");
                    assert_eq!(err.kind(), io::ErrorKind::InvalidInput);
                }
            }
        }
        check("pod-1", true);
        check("exactly-15-long", true);
        check("sixteen-bytes-ab", false);
        check("", false);
        check("a\0b", false);
    }

    #[test]
    fn a_job_that_panics_becomes_an_error() {
        fn check(job: fn() -> u8, expect: Result<u8, &str>) {
            let got = catch(job);
            assert_eq!(got.as_ref().map_err(PanicText::message), expect.as_ref().map_err(|text| *text));
        }
        check(|| 7, Ok(7));
        check(|| panic!("plain"), Err("plain"));
        check(|| panic!("formatted {}", 1), Err("formatted 1"));
        check(|| std::panic::panic_any(3u8), Err("a panic without a text"));
    }

    #[test]
    fn join_hands_over_the_panic_or_the_value() {
        let good = spawn("good", StackSize::Small, || 5).expect("started");
        assert_eq!(good.join(), Ok(5));
        let bad = spawn("bad", StackSize::Small, || panic!("broken")).expect("started");
        let panic: Result<(), _> = bad.join();
        assert_eq!(panic.expect_err("it panicked").message(), "broken");
    }

    #[test]
    fn dropping_a_handle_waits_for_the_end() {
        let (stop, stopped) = bounded::<()>(0);
        let (done, is_done) = bounded(1);
        let handle = spawn("waits", StackSize::Small, move || {
            let _ = stopped.recv();
            done.send(()).expect("room for one");
        })
        .expect("started");
        assert!(!handle.has_ended());
        drop(stop);
        drop(handle);
        assert_eq!(is_done.try_recv(), Ok(()));
    }

    #[test]
    fn the_end_can_be_awaited_with_a_limit() {
        let (stop, stopped) = bounded::<()>(0);
        let handle = spawn("limit", StackSize::Small, move || stopped.recv().is_ok()).expect("started");
        assert!(!handle.ended_within(Duration::from_millis(1)));
        drop(stop);
        assert!(handle.ended_within(LONG));
    }

    #[test]
    fn scoped_threads_share_what_their_job_owns() {
        let numbers = [1, 2, 3];
        let sum: i32 = std::thread::scope(|scope| {
            let threads: Vec<_> = numbers
                .iter()
                .map(|n| spawn_scoped(scope, "part", StackSize::Small, move || *n).expect("started"))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("joined").expect("no panic")).sum()
        });
        assert_eq!(sum, 6);
    }

    /// Runs this very test in a child process, where its owner thread panics.
    #[test]
    fn a_panic_of_an_owner_ends_the_process() {
        const IN_CHILD: &str = "FERROLET_TEST_OWNER_PANICS";
        if std::env::var_os(IN_CHILD).is_some() {
            log_panics();
            let owner = OwnerThread::spawn("owner", StackSize::Normal, || panic!("state is broken")).expect("started");
            owner.join();
            return;
        }
        let output = std::process::Command::new(std::env::current_exe().expect("own path"))
            .args(["--exact", "util::thread::tests::a_panic_of_an_owner_ends_the_process", "--nocapture"])
            .env(IN_CHILD, "1")
            .output()
            .expect("the test binary runs");
        assert_eq!(output.status.code(), Some(EXIT_OWNER_PANICKED), "{output:?}");
    }

    #[test]
    fn an_owner_that_returns_ends_nothing_else() {
        let owner = OwnerThread::spawn("owner", StackSize::Normal, || ()).expect("started");
        assert!(owner.ended_within(LONG));
        owner.join();
    }
}
