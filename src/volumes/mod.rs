//! Volumes of a pod on this machine.
