//! The one integration test binary: everything that needs more than one module of the crate.
//!
//! One binary, because the C core of gRPC links slowly. The modules in reading order; README.md,
//! "Tests", tells what each ring is for. Unit tests stand beside the code and not here.

mod agent;
mod cluster;
mod fakes;
mod first_minute;
#[expect(clippy::print_stdout, reason = "how far it got is there to be seen")]
mod fuzz;
mod harness;
mod it_certs;
mod it_cri;
mod it_cri_faults;
mod it_kube;
mod it_kube_faults;
mod it_lease;
mod it_objects;
mod it_pull;
mod it_registry;
mod it_report;
mod program;
mod real;
mod sim;
mod tidy;

// As in the crate, for the file of its unit tests that `fakes` shares.
use ferrolet::util;
