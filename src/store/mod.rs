//! The on-disk records that survive the agent's death and a power cut: one file a pod.
//!
//! Opened once at start, then owned by the `store` thread (`agents::store`). Owns
//! `<root-dir>/ferrolet/pods/`, mode 0700, files 0600, and a checksum of what each file holds, so that
//! an unchanged record costs no write. It never stops the start: what cannot be read is set aside and
//! told. It decides nothing about pods.

mod format;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

pub use format::{FormatError, MAX_RECORD_BYTES};

use crate::api::PodUid;
use crate::api::record::PodRecord;
use crate::util::fs::{self, FsError};
use crate::util::order;

/// Ending of a record file.
const EXTENSION: &str = ".json";

/// Ending of a file that was set aside.
const SET_ASIDE_EXTENSION: &str = ".corrupt";

/// How many files set aside are kept for people to look at; older ones are removed.
const MAX_SET_ASIDE: usize = 16;

/// How many records are read at start; far above any node's pods, it bounds the memory.
const MAX_RECORDS: usize = 4096;

/// A record could not be written or removed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk.
    #[error("cannot keep the record of pod {uid}")]
    Disk {
        /// Which pod.
        uid: PodUid,
        /// Why.
        source: FsError,
    },
    /// Renames could not be made safe against a power cut.
    #[error("cannot make the newest records safe against a power cut")]
    Sync {
        /// Why.
        source: FsError,
    },
    /// The record is too large or cannot be written as JSON; trying again does not help.
    #[error(
        "the record of pod {uid} cannot be kept: {why}; the pod runs, but a restart of ferrolet forgets its back-off"
    )]
    Unfit {
        /// Which pod.
        uid: PodUid,
        /// What is wrong with it.
        why: String,
    },
}

impl StoreError {
    /// Whether the same operation may succeed later.
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::Unfit { .. })
    }
}

/// A file that could not be used.
#[derive(Debug)]
pub struct SetAside {
    /// Where it was.
    pub path: PathBuf,
    /// Where it is now; `None` if it could not be moved and stays.
    pub moved_to: Option<PathBuf>,
    /// What is wrong with it.
    pub why: String,
}

/// What was on disk.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The records, by uid.
    pub records: Vec<PodRecord>,
    /// Files that could not be used.
    pub set_aside: Vec<SetAside>,
    /// Set when the folder itself could not be made or listed: the agent starts without memory, and
    /// the store tries again with every record.
    pub problem: Option<FsError>,
}

/// What [`Store::put`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The file was replaced; call [`Store::sync`] at the end of the batch.
    Written,
    /// The file holds this record already.
    Unchanged,
}

/// The records' folder.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    /// Checksum by file name, of the files known to hold a whole record.
    written: BTreeMap<String, format::Checksum>,
    unsynced: bool,
}

impl Store {
    /// Opens the records under `dir` (`<root-dir>/ferrolet`) and reads them all.
    pub fn open(dir: &Path) -> (Self, Loaded) {
        let mut store = Self { folder: dir.join("pods"), written: BTreeMap::new(), unsynced: false };
        let mut loaded = Loaded::default();
        // On a disk that went read-only the folder cannot be made right, and what it holds still counts.
        let made = store.make_folder();
        let read = store.load(&mut loaded);
        loaded.problem = made.err().or(read.err());
        (store, loaded)
    }

    /// Writes a record, unless the file holds it already. It is safe against the agent's death at
    /// once, and against a power cut after [`Store::sync`].
    ///
    /// # Errors
    /// [`StoreError::Disk`] leaves the old record whole; [`StoreError::Unfit`] will not pass.
    pub fn put(&mut self, record: &PodRecord) -> Result<Put, StoreError> {
        let uid = &record.uid;
        let unfit = |why: String| StoreError::Unfit { uid: uid.clone(), why };
        let (bytes, checksum) = format::encode(record).map_err(|err| unfit(err.to_string()))?;
        if bytes.len() as u64 > MAX_RECORD_BYTES {
            return Err(unfit(format!("it has {} bytes, at most {MAX_RECORD_BYTES} fit", bytes.len())));
        }
        let name = file_name(uid);
        if self.written.get(&name) == Some(&checksum) {
            return Ok(Put::Unchanged);
        }
        let path = self.folder.join(&name);
        let mut outcome = fs::replace(&path, &bytes, 0o600);
        if outcome.as_ref().is_err_and(FsError::is_not_found) {
            // Somebody took the folder away, or it could not be made at start.
            outcome = self.make_folder().and_then(|()| fs::replace(&path, &bytes, 0o600));
        }
        outcome.map_err(|source| StoreError::Disk { uid: uid.clone(), source })?;
        self.written.insert(name, checksum);
        self.unsynced = true;
        Ok(Put::Written)
    }

