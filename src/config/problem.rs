//! What is wrong with a configuration, told so that one can mend it. Pure; runs on the main thread; prints nothing itself.

use std::fmt;

/// One thing that is wrong with the configuration or the command line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where: a field path (`evictionHard["memory.available"]`), a flag (`--port`) or a file.
    pub at: String,
    /// The value found there, shortened; empty where there is none to show.
    pub value: String,
    /// What would be right, or what to do.
    pub want: String,
    /// Who said it: a file or a flag, where that is known.
    pub source: Option<String>,
}

/// How much of a value is shown.
const SHOWN: usize = 80;

impl Problem {
    /// A problem with a value.
    pub fn new(at: impl Into<String>, value: impl fmt::Display, want: impl Into<String>) -> Self {
        let mut value = value.to_string();
        if let Some((end, _)) = value.char_indices().nth(SHOWN) {
            value.truncate(end);
            value.push('…');
        }
        Problem { at: at.into(), value, want: want.into(), source: None }
    }

    /// The same, from a known source.
    pub fn from_source(mut self, source: &str) -> Self {
        self.source = Some(source.to_owned());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.at)?;
        if !self.value.is_empty() {
            write!(f, " is {}", self.value)?;
        }
        write!(f, ": {}", self.want)?;
        match &self.source {
            Some(source) => write!(f, " (from {source})"),
            None => Ok(()),
        }
    }
}

/// The candidate that was probably meant by a misspelt word; none where nothing is near.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let simple = |text: &str| text.to_lowercase().replace(['-', '_', '.'], "");
    let wanted = simple(word);
    if wanted.len() > 64 {
        return None;
    }
    let allowed = 1 + wanted.len() / 5;
    candidates
        .into_iter()
        .map(|candidate| (distance(&wanted, &simple(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be added, dropped, changed or swapped with their neighbour to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let change = last[j] + usize::from(a[i] != b[j]);
            let mut best = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_a_sentence() {
        let problem = Problem::new("port", 0, "a port from 1 to 65535");
        assert_eq!(problem.to_string(), "port is 0: a port from 1 to 65535");
        let problem = Problem::new("kind", "", "missing, write KubeletConfiguration").from_source("/etc/k.yaml");
        assert_eq!(problem.to_string(), "kind: missing, write KubeletConfiguration (from /etc/k.yaml)");
        assert_eq!(Problem::new("x", "ä".repeat(100), "shorter").value.chars().count(), SHOWN + 1);
    }

    #[test]
    fn the_nearest_word_is_suggested() {
        let words = ["port", "podCIDR", "staticPodPath", "staticPodURL", "read-only-port"];
        for (word, expect) in [
            ("staticPodpath", Some("staticPodPath")),
            ("staticpodPth", Some("staticPodPath")),
            ("static-pod-url", Some("staticPodURL")),
            ("read_only_prt", Some("read-only-port")),
            ("prt", Some("port")),
            ("prot", Some("port")),
            ("completelyElse", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, words), expect, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1000), words), None);
    }
}
