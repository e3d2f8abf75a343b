//! Limits of what is read: values, nesting, and what aliases repeat. Each is checked before it costs memory or stack.

use std::time::Instant;

use drover_manifest::{Limits, documents, one};

/// A YAML bomb ("billion laughs"): 700 × 200 × 200 values in 9 KB.
fn aliases() -> String {
    let item = "x".repeat(10);
    let list = |of: &str, n: usize| format!("[{}]", vec![of; n].join(","));
    format!("a: &a {}\nb: &b {}\nc: &c {}\n", list(&item, 700), list("*a", 200), list("*b", 200))
}

#[test]
fn aliases_are_refused_before_they_are_expanded() {
    let text = aliases();
    assert!(text.len() < 12_000, "{}", text.len());
    let error = documents(&text).unwrap_err();
    assert!(error.is_too_complex(), "{error}");
    assert_eq!(error.to_string(), "document 1: it has more than 500000 values, counting each use of an alias");
}

#[test]
fn long_text_repeated_by_aliases_is_refused() {
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 400].join(","));
    let error = documents(&text).unwrap_err();
    assert_eq!(error.to_string(), "document 1: its aliases repeat more than 16777216 bytes");
}

#[test]
fn aliases_do_not_nest_deeper_than_the_limit() {
    let deep = format!("a: &a {}{}\n", "[".repeat(60), "]".repeat(60));
    assert!(documents(&deep).is_ok());
    let error = documents(&format!("{deep}b: {}*a{}\n", "[".repeat(60), "]".repeat(60))).unwrap_err();
    assert_eq!(error.to_string(), "document 1: it is nested more than 100 levels deep");
}

#[test]
fn nesting_is_limited_in_yaml_and_json() {
    let yaml = format!("a: {}{}", "[".repeat(200), "]".repeat(200));
    assert!(documents(&yaml).unwrap_err().is_too_complex());
    let json = format!("{}{}", "{\"a\":[".repeat(60), "]}".repeat(60));
    assert!(documents(&json).unwrap_err().is_too_complex());
    // Far deeper than any stack: must neither overflow it nor be accepted.
    for text in ["[".repeat(1 << 20), "{\"a\":".repeat(1 << 18), "- ".repeat(1 << 18), "a: &a [".repeat(1 << 18)] {
        assert!(documents(&text).is_err());
    }
}

#[test]
fn values_of_json_are_counted() {
    let text = format!("[{}0]", "0,".repeat(600_000));
    assert!(documents(&text).unwrap_err().is_too_complex());
    assert!(one("[1, 2, 3]", Limits { nodes: 3, ..Limits::MANIFESTS }).unwrap_err().is_too_complex());
    assert!(one("[1, 2, 3]", Limits { nodes: 4, ..Limits::MANIFESTS }).is_ok());
}

#[test]
fn the_limit_counts_all_documents_of_a_text() {
    let limits = Limits { nodes: 10, ..Limits::MANIFESTS };
    let text = "[1, 2, 3]\n---\n".repeat(5);
    let error = drover_manifest::yaml::documents_within(&text, limits).unwrap_err();
    assert!(error.to_string().starts_with("document 3"), "{error}");
}

#[test]
fn a_large_text_is_read() {
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b, c: d, e: f}\n---\n";
    let start = Instant::now();
    assert_eq!(documents(&object.repeat(20_000)).unwrap().len(), 20_001);
    println!("20,000 objects in {:?}", start.elapsed());
}
