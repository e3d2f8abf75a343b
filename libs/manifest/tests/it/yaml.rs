use drover_manifest::yaml::{documents, typed};
use drover_manifest::{Limits, Manifest, Place, objects, one, to_text};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn documents_are_numbered_and_have_their_line() {
    let found = documents("# one\na: 1\n---\n---\n# three\nb: 2\n---\n").unwrap();
    let shown: Vec<_> = found.iter().map(|document| (document.number, document.line, document.value.clone())).collect();
    assert_eq!(shown[0], (1, 2, json!({"a": 1})));
    assert_eq!(shown[2].2, json!({"b": 2}));
    assert_eq!(documents("{\"a\": 1}\n\n{\"b\": 2}").unwrap()[1].line, 3);
    assert!(documents("").unwrap().is_empty());
}

#[test]
fn syntax_errors_name_document_line_and_column() {
    let error = documents("a: 1\n---\nb: [1\nc: 2\n").unwrap_err().to_string();
    assert!(error.starts_with("document 2, line "), "{error}");
    let error = one("a: 1\n---\nb: 2\n", Limits::MANIFESTS).unwrap_err().to_string();
    assert_eq!(error, "it has 2 documents, but only one is expected here");
}

#[test]
fn byte_order_mark_is_skipped() {
    assert_eq!(one("\u{feff}a: 1", Limits::MANIFESTS).unwrap(), json!({"a": 1}));
}

#[test]
fn typed_reads_octal_numbers_and_names_the_wrong_field() {
    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Mode {
        mode: u32,
    }
    assert_eq!(typed::<Mode>("mode: 0744", Limits::MANIFESTS).unwrap(), Mode { mode: 484 });
    assert!(typed::<Mode>("mode: x", Limits::MANIFESTS).unwrap_err().to_string().contains("invalid type"));
}

fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[-+0-9a-zA-Z_.:~ #'\"|>&*!%@\\\\\n\t]{0,12}".prop_map(Value::from),
        prop_oneof![Just("yes"), Just("0744"), Just("null"), Just("1e3"), Just("---"), Just("<<")].prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn to_text_is_read_back_unchanged(specs in prop::collection::vec(any_value(), 1..4), file in any::<String>()) {
        let manifests: Vec<Manifest> = specs.into_iter().enumerate().map(|(at, spec)| Manifest {
            value: json!({"apiVersion": "v1", "kind": "Probe", "metadata": {"name": format!("p{at}")}, "spec": spec}),
            place: Place { file: file.clone(), document: 1, line: 1, item: None },
        }).collect();
        let text = to_text(&manifests);
        let back = objects::read("text", &text).map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
        let values = |of: &[Manifest]| of.iter().map(|manifest| manifest.value.clone()).collect::<Vec<_>>();
        prop_assert_eq!(values(&back), values(&manifests));
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), yaml in "[-:,\\[\\]{}&*!|>'\" \n\tab0?#%]{0,60}") {
        let _ = documents(&text);
        let _ = documents(&yaml);
    }
}
