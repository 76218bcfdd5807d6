//! Is a configuration right? Every check, each with the field's path, the value and what would be right. Pure: no files, no look at
//! the machine (cgroup version, swap); runs on the main thread; changes nothing.

use super::GoDuration;
use super::features::{self, is_enabled};
use super::flags::NodeFlags;
use super::problem::{Problem, nearest};
use super::types::KubeletConfiguration;
use std::fmt::Display;

mod eviction;
mod names;
mod pods;
mod reservations;
mod server;
#[cfg(test)]
mod tests;

/// Checks a whole configuration with all defaults filled in. Returns every problem, in the order of the fields.
pub fn validate(config: &KubeletConfiguration) -> Vec<Problem> {
    let mut checker = Checker { config, problems: Vec::new() };
    checker.feature_gates();
    server::check(&mut checker);
    pods::check(&mut checker);
    reservations::check(&mut checker);
    eviction::check(&mut checker);
    checker.shutdown();
    checker.logging();
    checker.tracing();
    checker.problems
}

/// Checks the flags that are about this node.
pub fn validate_node_flags(flags: &NodeFlags) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (key, value) in &flags.node_labels {
        let at = || format!("--node-labels {key}");
        if let Err(want) = names::qualified_name(key) {
            problems.push(Problem::new(at(), "", want));
        } else if !names::node_label_allowed(key) {
            problems.push(Problem::new(at(), "", names::NODE_LABEL_ADVICE));
        }
        if let Err(want) = names::label_value(value) {
            problems.push(Problem::new(at(), format!("`{value}`"), want));
        }
    }
    if let Some(name) = flags.hostname_override.as_ref().filter(|name| !names::is_dns_subdomain(name)) {
        let want = "must be a DNS name: lower-case letters, digits, `-` and `.`, at most 253 of them";
        problems.push(Problem::new("--hostname-override", format!("`{name}`"), want));
    }
    if flags.exit_on_lock_contention && flags.lock_file.is_none() {
        problems.push(Problem::new("--exit-on-lock-contention", "true", "needs --lock-file"));
    }
    problems
}

