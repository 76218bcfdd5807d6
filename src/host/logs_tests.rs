//! Tests of log reading on files of every shape.

use super::*;

const LOG: &str = "2026-01-01T00:00:01.000000001Z stdout F one
2026-01-01T00:00:02Z stderr P tw
2026-01-01T00:00:02Z stderr F o
garbage
2026-01-01T00:00:03Z stdout F:x three and  blanks
2026-01-01T00:00:04Z stdout F 
";

fn file(text: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    fs::write(&path, text).unwrap();
    (dir, path)
}

fn printed(text: impl AsRef<[u8]>, options: LogOptions) -> String {
    let (_dir, path) = file(text);
    let mut out = Vec::new();
    copy_log(&path, &options, &mut out, &mut || false).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn lines_are_told_apart() {
    let line = |time, stream, partial, content| Some(LogLine { time, stream, partial, content });
    for (input, expect) in [
        (&b"t stdout F hello world\n"[..], line("t", LogStream::Stdout, false, &b"hello world"[..])),
        (b"t stderr P:later hel", line("t", LogStream::Stderr, true, b"hel")),
        (b"t stdout F ", line("t", LogStream::Stdout, false, b"")),
        (b"t stdout F \xff\xfe\r\n", line("t", LogStream::Stdout, false, b"\xff\xfe\r")),
        (b"t stdout F", None),
        (b"t stdin F x", None),
        (b" stdout F x", None),
        (b"\xff stdout F x", None),
        (b"{\"log\":\"x\"}", None),
        (b"", None),
    ] {
        assert_eq!(parse_line(input), expect, "{input:?}");
    }
    let line = parse_line(b"2026-01-01T00:00:00.5+01:00 stdout F x").unwrap();
    assert_eq!(line.at(), Some(1_767_222_000_500_000_000));
    assert_eq!(parse_line(b"yesterday stdout F x").unwrap().at(), None);
}

#[test]
fn options_choose_what_is_printed() {
    let all = LogOptions::default();
    let second = 1_767_225_602_000_000_000;
    for (options, expect) in [
        (all, "one\ntwo\nthree and  blanks\n\n"),
        (LogOptions { tail: Some(2), ..all }, "three and  blanks\n\n"),
        (LogOptions { tail: Some(0), ..all }, ""),
        (LogOptions { tail: Some(99), ..all }, "one\ntwo\nthree and  blanks\n\n"),
        (LogOptions { since: Some(second), ..all }, "two\nthree and  blanks\n\n"),
        (LogOptions { stream: Some(LogStream::Stderr), ..all }, "two\n"),
        (LogOptions { limit_bytes: Some(6), ..all }, "one\ntw"),
        (LogOptions { limit_bytes: Some(0), ..all }, ""),
        (
            LogOptions { timestamps: true, tail: Some(5), ..all },
            "2026-01-01T00:00:02.000000000Z two\n2026-01-01T00:00:03.000000000Z three and  blanks\n\
             2026-01-01T00:00:04.000000000Z \n",
        ),
    ] {
        assert_eq!(printed(LOG, options), expect, "{options:?}");
    }
}

#[test]
fn the_last_lines_are_found_across_blocks() {
    let lines: Vec<_> = (0..3000).map(|n| format!("2026-01-01T00:00:00Z stdout F {n}")).collect();
    let text = lines.join("\n");
    for (tail, expect) in [(1, 2998), (500, 2499), (2999, 0)] {
        // The end without a newline counts on top.
        let got = printed(&text, LogOptions { tail: Some(tail), ..LogOptions::default() });
        assert_eq!(got.lines().next(), Some(expect.to_string().as_str()));
        assert_eq!(got.lines().last(), Some("2999"));
    }
    assert_eq!(printed("", LogOptions { tail: Some(3), ..LogOptions::default() }), "");
}

#[test]
fn a_line_without_end_costs_bounded_memory() {
    let long = format!("t stdout F {}\nt stdout F next\n", "x".repeat(LINE_LIMIT + 5));
    let got = printed(&long, LogOptions::default());
    assert_eq!(got.lines().map(str::len).collect::<Vec<_>>(), [LINE_LIMIT - "t stdout F ".len(), 4]);
}

#[test]
fn following_goes_through_growth_rotation_and_cuts() {
    let (dir, path) = file("t stdout F one\nt stdout F tw");
    let append = |text: &str| {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    let mut turn = 0;
    let mut out = Vec::new();
    let options = LogOptions { follow: true, ..LogOptions::default() };
    copy_log(&path, &options, &mut out, &mut || {
        turn += 1;
        match turn {
            1 => append("o\n"),
            2 => {
                append("t stdout F last of the old file\n");
                fs::rename(&path, dir.path().join("0.log.old")).unwrap();
            }
            3 => append("t stdout F new file\n"),
            // The new file was seen, and the runtime had this on its way to the old one.
            4 => {
                let old = fs::OpenOptions::new().append(true).open(dir.path().join("0.log.old"));
                old.unwrap().write_all(b"t stdout F late\n").unwrap();
            }
            5 => fs::write(&path, "t stdout F cut\n").unwrap(),
            6 => {}
            // What comes between the last look and the end of the container.
            7 => append("t stdout F bye\nt stderr F no newline"),
            _ => panic!("asked again after the end"),
        }
        turn < 7
    })
    .unwrap();
    let expect = "one\ntwo\nlast of the old file\nlate\nnew file\ncut\nbye\nno newline\n";
    assert_eq!(String::from_utf8(out).unwrap(), expect);
}

#[test]
fn a_new_file_that_was_seen_is_read_though_it_is_gone() {
    let (dir, path) = file("t stdout F old\n");
    let mut turn = 0;
    let mut out = Vec::new();
    let options = LogOptions { follow: true, ..LogOptions::default() };
    copy_log(&path, &options, &mut out, &mut || {
        turn += 1;
        match turn {
            1 => {
                fs::rename(&path, dir.path().join("0.log.old")).unwrap();
                fs::write(&path, "t stdout F new\n").unwrap();
            }
            _ => fs::remove_file(&path).unwrap(),
        }
        turn < 2
    })
    .unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "old\nnew\n");
}

#[test]
fn last_words_are_the_end_of_the_log() {
    let (_dir, path) = file(LOG);
    assert_eq!(last_words(&path).unwrap(), "one\ntwo\nthree and  blanks\n\n");
    assert_eq!(last_words(Path::new("/nonexistent/0.log")).unwrap(), "");
    assert!(last_words(Path::new("/")).is_err());
    let (_dir, path) = file((0..100).map(|n| format!("t stdout F {n}\n")).collect::<String>());
    assert_eq!(last_words(&path).unwrap().lines().next(), Some("20"));
    let (_dir, path) = file(format!("t stdout F first\nt stdout F {}é{}\n", "x".repeat(3000), "y".repeat(2046)));
    assert_eq!(last_words(&path).unwrap(), format!("{}\n", "y".repeat(2046)), "half a character goes");
}

#[test]
fn termination_messages_are_bounded_and_not_followed() {
    let (dir, path) = file("bye");
    assert_eq!(termination_message(&path).unwrap(), "bye");
    assert_eq!(termination_message(&dir.path().join("none")).unwrap(), "");
    fs::write(&path, format!("start{}", "x".repeat(4096))).unwrap();
    assert_eq!(termination_message(&path).unwrap(), "x".repeat(4096));
    fs::write(&path, b"a\xffb").unwrap();
    assert_eq!(termination_message(&path).unwrap(), "a\u{fffd}b");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    assert!(termination_message(&link).is_err());
}

#[test]
fn a_reader_that_is_gone_ends_the_copy() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (_dir, path) = file(LOG);
    let error = copy_log(&path, &LogOptions::default(), &mut Gone, &mut || true).unwrap_err();
    assert!(matches!(error, HostError::Io { source, .. } if source.kind() == std::io::ErrorKind::BrokenPipe));
}

