//! Merges a change into an object as `kubectl patch` does for the built-in kinds: maps merge, null removes, and lists whose entries have names
//! merge by name; other lists are replaced.

use serde_json::Value;

/// Merges `patch` into `object`.
pub(in crate::app) fn merge(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                if change.is_null() {
                    fields.remove(key);
                } else {
                    merge(fields.entry(key).or_insert(Value::Null), change);
                }
            }
        }
        (Value::Array(entries), Value::Array(changes)) if by_name(entries) && by_name(changes) => {
            for change in changes {
                match entries.iter().position(|entry| entry["name"] == change["name"]) {
                    Some(at) if change["$patch"] == "delete" => drop(entries.remove(at)),
                    Some(at) => merge(&mut entries[at], change),
                    None => entries.push(change.clone()),
                }
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}

fn by_name(entries: &[Value]) -> bool {
    entries.iter().all(|entry| entry["name"].is_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn maps_merge_and_lists_merge_by_name() {
        let mut object = json!({"spec": {"replicas": 1, "paused": true, "containers": [
            {"name": "web", "image": "web:1", "args": ["a", "b"], "env": [{"name": "A", "value": "1"}]}, {"name": "old"}]}});
        let patch = json!({"spec": {"replicas": 3, "paused": null, "containers": [
            {"name": "web", "args": ["c"], "env": [{"name": "B", "value": "2"}]}, {"name": "old", "$patch": "delete"}, {"name": "sidecar"}]}});
        merge(&mut object, &patch);
        assert_eq!(
            object,
            json!({"spec": {"replicas": 3, "containers": [
                {"name": "web", "image": "web:1", "args": ["c"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                {"name": "sidecar"}]}})
        );
    }
}
