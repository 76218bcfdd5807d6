//! The built `ferrolet` on a node, as a systemd unit would run it.
//!
//! It runs in the node's mount namespace with everything it writes below the node's folder, so that agents of several
//! tests don't meet. Used from the thread of one test; dropping it kills the process.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Output, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::config::{Ground, free_port, kubelet_configuration};
use super::{Node, node::show_end_of, wait};

/// How long is waited for what takes a second on a quiet machine, and much longer beside many builds.
const SOON: Duration = Duration::from_secs(90);

/// A running agent.
pub(crate) struct Agent<'node> {
    node: &'node dyn Ground,
    process: Child,
    healthz: u16,
}

impl<'node> Agent<'node> {
    /// Starts the agent with the harness' configuration and waits until it says that it is healthy.
    pub(crate) fn start(node: &'node dyn Ground) -> Agent<'node> {
        Agent::start_with(node, |_| ())
    }

    /// The same, with the KubeletConfiguration changed by `change` first.
    pub(crate) fn start_with(node: &'node dyn Ground, change: impl FnOnce(&mut Value)) -> Agent<'node> {
        let agent = Agent::spawn(node, change);
        agent.wait_healthy();
        agent
    }

    /// The same, without waiting. Its own settings are those of the node's `ferrolet.yaml`, if there is one.
    pub(crate) fn spawn(node: &'node dyn Ground, change: impl FnOnce(&mut Value)) -> Agent<'node> {
        Agent::spawn_as(node, "node", &[], change)
    }

    /// The same with more flags.
    pub(crate) fn spawn_with_flags(
        node: &'node dyn Ground,
        flags: &[&str],
        change: impl FnOnce(&mut Value),
    ) -> Agent<'node> {
        Agent::spawn_as(node, "node", flags, change)
    }

    /// Starts the agent as a node of a cluster, with more flags, and waits until it says that it is healthy.
    pub(crate) fn join(
        node: &'node dyn Ground,
        name: &str,
        kubeconfig: &Path,
        flags: &[&str],
        change: impl FnOnce(&mut Value),
    ) -> Agent<'node> {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let agent = Agent::spawn_as(node, name, &[&[kubeconfig.as_str()], flags].concat(), change);
        agent.wait_healthy();
        agent
    }

    /// Starts the agent under a node name, with more flags.
    fn spawn_as(node: &'node dyn Ground, name: &str, flags: &[&str], change: impl FnOnce(&mut Value)) -> Agent<'node> {
        let healthz = free_port();
        fs::create_dir_all(node.path("manifests")).expect("make the manifest folder");
        let mut config = kubelet_configuration(node, healthz);
        change(&mut config);
        fs::write(node.path("kubelet.json"), config.to_string()).expect("write the configuration");
        let log = fs::File::options().create(true).append(true).open(node.path("ferrolet.log")).expect("open the log");
        let own = node.path("ferrolet.yaml");
        let own = if own.exists() { vec!["--ferrolet-config".into(), own.into_os_string()] } else { Vec::new() };
        let mut command = node.command(Path::new(env!("CARGO_BIN_EXE_ferrolet")));
        // logind's, where a test plays it.
        let bus = node.path("bus");
        if bus.exists() {
            command.env("DBUS_SYSTEM_BUS_ADDRESS", format!("unix:path={}", bus.display()));
        }
        let process = command
            .arg("--config")
            .arg(node.path("kubelet.json"))
            .arg("--root-dir")
            .arg(node.path("kubelet"))
            .args(["--hostname-override", name, "-v", "4"])
            .args(flags)
            .args(own)
            .stdout(log.try_clone().expect("share the log"))
            .stderr(log)
            .spawn()
            .expect("start the agent");
        fs::write(node.path("ferrolet.pid"), process.id().to_string()).expect("write the process id");
        Agent { node, process, healthz }
    }

    /// Waits until /healthz answers 200.
    pub(crate) fn wait_healthy(&self) {
        wait::until("a healthy agent", SOON, || match get(self.healthz, "/healthz")? {
            (200, _) => Ok(()),
            (status, body) => Err(format!("/healthz answered {status}: {body}")),
        });
    }

    /// What /healthz answers now: status and body.
    pub(crate) fn healthz(&self) -> Result<(u16, String), String> {
        get(self.healthz, "/healthz")
    }

    /// The agent's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The folder that it takes manifests from.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.node.path("manifests")
    }

    /// Where the agent keeps its state.
    pub(crate) fn root_dir(&self) -> PathBuf {
        self.node.path("kubelet")
    }

    /// Kills the agent with SIGKILL and waits for its end.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// Waits until the agent has ended by itself, and gives how.
    pub(crate) fn ended(mut self) -> ExitStatus {
        wait::until("the agent's end", SOON, || {
            self.process.try_wait().map_err(|err| err.to_string())?.ok_or_else(|| "it still runs".to_owned())
        })
    }

    /// Asks the agent to end with SIGTERM, and gives how it ended.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        let pid = nix::unistd::Pid::from_raw(self.process.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("send SIGTERM to the agent");
        wait::until("the agent's end after SIGTERM", SOON, || {
            self.process.try_wait().map_err(|err| err.to_string())?.ok_or_else(|| "it still runs".to_owned())
        })
    }

