//! The features that the node declares, so that the API server and the scheduler count on them.
//!
//! Layer L1, pure. It declares what this agent does, and only what its feature gates let it do.

/// The gate of the declaration as a whole.
const DECLARES: &str = "NodeDeclaredFeatures";

/// What the kubelet of this version may declare and this agent does, by name. A feature is called as its gate is.
const DONE: &[&str] = &[
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// The features to declare, sorted; `is_on` tells of a feature gate whether it is on.
pub fn features(is_on: &dyn Fn(&str) -> bool) -> Vec<String> {
    if !is_on(DECLARES) {
        return Vec::new();
    }
    DONE.iter().filter(|name| is_on(name)).map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(off: &[&str], expect: &[&str]) {
        assert_eq!(features(&|name| !off.contains(&name)), expect, "without {off:?}");
    }

    #[test]
    fn what_is_done_is_declared_while_its_gate_is_on() {
        check(&[], DONE);
        check(&[DECLARES], &[]);
        check(&[DONE[1]], &[DONE[0], DONE[2]]);
        check(DONE, &[]);
        assert!(DONE.is_sorted(), "the API server keeps them sorted");
    }
}
