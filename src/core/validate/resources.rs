//! Requests and limits of containers and pods. Pure.

use std::collections::BTreeMap;

use super::names::qualified_name;
use super::report::{Report, list};
use crate::api::Quantity;
use crate::api::quantity::Amount;
use crate::api::v1::{PodSpec, ResourceRequirements};
use crate::util::order::Gather;

type ResourceList = BTreeMap<String, Quantity>;

/// What a container may ask for by a plain name; huge pages besides.
const CONTAINER_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// What a pod may ask for as a whole; huge pages besides.
const POD_RESOURCES: [&str; 2] = ["cpu", "memory"];

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether the name belongs to Kubernetes itself.
fn is_native(name: &str) -> bool {
    name.split_once('/').is_none_or(|(domain, _)| domain == "kubernetes.io" || domain.ends_with(".kubernetes.io"))
}

/// Whether more of it may be promised than there is.
fn may_be_overcommitted(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Resources of one container.
pub(super) fn check_container(report: &mut Report, resources: &ResourceRequirements, claims: &[&str]) {
    check(report, resources, &CONTAINER_RESOURCES, true);
    report.each_at("claims", resources.claims.as_deref(), |report, claim| {
        if !claims.contains(&claim.name.as_str()) {
            report.wrong(&claim.name, "is not among spec.resourceClaims");
        }
    });
}

/// Resources of the pod as a whole, and whether its containers fit in.
pub(super) fn check_pod(report: &mut Report, spec: &PodSpec) {
    let Some(resources) = &spec.resources else { return };
    report.at("resources", |report| {
        check(report, resources, &POD_RESOURCES, false);
        if resources.claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
            report.fail_at("claims", "must not be set for the pod as a whole");
        }
    });
    let limit_of = |name: &str| amount(resources.limits.as_ref()?.get(name)?);
    report.each_at("containers", Some(&spec.containers), |report, container| {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        for (name, limit) in limits.into_iter().flatten() {
            if let (Some(own), Some(pod)) = (amount(limit), limit_of(name))
                && own > pod
            {
                report.at("resources.limits", |report| {
                    report.key(name, |report| report.fail(format!("{own} must not be above the pod's limit of {pod}")));
                });
            }
        }
    });
}

/// The cost of the sandbox itself (RuntimeClass).
pub(super) fn check_overhead(report: &mut Report, overhead: &ResourceList) {
    report.at("overhead", |report| check_list(report, overhead, &CONTAINER_RESOURCES, true));
}

/// A quantity that must not be below 0.
pub(super) fn check_quantity(report: &mut Report, quantity: &Quantity) {
    match Amount::try_from(quantity) {
        Err(error) => report.fail(error.to_string()),
        Ok(amount) if amount.is_negative() => report.fail(format!("{amount} must not be below 0")),
        Ok(_) => {}
    }
}

fn amount(quantity: &Quantity) -> Option<Amount> {
    Amount::try_from(quantity).ok()
}

fn check_list(report: &mut Report, resources: &ResourceList, plain: &[&str], takes_extended: bool) {
    for (name, quantity) in resources {
        report.key(name, |report| {
            check_name(report, name, plain, takes_extended);
            check_quantity(report, quantity);
            let Some(value) = amount(quantity) else { return };
            if !is_native(name) && !value.is_whole() {
                report.fail(format!("{value} must be a whole number"));
            }
            if let Some(page) = name.strip_prefix("hugepages-").and_then(|size| Amount::parse(size).ok())
                && page.value() > 0
                && (value.value() % page.value() != 0 || !value.is_whole())
            {
                report.fail(format!("{value} must be a multiple of the page size {page}"));
            }
        });
    }
}

fn check_name(report: &mut Report, name: &str, plain: &[&str], takes_extended: bool) {
    if let Err(must) = qualified_name(name) {
        report.wrong(name, must);
        return;
    }
    if let Some(size) = name.strip_prefix("hugepages-") {
        if Amount::parse(size).map_or(true, |size| size.value() <= 0) {
            report.wrong(size, "must be a page size, such as 2Mi");
        }
    } else if !name.contains('/') {
        if !plain.contains(&name) {
            report.wrong(
                name,
                &format!("is no resource here: use {}, hugepages-SIZE or a name with a domain", list(plain)),
            );
        }
    } else if !takes_extended {
        report.wrong(name, &format!("is no resource of a pod: use {} or hugepages-SIZE", list(plain)));
    } else if name.starts_with("requests.") {
        report.wrong(name, "must not begin with 'requests.'");
    }
}

fn check(report: &mut Report, resources: &ResourceRequirements, plain: &[&str], takes_extended: bool) {
    let empty = ResourceList::new();
    let (limits, requests) =
        (resources.limits.as_ref().unwrap_or(&empty), resources.requests.as_ref().unwrap_or(&empty));
    report.at("limits", |report| check_list(report, limits, plain, takes_extended));
    report.at("requests", |report| {
        // A request that repeats its limit, as most do by default, has been judged with it.
        let own = requests.iter().filter(|(name, request)| limits.get(*name) != Some(request));
        let own: ResourceList = own.map(|(name, request)| (name.clone(), request.clone())).gather();
        check_list(report, &own, plain, takes_extended);
        for (name, request) in requests {
            let (Some(request), limit) = (amount(request), limits.get(name).map(amount)) else { continue };
            report.key(name, |report| match limit {
                None if !may_be_overcommitted(name) => report.fail("needs a limit of the same size"),
                Some(Some(limit)) if request != limit && !may_be_overcommitted(name) => {
                    report.fail(format!("{request} must be the same as the limit of {limit}"));
                }
                Some(Some(limit)) if request > limit => {
                    report.fail(format!("{request} must not be above the limit of {limit}"));
                }
                None | Some(_) => {}
            });
        }
    });
    let mut names = limits.keys().chain(requests.keys());
    if names.clone().any(|name| is_huge_page(name)) && !names.any(|name| name == "cpu" || name == "memory") {
        report.fail("huge pages need cpu or memory besides");
    }
}
