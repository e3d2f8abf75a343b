//! Objects that several apps may contain, and how two versions of one differ.
//!
//! Pure. An object of such a kind belongs to every app that contains it with equal content. Its labels name one of them, and it is
//! deleted with the last. Who the others are is known by the caller, not by the member.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use crate::labels;
use crate::object_id::ObjectId;

/// For each object of a write that apps may share: the bindings of other apps that contain it with equal content. A shareable object
/// that nobody else contains has an empty list.
pub type Sharers = BTreeMap<Arc<ObjectId>, Vec<Uuid>>;

/// How many differences a message names.
const SHOWN: usize = 8;

/// How two versions of an object differ: a line per field, at most eight of them. Drover's own labels and annotations do not count, and
/// values of a Secret are not shown.
pub fn differences(one: &Value, other: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", Some(one), Some(other), one["kind"] == "Secret", &mut found);
    if found.len() > SHOWN {
        let more = found.len() - SHOWN;
        found.truncate(SHOWN);
        found.push(format!("and {more} more"));
    }
    found
}

fn compare(path: &str, one: Option<&Value>, other: Option<&Value>, secret: bool, found: &mut Vec<String>) {
    if one == other {
        return;
    }
    match (one, other) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut fields: Vec<&String> = a.keys().chain(b.keys()).filter(|field| !is_drovers(field)).collect();
            fields.sort_unstable();
            fields.dedup();
            for field in fields {
                let deeper = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                compare(&deeper, a.get(field), b.get(field), secret, found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for at in 0..a.len().max(b.len()) {
                compare(&format!("{path}[{at}]"), a.get(at), b.get(at), secret, found);
            }
        }
        // Metadata that has only Drover's labels or annotations on one side is no difference.
        (Some(Value::Object(only)), None) | (None, Some(Value::Object(only))) if only.keys().all(|field| is_drovers(field)) => {}
        _ if secret => found.push(format!("{path}: two values")),
        _ => found.push(format!("{path}: {} and {}", shown(one), shown(other))),
    }
}

fn is_drovers(field: &str) -> bool {
    matches!(field, labels::DIG | labels::APP | labels::BINDING | labels::HUB | labels::DIGEST | labels::RELEASED)
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_name_fields_and_hide_secrets() {
        let one = json!({"kind": "StorageClass", "metadata": {"name": "fast", "labels": {labels::BINDING: "1"}}, "parameters": {"a": "1", "b": [1, 2]}});
        let mut other = one.clone();
        other["metadata"]["labels"][labels::BINDING] = json!("2");
        assert!(differences(&one, &other).is_empty());
        other["parameters"] = json!({"b": [1, 3], "c": "x".repeat(100)});
        let found = differences(&one, &other);
        assert_eq!(found[..2], ["parameters.a: \"1\" and nothing", "parameters.b[1]: 2 and 3"]);
        assert!(found[2].starts_with("parameters.c: nothing and \"xxx") && found[2].ends_with('…'), "{found:?}");
        let secret = |value: &str| json!({"kind": "Secret", "stringData": {"key": value}});
        assert_eq!(differences(&secret("hunter2"), &secret("other")), ["stringData.key: two values"]);
        let many =
            |n: i32| json!({"kind": "ConfigMap", "data": (0..20).map(|at| (at.to_string(), json!(n))).collect::<serde_json::Map<_, _>>()});
        assert_eq!(differences(&many(1), &many(2)).last().unwrap(), "and 12 more");
    }
}
