//! The tools: ps, describe, logs, exec, why, config.
