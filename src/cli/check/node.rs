//! What a node needs beside its machine: the container runtime with its network, ports, the way into its cluster. Each judgement is a
//! function over what was found.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use super::{Line, fail, ok, warn};
use crate::api::runtime_info::{RuntimeStatus, RuntimeVersion};
use crate::app::driver::{SYSTEMD_RUNS, check_machine, configured, mismatch};
use crate::app::facts::driver_of;
use crate::config::Loaded;
use crate::cri::Client;
use crate::host::cgroup::CgroupDriver;
use crate::kube::certificate;
use crate::server::local;
use crate::util::cancel::Cancel;
use crate::util::fs::read_bounded;

/// Time for each answer of the runtime.
const RUNTIME_TIME: Duration = Duration::from_secs(3);
/// Where containerd's own configuration is.
const CONTAINERD: &str = "/etc/containerd/config.toml";
const DAY: i64 = 86_400;

pub(super) fn lines(loaded: &Loaded) -> Vec<Line> {
    let mut lines = runtime(loaded);
    lines.extend(ports(loaded));
    lines.extend(cluster(loaded));
    lines
}

fn runtime(loaded: &Loaded) -> Vec<Line> {
    let set = &loaded.config;
    let endpoint = &set.container_runtime_endpoint;
    let client = match Client::new(endpoint, None, RUNTIME_TIME) {
        Ok(client) => client,
        Err(error) => {
            return vec![fail(
                "runtime",
                error.to_string(),
                "set containerRuntimeEndpoint, such as unix:///run/containerd/containerd.sock",
            )];
        }
    };
    let cancel = Cancel::never();
    let version = match client.version(&cancel) {
        Ok(version) => version,
        Err(error) => {
            return vec![fail(
                "runtime",
                error.to_string(),
                format!("install and start a container runtime at {endpoint}"),
            )];
        }
    };
    let mut lines = vec![runtime_version(&version)];
    match client.status(false, &cancel) {
        Ok(status) => lines.extend(runtime_status(&status)),
        Err(error) => lines.push(fail("runtime.status", error.to_string(), "look at the runtime's own log")),
    }
    let told = client.runtime_config(&cancel).ok().flatten().map(driver_of);
    let written = read_bounded(Path::new(CONTAINERD), 1 << 20).ok().filter(|_| endpoint.contains("containerd"));
    let written = written.map(|bytes| driver_in_containerd(&String::from_utf8_lossy(&bytes)));
    let set_by = loaded.cgroup_driver_from.as_deref();
    lines.push(driver(configured(set), set_by, told, written));
    lines.extend(maker(told.unwrap_or(configured(set)), Path::new(SYSTEMD_RUNS)));
    lines
}

fn runtime_version(version: &RuntimeVersion) -> Line {
    let found = format!("{} {} (CRI {})", version.name, version.version, version.api_version);
    let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse::<u32>().ok());
    let mut parts = version.version.trim_start_matches('v').split('.').map(number);
    let (major, minor) = (parts.next().flatten().unwrap_or(0), parts.next().flatten().unwrap_or(0));
    match version.name.as_str() {
        "containerd" if (major, minor) < (1, 6) => fail("runtime", found, "install containerd 1.6 or newer"),
        "containerd" if major < 2 => {
            warn("runtime", found, "containerd 2 tells of changes by itself, which saves CPU time")
        }
        _ => ok("runtime", found),
    }
}

fn runtime_status(status: &RuntimeStatus) -> Vec<Line> {
    let of = |type_: &str| status.condition(type_).map_or_else(String::new, |c| format!("{} {}", c.reason, c.message));
    vec![
        match status.runtime_ready() {
            true => ok("runtime.ready", "it can run containers"),
            false => fail("runtime.ready", of("RuntimeReady"), "look at the runtime's own log"),
        },
        match status.network_ready() {
            true => ok("cni", "the runtime has a network for pods"),
            false => fail(
                "cni",
                of("NetworkReady"),
                "install CNI plugins and a configuration in /etc/cni/net.d; pods with hostNetwork run without",
            ),
        },
    ]
}

fn driver_in_containerd(text: &str) -> CgroupDriver {
    let on = |line: &str| {
        let line: String = line.split('#').next().unwrap_or("").split_whitespace().collect();
        line == "SystemdCgroup=true" || line == "systemd_cgroup=true"
    };
    if text.lines().any(on) { CgroupDriver::Systemd } else { CgroupDriver::Cgroupfs }
}

