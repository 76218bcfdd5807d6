//! The features that the node declares, so that the API server and the scheduler count on them.
//!
//! Layer L1, pure. It declares what this agent does, and only what its configuration lets it do.

/// The gate of the declaration as a whole.
const DECLARES: &str = "NodeDeclaredFeatures";

/// An API server passes WebSockets of its clients on to nodes that declare this.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

/// What the kubelet of this version may declare and this agent does, by name. A feature is called as its gate is.
const DONE: &[&str] = &[
    WEBSOCKETS,
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// The features to declare, sorted. `is_on` tells of a feature gate whether it is on, `serves` whether the node serves sessions at all.
pub fn features(is_on: &dyn Fn(&str) -> bool, serves: bool) -> Vec<String> {
    if !is_on(DECLARES) {
        return Vec::new();
    }
    let is_done = |name: &&&str| is_on(name) && (serves || **name != WEBSOCKETS);
    DONE.iter().filter(is_done).map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(off: &[&str], serves: bool, expect: &[&str]) {
        assert_eq!(features(&|name| !off.contains(&name), serves), expect, "without {off:?}, serves: {serves}");
    }

    #[test]
    fn what_is_done_is_declared_while_its_gate_is_on() {
        check(&[], true, DONE);
        check(&[], false, &DONE[1..]);
        check(&[DECLARES], true, &[]);
        check(&[DONE[2]], true, &[DONE[0], DONE[1], DONE[3]]);
        check(DONE, true, &[]);
        assert!(DONE.is_sorted(), "the API server keeps them sorted");
    }
}
