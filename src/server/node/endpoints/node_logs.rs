//! `/logs/`: the node's own logs, as files and as answers to queries.
//!
//! On the threads that serve requests. It decides which of the two a request is, and opens what it shows before it answers.

use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use super::super::NodeParts;
use super::super::http::reply::TEXT;
use super::super::http::{Reply, Request};
use crate::host::{HostError, explain};
use crate::server::node_logs::files::{self, Found};
use crate::server::node_logs::journal::{self, Sources};
use crate::server::node_logs::query::{self, NodeLogQuery};

/// Time for one file.
const FILE_LIMIT: Duration = Duration::from_secs(4 * 3600);

/// `/logs/{path:*}`.
pub(in crate::server::node) fn logs(parts: &NodeParts, request: &mut Request<'_>) -> Reply {
    let path = request.param("path");
    if !parts.streams.log_query {
        return show(parts, request, path);
    }
    let root = &parts.streams.log_folder;
    // Some clients write paths as on Windows.
    let slashed = |file: &str| file.replace('\\', "/");
    let problem = |file: &str| files::open(root, &slashed(file)).err().map(|error| explain(&error));
    match query::parse(&request.head.query, path.is_empty(), &problem) {
        Ok(NodeLogQuery::None) => show(parts, request, path),
        Ok(NodeLogQuery::File(file)) => show(parts, request, slashed(&file).trim_start_matches('/')),
        Ok(NodeLogQuery::Services(services, options)) => {
            let (streams, stop) = (parts.streams.clone(), parts.stop.clone());
            Reply::stream(TEXT, move |out| {
                let sources = Sources { journalctl: &streams.journalctl, folder: &streams.log_folder };
                journal::copy(sources, &services, &options, &stop, out)
            })
        }
        Err(refused) => Reply::error(refused.status, &refused.text),
    }
}

/// A file, or a folder as a page.
fn show(parts: &NodeParts, request: &Request<'_>, path: &str) -> Reply {
    let root = &parts.streams.log_folder;
    let ends_in_slash = path.is_empty() || path.ends_with('/');
    let base = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match files::open(root, path.trim_end_matches('/')) {
        Ok(Found::Folder) if !ends_in_slash => elsewhere(request, &format!("{base}/")),
        // Links on a page are seen from its folder.
        Ok(Found::Folder) if path.is_empty() && !request.head.path.ends_with('/') => elsewhere(request, "logs/"),
        Ok(Found::Folder) => match files::page(root, path) {
            Ok(page) => Reply::new(200, "text/html; charset=utf-8", page.into_bytes()),
            Err(error) => refused(&error),
        },
        Ok(Found::File { .. }) if path.ends_with('/') => elsewhere(request, &format!("../{base}")),
        Ok(Found::File { file, size, modified }) => {
            let mut start = [0; 512];
            let count = file.read_at(&mut start, 0).unwrap_or(0);
            let kind = files::content_type(path, &start[..count]);
            let reply = Reply::stream(kind, move |out| journal::send(file, size, Instant::now() + FILE_LIMIT, out));
            match modified.and_then(|time| jiff::Timestamp::try_from(time).ok()) {
                Some(time) => {
                    let time = time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
                    reply.with_header("Last-Modified", time)
                }
                None => reply,
            }
        }
        Err(error) => refused(&error),
    }
}

fn elsewhere(request: &Request<'_>, path: &str) -> Reply {
    let query = request.head.target.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
    let encoded: String = path
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect();
    Reply::new(301, TEXT, Vec::new()).with_header("Location", format!("{encoded}{query}"))
}

fn refused(error: &HostError) -> Reply {
    let is_denied = |e: &HostError| matches!(e, HostError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied);
    match error {
        error if error.is_not_found() => Reply::error(404, "404 page not found"),
        HostError::Escapes { .. } | HostError::Refused { .. } => Reply::error(403, &explain(error)),
        error if is_denied(error) => Reply::error(403, "403 Forbidden"),
        HostError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotADirectory => {
            Reply::error(404, "404 page not found")
        }
        error => Reply::error(500, &explain(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::http::request::with_request;
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn check(query_is_on: bool, target: &str, status: u16, expect: &str) {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().join("log");
        fs::create_dir_all(root.join("a b")).expect("folders");
        fs::write(root.join("dpkg.log"), "packages\n").expect("a log");
        fs::write(root.join("wtmp"), [0, 1, 2]).expect("a log");
        symlink("/etc/hostname", root.join("out")).expect("a link");
        let journalctl = dir.path().join("journalctl");
        fs::write(&journalctl, "#!/bin/sh\n[ $1 = --field ] && echo kubelet.service || echo \"$@\"\n")
            .expect("a program");
        fs::set_permissions(&journalctl, fs::Permissions::from_mode(0o755)).expect("a mode");
        let mut parts = NodeParts::for_tests();
        parts.streams.log_query = query_is_on;
        parts.streams.log_folder = root;
        parts.streams.journalctl = journalctl;
        let path = target.split('?').next().unwrap_or_default().trim_start_matches("/logs").trim_start_matches('/');
        let reply = with_request(&format!("GET {target}"), "", |request| {
            request.params.push(("path", path.replace("%20", " ")));
            logs(&parts, request)
        });
        assert_eq!(reply.status(), status, "{target}");
        let location = reply.header("Location").map(|at| format!("to {at}"));
        let kind = reply.header("Content-Type").unwrap_or_default().to_owned();
        let body = String::from_utf8_lossy(&reply.into_bytes().expect("a body")).into_owned();
        let got = location.unwrap_or_else(|| format!("{kind}: {body}"));
        assert!(got.contains(expect), "{target}: {got}");
    }

    #[test]
    fn files_and_folders_are_shown() {
        check(false, "/logs/dpkg.log", 200, "text/plain; charset=utf-8: packages\n");
        check(false, "/logs/wtmp", 200, "application/octet-stream: ");
        check(false, "/logs/", 200, "<a href=\"dpkg.log\">dpkg.log</a>\n");
        check(false, "/logs", 301, "to logs/");
        check(false, "/logs/a%20b?x=y", 301, "to a%20b/?x=y");
        check(false, "/logs/a%20b/", 200, "<pre>\n</pre>\n");
        check(false, "/logs/dpkg.log/", 301, "to ../dpkg.log");
        check(false, "/logs/nothing", 404, "404 page not found\n");
        check(false, "/logs/dpkg.log/x", 404, "404 page not found\n");
        check(false, "/logs/out", 403, "leads out of");
    }

    #[test]
    fn queries_are_answered_where_they_are_allowed() {
        let journal = "text/plain; charset=utf-8: --utc --no-pager --output=short-precise --lines=2 --unit=kubelet\n";
        check(true, "/logs/?query=kubelet&tailLines=2", 200, journal);
        check(true, "/logs/?query=/dpkg.log", 200, "text/plain; charset=utf-8: packages\n");
        check(true, "/logs/?query=dpkg", 200, "packages\n");
        check(true, "/logs/dpkg.log", 200, "packages\n");
        check(true, "/logs/dpkg.log?query=kubelet", 406, "path not allowed in query mode\n");
        check(true, "/logs/?query=/out", 406, "leads out of");
        check(true, "/logs/?query=/../log/dpkg.log", 406, "leads out of");
        check(true, "/logs/?query=", 400, "may not be empty\n");
        check(false, "/logs/?query=kubelet", 200, "<pre>");
    }
}
