//! /metrics/slis: the health checks as metrics. Runs the checks on the caller's thread; see the parent module.

use crate::server::health::Check;
use crate::util::metrics::kubelet::HEALTHCHECKS;
use crate::util::metrics::{Kind, Registered as _, Text, push_label};

/// Runs all checks, tells how each is and how often it was so whenever anybody asked here.
pub(super) fn write(checks: &[Check], text: &mut Text<'_>) {
    text.head("kubernetes_healthcheck", Kind::Gauge, "1 if the check passes, else 0.");
    for check in checks {
        let passes = check.run().is_ok();
        HEALTHCHECKS.inc(&[check.name(), if passes { "success" } else { "error" }, "healthz"]);
        let mut labels = String::new();
        push_label(&mut labels, "name", check.name());
        push_label(&mut labels, "type", "healthz");
        text.sample("kubernetes_healthcheck", &labels, u64::from(passes).into());
    }
    HEALTHCHECKS.write(text);
}
