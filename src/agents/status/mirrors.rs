//! Carries out the plan of mirror pods at the API server. On the thread `status`.
//!
//! Owns what was tried for each name lately: the watch shows the outcome a little later, and until then
//! nothing is done twice.

use std::collections::BTreeMap;

use super::Reached;
use super::book::RESYNC;
use crate::api::PodName;
use crate::api::moment::Moment;
use crate::api::pod::pod_name;
use crate::api::v1::Pod;
use crate::core::mirror::{self, MirrorStep, Owner};
use crate::kube::reports::{PodApi, Refusal};
use crate::msg::NodeView;
use crate::util::order::Gather;

/// What was tried for a name: which mirror was there, which hash was to come, and when.
#[derive(Debug)]
struct Tried {
    step: MirrorStep,
    at: Moment,
}

/// What was tried lately.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    tried: BTreeMap<PodName, Tried>,
    wake: Option<Moment>,
}

impl Mirrors {
    /// When to look again though nothing happens.
    pub(super) fn wake(&self) -> Option<Moment> {
        self.wake
    }

    /// Does what the plan says and was not just tried.
    pub(super) fn turn(&mut self, api: &dyn PodApi, view: &NodeView, owner: Option<&Owner>, now: Moment) -> Reached {
        self.wake = None;
        // A source that has not spoken may have the pod that a mirror shows.
        if !view.is_listed || !view.silent_sources.is_empty() {
            return Reached::NotTried;
        }
        let steps = mirror::plan(&view.pods, &view.mirrors, owner);
        let named: BTreeMap<PodName, MirrorStep> = steps.into_iter().map(|step| (name_of(&step), step)).gather();
        self.tried.retain(|name, tried| named.get(name) == Some(&tried.step));
        let mut reached = Reached::NotTried;
        for (name, step) in named {
            let again = self.tried.get(&name).map(|tried| tried.at + RESYNC).filter(|at| *at > now);
            if let Some(at) = again {
                self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
                continue;
            }
            match carry_out(api, &name, &step) {
                Ok(()) => {}
                Err(Refusal::Ends) => return Reached::No,
                Err(Refusal::Away(why)) => {
                    log::debug!("mirror of pod {name}: {why}");
                    return Reached::No;
                }
                Err(other) => log::warn!("mirror of pod {name}: {}", explain(&other)),
            }
            reached = Reached::Yes;
            let at = now + RESYNC;
            self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
            self.tried.insert(name, Tried { step, at: now });
        }
        reached
    }
}

fn name_of(step: &MirrorStep) -> PodName {
    match step {
        MirrorStep::Create(pod) => pod_name(pod),
        MirrorStep::Delete { name, .. } => name.clone(),
    }
}

fn carry_out(api: &dyn PodApi, name: &PodName, step: &MirrorStep) -> Result<(), Refusal> {
    match step {
        MirrorStep::Create(pod) => create(api, name, pod),
        MirrorStep::Delete { uid, then, .. } => {
            match api.delete_now(name, uid) {
                Ok(()) => log::info!("deleted the mirror of pod {name}, which was out of date"),
                // It is gone, or another one took its place: the watch will tell.
                Err(Refusal::NotFound) => {}
                Err(Refusal::Conflict) => return Ok(()),
                Err(other) => return Err(other),
            }
            match then {
                Some(pod) => create(api, name, pod),
                None => Ok(()),
            }
        }
    }
}

fn create(api: &dyn PodApi, name: &PodName, pod: &Pod) -> Result<(), Refusal> {
    match api.create(name, pod) {
        Ok(()) => log::info!("created the mirror of pod {name}"),
        // The watch will show it, and whether it is the right one.
        Err(Refusal::Exists) => {}
        Err(other) => return Err(other),
    }
    Ok(())
}

fn explain(refusal: &Refusal) -> &str {
    match refusal {
        Refusal::NotFound => "its namespace does not exist at the API server",
        Refusal::Conflict => "somebody else changed it",
        Refusal::Exists => "it exists",
        Refusal::Ends => "the agent ends",
        Refusal::Denied(why) | Refusal::Away(why) => why,
    }
}
