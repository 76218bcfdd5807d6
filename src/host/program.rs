//! Runs a program of the node's owner once: text in, text out, within a time.
//!
//! Layer L1, blocking, on the caller's thread. Owns nothing: see [`crate::util::process`] for how it is run. The program
//! knows nothing of this process, neither its folder nor its environment.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::util::cancel::Cancel;
use crate::util::process::{self, Excess, RunError, RunLimits};

/// Most that a program may write to each of its two outputs, in bytes.
const OUTPUT_LIMIT: usize = 64 * 1024;

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
    let mut command = Command::new(path);
    command.args(arguments).current_dir("/").env_clear();
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let limits = RunLimits { time: timeout, output: OUTPUT_LIMIT, complaint: OUTPUT_LIMIT, excess: Excess::Kill };
    let ran = process::run(&mut command, input, limits, cancel).map_err(|error| {
        let path = path.to_owned();
        match error {
            RunError::Start(source) => ProgramError::Start { path, source },
            RunError::Read(source) => ProgramError::Watch { path, source },
            RunError::TooLong(timeout) => ProgramError::TimedOut { path, timeout },
            RunError::Cancelled => ProgramError::Cancelled { path },
            RunError::TooMuch(_) => ProgramError::TooMuch { path },
        }
    })?;
    if ran.status.success() {
        return Ok(ran.stdout);
    }
    Err(ProgramError::Failed { path: path.to_owned(), status: ran.status, stderr: ran.stderr })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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
