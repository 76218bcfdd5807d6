//! The environment of a container: what its env and envFrom say, plus the services.
//!
//! Layer L1, pure. ConfigMaps, Secrets, services and files come in as [`EnvSources`]; this module
//! fetches none. Variables keep the order in which they are declared, so that two runs of the same
//! spec ask the runtime for the same thing.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::pod;
use crate::api::v1::{Container, EnvVarSource, Pod};
use crate::util::order::Gather;

use super::expand::expand;
use super::{NodeFacts, SpecError, downward};

/// What is known of an object that a variable draws on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// It is there.
    Found(T),
    /// It does not exist.
    Missing,
    /// Nobody knows, for this reason.
    Unavailable(String),
}

/// Where values from outside the pod come from. A name that is absent was not looked for, because the
/// node has no API server. Its Debug form shows no values.
#[derive(Clone, Default)]
pub struct EnvSources {
    /// Variables of the services that the pod shall see.
    pub services: Vec<(String, String)>,
    /// ConfigMaps of the pod's namespace by name.
    pub config_maps: BTreeMap<String, Lookup<BTreeMap<String, String>>>,
    /// Secrets of the pod's namespace by name.
    pub secrets: BTreeMap<String, Lookup<BTreeMap<String, Vec<u8>>>>,
    /// Content of the files of [`files_wanted`] that could be read, by volume and path.
    pub files: BTreeMap<(String, String), Lookup<String>>,
}

impl std::fmt::Debug for EnvSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnvSources")
            .field("config_maps", &self.config_maps.keys())
            .field("secrets", &self.secrets.keys())
            .finish_non_exhaustive()
    }
}

/// Variables in the order of their first setting; a later setting takes the place of an earlier one.
#[derive(Default)]
struct Variables {
    list: Vec<(String, String)>,
    places: BTreeMap<String, usize>,
}

impl Variables {
    fn get(&self, name: &str) -> Option<&str> {
        self.places.get(name).and_then(|place| self.list.get(*place)).map(|(_, value)| value.as_str())
    }

    fn set(&mut self, name: String, value: String) -> Result<(), SpecError> {
        if value.contains('\0') {
            return Err(SpecError::EnvValue { name, why: "contains a NUL byte" });
        }
        match self.places.get(&name).and_then(|place| self.list.get_mut(*place)) {
            Some(entry) => entry.1 = value,
            None => {
                self.places.insert(name.clone(), self.list.len());
                self.list.push((name, value));
            }
        }
        Ok(())
    }
}

/// ConfigMaps and Secrets, by name, that the container's variables draw on.
pub fn objects_wanted(container: &Container) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let (mut config_maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    for source in container.env_from.iter().flatten() {
        config_maps.extend(source.config_map_ref.as_ref().map(|r| r.name.as_str()));
        secrets.extend(source.secret_ref.as_ref().map(|r| r.name.as_str()));
    }
    for source in container.env.iter().flatten().filter_map(|v| v.value_from.as_ref()) {
        config_maps.extend(source.config_map_key_ref.as_ref().map(|r| r.name.as_str()));
        secrets.extend(source.secret_key_ref.as_ref().map(|r| r.name.as_str()));
    }
    (config_maps, secrets)
}

/// Files of volumes that the container's variables draw on: volume and path in it.
pub fn files_wanted(container: &Container) -> Vec<(String, String)> {
    let sources = container.env.iter().flatten().filter_map(|v| v.value_from.as_ref()?.file_key_ref.as_ref());
    sources.map(|f| (f.volume_name.clone(), f.path.clone())).collect()
}

