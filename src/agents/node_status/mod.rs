//! The `node` thread: registers the node and keeps its status true. A second thread, `node-watch`, reads what others
//! change of the object.
//!
//! `node` owns what was found out last and when it was last told. Its first report waits a moment for the runtime, so
//! that a node which is ready never says that it is not. It computes the status every `nodeStatusUpdateFrequency` and
//! sends it when it changed, or when `nodeStatusReportFrequency` has passed. The lease is not its business: a slow
//! PATCH must not delay a heartbeat. A node that was deleted in the API is not registered again by the same process,
//! as with upstream's kubelet: whoever deleted it meant it.

mod object;
mod pressure;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

pub use object::NodeObject;
pub use pressure::PressureWatch;

use crate::api::v1::Node;
use crate::core::node_object::addresses::{AddressError, HostNetwork};
use crate::core::node_object::images::status_images;
use crate::core::node_object::lease::retry_after;
use crate::core::node_object::pace::Pace;
use crate::core::node_object::status::{Findings, Told, tell};
use crate::core::node_object::{NodeSettings, change, registration};
use crate::cri::Client;
use crate::host::network;
use crate::kube::{ApiClient, ApiError, Call, ContentType, Method, PatchType, paths};
use crate::msg::EventType;
use crate::util::cancel::Cancel;
use crate::util::clock;
use crate::util::heartbeat::Heartbeat;
use crate::util::jitter::chance;
use crate::util::metrics::kubelet;
use crate::util::thread::{OwnerThread, StackSize};

/// How long the first report waits for the runtime and for the first look at its containers.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks while the node is not ready, in its first minute.
const IMPATIENCE: Duration = Duration::from_millis(50);
/// How long a node that starts is looked at so often.
const START: Duration = Duration::from_secs(60);
/// Time for one answer of the runtime: a runtime that hangs must not keep the status from being told.
const RUNTIME_TIME: Duration = Duration::from_secs(5);
/// Time for the resolver to tell what the node's name means.
const RESOLVER_TIME: Duration = Duration::from_secs(2);
/// After this time without a look at all containers the node is not ready.
const PLEG_LIMIT: Duration = Duration::from_secs(180);
/// Between two looks at what the node may be short of, however rarely its status is told.
const PRESSURE_EVERY: Duration = Duration::from_secs(10);
/// Why a node is not ready whose machine shuts down.
const SHUTTING_DOWN: &str = "node is shutting down";
/// How often a report is tried again at once.
const TRIES: u32 = 5;

/// What is set.
#[derive(Clone, Debug)]
pub struct NodeStatusConfig {
    /// The node.
    pub settings: NodeSettings,
    /// `registerNode`: create the object. Without it somebody else does.
    pub register: bool,
    /// `nodeStatusUpdateFrequency`.
    pub update_every: Duration,
    /// `nodeStatusReportFrequency`.
    pub report_every: Duration,
    /// `nodeStatusMaxImages`.
    pub max_images: i32,
}

/// What the threads work with.
pub struct NodeStatusParts {
    /// The API server.
    pub api: ApiClient,
    /// The container runtime.
    pub runtime: Client,
    /// Moves when all containers were listed.
    pub relisted: Arc<Heartbeat>,
    /// Where the newest object is published.
    pub object: Arc<NodeObject>,
    /// Rung when the object is there: the lease and the mirrors of static pods wait for it.
    pub bells: Vec<Sender<()>>,
    /// Whether the machine shuts down.
    pub shutting_down: Arc<AtomicBool>,
    /// What the node may be short of.
    pub pressure: PressureWatch,
    /// Takes events about the node. Must not wait.
    pub news: Box<dyn Fn(NodeNews) + Send>,
}

/// Something that happened to the node, in the words of an API event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNews {
    /// Normal or Warning.
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: &'static str,
    /// Sentence.
    pub message: String,
}

/// The running threads; dropping them ends them.
#[derive(Debug)]
pub struct NodeStatusHandle {
    stop: Cancel,
    hurry: Sender<()>,
    _threads: [OwnerThread; 2],
}

