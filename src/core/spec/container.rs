//! A container of a pod.
//!
//! Layer L1, pure. It gathers what the other files of this folder decide.

use std::collections::BTreeMap;

use crate::api::runtime::{ContainerSpec, ImageSpec};
use crate::api::v1::{Container, Pod};
use crate::util::order::Gather;

use super::expand::expand;
use super::{ContainerInputs, NodeFacts, SpecError, SubPath, env, marks, mounts, resources, security};

/// What the runtime is asked for to make a container. An error means the waiting reason
/// [`CONTAINER_CONFIG_ERROR`](super::CONTAINER_CONFIG_ERROR).
pub fn container_spec(
    pod: &Pod,
    container: &Container,
    facts: &NodeFacts,
    inputs: &ContainerInputs<'_>,
) -> Result<ContainerSpec, SpecError> {
    refuse_unsupported(container)?;
    let env = env::environment(pod, container, facts, inputs.pod_ips, inputs.env)?;
    let values = env_map(&env);
    let expanded = |words: Option<&Vec<String>>| -> Vec<String> {
        words.into_iter().flatten().map(|word| expand(word, |name| values.get(name).copied())).collect()
    };
    let command = expanded(container.command.as_ref());
    let args = expanded(container.args.as_ref());
    let mounts = mounts::mounts(pod, container, facts, inputs, &values)?;
    let security = security::container_security(
        pod,
        container,
        facts,
        inputs.image,
        inputs.runtime_handler,
        inputs.user_namespace,
        inputs.target,
    )?;
    Ok(ContainerSpec {
        name: container.name.clone(),
        attempt: inputs.attempt,
        image: ImageSpec {
            image: inputs.image_ref.to_owned(),
            user_specified: container.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        },
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        mounts,
        devices: Vec::new(),
        cdi_devices: Vec::new(),
        stop_signal: container.lifecycle.as_ref().and_then(|l| l.stop_signal.clone()).unwrap_or_default(),
        labels: marks::container_labels(pod, container),
        annotations: marks::container_annotations(pod, container, inputs.attempt),
        log_path: format!("{}/{}.log", container.name, inputs.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        resources: resources::container_resources(pod, container, facts),
        security,
        env,
    })
}

/// Sub paths that have to be bound before [`container_spec`] is called with them. `subpaths` of the
/// inputs is not looked at.
pub fn subpaths(
    pod: &Pod,
    container: &Container,
    facts: &NodeFacts,
    inputs: &ContainerInputs<'_>,
) -> Result<Vec<SubPath>, SpecError> {
    let mut mounts = container.volume_mounts.iter().flatten();
    let filled = |text: &Option<String>| text.as_deref().is_some_and(|t| !t.is_empty());
    if !mounts.any(|m| filled(&m.sub_path) || filled(&m.sub_path_expr)) {
        return Ok(Vec::new());
    }
    let env = env::environment(pod, container, facts, inputs.pod_ips, inputs.env)?;
    mounts::wanted_subpaths(pod, container, facts, inputs.volumes, &env_map(&env))
}

fn env_map(env: &[(String, String)]) -> BTreeMap<&str, &str> {
    env.iter().map(|(name, value)| (name.as_str(), value.as_str())).gather()
}

/// A field that would be left out silently is told instead.
fn refuse_unsupported(container: &Container) -> Result<(), SpecError> {
    let filled = [
        ("volumeDevices", container.volume_devices.as_ref().is_some_and(|d| !d.is_empty())),
        (
            "resources.claims",
            container.resources.as_ref().and_then(|r| r.claims.as_ref()).is_some_and(|c| !c.is_empty()),
        ),
    ];
    match filled.into_iter().find(|(_, is_set)| *is_set) {
        Some((what, _)) => Err(SpecError::Unsupported { container: container.name.clone(), what }),
        None => Ok(()),
    }
}
