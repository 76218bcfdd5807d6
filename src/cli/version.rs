//! `--version` and `ferrolet version`. Runs on the main thread; asks nobody.

use super::{complain, print};
use crate::config::KUBELET_VERSION;
use crate::config::flags::VersionRequest;
use std::ffi::OsString;
use std::process::ExitCode;

/// ferrolet's own version.
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// `ferrolet version [-o json]`.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    let words: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => print(&text(VersionRequest::Short, false)),
        ["-o", "json"] | ["-o=json" | "-ojson" | "--output=json"] | ["--output", "json"] => {
            let value = serde_json::json!({ "ferrolet": OWN_VERSION, "kubelet": KUBELET_VERSION });
            print(&format!("{value}\n"))
        }
        _ => {
            complain("version takes nothing but -o json");
            ExitCode::from(2)
        }
    }
}

/// What `--version` prints. As `kubelet` it is what tools such as kubeadm read there.
pub(super) fn text(request: VersionRequest, as_kubelet: bool) -> String {
    match request {
        VersionRequest::Short if as_kubelet => format!("Kubernetes {KUBELET_VERSION}\n"),
        VersionRequest::Short => format!("ferrolet {OWN_VERSION} (kubelet {KUBELET_VERSION})\n"),
        VersionRequest::Raw => {
            let mut numbers = KUBELET_VERSION.trim_start_matches('v').split('.');
            let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
            let platform = format!("linux/{}", platform());
            format!(
                "version.Info{{Major:\"{major}\", Minor:\"{minor}\", GitVersion:\"{KUBELET_VERSION}\", \
                 GitCommit:\"\", GitTreeState:\"\", BuildDate:\"\", GoVersion:\"\", Compiler:\"ferrolet {OWN_VERSION}\", \
                 Platform:\"{platform}\"}}\n"
            )
        }
    }
}

/// The processor by the name that container images use.
fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "riscv64" => "riscv64",
        other => other,
    }
}
