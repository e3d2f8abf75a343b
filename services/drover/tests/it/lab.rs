//! Commands that `drover-lab` runs: which program that is, what it is given, and the error when there is none.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// `drover` alone in a folder, so that no `drover-lab` of this build lies beside it. Another process copies it: a program that this one
/// writes cannot be started while a child that another test forks meanwhile still has the file open.
fn alone(folder: &Path) -> PathBuf {
    let program = folder.join("drover");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_drover")).arg(&program).status().unwrap().success());
    program
}

/// A `drover-lab` that prints `name` and its arguments and exits with 7.
fn lab(folder: &Path, name: &str) {
    std::fs::create_dir_all(folder).unwrap();
    let program = folder.join("drover-lab");
    let script = format!("#!/bin/sh\necho {name} \"$@\"\nexit 7\n");
    let write = Command::new("/bin/sh").args(["-c", r#"printf %s "$1" >"$2" && chmod 755 "$2""#, "sh", &script]).arg(&program).status();
    assert!(write.unwrap().success());
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
