//! What goes wrong in the simulated world: ends, deaths and losses in the runtime, changes of the manifests,
//! jumps of the clocks, and the agent's own death.

use std::time::Duration;

use ferrolet::api::moment::Moment;
use ferrolet::api::pod::find_container;
use ferrolet::api::runtime::{ContainerState, SandboxState};
use ferrolet::api::{ContainerId, PodUid};
use ferrolet::core::node::Node;
use ferrolet::core::status::{RestartAll, restarts_after};
use ferrolet::msg::{FromProber, ProbeKind, ProbeVerdict, RuntimeHealth};

use super::pleg::Pleg;
use super::world::{World, settings};

impl World {
    /// Something goes wrong, or somebody wants something else.
    pub(super) fn trouble(&mut self) {
        let (mono, wall) = (self.mono, self.wall);
        match self.rng.below(1000) {
            0..300 => self.mono = mono + Duration::from_millis(self.rng.below(3000)),
            300..340 => self.mono = mono + Duration::from_secs(self.rng.below(60)),
            340..345 => self.mono = mono + Duration::from_secs(self.rng.below(1200)),
            345..360 => {
                let jump = self.rng.below(200_000) as i64 - 100_000;
                self.wall = wall.saturating_add(jump * 1_000_000_000);
            }
            360..480 => {
                let (source, what) = self.manifests.change(&mut self.rng);
                self.say(|| what);
                self.send_set(source);
            }
            480..760 => self.end_one(),
            760..800 => {
                let ready = self.runtime.pods.values().flat_map(|p| &p.sandboxes);
                let ready = ready.filter(|s| s.state == SandboxState::Ready).map(|s| s.id.clone());
                if let Some(id) = self.rng.pick(ready) {
                    self.say(|| format!("{id} dies"));
                    self.runtime.kill_sandbox(&id);
                }
            }
            800..820 => {
                let all = self.runtime.pods.values().flat_map(|p| &p.containers).map(|c| c.id.clone());
                if let Some(id) = self.rng.pick(all) {
                    self.say(|| format!("the runtime loses track of {id}"));
                    self.runtime.lose_track(&id);
                }
            }
            820..840 => self.remove_by_hand(),
            840..880 => {
                self.up = !self.up;
                let up = self.up;
                self.say(|| format!("the runtime is {}", if up { "up" } else { "down" }));
            }
            880..900 => self.condemn(),
            900..905 => self.restart_agent(true),
            905..930 => self.restart_agent(false),
            _ => self.up = true,
        }
    }

    /// A container ends by itself.
    fn end_one(&mut self) {
        let running = self.running();
        let Some((uid, id)) = self.rng.pick(running) else { return };
        let code = [0, 0, 0, 1, 1, 42][self.rng.below(6) as usize];
        self.end(&uid, &id, code);
    }

    pub(super) fn end(&mut self, uid: &PodUid, id: &ContainerId, code: i32) {
        self.say(|| format!("{id} of {uid} ends with {code}"));
        let Some(pod) = self.specs.get(uid) else { return };
        self.runtime.exit_alone(pod, id, code, self.wall);
    }

    pub(super) fn running(&self) -> Vec<(PodUid, ContainerId)> {
        let all = self.runtime.pods.iter().flat_map(|(uid, pod)| pod.containers.iter().map(move |c| (uid, c)));
        let running = all.filter(|(_, c)| matches!(c.state, ContainerState::Running { .. }));
        running.map(|(uid, c)| (uid.clone(), c.id.clone())).collect()
    }

    fn remove_by_hand(&mut self) {
        let all = self.runtime.pods.iter().flat_map(|(uid, pod)| pod.containers.iter().map(move |c| (uid, c)));
        let all = all.filter(|(uid, _)| !self.runtime.asked.contains_key(*uid));
        let dead = all.filter(|(_, c)| matches!(c.state, ContainerState::Exited(_) | ContainerState::Created));
        let dead = dead.map(|(uid, c)| (uid.clone(), c.id.clone(), c.name.clone()));
        let Some((uid, id, name)) = self.rng.pick(dead) else { return };
        self.say(|| format!("somebody removes {id} of {uid}"));
        let known = self.disk.get(&uid).and_then(|record| record.containers.get(&name));
        let recorded = known.map_or(0, |c| c.next_attempt);
        // What went unseen counts as a failure.
        let spec = self.specs.get(&uid).and_then(|pod| Some((pod, find_container(pod, &name)?)));
        let ended = known
            .and_then(|c| c.last_run.exit_code())
            .zip(spec)
            .is_some_and(|(code, (pod, (kind, spec)))| !restarts_after(pod, kind, &spec, code, RestartAll::InForce));
        self.runtime.remove_by_hand(&uid, &id, recorded, ended);
        self.restarts.clear();
    }

    fn condemn(&mut self) {
        let running = self.running();
        let Some((uid, container)) = self.rng.pick(running) else { return };
        let probe = ProbeKind::Liveness;
        let verdict = ProbeVerdict { uid, container, probe, success: false };
        self.prober.told.push_back(FromProber::Verdict(verdict));
    }

    /// The agent dies and comes back; after a power cut the machine does too.
    pub(super) fn restart_agent(&mut self, power_cut: bool) {
        self.say(|| if power_cut { "the power goes".to_owned() } else { "the agent restarts".to_owned() });
        let mut lost = Vec::new();
        if !self.calm && self.rng.chance(300) {
            for (uid, old) in std::mem::take(&mut self.unsaved).into_iter().rev() {
                // What was under way may have gone further than the disk knows.
                self.runtime.asked.remove(&uid);
                lost.push(uid.clone());
                match old {
                    Some(record) => self.disk.insert(uid, record),
                    None => self.disk.remove(&uid),
                };
            }
        }
        for (_, job) in std::mem::take(&mut self.jobs) {
            job.abandon(&mut self.runtime, &mut self.rng, self.wall);
        }
        if power_cut {
            self.runtime.power_cut(self.wall);
            self.boot += 1;
            self.mono = Moment::from_boot(Duration::from_secs(self.rng.below(100)));
        }
        self.pleg = Pleg::default();
        self.relist_at = self.mono;
        self.told_health = RuntimeHealth::Up;
        self.from_sources.clear();
        self.from_pleg.clear();
        self.from_workers.clear();
        self.inspect.clear();
        self.told.clear();
        self.restarts.clear();
        self.node = Node::new(settings(self.boot, self.probes), self.disk.values().cloned().collect());
        self.prober.begin_again(self.clock(), lost);
        self.leftovers = Some(self.runtime.folders.iter().cloned().collect());
        self.speak();
    }
}
