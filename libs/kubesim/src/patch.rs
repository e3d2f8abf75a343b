//! JSON patch, merge patch and strategic merge patch. Server-side apply is elsewhere (`apply`).

use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::schema::{ListShape, item_key, list_shape};
use crate::target::PatchType;

/// The document after the patch.
///
/// # Errors
/// 400 when the patch is malformed, 422 when it cannot be applied.
pub fn patched(document: &Value, kind: PatchType, patch: &Value, custom: bool) -> Result<Value, ApiError> {
    let mut new = document.clone();
    match kind {
        PatchType::Json => {
            let operations: json_patch::Patch =
                serde_json::from_value(patch.clone()).map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
            for operation in operations.0 {
                let operation = as_the_server_reads_it(operation, &new);
                json_patch::patch(&mut new, &[operation]).map_err(|e| {
                    let mut refusal = ApiError::bad_request(format!("the server rejected our request: {e}"));
                    (refusal.code, refusal.reason) = (422, "Invalid");
                    refusal
                })?;
            }
        }
        PatchType::Strategic if custom => {
            return Err(ApiError::unsupported_media_type("strategic merge patch is not supported for custom resources"));
        }
        PatchType::Strategic => {
            let patch = patch.as_object().ok_or_else(|| ApiError::bad_request("the patch is not an object"))?;
            strategic(&mut new, patch, "");
        }
        PatchType::Merge | PatchType::Apply => {
            if !patch.is_object() {
                return Err(ApiError::bad_request("the patch is not an object"));
            }
            json_patch::merge(&mut new, patch);
        }
    }
    Ok(new)
}

/// Lets `replace` add a missing member of an object, as the library of a real server does against RFC 6902.
fn as_the_server_reads_it(operation: PatchOperation, document: &Value) -> PatchOperation {
    match operation {
        PatchOperation::Replace(ReplaceOperation { path, value }) if document.pointer(path.as_str()).is_none() => {
            PatchOperation::Add(AddOperation { path, value })
        }
        operation => operation,
    }
}

fn strategic(document: &mut Value, patch: &Map<String, Value>, field: &str) {
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    let map = document.as_object_mut().expect("made an object above");
    if patch.get("$patch").is_some_and(|directive| directive == "replace") {
        map.clear();
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with("$setElementOrder/")) {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Value::Array(gone)) = (map.get_mut(list), value) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        match value {
            Value::Null => {
                map.remove(key);
            }
            Value::Object(inner) if inner.get("$patch").is_some_and(|directive| directive == "delete") => {
                map.remove(key);
            }
            Value::Object(inner) => strategic(map.entry(key.clone()).or_insert(Value::Null), inner, key),
            Value::Array(items) => match list_shape(key, field, false) {
                ListShape::Atomic => {
                    map.insert(key.clone(), value.clone());
                }
                shape => merge_list(map.entry(key.clone()).or_insert_with(|| Value::Array(vec![])), items, shape, key),
            },
            scalar => {
                map.insert(key.clone(), scalar.clone());
            }
        }
    }
}

fn merge_list(document: &mut Value, patch: &[Value], shape: ListShape, field: &str) {
    if patch.iter().any(|item| item.get("$patch").is_some_and(|directive| directive == "replace")) {
        *document = patch.iter().filter(|item| item.get("$patch").is_none()).cloned().collect();
        return;
    }
    let Some(list) = document.as_array_mut() else {
        *document = Value::Array(patch.to_vec());
        return;
    };
    for item in patch {
        let (ListShape::Keyed(keys), Value::Object(map)) = (shape, item) else {
            if !list.contains(item) {
                list.push(item.clone());
            }
            continue;
        };
        // A strategic merge looks at the first key only.
        let key = item_key(item, &keys[..1]);
        let found = list.iter().position(|have| item_key(have, &keys[..1]) == key);
        match (found, map.get("$patch").and_then(Value::as_str)) {
            (Some(at), Some("delete")) => {
                list.remove(at);
            }
            (None, Some("delete")) => {}
            (Some(at), _) => strategic(&mut list[at], map, field),
            (None, _) => list.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strategic_merges_containers_by_name() {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]},
            {"name": "b"}], "tolerations": [{"key": "a"}]}});
        let patch = json!({"spec": {"containers": [{"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]},
            {"name": "b", "$patch": "delete"}, {"name": "c"}], "tolerations": [{"key": "b"}]}});
        let new = patched(&pod, PatchType::Strategic, &patch, false).unwrap();
        assert_eq!(
            new,
            json!({"spec": {"containers": [{"name": "a", "image": "2",
                "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}, {"name": "c"}],
                "tolerations": [{"key": "b"}]}})
        );
    }

    #[test]
    fn json_patch_that_does_not_fit_is_refused() {
        let patch = json!([{"op": "test", "path": "/a", "value": 2}]);
        assert_eq!(patched(&json!({"a": 1}), PatchType::Json, &patch, false).unwrap_err().code, 422);
        assert_eq!(patched(&json!({}), PatchType::Json, &json!({}), false).unwrap_err().code, 400);
    }
}
