//! Plays the rows of the table on one node: many pods at once, one look at the API for all of them at a time.
//!
//! A row is a list of steps that are done one after another; rows know nothing of each other. Besides what its steps ask
//! for, each row is held to what is true of every pod: restart counts never fall, an end is never taken back, and times are
//! times. Used from the thread of one test; owns the namespace's pods.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    io::{self, Write as _},
    ops::{Range, RangeInclusive},
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::make::seconds;
use crate::{
    cluster::lab::Ground,
    harness::{cluster::condition, wait},
};

/// How many rows are played at a time: what two CPUs can start and probe without missing deadlines.
const AT_ONCE: usize = 40;
/// How long a row may take: pods start slowly beside many others.
const PATIENCE: Duration = Duration::from_secs(240);
/// How long all of it may take.
const ALL: Duration = Duration::from_secs(900);

/// A behaviour: its name as in names.tsv, and how it shows.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
}

/// One step. Texts may hold `${name}` of what the scene knows, and `${pod/status/podIP}` of what the API has of a pod;
/// without a name before the slash it is the pod that is looked at.
pub(super) enum Step {
    /// Waits until rows have been played for so many seconds, and the agent has run as long.
    Late(u64),
    /// Makes an object.
    Make(Value),
    /// The API server refuses an object, in words that hold all of these and not the last.
    Refused(Value, &'static [&'static str], &'static str),
    /// Has kubectl do something in the namespace.
    Kubectl(Vec<String>),
    /// Waits until a pod is as all of these say at once.
    Until(String, Vec<Look>),
    /// Watches for so many seconds that a pod stays as all of these say.
    For(u64, String, Vec<Look>),
}

/// What is to be seen of a pod.
pub(super) enum Look {
    Phase(&'static str),
    /// A value of the object, by its JSON pointer.
    Is(&'static str, Value),
    Ready(bool),
    /// A condition's status.
    Condition(&'static str, &'static str),
    /// A container's restarts.
    Restarts(&'static str, RangeInclusive<u64>),
    /// A value of a container's status, by its pointer there.
    Status(&'static str, &'static str, Value),
    /// The log of a container holds this.
    Says(&'static str, String),
    /// The log of a container does not hold this.
    Silent(&'static str, String),
    /// An event of the pod's with this reason, whose message holds these words.
    Event(&'static str, &'static str),
    /// A container ended so many seconds after it was first asked to.
    Lasted(&'static str, Range<i64>),
    /// The API has no such pod any more.
    Gone,
    /// Something of the object that takes reckoning.
    Holds(&'static str, fn(&Value) -> bool),
}

/// A container's status of any kind.
pub(super) fn status<'pod>(pod: &'pod Value, container: &str) -> &'pod Value {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let all = lists.into_iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    all.into_iter().find(|status| status["name"] == container).unwrap_or(&Value::Null)
}

/// The node that rows are played on.
pub(super) struct Scene<'ground> {
    pub(super) ground: &'ground Ground<'ground>,
    pub(super) namespace: String,
    /// Where the node's agent has the logs of containers.
    pub(super) logs: PathBuf,
    /// When the agent was ready.
    pub(super) began: Instant,
    /// What texts may hold.
    pub(super) words: BTreeMap<&'static str, String>,
}

/// What one look at the API has seen.
struct Seen {
    pods: BTreeMap<String, Value>,
    events: Vec<Value>,
}

/// A row that is being played.
struct Playing {
    row: Row,
    at: usize,
    began: Instant,
    /// When the present step was come to.
    reached: Instant,
    /// What the last look lacked.
    lacks: String,
    /// What was seen of its pods' containers: the restart count, by pod and container.
    counts: BTreeMap<(String, String), u64>,
    /// Phases that are final, by pod's uid.
    ends: BTreeMap<String, String>,
}

enum Next {
    Same,
    Step,
    Failed(String),
}

impl Scene<'_> {
    fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let all = [&["-n", self.namespace.as_str()], arguments].concat();
        self.ground.cluster.kubectl_with(&all, input)
    }

    /// Makes objects that rows share, before they are played.
    pub(super) fn make(&self, objects: &[Value]) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
        let list = self.fill(&list, "", &BTreeMap::new()).expect("texts of what is shared");
        self.kubectl(&["create", "-f", "-"], &list).expect("make what rows share");
    }

    fn look(&self) -> Result<Seen, String> {
        let list = |kind: &str| -> Result<Vec<Value>, String> {
            let mut list = self.ground.cluster.get(&["-n", &self.namespace, kind])?;
            Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
        };
        let named = |pod: Value| (pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), pod);
        Ok(Seen { pods: list("pods")?.into_iter().map(named).collect(), events: list("events")? })
    }

