//! Image references as registries and runtimes read them: `[domain/]path[:tag][@digest]`.
//!
//! Layer L1, pure. It accepts and refuses what the distribution project's reference grammar does, in
//! its words, because they reach users as the message of `InvalidImageName`.

use crate::util::text::quote;

/// Where images without a domain come from.
const DEFAULT_DOMAIN: &str = "docker.io";

/// An old name for it.
const LEGACY_DEFAULT_DOMAIN: &str = "index.docker.io";

/// Longest path of a repository, in bytes.
const MAX_PATH_BYTES: usize = 255;

/// A reference in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    /// Domain and path: `docker.io/library/busybox`. Credentials are looked up by it.
    pub repository: String,
    /// Tag; `latest` where neither tag nor digest was written.
    pub tag: Option<String>,
    /// Digest with its algorithm: `sha256:…`.
    pub digest: Option<String>,
}

/// The text is no image reference. Prints the explanation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("couldn't parse image name {}: {why}", quote(image))]
pub struct InvalidReference {
    /// What was written.
    pub image: String,
    /// What is wrong with it.
    pub why: String,
}

/// Reads a reference and completes it.
///
/// # Errors
/// It is none.
pub fn parse(image: &str) -> Result<ImageReference, InvalidReference> {
    let mut reference = normalise(image).map_err(|why| InvalidReference { image: image.to_owned(), why })?;
    if reference.tag.is_none() && reference.digest.is_none() {
        reference.tag = Some("latest".to_owned());
    }
    Ok(reference)
}

/// The reference as it is given to the runtime: as written, with `:latest` behind it if it has neither
/// tag nor digest. A short name stays short: what it means is the runtime's business.
///
/// # Errors
/// It is no reference.
pub fn with_default_tag(image: &str) -> Result<String, InvalidReference> {
    let reference = parse(image)?;
    match (&reference.tag, &reference.digest) {
        (Some(tag), None) if !image.ends_with(&format!(":{tag}")) => Ok(format!("{image}:{tag}")),
        _ => Ok(image.to_owned()),
    }
}

fn normalise(image: &str) -> Result<ImageReference, String> {
    if image.len() == 64 && image.bytes().all(|byte| matches!(byte, b'a'..=b'f' | b'0'..=b'9')) {
        return Err(format!("invalid repository name ({image}), cannot specify 64-byte hexadecimal strings"));
    }
    let (domain, remainder) = split_domain(image);
    let path = remainder.split(':').next().unwrap_or_default();
    if path.chars().any(|c| c.to_lowercase().ne([c])) {
        return Err(format!("invalid reference format: repository name ({path}) must be lowercase"));
    }
    let full = format!("{domain}/{remainder}");
    let Some(parts) = split(&full) else {
        let lower = full.to_lowercase();
        let why =
            if split(&lower).is_some() { "repository name must be lowercase" } else { "invalid reference format" };
        return Err(why.to_owned());
    };
    if parts.path.len() > MAX_PATH_BYTES {
        return Err(format!("repository name must not be more than {MAX_PATH_BYTES} characters"));
    }
    if let Some(digest) = parts.digest {
        check_digest(digest)?;
    }
    Ok(ImageReference {
        repository: parts.repository.to_owned(),
        tag: parts.tag.map(str::to_owned),
        digest: parts.digest.map(str::to_owned),
    })
}

/// Tells the domain from the rest, completing names of Docker Hub.
fn split_domain(image: &str) -> (&str, String) {
    let (domain, remainder) = match image.split_once('/') {
        None => (DEFAULT_DOMAIN, image),
        Some((LEGACY_DEFAULT_DOMAIN, rest)) => (DEFAULT_DOMAIN, rest),
        Some((first, rest)) => {
            let is_domain =
                first == "localhost" || first.contains(['.', ':']) || first.chars().any(|c| c.to_lowercase().ne([c]));
            if is_domain { (first, rest) } else { (DEFAULT_DOMAIN, image) }
        }
    };
    if domain == DEFAULT_DOMAIN && !remainder.contains('/') {
        return (domain, format!("library/{remainder}"));
    }
    (domain, remainder.to_owned())
}

struct Parts<'a> {
    repository: &'a str,
    path: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

/// The parts of a full reference, if it follows the grammar.
fn split(full: &str) -> Option<Parts<'_>> {
    let (rest, digest) = match full.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (full, None),
    };
    // A colon before the last slash belongs to the domain's port.
    let last = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match rest[last..].find(':') {
        Some(colon) => (&rest[..last + colon], Some(&rest[last + colon + 1..])),
        None => (rest, None),
    };
    let path = match repository.split_once('/') {
        Some((domain, path)) if is_domain(domain) => path,
        // A domain-like first part with an underscore is a part of the path.
        _ => repository,
    };
    let fits = path.split('/').all(is_path_component) && tag.is_none_or(is_tag) && digest.is_none_or(looks_like_digest);
    fits.then_some(Parts { repository, path, tag, digest })
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rfind(':') {
        Some(colon) if !text.ends_with(']') => (&text[..colon], Some(&text[colon + 1..])),
        _ => (text, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':'),
        None => host.split('.').all(is_domain_component),
    };
    is_host && port.is_none_or(is_port)
}

