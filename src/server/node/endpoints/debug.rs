//! `/debug/`: the log's verbosity, and what can be told of the running process.
//!
//! On the threads that serve requests; reads the process's own files in /proc. There is no profiler inside: what Go's tools would read can't be
//! had, and is refused with a word on what there is instead.

use std::fmt::Write as _;
use std::fs;

use super::super::NodeParts;
use super::super::http::head::Method;
use super::super::http::{Reply, Request};
use crate::util::logging;
use crate::util::order;

/// `PUT /debug/flags/v`: the log's verbosity from now on, as `-v` has it.
pub(in crate::server::node) fn verbosity(_: &NodeParts, request: &mut Request<'_>) -> Reply {
    let plain = |status, text: &str| {
        Reply::new(status, "text/plain", format!("{text}\n").into_bytes())
            .with_header("X-Content-Type-Options", "nosniff")
    };
    if request.method() != Method::Put {
        return plain(406, "unsupported http method");
    }
    let body = match request.read_body(64) {
        Ok(body) => String::from_utf8_lossy(&body).into_owned(),
        Err(reply) => return reply,
    };
    match body.parse::<u32>() {
        Ok(level) => {
            logging::set_verbosity(level);
            log::info!("the log's verbosity is {level} from now on: {} asked for it", request.caller.name);
            plain(200, &format!("successfully set klog.logging.verbosity to {body}"))
        }
        Err(_) => plain(400, &format!("{body:?} is no verbosity: it is a number from 0 on")),
    }
}

/// `/debug/pprof/…`: threads and memory as the kernel counts them.
pub(in crate::server::node) fn profile(_: &NodeParts, request: &mut Request<'_>) -> Reply {
    match request.param("name") {
        "" => Reply::text(
            200,
            "/debug/pprof/\n\nThis agent is not written in Go and has no profiler inside. There is:\n\n\
             cmdline      the command line\n\
             goroutine    its threads: what each waits for and how much CPU it took\n\
             heap         its memory as the kernel counts it\n\
             threadcreate the same as goroutine\n\n\
             For a profile of CPU time use perf on the node: perf record -g -p $(pidof ferrolet)\n",
        ),
        "cmdline" => match fs::read("/proc/self/cmdline") {
            Ok(bytes) => {
                Reply::new(200, super::super::http::reply::TEXT, bytes.strip_suffix(&[0]).unwrap_or(&bytes).to_vec())
            }
            Err(error) => Reply::error(500, &error.to_string()),
        },
        "goroutine" | "threadcreate" => Reply::text(200, &threads()),
        "heap" | "allocs" => Reply::text(200, &memory()),
        name @ ("profile" | "trace" | "block" | "mutex" | "symbol") => Reply::error(
            404,
            &format!(
                "there is no {name} here: this agent is not written in Go; perf on the node tells (perf record -g -p $(pidof ferrolet))"
            ),
        ),
        name => Reply::error(404, &format!("Unknown profile: {name}")),
    }
}

/// One line for each thread.
fn threads() -> String {
    let mut lines = Vec::new();
    for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let folder = entry.path();
        // One that ended meanwhile is not there.
        let Ok(stat) = fs::read_to_string(folder.join("stat")) else { continue };
        let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else { continue };
        let name = stat.get(open + 1..close).unwrap_or_default();
        let fields: Vec<&str> = stat.get(close + 1..).unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        let waits = fs::read_to_string(folder.join("wchan")).unwrap_or_default();
        let waits = if matches!(waits.as_str(), "" | "0") { "-" } else { waits.as_str() };
        let state = fields.first().copied().unwrap_or("?");
        let cpu = (ticks(11) + ticks(12)) as f64 / 100.0;
        lines.push(format!("{name:<16} {state} {cpu:>9.2} {waits}"));
    }
    order::sort(&mut lines);
    format!("{} threads\n\n{:<16} S {:>9} WAITS IN\n{}\n", lines.len(), "NAME", "CPU S", lines.join("\n"))
}

/// The kernel's account of the process's memory.
fn memory() -> String {
    let mut text = String::new();
    for (file, fields) in [
        ("/proc/self/smaps_rollup", &["Rss", "Pss", "Pss_Anon", "Pss_File", "Private_Dirty", "Swap"][..]),
        ("/proc/self/status", &["VmPeak", "VmHWM", "RssAnon", "RssFile", "VmData", "VmStk", "Threads"][..]),
    ] {
        for line in fs::read_to_string(file).unwrap_or_default().lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            if fields.contains(&name) {
                // Writing to a String cannot fail.
                let _written = writeln!(text, "{name:<14} {}", value.trim());
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::super::http::request::with_request;
    use super::*;

    fn text(reply: Reply) -> (u16, String) {
        (reply.status(), String::from_utf8_lossy(&reply.into_bytes().expect("a body")).into_owned())
    }

    #[test]
    fn verbosity_is_a_number_that_is_put() {
        // What is right is tried on a whole agent: the log is one for all tests of this process.
        for (line, body, expect) in
            [("GET /debug/flags/v", "", 406), ("PUT /debug/flags/v", "loud", 400), ("PUT /debug/flags/v", "-1", 400)]
        {
            assert_eq!(
                with_request(line, body, |request| verbosity(&NodeParts::for_tests(), request)).status(),
                expect,
                "{line} {body}"
            );
        }
        let long = "1".repeat(100);
        assert_eq!(
            with_request("PUT /debug/flags/v", &long, |request| verbosity(&NodeParts::for_tests(), request)).status(),
            413
        );
    }

    #[test]
    fn profiles_tell_what_the_kernel_knows() {
        let ask = |name: &str| {
            with_request("GET /debug/pprof/", "", |request| {
                request.params.push(("name", name.to_owned()));
                text(profile(&NodeParts::for_tests(), request))
            })
        };
        for (name, status, part) in [
            ("", 200, "no profiler"),
            ("goroutine", 200, "threads\n"),
            ("heap", 200, "VmHWM"),
            ("cmdline", 200, "ferrolet"),
            ("profile", 404, "perf"),
            ("nonsense", 404, "Unknown profile: nonsense"),
        ] {
            let (got, text) = ask(name);
            assert!(got == status && text.contains(part), "{name}: {got} {text}");
        }
    }
}