impl NodeStatusHandle {
    /// Starts the threads. [`ApiClient::shut_down`] ends the request that they may be waiting for.
    ///
    /// # Errors
    /// The kernel has no thread left.
    pub fn start(config: NodeStatusConfig, parts: NodeStatusParts) -> io::Result<Self> {
        let stop = Cancel::new();
        let watcher = {
            let (api, token) = (parts.api.clone(), stop.clone());
            let (object, name) = (Arc::clone(&parts.object), config.settings.name.clone());
            OwnerThread::spawn("node-watch", StackSize::Large, move || object::watch(&api, &name, &object, &token))?
        };
        let (hurry, hurried) = bounded(1);
        let actor = Actor::new(config, parts, stop.clone(), hurried);
        let reporter = OwnerThread::spawn("node", StackSize::Large, move || actor.run())?;
        Ok(Self { stop, hurry, _threads: [reporter, watcher] })
    }

    /// A bell that has the node looked at and told now.
    pub fn hurry(&self) -> Sender<()> {
        self.hurry.clone()
    }
}

impl Drop for NodeStatusHandle {
    fn drop(&mut self) {
        self.stop.cancel();
        // Full: it is on its way to look.
        let _rung = self.hurry.try_send(());
    }
}

/// How the node's start goes, for metrics. Each moment counts once.
#[derive(Clone, Copy, Debug, Default)]
struct Startup {
    began: crate::api::moment::Moment,
    registers: Option<crate::api::moment::Moment>,
    registered: Option<crate::api::moment::Moment>,
    is_over: bool,
}

impl Startup {
    fn new(began: crate::api::moment::Moment) -> Self {
        kubelet::NODE_STARTUP_PRE_KUBELET.set(began.since_boot().as_secs_f64());
        Self { began, ..Self::default() }
    }

    fn registers(&mut self, now: crate::api::moment::Moment) {
        if self.registers.is_none() {
            self.registers = Some(now);
            kubelet::NODE_STARTUP_PRE_REGISTRATION.set(now.since(self.began).as_secs_f64());
        }
    }

    fn is_registered(&mut self, now: crate::api::moment::Moment) {
        self.registers(now);
        if self.registered.is_none() {
            self.registered = Some(now);
            let took = self.registers.map_or(Duration::ZERO, |began| now.since(began));
            kubelet::NODE_STARTUP_REGISTRATION.set(took.as_secs_f64());
        }
    }

    fn is_ready(&mut self, now: crate::api::moment::Moment) {
        if let Some(registered) = self.registered.filter(|_| !self.is_over) {
            self.is_over = true;
            kubelet::NODE_STARTUP_POST_REGISTRATION.set(now.since(registered).as_secs_f64());
            kubelet::NODE_STARTUP.set(now.since(self.began).as_secs_f64());
        }
    }
}

/// Where the node stands in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not registered by this process yet.
    New,
    /// Registered.
    Known,
    /// Somebody deleted it, or has to create it.
    Awaited,
}

struct Actor {
    config: NodeStatusConfig,
    parts: NodeStatusParts,
    runtime: Client,
    stop: Cancel,
    hurried: Receiver<()>,
    stage: Stage,
    findings: Findings,
    pace: Pace,
    images_listed: Option<crate::api::moment::Moment>,
    address_error: Option<AddressError>,
    startup: Startup,
}

impl Actor {
    fn new(config: NodeStatusConfig, parts: NodeStatusParts, stop: Cancel, hurried: Receiver<()>) -> Self {
        let stage = if config.register { Stage::New } else { Stage::Awaited };
        let pace = Pace::new(config.report_every);
        let runtime = parts.runtime.with_timeout(RUNTIME_TIME);
        let findings = Findings::default();
        let startup = Startup::new(clock::moment());
        Self {
            config,
            parts,
            runtime,
            stop,
            hurried,
            stage,
            findings,
            pace,
            images_listed: None,
            address_error: None,
            startup,
        }
    }

    fn run(mut self) {
        let began = clock::moment();
        while !self.look() && clock::moment().since(began) < PATIENCE {
            if self.stop.wait(IMPATIENCE) {
                return;
            }
        }
        let mut failures = 0;
        loop {
            let wait = match self.report() {
                Ok(()) => {
                    failures = 0;
                    let starts = clock::moment().since(began) < START;
                    let quick = starts && self.stage == Stage::Known && !self.is_ready();
                    if quick { IMPATIENCE } else { self.config.update_every }
                }
                Err(error) if self.stop.is_cancelled() => {
                    log::debug!("the last report did not arrive: {error}");
                    return;
                }
                Err(error) => {
                    failures += 1;
                    let wait = retry_after(failures).max(error.retry_after().unwrap_or_default());
                    log::warn!("the node's status is not told, trying again in {wait:?}: {error}");
                    if self.stage == Stage::Known { wait.min(self.config.update_every) } else { wait }
                }
            };
            if !self.wait(wait) {
                return;
            }
            self.look();
        }
    }

