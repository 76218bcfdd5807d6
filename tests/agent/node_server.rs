//! The node's server as a whole: the built agent on a fake runtime, and clients of every kind before it.
//!
//! Used from the thread of one test; each has an agent of its own. Who may do what is tried in tests/cluster, with a real API server.

pub(crate) mod client;
#[expect(clippy::print_stdout, reason = "the numbers are there to be seen")]
mod hostile;
mod requests;

use serde_json::{Value, json};

use super::{Place, settle, wait_healthy};
use crate::harness::{Agent, config::free_port};
use client::Client;

/// An agent with a server that lets anybody do anything.
struct Server<'a> {
    agent: Agent<'a>,
    port: u16,
}

impl<'a> Server<'a> {
    fn start(place: &'a Place) -> Self {
        Self::start_with(place, |_| ())
    }

    fn start_with(place: &'a Place, change: impl FnOnce(&mut Value)) -> Self {
        let port = free_port();
        let certificates = format!("--cert-dir={}", place.folder.path().join("pki").display());
        let agent = Agent::spawn_with_flags(place, &[&certificates], |config| {
            settle(config);
            config["enableServer"] = json!(true);
            config["address"] = json!("127.0.0.1");
            config["port"] = json!(port);
            config["authentication"] = json!({ "anonymous": { "enabled": true } });
            config["authorization"] = json!({ "mode": "AlwaysAllow" });
            change(config);
        });
        wait_healthy(&agent);
        let server = Self { agent, port };
        crate::harness::wait::until("the server", super::SOON, || Client::connect(server.port).map(drop));
        server
    }

    fn client(&self) -> Client {
        Client::connect(self.port).expect("a connection")
    }

    /// Threads of the agent.
    fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.agent.pid())).expect("the agent lives").count()
    }
}
