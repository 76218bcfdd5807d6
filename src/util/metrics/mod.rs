//! Metrics of the agent itself: counters, gauges and histograms that anybody adds to, and the tables of all of them.
//!
//! Used on every thread. Those without labels are atomics; those with labels are kept in one sorted list each, whose lock is
//! held for a look-up and never while anything is written out, so that a slow scrape makes nobody wait. Nothing is computed
//! until somebody asks. What can be counted from a snapshot of the node is not kept here, the server counts it when it
//! is asked. A metric that is not in one of the tables ([`kubelet`], [`own`]) cannot be made outside this module.
//!
//! To add one, write a row in `kubelet.rs` (upstream has it) or `own.rs` (it is ours) and call `inc`, `set` or `observe`
//! where the thing happens.

pub mod kubelet;
pub mod own;
mod text;

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use text::{Number, Text, push_label};

/// Most series that one metric with labels keeps; what would be more is counted and left out.
const MAX_SERIES: usize = 2000;
/// Most bounds of a histogram without labels.
const MAX_BOUNDS: usize = 25;

/// What Prometheus calls the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only ever grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

impl Kind {
    /// As the text format spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Name, type and meaning of a metric.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Full name.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Type.
    pub kind: Kind,
    /// Names of its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
}

/// A metric in a table.
pub trait Registered: Sync {
    /// What it is.
    fn about(&self) -> &About;
    /// Writes its series; nothing at all, not even its name, while it has none.
    fn write(&self, text: &mut Text<'_>);
}

/// Writes all metrics of a table.
pub fn write_all(table: &[&dyn Registered], text: &mut Text<'_>) {
    for metric in table {
        metric.write(text);
    }
}

/// Upper bounds of histograms, as upstream has them.
pub mod bounds {
    /// Prometheus' usual ones, in seconds.
    pub const USUAL: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    /// Starts of pods, in seconds.
    pub const POD_START: &[f64] = &[
        0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
        600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
    ];
    /// Image pulls, in seconds.
    pub const PULL: &[f64] = &[
        1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
        2700.0, 3600.0,
    ];
    /// Calls to the container runtime, in seconds: 5 ms times a power of 2.5.
    pub const RUNTIME: &[f64] = &[
        0.005,
        0.0125,
        0.03125,
        0.078125,
        0.1953125,
        0.48828125,
        1.220703125,
        3.0517578125,
        7.62939453125,
        19.073486328125,
        47.6837158203125,
        119.20928955078125,
        298.0232238769531,
        745.0580596923828,
    ];
    /// Statuses on their way to the API server, in seconds.
    pub const STATUS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
    /// Requests to the API server, in seconds.
    pub const API: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
    /// Volumes, in seconds.
    pub const VOLUME: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
    /// Containers of a pod.
    pub const CONTAINERS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
    /// Lives of certificates, in seconds: from a minute to four years.
    pub const CERTIFICATE_LIFE: &[f64] = &[
        60.0,
        3600.0,
        14400.0,
        86400.0,
        604_800.0,
        2_592_000.0,
        7_776_000.0,
        15_552_000.0,
        31_104_000.0,
        124_416_000.0,
    ];
}

/// A number that only grows.
#[derive(Debug)]
pub struct Counter {
    about: About,
    value: AtomicU64,
}

impl Counter {
    pub(super) const fn new(name: &'static str, help: &'static str) -> Self {
        Self { about: About { name, help, kind: Kind::Counter, labels: &[] }, value: AtomicU64::new(0) }
    }

    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, more: u64) {
        self.value.fetch_add(more, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

impl Registered for Counter {
    fn about(&self) -> &About {
        &self.about
    }

    fn write(&self, text: &mut Text<'_>) {
        text.head(self.about.name, self.about.kind, self.about.help);
        text.sample(self.about.name, "", self.get().into());
    }
}

/// A number that goes up and down. It is not shown before it was set once.
#[derive(Debug)]
pub struct Gauge {
    about: About,
    /// The bits of an `f64`; a NaN that nobody computes stands for "never set".
    bits: AtomicU64,
}

/// Not the NaN that arithmetic gives.
const UNSET: u64 = u64::MAX;

impl Gauge {
    pub(super) const fn new(name: &'static str, help: &'static str) -> Self {
        Self { about: About { name, help, kind: Kind::Gauge, labels: &[] }, bits: AtomicU64::new(UNSET) }
    }

    /// It is this now.
    pub fn set(&self, value: f64) {
        self.bits.store(value.to_bits(), Ordering::Relaxed);
    }

    /// It is above what it was by this much.
    pub fn add(&self, more: f64) {
        // The closure never refuses, so that the answer says nothing.
        let _before = self.bits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            let before = if bits == UNSET { 0.0 } else { f64::from_bits(bits) };
            Some((before + more).to_bits())
        });
    }

    /// What it is, if it was ever set.
    pub fn get(&self) -> Option<f64> {
        let bits = self.bits.load(Ordering::Relaxed);
        (bits != UNSET).then(|| f64::from_bits(bits))
    }
}

impl Registered for Gauge {
    fn about(&self) -> &About {
        &self.about
    }