fn is_domain_component(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Lower-case letters and digits, joined by one dot, one or two underscores or any dashes.
fn is_path_component(text: &str) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends_in_words = bytes.first().is_some_and(is_word) && bytes.last().is_some_and(is_word);
    ends_in_words
        && bytes.split(is_word).all(|joint| match joint {
            [] | b"." | b"_" | b"__" => true,
            joint => joint.iter().all(|byte| *byte == b'-'),
        })
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&text.len())
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn looks_like_digest(text: &str) -> bool {
    let Some((algorithm, digits)) = text.split_once(':') else { return false };
    let is_name = |part: &str| {
        part.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_name)
        && digits.len() >= 32
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Algorithms that registries use, their length and their lower case.
fn check_digest(digest: &str) -> Result<(), String> {
    let (algorithm, digits) = digest.split_once(':').unwrap_or_default();
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err("unsupported digest algorithm".to_owned()),
    };
    if digits.len() != length {
        return Err("invalid checksum digest length".to_owned());
    }
    if digits.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("invalid checksum digest format".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a text means, in one line.
    fn print(image: &str) -> String {
        match parse(image) {
            Ok(ImageReference { repository, tag, digest }) => {
                let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
                let digest = digest.map(|digest| format!("@{digest}")).unwrap_or_default();
                format!("{repository}{tag}{digest}")
            }
            Err(err) => format!("! {}", err.why),
        }
    }

    fn check(image: &str, expect: &str) {
        assert_eq!(print(image), expect, "{image:?}");
    }

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn references_are_completed() {
        check("busybox", "docker.io/library/busybox:latest");
        check("busybox:1.36", "docker.io/library/busybox:1.36");
        check("me/tool", "docker.io/me/tool:latest");
        check("docker.io/busybox", "docker.io/library/busybox:latest");
        check("index.docker.io/me/tool:v1", "docker.io/me/tool:v1");
        check("localhost/tool", "localhost/tool:latest");
        check("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10");
        check("127.0.0.1:5999/none:1", "127.0.0.1:5999/none:1");
        check("[fc00::1]:5000/a/b", "[fc00::1]:5000/a/b:latest");
        check("[fc00::1]/a", "[fc00::1]/a:latest");
        check("Upper/tool", "Upper/tool:latest");
        check("foo_bar.com/tool:8080", "foo_bar.com/tool:8080");
        check("a__b/c-----d/e.f_g", "docker.io/a__b/c-----d/e.f_g:latest");
        check(&format!("busybox@{DIGEST}"), &format!("docker.io/library/busybox@{DIGEST}"));
        check(&format!("x.io/a:v1@{DIGEST}"), &format!("x.io/a:v1@{DIGEST}"));
        check(&"a".repeat(63), &format!("docker.io/library/{}:latest", "a".repeat(63)));
        check(&format!("x.io/{}", "a".repeat(64)), &format!("x.io/{}:latest", "a".repeat(64)));
    }

    #[test]
    fn what_is_no_reference_is_refused_in_known_words() {
        check("", "! invalid reference format");
        check("Bad Name:1", "! invalid reference format: repository name (library/Bad Name) must be lowercase");
        check("me/Tool", "! invalid reference format: repository name (me/Tool) must be lowercase");
        check("foo_BAR.com/tool", "! repository name must be lowercase");
        check(
            &"a1".repeat(32),
            &format!("! invalid repository name ({}), cannot specify 64-byte hexadecimal strings", "a1".repeat(32)),
        );
        check(&format!("x.io/{}", "a".repeat(256)), "! repository name must not be more than 255 characters");
        for image in [
            "https://x.io/a",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "a._b",
            "a//b",
            "/a",
            "a/",
            "x.io/",
            "a:",
            "a:-x",
            "a:x:y",
            "a b",
            "a\n",
            "[fc00::1]",
            "[fe80::1%eth0]:5000/a",
            "fc00::1:5000/a",
            "x.io:port/a",
            "-x.io/a",
            "a@sha256:abc",
            "a@@",
            "é",
        ] {
            check(image, "! invalid reference format");
        }
        check(&format!("a:{}", "t".repeat(129)), "! invalid reference format");
        check(&format!("a@md5:{}", "a".repeat(32)), "! unsupported digest algorithm");
        check(&format!("a@sha256:{}", "a".repeat(63)), "! invalid checksum digest length");
        check(&format!("a@sha256:{}", "A".repeat(64)), "! invalid checksum digest format");
    }

    #[test]
    fn the_runtime_gets_what_was_written_and_a_tag() {
        fn check(image: &str, expect: &str) {
            assert_eq!(with_default_tag(image).expect("a reference"), expect);
        }
        check("root", "root:latest");
        check("root:tag", "root:tag");
        check("root:latest", "root:latest");
        check("x.io:5000/root", "x.io:5000/root:latest");
        check(&format!("root@{DIGEST}"), &format!("root@{DIGEST}"));
        check(&format!("root:latest@{DIGEST}"), &format!("root:latest@{DIGEST}"));
        assert_eq!(
            with_default_tag("Bad Name:1").expect_err("none").to_string(),
            "couldn't parse image name \"Bad Name:1\": invalid reference format: repository name (library/Bad Name) must be lowercase"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic_and_what_is_accepted_reads_back(
            image in prop_oneof![".{0,40}", "[a-zA-Z0-9._:/@\\[\\]-]{0,30}"],
        ) {
            if let Ok(reference) = parse(&image) {
                let full = print(&image);
                prop_assert_eq!(parse(&full), Ok(reference), "{} as {}", image, full);
            }
        }
    }
}
