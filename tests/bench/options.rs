//! What `tests/bench/run` is told: which parts, how long, how often.
//!
//! Used from the main thread of the benchmark; owns nothing.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::node::Containerd;

/// A ferrolet to measure.
pub(crate) struct Program {
    /// How the tables call it.
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
}

/// The parts of a run.
pub(crate) struct Options {
    pub(crate) window: Duration,
    pub(crate) idle: Vec<usize>,
    pub(crate) starts: Vec<usize>,
    pub(crate) containerds: Vec<Containerd>,
    pub(crate) rounds: usize,
    /// Whether the part with an API server is run; the others are not, then.
    pub(crate) is_cluster: bool,
    /// Containers that are probed, if that is what is measured; nothing else is, then.
    pub(crate) probes: Option<usize>,
    /// Pods whose numbers are asked for, if that is what is measured; nothing else is, then.
    pub(crate) scrapes: Option<usize>,
    /// Numbers of pods to start through the API server.
    pub(crate) pods: Vec<usize>,
    /// How long the API server goes away, if it does.
    pub(crate) away: Option<Duration>,
    /// Number of pods with three volumes of the API server each, if their idle figures are wanted.
    pub(crate) crowd: Option<usize>,
    /// What is measured, one after the other.
    pub(crate) programs: Vec<Program>,
}

impl Options {
    /// Reads the command line; says what is wrong with it. `built` is the program that was built with the benchmark.
    pub(crate) fn read(arguments: impl Iterator<Item = String>, built: &Path) -> Result<Options, String> {
        let mut options = Options {
            window: Duration::from_secs(60),
            idle: vec![0, 30],
            starts: vec![1, 10, 30, 110],
            containerds: Containerd::ALL.to_vec(),
            rounds: 3,
            is_cluster: false,
            probes: None,
            scrapes: None,
            pods: vec![1, 30],
            away: None,
            crowd: None,
            programs: vec![Program { name: "quick", path: built.to_owned() }],
        };
        let mut arguments = arguments;
        while let Some(option) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                // Cargo's own.
                "--bench" => {}
                "--quick" => {
                    options.window = Duration::from_secs(15);
                    options.starts = vec![1, 10];
                    options.rounds = 1;
                }
                "--cluster" => options.is_cluster = true,
                "--scrapes" => options.scrapes = Some(number(&value()?)?),
                "--probes" => options.probes = Some(number(&value()?)?),
                "--pods" => options.pods = numbers(&value()?)?,
                "--away" => options.away = Some(Duration::from_secs(number(&value()?)? as u64)),
                "--crowd" => options.crowd = Some(number(&value()?)?),
                "--window" => options.window = Duration::from_secs(number(&value()?)? as u64),
                "--idle" => options.idle = numbers(&value()?)?,
                "--starts" => options.starts = numbers(&value()?)?,
                "--rounds" => options.rounds = number(&value()?)?.max(1),
                "--agent" => options.programs = vec![Program { name: "given", path: program(&value()?)? }],
                "--static" => options.programs.push(Program { name: "static", path: program(&value()?)? }),
                "--containerd" => {
                    let kind = |number: usize| match number {
                        1 => Ok(Containerd::System),
                        2 => Ok(Containerd::Two),
                        other => Err(format!("no containerd {other}: there are 1 and 2")),
                    };
                    options.containerds = numbers(&value()?)?.into_iter().map(kind).collect::<Result<_, _>>()?;
                }
                other => return Err(format!("unknown: {other} (tests/bench/run --help)")),
            }
        }
        if options.is_cluster || options.probes.is_some() {
            options.containerds.clear();
        }
        if (options.away.is_some() || options.crowd.is_some()) && !options.is_cluster {
            return Err("--away and --crowd need --cluster".to_owned());
        }
        Ok(options)
    }
}

fn program(path: &str) -> Result<PathBuf, String> {
    // The agents run in other folders than this.
    std::fs::canonicalize(path).map_err(|error| format!("{path}: {error}"))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn numbers(text: &str) -> Result<Vec<usize>, String> {
    text.split(',').filter(|word| !word.is_empty()).map(number).collect()
}
