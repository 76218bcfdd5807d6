//! KubeletConfiguration, flags, drop-ins: read, default, validate, print.
