//! One node to test on: a containerd of its own in a temporary folder.
//!
//! It drives tests/peers/hold (a mount namespace that cleans up when its standard input ends, so even after this
//! process was killed) and tests/peers/runtime. Used from the thread of one test; it owns the folder, the processes
//! that were started in it, a bridge and a top cgroup.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use super::wait;

/// Which containerd a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Containerd {
    /// The distribution's package: 1.6 on Debian 12, without container events and RuntimeConfig.
    System,
    /// Containerd 2, built by tests/peers/build, with both.
    Two,
}

impl Containerd {
    /// Both, for tests that run on each.
    pub(crate) const ALL: [Containerd; 2] = [Containerd::System, Containerd::Two];

    fn argument(self) -> &'static str {
        match self {
            Containerd::System => "1",
            Containerd::Two => "2",
        }
    }
}

/// A node: dropping it removes everything that ran on it, and fails the test if anything is left.
pub(crate) struct Node {
    name: String,
    hold: Child,
    hold_pid: String,
    // Last: the folder goes after the mounts in it.
    folder: tempfile::TempDir,
}

/// Counts the nodes of this process, for names that don't meet.
static NODES: AtomicU32 = AtomicU32::new(0);

impl Node {
    /// Starts a node with the images `pause`, `busybox` and `web` imported.
    pub(crate) fn start(kind: Containerd) -> Node {
        require();
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        let name = format!("fl{}n{number}", std::process::id());
        let folder = tempfile::Builder::new().prefix("ferrolet-").tempdir_in("/tmp").expect("make the node's folder");
        let (hold, hold_pid) = start_hold(folder.path());
        let node = Node { name, hold, hold_pid, folder };
        let mut up = node.script("runtime");
        up.args(["up".as_ref(), node.path("").as_os_str(), kind.argument().as_ref()]);
        up.env("NAME", &node.name).env("SUBNET", subnet(number));
        run(&mut up);
        for image in ["pause", "busybox", "web"] {
            node.import(image);
        }
        run(node.script("runtime").arg("cgroup").arg(node.path("")));
        node
    }

    /// The node's name: of its bridge and, with a `/` before it, of the cgroup that its pods belong under.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A path below the node's folder.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// Containerd's socket, as `containerRuntimeEndpoint` wants it.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.path("containerd.sock").display())
    }

    /// A command that runs in the node's mount namespace, and sees what is mounted there.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.hold_pid, "--"]).arg(program.as_ref());
        command.stdin(Stdio::null());
        command
    }

    fn script(&self, name: &str) -> Command {
        self.command(scripts().join(name))
    }

    /// Imports an image that tests/peers/images made.
    pub(crate) fn import(&self, image: &str) {
        run(self.script("runtime").arg("import").arg(self.path("")).arg(image));
    }

    /// Stops containerd, as an upgrade of it would; pods live on.
    pub(crate) fn stop_containerd(&self) {
        run(self.script("runtime").arg("down").arg(self.path("")));
    }

    /// Kills containerd with SIGKILL; pods live on.
    pub(crate) fn kill_containerd(&self) {
        run(self.script("runtime").arg("kill").arg(self.path("")));
    }

    /// Starts containerd again.
    pub(crate) fn start_containerd(&self) {
        run(self.script("runtime").arg("up").arg(self.path("")));
    }

    /// Runs crictl on the node's containerd and gives what it printed; panics when it fails.
    pub(crate) fn crictl(&self, arguments: &[&str]) -> String {
        let mut crictl = self.command(peers().join("bin/crictl"));
        crictl.args(["--runtime-endpoint", &self.endpoint(), "--timeout", "60s"]).args(arguments);
        run(&mut crictl)
    }

    /// The containers of `crictl ps` (all states with `-a` in `more`), as JSON.
    pub(crate) fn containers(&self, more: &[&str]) -> Vec<serde_json::Value> {
        let text = self.crictl(&[&["ps", "-o", "json"], more].concat());
        let list: serde_json::Value = serde_json::from_str(&text).expect("crictl prints JSON");
        list["containers"].as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_end_of(&self.path("containerd.log"));
        }
        drop(self.hold.stdin.take());
        let status = wait::until("the node's clean-up", Duration::from_secs(120), || {
            self.hold.try_wait().map_err(|err| err.to_string())?.ok_or_else(|| "it still runs".to_owned())
        });
        let mut left = String::new();
        if let Some(mut stderr) = self.hold.stderr.take() {
            drop(stderr.read_to_string(&mut left));
        }
        if !status.success() && !std::thread::panicking() {
            panic!("the node in {} was not cleaned up ({status}): {left}", self.folder.path().display());
        }
    }
}

/// The folder of the scripts.
pub(super) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

/// Where the scripts keep programs and images (tests/peers/common).
pub(crate) fn peers() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("FERROLET_PEERS").unwrap_or_else(|| {
        let cache = variable("XDG_CACHE_HOME");
        let cache = cache.unwrap_or_else(|| variable("HOME").unwrap_or_else(|| "/root".into()).join(".cache"));
        cache.join("ferrolet/peers")
    })
}

/// Panics with what to do when this machine can't run a node.
fn require() {
    let mut missing = Vec::new();
    if !nix::unistd::geteuid().is_root() {
        missing.push("root's rights (run the tests as root: sudo tests/run)".to_owned());
    }
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    for program in ["containerd", "ctr", "runc", "iptables", "ip", "nsenter", "unshare"] {
        if !path.split(':').any(|folder| Path::new(folder).join(program).exists()) {
            missing.push(format!("the program {program} (tests/peers/install runtime)"));
        }
    }
    for made in ["bin/containerd", "bin/crictl"] {
        if !peers().join(made).exists() {
            missing.push(format!("{} (tests/peers/install peers, tests/peers/build)", peers().join(made).display()));
        }
    }
    for image in ["pause", "busybox", "web"] {
        let tar = peers().join(format!("images/{image}.tar"));
        if !tar.exists() {
            missing.push(format!("{} (tests/peers/images)", tar.display()));
        }
    }
    assert!(missing.is_empty(), "this test needs a real containerd, and there is missing:\n  {}", missing.join("\n  "));
}

fn start_hold(folder: &Path) -> (Child, String) {
    // A process group of its own: Ctrl-C ends the tests, and the clean-up follows from that.
    let mut hold = Command::new(scripts().join("hold"))
        .arg(folder)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start tests/peers/hold");
    let mut line = String::new();
    BufReader::new(hold.stdout.take().expect("a pipe")).read_line(&mut line).expect("read from tests/peers/hold");
    let pid = line.trim().strip_prefix("ready ").map(str::to_owned);
    let pid = pid.unwrap_or_else(|| panic!("tests/peers/hold could not make a mount namespace: {line:?}"));
    (hold, pid)
}

/// A network for the node's pods that no other node of this machine is likely to have: 10.64.0.0/10 in pieces of 254.
fn subnet(number: u32) -> String {
    let piece = (std::process::id() * 16 + number) % (64 * 256);
    format!("10.{}.{}.0/24", 64 + piece / 256, piece % 256)
}

/// Runs a command to its end and gives what it printed; panics with all it said when it fails.
#[track_caller]
pub(super) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|err| panic!("could not start {command:?}: {err}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        panic!("{command:?} failed ({}):\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    text
}

/// Prints the last lines of a log, for the output of a test that failed.
#[allow(clippy::print_stderr, reason = "the test runner shows it with the failure")]
pub(crate) fn show_end_of(log: &Path) {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let end = &lines[lines.len().saturating_sub(60)..];
    eprintln!("--- the end of {} ---\n{}\n---", log.display(), end.join("\n"));
}
