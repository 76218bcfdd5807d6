//! Tests of the local socket: its file, its answers, and clients that mean ill.

use super::*;
use crate::api::{PodName, PodUid};
use crate::server::Check;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::Shutdown;

fn tools(pods: usize) -> LocalTools {
    let pods = (0..pods).map(|n| {
        let uid = PodUid::from(format!("uid-{n:03}"));
        let name = PodName { namespace: "default".to_owned(), name: format!("web-{n:03}") };
        let view = PodView { waits_for: "x".repeat(1000), ..PodView::named(uid.clone(), name) };
        (uid, Arc::new(view))
    });
    let view = NodeView { node: "edge".to_owned(), pods: pods.collect(), ..NodeView::default() };
    LocalTools {
        view: Arc::new(Snapshot::new(view)),
        client: Client::new("unix:///nonexistent/cri.sock", None, Duration::from_secs(1)).expect("an endpoint"),
        checks: Arc::new([Check::ping(), Check::new("pleg", || Err("silent".to_owned()))]),
        stats: Arc::new(Stats::new(crate::server::stats::StatsSources::for_tests())),
    }
}

fn ask(path: &Path, question: &[u8]) -> String {
    let mut client = UnixStream::connect(path).expect("connected");
    // The server may hang up before it has all.
    let _cut = client.write_all(question);
    let mut answer = String::new();
    // A refused flood ends in a reset.
    let _reset = client.read_to_string(&mut answer);
    answer
}

fn start(folder: &tempfile::TempDir, pods: usize) -> (PathBuf, LocalServer) {
    let path = folder.path().join("run").join("f.sock");
    let server = LocalServer::start(&path, tools(pods)).expect("started");
    (path, server)
}

