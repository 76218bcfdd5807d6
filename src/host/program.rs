//! Runs a program of the node's owner once: text in, text out, within a time.
//!
//! Layer L1, blocking, on the caller's thread. Owns the child while it runs: whatever happens, the program and what it
//! has started in its process group are killed when its time is over. What it writes is kept in memory files, so that
//! nothing that outlives it can hold up the caller, and is read up to a limit.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::util::cancel::Cancel;

/// Most that a program may write to each of its two outputs, in bytes.
const OUTPUT_LIMIT: u64 = 64 * 1024;

/// Longest time between two looks at whether it has ended.
const LONGEST_STEP: Duration = Duration::from_millis(50);

/// How long a killed program is waited for.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// Why a program gave no output that counts.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It could not be started.
    #[error("cannot start {path}")]
    Start {
        /// The program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel failed while it ran.
    #[error("cannot watch {path}")]
    Watch {
        /// The program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its time was over.
    #[error("{path} did not end within {} ms and was killed", timeout.as_millis())]
    TimedOut {
        /// The program.
        path: PathBuf,
        /// The time that it had.
        timeout: Duration,
    },
    /// Nobody wants to know any more.
    #[error("{path} was killed, for nobody waits for its answer any more")]
    Cancelled {
        /// The program.
        path: PathBuf,
    },
    /// It wrote too much.
    #[error("{path} wrote more than {OUTPUT_LIMIT} bytes and was killed")]
    TooMuch {
        /// The program.
        path: PathBuf,
    },
    /// It said itself that it failed.
    #[error("{path} ended with {status}: {stderr}")]
    Failed {
        /// The program.
        path: PathBuf,
        /// Exit code or signal.
        status: ExitStatus,
        /// What it wrote to stderr.
        stderr: String,
    },
}

/// Runs `path` with `input` as its stdin and gives what it wrote to stdout. It runs in `/` with nothing of this process'
/// environment but `PATH`.
///
/// # Errors
/// It did not start, did not end in time, wrote too much, or ended with anything but 0.
pub fn run(
    path: &Path,
    arguments: &[String],
    input: &[u8],
    timeout: Duration,
    cancel: &Cancel,
) -> Result<Vec<u8>, ProgramError> {
    let until = Instant::now() + timeout;
    let failed = |source| ProgramError::Start { path: path.to_owned(), source };
    let (mut stdin, stdout, stderr) = (
        memory_file(c"stdin").map_err(failed)?,
        memory_file(c"stdout").map_err(failed)?,
        memory_file(c"stderr").map_err(failed)?,
    );
    stdin.write_all(input).and_then(|()| stdin.seek(SeekFrom::Start(0)).map(drop)).map_err(failed)?;
    let mut child = Command::new(path)
        .args(arguments)
        .current_dir("/")
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout.try_clone().map_err(failed)?))
        .stderr(Stdio::from(stderr.try_clone().map_err(failed)?))
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let watched = watch(path, &mut child, [&stdout, &stderr], until, timeout, cancel);
    let status = watched.inspect_err(|_| kill(&mut child))?;
    let read = |file| text(file).map_err(|source| ProgramError::Watch { path: path.to_owned(), source });
    if !status.success() {
        let stderr = String::from_utf8_lossy(&read(stderr)?).trim().to_owned();
        return Err(ProgramError::Failed { path: path.to_owned(), status, stderr });
    }
    read(stdout)
}

fn memory_file(name: &CStr) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?))
}

/// Looks at the program until it has ended.
fn watch(
    path: &Path,
    child: &mut Child,
    outputs: [&File; 2],
    until: Instant,
    timeout: Duration,
    cancel: &Cancel,
) -> Result<ExitStatus, ProgramError> {
    let path = || path.to_owned();
    let failed = |source| ProgramError::Watch { path: path(), source };
    let mut step = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        for output in outputs {
            if output.metadata().map_err(failed)?.len() > OUTPUT_LIMIT {
                return Err(ProgramError::TooMuch { path: path() });
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ProgramError::TimedOut { path: path(), timeout });
        }
        if cancel.wait(step.min(left)) {
            return Err(ProgramError::Cancelled { path: path() });
        }
        step = (step * 2).min(LONGEST_STEP);
    }
}

/// Kills the program, which was not waited for yet, so that its number is still its own, and its process group.
fn kill(child: &mut Child) {
    let group = i32::try_from(child.id()).map(Pid::from_raw);
    let _gone_already = group.map(|group| killpg(group, Signal::SIGKILL));
    let until = Instant::now() + AFTER_KILL;
    // One that hangs in the kernel is left to it.
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        let _not_cancelled = Cancel::never().wait(Duration::from_millis(2));
    }
}

fn text(mut file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(OUTPUT_LIMIT).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, input: &str, timeout: Duration, cancel: &Cancel) -> Result<String, ProgramError> {
        let arguments = ["-c".to_owned(), script.to_owned()];
        let output = run(Path::new("/bin/sh"), &arguments, input.as_bytes(), timeout, cancel)?;
        Ok(String::from_utf8(output).expect("text"))
    }

    #[test]
    fn what_goes_in_and_what_comes_out() {
        let large = "x".repeat(200_000);
        for (script, input, expect) in [
            ("cat", "hello", "hello"),
            ("wc -c", large.as_str(), "200000\n"),
            ("echo $0 $1 >&2; pwd", "", "/\n"),
            ("echo \"[$HOME]\"", "", "[]\n"),
            // What it leaves behind holds nobody up.
            ("sleep 60 & echo done", "", "done\n"),
        ] {
            let output = shell(script, input, LONG, &Cancel::never()).expect(script);
            assert_eq!(output.trim_start(), expect, "{script}");
        }
    }

    #[test]
    fn failures_say_what_happened() {
        let cancelled = Cancel::new();
        cancelled.cancel();
        let short = Duration::from_millis(50);
        let never = Cancel::never();
        for (script, timeout, cancel, expect) in [
            ("echo no >&2; exit 3", LONG, &never, "/bin/sh ended with exit status: 3: no"),
            ("kill -9 $$", LONG, &never, "/bin/sh ended with signal: 9 (SIGKILL): "),
            ("sleep 60", short, &never, "/bin/sh did not end within 50 ms and was killed"),
            ("sleep 60", LONG, &cancelled, "/bin/sh was killed, for nobody waits for its answer any more"),
            ("exec yes", LONG, &never, "/bin/sh wrote more than 65536 bytes and was killed"),
        ] {
            let error = shell(script, "", timeout, cancel).expect_err(script);
            assert_eq!(error.to_string(), expect, "{script}");
        }
        let none = run(Path::new("/no/such/program"), &[], b"", LONG, &never).expect_err("no program");
        assert_eq!(none.to_string(), "cannot start /no/such/program");
    }

    #[test]
    fn a_killed_program_takes_its_children_along() {
        let dir = tempfile::tempdir().expect("a folder");
        let pid = dir.path().join("pid");
        let script = format!("sleep 60 & echo $! > {}.new; mv {0}.new {0}; wait", pid.display());
        let told = shell(&script, "", Duration::from_millis(500), &Cancel::never());
        assert!(matches!(told, Err(ProgramError::TimedOut { .. })), "{told:?}");
        let child = std::fs::read_to_string(&pid).expect("the child's number");
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        // Killed; whoever adopts it has to reap it.
        let until = Instant::now() + LONG;
        while !(state().is_empty() || state().contains(") Z")) {
            assert!(Instant::now() < until, "{}", state());
            std::thread::yield_now();
        }
    }
}