/// The container's variables in order: envFrom, env, then the services that neither has set. An env
/// value may refer to variables before it and to services.
pub fn environment(
    pod: &Pod,
    container: &Container,
    facts: &NodeFacts,
    pod_ips: &[String],
    sources: &EnvSources,
) -> Result<Vec<(String, String)>, SpecError> {
    let mut variables = Variables::default();
    from_whole_objects(pod, container, sources, &mut variables)?;
    let services: BTreeMap<&str, &str> = sources.services.iter().map(|(k, v)| (k.as_str(), v.as_str())).gather();
    for declared in container.env.iter().flatten() {
        let literal = declared.value.as_deref().unwrap_or_default();
        let value = match &declared.value_from {
            Some(source) if literal.is_empty() => {
                match from_source(pod, container, facts, pod_ips, sources, &declared.name, source)? {
                    Some(value) => value,
                    None => continue,
                }
            }
            _ => expand(literal, |name| variables.get(name).or_else(|| services.get(name).copied())),
        };
        variables.set(declared.name.clone(), value)?;
    }
    for (name, value) in &sources.services {
        if variables.get(name).is_none() {
            variables.set(name.clone(), value.clone())?;
        }
    }
    Ok(variables.list)
}

fn from_whole_objects(
    pod: &Pod,
    container: &Container,
    sources: &EnvSources,
    variables: &mut Variables,
) -> Result<(), SpecError> {
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            let optional = reference.optional.unwrap_or(false);
            if let Some(data) = look_up(pod, &sources.config_maps, "configMap", &reference.name, optional)? {
                for (key, value) in data {
                    variables.set(format!("{prefix}{key}"), value.clone())?;
                }
            }
        } else if let Some(reference) = &source.secret_ref {
            let optional = reference.optional.unwrap_or(false);
            if let Some(data) = look_up(pod, &sources.secrets, "secret", &reference.name, optional)? {
                for (key, value) in data {
                    let name = format!("{prefix}{key}");
                    let value = text(&name, value)?;
                    variables.set(name, value)?;
                }
            }
        }
    }
    Ok(())
}

/// `None`: optional and not there, so that the variable is not set.
fn from_source(
    pod: &Pod,
    container: &Container,
    facts: &NodeFacts,
    pod_ips: &[String],
    sources: &EnvSources,
    name: &str,
    source: &EnvVarSource,
) -> Result<Option<String>, SpecError> {
    if let Some(reference) = &source.field_ref {
        downward::field_value(pod, reference, facts, pod_ips).map(Some)
    } else if let Some(reference) = &source.resource_field_ref {
        downward::env_resource_value(pod, container, reference, facts).map(Some)
    } else if let Some(reference) = &source.config_map_key_ref {
        let optional = reference.optional.unwrap_or(false);
        let found = look_up(pod, &sources.config_maps, "configMap", &reference.name, optional)?;
        match found.map(|data| data.get(&reference.key)) {
            Some(Some(value)) => Ok(Some(value.clone())),
            Some(None) if !optional => Err(missing_key(pod, "ConfigMap", &reference.name, &reference.key)),
            _ => Ok(None),
        }
    } else if let Some(reference) = &source.secret_key_ref {
        let optional = reference.optional.unwrap_or(false);
        let found = look_up(pod, &sources.secrets, "secret", &reference.name, optional)?;
        match found.map(|data| data.get(&reference.key)) {
            Some(Some(value)) => text(name, value).map(Some),
            Some(None) if !optional => Err(missing_key(pod, "Secret", &reference.name, &reference.key)),
            _ => Ok(None),
        }
    } else if let Some(reference) = &source.file_key_ref {
        let optional = reference.optional.unwrap_or(false);
        let failed = |why: String| SpecError::EnvFile {
            name: name.to_owned(),
            volume: reference.volume_name.clone(),
            path: reference.path.clone(),
            why,
        };
        let place = (reference.volume_name.clone(), reference.path.clone());
        let value = match sources.files.get(&place) {
            Some(Lookup::Found(content)) => file_value(content, &reference.key).map_err(&failed)?,
            Some(Lookup::Missing) if optional => None,
            Some(Lookup::Missing) => return Err(failed("it does not exist".to_owned())),
            Some(Lookup::Unavailable(why)) => return Err(failed(why.clone())),
            None => return Err(failed("it was not read".to_owned())),
        };
        match value {
            Some(value) => Ok(Some(value)),
            None if optional => Ok(None),
            None => Err(failed(format!("it has no key {:?}", reference.key))),
        }
    } else {
        Ok(Some(String::new()))
    }
}

