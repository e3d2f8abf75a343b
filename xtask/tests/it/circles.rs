//! The rooms of a crate (the modules in its root) do not import each other in a circle: each can be read after those that it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::dependencies::without_comments;
use crate::{crates, rust_files};

/// The rooms that each room of a crate uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn rooms(src: &Path) -> Uses {
    let mut uses = Uses::new();
    for file in rust_files(src) {
        let within = file.strip_prefix(src).unwrap();
        let room = within.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
        // The root knows all rooms, and tests may use everything.
        if matches!(room.as_str(), "lib" | "main") || within.to_str().unwrap().contains("tests") {
            continue;
        }
        let text = without_comments(&std::fs::read_to_string(&file).unwrap());
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        uses.entry(room.clone()).or_default().extend(named(code).filter(|other| *other != room));
    }
    let rooms: BTreeSet<String> = uses.keys().cloned().collect();
    uses.values_mut().for_each(|used| used.retain(|other| rooms.contains(other)));
    uses
}

/// The first names of all paths that begin with `crate::`.
fn named(code: &str) -> impl Iterator<Item = String> {
    let paths = code.match_indices("crate::").filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    paths.flat_map(|(at, start)| first_names(&code[at + start.len()..]))
}

/// `a::B` → `a`; `{a::{B, C}, d}` → `a` and `d`.
fn first_names(path: &str) -> Vec<String> {
    let name = |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(list) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut names, mut start) = (0, Vec::new(), 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(name(&list[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

/// A way from a room back to itself.
fn circle(uses: &Uses) -> Option<Vec<&str>> {
    fn way<'a>(uses: &'a Uses, to: &str, path: &mut Vec<&'a str>, seen: &mut BTreeSet<&'a str>) -> bool {
        for next in &uses[*path.last().unwrap()] {
            path.push(next);
            if next == to || (seen.insert(next) && way(uses, to, path, seen)) {
                return true;
            }
            path.pop();
        }
        false
    }
    uses.keys().find_map(|room| {
        let mut path = vec![room.as_str()];
        way(uses, room, &mut path, &mut BTreeSet::new()).then_some(path)
    })
}

#[test]
fn rooms_of_a_crate_import_each_other_in_no_circle() {
    let found: Vec<String> = crates()
        .iter()
        .filter_map(|one| circle(&rooms(&one.folder.join("src"))).map(|way| format!("{}: {}", one.name, way.join(" → "))))
        .collect();
    assert!(found.is_empty(), "move what both need into the room that is used:\n{}", found.join("\n"));
}

#[test]
fn circle_over_a_list_of_imports_is_found() {
    let used = |code: &str| named(code).collect::<BTreeSet<_>>();
    assert_eq!(used("use crate::{b::{X, Y}, c};\nlet x = crate::d::z(); subcrate::e"), ["b", "c", "d"].map(str::to_owned).into());
    let room = |name: &str, uses: &[&str]| (name.to_owned(), uses.iter().map(|used| (*used).to_owned()).collect());
    let line = Uses::from([room("a", &["b", "c"]), room("b", &["c"]), room("c", &[])]);
    assert_eq!(circle(&line), None);
    let round = Uses::from([room("a", &["b"]), room("b", &["c"]), room("c", &["a"])]);
    assert_eq!(circle(&round), Some(vec!["a", "b", "c", "a"]));
}
