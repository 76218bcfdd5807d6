//! `ferrolet top`: what the node and its pods use. Runs on the main thread; asks the agent once, or every two seconds while
//! somebody looks at a terminal.

use super::client::{self, Agent, Output, Refusal};
use super::print;
use super::table::table;
use crate::server::stats::{NodeUse, PodUse};
use crate::server::wire::{Answer, Request};
use crate::util::order;
use crate::util::terminal;
use std::ffi::OsString;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

const HELP: &str = "\n  -n, --namespace NS   only this namespace\n  --containers         each container on a line of its own\n  \
--sort cpu|memory    which pod comes first (default: cpu)\n  --once               one look, also on a terminal\n  \
-o json|yaml         everything, in bytes and nanocores\n\nOn a terminal it looks again every two seconds, until Ctrl-C.\n";

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(2);
/// Puts the cursor into the first corner.
const HOME: &str = "\x1b[H";
/// Clears all behind the cursor.
const CLEAR: &str = "\x1b[J";

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Cpu,
    Memory,
}

/// `ferrolet top [-n NS] [--containers] [--sort cpu|memory] [--once] [-o json|yaml]`.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    client::end("top", top(args))
}

fn top(args: Vec<OsString>) -> Result<ExitCode, Refusal> {
    use lexopt::prelude::*;
    let (mut agent, mut output, mut namespace) = (Agent::default(), Output::Text, None);
    let (mut containers, mut order, mut once) = (false, Order::Cpu, false);
    let mut words = lexopt::Parser::from_args(args);
    while let Some(word) = words.next()? {
        match word {
            Short('h') | Long("help") => return Ok(client::show_help("top", HELP)),
            Short('o') | Long("output") => output = Output::parse(&words.value()?, false)?,
            Short('n') | Long("namespace") => namespace = Some(client::text(words.value()?)?),
            Short('A') | Long("all-namespaces") => namespace = None,
            Long("containers") => containers = true,
            Long("once") => once = true,
            Long("sort") => {
                order = match client::text(words.value()?)?.as_str() {
                    "cpu" => Order::Cpu,
                    "memory" => Order::Memory,
                    other => return Err(Refusal::usage(format!("--sort takes cpu or memory, not {other}"))),
                }
            }
            Long("socket") => agent.socket = Some(words.value()?.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let look = || -> Result<NodeUse, Refusal> {
        let mut node = match agent.ask(&Request::Top {}, Duration::ZERO)?.next()? {
            Answer::Top(node) => *node,
            other => return Err(client::unexpected(&other)),
        };
        node.pods.retain(|pod| namespace.as_ref().is_none_or(|namespace| *namespace == pod.namespace));
        sort(&mut node.pods, order);
        Ok(node)
    };
    if matches!(output, Output::Json | Output::Yaml) {
        return output.print(&look()?);
    }
    if once || terminal::size().is_none() {
        return Ok(print(&render(&look()?, containers)));
    }
    loop {
        let text = render(&look()?, containers);
        // The terminal may have another size by now, or be gone.
        let Some((columns, rows)) = terminal::size() else { return Ok(ExitCode::SUCCESS) };
        print(&format!("{HOME}{}{CLEAR}", fit(&text, columns.into(), rows.into())));
        sleep(EVERY);
    }
}

fn sort(pods: &mut [PodUse], order: Order) {
    order::sort_by(pods, |a, b| {
        let by = match order {
            Order::Cpu => b.nano_cores.cmp(&a.nano_cores),
            Order::Memory => b.memory.cmp(&a.memory),
        };
        by.then_with(|| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)))
    });
}

/// What fits onto a terminal, each line cleared behind its end.
fn fit(text: &str, columns: usize, rows: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| line.chars().take(columns).collect()).collect();
    let room = rows.saturating_sub(1);
    let mut shown: Vec<String> = lines.iter().take(room).cloned().collect();
    if lines.len() > room && room > 0 {
        shown[room - 1] = format!("... and {} lines more", lines.len() - room + 1);
    }
    shown.into_iter().map(|line| line + "\x1b[K\r\n").collect()
}

