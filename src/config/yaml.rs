//! YAML or JSON text to a JSON value, within limits. Runs on any thread; owns nothing; does no I/O and never panics on bad text.
//!
//! Everything that people write for a node (the configuration, manifests) comes in through [`yaml_to_json`], so that
//! one place knows what YAML means here: the dialect of the Kubernetes tools (YAML 1.1 words such as `yes` and octal
//! `0644`, merge keys), one document per text, and what a hostile text may cost.

use serde::de::{self, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;
use thiserror::Error;

mod scalar;
#[cfg(test)]
mod tests;

/// What one text may cost its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest text that is read, in bytes.
    pub max_bytes: usize,
    /// How deep lists and maps may be nested.
    pub max_depth: usize,
    /// How many values (lists, maps, keys, scalars) there may be once all aliases are written out.
    pub max_nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_bytes: 4 << 20, max_depth: 64, max_nodes: 200_000 }
    }
}

/// The first document of a text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// Its value; null for a text without content.
    pub value: Value,
    /// The paths of keys that are written twice in one map (`spec.containers[0].image`), in the order found, at most
    /// [`MAX_DUPLICATES`]. The last one written is the one in `value`.
    pub duplicates: Vec<String>,
    /// Whether another document with content follows after `---`. It is not in `value`; tell the user.
    pub more_documents: bool,
}

/// How many duplicate keys are remembered for one text.
pub const MAX_DUPLICATES: usize = 64;

/// Why a text has no JSON value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum YamlError {
    /// The text is longer than the limit.
    #[error("the text is {size} bytes long, more than the {limit} bytes that are read")]
    TooLarge {
        /// Its length in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The text is not UTF-8.
    #[error("line {line} is not UTF-8 text (byte {offset} of the text)")]
    NotUtf8 {
        /// The line, counted from one.
        line: usize,
        /// The offset of the first wrong byte.
        offset: usize,
    },
    /// Lists and maps are nested too deep.
    #[error("lists and maps are nested more than {limit} deep")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// There are too many values, as a rule because aliases multiply.
    #[error("more than {limit} values once aliases are written out")]
    TooManyNodes {
        /// The limit.
        limit: usize,
    },
    /// The text is neither YAML nor JSON, or says something that JSON cannot.
    #[error("{message}")]
    Syntax {
        /// What is wrong and at which line.
        message: String,
    },
}

/// How many brackets may be open at once for each level of depth that is allowed.
const BRACKETS_PER_LEVEL: usize = 16;

/// The most brackets that are open at once, wherever they stand.
fn open_brackets(text: &str) -> usize {
    let mut most = 0_usize;
    let mut open = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => continue,
        }
        most = most.max(open);
    }
    most
}