    /// A text with what it stands for.
    fn fill(&self, text: &str, own: &str, pods: &BTreeMap<String, Value>) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (key, after) = after.split_once('}').ok_or_else(|| format!("{text}: a brace is open"))?;
            let value = match key.split_once('/') {
                None => self.words.get(key).cloned(),
                Some((pod, pointer)) => {
                    let pod = pods.get(if pod.is_empty() { own } else { pod });
                    pod.and_then(|pod| pod.pointer(&format!("/{pointer}"))).map(plain)
                }
            };
            filled += before;
            filled += &value.ok_or_else(|| format!("there is no {key} yet"))?;
            rest = after;
        }
        Ok(filled + rest)
    }

    /// What a container has printed in all its lives that are on disk.
    fn log(&self, pod: &Value, container: &str) -> String {
        let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
        let name = format!("{}_{}_{}", text("namespace"), text("name"), text("uid"));
        let entries = fs::read_dir(self.logs.join(name).join(container)).into_iter().flatten().flatten();
        let read = entries.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default());
        read.flat_map(|log| log.lines().map(said).collect::<Vec<_>>()).collect::<Vec<_>>().join("\n")
    }

    fn see(&self, name: &str, look: &Look, seen: &Seen) -> Result<(), String> {
        let Some(pod) = seen.pods.get(name) else {
            return if matches!(look, Look::Gone) { Ok(()) } else { Err(format!("there is no pod {name}")) };
        };
        let expect = |what: &str, have: &Value, want: &Value| {
            if have == want { Ok(()) } else { Err(format!("{what} is {have}, not {want}")) }
        };
        match look {
            Look::Phase(phase) => expect("the phase", &pod["status"]["phase"], &json!(phase)),
            Look::Is(pointer, want) => {
                let want: Value = serde_json::from_str(&self.fill(&want.to_string(), name, &seen.pods)?)
                    .map_err(|err| err.to_string())?;
                expect(pointer, pod.pointer(pointer).unwrap_or(&Value::Null), &want)
            }
            Look::Ready(ready) => {
                expect("Ready", &condition(pod, "Ready")["status"], &json!(if *ready { "True" } else { "False" }))
            }
            Look::Condition(type_, want) => expect(type_, &condition(pod, type_)["status"], &json!(want)),
            Look::Restarts(container, range) => match status(pod, container)["restartCount"].as_u64() {
                Some(count) if range.contains(&count) => Ok(()),
                other => Err(format!("{container} was restarted {other:?} times, not {range:?}")),
            },
            Look::Status(container, pointer, want) => {
                let have = status(pod, container).pointer(pointer).unwrap_or(&Value::Null);
                expect(&format!("{container}{pointer}"), have, want)
            }
            Look::Says(container, words) => {
                let (words, log) = (self.fill(words, name, &seen.pods)?, self.log(pod, container));
                if log.contains(&words) { Ok(()) } else { Err(format!("{container} says {log:?}, not {words:?}")) }
            }
            Look::Silent(container, words) => {
                let (words, log) = (self.fill(words, name, &seen.pods)?, self.log(pod, container));
                if log.contains(&words) { Err(format!("{container} says {log:?}")) } else { Ok(()) }
            }
            Look::Event(reason, words) => {
                let mine = |event: &&Value| event["involvedObject"]["uid"] == pod["metadata"]["uid"];
                let told: Vec<String> = seen
                    .events
                    .iter()
                    .filter(mine)
                    .map(|event| format!("{}: {}", plain(&event["reason"]), plain(&event["message"])))
                    .collect();
                let is_it = |line: &String| line.starts_with(&format!("{reason}: ")) && line.contains(words);
                if told.iter().any(is_it) { Ok(()) } else { Err(format!("no {reason} {words:?} in {told:?}")) }
            }
            Look::Lasted(container, range) => {
                let mine = |event: &&Value| event["involvedObject"]["uid"] == pod["metadata"]["uid"];
                let killing = seen.events.iter().filter(mine).filter(|event| event["reason"] == "Killing");
                let asked =
                    killing.filter_map(|event| seconds(&event["firstTimestamp"])).min().ok_or("no Killing yet")?;
                let ended =
                    seconds(&status(pod, container)["state"]["terminated"]["finishedAt"]).ok_or("no end yet")?;
                let lasted = ended - asked;
                if range.contains(&lasted) { Ok(()) } else { Err(format!("it lasted {lasted} s, not {range:?}")) }
            }
            Look::Gone => Err("it is still there".to_owned()),
            Look::Holds(what, holds) => {
                if holds(pod) {
                    Ok(())
                } else {
                    Err(format!("it is not so: {what}"))
                }
            }
        }
    }

    fn see_all(&self, name: &str, looks: &[Look], seen: &Seen) -> Result<(), String> {
        looks.iter().try_for_each(|look| self.see(name, look, seen))
    }

    /// One step of a row, as far as it comes with this look at the API.
    fn step(&self, playing: &Playing, seen: &Seen, make: &mut Vec<Value>) -> Result<Next, String> {
        let failed = |why: String| Ok(Next::Failed(why));
        match &playing.row.steps[playing.at] {
            Step::Late(seconds) if self.began.elapsed() < Duration::from_secs(*seconds) => Ok(Next::Same),
            Step::Late(_) => Ok(Next::Step),
            Step::Make(object) => {
                let text = self.fill(&object.to_string(), "", &seen.pods)?;
                make.push(serde_json::from_str(&text).map_err(|err| err.to_string())?);
                Ok(Next::Step)
            }
            Step::Refused(object, words, not) => match self.kubectl(&["create", "-f", "-"], &object.to_string()) {
                Err(said) if words.iter().all(|word| said.contains(word)) && !said.contains(not) => Ok(Next::Step),
                other => failed(format!("the API server says {other:?}")),
            },
            Step::Kubectl(arguments) => {
                let filled: Result<Vec<String>, String> =
                    arguments.iter().map(|argument| self.fill(argument, "", &seen.pods)).collect();
                let filled = filled?;
                let arguments: Vec<&str> = filled.iter().map(String::as_str).collect();
                self.kubectl(&arguments, "").map(|_| Next::Step).or_else(failed)
            }
            Step::Until(pod, looks) => self.see_all(pod, looks, seen).map(|()| Next::Step),
            Step::For(seconds, pod, looks) => match self.see_all(pod, looks, seen) {
                Err(why) => failed(format!("after {:?}: {why}", playing.reached.elapsed())),
                Ok(()) if playing.reached.elapsed() >= Duration::from_secs(*seconds) => Ok(Next::Step),
                Ok(()) => Ok(Next::Same),
            },
        }
    }

    /// Plays all rows, and tells which failed and why.
    pub(super) fn play(&self, rows: Vec<Row>) -> Vec<String> {
        let (mut waiting, mut active, mut failures) = (VecDeque::from(rows), Vec::<Playing>::new(), Vec::new());
        let (began, all) = (Instant::now(), waiting.len());
        while !(waiting.is_empty() && active.is_empty()) {
            if began.elapsed() > ALL {
                let rest = active
                    .iter()
                    .map(|playing| format!("{}: step {}: {}", playing.row.name, playing.at, playing.lacks));
                failures.extend(rest.chain(waiting.iter().map(|row| format!("{}: was never begun", row.name))));
                break;
            }
            while active.len() < AT_ONCE
                && let Some(row) = waiting.pop_front()
            {
                active.push(Playing::new(row));
            }
            let seen = self.look().expect("look at the API");
            let (mut make, mut over) = (Vec::new(), Vec::new());
            active.retain_mut(|playing| match self.advance(playing, &seen, &mut make) {
                None => true,
                Some(ended) => {
                    over.extend(playing.pods());
                    if let Err(why) = ended {
                        let failure = format!("{}: {why}", playing.row.name);
                        // Past the test's capture, which keeps all of it until the last row has ended.
                        drop(writeln!(io::stderr(), "after {:?}: {failure}", began.elapsed()));
                        failures.push(failure);
                    }
                    false
                }
            });
            self.make_all(&make);
            self.end(&over);
        }
        drop(writeln!(io::stderr(), "{} of {all} rows failed in {:?}", failures.len(), began.elapsed()));
        failures
    }

    /// Waits until everything that rows made is gone.
    #[track_caller]
    pub(super) fn wait_empty(&self) {
        self.kubectl(&["delete", "pods", "--all", "--grace-period=1", "--wait=false"], "")
            .expect("delete what rows share");
        wait::until("the end of all pods", PATIENCE, || {
            let pods = self.look()?.pods;
            // A row that failed may not have come to letting its object go.
            for (name, _) in pods.iter().filter(|(_, pod)| pod["metadata"]["finalizers"].is_array()) {
                let patch = r#"{"metadata":{"finalizers":null}}"#;
                self.kubectl(&["patch", "pod", name, "--type=merge", "-p", patch], "").map(drop)?;
            }
            if pods.is_empty() { Ok(()) } else { Err(format!("{:?}", pods.keys())) }
        });
    }

    fn make_all(&self, objects: &[Value]) {
        if !objects.is_empty() {
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
            self.kubectl(&["create", "-f", "-"], &list.to_string()).expect("make the objects of rows");
        }
    }

    /// Has pods end that are not needed any more, and some that were made for others alone.
    fn end(&self, pods: &[String]) {
        if !pods.is_empty() {
            let names: Vec<&str> = pods.iter().map(String::as_str).collect();
            let how = ["delete", "pod", "--grace-period=1", "--wait=false", "--ignore-not-found"];
            self.kubectl(&[&how[..], &names].concat(), "").expect("delete pods");
        }
    }

    /// Takes a row as far as it comes; its end, if it came to one.
    fn advance(&self, playing: &mut Playing, seen: &Seen, make: &mut Vec<Value>) -> Option<Result<(), String>> {
        if let Err(why) = playing.hold(seen) {
            return Some(Err(why));
        }
        while playing.at < playing.row.steps.len() {
            let waits = match self.step(playing, seen, make) {
                Ok(Next::Step) => {
                    playing.at += 1;
                    playing.reached = Instant::now();
                    // What a step did is to be seen by the next look alone.
                    let acted =
                        !matches!(playing.row.steps[playing.at - 1], Step::Until(..) | Step::For(..) | Step::Late(_));
                    let waits = playing.row.steps.get(playing.at).is_some_and(|next| !matches!(next, Step::Make(_)));
                    if acted && waits {
                        return None;
                    }
                    continue;
                }
                Ok(Next::Failed(why)) => return Some(Err(format!("step {}: {why}", playing.at))),
                Ok(Next::Same) => String::new(),
                Err(lacks) => lacks,
            };
            playing.lacks = waits;
            let late = playing.began.elapsed() > PATIENCE;
            return late.then(|| {
                let of = playing
                    .pods()
                    .iter()
                    .filter_map(|name| seen.pods.get(name))
                    .map(|pod| pod["status"].to_string())
                    .collect::<Vec<_>>();
                Err(format!("step {} after {PATIENCE:?}: {}; the API has {}", playing.at, playing.lacks, of.join("\n")))
            });
        }
        Some(Ok(()))
    }
}

