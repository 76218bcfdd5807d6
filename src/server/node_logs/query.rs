//! A query for the node's own logs: which services or file, and what of them, with the kubelet's rules and words.
//!
//! Pure; on the threads of the connections. Whatever a client writes, an argument of `journalctl` is one of the few options here with a value behind
//! `=`: nothing of the client's begins an argument.

use crate::api::runtime::UnixNanos;
use crate::server::words::{Pairs, Refused, all, first, rfc3339};
use crate::util::text::quote;

/// Lines from the end at most.
const MAX_TAIL: i64 = 100_000;
/// Longest name of a service.
const MAX_SERVICE: usize = 256;
/// Services at a time.
const MAX_SERVICES: usize = 4;
/// Longest pattern; upstream knows no bound but that of a request.
const MAX_PATTERN: usize = 4096;

/// What a query asks of services' logs besides their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Not before this time.
    pub since: Option<UnixNanos>,
    /// Not after this time.
    pub until: Option<UnixNanos>,
    /// So many lines from the end.
    pub tail: Option<i64>,
    /// Of which boot: 0 is this one, -1 the one before.
    pub boot: Option<i64>,
    /// Only lines that match.
    pub pattern: String,
}

/// What a query is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeLogQuery {
    /// No query: the path says what is wanted.
    None,
    /// Logs of these services.
    Services(Vec<String>, Options),
    /// One file below the log folder.
    File(String),
}

/// Reads a query. `path_is_empty` says whether the request names no file by its path; `file_problem` tells what is wrong with a
/// file that a query names.
///
/// # Errors
/// 400 where a value cannot be read, 406 where it makes no sense.
pub fn parse(
    pairs: &Pairs,
    path_is_empty: bool,
    file_problem: &dyn Fn(&str) -> Option<String>,
) -> Result<NodeLogQuery, Refused> {
    let mut problems = Vec::new();
    let queries: Vec<&str> = all(pairs, "query").collect();
    let mut files = Vec::new();
    let mut services = Vec::new();
    for query in &queries {
        if query.contains(['/', '\\']) {
            files.push((*query).to_owned());
        } else if !query.trim().is_empty() {
            services.push((*query).to_owned());
        }
    }
    if !queries.is_empty() && files.is_empty() && services.is_empty() {
        problems.push(invalid("query", &list(&queries), "may not be empty"));
    }
    let value = |name: &str| first(pairs, name).filter(|value| !value.is_empty());
    let mut time = |name: &str| {
        let text = value(name)?;
        let time = rfc3339(text);
        if time.is_none() {
            problems.push(invalid(name, &quote(text), "invalid time format"));
        }
        time
    };
    let (since, until) = (time("sinceTime"), time("untilTime"));
    let mut number = |name: &str| {
        let text = value(name)?;
        let number = text.parse().ok();
        if number.is_none() {
            let why = format!("strconv.Atoi: parsing {}: invalid syntax", quote(text));
            problems.push(invalid(name, &quote(text), &why));
        }
        number
    };
    let (boot, tail) = (number("boot"), number("tailLines"));
    if !problems.is_empty() {
        return Err(refused(400, &problems));
    }
    let options = Options { since, until, tail, boot, pattern: value("pattern").unwrap_or_default().to_owned() };
    if files.is_empty() && services.is_empty() && options == Options::default() {
        return Ok(NodeLogQuery::None);
    }
    if !path_is_empty {
        return Err(Refused::new(406, "path not allowed in query mode"));
    }
    let problems = senseless(&services, &files, &options, file_problem);
    if !problems.is_empty() {
        return Err(refused(406, &problems));
    }
    match files.pop() {
        Some(file) => Ok(NodeLogQuery::File(file)),
        None => Ok(NodeLogQuery::Services(services, options)),
    }
}

