//! The log: `log` and env_logger in klog's clothes. Set up once on the main thread before any other thread starts; lines are written
//! by the thread that logs, to stderr, each at once. It never panics and never fails when stderr is closed or full.
//!
//! klog's verbosities onto log's levels: errors, warnings and information always show; `-v 4` adds debug, `-v 6` adds trace. What
//! is information but rarely wanted asks [`verbose`] first. `vmodule` raises the verbosity of single files. What libraries say
//! below a warning shows from `-v 8`, where upstream shows each request.
//!
//! Text lines look like klog's (`I1130 08:00:00.000000 4711 pleg.rs:42] message`, in UTC), JSON lines like those of Kubernetes
//! components (`{"ts":…,"caller":…,"msg":…,"v":0}`, milliseconds since 1970). Where stderr is the journal's, each line begins with its
//! priority (`<4>`), which the journal takes off and keeps.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::api::runtime::UnixNanos;
use crate::util::clock;

/// The verbosity from which debug lines show.
pub const DEBUG_AT: u32 = 4;
/// The verbosity from which trace lines show.
pub const TRACE_AT: u32 = 6;

/// The verbosity from which lines of libraries show that are no warnings.
pub const LIBRARIES_AT: u32 = 8;
/// What the targets of this project's lines begin with.
const OWN: &str = env!("CARGO_PKG_NAME");

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// klog's text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What the log shows and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogOptions {
    /// How lines look.
    pub format: Format,
    /// klog's `-v`.
    pub verbosity: u32,
    /// Verbosities of single files: a pattern with `*` and `?` over the file's name without `.rs` (over its path where the
    /// pattern has a slash), and the verbosity there.
    pub vmodule: Vec<(String, u32)>,
}

/// The verbosity in force; it may change while the agent runs.
static VERBOSITY: AtomicU32 = AtomicU32::new(0);
/// The highest verbosity of any single file.
static VMODULE_MAX: AtomicU32 = AtomicU32::new(0);
/// The verbosities of single files in force; they may change while the agent runs.
static FILTER: RwLock<Filter> = RwLock::new(Filter { vmodule: Vec::new() });

/// Sets the log up. Only the first call counts; false for a later one.
pub fn init(options: LogOptions) -> bool {
    let LogOptions { format, verbosity, vmodule } = options;
    let (journal, pid) = (stderr_is_the_journal(), std::process::id());
    let inner = env_logger::Builder::new()
        .filter_level(LevelFilter::Trace)
        .target(env_logger::Target::Stderr)
        .format(move |out, record| out.write_all(line(format, journal, record, clock::wall(), pid).as_bytes()))
        .build();
    if log::set_boxed_logger(Box::new(Logger { inner })).is_err() {
        return false;
    }
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    set_vmodule(vmodule);
    true
}

/// Changes the verbosities of single files of the running agent.
pub fn set_vmodule(vmodule: Vec<(String, u32)>) {
    let highest = vmodule.iter().map(|(_, verbosity)| *verbosity).max().unwrap_or(0);
    FILTER.write().unwrap_or_else(PoisonError::into_inner).vmodule = vmodule;
    VMODULE_MAX.store(highest, Ordering::Relaxed);
    set_verbosity(VERBOSITY.load(Ordering::Relaxed));
}

/// Changes the verbosity of the running agent.
pub fn set_verbosity(verbosity: u32) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    // Lines of a level that no file shows cost one comparison.
    log::set_max_level(match verbosity.max(VMODULE_MAX.load(Ordering::Relaxed)) {
        0..DEBUG_AT => LevelFilter::Info,
        DEBUG_AT..TRACE_AT => LevelFilter::Debug,
        TRACE_AT.. => LevelFilter::Trace,
    });
}

/// Whether information of this verbosity is wanted (klog's `V(n)`).
pub fn verbose(verbosity: u32) -> bool {
    VERBOSITY.load(Ordering::Relaxed) >= verbosity
}

/// The verbosity that a level stands for, by whose line it is.
fn verbosity_of(level: Level, target: &str) -> u32 {
    match level {
        Level::Info | Level::Debug | Level::Trace if !is_own(target) => LIBRARIES_AT,
        Level::Error | Level::Warn | Level::Info => 0,
        Level::Debug => DEBUG_AT,
        Level::Trace => TRACE_AT,
    }
}