/// Reads the first document of a YAML or JSON text.
///
/// A text that starts with `{` is read as JSON first, as the Kubernetes tools do, and as YAML when that fails.
/// Plain words and numbers mean what they mean in YAML 1.1, so `yes` is true and `0644` is 420.
pub fn yaml_to_json(text: &[u8], limits: &Limits) -> Result<Document, YamlError> {
    if text.len() > limits.max_bytes {
        return Err(YamlError::TooLarge { size: text.len(), limit: limits.max_bytes });
    }
    let text = std::str::from_utf8(text).map_err(|error| {
        let offset = error.valid_up_to();
        let line = 1 + text[..offset].iter().filter(|byte| **byte == b'\n').count();
        YamlError::NotUtf8 { line, offset }
    })?;
    // The YAML parser keeps every event of a document before the first is looked at; each needs one of these marks.
    let marks = text.bytes().filter(|byte| b",[{:-?".contains(byte)).count();
    if marks > limits.max_nodes.saturating_mul(4) {
        return Err(YamlError::TooManyNodes { limit: limits.max_nodes });
    }
    // Its time grows with the square of open brackets. Brackets in texts count as well, hence the room for them.
    if open_brackets(text) > limits.max_depth.saturating_mul(BRACKETS_PER_LEVEL) {
        return Err(YamlError::TooDeep { limit: limits.max_depth });
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if !text.trim_start().starts_with('{') {
        return read_yaml(text, limits);
    }
    match read_json(text, limits) {
        Err(YamlError::Syntax { message }) => match read_yaml(text, limits) {
            Ok(document) if !document.more_documents => Ok(document),
            _ => Err(YamlError::Syntax { message }),
        },
        other => other,
    }
}

fn read_json(text: &str, limits: &Limits) -> Result<Document, YamlError> {
    let mut reader = Reader::new(limits, None);
    let mut json = serde_json::Deserializer::from_str(text);
    let result = Node { reader: &mut reader }.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    reader.finish(result.map_err(|error| error.to_string()))
}

fn read_yaml(text: &str, limits: &Limits) -> Result<Document, YamlError> {
    let mut reader = Reader::new(limits, Some(text));
    let mut documents = serde_yaml::Deserializer::from_slice(text.as_bytes());
    let Some(first) = documents.next() else { return Ok(Document::default()) };
    let result = Node { reader: &mut reader }.deserialize(first);
    let mut document = reader.finish(result.map_err(|error| error.to_string()))?;
    if let Some(second) = documents.next() {
        // A closing `---` without content is common and loses nothing; anything else, broken or not, is content.
        let mut reader = Reader::new(&Limits { max_nodes: 1, ..*limits }, Some(text));
        document.more_documents = !matches!(Node { reader: &mut reader }.deserialize(second), Ok(Value::Null));
    }
    Ok(document)
}

/// The state of one read: where it is and what it may still spend.
struct Reader<'t> {
    /// The YAML text, to tell a plain `yes` from a quoted one; none for JSON, where strings are always quoted.
    text: Option<&'t str>,
    limits: Limits,
    nodes: usize,
    /// Bytes of text in scalars; only aliases can take this above the text's own length.
    bytes: usize,
    depth: usize,
    path: String,
    duplicates: Vec<String>,
    tripped: Option<YamlError>,
}

impl<'t> Reader<'t> {
    fn new(limits: &Limits, text: Option<&'t str>) -> Self {
        Reader {
            text,
            limits: *limits,
            nodes: 0,
            bytes: 0,
            depth: 0,
            path: String::new(),
            duplicates: Vec::new(),
            tripped: None,
        }
    }

    fn finish(self, result: Result<Value, String>) -> Result<Document, YamlError> {
        match (result, self.tripped) {
            (_, Some(error)) => Err(error),
            (Err(message), None) => Err(YamlError::Syntax { message }),
            (Ok(value), None) => Ok(Document { value, duplicates: self.duplicates, more_documents: false }),
        }
    }

    /// Pays for one value with `bytes` of text.
    fn spend<E: de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.nodes += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nodes > self.limits.max_nodes || self.bytes > self.limits.max_bytes.saturating_mul(2) {
            return Err(self.trip(YamlError::TooManyNodes { limit: self.limits.max_nodes }));
        }
        Ok(())
    }

    fn descend<E: de::Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > self.limits.max_depth {
            return Err(self.trip(YamlError::TooDeep { limit: self.limits.max_depth }));
        }
        Ok(())
    }

    fn trip<E: de::Error>(&mut self, error: YamlError) -> E {
        let text = E::custom(&error);
        self.tripped = Some(error);
        text
    }

    /// Whether a string that the parser lent out of the text stands there without quotes or a string tag.
    fn is_plain(&self, value: &str) -> bool {
        let Some(text) = self.text else { return false };
        let start = (value.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
        let (Some(before), Some(after)) = (text.get(..start), text.get(start.saturating_add(value.len())..)) else {
            return false;
        };
        let quoted = |quote| before.ends_with(quote) && after.starts_with(quote);
        let words = before.trim_end_matches([' ', '\t']);
        let tagged = words.len() < before.len() && words.ends_with("!!str");
        !quoted('"') && !quoted('\'') && !tagged
    }

    /// A string of the text: a YAML 1.1 word where it is plain.
    fn string<E: de::Error>(&mut self, value: &str, borrowed: bool) -> Result<Value, E> {
        self.spend(value.len())?;
        match borrowed.then(|| scalar::resolve(value)).flatten() {
            Some(resolved) if self.is_plain(value) => Ok(resolved),
            _ => Ok(Value::String(value.to_owned())),
        }
    }
}

