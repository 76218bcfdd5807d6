//! The folder of the node's logs as a web server shows it: files, and folders as lists of links.
//!
//! On the threads of the connections. It owns nothing. Links are followed as long as they stay below the folder; nothing beyond it is ever opened,
//! whatever a pod that was given a part of it puts there.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path};
use std::time::SystemTime;

use crate::host::HostError;
use crate::host::files::{Missing, open_beneath};
use crate::util::order;

/// Names of one folder that are shown.
const NAME_LIMIT: usize = 20_000;

/// Something below the folder.
#[derive(Debug)]
pub enum Found {
    /// A file, open, with its size and the time of its last change.
    File {
        /// To read from.
        file: File,
        /// Bytes that it has now.
        size: u64,
        /// When it was changed.
        modified: Option<SystemTime>,
    },
    /// A folder.
    Folder,
}

/// Opens what a path names below `root`.
///
/// # Errors
/// It is not there, leads out, or is neither a file nor a folder.
pub fn open(root: &Path, path: &str) -> Result<Found, HostError> {
    let failed = |e: io::Error| HostError::io("open", root.join(path.trim_start_matches('/')), e);
    let relative = Path::new(path.trim_start_matches('/'));
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if path.contains('\0') || !relative.components().all(plain) {
        return Err(HostError::Escapes { path: relative.to_owned(), root: root.to_owned() });
    }
    // Where links lead; then the way without links, so that nothing that changes meanwhile leads elsewhere.
    let top = root.canonicalize().map_err(failed)?;
    let real = top.join(relative).canonicalize().map_err(failed)?;
    let Ok(below) = real.strip_prefix(&top) else {
        return Err(HostError::Escapes { path: relative.to_owned(), root: root.to_owned() });
    };
    let opened = open_beneath(&top, below, Missing::Refuse)?;
    if opened.is_folder {
        return Ok(Found::Folder);
    }
    // A pipe would keep its reader waiting: what it is comes first.
    let file = std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(opened.path());
    let file = file.map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(HostError::refused("show", real, "it is neither a file nor a folder"));
    }
    Ok(Found::File { file, size: found.size(), modified: found.modified().ok() })
}

/// A folder as a page of links, sorted by name.
///
/// # Errors
/// It can't be listed.
pub fn page(root: &Path, path: &str) -> Result<String, HostError> {
    let folder = root.join(path.trim_start_matches('/'));
    let failed = |e| HostError::io("list", &folder, e);
    let opened = open_beneath_of(root, path)?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(opened.path()).map_err(failed)?.take(NAME_LIMIT) {
        let entry = entry.map_err(failed)?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let slash = if is_folder { "/" } else { "" };
        names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
    }
    order::sort(&mut names);
    let mut page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for name in names {
        page.push_str(&format!("<a href=\"{}\">{}</a>\n", link(&name), escaped(&name)));
    }
    page.push_str("</pre>\n");
    Ok(page)
}

fn open_beneath_of(root: &Path, path: &str) -> Result<crate::host::files::Opened, HostError> {
    let top = root.canonicalize().map_err(|e| HostError::io("open", root, e))?;
    let real = top.join(path.trim_start_matches('/')).canonicalize().map_err(|e| HostError::io("open", root, e))?;
    let escapes = || HostError::Escapes { path: path.into(), root: root.to_owned() };
    open_beneath(&top, real.strip_prefix(&top).map_err(|_| escapes())?, Missing::Refuse)
}

/// A name as the address of a link beside this page.
fn link(name: &str) -> String {
    // A colon in the first part of an address would make a scheme of what stands before it.
    let mut out = if name.contains(':') { "./".to_owned() } else { String::new() };
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b'/' | b':' | b'=' | b'@' | b',' | b';' | b'!' | b'*' => {
                if byte == b'&' {
                    out.push_str("&amp;")
                } else {
                    out.push(char::from(byte))
                }
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The kind of a file by its name, or by its first bytes.
pub fn content_type(path: &str, start: &[u8]) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("log" | "txt") => "text/plain; charset=utf-8",
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        Some("gz") => "application/gzip",
        _ if start.iter().any(|byte| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f)) => {
            "application/octet-stream"
        }
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    fn ground() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("log");
        fs::create_dir_all(logs.join("pods/a b")).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        fs::write(logs.join("pods/a b/0.log"), "hello").unwrap();
        fs::write(logs.join("x&<y>:1"), "").unwrap();
        symlink(logs.join("pods/a b/0.log"), logs.join("absolute")).unwrap();
        symlink("pods", logs.join("relative")).unwrap();
        symlink("../secret", logs.join("out")).unwrap();
        symlink(dir.path(), logs.join("up")).unwrap();
        symlink("loop", logs.join("loop")).unwrap();
        nix::unistd::mkfifo(&logs.join("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        dir
    }

    fn check(path: &str, expect: &str) {
        let dir = ground();
        let got = match open(&dir.path().join("log"), path) {
            Ok(Found::Folder) => "folder".to_owned(),
            Ok(Found::File { mut file, size, .. }) => {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                format!("{size} {text}")
            }
            Err(HostError::Escapes { .. }) => "escapes".to_owned(),
            Err(error) if error.is_not_found() => "not found".to_owned(),
            Err(error) => error.to_string().split_whitespace().next().unwrap_or_default().to_owned(),
        };
        assert_eq!(got, expect, "{path}");
    }

    #[test]
    fn nothing_beyond_the_folder_is_opened() {
        check("", "folder");
        check("/", "folder");
        check("pods/a b/0.log", "5 hello");
        check("absolute", "5 hello");
        check("relative/a b/0.log", "5 hello");
        check("out", "escapes");
        check("up/secret", "escapes");
        check("../secret", "escapes");
        check("pods/../../secret", "escapes");
        check("pods/a b/0.log/x", "cannot");
        check("loop", "cannot");
        check("pipe", "refuse");
        check("nothing", "not found");
        check("a\0b", "escapes");
    }

    #[test]
    fn a_folder_is_a_page_of_links() {
        let dir = ground();
        let logs = dir.path().join("log");
        let page_of = |path: &str| page(&logs, path).unwrap();
        assert!(page_of("").contains("<a href=\"./x&amp;%3Cy%3E:1\">x&amp;&lt;y&gt;:1</a>\n"), "{}", page_of(""));
        assert_eq!(
            page_of("relative/"),
            "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n<a href=\"a%20b/\">a b/</a>\n</pre>\n"
        );
        assert!(matches!(page(&logs, "up"), Err(HostError::Escapes { .. })));
    }

    #[test]
    fn kinds_of_files() {
        for (path, start, expect) in [
            ("a.log", &b"\0"[..], "text/plain; charset=utf-8"),
            ("a.gz", b"", "application/gzip"),
            ("wtmp", b"\x01\x02", "application/octet-stream"),
            ("syslog", b"hello\t\x1b[0m\n", "text/plain; charset=utf-8"),
        ] {
            assert_eq!(content_type(path, start), expect, "{path}");
        }
    }
}
