//! The cgroup driver: chosen at the start, and second thoughts where the runtime was not there to be asked.
//!
//! Layer L4. Thread `driver`, only while the runtime has not said which driver it uses; it owns nothing. With two drivers, each side
//! looks for a pod's cgroup where the other has not made it. So a word against the runtime's is refused, at the start or as soon as
//! the runtime speaks; where nobody gives one, the runtime's counts, and an agent that began with another ends, to be started anew.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;

use super::facts::{RuntimeFacts, driver_of};
use crate::config::{KubeletConfiguration, features};
use crate::cri::Client;
use crate::host::cgroup::CgroupDriver;
use crate::util::cancel::Cancel;
use crate::util::thread::{OwnerThread, StackSize};

/// Between two questions.
const AGAIN: Duration = Duration::from_secs(2);
/// A folder that is there where systemd is the machine's first process.
pub(crate) const SYSTEMD_RUNS: &str = "/run/systemd/system";

/// The running thread. Dropping it ends it.
pub(super) struct Watch {
    stop: Cancel,
    _thread: OwnerThread,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The driver that the configuration names, by its own word or by default.
pub(crate) fn configured(config: &KubeletConfiguration) -> CgroupDriver {
    if config.cgroup_driver == "systemd" { CgroupDriver::Systemd } else { CgroupDriver::Cgroupfs }
}

/// The driver to work with: what the runtime tells, else what is configured. `set_by` is the flag or the file that names one.
///
/// # Errors
/// Somebody set another driver than the runtime's, and pods get cgroups of their own.
pub(super) fn choose(
    config: &KubeletConfiguration,
    set_by: Option<&str>,
    told: Option<CgroupDriver>,
) -> anyhow::Result<CgroupDriver> {
    let set = configured(config);
    let is_asked = features::is_enabled(&config.feature_gates, "KubeletCgroupDriverFromCRI");
    match (told.filter(|_| is_asked), set_by) {
        (Some(told), Some(set_by)) if told != set && config.cgroups_per_qos => bail!("{}", mismatch(set, set_by, told)),
        (Some(told), _) => Ok(told),
        (None, _) => Ok(set),
    }
}

/// Why two drivers do not go together, and what to do.
pub(crate) fn mismatch(set: CgroupDriver, set_by: &str, told: CgroupDriver) -> String {
    format!(
        "{set_by} sets cgroupDriver to {set}, and the container runtime uses {told}: leave it out there, so that the runtime's is taken, \
         set it to {told}, or have the runtime use {set} (containerd: SystemdCgroup = {}; CRI-O: cgroup_manager = \"{set}\")",
        set == CgroupDriver::Systemd
    )
}

/// Refuses systemd's driver on a machine that another program has started; `systemd_runs` is [`SYSTEMD_RUNS`].
///
/// # Errors
/// There is no systemd to make cgroups.
pub(crate) fn check_machine(driver: CgroupDriver, systemd_runs: &Path) -> anyhow::Result<()> {
    if driver == CgroupDriver::Systemd && !systemd_runs.is_dir() {
        bail!(
            "the cgroup driver is systemd, and systemd does not run on this machine ({} is not there): use cgroupfs in the container \
             runtime (containerd: SystemdCgroup = false; CRI-O: cgroup_manager = \"cgroupfs\") and as cgroupDriver",
            systemd_runs.display()
        );
    }
    Ok(())
}

/// Starts the thread where it is needed.
///
/// # Errors
/// The kernel has no thread left.
pub(super) fn watch(
    config: &KubeletConfiguration,
    set_by: Option<String>,
    runtime: &RuntimeFacts,
    driver: CgroupDriver,
    client: Client,
) -> io::Result<Option<Watch>> {
    let is_asked = features::is_enabled(&config.feature_gates, "KubeletCgroupDriverFromCRI");
    if runtime.answered || !config.cgroups_per_qos || !is_asked {
        return Ok(None);
    }
    let stop = Cancel::new();
    let token = stop.clone();
    let thread = OwnerThread::spawn("driver", StackSize::Small, move || {
        let told = loop {
            match client.runtime_config(&token) {
                Ok(told) => break told.map(driver_of),
                Err(_) if token.wait(AGAIN) => return,
                Err(_) => {}
            }
        };
        if let Some(told) = told.filter(|told| *told != driver) {
            match set_by {
                Some(set_by) => log::error!("this agent ends: {}", mismatch(driver, &set_by, told)),
                None => log::error!(
                    "the container runtime uses the cgroup driver {told}, and this agent began with {driver}, as the runtime was not \
                     there to be asked: it ends, to begin again with {told}"
                ),
            }
            crate::util::signals::end_this_process();
        }
    })?;
    Ok(Some(Watch { stop, _thread: thread }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use CgroupDriver::{Cgroupfs, Systemd};

    #[test]
    fn the_runtimes_driver_is_taken_unless_somebody_said_otherwise() {
        let mut config = KubeletConfiguration::default();
        let file = Some("/k.yaml");
        for (set, set_by, told, expect) in [
            ("cgroupfs", None, None, Some(Cgroupfs)),
            ("cgroupfs", None, Some(Systemd), Some(Systemd)),
            ("cgroupfs", file, Some(Cgroupfs), Some(Cgroupfs)),
            ("cgroupfs", file, Some(Systemd), None),
            ("systemd", file, Some(Systemd), Some(Systemd)),
            ("systemd", file, Some(Cgroupfs), None),
            ("systemd", file, None, Some(Systemd)),
        ] {
            config.cgroup_driver = set.to_owned();
            let chosen = choose(&config, set_by, told);
            assert_eq!(chosen.as_ref().ok().copied(), expect, "{set} by {set_by:?}, runtime {told:?}: {chosen:?}");
        }
        let error = choose(&config, file, Some(Cgroupfs)).expect_err("a mismatch").to_string();
        expect_test::expect![[r#"/k.yaml sets cgroupDriver to systemd, and the container runtime uses cgroupfs: leave it out there, so that the runtime's is taken, set it to cgroupfs, or have the runtime use systemd (containerd: SystemdCgroup = true; CRI-O: cgroup_manager = "systemd")"#]]
            .assert_eq(&error);
        // Without cgroups of the agent's own there is nothing to look for in the wrong place.
        config.cgroups_per_qos = false;
        assert_eq!(choose(&config, file, Some(Cgroupfs)).ok(), Some(Cgroupfs));
    }

    #[test]
    fn systemds_driver_needs_systemd() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(check_machine(Systemd, folder.path()).is_ok());
        let nowhere = folder.path().join("none");
        assert!(check_machine(Cgroupfs, &nowhere).is_ok());
        let error = check_machine(Systemd, &nowhere).expect_err("no systemd").to_string();
        assert!(error.contains("systemd does not run on this machine"), "{error}");
    }
}
