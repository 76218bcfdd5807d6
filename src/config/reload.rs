//! What a running agent takes over from a configuration that was read again, and what waits for its next start. Pure; the main
//! thread asks on SIGHUP.

use super::KubeletConfiguration;
use super::defaults::get;
use super::in_force::{IN_FORCE, NOT_IN_FORCE, WITHOUT_EFFECT};
use super::print;

/// Fields that change in the running agent. (Certificates, kubeconfigs, token files and manifests need no signal: they are read
/// again when they change.)
pub const RELOADED: &[&str] = &["logging.verbosity", "logging.vmodule"];

/// What differs between two configurations, by the fields' paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In force from now on.
    pub now: Vec<&'static str>,
    /// In force after the next start.
    pub later: Vec<&'static str>,
}

/// Compares the configuration in force with the one that was read.
pub fn changes(old: &KubeletConfiguration, new: &KubeletConfiguration) -> Changes {
    let (old, new) = (print::to_map(old), print::to_map(new));
    let fields = IN_FORCE.iter().chain(NOT_IN_FORCE).chain(WITHOUT_EFFECT).copied();
    let differ = fields.filter(|path| get(&old, path) != get(&new, path));
    let (now, later) = differ.partition(|path| RELOADED.contains(path));
    Changes { now, later }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::nested::VModuleItem;

    fn check(edit: fn(&mut KubeletConfiguration), now: &[&'static str], later: &[&'static str]) {
        let (old, mut new) = (KubeletConfiguration::default(), KubeletConfiguration::default());
        edit(&mut new);
        assert_eq!(changes(&old, &new), Changes { now: now.to_vec(), later: later.to_vec() });
    }

    #[test]
    fn fields_are_told_by_when_they_count() {
        check(|_| {}, &[], &[]);
        check(|new| new.logging.verbosity = 4, &["logging.verbosity"], &[]);
        check(|new| new.max_pods = 7, &[], &["maxPods"]);
        check(|new| new.port = 7, &[], &["port"]);
        check(
            |new| {
                new.logging.vmodule.push(VModuleItem { file_pattern: "pleg".to_owned(), verbosity: 6 });
                new.logging.format = "json".to_owned();
            },
            &["logging.vmodule"],
            &["logging.format"],
        );
    }

    #[test]
    fn what_is_reloaded_is_in_force() {
        assert!(RELOADED.iter().all(|path| IN_FORCE.contains(path)));
    }
}
