//! Rotation of container logs by the whole program: no line is lost, whatever the runtime says, and old files go.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::json;

use crate::{
    agent::{Place, SOON, ground, lives, put, remove, run, settle, wait_gone, wait_healthy, wait_running, wait_says},
    fakes::cri::FakeCri,
    harness::{Agent, config::Ground, logs, wait},
};

/// Lines that make a log too long.
const MANY: usize = 20;

fn start(place: &Place) -> Agent<'_> {
    let agent = Agent::spawn(place, |config| {
        settle(config);
        config["containerLogMaxSize"] = json!("1Ki");
        config["containerLogMaxFiles"] = json!(3);
        config["containerLogMonitorInterval"] = json!("3s");
        config["containerLogMaxWorkers"] = json!(2);
    });
    wait_healthy(&agent);
    agent
}

/// A container that prints numbered lines.
struct Printer<'a> {
    fake: &'a FakeCri,
    id: String,
    log: PathBuf,
    printed: usize,
}

impl Printer<'_> {
    fn print(&mut self, lines: usize) {
        for _ in 0..lines {
            self.printed += 1;
            let line = format!("line {} of a container that has much to say", self.printed);
            self.fake.with(|state| state.print(&self.id, &line));
        }
    }

    /// Names of the log's files, the log first and then from old to new.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.log.parent().expect("a folder")).expect("list the logs");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }

    /// Waits until as many files with these endings are there, the log first.
    #[track_caller]
    fn wait_files(&self, endings: &[&str]) -> Vec<String> {
        wait::until(&format!("log files {endings:?}"), SOON, || {
            let names = self.files();
            let fits = names.iter().zip(endings).all(|(name, ending)| match *ending {
                "" => name.len() == "0.log.20261130-080000".len(),
                ending => name.ends_with(ending),
            });
            if names.len() == endings.len() && fits { Ok(names) } else { Err(format!("{names:?}")) }
        })
    }

    /// The numbers of the lines in all files, from old to new.
    fn numbers(&self) -> Vec<usize> {
        let mut names = self.files();
        names.rotate_left(1);
        let read = |name: &String| logs::read(&self.log.with_file_name(name));
        names.iter().flat_map(|name| numbers(&read(name))).collect()
    }
}

fn numbers(text: &str) -> Vec<usize> {
    let number = |line: &str| line.split_once(" line ")?.1.split(' ').next()?.parse().ok();
    text.lines().filter_map(number).collect()
}

#[test]
fn logs_are_rotated_without_the_loss_of_a_line() {
    let (fake, place) = ground();
    let agent = start(&place);
    put(&agent, "talks");
    put(&agent, "quiet");
    wait_running(&agent, "talks");
    wait_running(&agent, "quiet");
    let shown = agent.wait_pod("talks", "a log", SOON, logs::path_of);
    let id = fake.container_id("talks-node", "app").expect("a container");
    let mut talks = Printer { fake: &fake, id, log: shown, printed: 0 };

    // Somebody follows it all the time, and this is what they see.
    let heard = place.path("heard");
    let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_ferrolet")));
    command.args(["logs", "-f", "talks-node"]).env("FERROLET_SOCKET", agent.root_dir().join("ferrolet/ferrolet.sock"));
    let mut follower =
        command.stdout(File::create(&heard).expect("a file")).stderr(Stdio::inherit()).spawn().expect("start the tool");

    talks.print(MANY);
    talks.wait_files(&[".log", ""]);
    // The file that was set aside stays as it is until the next rotation: a shipper may be reading it.
    talks.print(MANY);
    talks.wait_files(&[".log", ".gz", ""]);
    assert_eq!(talks.numbers(), (1..=2 * MANY).collect::<Vec<_>>());

    // The runtime refuses: the log stands where it stood, the container writes on, and the next round succeeds.
    fake.inject("ReopenContainerLog", 2, "no space left", 1);
    let before = talks.files();
    talks.print(MANY);
    wait_says_in_log(&agent, "the runtime does not begin a new one");
    talks.print(1);
    let names = talks.wait_files(&[".log", ".gz", ""]);
    assert_ne!(names, before, "the oldest has gone for the newest");
    assert_eq!(talks.numbers(), (MANY + 1..=3 * MANY + 1).collect::<Vec<_>>());

    // Somebody takes the log away: the runtime is told to begin one.
    fs::remove_file(&talks.log).expect("remove the log");
    talks.wait_files(&[".log", ".gz", ""]);
    talks.print(1);
    wait::until("the last line in the new log", SOON, || {
        let found = numbers(&logs::read(&talks.log));
        if found == [talks.printed] { Ok(()) } else { Err(format!("{found:?}")) }
    });
    let numbers_heard = || {
        let text = fs::read_to_string(&heard).expect("what was heard");
        numbers(&text.replace("app line", "x line"))
    };
    wait::until("the last line heard", SOON, || match numbers_heard() {
        found if found.last() == Some(&talks.printed) => Ok(()),
        found => Err(format!("{found:?}")),
    });
    assert!(agent.tool(&["logs", "quiet"]).is_ok_and(|logs| logs == "app started\n"));
    assert_eq!(lives(&fake, "talks").len(), 1, "no container was restarted for it");

    remove(&agent, "talks");
    wait_gone(&agent, &fake, "talks");
    assert!(!talks.log.parent().expect("a folder").exists(), "the logs went with the pod");
    assert!(follower.wait().expect("the tool ends").success());
    assert_eq!(numbers_heard(), (1..=talks.printed).collect::<Vec<_>>(), "one who follows hears each line once");
    wait_says(&agent, &["why"], "all pods run as they should");
}

#[track_caller]
fn wait_says_in_log(agent: &Agent<'_>, words: &str) {
    wait::until(&format!("{words:?} in the agent's log"), SOON, || {
        let log = agent.log();
        if log.contains(words) { Ok(()) } else { Err("it is not there".to_owned()) }
    });
}

#[test]
fn logs_of_a_container_go_with_it() {
    let (fake, place) = ground();
    let agent = Agent::spawn(&place, |config| {
        settle(config);
        config["crashLoopBackOff"] = json!({ "maxContainerRestartPeriod": "1s" });
    });
    wait_healthy(&agent);
    run(&agent, "again");
    let log = agent.wait_pod("again", "a log", SOON, logs::path_of);
    let folder = log.parent().expect("a folder");
    fs::write(folder.join("0.log.20260101-000000.gz"), "old").expect("write an old log");
    for (attempt, left) in [(0, &["0.log", "1.log", "0.log.20260101-000000.gz"][..]), (1, &["1.log", "2.log"])] {
        wait::until("a running container", SOON, || {
            let id = fake.container_id("again-node", "app").ok_or("no container")?;
            let due = fake.with(|state| state.containers.get(&id).is_some_and(|it| it.attempt() == attempt));
            if !due {
                return Err(format!("{:?}", fake.containers()));
            }
            fake.exit_container(&id, 1);
            Ok(())
        });
        wait::until(&format!("only {left:?}"), SOON, || {
            let entries = fs::read_dir(folder).map_err(|e| e.to_string())?;
            let mut there: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
            there.sort();
            let mut left: Vec<String> = left.iter().map(|name| (*name).to_owned()).collect();
            left.sort();
            if there == left { Ok(()) } else { Err(format!("{there:?}")) }
        });
    }
}
