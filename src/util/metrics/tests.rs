//! Tests of metrics: the text of each kind, bounds, and what holds for the tables.

use super::*;
use expect_test::{Expect, expect};

fn check(metric: &dyn Registered, expect: Expect) {
    let mut out = Vec::new();
    let mut text = Text::new(&mut out);
    metric.write(&mut text);
    text.finish().expect("memory takes everything");
    expect.assert_eq(&String::from_utf8(out).expect("UTF-8"));
}

#[test]
fn plain_ones_are_written() {
    let counter = Counter::new("a_total", "How many.");
    counter.inc();
    counter.add(2);
    check(
        &counter,
        expect![[r#"
            # HELP a_total How many.
            # TYPE a_total counter
            a_total 3
        "#]],
    );
    let gauge = Gauge::new("b", "A back\\slash and\na line.");
    check(&gauge, expect![""]);
    gauge.add(0.5);
    gauge.add(-2.0);
    check(
        &gauge,
        expect![[r#"
            # HELP b A back\\slash and\na line.
            # TYPE b gauge
            b -1.5
        "#]],
    );
    gauge.set(f64::INFINITY);
    assert_eq!(gauge.get(), Some(f64::INFINITY));
}

#[test]
fn a_histogram_counts_upwards() {
    let histogram = Histogram::new("c_seconds", "How long.", &[0.5, 1.0]);
    for millis in [100, 500, 501, 7000] {
        histogram.observe(Duration::from_millis(millis));
    }
    histogram.observe_value(-1.0);
    check(
        &histogram,
        expect![[r#"
            # HELP c_seconds How long.
            # TYPE c_seconds histogram
            c_seconds_bucket{le="0.5"} 3
            c_seconds_bucket{le="1"} 4
            c_seconds_bucket{le="+Inf"} 5
            c_seconds_sum 8.101
            c_seconds_count 5
        "#]],
    );
}

#[test]
fn a_countdown_counts_down() {
    let countdown = Countdown::new("i_seconds", "How long.");
    check(&countdown, expect![""]);
    countdown.set(1);
    let mut out = Vec::new();
    let mut text = Text::new(&mut out);
    countdown.write(&mut text);
    text.finish().expect("memory takes everything");
    let text = String::from_utf8(out).expect("UTF-8");
    let left: f64 = text.lines().last().and_then(|line| line.split_once(' ')?.1.parse().ok()).expect("a number");
    assert!(left < -1_700_000_000.0, "1970 is long past: {text}");
}

#[test]
fn labels_make_series_in_order() {
    let counters = Counters::new("d_total", "How many.", &["kind", "why"]);
    check(&counters, expect![""]);
    counters.inc(&["b", "\"x\"\n\\"]);
    counters.add(&["a", ""], 4);
    counters.inc(&["b", "\"x\"\n\\"]);
    check(
        &counters,
        expect![[r#"
            # HELP d_total How many.
            # TYPE d_total counter
            d_total{kind="a",why=""} 4
            d_total{kind="b",why="\"x\"\n\\"} 2
        "#]],
    );
    counters.retain(&|labels| &*labels[0] != "b");
    assert_eq!((counters.get(&["b", ""]), counters.get(&["a", ""])), (0, 4));

    let gauges = Gauges::new("e", "What.", &["kind"]);
    gauges.set(&["x"], 2.5);
    gauges.add(&["x"], 1.0);
    gauges.add(&["y"], -1.0);
    check(
        &gauges,
        expect![[r#"
            # HELP e What.
            # TYPE e gauge
            e{kind="x"} 3.5
            e{kind="y"} -1
        "#]],
    );

    let histograms = Histograms::new("f_seconds", "How long.", &[1.0], &["kind"]);
    histograms.observe(&["x"], Duration::from_secs(2));
    check(
        &histograms,
        expect![[r#"
            # HELP f_seconds How long.
            # TYPE f_seconds histogram
            f_seconds_bucket{kind="x",le="1"} 0
            f_seconds_bucket{kind="x",le="+Inf"} 1
            f_seconds_sum{kind="x"} 2
            f_seconds_count{kind="x"} 1
        "#]],
    );
    assert_eq!((histograms.count(&["x"]), histograms.count(&["y"])), (1, 0));
}

#[test]
fn series_are_bounded() {
    let counters = Counters::new("g_total", "How many.", &["id"]);
    let refused = own::SERIES_REFUSED.get();
    for id in 0..MAX_SERIES + 3 {
        counters.inc(&[&id.to_string()]);
    }
    assert_eq!(counters.0.lock().len(), MAX_SERIES);
    assert!(own::SERIES_REFUSED.get() >= refused + 3);
}

#[test]
fn a_writer_that_fails_is_told_of_once() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            self.0 += 1;
            Err(std::io::Error::other("no room"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut full = Full(0);
    let mut text = Text::new(&mut full);
    for _ in 0..5000 {
        text.sample("h", "", 1.into());
    }
    assert_eq!(text.finish().unwrap_err().to_string(), "no room");
    assert_eq!(full.0, 1);
}

#[test]
fn the_tables_are_sound() {
    let tables: [&[&dyn Registered]; 3] = [kubelet::ALL, kubelet::probes::ALL, own::ALL];
    let mut names = Vec::new();
    for metric in tables.into_iter().flatten() {
        let about = metric.about();
        let word = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        assert!(word(about.name) && about.labels.iter().all(|label| word(label)), "{about:?}");
        assert!(about.help.ends_with('.') && !about.help.contains('\n'), "{about:?}");
        assert_eq!(about.name.starts_with("ferrolet_"), own::ALL.iter().any(|own| own.about().name == about.name));
        names.push(about.name);
    }
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "a name is there twice");
}