#[test]
fn a_time_is_printed_with_all_its_digits() {
    for (time, expect) in [
        ("2026-01-01T00:00:02Z", "2026-01-01T00:00:02.000000000Z"),
        ("2026-01-01T00:00:02.5+01:00", "2026-01-01T00:00:02.500000000+01:00"),
        ("2026-01-01T00:00:02.123456789-07:00", "2026-01-01T00:00:02.123456789-07:00"),
        ("yesterday", "yesterday"),
    ] {
        assert_eq!(nanoseconds(time), expect);
    }
}

fn piece() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    let line =
        (any::<bool>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(out, whole, bytes)| {
            let mut line = b"2026-01-01T00:00:02.5Z ".to_vec();
            line.extend(if out { &b"stdout "[..] } else { b"stderr " });
            line.extend(if whole { &b"F "[..] } else { b"P " });
            line.extend(bytes);
            line.push(b'\n');
            line
        });
    prop_oneof![3 => line, 1 => prop::collection::vec(any::<u8>(), 0..60)]
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config {
        cases: 128,
        rng_seed: proptest::test_runner::RngSeed::Fixed(6),
        failure_persistence: None,
        ..Default::default()
    })]

    /// Whatever lies in the file, in whatever pieces it comes: the same is printed as of the whole, within the limit.
    #[test]
    fn any_bytes_are_read_to_the_end_and_once(
        pieces in proptest::collection::vec(piece(), 0..12),
        cuts in proptest::collection::vec(1usize..200, 0..6),
        limit in proptest::option::of(0u64..300),
        tail in proptest::option::of(0u64..8),
    ) {
        let text = pieces.concat();
        let options = LogOptions { limit_bytes: limit, tail, timestamps: true, ..LogOptions::default() };
        let (_whole_dir, whole) = file(&text);
        let mut at_once = Vec::new();
        copy_log(&whole, &options, &mut at_once, &mut || false).unwrap();
        proptest::prop_assert!(at_once.len() as u64 <= limit.unwrap_or(u64::MAX));
        let followed = LogOptions { limit_bytes: limit, timestamps: true, ..LogOptions::default() };
        let (_dir, path) = file("");
        let (mut grown, mut cuts, mut rest) = (Vec::new(), cuts.into_iter(), text.as_slice());
        copy_log(&path, &LogOptions { follow: true, ..followed }, &mut grown, &mut || {
            let (now, later) = rest.split_at(cuts.next().unwrap_or(rest.len()).min(rest.len()));
            fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(now).unwrap();
            rest = later;
            !rest.is_empty()
        }).unwrap();
        let mut in_one_go = Vec::new();
        copy_log(&whole, &followed, &mut in_one_go, &mut || false).unwrap();
        proptest::prop_assert_eq!(grown, in_one_go);
    }
}