/// What makes no sense in a query that could be read.
fn senseless(
    services: &[String],
    files: &[String],
    options: &Options,
    file_problem: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    for service in services {
        if let Some(why) = service_problem(service) {
            problems.push(invalid("query", &quote(service), &why));
        }
    }
    if services.len() > MAX_SERVICES {
        let count = services.len();
        problems.push(format!("query: Too many: {count}: must have at most {MAX_SERVICES} items"));
    }
    match files {
        [] if services.is_empty() => {
            problems.push("query: Required value: cannot be empty with options".to_owned());
        }
        [_, ..] if !services.is_empty() => {
            let both = quote(&format!("[{}], [{}]", files.join(" "), services.join(" ")));
            problems.push(invalid("query", &both, "cannot specify a file and service"));
        }
        [_, _, ..] => problems.push(invalid("query", &list(files), "cannot specify more than one file")),
        [_] if *options != Options::default() => {
            problems.push(invalid("query", &list(files), "cannot specify file with options"));
        }
        [file] => problems.extend(file_problem(file).map(|why| invalid("query", &list(files), &why))),
        [] => {}
    }
    if let (Some(since), Some(until)) = (options.since, options.until)
        && since > until
    {
        let time = jiff::Timestamp::from_nanosecond(until.into()).map(|time| time.to_string()).unwrap_or_default();
        problems.push(invalid("untilTime", &quote(&time), "must be after `sinceTime`"));
    }
    if let Some(boot) = options.boot.filter(|boot| *boot > 0) {
        problems.push(invalid("boot", &boot.to_string(), "must be less than 1"));
    }
    if let Some(tail) = options.tail.filter(|tail| !(0..=MAX_TAIL).contains(tail)) {
        let why = format!("must be between 0 and {MAX_TAIL}, inclusive");
        problems.push(invalid("tailLines", &tail.to_string(), &why));
    }
    // Upstream looks at it as at a pattern of Go's, and journalctl then reads it as one of PCRE; here only the latter does.
    if options.pattern.len() > MAX_PATTERN {
        let why = format!("must be no longer than {MAX_PATTERN} bytes");
        problems.push(invalid("pattern", &quote(&options.pattern[..options.pattern.floor_char_boundary(64)]), &why));
    } else if options.pattern.contains('\0') {
        problems.push(invalid("pattern", &quote(&options.pattern), "must not contain a zero byte"));
    }
    problems
}

/// Why this is no name of a service.
fn service_problem(service: &str) -> Option<String> {
    if service.len() > MAX_SERVICE {
        return Some(format!("length must be less than {MAX_SERVICE}"));
    }
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    (!service.chars().all(is_safe)).then(|| "input contains unsupported characters".to_owned())
}

/// The arguments of `journalctl` for these services.
pub fn arguments(services: &[String], options: &Options) -> Vec<String> {
    let mut arguments: Vec<String> = ["--utc", "--no-pager", "--output=short-precise"].map(str::to_owned).to_vec();
    // Seconds of 1970, so that no time zone comes in between.
    let mut time = |name: &str, time: Option<UnixNanos>| {
        arguments.extend(time.map(|time| format!("--{name}=@{}", time.div_euclid(1_000_000_000).max(0))));
    };
    time("since", options.since);
    time("until", options.until);
    arguments.extend(options.tail.map(|tail| format!("--lines={tail}")));
    arguments.extend(services.iter().map(|service| format!("--unit={service}")));
    if !options.pattern.is_empty() {
        arguments.push(format!("--grep={}", options.pattern));
    }
    arguments.extend(options.boot.map(|boot| format!("--boot={boot}")));
    arguments
}

fn invalid(field: &str, value: &str, why: &str) -> String {
    format!("{field}: Invalid value: {value}: {why}")
}

/// A list as JSON has it.
fn list<T: AsRef<str> + serde::Serialize>(words: &[T]) -> String {
    serde_json::to_string(words).unwrap_or_default()
}

