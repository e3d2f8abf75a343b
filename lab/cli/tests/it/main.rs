//! The program `drover-lab`, run as a process, alone and by `drover`.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

mod autoscale;
mod bench;
mod demo;
mod experiments;
mod interrupted;
mod pages;

use std::path::{Path, PathBuf};
use std::process::Command;

const LAB: &str = env!("CARGO_BIN_EXE_drover-lab");

/// The program `drover` of the same build.
fn drover() -> PathBuf {
    let program = Path::new(LAB).with_file_name("drover");
    assert!(program.exists(), "{} is not built: cargo build --workspace --bins", program.display());
    program
}

#[test]
fn help_is_as_reviewed() {
    let commands: [&[&str]; 14] = [
        &["dev"],
        &["demo"],
        &["experiment"],
        &["experiment", "autoscaling"],
        &["experiment", "occupancy"],
        &["experiment", "redistribution"],
        &["experiment", "rejection"],
        &["experiment", "groups"],
        &["experiment", "replay"],
        &["bench"],
        &["autoscale", "simulate"],
        &["autoscale", "train"],
        &["memguard", "simulate"],
        &["groups", "place"],
    ];
    let mut text = String::new();
    for command in commands {
        let output = Command::new(LAB).args(command).arg("--help").env_clear().output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text.push_str(&format!("$ drover {} --help\n{}\n", command.join(" "), String::from_utf8(output.stdout).unwrap()));
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/help.txt");
    if std::env::var_os("DROVER_ACCEPT").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let reviewed = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(text == reviewed, "the help has changed; look at it, then accept it with DROVER_ACCEPT=1:\n{text}");
}

#[test]
fn usage_does_not_list_what_the_environment_gives() {
    let wrong = Command::new(LAB).args(["data", "import"]).env_clear().env("DROVER_URL", "http://127.0.0.1:9").output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && said.contains("Usage: drover data import <WHAT> <FILE>"), "{said}");
}
