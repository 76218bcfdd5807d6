//! Collects problems with the paths of their fields. Pure; one [`Report`] lives for one validation.

use std::fmt;

/// How many problems of one pod are told.
pub const MAX_PROBLEMS: usize = 50;
/// How much of a wrong value is shown, in characters.
const MAX_SHOWN: usize = 80;

/// One thing that is wrong with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field: `spec.containers[0].image`.
    pub path: String,
    /// What is wrong and what would be right; lower case, no final period.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// A rule about a text: `Err` says what it must be.
pub(super) type Rule = fn(&str) -> Result<(), &'static str>;

/// Problems found so far, and where the check is now.
#[derive(Debug, Default)]
pub(super) struct Report {
    path: String,
    problems: Vec<Problem>,
    /// Problems beyond the limit.
    more: usize,
}

impl Report {
    pub(super) fn into_problems(mut self) -> Vec<Problem> {
        if self.more > 0 {
            let message = format!("and {} more problems", self.more);
            self.problems.push(Problem { path: "metadata, spec".to_owned(), message });
        }
        self.problems
    }

    /// Checks within a field.
    pub(super) fn at(&mut self, field: &str, check: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(field);
        check(self);
        self.path.truncate(length);
    }

    /// Checks each element of the list that the check is at.
    pub(super) fn each<T>(&mut self, list: &[T], mut check: impl FnMut(&mut Self, &T)) {
        for (index, element) in list.iter().enumerate() {
            self.key(&index.to_string(), |report| check(report, element));
        }
    }

    /// Checks each element of a list in a field.
    pub(super) fn each_at<T>(&mut self, field: &str, list: Option<&[T]>, check: impl FnMut(&mut Self, &T)) {
        self.at(field, |report| report.each(list.unwrap_or_default(), check));
    }

    /// Checks within an element: `[key]`.
    pub(super) fn key(&mut self, key: &str, check: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push('[');
        self.path.extend(key.chars().take(MAX_SHOWN));
        self.path.push(']');
        check(self);
        self.path.truncate(length);
    }

    /// Something is wrong here.
    pub(super) fn fail(&mut self, message: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { path: self.path.clone(), message: message.into() });
        } else {
            self.more += 1;
        }
    }

    /// Something is wrong with a field of what the check is at.
    pub(super) fn fail_at(&mut self, field: &str, message: impl Into<String>) {
        self.at(field, |report| report.fail(message));
    }

    /// This value is wrong.
    pub(super) fn wrong(&mut self, value: &str, must: &str) {
        self.fail(format!("{:?} {must}", shorten(value)));
    }

    /// A text that must be there and keep a rule.
    pub(super) fn required(&mut self, field: &str, value: &str, rule: Rule) {
        self.at(field, |report| match value {
            "" => report.fail("must be set"),
            _ => report.keeps(value, rule),
        });
    }

    /// A text that keeps a rule if it is there.
    pub(super) fn optional(&mut self, field: &str, value: Option<&str>, rule: Rule) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.at(field, |report| report.keeps(value, rule));
        }
    }

    /// This text keeps a rule.
    pub(super) fn keeps(&mut self, value: &str, rule: Rule) {
        if let Err(must) = rule(value) {
            self.wrong(value, must);
        }
    }

    /// A word out of a list, or none.
    pub(super) fn one_of(&mut self, field: &str, value: Option<&str>, words: &[&str]) {
        if let Some(value) = value
            && !words.contains(&value)
        {
            let known: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
            self.at(field, |report| report.wrong(value, &format!("is not known: use {}", list(&known))));
        }
    }

    /// Access bits of a file, or none.
    pub(super) fn mode(&mut self, field: &str, value: Option<i32>) {
        if let Some(mode) = value
            && !(0..=0o777).contains(&mode)
        {
            self.fail_at(field, format!("{mode} must be from 0 to 0777 (511 in JSON)"));
        }
    }

    /// A number within bounds, or none.
    pub(super) fn within(&mut self, field: &str, value: Option<i64>, low: i64, high: i64) {
        if let Some(value) = value
            && !(low..=high).contains(&value)
        {
            let bounds = match high {
                i64::MAX => format!("at least {low}"),
                _ => format!("from {low} to {high}"),
            };
            self.fail_at(field, format!("{value} must be {bounds}"));
        }
    }
}

/// `a, b or c`.
pub(super) fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn shorten(value: &str) -> String {
    match value.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}
