//! Container logs as the runtime writes them (CRI log format), and termination messages.
//!
//! Layer L1, blocking; pod workers read the last words of a container, the tools read and follow whole
//! logs. A reader owns its open file. Lines, bytes and memory are bounded whatever a container printed.
//! It never writes, never waits by itself, and never gives up on a line that it cannot read.
//!
//! ```text
//! 2026-11-30T08:00:00.123456789Z stdout F a whole line
//! 2026-11-30T08:00:00.123456789Z stderr P the start of a line that was too long for the runtime
//! ```

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::HostError;
use super::files::read_end;
use crate::api::runtime::UnixNanos;

/// Most of a termination message that is kept, in bytes, from its end.
pub const MESSAGE_LIMIT: u64 = 4096;
/// Lines of a log that stand in for a missing termination message.
pub const FALLBACK_LINES: u64 = 80;
/// Bytes of a log that stand in for a missing termination message, from its end.
pub const FALLBACK_LIMIT: usize = 2048;

/// Longest line that is kept; the rest of a longer one is left out. Runtimes cut at 16 KiB.
const LINE_LIMIT: usize = 1 << 20;
/// Bytes looked at in one go when counting lines from the end.
const BLOCK: u64 = 8192;

/// Which of a container's outputs a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// When it was printed, as the runtime wrote it (RFC 3339 with nanoseconds).
    pub time: &'a str,
    /// Where.
    pub stream: LogStream,
    /// Whether more of the same line follows.
    pub partial: bool,
    /// What was printed, without a newline.
    pub content: &'a [u8],
}

impl LogLine<'_> {
    /// When it was printed; `None` if the runtime wrote no time.
    pub fn at(&self) -> Option<UnixNanos> {
        let time: jiff::Timestamp = self.time.parse().ok()?;
        UnixNanos::try_from(time.as_nanosecond()).ok()
    }
}

/// Reads one line of a log file; `None` if it is not one.
pub fn parse_line(line: &[u8]) -> Option<LogLine<'_>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok().filter(|time| !time.is_empty())?;
    let stream = match parts.next()? {
        b"stdout" => LogStream::Stdout,
        b"stderr" => LogStream::Stderr,
        _ => return None,
    };
    let tags = parts.next()?;
    // More tags may come, with colons in between; the first says whether the line is whole.
    let partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    Some(LogLine { time, stream, partial, content: parts.next()? })
}

/// Where to start in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStart {
    /// With its first line.
    #[default]
    Beginning,
    /// With so many lines from its end.
    Last(u64),
}

/// An open log. Rotation replaces the file under its path; [`LogReader::reopen`] goes along.
#[derive(Debug)]
pub struct LogReader {
    path: PathBuf,
    file: BufReader<fs::File>,
    /// The line read last; without its newline if the file ends there.
    line: Vec<u8>,
    /// Whether `line` was handed out.
    used: bool,
    /// What replaced the file, from the moment when that was seen: it may be gone by the time it is its turn.
    next: Option<fs::File>,
}

impl LogReader {
    /// Opens a log.
    pub fn open(path: &Path, start: LogStart) -> Result<Self, HostError> {
        let mut file = open(path)?;
        if let LogStart::Last(lines) = start {
            let offset = last_lines(&file, lines).map_err(|e| HostError::io("read log", path, e))?;
            file.seek(SeekFrom::Start(offset)).map_err(|e| HostError::io("read log", path, e))?;
        }
        Ok(Self { path: path.to_path_buf(), file: BufReader::new(file), line: Vec::new(), used: true, next: None })
    }