    fn write(&self, text: &mut Text<'_>) {
        if let Some(value) = self.get() {
            text.head(self.about.name, self.about.kind, self.about.help);
            text.sample(self.about.name, "", value.into());
        }
    }
}

/// A moment that comes nearer: shown as the seconds that are left until then, negative when it is past. It is not shown
/// before it was set once.
#[derive(Debug)]
pub struct Countdown {
    about: About,
    /// Seconds since 1970; 0 for "never set".
    until: AtomicI64,
}

impl Countdown {
    pub(super) const fn new(name: &'static str, help: &'static str) -> Self {
        Self { about: About { name, help, kind: Kind::Gauge, labels: &[] }, until: AtomicI64::new(0) }
    }

    /// It comes then, in seconds since 1970.
    pub fn set(&self, until: i64) {
        self.until.store(until, Ordering::Relaxed);
    }
}

impl Registered for Countdown {
    fn about(&self) -> &About {
        &self.about
    }

    #[expect(clippy::cast_precision_loss)]
    fn write(&self, text: &mut Text<'_>) {
        let until = self.until.load(Ordering::Relaxed);
        if until != 0 {
            text.head(self.about.name, self.about.kind, self.about.help);
            let left = until.saturating_sub(super::clock::wall() / 1_000_000_000);
            text.sample(self.about.name, "", (left as f64).into());
        }
    }
}

/// How many observations fell below each of some bounds.
#[derive(Debug)]
pub struct Histogram {
    about: About,
    bounds: &'static [f64],
    /// By the first bound that is not below the observation; one more for those above all bounds.
    counts: [AtomicU32; MAX_BOUNDS + 1],
    /// Sum in billionths.
    sum: AtomicU64,
}

impl Histogram {
    pub(super) const fn new(name: &'static str, help: &'static str, bounds: &'static [f64]) -> Self {
        assert!(bounds.len() <= MAX_BOUNDS, "a histogram without labels has too many bounds");
        Self {
            about: About { name, help, kind: Kind::Histogram, labels: &[] },
            bounds,
            counts: [const { AtomicU32::new(0) }; MAX_BOUNDS + 1],
            sum: AtomicU64::new(0),
        }
    }

    /// Something took this long.
    pub fn observe(&self, took: Duration) {
        self.observe_value(took.as_secs_f64());
    }

    /// Something was this large.
    pub fn observe_value(&self, value: f64) {
        self.counts[place(self.bounds, value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(billionths(value), Ordering::Relaxed);
    }

    /// Observations so far.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).sum()
    }
}

impl Registered for Histogram {
    fn about(&self) -> &About {
        &self.about
    }

