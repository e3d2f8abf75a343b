//! Modules, and public types, traits and functions, have documentation. Fields, variants and constants need none where their names say all.

use std::collections::BTreeSet;
use std::path::Path;

use syn::{Attribute, Ident, ImplItem, Item, Meta, TraitItem, Type, UseTree, Visibility};

use crate::{crates, root, rust_files};

/// Folders of generated code.
const GENERATED: [&str; 1] = ["libs/service/src/clients"];

/// What lacks documentation in a crate, found by following its `mod` items.
#[derive(Default)]
struct Search {
    /// Names in `pub use`: items of private modules with these names are public all the same.
    exported: BTreeSet<String>,
    /// Number of files read.
    read: usize,
    found: Vec<String>,
}

impl Search {
    /// Reads a file and the modules that it declares in files of their own. `public`: the module can be reached from outside the crate.
    fn file(&mut self, path: &Path, public: bool) {
        let name = path.strip_prefix(root()).unwrap_or(path).display().to_string();
        if GENERATED.iter().any(|folder| name.starts_with(folder)) {
            return;
        }
        self.read += 1;
        let file = syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap();
        if !documented(&file.attrs) {
            self.found.push(format!("{name}: the module (`//!` on the first lines)"));
        }
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let folder = path.parent().unwrap();
        let folder = if ["lib", "main", "mod"].contains(&stem) { folder.to_owned() } else { folder.join(stem) };
        for item in &file.items {
            if let Item::Mod(item) = item
                && item.content.is_none()
                && !only_in_tests(&item.attrs)
            {
                let [flat, nested] = [format!("{}.rs", item.ident), format!("{}/mod.rs", item.ident)].map(|file| folder.join(file));
                self.file(if flat.is_file() { &flat } else { &nested }, public && is_public(&item.vis));
            }
        }
        self.items(&name, &file.items, public);
    }

    fn items(&mut self, file: &str, items: &[Item], public: bool) {
        for item in items {
            let (visibility, attributes, what, name) = match item {
                // A module in a file of its own is documented there.
                Item::Mod(item) if item.content.is_none() => continue,
                Item::Mod(item) => {
                    if let (Some((_, inner)), false) = (&item.content, only_in_tests(&item.attrs)) {
                        self.items(file, inner, public && is_public(&item.vis));
                    }
                    (&item.vis, &item.attrs, "module", &item.ident)
                }
                Item::Struct(item) => (&item.vis, &item.attrs, "struct", &item.ident),
                Item::Enum(item) => (&item.vis, &item.attrs, "enum", &item.ident),
                Item::Union(item) => (&item.vis, &item.attrs, "union", &item.ident),
                Item::Type(item) => (&item.vis, &item.attrs, "type", &item.ident),
                Item::Fn(item) => (&item.vis, &item.attrs, "function", &item.sig.ident),
                Item::Trait(item) => {
                    if is_public(&item.vis) && !exempt(&item.attrs) && self.reaches(public, &item.ident) {
                        for inner in &item.items {
                            if let TraitItem::Fn(function) = inner {
                                self.ask(file, &function.attrs, "function", &function.sig.ident);
                            }
                        }
                    }
                    (&item.vis, &item.attrs, "trait", &item.ident)
                }
                Item::Impl(item) if item.trait_.is_none() && !exempt(&item.attrs) => {
                    let Type::Path(of) = &*item.self_ty else { continue };
                    let of = &of.path.segments.last().unwrap().ident;
                    for inner in item.items.iter().filter(|_| self.reaches(public, of)).collect::<Vec<_>>() {
                        if let ImplItem::Fn(function) = inner
                            && is_public(&function.vis)
                        {
                            self.ask(file, &function.attrs, &format!("function of `{of}`"), &function.sig.ident);
                        }
                    }
                    continue;
                }
                _ => continue,
            };
            if is_public(visibility) && self.reaches(public, name) {
                self.ask(file, attributes, what, name);
            }
        }
    }