fn look_up<'a, T>(
    pod: &Pod,
    known: &'a BTreeMap<String, Lookup<T>>,
    kind: &'static str,
    name: &str,
    optional: bool,
) -> Result<Option<&'a T>, SpecError> {
    match known.get(name) {
        Some(Lookup::Found(data)) => Ok(Some(data)),
        Some(Lookup::Missing) if optional => Ok(None),
        Some(Lookup::Missing) => Err(SpecError::EnvMissing { kind: kind.to_ascii_lowercase(), name: name.to_owned() }),
        Some(Lookup::Unavailable(why)) => Err(SpecError::EnvUnavailable(why.clone())),
        None => Err(SpecError::EnvNoServer { kind, namespace: pod::namespace(pod).to_owned(), name: name.to_owned() }),
    }
}

fn missing_key(pod: &Pod, kind: &'static str, name: &str, key: &str) -> SpecError {
    let namespace = pod::namespace(pod).to_owned();
    SpecError::EnvKey { key: key.to_owned(), kind, namespace, name: name.to_owned() }
}

fn text(name: &str, bytes: &[u8]) -> Result<String, SpecError> {
    let text = std::str::from_utf8(bytes).map(str::to_owned);
    text.map_err(|_| SpecError::EnvValue { name: name.to_owned(), why: "is not UTF-8 text" })
}