fn refused(status: u16, problems: &[String]) -> Refused {
    match problems {
        [one] => Refused::new(status, one.clone()),
        all => Refused::new(status, format!("[{}]", all.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let pair =
            |part: &str| part.split_once('=').map_or((part.into(), String::new()), |(k, v)| (k.into(), v.into()));
        text.split('&').filter(|part| !part.is_empty()).map(pair).collect()
    }

    fn no_such(file: &str) -> Option<String> {
        (file != "/dpkg.log").then(|| "no such file".to_owned())
    }

    fn check(query: &str, expect: Result<NodeLogQuery, (u16, &str)>) {
        let got = parse(&pairs(query), true, &no_such).map_err(|refused| (refused.status, refused.text));
        assert_eq!(got, expect.map_err(|(status, text)| (status, text.to_owned())), "{query}");
    }

    fn services(names: &[&str], options: Options) -> Result<NodeLogQuery, (u16, &'static str)> {
        Ok(NodeLogQuery::Services(names.iter().map(|name| (*name).to_owned()).collect(), options))
    }

    #[test]
    fn services_and_files_are_told_apart() {
        let plain = Options::default();
        check("", Ok(NodeLogQuery::None));
        check("unknown=x", Ok(NodeLogQuery::None));
        check("query=kubelet", services(&["kubelet"], plain.clone()));
        check("query=a&query=getty@tty1.service", services(&["a", "getty@tty1.service"], plain.clone()));
        check("query=/dpkg.log", Ok(NodeLogQuery::File("/dpkg.log".to_owned())));
        check(
            "query=a&tailLines=5&boot=-1&pattern=x&sinceTime=2026-01-01T00:00:02Z&untilTime=2026-01-01T00:00:02Z",
            services(
                &["a"],
                Options {
                    since: Some(1_767_225_602_000_000_000),
                    until: Some(1_767_225_602_000_000_000),
                    tail: Some(5),
                    boot: Some(-1),
                    pattern: "x".to_owned(),
                },
            ),
        );
    }

    #[test]
    fn refusals_have_the_kubelets_words() {
        check("query=", Err((400, r#"query: Invalid value: [""]: may not be empty"#)));
        check("query=a&sinceTime=now", Err((400, r#"sinceTime: Invalid value: "now": invalid time format"#)));
        check(
            "query=a&tailLines=x&boot=y",
            Err((
                400,
                r#"[boot: Invalid value: "y": strconv.Atoi: parsing "y": invalid syntax, tailLines: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax]"#,
            )),
        );
        check("tailLines=5", Err((406, "query: Required value: cannot be empty with options")));
        check("query=a;b", Err((406, r#"query: Invalid value: "a;b": input contains unsupported characters"#)));
        check("query=a&query=b&query=c&query=d&query=e", Err((406, "query: Too many: 5: must have at most 4 items")));
        check(
            "query=a&query=/b",
            Err((406, r#"query: Invalid value: "[/b], [a]": cannot specify a file and service"#)),
        );
        check(
            "query=/a&query=/b",
            Err((406, r#"query: Invalid value: ["/a","/b"]: cannot specify more than one file"#)),
        );
        check(
            "query=/dpkg.log&tailLines=1",
            Err((406, r#"query: Invalid value: ["/dpkg.log"]: cannot specify file with options"#)),
        );
        check("query=/../etc/shadow", Err((406, r#"query: Invalid value: ["/../etc/shadow"]: no such file"#)));
        check("query=a&boot=1", Err((406, "boot: Invalid value: 1: must be less than 1")));
        check(
            "query=a&tailLines=100001",
            Err((406, "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive")),
        );
        check(
            "query=a&sinceTime=2026-01-01T00:00:02Z&untilTime=2026-01-01T00:00:01Z",
            Err((406, r#"untilTime: Invalid value: "2026-01-01T00:00:01Z": must be after `sinceTime`"#)),
        );
        let path = parse(&pairs("query=a"), false, &no_such).unwrap_err();
        assert_eq!((path.status, path.text.as_str()), (406, "path not allowed in query mode"));
        let long = format!("query={}", "x".repeat(257));
        assert_eq!(parse(&pairs(&long), true, &no_such).unwrap_err().status, 406);
    }

    #[test]
    fn arguments_are_options_with_values() {
        let options = Options {
            since: Some(1_767_225_602_999_999_999),
            until: Some(i64::MIN),
            tail: Some(0),
            boot: Some(-2),
            pattern: "--file=/etc/shadow".to_owned(),
        };
        expect_test::expect![[r#"
            [
                "--utc",
                "--no-pager",
                "--output=short-precise",
                "--since=@1767225602",
                "--until=@0",
                "--lines=0",
                "--unit=-x",
                "--grep=--file=/etc/shadow",
                "--boot=-2",
            ]
        "#]]
        .assert_debug_eq(&arguments(&["-x".to_owned()], &options));
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(6), failure_persistence: None, ..Default::default() })]

        /// Whatever is asked: it is refused, or every argument is one of ours.
        #[test]
        fn no_query_makes_an_argument_of_its_own(
            values in prop::collection::vec((0usize..7, "\\PC{0,24}|-{0,2}[a-z0-9=@./]{0,12}|-?[0-9]{1,6}"), 0..6)
        ) {
            const NAMES: &[&str] = &["query", "query", "sinceTime", "untilTime", "tailLines", "boot", "pattern"];
            const OURS: &[&str] = &[
                "--utc", "--no-pager", "--output=short-precise", "--since=@", "--until=@", "--lines=", "--unit=", "--grep=", "--boot=",
            ];
            let pairs: Vec<_> = values.into_iter().map(|(name, value)| (NAMES[name].to_owned(), value)).collect();
            match parse(&pairs, true, &no_such) {
                Ok(NodeLogQuery::Services(services, options)) => {
                    prop_assert!((1..=MAX_SERVICES).contains(&services.len()));
                    for argument in arguments(&services, &options) {
                        prop_assert!(OURS.iter().any(|ours| argument.starts_with(ours)), "{}", argument);
                        prop_assert!(!argument.contains('\0'));
                    }
                }
                Ok(NodeLogQuery::File(file)) => prop_assert_eq!(file, "/dpkg.log"),
                Ok(NodeLogQuery::None) => {}
                Err(refused) => prop_assert!(matches!(refused.status, 400 | 406)),
            }
        }
    }
}
