//! Pages for people name only what exists: types of the glossary, tests in the table of failures, files and headings behind links.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::{root, rust_files};

/// Text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The page, by its path from the root.
pub fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Names that follow one of `keywords` in any Rust file of the workspace.
fn declared(keywords: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in ["libs", "services", "lab", "tests"] {
        for file in rust_files(&root().join(folder)) {
            let text = std::fs::read_to_string(file).unwrap();
            let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).peekable();
            while let Some(word) = words.next() {
                if keywords.contains(&word) {
                    names.extend(words.peek().map(|name| (*name).to_owned()));
                }
            }
        }
    }
    names
}

/// All Markdown pages of the repository.
pub fn pages() -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                below(&path, found);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    below(root(), &mut found);
    found
}

#[test]
fn glossary_names_types_that_exist() {
    let text = page("ARCHITECTURE.md");
    let glossary = text.split("## Words").nth(1).unwrap();
    let types = declared(&["struct", "enum", "trait", "type"]);
    let rows = glossary.lines().filter(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(3));
    let named: Vec<&str> = rows.flat_map(quoted).filter(|name| name.starts_with(char::is_uppercase)).collect();
    assert!(named.len() > 20, "the table of the glossary was not found: {named:?}");
    let missing: Vec<&&str> = named.iter().filter(|name| !types.contains(name.split("::").next().unwrap())).collect();
    assert!(missing.is_empty(), "the glossary in ARCHITECTURE.md names types that do not exist: {missing:?}");
}

#[test]
fn failure_modes_name_tests_that_exist() {
    let functions = declared(&["fn"]);
    let text = page("docs/operations/failure-modes.md");
    let rows = text.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.split('|').nth(5));
    let tests: Vec<&str> = rows.flat_map(quoted).filter(|name| name.contains('_')).collect();
    assert!(tests.len() > 10, "the tables were not found: {tests:?}");
    let missing: Vec<&&str> = tests.iter().filter(|test| !functions.contains(**test)).collect();
    assert!(missing.is_empty(), "docs/operations/failure-modes.md names tests that do not exist: {missing:?}");
}

/// The links of a page that lead to other files, with their anchors.
pub fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|link| !link.contains("://"))
}

/// The anchors of a page's headings, as git hosts and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut found, mut code) = (BTreeSet::new(), false);
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !code) else { continue };
        let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let words: String = heading.trim_start_matches('#').trim().to_lowercase().chars().filter(|c| kept(*c)).collect();
        let anchor = words.replace(' ', "-");
        let again = (1..).map(|n| format!("{anchor}-{n}")).find(|other| !found.contains(other)).unwrap();
        found.insert(if found.contains(&anchor) { again } else { anchor });
    }
    found
}

#[test]
fn links_between_pages_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = if target.is_empty() { page.clone() } else { page.parent().unwrap().join(target) };
            let heading = || anchors(&std::fs::read_to_string(&file).unwrap()).contains(anchor);
            if !file.exists() || !(anchor.is_empty() || heading()) {
                broken.push(format!("{}: {link}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn anchors_are_those_of_git_hosts() {
    let text = "# A `b`, c\n```sh\n# no heading\n```\n## Same\n## Same\n### What `--movable` allows\n";
    let wanted = ["a-b-c", "same", "same-1", "what---movable-allows"].map(str::to_owned);
    assert_eq!(anchors(text), wanted.into());
}

#[test]
fn decisions_are_all_listed() {
    let list = page("docs/adr/README.md");
    let unlisted: Vec<String> = std::fs::read_dir(root().join("docs/adr"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md" && !list.contains(&format!("({name})")))
        .collect();
    assert!(unlisted.is_empty(), "docs/adr/README.md does not list {unlisted:?}");
}
