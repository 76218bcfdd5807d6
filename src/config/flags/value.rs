//! The values of flags: from the text on the command line to JSON values, as pflag and its Kubernetes relatives read them. Pure;
//! runs on the main thread; knows no flag by name.

use crate::api::quantity::Amount as QuantityAmount;
use crate::config::GoDuration;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The kind of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// true or false; the flag alone is true.
    Bool,
    /// A whole number.
    Int32,
    /// A large whole number.
    Int64,
    /// A duration.
    Duration,
    /// Any text.
    Text,
    /// An IP address.
    Ip,
    /// Nothing, or `external`.
    CloudProvider,
    /// One IP address, or two of different families.
    NodeIps,
    /// Words with commas between; repeated flags add.
    List,
    /// name=value with commas between; repeated flags add.
    Pairs,
    /// One name=value; repeated flags add.
    OnePair,
    /// signal<threshold with commas between; repeated flags add.
    Thresholds,
    /// Gate=true or Gate=false with commas between; repeated flags add.
    Gates,
    /// name:value with commas between; repeated names keep all values.
    Headers,
    /// key=value:effect with commas between.
    Taints,
    /// node:type=amount,type=amount with semicolons between.
    ReservedMemory,
    /// An amount such as 10Mi.
    Amount,
    /// klog's -v.
    Verbosity,
    /// pattern=N with commas between.
    VModule,
}

impl Kind {
    /// How the value is called in the help; empty where a flag is used without one.
    pub fn placeholder(self) -> &'static str {
        match self {
            Kind::Bool => "",
            Kind::Int32 | Kind::Int64 | Kind::Verbosity => "N",
            Kind::Duration => "DURATION",
            Kind::Text | Kind::CloudProvider => "TEXT",
            Kind::Ip | Kind::NodeIps => "IP",
            Kind::List => "A,B",
            Kind::Pairs => "NAME=VALUE,...",
            Kind::OnePair => "NAME=VALUE",
            Kind::Thresholds => "SIGNAL<AMOUNT,...",
            Kind::Gates => "GATE=BOOL,...",
            Kind::Headers => "NAME:VALUE,...",
            Kind::Taints => "KEY=VALUE:EFFECT,...",
            Kind::ReservedMemory => "NODE:TYPE=AMOUNT,...",
            Kind::Amount => "AMOUNT",
            Kind::VModule => "PATTERN=N,...",
        }
    }

    /// Reads `text`; `earlier` is what an earlier use of the same flag gave, for kinds that add up. The error says what would be
    /// right.
    pub fn read(self, text: &str, earlier: Option<Value>) -> Result<Value, String> {
        let earlier_map = || match &earlier {
            Some(Value::Object(map)) => map.clone(),
            _ => Map::new(),
        };
        let earlier_list = || match &earlier {
            Some(Value::Array(list)) => list.clone(),
            _ => Vec::new(),
        };
        let add = |pairs: BTreeMap<String, String>| {
            let mut map = earlier_map();
            map.extend(pairs.into_iter().map(|(key, value)| (key, Value::String(value))));
            Value::Object(map)
        };
        match self {
            Kind::Bool => boolean(text).map(Value::Bool).ok_or_else(|| "must be true or false".to_owned()),
            Kind::Int32 => integer(text, i64::from(i32::MIN), i64::from(i32::MAX)),
            Kind::Int64 => integer(text, i64::MIN, i64::MAX),
            Kind::Verbosity => integer(text, 0, i64::from(i32::MAX)),
            Kind::Duration => GoDuration::parse(text)
                .map(|duration| duration.to_string().into())
                .ok_or_else(|| "must be a duration with units such as 10s, 1m30s or 4h".to_owned()),
            Kind::Text => Ok(text.into()),
            Kind::Ip => match text.parse::<IpAddr>() {
                Ok(_) => Ok(text.into()),
                Err(_) => Err("must be an IP address such as 127.0.0.1 or ::1".to_owned()),
            },
            Kind::CloudProvider => match text {
                "" | "external" => Ok(text.into()),
                _ => Err("must be external, or empty: built-in cloud providers are gone".to_owned()),
            },
            Kind::NodeIps => node_ips(text),
            Kind::List => {
                let mut list = earlier_list();
                list.extend(words(text)?.into_iter().map(Value::String));
                Ok(Value::Array(list))
            }
            Kind::Pairs => pairs(text, '=').map(add),
            Kind::OnePair => match text.split_once('=') {
                _ if text.is_empty() => Ok(add(BTreeMap::new())),
                Some((name, value)) => Ok(add(BTreeMap::from([(name.trim().to_owned(), value.trim().to_owned())]))),
                None => Err("must be name=value".to_owned()),
            },
            Kind::Thresholds => pairs(text, '<').map(add),
            Kind::Gates => gates(text, earlier_map()),
            Kind::Headers => headers(text, earlier_map()),
            Kind::Taints => taints(text, earlier_list()),
            Kind::ReservedMemory => reserved_memory(text, earlier_list()),
            Kind::Amount => match QuantityAmount::parse(text) {
                Ok(_) => Ok(text.into()),
                Err(_) => Err("must be an amount such as 512, 1K or 2Ki".to_owned()),
            },
            Kind::VModule => vmodule(text),
        }
    }
}

