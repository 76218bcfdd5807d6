//! Ring 4 with a real control plane: the built agent as a node of a cluster.
//!
//! Tests of a node's object and lease in `node`, of pods in `pods`, beside the upstream kubelet in `upstream`; of what pods
//! get from the API server in `volumes`; how a node joins with a token in `certificates`; who may ask the node's server what
//! in `callers`; what changes in pods while they run in `changes`; the machine's end in `shutdown`; of a node that changes hands in `takeover`; of one that
//! lacks something in `short`; the behaviours that Kubernetes names in `conformance`; `lab` is their ground. They
//! share one control plane, each with a node name and a namespace of its own.

mod answers;
mod beside;
mod callers;
mod certificates;
mod changes;
mod conformance;
mod endings;
mod lab;
mod node;
mod numbers;
mod pods;
mod serving;
mod short;
mod shutdown;
mod streams;
mod takeover;
mod upstream;
mod volumes;