#[test]
fn answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, _server) = start(&folder, 2);
    let check = |question: &str, expect: &[&str]| {
        let answer = ask(&path, question.as_bytes());
        let lines: Vec<&str> = answer.lines().collect();
        assert_eq!(lines.len(), expect.len(), "{answer}");
        for (line, start) in lines.iter().zip(expect) {
            assert!(line.starts_with(start), "{line} does not start with {start}");
        }
    };
    let node = r#"{"node":{"name":"edge","runtimeDown":"","silentSources":[],"problems":[]}}"#;
    let pod = |n: u8| format!(r#"{{"pod":{{"uid":"uid-00{n}","namespace":"default","name":"web-00{n}""#);
    check("{\"pods\":{}}\n", &[node, &pod(0), &pod(1), r#"{"end":{}}"#]);
    check("{\"pod\":{\"pod\":\"web-001\"}}\n", &[node, &pod(1), r#"{"end":{}}"#]);
    check(
        "{\"pod\":{\"pod\":\"web\"}}\n",
        &[r#"{"error":{"kind":"ambiguous","message":"\"web\" may be any of: default/web-000"#],
    );
    check("{\"top\":{}}\n", &[r#"{"top":{"name":"n1","cpus":0,"memoryCapacity":0,"pods":[]}}"#]);
    check("{\"health\":{}}\n", &[r#"{"health":[{"name":"ping","problem":""},{"name":"pleg","problem":"silent"}]}"#]);
    check(
        "{\"execSync\":{\"pod\":\"web-001\"}}\n",
        &[r#"{"error":{"kind":"badRequest","message":"no command was given"}}"#],
    );
    check(
        "{\"execStream\":{\"pod\":\"web-001\",\"command\":[\"ls\"]}}\n",
        &[r#"{"error":{"kind":"notFound","message":"pod web-001 has no containers that are known"}}"#],
    );
}

#[test]
fn garbage_is_told_so_and_costs_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, _server) = start(&folder, 1);
    let deep = "[".repeat(100_000) + "\n";
    let refused = r#"{"error":{"kind":"badRequest","message":"not a question that is understood: "#;
    for garbage in [&b"\n"[..], b"hello\n", b"{\"reboot\":{}}\n", b"\xff\xfe\x00\n", b"{\"pods\":7}\n", deep.as_bytes()]
    {
        let answer = ask(&path, garbage);
        assert!(answer.starts_with(refused), "{answer}");
    }
    // A line without an end: cut at the limit. The rest was not read, so the answer may be lost in a reset.
    let answer = ask(&path, &vec![b' '; REQUEST_LIMIT + 100_000]);
    assert!(answer.is_empty() || answer.contains("a question is one line of JSON"), "{answer}");
    assert!(ask(&path, b"{\"pods\":{}}\n").ends_with("{\"end\":{}}\n"));
}

#[test]
fn half_a_question_is_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, _server) = start(&folder, 1);
    let mut client = UnixStream::connect(&path).expect("connected");
    client.write_all(b"{\"pods\"").expect("asked");
    client.shutdown(Shutdown::Write).expect("half closed");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("answered");
    assert!(answer.contains("a question is one line of JSON"), "{answer}");
}

#[test]
fn a_hundred_clients_share_a_few_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, server) = start(&folder, 3);
    let mut clients: Vec<_> = (0..100).map(|_| UnixStream::connect(&path).expect("connected")).collect();
    let threads = std::fs::read_dir("/proc/self/task").expect("procfs").filter_map(Result::ok);
    let names = threads.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    // Other tests of this process have servers of their own.
    let ours = names.filter(|name| name.trim() == "local-conn").count();
    assert!(ours <= 5 * CONNECTIONS, "{ours} connection threads");
    // Those that were taken first must speak before the others get their turn.
    for client in &mut clients {
        client.write_all(b"{\"pods\":{}}\n").expect("asked");
    }
    for client in clients {
        let last = BufReader::new(client).lines().map_while(Result::ok).last();
        assert_eq!(last.as_deref(), Some("{\"end\":{}}"));
    }
    drop(server);
}

#[test]
fn a_client_that_does_not_read_delays_no_other_and_no_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    // More than the kernel buffers for one connection.
    let (path, server) = start(&folder, 1000);
    let mut slow = UnixStream::connect(&path).expect("connected");
    slow.write_all(b"{\"pods\":{}}\n").expect("asked");
    assert!(ask(&path, b"{\"pods\":{}}\n").ends_with("{\"end\":{}}\n"));
    drop(server);
    let mut got = String::new();
    let _reset = slow.read_to_string(&mut got);
    assert!(!got.ends_with("{\"end\":{}}\n"), "it was cut off and shows it");
}

#[test]
fn the_file_is_private_and_goes_with_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, server) = start(&folder, 1);
    let mode = |path: &Path| fs::symlink_metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().expect("a folder")), 0o700);
    assert!(is_allowed(0) && is_allowed(nix::unistd::geteuid().as_raw()) && !is_allowed(65_534));
    drop(server);
    assert!(!path.exists());
}

#[test]
fn what_a_dead_agent_left_is_replaced_and_the_living_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("f.sock");
    drop(UnixListener::bind(&path).expect("bound"));
    drop(UnixListener::bind(path.with_extension("new")).expect("bound"));
    let server = LocalServer::start(&path, tools(1)).expect("replaced");
    let error = LocalServer::start(&path, tools(1)).expect_err("taken");
    assert!(error.to_string().ends_with("another ferrolet listens there"), "{error}");
    assert!(ask(&path, b"{\"pods\":{}}\n").ends_with("{\"end\":{}}\n"));
    // A successor's file is not ours to remove.
    fs::remove_file(&path).expect("removed");
    let successor = LocalServer::start(&path, tools(2)).expect("started");
    drop(server);
    assert!(path.exists());
    drop(successor);

    fs::write(&path, "precious").expect("written");
    let error = LocalServer::start(&path, tools(1)).expect_err("no socket");
    assert!(error.to_string().contains("the path is taken by what is no socket"), "{error}");
    assert_eq!(fs::read(&path).expect("still there"), b"precious");
    let long = folder.path().join("x".repeat(120)).join("f.sock");
    let error = LocalServer::start(&long, tools(1)).expect_err("too long");
    assert!(error.to_string().contains("SUN_LEN"), "{error}");
}