/// Whether a line's target is a module of this project.
fn is_own(target: &str) -> bool {
    target.strip_prefix(OWN).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

struct Filter {
    vmodule: Vec<(String, u32)>,
}

impl Filter {
    fn shows(&self, level: Level, target: &str, file: &str, verbosity: u32) -> bool {
        let needed = verbosity_of(level, target);
        needed <= verbosity
            || self.vmodule.iter().any(|(pattern, raised)| {
                needed <= *raised
                    && if pattern.contains('/') {
                        matches(pattern.as_bytes(), file.trim_end_matches(".rs").as_bytes())
                    } else {
                        matches(pattern.as_bytes(), stem(file).as_bytes())
                    }
            })
    }
}

/// A file's name without folders and ending; of a `mod.rs`, its folder's name.
fn stem(file: &str) -> &str {
    let file = file.trim_end_matches(".rs").trim_end_matches("/mod");
    file.rsplit('/').next().unwrap_or(file)
}

/// Whether a text fits a pattern with `*` and `?`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on after the last star, should the rest not fit.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(letter) if *letter == b'?' || *letter == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match &mut retry {
                Some((after, from)) => {
                    *from += 1;
                    (p, t) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|letter| *letter == b'*')
}

/// Whether stderr is what the journal reads: systemd says which device and inode that is.
fn stderr_is_the_journal() -> bool {
    let Some(told) = std::env::var_os("JOURNAL_STREAM") else { return false };
    let Ok(found) = nix::sys::stat::fstat(std::io::stderr().as_fd()) else { return false };
    told.to_str() == Some(&format!("{}:{}", found.st_dev, found.st_ino))
}

/// What syslog calls a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

struct Logger {
    inner: env_logger::Logger,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        VMODULE_MAX.load(Ordering::Relaxed) > 0
            || verbosity_of(metadata.level(), metadata.target()) <= VERBOSITY.load(Ordering::Relaxed)
    }

    fn log(&self, record: &Record<'_>) {
        let verbosity = VERBOSITY.load(Ordering::Relaxed);
        let filter = FILTER.read().unwrap_or_else(PoisonError::into_inner);
        let shown = filter.shows(record.level(), record.target(), record.file().unwrap_or(""), verbosity);
        drop(filter);
        if shown {
            self.inner.log(record);
        }
    }

    fn flush(&self) {
        self.inner.flush();
    }
}

/// One message with its end. For the journal every line of it bears the priority.
fn line(format: Format, journal: bool, record: &Record<'_>, now: UnixNanos, pid: u32) -> String {
    let text = match format {
        Format::Text => text_line(record, now, pid),
        Format::Json => json_line(record, now),
    };
    if !journal {
        return text;
    }
    let priority = priority(record.level());
    text.lines().map(|line| format!("<{priority}>{line}\n")).collect()
}

fn text_line(record: &Record<'_>, now: UnixNanos, pid: u32) -> String {
    let letter = match record.level() {
        Level::Error => 'E',
        Level::Warn => 'W',
        Level::Info | Level::Debug | Level::Trace => 'I',
    };
    let time = jiff::Timestamp::from_nanosecond(i128::from(now)).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let file = record.file().map_or("unknown", |file| file.rsplit('/').next().unwrap_or(file));
    let number = record.line().unwrap_or(0);
    let time = time.strftime("%m%d %H:%M:%S%.6f");
    let mut out = format!("{letter}{time} {pid:>7} {file}:{number}] ");
    for letter in record.args().to_string().trim_end().chars() {
        match letter {
            // Lines that belong to one message are told apart from new ones.
            '\n' => out.push_str("\n    "),
            '\t' => out.push('\t'),
            // Text from pods and registries must not steer the reader's terminal.
            letter if letter.is_control() => out.extend(letter.escape_default()),
            letter => out.push(letter),
        }
    }
    out.push('\n');
    out
}

