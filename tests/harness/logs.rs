//! Log files of containers on disk, whole or rotated.
//!
//! Used from the thread of one test; owns nothing.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use serde_json::Value;

/// Where the first container of a pod, as `ferrolet` tells it, writes to; `None` before it does.
pub(crate) fn path_of(pod: &Value) -> Option<PathBuf> {
    pod["containers"][0]["logPath"].as_str().filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// A file's content, unpacked if it is compressed.
pub(crate) fn read(path: &Path) -> String {
    let mut text = String::new();
    let mut file = File::open(path).expect("open a log");
    let read = if path.extension().is_some_and(|end| end == "gz") {
        GzDecoder::new(file).read_to_string(&mut text)
    } else {
        file.read_to_string(&mut text)
    };
    read.expect("read a log");
    text
}