    fn write(&self, text: &mut Text<'_>) {
        let mut cells = [0; MAX_BOUNDS + 2];
        let cells = &mut cells[..self.bounds.len() + 2];
        for (cell, count) in cells.iter_mut().zip(&self.counts).take(self.bounds.len() + 1) {
            *cell = count.load(Ordering::Relaxed).into();
        }
        cells[self.bounds.len() + 1] = self.sum.load(Ordering::Relaxed);
        text.head(self.about.name, self.about.kind, self.about.help);
        write_histogram(text, self.about.name, "", self.bounds, cells);
    }
}

/// The first bound that is not below `value`; their number if there is none.
fn place(bounds: &[f64], value: f64) -> usize {
    bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len())
}

// A float that is below zero or too large becomes the nearest number that can be kept.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn billionths(value: f64) -> u64 {
    (value * 1e9) as u64
}

#[expect(clippy::cast_precision_loss)]
fn from_billionths(sum: u64) -> f64 {
    sum as f64 / 1e9
}

/// `cells` are the counts by place, and the sum.
fn write_histogram(text: &mut Text<'_>, name: &str, labels: &str, bounds: &[f64], cells: &[u64]) {
    let mut so_far = 0;
    for (index, count) in cells.iter().take(bounds.len() + 1).enumerate() {
        so_far += count;
        text.bucket(name, labels, bounds.get(index).copied(), so_far);
    }
    let sum = cells.get(bounds.len() + 1).copied().unwrap_or_default();
    text.sample_of(name, "_sum", labels, from_billionths(sum).into());
    text.sample_of(name, "_count", labels, so_far.into());
}

/// One series of a metric with labels.
#[derive(Debug)]
struct Series {
    labels: Box<[Box<str>]>,
    cells: Box<[u64]>,
}

/// All series of a metric with labels, by the values of the labels.
#[derive(Debug)]
struct Labelled {
    about: About,
    bounds: &'static [f64],
    series: Mutex<Vec<Series>>,
}