/// `set_by` is who set `set`, `told` the runtime's own word, `written` what its configuration file says where it gives none.
fn driver(set: CgroupDriver, set_by: Option<&str>, told: Option<CgroupDriver>, written: Option<CgroupDriver>) -> Line {
    match (told, written) {
        (Some(told), _) if told == set => ok("cgroup-driver", format!("{set}, here and in the runtime")),
        (Some(told), _) => match set_by {
            None => ok("cgroup-driver", format!("{told}, as the runtime tells")),
            Some(set_by) => fail(
                "cgroup-driver",
                mismatch(set, set_by, told),
                format!("set cgroupDriver: {told} there, or leave it out: the agent does not start with it"),
            ),
        },
        (None, Some(written)) if written == set => ok("cgroup-driver", format!("{set}, and so says {CONTAINERD}")),
        (None, Some(written)) => fail(
            "cgroup-driver",
            format!("cgroupDriver is {set}, and {CONTAINERD} makes the runtime use {written}: no pod will start"),
            format!("set cgroupDriver: {written}, or SystemdCgroup = {} there", set == CgroupDriver::Systemd),
        ),
        (None, None) => {
            warn("cgroup-driver", format!("{set}; the runtime does not say what it uses"), "see that it is the same")
        }
    }
}

/// Whether the machine has who makes the cgroups; nothing where all is well.
fn maker(driver: CgroupDriver, systemd_runs: &Path) -> Option<Line> {
    let error = check_machine(driver, systemd_runs).err()?;
    Some(fail("cgroup-driver.systemd", error.to_string(), "use cgroupfs in the container runtime and as cgroupDriver"))
}

fn ports(loaded: &Loaded) -> Vec<Line> {
    let set = &loaded.config;
    let socket = match loaded.flags.root_dir == Path::new("/var/lib/kubelet") {
        true => Path::new(local::DEFAULT_PATH).to_path_buf(),
        false => loaded.flags.root_dir.join("ferrolet").join(local::FILE_NAME),
    };
    let is_running = std::os::unix::net::UnixStream::connect(socket).is_ok();
    let mut wanted = vec![("port.healthz", set.healthz_bind_address.as_str(), set.healthz_port)];
    if set.enable_server {
        wanted.push(("port.server", set.address.as_str(), set.port));
        wanted.push(("port.read-only", set.address.as_str(), set.read_only_port));
    }
    let of = |(check, ip, port): (&'static str, &str, i32)| {
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        let address = SocketAddr::new(ip.parse::<IpAddr>().ok()?, port);
        let error = TcpListener::bind(address).err().map(|error| error.kind());
        Some(one_port(check, address, error, is_running))
    };
    wanted.into_iter().filter_map(of).collect()
}

fn one_port(check: &str, address: SocketAddr, error: Option<ErrorKind>, is_running: bool) -> Line {
    match error {
        None => ok(check, format!("{address} is free")),
        Some(ErrorKind::AddrInUse) if is_running => ok(check, format!("{address} is in use, and an agent runs here")),
        Some(ErrorKind::AddrInUse) => fail(
            check,
            format!("{address} is in use by somebody else"),
            format!("find and stop them (ss -ltnp sport = :{}); a kubelet may still run here", address.port()),
        ),
        Some(other) => fail(check, format!("{address}: {other}"), "set an address that this machine has"),
    }
}

fn cluster(loaded: &Loaded) -> Vec<Line> {
    let flags = &loaded.flags;
    let Some(file) = &flags.kubeconfig else {
        return vec![ok("cluster", "none: the node runs its own pods (no --kubeconfig)")];
    };
    let mut lines = Vec::new();
    let bootstrap = flags.bootstrap_kubeconfig.as_deref();
    lines.push(kubeconfig(file, file.exists(), bootstrap.map(|path| (path, path.exists()))));
    let now = crate::util::clock::wall() / 1_000_000_000;
    for (check, name) in
        [("certificate.client", "kubelet-client-current.pem"), ("certificate.serving", "kubelet-server-current.pem")]
    {
        let path = flags.cert_dir.join(name);
        if let Ok(pem) = read_bounded(&path, 1 << 20) {
            lines.push(one_certificate(check, &path, certificate::validity(&pem), now));
        }
    }
    lines
}

