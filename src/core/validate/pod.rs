//! The pod as a whole: metadata, names, DNS, deadlines, tolerations. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{annotation_key, dns_label, dns_search, dns_subdomain, ip, label_value, qualified_name};
use super::report::Report;
use super::{container, resources, security, volume};
use crate::api::v1::{Pod, PodSpec};

/// Most bytes of all annotations together.
const MAX_ANNOTATIONS: usize = 256 * 1024;
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
/// Longest host name of Linux.
const MAX_HOSTNAME: usize = 64;

/// Metadata and spec.
pub(super) fn check(report: &mut Report, pod: &Pod) {
    report.at("metadata", |report| {
        let metadata = &pod.metadata;
        report.required("name", metadata.name.as_deref().unwrap_or_default(), dns_subdomain);
        report.required("namespace", metadata.namespace.as_deref().unwrap_or_default(), dns_label);
        check_labels(report, "labels", metadata.labels.as_ref());
        report.at("annotations", |report| {
            let mut size = 0;
            for (key, value) in metadata.annotations.iter().flatten() {
                report.key(key, |report| report.keeps(key, annotation_key));
                size += key.len() + value.len();
            }
            if size > MAX_ANNOTATIONS {
                report.fail(format!("{size} bytes are too many: at most {MAX_ANNOTATIONS}"));
            }
        });
    });
    report.at("spec", |report| match &pod.spec {
        Some(spec) => check_spec(report, spec),
        None => report.fail("must be set"),
    });
}

fn check_labels(report: &mut Report, field: &str, labels: Option<&BTreeMap<String, String>>) {
    report.at(field, |report| {
        for (key, value) in labels.into_iter().flatten() {
            report.key(key, |report| {
                report.keeps(key, qualified_name);
                report.keeps(value, label_value);
            });
        }
    });
}

fn check_spec(report: &mut Report, spec: &PodSpec) {
    volume::check(report, spec.volumes.as_deref().unwrap_or_default());
    container::check(report, spec);
    resources::check_pod(report, spec);
    security::check_pod(report, spec);
    report.one_of("restartPolicy", spec.restart_policy.as_deref(), &["Always", "OnFailure", "Never"]);
    report.within("activeDeadlineSeconds", spec.active_deadline_seconds, 1, i64::from(i32::MAX));
    report.within("terminationGracePeriodSeconds", spec.termination_grace_period_seconds, 0, i64::MAX);
    check_hostnames(report, spec);
    check_dns(report, spec);
    check_tolerations(report, spec);
    check_placement(report, spec);
    if let Some(overhead) = &spec.overhead {
        resources::check_overhead(report, overhead);
    }
    if let Some(os) = &spec.os {
        report.at("os", |report| report.one_of("name", Some(os.name.as_str()), &["linux"]));
    }
    let mut claims = BTreeSet::new();
    report.each_at("resourceClaims", spec.resource_claims.as_deref(), |report, claim| {
        report.required("name", &claim.name, dns_label);
        if !claims.insert(claim.name.clone()) {
            report.at("name", |report| report.wrong(&claim.name, "is the name of another claim as well"));
        }
        if claim.resource_claim_name.is_some() == claim.resource_claim_template_name.is_some() {
            report.fail("needs one of resourceClaimName and resourceClaimTemplateName");
        }
    });
}

/// Where the pod runs and with which rank: mostly the scheduler's, but a node reports it.
fn check_placement(report: &mut Report, spec: &PodSpec) {
    check_labels(report, "nodeSelector", spec.node_selector.as_ref());
    report.optional("nodeName", spec.node_name.as_deref(), dns_subdomain);
    report.optional("serviceAccountName", spec.service_account_name.as_deref(), dns_subdomain);
    report.optional("priorityClassName", spec.priority_class_name.as_deref(), dns_subdomain);
    report.optional("runtimeClassName", spec.runtime_class_name.as_deref(), dns_subdomain);
    report.one_of("preemptionPolicy", spec.preemption_policy.as_deref(), &["PreemptLowerPriority", "Never"]);
    report.each_at("readinessGates", spec.readiness_gates.as_deref(), |report, gate| {
        report.required("conditionType", &gate.condition_type, qualified_name);
    });
    if spec.node_name.is_some() && spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        report.fail_at("schedulingGates", "must be empty for a pod that is bound to a node");
    }
    let mut kinds = BTreeSet::new();
    report.each_at("topologySpreadConstraints", spec.topology_spread_constraints.as_deref(), |report, constraint| {
        report.within("maxSkew", Some(constraint.max_skew.into()), 1, i64::MAX);
        report.within("minDomains", constraint.min_domains.map(i64::from), 1, i64::MAX);
        report.required("topologyKey", &constraint.topology_key, qualified_name);
        let when = constraint.when_unsatisfiable.as_str();
        report.one_of("whenUnsatisfiable", Some(when), &["DoNotSchedule", "ScheduleAnyway"]);
        if constraint.min_domains.is_some() && when != "DoNotSchedule" {
            report.fail_at("minDomains", "is for whenUnsatisfiable DoNotSchedule only");
        }
        if !kinds.insert((constraint.topology_key.clone(), when.to_owned())) {
            report.fail("has the same topologyKey and whenUnsatisfiable as another one");
        }
    });
}

