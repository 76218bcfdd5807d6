//! The `ferrolet` program. Everything of interest is in the library.

fn main() {}
