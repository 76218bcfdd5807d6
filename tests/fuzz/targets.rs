//! What holds for any bytes. Each target gives back what came of them, in so few words that alike outcomes are alike.
//!
//! Pure but for one temporary file; used from the thread of one test.

use std::{
    cell::RefCell,
    fs,
    io::{self, Read as _},
    time::Duration,
};

use ferrolet::host::logs::{LogOptions, LogStream, copy_log, parse_line};
use ferrolet::server::node::endpoint::{Found, find};
use ferrolet::server::node::http::body::{Body, Carrier};
use ferrolet::server::node::http::head::{self, MAX_HEAD, MAX_HEADERS, MAX_TARGET};
use ferrolet::server::node::http::target::parse_query;
use ferrolet::server::node::routes::ROUTES;
use ferrolet::server::node_logs::query::{self, NodeLogQuery};
use ferrolet::server::{container_logs, words};

/// Bytes that came, and no more.
struct Came<'a>(&'a [u8]);

impl Carrier for Came<'_> {
    fn ahead(&self) -> &[u8] {
        self.0
    }

    fn consume(&mut self, count: usize) {
        self.0 = &self.0[count..];
    }

    fn fill(&mut self) -> io::Result<usize> {
        Ok(0)
    }

    fn expect_within(&mut self, _limit: Duration) {}

    fn send(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// The requests on a connection, one after the other, with their bodies.
pub(super) fn request(bytes: &[u8]) -> String {
    let mut rest = bytes;
    let mut outcome = String::new();
    for _ in 0..4 {
        let (head, length) = match head::parse(rest) {
            Ok(None) => {
                assert!(rest.len() < MAX_HEAD + 8, "a head of {} bytes is still waited for", rest.len());
                return outcome + " more";
            }
            Err(refusal) => {
                assert!((400..600).contains(&refusal.status));
                return format!("{outcome} {} {}", refusal.status, refusal.why);
            }
            Ok(Some(found)) => found,
        };
        let text = &rest[..length];
        assert!(text.ends_with(b"\r\n\r\n") && length <= MAX_HEAD + 8, "a head of {length} bytes");
        // The same, whatever comes behind it, and not before it is whole.
        assert_eq!(head::parse(text).map(|found| found.map(|(head, _)| head)), Ok(Some(head.clone())));
        if length <= MAX_HEAD {
            assert_eq!(head::parse(&text[..length - 1]), Ok(None));
        }
        assert!(head.path.starts_with('/') && !head.path.contains('\0') && head.target.len() <= MAX_TARGET);
        assert!(head.headers.len() <= MAX_HEADERS);
        for (name, value) in &head.headers {
            assert!(!name.is_empty() && !name.contains([' ', ':', '\r', '\n', '\0']), "{name:?}");
            assert!(!value.contains(['\r', '\n', '\0']), "{value:?}");
        }
        let endpoint = match find(ROUTES, head.method, &head.path) {
            Found::Endpoint(endpoint, params) => {
                let is_plain = |value: &str| value.split('/').all(|part| part != ".." && part != ".");
                assert!(params.iter().all(|(_, value)| is_plain(value)), "{params:?}");
                endpoint.path
            }
            Found::OtherMethods(_) => "other methods",
            Found::Nothing => "nothing",
        };
        let mut came = Came(&rest[length..]);
        let before = came.0.len();
        let mut body = Vec::new();
        let ended = Body::new(&head, &mut came).take(1 << 20).read_to_end(&mut body);
        assert!(body.len() <= before, "more was read than came");
        let ended = match ended {
            Ok(_) => "whole".to_owned(),
            Err(error) => error.to_string(),
        };
        let framing = format!("{:?}", head.framing);
        let framing = framing.split('(').next().unwrap_or_default();
        outcome += &format!(
            " {:?} {endpoint} {framing} {}{}{} {ended}",
            head.method, head.is_old, head.closes, head.expects_continue
        );
        if ended != "whole" {
            break;
        }
        rest = came.0;
    }
    outcome
}

thread_local! {
    /// A file for logs, of each thread that wants one.
    static FILE: RefCell<Option<tempfile::NamedTempFile>> = const { RefCell::new(None) };
}

/// A log of these bytes, printed as the first four of them say.
pub(super) fn log(bytes: &[u8]) -> String {
    let [flags, tail, limit, more, rest @ ..] = bytes else { return "short".to_owned() };
    let has = |bit: u8| flags & (1 << bit) != 0;
    let options = LogOptions {
        tail: has(0).then_some(u64::from(*tail)),
        since: has(1).then_some(1_767_225_600_000_000_000 + i64::from(*more) * 1_000_000_000),
        limit_bytes: has(2).then_some(u64::from(*limit) * 3),
        timestamps: has(3),
        stream: has(4).then_some(if has(5) { LogStream::Stdout } else { LogStream::Stderr }),
        follow: has(6),
    };
    let mut read = 0;
    for line in rest.split(|byte| *byte == b'\n') {
        let Some(found) = parse_line(line) else { continue };
        assert!(line.ends_with(found.content) && !found.time.is_empty() && found.content.len() < line.len());
        let _any_time = found.at();
        read += 1;
    }
    FILE.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| tempfile::NamedTempFile::new().expect("a file"));
        fs::write(file.path(), rest).expect("written");
        let mut out = Vec::new();
        let mut looks = 0;
        let printed = copy_log(file.path(), &options, &mut out, &mut || {
            looks += 1;
            looks < 3
        });
        assert!(printed.is_ok(), "{printed:?}");
        assert!(options.limit_bytes.is_none_or(|limit| out.len() as u64 <= limit), "{} bytes", out.len());
        // A line that was cut into parts is printed once: nothing is more than what came, but for the times.
        assert!(out.len() <= rest.len() + read, "{} bytes of {}", out.len(), rest.len());
        // A line that is not at its end yet counts as none, as upstream counts.
        if options.tail == Some(0) && rest.ends_with(b"\n") {
            assert!(out.is_empty());
        }
        let lines = out.iter().filter(|byte| **byte == b'\n').count();
        format!("{read} {lines} {} {}", flags & 0x7f, out.ends_with(b"\n"))
    })
}

