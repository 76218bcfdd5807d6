//! From a JSON value to typed fields, with every problem named by its path. Pure; runs on the main thread; never stops at the
//! first problem and never panics on what it reads.
//!
//! serde's own derive ends at the first wrong type and knows no path; a node's owner wants to see all of them at once.

use super::duration::GoDuration;
use super::problem::{Problem, nearest};
use super::yaml::push_key;
use crate::util::order::Gather;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a decode found out beside the value.
#[derive(Debug, Default)]
pub struct Findings {
    /// Values of the wrong type; the field got its zero value.
    pub problems: Vec<Problem>,
    /// Fields that nobody knows: the path, and the name that was probably meant.
    pub unknown: Vec<(String, Option<&'static str>)>,
}

/// Where in the value a decode stands.
#[derive(Debug, Default)]
pub struct Place {
    path: String,
    /// What was found so far.
    pub found: Findings,
}

impl Place {
    /// Runs `inner` one key deeper.
    pub fn key<T>(&mut self, key: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        let here = self.path.len();
        push_key(&mut self.path, key);
        let result = inner(self);
        self.path.truncate(here);
        result
    }

    /// Runs `inner` one list element deeper.
    pub fn index<T>(&mut self, index: usize, inner: impl FnOnce(&mut Self) -> T) -> T {
        let here = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        let result = inner(self);
        self.path.truncate(here);
        result
    }

    /// Notes that the value here is not what it should be.
    pub fn wrong(&mut self, value: &Value, want: impl Into<String>) {
        let shown = match value {
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "a map".to_owned(),
            other => other.to_string(),
        };
        self.found.problems.push(Problem::new(self.path.clone(), shown, want));
    }

    /// Notes a field that nobody knows.
    pub fn unknown(&mut self, key: &str, known: impl Iterator<Item = &'static str>) {
        let suggestion = nearest(key, known);
        let path = self.key(key, |place| place.path.clone());
        self.found.unknown.push((path, suggestion));
    }
}

/// A type that is read from a JSON value.
pub trait Decode: Sized {
    /// The value of a field that is not there (Go's zero value).
    fn zero() -> Self;
    /// Reads `value`; what is wrong goes to `place`, and the wrong part gets its zero value.
    fn decode(value: Value, place: &mut Place) -> Self;
}

/// Takes one field out of a map; null is the same as not there.
pub fn field<T: Decode>(map: &mut serde_json::Map<String, Value>, name: &str, place: &mut Place) -> T {
    match map.remove(name) {
        None | Some(Value::Null) => T::zero(),
        Some(value) => place.key(name, |place| T::decode(value, place)),
    }
}

impl Decode for bool {
    fn zero() -> Self {
        false
    }

    fn decode(value: Value, place: &mut Place) -> Self {
        value.as_bool().unwrap_or_else(|| {
            place.wrong(&value, "must be true or false, without quotes");
            false
        })
    }
}

macro_rules! decode_integer {
    ($($type:ty),*) => {$(
        impl Decode for $type {
            fn zero() -> Self {
                0
            }

            fn decode(value: Value, place: &mut Place) -> Self {
                value.as_i64().and_then(|number| Self::try_from(number).ok()).unwrap_or_else(|| {
                    let (min, max) = (Self::MIN, Self::MAX);
                    place.wrong(&value, format!("must be a whole number from {min} to {max}, without quotes"));
                    0
                })
            }
        }
    )*};
}

decode_integer!(i32, i64, u32);

impl Decode for f64 {
    fn zero() -> Self {
        0.0
    }

    fn decode(value: Value, place: &mut Place) -> Self {
        value.as_f64().unwrap_or_else(|| {
            place.wrong(&value, "must be a number, without quotes");
            0.0
        })
    }
}

impl Decode for String {
    fn zero() -> Self {
        String::new()
    }

    fn decode(value: Value, place: &mut Place) -> Self {
        match value {
            Value::String(text) => text,
            Value::Bool(_) | Value::Number(_) => {
                place.wrong(&value, format!("must be text, put it in quotes: \"{value}\""));
                String::new()
            }
            _ => {
                place.wrong(&value, "must be text");
                String::new()
            }
        }
    }
}

impl Decode for GoDuration {
    fn zero() -> Self {
        GoDuration::ZERO
    }

    fn decode(value: Value, place: &mut Place) -> Self {
        value.as_str().and_then(GoDuration::parse).unwrap_or_else(|| {
            place.wrong(&value, "must be a duration with units such as \"10s\", \"1m30s\" or \"4h\"");
            GoDuration::ZERO
        })
    }
}

impl<T: Decode> Decode for Option<T> {
    fn zero() -> Self {
        None
    }

    fn decode(value: Value, place: &mut Place) -> Self {
        let before = place.found.problems.len();
        let inner = T::decode(value, place);
        (place.found.problems.len() == before).then_some(inner)
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn zero() -> Self {
        Vec::new()
    }

    fn decode(value: Value, place: &mut Place) -> Self {
        let Value::Array(list) = value else {
            place.wrong(&value, "must be a list");
            return Vec::new();
        };
        let item = |(index, value)| match value {
            Value::Null => T::zero(),
            value => place.index(index, |place| T::decode(value, place)),
        };
        list.into_iter().enumerate().map(item).collect()
    }
}

impl<T: Decode> Decode for BTreeMap<String, T> {
    fn zero() -> Self {
        BTreeMap::new()
    }

    fn decode(value: Value, place: &mut Place) -> Self {
        let Value::Object(map) = value else {
            place.wrong(&value, "must be a map of names to values");
            return BTreeMap::new();
        };
        let item = |(key, value): (String, Value)| {
            let value = match value {
                Value::Null => T::zero(),
                value => place.key(&key, |place| T::decode(value, place)),
            };
            (key, value)
        };
        map.into_iter().map(item).gather()
    }
}

/// How a field behaves when it is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Set or not set are two things, and zero is a value of its own (a pointer in the Go type).
    Pointer,
    /// Zero, empty and not set are one; left out of /configz when empty.
    Zero,
    /// Always written, also when empty (durations and structs in the Go type).
    Always,
}

/// One field of a configuration struct.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in JSON.
    pub name: &'static str,
    /// How it behaves when it is not set.
    pub presence: Presence,
}

/// Declares a struct with its JSON names, its [`Decode`] and its table of fields.
macro_rules! config_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* $field:ident: $type:ty = $json:literal $presence:ident, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        pub struct $name {
            $( $(#[$field_meta])* #[serde(rename = $json)] pub $field: $type, )*
        }

        impl $name {
            /// Its fields in the order of the struct.
            pub const FIELDS: &'static [$crate::config::decode::Field] = &[
                $( $crate::config::decode::Field {
                    name: $json,
                    presence: $crate::config::decode::Presence::$presence,
                }, )*
            ];
        }

        impl $crate::config::decode::Decode for $name {
            fn zero() -> Self {
                $name { $( $field: $crate::config::decode::Decode::zero(), )* }
            }

            fn decode(value: serde_json::Value, place: &mut $crate::config::decode::Place) -> Self {
                let serde_json::Value::Object(mut map) = value else {
                    place.wrong(&value, "must be a map of fields");
                    return Self::zero();
                };
                let decoded = $name { $( $field: $crate::config::decode::field(&mut map, $json, place), )* };
                for key in map.keys() {
                    place.unknown(key, Self::FIELDS.iter().map(|field| field.name));
                }
                decoded
            }
        }
    };
}
pub(crate) use config_struct;
