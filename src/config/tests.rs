//! Loading as a whole: files, drop-ins, flags, their precedence, bad input, and the sample in etc/.

use super::*;
use serde_json::json;
use std::path::{Path, PathBuf};

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// A folder with files; `{}` in arguments stands for it.
struct Node {
    folder: tempfile::TempDir,
}

impl Node {
    fn new(files: &[(&str, &str)]) -> Self {
        let node = Node { folder: tempfile::tempdir().unwrap() };
        for (name, text) in files {
            let path = node.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{HEAD}{text}")).unwrap();
        }
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn load(&self, args: &[&str]) -> Result<Loaded, LoadError> {
        let folder = self.folder.path().display().to_string();
        load(args.iter().map(|arg| OsString::from(arg.replace("{}", &folder))))
    }

    /// Loads without a problem; each path then has its value.
    fn check(&self, args: &[&str], expect: &[(&str, Value)]) -> Loaded {
        let loaded = self.load(args).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        let map = print::to_map(&loaded.config);
        for (path, value) in expect {
            assert_eq!(defaults::get(&map, path).unwrap_or(&Value::Null), value, "{path} with {args:?}");
        }
        loaded
    }

    /// Fails to load; each problem contains its part, in order.
    fn check_problems(&self, args: &[&str], expect: &[&str]) {
        let Err(error) = self.load(args) else { panic!("{args:?}: loaded, expected {expect:?}") };
        let problems: Vec<_> = error.problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), expect.len(), "{args:?}: {problems:#?}");
        for (problem, part) in problems.iter().zip(expect) {
            assert!(problem.contains(part), "{args:?}: {problem} does not say {part:?}");
        }
    }

    /// Loads a file with this text; each warning contains its part, in order.
    fn check_warnings(text: &str, expect: &[&str]) {
        let node = Node::new(&[("k.yaml", text)]);
        let loaded = node.load(&["--config={}/k.yaml"]).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(loaded.warnings.len(), expect.len(), "{text}: {:#?}", loaded.warnings);
        for (warning, part) in loaded.warnings.iter().zip(expect) {
            assert!(warning.contains(part), "{text}: {warning} does not say {part:?}");
        }
    }
}

#[test]
fn flags_win_over_drop_ins_over_the_file_over_defaults() {
    let node = Node::new(&[
        ("k.yaml", "maxPods: 10\nregistryBurst: 11\nhealthzPort: 12\nfeatureGates: {MemoryQoS: true, EnvFiles: false}"),
        ("k.d/10-a.conf", "registryBurst: 21\nhealthzPort: 22\nfeatureGates: {EnvFiles: true}"),
        ("k.d/20-b/x.conf", "healthzPort: 32"),
        ("k.d/20-b.yaml", "healthzPort: 42"),
    ]);
    let all = ["--config={}/k.yaml", "--config-dir={}/k.d", "--healthz-port=52", "--feature-gates=QOSReserved=true"];
    let loaded = node.check(
        &all,
        &[
            ("registryPullQPS", json!(5)),
            ("maxPods", json!(10)),
            ("registryBurst", json!(21)),
            ("healthzPort", json!(52)),
            ("featureGates", json!({"EnvFiles": true, "MemoryQoS": true, "QOSReserved": true})),
        ],
    );
    assert!(loaded.notes[0].ends_with("k.d/20-b.yaml"), "{:?}", loaded.notes);
    node.check(&all[..2], &[("healthzPort", json!(32))]);
    node.check(&all[..1], &[("healthzPort", json!(12))]);
    node.check(&[all[0], all[2]], &[("healthzPort", json!(52))]);
}

