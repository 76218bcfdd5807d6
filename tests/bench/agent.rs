//! The agent that is measured: started as a service manager would, its log read from a pipe.
//!
//! Used from the main thread of the benchmark; owns the process and a thread that copies the log to a file, so that no write of
//! the log is counted as the agent's to a disk. Dropping it ends the process.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::Node;
use crate::config::{free_port, kubelet_configuration};
use crate::proc::Process;

/// How long anything may take that is waited for here.
const PATIENCE: Duration = Duration::from_secs(15);

/// A running agent.
pub(crate) struct Agent<'node> {
    node: &'node Node,
    process: Child,
    log: Option<JoinHandle<()>>,
    logged: Arc<AtomicU64>,
    healthz: u16,
    started: Instant,
}

/// Name of the node that the agents run.
pub(crate) const NODE: &str = "bench";

impl<'node> Agent<'node> {
    /// Starts `binary` on the node.
    pub(crate) fn start(node: &'node Node, binary: &Path) -> Agent<'node> {
        Agent::join(node, binary, NODE, &[])
    }

    /// Starts `binary` with a server that anybody on this machine may ask; and its port.
    pub(crate) fn serving(node: &'node Node, binary: &Path) -> (Agent<'node>, u16) {
        let (open, secure) = (free_port(), free_port());
        let agent = Agent::launch(node, binary, NODE, &[], |config| {
            config["enableServer"] = true.into();
            config["address"] = "127.0.0.1".into();
            config["port"] = secure.into();
            config["readOnlyPort"] = open.into();
        });
        (agent, open)
    }

    /// Starts `binary` under a node name, with more flags.
    pub(crate) fn join(node: &'node Node, binary: &Path, name: &str, flags: &[String]) -> Agent<'node> {
        Agent::launch(node, binary, name, flags, |_| ())
    }

    fn launch(
        node: &'node Node,
        binary: &Path,
        name: &str,
        flags: &[String],
        change: impl FnOnce(&mut serde_json::Value),
    ) -> Agent<'node> {
        let healthz = free_port();
        fs::create_dir_all(node.path("manifests")).expect("make the manifest folder");
        let mut config = kubelet_configuration(node, healthz);
        // More than the largest set that the benchmark starts.
        config["maxPods"] = 250.into();
        change(&mut config);
        fs::write(node.path("kubelet.json"), config.to_string()).expect("write the configuration");
        let mut command = node.command(binary);
        command.arg("--config").arg(node.path("kubelet.json")).arg("--root-dir").arg(node.path("kubelet"));
        command.args(["--hostname-override", name]).args(flags).stdout(Stdio::null()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut process = command.spawn().expect("start the agent");
        fs::write(node.path("ferrolet.pid"), process.id().to_string()).expect("write the process id");
        let logged = Arc::new(AtomicU64::new(0));
        let mut pipe = process.stderr.take().expect("a pipe");
        let file = fs::File::options().create(true).append(true).open(node.path("ferrolet.log"));
        let (mut file, count) = (file.expect("open the log"), Arc::clone(&logged));
        let log = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                count.fetch_add(length as u64, Ordering::Relaxed);
                drop(file.write_all(&buffer[..length]));
            }
        });
        Agent { node, process, log: Some(log), logged, healthz, started }
    }

    /// The process.
    pub(crate) fn process(&self) -> Process {
        Process(self.process.id())
    }

    /// Bytes of its log so far.
    pub(crate) fn logged(&self) -> u64 {
        self.logged.load(Ordering::Relaxed)
    }

    /// Waits for the first /healthz that says 200; how long that took from the start of the process.
    pub(crate) fn wait_healthy(&self) -> Option<Duration> {
        while self.started.elapsed() < PATIENCE {
            if healthz(self.healthz) == Some(200) {
                return Some(self.started.elapsed());
            }
            // Finer than what is measured; one look costs the agent a thread and microseconds.
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Puts manifests into the folder, all at once: they are written elsewhere before.
    pub(crate) fn put(&self, manifests: &[(String, String)]) {
        let half = self.node.path("manifests-half");
        fs::create_dir_all(&half).expect("make a folder");
        for (name, text) in manifests {
            fs::write(half.join(name), text).expect("write a manifest");
        }
        for (name, _) in manifests {
            fs::rename(half.join(name), self.node.path("manifests").join(name)).expect("rename a manifest");
        }
    }

    /// Takes all manifests away.
    pub(crate) fn clear(&self) {
        for entry in fs::read_dir(self.node.path("manifests")).expect("read the manifest folder").flatten() {
            fs::remove_file(entry.path()).expect("remove a manifest");
        }
    }

    /// The last lines of its log.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(self.node.path("ferrolet.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        if let Some(log) = self.log.take() {
            drop(log.join());
        }
        drop(fs::remove_file(self.node.path("ferrolet.pid")));
    }
}

/// The status that /healthz answers, if it does.
fn healthz(port: u16) -> Option<u16> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = [0; 256];
    let length = stream.read(&mut answer).ok()?;
    std::str::from_utf8(&answer[..length]).ok()?.split(' ').nth(1)?.parse().ok()
}
