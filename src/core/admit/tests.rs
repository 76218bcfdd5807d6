//! Tests of admission: which check refuses which pod, and in which words.

use serde_json::{Value, json};

use super::*;

fn pod(value: &Value) -> Pod {
    serde_json::from_value(value.clone()).expect("a pod")
}

/// The first refusal as `reason: message`, or `admitted`.
fn verdict(checks: &[&dyn Check], value: &Value, others: &[Value], limits: &Limits) -> String {
    let others: Vec<Pod> = others.iter().map(pod).collect();
    let others: Vec<&Pod> = others.iter().collect();
    match admit(checks, &pod(value), &AdmissionView { limits, others: &others }) {
        Verdict::Admit => "admitted".to_owned(),
        Verdict::Refuse(Reason { reason, message }) => format!("{reason}: {message}"),
    }
}

fn check(value: &Value, others: &[Value], limits: &Limits, expect: &str) {
    assert_eq!(verdict(CHECKS, value, others, limits), expect, "{value}");
}

fn limits() -> Limits {
    Limits {
        max_pods: 2,
        sysctls: SysctlAllowlist::new(&["net.core.somaxconn".to_owned()], "6.1.0").expect("a list"),
        apparmor: false,
        supplemental_groups_policy: false,
    }
}

fn plain() -> Value {
    json!({"spec": {"containers": [{"name": "c"}]}})
}

#[test]
fn security_settings_that_the_node_cannot_keep_to() {
    let with = |context: Value| json!({"spec": {"securityContext": context, "containers": [{"name": "c"}]}});
    let sysctl = |name: &str| with(json!({"sysctls": [{"name": name, "value": "1"}]}));
    let profile = with(json!({"appArmorProfile": {"type": "RuntimeDefault"}}));
    let strict = with(json!({"supplementalGroupsPolicy": "Strict"}));
    let limits = limits();
    check(&plain(), &[], &limits, "admitted");
    check(&sysctl("net.core.somaxconn"), &[], &limits, "admitted");
    let unsafe_one = "SysctlForbidden: forbidden sysctl: \"kernel.msgmax\" not allowlisted";
    check(&sysctl("kernel.msgmax"), &[], &limits, unsafe_one);
    check(&profile, &[], &limits, "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host");
    let not_strict =
        "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node";
    check(&strict, &[], &limits, not_strict);
    let limits = Limits { apparmor: true, supplemental_groups_policy: true, ..limits };
    check(&profile, &[], &limits, "admitted");
    check(&strict, &[], &limits, "admitted");
}

#[test]
fn the_first_refusal_in_upstreams_order_wins() {
    let context = json!({
        "sysctls": [{"name": "vm.swappiness", "value": "1"}],
        "appArmorProfile": {"type": "RuntimeDefault"},
        "supplementalGroupsPolicy": "Strict",
    });
    let mut all = json!({"spec": {"securityContext": context, "containers": [{"name": "c"}]}});
    let full = [plain(), plain()];
    let reason = |value: &Value| {
        let said = verdict(CHECKS, value, &full, &limits());
        said.split(':').next().unwrap_or_default().to_owned()
    };
    let mut order = Vec::new();
    for mend in ["sysctls", "supplementalGroupsPolicy"] {
        order.push(reason(&all));
        all["spec"]["securityContext"][mend] = Value::Null;
    }
    order.push(reason(&all));
    assert_eq!(order, ["SysctlForbidden", "SupplementalGroupsPolicyNotSupported", "OutOfpods"]);
}
