//! `ferrolet config`: checks a configuration and prints what is in effect. Runs on the main thread; reads the files that the flags
//! name, asks no agent and changes nothing.

use super::{complain, help, print};
use crate::config::{flags, load_command_line, print as yaml};
use std::ffi::OsString;
use std::process::ExitCode;

/// `ferrolet config [agent flags]`: YAML on stdout, warnings and problems on stderr, exit code 1 where there are problems.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    let line = flags::parse(args);
    if line.help {
        return print(&help::tool("config"));
    }
    let (outcome, warnings) = match load_command_line(line) {
        Ok(loaded) => (Ok(loaded.config), loaded.warnings),
        Err(error) => (Err(error.to_string()), error.warnings),
    };
    for warning in warnings {
        complain(&format!("warning: {warning}"));
    }
    match outcome {
        Ok(config) => print(&yaml::to_yaml(&config)),
        Err(problems) => {
            complain(&problems);
            ExitCode::FAILURE
        }
    }
}
