//! Runs a foreign program that may hang, talk without end or fail: with a deadline and byte limits.
//!
//! Used on the threads that need the program's answer, which wait for it. Owns the process group until
//! it returns; nothing of it outlives a run that was cut short. No shell is involved.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::cancel::Cancel;
use super::poll::Bell;

/// How much of a program's complaints is kept.
const MAX_COMPLAINT: usize = 4096;
/// Between two looks at a program that has closed its outputs and not ended.
const STEP: Duration = Duration::from_millis(5);

/// What a program may cost.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// Time until its end.
    pub time: Duration,
    /// Bytes on its standard output.
    pub output: usize,
}

/// What a program said.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output, whole.
    pub stdout: Vec<u8>,
    /// The first of its standard error.
    pub stderr: String,
}

/// A program could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It did not start.
    #[error("it cannot be started: {0}")]
    Start(io::Error),
    /// It took too long and was killed.
    #[error("it did not end within {0:?} and was killed")]
    TooLong(Duration),
    /// It printed too much and was killed.
    #[error("it printed more than {0} bytes and was killed")]
    TooMuch(usize),
    /// The caller needs it no more; it was killed.
    #[error("it was killed, its answer is needed no more")]
    Cancelled,
    /// The kernel would not let its output be read.
    #[error("its output cannot be read: {0}")]
    Read(io::Error),
}

/// Runs a program with `input` on its standard input.
///
/// # Errors
/// It did not start, or it was killed. How a program ends that ended by itself is for the caller to judge.
pub fn run(command: &mut Command, input: &[u8], limits: RunLimits, cancel: &Cancel) -> Result<Ran, RunError> {
    let deadline = Instant::now() + limits.time;
    let stdin = if input.is_empty() { Stdio::null() } else { file_of(input).map_err(RunError::Start)?.into() };
    // A group of its own, so that its children go with it.
    let command = command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut running = Running(command.spawn().map_err(RunError::Start)?);
    let result = listen(&mut running.0, deadline, limits, cancel);
    if let Ok(ran) = &result {
        log::trace!("process {} ended: {}", running.0.id(), ran.status);
    }
    result
}

/// Bytes as a file without a name, which a child reads at its own pace.
fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"input", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// A child that is gone, with its group, when this goes.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // A child that was not waited for keeps its id, so no other group can be hit.
            let group = i32::try_from(self.0.id()).map(Pid::from_raw);
            let _gone_meanwhile = group.map(|group| killpg(group, Signal::SIGKILL));
            let _reaped = self.0.wait();
        }
    }
}

fn listen(child: &mut Child, deadline: Instant, limits: RunLimits, cancel: &Cancel) -> Result<Ran, RunError> {
    let bell = Bell::new().map_err(RunError::Read)?;
    let _rings = cancel.register(bell.waker());
    let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(RunError::Read(io::ErrorKind::BrokenPipe.into()));
    };
    for fd in [out.as_fd(), err.as_fd()] {
        fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|errno| RunError::Read(errno.into()))?;
    }
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (mut out_open, mut err_open) = (true, true);
    let late = || if cancel.is_cancelled() { RunError::Cancelled } else { RunError::TooLong(limits.time) };
    while out_open || err_open {
        if cancel.is_cancelled() || Instant::now() >= deadline {
            return Err(late());
        }
        let wait = match (out_open, err_open) {
            (true, true) => bell.wait([out.as_fd(), err.as_fd()], Some(deadline)),
            (true, false) => bell.wait([out.as_fd()], Some(deadline)).map(|[out]| [out, false]),
            _ => bell.wait([err.as_fd()], Some(deadline)).map(|[err]| [false, err]),
        };
        let [read_out, read_err] = wait.map_err(RunError::Read)?;
        if read_out {
            out_open = take(&mut out, &mut stdout, limits.output.saturating_add(1)).map_err(RunError::Read)?;
            if stdout.len() > limits.output {
                return Err(RunError::TooMuch(limits.output));
            }
        }
        if read_err {
            err_open = take(&mut err, &mut stderr, MAX_COMPLAINT).map_err(RunError::Read)?;
        }
    }
    loop {
        if let Some(status) = child.try_wait().map_err(RunError::Read)? {
            let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
            return Ok(Ran { status, stdout, stderr });
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || cancel.wait(left.min(STEP)) {
            return Err(late());
        }
    }
}

/// Reads what there is, keeps up to `max` bytes in all; whether more can come.
fn take(from: &mut impl Read, into: &mut Vec<u8>, max: usize) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    match from.read(&mut buffer) {
        Ok(0) => Ok(false),
        Ok(read) => {
            let room = max.saturating_sub(into.len()).min(read);
            into.extend_from_slice(&buffer[..room]);
            Ok(true)
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(script: &str, input: &str, time: Duration, expect: &str) {
        let mut command = Command::new("sh");
        let limits = RunLimits { time, output: 1000 };
        let started = Instant::now();
        let got = match run(command.args(["-c", script]), input.as_bytes(), limits, &Cancel::never()) {
            Ok(ran) => {
                format!("{:?} {} {}", ran.status.code(), String::from_utf8_lossy(&ran.stdout).trim(), ran.stderr)
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(got.trim(), expect);
        assert!(started.elapsed() < Duration::from_secs(50), "cut short");
    }

    #[test]
    fn a_program_says_its_piece_or_is_killed_with_its_children() {
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(100));
        check("echo out; echo err >&2; exit 3", "", long, "Some(3) out err");
        check("cat; cat", "both\n", long, "Some(0) both");
        check("cat", "", long, "Some(0)");
        check("yes", "", long, "it printed more than 1000 bytes and was killed");
        check("sleep 600 & wait", "", short, "it did not end within 100ms and was killed");
        check("exec >/dev/null 2>&1; sleep 600", "", short, "it did not end within 100ms and was killed");
        check("yes >&2", "", short, "it did not end within 100ms and was killed");
    }

    #[test]
    fn input_may_be_larger_than_a_pipe_and_not_be_read() {
        check("exit 0", &"x".repeat(1 << 20), Duration::from_secs(60), "Some(0)");
        check("wc -c", &"x".repeat(1 << 20), Duration::from_secs(60), "Some(0) 1048576");
    }

    #[test]
    fn a_missing_program_and_a_cancelled_one_are_told_apart() {
        let limits = RunLimits { time: Duration::from_secs(60), output: 10 };
        let error = run(&mut Command::new("/no/such/program"), b"", limits, &Cancel::never()).expect_err("missing");
        assert!(matches!(error, RunError::Start(_)), "{error}");
        let cancel = Cancel::new();
        cancel.cancel();
        let error = run(Command::new("sleep").arg("600"), b"", limits, &cancel).expect_err("cancelled");
        assert!(matches!(error, RunError::Cancelled), "{error}");
    }
}
