//! Probes and lifecycle hooks: exactly one handler each, ports, timings. Pure.

use super::names::{header_name, port_name};
use super::report::Report;
use crate::api::v1::{Container, ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Signals that the API knows; the real-time ones are `SIGRTMIN+n` and `SIGRTMAX-n`.
const SIGNALS: [&str; 36] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGRTMIN",
    "SIGRTMAX",
];

/// Probes and hooks of an app container or a sidecar.
pub(super) fn check(report: &mut Report, container: &Container, grace: Option<i64>, os: Option<&str>) {
    if let Some(lifecycle) = &container.lifecycle {
        report.at("lifecycle", |report| check_lifecycle(report, lifecycle, grace, os));
    }
    for (field, probe, is_readiness) in [
        ("livenessProbe", &container.liveness_probe, false),
        ("readinessProbe", &container.readiness_probe, true),
        ("startupProbe", &container.startup_probe, false),
    ] {
        let Some(probe) = probe else { continue };
        report.at(field, |report| check_probe(report, probe, is_readiness));
    }
}

/// An init container that is no sidecar has neither.
pub(super) fn check_absent(report: &mut Report, container: &Container) {
    for (field, is_set) in [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ] {
        if is_set {
            report.fail_at(field, "must not be set for an init container without restartPolicy Always");
        }
    }
}

fn check_probe(report: &mut Report, probe: &Probe, is_readiness: bool) {
    one_handler(
        report,
        &[
            ("exec", probe.exec.is_some()),
            ("httpGet", probe.http_get.is_some()),
            ("tcpSocket", probe.tcp_socket.is_some()),
            ("grpc", probe.grpc.is_some()),
        ],
    );
    check_actions(report, probe.exec.as_ref(), probe.http_get.as_ref(), probe.tcp_socket.as_ref());
    if let Some(grpc) = &probe.grpc {
        report.at("grpc", |report| report.within("port", Some(grpc.port.into()), 1, 65535));
    }
    for (field, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        report.within(field, value.map(i64::from), 0, i64::MAX);
    }
    if is_readiness {
        if probe.termination_grace_period_seconds.is_some() {
            report.fail_at("terminationGracePeriodSeconds", "must not be set for a readiness probe: it stops nothing");
        }
    } else {
        report.within("terminationGracePeriodSeconds", probe.termination_grace_period_seconds, 1, i64::MAX);
        if probe.success_threshold.is_some_and(|threshold| threshold > 1) {
            report.fail_at("successThreshold", "must be 1 for a liveness or startup probe");
        }
    }
}

fn check_lifecycle(report: &mut Report, lifecycle: &Lifecycle, grace: Option<i64>, os: Option<&str>) {
    for (field, handler) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        let Some(handler) = handler else { continue };
        report.at(field, |report| check_handler(report, handler, grace));
    }
    if let Some(signal) = lifecycle.stop_signal.as_deref() {
        report.at("stopSignal", |report| match os {
            None | Some("") => report.fail("needs spec.os.name to be set"),
            Some(_) if is_signal(signal) => {}
            Some(_) => report.wrong(signal, "is no signal of Linux, such as SIGTERM"),
        });
    }
}

fn is_signal(name: &str) -> bool {
    let numbered = |prefix: &str, low: u8, high: u8| {
        let number = name.strip_prefix(prefix).filter(|digits| !digits.starts_with(['0', '+']));
        number.and_then(|digits| digits.parse().ok()).is_some_and(|n: u8| (low..=high).contains(&n))
    };
    SIGNALS.contains(&name) || numbered("SIGRTMIN+", 1, 15) || numbered("SIGRTMAX-", 1, 14)
}

fn check_handler(report: &mut Report, handler: &LifecycleHandler, grace: Option<i64>) {
    one_handler(
        report,
        &[
            ("exec", handler.exec.is_some()),
            ("httpGet", handler.http_get.is_some()),
            ("tcpSocket", handler.tcp_socket.is_some()),
            ("sleep", handler.sleep.is_some()),
        ],
    );
    check_actions(report, handler.exec.as_ref(), handler.http_get.as_ref(), handler.tcp_socket.as_ref());
    if let (Some(sleep), Some(grace)) = (&handler.sleep, grace) {
        report.at("sleep", |report| report.within("seconds", Some(sleep.seconds), 0, grace.max(0)));
    }
}

fn one_handler(report: &mut Report, handlers: &[(&str, bool)]) {
    let mut given = handlers.iter().filter(|(_, is_set)| *is_set);
    if given.next().is_none() {
        let names: Vec<&str> = handlers.iter().map(|(name, _)| *name).collect();
        report.fail(format!("needs a handler: {}", super::report::list(&names)));
    }
    for (name, _) in given {
        report.fail_at(name, "only one handler may be given");
    }
}

fn check_actions(
    report: &mut Report,
    exec: Option<&ExecAction>,
    http_get: Option<&HTTPGetAction>,
    tcp_socket: Option<&TCPSocketAction>,
) {
    if exec.is_some_and(|exec| exec.command.as_ref().is_none_or(Vec::is_empty)) {
        report.fail_at("exec.command", "must be set");
    }
    if let Some(http) = http_get {
        report.at("httpGet", |report| {
            check_port(report, &http.port);
            if http.path.as_deref().unwrap_or_default().is_empty() {
                report.fail_at("path", "must be set");
            }
            report.one_of("scheme", http.scheme.as_deref(), &["HTTP", "HTTPS"]);
            report.each_at("httpHeaders", http.http_headers.as_deref(), |report, header| {
                report.required("name", &header.name, header_name);
            });
        });
    }
    if let Some(tcp) = tcp_socket {
        report.at("tcpSocket", |report| check_port(report, &tcp.port));
    }
}

fn check_port(report: &mut Report, port: &IntOrString) {
    match port {
        IntOrString::Int(number) => report.within("port", Some((*number).into()), 1, 65535),
        IntOrString::String(name) => report.required("port", name, port_name),
    }
}
