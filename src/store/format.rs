//! The bytes of a record file: a header line that says what follows and proves it whole, then JSON.
//!
//! Pure, used by the `store` thread and once at start. A file that was cut, grown or changed in any
//! byte is refused; it never yields a record that nobody wrote.

use sha2::{Digest, Sha256};

use crate::api::record::{PodRecord, RECORD_VERSION};
use crate::util::json;

/// First word of every record file.
const MAGIC: &str = "ferrolet-record";

/// Version of the header and of the way the body is written. The record carries its own.
const FORMAT_VERSION: u32 = 1;

/// Largest record file that is written or read: a pod of the largest manifest accepted (10 MiB) and
/// room for its JSON form.
pub const MAX_RECORD_BYTES: u64 = 16 * 1024 * 1024;

/// Why a file is no record. The text stands after the file's path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// No header line of ours.
    #[error("it does not begin as a record of ferrolet")]
    Foreign,
    /// Written by a newer agent.
    #[error("it has version {found}, this ferrolet reads up to version {known}: a newer ferrolet wrote it")]
    Newer {
        /// Version in the file.
        found: u32,
        /// Version that we know.
        known: u32,
    },
    /// The body has another length than the header says: a torn write.
    #[error("it is cut: {found} of {expected} bytes are there")]
    Cut {
        /// Bytes there.
        found: usize,
        /// Bytes that the header promises.
        expected: usize,
    },
    /// Right length, other bytes.
    #[error("its checksum does not match: the disk or somebody changed it")]
    Changed,
    /// Whole, and yet no record.
    #[error("it is whole but cannot be read: {0}")]
    Unreadable(String),
    /// The file belongs to another pod.
    #[error("it holds the record of pod {0}, whose file has another name")]
    Misnamed(String),
}

/// A sha256 over the body.
pub(super) type Checksum = [u8; 32];

/// The file's bytes for a record, and the checksum of its body.
pub(super) fn encode(record: &PodRecord) -> Result<(Vec<u8>, Checksum), serde_json::Error> {
    let body = serde_json::to_vec(record)?;
    let checksum: Checksum = Sha256::digest(&body).into();
    let mut bytes = format!("{MAGIC} {FORMAT_VERSION} sha256={} bytes={}\n", hex(&checksum), body.len()).into_bytes();
    bytes.extend_from_slice(&body);
    Ok((bytes, checksum))
}

/// The record in a file's bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<(PodRecord, Checksum), FormatError> {
    let end = bytes.iter().take(200).position(|byte| *byte == b'\n').ok_or(FormatError::Foreign)?;
    let (header, body) = (&bytes[..end], &bytes[end + 1..]);
    let header = std::str::from_utf8(header).map_err(|_| FormatError::Foreign)?;
    let mut words = header.split(' ');
    if words.next() != Some(MAGIC) {
        return Err(FormatError::Foreign);
    }
    let version: u32 = words.next().and_then(|word| word.parse().ok()).ok_or(FormatError::Foreign)?;
    if version > FORMAT_VERSION {
        return Err(FormatError::Newer { found: version, known: FORMAT_VERSION });
    }
    let promised = words.next().and_then(|word| word.strip_prefix("sha256=")).ok_or(FormatError::Foreign)?;
    let expected: usize =
        words.next().and_then(|word| word.strip_prefix("bytes=")?.parse().ok()).ok_or(FormatError::Foreign)?;
    if words.next().is_some() {
        return Err(FormatError::Foreign);
    }
    if body.len() < expected {
        return Err(FormatError::Cut { found: body.len(), expected });
    }
    let checksum: Checksum = Sha256::digest(body).into();
    if body.len() > expected || promised != hex(&checksum) {
        return Err(FormatError::Changed);
    }
    // The record's own version comes first: fields of a newer one may not fit our types.
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u32,
    }
    let unreadable = FormatError::Unreadable;
    let value: serde_json::Value = serde_json::from_slice(body).map_err(|error| unreadable(error.to_string()))?;
    let versioned: Versioned = json::from_value(&value).map_err(|mistake| unreadable(mistake.to_string()))?;
    if versioned.version > RECORD_VERSION {
        return Err(FormatError::Newer { found: versioned.version, known: RECORD_VERSION });
    }
    let record = json::from_value(&value).map_err(|mistake| unreadable(mistake.to_string()))?;
    Ok((record, checksum))
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}