impl Playing {
    fn new(row: Row) -> Playing {
        let now = Instant::now();
        let (counts, ends) = (BTreeMap::new(), BTreeMap::new());
        Playing { row, at: 0, began: now, reached: now, lacks: String::new(), counts, ends }
    }

    /// The pods that the row makes.
    fn pods(&self) -> Vec<String> {
        let made =
            self.row.steps.iter().filter_map(|step| if let Step::Make(object) = step { Some(object) } else { None });
        made.filter(|object| object["kind"] == "Pod").map(|pod| plain(&pod["metadata"]["name"])).collect()
    }

    /// What holds of every pod at every look.
    fn hold(&mut self, seen: &Seen) -> Result<(), String> {
        for name in self.pods() {
            let Some(pod) = seen.pods.get(&name) else { continue };
            let (uid, phase) = (plain(&pod["metadata"]["uid"]), plain(&pod["status"]["phase"]));
            match self.ends.get(&uid) {
                Some(end) if *end != phase => return Err(format!("{name} was {end} and is {phase}")),
                _ if ["Succeeded", "Failed"].contains(&phase.as_str()) => drop(self.ends.insert(uid.clone(), phase)),
                _ => {}
            }
            for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
                for status in pod["status"][list].as_array().into_iter().flatten() {
                    let count = status["restartCount"].as_u64().unwrap_or_default();
                    let known = self.counts.insert((uid.clone(), plain(&status["name"])), count);
                    if known.is_some_and(|known| known > count) {
                        return Err(format!("{name}: the restart count fell from {known:?} to {status}"));
                    }
                    let ends = ["state", "lastState"].map(|state| &status[state]["terminated"]);
                    let is_time = |time: &Value| time.as_str().is_none_or(|time| time > "2020");
                    if ends.iter().any(|end| !is_time(&end["startedAt"]) || !is_time(&end["finishedAt"])) {
                        return Err(format!("{name}: a time that is none: {status}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A text without quotes, and anything else as JSON has it.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What a container printed, without what the runtime writes before it: time, stream and tag.
fn said(line: &str) -> String {
    line.splitn(4, ' ').nth(3).unwrap_or(line).to_owned()
}
