//! A stand-in for an API server in tests of volumes: objects on a shelf.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::objects::{ObjectData, ObjectError, ObjectKey, ObjectKind, ObjectSource, Purpose, Token, TokenWanted};
use crate::api::PodUid;

/// The objects that there are, and the kinds that nobody answers for.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    objects: Mutex<BTreeMap<ObjectKey, Arc<ObjectData>>>,
    mute: Mutex<BTreeSet<ObjectKind>>,
    /// Tokens that were asked for.
    pub(super) asked: Mutex<Vec<TokenWanted>>,
}

impl Shelf {
    pub(super) fn put(&self, kind: ObjectKind, name: &str, data: &[(&str, &str)]) {
        let bytes = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        self.put_data(kind, name, ObjectData { bytes, ..ObjectData::default() });
    }

    pub(super) fn put_data(&self, kind: ObjectKind, name: &str, data: ObjectData) {
        self.objects.lock().unwrap().insert(ObjectKey::new(kind, "n", name), Arc::new(data));
    }

    pub(super) fn remove(&self, kind: ObjectKind, name: &str) {
        self.objects.lock().unwrap().remove(&ObjectKey::new(kind, "n", name));
    }

    /// No more answers for objects of this kind.
    pub(super) fn mute(&self, kind: ObjectKind) {
        self.mute.lock().unwrap().insert(kind);
    }
}

impl ObjectSource for Shelf {
    fn object(&self, _: &PodUid, key: &ObjectKey, _: Purpose, _: Duration) -> Result<Arc<ObjectData>, ObjectError> {
        if self.mute.lock().unwrap().contains(&key.kind) {
            let (what, why) = (key.to_string(), "no answer".to_owned());
            return Err(ObjectError::Unavailable { what, why });
        }
        let missing = || ObjectError::NotFound { kind: key.kind, name: key.name.clone() };
        self.objects.lock().unwrap().get(key).cloned().ok_or_else(missing)
    }

    fn token(&self, wanted: &TokenWanted, _: Duration) -> Result<Token, ObjectError> {
        self.asked.lock().unwrap().push(wanted.clone());
        Ok(Token(format!("token for {}", wanted.audience)))
    }

    fn service_variables(&self, _: &str, _: bool, _: Duration) -> Result<Vec<(String, String)>, ObjectError> {
        Ok(Vec::new())
    }

    fn forget(&self, _: &PodUid) {}
}
