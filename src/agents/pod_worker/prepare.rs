//! What a pod needs on the host before its sandbox, and what is taken away after it: folders, cgroup,
//! volumes, logs. On a `pod-N` thread, since any file system may hang. Repeating a step is harmless.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use super::run::{Run, reason};
use super::{Tools, patience};
use crate::api::pod::all_containers;
use crate::api::runtime::ImageSpec;
use crate::api::v1::{DownwardAPIVolumeFile, Pod};
use crate::core::qos::{self, Overhead, QosClass};
use crate::core::spec::VolumeSource;
use crate::core::spec::downward::{DownwardFile, downward_files};
use crate::host::HostError;
use crate::host::cgroup::QosLevel;
use crate::host::cgroup_values::CgroupValues;
use crate::host::facts::read_resolv_conf;
use crate::msg::{EventType, Reason, Step};
use crate::util::metrics::kubelet;
use crate::util::order::Gather;
use crate::volumes::{MountedVolume, PodInputs, VolumeContext, VolumeError, VolumeFile, mount_pod, unmount_pod};

/// What is there for the containers.
pub(super) struct Prepared {
    pub(super) volumes: BTreeMap<String, VolumeSource>,
}

pub(super) fn prepare(run: &Run<'_>) -> Result<Prepared, Reason> {
    let Run { tools, work, .. } = run;
    let failed = |what: &str, error: &HostError| {
        reason("CreatePodFolderError", format!("{what} of pod {}: {}", work.name, crate::host::error::explain(error)))
    };
    tools.dirs.ensure_pod(&work.uid).map_err(|e| failed("folder", &e))?;
    tools.dirs.ensure_logs(&work.name, &work.uid).map_err(|e| failed("log folder", &e))?;
    if let Some(cgroups) = &tools.cgroups {
        let level = qos_level(run);
        if level == QosLevel::Burstable {
            weigh_burstable(run);
        }
        let values = pod_cgroup_values(run);
        let began = Instant::now();
        let ensured = cgroups.ensure_pod(level, &work.uid, &values);
        kubelet::CGROUP_DURATION.observe(&["create"], began.elapsed());
        ensured.map_err(|e| {
            reason(
                "FailedCreatePodContainer",
                format!("unable to ensure pod container exists: {}", crate::host::error::explain(&e)),
            )
        })?;
    }
    if wants_propagation(run) {
        let shared = crate::host::mounts::ensure_shared(tools.dirs.root(), &tools.mount_table);
        shared.map_err(|e| failed("mount propagation", &e))?;
    }
    let inputs = PodInputs { memory_limit: memory_limit(run), downward: downward_inputs(run) };
    let pod = std::sync::Arc::clone(&work.pod);
    let mounted = on_volumes(run, "making the volumes", move |context| mount_pod(context, &pod, &inputs))
        .map_err(|why| reason("FailedMount", tell_text(run, why)))?
        .map_err(|errors| reason("FailedMount", tell_mounts(run, &errors).join("; ")))?;
    tell_mounts(run, &mounted.kept);
    let volumes = mounted.volumes.into_iter().map(|(name, volume)| (name, source(volume))).gather();
    Ok(Prepared { volumes })
}

/// Works on the volumes of the pod: off the worker's thread and within a limit where it may hang.
///
/// # Errors
/// It hangs.
pub(super) fn on_volumes<T: Send + 'static>(
    run: &Run<'_>,
    what: &str,
    job: impl FnOnce(&VolumeContext<'_>) -> T + Send + 'static,
) -> Result<T, String> {
    let Run { tools, work, .. } = run;
    // Only a path of the administrator's leads to file systems that the agent did not make.
    let volumes = work.pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    if !volumes.iter().any(|volume| volume.host_path.is_some()) {
        return Ok(job(&volume_context(tools)));
    }
    let (dirs, mount_table, objects) =
        (tools.dirs.clone(), tools.mount_table.clone(), std::sync::Arc::clone(&tools.objects));
    let node_memory = tools.facts.memory_capacity;
    tools.patience.within(&work.uid, what, patience::LIMIT, &work.cancel, move || {
        let objects = objects.as_ref();
        job(&VolumeContext { dirs: &dirs, mount_table: &mount_table, node_memory, objects })
    })
}