fn json_line(record: &Record<'_>, now: UnixNanos) -> String {
    let file = record.file().unwrap_or("unknown").trim_start_matches("src/");
    let mut object = serde_json::json!({
        "ts": (now / 1000) as f64 / 1000.0,
        "caller": format!("{file}:{}", record.line().unwrap_or(0)),
        "msg": record.args().to_string(),
        "v": verbosity_of(record.level(), record.target()),
    });
    if record.level() <= Level::Warn {
        object["level"] = record.level().as_str().to_ascii_lowercase().into();
    }
    format!("{object}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30 November 2026, 08:00:00.000042.
    const NOW: UnixNanos = 1_796_025_600_000_042_000;

    fn check(format: Format, level: Level, message: &str, expect: &str) {
        let args = format_args!("{message}");
        let record = Record::builder()
            .level(level)
            .target(OWN)
            .file(Some("src/agents/pleg/mod.rs"))
            .line(Some(42))
            .args(args)
            .build();
        assert_eq!(line(format, false, &record, NOW, 4711), expect);
        let priority = format!("<{}>", priority(level));
        let for_the_journal: String = expect.lines().map(|line| format!("{priority}{line}\n")).collect();
        assert_eq!(line(format, true, &record, NOW, 4711), for_the_journal);
    }

    #[test]
    fn levels_have_the_priorities_of_syslog() {
        let all = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
        assert_eq!(all.map(priority), [3, 4, 6, 7, 7]);
    }

    #[test]
    fn text_lines_look_like_klogs() {
        check(Format::Text, Level::Info, "pod runs", "I1130 08:00:00.000042    4711 mod.rs:42] pod runs\n");
        check(Format::Text, Level::Warn, "a\nb\n", "W1130 08:00:00.000042    4711 mod.rs:42] a\n    b\n");
        check(Format::Text, Level::Error, "\x1b[31m", "E1130 08:00:00.000042    4711 mod.rs:42] \\u{1b}[31m\n");
        check(Format::Text, Level::Trace, "ä\tb", "I1130 08:00:00.000042    4711 mod.rs:42] ä\tb\n");
    }

    #[test]
    fn json_lines_are_one_object_each() {
        check(
            Format::Json,
            Level::Debug,
            "a \"b\"\n",
            "{\"caller\":\"agents/pleg/mod.rs:42\",\"msg\":\"a \\\"b\\\"\\n\",\"ts\":1796025600000.042,\"v\":4}\n",
        );
        check(
            Format::Json,
            Level::Error,
            "x",
            "{\"caller\":\"agents/pleg/mod.rs:42\",\"level\":\"error\",\"msg\":\"x\",\"ts\":1796025600000.042,\"v\":0}\n",
        );
    }

    #[test]
    fn verbosity_and_vmodule_choose_lines() {
        let filter = |vmodule: &[(&str, u32)]| Filter {
            vmodule: vmodule.iter().map(|(pattern, verbosity)| ((*pattern).to_owned(), *verbosity)).collect(),
        };
        for (vmodule, level, file, verbosity, expect) in [
            (&[][..], Level::Info, "src/a.rs", 0, true),
            (&[], Level::Debug, "src/a.rs", 3, false),
            (&[], Level::Debug, "src/a.rs", 4, true),
            (&[], Level::Trace, "src/a.rs", 5, false),
            (&[], Level::Trace, "src/a.rs", 6, true),
            (&[("a", 4)], Level::Debug, "src/a.rs", 0, true),
            (&[("a", 4)], Level::Trace, "src/a.rs", 0, false),
            (&[("a", 4)], Level::Debug, "src/b.rs", 0, false),
            (&[("a", 0)], Level::Debug, "src/a.rs", 4, true),
            (&[("pl*", 6)], Level::Trace, "src/agents/pleg/mod.rs", 0, true),
            (&[("src/agents/*", 6)], Level::Trace, "src/agents/pleg/mod.rs", 0, true),
            (&[("x", 1), ("b?", 6)], Level::Trace, "src/bc.rs", 0, true),
        ] {
            let shown = filter(vmodule).shows(level, "ferrolet::agents", file, verbosity);
            assert_eq!(shown, expect, "{vmodule:?} {level} {file} {verbosity}");
        }
        for (level, target, verbosity, expect) in [
            (Level::Warn, "rustls::client", 0, true),
            (Level::Info, "ureq", 7, false),
            (Level::Debug, "rustls::client", 7, false),
            (Level::Debug, "rustls::client", 8, true),
            (Level::Debug, "ferrolet", 4, true),
            (Level::Debug, "ferrolettes", 4, false),
        ] {
            assert_eq!(filter(&[]).shows(level, target, "x.rs", verbosity), expect, "{level} {target} {verbosity}");
        }
        assert!(filter(&[("conn", 8)]).shows(Level::Debug, "ureq::conn", "src/conn.rs", 0));
    }

    #[test]
    fn patterns() {
        for (pattern, text, expect) in [
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*a", "aaab", false),
            ("*a", "aaaa", true),
            ("a?c", "abc", true),
            ("abc", "ab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expect, "{pattern} {text}");
        }
        assert!(!matches("*a".repeat(50).as_bytes(), "a".repeat(49).as_bytes()));
    }
}
