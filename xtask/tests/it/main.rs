//! Rules about the whole repository that the compiler does not check.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests, though not functions with the attribute")]

mod book;
mod circles;
mod dependencies;
mod docs;
mod doctests;
mod pages;
mod shipped;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// A crate of the workspace.
struct Crate {
    name: String,
    folder: PathBuf,
    manifest: toml::Table,
}

/// All crates of the workspace: the folders of `members` in the root's Cargo.toml.
fn crates() -> Vec<Crate> {
    let mut folders = vec![root().join("xtask"), root().join("tests"), root().join("clients/rust")];
    for room in ["libs", "services", "lab"] {
        folders.extend(std::fs::read_dir(root().join(room)).unwrap().map(|entry| entry.unwrap().path()));
    }
    folders.retain(|folder| folder.join("Cargo.toml").is_file());
    folders.sort();
    let crates = folders.into_iter().map(|folder| {
        let manifest = manifest(&folder);
        Crate { name: manifest["package"]["name"].as_str().unwrap().to_owned(), folder, manifest }
    });
    crates.collect()
}

/// The parsed Cargo.toml of a folder.
fn manifest(folder: &Path) -> toml::Table {
    std::fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap()
}

/// All Rust files below a folder that exists or not, sorted.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn crates_are_the_members_of_the_workspace() {
    let output = shipped::cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: serde_json::Value = serde_json::from_str(&output).unwrap();
    let mut members: Vec<&str> = metadata["packages"].as_array().unwrap().iter().map(|package| package["name"].as_str().unwrap()).collect();
    members.sort_unstable();
    let crates = crates();
    let mut found: Vec<&str> = crates.iter().map(|one| one.name.as_str()).collect();
    found.sort_unstable();
    assert_eq!(found, members);
}
