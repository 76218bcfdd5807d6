//! The folder of manifests on a live node: edits, removals, half-written files, and files that no pod can come of.
//!
//! An edit ends the old pod before the new one begins; whatever is wrong with one file costs no other pod.

use std::{fs, io::Write, os::unix::ffi::OsStrExt, time::Duration};

use serde_json::{Value, json};

use super::lab::{Lab, SOON, is_running, pod, shell, until_term, with_shared};
use crate::harness::{Containerd, Node, wait};

/// A pod that writes down when it starts and, a moment after SIGTERM, when it ends.
fn diary(lab: &Lab<'_>, name: &str, version: u32) -> Value {
    let line = |what: &str| format!("echo {what} {version} >>/shared/{name};");
    let script = until_term(&line("starts"), &format!("sleep 0.5; {}", line("ends")));
    with_shared(lab, pod(name, &[shell("app", &script, json!({}))], json!({ "terminationGracePeriodSeconds": 20 })))
}

fn wait_lines(lab: &Lab<'_>, file: &str, expect: &[&str]) {
    wait::until(&format!("the lines {expect:?}"), SOON, || {
        let lines = lab.lines(file);
        if lines == expect { Ok(()) } else { Err(format!("{lines:?}")) }
    });
}

fn edits_and_removals(lab: &Lab<'_>) {
    lab.put(&diary(lab, "edited", 1));
    wait_lines(lab, "edited", &["starts 1"]);
    let first = lab.wait_running("edited");

    // The same content again is no edit.
    lab.put(&diary(lab, "edited", 1));
    lab.put(&diary(lab, "edited", 2));
    wait_lines(lab, "edited", &["starts 1", "ends 1", "starts 2"]);
    let second = lab.wait_pod("edited", "the second version", |pod| {
        (pod["uid"] != first["uid"] && is_running(pod)).then(|| pod.clone())
    });
    lab.wait_no_leftovers(first["uid"].as_str().expect("a uid"));

    // Edits that overtake one another: the last one counts, and no two versions ever run at once.
    for version in 3..6 {
        lab.put(&diary(lab, "edited", version));
    }
    wait::until("the fifth version", SOON, || {
        let lines = lab.lines("edited");
        if lines.last().is_some_and(|line| line == "starts 5") { Ok(()) } else { Err(format!("{lines:?}")) }
    });
    let lines = lab.lines("edited");
    for pair in lines.windows(2) {
        let same = |a: &str, b: &str| a.strip_prefix("starts").is_some_and(|v| b.strip_prefix("ends") == Some(v));
        let in_turn = same(&pair[0], &pair[1]) || (pair[0].starts_with("ends") && pair[1].starts_with("starts"));
        assert!(in_turn, "two versions at once: {lines:?}");
    }

    // A removal while the pod starts.
    lab.put(&diary(lab, "brief", 1));
    wait::until("the agent's knowledge of it", SOON, || lab.pod("brief").map(|_| ()));
    lab.remove("brief");
    lab.wait_gone("brief");

    // A new file of another name with the pod of the old one takes its place.
    lab.remove("edited");
    lab.wait_gone("edited");
    lab.wait_no_leftovers(second["uid"].as_str().expect("a uid"));
}

/// A file that is written in two halves, at first as a new pod, then over a pod that runs.
fn half_written(lab: &Lab<'_>) {
    let path = lab.node.path("manifests/slow.yaml");
    for version in 1..3 {
        let text = diary(lab, "slow", version).to_string();
        let (first, second) = text.split_at(text.len() / 2);
        if version == 2 {
            // The view may be behind what the container writes.
            lab.wait_running("slow");
        }
        let mut file = fs::File::create(&path).expect("make the manifest");
        file.write_all(first.as_bytes()).expect("write half of it");
        drop(file);
        wait::until("word of the half-written file", SOON, || match lab.problem_of("slow.yaml")? {
            problem if problem.is_empty() => Err("nothing is wrong".to_owned()),
            _ => Ok(()),
        });
        if version == 2 {
            assert!(is_running(&lab.pod("slow").expect("the first version")), "the pod goes on");
        }
        let mut file = fs::File::options().append(true).open(&path).expect("open the manifest");
        file.write_all(second.as_bytes()).expect("write the rest");
        drop(file);
        let last = format!("starts {version}");
        wait::until("the whole file's pod", SOON, || {
            let lines = lab.lines("slow");
            if lines.last() == Some(&last) { Ok(()) } else { Err(format!("{lines:?}")) }
        });
        wait::until("no word of it any more", SOON, || match lab.problem_of("slow.yaml")? {
            problem if problem.is_empty() => Ok(()),
            problem => Err(problem),
        });
    }
    assert_eq!(lab.lines("slow"), ["starts 1", "ends 1", "starts 2"]);
}

