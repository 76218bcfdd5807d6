//! Holds the registry that tests pull from against the distribution protocol, over plain TCP.
//!
//! The registry is the other end of real pulls by a real runtime; a fault that it does not really
//! inject would make those tests pass for nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use expect_test::{Expect, expect};

use crate::fakes::registry::{Fault, Registry};
use crate::fakes::registry_image::{RegistryImage, digest, untar};

const LONG: Duration = Duration::from_secs(60);

fn open(registry: &Registry, request: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(registry.address()).expect("it listens");
    stream.set_read_timeout(Some(LONG)).expect("set");
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\n{headers}\r\n").expect("sent");
    stream
}

/// Status line, chosen headers and body of one request.
fn ask(registry: &Registry, request: &str, headers: &str) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    open(registry, request, headers).read_to_end(&mut bytes).expect("answered");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
    (head, bytes[end + 4..].to_vec())
}

/// One line about an answer: status, length promised, bytes that came; for a refusal its code.
fn line(registry: &Registry, request: &str, headers: &str) -> String {
    let (head, body) = ask(registry, request, headers);
    let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
    if let Ok(refusal) = serde_json::from_slice::<serde_json::Value>(&body)
        && let Some(code) = refusal["errors"][0]["code"].as_str()
    {
        return format!("{status} {code}");
    }
    let promised = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap_or("?");
    format!("{status} {promised}/{}", body.len())
}

fn with_image() -> (Registry, RegistryImage) {
    let registry = Registry::start();
    let image = RegistryImage::of_program("run", &[7; 5000]);
    registry.add("me/tool", "1", &image);
    (registry, image)
}

fn layer(image: &RegistryImage) -> String {
    format!("GET /v2/me/tool/blobs/{}", image.blobs[1].0)
}

#[test]
fn an_image_can_be_fetched_whole_by_tag_and_by_digest() {
    let (registry, image) = with_image();
    assert_eq!(registry.reference("me/tool:1"), format!("{}/me/tool:1", registry.address()));
    for reference in ["1", &image.digest()] {
        let (head, manifest) = ask(&registry, &format!("GET /v2/me/tool/manifests/{reference}"), "");
        assert!(head.contains(&format!("Docker-Content-Digest: {}", digest(&manifest))), "{head}");
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("json");
        assert_eq!(manifest["config"]["digest"], image.id());
        for part in [&manifest["config"], &manifest["layers"][0]] {
            let wanted = part["digest"].as_str().expect("a digest");
            let (_, blob) = ask(&registry, &format!("GET /v2/me/tool/blobs/{wanted}"), "");
            assert_eq!(digest(&blob), wanted);
            assert_eq!(part["size"], blob.len());
        }
    }
    let (_, blob) = ask(&registry, &layer(&image), "");
    assert_eq!(untar(&blob), [("run".to_owned(), &[7u8; 5000][..])]);
}

#[test]
fn requests_are_recorded_in_order() {
    let (registry, _) = with_image();
    for request in ["GET /v2/", "HEAD /v2/me/tool/manifests/1", "GET /v2/me/tool/manifests/2"] {
        ask(&registry, request, "");
    }
    assert_eq!(registry.requests(), ["GET /v2/", "HEAD /v2/me/tool/manifests/1", "GET /v2/me/tool/manifests/2"]);
    assert!(registry.saw("manifests/2", LONG));
    assert!(!registry.saw("blobs", Duration::ZERO));
}

