//! The client: a quick look at everything the runtime holds.
//!
//! Runs on PLEG's thread, once a second. A relist wants to know which pods changed and nothing else,
//! so the two lists are read for id, state and pod uid, straight from the answers' bytes: a full node
//! costs a tenth of what whole messages with their labels and annotations would. Never trusts a length
//! that it reads.

use std::collections::BTreeMap;
use std::io::Read;

use grpcio::{Marshaller, MessageReader, Method};

use super::client::Client;
use super::error::CriError;
use super::proto::{self, runtime_service as rpc};
use crate::api::labels::POD_UID;
use crate::api::runtime::SandboxState;
use crate::api::runtime_info::{Life, PodGlimpse};
use crate::api::{ContainerId, PodName, PodUid, SandboxId};
use crate::util::cancel::Cancel;
use crate::util::order;

/// One sandbox or container of a list.
#[derive(Debug, Default, PartialEq, Eq)]
struct Listed {
    id: String,
    state: u64,
    uid: String,
    /// Namespace and name of the pod, where the metadata tells them.
    name: Option<PodName>,
}

/// Field numbers of a listed message. The list itself is field 1 of either answer.
struct Fields {
    id: u64,
    state: u64,
    labels: u64,
    /// The pod's name and namespace, if it is a sandbox.
    metadata: Option<u64>,
}

const SANDBOX: Fields = Fields { id: 1, state: 3, labels: 5, metadata: Some(2) };
const CONTAINER: Fields = Fields { id: 1, state: 6, labels: 8, metadata: None };

impl Client {
    /// Which pods there are, with the states of their sandboxes and containers, in the order of uids.
    /// Costs little. Objects without the pod uid label are left out, as in [`Client::list_pods`].
    pub fn glimpse(&self, cancel: &Cancel) -> Result<Vec<PodGlimpse>, CriError> {
        let sandboxes = Method {
            ty: grpcio::MethodType::Unary,
            name: rpc::LIST_POD_SANDBOX.name,
            req_mar: rpc::LIST_POD_SANDBOX.req_mar,
            resp_mar: Marshaller { ser: |_, _| Ok(()), de: |reader| read(reader, &SANDBOX) },
        };
        let containers = Method {
            ty: grpcio::MethodType::Unary,
            name: rpc::LIST_CONTAINERS.name,
            req_mar: rpc::LIST_CONTAINERS.req_mar,
            resp_mar: Marshaller { ser: |_, _| Ok(()), de: |reader| read(reader, &CONTAINER) },
        };
        let sandboxes = self.call(&sandboxes, &proto::ListPodSandboxRequest::new(), "", cancel)?;
        let containers = self.call(&containers, &proto::ListContainersRequest::new(), "", cancel)?;
        Ok(join(sandboxes, containers))
    }
}

fn join(sandboxes: Vec<Listed>, containers: Vec<Listed>) -> Vec<PodGlimpse> {
    let mut pods: BTreeMap<String, PodGlimpse> = BTreeMap::new();
    let mut pod = |uid: String, add: &mut dyn FnMut(&mut PodGlimpse)| {
        if uid.is_empty() {
            return;
        }
        let fresh = |uid: &String| PodGlimpse {
            uid: PodUid::from(uid.as_str()),
            name: None,
            sandboxes: Vec::new(),
            containers: Vec::new(),
        };
        add(pods.entry(uid).or_insert_with_key(fresh));
    };
    for it in sandboxes {
        // Zero, which is also a missing field, means READY.
        let state = if it.state == 0 { SandboxState::Ready } else { SandboxState::NotReady };
        let mut name = it.name;
        pod(it.uid, &mut |pod| {
            pod.sandboxes.push((SandboxId::from(it.id.as_str()), state));
            pod.name = pod.name.take().or_else(|| name.take());
        });
    }
    for it in containers {
        let life = match it.state {
            0 => Life::Created,
            1 => Life::Running,
            2 => Life::Exited,
            _ => Life::Unknown,
        };
        pod(it.uid, &mut |pod| pod.containers.push((ContainerId::from(it.id.as_str()), life)));
    }
    let mut pods: Vec<_> = pods.into_values().collect();
    for pod in &mut pods {
        order::sort_by(&mut pod.sandboxes, |a, b| a.0.cmp(&b.0));
        order::sort_by(&mut pod.containers, |a, b| a.0.cmp(&b.0));
        // Of what is listed twice the first mention counts, as in a close look.
        pod.sandboxes.dedup_by(|later, first| later.0 == first.0);
        pod.containers.dedup_by(|later, first| later.0 == first.0);
    }
    pods
}

fn read(mut reader: MessageReader, fields: &Fields) -> grpcio::Result<Vec<Listed>> {
    let mut bytes = Vec::new();
    let read = reader.read_to_end(&mut bytes).map_err(|error| error.to_string());
    read.and_then(|_| list(&bytes, fields)).map_err(|problem| grpcio::Error::Codec(problem.into()))
}

/// The items of a list answer.
fn list(answer: &[u8], fields: &Fields) -> Result<Vec<Listed>, String> {
    let mut items = Vec::new();
    let mut wire = Wire(answer);
    while let Some((number, value)) = wire.next()? {
        if let (1, Value::Bytes(bytes)) = (number, value) {
            items.push(item(bytes, fields)?);
        }
    }
    Ok(items)
}