fn render(node: &NodeUse, containers: bool) -> String {
    let mut out = format!(
        "node {}: CPU {} of {}, memory {} of {}, {} pods\n\n",
        node.name,
        cores(node.nano_cores),
        node.cpus,
        bytes(node.memory),
        bytes(Some(node.memory_capacity)),
        node.pods.len()
    );
    let heads: &[&str] = if containers {
        &["NAMESPACE", "NAME", "CONTAINER", "CPU", "MEMORY", "RESTARTS"]
    } else {
        &["NAMESPACE", "NAME", "CPU", "MEMORY", "RESTARTS"]
    };
    let mut rows = vec![heads.iter().map(ToString::to_string).collect::<Vec<_>>()];
    for pod in &node.pods {
        let mut row = |container: Option<&str>, cpu, memory, restarts: u64| {
            let names = [Some(pod.namespace.as_str()), Some(&pod.name), container];
            let figures = [cores(cpu), bytes(memory), restarts.to_string()];
            rows.push(names.into_iter().flatten().map(str::to_owned).chain(figures).collect());
        };
        if containers {
            for container in &pod.containers {
                row(Some(&container.name), container.nano_cores, container.memory, container.restarts);
            }
        } else {
            row(None, pod.nano_cores, pod.memory, pod.restarts);
        }
    }
    out.push_str(&table(&rows));
    out
}

/// Nanocores as millicores, as `kubectl top` shows them; what is less than one but not nothing is one.
fn cores(nano: Option<u64>) -> String {
    nano.map_or_else(|| "-".to_owned(), |nano| format!("{}m", nano.div_ceil(1_000_000)))
}

/// Bytes as mebibytes; what is less than one but not nothing is one.
fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{}Mi", bytes.div_ceil(1 << 20)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::stats::ContainerUse;
    use expect_test::expect;

    fn node() -> NodeUse {
        let container =
            |name: &str, nano_cores, memory| ContainerUse { name: name.to_owned(), nano_cores, memory, restarts: 1 };
        let pod = |name: &str, nano_cores, memory, containers| PodUse {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            nano_cores,
            memory,
            restarts: 2,
            containers,
        };
        NodeUse {
            name: "edge-1".to_owned(),
            nano_cores: Some(1_500_000_000),
            cpus: 4,
            memory: Some(900 << 20),
            memory_capacity: 4 << 30,
            pods: vec![
                pod("idle", Some(0), Some(5 << 20), vec![]),
                pod(
                    "web",
                    Some(250_000_001),
                    Some(1),
                    vec![container("app", Some(250_000_000), Some(100)), container("log", None, None)],
                ),
                pod("new", None, Some(9 << 20), vec![container("app", None, None)]),
            ],
        }
    }

    #[test]
    fn pods_are_shown() {
        let mut node = node();
        sort(&mut node.pods, Order::Cpu);
        expect![[r#"
            node edge-1: CPU 1500m of 4, memory 900Mi of 4096Mi, 3 pods

            NAMESPACE   NAME   CPU    MEMORY   RESTARTS
            default     web    251m   1Mi      2
            default     idle   0m     5Mi      2
            default     new    -      9Mi      2
        "#]]
        .assert_eq(&render(&node, false));
        sort(&mut node.pods, Order::Memory);
        expect![[r#"
            node edge-1: CPU 1500m of 4, memory 900Mi of 4096Mi, 3 pods

            NAMESPACE   NAME   CONTAINER   CPU    MEMORY   RESTARTS
            default     new    app         -      -        1
            default     web    app         250m   1Mi      1
            default     web    log         -      -        1
        "#]]
        .assert_eq(&render(&node, true));
    }

    #[test]
    fn a_small_terminal_shows_what_fits() {
        assert_eq!(fit("abcdef\ng\nh\n", 3, 9), "abc\x1b[K\r\ng\x1b[K\r\nh\x1b[K\r\n");
        assert_eq!(fit("a\nb\nc\n", 80, 3), "a\x1b[K\r\n... and 2 lines more\x1b[K\r\n");
        assert_eq!(fit("a\nb\n", 80, 0), "");
    }
}