#[test]
fn it_is_known_who_sets_the_cgroup_driver() {
    let node = Node::new(&[
        ("set.yaml", "cgroupDriver: systemd"),
        ("unset.yaml", "maxPods: 10\ncgroupDriver: ''"),
        ("back.d/1.conf", "cgroupDriver: null"),
        ("set.d/1.conf", "cgroupDriver: cgroupfs"),
    ]);
    for (args, driver, expect) in [
        (&["--config={}/set.yaml"][..], "systemd", Some("/set.yaml")),
        (&["--config={}/unset.yaml"], "cgroupfs", None),
        (&["--config={}/set.yaml", "--config-dir={}/back.d"], "cgroupfs", None),
        (&["--config={}/unset.yaml", "--config-dir={}/set.d"], "cgroupfs", Some("/set.d/1.conf")),
        (&["--config={}/set.yaml", "--cgroup-driver=cgroupfs"], "cgroupfs", Some("--cgroup-driver")),
    ] {
        let loaded = node.check(args, &[("cgroupDriver", json!(driver))]);
        let from = loaded.cgroup_driver_from.as_deref();
        assert_eq!(from.is_some(), expect.is_some(), "{args:?}: {from:?}");
        assert!(from.unwrap_or_default().ends_with(expect.unwrap_or_default()), "{args:?}: {from:?}");
    }
}

#[test]
fn drop_ins_merge_maps_replace_lists_and_delete_by_null() {
    let node = Node::new(&[
        (
            "k.yaml",
            "evictionHard: {memory.available: 1Gi, nodefs.available: 20%}\nclusterDNS: [10.0.0.1, 10.0.0.2]\nmaxPods: 7\nlogging: {verbosity: 3}",
        ),
        (
            "d/1.conf",
            "evictionHard: {nodefs.available: null, imagefs.available: 3%}\nclusterDNS: [10.0.0.3]\nmaxPods: null",
        ),
        ("d/2.conf", "logging: {format: json}"),
    ]);
    node.check(
        &["--config={}/k.yaml", "--config-dir={}/d"],
        &[
            ("evictionHard", json!({"memory.available": "1Gi", "imagefs.available": "3%"})),
            ("clusterDNS", json!(["10.0.0.3"])),
            ("maxPods", json!(110)),
            ("logging.format", json!("json")),
            ("logging.verbosity", json!(3)),
        ],
    );
}

#[test]
fn drop_ins_must_say_what_they_are() {
    let node = Node::new(&[("k.yaml", "")]);
    std::fs::create_dir(node.path("d")).unwrap();
    std::fs::write(node.path("d/a.conf"), "maxPods: 3").unwrap();
    std::fs::write(node.path("d/b.conf"), "apiVersion: v1\nkind: Pod").unwrap();
    std::fs::write(node.path("d/c.conf"), "").unwrap();
    node.check_problems(
        &["--config={}/k.yaml", "--config-dir={}/d"],
        &[
            "apiVersion: is missing, write apiVersion: kubelet.config.k8s.io/v1beta1",
            "kind: is missing",
            "apiVersion is `v1`: must be kubelet.config.k8s.io/v1beta1",
            "kind is `Pod`: must be KubeletConfiguration",
            "d/c.conf: must be a map of fields that starts with apiVersion",
        ],
    );
}

#[test]
fn without_a_file_the_old_defaults_hold() {
    let node = Node::new(&[("d/a.conf", "authorization: {mode: Webhook}"), ("k.yaml", "")]);
    let open = [
        ("authentication.anonymous.enabled", json!(true)),
        ("authentication.webhook.enabled", json!(false)),
        ("authorization.mode", json!("AlwaysAllow")),
        ("readOnlyPort", json!(10255)),
    ];
    let loaded = node.check(&[], &open);
    assert_eq!(loaded.warnings, [""; 0]);
    node.check(
        &["--config={}/k.yaml"],
        &[
            ("authentication.anonymous.enabled", json!(false)),
            ("authentication.webhook.enabled", json!(true)),
            ("authorization.mode", json!("Webhook")),
            ("readOnlyPort", json!(0)),
        ],
    );
    let loaded = node.check(
        &["--config-dir={}/d"],
        &[
            ("authorization.mode", json!("Webhook")),
            ("authentication.anonymous.enabled", json!(true)),
            ("readOnlyPort", json!(10255)),
        ],
    );
    assert!(
        loaded.warnings[0].contains(
            "authentication.anonymous.enabled: true, authentication.webhook.enabled: false, readOnlyPort: 10255;"
        ),
        "{:?}",
        loaded.warnings
    );
    node.check(
        &["--read-only-port=0", "--eviction-hard=memory.available<5Mi"],
        &[("readOnlyPort", json!(0)), ("evictionHard", json!({"memory.available": "5Mi"}))],
    );
}

