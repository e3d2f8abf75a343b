//! Every dependency that a Cargo.toml names is used by a source of that crate.

use std::path::Path;

use toml::{Table, Value};

use crate::{crates, manifest, root, rust_files};

/// Dependencies that no source names but that are needed: crate, dependency, reason.
const ALLOWED: [(&str, &str, &str); 3] = [
    ("drover-client", "serde", "named by the code that build.rs generates"),
    ("drover-memory-guard", "tonic-prost", "named by the code that build.rs generates"),
    ("drover-service", "rustls-webpki", "its library is called webpki"),
];

/// The code of one crate, without comments.
#[derive(Default)]
struct Code {
    /// Everything below `src`.
    src: String,
    /// Tests, examples and benchmarks.
    tests: String,
    /// `build.rs`.
    build: String,
}

impl Code {
    fn of(folder: &Path) -> Self {
        let all = |part: &str| rust_files(&folder.join(part)).iter().map(|file| code(file)).collect::<String>();
        let build = folder.join("build.rs");
        let build = if build.is_file() { code(&build) } else { String::new() };
        Self { src: all("src"), tests: ["tests", "examples", "benches"].map(all).concat(), build }
    }
}

/// A file without its line comments.
fn code(file: &Path) -> String {
    without_comments(&std::fs::read_to_string(file).unwrap())
}

pub fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code)).flat_map(|line| [line, "\n"]).collect()
}

/// Whether the code has the name of this crate as a whole word.
fn names(code: &str, dependency: &str) -> bool {
    let word = dependency.replace('-', "_");
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(&word).any(|(at, _)| !code[..at].ends_with(part_of_word) && !code[at + word.len()..].starts_with(part_of_word))
}

/// What is wrong with the dependencies of a crate, a sentence each.
fn faults(name: &str, manifest: &Table, code: &Code) -> Vec<String> {
    let section = |section: &str| -> Vec<String> {
        manifest.get(section).and_then(Value::as_table).into_iter().flat_map(|table| table.keys().cloned()).collect()
    };
    let mut faults = Vec::new();
    let mut unused = |section: &str, dependency: &str| {
        faults.push(format!("{name}: no source uses `{dependency}` of [{section}]; remove it, or add it to ALLOWED with the reason"));
    };
    let normal = section("dependencies");
    for dependency in &normal {
        if !names(&code.src, dependency) && !names(&code.tests, dependency) {
            unused("dependencies", dependency);
        }
    }
    for dependency in section("dev-dependencies") {
        if !names(&code.src, &dependency) && !names(&code.tests, &dependency) {
            unused("dev-dependencies", &dependency);
        }
    }
    for dependency in section("build-dependencies") {
        if !names(&code.build, &dependency) {
            unused("build-dependencies", &dependency);
        }
    }
    for dependency in normal.iter().filter(|dependency| !names(&code.src, dependency) && names(&code.tests, dependency)) {
        faults.push(format!("{name}: only tests use `{dependency}`; move it to [dev-dependencies]"));
    }
    faults
}

#[test]
fn every_dependency_is_used() {
    let mut faults: Vec<String> = crates().iter().flat_map(|one| faults(&one.name, &one.manifest, &Code::of(&one.folder))).collect();
    for (of, dependency, reason) in ALLOWED {
        let before = faults.len();
        faults.retain(|fault| !(fault.starts_with(&format!("{of}: ")) && fault.contains(&format!("`{dependency}`"))));
        if faults.len() == before {
            faults.push(format!("{of}: `{dependency}` need not be in ALLOWED any more ({reason})"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_dependency_of_the_workspace_is_used_by_a_crate() {
    let crates = crates();
    let used = |name: &str| {
        let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
        crates.iter().any(|one| sections.iter().any(|section| one.manifest.get(*section).is_some_and(|table| table.get(name).is_some())))
    };
    let root = manifest(root());
    let all = root["workspace"]["dependencies"].as_table().unwrap();
    let unused: Vec<&String> = all.keys().filter(|name| !used(name)).collect();
    assert!(unused.is_empty(), "no crate uses these of [workspace.dependencies] in the root's Cargo.toml; remove them: {unused:?}");
}

#[test]
fn unused_dependencies_are_found_and_used_ones_are_not() {
    let manifest = "[dependencies]\nin-src.workspace = true\nin-tests = '1'\nnowhere = '1'\nprefix = '1'\n\
                    [dev-dependencies]\ncommented = '1'\n[build-dependencies]\ngenerator = '1'\n";
    let code = Code {
        src: without_comments("use in_src::Thing; // commented::said\nuse prefix_of_another::x;"),
        tests: "in_tests::run()".to_owned(),
        build: "generator::main()".to_owned(),
    };
    let found = faults("one", &manifest.parse().unwrap(), &code);
    let about = |dependency: &str| found.iter().filter(|fault| fault.contains(&format!("`{dependency}`"))).count();
    assert_eq!(["nowhere", "prefix", "commented", "in-tests"].map(about), [1; 4], "{found:?}");
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found.iter().any(|fault| fault == "one: only tests use `in-tests`; move it to [dev-dependencies]"), "{found:?}");
}
