//! `$(NAME)` references in command, args, env values and subPathExpr.
//!
//! Layer L1, pure. `$$` stands for one dollar sign, a reference to an unknown name stays as written,
//! and so does everything that only looks like a reference. What is put in is not looked at again.

/// Replaces the references in `text`. `value_of` tells the value of a name, `None` leaves the
/// reference as it is.
pub fn expand<V: AsRef<str>>(text: &str, mut value_of: impl FnMut(&str) -> Option<V>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let (before, at) = rest.split_at(dollar);
        out.push_str(before);
        let after = &at[1..];
        rest = if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            escaped
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match value_of(name) {
                Some(value) => out.push_str(value.as_ref()),
                None => out.push_str(&at[..name.len() + 3]),
            }
            tail
        } else {
            out.push('$');
            after
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(name: &str) -> Option<&'static str> {
        match name {
            "A" => Some("one"),
            "B" => Some("$(A)"),
            "EMPTY" => Some(""),
            "sp ace" => Some("odd"),
            _ => None,
        }
    }

    #[test]
    fn references_escapes_and_lookalikes() {
        for (text, expect) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "one"),
            ("x$(A)y$(A)z", "xoneyonez"),
            ("$(B)", "$(A)"),
            ("[$(EMPTY)]", "[]"),
            ("$(sp ace)", "odd"),
            ("$(NOPE)", "$(NOPE)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$one"),
            ("$$$$(A)", "$$(A)"),
            ("$", "$"),
            ("a$", "a$"),
            ("$$", "$"),
            ("$(A", "$(A"),
            ("$(", "$("),
            ("$()", "$()"),
            ("$A", "$A"),
            ("$(($(A))", "$(($(A))"),
            ("$(A)$(", "one$("),
            ("$é$(A)", "$éone"),
            ("a-$(A)-$(NOPE)-$$(X)", "a-one-$(NOPE)-$(X)"),
        ] {
            assert_eq!(expand(text, value), expect, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_leaves_text_without_dollars_alone(text in "\\PC*") {
            let once = expand(&text, value);
            if !text.contains('$') {
                prop_assert_eq!(once, text);
            }
        }

        #[test]
        fn doubled_dollars_protect_any_text(text in "[$()A a-z]{0,40}") {
            prop_assert_eq!(expand(&text.replace('$', "$$"), value), text);
        }

        #[test]
        fn unknown_names_change_nothing_but_escapes(text in "[()A-Z$]{0,40}") {
            let none = |_: &str| None::<&str>;
            if !text.contains("$$") {
                prop_assert_eq!(expand(&text, none), text);
            }
        }
    }
}
