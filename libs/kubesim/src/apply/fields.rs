//! Sets of fields as in `managedFields` (FieldsV1), down to the leaves.
//!
//! A leaf is a scalar, an atomic list or map, or an empty one; an item of a keyed list is a member besides its fields.
//! Fields that the server sets itself (name, uid, …) are never in a set.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::schema::{ListShape, atomic_map, item_key, list_shape};

/// `f:name`, `k:{"name":"a"}` or `v:"a"`, from the root.
pub type Path = Vec<String>;
/// A set of fields.
pub type FieldSet = BTreeSet<Path>;

const SYSTEM: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
];

/// All leaves of an object.
pub fn of(object: &Value, custom: bool) -> FieldSet {
    let mut set = FieldSet::new();
    for (field, value) in object.as_object().into_iter().flatten() {
        match field.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                for (field, value) in value.as_object().into_iter().flatten().filter(|(f, _)| !SYSTEM.contains(&f.as_str())) {
                    let mut path = vec!["f:metadata".to_string(), format!("f:{field}")];
                    collect(value, field, "metadata", custom, &mut path, &mut set);
                }
            }
            _ => collect(value, field, "", custom, &mut vec![format!("f:{field}")], &mut set),
        }
    }
    set
}

fn collect(value: &Value, field: &str, parent: &str, custom: bool, path: &mut Path, set: &mut FieldSet) {
    match value {
        Value::Object(map) if !map.is_empty() && !atomic_map(field, parent, custom) => {
            for (key, value) in map {
                path.push(format!("f:{key}"));
                collect(value, key, field, custom, path, set);
                path.pop();
            }
        }
        Value::Array(items) if !items.is_empty() => match list_shape(field, parent, custom) {
            ListShape::Atomic => {
                set.insert(path.clone());
            }
            ListShape::Set => set.extend(items.iter().map(|item| {
                let mut path = path.clone();
                path.push(format!("v:{item}"));
                path
            })),
            ListShape::Keyed(keys) => {
                for item in items {
                    path.push(format!("k:{}", item_key(item, keys)));
                    set.insert(path.clone());
                    for (key, value) in item.as_object().into_iter().flatten() {
                        path.push(format!("f:{key}"));
                        collect(value, key, field, custom, path, set);
                        path.pop();
                    }
                    path.pop();
                }
            }
        },
        _ => {
            set.insert(path.clone());
        }
    }
}

/// Writes the set as FieldsV1.
pub fn to_v1(set: &FieldSet) -> Value {
    let mut root = Map::new();
    for path in set {
        let mut at = &mut root;
        for step in path {
            let next = at.entry(step.clone()).or_insert_with(|| Value::Object(Map::new()));
            at = next.as_object_mut().expect("only objects are put in");
        }
        at.insert(".".into(), Value::Object(Map::new()));
    }
    let mut value = Value::Object(root);
    drop_lonely_dots(&mut value);
    value
}

/// `{".": {}}` is written `{}`.
fn drop_lonely_dots(value: &mut Value) {
    let Some(map) = value.as_object_mut() else { return };
    if map.len() == 1 && map.contains_key(".") {
        map.clear();
    }
    map.values_mut().for_each(drop_lonely_dots);
}

/// Reads a set from FieldsV1.
pub fn from_v1(value: &Value) -> FieldSet {
    fn walk(value: &Value, path: &mut Path, set: &mut FieldSet) {
        let Some(map) = value.as_object() else { return };
        if (map.is_empty() || map.contains_key(".")) && !path.is_empty() {
            set.insert(path.clone());
        }
        for (step, inner) in map.iter().filter(|(step, _)| *step != ".") {
            path.push(step.clone());
            walk(inner, path, set);
            path.pop();
        }
    }
    let mut set = FieldSet::new();
    walk(value, &mut Vec::new(), &mut set);
    set
}

/// The position of the item that `k:` or `v:` names.
fn position(items: &[Value], step: &str) -> Option<usize> {
    let wanted: Value = serde_json::from_str(&step[2..]).ok()?;
    if step.starts_with("v:") {
        return items.iter().position(|item| *item == wanted);
    }
    let keys: Vec<&str> = wanted.as_object()?.keys().map(String::as_str).collect();
    items.iter().position(|item| item_key(item, &keys) == wanted)
}

/// The value of a field.
pub fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |at, step| match step.strip_prefix("f:") {
        Some(field) => at.get(field),
        None => at.as_array().and_then(|items| items.get(position(items, step)?)),
    })
}

/// Removes a field, and the maps and lists around it that are empty then.
pub fn remove(object: &mut Value, path: &[String]) {
    let Some((step, rest)) = path.split_first() else { return };
    let empty = |value: &Value| match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if let Some(field) = step.strip_prefix("f:") {
        let Some(map) = object.as_object_mut() else { return };
        let Some(inner) = map.get_mut(field) else { return };
        if !rest.is_empty() {
            remove(inner, rest);
        }
        if rest.is_empty() || empty(inner) {
            map.remove(field);
        }
    } else if let Some(items) = object.as_array_mut()
        && let Some(position) = position(items, step)
    {
        match rest {
            [] => drop(items.remove(position)),
            rest => remove(&mut items[position], rest),
        }
    }
}

/// Whether the field is a key of its list item, so that it is removed only with the item.
pub fn is_key(path: &[String]) -> bool {
    let [.., item, field] = path else { return false };
    let key = item.strip_prefix("k:").and_then(|key| serde_json::from_str::<Value>(key).ok());
    key.is_some_and(|key| field.strip_prefix("f:").is_some_and(|field| key.get(field).is_some()))
}

/// The field as conflicts name it: `.spec.template.spec.containers[name="a"].image`.
pub fn show(path: &[String]) -> String {
    path.iter()
        .map(|step| match step.split_at(2) {
            ("f:", field) => format!(".{field}"),
            ("k:", key) => {
                let key: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
                format!("[{}]", key.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(","))
            }
            (_, value) => format!("[={value}]"),
        })
        .collect()
}