#[test]
fn relative_paths_count_from_the_file() {
    let node = Node::new(&[(
        "etc/k.yaml",
        "staticPodPath: manifests\npodLogsDir: ../logs/./x\nresolvConf: /etc/resolv.conf\ntlsCertFile: \"\"\nauthentication: {x509: {clientCAFile: ca.crt}}",
    )]);
    let at = |name: &str| json!(node.path(name).display().to_string());
    node.check(
        &["--config={}/etc/k.yaml"],
        &[
            ("staticPodPath", at("etc/manifests")),
            ("podLogsDir", at("logs/x")),
            ("resolvConf", json!("/etc/resolv.conf")),
            ("tlsCertFile", json!("")),
            ("authentication.x509.clientCAFile", at("etc/ca.crt")),
        ],
    );
    node.check(&["--config={}/etc/k.yaml", "--pod-manifest-path=here"], &[("staticPodPath", json!("here"))]);
}

#[test]
fn gates_of_flags_steer_defaults() {
    let node = Node::new(&[("k.yaml", "")]);
    let backoff = "crashLoopBackOff.maxContainerRestartPeriod";
    node.check(&["--config={}/k.yaml"], &[(backoff, json!("5m0s"))]);
    node.check(&["--config={}/k.yaml", "--feature-gates=KubeletCrashLoopBackOffMax=false"], &[(backoff, Value::Null)]);
}

#[test]
fn seccomp_default_is_on_where_either_says_so() {
    let node = Node::new(&[("k.yaml", "seccompDefault: true"), ("l.yaml", "")]);
    node.check(&["--config={}/k.yaml"], &[("seccompDefault", json!(true))]);
    node.check(&["--config={}/l.yaml", "--seccomp-default"], &[("seccompDefault", json!(true))]);
    node.check(&["--config={}/l.yaml"], &[("seccompDefault", json!(false))]);
}

#[test]
fn every_problem_is_told_at_once_with_its_source() {
    let node = Node::new(&[
        (
            "k.yaml",
            "port: many\nsyncFrequency: 60\nenableServer: \"yes\"\nmaxPods: -4\nlogging: {verbosity: loud, format: xml}\nregisterWithTaints: [{key: a, effect: NoShedule}]\nclusterDomain: 5\nclusterDNS: {}",
        ),
        ("d/a.conf", "healthzPort: 70000\ncpuManagerPolicyOptions: {full-pcpus-only: true}"),
    ]);
    node.check_problems(
        &["--config={}/k.yaml", "--config-dir={}/d", "--oom-score-adj=2000", "--registry-qps=x"],
        &[
            "--registry-qps is `x`: must be a whole number",
            "enableServer is \"yes\": must be true or false, without quotes",
            "syncFrequency is 60: must be a duration with units",
            "port is \"many\": must be a whole number from -2147483648 to 2147483647",
            "clusterDomain is 5: must be text, put it in quotes: \"5\"",
            "clusterDNS is a map: must be a list",
            "logging.verbosity is \"loud\": must be a whole number",
            "cpuManagerPolicyOptions.full-pcpus-only is true: must be text, put it in quotes: \"true\"",
            "healthzPort is 70000: must be from 0 to 65535 (from",
            "registerWithTaints[0].effect is `NoShedule`: must be one of NoSchedule, PreferNoSchedule, NoExecute, did you mean NoSchedule?",
            "oomScoreAdj is 2000: must be from -1000 to 1000 (from --oom-score-adj)",
            "maxPods is -4: must be 0 or more (from",
        ],
    );
}

#[test]
fn strict_failures_are_warnings() {
    Node::check_warnings("", &[]);
    Node::check_warnings(
        "maxPod: 5\nlogging: {verbosty: 1, format: text}\nzzzzzzzzzzzzz: 1",
        &[
            "logging.verbosty is no known field and is not used, did you mean verbosity?",
            "maxPod is no known field and is not used, did you mean maxPods?",
            "zzzzzzzzzzzzz is no known field and is not used",
        ],
    );
    Node::check_warnings("maxPods: 5\nmaxPods: 6\n", &["maxPods is written twice, the last one counts"]);
    Node::check_warnings("maxPods: 5\n---\nmaxPods: 6\n", &["only the first document is read"]);
    Node::check_warnings("defaultPodSysctls: {a: b}", &["defaultPodSysctls is no known field"]);
}

