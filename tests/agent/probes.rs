//! Probes, whole: what a fake runtime and a small server answer decides what becomes of a container.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
};

use serde_json::{Value, json};

use crate::{
    agent::{Place, SOON, lives, manifest, start},
    fakes::cri::FakeCri,
    harness::{Agent, view::story, wait},
};

/// Commands that fail: a probe is one word here.
type Failing = Arc<Mutex<BTreeSet<String>>>;

/// A runtime in which commands succeed unless their first word is among those that fail.
fn runtime() -> (FakeCri, Failing) {
    let fake = FakeCri::start();
    fake.add_image("busybox");
    let failing = Failing::default();
    let theirs = Arc::clone(&failing);
    fake.on_exec(move |_, command| {
        let fails = command.first().is_some_and(|word| theirs.lock().expect("nobody panicked").contains(word));
        (b"said ".to_vec(), b"so".to_vec(), i32::from(fails))
    });
    (fake, failing)
}

fn fail(failing: &Failing, words: &[&str]) {
    *failing.lock().expect("nobody panicked") = words.iter().map(|word| (*word).to_owned()).collect();
}

fn command(word: &str, more: Value) -> Value {
    let mut probe = json!({ "exec": { "command": [word] }, "periodSeconds": 1 });
    probe.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    probe
}

fn status(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|c| c["type"] == kind).map_or(&Value::Null, |c| &c["status"])
}

#[track_caller]
fn wait_ready(agent: &Agent<'_>, name: &str, ready: bool) -> Value {
    let word = if ready { "True" } else { "False" };
    agent.wait_pod(name, &format!("ready is {ready}"), SOON, |pod| {
        let all = [condition(pod, "Ready"), condition(pod, "ContainersReady")].iter().all(|c| **c == word);
        (status(pod)["ready"] == ready && all).then(|| pod.clone())
    })
}

#[track_caller]
fn wait_event(agent: &Agent<'_>, name: &str, reason: &str, message: &str) {
    agent.wait_pod(name, &format!("event {reason} {message:?}"), SOON, |pod| {
        let mut events = pod["events"].as_array().into_iter().flatten();
        events.any(|event| event["reason"] == reason && event["message"] == message).then_some(())
    });
}

#[test]
fn a_container_is_ready_and_lives_as_its_commands_say() {
    let (fake, failing) = runtime();
    fail(&failing, &["ready"]);
    let place = Place::beside(&fake);
    let agent = start(&place);
    let mut pod = manifest("web");
    let container = &mut pod["spec"]["containers"][0];
    container["readinessProbe"] = command("ready", json!({ "failureThreshold": 2 }));
    container["livenessProbe"] = command("alive", json!({ "failureThreshold": 2 }));
    agent.put_manifest("web.yaml", &pod.to_string());

    wait_event(&agent, "web", "Unhealthy", "Readiness probe failed: said so");
    wait_ready(&agent, "web", false);
    fail(&failing, &[]);
    wait_ready(&agent, "web", true);
    fail(&failing, &["ready"]);
    wait_ready(&agent, "web", false);
    fail(&failing, &[]);
    let before = wait_ready(&agent, "web", true);

    fail(&failing, &["alive"]);
    wait_event(&agent, "web", "Killing", "Container app failed liveness probe, will be restarted");
    fail(&failing, &[]);
    let after = agent.wait_pod("web", "a restart", SOON, |pod| {
        (status(pod)["restartCount"] == 1 && status(pod)["ready"] == true).then(|| pod.clone())
    });
    assert_ne!(status(&before)["containerID"], status(&after)["containerID"]);
}

#[test]
fn a_container_that_never_restarts_stays_down() {
    let (fake, failing) = runtime();
    fail(&failing, &["alive"]);
    let place = Place::beside(&fake);
    let agent = start(&place);
    let mut pod = manifest("web");
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["livenessProbe"] = command("alive", json!({}));
    agent.put_manifest("web.yaml", &pod.to_string());
    wait_event(&agent, "web", "Killing", "Stopping container app");
    agent.wait_pod("web", "its end", SOON, |pod| (pod["status"]["phase"] == "Failed").then_some(()));
    assert_eq!(lives(&fake, "web").len(), 1, "one instance and no other");
}

#[test]
fn a_container_stays_ready_while_the_agent_is_killed() {
    let (fake, failing) = runtime();
    let place = Place::beside(&fake);
    let agent = start(&place);
    let mut pod = manifest("web");
    let container = &mut pod["spec"]["containers"][0];
    container["readinessProbe"] = command("ready", json!({ "failureThreshold": 100_000 }));
    container["startupProbe"] = command("begun", json!({ "failureThreshold": 100_000 }));
    agent.put_manifest("web.yaml", &pod.to_string());
    wait_ready(&agent, "web", true);
    let before = lives(&fake, "web");
    // From now on no probe says that it is ready, or that it has begun: only memory does.
    fail(&failing, &["ready", "begun"]);
    wait_event(&agent, "web", "Unhealthy", "Readiness probe failed: said so");
    agent.kill();
    let agent = start(&place);
    wait_event(&agent, "web", "Unhealthy", "Readiness probe failed: said so");
    let pod = agent.pod("web").expect("the pod is known");
    assert_eq!((&status(&pod)["ready"], &status(&pod)["started"]), (&json!(true), &json!(true)), "{pod}");
    assert_eq!(lives(&fake, "web"), before);
}