fn check_hostnames(report: &mut Report, spec: &PodSpec) {
    report.optional("hostname", spec.hostname.as_deref(), dns_label);
    report.optional("subdomain", spec.subdomain.as_deref(), dns_label);
    if let Some(name) = spec.hostname_override.as_deref() {
        report.at("hostnameOverride", |report| {
            report.keeps(name, dns_subdomain);
            if name.len() > MAX_HOSTNAME {
                report.wrong(name, &format!("must have at most {MAX_HOSTNAME} bytes"));
            }
            if spec.set_hostname_as_fqdn == Some(true) {
                report.fail("must not be set when setHostnameAsFQDN is true");
            }
            if spec.host_network == Some(true) {
                report.fail("must not be set when hostNetwork is true");
            }
        });
    }
    report.each_at("hostAliases", spec.host_aliases.as_deref(), |report, alias| {
        report.required("ip", &alias.ip, ip);
        report.each_at("hostnames", alias.hostnames.as_deref(), |report, name| report.keeps(name, dns_subdomain));
    });
}

fn check_dns(report: &mut Report, spec: &PodSpec) {
    let policy = spec.dns_policy.as_deref();
    report.one_of("dnsPolicy", policy, &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]);
    let config = spec.dns_config.as_ref();
    let servers = config.and_then(|config| config.nameservers.as_deref()).unwrap_or_default();
    let searches = config.and_then(|config| config.searches.as_deref()).unwrap_or_default();
    report.at("dnsConfig", |report| {
        report.at("nameservers", |report| {
            if policy == Some("None") && servers.is_empty() {
                report.fail("at least one is needed when dnsPolicy is None");
            }
            if servers.len() > MAX_NAMESERVERS {
                report.fail(format!("{} are too many: at most {MAX_NAMESERVERS}", servers.len()));
            }
            report.each(servers, |report, server| report.keeps(server, ip));
        });
        report.at("searches", |report| {
            if searches.len() > MAX_SEARCHES {
                report.fail(format!("{} are too many: at most {MAX_SEARCHES}", searches.len()));
            }
            let chars = searches.iter().map(|search| search.len() + 1).sum::<usize>().saturating_sub(1);
            if chars > MAX_SEARCH_CHARS {
                report.fail(format!(
                    "{chars} characters are too many: at most {MAX_SEARCH_CHARS} with the spaces between"
                ));
            }
            report.each(searches, |report, search| report.keeps(search, dns_search));
        });
        report.each_at("options", config.and_then(|config| config.options.as_deref()), |report, option| {
            if option.name.as_deref().unwrap_or_default().is_empty() {
                report.fail_at("name", "must be set");
            }
        });
    });
}

fn check_tolerations(report: &mut Report, spec: &PodSpec) {
    report.each_at("tolerations", spec.tolerations.as_deref(), |report, toleration| {
        let key = toleration.key.as_deref().unwrap_or_default();
        let value = toleration.value.as_deref().unwrap_or_default();
        let operator = toleration.operator.as_deref().unwrap_or_default();
        let effect = toleration.effect.as_deref().unwrap_or_default();
        report.optional("key", Some(key), qualified_name);
        report.one_of("operator", Some(operator), &["", "Equal", "Exists"]);
        if key.is_empty() && operator != "Exists" {
            report.fail_at("operator", "must be Exists when key is empty");
        }
        match operator {
            "Exists" if !value.is_empty() => report.fail_at("value", "must be empty when operator is Exists"),
            "" | "Equal" => report.at("value", |report| report.keeps(value, label_value)),
            _ => {}
        }
        report.one_of("effect", Some(effect), &["", "NoSchedule", "PreferNoSchedule", "NoExecute"]);
        if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
            report.fail_at("effect", "must be NoExecute when tolerationSeconds is set");
        }
    });
}
