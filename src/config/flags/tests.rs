//! Tables for the command line: every way to write a flag, every mistake, and whether the table of flags is whole.

use super::table::{NOT_DEPRECATED, REMOVED};
use super::*;
use serde_json::json;

fn read(args: &[&str]) -> CommandLine {
    parse(args.iter().map(OsString::from))
}

/// What the arguments set in the configuration, without any problem.
fn check(args: &[&str], expect: Value) {
    let line = read(args);
    assert_eq!(line.problems, [], "{args:?}");
    let mut map = Map::new();
    line.lay_over(&mut map);
    assert_eq!(Value::Object(map), expect, "{args:?}");
}

/// Each problem of the arguments contains its part, in order.
fn check_problems(args: &[&str], expect: &[&str]) {
    let problems: Vec<_> = read(args).problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), expect.len(), "{args:?}: {problems:?}");
    for (problem, part) in problems.iter().zip(expect) {
        assert!(problem.contains(part), "{args:?}: {problem} does not say {part:?}");
    }
}

#[test]
fn the_ways_to_write_a_flag() {
    for args in [
        &["--max-pods=7"][..],
        &["--max-pods", "7"],
        &["--max_pods", "7"],
        &["--max_pods=7"],
        &["--max-pods=3", "--max-pods=7"],
    ] {
        check(args, json!({"maxPods": 7}));
    }
    check(&[], json!({}));
    check(&["--fail-swap-on"], json!({"failSwapOn": true}));
    check(&["--fail-swap-on=false"], json!({"failSwapOn": false}));
    check(&["--resolv-conf="], json!({"resolvConf": ""}));
    check(&["--resolv-conf", ""], json!({"resolvConf": ""}));
    check(&["--oom-score-adj", "-5"], json!({"oomScoreAdj": -5}));
    check(&["--anonymous-auth=false"], json!({"authentication": {"anonymous": {"enabled": false}}}));
    for args in [&["-v", "4"][..], &["-v=4"], &["-v4"], &["--v", "4"], &["--v=4"]] {
        check(args, json!({"logging": {"verbosity": 4}}));
    }
    check(
        &["--eviction-hard=memory.available<1Gi", "--eviction-hard=nodefs.available<5%"],
        json!({"evictionHard": {"memory.available": "1Gi", "nodefs.available": "5%"}}),
    );
    check(&["--eviction-hard="], json!({"evictionHard": {}}));
    check(
        &["--cluster-dns=10.0.0.1,10.0.0.2", "--cluster-dns", "10.0.0.3"],
        json!({"clusterDNS": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}),
    );
    check(&["--containerd=/x", "--housekeeping_interval=1s"], json!({}));
}

#[test]
fn every_mistake_is_told_at_once() {
    check_problems(
        &["--max-pods=many", "--cluster-dnss=1", "--port", "x", "word", "--network-plugin", "cni", "--sync-frequency"],
        &[
            "--max-pods is `many`: must be a whole number",
            "--cluster-dnss: unknown flag, did you mean --cluster-dns?",
            "--port is `x`: must be a whole number",
            "`word`: not a flag",
            "--network-plugin: this flag is gone from the kubelet, delete it: networks",
            "--sync-frequency: needs a value: --sync-frequency=DURATION",
        ],
    );
    check_problems(&["--fail-swap-on", "false"], &["write a switch and its value together"]);
    check_problems(&["-config", "x"], &["write --config with two dashes", "`x`: not a flag"]);
    check_problems(&["-x"], &["-x: unknown flag"]);
    check_problems(&["-vx"], &["-vx: unknown flag"]);
    check_problems(&["-v=x"], &["-v is `x`: must be a whole number from 0"]);
    check_problems(&["--", "a", "--port=1"], &["`a`", "`--port=1`"]);
    check_problems(&["--zzzzzzzz"], &["see --help"]);
    check_problems(&["--=1"], &["--: unknown flag"]);
    check_problems(&["-"], &["`-`: not a flag"]);
    check_problems(&["--cloud-provider=aws", "--node-ip=x"], &["--cloud-provider is `aws`", "--node-ip is `x`"]);
}

#[test]
fn arguments_that_are_not_text_are_refused() {
    use std::os::unix::ffi::OsStringExt;
    let line = parse([OsString::from_vec(b"--config=\xff".to_vec())]);
    assert!(line.problems[0].to_string().contains("UTF-8"), "{:?}", line.problems);
}

