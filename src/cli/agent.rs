//! The agent's way in: flags, configuration, the log, then `app`. Runs on the main thread and stays there until the agent ends.

use super::{complain, help, print, version};
use crate::config::{Loaded, flags, load, load_command_line};
use crate::util::logging::{self, Format, LogOptions};
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the agent with a kubelet's arguments; `as_kubelet` where the program was called by that name.
pub(super) fn run(args: Vec<OsString>, as_kubelet: bool) -> ExitCode {
    let line = flags::parse(args.clone());
    if line.help {
        return print(&help::whole(as_kubelet));
    }
    if let Some(request) = line.version.filter(|_| line.problems.is_empty()) {
        return print(&version::text(request, as_kubelet));
    }
    let loaded = match load_command_line(line) {
        Ok(loaded) => loaded,
        Err(error) => {
            for warning in &error.warnings {
                complain(&format!("warning: {warning}"));
            }
            complain(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    logging::init(log_options(&loaded));
    let read_again: crate::app::ReadAgain = Box::new(move || load(args.clone()));
    match crate::app::run(loaded, &read_again) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn log_options(loaded: &Loaded) -> LogOptions {
    let logging = &loaded.config.logging;
    LogOptions {
        format: if logging.format == "json" { Format::Json } else { Format::Text },
        verbosity: logging.verbosity,
        vmodule: crate::app::facts::vmodule(logging),
    }
}