    /// Removes a pod's record; whether there was one.
    ///
    /// # Errors
    /// It is there and cannot be removed.
    pub fn remove(&mut self, uid: &PodUid) -> Result<bool, StoreError> {
        let name = file_name(uid);
        // Every file is known since the start, so that a read-only disk is asked about real ones only.
        if !self.written.contains_key(&name) {
            return Ok(false);
        }
        let removed = fs::remove_if_exists(&self.folder.join(&name))
            .map_err(|source| StoreError::Disk { uid: uid.clone(), source })?;
        self.written.remove(&name);
        self.unsynced |= removed;
        Ok(removed)
    }

    /// Makes everything written and removed since the last call safe against a power cut. Costs
    /// nothing when nothing was.
    ///
    /// # Errors
    /// The folder cannot be synced.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        if self.unsynced {
            fs::sync_folder(&self.folder).map_err(|source| StoreError::Sync { source })?;
            self.unsynced = false;
        }
        Ok(())
    }

    fn make_folder(&self) -> Result<(), FsError> {
        if let Some(above) = self.folder.parent() {
            fs::create_dir_all(above, 0o700)?;
        }
        fs::create_dir_all(&self.folder, 0o700)?;
        self.folder.parent().map_or(Ok(()), fs::sync_folder)
    }

    fn load(&mut self, loaded: &mut Loaded) -> Result<(), FsError> {
        fs::remove_temporaries(&self.folder)?;
        let mut names = Vec::new();
        for entry in fs::list(&self.folder)? {
            match entry.to_str() {
                Some(name) if name.ends_with(SET_ASIDE_EXTENSION) => {}
                Some(name) => names.push(name.to_owned()),
                None => {
                    let at = self.folder.join(entry);
                    loaded.set_aside.push(SetAside { path: at, moved_to: None, why: "its name is not UTF-8".into() });
                }
            }
        }
        order::sort(&mut names);
        for name in names {
            let path = self.folder.join(&name);
            if loaded.records.len() == MAX_RECORDS {
                let why = format!("more than {MAX_RECORDS} records");
                loaded.set_aside.push(SetAside { path, moved_to: None, why });
                break;
            }
            match read(&path, &name) {
                Ok((record, checksum)) => {
                    self.written.insert(name, checksum);
                    loaded.records.push(record);
                }
                Err(why) => loaded.set_aside.push(self.set_aside(path, &name, why)),
            }
        }
        self.trim_set_aside();
        Ok(())
    }

    fn set_aside(&self, path: PathBuf, name: &str, why: String) -> SetAside {
        let target = (0..u32::MAX)
            .map(|n| self.folder.join(format!("{name}.{n}{SET_ASIDE_EXTENSION}")))
            .find(|target| target.symlink_metadata().is_err());
        let moved_to = target.filter(|target| fs::rename(&path, target).is_ok());
        SetAside { path, moved_to, why }
    }

    /// Removes the oldest files set aside beyond [`MAX_SET_ASIDE`]. Best effort: they harm nobody.
    fn trim_set_aside(&self) {
        let Ok(entries) = fs::list(&self.folder) else { return };
        let mut aside: Vec<(SystemTime, PathBuf)> = entries
            .into_iter()
            .filter(|name| name.to_str().is_some_and(|name| name.ends_with(SET_ASIDE_EXTENSION)))
            .filter_map(|name| {
                let path = self.folder.join(name);
                let meta = path.symlink_metadata().ok()?;
                Some((meta.modified().ok()?, path))
            })
            .collect();
        order::sort(&mut aside);
        let extra = aside.len().saturating_sub(MAX_SET_ASIDE);
        for (_, path) in aside.into_iter().take(extra) {
            let _ = if path.is_dir() && !path.is_symlink() {
                std::fs::remove_dir(&path)
            } else {
                std::fs::remove_file(&path)
            };
        }
    }
}

fn read(path: &Path, name: &str) -> Result<(PodRecord, format::Checksum), String> {
    let bytes = fs::read_bounded(path, MAX_RECORD_BYTES).map_err(|err| match std::error::Error::source(&err) {
        Some(source) => format!("{err}: {source}"),
        None => err.to_string(),
    })?;
    let (record, checksum) = format::decode(&bytes).map_err(|err| err.to_string())?;
    if file_name(&record.uid) != name {
        return Err(FormatError::Misnamed(record.uid.to_string()).to_string());
    }
    Ok((record, checksum))
}

/// The file for a uid. Uids come from outside: one that is no plain file name is hashed, so that none
/// can point out of the folder.
fn file_name(uid: &PodUid) -> String {
    let text = uid.as_str();
    let is_plain =
        (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_plain {
        format!("{text}{EXTENSION}")
    } else {
        format!("uid_{}{EXTENSION}", format::hex(&Sha256::digest(text)))
    }
}
