//! Code in documentation that can run is run by `cargo test`. For a crate without such code, rustdoc would read all of the crate for nothing:
//! it says `doctest = false`.

use toml::Value;

use crate::{crates, rust_files};

/// What a fence may say in the crate's own language; with any other word its block does not run, and with `ignore` neither.
const RUNS: [&str; 6] = ["rust", "should_panic", "no_run", "compile_fail", "test_harness", "standalone_crate"];

/// Whether a block with these words after its fence is compiled, and mostly run, as a test.
fn fence_runs(words: &str) -> bool {
    words.split([',', ' ', '{', '}', '.']).filter(|word| !word.is_empty()).all(|word| RUNS.contains(&word) || word.starts_with("edition"))
}

/// The first line of each block in the documentation of this code that rustdoc would make a test.
fn tests(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut in_fence, mut after_blank) = (false, true);
    for line in code.lines().map(str::trim_start) {
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            (in_fence, after_blank) = (false, true);
            continue;
        };
        let fence = ["```", "~~~"].iter().find_map(|fence| text.trim_start().strip_prefix(fence));
        match fence {
            Some(words) if !in_fence && fence_runs(words) => found.push(line),
            // As rustdoc, after Markdown: lines that are indented by four, not below a paragraph.
            None if !in_fence && after_blank && text.starts_with("     ") => found.push(line),
            _ => {}
        }
        in_fence ^= fence.is_some();
        after_blank = text.trim().is_empty();
    }
    found
}

#[test]
fn crates_whose_documentation_has_no_code_to_run_say_so() {
    for one in crates() {
        if !one.folder.join("src/lib.rs").is_file() {
            continue;
        }
        let off = one.manifest.get("lib").and_then(|lib| lib.get("doctest")).and_then(Value::as_bool) == Some(false);
        let sources: Vec<String> = rust_files(&one.folder.join("src")).iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let tests: Vec<&str> = sources.iter().flat_map(|source| tests(source)).collect();
        assert!(!off || tests.is_empty(), "{}: code in its documentation does not run; remove `doctest = false`: {tests:?}", one.name);
        assert!(off || !tests.is_empty(), "{}: nothing in its documentation can run; say `doctest = false` below [lib]", one.name);
    }
}

#[test]
fn code_in_documentation_is_found() {
    let fenced = |words: &str| format!("/// Text.\n/// ```{words}\n/// x();\n/// ```\nfn f() {{}}\n");
    for words in ["", "rust", "no_run", "should_panic,edition2024"] {
        assert_eq!(tests(&fenced(words)).len(), 1, "{words}");
    }
    for words in ["text", "ignore", "rust,ignore", "toml"] {
        assert_eq!(tests(&fenced(words)).len(), 0, "{words}");
    }
    assert_eq!(tests("//! Text.\n//!\n//!     x();\n//!     y();\n"), ["//!     x();"]);
    assert_eq!(tests("//! * an item\n//!     that goes on\n"), [] as [&str; 0]);
}
