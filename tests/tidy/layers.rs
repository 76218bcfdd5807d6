//! Who may import whom: the table, and the search for `crate::` and `super::` paths.
//!
//! README.md, "Architecture", tells why. The table lists the direct imports of each top-level module of
//! `src`; a module that is not in it may not exist. Tests inside `src` are held to the same table.

use super::{Breach, source::Source};

/// Each top-level module of `src` and what it may import besides itself.
const TABLE: &[(&str, &[&str])] = &[
    ("util", &["api"]),
    ("proto", &[]),
    ("api", &[]),
    ("msg", &["api", "util"]),
    ("core", &["api", "msg", "util"]),
    ("cri", &["proto", "api", "msg", "util"]),
    ("kube", &["api", "msg", "util"]),
    ("probe", &["api", "msg", "util"]),
    ("host", &["api", "msg", "util"]),
    ("store", &["api", "msg", "util"]),
    ("config", &["api", "msg", "util"]),
    ("volumes", &["host", "api", "msg", "util"]),
    ("agents", &["core", "cri", "kube", "probe", "host", "volumes", "store", "config", "api", "msg", "util"]),
    ("server", &["core", "cri", "kube", "host", "volumes", "store", "config", "api", "msg", "util"]),
    ("sync_loop", &["core", "api", "msg", "util"]),
];

/// What joins the house and so may import everything.
const TOP: &[&str] = &["app", "cli", "main", ""];

/// All breaches of the table in one file of `src`. `agents` names the modules of `src/agents`.
pub(super) fn breaches(source: &Source, agents: &[&str]) -> Vec<Breach> {
    let module = source.module();
    let top = module.first().copied().unwrap_or("");
    if !source.path.starts_with("src/") || TOP.contains(&top) {
        return Vec::new();
    }
    let breach = |line, advice| Breach { path: source.path.clone(), line, rule: "layers", advice };
    let row = TABLE.iter().find(|(name, _)| *name == top);
    let mut found = Vec::new();
    for (line, path) in paths(source, &module) {
        let target = path[0].as_str();
        let Some((_, allowed)) = row else {
            let advice = format!(
                "src/{top} has no row in the import table: add one to tests/tidy/layers.rs and to README.md, \"Architecture\""
            );
            found.push(breach(line, advice));
            break;
        };
        let is_module = target == "main" || TOP.contains(&target) || TABLE.iter().any(|(name, _)| *name == target);
        if is_module && target != top && !allowed.contains(&target) {
            let all = [&[top], *allowed].concat().join(", ");
            let advice =
                format!("src/{top} may not import `crate::{target}`, only {all}: move the code, or pass the value in");
            found.push(breach(line, advice));
        }
        let neighbour = path.get(1).map_or("", String::as_str);
        if top == "agents"
            && target == "agents"
            && agents.contains(&neighbour)
            && module.get(1) != Some(&neighbour)
            && module.len() > 1
        {
            let advice = "agents never import each other: put what both need into msg, core or src/agents/mod.rs";
            found.push(breach(line, advice.to_owned()));
        }
    }
    found
}

/// Every path into the crate that the file names, from the crate's root, with its line.
pub(super) fn paths(source: &Source, module: &[&str]) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let code: Vec<&str> = source.lines.iter().map(|line| line.code.as_str()).collect();
    let code = code.join("\n");
    for (start, word) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        let before = code[..start].chars().next_back();
        // The second `super` of a chain, `$crate::` of a macro, `pub(in crate::x)` is a path as well.
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$' || code[..start].ends_with("super::")) {
            continue;
        }
        let line = code[..start].matches('\n').count() + 1;
        let mut rest = &code[start..];
        let mut base: Vec<String> = Vec::new();
        if word == "super::" {
            let indent = code[..start].rsplit('\n').next().is_some_and(|text| text.starts_with(' '));
            // An indented path stands in an inline module (`mod tests`) or in a function; the first
            // is taken for granted, so that `super` in a function may look like one step less.
            base = module.iter().map(|part| (*part).to_owned()).collect();
            if indent {
                base.push("inline".to_owned());
            }
            while let Some(after) = rest.strip_prefix("super::") {
                base.pop();
                rest = after;
            }
        } else {
            rest = &rest["crate::".len()..];
        }
        for tail in expand(rest) {
            let path = [base.clone(), tail].concat();
            if path.first().is_some_and(|first| !first.is_empty()) {
                found.push((line, path));
            }
        }
    }
    found.sort();
    found
}

/// The first two names of each path that a use tree holds: `{a::b, c}` is `[a, b]` and `[c]`.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        return split_group(group).into_iter().flat_map(expand).collect();
    }
    let name: String = tree.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(rest) = tree[name.len()..].strip_prefix("::") else { return vec![vec![name]] };
    let mut tails = expand(rest);
    for tail in &mut tails {
        tail.insert(0, name.clone());
    }
    tails
}

/// The members of a brace group whose opening brace is already gone.
fn split_group(group: &str) -> Vec<&str> {
    let (mut members, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                members.push(&group[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                members.push(&group[start..at]);
                start = at + 1;
            }
            _ => continue,
        }
    }
    members.retain(|member| !member.trim().is_empty());
    members
}
