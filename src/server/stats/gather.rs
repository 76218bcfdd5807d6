//! One look at everything that runs: the machine, the levels of the pods' cgroups, pods, sandboxes, containers.
//!
//! Blocking reads of cgroup files on the caller's thread. Owns nothing but what it read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::StatsSources;
use crate::api::moment::Now;
use crate::api::runtime::{ContainerState, RuntimeContainer, RuntimeSandbox, SandboxState, UnixNanos};
use crate::core::qos::{QosClass, qos_class};
use crate::host::cgroup::{CgroupTree, QosLevel};
use crate::host::usage::network::Interface;
use crate::host::usage::{CgroupUsage, Detail, Memory, Reader};
use crate::msg::PodView;
use crate::util::clock;

/// The first process of the machine: it lives in the machine's own network.
const INIT: u32 = 1;

/// What something uses, since when, and at which rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Used {
    /// What it uses.
    pub(super) usage: CgroupUsage,
    /// When it started; 0 if nobody knows.
    pub(super) started_at: UnixNanos,
    /// Nanoseconds of CPU a second.
    pub(super) nano_cores: Option<u64>,
}

/// A cgroup that is no container's.
#[derive(Clone, Debug)]
pub(super) struct GroupReading {
    /// Its path in the tree.
    pub(super) cgroup: PathBuf,
    /// Name in /stats/summary; empty for those that are not told there.
    pub(super) name: &'static str,
    pub(super) used: Used,
}

/// A container or a sandbox.
#[derive(Clone, Debug)]
pub(super) struct ContainerReading {
    /// Its path in the tree.
    pub(super) cgroup: PathBuf,
    /// Where it is in the pod's list of containers; `None` for the sandbox.
    index: Option<usize>,
    pub(super) used: Used,
}

/// A pod with what runs of it.
#[derive(Clone, Debug)]
pub(super) struct PodReading {
    pub(super) view: Arc<PodView>,
    /// Its path in the tree.
    pub(super) cgroup: PathBuf,
    /// All of the pod.
    pub(super) used: Used,
    /// The sandbox, as far as it was looked at.
    pub(super) sandbox: Option<ContainerReading>,
    /// Containers that run.
    pub(super) containers: Vec<ContainerReading>,
    /// Its network, unless it is the machine's.
    pub(super) interfaces: Vec<Interface>,
}

impl PodReading {
    /// What the runtime tells of a container.
    pub(super) fn container(&self, reading: &ContainerReading) -> Option<&RuntimeContainer> {
        self.view.runtime.as_ref()?.containers.get(reading.index?)
    }

    /// The pod's present sandbox.
    pub(super) fn sandbox_facts(&self) -> Option<&RuntimeSandbox> {
        ready_sandbox(&self.view)
    }

    /// When the pod began, as its status tells.
    pub(super) fn started_at(&self) -> UnixNanos {
        let time = self.view.status.start_time.as_ref();
        time.map_or(0, |time| i64::try_from(time.0.as_nanosecond()).unwrap_or(0))
    }
}

/// All that was read.
#[derive(Clone, Debug)]
pub(super) struct NodeReading {
    /// When.
    pub(super) at: Now,
    /// The machine.
    pub(super) root: Used,
    /// The level of all pods, those of the quality-of-service levels, and what the system's settings name.
    pub(super) groups: Vec<GroupReading>,
    pub(super) pods: Vec<PodReading>,
    /// The machine's network.
    pub(super) interfaces: Vec<Interface>,
    /// Whether the machine itself could not be read.
    pub(super) failed: bool,
}

impl NodeReading {
    /// Calls with everything that has a rate, and a name for it that is its own.
    pub(super) fn each_used(&self, call: &mut dyn FnMut(&str, &Used)) {
        call("/", &self.root);
        for group in &self.groups {
            call(&group.cgroup.to_string_lossy(), &group.used);
        }
        for pod in &self.pods {
            call(&pod.cgroup.to_string_lossy(), &pod.used);
            for container in &pod.containers {
                call(&container.cgroup.to_string_lossy(), &container.used);
            }
        }
    }

