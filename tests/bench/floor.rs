//! The floor: pods started by the CRI client alone, with the calls and the files that the agent makes for them.
//!
//! Each pod has a thread of its own, as in the agent. The pods are those that the agent would make from the same manifests:
//! defaults, uid, labels, cgroup, log folder, /etc/hosts and all; making them is not timed. Nothing here plans, watches
//! or remembers anything, and so no agent can be faster.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Barrier,
    time::{Duration, Instant},
};

use ferrolet::agents::source::identity::Origin;
use ferrolet::agents::source::manifest;
use ferrolet::api::runtime::ImageSpec;
use ferrolet::api::runtime_info::Life;
use ferrolet::api::v1::Pod;
use ferrolet::api::{PodName, PodUid};
use ferrolet::core::qos::{self, CgroupFacts};
use ferrolet::core::spec::env::EnvSources;
use ferrolet::core::spec::hostname::etc_hosts;
use ferrolet::core::spec::{ContainerInputs, NodeFacts, SandboxInputs, container_spec, sandbox_spec};
use ferrolet::cri::Client;
use ferrolet::host::cgroup::{CGROUP_MOUNT, CgroupDriver, CgroupTree, CgroupVersion, QosLevel};
use ferrolet::host::cgroup_values::CgroupValues;
use ferrolet::host::mounts::MOUNT_TABLE;
use ferrolet::host::pod_dirs::PodDirs;
use ferrolet::msg::SourceKind;
use ferrolet::util::cancel::Cancel;

use crate::agent::NODE;
use crate::node::Node;

/// What pods are started with.
pub(crate) struct Floor {
    client: Client,
    dirs: PodDirs,
    cgroups: CgroupTree,
    facts: NodeFacts,
    resolv_conf: String,
}

impl Floor {
    /// Gets ready on a node: beside the agent's folders, below the same cgroup.
    pub(crate) fn new(node: &Node, client: &Client) -> Result<Floor, String> {
        let root = node.path("floor");
        let logs = node.path("floor-logs");
        let dirs = PodDirs::new(&root, &logs);
        dirs.ensure_roots().map_err(|error| error.to_string())?;
        let cgroup_root = format!("/{}", node.name());
        let cgroups =
            CgroupTree::open(Path::new(MOUNT_TABLE), Path::new(CGROUP_MOUNT), &cgroup_root, CgroupDriver::Cgroupfs)
                .map_err(|error| error.to_string())?;
        cgroups.ensure_levels(&CgroupValues::default(), 0).map_err(|error| error.to_string())?;
        let version = match cgroups.version() {
            CgroupVersion::V1 => qos::CgroupVersion::V1,
            CgroupVersion::V2 => qos::CgroupVersion::V2,
        };
        let machine = ferrolet::host::facts::read(Path::new("/")).map_err(|error| error.to_string())?;
        let facts = NodeFacts {
            node_name: NODE.to_owned(),
            node_ips: vec!["127.0.0.1".to_owned()],
            root_dir: root.to_string_lossy().into_owned(),
            pod_logs_dir: logs.to_string_lossy().into_owned(),
            memory_capacity: machine.memory,
            hugepage_sizes: machine.hugepage_sizes,
            thermal_throttle_cpus: machine.thermal_throttle_cpus,
            cgroup: CgroupFacts {
                version,
                root: cgroup_root,
                swap_controller: match cgroups.version() {
                    CgroupVersion::V1 => Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists(),
                    CgroupVersion::V2 => true,
                },
                single_process_oom_kill: version == qos::CgroupVersion::V1,
                ..CgroupFacts::default()
            },
            ..NodeFacts::default()
        };
        let resolv_conf = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        Ok(Floor { client: client.clone(), dirs, cgroups, facts, resolv_conf })
    }

    /// Starts a pod of each manifest; the time from the first call until the runtime shows all of them running.
    pub(crate) fn start(&self, manifests: &[(String, String)]) -> Result<Duration, String> {
        let pods: Vec<Pod> = manifests.iter().map(|(name, text)| pod(name, text)).collect::<Result<_, _>>()?;
        let barrier = Barrier::new(pods.len() + 1);
        std::thread::scope(|scope| {
            let started: Vec<_> = pods
                .iter()
                .map(|pod| {
                    scope.spawn(|| {
                        barrier.wait();
                        self.start_pod(pod)
                    })
                })
                .collect();
            barrier.wait();
            let begin = Instant::now();
            let running = wait_running(&self.client, pods.len());
            for thread in started {
                thread.join().map_err(|_| "a starter panicked".to_owned())??;
            }
            running.map(|at| at - begin)
        })
    }