/// Go's idea of a truth value.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

fn integer(text: &str, min: i64, max: i64) -> Result<Value, String> {
    match text.parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number.into()),
        _ => Err(format!("must be a whole number from {min} to {max}")),
    }
}

fn node_ips(text: &str) -> Result<Value, String> {
    let want = "must be an IP address, or an IPv4 and an IPv6 address with a comma between";
    if text.is_empty() {
        return Ok(text.into());
    }
    let addresses: Result<Vec<IpAddr>, _> = text.split(',').map(|address| address.trim().parse()).collect();
    match addresses.as_deref() {
        Ok([_]) => Ok(text.into()),
        Ok([a, b]) if a.is_unspecified() || b.is_unspecified() => {
            Err("must name real addresses where it names two, not 0.0.0.0 or ::".to_owned())
        }
        Ok([a, b]) if a.is_ipv4() != b.is_ipv4() => Ok(text.into()),
        _ => Err(want.to_owned()),
    }
}

/// Splits at commas; a word in double quotes may hold commas, and a quote there is doubled.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(quoted) = rest.strip_prefix('"') else {
            let (word, after) = rest.split_once(',').unwrap_or((rest, ""));
            words.push(word.to_owned());
            rest = after;
            continue;
        };
        let mut word = String::new();
        let mut letters = quoted.char_indices().peekable();
        let end = loop {
            match letters.next() {
                Some((_, '"')) if letters.next_if(|(_, next)| *next == '"').is_some() => word.push('"'),
                Some((at, '"')) => break at,
                Some((_, letter)) => word.push(letter),
                None => return Err("has a double quote without an end".to_owned()),
            }
        };
        words.push(word);
        let after = &quoted[end + 1..];
        rest = match after.strip_prefix(',') {
            Some(more) => more,
            None if after.is_empty() => after,
            None => return Err("must have a comma after a word in double quotes".to_owned()),
        };
    }
    Ok(words)
}

/// name=value with commas between; the sign between name and value is `sign`.
pub(super) fn pairs(text: &str, sign: char) -> Result<BTreeMap<String, String>, String> {
    let pair = |part: &str| match part.split_once(sign) {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("must be name{sign}value with commas between, `{part}` is not")),
    };
    text.split(',').filter(|part| !part.is_empty()).map(pair).collect()
}

fn gates(text: &str, mut map: Map<String, Value>) -> Result<Value, String> {
    for (name, value) in pairs(text, '=')? {
        let on = boolean(&value).ok_or_else(|| format!("must say true or false for {name}, not `{value}`"))?;
        map.insert(name, on.into());
    }
    Ok(Value::Object(map))
}

