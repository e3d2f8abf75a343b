//! Commands that `drover-lab` runs: which program that is, what it is given, and the error when there is none.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// `drover` alone in a folder, so that no `drover-lab` of this build lies beside it.
fn alone(folder: &Path) -> PathBuf {
    let program = folder.join("drover");
    std::fs::copy(env!("CARGO_BIN_EXE_drover"), &program).unwrap();
    program
}

/// A `drover-lab` that prints `name` and its arguments and exits with 7.
fn lab(folder: &Path, name: &str) {
    std::fs::create_dir_all(folder).unwrap();
    let program = folder.join("drover-lab");
    std::fs::write(&program, format!("#!/bin/sh\necho {name} \"$@\"\nexit 7\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(program: &Path, path: &Path, args: &[&str]) -> Output {
    let path = format!("{}:/usr/bin:/bin", path.display());
    Command::new(program).args(args).env("PATH", path).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn lab_commands_run_drover_lab_with_their_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let (drover, path) = (alone(folder.path()), folder.path().join("path"));
    lab(&path, "on-path");
    for args in [
        &["bench", "--size", "small", "-o", "json"][..],
        &["-p", "mine", "bench", "--help"],
        &["dev", "kube", "up", "--nodes", "3"],
        &["demo", "--once"],
        &["experiment", "groups", "--out", "x y"],
        &["autoscale", "train", "--passes", "3"],
        &["autoscale", "simulate", "-h"],
        &["memguard", "simulate", "--seeds", "2"],
        &["groups", "place", "shop", "--policy", "learned"],
    ] {
        let output = run(&drover, &path, args);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("on-path {}", args.join(" ")));
    }
    lab(folder.path(), "beside");
    assert!(run(&drover, &path, &["bench"]).stdout.starts_with(b"beside bench"), "the one beside the program comes first");
}

#[test]
fn missing_drover_lab_is_an_error_that_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&alone(folder.path()), folder.path(), &["bench"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("drover-lab") && said.contains("cargo build --release -p drover-lab"), "{said}");
}