/// Collects problems.
struct Checker<'c> {
    config: &'c KubeletConfiguration,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn enabled(&self, gate: &str) -> bool {
        is_enabled(&self.config.feature_gates, gate)
    }

    fn wrong(&mut self, at: impl Into<String>, value: impl Display, want: impl Into<String>) {
        self.problems.push(Problem::new(at, value, want));
    }

    fn require(&mut self, right: bool, at: &str, value: impl Display, want: &str) {
        if !right {
            self.wrong(at, value, want);
        }
    }

    /// A number within bounds, both included.
    fn range(&mut self, at: &str, value: impl Into<i64>, min: i64, max: i64) {
        let value = value.into();
        if !(min..=max).contains(&value) {
            self.wrong(at, value, format!("must be from {min} to {max}"));
        }
    }

    fn at_least(&mut self, at: &str, value: impl Into<i64>, min: i64) {
        let value = value.into();
        if value < min {
            self.wrong(at, value, format!("must be {min} or more"));
        }
    }

    fn not_negative(&mut self, at: &str, value: GoDuration) {
        self.require(value >= GoDuration::ZERO, at, value, "must not be negative");
    }

    fn positive(&mut self, at: &str, value: GoDuration) {
        self.require(value > GoDuration::ZERO, at, value, "must be longer than 0s");
    }

    /// One word out of a few.
    fn one_of(&mut self, at: &str, value: &str, words: &[&str]) {
        if words.contains(&value) {
            return;
        }
        let list = words.iter().map(|word| if word.is_empty() { "\"\"" } else { word }).collect::<Vec<_>>().join(", ");
        let hint = nearest(value, words.iter().copied()).filter(|near| !near.is_empty() && !value.is_empty());
        let hint = hint.map(|near| format!(", did you mean {near}?")).unwrap_or_default();
        self.wrong(at, format!("`{value}`"), format!("must be one of {list}{hint}"));
    }

    fn feature_gates(&mut self) {
        for (name, on) in &self.config.feature_gates {
            let at = format!("featureGates.{name}");
            match features::find(name) {
                Some(gate) if gate.locked && gate.default != *on => {
                    self.wrong(at, on, format!("is locked to {}, delete the line", gate.default));
                }
                Some(_) => {}
                None if name == features::ALL_ALPHA || name == features::ALL_BETA => {}
                None => {
                    let near = nearest(name, features::GATES.iter().map(|gate| gate.name));
                    let hint = near.map(|near| format!(", did you mean {near}?")).unwrap_or_default();
                    self.wrong(at, on, format!("is no feature gate of Kubernetes 1.36{hint}"));
                }
            }
        }
    }

    fn shutdown(&mut self) {
        let config = self.config;
        let (all, critical) = (config.shutdown_grace_period, config.shutdown_grace_period_critical_pods);
        let used = all > GoDuration::ZERO || critical > GoDuration::ZERO;
        if self.enabled("GracefulNodeShutdown") {
            self.require(
                critical <= all,
                "shutdownGracePeriodCriticalPods",
                critical,
                &format!("must not be longer than shutdownGracePeriod ({all}), of which it is a part"),
            );
            for (at, value) in [("shutdownGracePeriod", all), ("shutdownGracePeriodCriticalPods", critical)] {
                let right = value == GoDuration::ZERO || value >= GoDuration::from_secs(1);
                self.require(right, at, value, "must be 0s, or 1s or more");
            }
        } else if used {
            self.wrong("shutdownGracePeriod", all, "needs the feature gate GracefulNodeShutdown");
        }
        let steps = &config.shutdown_grace_period_by_pod_priority;
        let at = "shutdownGracePeriodByPodPriority";
        if !steps.is_empty() && !self.enabled("GracefulNodeShutdownBasedOnPodPriority") {
            self.wrong(at, "set", "needs the feature gate GracefulNodeShutdownBasedOnPodPriority");
        } else if !steps.is_empty() && used {
            self.wrong(at, "set", "cannot be used together with shutdownGracePeriod, delete one of them");
        }
        for (index, step) in steps.iter().enumerate() {
            self.at_least(&format!("{at}[{index}].shutdownGracePeriodSeconds"), step.shutdown_grace_period_seconds, 0);
        }
    }

    fn logging(&mut self) {
        let logging = &self.config.logging;
        self.one_of("logging.format", &logging.format, &["text", "json"]);
        self.positive("logging.flushFrequency", logging.flush_frequency.0);
        let most = i64::from(i32::MAX);
        self.range("logging.verbosity", logging.verbosity, 0, most);
        if !logging.vmodule.is_empty() && logging.format == "json" {
            self.wrong("logging.vmodule", "set", "works with logging.format text only");
        }
        for (index, item) in logging.vmodule.iter().enumerate() {
            let at = format!("logging.vmodule[{index}]");
            let pattern = &item.file_pattern;
            if pattern.is_empty() || pattern.contains(['=', ',']) {
                let want = "must be a file name without `=` and `,`; * and ? stand for any letters";
                self.wrong(format!("{at}.filePattern"), format!("`{pattern}`"), want);
            }
            self.range(&format!("{at}.verbosity"), item.verbosity, 0, most);
        }
        let allowed = self.enabled("LoggingAlphaOptions");
        for (name, routing) in [("text", &logging.options.text), ("json", &logging.options.json)] {
            let at = |field: &str| format!("logging.options.{name}.{field}");
            let want = "needs the feature gate LoggingAlphaOptions";
            if routing.split_stream && !allowed {
                self.wrong(at("splitStream"), "true", want);
            }
            match names::amount(&routing.info_buffer_size.0) {
                Some(amount) if amount.is_zero() || allowed => {}
                Some(_) => self.wrong(at("infoBufferSize"), &routing.info_buffer_size.0, want),
                None => self.wrong(at("infoBufferSize"), &routing.info_buffer_size.0, "must be an amount such as 2Ki"),
            }
        }
    }

    fn tracing(&mut self) {
        let Some(tracing) = &self.config.tracing else { return };
        if let Some(rate) = tracing.sampling_rate_per_million {
            self.range("tracing.samplingRatePerMillion", rate, 0, 1_000_000);
        }
        if let Some(endpoint) = &tracing.endpoint {
            let scheme = endpoint.split_once("//").map_or("dns:", |(scheme, _)| scheme);
            let want = "must be host:port, or start with dns://, unix:// or unix-abstract://";
            let right = ["dns:", "unix:", "unix-abstract:"].contains(&scheme);
            self.require(right, "tracing.endpoint", format!("`{endpoint}`"), want);
        }
    }
}