    /// The next whole line. `None` at the end of what is there now; ask again later for more. What is no
    /// line of a log is passed over.
    pub fn next_line(&mut self) -> Result<Option<LogLine<'_>>, HostError> {
        loop {
            if !self.read_line()? {
                return Ok(None);
            }
            self.used = true;
            if parse_line(&self.line).is_some() {
                break;
            }
        }
        Ok(parse_line(&self.line))
    }

    /// What stands after the last newline, for a log that nobody writes any more.
    pub fn rest(&mut self) -> Option<LogLine<'_>> {
        self.used = true;
        parse_line(&self.line)
    }

    /// Whether another file stands under the path by now, or this one was cut. Read on to the end of
    /// the old one before [`LogReader::reopen`]: it may have grown before it was replaced.
    pub fn is_rotated(&mut self) -> Result<bool, HostError> {
        let failed = |e| HostError::io("look at log", &self.path, e);
        let held = self.file.get_ref().metadata().map_err(failed)?;
        match fs::metadata(&self.path) {
            Ok(found) if (held.dev(), held.ino()) != (found.dev(), found.ino()) => {
                if self.next.is_none() {
                    self.next = open(&self.path).ok();
                }
                Ok(true)
            }
            Ok(_) => Ok(held.len() < self.file.stream_position().map_err(failed)?),
            // Between the two renames of a rotation there is none.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(self.next.is_some()),
            Err(e) => Err(failed(e)),
        }
    }

    /// Opens what was seen under the path, or what stands there now, from its start.
    pub fn reopen(&mut self) -> Result<(), HostError> {
        let next = match self.next.take() {
            Some(next) => next,
            None => open(&self.path)?,
        };
        self.file = BufReader::new(next);
        self.line.clear();
        self.used = true;
        Ok(())
    }

    /// Reads into `line` up to a newline; false if the file ends before one.
    fn read_line(&mut self) -> Result<bool, HostError> {
        if self.used {
            self.line.clear();
            self.used = false;
        }
        loop {
            let block = self.file.fill_buf().map_err(|e| HostError::io("read log", &self.path, e))?;
            if block.is_empty() {
                return Ok(false);
            }
            let end = block.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(block.len(), |end| end + 1);
            let room = LINE_LIMIT.saturating_sub(self.line.len());
            self.line.extend_from_slice(&block[..length.min(room)]);
            self.file.consume(length);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

fn open(path: &Path) -> Result<fs::File, HostError> {
    let file = fs::File::open(path).map_err(|e| HostError::io("open log", path, e))?;
    if file.metadata().map_err(|e| HostError::io("open log", path, e))?.is_dir() {
        return Err(HostError::refused("read log", path, "it is a folder"));
    }
    Ok(file)
}

/// Where the last so many lines start. What stands after the last newline comes on top of them.
fn last_lines(file: &fs::File, lines: u64) -> std::io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut newlines = 0;
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        let mut block = vec![0; usize::try_from(end - start).unwrap_or(0)];
        file.read_exact_at(&mut block, start)?;
        for (index, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            if newlines == lines {
                return Ok(start + index as u64 + 1);
            }
            newlines += 1;
        }
        end = start;
    }
    Ok(0)
}

/// What of a log to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Only so many lines from the end.
    pub tail: Option<u64>,
    /// Only what was printed at or after this time.
    pub since: Option<UnixNanos>,
    /// Stop after so many bytes.
    pub limit_bytes: Option<u64>,
    /// Put the time before each line.
    pub timestamps: bool,
    /// Only this output.
    pub stream: Option<LogStream>,
    /// Go on when the end is reached.
    pub follow: bool,
}

