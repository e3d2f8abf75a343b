//! Generates the gRPC clients, and the servers that the tests use, from `proto/` without `protoc`.

use std::error::Error;

const FILES: [&str; 6] =
    ["cri.proto", "containerd_tasks.proto", "containerd_events.proto", "containerd_task_events.proto", "ttrpc.proto", "nri.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure().build_transport(false).include_file("proto.rs").compile_fds(files)?;
    Ok(())
}
