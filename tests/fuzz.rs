//! Fuzzing of what strangers' bytes reach: the request parser, the log reader and the queries for logs.
//!
//! `targets` says for any bytes what must hold, and gives back a word for what came of them. This drives a target: it changes
//! inputs of its corpus, and an input that something new came of joins the corpus, so that the next ones begin where it got to. In the
//! test run that is short and always the same; by hand, and by night, it goes on for as long as it is told to, from another seed each time:
//!
//! ```sh
//! FERROLET_FUZZ_SECONDS=60 cargo test --test it -- fuzz --nocapture
//! ```

mod targets;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Inputs of the short run.
const SHORT: u64 = 4000;
/// Inputs that a corpus may grow to; which one goes then is left to chance.
const MAX_CORPUS: usize = 4096;
/// Longest input.
const MAX_INPUT: usize = 96 << 10;

/// Random numbers that a seed tells.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

/// One change of an input.
fn change(input: &mut Vec<u8>, other: &[u8], words: &[&[u8]], chance: &mut Chance) {
    let at = chance.below(input.len() + 1);
    let end = (at + 1 + chance.below(8)).min(input.len());
    match chance.below(9) {
        0 if at < input.len() => input[at] ^= 1 << chance.below(8),
        1 if at < input.len() => input[at] = chance.next() as u8,
        2 if at < input.len() => drop(input.drain(at..end)),
        3 if at < input.len() => {
            let again = input[at..end].repeat(1 + chance.below(3));
            drop(input.splice(at..at, again));
        }
        // Some of another one in its place, or up to its end.
        4 => {
            let from = chance.below(other.len() + 1);
            let part = &other[from..(from + chance.below(64)).min(other.len())];
            drop(input.splice(at..end.max(at), part.iter().copied()));
        }
        5 => {
            input.truncate(at);
            input.extend_from_slice(&other[chance.below(other.len() + 1)..]);
        }
        6 => input.truncate(at),
        // Rarely a lot of one thing: limits are far away.
        7 if chance.below(40) == 0 => {
            let many = chance.pick(words).repeat(1 << chance.below(14));
            drop(input.splice(at..at, many));
        }
        _ => drop(input.splice(at..at, chance.pick(words).iter().copied())),
    }
    input.truncate(MAX_INPUT);
}

/// What came of an input, short.
fn mark(outcome: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    outcome.hash(&mut hasher);
    hasher.finish()
}

/// Drives a target, and tells how far it got: inputs, and different outcomes.
fn drive(name: &str, target: fn(&[u8]) -> String, seeds: &[&[u8]], words: &[&[u8]]) -> (u64, usize) {
    let seconds = std::env::var("FERROLET_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let seed = match seconds {
        None => 6,
        Some(0_u64..) => SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_nanos() as u64 | 1,
    };
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut chance = Chance(seed);
    let mut corpus: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    let mut known = HashSet::new();
    let mut tried = 0;
    let mut fresh: Vec<Vec<u8>> = corpus.clone();
    while until.map_or(tried < SHORT, |until| Instant::now() < until) {
        let input = fresh.pop().unwrap_or_else(|| {
            let mut input = corpus[chance.below(corpus.len())].clone();
            let other = corpus[chance.below(corpus.len())].clone();
            for _ in 0..=chance.below(5) {
                change(&mut input, &other, words, &mut chance);
            }
            input
        });
        tried += 1;
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input))).unwrap_or_else(|panic| {
            let text = input.escape_ascii().to_string();
            println!("{name}: the seed {seed} came to this input after {tried}:\nb\"{text}\"");
            resume_unwind(panic)
        });
        if known.insert(mark(&outcome)) {
            if corpus.len() < MAX_CORPUS {
                corpus.push(input);
            } else {
                let at = chance.below(corpus.len());
                corpus[at] = input;
            }
        }
    }
    println!("{name}: {tried} inputs, {} different outcomes (seed {seed})", known.len());
    (tried, known.len())
}

/// Drives a target and asks for so many outcomes at least: one that says the same of everything is no target.
fn check(name: &str, target: fn(&[u8]) -> String, seeds: &[&[u8]], words: &[&[u8]], at_least: usize) {
    let (tried, outcomes) = drive(name, target, seeds, words);
    assert!(outcomes >= at_least, "{name}: only {outcomes} outcomes of {tried} inputs");
}

