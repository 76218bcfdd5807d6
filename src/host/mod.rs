//! The host port: cgroups, mounts, files, kernel facts.