    /// Waits for the time of the next report, for somebody who wants it now, or for a condition that changes; false at
    /// the end.
    fn wait(&mut self, time: Duration) -> bool {
        let until = clock::moment() + time;
        loop {
            let left = until.since(clock::moment());
            let wait = if self.parts.pressure.is_idle() { left } else { left.min(PRESSURE_EVERY) };
            // The handle has the other end: only time, a ring or the end end this.
            let is_rung = self.hurried.recv_timeout(wait).is_ok();
            if self.stop.is_cancelled() {
                return false;
            }
            let now = clock::moment();
            if is_rung || now >= until || self.parts.pressure.look(now) != self.findings.pressures {
                return true;
            }
        }
    }

    /// Finds out how the node is; true if it is ready.
    fn look(&mut self) -> bool {
        let was_silent =
            self.findings.runtime.status.is_none() || !self.findings.runtime.trouble(clock::moment()).is_empty();
        match self.runtime.status(false, &self.stop) {
            Ok(status) => {
                self.findings.runtime.take(status, clock::moment());
                if was_silent || self.findings.runtime.version.is_none() {
                    // It may be another one than before.
                    self.findings.runtime.version = self.runtime.version(&self.stop).ok();
                }
            }
            Err(error) => log::debug!("{error}"),
        }
        self.list_images();
        self.findings.pressures = self.parts.pressure.look(clock::moment());
        let (own, outgoing) = (network::own_addresses(), network::outgoing_addresses());
        let before = &self.findings.network;
        if own != before.own || outgoing != before.outgoing {
            // Only where the order of addresses comes to it.
            let named = match self.config.settings.node_ips.iter().any(|ip| !ip.is_unspecified()) {
                true => Vec::new(),
                false => network::resolve(&self.config.settings.name, RESOLVER_TIME),
            };
            self.findings.network = HostNetwork { own, outgoing, named };
        }
        let shuts_down = self.parts.shutting_down.load(Ordering::Acquire).then(|| SHUTTING_DOWN.to_owned());
        self.findings.trouble =
            pleg_trouble(self.parts.relisted.age(clock::moment())).into_iter().chain(shuts_down).collect();
        self.is_ready()
    }

