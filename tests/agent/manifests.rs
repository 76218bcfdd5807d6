//! Manifests that are bad, hostile or far too many, on the real program: each is told in plain words, and costs no other pod.
//!
//! What a real node makes of the same files, containers and all, is in `real::manifests`.

use std::fs;

use serde_json::Value;

use crate::{
    agent::{SOON, ground, lives, manifest, run, start, wait_healthy, wait_running, wait_says},
    harness::wait,
};

/// A bad file's name, its content, and what is told of it.
fn bad_files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut pod = manifest("never");
        change(&mut pod);
        pod.to_string().into_bytes()
    };
    let good = manifest("never").to_string();
    let mut huge = good.clone().into_bytes();
    huge.resize(10 << 20, b' ');
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let parts = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb += &format!("a{i}: &a{i} [{parts}]\n");
    }
    let block_deep: String = (0..500).map(|depth| format!("{}k:\n", " ".repeat(depth))).collect();
    let cut = &good[..good.len() / 2];
    vec![
        ("cut.yaml", cut.into(), "not readable as YAML or JSON"),
        ("empty.yaml", Vec::new(), "the manifest is empty"),
        ("huge.yaml", huge, "has more than the 4194304 bytes that are read of a manifest"),
        ("bomb.yaml", bomb.into(), "repetition limit exceeded"),
        ("flow-deep.yaml", "[".repeat(100_000).into(), "64"),
        ("block-deep.yaml", block_deep.into(), "64"),
        ("latin.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: {name: \xe4}\n".to_vec(), "line 3 is not UTF-8 text"),
        ("nul.yaml", b"apiVersion: v1\0\nkind: Pod\n".to_vec(), "not readable as YAML or JSON"),
        ("list.yaml", b"- 1\n".to_vec(), "the manifest must be an object"),
        ("kind.yaml", with(&|pod| pod["kind"] = "Service".into()), "kind is \"Service\", expected Pod"),
        ("type.yaml", with(&|pod| pod["spec"]["containers"] = 3.into()), "spec.containers"),
        ("name.yaml", with(&|pod| pod["metadata"]["name"] = "../up".into()), "metadata.name"),
    ]
}

#[test]
fn each_bad_manifest_is_told_in_plain_words() {
    let (fake, place) = ground();
    let agent = start(&place);
    run(&agent, "steady");
    let before = lives(&fake, "steady");
    let folder = agent.manifests();
    let files = bad_files();
    for (name, content, _) in &files {
        fs::write(folder.join(name), content).expect("write a bad file");
    }
    fs::create_dir(folder.join("folder.yaml")).expect("make a folder");
    nix::unistd::mkfifo(&folder.join("fifo.yaml"), nix::sys::stat::Mode::S_IRWXU).expect("make a fifo");
    std::os::unix::fs::symlink("loop-b.yaml", folder.join("loop-a.yaml")).expect("make a loop");
    std::os::unix::fs::symlink("loop-a.yaml", folder.join("loop-b.yaml")).expect("make a loop");
    let others = [
        ("folder.yaml", "is a folder, not a file"),
        ("fifo.yaml", "is a fifo, not a file"),
        ("loop-a.yaml", "Too many levels of symbolic links"),
        ("loop-b.yaml", "Too many levels of symbolic links"),
    ];
    // These are told of and run all the same.
    let two = "apiVersion: v1\nkind: Pod\nmetadata: {name: two}\nspec: {containers: [{name: app, image: busybox, \
        imagePullPolicy: Never}]}\n---\nkind: Pod\n";
    agent.put_manifest("two.yaml", two);
    let twice = manifest("twice").to_string().replacen("\"kind\":\"Pod\"", "\"kind\":\"Service\",\"kind\":\"Pod\"", 1);
    agent.put_manifest("twice.yaml", &twice);
    let mut strange = manifest("strange");
    strange["spec"]["flavour"] = "vanilla".into();
    agent.put_manifest("strange.yaml", &strange.to_string());
    wait_running(&agent, "two");
    wait_running(&agent, "twice");
    wait_running(&agent, "strange");

    let all = files.iter().map(|(name, _, words)| (*name, *words)).chain(others);
    let used = [
        ("two.yaml", "only the first document is read: write each pod to a file of its own"),
        ("twice.yaml", "kind: written twice, the last one counts"),
        ("strange.yaml", "spec.flavour: unknown field"),
    ];
    for (name, words) in all.chain(used) {
        wait::until(&format!("{words:?} of {name}"), SOON, || match agent.problem_of(name)? {
            problem if problem.contains(words) => Ok(()),
            problem => Err(problem),
        });
        wait_says(&agent, &["ps"], name);
    }
    assert_eq!(agent.pods().expect("an answer").len(), 4);
    assert_eq!(lives(&fake, "steady"), before);
    wait_healthy(&agent);
}

#[test]
fn a_thousand_manifests_fill_the_node_and_the_rest_is_told() {
    let (fake, place) = ground();
    let agent = start(&place);
    let folder = agent.manifests();
    for number in 0..1000 {
        let name = format!("pod-{number:04}");
        fs::write(folder.join(format!("{name}.yaml")), manifest(&name).to_string()).expect("write a manifest");
    }
    wait::until("a full node", SOON, || {
        let pods = agent.pods()?;
        let running = pods.iter().filter(|pod| crate::harness::view::is_running(pod)).count();
        // Static pods are critical: it is told that nobody can make room for them, and not only that there is none.
        let refused = pods.iter().filter(|pod| pod["status"]["reason"] == "UnexpectedAdmissionError").count();
        if (running, refused) == (110, 890) { Ok(()) } else { Err(format!("{running} run, {refused} are refused")) }
    });
    assert_eq!(fake.containers().len(), 110);
    wait_healthy(&agent);
    wait_says(&agent, &["ps"], "UnexpectedAdmissionError");
    // A place that becomes free is not given to one that was refused, as a kubelet has it; the others stay as they are.
    let gone = agent
        .pods()
        .expect("an answer")
        .iter()
        .find(|pod| crate::harness::view::is_running(pod))
        .map(|pod| pod["name"].clone());
    let gone =
        gone.and_then(|name| name.as_str().map(|name| name.trim_end_matches("-node").to_owned())).expect("a name");
    agent.remove_manifest(&format!("{gone}.yaml"));
    super::wait_gone(&agent, &fake, &gone);
    assert_eq!(fake.containers().len(), 109);
}
