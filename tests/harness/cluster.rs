//! A real control plane to test on: etcd, API server, controller manager and scheduler in a temporary folder.
//!
//! It drives tests/peers/cluster, which ends and removes everything when its standard input ends, so even after this
//! process was killed. Most tests share one (it takes ten seconds to start and half a gigabyte); who stops parts of
//! it takes one of their own. Nodes of several tests meet in the shared one: names have to differ, see
//! [`Cluster::node_name`].

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, UdpSocket},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use super::node::{peers, run, scripts, show_end_of};
use super::wait;

/// A control plane. Dropping it ends it, and fails the test if that does not work.
pub(crate) struct Cluster {
    hold: Child,
    /// The script's: it removes the folder as well.
    folder: PathBuf,
    /// Of every call of the script.
    environment: Vec<(String, String)>,
}

/// Never dropped: the script's standard input ends with this process.
static SHARED: OnceLock<Cluster> = OnceLock::new();

/// Counts the nodes of this process, for names that don't meet.
static NAMES: AtomicU32 = AtomicU32::new(0);

impl Cluster {
    /// The control plane that tests share, started by whoever needs it first.
    pub(crate) fn shared() -> &'static Cluster {
        SHARED.get_or_init(|| Cluster::start(&[]))
    }

    /// One of the test's own, with environment variables for tests/peers/cluster.
    pub(crate) fn start(environment: &[(&str, &str)]) -> Cluster {
        require();
        let folder =
            tempfile::Builder::new().prefix("ferrolet-cluster-").tempdir_in("/tmp").expect("make a folder").keep();
        // A process group of its own: Ctrl-C ends the tests, and the clean-up follows from that.
        let mut hold = Command::new(scripts().join("cluster"))
            .arg("hold")
            .arg(&folder)
            .envs(environment.iter().copied())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start tests/peers/cluster");
        let mut line = String::new();
        BufReader::new(hold.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("read from tests/peers/cluster");
        if line.trim() != "ready" {
            let mut said = String::new();
            drop(hold.stdin.take());
            hold.stderr.take().expect("a pipe").read_to_string(&mut said).expect("read from tests/peers/cluster");
            panic!("tests/peers/cluster brought no control plane up: {line:?} {said}");
        }
        let environment = environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Cluster { hold, folder, environment }
    }

    /// A path below the control plane's folder.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.folder.join(relative)
    }

    fn script(&self, verb: &str) -> Command {
        let mut command = Command::new(scripts().join("cluster"));
        let environment = self.environment.iter().map(|(key, value)| (key, value));
        command.arg(verb).arg(self.path("")).envs(environment).stdin(Stdio::null());
        command
    }

    /// A node name that no other test of this process has.
    pub(crate) fn node_name(&self) -> String {
        format!("n{}", NAMES.fetch_add(1, Ordering::Relaxed))
    }

    /// The kubeconfig of the node of that name.
    pub(crate) fn kubeconfig(&self, node: &str) -> PathBuf {
        run(self.script("node").arg(node));
        self.path(&format!("{node}.kubeconfig"))
    }

    /// The same with a certificate for this address as well, which the API server asks it at.
    pub(crate) fn kubeconfig_at(&self, node: &str, address: IpAddr) -> PathBuf {
        run(self.script("node").args([node, &address.to_string()]));
        self.path(&format!("{node}.kubeconfig"))
    }

    /// The kubeconfig with a bootstrap token.
    pub(crate) fn bootstrap_kubeconfig(&self) -> PathBuf {
        run(&mut self.script("token"));
        self.path("bootstrap.kubeconfig")
    }

    /// Kills one program of the control plane with SIGKILL.
    pub(crate) fn kill(&self, program: &str) {
        run(self.script("kill").arg(program));
    }

    /// Starts what was killed. The others begin anew with it: left alone, they ask an API server that was away for
    /// longer again only after up to a minute, and nothing is scheduled until then.
    pub(crate) fn start_again(&self) {
        self.kill("kube-scheduler");
        self.kill("kube-controller-manager");
        run(&mut self.script("up"));
    }

    /// Runs kubectl as the administrator and gives what it printed, else what it said.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        self.kubectl_with(arguments, "")
    }

    /// The same with something on its standard input.
    pub(crate) fn kubectl_with(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = Command::new(peers().join("bin/kubectl"))
            .arg("--kubeconfig")
            .arg(self.path("admin.kubeconfig"))
            // Its cache of what the server can do.
            .env("HOME", &self.folder)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|err| format!("start kubectl: {err}"))?;
        let mut stdin = kubectl.stdin.take().expect("a pipe");
        // A kubectl that does not read its input says why on its standard error.
        drop(stdin.write_all(input.as_bytes()));
        drop(stdin);
        let output = kubectl.wait_with_output().map_err(|err| err.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(format!("kubectl {}: {}{}", arguments.join(" "), text(&output.stderr), text(&output.stdout)))
        }
    }

    /// An object as JSON: `["node", "n1"]`, `["-n", "a", "pods"]`.
    pub(crate) fn get(&self, what: &[&str]) -> Result<Value, String> {
        let text = self.kubectl(&[&["get", "-o", "json"], what].concat())?;
        serde_json::from_str(&text).map_err(|err| format!("kubectl prints no JSON: {err}: {text}"))
    }

    /// `kubectl apply` of an object.
    #[track_caller]
    pub(crate) fn apply(&self, object: &Value) {
        self.kubectl_with(&["apply", "-f", "-"], &object.to_string()).expect("apply an object");
    }

    /// Makes a namespace and waits until pods may be made in it.
    #[track_caller]
    pub(crate) fn namespace(&self, name: &str) {
        self.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
        wait::until(&format!("namespace {name}"), Duration::from_secs(60), || {
            self.get(&["-n", name, "serviceaccount", "default"])?;
            self.get(&["-n", name, "configmap", "kube-root-ca.crt"])
        });
    }

    /// Waits for a condition of a node to have a status, and gives the node.
    #[track_caller]
    pub(crate) fn wait_condition(&self, node: &str, type_: &str, status: &str, within: Duration) -> Value {
        wait::until(&format!("node {node} with {type_} {status}"), within, || {
            let object = self.get(&["node", node])?;
            let found = condition(&object, type_);
            if found["status"] == status { Ok(object) } else { Err(format!("{found}")) }
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_end_of(&self.path("kube-apiserver.log"));
        }
        drop(self.hold.stdin.take());
        let status = wait::until("the end of the control plane", Duration::from_secs(60), || {
            self.hold.try_wait().map_err(|err| err.to_string())?.ok_or_else(|| "it still runs".to_owned())
        });
        let mut said = String::new();
        if let Some(mut stderr) = self.hold.stderr.take() {
            drop(stderr.read_to_string(&mut said));
        }
        if !status.success() && !std::thread::panicking() {
            panic!("the control plane in {} did not end ({status}): {said}", self.folder.display());
        }
    }
}

/// A condition of an object by its type; null if there is none.
pub(crate) fn condition<'object>(object: &'object Value, type_: &str) -> &'object Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

/// Panics with what to do when this machine can't run a control plane.
fn require() {
    let mut missing = Vec::new();
    for program in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"] {
        if !peers().join("bin").join(program).exists() {
            missing.push(format!("{} (tests/peers/build kubernetes)", peers().join("bin").join(program).display()));
        }
    }
    let path = std::env::var("PATH").unwrap_or_default();
    for program in ["openssl", "curl"] {
        if !path.split(':').any(|folder| Path::new(folder).join(program).exists()) {
            missing.push(format!("the program {program} (tests/peers/install runtime)"));
        }
    }
    assert!(missing.is_empty(), "this test needs a control plane, and there is missing:\n  {}", missing.join("\n  "));
}

/// The address of this machine that the API server finds its nodes at: that of the way out.
pub(crate) fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // Nothing is sent to it.
    socket.connect("198.51.100.1:9").expect("a way out");
    socket.local_addr().expect("an address").ip()
}