    /// Images change when something is pulled, and that they did is worth little: they are listed as often as an
    /// unchanged status is sent. Where they lie is asked as rarely.
    fn list_images(&mut self) {
        let now = clock::moment();
        if self.images_listed.is_some_and(|at| now.since(at) < self.config.report_every) {
            return;
        }
        match self.runtime.list_images(&self.stop) {
            Ok(images) => {
                self.findings.images = Some(status_images(images, self.config.max_images));
                self.images_listed = Some(now);
            }
            Err(error) => log::debug!("{error}"),
        }
        if self.parts.pressure.needs_image_fs() {
            match self.runtime.image_fs_info(&self.stop) {
                Ok(told) => self.parts.pressure.set_image_fs(&told),
                Err(error) => log::debug!("{error}"),
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.findings.trouble.is_empty() && self.findings.runtime.trouble(clock::moment()).is_empty()
    }

    /// Registers the node, or tells its status if that is due.
    fn report(&mut self) -> Result<(), ApiError> {
        let mut result = Ok(());
        for _ in 0..TRIES {
            result = match self.stage {
                Stage::New => self.register(),
                Stage::Awaited => self.await_object(),
                Stage::Known => self.update(),
            };
            match &result {
                // The object moved on, or is gone: look at it, and try at once.
                Err(error) if error.is_conflict() => self.fetch()?,
                Err(error) if error.is_not_found() && self.stage == Stage::Known => {
                    log::warn!(
                        "node {} was deleted in the API; it is told there again if somebody creates it",
                        self.name()
                    );
                    self.stage = Stage::Awaited;
                    self.parts.object.forget(&registration::initial(&self.config.settings));
                    return Ok(());
                }
                _ => break,
            }
        }
        result
    }

    fn name(&self) -> &str {
        &self.config.settings.name
    }

    /// Creates the object, its first status in it; takes over one that is there.
    fn register(&mut self) -> Result<(), ApiError> {
        let told = self.tell(&registration::initial(&self.config.settings));
        self.startup.registers(clock::moment());
        let call = Call::new(Method::Post, paths::NODES).with_json(&told.node)?.within(self.config.update_every);
        match self.ask(&call) {
            Ok(node) => {
                log::info!("node {} is registered", self.name());
                self.startup.is_registered(clock::moment());
                self.stage = Stage::Known;
                self.arrived(node, &told, true);
                Ok(())
            }
            // One who may not create nodes may still have been given one.
            Err(error) if error.is_already_exists() || error.is_forbidden() => {
                self.await_object().map_err(|other| if other.is_not_found() { error } else { other })
            }
            Err(error) => Err(error),
        }
    }

    /// Takes over an object that others made; none is no failure where others have to make it.
    fn await_object(&mut self) -> Result<(), ApiError> {
        let awaited = self.stage == Stage::Awaited;
        match self.ask(&Call::new(Method::Get, paths::node(self.name())).within(self.config.update_every)) {
            Ok(existing) => {
                log::info!("node {} was registered before", self.name());
                let adopted = registration::adopt(&existing, &self.config.settings);
                let told = self.tell(&adopted);
                self.send(&existing, told)?;
                self.startup.is_registered(clock::moment());
                self.stage = Stage::Known;
                Ok(())
            }
            Err(error) if awaited && error.is_not_found() => {
                log::debug!("node {} is not there yet", self.name());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Tells the status if it is due.
    fn update(&mut self) -> Result<(), ApiError> {
        let present = self.parts.object.get();
        let told = self.tell(&present);
        let changed = change::differs(&present, &told.node);
        if !self.pace.is_due(changed, clock::moment()) {
            return Ok(());
        }
        self.send(&present, told)
    }

    fn send(&mut self, present: &Node, told: Told) -> Result<(), ApiError> {
        let changed = change::differs(present, &told.node);
        let Some(patch) = change::patch(present, &told.node) else {
            self.arrived(told.node.clone(), &told, changed);
            return Ok(());
        };
        let mut call = Call::new(Method::Patch, paths::node_status(self.name())).within(self.config.update_every);
        call.body = Some((ContentType::Patch(PatchType::Strategic), patch.to_string().into_bytes()));
        let node = self.ask(&call)?;
        self.arrived(node, &told, changed);
        Ok(())
    }

    fn fetch(&mut self) -> Result<(), ApiError> {
        let node = self.ask(&Call::new(Method::Get, paths::node(self.name())).within(self.config.update_every))?;
        self.parts.object.publish(node);
        Ok(())
    }

    fn ask(&self, call: &Call) -> Result<Node, ApiError> {
        self.parts.api.call_for(call)
    }

    fn tell(&mut self, present: &Node) -> Told {
        let told = tell(&self.config.settings, present, &self.findings, clock::now());
        if told.address_error != self.address_error {
            if let Some(error) = &told.address_error {
                log::error!("the node's addresses stay as they are: {error}");
            }
            self.address_error.clone_from(&told.address_error);
        }
        told
    }

    /// The server has it.
    fn arrived(&mut self, node: Node, told: &Told, changed: bool) {
        self.pace.sent(changed, clock::moment(), chance());
        if self.is_ready() {
            self.startup.is_ready(clock::moment());
        }
        self.parts.object.publish(node);
        for bell in &self.parts.bells {
            // Full: it is rung already.
            let _rung = bell.try_send(());
        }
        for reason in &told.news {
            let message = format!("Node {} status is now: {reason}", self.name());
            (self.parts.news)(NodeNews { event_type: EventType::Normal, reason, message });
        }
        if told.rebooted_from.is_some() {
            let boot_id = &self.config.settings.machine.boot_id;
            let message = format!("Node {} has been rebooted, boot id: {boot_id}", self.name());
            (self.parts.news)(NodeNews { event_type: EventType::Warning, reason: "Rebooted", message });
        }
    }
}

/// Why the look at the containers keeps the node from being ready.
fn pleg_trouble(age: Option<Duration>) -> Option<String> {
    match age {
        None => Some("PLEG is not healthy: pleg has yet to be successful".to_owned()),
        Some(age) if age > PLEG_LIMIT => Some(format!(
            "PLEG is not healthy: pleg was last seen active {} ago; threshold is {}",
            crate::util::text::duration(Duration::from_secs(age.as_secs())),
            crate::util::text::duration(PLEG_LIMIT)
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_have_to_be_looked_at() {
        let check = |age: Option<u64>, expect: Option<&str>| {
            assert_eq!(pleg_trouble(age.map(Duration::from_secs)).as_deref(), expect);
        };
        check(None, Some("PLEG is not healthy: pleg has yet to be successful"));
        check(Some(180), None);
        check(Some(185), Some("PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s"));
    }
}
