//! The `ferrolet` program. Everything of interest is in the library. Runs the main thread.

use std::process::ExitCode;

fn main() -> ExitCode {
    ferrolet::cli::main(std::env::args_os())
}
