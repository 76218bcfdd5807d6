//! Endpoints of container runtimes: what may be configured, how gRPC wants it, and why one fails.
//!
//! Runs on the thread that makes a client, and on any caller's thread after a failed connection.
//! Never speaks gRPC: it looks at the socket only.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use super::error::CriFailure;

/// Longest path that fits into a unix socket address.
const MAX_PATH: usize = 107;

/// A usable endpoint. Cloning is a reference count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// As configured, for people.
    pub(crate) text: Arc<str>,
    /// The socket's path.
    path: Arc<Path>,
}

impl Endpoint {
    /// Takes `unix:///path`, `unix:/path` or a bare absolute path; refuses everything else by name.
    pub(crate) fn parse(text: &str) -> Result<Self, CriFailure> {
        let refuse = |problem: String| Err(CriFailure::BadEndpoint(problem));
        let path = match text.split_once(':') {
            _ if text.is_empty() => {
                return refuse("an endpoint is needed, such as unix:///run/containerd/containerd.sock".into());
            }
            _ if text.starts_with('/') => text,
            Some(("unix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            Some(("tcp" | "http" | "https" | "dns" | "npipe" | "vsock" | "unix-abstract", _)) | None => {
                return refuse(format!("{text:?} is no unix socket: write unix:///absolute/path"));
            }
            Some((scheme, _)) => return refuse(format!("unknown scheme {scheme:?}: write unix:///absolute/path")),
        };
        if !path.starts_with('/') || path.ends_with('/') {
            return refuse(format!("{text:?} holds no absolute path of a socket: write unix:///absolute/path"));
        }
        if path.len() > MAX_PATH {
            return refuse(format!("the socket's path has {} bytes, {MAX_PATH} is the kernel's limit", path.len()));
        }
        if path.contains('\0') {
            return refuse("the socket's path holds a zero byte".into());
        }
        Ok(Self { text: text.into(), path: Path::new(path).into() })
    }

    /// The address for the C core, which takes a URI: everything unusual is percent-encoded.
    pub(crate) fn grpc_address(&self) -> String {
        let mut address = String::from("unix:");
        for &byte in self.path.as_os_str().as_encoded_bytes() {
            if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
                address.push(char::from(byte));
            } else {
                address.push_str(&format!("%{byte:02X}"));
            }
        }
        address
    }

    /// Opens the socket once to learn why gRPC could not. `None`: it opens, the cause lies elsewhere.
    pub(crate) fn diagnose(&self) -> Option<CriFailure> {
        let error = UnixStream::connect(&self.path).err()?;
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Some(CriFailure::SocketMissing),
            ErrorKind::PermissionDenied => Some(CriFailure::NotPermitted),
            ErrorKind::ConnectionRefused => {
                use std::os::unix::fs::FileTypeExt;
                let is_socket = self.path.metadata().map_or(true, |found| found.file_type().is_socket());
                Some(if is_socket { CriFailure::Refused } else { CriFailure::NotASocket })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn check(text: &str, expect: Result<&str, &str>) {
        let got = Endpoint::parse(text);
        match (&got, expect) {
            (Ok(endpoint), Ok(address)) => assert_eq!(endpoint.grpc_address(), address, "{text}"),
            (Err(CriFailure::BadEndpoint(problem)), Err(part)) => assert!(problem.contains(part), "{text}: {problem}"),
            _ => panic!("{text}: {got:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn unix_sockets_are_taken_in_all_spellings() {
        check("unix:///run/containerd/containerd.sock", Ok("unix:/run/containerd/containerd.sock"));
        check("unix:/run/crio/crio.sock", Ok("unix:/run/crio/crio.sock"));
        check("/run/k3s/containerd/containerd.sock", Ok("unix:/run/k3s/containerd/containerd.sock"));
        check("unix:///tmp/a b%20?#:ü", Ok("unix:/tmp/a%20b%2520%3F%23%3A%C3%BC"));
    }

    #[test]
    fn everything_else_is_refused_with_the_right_spelling() {
        check("", Err("an endpoint is needed"));
        check("tcp://127.0.0.1:3735", Err("write unix:///absolute/path"));
        check("npipe:////./pipe/containerd", Err("write unix:///absolute/path"));
        check("unix-abstract:x", Err("write unix:///absolute/path"));
        check("ftp://x", Err("unknown scheme \"ftp\""));
        check("run/containerd.sock", Err("is no unix socket"));
        check("unix://run/containerd.sock", Err("no absolute path"));
        check("unix:///", Err("no absolute path"));
        check("unix:///a\0b", Err("zero byte"));
        check(&format!("/{}", "x".repeat(107)), Err("108 bytes, 107"));
    }

    #[test]
    fn a_dead_end_is_told_by_its_kind() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("cri.sock");
        let endpoint = Endpoint::parse(socket.to_str().expect("text")).expect("a good endpoint");
        assert_eq!(endpoint.diagnose(), Some(CriFailure::SocketMissing));
        let listener = UnixListener::bind(&socket).expect("a socket");
        assert_eq!(endpoint.diagnose(), None);
        drop(listener);
        assert_eq!(endpoint.diagnose(), Some(CriFailure::Refused));
        std::fs::remove_file(&socket).expect("removed");
        std::fs::write(&socket, "").expect("a file");
        assert_eq!(endpoint.diagnose(), Some(CriFailure::NotASocket));
    }
}