/// A server that answers with a status, as often as it is asked.
struct Server {
    port: u16,
    status: Arc<AtomicU16>,
    asked: Arc<Mutex<Vec<String>>>,
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (status, asked) = (Arc::new(AtomicU16::new(status)), Arc::new(Mutex::new(Vec::new())));
        let ends = Arc::new(AtomicBool::new(false));
        let thread = {
            let (status, asked, ends) = (Arc::clone(&status), Arc::clone(&asked), Arc::clone(&ends));
            std::thread::spawn(move || {
                for peer in listener.incoming() {
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                    let mut peer = peer.expect("a client");
                    let mut heard = [0; 4096];
                    // A tcpSocket probe breaks off without a word.
                    let Ok(read) = peer.read(&mut heard) else { continue };
                    asked.lock().expect("nobody panicked").push(String::from_utf8_lossy(&heard[..read]).into_owned());
                    let answer = format!("HTTP/1.1 {} X\r\nConnection: close\r\n\r\n", status.load(Ordering::SeqCst));
                    let _gone = peer.write_all(answer.as_bytes());
                }
            })
        };
        Self { port, status, asked, ends, thread: Some(thread) }
    }

    fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let _wakes = std::net::TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

#[test]
fn a_sidecar_holds_the_app_back_until_its_startup_probe_passes() {
    let (fake, _failing) = runtime();
    let server = Server::start(503);
    let place = Place::beside(&fake);
    let agent = start(&place);
    let mut pod = manifest("web");
    let header = json!([{ "name": "X-It", "value": "is me" }]);
    pod["spec"]["initContainers"] = json!([{
        "name": "side", "image": "busybox", "imagePullPolicy": "IfNotPresent", "restartPolicy": "Always",
        "ports": [{ "name": "health", "containerPort": server.port }],
        "startupProbe": {
            "httpGet": { "host": "127.0.0.1", "port": "health", "path": "/begun?yet", "httpHeaders": header },
            "periodSeconds": 1, "failureThreshold": 1000,
        },
    }]);
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({ "tcpSocket": { "host": "127.0.0.1", "port": server.port }, "periodSeconds": 1 });
    agent.put_manifest("web.yaml", &pod.to_string());
    wait_event(&agent, "web", "Unhealthy", "Startup probe failed: HTTP probe failed with statuscode: 503");
    let pod = agent.pod("web").expect("the pod is known");
    assert_eq!(pod["waitsFor"], "waits for sidecar side to pass its startup probe");
    assert_eq!(pod["status"]["initContainerStatuses"][0]["started"], false);
    let asked = server.asked.lock().expect("nobody panicked").first().cloned().expect("a request");
    let host = format!("Host: 127.0.0.1:{}", server.port);
    for line in ["GET /begun?yet HTTP/1.1", &host, "X-It: is me", "User-Agent: kube-probe/1.36"] {
        assert!(asked.lines().any(|l| l == line), "no {line:?} in {asked:?}");
    }
    server.answer(200);
    wait_ready(&agent, "web", true);
}

#[test]
fn a_redirect_to_nowhere_is_a_warning_and_a_startup_that_fails_a_restart() {
    let (fake, failing) = runtime();
    let server = Server::start(302);
    let place = Place::beside(&fake);
    let agent = start(&place);
    let mut pod = manifest("web");
    let container = &mut pod["spec"]["containers"][0];
    container["startupProbe"] = command("begun", json!({ "failureThreshold": 2 }));
    container["readinessProbe"] =
        json!({ "httpGet": { "host": "127.0.0.1", "port": server.port }, "periodSeconds": 1 });
    fail(&failing, &["begun"]);
    agent.put_manifest("web.yaml", &pod.to_string());
    wait_event(&agent, "web", "Killing", "Container app failed startup probe, will be restarted");
    fail(&failing, &[]);
    wait_event(&agent, "web", "ProbeWarning", "Readiness probe warning: Probe terminated redirects, Response body: ");
    wait_ready(&agent, "web", true);
}

/// Threads of an agent whose names begin like this.
fn threads(agent: &Agent<'_>, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", agent.pid())).expect("the agent lives");
    let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|comm| comm.starts_with(name)).count()
}

/// Sockets of this machine that wait for their minute after a connection to this port.
fn waiting_sockets(port: u16) -> usize {
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("procfs");
    let peer = format!(":{port:04X}");
    let fields = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields.len() > 3 && fields[2].ends_with(&peer) && fields[3] == "06").count()
}

