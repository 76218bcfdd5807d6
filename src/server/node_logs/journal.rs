//! Logs of services: from the journal, or from files named after them.
//!
//! On the threads of the connections. Runs `journalctl` with a deadline and a bound on what it prints, and sends its lines on as
//! they come. What goes wrong after the first byte is told in the text, as the kubelet does.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::files::{self, Found};
use super::query::{Options, arguments};
use crate::host::{HostError, explain};
use crate::util::cancel::Cancel;
use crate::util::process::{self, Excess, RunError, RunLimits};

/// Time for a whole query.
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes that a query gives at most.
const OUTPUT_LIMIT: u64 = 256 << 20;
/// Bytes of the list of all units that ever logged.
const UNITS_LIMIT: usize = 4 << 20;
/// Time to list them.
const UNITS_TIME: Duration = Duration::from_secs(10);

/// Where logs are.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The program `journalctl`.
    pub journalctl: &'a Path,
    /// The folder of the node's logs.
    pub folder: &'a Path,
}

/// Writes the logs of these services to `out`.
///
/// # Errors
/// The client takes no more.
pub fn copy(
    sources: Sources<'_>,
    services: &[String],
    options: &Options,
    cancel: &Cancel,
    out: &mut dyn Write,
) -> io::Result<()> {
    let until = Instant::now() + LIMIT;
    let units = units(sources.journalctl, cancel);
    let in_journal = |service: &&String| units.lines().any(|unit| unit.strip_suffix(".service") == Some(service));
    let (native, others): (Vec<&String>, Vec<&String>) = services.iter().partition(in_journal);
    if !native.is_empty() {
        let native: Vec<String> = native.into_iter().cloned().collect();
        from_journal(sources.journalctl, &arguments(&native, options), until, cancel, out)?;
    }
    if !others.is_empty() && *options != Options::default() {
        let names: Vec<&str> = others.iter().map(|name| name.as_str()).collect();
        return write!(
            out,
            "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
            names.join(" ")
        );
    }
    for service in others {
        from_file(sources.folder, service, until, out)?;
    }
    Ok(())
}

/// All units that the journal knows, one a line; none if there is no journal.
fn units(journalctl: &Path, cancel: &Cancel) -> String {
    let limits = RunLimits { time: UNITS_TIME, output: UNITS_LIMIT, complaint: 4096, excess: Excess::Drop };
    let mut command = Command::new(journalctl);
    match process::run(command.args(["--field", "_SYSTEMD_UNIT"]), b"", limits, cancel) {
        Ok(ran) if ran.status.success() => String::from_utf8_lossy(&ran.stdout).into_owned(),
        Ok(_) => String::new(),
        Err(error) => {
            log::debug!("the journal is not asked: {error}");
            String::new()
        }
    }
}

fn from_journal(
    journalctl: &Path,
    arguments: &[String],
    until: Instant,
    cancel: &Cancel,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut command = Command::new(journalctl);
    command.args(arguments);
    let time = until.saturating_duration_since(Instant::now());
    let mut left = OUTPUT_LIMIT;
    let mut broken = None;
    let ran = process::stream(&mut command, time, cancel, &mut |bytes| {
        let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= taken as u64;
        if let Err(error) = out.write_all(&bytes[..taken]) {
            broken = Some(error);
        }
        broken.is_none() && left > 0
    });
    if let Some(error) = broken {
        return Err(error);
    }
    match ran {
        Ok(_) => Ok(()),
        Err(RunError::TooMuch(_)) => {
            writeln!(out, "\nerror: the log is longer than {OUTPUT_LIMIT} bytes, ask for a part of it")
        }
        Err(RunError::TooLong(_)) => writeln!(out, "\nerror: the journal did not end within {} s", LIMIT.as_secs()),
        Err(_) => writeln!(out, "\nerror: journal output not available"),
    }
}

/// Looks for a file that a service without a journal may log to.
fn from_file(folder: &Path, service: &str, until: Instant, out: &mut dyn Write) -> io::Result<()> {
    for name in [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")] {
        match files::open(folder, &name) {
            Ok(Found::File { file, size, .. }) => return send(file, size, until, out),
            Ok(Found::Folder) => {}
            Err(error) if is_absent(&error) => {}
            Err(error) => return writeln!(out, "\nerror getting log for {service}: {}", explain(&error)),
        }
    }
    writeln!(out, "\nlog not found for {service}")
}

fn is_absent(error: &HostError) -> bool {
    let is_no_folder = |e: &io::Error| e.kind() == io::ErrorKind::NotADirectory;
    error.is_not_found() || matches!(error, HostError::Io { source, .. } if is_no_folder(source))
}

/// Sends the first `size` bytes of a file: what it had when it was opened.
///
/// # Errors
/// The client takes no more.
pub fn send(file: File, size: u64, until: Instant, out: &mut dyn Write) -> io::Result<()> {
    let mut file = file.take(size);
    let mut block = vec![0; 64 << 10];
    loop {
        let count = match file.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return writeln!(out, "\nerror reading the log: {error}"),
        };
        out.write_all(&block[..count])?;
        if Instant::now() >= until {
            return writeln!(out, "\nerror: the log took too long");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    const JOURNAL: &str = r#"#!/bin/sh
case "$1" in
--field) echo kubelet.service; echo ssh.service ;;
*) echo "$@"; echo complaint >&2; exit ${CODE:-0} ;;
esac
"#;

    fn check(script: &str, services: &[&str], options: &Options, expect: &str) {
        let dir = tempfile::tempdir().unwrap();
        let journalctl = dir.path().join("journalctl");
        fs::write(&journalctl, script).unwrap();
        fs::set_permissions(&journalctl, fs::Permissions::from_mode(0o755)).unwrap();
        let folder = dir.path().join("log");
        fs::create_dir_all(folder.join("nginx")).unwrap();
        fs::write(folder.join("nginx/nginx.log"), "requests\n").unwrap();
        fs::write(folder.join("dpkg.log"), "packages\n").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", folder.join("escape.log")).unwrap();
        let services: Vec<String> = services.iter().map(|name| (*name).to_owned()).collect();
        let sources = Sources { journalctl: &journalctl, folder: &folder };
        let mut out = Vec::new();
        copy(sources, &services, options, &Cancel::never(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expect, "{services:?}");
    }

    #[test]
    fn services_are_looked_for_in_the_journal_and_then_in_files() {
        let plain = Options::default();
        let journal = "--utc --no-pager --output=short-precise --unit=kubelet --unit=ssh\ncomplaint\n";
        check(JOURNAL, &["kubelet", "ssh"], &plain, journal);
        check(JOURNAL, &["nginx", "dpkg"], &plain, "requests\npackages\n");
        check(JOURNAL, &["let"], &plain, "\nlog not found for let\n");
        let refused = "\nerror getting log for escape: escape.log leads out of ";
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("escape.log")).unwrap();
        let mut out = Vec::new();
        from_file(dir.path(), "escape", Instant::now() + LIMIT, &mut out).unwrap();
        assert!(String::from_utf8_lossy(&out).starts_with(refused), "{}", String::from_utf8_lossy(&out));
        let tail = Options { tail: Some(3), ..plain.clone() };
        check(
            JOURNAL,
            &["kubelet", "dpkg"],
            &tail,
            "--utc --no-pager --output=short-precise --lines=3 --unit=kubelet\ncomplaint\n\
             \noptions present and query resolved to log files for [dpkg]\ntry without specifying options\n",
        );
        // No journal: files are what there is.
        check("#!/bin/sh\nexit 1\n", &["dpkg", "kubelet"], &plain, "packages\n\nlog not found for kubelet\n");
    }
}
