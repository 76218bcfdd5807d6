//! One Rust source file, prepared for the rules: comments and texts blanked out, test code marked.
//!
//! A small scanner and not a parser: it knows comments (nested), strings (raw too), characters and
//! lifetimes, and follows braces; rustfmt keeps the rest predictable. It keeps line numbers.

/// A file's text as the rules see it.
pub(super) struct Source {
    /// Path in the checkout, with `/`.
    pub(super) path: String,
    /// The text as it is.
    pub(super) text: String,
    /// One entry per line.
    pub(super) lines: Vec<Line>,
}

/// One line, without what is inside comments and string literals.
pub(super) struct Line {
    /// The code; comments and the inside of literals are spaces.
    pub(super) code: String,
    /// The comment text of this line, if it has one.
    pub(super) comment: String,
    /// Part of a `#[cfg(test)]` or `#[test]` item, or of a file that is tests as a whole.
    pub(super) in_test: bool,
}

impl Source {
    /// Reads a file; `whole_file` says that it is compiled for tests only (see `test_modules`).
    pub(super) fn read(path: &str, text: &str, whole_file: bool) -> Source {
        let (code, comments) = split_comments(text);
        let whole_file = whole_file || path.starts_with("tests/");
        let marks = test_marks(&code);
        let lines = code
            .lines()
            .zip(comments.lines())
            .zip(marks)
            .map(|((code, comment), mark)| Line {
                code: code.to_owned(),
                comment: comment.trim().to_owned(),
                in_test: whole_file || mark,
            })
            .collect();
        Source { path: path.to_owned(), text: text.to_owned(), lines }
    }

    /// The path of the file's module: `src/core/spec/mod.rs` is `["core", "spec"]`.
    pub(super) fn module(&self) -> Vec<&str> {
        let inner = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let inner = inner.strip_suffix(".rs").unwrap_or(inner);
        inner.split('/').filter(|part| *part != "mod" && *part != "lib").collect()
    }
}

/// The files that a file declares behind `#[cfg(test)]`: the paths that `mod name;` may mean, without `.rs`.
pub(super) fn test_modules(path: &str, text: &str) -> Vec<String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let own = path.strip_suffix("/mod.rs").or(path.strip_suffix(".rs")).unwrap_or(path);
    let mut found = Vec::new();
    let mut lines = text.lines();
    while lines.any(|line| line.trim() == "#[cfg(test)]") {
        let mut renamed = None;
        for line in lines.by_ref() {
            if let Some(name) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
                renamed = Some(format!("{folder}/{}", name.trim_end_matches(".rs")));
            } else if let Some((_, name)) = line.strip_suffix(';').and_then(|line| line.split_once("mod ")) {
                found.push(renamed.unwrap_or(format!("{own}/{name}")));
                break;
            } else if !line.starts_with("#[") {
                break;
            }
        }
    }
    found
}

/// Where the scanner stands in the text.
enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text { hashes: Option<usize> },
}

/// Splits a text into its code and its comments, both of the text's own shape.
fn split_comments(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut comments) = (String::new(), String::new());
    let mut state = State::Code;
    let mut i = 0;
    while i < chars.len() {
        let starts = |what: &str| chars[i..].iter().zip(what.chars()).filter(|(a, b)| **a == *b).count() == what.len();
        let (take, next) = match &state {
            State::Code if starts("//") => (2, State::LineComment),
            State::Code if starts("/*") => (2, State::BlockComment { depth: 1 }),
            State::Code => match literal_at(&chars, i) {
                Some((opening, Some(state))) => (opening, state),
                Some((whole, None)) => (whole, State::Code),
                None => (1, State::Code),
            },
            State::LineComment if chars[i] == '\n' => (1, State::Code),
            State::LineComment => (1, State::LineComment),
            State::BlockComment { depth } if starts("/*") => (2, State::BlockComment { depth: depth + 1 }),
            State::BlockComment { depth: 1 } if starts("*/") => (2, State::Code),
            State::BlockComment { depth } if starts("*/") => (2, State::BlockComment { depth: depth - 1 }),
            State::BlockComment { depth } => (1, State::BlockComment { depth: *depth }),
            State::Text { hashes: None } if chars[i] == '\\' => (2, State::Text { hashes: None }),
            State::Text { hashes } if chars[i] == '"' && starts(&format!("\"{}", "#".repeat(hashes.unwrap_or(0)))) => {
                (1 + hashes.unwrap_or(0), State::Code)
            }
            State::Text { hashes } => (1, State::Text { hashes: *hashes }),
        };
        for c in &chars[i..(i + take).min(chars.len())] {
            let inside_comment = |s: &State| matches!(s, State::LineComment | State::BlockComment { .. });
            let is_code = matches!(state, State::Code) && matches!(next, State::Code) && take == 1;
            let is_comment = inside_comment(&state) || inside_comment(&next);
            code.push(if *c == '\n' || is_code || *c == '"' && !is_comment { *c } else { ' ' });
            comments.push(if *c == '\n' || is_comment { *c } else { ' ' });
        }
        i += take;
        state = next;
    }
    (code, comments)
}

/// A string or character literal that starts at `i`: how many characters its opening (or the whole
/// character literal) takes, and the state to go on in.
fn literal_at(chars: &[char], i: usize) -> Option<(usize, Option<State>)> {
    match chars[i] {
        '"' => Some((1, Some(State::Text { hashes: None }))),
        'r' if i == 0 || !(chars[i - 1].is_alphanumeric() && chars[i - 1] != 'b' || chars[i - 1] == '_') => {
            let hashes = chars[i + 1..].iter().take_while(|c| **c == '#').count();
            (chars.get(i + 1 + hashes) == Some(&'"'))
                .then_some((2 + hashes, Some(State::Text { hashes: Some(hashes) })))
        }
        '\'' if chars.get(i + 1) == Some(&'\\') => {
            let rest = chars[i + 3..].iter().position(|c| *c == '\'')?;
            Some((rest + 4, None))
        }
        '\'' if chars.get(i + 2) == Some(&'\'') => Some((3, None)),
        _ => None,
    }
}

/// For each line of `code`: is it part of an item behind `#[cfg(test)]` or `#[test]`?
fn test_marks(code: &str) -> Vec<bool> {
    let mut marks = Vec::new();
    // The depth of braces at which the marked item began, and whether its own brace was met.
    let mut item: Option<(usize, bool)> = None;
    let mut depth = 0;
    for line in code.lines() {
        let attribute = line.trim_start();
        let starts = attribute.starts_with("#[cfg(test)]")
            || attribute.starts_with("#[cfg(all(test")
            || attribute.starts_with("#[test]");
        if item.is_none() && starts {
            item = Some((depth, false));
        }
        marks.push(item.is_some());
        let body = if starts { attribute.split_once(']').map_or("", |(_, rest)| rest) } else { line };
        for c in body.chars() {
            match c {
                '{' => {
                    depth += 1;
                    if let Some((_, opened)) = &mut item {
                        *opened = true;
                    }
                }
                '}' => depth = depth.saturating_sub(1),
                _ => continue,
            }
        }
        let over = match item {
            Some((at, true)) => depth <= at,
            Some((_, false)) => body.trim_end().ends_with(';'),
            None => false,
        };
        if over {
            item = None;
        }
    }
    marks
}