#[test]
fn what_is_not_in_force_is_named_once() {
    Node::check_warnings(
        "port: 10251\nevictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}\nmaxPods: 5",
        &[
            "in force in part: evictionSoft, evictionSoftGracePeriod: they set the node's conditions and keep pods out, \
             and no pod is evicted yet",
        ],
    );
    let node = Node::new(&[]);
    let loaded = node.load(&["--lock-file=/x", "--hostname-override=a"]).unwrap();
    assert_eq!(loaded.warnings, ["accepted but not yet in force in this version: --lock-file"]);
}

#[test]
fn bad_files_are_named_and_never_hang() {
    let node = Node::new(&[("k.yaml", "")]);
    let write = |name: &str, bytes: &[u8]| std::fs::write(node.path(name), bytes).unwrap();
    std::fs::create_dir(node.path("folder")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(node.path("fifo")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("loop", node.path("loop")).unwrap();
    write("big", &b"# filler\n".repeat(10 << 17));
    write("latin1", b"apiVersion: \xe4");
    write("cut", b"apiVersion: [kubelet");
    write("deep", "[".repeat(10_000).as_bytes());
    write("list", b"- a");
    let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x,x]\n");
    for (one, next) in ('a'..'j').zip('b'..) {
        bomb.push_str(&format!("{next}: &{next} [{}]\n", vec![format!("*{one}"); 10].join(",")));
    }
    write("bomb", bomb.as_bytes());
    for (name, expect) in [
        ("missing", "missing"),
        ("folder", "folder"),
        ("fifo", "fifo"),
        ("loop", "loop"),
        ("big", "4194304"),
        ("latin1", "line 1 is not UTF-8"),
        ("cut", "line 1"),
        ("deep", "deep"),
        ("list", "must be a map of fields"),
        ("bomb", "bomb: "),
        ("/dev/zero", "zero"),
    ] {
        let path = if name.starts_with('/') { name.to_owned() } else { format!("{{}}/{name}") };
        let Err(error) = node.load(&[&format!("--config={path}")]) else { panic!("{name} was loaded") };
        assert_eq!(error.problems.len(), 1, "{name}: {error}");
        assert!(error.to_string().contains(expect), "{name}: {error}");
    }
    node.check_problems(
        &["--config={}/k.yaml", "--config-dir={}/nowhere"],
        &["nowhere: cannot be listed: No such file"],
    );
    node.check_problems(
        &["--config={}/k.yaml", "--config-dir={}/k.yaml"],
        &["k.yaml: cannot be listed: Not a directory"],
    );
}

#[test]
fn a_drop_in_folder_has_bounds() {
    let node = Node::new(&[("k.yaml", "")]);
    let mut deep = node.path("deep");
    for _ in 0..20 {
        deep.push("x");
    }
    std::fs::create_dir_all(deep).unwrap();
    node.check_problems(&["--config={}/k.yaml", "--config-dir={}/deep"], &["nested more than 16 deep"]);
    std::fs::create_dir(node.path("many")).unwrap();
    for index in 0..1001 {
        std::fs::write(node.path(&format!("many/{index}.txt")), "").unwrap();
    }
    node.check_problems(&["--config={}/k.yaml", "--config-dir={}/many"], &["more than 1000 files"]);
}

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("etc/kubelet.yaml")
}