/// Queries for a node's logs and for a container's.
pub(super) fn query(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let pairs = parse_query(&text);
    let of_container = match container_logs::query::parse(&pairs, 1_767_225_600_000_000_000) {
        Ok(query) => {
            let options = query.options;
            assert!(options.limit_bytes.is_none_or(|bytes| bytes > 0));
            assert!(options.stream.is_none() || options.tail.is_none());
            format!("{} {}{}{}", query.previous, options.timestamps, options.follow, options.tail.is_some())
        }
        Err(words::Refused { status, text }) => {
            assert!(matches!(status, 400 | 422));
            text
        }
    };
    let of_node = match query::parse(&pairs, true, &|_| None) {
        Ok(NodeLogQuery::None) => "none".to_owned(),
        Ok(NodeLogQuery::File(file)) => {
            assert!(file.contains(['/', '\\']));
            "file".to_owned()
        }
        Ok(NodeLogQuery::Services(services, options)) => {
            assert!((1..=4).contains(&services.len()));
            let known = ["utc", "no-pager", "output=", "since=@", "until=@", "lines=", "unit=", "grep=", "boot="];
            let arguments = query::arguments(&services, &options);
            for argument in &arguments {
                let is_known = |name: &str| argument.strip_prefix("--").is_some_and(|rest| rest.starts_with(name));
                assert!(known.iter().any(|name| is_known(name)), "{argument:?}");
                assert!(
                    argument.starts_with("--grep=") || !argument.contains([' ', '\n', '\0', '$', '/']),
                    "{argument:?}"
                );
            }
            let names: Vec<&str> = arguments.iter().map(|one| one.split('=').next().unwrap_or_default()).collect();
            names.join(" ")
        }
        Err(words::Refused { status, text }) => {
            assert!(matches!(status, 400 | 406) && !text.is_empty());
            let kinds: Vec<&str> = text.split(": ").filter(|part| part.len() < 24 && part.is_ascii()).collect();
            kinds.join(" ")
        }
    };
    format!("{of_container} | {of_node}")
}