    fn start_pod(&self, pod: &Pod) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let cancel = Cancel::new();
        let Floor { client, dirs, cgroups, facts, .. } = self;
        let uid = PodUid::from(pod.metadata.uid.as_deref().unwrap_or_default());
        let name = PodName {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
        };
        dirs.ensure_pod(&uid).map_err(|e| text(&e))?;
        dirs.ensure_logs(&name, &uid).map_err(|e| text(&e))?;
        let values = qos::pod_cgroup(pod, &facts.cgroup);
        let values = CgroupValues {
            cpu_shares: Some(values.cpu_shares),
            cpu_quota: values.cpu_quota,
            cpu_period: values.cpu_period,
            memory_limit: values.memory_limit,
            hugepages: values.hugepages,
            ..CgroupValues::default()
        };
        let level = match qos::qos_class(pod) {
            qos::QosClass::Guaranteed => QosLevel::Guaranteed,
            qos::QosClass::Burstable => QosLevel::Burstable,
            qos::QosClass::BestEffort => QosLevel::BestEffort,
        };
        cgroups.ensure_pod(level, &uid, &values).map_err(|e| text(&e))?;
        let inputs = SandboxInputs { resolv_conf: Some(&self.resolv_conf), ..SandboxInputs::default() };
        let (sandbox, _) = sandbox_spec(pod, facts, &inputs).map_err(|e| text(&e))?;
        let id = client.run_pod_sandbox(&sandbox, &cancel).map_err(|e| text(&e))?;
        let status = client.sandbox_status(&id, &cancel).map_err(|e| text(&e))?;
        let ips = status.sandbox.ips;
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let image = container.image.clone().unwrap_or_default();
            let image = ImageSpec { image: image.clone(), user_specified: image, ..ImageSpec::default() };
            let found = client.image_status(&image, &cancel).map_err(|e| text(&e))?;
            let found = found.ok_or_else(|| format!("there is no image {}", image.image))?;
            let hosts = etc_hosts(pod, facts, &ips, &[]).map_err(|e| text(&e))?;
            let hosts = dirs.write_etc_hosts(&uid, &String::from_utf8_lossy(&hosts)).map_err(|e| text(&e))?;
            let message = dirs.make_termination_file(&uid, &container.name).map_err(|e| text(&e))?;
            dirs.ensure_container_logs(&name, &uid, &container.name).map_err(|e| text(&e))?;
            let inputs = ContainerInputs {
                attempt: 0,
                image: &found,
                image_ref: &found.id,
                runtime_handler: "",
                pod_ips: &ips,
                volumes: &BTreeMap::new(),
                subpaths: &BTreeMap::new(),
                etc_hosts: hosts.to_str(),
                termination_log: message.to_str(),
                target: None,
                user_namespace: None,
                env: &EnvSources::default(),
            };
            let spec = container_spec(pod, container, facts, &inputs).map_err(|e| text(&e))?;
            let made = client.create_container(&id, &spec, &sandbox, &cancel).map_err(|e| text(&e))?;
            client.start_container(&made, &cancel).map_err(|e| text(&e))?;
        }
        Ok(())
    }
}

/// The pod that the agent makes of a manifest.
fn pod(name: &str, text: &str) -> Result<Pod, String> {
    let pod = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let origin = Origin { kind: SourceKind::File, place: name, node_name: NODE };
    manifest::admit(pod, &origin, None, &manifest::now_text(), |_, _, _| None).map_err(|problems| problems.join("; "))
}

/// Waits until `count` pods have all they want running, as the runtime tells; the moment of that.
pub(crate) fn wait_running(client: &Client, count: usize) -> Result<Instant, String> {
    let within = Duration::from_secs(60) + Duration::from_secs(6) * u32::try_from(count).unwrap_or(0);
    wait(client, within, |pods| {
        let running = pods.iter().filter(|pod| pod.1 == Some(Life::Running)).count();
        // What of an earlier round still goes is not counted for one of these.
        if running == count && pods.len() == count {
            Ok(())
        } else {
            Err(format!("{running} of {} pods run, {count} are wanted", pods.len()))
        }
    })
}

/// Looks at the runtime again and again: at each pod with the state of its newest-named container.
fn wait(
    client: &Client,
    within: Duration,
    mut look: impl FnMut(&[(PodUid, Option<Life>)]) -> Result<(), String>,
) -> Result<Instant, String> {
    let (begin, cancel) = (Instant::now(), Cancel::new());
    loop {
        let pods = client.glimpse(&cancel).map_err(|error| error.to_string())?;
        let seen = Instant::now();
        let state = |containers: Vec<_>| containers.into_iter().map(|(_, life)| life).next_back();
        let pods: Vec<_> = pods.into_iter().map(|pod| (pod.uid, state(pod.containers))).collect();
        match look(&pods) {
            Ok(()) => return Ok(seen),
            Err(state) if begin.elapsed() > within => return Err(format!("waited {within:?}; {state}")),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Ends and removes every pod of the runtime, and waits until none is left.
pub(crate) fn remove_all(client: &Client) -> Result<(), String> {
    let mut left = String::new();
    // What a busy runtime refuses at first it does later.
    for _ in 0..3 {
        remove_once(client)?;
        match wait(client, Duration::from_secs(30), |pods| {
            if pods.is_empty() { Ok(()) } else { Err(format!("{} pods are left", pods.len())) }
        }) {
            Ok(_) => return Ok(()),
            Err(problem) => left = problem,
        }
    }
    Err(left)
}

fn remove_once(client: &Client) -> Result<(), String> {
    let cancel = Cancel::new();
    let pods = client.glimpse(&cancel).map_err(|error| error.to_string())?;
    let sandboxes: Vec<_> = pods.into_iter().flat_map(|pod| pod.sandboxes).map(|(id, _)| id).collect();
    for some in sandboxes.chunks(8) {
        std::thread::scope(|scope| {
            for id in some {
                let cancel = &cancel;
                scope.spawn(move || {
                    // Whether it worked is seen by whether it is gone.
                    drop(client.stop_pod_sandbox(id, cancel));
                    drop(client.remove_pod_sandbox(id, cancel));
                });
            }
        });
    }
    Ok(())
}
