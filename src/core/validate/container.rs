//! Containers of a pod: init containers, sidecars, app containers. Pure.

use std::collections::BTreeSet;

use super::names::{anything, dns_label, port_name};
use super::report::Report;
use super::{env, names, probe, resources, security, volume};
use crate::api::v1::{Container, ContainerPort, PodSpec};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
/// Most restart rules of one container.
const MAX_RULES: usize = 20;
/// Most exit codes of one restart rule.
const MAX_EXIT_CODES: usize = 255;

/// All containers of the pod.
pub(super) fn check(report: &mut Report, spec: &PodSpec) {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let mut names = BTreeSet::new();
    let mut once = |report: &mut Report, name: &str| {
        if !name.is_empty() && !names.insert(name.to_owned()) {
            report.at("name", |report| report.wrong(name, "is the name of another container as well"));
        }
    };
    if spec.containers.is_empty() {
        report.fail_at("containers", "a pod needs at least one container");
    }
    let mut host_ports = BTreeSet::new();
    report.each_at("containers", Some(&spec.containers), |report, container| {
        once(report, &container.name);
        check_common(report, spec, container);
        probe::check(report, container, spec.termination_grace_period_seconds, os_of(spec));
        check_host_ports(report, container, &mut host_ports);
    });
    report.each_at("initContainers", Some(init), |report, container| {
        once(report, &container.name);
        check_common(report, spec, container);
        if container.restart_policy.as_deref() == Some("Always") {
            probe::check(report, container, spec.termination_grace_period_seconds, os_of(spec));
        } else {
            probe::check_absent(report, container);
        }
        // Init containers run one at a time.
        check_host_ports(report, container, &mut BTreeSet::new());
    });
    // Only an API server can add them to a pod, while it runs.
    if spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()) {
        report.fail_at("ephemeralContainers", "must not be set for a new pod");
    }
}

fn os_of(spec: &PodSpec) -> Option<&str> {
    spec.os.as_ref().map(|os| os.name.as_str())
}

fn check_common(report: &mut Report, spec: &PodSpec, container: &Container) {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    report.required("name", &container.name, dns_label);
    report.required("image", container.image.as_deref().unwrap_or_default(), |image| match image.trim() == image {
        true => Ok(()),
        false => Err("must have no spaces around it"),
    });
    report.one_of("imagePullPolicy", container.image_pull_policy.as_deref(), &["Always", "IfNotPresent", "Never"]);
    report.one_of(
        "terminationMessagePolicy",
        container.termination_message_policy.as_deref(),
        &["File", "FallbackToLogsOnError"],
    );
    check_ports(report, container.ports.as_deref(), spec.host_network == Some(true));
    env::check(report, container, volumes);
    volume::check_mounts(report, container, volumes);
    if let Some(own) = &container.resources {
        let claims: Vec<&str> = spec.resource_claims.iter().flatten().map(|claim| claim.name.as_str()).collect();
        report.at("resources", |report| resources::check_container(report, own, &claims));
    }
    check_resize_policy(report, spec, container);
    if let Some(context) = &container.security_context {
        let host_users = spec.host_users != Some(false);
        report.at("securityContext", |report| security::check_container(report, context, host_users));
    }
    check_restart(report, container);
}

fn check_ports(report: &mut Report, ports: Option<&[ContainerPort]>, host_network: bool) {
    let mut names = BTreeSet::new();
    report.each_at("ports", ports, |report, port| {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            report.at("name", |report| {
                report.keeps(name, port_name);
                if !names.insert(name.to_owned()) {
                    report.wrong(name, "is the name of another port of this container as well");
                }
            });
        }
        report.within("containerPort", Some(port.container_port.into()), 1, 65535);
        let host_port = port.host_port.filter(|port| *port != 0);
        report.within("hostPort", host_port.map(i64::from), 1, 65535);
        if host_network && host_port.is_some_and(|host_port| host_port != port.container_port) {
            report.fail_at("hostPort", "must be the same as containerPort when hostNetwork is true");
        }
        report.one_of("protocol", port.protocol.as_deref(), &["TCP", "UDP", "SCTP"]);
        report.optional("hostIP", port.host_ip.as_deref(), names::ip);
    });
}

type HostPort = (String, String, i32);

fn check_host_ports(report: &mut Report, container: &Container, taken: &mut BTreeSet<HostPort>) {
    report.each_at("ports", container.ports.as_deref(), |report, port| {
        let Some(host_port) = port.host_port.filter(|port| *port != 0) else { return };
        let protocol = port.protocol.clone().unwrap_or_default();
        let address = port.host_ip.clone().unwrap_or_default();
        if !taken.insert((protocol, address, host_port)) {
            report.fail_at("hostPort", format!("{host_port} is taken by another port of this pod"));
        }
    });
}

fn check_resize_policy(report: &mut Report, spec: &PodSpec, container: &Container) {
    let mut resources = BTreeSet::new();
    report.each_at("resizePolicy", container.resize_policy.as_deref(), |report, policy| {
        report.required("resourceName", &policy.resource_name, anything);
        report.one_of("resourceName", Some(policy.resource_name.as_str()), &["cpu", "memory"]);
        report.one_of("restartPolicy", Some(policy.restart_policy.as_str()), &["NotRequired", "RestartContainer"]);
        if spec.restart_policy.as_deref() == Some("Never") && policy.restart_policy == "RestartContainer" {
            report.fail_at("restartPolicy", "must be NotRequired when the pod's restartPolicy is Never");
        }
        if !resources.insert(policy.resource_name.clone()) {
            report.fail_at("resourceName", "is given twice");
        }
    });
}

fn check_restart(report: &mut Report, container: &Container) {
    report.one_of("restartPolicy", container.restart_policy.as_deref(), &RESTART_POLICIES);
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    if container.restart_policy.is_none() && !rules.is_empty() {
        report.fail_at("restartPolicy", "must be set when restartPolicyRules are");
    }
    if rules.len() > MAX_RULES {
        report.fail_at("restartPolicyRules", format!("{} are too many: at most {MAX_RULES}", rules.len()));
    }
    report.each_at("restartPolicyRules", Some(rules), |report, rule| {
        report.one_of("action", Some(rule.action.as_str()), &["Restart", "RestartAllContainers"]);
        match &rule.exit_codes {
            None => report.fail_at("exitCodes", "must be set"),
            Some(codes) => report.at("exitCodes", |report| {
                report.one_of("operator", Some(codes.operator.as_str()), &["In", "NotIn"]);
                if codes.values.as_ref().is_some_and(|values| values.len() > MAX_EXIT_CODES) {
                    report.fail_at("values", format!("are too many: at most {MAX_EXIT_CODES}"));
                }
            }),
        }
    });
}
