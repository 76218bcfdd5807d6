//! Generates the CRI messages and call descriptions from proto/ into `OUT_DIR`.
//!
//! Runs at build time only, without protoc. `cri_v1.rs` holds the messages (protobuf-codegen, lite:
//! no reflection), `cri_v1_stubs.rs` one `grpcio::Method` constant per rpc, grouped by service.
//! It never writes outside `OUT_DIR`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use protobuf_codegen::{Codegen, Customize};

const PROTO_FOLDER: &str = "proto";
const CRI: &str = "proto/cri_v1.proto";

fn main() {
    println!("cargo:rerun-if-changed={PROTO_FOLDER}");
    println!("cargo:rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);

    // Ordered maps, because the port hands labels and annotations on without copying them.
    let customize = Customize::default().lite_runtime(true).gen_mod_rs(false).btreemaps(true);
    Codegen::new()
        .pure()
        .include(PROTO_FOLDER)
        .input(CRI)
        .customize(customize)
        .out_dir(out)
        .run()
        .expect("generate messages from proto/cri_v1.proto");

    // `include!` wants a file without inner attributes.
    let messages = fs::read_to_string(out.join("cri_v1.rs")).expect("read the generated messages");
    let messages: String = messages.lines().filter(|line| !line.starts_with("#![") && !line.starts_with("//!")).fold(
        String::new(),
        |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        },
    );
    fs::write(out.join("cri_v1.rs"), messages).expect("write the messages");
    fs::write(out.join("cri_v1_stubs.rs"), stubs()).expect("write the call descriptions");
}

/// One module per service, one constant per rpc.
fn stubs() -> String {
    let files = protobuf_parse::Parser::new()
        .pure()
        .include(PROTO_FOLDER)
        .input(CRI)
        .file_descriptor_set()
        .expect("parse proto/cri_v1.proto");
    let mut text = String::new();
    for file in &files.file {
        for service in &file.service {
            let _ = writeln!(text, "pub mod {} {{", snake(service.name()));
            for rpc in &service.method {
                let kind = match (rpc.client_streaming(), rpc.server_streaming()) {
                    (false, false) => "Unary",
                    (false, true) => "ServerStreaming",
                    (true, false) => "ClientStreaming",
                    (true, true) => "Duplex",
                };
                let _ = writeln!(
                    text,
                    "    pub const {}: grpcio::Method<super::{input}, super::{output}> = grpcio::Method {{\n        \
                     ty: grpcio::MethodType::{kind},\n        \
                     name: \"/{}.{}/{}\",\n        \
                     req_mar: grpcio::Marshaller {{ ser: grpcio::pb_ser, de: grpcio::pb_de }},\n        \
                     resp_mar: grpcio::Marshaller {{ ser: grpcio::pb_ser, de: grpcio::pb_de }},\n    }};",
                    snake(rpc.name()).to_uppercase(),
                    file.package(),
                    service.name(),
                    rpc.name(),
                    input = message(file.package(), rpc.input_type()),
                    output = message(file.package(), rpc.output_type()),
                );
            }
            text.push_str("}\n");
        }
    }
    text
}

/// `.runtime.v1.Foo` as `Foo`.
fn message<'a>(package: &str, full_name: &'a str) -> &'a str {
    full_name
        .strip_prefix('.')
        .and_then(|name| name.strip_prefix(package))
        .and_then(|name| name.strip_prefix('.'))
        .expect("an rpc's messages are of its own package")
}

/// `ListPodSandbox` as `list_pod_sandbox`.
fn snake(camel: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in camel.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
