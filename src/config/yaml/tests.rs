//! Tables for the YAML reader, hostile texts included.

use super::*;
use serde_json::json;

fn check(text: &str, expect: Value) {
    let document =
        yaml_to_json(text.as_bytes(), &Limits::default()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(document.value, expect, "{text:?}");
}

fn check_error(text: impl AsRef<[u8]>, limits: &Limits, expect: &str) {
    match yaml_to_json(text.as_ref(), limits) {
        Ok(document) => panic!("read as {:?}", document.value),
        Err(error) => assert!(error.to_string().contains(expect), "{error} does not say {expect:?}"),
    }
}

#[test]
fn plain_scalars_mean_what_kubernetes_tools_take_them_for() {
    for (text, expect) in [
        ("yes", json!(true)),
        ("On", json!(true)),
        ("y", json!(true)),
        ("off", json!(false)),
        ("N", json!(false)),
        ("true", json!(true)),
        ("tRue", json!("tRue")),
        ("~", Value::Null),
        ("null", Value::Null),
        ("Null", Value::Null),
        ("12", json!(12)),
        ("+12", json!(12)),
        ("-12", json!(-12)),
        ("0644", json!(420)),
        ("-0644", json!(-420)),
        ("0o644", json!(420)),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("1_000", json!(1000)),
        ("0899", json!(899)),
        ("5.0", json!(5)),
        ("1e3", json!(1000)),
        ("0.5", json!(0.5)),
        (".5", json!(0.5)),
        ("1.25e-3", json!(0.00125)),
        ("18446744073709551615", json!(u64::MAX)),
        ("99999999999999999999", json!(1e20)),
        ("1m30s", json!("1m30s")),
        ("10.96.0.10", json!("10.96.0.10")),
        ("-", json!([null])),
        ("+", json!("+")),
        ("2001-01-01", json!("2001-01-01")),
        ("0x", json!("0x")),
        ("1__", json!(1)),
        ("12:30", json!("12:30")),
        ("-.", json!("-.")),
    ] {
        check(text, expect);
    }
}

#[test]
fn quoted_and_tagged_scalars_stay_text() {
    for text in
        ["'yes'", "\"yes\"", "!!str yes", "&anchor 'yes'", "&a !!str yes", "|-\n yes", ">-\n yes", "\"y\\x65s\""]
    {
        check(text, json!("yes"));
    }
    check("a: \"0644\"\nb: 0644\nc: '0644'", json!({"a": "0644", "b": 420, "c": "0644"}));
    check("ä: 'on'\nö: on\nü: [on,'on',\"on\", on]", json!({"ä": "on", "ö": true, "ü": [true, "on", "on", true]}));
    check("\u{feff}a: 'on'\nb: on", json!({"a": "on", "b": true}));
    check("a: 'on'\r\nb: on\r\n", json!({"a": "on", "b": true}));
    check("a: ''\nb: \"\"\nc:", json!({"a": "", "b": "", "c": null}));
    check("a: &x on\nb: *x\nc: &y 'on'\nd: *y", json!({"a": true, "b": true, "c": "on", "d": "on"}));
}

#[test]
fn keys_become_text() {
    check("80: a\ntrue: b\non: c\n\"off\": d\n1.5: e", json!({"80": "a", "true": "c", "off": "d", "1.5": "e"}));
    check_error("~: a", &Limits::default(), "a text as map key");
    check_error("[a]: b", &Limits::default(), "a text as map key");
}

#[test]
fn merge_keys_add_only_what_is_not_there() {
    check(
        "base: &b {a: 1, b: 2}\nx:\n  <<: *b\n  b: 3\nz:\n  <<: [*b, {c: 4, a: 9}]",
        json!({"base": {"a": 1, "b": 2}, "x": {"a": 1, "b": 3}, "z": {"a": 1, "b": 2, "c": 4}}),
    );
    check_error("<<: 1", &Limits::default(), "merge key");
    check_error("<<: [1]", &Limits::default(), "merge key");
    check("{\"<<\": 1}", json!({"<<": 1}));
}

#[test]
fn json_is_read_as_json() {
    check(" {\"a\": \"yes\", \"b\": [1, 2.0, null, \"\\u00e4\"]}", json!({"a": "yes", "b": [1, 2.0, null, "ä"]}));
    check("{a: yes}", json!({"a": true}));
    check_error("{\"a\": [1, 2", &Limits::default(), "EOF while parsing");
    check_error("{\"a\": 1} x", &Limits::default(), "trailing characters at line 1 column 10");
}

#[test]
fn empty_texts_are_null() {
    for text in ["", " \n", "# nothing\n", "---\n", "---\n---\n"] {
        check(text, Value::Null);
    }
}

#[test]
fn duplicates_are_named_by_path_and_the_last_one_counts() {
    for text in [
        "a: 1\nb: [{c: 1, c: 2}]\na: 3\n\"x.y\": {z: 1, z: 2}",
        r#"{"a": 1, "b": [{"c": 1, "c": 2}], "a": 3, "x.y": {"z": 1, "z": 2}}"#,
    ] {
        let document = yaml_to_json(text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(document.value, json!({"a": 3, "b": [{"c": 2}], "x.y": {"z": 2}}));
        assert_eq!(document.duplicates, ["b[0].c", "a", "[\"x.y\"].z"]);
    }
    let many = "a: 1\n".repeat(1000);
    assert_eq!(yaml_to_json(many.as_bytes(), &Limits::default()).unwrap().duplicates.len(), MAX_DUPLICATES);
}

#[test]
fn a_second_document_is_reported() {
    for (text, more) in [
        ("a: 1", false),
        ("---\na: 1\n...\n", false),
        ("a: 1\n---\n", false),
        ("a: 1\n---\n# nothing\n", false),
        ("a: 1\n---\nb: 2", true),
        ("a: 1\n---\n[broken", true),
        ("a: 1\n---\n---\nb: 2", false),
        ("---\n---\nb: 2", true),
    ] {
        let document = yaml_to_json(text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(document.more_documents, more, "{text:?}");
    }
}

#[test]
fn broken_texts_say_where() {
    for (text, expect) in [
        (&b"a: [1, 2"[..], "line 2 column 1"),
        (b"a: b: c", "line 1 column 5"),
        (b"a:\n\t- b", "line 2 column 1"),
        (b"a: *nowhere", "unknown anchor at line 1 column 4"),
        (b"a: \"\xc3", "line 1 is not UTF-8"),
        (b"a: 1\nb: \xff\xfe\n", "line 2 is not UTF-8 text (byte 8"),
        (b"\xff\xfea\0:\0 \x001\0", "line 1 is not UTF-8"),
        (b"a: \0", "control characters are not allowed at position 3"),
        (b"a: .nan", "not a number that JSON can hold"),
        (b"a: .inf", "not a number that JSON can hold"),
        (b"a: !secret b", "custom YAML tags"),
        (b"a: !!int x", "integer"),
    ] {
        check_error(text, &Limits::default(), expect);
    }
}

#[test]
fn hostile_texts_are_refused_cheaply() {
    let limits = Limits::default();
    check_error("a: 1\n".repeat(2 << 20), &limits, "10485760 bytes long, more than the 4194304 bytes");
    check_error("[".repeat(100_000), &limits, "");
    check_error(format!("{}{}", "[".repeat(65), "]".repeat(65)), &limits, "more than 64 deep");
    check_error(format!("{{\"a\": {}{}}}", "[".repeat(64), "]".repeat(64)), &limits, "more than 64 deep");
    check(&format!("{}1{}", "[".repeat(3), "]".repeat(3)), json!([[[1]]]));

    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let previous = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", previous.trim_end_matches(", ")));
    }
    check_error(&bomb, &limits, "");
    let small = Limits { max_nodes: 1000, ..limits };
    check_error(&bomb, &small, "more than 1000 values");

    let long = format!("a: &a {}\nb: [{}]", "x".repeat(1 << 20), "*a,".repeat(1000));
    check_error(long, &limits, "values once aliases are written out");
    check_error("a: &a [*a]", &limits, "");
    check_error("- \n".repeat(1_000_000), &limits, "more than 200000 values");
    check_error("- \n".repeat(300_000), &limits, "more than 200000 values");
}

#[test]
fn limits_are_met_exactly() {
    let limits = Limits { max_bytes: 9, max_depth: 2, max_nodes: 5 };
    assert!(yaml_to_json(b"a: [1, 2]", &limits).is_ok());
    check_error("a: [1, 22]", &limits, "10 bytes long");
    check_error("[[[]]]", &limits, "more than 2 deep");
    check_error("[1,2,3,4,5]", &Limits { max_bytes: 99, ..limits }, "more than 5 values");
}

proptest::proptest! {
    #[test]
    fn any_bytes_give_an_answer(text in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = yaml_to_json(&text, &Limits::default());
    }

    #[test]
    fn any_yamlish_text_gives_an_answer(text in r#"[-\[\]{}:,&*!|>'"%@ab0-9 \n.~?#<_]{0,80}"#) {
        let _ = yaml_to_json(text.as_bytes(), &Limits::default());
    }

    #[test]
    fn quoted_text_survives(text in r"[a-z0-9:,_.+-]{0,12}") {
        check(&format!("a: '{text}'\nb: [\"{text}\"]"), json!({"a": text, "b": [text]}));
    }
}
