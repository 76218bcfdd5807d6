//! systemd's slices: made, changed and ended over D-Bus, for the cgroups of pods.
//!
//! Layer L1; pod workers call it, one at a time, since they share one connection. It is opened when first needed and again when it
//! broke. It knows slices alone: what a slice is for, and what its values mean, is `cgroup`'s.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustbus::message_builder::MarshalledMessageBody;
use rustbus::wire::errors::MarshalError;

use super::{Bus, BusError, Target};

const SYSTEMD: Target = Target {
    service: "org.freedesktop.systemd1",
    object: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};

/// How systemd says that a unit is there already.
const EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
/// How it says that there is none.
const NO_SUCH: &str = "org.freedesktop.systemd1.NoSuchUnit";

/// How long systemd may take to make a slice's cgroup; it is made without it then.
const MADE_IN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// "No limit" in systemd's numbers.
pub const INFINITY: u64 = u64::MAX;

use value::Value;

/// What the library's macro makes of the kinds of values that units have.
#[allow(missing_docs, unreachable_pub)]
mod value {
    type TextList = Vec<String>;
    rustbus::dbus_variant_sig!(Value, Text => String; Texts => TextList; Switch => bool; Number => u64);
}

/// A property of a unit: its name and its value.
pub type Property = (&'static str, u64);

/// One connection to systemd for all slices of this node.
#[derive(Debug)]
pub struct Units {
    path: PathBuf,
    bus: Mutex<Option<Bus>>,
    /// Slices that were made or found, with what they were given.
    known: Mutex<BTreeMap<String, Vec<Property>>>,
}

impl Units {
    /// By the bus at `path`. Nothing is opened yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), bus: Mutex::new(None), known: Mutex::default() }
    }

    /// Sees to it that there is such a slice with these values, and waits a moment until `is_there` says that its cgroup is. What was
    /// done already is not asked for again.
    ///
    /// # Errors
    /// systemd refuses or does not answer.
    pub fn ensure(&self, name: &str, properties: &[Property], is_there: impl Fn() -> bool) -> Result<(), BusError> {
        if !self.is_known(name) || !is_there() {
            self.forget(name);
            if self.start_slice(name, properties)? {
                self.remember(name, properties);
                // What is written before systemd is done with it, it would write over.
                let since = Instant::now();
                while !is_there() && since.elapsed() < MADE_IN {
                    std::thread::sleep(LOOK_EVERY);
                }
                return Ok(());
            }
            self.remember(name, &[]);
        }
        self.update(name, properties)
    }

    /// Changes those values of a slice that differ from what it was last given.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn update(&self, name: &str, properties: &[Property]) -> Result<(), BusError> {
        let given = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned().unwrap_or_default();
        let new: Vec<Property> = properties.iter().filter(|one| !given.contains(one)).copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        self.set(name, &new)?;
        self.remember(name, &new);
        Ok(())
    }

    fn is_known(&self, name: &str) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    fn forget(&self, name: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn remember(&self, name: &str, properties: &[Property]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let given = known.entry(name.to_owned()).or_default();
        given.retain(|(name, _)| !properties.iter().any(|(new, _)| new == name));
        given.extend(properties);
    }

    /// Makes a slice (`kubepods-burstable.slice`); true if it was not there before.
    ///
    /// # Errors
    /// systemd refuses or does not answer.
    pub fn start_slice(&self, name: &str, properties: &[Property]) -> Result<bool, BusError> {
        let fill = |body: &mut MarshalledMessageBody| {
            let switch = |name: &str, on| (name.to_owned(), Value::Switch(on));
            let mut all = vec![
                ("Description".to_owned(), Value::Text(format!("pods of this node: {name}"))),
                // At a shutdown the agent ends pods in order; systemd must not end their slices before.
                switch("DefaultDependencies", false),
                switch("CPUAccounting", true),
                switch("MemoryAccounting", true),
                switch("IOAccounting", true),
                switch("TasksAccounting", true),
            ];
            // What is above it stays as long as it does.
            if let Some(parent) = parent_of(name) {
                all.push(("Wants".to_owned(), Value::Texts(vec![parent])));
            }
            all.extend(named(properties));
            let others: Vec<(String, Vec<(String, Value)>)> = Vec::new();
            body.push_param4(name, "replace", all, others)
        };
        match self.call("StartTransientUnit", &fill) {
            Ok(()) => Ok(true),
            Err(error) if error.is(EXISTS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes values of a slice, until the machine's next start.
    ///
    /// # Errors
    /// As [`Self::start_slice`]; there is no such slice.
    pub fn set(&self, name: &str, properties: &[Property]) -> Result<(), BusError> {
        let fill = |body: &mut MarshalledMessageBody| body.push_param3(name, true, named(properties));
        self.call("SetUnitProperties", &fill)
    }

    /// Ends a slice with all that is in it. One that is not there is a success.
    ///
    /// # Errors
    /// As [`Self::start_slice`].
    pub fn stop(&self, name: &str) -> Result<(), BusError> {
        self.forget(name);
        match self.call("StopUnit", &|body| body.push_param2(name, "replace")) {
            Err(error) if !error.is(NO_SUCH) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn call(
        &self,
        method: &str,
        fill: &dyn Fn(&mut MarshalledMessageBody) -> Result<(), MarshalError>,
    ) -> Result<(), BusError> {
        let mut bus = self.bus.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = bus.is_some();
        let mut open = match bus.take() {
            Some(open) => open,
            None => Bus::connect(&self.path)?,
        };
        let mut answer = open.call(&SYSTEMD, method, fill);
        if is_old && matches!(answer, Err(BusError::NoAnswer { .. })) {
            // It may have broken long ago, when the bus was restarted.
            open = Bus::connect(&self.path)?;
            answer = open.call(&SYSTEMD, method, fill);
        }
        if !matches!(answer, Err(BusError::NoAnswer { .. })) {
            *bus = Some(open);
        }
        answer.map(drop)
    }
}

fn named(properties: &[Property]) -> Vec<(String, Value)> {
    properties.iter().map(|(name, value)| ((*name).to_owned(), Value::Number(*value))).collect()
}

/// The slice that a slice is in, by its name.
fn parent_of(name: &str) -> Option<String> {
    let (parent, _) = name.strip_suffix(".slice")?.rsplit_once('-')?;
    (!parent.is_empty()).then(|| format!("{parent}.slice"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::bus::test_bus::TestBus;

    #[test]
    fn slices_are_asked_for_as_systemd_takes_them() {
        let bus = TestBus::start(&["org.freedesktop.systemd1"]);
        let units = Units::new(&bus.path);
        let answers = bus.answer(vec![
            ("StartTransientUnit", Ok("job")),
            ("StartTransientUnit", Err(EXISTS)),
            ("SetUnitProperties", Ok("")),
            ("StopUnit", Ok("job")),
            ("StopUnit", Err(NO_SUCH)),
            ("StopUnit", Err("org.example.No")),
        ]);
        assert!(units.start_slice("kubepods-burstable.slice", &[("CPUWeight", 5)]).expect("made"));
        assert!(!units.start_slice("kubepods-burstable.slice", &[]).expect("there"));
        units.set("kubepods-burstable.slice", &[("MemoryMax", INFINITY)]).expect("set");
        units.stop("kubepods-burstable.slice").expect("stopped");
        units.stop("kubepods-burstable.slice").expect("not there");
        let error = units.stop("kubepods-burstable.slice").expect_err("refused").to_string();
        assert!(error.contains("StopUnit was refused: no (org.example.No)"), "{error}");
        let asked = answers.join();
        assert_eq!(asked[0].signature, "ssa(sv)a(sa(sv))");
        assert_eq!(asked[2].signature, "sba(sv)");
        assert_eq!(asked[3].signature, "ss");
    }

    #[test]
    fn what_a_slice_has_already_is_not_asked_for_again() {
        let bus = TestBus::start(&["org.freedesktop.systemd1"]);
        let units = Units::new(&bus.path);
        let answers = bus.answer(vec![
            ("StartTransientUnit", Ok("job")),
            ("SetUnitProperties", Ok("")),
            ("StartTransientUnit", Err(EXISTS)),
            ("SetUnitProperties", Ok("")),
        ]);
        let ensure = |name: &str, values: &[Property]| units.ensure(name, values, || true).expect("there");
        ensure("a.slice", &[("CPUWeight", 5)]);
        ensure("a.slice", &[("CPUWeight", 5)]);
        ensure("a.slice", &[("CPUWeight", 6)]);
        ensure("a.slice", &[("CPUWeight", 6)]);
        // One that was there before this agent.
        ensure("b.slice", &[("CPUWeight", 5)]);
        ensure("b.slice", &[]);
        assert_eq!(
            answers.join().iter().map(|asked| asked.words[0].as_str()).collect::<Vec<_>>(),
            ["a.slice", "a.slice", "b.slice", "b.slice"]
        );
    }

    #[test]
    fn a_bus_that_comes_later_is_found_and_one_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let units = Units::new(&folder.path().join("bus"));
        let error = units.stop("a.slice").expect_err("no bus").to_string();
        assert!(error.starts_with("cannot connect to D-Bus at "), "{error}");
    }

    #[test]
    fn names_say_where_a_slice_is() {
        for (name, expect) in [
            ("kubepods.slice", None),
            ("kubepods-burstable.slice", Some("kubepods.slice")),
            ("kubepods-burstable-pod1_2.slice", Some("kubepods-burstable.slice")),
            ("-.slice", None),
        ] {
            assert_eq!(parent_of(name).as_deref(), expect, "{name}");
        }
    }
}