/// Appends one map key to a path, so that a path reads as one would type it: `a.b[0]["c.d/e"].f`.
pub fn push_key(path: &mut String, key: &str) {
    let simple =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if !simple {
        path.push_str(&format!("[{key:?}]"));
    } else if path.is_empty() {
        path.push_str(key);
    } else {
        path.push('.');
        path.push_str(key);
    }
}

/// Reads one value of any type.
struct Node<'r, 't> {
    reader: &'r mut Reader<'t>,
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a custom tag")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        self.reader.spend(0).map(|()| Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        self.reader.spend(0).map(|()| value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        self.reader.spend(0).map(|()| value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        self.reader.spend(0).map(|()| value.into())
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        self.reader.spend(0)?;
        if self.reader.text.is_some() {
            return scalar::float(value)
                .ok_or_else(|| E::custom(format_args!("{value} is not a number that JSON can hold")));
        }
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        self.reader.string(value, false)
    }

    fn visit_borrowed_str<E: de::Error>(self, value: &'de str) -> Result<Value, E> {
        self.reader.string(value, true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let reader = self.reader;
        reader.spend(0)?;
        reader.descend()?;
        let mut list = Vec::new();
        let here = reader.path.len();
        loop {
            reader.path.push_str(&format!("[{}]", list.len()));
            let next = access.next_element_seed(Node { reader: &mut *reader })?;
            reader.path.truncate(here);
            let Some(value) = next else { break };
            list.push(value);
        }
        reader.depth -= 1;
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let reader = self.reader;
        reader.spend(0)?;
        reader.descend()?;
        let mut map = Map::new();
        let mut merged = Vec::new();
        let here = reader.path.len();
        while let Some(key) = access.next_key_seed(Key { reader: &mut *reader })? {
            push_key(&mut reader.path, &key);
            let value = access.next_value_seed(Node { reader: &mut *reader })?;
            if key == "<<" && reader.text.is_some() {
                merged.push(value);
            } else if map.insert(key, value).is_some() && reader.duplicates.len() < MAX_DUPLICATES {
                reader.duplicates.push(reader.path.clone());
            }
            reader.path.truncate(here);
        }
        reader.depth -= 1;
        for source in merged {
            merge(&mut map, source).map_err(de::Error::custom)?;
        }
        Ok(Value::Object(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _access: A) -> Result<Value, A::Error> {
        Err(de::Error::custom("custom YAML tags are not supported, write the value without its !tag"))
    }
}

/// Adds what a merge key (`<<`) brings: only keys that the map does not have itself.
fn merge(map: &mut Map<String, Value>, source: Value) -> Result<(), &'static str> {
    match source {
        Value::Object(other) => {
            for (key, value) in other {
                map.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(list) => list.into_iter().try_for_each(|item| match item {
            Value::Object(_) => merge(map, item),
            _ => Err("a merge key (<<) takes maps, as a rule *aliases of them"),
        }),
        _ => Err("a merge key (<<) takes a map or a list of maps, as a rule *aliases of them"),
    }
}

/// Reads one map key; numbers and words become their text.
struct Key<'r, 't> {
    reader: &'r mut Reader<'t>,
}

impl Key<'_, '_> {
    fn number<E: de::Error>(self, text: String) -> Result<String, E> {
        self.reader.spend(text.len()).map(|()| text)
    }
}

impl<'de> DeserializeSeed<'de> for Key<'_, '_> {
    type Value = String;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_, '_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text as map key")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<String, E> {
        self.number(value.to_string())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<String, E> {
        self.number(value.to_string())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<String, E> {
        self.number(value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<String, E> {
        self.number(value.to_string())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<String, E> {
        self.reader.spend(value.len())?;
        Ok(value.to_owned())
    }

    fn visit_borrowed_str<E: de::Error>(self, value: &'de str) -> Result<String, E> {
        match self.reader.string(value, true)? {
            Value::String(text) => Ok(text),
            other => Ok(other.to_string()),
        }
    }
}