#[test]
fn the_sample_holds_every_field_at_its_default() {
    let loaded =
        load([OsString::from("--config"), sample().into_os_string()]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(loaded.warnings, [""; 0], "the sample is not strict");
    assert_eq!(loaded.config, KubeletConfiguration::default());
    let text = std::fs::read_to_string(sample()).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let names = KubeletConfiguration::FIELDS.iter().map(|field| field.name);
    assert_eq!(KubeletConfiguration::FIELDS.len(), 127);
    for name in names.filter(|name| *name != "apiVersion" && *name != "kind") {
        let at = lines.iter().position(|line| line.starts_with(&format!("{name}:")));
        let at = at.unwrap_or_else(|| panic!("{name} is not in the sample"));
        assert!(lines[at - 1].starts_with("# ") && lines[at - 1].ends_with('.'), "{name} has no comment");
    }
}

#[test]
fn what_is_printed_is_read_back() {
    let node = Node::new(&[(
        "k.yaml",
        "clusterDomain: 'yes'\nproviderID: '0644'\nstaticPodURLHeader: {A: ['on', '1.0', '', '~', 'a: b', ' x']}\nkubeletCgroups: \"l\\nm\"\nsingleProcessOOMKill: true\n\
         reservedMemory: [{numaNode: 0, limits: {memory: 1073741824}}]\ntracing: {samplingRatePerMillion: 5}\nuserNamespaces: {idsPerPod: 131072}\nlogging: {flushFrequency: 1000000000, vmodule: [{filePattern: a, verbosity: 3}]}",
    )]);
    let loaded = node.load(&["--config={}/k.yaml"]).unwrap();
    std::fs::write(node.path("again.yaml"), print::to_yaml(&loaded.config)).unwrap();
    let again = node.load(&["--config={}/again.yaml"]).unwrap();
    assert_eq!(again.config, loaded.config);
    assert!(print::to_yaml(&loaded.config).starts_with(&format!("{HEAD}enableServer: true\n")));
}

/// What a kubelet 1.36 answered on /configz, for the settings of its node.
#[test]
fn configz_is_what_the_kubelet_shows() {
    let node = Node::new(&[(
        "k.yaml",
        "authentication: {x509: {clientCAFile: /lab/pki/ca.crt}}\nclusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\n\
         containerRuntimeEndpoint: unix:///lab/containerd/containerd.sock\n\
         evictionHard: {imagefs.available: 1Gi, memory.available: 100Mi, nodefs.available: 1Gi, nodefs.inodesFree: 1%}\n\
         failCgroupV1: false\nfailSwapOn: false\nimageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n\
         logging: {verbosity: 2}\noomScoreAdj: 0\nstaticPodPath: /lab/manifests\ntlsCertFile: /lab/pki/labnode.crt\n\
         tlsPrivateKeyFile: /lab/pki/labnode.key\n",
    )]);
    let loaded = node.load(&["--config={}/k.yaml"]).unwrap();
    let expect: Value = serde_json::from_str(include_str!("testdata/configz.json")).unwrap();
    assert_eq!(print::to_configz(&loaded.config), expect);
}

/// Values that somebody might write anywhere.
fn any_value() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![
            Just("0s"),
            Just("-1s"),
            Just("10%"),
            Just("none"),
            Just(""),
            Just("memory.available"),
            Just("unix://"),
            Just("/")
        ]
        .prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let key = prop_oneof![Just("enabled"), Just("memory.available"), Just("verbosity"), Just("limits"), Just("")];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..3).prop_map(|pairs| Value::Object(
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest::proptest! {
    #[test]
    fn any_values_give_a_configuration_or_problems(
        picks in proptest::collection::vec((0..KubeletConfiguration::FIELDS.len(), any_value()), 1..8)
    ) {
        let mut map = Map::new();
        for (index, value) in picks {
            map.insert(KubeletConfiguration::FIELDS[index].name.to_owned(), value);
        }
        map.insert("apiVersion".to_owned(), defaults::API_VERSION.into());
        map.insert("kind".to_owned(), defaults::KIND.into());
        let node = Node::new(&[]);
        std::fs::write(node.path("k.yaml"), Value::Object(map.clone()).to_string()).unwrap();
        match node.load(&["--config={}/k.yaml"]) {
            Ok(loaded) => {
                std::fs::write(node.path("again.yaml"), print::to_yaml(&loaded.config)).unwrap();
                let again = node.load(&["--config={}/again.yaml"]);
                assert_eq!(again.expect("what is in effect is right").config, loaded.config);
            }
            Err(error) => assert!(!error.problems.is_empty()),
        }
    }
}
