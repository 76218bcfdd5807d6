//! Pod spec to what the runtime is asked for. Pure.
