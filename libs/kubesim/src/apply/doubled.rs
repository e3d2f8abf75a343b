//! Items of a keyed list with the same key, which server-side apply refuses and every other write accepts.

use serde_json::Value;

use crate::schema::{ListShape, item_key, list_shape};

/// A line per list that has two items of one key, as a real server words it.
pub fn items(value: &Value, custom: bool) -> Vec<String> {
    let mut found = Vec::new();
    walk(value, "", "", custom, "", &mut found);
    found
}

fn walk(value: &Value, field: &str, parent: &str, custom: bool, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| walk(inner, key, field, custom, &format!("{path}.{key}"), found)),
        Value::Array(items) => {
            if let ListShape::Keyed(keys) = list_shape(field, parent, custom) {
                let all: Vec<Value> = items.iter().filter(|item| item.is_object()).map(|item| item_key(item, keys)).collect();
                let doubled = all.iter().enumerate().find(|(at, key)| all[..*at].contains(key));
                if let Some((_, key)) = doubled {
                    let key: Vec<String> = key.as_object().into_iter().flatten().map(|(name, value)| format!("{name}={value}")).collect();
                    found.push(format!("{path}: duplicate entries for key [{}]", key.join(",")));
                }
            }
            // A field of an item has the list around it as its parent, as for `list_shape`.
            items.iter().for_each(|item| walk(item, field, parent, custom, path, found));
        }
        _ => {}
    }
}