/// Prints a log. When following, `wait` is called at each end: it waits a while and says whether to look
/// again; after a no the log is read to its end once more.
pub fn copy_log(
    path: &Path,
    options: &LogOptions,
    out: &mut dyn Write,
    wait: &mut dyn FnMut() -> bool,
) -> Result<(), HostError> {
    let start = options.tail.map_or(LogStart::Beginning, LogStart::Last);
    let mut reader = LogReader::open(path, start)?;
    let mut printer = Printer { options, left: options.limit_bytes.unwrap_or(u64::MAX), line_open: false };
    let failed = |e| HostError::io("print log", path, e);
    let mut more = options.follow;
    let mut looked_again = false;
    loop {
        let rotated = options.follow && reader.is_rotated()?;
        while let Some(line) = reader.next_line()? {
            if !printer.print(&line, out).map_err(failed)? {
                return out.flush().map_err(failed);
            }
        }
        // The runtime may have lines on their way to the old file when the new one is there already.
        if rotated && !looked_again {
            looked_again = true;
            out.flush().map_err(failed)?;
            more = more && wait();
            continue;
        }
        if (rotated || !more)
            && let Some(line) = reader.rest()
        {
            printer.print(&line, out).map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        if rotated {
            looked_again = false;
            reader.reopen()?;
        } else if more {
            more = wait();
        } else {
            return Ok(());
        }
    }
}

/// A time with all nine digits of its second: runtimes leave zeros at the end out.
fn nanoseconds(time: &str) -> String {
    let zone = time.rfind(['Z', '+', '-']).filter(|at| *at >= "2026-11-30T09:00:00".len()).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone);
    let (second, digits) = time.split_once('.').unwrap_or((time, ""));
    if zone.is_empty() || digits.len() >= 9 {
        return [time, zone].concat();
    }
    format!("{second}.{digits:0<9}{zone}")
}

struct Printer<'a> {
    options: &'a LogOptions,
    left: u64,
    /// Whether the last line printed was partial.
    line_open: bool,
}

impl Printer<'_> {
    /// Prints a line; false when the limit is reached.
    fn print(&mut self, line: &LogLine<'_>, out: &mut dyn Write) -> std::io::Result<bool> {
        let other = self.options.stream.is_some_and(|stream| stream != line.stream);
        let old = self.options.since.is_some_and(|since| line.at().is_some_and(|at| at < since));
        if other || old {
            return Ok(true);
        }
        if self.options.timestamps && !self.line_open {
            self.put(nanoseconds(line.time).as_bytes(), out)?;
            self.put(b" ", out)?;
        }
        self.put(line.content, out)?;
        if !line.partial {
            self.put(b"\n", out)?;
        }
        self.line_open = line.partial;
        Ok(self.left > 0)
    }

    fn put(&mut self, bytes: &[u8], out: &mut dyn Write) -> std::io::Result<()> {
        let length = usize::try_from(self.left).map_or(bytes.len(), |left| bytes.len().min(left));
        self.left -= length as u64;
        out.write_all(&bytes[..length])
    }
}

/// The last words of a container in its log, for `FallbackToLogsOnError`: the end of its last 80 lines,
/// at most 2048 bytes. Empty if there is no log.
pub fn last_words(path: &Path) -> Result<String, HostError> {
    let options = LogOptions { tail: Some(FALLBACK_LINES), ..LogOptions::default() };
    let mut ring = Ring(VecDeque::with_capacity(FALLBACK_LIMIT));
    match copy_log(path, &options, &mut ring, &mut || false) {
        Err(e) if !e.is_not_found() => Err(e),
        _ => Ok(text_of(&ring.0.into_iter().collect::<Vec<_>>())),
    }
}

/// Keeps the last bytes written to it.
struct Ring(VecDeque<u8>);

impl Write for Ring {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let kept = &bytes[bytes.len().saturating_sub(FALLBACK_LIMIT)..];
        let over = (self.0.len() + kept.len()).saturating_sub(FALLBACK_LIMIT);
        self.0.drain(..over.min(self.0.len()));
        self.0.extend(kept);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The termination message of a container: the last 4096 bytes of its file. Empty if there is none.
pub fn termination_message(path: &Path) -> Result<String, HostError> {
    Ok(read_end(path, MESSAGE_LIMIT)?.map(|bytes| text_of(&bytes)).unwrap_or_default())
}

/// Bytes as text. What the cut left of a character at the front goes; other odd bytes show as U+FFFD.
fn text_of(bytes: &[u8]) -> String {
    let torn = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    String::from_utf8_lossy(&bytes[torn..]).into_owned()
}

#[cfg(test)]
#[path = "logs_tests.rs"]
mod tests;
