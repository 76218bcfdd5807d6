//! Kubernetes resource quantities: parse, compare, print. Layer L0, pure.
