//! The docs site (`make docs`): docs/SUMMARY.md has every page, and links that are right in the repository are right in the site.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pages::{links, page, pages};
use crate::root;

/// The files of the book in the order of its contents, by their canonical paths.
fn book() -> Vec<PathBuf> {
    links(&page("docs/SUMMARY.md")).map(|link| root().join("docs").join(link).canonicalize().unwrap()).collect()
}

#[test]
fn book_has_every_page_below_docs_once() {
    let book = book();
    let docs = root().join("docs").canonicalize().unwrap();
    let mut wrong: Vec<String> = Vec::new();
    for page in pages().iter().map(|page| page.canonicalize().unwrap()).filter(|page| page.starts_with(&docs)) {
        let times = book.iter().filter(|listed| **listed == page).count();
        if times != usize::from(!page.ends_with("docs/SUMMARY.md")) {
            wrong.push(format!("{}: {times} times", page.strip_prefix(&docs).unwrap().display()));
        }
    }
    assert!(wrong.is_empty(), "docs/SUMMARY.md must list every page below docs once:\n{}", wrong.join("\n"));
}

/// A link to a folder, or to a page that the book does not have, leads somewhere on a git host but nowhere in the book.
#[test]
fn links_of_the_book_stay_in_the_book() {
    let book = book();
    let contents = root().join("docs/SUMMARY.md").canonicalize().unwrap();
    let mut broken = Vec::new();
    for page in &book {
        for link in links(&std::fs::read_to_string(page).unwrap()).filter(|link| !link.starts_with('#')) {
            let file = page.parent().unwrap().join(link.split('#').next().unwrap()).canonicalize().unwrap();
            let is_page = file.extension().is_some_and(|extension| extension == "md");
            if !file.is_file() || (is_page && file != contents && !book.contains(&file)) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead out of the book:\n{}", broken.join("\n"));
}

/// The values of an attribute in a page of the site.
fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
    let begin = format!(" {attribute}=\"");
    html.split(&*begin).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// The pages of the site with their texts.
fn site(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            site(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.insert(path.canonicalize().unwrap(), text);
        }
    }
}

#[test]
#[ignore = "long: builds mdBook the first time"]
fn links_of_the_site_lead_to_files_and_headings() {
    let folder = tempfile::tempdir().unwrap();
    let site_folder = folder.path().join("site");
    let built = Command::new(root().join("deploy/book.sh")).arg(&site_folder).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let said = String::from_utf8_lossy(&built.stderr);
    // On a new machine it says first that mdBook itself is built.
    let warnings: Vec<&str> = said.lines().filter(|line| !line.starts_with("building mdBook ")).collect();
    assert!(warnings.is_empty(), "mdBook warns: {said}");
    let mut texts = BTreeMap::new();
    site(&site_folder, &mut texts);
    let (mut broken, mut count) = (BTreeSet::new(), 0);
    for (page, html) in &texts {
        for link in values(html, "href").into_iter().filter(|link| !link.contains(':')) {
            count += 1;
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let file = if target.is_empty() { Ok(page.clone()) } else { page.parent().unwrap().join(target).canonicalize() };
            let leads = file.is_ok_and(|file| {
                file.is_file() && (anchor.is_empty() || texts.get(&file).is_none_or(|html| values(html, "id").contains(&anchor)))
            });
            if !leads {
                broken.insert(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(count > 1000, "only {count} links were found in {} pages", texts.len());
}
