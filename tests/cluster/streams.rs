//! Logs, sessions and node logs through a real API server, as `kubectl` gets them: logs across rotation, exec with and without a terminal, attach,
//! files copied in and out, forwarded ports under load, a debug container.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use super::lab::{Ground, SOON};
use crate::harness::{Cluster, Containerd, cluster::condition, node::peers, wait};

/// How the API server and `kubectl` speak: WebSockets as by default, or SPDY as of old.
const WAYS: &[(&str, &[(&str, &str)])] = &[
    ("websocket", &[]),
    ("spdy", &[("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"), ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")]),
];

/// Bytes that are copied in and out.
const COPIED: usize = 24 << 20;

fn pod(ground: &Ground<'_>, name: &str, script: &str, more: Value) -> Value {
    let mut container = json!({
        "name": "c", "image": "docker.io/library/busybox:latest", "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": ground.name },
        "spec": {
            "nodeSelector": { "kubernetes.io/hostname": ground.name }, "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "containers": [container],
        },
    })
}

const WAITS: &str = "trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done";

fn wait_for(ground: &Ground<'_>, name: &str, what: &str, look: impl Fn(&Value) -> bool) -> Value {
    wait::until(&format!("pod {name}: {what}"), SOON, || {
        let pod = ground.cluster.get(&["-n", &ground.name, "pod", name])?;
        if look(&pod) { Ok(pod) } else { Err(format!("{:#}", pod["status"])) }
    })
}

fn run(ground: &Ground<'_>, pod: &Value) {
    ground.cluster.apply(pod);
    let name = pod["metadata"]["name"].as_str().expect("a name");
    wait_for(ground, name, "ready", |pod| condition(pod, "Ready")["status"] == "True");
}

/// `kubectl` in the test's namespace, to be started.
fn kubectl(ground: &Ground<'_>, environment: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = Command::new(peers().join("bin/kubectl"));
    command.arg("--kubeconfig").arg(ground.cluster.path("admin.kubeconfig")).args(["-n", &ground.name]);
    command.env("HOME", ground.cluster.path("")).envs(environment.iter().copied()).args(arguments).stdin(Stdio::null());
    command
}

/// Exit code, output and complaint of `kubectl`.
fn said(mut command: Command, input: &[u8]) -> (Option<i32>, String, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("start kubectl");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("kubectl ends");
    writer.join().expect("no panic");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn tell(ground: &Ground<'_>, environment: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String, String) {
    said(kubectl(ground, environment, arguments), b"")
}

#[test]
fn logs_are_printed_as_kubectl_asks_and_followed_across_rotation() {
    const LINES: usize = 4000;
    let ground = Ground::serving(Cluster::shared(), Containerd::Two);
    let agent = ground.serve(|config| {
        config["containerLogMaxSize"] = json!("16Ki");
        config["containerLogMaxFiles"] = json!(100);
        config["containerLogMonitorInterval"] = json!("3s");
    });
    let script = format!(
        "echo begin; until [ -e /tmp/go ]; do sleep 0.1; done; \
         i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i; [ $((i%100)) = 0 ] && sleep 0.2; done"
    );
    run(&ground, &pod(&ground, "talks", &script, json!({})));
    let heard = ground.node.path("heard");
    let mut follower = kubectl(&ground, &[], &["logs", "-f", "talks"]);
    let mut follower = follower.stdout(File::create(&heard).expect("a file")).spawn().expect("start kubectl");
    let read = || fs::read_to_string(&heard).expect("what was heard");
    wait::until("the first line", SOON, || if read() == "begin\n" { Ok(()) } else { Err(read()) });
    assert_eq!(tell(&ground, &[], &["exec", "talks", "--", "touch", "/tmp/go"]).0, Some(0));
    assert!(follower.wait().expect("kubectl ends").success());
    let numbers: Vec<usize> = read().lines().filter_map(|line| line.strip_prefix("line ")?.parse().ok()).collect();
    assert!(numbers == (1..=LINES).collect::<Vec<_>>(), "{} of {LINES} lines were heard", numbers.len());
    let folder = fs::read_dir(ground.node.path("pod-logs")).expect("logs").flatten();
    let talks = folder.map(|one| one.path().join("c")).find(|path| path.display().to_string().contains("_talks_"));
    let files = fs::read_dir(talks.expect("the pod's logs")).expect("logs").count();
    assert!(files > 2, "there are {files} files: the log was not rotated twice");
    // The follower ended because the container had.
    wait_for(&ground, "talks", "ended", |pod| pod["status"]["phase"] == "Succeeded");

    // It fails once, and then waits.
    let script = format!("echo out; echo err >&2; [ -e /data/once ] || {{ touch /data/once; exit 7; }}; {WAITS}");
    let mut again =
        pod(&ground, "again", &script, json!({ "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }));
    again["spec"]["restartPolicy"] = json!("Always");
    again["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
    ground.cluster.apply(&again);
    wait_for(&ground, "again", "started again", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"] == 1 && status["state"]["running"].is_object()
    });
    let logs = |arguments: &[&str]| tell(&ground, &[], &[&["logs", "again"], arguments].concat());
    wait::until("what it printed", SOON, || match logs(&[]) {
        (Some(0), out, _) if out == "out\nerr\n" || out == "err\nout\n" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let (code, out, _) = logs(&["--previous"]);
    assert!(code == Some(0) && out.contains("out\n") && out.contains("err\n"), "{out}");
    assert_eq!(logs(&["--tail=0"]), (Some(0), String::new(), String::new()));
    assert_eq!(logs(&["--tail=1"]).1.lines().count(), 1);
    assert_eq!(logs(&["--limit-bytes=2"]).1.len(), 2);
    assert_eq!(logs(&["--since=1h"]).1.lines().count(), 2);
    assert_eq!(logs(&["--since-time=2099-01-01T00:00:00Z"]).1, "");
    let stamped = logs(&["--timestamps"]).1;
    assert!(stamped.lines().all(|line| line.len() > 31 && line.as_bytes()[10] == b'T'), "{stamped}");
    let (code, _, why) = logs(&["-c", "none"]);
    assert!(code == Some(1) && why.contains("none"), "{why}");
    let mut waits = pod(&ground, "waits", WAITS, json!({}));
    waits["spec"]["containers"][0]["image"] = json!("registry.invalid/none:1");
    ground.cluster.apply(&waits);
    wait_for(&ground, "waits", "known", |pod| pod["status"]["containerStatuses"][0]["state"]["waiting"].is_object());
    let (code, _, why) = tell(&ground, &[], &["logs", "waits"]);
    assert!(code == Some(1) && why.contains("is waiting to start"), "{why}");
    drop(agent);
}

#[test]
fn commands_run_in_containers_with_their_input_output_and_exit_code() {
    let ground = Ground::serving(Cluster::shared(), Containerd::Two);
    let agent = ground.serve(|_| ());
    run(&ground, &pod(&ground, "a", WAITS, json!({})));
    run(&ground, &pod(&ground, "reads", "cat; echo end of input; sleep 600", json!({ "stdin": true })));
    let bytes: Vec<u8> = (0..COPIED as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (way, environment) in WAYS {
        let exec = |arguments: &[&str]| kubectl(&ground, environment, &[&["exec"], arguments].concat());
        let (code, out, why) = said(exec(&["a", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]), b"");
        assert!(code == Some(3) && out == "out\n" && why.starts_with("err\n"), "{way}: {code:?} {out} {why}");
        assert_eq!(said(exec(&["-i", "a", "--", "wc", "-c"]), &bytes).1.trim(), COPIED.to_string(), "{way}");
        let (code, _, why) = said(exec(&["a", "--", "/no/such/program"]), b"");
        assert!(code != Some(0) && why.contains("no such file"), "{way}: {code:?} {why}");
        let (code, _, why) = said(exec(&["a", "-c", "none", "--", "true"]), b"");
        assert!(code == Some(1) && why.contains("none"), "{way}: {why}");

        // A terminal, and a size of it.
        let line = format!(
            "stty rows 33 cols 77; {} --kubeconfig {} -n {} exec -it a -- sh -c 'tty; sleep 1; stty size; exit 5'",
            peers().join("bin/kubectl").display(),
            ground.cluster.path("admin.kubeconfig").display(),
            ground.name
        );
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).envs(environment.iter().copied()).env("SHELL", "/bin/sh");
        let (code, out, why) = said(script, b"");
        assert!(code == Some(5) && out.contains("/dev/pts/") && out.contains("33 77"), "{way}: {code:?} {out} {why}");

        let source = ground.node.path(&format!("source-{way}"));
        let back = ground.node.path(&format!("back-{way}"));
        fs::write(&source, &bytes).expect("a file");
        let copy = |from: &str, to: &str| {
            let (code, _, why) = tell(&ground, environment, &["cp", "--retries=0", from, to]);
            assert_eq!(code, Some(0), "{way}: {why}");
        };
        copy(&source.display().to_string(), "a:/tmp/copied");
        copy("a:/tmp/copied", &back.display().to_string());
        assert!(fs::read(&back).expect("the file") == bytes, "{way}: the bytes differ");
    }
    // What is typed to an attached container comes back from it.
    for (way, environment) in WAYS {
        let mut attach = kubectl(&ground, environment, &["attach", "-i", "reads"]);
        let mut attach = attach.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start kubectl");
        let mut typed = attach.stdin.take().expect("a pipe");
        let mut heard = BufReader::new(attach.stdout.take().expect("a pipe"));
        let mut line = String::new();
        for word in ["hello", "again"] {
            writeln!(typed, "{word} {way}").expect("typed");
            line.clear();
            heard.read_line(&mut line).expect("heard");
            assert_eq!(line, format!("{word} {way}\n"));
        }
        drop((typed, heard));
        drop(attach.kill());
        drop(attach.wait());
    }

    // A container beside it, joined at once.
    let mut debug = kubectl(&ground, &[], &["debug", "a", "--image=docker.io/library/busybox:latest", "-i"]);
    debug.args(["--image-pull-policy=IfNotPresent", "--", "sh", "-c", "sleep 2; echo from beside"]);
    let mut debug = debug.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start kubectl");
    // The end of its input would be the end of the session.
    let typed = debug.stdin.take();
    let mut out = String::new();
    debug.stdout.take().expect("a pipe").read_to_string(&mut out).expect("what it says");
    assert!(out.contains("from beside"), "{out}");
    drop(debug.wait());
    drop(typed);
    drop(agent);
}

/// `kubectl port-forward` with the local port that it took. It ends when nobody hears it any more.
struct Forward {
    process: Child,
    port: u16,
    _heard: BufReader<ChildStdout>,
}

impl Forward {
    fn start(ground: &Ground<'_>, environment: &[(&str, &str)], pod: &str) -> Forward {
        let mut command = kubectl(ground, environment, &["port-forward", "--address=127.0.0.1", pod, ":8080"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("start kubectl");
        let mut line = String::new();
        let mut heard = BufReader::new(child.stdout.take().expect("a pipe"));
        let read = heard.read_line(&mut line);
        let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        read.expect("a line");
        Forward { process: child, port: port.unwrap_or_else(|| panic!("no port: {line}")), _heard: heard }
    }

    fn get(&self, path: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("asked");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("answered");
        answer
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn ports_are_forwarded_under_load() {
    const SIZE: usize = 1 << 20;
    let ground = Ground::serving(Cluster::shared(), Containerd::Two);
    let agent = ground.serve(|_| ());
    let script = format!(
        "mkdir /www; echo hello >/www/small; dd if=/dev/zero of=/www/large bs={SIZE} count=1; httpd -p 8080 -h /www; {WAITS}"
    );
    run(&ground, &pod(&ground, "web", &script, json!({})));
    for (way, environment) in WAYS {
        let forward = Forward::start(&ground, environment, "web");
        std::thread::scope(|scope| {
            for _client in 0..8 {
                scope.spawn(|| {
                    for _request in 0..12 {
                        let small = String::from_utf8(forward.get("/small")).expect("text");
                        assert!(small.ends_with("\r\n\r\nhello\n"), "{way}: {small}");
                    }
                    let large = forward.get("/large");
                    assert!(large.ends_with(&vec![0; SIZE]), "{way}: {} bytes", large.len());
                });
            }
        });
    }
    drop(agent);
}

#[test]
fn the_nodes_own_logs_are_shown_and_queried() {
    let ground = Ground::serving(Cluster::shared(), Containerd::Two);
    let agent = ground.serve(|config| config["enableSystemLogQuery"] = json!(true));
    let raw = |path: &str| {
        let path = format!("/api/v1/nodes/{}/proxy/logs/{path}", ground.name);
        ground.cluster.kubectl(&["get", "--raw", &path])
    };
    let page = raw("").expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.contains("<a href=\""), "{page}");
    let file = fs::read_dir("/var/log")
        .expect("logs")
        .flatten()
        .find(|entry| entry.metadata().is_ok_and(|found| found.is_file() && (1..65536).contains(&found.len())));
    if let Some(name) = file.map(|file| PathBuf::from(file.file_name()).display().to_string()) {
        let there = raw(&name).expect("a file");
        assert!(!there.is_empty());
        assert_eq!(raw(&format!("?query=/{name}")).expect("the same file"), there);
    }
    for (query, expect) in [
        ("?query=/../etc/shadow", "406"),
        ("?query=a&tailLines=-1", "tailLines"),
        ("?query=%24(reboot)", "unsupported characters"),
        ("nothing-of-that-name", "NotFound"),
    ] {
        let why = raw(query).expect_err("a refusal");
        assert!(why.contains(expect) || expect == "406", "{query}: {why}");
    }
    assert!(raw("?query=no-such-service").expect("a text").contains("log not found for no-such-service"));
    drop(agent);
}

#[test]
fn sessions_and_logs_on_the_distributions_containerd() {
    let ground = Ground::serving(Cluster::shared(), Containerd::System);
    let agent = ground.serve(|_| ());
    let script = format!("mkdir /www; echo hello >/www/small; httpd -p 8080 -h /www; echo begun; {WAITS}");
    run(&ground, &pod(&ground, "web", &script, json!({})));
    for (way, environment) in WAYS {
        let (code, out, _) = tell(&ground, environment, &["exec", "web", "--", "sh", "-c", "echo out; exit 3"]);
        assert_eq!((code, out.as_str()), (Some(3), "out\n"), "{way}");
        let counts = kubectl(&ground, environment, &["exec", "-i", "web", "--", "wc", "-c"]);
        assert_eq!(said(counts, &[b'x'; 1 << 20]).1.trim(), (1 << 20).to_string(), "{way}");
        let answer = Forward::start(&ground, environment, "web").get("/small");
        assert!(answer.ends_with(b"hello\n"), "{way}: {}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(tell(&ground, &[], &["logs", "web"]).1, "begun\n");
    drop(agent);
}