fn item(bytes: &[u8], fields: &Fields) -> Result<Listed, String> {
    let mut found = Listed::default();
    let mut wire = Wire(bytes);
    while let Some((number, value)) = wire.next()? {
        match value {
            Value::Bytes(bytes) if number == fields.id => found.id = text(bytes)?,
            Value::Bytes(bytes) if number == fields.labels => {
                if let Some(uid) = uid(bytes)? {
                    found.uid = text(uid)?;
                }
            }
            Value::Bytes(bytes) if Some(number) == fields.metadata => found.name = Some(pod_name(bytes)?),
            Value::Number(state) if number == fields.state => found.state = state,
            Value::Bytes(_) | Value::Number(_) | Value::Other => {}
        }
    }
    if found.id.is_empty() { Err("an object without an id".to_owned()) } else { Ok(found) }
}

/// The pod that a sandbox's metadata names.
fn pod_name(metadata: &[u8]) -> Result<PodName, String> {
    let mut found = PodName { namespace: String::new(), name: String::new() };
    let mut wire = Wire(metadata);
    while let Some((number, value)) = wire.next()? {
        match (number, value) {
            (1, Value::Bytes(name)) => found.name = text(name)?,
            (3, Value::Bytes(namespace)) => found.namespace = text(namespace)?,
            _ => {}
        }
    }
    Ok(found)
}

/// The value of a map entry whose key is the pod uid label.
fn uid(entry: &[u8]) -> Result<Option<&[u8]>, String> {
    let (mut is_uid, mut found) = (false, None);
    let mut wire = Wire(entry);
    while let Some((number, value)) = wire.next()? {
        match (number, value) {
            (1, Value::Bytes(key)) => is_uid = key == POD_UID.as_bytes(),
            (2, Value::Bytes(value)) => found = Some(value),
            _ => {}
        }
    }
    Ok(found.filter(|_| is_uid))
}

fn text(bytes: &[u8]) -> Result<String, String> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| "a text that is not UTF-8".to_owned())
}

/// A field's value as far as it matters here.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// What is left of a message's bytes.
struct Wire<'a>(&'a [u8]);

impl<'a> Wire<'a> {
    /// The next field with its number; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let length = usize::try_from(self.number()?).map_err(|_| cut())?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Other)?,
            other => return Err(format!("wire type {other}")),
        };
        Ok(Some((tag >> 3, value)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for (at, byte) in self.0.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(number);
            }
        }
        Err(if self.0.len() < 10 { cut() } else { "a number of more than ten bytes".to_owned() })
    }
}

fn cut() -> String {
    "it is cut short".to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protobuf::{EnumOrUnknown, Message, MessageField};

    use super::*;

    fn containers() -> proto::ListContainersResponse {
        let container = |id: &str, uid: &str, state| proto::Container {
            id: id.into(),
            metadata: MessageField::some(proto::ContainerMetadata { name: "c".into(), ..Default::default() }),
            state: EnumOrUnknown::from_i32(state),
            created_at: i64::MAX,
            labels: [(POD_UID.to_owned(), uid.to_owned()), ("a".to_owned(), String::new())].into(),
            annotations: [("x".to_owned(), "y".repeat(300))].into(),
            ..Default::default()
        };
        let containers = vec![
            container("c2", "u", 0),
            container("c1", "u", 1),
            container("c3", "u", 2),
            container("c4", "u", 77),
            container("c5", "", 1),
            container("c2", "u", 2),
        ];
        proto::ListContainersResponse { containers, ..Default::default() }
    }

    fn sandboxes() -> proto::ListPodSandboxResponse {
        let sandbox = |id: &str, state| proto::PodSandbox {
            id: id.into(),
            state: EnumOrUnknown::from_i32(state),
            metadata: MessageField::some(proto::PodSandboxMetadata {
                name: "web".into(),
                uid: "u".into(),
                namespace: "prod".into(),
                attempt: 3,
                ..Default::default()
            }),
            labels: [(POD_UID.to_owned(), "u".to_owned())].into(),
            ..Default::default()
        };
        proto::ListPodSandboxResponse { items: vec![sandbox("s2", 0), sandbox("s1", 1)], ..Default::default() }
    }

    #[test]
    fn a_glimpse_shows_ids_and_states_by_pod() {
        let sandboxes = list(&sandboxes().write_to_bytes().expect("bytes"), &SANDBOX).expect("a list");
        let containers = list(&containers().write_to_bytes().expect("bytes"), &CONTAINER).expect("a list");
        assert_eq!(
            join(sandboxes, containers),
            [PodGlimpse {
                uid: "u".into(),
                name: Some(PodName { namespace: "prod".into(), name: "web".into() }),
                sandboxes: vec![("s1".into(), SandboxState::NotReady), ("s2".into(), SandboxState::Ready)],
                containers: vec![
                    ("c1".into(), Life::Running),
                    ("c2".into(), Life::Created),
                    ("c3".into(), Life::Exited),
                    ("c4".into(), Life::Unknown),
                ],
            }]
        );
    }

    #[test]
    fn a_cut_answer_is_an_error_or_a_shorter_list() {
        let bytes = containers().write_to_bytes().expect("bytes");
        let whole = list(&bytes, &CONTAINER).expect("a list");
        for length in 0..bytes.len() {
            if let Ok(items) = list(&bytes[..length], &CONTAINER) {
                assert_eq!(items[..], whole[..items.len()], "{length} bytes");
            }
        }
        for (bytes, expect) in [
            (&b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..], "a number of more than ten bytes"),
            (b"\x0a\x05ab", "it is cut short"),
            (b"\x0b", "wire type 3"),
            (b"\x0a\x00", "an object without an id"),
            (b"\x0a\x03\x0a\x01\xff", "a text that is not UTF-8"),
        ] {
            assert_eq!(list(bytes, &CONTAINER), Err(expect.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = list(&bytes, &SANDBOX);
        }
    }
}