#[test]
fn requests() {
    let seeds: &[&[u8]] = &[
        b"GET /pods HTTP/1.1\r\nHost: n\r\n\r\n",
        b"POST /exec/a/b/c?command=x&output=1 HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n",
        b"PUT /debug/flags/v HTTP/1.1\r\nHost: n\r\nContent-Length: 1\r\n\r\n4GET /a HTTP/1.1\r\nHost: n\r\n\r\n",
        b"PUT /x HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nT: v\r\n\r\n",
        b"GET http://n/logs/a%2fb?query=x HTTP/1.0\r\nExpect: 100-continue\r\n\r\n",
    ];
    let words: &[&[u8]] = &[
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b"/",
        b"..",
        b"%2e",
        b"%00",
        b"%",
        b"?",
        b"#",
        b"&",
        b"=",
        b";",
        b"\xff",
        b"Host: n\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 0\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Connection: close\r\n",
        b"Connection: upgrade\r\nUpgrade: websocket\r\n",
        b"Expect: 100-continue\r\n",
        b" HTTP/1.1\r\n",
        b" HTTP/2.0\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"-1",
        b"+1",
        b"GET ",
        b"HEAD ",
        b"A: b\r\n",
        b"/../",
        b"//",
        b"http://",
        b"https://x",
    ];
    check("requests", targets::request, seeds, words, 60);
}

#[test]
fn logs() {
    let line = b"2026-01-01T00:00:02.5Z stdout F hello\n";
    let seeds: &[&[u8]] = &[
        b"\x00\x00\x00\x00",
        b"\x01\x05\x00\x002026-01-01T00:00:02.5Z stdout F hello\n2026-01-01T00:00:03Z stderr P wor\n2026-01-01T00:00:03Z stderr F ld\n",
        b"\x3e\x02\xff\x102026-01-01T00:00:02Z stdout F:x a b c\nnothing\n\n2026-13-01T00:00:02Z stdout F \n",
    ];
    let words: &[&[u8]] = &[
        line,
        b"\n",
        b" ",
        b"stdout",
        b"stderr",
        b" F ",
        b" P ",
        b":",
        b"2026-01-01T00:00:00.000000001Z",
        b"9999-12-31T23:59:59.999999999Z",
        b"-009999-01-01T00:00:00Z",
        b"Z",
        b"+23:59",
        b"\0",
        b"\xff",
        b"\r\n",
        b"2026-01-01T00:00:02.5Z stdout P x\n",
    ];
    check("logs", targets::log, seeds, words, 30);
}

#[test]
fn queries() {
    let seeds: &[&[u8]] = &[
        b"query=kubelet&tailLines=10&sinceTime=2026-01-01T00:00:00Z&untilTime=2026-01-02T00:00:00Z&boot=-1&pattern=a%2Bb",
        b"query=/dpkg.log",
        b"tailLines=5&follow=true&timestamps=1&sinceSeconds=60&limitBytes=100&previous=false&stream=Stdout",
        b"tail=all&sinceTime=null",
    ];
    let words: &[&[u8]] = &[
        b"&",
        b"=",
        b"%",
        b"+",
        b";",
        b"query=",
        b"query=a",
        b"query=-",
        b"query=--root%3D",
        b"query=%2F..%2F",
        b"tailLines=",
        b"-1",
        b"0",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"99999999999999999999",
        b"sinceTime=",
        b"untilTime=",
        b"2026-01-01T00:00:00Z",
        b"boot=",
        b"pattern=",
        b"--grep",
        b"stream=",
        b"Stderr",
        b"sinceSeconds=",
        b"limitBytes=",
        b"%00",
        b"%0a",
        b"%ff",
        b"\\",
        b"/",
        b"'",
        b"\"",
        b"$(x)",
        b"\xc3\xa4",
    ];
    check("queries", targets::query, seeds, words, 100);
}

#[test]
fn what_a_target_chokes_on_is_found() {
    fn chokes(bytes: &[u8]) -> String {
        assert!(!bytes.starts_with(b"abc") || bytes.len() < 5, "too much");
        bytes.iter().zip(b"abc").take_while(|(ours, theirs)| ours == theirs).count().to_string()
    }
    let found = catch_unwind(|| drive("chokes", chokes, &[b"a"], &[b"b", b"c", b"d"]));
    assert!(found.is_err());
}