#[test]
fn node_flags_are_kept() {
    let line = read(&[
        "--config=/etc/k.yaml",
        "--config-dir",
        "/etc/k.d",
        "--hostname-override=edge-1",
        "--node-ip=10.0.0.1,fd00::1",
        "--node-labels=a=b,c=d",
        "--node-labels=e=",
        "--seccomp-default",
        "--maximum-dead-containers=5",
        "--minimum-container-ttl-duration=1m",
        "--root-dir=/data",
    ]);
    assert_eq!(line.problems, []);
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        line.node,
        NodeFlags {
            config: Some("/etc/k.yaml".into()),
            config_dir: Some("/etc/k.d".into()),
            hostname_override: Some("edge-1".to_owned()),
            node_ip: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            node_labels: BTreeMap::from([label("a", "b"), label("c", "d"), label("e", "")]),
            seccomp_default: true,
            maximum_dead_containers: 5,
            minimum_container_ttl_duration: crate::config::GoDuration::from_secs(60),
            root_dir: "/data".into(),
            ..NodeFlags::default()
        }
    );
    assert_eq!(line.node_flags_used.len(), 9);
}

#[test]
fn help_and_version() {
    assert!(read(&["-h"]).help);
    assert!(read(&["--port=x", "--help"]).help);
    assert!(!read(&["--help=false"]).help);
    assert_eq!(read(&["--version"]).version, Some(VersionRequest::Short));
    assert_eq!(read(&["--version=raw"]).version, Some(VersionRequest::Raw));
    assert_eq!(read(&["--version=false"]).version, None);
    check_problems(&["--version=v9"], &["must be true, false or raw"]);
}

#[test]
fn old_flags_are_named_once_with_what_to_do() {
    let line = read(&[
        "--max-pods=7",
        "--max-pods=8",
        "--fail-cgroupv1=false",
        "-v=2",
        "--containerd=x",
        "--maximum-dead-containers=1",
    ]);
    assert_eq!(
        line.warnings,
        ["these flags work but are deprecated: --containerd (delete it), --max-pods (set maxPods in the file), \
          --maximum-dead-containers (use evictionHard or evictionSoft instead)"]
    );
    assert_eq!(read(&["--config=x"]).warnings, [""; 0]);
}

#[test]
fn gates_of_the_file_stay_unless_a_flag_names_them() {
    let line = read(&["--feature-gates=A=true,B=false", "--feature-gates=C=true"]);
    let mut map = Map::new();
    map.insert("featureGates".to_owned(), json!({"A": false, "D": true}));
    line.lay_over(&mut map);
    assert_eq!(map["featureGates"], json!({"A": true, "B": false, "C": true, "D": true}));
}

#[test]
fn the_table_is_whole() {
    assert_eq!((NODE.len(), CONFIG.len(), LOGGING.len(), GLOBAL.len(), IGNORED.len()), (22, 99, 8, 2, 20));
    let mut names: Vec<_> = all().map(|flag| flag.name).collect();
    names.extend(REMOVED.iter().map(|(name, _)| *name));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name is there twice");
    for flag in all() {
        assert!(!flag.name.contains('_') && flag.help.ends_with('.'), "{}", flag.name);
    }
    assert!(NOT_DEPRECATED.iter().all(|name| find(name).is_some()));
}

#[test]
fn every_flag_for_the_configuration_meets_its_field() {
    let defaults = serde_json::to_value(crate::config::KubeletConfiguration::default()).unwrap();
    let defaults = defaults.as_object().unwrap();
    for flag in [CONFIG, LOGGING].into_iter().flatten() {
        let Target::Config(path) = flag.target else { panic!("{}", flag.name) };
        let value =
            super::super::defaults::get(defaults, path).unwrap_or_else(|| panic!("{}: no field {path}", flag.name));
        let fits = match flag.kind {
            Kind::Bool => value.is_boolean(),
            Kind::Int32 | Kind::Int64 | Kind::Verbosity => value.is_i64(),
            Kind::Text | Kind::Ip | Kind::Duration | Kind::Amount => value.is_string(),
            Kind::List | Kind::Taints | Kind::ReservedMemory | Kind::VModule => value.is_array(),
            Kind::Pairs | Kind::OnePair | Kind::Thresholds | Kind::Gates | Kind::Headers => value.is_object(),
            Kind::CloudProvider | Kind::NodeIps => false,
        };
        assert!(fits, "--{} is {:?}, {path} is {value}", flag.name, flag.kind);
    }
}

#[test]
fn defaults_in_the_table_are_those_of_the_struct() {
    for flag in NODE {
        let Target::Node(set) = flag.target else { panic!("{}", flag.name) };
        let mut flags = NodeFlags::default();
        set(&mut flags, flag.default);
        assert_eq!(flags, NodeFlags::default(), "--{}", flag.name);
    }
}