#[test]
fn a_hook_over_https_that_is_answered_in_the_clear_is_called_once_more_without_its_secret() {
    let (fake, _failing) = runtime();
    let server = Server::start(200);
    let place = Place::beside(&fake);
    let agent = start(&place);
    let mut pod = manifest("web");
    let headers = json!([{ "name": "Authorization", "value": "secret" }, { "name": "X-Kept", "value": "kept" }]);
    let get =
        json!({ "host": "127.0.0.1", "port": server.port, "path": "/hook", "scheme": "HTTPS", "httpHeaders": headers });
    pod["spec"]["containers"][0]["lifecycle"] = json!({ "postStart": { "httpGet": get } });
    agent.put_manifest("web.yaml", &pod.to_string());
    let text = format!(
        "request to HTTPS lifecycle hook 127.0.0.1:{} got HTTP response, retry with HTTP succeeded",
        server.port
    );
    wait_event(&agent, "web", "LifecycleHTTPFallback", &text);
    wait_ready(&agent, "web", true);
    let asked = server.asked.lock().expect("nobody panicked").clone();
    let plain: Vec<&String> = asked.iter().filter(|request| request.starts_with("GET /hook ")).collect();
    assert!(asked.len() == 2 && plain.len() == 1, "once with TLS and once without: {asked:?}");
    assert!(plain[0].to_lowercase().contains("x-kept: kept") && !plain[0].contains("secret"), "{}", plain[0]);
}

/// Requests of probes by their path.
fn attempts(server: &Server) -> BTreeMap<String, usize> {
    let mut attempts = BTreeMap::new();
    for request in server.asked.lock().expect("nobody panicked").iter() {
        if let Some(path) = request.strip_prefix("GET ").and_then(|rest| rest.split_whitespace().next()) {
            *attempts.entry(path.to_owned()).or_default() += 1;
        }
    }
    attempts
}

fn count(attempts: &BTreeMap<String, usize>, pod: usize) -> usize {
    attempts.get(&format!("/p{pod}")).copied().unwrap_or_default()
}

#[test]
fn a_hundred_pods_are_probed_each_second_and_none_fails() {
    const PODS: usize = 100;
    let (fake, _failing) = runtime();
    let server = Server::start(200);
    let place = Place::beside(&fake);
    let agent = start(&place);
    for number in 0..PODS {
        let mut pod = manifest(&format!("p{number}"));
        let container = &mut pod["spec"]["containers"][0];
        let at = json!({ "host": "127.0.0.1", "port": server.port });
        let get = json!({ "host": "127.0.0.1", "port": server.port, "path": format!("/p{number}") });
        container["readinessProbe"] = json!({ "httpGet": get, "periodSeconds": 1, "timeoutSeconds": 30 });
        container["livenessProbe"] =
            json!({ "tcpSocket": at, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 1 });
        container["startupProbe"] = command("begun", json!({ "timeoutSeconds": 30 }));
        agent.put_manifest(&format!("p{number}.yaml"), &pod.to_string());
    }
    let all_well = || -> Result<(), String> {
        let pods = agent.pods()?;
        let is_well = |pod: &Value| {
            let mut events = pod["events"].as_array().into_iter().flatten();
            status(pod)["ready"] == true && !events.any(|event| event["reason"] == "Unhealthy")
        };
        let sick: Vec<String> = pods.iter().filter(|pod| !is_well(pod)).map(story).collect();
        if pods.len() == PODS && sick.is_empty() { Ok(()) } else { Err(format!("{} pods, {sick:#?}", pods.len())) }
    };
    wait::until("a hundred ready pods", 3 * SOON, all_well);
    let began = std::time::Instant::now();
    let first = attempts(&server);
    // No time is asked for, which a busy machine would not keep: all go on, nobody is passed over while others have
    // their turn again and again, and nobody is probed more often than each second.
    wait::until("five more attempts for each pod", 3 * SOON, || {
        all_well()?;
        let now = attempts(&server);
        let more = |number: usize| count(&now, number) - count(&first, number);
        let (least, most) =
            (0..PODS).map(more).fold((usize::MAX, 0), |(least, most), count| (least.min(count), most.max(count)));
        let seconds = began.elapsed().as_secs() as usize;
        assert!(most <= 2 * (least + 2), "one was probed {most} times while another was {least} times");
        assert!(most <= seconds + 2, "one was probed {most} times in {seconds} s");
        if least >= 5 { Ok(()) } else { Err(format!("{least} to {most} attempts")) }
    });
    let (net, exec) = (threads(&agent, "probe-net"), threads(&agent, "probe-exec"));
    assert!((1..=64).contains(&net) && exec <= 32, "{net} and {exec} threads");
    assert_eq!(waiting_sockets(server.port), 0);
}
