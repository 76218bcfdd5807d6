//! The generated CRI v1 messages and the descriptions of its calls. Used by this port and, for fake
//! runtimes, by the tests; nothing else may know a protobuf type.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
#![allow(non_snake_case, non_camel_case_types, non_upper_case_globals, dead_code)]

include!(concat!(env!("OUT_DIR"), "/cri_v1.rs"));
include!(concat!(env!("OUT_DIR"), "/cri_v1_stubs.rs"));
