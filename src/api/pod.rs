//! Questions about a pod that many layers ask: is it static, critical, which containers are init, sidecar, app. Layer L0, pure.