fn kubeconfig(file: &Path, is_there: bool, bootstrap: Option<(&Path, bool)>) -> Line {
    match (is_there, bootstrap) {
        (true, _) => ok("cluster", format!("by {}", file.display())),
        (false, Some((other, true))) => {
            ok("cluster", format!("{} is to be made with {}", file.display(), other.display()))
        }
        (false, _) => fail(
            "cluster",
            format!("{} is not there", file.display()),
            "join the cluster (kubeadm join), or name a --bootstrap-kubeconfig that is there",
        ),
    }
}

fn one_certificate(check: &str, path: &Path, validity: Result<(i64, i64), String>, now: i64) -> Line {
    let place = path.display();
    match validity {
        Err(why) => fail(check, format!("{place}: {why}"), "remove it and have the node join again"),
        Ok((from, _)) if now < from => fail(check, format!("{place} does not count yet"), "set the clock"),
        Ok((_, until)) if now >= until => {
            fail(check, format!("{place} counts no more"), "have the node join again (a new bootstrap token)")
        }
        Ok((_, until)) => {
            let days = (until - now) / DAY;
            let found = format!("{place} counts for {days} more days");
            if days < 7 { warn(check, found, "set rotateCertificates: true, or renew it") } else { ok(check, found) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{Fail, Ok as Fine, Warn};
    use super::super::tests::check;
    use super::*;
    use CgroupDriver::{Cgroupfs, Systemd};

    #[test]
    fn runtimes_are_judged_by_version_and_word() {
        for (name, version, expect) in [
            ("containerd", "1.5.9", Fail),
            ("containerd", "1.6.20~ds1", Warn),
            ("containerd", "v1.7.27", Warn),
            ("containerd", "v2.1.0", Fine),
            ("containerd", "", Fail),
            ("cri-o", "1.30.0", Fine),
        ] {
            let version =
                RuntimeVersion { name: name.to_owned(), version: version.to_owned(), api_version: "v1".to_owned() };
            check(runtime_version(&version), expect);
        }
        assert_eq!(
            runtime_status(&RuntimeStatus::default()).iter().map(|l| l.verdict).collect::<Vec<_>>(),
            [Fail, Fail]
        );
    }

    #[test]
    fn drivers_have_to_agree() {
        for (set, set_by, told, written, expect) in [
            (Systemd, Some("f"), Some(Systemd), None, Fine),
            (Cgroupfs, Some("f"), Some(Systemd), Some(Cgroupfs), Fail),
            (Cgroupfs, None, Some(Systemd), Some(Cgroupfs), Fine),
            (Cgroupfs, None, None, Some(Cgroupfs), Fine),
            (Cgroupfs, None, None, Some(Systemd), Fail),
            (Systemd, Some("f"), None, Some(Cgroupfs), Fail),
            (Systemd, Some("f"), None, None, Warn),
        ] {
            check(driver(set, set_by, told, written), expect);
        }
        for (text, expect) in [
            ("", Cgroupfs),
            ("[a]\n  SystemdCgroup = true\n", Systemd),
            ("#SystemdCgroup = true", Cgroupfs),
            ("SystemdCgroup = false # = true", Cgroupfs),
        ] {
            assert_eq!(driver_in_containerd(text), expect, "{text}");
        }
    }

    #[test]
    fn systemds_driver_needs_systemd() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(maker(Systemd, folder.path()), None);
        assert_eq!(maker(Cgroupfs, &folder.path().join("none")), None);
        check(maker(Systemd, &folder.path().join("none")).expect("a line"), Fail);
    }

    #[test]
    fn ports_kubeconfigs_and_certificates_are_judged() {
        let address = SocketAddr::from(([127, 0, 0, 1], 10248));
        check(one_port("port", address, None, false), Fine);
        check(one_port("port", address, Some(ErrorKind::AddrInUse), true), Fine);
        check(one_port("port", address, Some(ErrorKind::AddrInUse), false), Fail);
        check(one_port("port", address, Some(ErrorKind::AddrNotAvailable), true), Fail);
        let file = Path::new("/a");
        check(kubeconfig(file, true, None), Fine);
        check(kubeconfig(file, false, Some((file, true))), Fine);
        check(kubeconfig(file, false, Some((file, false))), Fail);
        check(kubeconfig(file, false, None), Fail);
        for (validity, expect) in [
            (Ok((0, 100 * DAY)), Fine),
            (Ok((0, 12 * DAY)), Warn),
            (Ok((0, 10 * DAY)), Fail),
            (Ok((11 * DAY, 100 * DAY)), Fail),
            (Err("no".to_owned()), Fail),
        ] {
            check(one_certificate("certificate", file, validity, 10 * DAY), expect);
        }
    }
}