    /// The same, to change them.
    pub(super) fn each_used_mut(&mut self, call: &mut dyn FnMut(&str, &mut Used)) {
        call("/", &mut self.root);
        for group in &mut self.groups {
            call(&group.cgroup.to_string_lossy(), &mut group.used);
        }
        for pod in &mut self.pods {
            call(&pod.cgroup.to_string_lossy(), &mut pod.used);
            for container in &mut pod.containers {
                call(&container.cgroup.to_string_lossy(), &mut container.used);
            }
        }
    }

    /// A machine without pods.
    #[cfg(test)]
    pub(super) fn bare(at: Now, root: Used) -> Self {
        Self { at, root, groups: Vec::new(), pods: Vec::new(), interfaces: Vec::new(), failed: false }
    }
}

/// A look in progress.
pub(super) struct Reading<'a> {
    sources: &'a StatsSources,
    detail: Detail,
    reader: Reader,
}

impl<'a> Reading<'a> {
    /// Looks at everything.
    pub(super) fn of(sources: &'a StatsSources, detail: Detail) -> NodeReading {
        let mut reading = Self { sources, detail, reader: Reader::new(&sources.proc) };
        reading.node()
    }

    fn node(&mut self) -> NodeReading {
        let at = clock::now();
        let mut node = NodeReading {
            at,
            root: Used { started_at: self.reader.booted_at().unwrap_or(0), ..Used::default() },
            groups: Vec::new(),
            pods: Vec::new(),
            interfaces: Vec::new(),
            failed: true,
        };
        let sources = self.sources;
        if self.detail >= Detail::Summary {
            node.interfaces = self.reader.interfaces(INIT);
        }
        let Some(tree) = &sources.cgroups else { return node };
        if let Some(usage) = self.root(tree) {
            node.root.usage = usage;
            node.failed = false;
        }
        self.group(tree, tree.kubepods(), "pods", &mut node.groups);
        if self.detail >= Detail::All {
            for level in [QosLevel::Burstable, QosLevel::BestEffort] {
                self.group(tree, &tree.level(level), "", &mut node.groups);
            }
        }
        for (name, cgroup) in &sources.system_cgroups {
            self.group(tree, cgroup, name, &mut node.groups);
        }
        let view = sources.view.get();
        node.pods = view.pods.values().filter_map(|pod| self.pod(tree, pod)).collect();
        node
    }

    /// The machine as a cgroup: its memory is what the machine has.
    fn root(&mut self, tree: &CgroupTree) -> Option<CgroupUsage> {
        let mut usage = self.reader.cgroup(tree, Path::new("/"), self.detail)?;
        if self.detail >= Detail::Summary && usage.pressure.memory.is_none() {
            usage.pressure = self.reader.machine_pressure();
        }
        let machine = &self.sources.machine;
        if let Some(memory) = &mut usage.memory {
            *memory = Memory {
                limit: Some(machine.memory).filter(|memory| *memory > 0),
                swap_limit: Some(machine.swap),
                ..*memory
            };
        }
        Some(usage)
    }

    fn group(&mut self, tree: &CgroupTree, cgroup: &Path, name: &'static str, groups: &mut Vec<GroupReading>) {
        if let Some(usage) = self.reader.cgroup(tree, cgroup, self.detail) {
            let started_at = self.reader.made_at(tree, cgroup).unwrap_or(0);
            let used = Used { usage, started_at, nano_cores: None };
            groups.push(GroupReading { cgroup: cgroup.to_path_buf(), name, used });
        }
    }