fn tell_text(run: &Run<'_>, text: String) -> String {
    run.event("", EventType::Warning, "FailedMount", text.clone());
    text
}

/// Tells of volumes that are not as they should be.
fn tell_mounts(run: &Run<'_>, errors: &[VolumeError]) -> Vec<String> {
    let texts: Vec<String> = errors.iter().map(|e| crate::host::error::explain(e)).collect();
    for text in &texts {
        run.event("", EventType::Warning, "FailedMount", text.clone());
    }
    texts
}

/// The burstable level weighs as much as all its pods ask for together.
pub(super) fn weigh_burstable(run: &Run<'_>) {
    let Some(cgroups) = &run.tools.cgroups else { return };
    let view = run.tools.view.get();
    let others =
        view.pods.values().filter(|p| p.uid != run.work.uid && p.stage == "Active").filter_map(|p| p.pod.as_deref());
    let ends = run.work.steps.iter().any(|s| s.step == Step::ReleasePod);
    let own = (!ends).then_some(run.work.pod.as_ref());
    let burstable = others.chain(own).filter(|pod| qos::qos_class(pod) == QosClass::Burstable);
    let cpu =
        |pod: &Pod| qos::pod_requests(pod, Overhead::Included).get("cpu").map_or(0, |amount| amount.milli_value());
    let shares = qos::milli_cpu_to_shares(burstable.map(cpu).fold(0, i64::saturating_add));
    if let Err(error) = cgroups.ensure_level_shares(QosLevel::Burstable, shares) {
        log::warn!("the burstable level keeps its old share: {}", crate::host::error::explain(&error));
    }
}

/// Takes volumes and cgroup away.
pub(super) fn release(run: &Run<'_>) -> Result<(), Reason> {
    let Run { tools, work, .. } = run;
    let mut problems: Vec<String> = Vec::new();
    tools.objects.forget(&work.uid);
    let uid = work.uid.clone();
    match on_volumes(run, "taking the volumes away", move |context| unmount_pod(context, &uid)) {
        Ok(Ok(())) => {}
        Ok(Err(errors)) => problems.extend(errors.iter().map(|e| crate::host::error::explain(e))),
        Err(why) => problems.push(why),
    }
    if let Some(cgroups) = &tools.cgroups {
        // The class is not asked: what a pod without a spec had is known from where its cgroup is. Nor is it
        // asked whether the cgroup is there: one that somebody was killed over is there in some hierarchies only.
        for level in [QosLevel::Guaranteed, QosLevel::Burstable, QosLevel::BestEffort] {
            let began = Instant::now();
            let destroyed = cgroups.destroy(&cgroups.pod(level, &work.uid));
            kubelet::CGROUP_DURATION.observe(&["destroy"], began.elapsed());
            if let Err(error) = destroyed {
                problems.push(crate::host::error::explain(&error));
            }
        }
    }
    weigh_burstable(run);
    if problems.is_empty() { Ok(()) } else { Err(reason("FailedCleanup", problems.join("; "))) }
}

