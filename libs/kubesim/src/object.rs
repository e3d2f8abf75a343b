//! Reads and changes objects that are kept as JSON, whatever their kind.

use serde_json::{Map, Value, json};

/// The string at a JSON pointer, or "".
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// The number at a JSON pointer.
pub fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// The list at a JSON pointer; empty if there is none.
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The map at a JSON pointer.
pub fn map<'a>(object: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    object.pointer(pointer).and_then(Value::as_object)
}

pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

pub fn deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

pub fn has_finalizers(object: &Value) -> bool {
    !list(object, "/metadata/finalizers").is_empty()
}

/// The condition of this type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|c| c["type"] == kind)
}

pub fn condition_is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|c| c["status"] == "True")
}

/// Whether the owner of a pod still counts it: neither finished nor being deleted.
pub fn pod_active(pod: &Value) -> bool {
    !deleting(pod) && !pod_finished(pod)
}

pub fn pod_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

pub fn pod_ready(pod: &Value) -> bool {
    condition_is_true(pod, "Ready")
}

/// The map at `path` below `object`; created if absent, in place of anything that is no map.
pub fn map_mut<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut at = object;
    for step in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = at.as_object_mut().expect("made an object above").entry(*step).or_insert_with(|| json!({}));
    }
    if !at.is_object() {
        *at = json!({});
    }
    at.as_object_mut().expect("made an object above")
}

/// Removes one key of the map at `path`; does nothing if there is no such map.
pub fn remove(object: &mut Value, path: &[&str], key: &str) -> Option<Value> {
    path.iter().try_fold(object, |at, step| at.get_mut(*step))?.as_object_mut()?.remove(key)
}

/// Sets a condition as controllers do: `lastTransitionTime` moves only with `status`.
pub fn set_condition(conditions: &mut Vec<Value>, mut condition: Value, now: &str, updated: bool) {
    let old = conditions.iter_mut().find(|c| c["type"] == condition["type"]);
    let same = old
        .as_ref()
        .is_some_and(|c| c["status"] == condition["status"] && c["reason"] == condition["reason"] && c["message"] == condition["message"]);
    if same {
        return;
    }
    let since = match &old {
        Some(c) if c["status"] == condition["status"] => c["lastTransitionTime"].clone(),
        _ => now.into(),
    };
    condition["lastTransitionTime"] = since;
    if updated {
        condition["lastUpdateTime"] = now.into();
    }
    match old {
        Some(c) => *c = condition,
        None => conditions.push(condition),
    }
}