    /// A pod of which something runs.
    fn pod(&mut self, tree: &CgroupTree, view: &Arc<PodView>) -> Option<PodReading> {
        let runtime = view.runtime.as_ref()?;
        let sandbox = ready_sandbox(view)?;
        let (cgroup, usage) = self.pod_cgroup(tree, view)?;
        let started_at = view.status.start_time.as_ref();
        let started_at = started_at.and_then(|time| i64::try_from(time.0.as_nanosecond()).ok()).unwrap_or(0);
        let mut pod = PodReading {
            view: Arc::clone(view),
            used: Used { usage, started_at, nano_cores: None },
            sandbox: None,
            containers: Vec::new(),
            interfaces: Vec::new(),
            cgroup,
        };
        for (index, container) in runtime.containers.iter().enumerate() {
            let ContainerState::Running { started_at } = container.state else { continue };
            if let Some(reading) = self.container(tree, &pod.cgroup, container.id.as_str(), started_at) {
                pod.containers.push(ContainerReading { index: Some(index), ..reading });
            }
        }
        if self.detail >= Detail::All {
            pod.sandbox = self.container(tree, &pod.cgroup, sandbox.id.as_str(), sandbox.created_at);
        }
        if self.detail >= Detail::Summary && !sandbox.host_network {
            // Any of its processes is in its network; the sandbox's own is there as long as the pod.
            let cgroup = match &pod.sandbox {
                Some(sandbox) => Some(sandbox.cgroup.clone()),
                None => self.container_cgroup(tree, &pod.cgroup, sandbox.id.as_str()),
            };
            let places = cgroup.iter().chain(pod.containers.iter().map(|container| &container.cgroup));
            let pid = places.into_iter().find_map(|cgroup| self.reader.first_process(tree, cgroup));
            pod.interfaces = pid.map(|pid| self.reader.interfaces(pid)).unwrap_or_default();
        }
        Some(pod)
    }

    /// The pod's cgroup: at the level that its spec tells, or at another if that is not known any more.
    fn pod_cgroup(&mut self, tree: &CgroupTree, view: &PodView) -> Option<(PathBuf, CgroupUsage)> {
        let told = view.pod.as_ref().map(|pod| match qos_class(pod) {
            QosClass::Guaranteed => QosLevel::Guaranteed,
            QosClass::Burstable => QosLevel::Burstable,
            QosClass::BestEffort => QosLevel::BestEffort,
        });
        let others = QosLevel::ALL.into_iter().filter(|level| Some(*level) != told);
        told.into_iter().chain(others).find_map(|level| {
            let cgroup = tree.pod(level, &view.uid);
            let usage = self.reader.cgroup(tree, &cgroup, self.detail)?;
            Some((cgroup, usage))
        })
    }

    fn container(
        &mut self,
        tree: &CgroupTree,
        pod: &Path,
        id: &str,
        started_at: UnixNanos,
    ) -> Option<ContainerReading> {
        let cgroup = pod.join(id);
        let (cgroup, usage) = match self.reader.cgroup(tree, &cgroup, self.detail) {
            Some(usage) => (cgroup, usage),
            None => {
                let cgroup = self.container_cgroup(tree, pod, id)?;
                let usage = self.reader.cgroup(tree, &cgroup, self.detail)?;
                (cgroup, usage)
            }
        };
        Some(ContainerReading { cgroup, index: None, used: Used { usage, started_at, nano_cores: None } })
    }

    /// A container's cgroup: named after it, with whatever the runtime puts around its id.
    fn container_cgroup(&self, tree: &CgroupTree, pod: &Path, id: &str) -> Option<PathBuf> {
        let folder = tree.controller_folder("memory", pod).or_else(|| tree.controller_folder("cpu", pod))?;
        if folder.join(id).is_dir() {
            return Some(pod.join(id));
        }
        let entries = fs::read_dir(folder).ok()?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.into_iter().find(|name| name.contains(id)).map(|name| pod.join(name))
    }
}

fn ready_sandbox(view: &PodView) -> Option<&RuntimeSandbox> {
    view.runtime.as_ref()?.sandboxes.iter().find(|sandbox| sandbox.state == SandboxState::Ready)
}
