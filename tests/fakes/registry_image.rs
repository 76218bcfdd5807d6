//! Images as a registry holds them: a manifest, a config and layers, each under its digest.
//!
//! Made from one file, or read from a docker-archive tar of `tests/peers/images`. Plain functions; the
//! tar code knows as much of ustar as these two need.

use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const TAR_BLOCK: usize = 512;

/// One image.
#[derive(Clone, Debug)]
pub(crate) struct RegistryImage {
    pub(crate) manifest: Vec<u8>,
    /// Config first, then layers: digest and bytes.
    pub(crate) blobs: Vec<(String, Vec<u8>)>,
}

impl RegistryImage {
    /// An image of one layer with one executable file at `/NAME`, which it runs.
    pub(crate) fn of_program(name: &str, program: &[u8]) -> Self {
        let config = json!({"Entrypoint": [format!("/{name}")]});
        Self::of_layers(config, vec![tar_of(name, program)])
    }

    /// An image of layers (tar files) that is run with `config`.
    pub(crate) fn of_layers(config: Value, layers: Vec<Vec<u8>>) -> Self {
        let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let diff_ids: Vec<String> = layers.iter().map(|layer| digest(layer)).collect();
        let config = json!({
            "architecture": machine,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        Self::of_blobs(config.to_string().into_bytes(), layers)
    }

    /// The image in a docker-archive tar, and the name it goes by there.
    pub(crate) fn of_archive(path: &Path) -> (String, Self) {
        let bytes = std::fs::read(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        let files = untar(&bytes);
        let file = |name: &Value| {
            let name = name.as_str().expect("a name");
            let found = files.iter().find(|(other, _)| other == name);
            found.unwrap_or_else(|| panic!("{} has no {name}", path.display())).1.to_vec()
        };
        let index: Value = serde_json::from_slice(&file(&json!("manifest.json"))).expect("json");
        let image = &index[0];
        let layers = image["Layers"].as_array().expect("layers").iter().map(&file).collect();
        let name = image["RepoTags"][0].as_str().expect("a name").to_owned();
        (name, Self::of_blobs(file(&image["Config"]), layers))
    }

    fn of_blobs(config: Vec<u8>, layers: Vec<Vec<u8>>) -> Self {
        let describe = |media_type: &str, blob: &[u8]| json!({"mediaType": format!("application/vnd.oci.image.{media_type}"), "digest": digest(blob), "size": blob.len()});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": describe("config.v1+json", &config),
            "layers": layers.iter().map(|layer| describe("layer.v1.tar", layer)).collect::<Vec<_>>(),
        });
        let blobs = std::iter::once(config).chain(layers).map(|blob| (digest(&blob), blob)).collect();
        Self { manifest: manifest.to_string().into_bytes(), blobs }
    }

    /// The digest of its manifest, by which it can be pulled too.
    pub(crate) fn digest(&self) -> String {
        digest(&self.manifest)
    }

    /// The runtime's id of it: the digest of its config.
    pub(crate) fn id(&self) -> &str {
        &self.blobs[0].0
    }
}

/// Media type of the manifests.
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// `sha256:…`.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A tar file with one executable file.
fn tar_of(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0u8; TAR_BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    assert!(name.len() < 100, "a ustar name");
    put(0, name);
    put(100, "0000755");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", content.len()));
    put(136, "00000000000");
    // The checksum counts its own field as blanks.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut tar = [&header[..], content].concat();
    tar.resize(tar.len().next_multiple_of(TAR_BLOCK) + 2 * TAR_BLOCK, 0);
    tar
}

/// The regular files of a ustar file.
pub(crate) fn untar(tar: &[u8]) -> Vec<(String, &[u8])> {
    let mut files = Vec::new();
    let mut at = 0;
    while let Some(header) = tar.get(at..at + TAR_BLOCK).filter(|header| header[0] != 0) {
        let text = |from: usize, to: usize| {
            let field = &header[from..to];
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).trim().to_owned()
        };
        let size = usize::from_str_radix(&text(124, 136), 8).expect("an octal size");
        let (name, prefix) = (text(0, 100), text(345, 500));
        let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        at += TAR_BLOCK;
        if matches!(header[156], b'0' | 0) {
            files.push((name, &tar[at..at + size]));
        }
        at += size.next_multiple_of(TAR_BLOCK);
    }
    files
}
