//! KubeletConfiguration, flags, drop-ins: read, default, validate, print.

pub mod yaml;
