//! Every code has a page and every page a code, and the examples are what clients see.

use std::collections::BTreeSet;

use drover_service::codes::{ALL, Code, find};
use drover_service::{Problem, ProblemDocument};
use serde_json::Value;

fn pages() -> BTreeSet<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".md").map(str::to_owned)).filter(|name| name != "README").collect()
}

#[test]
fn each_code_has_a_page_and_each_page_a_code() {
    let codes: BTreeSet<String> = ALL.iter().map(|code| code.name.to_owned()).collect();
    assert_eq!(codes.len(), ALL.len(), "a code is there twice");
    assert_eq!(codes, pages(), "left: codes in libs/service/src/codes.rs, right: pages in docs/errors");
}

#[test]
fn pages_say_what_happened_why_and_what_to_do() {
    for code in ALL {
        assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
        let page = code.page;
        assert!(page.starts_with(&format!("# {}\n", code.title)), "{code:?}: the page's title is the code's");
        for part in ["**What happened.**", "**Why.**", "**What to do.**", "## Example"] {
            assert!(page.contains(part), "{code:?}: its page has no {part}");
        }
        let example =
            page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_else(|| panic!("{code:?}: no example"));
        let example: Value = serde_json::from_str(example).unwrap_or_else(|error| panic!("{code:?}: {error}"));
        match example.get("state") {
            Some(state) => assert_failed_operation(code.name, state, &example),
            None => assert_problem(*code, example),
        }
        assert_eq!(find(code.name), Some(*code));
    }
}

/// The example of a code with which operations fail: fields of the operation's document.
fn assert_failed_operation(code: &str, state: &Value, example: &Value) {
    assert!(state == "failed" || state == "cancelled", "{code}: state {state}");
    assert_eq!(example["code"], code);
    for field in ["kind", "subject", "message"] {
        assert!(example[field].as_str().is_some_and(|text| !text.is_empty()), "{code}: its example has no {field}");
    }
}

/// The example of a code with which requests are refused: the whole answer.
fn assert_problem(code: Code, example: Value) {
    let example: ProblemDocument = serde_json::from_value(example).unwrap_or_else(|error| panic!("{code:?}: {error}"));
    let truth = code.problem("x").document();
    assert_eq!((&example.kind, &example.title, example.status, &example.code), (&truth.kind, &truth.title, truth.status, &truth.code));
    assert!(!example.detail.is_empty());
}

#[test]
fn table_lists_every_code() {
    let table = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/README.md")).unwrap();
    for code in ALL {
        let row = format!("| [`{0}`]({0}.md) | {1} | {2} |\n", code.name, code.status, code.title);
        assert!(table.contains(&row), "{code:?}: run `cargo run -p xtask -- errors`");
    }
    assert_eq!(table.lines().filter(|line| line.starts_with("| [`")).count(), ALL.len(), "run `cargo run -p xtask -- errors`");
}

#[test]
fn internal_problem_hides_its_source_from_clients() {
    let problem = Problem::internal("password=hunter2");
    assert!(!serde_json::to_string(&problem.document()).unwrap().contains("hunter2"));
    assert_eq!(problem.document().detail, "Something failed inside Drover");
}