fn headers(text: &str, mut map: Map<String, Value>) -> Result<Value, String> {
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, value) = part
            .split_once(':')
            .filter(|(name, _)| !name.trim().is_empty())
            .ok_or_else(|| format!("must be name:value with commas between, `{part}` is not"))?;
        match map.entry(name.trim()).or_insert_with(|| json!([])) {
            Value::Array(values) => values.push(value.trim().into()),
            _ => return Err("must be name:value".to_owned()),
        }
    }
    Ok(Value::Object(map))
}

fn taints(text: &str, mut list: Vec<Value>) -> Result<Value, String> {
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (named, effect) = part
            .rsplit_once(':')
            .ok_or_else(|| format!("must be key=value:effect with commas between, `{part}` is not"))?;
        let (key, value) = named.split_once('=').unwrap_or((named, ""));
        list.push(json!({"key": key, "value": value, "effect": effect}));
    }
    Ok(Value::Array(list))
}

fn reserved_memory(text: &str, mut list: Vec<Value>) -> Result<Value, String> {
    for part in text.split(';').filter(|part| !part.is_empty()) {
        let want = || format!("must be node:type=amount,..., `{part}` is not");
        let (node, limits) = part.split_once(':').ok_or_else(want)?;
        let node: i32 = node.trim().parse().map_err(|_| want())?;
        let limits = pairs(limits, '=').map_err(|_| want())?;
        if limits.is_empty() {
            return Err(want());
        }
        list.push(json!({"numaNode": node, "limits": limits}));
    }
    Ok(Value::Array(list))
}

