//! One list: pages of objects, decoded one by one as they arrive.
//!
//! Runs on the thread that wants the list; owns nothing afterwards. What is held is the objects and one
//! read buffer, never the answer's text; each object and each list has a limit in bytes.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::client::{ApiClient, Call, MAX_OBJECT, Method};
use super::error::ApiError;
use super::exchange::{Failure, Timeouts, told, without_values};
use crate::util::cancel::Cancel;
use crate::util::json;

/// Objects a page.
const PAGE: &str = "500";
/// Time for one page.
const PAGE_TIME: Duration = Duration::from_secs(60);
/// Most pages of one list.
const MAX_PAGES: usize = 200;
/// Largest list, all pages together, as text.
const MAX_LIST: u64 = 256 << 20;
const METHOD: &str = "LIST";

/// A list, and where a watch goes on from it.
pub(super) struct Listed<T> {
    pub(super) items: Vec<T>,
    pub(super) resource_version: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    go_on: Option<String>,
}

impl ApiClient {
    /// Lists everything at `path`, at least as new as `resource_version` (`0`: whatever the server has at hand; empty: the newest).
    pub(super) fn list_all<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        resource_version: &str,
        cancel: &Cancel,
    ) -> Result<Listed<T>, ApiError> {
        let mut items = Vec::new();
        let mut go_on: Option<String> = None;
        let total = Cell::new(MAX_LIST);
        for _ in 0..MAX_PAGES {
            let mut call = Call::new(Method::Get, path).within(PAGE_TIME);
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            call.query = query.iter().map(own).collect();
            call.query.push(own(&("limit", PAGE)));
            match &go_on {
                Some(token) => call.query.push(own(&("continue", token))),
                None if !resource_version.is_empty() => call.query.push(own(&("resourceVersion", resource_version))),
                None => {}
            }
            self.take_turn(path, PAGE_TIME)?;
            let until = Instant::now() + PAGE_TIME;
            let mut meta = ListMeta::default();
            self.stream(&call, PAGE_TIME, &Timeouts::Within(until), cancel, &mut |reader| {
                let budget = Budget { total: &total, object: Cell::new(MAX_OBJECT) };
                let counted = Counted { reader, budget: &budget };
                let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(16 * 1024, counted));
                let page = PageSeed { items: &mut items, budget: &budget };
                let read = page.deserialize(&mut json).and_then(|page| json.end().map(|()| page));
                meta = read.map_err(|error| explain(error, path))?;
                Ok(())
            })?;
            match meta.go_on.filter(|token| !token.is_empty()) {
                Some(token) => go_on = Some(token),
                None => {
                    let resource_version = meta.resource_version.unwrap_or_default();
                    return Ok(Listed { items, resource_version });
                }
            }
        }
        let message = format!("the list goes on after {MAX_PAGES} pages");
        Err(ApiError::Decode { method: METHOD, path: path.to_owned(), message })
    }
}

fn explain(error: serde_json::Error, path: &str) -> ApiError {
    if error.is_io() {
        let error = io::Error::from(error);
        if let Some(TooMuch(limit)) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            return Failure::TooLarge(*limit).explain(METHOD, path, PAGE_TIME);
        }
        return Failure::Http(ureq::Error::from(error)).explain(METHOD, path, PAGE_TIME);
    }
    if error.is_eof() {
        let message = "the API server closed the connection in the middle of its answer".to_owned();
        return ApiError::Connection { method: METHOD, path: path.to_owned(), message };
    }
    ApiError::Decode { method: METHOD, path: path.to_owned(), message: without_values(&error) }
}

/// How many bytes may still come.
struct Budget<'a> {
    total: &'a Cell<u64>,
    object: Cell<u64>,
}

#[derive(Debug)]
struct TooMuch(u64);

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {} bytes", self.0)
    }
}

impl std::error::Error for TooMuch {}

struct Counted<'a> {
    reader: &'a mut dyn Read,
    budget: &'a Budget<'a>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        for (left, limit) in [(self.budget.total, MAX_LIST), (&self.budget.object, MAX_OBJECT)] {
            match left.get().checked_sub(read as u64) {
                Some(rest) => left.set(rest),
                None => return Err(io::Error::other(TooMuch(limit))),
            }
        }
        Ok(read)
    }
}

/// The list object: its items go to `items`, its metadata is the result.
struct PageSeed<'a, T> {
    items: &'a mut Vec<T>,
    budget: &'a Budget<'a>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for PageSeed<'_, T> {
    type Value = ListMeta;
    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<ListMeta, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for PageSeed<'_, T> {
    type Value = ListMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ListMeta, A::Error> {
        let mut meta = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => meta = Some(map.next_value()?),
                "items" => map.next_value_seed(Items { items: self.items, budget: self.budget })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        // A list without metadata is another object: to take it for an empty list would end every pod.
        meta.ok_or_else(|| serde::de::Error::missing_field("metadata"))
    }
}

struct Items<'a, T> {
    items: &'a mut Vec<T>,
    budget: &'a Budget<'a>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Items<'_, T> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_option(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Items<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    /// Go writes `null` for a list without items.
    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        loop {
            self.budget.object.set(MAX_OBJECT);
            let Some(item) = seq.next_element::<Value>()? else { return Ok(()) };
            self.items.push(json::from_value(&item).map_err(|mistake| serde::de::Error::custom(told(&mistake)))?);
        }
    }
}