    fn reaches(&self, public: bool, name: &Ident) -> bool {
        public || self.exported.contains(&name.to_string())
    }

    /// Notes an item that has no documentation and should.
    fn ask(&mut self, file: &str, attributes: &[Attribute], what: &str, name: &Ident) {
        if !documented(attributes) && !exempt(attributes) {
            self.found.push(format!("{file}: {what} `{name}`"));
        }
    }
}

/// Names in the `pub use` items of a file.
fn exported(items: &[Item]) -> BTreeSet<String> {
    fn names(tree: &UseTree, found: &mut BTreeSet<String>) {
        match tree {
            UseTree::Path(path) => names(&path.tree, found),
            UseTree::Name(name) => drop(found.insert(name.ident.to_string())),
            UseTree::Rename(rename) => drop(found.insert(rename.ident.to_string())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| names(tree, found)),
            UseTree::Glob(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    for item in items {
        match item {
            Item::Use(item) if is_public(&item.vis) => names(&item.tree, &mut found),
            _ => {}
        }
    }
    found
}

/// What lacks documentation in a crate, and how many files were read.
fn undocumented(sources: &Path) -> (Vec<String>, usize) {
    let all = rust_files(sources);
    let parsed = all.iter().map(|file| syn::parse_file(&std::fs::read_to_string(file).unwrap()).unwrap());
    let mut search = Search { exported: parsed.flat_map(|file| exported(&file.items)).collect(), ..Search::default() };
    for (file, public) in [("lib.rs", true), ("main.rs", false)] {
        if sources.join(file).is_file() {
            search.file(&sources.join(file), public);
        }
    }
    (search.found, search.read)
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn documented(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("doc") && matches!(attribute.meta, Meta::NameValue(_)))
}

/// Only in tests, or hidden from the documentation.
fn exempt(attributes: &[Attribute]) -> bool {
    let hidden = |attribute: &Attribute| {
        attribute.path().is_ident("doc") && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "hidden")
    };
    only_in_tests(attributes) || attributes.iter().any(hidden)
}

fn only_in_tests(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "test"))
}

#[test]
fn modules_and_public_items_are_documented() {
    let (faults, read): (Vec<_>, Vec<_>) = crates().iter().map(|one| undocumented(&one.folder.join("src"))).unzip();
    let (faults, read) = (faults.concat(), read.iter().sum::<usize>());
    assert!(read > 300, "only {read} files were read");
    assert!(faults.is_empty(), "these have no documentation; write complete sentences:\n{}", faults.join("\n"));
}

#[test]
fn missing_documentation_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let lib = "\
//! Documented.
mod hidden;
pub mod open;
pub use hidden::Exported;
pub struct Bare { pub field: u8 }
/// Documented.
pub enum Fine { Variant }
pub(crate) struct Inner;
#[cfg(test)]
pub mod tests { pub fn helper() {} }
pub mod inline { pub fn in_module() {} }
impl Fine { pub fn method(&self) {} fn private(&self) {} }
impl Clone for Fine { fn clone(&self) -> Self { Fine::Variant } }
/// Documented.
pub trait Shape { fn area(&self); }
#[doc(hidden)]
pub fn hidden_function() {}
pub const LIMIT: u8 = 1;
";
    write("lib.rs", lib);
    write("hidden.rs", "pub struct Exported;\nimpl Exported { pub fn of_exported(&self) {} }\npub struct Private;\n");
    write("open.rs", "//! Documented.\npub fn in_file() {}\n");
    let (found, read) = undocumented(folder.path());
    let found: Vec<&str> = found.iter().map(|fault| fault.rsplit_once(": ").unwrap().1).collect();
    let expected = [
        "the module (`//!` on the first lines)",
        "struct `Exported`",
        "function of `Exported` `of_exported`",
        "function `in_file`",
        "struct `Bare`",
        "function `in_module`",
        "module `inline`",
        "function of `Fine` `method`",
        "function `area`",
    ];
    assert_eq!((found, read), (expected.to_vec(), 3));
}