/// Puts files into the folder that no pod can come of, and tells their names.
fn put_bad_files(lab: &Lab<'_>) -> Vec<String> {
    let folder = lab.node.path("manifests");
    let good = diary(lab, "never", 1).to_string();
    let mut huge = good.clone().into_bytes();
    huge.resize(10 << 20, b' ');
    let with = |change: &dyn Fn(&mut Value)| {
        let mut pod = diary(lab, "never", 1);
        change(&mut pod);
        pod.to_string().into_bytes()
    };
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("truncated.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: {name: never\nspec:".to_vec()),
        ("empty.yaml", Vec::new()),
        ("binary.yaml", (0..=255u8).cycle().take(4096).collect()),
        ("latin.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: {name: \xe4}\n".to_vec()),
        ("huge.yaml", huge),
        ("bomb.yaml", b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n".to_vec()),
        ("deep.yaml", "[".repeat(100_000).into_bytes()),
        ("list.yaml", b"- 1\n- 2\n".to_vec()),
        ("service.yaml", with(&|pod| pod["kind"] = json!("Service"))),
        ("nameless.yaml", with(&|pod| pod["metadata"] = json!({}))),
        ("no-image.yaml", with(&|pod| pod["spec"]["containers"][0]["image"] = Value::Null)),
        ("wrong-type.yaml", with(&|pod| pod["spec"]["containers"] = json!("three"))),
        ("bad-name.yaml", with(&|pod| pod["metadata"]["name"] = json!("Not A Name/.."))),
    ];
    let mut names = Vec::new();
    for (name, content) in files {
        fs::write(folder.join(name), content).expect("write a bad file");
        names.push(name.to_owned());
    }
    fs::create_dir(folder.join("folder.yaml")).expect("make a folder");
    nix::unistd::mkfifo(&folder.join("fifo.yaml"), nix::sys::stat::Mode::S_IRWXU).expect("make a fifo");
    std::os::unix::fs::symlink("loop.yaml", folder.join("loop.yaml")).expect("make a loop");
    std::os::unix::fs::symlink("nowhere", folder.join("nowhere.yaml")).expect("make a dead link");
    names.extend(["folder.yaml", "fifo.yaml", "loop.yaml", "nowhere.yaml"].map(str::to_owned));
    fs::write(folder.join(std::ffi::OsStr::from_bytes(b"\xff\xfe.yaml")), good)
        .expect("write a file of a strange name");
    names
}

fn bad_files_cost_no_other_pod(lab: &Lab<'_>) {
    lab.put(&diary(lab, "steady", 1));
    lab.wait_running("steady");
    let before = lab.identities("steady").expect("the runtime lists");
    let names = put_bad_files(lab);
    // A second manifest of one pod, and one with a field that does not exist.
    lab.agent.put_manifest("zz-again.yaml", &diary(lab, "steady", 2).to_string());
    let mut strange = diary(lab, "strange", 1);
    strange["spec"]["flavour"] = json!("vanilla");
    lab.put(&strange);
    lab.put(&diary(lab, "after", 1));

    lab.wait_running("after");
    lab.wait_running("strange");
    // The file of the strange name holds a pod like any other.
    lab.wait_running("never");
    for name in &names {
        wait::until(&format!("word of {name}"), SOON, || match lab.problem_of(name)? {
            problem if problem.is_empty() => Err("nothing is wrong".to_owned()),
            _ => Ok(()),
        });
    }
    for (name, part) in [("zz-again.yaml", "steady.yaml"), ("strange.yaml", "flavour"), ("huge.yaml", "bytes")] {
        let problem = lab.problem_of(name).expect("the agent answers");
        assert!(problem.contains(part), "{name}: {problem}");
    }
    let mut pods: Vec<String> =
        lab.pods().expect("the agent answers").iter().map(|pod| pod["name"].to_string()).collect();
    pods.sort();
    assert_eq!(pods, ["\"after-node\"", "\"never-node\"", "\"slow-node\"", "\"steady-node\"", "\"strange-node\""]);
    wait::holds("the steady pod", Duration::from_secs(1), || {
        let now = lab.identities("steady")?;
        if now == before { Ok(()) } else { Err(format!("it was {before:?} and is {now:?}")) }
    });
    assert_eq!(lab.lines("steady"), ["starts 1"]);
    assert_eq!(lab.agent.healthz().expect("an answer").0, 200);
}

#[test]
fn manifests_are_followed_whatever_lies_beside_them() {
    let node = Node::start(Containerd::Two);
    let lab = Lab::start(&node);
    edits_and_removals(&lab);
    half_written(&lab);
    bad_files_cost_no_other_pod(&lab);
}