/// The value of `key` in an environment file: lines `KEY='value'`, where a value may span lines and is
/// taken literally, and comments after `#`. `Ok(None)`: the key is not there or is empty. Lines after
/// the key are not looked at.
pub fn file_value(content: &str, key: &str) -> Result<Option<String>, String> {
    let mut lines = content.lines().enumerate().map(|(i, line)| (i + 1, line));
    let blank = [' ', '\t'];
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start_matches(blank);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let problem = |what: &str| Err(format!("line {number}: {what}; write KEY='value'"));
        let Some((name, value)) = line.split_once('=') else {
            return problem("there is no '='");
        };
        if name.is_empty() {
            return problem("there is no name before '='");
        }
        if name.ends_with(blank) {
            return problem("there is white space before '='");
        }
        // As in a shell, white space after '=' ends an empty value.
        if value.starts_with(blank) {
            if name == key {
                return Ok(None);
            }
            continue;
        }
        let Some(mut rest) = value.strip_prefix('\'') else {
            return problem("the value is not in single quotes");
        };
        let mut collected = String::new();
        let after = loop {
            if let Some((end, after)) = rest.split_once('\'') {
                collected.push_str(end);
                break after.trim_start_matches(blank);
            }
            collected.push_str(rest);
            collected.push('\n');
            match lines.next() {
                Some((_, next)) => rest = next,
                None => return problem("the quote is never closed"),
            }
        };
        if !after.is_empty() && !after.starts_with('#') {
            return problem("there is text after the closing quote");
        }
        if name == key {
            return Ok(Some(collected).filter(|v| !v.is_empty()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn sources() -> EnvSources {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let secret = [("token".to_owned(), b"s3".to_vec()), ("blob".to_owned(), vec![0xff])];
        EnvSources {
            services: vec![("DB_HOST".into(), "10.0.0.1".into()), ("A".into(), "service".into())],
            config_maps: [
                ("cm".to_owned(), Lookup::Found(map(&[("a", "1"), ("b", "2")]))),
                ("gone".to_owned(), Lookup::Missing),
                ("far".to_owned(), Lookup::Unavailable("the API server does not answer".into())),
            ]
            .into(),
            secrets: [("s".to_owned(), Lookup::Found(secret.into())), ("gone".to_owned(), Lookup::Missing)].into(),
            files: [
                (("v".to_owned(), "env".to_owned()), Lookup::Found("# x\nK='one'\nEMPTY=''\n".to_owned())),
                (("v".to_owned(), "gone".to_owned()), Lookup::Missing),
                (("v".to_owned(), "bad".to_owned()), Lookup::Found("K=one\n".to_owned())),
            ]
            .into(),
        }
    }

    fn run(env: Value, env_from: Value) -> Result<Vec<(String, String)>, SpecError> {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "env": env, "envFrom": env_from})).expect("a container");
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns"}})).expect("a pod");
        environment(&pod, &container, &NodeFacts::default(), &["10.0.0.9".to_owned()], &sources())
    }

    /// `expect`: variables as `NAME=value`, services left out; or the error's text.
    fn check(env: Value, env_from: Value, expect: Result<&[&str], &str>) {
        let got = run(env.clone(), env_from.clone()).map_err(|e| e.to_string());
        let got = got.map(|all| {
            let own = all.iter().filter(|(name, value)| name != "DB_HOST" && value != "service");
            own.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        });
        let expect = expect.map(|all| all.iter().map(|v| (*v).to_owned()).collect()).map_err(str::to_owned);
        assert_eq!(got, expect, "{env} {env_from}");
    }

    #[test]
    fn variables_refer_to_earlier_ones_and_to_services() {
        check(
            json!([
                {"name": "ONE", "value": "1"}, {"name": "TWO", "value": "$(ONE)2-$(THREE)-$(DB_HOST)"},
                {"name": "THREE", "value": "$$(ONE)"}, {"name": "ONE", "value": "again $(ONE)"}, {"name": "NONE"},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            ]),
            json!([]),
            Ok(&["ONE=again 1", "TWO=12-$(THREE)-10.0.0.1", "THREE=$(ONE)", "NONE=", "IP=10.0.0.9"]),
        );
        // The container's own setting hides the service of the same name, also for those after it.
        check(
            json!([{"name": "X", "value": "$(A)."}, {"name": "A", "value": "own"}, {"name": "Y", "value": "$(A)"}]),
            json!([]),
            Ok(&["X=service.", "A=own", "Y=own"]),
        );
    }

    #[test]
    fn whole_objects_come_first_and_are_overridden() {
        check(
            json!([{"name": "P_a", "value": "x$(P_b)"}]),
            json!([{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"configMapRef": {"name": "gone", "optional": true}}]),
            Ok(&["P_a=x2", "P_b=2"]),
        );
        check(json!([]), json!([{"configMapRef": {"name": "gone"}}]), Err("configmap \"gone\" not found"));
        check(
            json!([]),
            json!([{"secretRef": {"name": "nobody-looked", "optional": true}}]),
            Err("couldn't get secret ns/nobody-looked, no kubeClient defined: this node has no API server"),
        );
        check(
            json!([]),
            json!([{"secretRef": {"name": "s"}}]),
            Err("environment variable blob: its value is not UTF-8 text"),
        );
    }

    #[test]
    fn keys_of_objects_and_files() {
        let key = |kind: &str, name: &str, key: &str, optional: bool| json!([{"name": "V", "valueFrom": {kind: {"name": name, "key": key, "optional": optional}}}]);
        let file = |path: &str, key: &str, optional: bool| {
            json!([{"name": "V", "valueFrom": {"fileKeyRef":
                {"volumeName": "v", "path": path, "key": key, "optional": optional}}}])
        };
        let none: Result<&[&str], &str> = Ok(&[]);
        for (env, expect) in [
            (key("configMapKeyRef", "cm", "a", false), Ok(&["V=1"][..])),
            (key("configMapKeyRef", "cm", "zz", false), Err("couldn't find key zz in ConfigMap ns/cm")),
            (key("configMapKeyRef", "cm", "zz", true), none),
            (key("configMapKeyRef", "gone", "a", true), none),
            (key("configMapKeyRef", "far", "a", true), Err("the API server does not answer")),
            (key("secretKeyRef", "s", "token", false), Ok(&["V=s3"][..])),
            (key("secretKeyRef", "s", "zz", false), Err("couldn't find key zz in Secret ns/s")),
            (key("secretKeyRef", "gone", "zz", true), none),
            (file("env", "K", false), Ok(&["V=one"][..])),
            (file("env", "EMPTY", true), none),
            (file("env", "ZZ", true), none),
            (
                file("env", "ZZ", false),
                Err("environment variable V: file \"env\" of volume \"v\": it has no key \"ZZ\""),
            ),
            (file("gone", "K", true), none),
            (file("gone", "K", false), Err("environment variable V: file \"gone\" of volume \"v\": it does not exist")),
            (
                file("bad", "K", true),
                Err(
                    "environment variable V: file \"bad\" of volume \"v\": line 1: the value is not in single quotes; write KEY='value'",
                ),
            ),
            (
                file("unread", "K", true),
                Err("environment variable V: file \"unread\" of volume \"v\": it was not read"),
            ),
        ] {
            check(env, json!([]), expect);
        }
    }

    #[test]
    fn environment_files() {
        for (content, expect) in [
            ("K='v'", Ok(Some("v"))),
            ("  K='v' # note", Ok(Some("v"))),
            ("\n# K='no'\nJ='x'\nK='a b$(c)\\n\"'\n", Ok(Some("a b$(c)\\n\""))),
            ("K='one\ntwo'\n", Ok(Some("one\ntwo"))),
            ("K='v'\nnonsense", Ok(Some("v"))),
            ("K='v'\r\n", Ok(Some("v"))),
            ("K= 'v'", Ok(None)),
            ("J= x\nK='v'", Ok(Some("v"))),
            ("K=''", Ok(None)),
            ("", Ok(None)),
            ("nonsense\nK='v'", Err(1)),
            ("='v'", Err(1)),
            ("\nK ='v'", Err(2)),
            ("K=v", Err(1)),
            ("K='v'w", Err(1)),
            ("K='v", Err(1)),
        ] {
            let got = file_value(content, "K");
            match (expect, &got) {
                (Ok(value), Ok(found)) => assert_eq!(found.as_deref(), value, "{content:?}"),
                (Err(line), Err(problem)) => {
                    assert!(problem.starts_with(&format!("line {line}: ")), "{content:?} {problem}")
                }
                _ => panic!("{content:?}: {got:?}"),
            }
        }
    }

    #[test]
    fn files_wanted_are_named_once_per_variable() {
        let container: Container = serde_json::from_value(json!({"name": "c", "env": [
            {"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}, {"name": "B", "value": "x"},
        ]}))
        .expect("a container");
        assert_eq!(files_wanted(&container), [("v".to_owned(), "p".to_owned())]);
        let container: Container = serde_json::from_value(json!({"name": "c",
            "envFrom": [{"configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}}],
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "t", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}, {"name": "C"}],
        }))
        .expect("a container");
        assert_eq!(objects_wanted(&container), (["m"].into(), ["s", "t"].into()));
    }

    #[test]
    fn values_do_not_show_in_debug() {
        assert_eq!(
            format!("{:?}", sources()),
            "EnvSources { config_maps: [\"cm\", \"far\", \"gone\"], secrets: [\"gone\", \"s\"], .. }"
        );
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(content in "[K='# \\n\\t]{0,60}") {
            let _ = file_value(&content, "K");
        }

        #[test]
        fn a_value_without_quotes_comes_back(value in "[^'\\r]{1,40}") {
            prop_assert_eq!(file_value(&format!("A='x'\nK='{value}'\n"), "K"), Ok(Some(value)));
        }
    }
}