fn vmodule(text: &str) -> Result<Value, String> {
    let mut list = Vec::new();
    for (pattern, verbosity) in
        text.split(',').filter(|part| !part.is_empty()).map(|part| part.split_once('=').unwrap_or((part, "")))
    {
        let verbosity: u32 = verbosity
            .parse()
            .ok()
            .filter(|verbosity| *verbosity <= i32::MAX as u32)
            .ok_or_else(|| format!("must be pattern=N with commas between, `{pattern}={verbosity}` is not"))?;
        list.push(json!({"filePattern": pattern, "verbosity": verbosity}));
    }
    Ok(Value::Array(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, texts: &[&str], expect: Result<Value, &str>) {
        let mut earlier = None;
        for (index, text) in texts.iter().enumerate() {
            let got = kind.read(text, earlier.take());
            if index + 1 < texts.len() {
                earlier = Some(got.unwrap_or_else(|error| panic!("{kind:?} {text:?}: {error}")));
                continue;
            }
            match (&got, &expect) {
                (Ok(value), Ok(wanted)) => assert_eq!(value, wanted, "{kind:?} {texts:?}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{kind:?} {texts:?}: {error}"),
                _ => panic!("{kind:?} {texts:?}: {got:?}, expected {expect:?}"),
            }
        }
    }

    #[test]
    fn single_values() {
        check(Kind::Bool, &["T"], Ok(json!(true)));
        check(Kind::Bool, &["yes"], Err("true or false"));
        check(Kind::Int32, &["-5"], Ok(json!(-5)));
        check(Kind::Int32, &["2147483648"], Err("from -2147483648 to 2147483647"));
        check(Kind::Int64, &["2147483648"], Ok(json!(2_147_483_648i64)));
        check(Kind::Int32, &["1.5"], Err("whole number"));
        check(Kind::Int32, &[""], Err("whole number"));
        check(Kind::Duration, &["90s"], Ok(json!("1m30s")));
        check(Kind::Duration, &["90"], Err("units"));
        check(Kind::Text, &[""], Ok(json!("")));
        check(Kind::Ip, &["::1"], Ok(json!("::1")));
        check(Kind::Ip, &["localhost"], Err("IP address"));
        check(Kind::CloudProvider, &["external"], Ok(json!("external")));
        check(Kind::CloudProvider, &["aws"], Err("built-in cloud providers are gone"));
        check(Kind::Amount, &["2Ki"], Ok(json!("2Ki")));
        check(Kind::Amount, &["2 Ki"], Err("amount"));
        check(Kind::Verbosity, &["-1"], Err("from 0"));
    }

    #[test]
    fn node_addresses() {
        check(Kind::NodeIps, &["10.0.0.1"], Ok(json!("10.0.0.1")));
        check(Kind::NodeIps, &["::"], Ok(json!("::")));
        check(Kind::NodeIps, &["10.0.0.1,fd00::1"], Ok(json!("10.0.0.1,fd00::1")));
        check(Kind::NodeIps, &["10.0.0.1,10.0.0.2"], Err("an IPv4 and an IPv6"));
        check(Kind::NodeIps, &["10.0.0.1,::"], Err("real addresses"));
        check(Kind::NodeIps, &["a"], Err("IP address"));
    }

    #[test]
    fn repeated_flags_add_up() {
        check(Kind::List, &["a,b", "c"], Ok(json!(["a", "b", "c"])));
        check(Kind::List, &[r#"a,"b,""c",d"#], Ok(json!(["a", "b,\"c", "d"])));
        check(Kind::List, &[r#""a"#], Err("without an end"));
        check(Kind::List, &[r#""a"b"#], Err("comma after"));
        check(Kind::List, &[""], Ok(json!([])));
        check(Kind::Pairs, &["a=1, b = 2", "a=3,c=x=y"], Ok(json!({"a": "3", "b": "2", "c": "x=y"})));
        check(Kind::Pairs, &[""], Ok(json!({})));
        check(Kind::Pairs, &["a"], Err("`a` is not"));
        check(Kind::Pairs, &["=a"], Err("`=a` is not"));
        check(Kind::OnePair, &["a=1,2", "b=3"], Ok(json!({"a": "1,2", "b": "3"})));
        check(Kind::OnePair, &["a"], Err("name=value"));
        check(
            Kind::Thresholds,
            &["memory.available<1Gi,nodefs.available<10%"],
            Ok(json!({"memory.available": "1Gi", "nodefs.available": "10%"})),
        );
        check(Kind::Gates, &["A=true", "B=0,A=false"], Ok(json!({"A": false, "B": false})));
        check(Kind::Gates, &["A=maybe"], Err("true or false for A"));
        check(Kind::Headers, &["a:b,c:d:e", "a: f"], Ok(json!({"a": ["b", "f"], "c": ["d:e"]})));
        check(Kind::Headers, &["a"], Err("`a` is not"));
    }

    #[test]
    fn structured_values() {
        check(
            Kind::Taints,
            &["a=b:NoSchedule,c:NoExecute"],
            Ok(
                json!([{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "value": "", "effect": "NoExecute"}]),
            ),
        );
        check(Kind::Taints, &["a=b"], Err("`a=b` is not"));
        check(
            Kind::ReservedMemory,
            &["0:memory=1Gi,hugepages-1M=2Gi;1:memory=2Gi", "2:memory=1"],
            Ok(json!([
                {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1M": "2Gi"}},
                {"numaNode": 1, "limits": {"memory": "2Gi"}},
                {"numaNode": 2, "limits": {"memory": "1"}},
            ])),
        );
        check(Kind::ReservedMemory, &["x:memory=1"], Err("node:type=amount"));
        check(Kind::ReservedMemory, &["0:"], Err("node:type=amount"));
        check(
            Kind::VModule,
            &["sync_loop=4,pod*=5"],
            Ok(json!([{"filePattern": "sync_loop", "verbosity": 4}, {"filePattern": "pod*", "verbosity": 5}])),
        );
        check(Kind::VModule, &["a"], Err("pattern=N"));
    }
}