/// Removes folder and logs.
pub(super) fn forget(run: &Run<'_>) -> Result<(), Reason> {
    let Run { tools, work, .. } = run;
    let mut problems: Vec<String> = Vec::new();
    if let Err(errors) = tools.dirs.remove(&work.uid, &tools.mount_table) {
        problems.extend(errors.iter().map(|e| crate::host::error::explain(e)));
    }
    // A pod that is known by its uid alone is named by its log folder.
    let names = match work.name.name.is_empty() {
        false => vec![work.name.clone()],
        true => match tools.dirs.list_logs() {
            Ok(found) => found.into_iter().filter(|(_, uid)| *uid == work.uid).map(|(name, _)| name).collect(),
            Err(error) => {
                problems.push(crate::host::error::explain(&error));
                Vec::new()
            }
        },
    };
    for name in names {
        if let Err(errors) = tools.dirs.remove_logs(&name, &work.uid) {
            problems.extend(errors.iter().map(|e| crate::host::error::explain(e)));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(reason("FailedCleanup", problems.join("; "))) }
}

/// The node's resolv.conf; `None` when the setting is empty.
pub(super) fn resolv_conf(tools: &Tools) -> Result<Option<String>, Reason> {
    if tools.resolv_conf.is_empty() {
        return Ok(None);
    }
    read_resolv_conf(Path::new(&tools.resolv_conf))
        .map(Some)
        .map_err(|e| reason("CreatePodSandboxError", format!("resolvConf: {}", crate::host::error::explain(&e))))
}

/// Whether mounts travel between the node and a container: then the agent's folder has to be shared.
fn wants_propagation(run: &Run<'_>) -> bool {
    all_containers(&run.work.pod).any(|(_, container)| {
        let mut mounts = container.volume_mounts.iter().flatten();
        mounts.any(|m| matches!(m.mount_propagation.as_deref(), Some("HostToContainer" | "Bidirectional")))
    })
}

pub(super) fn qos_level(run: &Run<'_>) -> QosLevel {
    match qos::qos_class(&run.work.pod) {
        QosClass::Guaranteed => QosLevel::Guaranteed,
        QosClass::Burstable => QosLevel::Burstable,
        QosClass::BestEffort => QosLevel::BestEffort,
    }
}

pub(super) fn pod_cgroup_values(run: &Run<'_>) -> CgroupValues {
    let values = qos::pod_cgroup(&run.work.pod, &run.tools.facts.cgroup);
    CgroupValues {
        cpu_shares: Some(values.cpu_shares),
        cpu_quota: values.cpu_quota,
        cpu_period: values.cpu_period,
        memory_limit: values.memory_limit,
        pids_limit: (run.tools.pod_pids_limit > 0).then_some(run.tools.pod_pids_limit),
        hugepages: values.hugepages,
        unified: BTreeMap::new(),
    }
}

fn memory_limit(run: &Run<'_>) -> Option<u64> {
    let limit = qos::pod_cgroup(&run.work.pod, &run.tools.facts.cgroup).memory_limit?;
    u64::try_from(limit).ok().filter(|bytes| *bytes > 0)
}

pub(super) fn volume_context(tools: &Tools) -> VolumeContext<'_> {
    VolumeContext {
        dirs: &tools.dirs,
        mount_table: &tools.mount_table,
        node_memory: tools.facts.memory_capacity,
        objects: tools.objects.as_ref(),
    }
}

/// Downward API files of the pod's volumes.
fn downward_inputs(run: &Run<'_>) -> BTreeMap<(String, usize), Result<Vec<VolumeFile>, String>> {
    let mut inputs = BTreeMap::new();
    let volumes = run.work.pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    for volume in volumes {
        if let Some(source) = &volume.downward_api {
            let files = downward(run, source.items.as_deref(), source.default_mode);
            inputs.insert((volume.name.clone(), 0), files);
        }
        let Some(projected) = &volume.projected else { continue };
        for (index, part) in projected.sources.iter().flatten().enumerate() {
            if let Some(source) = &part.downward_api {
                let files = downward(run, source.items.as_deref(), projected.default_mode);
                inputs.insert((volume.name.clone(), index), files);
            }
        }
    }
    inputs
}

fn downward(
    run: &Run<'_>,
    items: Option<&[DownwardAPIVolumeFile]>,
    mode: Option<i32>,
) -> Result<Vec<VolumeFile>, String> {
    let files = downward_files(&run.work.pod, items.unwrap_or_default(), mode.unwrap_or(0o644), &run.tools.facts)
        .map_err(|error| error.to_string())?;
    let file = |f: DownwardFile| VolumeFile { path: f.path, mode: f.mode, owner: None, bytes: f.bytes };
    Ok(files.into_iter().map(file).collect())
}

fn source(volume: MountedVolume) -> VolumeSource {
    match volume {
        MountedVolume::Path { host_path, read_only, selinux_relabel } => {
            VolumeSource::Path { host_path: host_path.to_string_lossy().into_owned(), read_only, selinux_relabel }
        }
        MountedVolume::Image { reference, .. } => VolumeSource::Image(ImageSpec {
            image: reference.clone(),
            user_specified: reference,
            ..ImageSpec::default()
        }),
    }
}