impl Labelled {
    const fn new(about: About, bounds: &'static [f64]) -> Self {
        Self { about, bounds, series: Mutex::new(Vec::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Series>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the cells of one series, made with `cells` cells if it is not there.
    fn with(&self, values: &[&str], cells: usize, act: impl FnOnce(&mut [u64])) {
        debug_assert_eq!(values.len(), self.about.labels.len(), "{}: {values:?}", self.about.name);
        let mut series = self.lock();
        let found = series.binary_search_by(|one| one.labels.iter().map(|label| &**label).cmp(values.iter().copied()));
        let index = match found {
            Ok(index) => index,
            Err(_) if series.len() >= MAX_SERIES => {
                own::SERIES_REFUSED.inc();
                return;
            }
            Err(index) => {
                let labels = values.iter().map(|value| Box::from(*value)).collect();
                series.insert(index, Series { labels, cells: vec![0; cells].into() });
                index
            }
        };
        act(&mut series[index].cells);
    }

    fn get(&self, values: &[&str]) -> Option<Box<[u64]>> {
        let series = self.lock();
        series
            .iter()
            .find(|one| one.labels.iter().map(|label| &**label).eq(values.iter().copied()))
            .map(|one| one.cells.clone())
    }

    fn retain(&self, keep: &dyn Fn(&[Box<str>]) -> bool) {
        let mut series = self.lock();
        series.retain(|one| keep(&one.labels));
        if series.is_empty() {
            series.shrink_to_fit();
        }
    }

    fn write(&self, text: &mut Text<'_>) {
        // A copy, so that whoever counts never waits for whoever reads.
        let series: Vec<(String, Box<[u64]>)> =
            self.lock().iter().map(|one| (self.label_text(one), one.cells.clone())).collect();
        if series.is_empty() {
            return;
        }
        text.head(self.about.name, self.about.kind, self.about.help);
        for (labels, cells) in &series {
            let first = cells.first().copied().unwrap_or_default();
            match self.about.kind {
                Kind::Counter => text.sample(self.about.name, labels, first.into()),
                Kind::Gauge => text.sample(self.about.name, labels, f64::from_bits(first).into()),
                Kind::Histogram => write_histogram(text, self.about.name, labels, self.bounds, cells),
            }
        }
    }

    fn label_text(&self, one: &Series) -> String {
        let mut text = String::new();
        for (name, value) in self.about.labels.iter().zip(&one.labels) {
            push_label(&mut text, name, value);
        }
        text
    }
}

/// Counters with labels.
#[derive(Debug)]
pub struct Counters(Labelled);

impl Counters {
    pub(super) const fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self(Labelled::new(About { name, help, kind: Kind::Counter, labels }, &[]))
    }

    /// One more of these label values.
    pub fn inc(&self, values: &[&str]) {
        self.add(values, 1);
    }

    /// So many more of these label values; none at all makes the series known.
    pub fn add(&self, values: &[&str], more: u64) {
        self.0.with(values, 1, |cells| cells[0] = cells[0].wrapping_add(more));
    }

    /// How many of these label values so far.
    pub fn get(&self, values: &[&str]) -> u64 {
        self.0.get(values).map_or(0, |cells| cells[0])
    }

    /// Forgets series that nobody will add to any more.
    pub fn retain(&self, keep: &dyn Fn(&[Box<str>]) -> bool) {
        self.0.retain(keep);
    }
}

impl Registered for Counters {
    fn about(&self) -> &About {
        &self.0.about
    }

    fn write(&self, text: &mut Text<'_>) {
        self.0.write(text);
    }
}

/// Gauges with labels.
#[derive(Debug)]
pub struct Gauges(Labelled);

impl Gauges {
    pub(super) const fn new(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self(Labelled::new(About { name, help, kind: Kind::Gauge, labels }, &[]))
    }

    /// It is this now.
    pub fn set(&self, values: &[&str], value: f64) {
        self.0.with(values, 1, |cells| cells[0] = value.to_bits());
    }

    /// It is above what it was by this much. (A cell that is new holds zero, which is 0.0 as well.)
    pub fn add(&self, values: &[&str], more: f64) {
        self.0.with(values, 1, |cells| cells[0] = (f64::from_bits(cells[0]) + more).to_bits());
    }

    /// What it is, if it was ever set.
    pub fn get(&self, values: &[&str]) -> Option<f64> {
        self.0.get(values).map(|cells| f64::from_bits(cells[0]))
    }
}

impl Registered for Gauges {
    fn about(&self) -> &About {
        &self.0.about
    }

    fn write(&self, text: &mut Text<'_>) {
        self.0.write(text);
    }
}

/// Histograms with labels.
#[derive(Debug)]
pub struct Histograms(Labelled);

impl Histograms {
    pub(super) const fn new(
        name: &'static str,
        help: &'static str,
        bounds: &'static [f64],
        labels: &'static [&'static str],
    ) -> Self {
        Self(Labelled::new(About { name, help, kind: Kind::Histogram, labels }, bounds))
    }

    /// Something with these label values took this long.
    pub fn observe(&self, values: &[&str], took: Duration) {
        self.observe_value(values, took.as_secs_f64());
    }

    /// Something with these label values was this large.
    pub fn observe_value(&self, values: &[&str], value: f64) {
        let bounds = self.0.bounds;
        self.0.with(values, bounds.len() + 2, |cells| {
            cells[place(bounds, value)] += 1;
            let sum = &mut cells[bounds.len() + 1];
            *sum = sum.wrapping_add(billionths(value));
        });
    }

    /// Observations with these label values so far.
    pub fn count(&self, values: &[&str]) -> u64 {
        self.0.get(values).map_or(0, |cells| cells.iter().rev().skip(1).sum())
    }

    /// Forgets series that nobody will add to any more.
    pub fn retain(&self, keep: &dyn Fn(&[Box<str>]) -> bool) {
        self.0.retain(keep);
    }
}

impl Registered for Histograms {
    fn about(&self) -> &About {
        &self.0.about
    }

    fn write(&self, text: &mut Text<'_>) {
        self.0.write(text);
    }
}

/// Makes the statics of a table, and the table.
macro_rules! table {
    ($($metric:ident: $type:ident($name:literal, $help:literal $(, $more:expr)*);)+) => {
        $(#[doc = $help] pub static $metric: $type = $type::new($name, $help $(, $more)*);)+
        /// All of them, by name.
        pub static ALL: &[&dyn Registered] = &[$(&$metric),+];
    };
}
pub(crate) use table;

#[cfg(test)]
mod tests;
