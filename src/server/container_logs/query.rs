//! What a request for a container's log asks for, with the kubelet's rules and words.
//!
//! Pure; on the threads of the connections. Owns nothing.

use crate::api::runtime::UnixNanos;
use crate::host::logs::{LogOptions, LogStream};
use crate::server::words::{Pairs, Refused, first, is_set, rfc3339};

/// A request for a container's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Of the instance before the present one.
    pub previous: bool,
    /// What of it.
    pub options: LogOptions,
}

/// Reads a query. `now` is what `sinceSeconds` counts from.
///
/// # Errors
/// 400 where a value cannot be read, 422 where it makes no sense.
pub fn parse(pairs: &Pairs, now: UnixNanos) -> Result<LogQuery, Refused> {
    let unreadable = || Refused::new(400, r#"{"message": "Unable to decode query."}"#);
    let senseless = || Refused::new(422, r#"{"message": "Invalid request."}"#);
    let number = |name: &str| first(pairs, name).map(str::parse::<i64>).transpose().map_err(|_| unreadable());
    // The word of old clients.
    let tail = match first(pairs, "tail").filter(|value| !value.is_empty()) {
        Some("all") => None,
        Some(lines) => Some(lines.parse().map_err(|_| unreadable())?),
        None => number("tailLines")?,
    };
    let limit_bytes = number("limitBytes")?;
    let since_seconds = number("sinceSeconds")?;
    let since_time = match first(pairs, "sinceTime") {
        // As some clients write that there is none; it counts as one.
        Some("" | "null") => Some(UnixNanos::MIN),
        Some(text) => Some(rfc3339(text).ok_or_else(unreadable)?),
        None => None,
    };
    let stream = match first(pairs, "stream") {
        None | Some("All") => Ok(None),
        Some("Stdout") => Ok(Some(LogStream::Stdout)),
        Some("Stderr") => Ok(Some(LogStream::Stderr)),
        Some(_) => Err(()),
    };
    let out_of_range = tail.is_some_and(|lines| lines < 0)
        || limit_bytes.is_some_and(|bytes| bytes < 1)
        || since_seconds.is_some_and(|seconds| seconds < 1);
    let two_starts = since_seconds.is_some() && since_time.is_some();
    let split_tail = matches!(stream, Ok(Some(_))) && tail.is_some();
    let Ok(stream) = stream else { return Err(senseless()) };
    if out_of_range || two_starts || split_tail {
        return Err(senseless());
    }
    let since_seconds = since_seconds.map(|seconds| now.saturating_sub(seconds.saturating_mul(1_000_000_000)));
    Ok(LogQuery {
        previous: is_set(pairs, "previous"),
        options: LogOptions {
            tail: tail.and_then(|lines| u64::try_from(lines).ok()),
            since: since_seconds.or(since_time),
            limit_bytes: limit_bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            timestamps: is_set(pairs, "timestamps"),
            stream,
            follow: is_set(pairs, "follow"),
        },
    })
}

/// Refuses one of two streams where the feature gate `PodLogsQuerySplitStreams` is off.
///
/// # Errors
/// 400: it is off.
pub fn check_stream(query: &LogQuery, is_on: bool) -> Result<(), Refused> {
    let name = match query.options.stream {
        Some(LogStream::Stdout) if !is_on => "Stdout",
        Some(LogStream::Stderr) if !is_on => "Stderr",
        _ => return Ok(()),
    };
    let text = format!(
        "unable to return the given log stream: {name:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet"
    );
    Err(Refused::new(400, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: UnixNanos = 1_767_225_602_000_000_000;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let pair =
            |part: &str| part.split_once('=').map_or((part.into(), String::new()), |(k, v)| (k.into(), v.into()));
        text.split('&').filter(|part| !part.is_empty()).map(pair).collect()
    }

    fn check(query: &str, expect: Result<LogQuery, u16>) {
        assert_eq!(parse(&pairs(query), NOW).map_err(|refused| refused.status), expect, "{query}");
    }

    #[test]
    fn options_are_read_as_by_the_kubelet() {
        let plain = LogOptions::default();
        let of = |options| Ok(LogQuery { previous: false, options });
        check("", of(plain));
        check("previous=true&follow=1", Ok(LogQuery { previous: true, options: LogOptions { follow: true, ..plain } }));
        check("previous=false&follow=0&timestamps=", of(LogOptions { timestamps: true, ..plain }));
        check("tailLines=0", of(LogOptions { tail: Some(0), ..plain }));
        check("tail=7&tailLines=5", of(LogOptions { tail: Some(7), ..plain }));
        check("tail=all&tailLines=5", of(plain));
        check("tail=&tailLines=5&tailLines=x", of(LogOptions { tail: Some(5), ..plain }));
        check("limitBytes=1", of(LogOptions { limit_bytes: Some(1), ..plain }));
        check("sinceSeconds=2", of(LogOptions { since: Some(NOW - 2_000_000_000), ..plain }));
        check(
            "sinceSeconds=9223372036854775807",
            of(LogOptions { since: Some(NOW.saturating_sub(i64::MAX)), ..plain }),
        );
        check("sinceTime=2026-01-01T00:00:02Z", of(LogOptions { since: Some(NOW), ..plain }));
        check("sinceTime=", of(LogOptions { since: Some(i64::MIN), ..plain }));
        check("stream=All&tailLines=1", of(LogOptions { tail: Some(1), ..plain }));
        check("stream=Stderr", of(LogOptions { stream: Some(LogStream::Stderr), ..plain }));
        check("container=x&pretty=1", of(plain));
    }

    #[test]
    fn what_cannot_be_read_and_what_makes_no_sense_are_two_refusals() {
        for query in ["tailLines=x", "tailLines=", "limitBytes=1.5", "sinceSeconds=1s", "sinceTime=now", "tail=some"] {
            check(query, Err(400));
        }
        for query in [
            "tailLines=-1",
            "limitBytes=0",
            "sinceSeconds=0",
            "sinceSeconds=-5",
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:02Z",
            "sinceSeconds=1&sinceTime=",
            "stream=stdout",
            "stream=",
            "stream=Stdout&tailLines=1",
        ] {
            check(query, Err(422));
        }
    }

    #[test]
    fn one_stream_needs_its_gate() {
        let query = |text: &str| parse(&pairs(text), NOW).unwrap();
        for (text, is_on, expect) in [("stream=Stdout", true, true), ("stream=Stderr", false, false), ("", false, true)]
        {
            assert_eq!(check_stream(&query(text), is_on).is_ok(), expect, "{text} {is_on}");
        }
        assert_eq!(
            check_stream(&query("stream=Stdout"), false).unwrap_err().text,
            r#"unable to return the given log stream: "Stdout". Please enable PodLogsQuerySplitStreams feature gate in kubelet"#
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(6), failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_query_is_read_or_refused(values in prop::collection::vec((0usize..9, "\\PC{0,24}|-?[0-9]{1,20}"), 0..6)) {
            const NAMES: &[&str] =
                &["tail", "tailLines", "limitBytes", "sinceSeconds", "sinceTime", "stream", "follow", "previous", "timestamps"];
            let pairs: Vec<_> = values.into_iter().map(|(name, value)| (NAMES[name].to_owned(), value)).collect();
            match parse(&pairs, NOW) {
                Ok(query) => prop_assert!(query.options.limit_bytes != Some(0)),
                Err(refused) => prop_assert!(matches!(refused.status, 400 | 422)),
            }
        }
    }
}
