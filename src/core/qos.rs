//! QoS class, oom_score_adj, cgroup values. Pure.
