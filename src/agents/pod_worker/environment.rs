//! Gathers what a container's environment draws on outside of the pod's spec: ConfigMaps, Secrets,
//! services, files of volumes. On a `pod-N` thread; a source that is slow holds up its own pod. It never
//! logs a value.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::run::Run;
use crate::api::pod as pods;
use crate::api::v1::Container;
use crate::core::spec::VolumeSource;
use crate::core::spec::env::{EnvSources, Lookup, files_wanted, objects_wanted};
use crate::host::error::explain;
use crate::host::files::{Missing, open_beneath};
use crate::volumes::objects::{ObjectData, ObjectError, ObjectKey, ObjectKind, Purpose};

/// How long the API server may take over one container's environment.
const WITHIN: Duration = Duration::from_secs(20);

/// Largest environment file that is read.
const FILE_LIMIT: u64 = 64 * 1024;

/// Everything that the container's variables need.
///
/// # Errors
/// The services are not known yet, in upstream's words.
pub(super) fn sources(
    run: &Run<'_>,
    container: &Container,
    volumes: &BTreeMap<String, VolumeSource>,
) -> Result<EnvSources, String> {
    let until = Instant::now() + WITHIN;
    let left = || until.saturating_duration_since(Instant::now());
    let (pod, objects) = (&run.work.pod, &run.tools.objects);
    let namespace = pods::namespace(pod);
    let mut sources = EnvSources::default();
    let links = pods::spec(pod).and_then(|spec| spec.enable_service_links).unwrap_or(true);
    sources.services = if pods::is_static(pod) {
        // A static pod does not wait for an API server: it sees the services that are known already.
        objects.service_variables(namespace, links, Duration::ZERO).unwrap_or_default()
    } else {
        objects.service_variables(namespace, links, left()).map_err(|e| e.to_string())?
    };
    let (config_maps, secrets) = objects_wanted(container);
    let look =
        |kind, name: &str| objects.object(&run.work.uid, &ObjectKey::new(kind, namespace, name), Purpose::Read, left());
    for name in config_maps {
        let found = look(ObjectKind::ConfigMap, name);
        keep(&mut sources.config_maps, name, found, |data| data.text.clone());
    }
    for name in secrets {
        let found = look(ObjectKind::Secret, name);
        keep(&mut sources.secrets, name, found, |data| data.bytes.clone());
    }
    for (volume, path) in files_wanted(container) {
        let found = match volumes.get(&volume) {
            Some(VolumeSource::Path { host_path, .. }) => read_file(Path::new(host_path), Path::new(&path)),
            Some(VolumeSource::Image(_)) | None => Lookup::Unavailable("it is not mounted on the node".to_owned()),
        };
        sources.files.insert((volume, path), found);
    }
    Ok(sources)
}

/// A node without an API server leaves the name out.
fn keep<T>(
    into: &mut BTreeMap<String, Lookup<T>>,
    name: &str,
    found: Result<std::sync::Arc<ObjectData>, ObjectError>,
    part: impl Fn(&ObjectData) -> T,
) {
    let found = match found {
        Ok(data) => Lookup::Found(part(&data)),
        Err(ObjectError::NotFound { .. }) => Lookup::Missing,
        Err(ObjectError::NoServer { .. }) => return,
        Err(error @ ObjectError::Unavailable { .. }) => Lookup::Unavailable(error.to_string()),
    };
    into.insert(name.to_owned(), found);
}

/// A file that a container may have written: it is not followed out of its volume.
fn read_file(volume: &Path, path: &Path) -> Lookup<String> {
    let opened = match open_beneath(volume, path, Missing::Refuse) {
        Ok(opened) if !opened.is_folder => opened,
        Ok(_) => return Lookup::Unavailable("it is no regular file".to_owned()),
        Err(error) if error.is_not_found() => return Lookup::Missing,
        Err(error) => return Lookup::Unavailable(explain(&error)),
    };
    // Opening a pipe would wait for somebody to write to it.
    if !std::fs::metadata(opened.path()).is_ok_and(|meta| meta.is_file()) {
        return Lookup::Unavailable("it is no regular file".to_owned());
    }
    let mut text = Vec::new();
    match std::fs::File::open(opened.path()).and_then(|file| file.take(FILE_LIMIT).read_to_end(&mut text)) {
        Ok(_) => Lookup::Found(String::from_utf8_lossy(&text).into_owned()),
        Err(error) => Lookup::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_files_are_read_inside_their_volume_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let volume = dir.path().join("v");
        std::fs::create_dir_all(volume.join("sub")).expect("folders");
        std::fs::write(volume.join("sub/env"), "K='v'\n").expect("a file");
        std::os::unix::fs::symlink("/etc/hostname", volume.join("out")).expect("a link");
        let read = |path: &str| read_file(&volume, Path::new(path));
        assert_eq!(read("sub/env"), Lookup::Found("K='v'\n".to_owned()));
        assert_eq!(read("none"), Lookup::Missing);
        assert_eq!(read("sub"), Lookup::Unavailable("it is no regular file".to_owned()));
        assert!(matches!(read("out"), Lookup::Unavailable(why) if why.contains("leads out")));
    }

    #[test]
    fn what_was_found_is_sorted_by_what_it_means() {
        let mut known = BTreeMap::new();
        let data = ObjectData { text: [("k".to_owned(), "v".to_owned())].into(), ..ObjectData::default() };
        let mut put = |name: &str, found| keep(&mut known, name, found, |data| data.text["k"].clone());
        put("there", Ok(data.into()));
        put("gone", Err(ObjectError::NotFound { kind: ObjectKind::ConfigMap, name: "gone".into() }));
        put("mute", Err(ObjectError::Unavailable { what: "it".into(), why: "no answer".into() }));
        put("alone", Err(ObjectError::NoServer { what: "it".into() }));
        let expect = [
            ("gone".to_owned(), Lookup::Missing),
            ("mute".to_owned(), Lookup::Unavailable("failed to get it: no answer".into())),
            ("there".to_owned(), Lookup::Found("v".to_owned())),
        ];
        assert_eq!(known, expect.into());
    }
}
