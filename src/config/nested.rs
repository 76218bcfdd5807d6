//! The parts of KubeletConfiguration that are structs of their own. Plain values without a thread; nothing here reads a file or
//! knows a default.

use super::decode::{Decode, Place, config_struct};
use super::duration::GoDuration;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

config_struct! {
    /// Who may be a caller of the server.
    pub struct Authentication {
        /// Callers with a client certificate.
        x509: X509Authentication = "x509" Always,
        /// Callers with a token of the API server.
        webhook: WebhookAuthentication = "webhook" Always,
        /// Callers with neither.
        anonymous: AnonymousAuthentication = "anonymous" Always,
    }
}

config_struct! {
    /// Callers with a client certificate.
    pub struct X509Authentication {
        /// PEM file of the authorities that sign client certificates; empty for none.
        client_ca_file: String = "clientCAFile" Zero,
    }
}

config_struct! {
    /// Callers with a token, checked by the API server's TokenReview.
    pub struct WebhookAuthentication {
        /// Whether tokens are accepted.
        enabled: bool = "enabled" Pointer,
        /// How long an answer is remembered.
        cache_ttl: GoDuration = "cacheTTL" Always,
    }
}

config_struct! {
    /// Callers that show nothing.
    pub struct AnonymousAuthentication {
        /// Whether they are let in, as system:anonymous.
        enabled: bool = "enabled" Pointer,
    }
}

config_struct! {
    /// What a caller may do.
    pub struct Authorization {
        /// `AlwaysAllow` or `Webhook`.
        mode: String = "mode" Zero,
        /// The questions to the API server.
        webhook: WebhookAuthorization = "webhook" Always,
    }
}

config_struct! {
    /// Authorization by the API server's SubjectAccessReview.
    pub struct WebhookAuthorization {
        /// How long a yes is remembered.
        cache_authorized_ttl: GoDuration = "cacheAuthorizedTTL" Always,
        /// How long a no is remembered.
        cache_unauthorized_ttl: GoDuration = "cacheUnauthorizedTTL" Always,
    }
}

config_struct! {
    /// How pods use swap.
    pub struct MemorySwap {
        /// Empty, `NoSwap` or `LimitedSwap`.
        swap_behavior: String = "swapBehavior" Zero,
    }
}

config_struct! {
    /// The agent's own log.
    pub struct Logging {
        /// `text` or `json`.
        format: String = "format" Zero,
        /// Kept for old files: every line is written at once.
        flush_frequency: FlushFrequency = "flushFrequency" Always,
        /// klog's `-v`: 0 is quiet.
        verbosity: u32 = "verbosity" Always,
        /// Other verbosities for some source files.
        vmodule: Vec<VModuleItem> = "vmodule" Zero,
        /// Alpha options of the formats.
        options: LoggingOptions = "options" Always,
    }
}

config_struct! {
    /// The verbosity of some source files.
    pub struct VModuleItem {
        /// A file's name without its ending; `*` and `?` stand for any letters.
        file_pattern: String = "filePattern" Always,
        /// The verbosity there.
        verbosity: u32 = "verbosity" Always,
    }
}

config_struct! {
    /// Alpha options of the log formats.
    pub struct LoggingOptions {
        /// Of the text format.
        text: LogRouting = "text" Always,
        /// Of the JSON format.
        json: LogRouting = "json" Always,
    }
}

config_struct! {
    /// Where log lines go; needs the gate LoggingAlphaOptions.
    pub struct LogRouting {
        /// Errors to stderr, the rest to stdout.
        split_stream: bool = "splitStream" Zero,
        /// Bytes of lines below errors that are held back.
        info_buffer_size: Quantity = "infoBufferSize" Always,
    }
}

config_struct! {
    /// One step of a graceful node shutdown.
    pub struct ShutdownGracePeriodByPodPriority {
        /// Pods of at least this priority, up to the next step's.
        priority: i32 = "priority" Always,
        /// How long they have, in seconds.
        shutdown_grace_period_seconds: i64 = "shutdownGracePeriodSeconds" Always,
    }
}

config_struct! {
    /// Back-off of crashing containers.
    pub struct CrashLoopBackOff {
        /// The longest pause before a restart; unset where the gate KubeletCrashLoopBackOffMax is off.
        max_container_restart_period: Option<GoDuration> = "maxContainerRestartPeriod" Pointer,
    }
}

config_struct! {
    /// Memory kept on one NUMA node.
    pub struct MemoryReservation {
        /// The NUMA node's number.
        numa_node: i32 = "numaNode" Always,
        /// `memory` and `hugepages-<size>` with their amounts.
        limits: BTreeMap<String, Quantity> = "limits" Always,
    }
}

config_struct! {
    /// A taint the node registers with.
    pub struct Taint {
        /// The taint's key.
        key: String = "key" Always,
        /// Its value; may be empty.
        value: String = "value" Zero,
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: String = "effect" Always,
        /// Must not be set.
        time_added: Option<String> = "timeAdded" Pointer,
    }
}

config_struct! {
    /// OpenTelemetry traces.
    pub struct Tracing {
        /// The collector's address; unset for localhost:4317.
        endpoint: Option<String> = "endpoint" Pointer,
        /// How many of a million requests are traced; unset for none.
        sampling_rate_per_million: Option<i32> = "samplingRatePerMillion" Pointer,
    }
}

config_struct! {
    /// Ids for pods with their own user namespace.
    pub struct UserNamespaces {
        /// How many ids each pod gets; unset for 65536.
        ids_per_pod: Option<i64> = "idsPerPod" Pointer,
    }
}

/// An amount such as `10Mi`, kept as it was written; `validate` checks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Quantity(pub String);

impl Decode for Quantity {
    fn zero() -> Self {
        Quantity("0".to_owned())
    }

    fn decode(value: Value, place: &mut Place) -> Self {
        match value {
            Value::String(text) => Quantity(text),
            Value::Number(number) => Quantity(number.to_string()),
            other => {
                place.wrong(&other, "must be an amount such as \"10Mi\"");
                Quantity::zero()
            }
        }
    }
}

/// A duration that may also be written as a number of nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushFrequency(pub GoDuration);

impl Decode for FlushFrequency {
    fn zero() -> Self {
        FlushFrequency(GoDuration::ZERO)
    }

    fn decode(value: Value, place: &mut Place) -> Self {
        match value.as_i64() {
            Some(nanos) => FlushFrequency(GoDuration::from_nanos(nanos)),
            None => FlushFrequency(GoDuration::decode(value, place)),
        }
    }
}

impl Serialize for FlushFrequency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