#[test]
fn answers_follow_the_protocol() {
    fn check(request: &str, headers: &str, expect: &str) {
        let (registry, image) = with_image();
        let request = request.replace("LAYER", &image.blobs[1].0);
        assert_eq!(line(&registry, &request, headers), expect, "{request}");
    }
    check("GET /v2/", "", "200 0/0");
    check("GET /v2/me/tool/blobs/LAYER", "", "200 6656/6656");
    check("HEAD /v2/me/tool/blobs/LAYER", "", "200 6656/0");
    check("GET /v2/me/tool/blobs/LAYER?ns=docker.io", "", "200 6656/6656");
    check("GET /v2/me/tool/blobs/LAYER", "Range: bytes=6000-\r\n", "206 656/656");
    check("GET /v2/me/tool/blobs/sha256:00", "", "404 BLOB_UNKNOWN");
    check("GET /v2/me/tool/manifests/2", "", "404 MANIFEST_UNKNOWN");
    check("GET /else", "", "404 UNKNOWN");
    check("PUT /v2/me/tool/manifests/1", "", "405 UNSUPPORTED");
}

#[test]
fn refusals_are_those_of_real_registries() {
    fn check(fault: Fault, headers: &str, expect: Expect) {
        let (registry, _) = with_image();
        registry.set_fault(fault);
        let (head, body) = ask(&registry, "GET /v2/me/tool/manifests/1", headers);
        let head: Vec<_> = head.lines().filter(|line| !line.starts_with("Docker-")).collect();
        let body = String::from_utf8_lossy(&body);
        let body = if body.len() > 100 { "the manifest" } else { &*body };
        expect.assert_eq(&format!("{}\n{body}", head.join("\n")));
    }
    check(
        Fault::Status(401),
        "",
        expect![[r#"
            HTTP/1.1 401 Unauthorized
            Content-Length: 72
            Connection: close
            Content-Type: application/json
            WWW-Authenticate: Basic realm="registry"
            {"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#]],
    );
    check(
        Fault::Status(404),
        "",
        expect![[r#"
            HTTP/1.1 404 Not Found
            Content-Length: 69
            Connection: close
            Content-Type: application/json
            {"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#]],
    );
    check(
        Fault::Status(429),
        "",
        expect![[r#"
            HTTP/1.1 429 Too Many Requests
            Content-Length: 89
            Connection: close
            Content-Type: application/json
            Retry-After: 1
            {"errors":[{"code":"TOOMANYREQUESTS","message":"you have reached your pull rate limit"}]}"#]],
    );
    check(
        Fault::Status(500),
        "",
        expect![[r#"
            HTTP/1.1 500 Internal Server Error
            Content-Length: 59
            Connection: close
            Content-Type: application/json
            {"errors":[{"code":"UNKNOWN","message":"something broke"}]}"#]],
    );
    check(
        Fault::WrongManifests,
        "",
        expect![[r#"
            HTTP/1.1 200 OK
            Content-Length: 7
            Connection: close
            Content-Type: application/vnd.oci.image.manifest.v1+json
            no json"#]],
    );
    check(
        Fault::Login("ann", "secret"),
        "",
        expect![[r#"
            HTTP/1.1 401 Unauthorized
            Content-Length: 72
            Connection: close
            Content-Type: application/json
            WWW-Authenticate: Basic realm="registry"
            {"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#]],
    );
    check(
        Fault::Login("ann", "secret"),
        "Authorization: Basic YW5uOnNlY3JldA==\r\n",
        expect![[r#"
            HTTP/1.1 200 OK
            Content-Length: 397
            Connection: close
            Content-Type: application/vnd.oci.image.manifest.v1+json
            the manifest"#]],
    );
}

#[test]
fn blobs_are_cut_or_spoilt() {
    let (registry, image) = with_image();
    registry.set_fault(Fault::CutBlobs(100));
    assert_eq!(line(&registry, &layer(&image), ""), "200 6656/100");
    registry.set_fault(Fault::WrongBlobs);
    let (_, blob) = ask(&registry, &layer(&image), "");
    assert_eq!(blob.len(), image.blobs[1].1.len());
    assert_ne!(digest(&blob), image.blobs[1].0);
    registry.set_fault(Fault::None);
    assert_eq!(ask(&registry, &layer(&image), "").1, image.blobs[1].1);
}

/// Reads at least so many bytes, then until nothing comes for a moment; how many came.
fn comes_without_end(stream: &mut TcpStream, at_least: usize) -> usize {
    let mut bytes = vec![0; at_least];
    stream.read_exact(&mut bytes).expect("so much comes");
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
    let err = stream.read_to_end(&mut bytes).expect_err("it must not end");
    assert!(matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{err}");
    stream.set_read_timeout(Some(LONG)).expect("set");
    bytes.len()
}

#[test]
fn a_hanging_registry_answers_once_the_fault_is_gone() {
    let (registry, image) = with_image();
    registry.set_fault(Fault::Hang);
    let mut stream = open(&registry, &layer(&image), "");
    assert!(registry.saw("blobs", LONG));
    assert_eq!(comes_without_end(&mut stream, 0), 0);
    registry.set_fault(Fault::None);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("answered");
    assert!(bytes.ends_with(&image.blobs[1].1));
}

#[test]
fn a_hanging_blob_stops_in_the_middle() {
    let (registry, image) = with_image();
    registry.set_fault(Fault::HangBlobs(1000));
    let mut stream = open(&registry, &layer(&image), "");
    let came = comes_without_end(&mut stream, 1000);
    assert!((1000..2000).contains(&came), "{came} bytes with the head");
    assert_eq!(line(&registry, "GET /v2/me/tool/manifests/1", ""), {
        let length = image.manifest.len();
        format!("200 {length}/{length}")
    });
    registry.set_fault(Fault::None);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    assert!(rest.len() < 6000 && image.blobs[1].1.ends_with(&rest));
}

#[test]
fn a_slow_blob_takes_its_time() {
    let (registry, image) = with_image();
    registry.set_fault(Fault::SlowBlobs(1000, Duration::from_millis(10)));
    let started = Instant::now();
    assert_eq!(line(&registry, &layer(&image), ""), "200 6656/6656");
    assert!(started.elapsed() >= Duration::from_millis(60), "six pauses");
}

#[test]
fn it_ends_with_requests_that_hang() {
    let (registry, image) = with_image();
    registry.set_fault(Fault::Hang);
    let mut stream = open(&registry, &layer(&image), "");
    assert!(registry.saw("blobs", LONG));
    drop(registry);
    let mut bytes = Vec::new();
    // Closed, with or without a reset.
    let _ = stream.read_to_end(&mut bytes);
    assert!(bytes.is_empty());
}

#[test]
fn a_runtime_is_pointed_at_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let registry = Registry::start();
    registry.write_hosts(dir.path(), "docker.io").expect("written");
    let text = std::fs::read_to_string(dir.path().join("docker.io/hosts.toml")).expect("there");
    expect![[r#"
        server = "http://ADDRESS"

        [host."http://ADDRESS"]
          capabilities = ["pull", "resolve"]
    "#]]
    .assert_eq(&text.replace(&registry.address(), "ADDRESS"));
}

#[test]
fn a_docker_archive_becomes_an_image() {
    let dir = tempfile::tempdir().expect("a folder");
    let made = RegistryImage::of_program("run", b"program");
    let (config, layer) = (&made.blobs[0].1, &made.blobs[1].1);
    std::fs::create_dir(dir.path().join("l1")).expect("made");
    std::fs::write(dir.path().join("c.json"), config).expect("written");
    std::fs::write(dir.path().join("l1/layer.tar"), layer).expect("written");
    let manifest = r#"[{"Config":"c.json","RepoTags":["docker.io/me/tool:1"],"Layers":["l1/layer.tar"]}]"#;
    std::fs::write(dir.path().join("manifest.json"), manifest).expect("written");
    let tar = std::process::Command::new("tar")
        .args(["--format=ustar", "-cf", "image.tar", "c.json", "l1", "manifest.json"])
        .current_dir(dir.path())
        .status()
        .expect("tar");
    assert!(tar.success());
    let (name, read) = RegistryImage::of_archive(&dir.path().join("image.tar"));
    assert_eq!(name, "docker.io/me/tool:1");
    assert_eq!((read.digest(), read.blobs), (made.digest(), made.blobs));
}
