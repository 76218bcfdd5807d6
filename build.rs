//! Generates the CRI types from proto/.

fn main() {}
