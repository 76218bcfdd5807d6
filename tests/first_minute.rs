//! A newcomer's first minute: README's first command shows a pod and leaves nothing behind.
//!
//! Runs `tests/demo --once` as it is, with the agent that the tests have built, on a port and in a folder of its own.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::harness::config::free_port;

#[test]
fn the_demo_shows_a_pod_and_leaves_nothing() {
    let parent = tempfile::Builder::new().prefix("ferrolet-").tempdir_in("/tmp").expect("make a folder");
    let folder = parent.path().join("demo");
    let (port, name) = (free_port().to_string(), format!("fldemo{}", std::process::id()));
    // Below those of the harness' nodes, and another one in each run beside this one.
    let network = format!("10.{}.{}", 32 + std::process::id() / 256 % 32, std::process::id() % 256);
    let subnet = format!("{network}.0/24");
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/demo"))
        .arg("--once")
        .env("DEMO_BINARY", env!("CARGO_BIN_EXE_ferrolet"))
        .env("DEMO_PORT", &port)
        .env("DEMO_DIR", &folder)
        .env("DEMO_NAME", &name)
        .env("DEMO_SUBNET", &subnet)
        .stdin(Stdio::null())
        .output()
        .expect("start tests/demo");
    let said = String::from_utf8_lossy(&output.stdout);
    let all = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}:\n{all}", output.status);
    for part in [
        &format!("The pod answers on http://127.0.0.1:{port}/"),
        "Hello from a pod that ferrolet runs.",
        "pod       default/web-demo",
        &format!("address   {network}."),
        "node      demo",
    ] {
        assert!(said.contains(part), "the demo did not say {part:?}:\n{all}");
    }
    assert!(!folder.exists(), "the demo left its folder");
    assert_eq!(crate::harness::tests::traces(&name, &folder), "", "the demo left something");
}