    /// Memory of the agent's process that is in RAM, in KiB, as `VmRSS` tells it.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the agent lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a VmRSS line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// The same as [`Agent::tool`], with all that it printed and said in one text, whether it succeeded or not.
    pub(crate) fn tool_says(&self, arguments: &[&str]) -> String {
        let output = self.run_tool(arguments).expect("start the tool");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Runs one of the tools against this agent (`ps`, `logs` …) and gives what it printed on success, else what it said.
    pub(crate) fn tool(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.run_tool(arguments).map_err(|err| err.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn run_tool(&self, arguments: &[&str]) -> std::io::Result<Output> {
        let mut command = self.node.command(Path::new(env!("CARGO_BIN_EXE_ferrolet")));
        command.args(arguments).env("FERROLET_SOCKET", self.root_dir().join("ferrolet/ferrolet.sock"));
        command.stderr(Stdio::piped()).output()
    }

    /// Puts a manifest into the static pod folder under `name`, in one step, over an older one.
    pub(crate) fn put_manifest(&self, name: &str, text: &str) {
        let folder = self.manifests();
        let half = folder.join(format!(".{name}.half"));
        fs::write(&half, text).expect("write a manifest");
        fs::rename(half, folder.join(name)).expect("rename a manifest");
    }

    /// Takes a manifest away.
    pub(crate) fn remove_manifest(&self, name: &str) {
        fs::remove_file(self.manifests().join(name)).expect("remove a manifest");
    }

    /// All that this agent and those before it on the node have logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.node.path("ferrolet.log")
    }

    fn end(&mut self) {
        // Both fail only when the process has ended already.
        drop(self.process.kill());
        drop(self.process.wait());
        drop(fs::remove_file(self.node.path("ferrolet.pid")));
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_end_of(&self.log_path());
        }
        self.end();
    }
}

/// A GET on loopback: status and body.
pub(crate) fn get(port: u16, path: &str) -> Result<(u16, String), String> {
    let answer = exchange(port, path).map_err(|err| format!("GET :{port}{path}: {err}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("not HTTP: {answer:?}"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| format!("no status in {head:?}"))?, body.to_owned()))
}

fn exchange(port: u16, path: &str) -> std::io::Result<String> {
    let limit = Duration::from_secs(10);
    let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), limit)?;
    stream.set_read_timeout(Some(limit))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(1 << 20).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Reads a file of the node as a process of the node sees it, mounts and all.
pub(crate) fn read_inside(node: &Node, path: &Path) -> String {
    let output = node.command("cat").arg(path).output().expect("start cat");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
