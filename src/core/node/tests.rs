//! Tests of the node: whole lives of pods, step by step.
