//! Runs a foreign program that may hang, talk without end or fail: with a deadline and byte limits.
//!
//! Used on the threads that need the program's answer, which wait for it. Owns the process group until
//! it returns; nothing of it outlives a run that was cut short, and what a program that ended by itself
//! leaves behind holds nobody up. No shell is involved.

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

/// The first and the longest pause between two looks at whether it has ended.
const FIRST_STEP: Duration = Duration::from_millis(1);
const LONGEST_STEP: Duration = Duration::from_millis(50);
/// How long a killed program is waited for.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// What more on standard error than its limit means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// It is dropped.
    Drop,
    /// The program is killed.
    Kill,
}

/// What a program may cost.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// Time until its end.
    pub time: Duration,
    /// Bytes on its standard output; it is killed for more.
    pub output: usize,
    /// Bytes on its standard error.
    pub complaint: usize,
    /// What more than that means.
    pub excess: Excess,
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

/// Runs a program and hands on what it prints, standard error included, as it comes. It is killed when `take` has enough and says false.
///
/// # Errors
/// It did not start, or it was killed; [`RunError::TooMuch`] if `take` had enough.
pub fn stream(
    command: &mut Command,
    time: Duration,
    cancel: &Cancel,
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<ExitStatus, RunError> {
    let deadline = Instant::now() + time;
    let (mut from, to) = io::pipe().map_err(RunError::Start)?;
    let twice = to.try_clone().map_err(RunError::Start)?;
    let spawned = command.stdin(Stdio::null()).stdout(twice).stderr(to).process_group(0).spawn();
    // The command has them still, and their end would never come.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(spawned.map_err(RunError::Start)?);
    fcntl(from.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|errno| RunError::Read(errno.into()))?;
    let bell = Bell::new().map_err(RunError::Read)?;
    let _rings = cancel.register(bell.waker());
    let mut block = vec![0; 32 << 10];
    let (mut step, mut passed) = (FIRST_STEP, 0);
    loop {
        // Looked at before the last words are read.
        let ended = running.0.try_wait().map_err(RunError::Read)?;
        let is_silent = loop {
            match from.read(&mut block) {
                Ok(0) => break true,
                Ok(count) => {
                    passed += count;
                    step = FIRST_STEP;
                    if !take(&block[..count]) {
                        return Err(RunError::TooMuch(passed));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(error) => return Err(RunError::Read(error)),
            }
            if Instant::now() >= deadline {
                return Err(RunError::TooLong(time));
            }
        };
        if let Some(status) = ended {
            return Ok(status);
        }
        if cancel.is_cancelled() {
            return Err(RunError::Cancelled);
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(RunError::TooLong(time));
        }
        let until = deadline.min(now + step);
        step = (step * 2).min(LONGEST_STEP);
        let fds: &[_] = if is_silent { &[] } else { &[from.as_fd()] };
        bell.wait_any(fds, Some(until)).map_err(RunError::Read)?;
    }
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
            let until = Instant::now() + AFTER_KILL;
            // One that hangs in the kernel is left to it.
            while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < until {
                let _not_cancelled = Cancel::never().wait(FIRST_STEP);
            }
        }
    }
}

/// One output of a program, and what of it is kept.
struct Output<R> {
    /// `None` after its end.
    from: Option<R>,
    kept: Vec<u8>,
    limit: usize,
    excess: Excess,
}

impl<R: Read + AsFd> Output<R> {
    fn new(from: R, limit: usize, excess: Excess) -> Result<Self, RunError> {
        let flags = FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
        fcntl(from.as_fd(), flags).map_err(|errno| RunError::Read(errno.into()))?;
        Ok(Self { from: Some(from), kept: Vec::new(), limit, excess })
    }

    /// Reads once; whether there may be more right now.
    fn take(&mut self) -> Result<bool, RunError> {
        let Some(from) = &mut self.from else { return Ok(false) };
        let mut buffer = [0; 4096];
        match from.read(&mut buffer) {
            Ok(0) => {
                self.from = None;
                Ok(false)
            }
            Ok(read) => {
                let room = self.limit - self.kept.len();
                if read > room && self.excess == Excess::Kill {
                    return Err(RunError::TooMuch(self.limit));
                }
                self.kept.extend_from_slice(&buffer[..read.min(room)]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(RunError::Read(error)),
        }
    }

    /// Reads what there is, after the program's end: others may go on to write.
    fn take_rest(&mut self) -> Result<(), RunError> {
        while self.kept.len() < self.limit || self.excess == Excess::Kill {
            if !self.take()? {
                break;
            }
        }
        Ok(())
    }
}

fn listen(child: &mut Child, deadline: Instant, limits: RunLimits, cancel: &Cancel) -> Result<Ran, RunError> {
    let bell = Bell::new().map_err(RunError::Read)?;
    let _rings = cancel.register(bell.waker());
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(RunError::Read(io::ErrorKind::BrokenPipe.into()));
    };
    let mut out = Output::new(out, limits.output, Excess::Kill)?;
    let mut err = Output::new(err, limits.complaint, limits.excess)?;
    let mut step = FIRST_STEP;
    loop {
        if let Some(status) = child.try_wait().map_err(RunError::Read)? {
            out.take_rest()?;
            err.take_rest()?;
            let stderr = String::from_utf8_lossy(&err.kept).trim().to_owned();
            return Ok(Ran { status, stdout: out.kept, stderr });
        }
        if cancel.is_cancelled() {
            return Err(RunError::Cancelled);
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(RunError::TooLong(limits.time));
        }
        // Its end is looked for, since an output may stay open beyond it.
        let until = deadline.min(now + step);
        step = (step * 2).min(LONGEST_STEP);
        let fds: Vec<_> =
            [out.from.as_ref().map(AsFd::as_fd), err.from.as_ref().map(AsFd::as_fd)].into_iter().flatten().collect();
        bell.wait_any(&fds, Some(until)).map_err(RunError::Read)?;
        out.take()?;
        err.take()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, output and complaint of a script, or why it has none.
    fn tell(script: &str, input: &str, time: Duration) -> String {
        let mut command = Command::new("sh");
        let limits = RunLimits { time, output: 1000, complaint: 1000, excess: Excess::Drop };
        let started = Instant::now();
        let got = match run(command.args(["-c", script]), input.as_bytes(), limits, &Cancel::never()) {
            Ok(ran) => {
                format!("{:?} {} {}", ran.status.code(), String::from_utf8_lossy(&ran.stdout).trim(), ran.stderr)
            }
            Err(error) => error.to_string(),
        };
        assert!(started.elapsed() < Duration::from_secs(50), "cut short");
        got.trim().to_owned()
    }

    fn check(script: &str, input: &str, time: Duration, expect: &str) {
        assert_eq!(tell(script, input, time), expect, "{script}");
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
        // What it leaves behind holds nobody up.
        check("sleep 60 & echo done", "", long, "Some(0) done");
        // How far a child that talks on has come by then is chance; it is not listened to for longer.
        let told = tell("(while true; do echo x >&2; done) & echo done; exit 4", "", long);
        let complaint = told.strip_prefix("Some(4) done").unwrap_or_else(|| panic!("{told}"));
        assert!(complaint.len() <= 1001 && complaint.trim().lines().all(|line| line == "x"), "{told}");
    }

    #[test]
    fn what_is_printed_is_handed_on_as_it_comes() {
        let long = Duration::from_secs(60);
        let tell = |script: &str, time, most: usize| {
            let mut got = Vec::new();
            let mut command = Command::new("sh");
            let ran = stream(command.args(["-c", script]), time, &Cancel::never(), &mut |bytes| {
                got.extend_from_slice(bytes);
                got.len() < most
            });
            let end = ran.map_or_else(|error| format!("{error:?}"), |status| format!("{:?}", status.code()));
            format!("{} {end}", String::from_utf8_lossy(&got[..got.len().min(20)]))
        };
        assert_eq!(tell("echo out; echo err >&2; exit 3", long, 1000), "out\nerr\n Some(3)");
        assert_eq!(tell("sleep 60 & echo done", long, 1000), "done\n Some(0)");
        assert!(tell("yes", long, 1000).contains("TooMuch"));
        assert_eq!(tell("echo x; sleep 600 & wait", Duration::from_millis(300), 1000), "x\n TooLong(300ms)");
    }

    #[test]
    fn input_may_be_larger_than_a_pipe_and_not_be_read() {
        check("exit 0", &"x".repeat(1 << 20), Duration::from_secs(60), "Some(0)");
        check("wc -c", &"x".repeat(1 << 20), Duration::from_secs(60), "Some(0) 1048576");
    }

    #[test]
    fn a_missing_program_and_a_cancelled_one_are_told_apart() {
        let limits = RunLimits { time: Duration::from_secs(60), output: 10, complaint: 10, excess: Excess::Kill };
        let error =
            run(Command::new("sh").args(["-c", "yes >&2"]), b"", limits, &Cancel::never()).expect_err("too much");
        assert!(matches!(error, RunError::TooMuch(10)), "{error}");
        let error = run(&mut Command::new("/no/such/program"), b"", limits, &Cancel::never()).expect_err("missing");
        assert!(matches!(error, RunError::Start(_)), "{error}");
        let cancel = Cancel::new();
        cancel.cancel();
        let error = run(Command::new("sleep").arg("600"), b"", limits, &cancel).expect_err("cancelled");
        assert!(matches!(error, RunError::Cancelled), "{error}");
    }
}
