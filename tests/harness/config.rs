//! The configuration of an agent on a node of the harness, for tests and for the benchmark alike.
//!
//! Used from the thread of one test; owns nothing.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
};

use serde_json::{Value, json};

use super::node::{Node, peers};

/// Where an agent runs: a real node, or a folder beside a fake runtime.
pub(crate) trait Ground {
    /// A path below the folder that is this agent's alone.
    fn path(&self, relative: &str) -> PathBuf;
    /// The runtime's socket, as `containerRuntimeEndpoint` wants it.
    fn endpoint(&self) -> String;
    /// The cgroup that pods belong under, as `cgroupRoot` wants it.
    fn cgroup_root(&self) -> String;
    /// A command that sees what is mounted there.
    fn command(&self, program: &Path) -> Command;
}

impl Ground for Node {
    fn path(&self, relative: &str) -> PathBuf {
        self.path(relative)
    }

    fn endpoint(&self) -> String {
        self.endpoint()
    }

    fn cgroup_root(&self) -> String {
        format!("/{}", self.name())
    }

    fn command(&self, program: &Path) -> Command {
        self.command(program)
    }
}

/// A KubeletConfiguration: all that the agent reads and writes is below the node's folder and the node's cgroup.
pub(crate) fn kubelet_configuration(node: &dyn Ground, healthz: u16) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": node.path("manifests"),
        "podLogsDir": node.path("pod-logs"),
        "containerRuntimeEndpoint": node.endpoint(),
        "healthzPort": healthz,
        "enableServer": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup_root(),
        "failCgroupV1": false,
        "failSwapOn": false,
        // A test machine may not let anyone lower it.
        "oomScoreAdj": 0,
        "evictionHard": rarely_short(),
    })
}

/// Thresholds by which a test machine with a full disk is short of nothing yet.
fn rarely_short() -> Value {
    json!({ "memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi" })
}

/// The upstream kubelet on a node, ready to be started beside or instead of ferrolet. The control plane whose certificates
/// are in `pki` has to have made one for `name`.
pub(crate) fn upstream_kubelet(
    node: &Node,
    pki: &Path,
    name: &str,
    kubeconfig: &Path,
    change: impl FnOnce(&mut Value),
) -> io::Result<Command> {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": node.endpoint(),
        "podLogsDir": node.path("pod-logs"),
        "address": "127.0.0.1",
        "healthzPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", node.name()),
        "failCgroupV1": false,
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "evictionHard": rarely_short(),
        "makeIPTablesUtilChains": false,
        "authentication": { "x509": { "clientCAFile": pki.join("ca.crt") } },
        "tlsCertFile": pki.join(format!("{name}.crt")),
        "tlsPrivateKeyFile": pki.join(format!("{name}.key")),
    });
    change(&mut config);
    let written = node.path("upstream.json");
    fs::write(&written, config.to_string())?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = node.command(peers().join("bin/kubelet"));
    command.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/lib/cni"));
    command.arg("--config").arg(written).arg("--kubeconfig").arg(kubeconfig);
    command.args(["--hostname-override", name, "--root-dir"]).arg(node.path("upstream")).stdin(Stdio::null());
    Ok(command)
}

/// A port on loopback that nobody listens on, and that nobody is given who asks later: neither another caller here, nor
/// whoever lets the kernel choose (its range begins at 32768). Where another process starts to look is another place.
pub(crate) fn free_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    let start = std::process::id().wrapping_mul(131) % COUNT;
    for _ in 0..COUNT {
        let next = u32::from(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + (start + next) % COUNT).expect("a port");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} on is free");
}
