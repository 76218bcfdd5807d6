//! What the files of a configMap, secret, projected or downwardAPI volume are.
//!
//! Layer L1, on a pod worker. It asks the [`ObjectSource`] and combines; it writes nothing and computes
//! no downward API value (the caller brings those). All sources of a volume are asked, so that all that
//! is missing is told at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::objects::{ObjectData, ObjectError, ObjectKey, ObjectKind, ObjectSource, Purpose, TokenWanted};
use super::{PodInputs, VolumeFile};
use crate::api::pod as pods;
use crate::api::v1::{KeyToPath, Pod, Volume, VolumeProjection};

/// Mode of files when the volume states none.
const DEFAULT_MODE: i32 = 0o644;
/// Life of a token whose source states none, as the API server's defaults have it.
const DEFAULT_TOKEN_SECONDS: i64 = 3600;

/// One volume on its way to files.
#[derive(Clone, Copy)]
pub(super) struct Collector<'a> {
    pub(super) pod: &'a Pod,
    pub(super) volume: &'a Volume,
    pub(super) inputs: &'a PodInputs,
    pub(super) objects: &'a dyn ObjectSource,
    /// When to give up on the API server.
    pub(super) until: Instant,
}

/// Files by path: a later source takes the place of an earlier one.
type Payload = BTreeMap<String, VolumeFile>;

impl Collector<'_> {
    /// All files of the volume, or everything that is in the way.
    pub(super) fn files(&self) -> Result<Vec<VolumeFile>, String> {
        let mut payload = Payload::new();
        let mut problems = Vec::new();
        let volume = self.volume;
        if let Some(source) = &volume.config_map {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            let optional = source.optional.unwrap_or(false);
            let got = self.object(ObjectKind::ConfigMap, &source.name, optional, source.items.as_deref(), mode);
            take(got, &mut payload, &mut problems);
        } else if let Some(source) = &volume.secret {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            let optional = source.optional.unwrap_or(false);
            let name = source.secret_name.as_deref().unwrap_or_default();
            take(
                self.object(ObjectKind::Secret, name, optional, source.items.as_deref(), mode),
                &mut payload,
                &mut problems,
            );
        } else if volume.downward_api.is_some() {
            take(self.downward(0), &mut payload, &mut problems);
        } else if let Some(source) = &volume.projected {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            for (index, part) in source.sources.iter().flatten().enumerate() {
                take(self.projected(index, part, mode), &mut payload, &mut problems);
            }
        }
        match problems.len() {
            0 => Ok(payload.into_values().collect()),
            1 => Err(problems.swap_remove(0)),
            _ => Err(format!("[{}]", problems.join(", "))),
        }
    }

    fn projected(&self, index: usize, part: &VolumeProjection, mode: i32) -> Result<Vec<VolumeFile>, String> {
        if let Some(source) = &part.secret {
            let optional = source.optional.unwrap_or(false);
            self.object(ObjectKind::Secret, &source.name, optional, source.items.as_deref(), mode)
        } else if let Some(source) = &part.config_map {
            let optional = source.optional.unwrap_or(false);
            self.object(ObjectKind::ConfigMap, &source.name, optional, source.items.as_deref(), mode)
        } else if part.downward_api.is_some() {
            self.downward(index)
        } else if let Some(source) = &part.service_account_token {
            let spec = pods::spec(self.pod);
            let wanted = TokenWanted {
                pod: pods::pod_uid(self.pod),
                namespace: pods::namespace(self.pod).to_owned(),
                pod_name: pods::name(self.pod).to_owned(),
                account: spec.and_then(|s| s.service_account_name.clone()).unwrap_or_default(),
                audience: source.audience.clone().unwrap_or_default(),
                seconds: Some(source.expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS)),
            };
            let token = self.objects.token(&wanted, self.left()).map_err(|e| e.to_string())?;
            let owner = fs_user(self.pod);
            // A token that has an owner or a group is nobody else's to read.
            let mode = if owner.is_some() || super::group_of(self.pod).is_some() { 0o600 } else { mode };
            Ok(vec![VolumeFile { path: source.path.clone(), mode: bits(mode), owner, bytes: token.0.into_bytes() }])
        } else if part.cluster_trust_bundle.is_some() {
            Err("a projected clusterTrustBundle is not supported by this agent; use a configMap with the certificates"
                .to_owned())
        } else if part.pod_certificate.is_some() {
            Err("a projected podCertificate is not supported by this agent; use a secret with key and certificate"
                .to_owned())
        } else {
            Err(format!(
                "source {index} of projected volume {:?} is of a kind that this agent does not know",
                self.volume.name
            ))
        }
    }

    fn downward(&self, index: usize) -> Result<Vec<VolumeFile>, String> {
        match self.inputs.downward.get(&(self.volume.name.clone(), index)) {
            Some(files) => files.clone(),
            None => Err("nobody computed its files".to_owned()),
        }
    }

    fn object(
        &self,
        kind: ObjectKind,
        name: &str,
        optional: bool,
        items: Option<&[KeyToPath]>,
        mode: i32,
    ) -> Result<Vec<VolumeFile>, String> {
        let key = ObjectKey::new(kind, pods::namespace(self.pod), name);
        let got = self.objects.object(&pods::pod_uid(self.pod), &key, Purpose::Mount, self.left());
        match got {
            Ok(data) => chosen(kind, &data, items.unwrap_or_default(), mode, optional),
            Err(ObjectError::NotFound { .. }) if optional => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

fn take(got: Result<Vec<VolumeFile>, String>, payload: &mut Payload, problems: &mut Vec<String>) {
    match got {
        Ok(files) => payload.extend(files.into_iter().map(|file| (file.path.clone(), file))),
        Err(problem) => problems.push(problem),
    }
}

/// The files that an object becomes: all its keys, or the chosen ones under the chosen paths.
fn chosen(
    kind: ObjectKind,
    data: &ObjectData,
    items: &[KeyToPath],
    mode: i32,
    optional: bool,
) -> Result<Vec<VolumeFile>, String> {
    let file = |path: &str, mode, bytes: &[u8]| VolumeFile {
        path: path.to_owned(),
        mode: bits(mode),
        owner: None,
        bytes: bytes.to_vec(),
    };
    if items.is_empty() {
        return Ok(data.iter().map(|(key, bytes)| file(key, mode, bytes)).collect());
    }
    let mut files = Vec::with_capacity(items.len());
    for item in items {
        match data.get(&item.key) {
            Some(bytes) => files.push(file(&item.path, item.mode.unwrap_or(mode), bytes)),
            None if optional => {}
            None => {
                return Err(match kind {
                    ObjectKind::ConfigMap => format!("configmap references non-existent config key: {}", item.key),
                    ObjectKind::Secret => format!("references non-existent secret key: {}", item.key),
                });
            }
        }
    }
    Ok(files)
}

fn bits(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(0) & 0o777
}

/// The user who shall own tokens: the one that all containers of the pod run as, where all say so.
fn fs_user(pod: &Pod) -> Option<u32> {
    let of_pod = pods::spec(pod).and_then(|s| s.security_context.as_ref()).and_then(|s| s.run_as_user);
    let mut users = pods::all_containers(pod)
        .map(|(_, container)| container.security_context.as_ref().and_then(|s| s.run_as_user).or(of_pod));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok()).flatten()
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
